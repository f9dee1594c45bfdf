"""Memberships given a partition: how sure each object is of its cluster (MODEL 10, 13)."""

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


@dataclass(slots=True)
class ConditionalRun:
    """The last sweeps of a search: everybody's memberships with all others held at their labels.

    Soft sweeps from the partition found would leave it: their counts drift to less evidence, in
    circles where many objects have few links. Labels that the memberships contradict are tried,
    and taken if the evidence rises; then nothing moves any more.
    """

    partition: Partition
    schedule: Schedule = field(default_factory=Schedule)
    number: int = 0
    memberships: list[Floats] = field(default_factory=list)  # none before the first sweep
    settled: bool = False  # whether nobody would move

    def sweeps(self, began: float, before: int = 0) -> Iterator[Sweep]:
        """Yield a report after each sweep, without end; ``before`` were done by the search."""
        while True:
            if not self.settled:
                self.settled = not self._improve()
            found, leave_one_out, _ = conditional_memberships(self.partition, self.schedule)
            change = self._change(found)
            self.memberships = found
            self.number += 1
            value, clusters = self.partition.log_joint(), self.partition.n.shape
            seconds = perf_counter() - began
            yield Sweep(
                before + self.number,
                change,
                leave_one_out,
                value,
                clusters[0],
                clusters[1],
                seconds,
            )

    def _change(self, found: list[Floats]) -> float:
        """Return the mean change per object; at first all are sure of their labels."""
        if not self.memberships:
            labels = self.partition.labels
            sure = [
                q[np.arange(label.size), label].mean()
                for q, label in zip(found, labels, strict=True)
            ]
            return 2.0 * (1.0 - float(min(sure)))
        pairs = zip(self.memberships, found, strict=True)
        same = all(old.shape == new.shape for old, new in pairs)
        return largest_change(self.memberships, found) if same else 2.0

    def _improve(self) -> bool:
        """Take everybody's best label if the evidence rises by that; say whether it did."""
        trial = self.partition.copy()
        best = np.full(sum(trial.relation.sizes), -1.0)
        choose_labels(trial, best, self.schedule)
        trial.recount()
        trial.learn()
        before = self.partition.log_joint()
        if trial.log_joint() <= before + LEAST_GAIN * abs(before):
            return False
        self.partition = trial
        return True
