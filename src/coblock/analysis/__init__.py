"""Derive predictions, held-out scores and descriptions of clusters from a fitted result.

A module belongs here if it computes numbers or words from a result. It does not change the result,
and it does not draw or print: figures and pages belong to :mod:`coblock.ui`.
"""

from collections.abc import Sequence

import numpy as np

from coblock.analysis.explain import (
    Domains,
    Profile,
    describe_certainty,
    describe_feature,
    describe_structure,
    explain_clusters,
    has_cells,
    name_clusters,
    shown_name,
)
from coblock.analysis.prediction import describe_degrees, describe_samples
from coblock.io import printable
from coblock.io.export import object_names
from coblock.kernels import Floats, Indices
from coblock.model.result import Result

MEMBERS_SHOWN = 5  # names of each cluster
PARTNERS_SHOWN = 2  # clusters with the largest lift
OBJECTS_NAMED = 3  # single partners with the largest lift
UNSURE_NAMED = 3  # members that may belong to another cluster


def summarise(result: Result) -> str:
    """Return name, size, certainty, members and characteristic partners of every cluster."""
    relation = result.relation
    K1, K2 = result.n_clusters
    clusters = f"{K1} clusters" if relation.repeated else f"{K1} x {K2} clusters"
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
    lines += describe_degrees(result)
    lines += describe_samples(result)
    single = describe_structure(result)
    lines += [single] if single else []
    lines.append(describe_certainty(result))
    if not has_cells(result):
        lines.append("Single partners are not listed: the links are on the cluster; see collect().")
    found = explain_clusters(result)
    names = name_clusters(result, found)
    for d, profiles in enumerate(found.profiles):
        lines.append("")
        for profile in profiles:
            lines += _cluster_lines(result, found, names, d, profile)
    return "\n".join(lines)


def _cluster_lines(
    result: Result, found: Domains, names: list[list[str]], d: int, profile: Profile
) -> list[str]:
    """Return a few lines about one cluster: members, partners, near clusters, unsure members."""
    noun, e, k = found.nouns[d], found.partner(d), profile.number
    q, label = result.memberships[d], result.labels[d]
    lines = [
        f"{noun} cluster {k}: {profile.size:,} {noun}s, certainty {profile.certainty:.2f}; "
        f"{names[d][k]}"
    ]
    members = typical_members(q, label, k, object_names(result.relation, d))
    lines.append(f"    members: {', '.join(map(printable, members))}")
    for way in profile.directions:
        partners = [
            describe_feature(f"{found.nouns[e]} cluster {part.index}", part)
            for part in way.clusters[:PARTNERS_SHOWN]
        ]
        objects = [
            describe_feature(shown_name(result, e, part.index), part)
            for part in way.objects[:OBJECTS_NAMED]
        ]
        shown = "; ".join(partners + objects)
        lines.append(f"    {way.verb}: {shown or 'nothing more than others'}")
    if profile.nearest:
        near = (f"{noun} cluster {g} ({cosine:.2f})" for g, cosine in profile.nearest[:2])
        lines.append(f"    similar: {', '.join(near)}")
    if profile.unsure:
        unsure = (
            f"{shown_name(result, d, each.index)} ({each.certainty:.0%}, else {noun} cluster "
            f"{each.other})"
            for each in profile.unsure[:UNSURE_NAMED]
        )
        lines.append(f"    unsure: {', '.join(unsure)}")
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
