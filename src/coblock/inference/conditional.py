"""Memberships around a partition: how sure each object is of its cluster (MODEL 9, 10, 13)."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from time import perf_counter

import numpy as np

from coblock.batches import Schedule, choose_labels, conditional_memberships
from coblock.inference.report import Sweep
from coblock.inference.variational import largest_change
from coblock.kernels import Floats
from coblock.partition import Partition

LEAST_GAIN = 1e-6  # relative gain of evidence for which labels are still changed
MOST_SAMPLES = 32  # sampled sweeps in the average,
SAMPLED_VISITS = 150_000  # and visits in all of them: with much data all samples are alike


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
    given: list[Floats] = field(default_factory=list)  # memberships given the partition
    settled: bool = False  # whether nobody would move
    chain: Partition | None = None  # the last sample
    total: list[Floats] = field(default_factory=list)  # of memberships given the samples
    samples: int = 0

    @property
    def memberships(self) -> list[Floats]:
        """The result so far."""
        if self.samples == 0:
            return self.given
        pairs = zip(self.given, self.total, strict=True)
        return [0.5 * q + total * (0.5 / self.samples) for q, total in pairs]

    @property
    def is_complete(self) -> bool:
        """Whether nobody would move and all samples are drawn."""
        return self.settled and self.samples == self._wanted()

    def sweeps(self, began: float, before: int = 0) -> Iterator[Sweep]:
        """Yield a report after each sweep, without end; ``before`` were done by the search."""
        while True:
            if self.settled and self.samples < self._wanted():
                partition, change, leave_one_out = self._sample()
            else:
                self.settled = self.settled or not self._improve()
                partition = self.partition
                change, leave_one_out = self._look()
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

    def _improve(self) -> bool:
        """Take everybody's best label if the evidence rises by that; say whether it did."""
        trial = self.partition.copy()
        best = np.full(sum(trial.relation.sizes), -1.0)
        choose_labels(trial, best, self._in_batches())
        trial.recount()
        trial.learn()
        before = self.partition.log_joint()
        if trial.log_joint() <= before + LEAST_GAIN * abs(before):
            return False
        self.partition = trial
        return True

    def _look(self) -> tuple[float, float]:
        """Renew the memberships given the partition; return their change and leave-one-out."""
        found, leave_one_out, _ = conditional_memberships(self.partition, self.schedule)
        before, self.given = self.given, found
        if not before:
            return self._unsure(), leave_one_out
        same = all(old.shape == q.shape for old, q in zip(before, found, strict=True))
        return largest_change(before, found) if same else 2.0, leave_one_out

    def _unsure(self) -> float:
        """Return how far memberships are from the labels, on average, in the worse domain."""
        pairs = zip(self.given, self.partition.labels, strict=True)
        return max(2.0 - 2.0 * float(q[np.arange(z.size), z].mean()) for q, z in pairs)

    def _sample(self) -> tuple[Partition, float, float]:
        """Draw all labels anew; return the sample, the change of labels and leave-one-out."""
        if self.chain is None:
            self.chain = self.partition.copy()
            self.total = [np.zeros_like(q) for q in self.given]
        sizes, old = self.partition.relation.sizes, [label.copy() for label in self.chain.labels]
        uniform = self.rng.random(sum(sizes))
        leave_one_out = choose_labels(self.chain, uniform, self._in_batches(), self.total)
        self.samples += 1
        pairs = zip(old, self.chain.labels, strict=True)
        return self.chain, max(2.0 * float((a != b).mean()) for a, b in pairs), leave_one_out

    def _wanted(self) -> int:
        """Return how many samples are averaged."""
        if not self.averages:
            return 0
        return min(SAMPLED_VISITS // sum(self.partition.relation.sizes), MOST_SAMPLES)

    def _in_batches(self) -> Schedule:
        return self.schedule.in_batches(self.partition.relation.sizes)
