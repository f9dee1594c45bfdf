"""The search for the partition of all domains with the largest evidence (RELATIONS 9, 16)."""

import math
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from coblock.inference.settings import CHAINS, SEARCH
from coblock.kernels import Indices
from coblock.kernels.tensor_classes import stored_statistics
from coblock.model.multi_partition import MultiPartition
from coblock.model.multi_result import MultiSample

LEAST_GAIN = 0.5  # nats; a round of moves, or a perturbation, that gains less has failed,
ROUND_GAIN = 1e-4  # as has one that gains less than this share of the evidence
MOST_FAILURES = 4  # perturbations without gain that end the search
SPLIT_SWEEPS = 3  # over the members of a cluster that is split
SPLIT_BATCHES = 4  # of members that are moved together, in each of these sweeps
SPLIT_TRIALS = 2  # first members from which each cluster is split
SEQUENTIAL_UP_TO = 1000  # objects of a domain; so few are moved one after another,
BATCHES = 25  # and more in so many batches
BLOCK_BITS = 58  # less one for each place: no cluster is opened beyond; blocks are 64-bit numbers
FEW_CLUSTERS = 3  # per domain, up to which splits are valued at learnt hyperparameters
MOST_MODES = 24  # partitions after rounds that are kept for an ensemble,
MODE_SHARE = 0.05  # if they have at most this share of the evidence less than the best one
SAME_MODE = 1e-3  # nats; partitions whose evidence differs by less are the same
ALL_PAIRS = 30  # clusters up to which all pairs are candidates for a merge,
NEIGHBOURS = 3  # and nearest clusters that are candidates beyond
DISTANCES = 2**22  # that are held at a time, to find them


def sweep_all(
    partition: MultiPartition,
    rng: np.random.Generator,
    limits: tuple[int | None, ...],
    *,
    sampled: bool = False,
    exact: bool = False,
) -> float:
    """Update the labels of all domains once; return the fraction that changed.

    An exact sweep moves one object after another and leaves the hyperparameters as they are.
    """
    before, moved = partition.state.label.copy(), 0.0
    for d, size in enumerate(partition.data.sizes):
        order = rng.permutation(size).astype(np.int32)
        uniform = rng.random(size) if sampled else None
        limit = most_clusters(partition, d, limits[d])
        batch = 1 if exact or size <= SEQUENTIAL_UP_TO else -(-size // BATCHES)
        partition.sweep(d, order, uniform, limit=limit, batch=batch)
        first = partition.data.layout.first_object[d]
        changed = partition.state.label[first : first + size] != before[first : first + size]
        moved = max(moved, float(changed.mean()))
        partition.renumber()
        before = partition.state.label.copy()
    if not exact:
        partition.learn()
    return moved


class Mode(NamedTuple):
    """A partition with much evidence that the search has passed through."""

    sample: MultiSample
    evidence: float
    ended: bool  # whether a local search ended there


@dataclass(slots=True)
class MultiSearch:
    """Local searches from several starts, then from perturbations of the best partition found.

    A local search repeats a sweep, merges and splits while the evidence rises. The fields hold
    the complete state between two sweeps, so that the search can be checkpointed.
    """

    partition: MultiPartition
    rng: np.random.Generator
    limits: tuple[int | None, ...]
    starts: list[list[Indices]]  # labels of the starts that have not been used
    climbing: bool = True  # local search, or perturbation
    sampled: int = 0  # sweeps of this perturbation
    perturbations: int = 0
    failures: int = 0  # perturbations since the best was found
    last: float = -np.inf  # evidence after the last round of this local search
    best: MultiPartition | None = None
    modes: list[Mode] = field(default_factory=list)  # after rounds, the best first

    @property
    def finished(self) -> bool:
        """Whether perturbations have failed often enough."""
        if self.best is None or self.starts:
            return False
        patience = SEARCH.several_objects // sum(self.partition.data.sizes)
        return self.failures >= min(patience, MOST_FAILURES)

    def sweep(self) -> float:
        """Make one sweep and the moves after it; return the fraction of labels that changed."""
        moved = sweep_all(self.partition, self.rng, self.limits, sampled=not self.climbing)
        if not self.climbing:
            self.sampled += 1
            if self.sampled == SEARCH.sampled_sweeps:
                self.climbing, self.last = True, -np.inf
            return moved
        for d in range(len(self.limits)):
            merge_pairs_of_domain(self.partition, d)
        for d, limit in enumerate(self.limits):
            split_clusters(self.partition, d, self.rng, most_clusters(self.partition, d, limit))
        self.partition.renumber()  # the state between two sweeps depends on the labels only
        self.partition.learn()
        now = self.partition.log_joint()
        self._keep_mode(now, ended=False)
        if not rises_enough(self.last, now):
            self._end_local_search()
        else:
            self.last = now
        return moved

    def _end_local_search(self) -> None:
        """Keep the better of this partition and the best so far; go on from a start or from it.

        A local search under infinite shapes of the degree laws goes on with learnt ones.
        """
        if not self.partition.shapes_learnt:
            self.partition.shapes_learnt, self.last = True, -np.inf
            self.partition.learn()
            return
        simplify(self.partition, self.rng, self.limits)
        self.partition.renumber()
        found = self.partition.log_joint()
        self._keep_mode(found, ended=True)
        if self.best is None or rises_enough(self.best.log_joint(), found):
            self.best, self.failures = self.partition.copy(), 0
        elif not self.starts:
            self.failures += 1
        if self.starts:
            data, labels = self.partition.data, self.starts.pop()
            self.partition = MultiPartition.from_labels(data, labels, shapes=bool(self.starts))
            self.last = -np.inf
        else:
            self.partition = self.best.copy()
            if not self.finished:
                perturb(self.partition, self.rng, self.limits, self.perturbations)
                self.perturbations += 1
                self.climbing, self.sampled = False, 0

    def _keep_mode(self, evidence: float, *, ended: bool) -> None:
        """Keep the partition after a round, if it is not known yet and among the best ones."""
        if not CHAINS.is_affordable(self.partition.data):
            return
        known = [abs(evidence - mode.evidence) < SAME_MODE for mode in self.modes]
        if any(known):
            at = known.index(True)
            self.modes[at] = self.modes[at]._replace(ended=self.modes[at].ended or ended)
            return
        labels = [label.copy() for label in self.partition.labels]
        sample = MultiSample(labels, list(self.partition.priors), list(self.partition.alpha))
        self.modes.append(Mode(sample, evidence, ended))
        self.modes.sort(key=lambda mode: -mode.evidence)
        least = self.modes[0].evidence - MODE_SHARE * abs(self.modes[0].evidence)
        self.modes = [mode for mode in self.modes[:MOST_MODES] if mode.evidence >= least]


def rises_enough(before: float, after: float) -> bool:
    """Return whether the evidence has risen enough to go on."""
    return after >= before + max(LEAST_GAIN, ROUND_GAIN * abs(after))


def simplify(
    partition: MultiPartition, rng: np.random.Generator, limits: tuple[int | None, ...]
) -> None:
    """Put all objects of a domain, or of all, in one cluster if that is more probable.

    Pairwise merges may all lose where one cluster wins: blocks found in noise end there. Few
    blocks are split under weak hyperparameters: under the learnt ones no split gains.
    """
    labels, domains = partition.labels, range(len(limits))
    for one in (set(domains), *({d} for d in domains)):
        trial = MultiPartition.from_labels(
            partition.data,
            [np.zeros_like(label) if d in one else label for d, label in enumerate(labels)],
        )
        if trial.log_posterior() > partition.log_posterior():
            partition.adopt(trial)
            labels = partition.labels
    while True:
        best, used = partition, [m.size for m in partition.sizes]
        for d, limit in enumerate(limits):
            if used[d] > FEW_CLUSTERS and sum(used) > FEW_CLUSTERS * len(limits):
                continue
            for c in range(used[d]):
                if limit is not None and used[d] >= limit:
                    continue
                trial = MultiPartition.from_labels(partition.data, partition.labels, learn=False)
                members = np.flatnonzero(trial.labels[d] == c).astype(np.int32)
                if members.size < 2 or not try_split(
                    trial, d, c, rng.permutation(members), -np.inf
                ):
                    continue
                trial.renumber()
                trial.learn()
                if trial.log_posterior() > best.log_posterior() + SEARCH.least_gain:
                    best = trial
        if best is partition:
            return
        partition.adopt(best)


def most_clusters(partition: MultiPartition, d: int, limit: int | None) -> int:
    """Return how many clusters of domain ``d`` the numbers of blocks of all relations allow."""
    most = float(limit or partition.data.sizes[d])
    used = [m.size for m in partition.sizes]
    for table in partition.data.tables:
        places = table.domains.count(d)
        if places:
            others = math.prod(used[e] for e in table.domains if e != d)
            most = min(most, (2.0 ** (BLOCK_BITS - table.arity) / others) ** (1.0 / places))
    return max(int(most), 1)


def merge_pairs_of_domain(partition: MultiPartition, d: int) -> int:
    """Merge pairs of clusters of domain ``d`` while the evidence rises; return how many.

    After a round of disjoint pairs, only pairs with a merged cluster are valued anew.
    """
    merged, pairs = 0, candidate_pairs(partition, d)
    while len(pairs):
        gains = partition.merge_gains(d, pairs)
        best = [t for t in np.argsort(-gains, kind="stable") if gains[t] > SEARCH.least_gain]
        if not best:
            break
        label = np.arange(partition.state.m.shape[1], dtype=np.int32)
        used: set[int] = set()
        for t in best:
            first, second = pairs[t].tolist()
            if first not in used and second not in used:
                label[second] = first
                used |= {first, second}
        before, trial = partition.log_joint(), partition.copy()
        trial.labels[d][:] = label[trial.labels[d]]
        trial.renumber()
        if trial.log_joint() <= before:  # merges of one round may disturb each other
            first, second = pairs[best[0]].tolist()
            used = {first, second}
            trial = partition.copy()
            trial.labels[d][trial.labels[d] == second] = first
            trial.renumber()
        changed = np.unique(trial.labels[d][np.isin(partition.labels[d], list(used))])
        merged += partition.sizes[d].size - trial.sizes[d].size
        partition.adopt(trial)
        pairs = candidate_pairs(partition, d)
        pairs = pairs[np.isin(pairs, changed).any(axis=1)]
    return merged


def candidate_pairs(partition: MultiPartition, d: int) -> Indices:
    """Return all pairs of clusters, or those with the nearest profiles if there are many."""
    K = partition.sizes[d].size
    if K > ALL_PAIRS:
        near = nearest_clusters(partition, d).ravel()
        far = np.repeat(np.arange(K), NEIGHBOURS)
        chosen = np.unique(np.minimum(near, far) * K + np.maximum(near, far))
        first, second = np.divmod(chosen, K)
    else:
        first, second = np.triu_indices(K, 1)
    return np.stack((first, second), axis=1).astype(np.int32)


def nearest_clusters(partition: MultiPartition, d: int) -> NDArray[np.intp]:
    """Return the nearest clusters of each cluster of a domain: Ward's distance of their blocks.

    Blocks without stored cells are left out. Distances are computed for some clusters at a time.
    """
    m = partition.sizes[d]
    parts = [
        block_profiles(partition, r, p)
        for r, table in enumerate(partition.data.tables)
        for p, domain in enumerate(table.domains)
        if domain == d
    ]
    points = sparse.hstack(parts, format="csr")
    square, turned = points.multiply(points).sum(axis=1), points.T.tocsr()
    near = np.empty((m.size, NEIGHBOURS), np.intp)
    size = max(DISTANCES // m.size, 1)
    for begin in range(0, m.size, size):
        some = np.arange(begin, min(begin + size, m.size))
        distance = square[some, None] + square - 2.0 * (points[some] @ turned).toarray()
        distance /= 1.0 / m[some, None] + 1.0 / m
        distance[some - begin, some] = np.inf
        near[some] = np.argpartition(distance, NEIGHBOURS, axis=1)[:, :NEIGHBOURS]
    return near


def block_profiles(partition: MultiPartition, r: int, p: int) -> sparse.csr_array:
    """Return the means of the stored blocks of a relation, by the clusters at place ``p``.

    From each mean that of the block without what is stored is taken. Means of a zero-filled
    relation are weighted by the root of the cells that a member of the cluster has in the block.
    """
    table = partition.data.tables[r]
    index, statistics, cells = stored_statistics(partition.data.layout, partition.state, r)
    prior, n = partition.priors[r].reshape(-1, 1), len(index)
    mean = table.likelihood.predictive_mean
    means = [mean(tuple(each.T), prior) for each in (statistics, cells[:, None] * table.zero)]
    if table.likelihood.name == "bernoulli":
        means = [np.arcsin(np.sqrt(np.clip(each, 0.0, 1.0))) for each in means]
    value = (means[0] - means[1]).reshape(n, -1)
    if table.filled:
        value *= np.sqrt(cells / partition.sizes[table.domains[p]][index[:, p]])[:, None]
    value /= max(float(value.std()), 1e-12)
    if table.symmetric:  # a block stands for both orders of its clusters
        apart = index[:, 0] != index[:, 1]
        turned = index[apart].copy()
        turned[:, :2] = turned[:, 1::-1]
        index, value = np.concatenate((index, turned)), np.concatenate((value, value[apart]))
    others, width = np.zeros(len(index), np.int64), value.shape[1]
    shape = [partition.sizes[e].size for e in table.domains]
    for e in range(table.arity):
        if e != p:
            others = others * shape[e] + index[:, e]
    known, others = np.unique(others, return_inverse=True)
    column = others[:, None] * width + np.arange(width)
    at = (np.repeat(index[:, p], width), column.ravel())
    return sparse.csr_array((value.ravel(), at), shape=(shape[p], known.size * width))


def split_clusters(
    partition: MultiPartition, d: int, rng: np.random.Generator, limit: int | None
) -> int:
    """Split clusters of domain ``d`` in two where the evidence rises; return how many."""
    done = 0
    for c in np.repeat(np.arange(partition.sizes[d].size), SPLIT_TRIALS).tolist():
        members = np.flatnonzero(partition.labels[d] == c).astype(np.int32)
        full = limit is not None and partition.sizes[d].size >= limit
        if members.size > 1 and not full:
            done += try_split(partition, d, c, rng.permutation(members))
    if done:
        partition.renumber()
    return done


def try_split(
    partition: MultiPartition, d: int, c: int, members: Indices, least: float = SEARCH.least_gain
) -> bool:
    """Split cluster ``c`` from its first member on; keep the split if it gains enough."""
    m, used = partition.state.m, partition.state.n_clusters
    new = int(np.argmax(m[d, : used[d]] == 0))
    if m[d, new] > 0:
        partition.renumber()
        m, used = partition.state.m, partition.state.n_clusters
        new = int(used[d]) - 1
    batch = members.size // SPLIT_BATCHES + 1
    partition.move(d, members[:1], new)
    for sweep in range(SPLIT_SWEEPS):
        label = partition.labels[d].copy()
        partition.sweep(d, members[sweep == 0 :], clusters=(c, new), batch=batch)
        if np.array_equal(label, partition.labels[d]):
            break
    if m[d, c] > 0 and m[d, new] > 0:
        pair = np.array([[c, new]], np.int32)
        if partition.merge_gains(d, pair)[0] < -least:
            return True
    if m[d, c] > 0:
        partition.move(d, members[partition.labels[d][members] == new], c)
    return False


def perturb(
    partition: MultiPartition,
    rng: np.random.Generator,
    limits: tuple[int | None, ...],
    number: int,
) -> None:
    """Change a local optimum by forced merges or forced splits; every third time by neither."""
    for d, limit in enumerate(limits):
        K = partition.sizes[d].size
        count = max(round(SEARCH.merged_share * K), 1)
        if number % 3 == 0 and K > 1:
            force_merges(partition, d, rng, count)
        elif number % 3 == 1:
            for c in rng.permutation(K)[:count]:
                members = np.flatnonzero(partition.labels[d] == c).astype(np.int32)
                if members.size > 1 and (limit is None or partition.sizes[d].size < limit):
                    try_split(partition, d, c, rng.permutation(members), -np.inf)
            partition.renumber()
    partition.learn()


def force_merges(partition: MultiPartition, d: int, rng: np.random.Generator, count: int) -> None:
    """Merge disjoint pairs of clusters that lose little, chosen at random among twice as many."""
    pairs = candidate_pairs(partition, d)
    order = np.argsort(-partition.merge_gains(d, pairs), kind="stable")[: 2 * count]
    label = np.arange(partition.state.m.shape[1], dtype=np.int32)
    used: set[int] = set()
    for first, second in pairs[rng.permutation(order)].tolist():
        if len(used) < 2 * count and first not in used and second not in used:
            label[second] = first
            used |= {first, second}
    partition.labels[d][:] = label[partition.labels[d]]
    partition.renumber()
