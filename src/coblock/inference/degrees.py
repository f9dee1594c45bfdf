"""Phases of the degree-corrected model: the search (DEGREES D6) and posterior averaging."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from scipy import sparse

from coblock.inference.phase import Clock, Outcome
from coblock.inference.posterior import SampledAverage
from coblock.inference.settings import SEARCH
from coblock.inference.singular import NormalisedLinks, scaled_singular_vectors, whole_table
from coblock.inference.start import k_means_labels, thread_pools
from coblock.kernels import Floats, Indices
from coblock.kernels.degree_splits import split_cluster
from coblock.kernels.degrees import merge_while_gaining, sweep_objects
from coblock.model.degrees import DegreeChoice, DegreePartition
from coblock.model.labels import fraction_moved
from coblock.model.partition import Partition, numbered
from coblock.model.relation import BinaryRelation
from coblock.model.trace import SweepRecord

BEST, NO_PROBABILITY = np.empty(0), np.empty((0, 0))


def normalised_labels(
    relation: BinaryRelation, limits: tuple[int, ...] | None, seed: int
) -> list[Indices]:
    """Return the degree-normalised spectral start (DEGREES D5).

    It has 1.6 centres for each singular value above the second one of the same links with
    shuffled ends.
    """
    most = min(SEARCH.degree_vectors, *relation.shape)
    with thread_pools().limit(limits=1):
        links = NormalisedLinks.from_relation(relation)
        vectors = list(map(whole_table, scaled_singular_vectors(links, most, seed)))
        shuffled = NormalisedLinks.from_relation(shuffle_ends(relation, seed))
        of_rows = whole_table(scaled_singular_vectors(shuffled, 2, seed)[0])
        noise = np.linalg.norm(of_rows, axis=0)[-1]
        kept = max(int((np.linalg.norm(vectors[0], axis=0) > noise).sum()), 1)
        points = [unit_rows(each[:, :kept]) for each in vectors]
        if relation.repeated:
            points = points[:1] if relation.symmetric else [np.hstack(points)]
        wanted = (round(SEARCH.degree_centres * kept),) * len(points)
        most_of = wanted if limits is None else map(min, wanted, limits)
        pairs = zip(points, most_of, strict=True)
        return [k_means_labels(each, min(K, len(each)), seed) for each, K in pairs]


def shuffle_ends(relation: BinaryRelation, seed: int) -> BinaryRelation:
    """Return a relation with the same degrees, whose links have random ends."""
    place, rng = relation.incidence[0][0], np.random.default_rng(seed)
    rows = np.repeat(np.arange(relation.shape[0]), np.diff(place.link_start))
    ones = (np.ones(rows.size), (rows, rng.permutation(place.link)))
    links = sparse.csr_array(ones, shape=relation.shape)
    links.sum_duplicates()
    links.data[:] = 1.0
    return BinaryRelation.from_patterns(links, sparse.csr_array(relation.shape))


def unit_rows(points: Floats) -> Floats:
    """Return points scaled to length 1; those at 0 stay there."""
    length = np.linalg.norm(points, axis=1, keepdims=True)
    return points / np.where(length > 0.0, length, 1.0)


def sweep_degrees(
    partition: DegreePartition,
    limits: tuple[int, ...] | None = None,
    uniform: list[Floats] | None = None,
    probability: list[Floats] | None = None,
) -> float:
    """Update every label, one after another; return the sum of the log normalisers.

    Labels are the best ones, or drawn by uniform numbers. Probabilities of the labels are added to
    tables if there are any; then labels that are not drawn do not change.
    """
    total = 0.0
    for d, size in enumerate(partition.relation.sizes):
        room = 0 if probability is not None else SEARCH.room
        if limits is not None:
            room = max(min(room, limits[d] - partition.sizes(d).size), 0)
        t = partition.tables(d, room)
        total += sweep_objects(
            t,
            partition.cells(d),
            partition.labels[d],
            partition.labels[-1 - d],
            np.arange(size, dtype=np.int32),
            np.arange(t.m.size, dtype=np.int32),
            partition.alpha[d],
            room > 0,
            BEST if uniform is None else uniform[d],
            NO_PROBABILITY if probability is None else probability[d],
        )
    if probability is None:
        partition.labels = numbered(partition.labels)
    return total


def merge_degrees(partition: DegreePartition) -> bool:
    """Merge clusters while the evidence rises; return whether any were."""
    before = partition.clusters
    for d, alpha in enumerate(partition.alpha):
        label = merge_while_gaining(partition.tables(d), alpha, SEARCH.least_gain)
        partition.labels[d] = label[partition.labels[d]]
        partition.labels = numbered(partition.labels)
    return partition.clusters != before


def split_degrees(partition: DegreePartition, limits: tuple[int, ...] | None) -> None:
    """Split each cluster in two where the evidence rises."""
    for d, alpha in enumerate(partition.alpha):
        cells, K = partition.cells(d), partition.sizes(d).size
        label, label_other = partition.labels[d], partition.labels[-1 - d]
        repeated, t = partition.relation.repeated, partition.tables(d, 1)
        position = np.arange(label_other.size, dtype=np.int32)
        for k in range(K):
            members = np.flatnonzero(label == k).astype(np.int32)
            new = t.m.size - 1
            if members.size < 2 or (limits is not None and new >= limits[d]):
                continue
            if repeated:
                position[:] = -1
                position[members] = np.arange(members.size)
            how = (new, alpha, SEARCH.split_sweeps, SEARCH.least_gain)
            if split_cluster(t, cells, label, label_other, position, members, *how):
                t = partition.tables(d, 1)


@dataclass(slots=True)
class DegreeSearch:
    """Climbs from several starts; the partition with the largest bound of the evidence is kept.

    A climb is a sequence of rounds: a sweep, merges, splits where merges gain little, and
    hyperparameters. It ends when a round with splits gains little, or when the best climb so far
    is out of reach. The first climb starts with shape 1, the others with the learnt one. A model
    that may be plain is corrected only if it has more evidence by a few nats.
    """

    plain: Partition  # the partition found under the plain model
    modes: list[list[Indices]]  # other optima of that search
    may_be_plain: bool
    limits: tuple[int, ...] | None
    starts: list[list[Indices]]  # labels that climbs will start from
    number: int = 0
    climbs: int = 0  # begun so far
    partition: DegreePartition | None = None  # of the climb under way
    last_evidence: float | None = None  # after the last round of this climb
    best: DegreePartition | None = None
    best_evidence: float | None = None

    def sweeps(self, clock: Clock) -> Iterator[SweepRecord]:
        """Yield a record after each round, which has one sweep."""
        while not self.finished:
            yield self._round(clock)

    @property
    def finished(self) -> bool:
        """Whether all climbs have ended."""
        return self.partition is None and not self.starts

    @property
    def converged(self) -> bool:
        """Whether no climb gains any more."""
        return self.finished

    @property
    def may_stop(self) -> bool:
        """Whether the stop rule of the fit applies: a search ends by itself."""
        return False

    def outcome(self) -> Outcome:
        """Return the better one of both models, or the corrected one if it must be."""
        best, evidence = self._best_so_far()
        plain = Partition.from_labels(self.plain.relation, self.plain.labels).log_joint()
        least = plain + SEARCH.degree_margin if self.may_be_plain else -np.inf
        if best is None or evidence is None or evidence < least:
            choice = DegreeChoice(plain, evidence)
            return Outcome(self.plain.hyper, partition=self.plain, modes=self.modes, degrees=choice)
        choice = DegreeChoice(plain, evidence, best.model())
        return corrected_outcome(best, conditional_memberships(best), choice)

    def _best_so_far(self) -> tuple[DegreePartition | None, float | None]:
        """Return the best partition with its evidence; a fit may be cut off before the first."""
        found = self.partition
        if found is None and self.best is None and not self.may_be_plain:
            found = DegreePartition.from_labels(self.plain.relation, self.plain.labels)
            found.learn()
            found.refresh()
        if found is None:
            return self.best, self.best_evidence
        evidence = found.log_bound()
        if self.best_evidence is not None and self.best_evidence >= evidence:
            return self.best, self.best_evidence
        return found.copy(), evidence

    def _round(self, clock: Clock) -> SweepRecord:
        """Make a round of the climb under way, or the first of the next one."""
        if self.partition is None:
            self.partition = DegreePartition.from_labels(self.plain.relation, self.starts.pop(0))
            self.climbs += 1
            self.partition.learn(shapes=self.climbs > 1)
        partition = self.partition
        before = [label.copy() for label in partition.labels]
        leave_one_out = sweep_degrees(partition, self.limits)
        moved = fraction_moved(before, partition.labels)
        partition.learn()
        partition.refresh()
        merged, last = merge_degrees(partition), self.last_evidence
        evidence = self._renew() if merged else partition.log_joint()
        if not merged or (last is not None and evidence - last < least_gain(evidence)):
            split_degrees(partition, self.limits)
            evidence = self._renew()
        self.number += 1
        self.last_evidence = evidence
        if last is not None and self._has_ended(evidence, evidence - last):
            self.best, self.best_evidence = self._best_so_far()
            self.partition, self.last_evidence = None, None
        numbers = (2.0 * moved, leave_one_out, evidence, *partition.clusters)
        return SweepRecord(self.number, *numbers, clock(), moved)

    def _renew(self) -> float:
        """Learn hyperparameters and counts after moves; return the evidence."""
        assert self.partition is not None
        self.partition.learn()
        self.partition.refresh()
        return self.partition.log_joint()

    def _has_ended(self, evidence: float, gain: float) -> bool:
        """Return whether a climb that has gained so much by a round is at its end."""
        behind = 0.0 if self.best_evidence is None else self.best_evidence - evidence
        return gain < least_gain(evidence) or behind > max(SEARCH.degree_reach * gain, 0.0)


def least_gain(evidence: float) -> float:
    """Return the gain below which a round ends a climb."""
    return max(SEARCH.degree_gain, SEARCH.degree_share * abs(evidence))


@dataclass(slots=True)
class DegreeAverage(SampledAverage[DegreePartition]):
    """Memberships under the corrected model, averaged around the partition that was found.

    The counts that links act as stay those of this partition.
    """

    partition: DegreePartition
    rng: np.random.Generator
    sample: list[Indices] | None = None  # labels of the last sample

    def sweeps(self, clock: Clock) -> Iterator[SweepRecord]:
        """Yield a record after each sweep; the first one gives the memberships of the partition."""
        while not self.finished:
            moved, leave_one_out = self._sweep()
            self.number += 1
            partition = self._sampled()
            in_use = [np.unique(label).size for label in partition.labels]
            numbers = (partition.log_joint(), in_use[0], in_use[-1], clock(), moved)
            yield SweepRecord(self.number, self.change, leave_one_out, *numbers)

    def outcome(self) -> Outcome:
        """Return the partition with the memberships averaged so far."""
        q = self.memberships() or conditional_memberships(self.partition)
        return corrected_outcome(self.partition, q)

    def _sweep(self) -> tuple[float, float]:
        """Add a sample to the averages; return the fraction that moved and leave-one-out."""
        if self.mode_q is None:
            self.mode_q = empty_memberships(self.partition)
            return 0.0, sweep_degrees(self.partition, probability=self.mode_q)
        if self.sample is None or self.sample_sum is None:
            self.sample = [label.copy() for label in self.partition.labels]
            old, self.sample_sum = self.mode_q, empty_memberships(self.partition)
        else:
            old = [total.copy() for total in self.sample_sum]
        sampled = self._sampled()
        before = [label.copy() for label in sampled.labels]
        uniform = [self.rng.random(size) for size in sampled.relation.sizes]
        leave_one_out = sweep_degrees(sampled, uniform=uniform, probability=self.sample_sum)
        self.count_sample(old)
        return fraction_moved(before, sampled.labels), leave_one_out

    def _sampled(self) -> DegreePartition:
        """Return the partition of the last sample; all but its labels are those of the best."""
        labels = self.partition.labels if self.sample is None else self.sample
        return replace(self.partition, labels=labels)


def empty_memberships(partition: DegreePartition) -> list[Floats]:
    """Return a table of zeros for each domain, (objects, clusters)."""
    return [np.zeros((label.size, int(label.max()) + 1)) for label in partition.labels]


def conditional_memberships(partition: DegreePartition) -> list[Floats]:
    """Return p(z_i | all other labels) of every object, by domain."""
    q = empty_memberships(partition)
    sweep_degrees(partition, probability=q)
    return q


def corrected_outcome(
    partition: DegreePartition, q: list[Floats], choice: DegreeChoice | None = None
) -> Outcome:
    """Return what was found under the corrected model; the plain one describes its blocks."""
    labels = [label.copy() for label in partition.labels]
    plain = Partition.from_labels(partition.relation, labels)
    return Outcome(plain.hyper, q, plain, degrees=choice, corrected=partition)
