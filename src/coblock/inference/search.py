"""The search for the partition with the largest evidence (MODEL 14)."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from time import perf_counter

import numpy as np

from coblock.batches import Schedule, choose_labels
from coblock.inference.report import Sweep
from coblock.kernels import Indices
from coblock.moves import merge, merge_and_learn, merge_nearest, split
from coblock.partition import Partition

SWEEPS_A_ROUND = 2  # best-label sweeps between two rounds of moves
SHAKES = 3  # sampled sweeps that loosen a partition
LOOSENED = 0.15  # share of the clusters merged with their nearest when one is loosened
GAIN_A_ROUND = 2e-5  # relative gain of evidence below which a round has gained nothing
PATIENCE = 2  # loosenings without gain before the search ends


@dataclass(slots=True)
class SearchRun:
    """A search over hard partitions; its stream of sweeps ends when nothing gains any more.

    Rounds of best-label sweeps, merges and splits climb to a partition that none of them
    improves. Then it is loosened by sampled sweeps and forced mergers, and climbed from again;
    the best partition is kept.
    """

    partition: Partition
    rng: np.random.Generator
    most_clusters: tuple[int, ...] | None = None
    schedule: Schedule = field(default_factory=Schedule)
    number: int = 0

    def sweeps(self, began: float) -> Iterator[Sweep]:
        """Yield a report after each sweep."""
        yield from self._climb(began)
        best, failures, loosenings = self.partition.copy(), 0, 0
        while failures < PATIENCE:
            yield from self._loosen(began, merging=loosenings % 2 == 1)
            yield from self._climb(began)
            loosenings += 1
            if self._gained(best.log_joint(), self.partition.log_joint()):
                failures = 0
            else:
                failures += 1
            if self.partition.log_joint() > best.log_joint():
                best = self.partition.copy()
            else:
                self.partition = best.copy()
        self.partition = best

    def _climb(self, began: float) -> Iterator[Sweep]:
        """Sweep, merge and split in rounds until a round gains nothing."""
        last = -np.inf
        while True:
            for _ in range(SWEEPS_A_ROUND):
                yield self._sweep(began, greedy=True)
            for d in range(len(self.partition.labels)):
                merge(self.partition, d)
            for d in range(len(self.partition.labels)):
                most = None if self.most_clusters is None else self.most_clusters[d]
                split(self.partition, d, self.rng, most, self.schedule.part_clusters)
            self.partition.learn()
            for d in range(len(self.partition.labels)):
                merge_and_learn(self.partition, d)
            value = self.partition.log_joint()
            if not self._gained(last, value):
                return
            last = value

    def _loosen(self, began: float, *, merging: bool) -> Iterator[Sweep]:
        for _ in range(SHAKES):
            yield self._sweep(began, greedy=False)
        if merging:
            for d in range(len(self.partition.labels)):
                merge_nearest(self.partition, d, LOOSENED)
            self.partition.learn()

    @staticmethod
    def _gained(before: float, after: float) -> bool:
        return after > before + GAIN_A_ROUND * abs(after)

    def _sweep(self, began: float, *, greedy: bool) -> Sweep:
        """Visit every object once, take the best label or draw one, and learn."""
        partition = self.partition
        objects = sum(partition.relation.sizes)
        before = [label.copy() for label in partition.labels]
        uniform = np.full(objects, -1.0) if greedy else self.rng.random(objects)
        if self.schedule.is_sequential(partition.relation.sizes):
            leave_one_out = partition.sweep(uniform, self.most_clusters)
        else:
            leave_one_out = choose_labels(partition, uniform, self.schedule)
        moved = [_share_moved(*pair) for pair in zip(before, partition.labels, strict=True)]
        partition.recount()
        partition.learn()
        self.number += 1
        K = partition.n.shape
        seconds = perf_counter() - began
        bound = partition.log_joint()
        return Sweep(self.number, 2.0 * max(moved), leave_one_out, bound, K[0], K[1], seconds)


def _share_moved(old: Indices, new: Indices) -> float:
    return float((old != new).mean())
