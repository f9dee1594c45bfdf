"""Describe a result: a summary in words, explained and named clusters, tree, known classes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import adjusted_rand_score

from coblock.analysis.explain import (
    Domains,
    Feature,
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
from coblock.analysis.tree import Cut, Tree, build_tree, cut_result
from coblock.io import printable, quantity, refuse
from coblock.io.export import object_names
from coblock.kernels import Floats, Indices
from coblock.kernels.degrees import PLAIN
from coblock.model.multi_partition import MultiPartition
from coblock.model.multi_result import MultiResult
from coblock.model.result import Result

MEMBERS_SHOWN = 5  # names of each cluster
PARTNERS_SHOWN = 2  # clusters with the largest lift
OBJECTS_NAMED = 3  # single partners with the largest lift
UNSURE_NAMED = 3  # members that may belong to another cluster

ClusterNames = Mapping[tuple[str, int], str]  # by noun and number of the cluster


@dataclass(frozen=True, slots=True)
class Composition:
    """How the objects of known class fall into the clusters of one domain."""

    domain: int
    classes: list[str]  # the most frequent first
    counts: NDArray[np.int64]  # (clusters, classes)
    objects: int  # with a class
    purity: float  # fraction whose class is the most frequent one of their cluster
    rand_index: float  # adjusted: 1 is agreement, 0 what chance gives

    def line(self, k: int) -> str:
        """Return the classes in cluster ``k`` in words, the most frequent first."""
        order = np.argsort(-self.counts[k], kind="stable")
        parts = [f"{self.counts[k, c]:,} {self.classes[c]}" for c in order if self.counts[k, c]]
        return ", ".join(parts) or "no object of known class"


@dataclass(frozen=True, slots=True)
class Description:
    """Everything that output says about the clusters of a result."""

    result: Result
    domains: Domains
    names: list[list[str]]  # of the clusters, per domain
    tree: Tree
    cuts: list[Cut]  # at some levels of the tree, the result itself first
    composition: Composition | None

    def features(self, d: int, features: list[Feature], *, clusters: bool = False) -> list[str]:
        """Return partners of a cluster of domain ``d`` in words."""
        e, found = self.domains.partner(d), []
        for part in features:
            name = self.names[e][part.index] if clusters else shown_name(self.result, e, part.index)
            found.append(describe_feature(name, part))
        return found

    def table(self) -> dict[str, list[Any]]:
        """Return one line per cluster: the columns of clusters.csv."""
        lines: dict[str, list[Any]] = {
            name: [] for name in ("side", "cluster", "name", "size", "certainty", "features")
        }
        lines |= {"nearest": [], "similarity": []} | ({"classes": []} if self.composition else {})
        for d, noun in enumerate(self.domains.nouns):
            for profile in self.domains.profiles[d]:
                k, near = profile.number, profile.nearest[:1]
                texts = [self.features(d, each.objects[:3]) for each in profile.directions]
                values = [noun, k, self.names[d][k], profile.size, profile.certainty]
                values.append("; ".join(text for some in texts for text in some))
                values += [near[0][0], near[0][1]] if near else [None, None]
                if self.composition:
                    values.append(self.composition.line(k) if d == self.composition.domain else "")
                for column, value in zip(lines.values(), values, strict=True):
                    column.append(value)
        return lines

    def feature_table(self) -> dict[str, list[Any]]:
        """Return one line per characteristic partner: the columns of features.csv."""
        columns = ("side", "cluster", "direction", "partner", "name")
        lines: dict[str, list[Any]] = {name: [] for name in columns}
        lines |= {name: [] for name in ("probability", "lift", "share")}
        for d, noun in enumerate(self.domains.nouns):
            e = self.domains.partner(d)
            partner = self.domains.nouns[e]
            for profile in self.domains.profiles[d]:
                for way in profile.directions:
                    found = [
                        (f"{partner} cluster", self.names[e][f.index], f) for f in way.clusters
                    ]
                    objects = [
                        (partner, shown_name(self.result, e, f.index), f) for f in way.objects
                    ]
                    for kind, name, part in found + objects:
                        values = (noun, profile.number, way.verb, kind, name)
                        numbers = (part.probability, part.lift, part.share)
                        for column, value in zip(lines.values(), values + numbers, strict=True):
                            column.append(value)
        return lines

    def tree_table(self) -> dict[str, list[Any]]:
        """Return one line per merge of the tree: the columns of tree.csv."""
        evidence = {cut.level: cut.log_evidence for cut in self.cuts}
        steps = list(enumerate(self.tree.merges, start=1))
        counts = [self.tree.clusters_at(level) for level, _ in steps]
        return {
            "level": [level for level, _ in steps],
            "side": [self.domains.nouns[each.domain] for _, each in steps],
            "first": [each.first for _, each in steps],
            "second": [each.second for _, each in steps],
            "loss": [each.loss for _, each in steps],
            "row_clusters": [count[0] for count in counts],
            "column_clusters": [count[-1] for count in counts],
            "log_evidence": [evidence.get(level) for level, _ in steps],
        }


def describe(
    result: Result,
    *,
    names: ClusterNames | None = None,
    labels: Mapping[str, str] | None = None,
    level: int | tuple[int, int] | None = None,
) -> Description:
    """Explain and name the clusters of a result, or of its cut with so many clusters.

    ``names`` replace the automatic names of clusters; ``labels`` are known classes by the name of
    the object.
    """
    tree = build_tree(result)
    if level is not None:
        result = cut_result(result, tree.cut(level))
        tree = build_tree(result)
    domains = explain_clusters(result)
    found = name_clusters(result, domains)
    for (noun, k), name in (names or {}).items():
        sizes = dict(zip(domains.nouns, map(len, found), strict=True))
        if not 0 <= k < sizes.get(noun, 0):
            have = " and ".join(f"{size:,} {kind} clusters" for kind, size in sizes.items())
            refuse(
                f"There is no {noun} cluster {k}: the model has {have}. The names are those of "
                "another model, or of another level of its tree."
            )
        found[domains.nouns.index(noun)][k] = name
    composition = None if labels is None else compose(result, labels)
    cuts = [tree.cut(level=at) for at in tree.shown_levels()]
    return Description(result, domains, found, tree, cuts, composition)


def compose(result: Result, classes: Mapping[str, str]) -> Composition:
    """Compare the clusters with the class of each object by name.

    The classes are those of the domain with most of the names. Objects without a class are left
    out.
    """
    found = []
    for d, size in enumerate(result.relation.sizes):
        names = object_names(result.relation, d) or [str(i) for i in range(size)]
        found.append([classes.get(name) for name in names])
    matched = [sum(each is not None for each in some) for some in found]
    d = int(np.argmax(matched))
    if not matched[d]:
        first, ours = next(iter(classes), ""), object_names(result.relation, 0) or ["0"]
        refuse(
            f"None of the {len(classes):,} names with a class is in the model; the first is "
            f"{first!r}, and the model's first is {ours[0]!r}. The first column "
            "of the labels must be the names of rows or columns."
        )
    known = np.array([each is not None for each in found[d]])
    kinds, code = np.unique([each for each in found[d] if each is not None], return_inverse=True)
    frequent = np.argsort(-np.bincount(code), kind="stable")
    counts = np.zeros((result.n_clusters[-1 if d else 0], kinds.size), dtype=np.int64)
    label = result.labels[d][known]
    np.add.at(counts, (label, np.argsort(frequent)[code]), 1)
    return Composition(
        d,
        [str(kinds[c]) for c in frequent],
        counts,
        int(known.sum()),
        float(counts.max(axis=1).sum() / known.sum()),
        float(adjusted_rand_score(code, label)),
    )


# Summaries in words


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


def summarise_several(result: MultiResult) -> str:
    """Return a description of the domains and relations of a result in words."""
    data = result.data
    counted = (quantity(len(data.domains), "domain"), quantity(len(data.tables), "relation"))
    lines = [", ".join(counted)]
    sizes = [np.bincount(label) for label in result.labels]
    for name, members in zip(data.domain_names, sizes, strict=True):
        shown = ", ".join(f"{size:,}" for size in members[:8]) + ", ..." * (members.size > 8)
        objects = quantity(int(members.sum()), "object")
        lines.append(f"{name}: {objects} in {quantity(members.size, 'cluster')} of {shown}")
    for r, table in enumerate(data.tables):
        shape = " x ".join(str(sizes[d].size) for d in table.domains)
        lines.append(
            f"{table.name}({', '.join(table.places)}): {table.likelihood.name}, {shape} blocks, "
            f"log evidence {result.partition.relation_evidence(r):,.1f}"
        )
        if table.corrected:
            lines.append(describe_relation_degrees(result, r))
    lines.append(result.averages)
    sweeps = quantity(len(result.trace), "sweep")
    return "\n".join([*lines, f"Log evidence {result.log_evidence:,.1f} after {sweeps}."])


def describe_relation_degrees(result: MultiResult, r: int) -> str:
    """Return the shapes of the degree laws of a relation, and what the plain model has instead."""
    name, shapes = result.data.tables[r].name, result.priors[r].ravel()[2:]
    if (shapes >= PLAIN).all():
        return f"{name}: plain model, as the degrees vary no more than by chance"
    plain = MultiPartition.from_labels(result.data, result.labels, shapes=False)
    shown = ", ".join("none" if eta >= PLAIN else f"{eta:.3g}" for eta in shapes)
    return (
        f"{name}: degree-corrected model, shape {shown}; log evidence at least "
        f"{result.partition.relation_bound(r):,.1f}, of the same clusters without it "
        f"{plain.relation_bound(r):,.1f}"
    )
