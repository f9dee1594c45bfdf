"""Memberships around a partition: how sure each object is of its cluster (MODEL 9, 10, 13)."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from time import perf_counter

import numpy as np

from coblock.inference.schedule import Schedule, choose_labels, conditional_memberships
from coblock.kernels import Floats, Indices
from coblock.model.partition import Partition
from coblock.model.trace import Sweep

LEAST_GAIN = 1e-6  # relative gain of evidence for which labels are still changed
MOST_SAMPLES = 32  # sampled sweeps in the average,
SAMPLED_VISITS = 150_000  # and visits in all of them: with much data all samples are alike
SAMPLED_BATCHES = 4  # per sweep and domain: around a partition nothing moves far


@dataclass(slots=True)
class ConditionalRun:
    """The last sweeps of a search: everybody's memberships with all others held at their labels.

    Soft sweeps from the partition found would leave it: their counts drift to less evidence, in
    circles where many objects have few links. Labels that the memberships contradict are tried,
    and taken if the evidence rises, until nobody moves any more. Then labels are drawn around the
    partition, sweep after sweep, and the memberships are averaged (eq:ACVB): one half given the
    partition, so that labels stay, one half given the samples, which know what else could be.
    """

    partition: Partition
    rng: np.random.Generator
    schedule: Schedule = field(default_factory=Schedule)
    averages: bool = True  # or stays with the memberships given the partition
    number: int = 0
    chain: Partition | None = None  # the last sample
    samples: int = 0
    q: list[Floats] = field(default_factory=list)  # memberships given the settled partition; while
    # samples are drawn, as many times that as there will be samples, and those given the samples

    @property
    def memberships(self) -> list[Floats]:
        """The result so far; in the end, the only copy of it."""
        if not self.settled:
            return conditional_memberships(self.partition, self.schedule)
        if self.is_complete:
            return self.q
        weight = self._wanted() + self.samples if self.samples else 1
        return [q / weight for q in self.q]

    @property
    def settled(self) -> bool:
        """Whether nobody would move."""
        return bool(self.q)

    @property
    def is_complete(self) -> bool:
        """Whether nobody would move and all samples are drawn."""
        return self.settled and self.samples == self._wanted()

    def sweeps(self, began: float, before: int = 0) -> Iterator[Sweep]:
        """Yield a report after each sweep, without end; ``before`` were done by the search."""
        while True:
            if self.is_complete or not self.settled:
                change, leave_one_out = self._improve()
                partition = self.partition
            else:
                partition, change, leave_one_out = self._sample()
            self.number += 1
            clusters = [int((m > 0).sum()) for m in partition.m]
            yield Sweep(
                before + self.number,
                change,
                leave_one_out,
                partition.log_joint(),
                clusters[0],
                clusters[-1],
                perf_counter() - began,
            )

    def _improve(self) -> tuple[float, float]:
        """Take everybody's best label if the evidence rises by that, or settle.

        Return the change of labels and leave-one-out.
        """
        trial = self.partition.copy()
        best = np.full(sum(trial.relation.sizes), -1.0)
        sweep_in = self.schedule.in_batches(trial.relation.sizes)
        leave_one_out = choose_labels(trial, best, sweep_in)
        if self.settled:  # the partition stays, and so does all that follows from it
            return 0.0, leave_one_out
        trial.recount()
        trial.learn()
        before = self.partition.log_joint()
        if trial.log_joint() > before + LEAST_GAIN * abs(before):
            self.partition, old = trial, self.partition
            return share_moved(old.labels, trial.labels), leave_one_out
        self.q = conditional_memberships(self.partition, self.schedule)
        return 0.0, leave_one_out

    def _sample(self) -> tuple[Partition, float, float]:
        """Draw all labels anew; return the sample, the change of labels and leave-one-out."""
        wanted = self._wanted()
        if self.chain is None:
            self.chain = self.partition.copy()
            for q in self.q:
                np.multiply(q, wanted, out=q)
        before = [labels.copy() for labels in self.chain.labels]
        sizes = self.partition.relation.sizes
        schedule = self.schedule.coarser(sizes, SAMPLED_BATCHES)
        leave_one_out = choose_labels(self.chain, self.rng.random(sum(sizes)), schedule, self.q)
        self.samples += 1
        if self.samples == wanted:
            for q in self.q:
                np.divide(q, 2 * wanted, out=q)
        return self.chain, share_moved(before, self.chain.labels), leave_one_out

    def _wanted(self) -> int:
        """Return how many samples are averaged."""
        if not self.averages:
            return 0
        return min(SAMPLED_VISITS // sum(self.partition.relation.sizes), MOST_SAMPLES)


def share_moved(before: list[Indices], after: list[Indices]) -> float:
    """Return the mean absolute change of hard memberships, in the domain where it is larger."""
    pairs = zip(before, after, strict=True)
    return max(2.0 * float((old != new).mean()) for old, new in pairs)
