"""A fitted model in words."""

from collections.abc import Sequence

import numpy as np

from coblock.io.sanitize import printable
from coblock.kernels import Floats, Indices
from coblock.model.result import Result

MEMBERS_SHOWN = 5
PARTNERS_SHOWN = 2


def summarise(result: Result) -> str:
    """Return size, certainty, typical members and strongest partners of every cluster."""
    relation = result.relation
    K = result.block_probability.shape
    clusters = f"{K[0]} clusters" if relation.one_domain else f"{K[0]} x {K[1]} clusters"
    state = "converged" if result.converged else "not converged"
    lines = [
        f"{relation.kind} relation, {relation.shape[0]:,} x {relation.shape[1]:,}: "
        f"{relation.n_links:,} links, {relation.n_unseen:,} unseen cells, "
        f"density {relation.density:.2%}",
        f"{clusters}, log evidence {result.log_evidence:,.1f}, "
        f"{state} after {len(result.trace):,} sweeps",
    ]
    if result.stability is not None:
        lines.append(f"restarts agree at an adjusted Rand index of {result.stability:.2f}")
    names = (relation.row_names, relation.column_names)
    kinds = ("object",) if relation.one_domain else ("row", "column")
    for d, what in enumerate(kinds):
        probability = result.block_probability if d == 0 else result.block_probability.T
        lines += ["", *_domain_lines(what, result, d, names[d], probability)]
    return "\n".join(lines)


def _domain_lines(
    what: str, result: Result, d: int, names: Sequence[str] | None, probability: Floats
) -> list[str]:
    q, label = result.memberships[d], result.labels[d]
    partner = {"row": "column", "column": "row", "object": "object"}[what]
    lines = []
    for k in range(q.shape[1]):
        members = np.flatnonzero(label == k)
        strongest = np.argsort(-probability[k], kind="stable")[:PARTNERS_SHOWN]
        links = ", ".join(f"{partner} cluster {l} at {probability[k, l]:.0%}" for l in strongest)
        lines.append(
            f"{what} cluster {k}: {members.size:,} {what}s, certainty {q[members, k].mean():.2f}; "
            f"links most to {links}"
        )
        members_shown = map(printable, typical_members(q, label, k, names))
        lines.append(f"    {', '.join(members_shown)}")
    return lines


def typical_members(
    q: Floats, label: Indices, k: int, names: Sequence[str] | None, most: int = MEMBERS_SHOWN
) -> list[str]:
    """Return the names, or numbers, of the members that are surest of their cluster."""
    members = np.flatnonzero(label == k)
    surest = members[np.argsort(-q[members, k], kind="stable")[:most]]
    shown = [str(i) if names is None else names[i] for i in surest]
    left = members.size - surest.size
    return shown if left == 0 else [*shown, f"... {left:,} more"]
