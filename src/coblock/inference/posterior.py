"""Posterior averaging around a partition: how certain each label is (MODEL 9, 10, 13)."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from coblock.inference.engine import Engine
from coblock.inference.phase import Clock, Outcome, label_record
from coblock.inference.settings import SEARCH
from coblock.kernels import Floats, Indices
from coblock.model.partition import Partition
from coblock.model.trace import SweepRecord


@dataclass(slots=True)
class PosteriorAverage:
    """Memberships of each object given the labels of the others, averaged around a partition.

    Soft sweeps from the partition would leave it: their counts drift to less evidence. Labels
    that the memberships contradict are tried and accepted if the evidence rises, until none
    changes. Then labels are sampled, sweep after sweep, and memberships are averaged (eq:ACVB):
    one half is given the partition itself, so that its labels stay, and one half is given the
    samples.
    """

    partition: Partition
    rng: np.random.Generator
    engine: Engine
    averages: bool = True  # otherwise the memberships are those given the partition
    number: int = 0
    mode_q: list[Floats] | None = None  # memberships given the partition, once it is stable
    sample: Partition | None = None  # the last sample
    sample_sum: list[Floats] | None = None  # sum of the memberships given the samples
    samples: int = 0

    @property
    def finished(self) -> bool:
        """Whether the labels are stable and all samples have been drawn."""
        return self.mode_q is not None and self.samples == self.samples_wanted

    @property
    def may_stop(self) -> bool:
        """Whether the stop rule of the fit applies: this phase ends by itself."""
        return False

    @property
    def samples_wanted(self) -> int:
        """Number of samples in the average."""
        if not self.averages:
            return 0
        objects = sum(self.partition.relation.sizes)
        return min(SEARCH.sampled_visits // objects, SEARCH.most_samples)

    def sweeps(self, clock: Clock) -> Iterator[SweepRecord]:
        """Yield a record after each sweep."""
        while not self.finished:
            step = self._improve_labels if self.mode_q is None else self._sample_labels
            partition, change, leave_one_out = step()
            self.number += 1
            yield label_record(partition, self.number, change, leave_one_out, clock)

    def outcome(self) -> Outcome:
        """Return the partition with the memberships averaged so far."""
        hyper = self.partition.hyper
        if self.mode_q is None:
            q = self.engine.conditional_memberships(self.partition)
        elif self.sample_sum is None:
            q = self.mode_q
        else:
            pairs = zip(self.mode_q, self.sample_sum, strict=True)
            q = [0.5 * (mode + total / self.samples) for mode, total in pairs]
        return Outcome(hyper, q, self.partition)

    def _improve_labels(self) -> tuple[Partition, float, float]:
        """Take the best label of every object if the evidence rises by that, or keep all.

        Returns the partition, the change of labels and the leave-one-out likelihood.
        """
        trial = self.partition.copy()
        leave_one_out = self.engine.sweep_labels(trial)
        trial.renumber()
        trial.learn()
        before, old = self.partition.log_joint(), self.partition
        if trial.log_joint() > before + SEARCH.label_gain * abs(before):
            self.partition = trial
            return trial, fraction_changed(old.labels, trial.labels), leave_one_out
        self.mode_q = self.engine.conditional_memberships(self.partition)
        return old, 0.0, leave_one_out

    def _sample_labels(self) -> tuple[Partition, float, float]:
        """Sample all labels; return the sample, the change of labels and leave-one-out."""
        if self.sample is None or self.sample_sum is None:
            assert self.mode_q is not None
            self.sample = self.partition.copy()
            self.sample_sum = [np.zeros_like(q) for q in self.mode_q]
        before = [labels.copy() for labels in self.sample.labels]
        uniform = self.rng.random(sum(self.partition.relation.sizes))
        leave_one_out = self.engine.sweep_labels(
            self.sample, uniform, probability=self.sample_sum, coarse=True
        )
        self.samples += 1
        return self.sample, fraction_changed(before, self.sample.labels), leave_one_out


def fraction_changed(before: list[Indices], after: list[Indices]) -> float:
    """Return the mean |change| of hard memberships, in the domain where it is larger."""
    pairs = zip(before, after, strict=True)
    return max(2.0 * float((old != new).mean()) for old, new in pairs)
