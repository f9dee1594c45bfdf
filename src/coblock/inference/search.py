"""The search for the partition with the largest evidence (MODEL 14)."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from time import perf_counter

import numpy as np

from coblock.inference.moves import merge, merge_and_learn, merge_nearest, split
from coblock.inference.schedule import Schedule, choose_labels
from coblock.kernels import Indices
from coblock.model.partition import Partition
from coblock.model.trace import Sweep

SWEEPS_A_ROUND = 1  # best-label sweeps between two rounds of moves
SHAKES = 3  # sampled sweeps that loosen a partition
LOOSENED = 0.15  # share of the clusters merged with their nearest when one is loosened
GAIN_A_ROUND = 2e-4  # relative gain of evidence below which a round has gained nothing,
GAIN_LOOSENED = 2e-4  # and below which a loosening has
PATIENCE = 1  # loosenings without gain before the search ends,
PATIENCE_IF_SMALL = 3  # where sweeps cost next to nothing


@dataclass(slots=True)
class SearchRun:
    """A search over hard partitions; its stream of sweeps ends when nothing gains any more.

    Rounds of best-label sweeps, merges and splits climb to a partition that none of them
    improves. Then it is loosened by sampled sweeps and forced mergers, and climbed from again;
    the best partition is kept. Where the search stands is in the fields alone, so that it can be
    put away after any sweep and gone on with.
    """

    partition: Partition
    rng: np.random.Generator
    most_clusters: tuple[int, ...] | None = None
    schedule: Schedule = field(default_factory=Schedule)
    number: int = 0
    climbing: bool = True  # or loosening
    step: int = 0  # sweeps since the last moves
    rounds: int = 0  # rounds of moves
    last: float | None = None  # evidence after the last round of this climb
    best: Partition | None = None  # of all climbs
    failures: int = 0  # loosenings since the best was found
    loosenings: int = 0

    def sweeps(self, began: float) -> Iterator[Sweep]:
        """Yield a report after each sweep."""
        while self._is_unfinished():
            self.step += 1
            yield self._sweep(began, greedy=self.climbing)

    def _is_unfinished(self) -> bool:
        """Make the moves that are due after the last sweep; say whether there is a next one."""
        if self.climbing and self.step == SWEEPS_A_ROUND:
            self.step = 0
            if not self._moves_gain():
                self._end_climb()
        elif not self.climbing and self.step == SHAKES:
            if self.loosenings % 2 == 1:
                self._merge_nearest()
            self.loosenings += 1
            self.climbing, self.step, self.last = True, 0, None
        return self.failures < self._patience()

    def _moves_gain(self) -> bool:
        """Merge and split; say whether the round has gained anything."""
        domains, spread = range(len(self.partition.labels)), self.schedule.map
        for d in domains:
            merge(self.partition, d, spread)
        for d in domains:
            most = None if self.most_clusters is None else self.most_clusters[d]
            split(self.partition, d, self.rng, most, self.schedule.part_clusters)
        self.partition.learn()
        for d in domains:
            merge_and_learn(self.partition, d, spread)
        self.rounds += 1
        before, self.last = self.last, self.partition.log_joint()
        return before is None or gained(before, self.last, GAIN_A_ROUND)

    def _end_climb(self) -> None:
        """Keep the better of this climb and the best so far; loosen that one, or end with it."""
        self.climbing = False
        if self.best is None:
            self.best = self.partition.copy()
            return
        before, after = self.best.log_joint(), self.partition.log_joint()
        self.failures = 0 if gained(before, after, GAIN_LOOSENED) else self.failures + 1
        if after > before:
            self.best = self.partition.copy()
        else:
            self.partition = self.best.copy()
        if self.failures >= self._patience():
            self.partition = self.best

    def _merge_nearest(self) -> None:
        for d in range(len(self.partition.labels)):
            merge_nearest(self.partition, d, LOOSENED, self.schedule.map)
        self.partition.learn()

    def _patience(self) -> int:
        """Return how many loosenings without gain end the search."""
        small = self.schedule.is_sequential(self.partition.relation.sizes)
        return PATIENCE_IF_SMALL if small else PATIENCE

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


def gained(before: float, after: float, share: float) -> bool:
    """Say whether the evidence has risen by more than a share of it."""
    return after > before + share * abs(after)
