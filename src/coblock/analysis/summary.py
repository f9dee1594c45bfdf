"""Describe a fitted model in words."""

from collections.abc import Sequence

import numpy as np

from coblock.io.export import object_names
from coblock.io.sanitize import printable
from coblock.kernels import Floats, Indices
from coblock.model.result import Result

MEMBERS_SHOWN = 5  # names of each cluster
PARTNERS_SHOWN = 2  # clusters with the most probable links


def summarise(result: Result) -> str:
    """Return size, certainty, typical members and strongest partners of every cluster."""
    relation = result.relation
    K = result.block_probability.shape
    clusters = f"{K[0]} clusters" if relation.repeated else f"{K[0]} x {K[1]} clusters"
    state = "converged" if result.converged else "not converged"
    lines = [
        f"{relation.kind} relation, {relation.shape[0]:,} x {relation.shape[1]:,}: "
        f"{relation.n_links:,} links, {relation.n_unseen:,} unseen cells, "
        f"density {relation.density:.2%}",
        f"{clusters}, log evidence {result.log_evidence:,.1f}, "
        f"{state} after {len(result.trace):,} sweeps",
    ]
    if result.stability is not None:
        lines.append(f"restarts agree with an adjusted Rand index of {result.stability:.2f}")
    nouns = ("object",) if relation.repeated else ("row", "column")
    for d, noun in enumerate(nouns):
        lines += ["", *_domain_lines(result, d, noun, partner=nouns[d - 1])]
    return "\n".join(lines)


def _domain_lines(result: Result, d: int, noun: str, partner: str) -> list[str]:
    q, label, names = result.memberships[d], result.labels[d], object_names(result.relation, d)
    probability = result.block_probability if d == 0 else result.block_probability.T
    lines = []
    for k in range(q.shape[1]):
        members = np.flatnonzero(label == k)
        strongest = np.argsort(-probability[k], kind="stable")[:PARTNERS_SHOWN]
        links = ", ".join(f"{partner} cluster {l} at {probability[k, l]:.0%}" for l in strongest)
        lines += [
            f"{noun} cluster {k}: {members.size:,} {noun}s, certainty {q[members, k].mean():.2f}; "
            f"links most to {links}",
            f"    {', '.join(map(printable, typical_members(q, label, k, names)))}",
        ]
    return lines


def typical_members(
    q: Floats, label: Indices, k: int, names: Sequence[str] | None, most: int = MEMBERS_SHOWN
) -> list[str]:
    """Return the names, or numbers, of the most certain members of cluster ``k``."""
    members = np.flatnonzero(label == k)
    typical = members[np.argsort(-q[members, k], kind="stable")[:most]]
    shown = [str(i) if names is None else names[i] for i in typical]
    left = members.size - typical.size
    return shown if left == 0 else [*shown, f"... {left:,} more"]
