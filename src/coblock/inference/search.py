"""The search for the partition with the largest evidence: iterated local search (MODEL 14)."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from coblock.inference.draws import UniformDraws
from coblock.inference.engine import Engine
from coblock.inference.moves import (
    collapse,
    merge,
    merge_nearest,
    split,
    split_and_learn,
)
from coblock.inference.phase import Clock, Outcome, label_record
from coblock.inference.settings import SEARCH
from coblock.kernels import Indices
from coblock.model.labels import fraction_moved
from coblock.model.partition import Partition
from coblock.model.trace import SweepRecord


@dataclass(slots=True)
class Search:
    """Local search with perturbations; its sweeps end when nothing gains any more.

    Rounds of a best-label sweep, merges and splits climb to a partition that none of them
    improves. It is perturbed by sampled sweeps and forced merges, and the local search starts
    again from there; the best partition is kept. The fields hold the complete state, so that the
    search can be checkpointed after any sweep.
    """

    partition: Partition
    rng: np.random.Generator
    limits: tuple[int, ...] | None
    engine: Engine
    perturb: bool = True  # whether the search goes on from its first local optimum
    number: int = 0  # sweeps so far
    climbing: bool = True  # local search, or perturbation
    sweeps_since_moves: int = 0
    rounds: int = 0  # rounds of moves
    last_evidence: float | None = None  # after the last round of this local search
    best: Partition | None = None  # of all local searches
    failures: int = 0  # perturbations since the best was found
    perturbations: int = 0
    modes: list[list[Indices]] = field(default_factory=list)  # labels of the last other optima

    def sweeps(self, clock: Clock) -> Iterator[SweepRecord]:
        """Yield a record after each sweep."""
        while True:
            self._make_moves()
            if self.finished:
                return
            yield self._sweep(clock)

    @property
    def finished(self) -> bool:
        """Whether perturbations have failed often enough, or none are wanted."""
        objects = sum(self.partition.relation.sizes)
        if not self.perturb or self.perturbations >= SEARCH.most_perturbations(objects):
            return self.best is not None and not self.climbing
        return self.failures >= SEARCH.patience(objects)

    @property
    def converged(self) -> bool:
        """Whether no perturbation gains any more."""
        return self.finished

    @property
    def may_stop(self) -> bool:
        """Whether the stop rule of the fit applies: a search ends by itself."""
        return False

    def outcome(self) -> Outcome:
        """Return the best partition so far."""
        found = self.partition
        if self.best is not None and self.best.log_joint() > found.log_joint():
            found = self.best
        return Outcome(found.hyper, partition=found, modes=self.modes)

    def _make_moves(self) -> None:
        """Make the moves that are due after the sweeps so far."""
        if self.climbing and self.sweeps_since_moves == 1:
            self.sweeps_since_moves = 0
            if not (self._merge_and_split() or self._split_few_blocks()):
                self._end_local_search()
        elif not self.climbing and self.sweeps_since_moves == SEARCH.sampled_sweeps:
            if self.perturbations % 2 == 1:
                for d, m in enumerate(self.partition.m):
                    most = round(SEARCH.merged_share * m.size)
                    merge_nearest(self.partition, d, -np.inf, most, self.engine, disjoint=True)
                self.partition.learn()
            self.perturbations += 1
            self.climbing, self.sweeps_since_moves, self.last_evidence = True, 0, None

    def _merge_and_split(self) -> bool:
        """Make a round of moves; return whether the evidence has risen since the last one."""
        partition, domains = self.partition, range(len(self.partition.labels))
        for d in domains:
            merge(partition, d, self.engine)
        for d in domains:
            limit = None if self.limits is None else self.limits[d]
            split(partition, d, self.rng, limit, self.engine)
        partition.learn()
        self.rounds += 1
        before, self.last_evidence = self.last_evidence, partition.log_joint()
        return before is None or has_gained(before, self.last_evidence, SEARCH.round_gain)

    def _split_few_blocks(self) -> bool:
        """Split clusters at learnt hyperparameters if there are few; return whether any was."""
        partition = self.partition
        if partition.blocks.distinct().sum() > SEARCH.few_blocks:
            return False
        done = 0
        for d in range(len(partition.labels)):
            limit = None if self.limits is None else self.limits[d]
            done += split_and_learn(partition, d, self.rng, limit, self.engine)
        self.last_evidence = partition.log_joint()
        return done > 0

    def _end_local_search(self) -> None:
        """Keep the better of this partition and the best so far, and perturb that one next."""
        self.climbing = False
        collapse(self.partition)
        if self.best is None:
            self.best = self.partition.copy()
            return
        before, after = self.best.log_joint(), self.partition.log_joint()
        gained = has_gained(before, after, SEARCH.perturbation_gain)
        self.failures = 0 if gained else self.failures + 1
        if after > before:
            other, self.best = self.best, self.partition.copy()
        else:
            other, self.partition = self.partition, self.best.copy()
        self.modes = [*self.modes, other.labels][1 - SEARCH.chains :]

    def _sweep(self, clock: Clock) -> SweepRecord:
        """Update every label once, to the best or a drawn one, and learn the hyperparameters."""
        partition = self.partition
        before = [label.copy() for label in partition.labels]
        objects = sum(partition.relation.sizes)
        uniform = None if self.climbing else UniformDraws.take(self.rng, objects)
        leave_one_out = self.engine.sweep_labels(
            partition, uniform, limits=self.limits, open_clusters=True
        )
        moved = fraction_moved(before, partition.labels)
        partition.drop_empty()
        partition.learn()
        self.number += 1
        self.sweeps_since_moves += 1
        return label_record(partition, self.number, moved, leave_one_out, clock)


def has_gained(before: float, after: float, share: float) -> bool:
    """Return whether the evidence has risen by more than a share of it."""
    return after > before + share * abs(after)


def climb_from(start: Partition, engine: Engine) -> Partition:
    """Return a partition after a few rounds of best-label sweeps and merges, to compare starts.

    Neither changes the labels where each domain is one cluster.
    """
    partition = start.copy()
    for _ in range(SEARCH.start_rounds):
        if max(m.size for m in partition.m) > 1:
            engine.sweep_labels(partition)
            partition.drop_empty()
            for d in range(len(partition.labels)):
                merge(partition, d, engine)
        partition.learn()
    return partition
