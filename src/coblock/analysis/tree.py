"""The tree of blocks: clusters merged pair by pair at the least loss of evidence, down to one.

The hyperparameters of the result are held while clusters are merged, so that losses add up
(RELATIONS 9); the evidence of a cut is that of its labels with hyperparameters at their best. Those
of a degree-corrected result are of that model.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coblock.analysis.explain import similarity
from coblock.analysis.prediction import degree_model
from coblock.inference.moves import nearest_pairs
from coblock.io import refuse
from coblock.kernels import Floats, Indices
from coblock.kernels.degrees import DegreeTables, fill_values, merge_clusters, merger_gain
from coblock.kernels.moves import CurrentValues, current_values, merge_gain, merge_gains, merge_two
from coblock.kernels.tree import add_merge_changes
from coblock.model.degrees import DegreePartition
from coblock.model.partition import Partition
from coblock.model.result import Result, make_result

MOST_COMPARED = 500  # clusters of a domain whose pairs are all compared; near ones of more are
# merged first
MOST_LEVELS = 40  # cuts whose evidence is computed for a report
ROUNDS = 3  # of hyperparameters and counts of degree correction, which depend on each other


@dataclass(frozen=True, slots=True)
class Merge:
    """One step of the tree: in a domain, cluster ``second`` becomes part of ``first``."""

    domain: int
    first: int  # the smaller number of a cluster of the result that is part of each
    second: int
    loss: float  # of log evidence, at the hyperparameters of the result


@dataclass(frozen=True, slots=True)
class Cut:
    """The clusters after some merges: labels of the clusters of the result, and their evidence."""

    level: int  # number of merges
    clusters: tuple[int, ...]  # per domain
    labels: list[Indices]  # per domain: new cluster of each cluster of the result
    log_evidence: float


@dataclass(frozen=True, slots=True)
class Tree:
    """The merges of the clusters of a result, and the order of clusters that they give."""

    result: Result
    merges: list[Merge]
    order: list[NDArray[np.int64]]  # per domain: clusters with near ones side by side

    def labels(self, clusters: tuple[int, ...]) -> list[Indices]:
        """Return the new cluster of each cluster of the result, with so many per domain.

        New clusters are numbered by size, 0 the largest.
        """
        found = []
        for d, (label, wanted) in enumerate(zip(self.result.labels, clusters, strict=True)):
            size = np.bincount(label)
            parent = np.arange(size.size)
            steps = [each for each in self.merges if each.domain == d][: size.size - wanted]
            for each in steps:
                parent[parent == each.second] = each.first
            total = np.bincount(parent, size, size.size)
            rank = np.argsort(np.lexsort((np.arange(size.size), -total)))
            found.append(rank[parent].astype(np.int32))
        return found

    def clusters_at(self, level: int) -> tuple[int, ...]:
        """Return the numbers of clusters per domain after so many merges."""
        domains = range(len(self.result.labels))
        done = [sum(each.domain == d for each in self.merges[:level]) for d in domains]
        sizes = [int(label.max()) + 1 for label in self.result.labels]
        return tuple(size - count for size, count in zip(sizes, done, strict=True))

    def cut(
        self, clusters: int | tuple[int, int] | None = None, *, level: int | None = None
    ) -> Cut:
        """Return the cut with so many clusters, in each domain or per domain, or at a level.

        A level is a number of merges: 0 is the result itself. A domain that has fewer clusters
        than asked for keeps them.
        """
        domains, found = len(self.result.labels), self.clusters_at(0)
        if (clusters is None) == (level is None):
            refuse("Give either a number of clusters or a level to cut the tree at.")
        if level is not None:
            if not 0 <= level <= len(self.merges):
                refuse(f"level must be from 0 to {len(self.merges):,}, but is {level}.")
            wanted = self.clusters_at(level)
        else:
            asked = (clusters,) * domains if isinstance(clusters, int) else tuple(clusters or ())
            if len(asked) != domains or min(asked) < 1:
                what = "one number" if domains == 1 else "one number, or one for rows and columns"
                refuse(f"A cut needs {what} of clusters of at least 1, but got {clusters!r}.")
            wanted = tuple(map(min, asked, found))
        labels = self.labels(wanted)
        done = sum(have - want for have, want in zip(found, wanted, strict=True))
        return Cut(done, wanted, labels, self._evidence(labels))

    def _evidence(self, labels: list[Indices]) -> float:
        pairs = zip(labels, self.result.labels, strict=True)
        fresh = [new[label] for new, label in pairs]
        if degree_model(self.result) is not None:
            return degree_partition(self.result.relation, fresh).log_bound()
        return float(Partition.from_labels(self.result.relation, fresh).log_joint())

    def shown_levels(self) -> list[int]:
        """Return levels for a report: all if they are few, else closer where clusters are few."""
        count = len(self.merges)
        if count < MOST_LEVELS:
            return list(range(count + 1))
        left = np.unique(np.rint(np.geomspace(1, count + 1, MOST_LEVELS)).astype(int))
        return sorted({0, *(count + 1 - left).tolist()})


def build_tree(result: Result) -> Tree:
    """Merge the clusters of a result pair by pair, in the domain that loses least evidence.

    Examples
    --------
    >>> import numpy as np
    >>> from coblock import IRM
    >>> X = np.kron(np.eye(3), np.ones((9, 8)))
    >>> tree = build_tree(IRM(random_state=0).fit(X).result_)
    >>> len(tree.merges), tree.cut(2).clusters, tree.cut(level=0).clusters
    (4, (2, 2), (3, 3))
    """
    labels = [label.copy() for label in result.labels]
    if degree_model(result) is not None:
        merges = [Merge(*step) for step in degree_merges(result.relation, labels)]
        return Tree(result, merges, [_leaf_order(result, d, merges) for d in range(len(labels))])
    partition = Partition.from_labels(result.relation, labels)
    names = [np.arange(int(label.max()) + 1) for label in labels]
    merges = []
    for d in range(len(labels)):
        while names[d].size > MOST_COMPARED:
            _merge_nearest(partition, d, names, merges)
    agglomeration = Agglomeration.of(partition, names)
    while (step := agglomeration.merge_best()) is not None:
        merges.append(step)
    orders = [_leaf_order(result, d, merges) for d in range(len(labels))]
    return Tree(result, merges, orders)


def _merge_nearest(
    partition: Partition, d: int, names: list[NDArray[np.int64]], merges: list[Merge]
) -> None:
    """Merge pairs of near clusters, best first, until few enough are left or none is near."""
    relation, m, alpha = partition.relation, partition.m[d].copy(), partition.hyper.alpha[d]
    pairs = nearest_pairs(partition, d)
    now = current_values(relation.repeated, relation.symmetric, partition.tables(d), m, alpha)
    gains = np.empty(len(pairs))
    merge_gains(now, m, alpha, pairs, gains)
    label, used = np.arange(m.size, dtype=np.int32), np.zeros(m.size, dtype=bool)
    left = m.size
    for t in np.argsort(-gains, kind="stable"):
        k, g = pairs[t].tolist()
        if left == MOST_COMPARED:
            break
        if used[k] or used[g]:
            continue
        gain = merge_gain(now, m, alpha, k, g)  # in one domain merges have changed it
        merge_two(now, m, alpha, k, g)
        merges.append(Merge(d, int(names[d][k]), int(names[d][g]), -gain))
        label[g], used[k], used[g], left = k, True, True, left - 1
    names[d] = names[d][label == np.arange(m.size)]
    partition.labels[d] = label[partition.labels[d]]
    partition.renumber()


@dataclass(slots=True)
class Agglomeration:
    """All pairs of clusters of every domain with the gain of merging them, kept up to date.

    A merge changes the blocks of two clusters. Gains of pairs at the other end of these blocks
    change by three terms each; only the pairs of the merged cluster are computed anew.
    """

    now: list[CurrentValues]  # per domain, tables seen from it
    m: list[Floats]
    alpha: list[float]
    gains: list[Floats]  # per domain (K, K), the upper half; minus infinity elsewhere
    names: list[NDArray[np.int64]]  # per domain: the cluster of the result that each stands for

    @classmethod
    def of(cls, partition: Partition, names: list[NDArray[np.int64]]) -> "Agglomeration":
        """Compute the gains of all pairs of clusters of a partition."""
        relation, domains = partition.relation, range(len(partition.labels))
        m = [partition.m[d].copy() for d in domains]
        alpha = [float(partition.hyper.alpha[d]) for d in domains]
        flags = (relation.repeated, relation.symmetric)
        now = [current_values(*flags, partition.tables(d), m[d], alpha[d]) for d in domains]
        gains = [np.full((size.size, size.size), -np.inf) for size in m]
        made = cls(now, m, alpha, gains, [name.copy() for name in names])
        for d in domains:
            made._value(d, *np.triu_indices(m[d].size, 1))
        return made

    def merge_best(self) -> Merge | None:
        """Merge the pair that loses least; None if one cluster per domain is left."""
        at = [int(gain.argmax()) for gain in self.gains]
        best = [float(gain.flat[t]) for gain, t in zip(self.gains, at, strict=True)]
        d = int(np.argmax(best))
        if not np.isfinite(best[d]):
            return None
        k, g = divmod(at[d], self.m[d].size)
        self._change(d, k, g)
        merge_two(self.now[d], self.m[d], self.alpha[d], k, g)
        if len(self.now) == 2:
            self._copy_merged(d, k, g)
        self.gains[d][g], self.gains[d][:, g] = -np.inf, -np.inf
        others = np.flatnonzero(self.m[d] > 0.0)
        others = others[others != k]
        self._value(d, np.minimum(others, k), np.maximum(others, k))
        one, other = sorted((int(self.names[d][k]), int(self.names[d][g])))
        self.names[d][k] = one
        return Merge(d, one, other, -best[d])

    def _value(self, d: int, first: NDArray[np.int64], second: NDArray[np.int64]) -> None:
        """Compute the gains of pairs of clusters of domain ``d``."""
        value, pairs = np.empty(first.size), np.column_stack((first, second)).astype(np.int32)
        merge_gains(self.now[d], self.m[d], self.alpha[d], pairs, value)
        self.gains[d][first, second] = value

    def _change(self, d: int, k: int, g: int) -> None:
        """Change the gains of pairs at the other end of the blocks of ``k`` and ``g``."""
        e, now = len(self.now) - 1 - d, self.now[d]
        rest = np.flatnonzero(self.m[e] > 0.0)
        rest = rest[(rest != k) & (rest != g)] if d == e else rest
        tables = [now.blocks.n, now.blocks.N]
        directions = [tables]
        if now.repeated and not now.symmetric:
            directions.append([table[: self.m[d].size].T for table in tables])
        for n, N in directions:
            links, others = (np.ascontiguousarray(table[[k, g]][:, rest]) for table in (n, N))
            a, b = now.blocks.a[0, 0], now.blocks.b[0, 0]
            add_merge_changes(links, others, a, b, rest, self.gains[e])

    def _copy_merged(self, d: int, k: int, g: int) -> None:
        """Bring the tables seen from the other domain in line with those seen from ``d``."""
        ours, theirs = self.now[d], self.now[1 - d]
        size = self.m[1 - d].size
        tables = ((ours.blocks.n, theirs.blocks.n), (ours.blocks.N, theirs.blocks.N))
        for mine, other in (*tables, (ours.value, theirs.value)):
            other[:, k], other[:, g] = mine[k, :size], 0.0


def _leaf_order(result: Result, d: int, merges: list[Merge]) -> NDArray[np.int64]:
    """Return clusters in an order in which those of each subtree stand together.

    When two subtrees are joined, their most similar ends meet.
    """
    cosine = similarity(result, d)
    runs = {k: [k] for k in range(len(cosine))}
    for each in merges:
        if each.domain != d:
            continue
        left, right = runs[each.first], runs.pop(each.second)
        turns = [(left, right), (left, right[::-1]), (left[::-1], right), (right, left)]
        one, other = max(turns, key=lambda ends: round(float(cosine[ends[0][-1], ends[1][0]]), 9))
        runs[each.first] = [*one, *other]
    (order,) = runs.values()
    return np.array(order)


def cut_result(result: Result, cut: Cut) -> Result:
    """Return the result with the clusters of a cut; memberships of merged clusters add up.

    The samples, and with them predictions, stay.
    """
    memberships, labels = [], []
    for q, label, new in zip(result.memberships, result.labels, cut.labels, strict=True):
        merged = np.zeros((label.size, int(new.max()) + 1))
        for k, target in enumerate(new):
            merged[:, target] += q[:, k]
        memberships.append(merged / np.maximum(merged.sum(axis=1, keepdims=True), 1e-300))
        labels.append(new[label])
    hyper = Partition.from_labels(result.relation, [z.copy() for z in labels]).hyper
    hyper = replace(hyper, hyperprior=result.hyper.hyperprior)
    found = make_result(
        result.relation,
        memberships,
        hyper,
        result.trace,
        converged=result.converged,
        labels=labels,
        samples=result.samples,
    )
    return replace(found, stability=result.stability)


# Degree-corrected results, valued by their own evidence (DEGREES D5)


def degree_partition(relation: Any, labels: list[Indices]) -> DegreePartition:
    """Return the degree-corrected partition of these labels, hyperparameters at their best."""
    partition = DegreePartition.from_labels(relation, labels)
    for _ in range(ROUNDS):
        partition.learn()
        partition.refresh()
    return partition


def degree_merges(relation: Any, labels: list[Indices]) -> list[tuple[int, int, int, float]]:
    """Return the merges down to one cluster per domain: domain, both clusters, loss.

    Hyperparameters are held. Of two domains each is merged at the clusters of the other, and the
    domain that loses less goes first.
    """
    partition = degree_partition(relation, labels)
    left = [_merge_domain(partition.tables(d), alpha) for d, alpha in enumerate(partition.alpha)]
    found = []
    while any(left):
        d = min((d for d, steps in enumerate(left) if steps), key=lambda d: left[d][0][2])
        found.append((d, *left[d].pop(0)))
    return found


def _merge_domain(tables: DegreeTables, alpha: float) -> list[tuple[int, int, float]]:
    """Return the merges of one domain, best first; gains that a merge has changed are renewed."""
    K, value = tables.m.size, np.empty_like(tables.n)
    fill_values(tables, value)
    gains, valued = np.full((K, K), -np.inf), np.zeros((K, K), dtype=np.int64)
    for k in range(K):
        for g in range(k + 1, K):
            gains[k, g] = merger_gain(tables, value, alpha, k, g)
    name = np.arange(K)
    steps: list[tuple[int, int, float]] = []
    while len(steps) < K - 1:
        k, g = divmod(int(gains.argmax()), K)
        if valued[k, g] < len(steps):
            gains[k, g], valued[k, g] = merger_gain(tables, value, alpha, k, g), len(steps)
            continue
        one, other = sorted((int(name[k]), int(name[g])))
        steps.append((one, other, -float(gains[k, g])))
        merge_clusters(tables, value, k, g)
        name[k] = one
        gains[g], gains[:, g] = -np.inf, -np.inf
        for l in np.flatnonzero(tables.m > 0.0):  # these may gain more than they did
            if l != k:
                x, y = min(k, int(l)), max(k, int(l))
                gains[x, y], valued[x, y] = merger_gain(tables, value, alpha, x, y), len(steps)
    return steps
