"""Posterior averaging around the partition found: how certain it is (MODEL 8, 9, 10, 13)."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np

from coblock.inference.draws import UniformDraws
from coblock.inference.engine import Engine, largest_change
from coblock.inference.gibbs import sample_hyperparameters, split_and_merge
from coblock.inference.phase import Clock, Outcome, label_record
from coblock.inference.settings import SEARCH
from coblock.kernels import Floats, Indices
from coblock.model.degrees import DegreePartition
from coblock.model.labels import fraction_moved
from coblock.model.partition import Partition
from coblock.model.result import Sample, fraction_apart, match_memberships
from coblock.model.trace import SweepRecord

Found = TypeVar("Found", Partition, DegreePartition)


@dataclass(slots=True)
class PosteriorChains:
    """Gibbs chains from the best partitions of the search; their samples are averaged.

    A sweep of this phase is one of every chain: each label is drawn, splits and merges of whole
    clusters are proposed, and hyperparameters are sampled. The first sweeps are left out, and of
    the rest every ``SEARCH.sweeps_per_sample``-th is kept. Predictions average over the samples.
    The membership of an object in a cluster of the partition found is the share of this cluster
    in the object's cluster of a sample, averaged.
    """

    partition: Partition  # the best one, which is published
    rng: np.random.Generator
    engine: Engine
    limits: tuple[int, ...] | None
    chains: list[Partition]
    number: int = 0
    samples: list[Sample] = field(default_factory=list)
    mean: list[Floats] | None = None  # memberships averaged over the samples
    change: float = 0.0  # of the averages by one more sample, for the largest distance so far
    moved: float = 0.0  # sum over sweeps of the fraction of labels that changed

    @classmethod
    def from_modes(
        cls,
        best: Partition,
        modes: list[list[Indices]],
        rng: np.random.Generator,
        engine: Engine,
        limits: tuple[int, ...] | None,
    ) -> "PosteriorChains":
        """Return chains from the best partition and from other local optima.

        The engine is a sequential one: no other sweep opens clusters.
        """
        starts = [best.copy()]
        for labels in modes:
            copies = [label.copy() for label in labels]
            starts.append(Partition(best.relation, copies, best.hyper.copy(), best.fixed))
        return cls(best, rng, engine, limits, starts)

    @property
    def samples_wanted(self) -> int:
        """Largest number of samples, by the size of the relation."""
        visits = SEARCH.sweeps_per_sample * sum(self.partition.relation.sizes)
        return min(max(SEARCH.chain_visits // visits, SEARCH.least_samples), SEARCH.most_chained)

    @property
    def finished(self) -> bool:
        """Whether the averages have settled, or all samples have been drawn."""
        settled = len(self.samples) >= SEARCH.least_samples and self.change < SEARCH.chain_tol
        return settled or len(self.samples) >= self.samples_wanted

    @property
    def converged(self) -> bool:
        """Whether another sample would change the averages by less than the tolerance."""
        return self.finished and self.change < SEARCH.average_tol

    @property
    def may_stop(self) -> bool:
        """Whether the stop rule of the fit applies: this phase has a tolerance of its own."""
        return False

    def sweeps(self, clock: Clock) -> Iterator[SweepRecord]:
        """Yield a record after each sweep of all chains; its evidence is that of the first."""
        while not self.finished:
            moved, leave_one_out = (
                np.mean(x) for x in zip(*map(self._sweep, self.chains), strict=True)
            )
            self.number += 1
            self.moved += float(moved)
            kept = self.number - SEARCH.chain_burn_in
            if kept > 0 and kept % SEARCH.sweeps_per_sample == 0:
                for chain, partition in enumerate(self.chains):
                    self._keep(partition, chain)
            change = None if self.mean is None else self.change
            yield label_record(
                self.chains[0], self.number, float(moved), float(leave_one_out), clock, change
            )

    def _sweep(self, partition: Partition) -> tuple[float, float]:
        """Make a sweep of one chain; return the fraction that moved and leave-one-out."""
        before = [label.copy() for label in partition.labels]
        uniform = self.rng.random(sum(partition.relation.sizes))
        leave_one_out = self.engine.sweep_labels(
            partition, uniform, limits=self.limits, open_clusters=True
        )
        split_and_merge(partition, self.rng, self.limits, SEARCH.cluster_proposals)
        sample_hyperparameters(partition, self.rng)
        return fraction_moved(before, partition.labels), leave_one_out

    def outcome(self) -> Outcome:
        """Return the partition with averaged memberships and the samples.

        A chain that has not moved is no average: memberships are then those given the partition.
        """
        partition = self.partition
        if self.mean is None or self.moved == 0.0:
            q = self.engine.conditional_memberships(partition)
            return Outcome(partition.hyper, q, partition)
        return Outcome(partition.hyper, self.mean, partition, self.samples)

    def _keep(self, partition: Partition, chain: int) -> None:
        """Add a sample to the averages."""
        partition.renumber()
        sample = Sample.of(partition, chain)
        pairs = zip(sample.labels, self.partition.labels, strict=True)
        fresh = [match_memberships(label, published) for label, published in pairs]
        self.samples.append(sample)
        if self.mean is None:
            self.mean = fresh
            return
        before, count = self.mean, len(self.samples)
        self.mean = [old + (new - old) / count for old, new in zip(before, fresh, strict=True)]
        last = zip(sample.labels, self.samples[-2].labels, strict=True)
        apart = max(fraction_apart(*labels) for labels in last)
        largest = max(largest_change(before, self.mean), apart / count)
        self.change = max(largest, self.change * (count - 1) / count)


@dataclass(slots=True, kw_only=True)
class SampledAverage(Generic[Found]):
    """Memberships averaged around a partition: what the phases of both models share (eq:ACVB).

    One half is given the partition itself, so that its labels stay, and one half is given
    partitions that are sampled from there, sweep after sweep. The clusters and the hyperparameters
    stay. Relations so large that few sweeps are affordable are not sampled; their memberships are
    given the partition.
    """

    partition: Found  # the one that is published
    averages: bool = True  # otherwise the memberships are those given the partition
    number: int = 0
    mode_q: list[Floats] | None = None  # memberships given the partition, once it is stable
    sample_sum: list[Floats] | None = None  # sum of the memberships given the samples
    samples: int = 0
    change: float = 0.0  # of the averages by the last sample

    @property
    def finished(self) -> bool:
        """Whether the labels are stable and all samples have been drawn."""
        return self.mode_q is not None and self.samples == self.samples_wanted

    @property
    def converged(self) -> bool:
        """Whether the last sample changed the averages by less than the tolerance."""
        return self.finished and self.change < SEARCH.average_tol

    @property
    def may_stop(self) -> bool:
        """Whether the stop rule of the fit applies: this phase has a tolerance of its own."""
        return False

    @property
    def samples_wanted(self) -> int:
        """Number of samples in the average."""
        return SEARCH.samples(sum(self.partition.relation.sizes)) if self.averages else 0

    def memberships(self) -> list[Floats] | None:
        """Return the averages so far, or None before the labels are stable."""
        if self.mode_q is None or self.sample_sum is None:
            return self.mode_q
        pairs = zip(self.mode_q, self.sample_sum, strict=True)
        return [0.5 * (mode + total / self.samples) for mode, total in pairs]

    def count_sample(self, before: list[Floats]) -> None:
        """Count a sample that has been added to the sum, which was ``before``."""
        self.samples += 1
        assert self.sample_sum is not None
        counts = (max(self.samples - 1, 1), self.samples)
        self.change = 0.5 * largest_change(before, self.sample_sum, counts)  # they are half of it


@dataclass(slots=True)
class PosteriorAverage(SampledAverage[Partition]):
    """Memberships of each object given the labels of the others, averaged around a partition.

    Soft sweeps from the partition would leave it: their counts drift to less evidence. Labels
    that the memberships contradict are tried and accepted if the evidence rises, until none
    changes. Then labels are sampled in batches.
    """

    partition: Partition
    rng: np.random.Generator
    engine: Engine
    sample: Partition | None = None  # the last sample

    def sweeps(self, clock: Clock) -> Iterator[SweepRecord]:
        """Yield a record after each sweep."""
        while not self.finished:
            if self.mode_q is None:
                step = self._improve_labels()
                change = None
            else:
                step = self._sample_labels()
                change = self.change
            partition, moved, leave_one_out = step
            self.number += 1
            yield label_record(partition, self.number, moved, leave_one_out, clock, change)

    def outcome(self) -> Outcome:
        """Return the partition with the memberships averaged so far."""
        q = self.memberships() or self.engine.conditional_memberships(self.partition)
        return Outcome(self.partition.hyper, q, self.partition)

    def _improve_labels(self) -> tuple[Partition, float, float]:
        """Take the best label of every object if the evidence rises by that, or keep all.

        Returns the partition, the fraction of labels that changed and the leave-one-out
        likelihood.
        """
        trial = self.partition.copy()
        leave_one_out = self.engine.sweep_labels(trial)
        trial.drop_empty()
        trial.learn()
        before, old = self.partition.log_joint(), self.partition
        if trial.log_joint() > before + SEARCH.label_gain * abs(before):
            self.partition = trial
            return trial, fraction_moved(old.labels, trial.labels), leave_one_out
        self.mode_q = self.engine.conditional_memberships(self.partition)
        if self.samples_wanted:  # they are few objects then
            self.mode_q = list(map(np.asarray, self.mode_q))
        return old, 0.0, leave_one_out

    def _sample_labels(self) -> tuple[Partition, float, float]:
        """Sample all labels; return the sample, the fraction that moved and leave-one-out."""
        assert self.mode_q is not None
        if self.sample is None or self.sample_sum is None:
            self.sample, old = self.partition.copy(), self.mode_q
            self.sample_sum = [np.zeros_like(q) for q in self.mode_q]
        else:
            old = [total.copy() for total in self.sample_sum]
        before = [labels.copy() for labels in self.sample.labels]
        uniform = UniformDraws.take(self.rng, sum(self.partition.relation.sizes))
        leave_one_out = self.engine.sweep_labels(self.sample, uniform, probability=self.sample_sum)
        self.count_sample(old)
        return self.sample, fraction_moved(before, self.sample.labels), leave_one_out
