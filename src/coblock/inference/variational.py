"""The loop of the deterministic methods: sweeps, learning, shrinkage, averaging (MODEL 9)."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from coblock.inference.cvb import sweep_second_order
from coblock.inference.engine import Engine, SoftSweep
from coblock.inference.phase import Clock, Outcome
from coblock.inference.vb import exact_bound, prune_if_bound_allows, sweep_vb
from coblock.kernels import Floats
from coblock.kernels.memberships import update_average
from coblock.model.likelihoods import Rule
from coblock.model.state import SoftState, by_size, select_columns, sort_and_prune
from coblock.model.trace import SweepRecord

FIRST_UPDATE = 5  # sweeps after a random start before hyperparameters are learnt
SECOND_ORDER_FROM = 1e-2  # change per object below which second order replaces CVB0
ORDER_FROZEN_FROM = 5e-2  # change per object below which clusters keep their order
SETTLED_FROM = 1e-3  # change per object below which averaging begins,
STALLED = 0.9  # or ratio to the change a burn-in ago above which memberships cycle
SHORTEST_STEP = 0.25  # smallest damping of memberships that cycle in batches
SHORTEST_BURN_IN, LONGEST_BURN_IN = 10, 100  # sweeps


@dataclass(slots=True)
class Variational:
    """A run of one of the deterministic methods; it goes on until the fit stops it.

    ``burn_in`` None waits until memberships change little, because the average remembers the
    distance they move after it has begun (MODEL 9). Exact second-order methods start with CVB0:
    from a diffuse start they merge too much (MODEL 6).
    """

    state: SoftState
    engine: Engine
    method: str
    exact_variance: bool = True
    rule: Rule = "newton"
    burn_in: int | None = None
    hyper_delay: int = FIRST_UPDATE  # sweeps before hyperparameters are learnt
    number: int = 0
    mean: list[Floats] | None = None  # averaged memberships
    averaged: int = 0  # sweeps in the average
    second_order_on: bool = False
    order_frozen: bool = False  # whether clusters keep their order
    averaging: bool = False
    changes: list[float] = field(default_factory=list)  # of q, sweep by sweep
    step: float = 1.0  # fraction of the way that memberships move in batches

    def __post_init__(self) -> None:
        """Sort the clusters; only exact second order needs CVB0 sweeps first."""
        self.second_order_on |= self.method not in {"acvb", "cvb"} or not self.exact_variance
        if self.burn_in == 0:
            self.second_order_on = self.averaging = True
        if self.number == 0:
            self.state = self.state.select([by_size(m) for m in self.state.m])

    @property
    def finished(self) -> bool:
        """Whether the phase has ended by itself: it never does."""
        return False

    @property
    def may_stop(self) -> bool:
        """Whether a small change in the last record ends the fit."""
        return self.averaged > 1 if self.method.startswith("a") else self.number > 1

    def outcome(self) -> Outcome:
        """Return the averaged memberships where the method averages, else the last ones."""
        q = self.state.q if self.mean is None else self.mean
        return Outcome(self.state.hyper, list(q))

    def sweeps(self, clock: Clock) -> Iterator[SweepRecord]:
        """Yield a record after each sweep, without end."""
        while True:
            totals = self._sweep()
            self.number += 1
            self.changes.append(totals.change)
            averages = self.method.startswith("a") and self.averaging
            change = self._average() if averages else totals.change
            self._update_burn_in(change)
            self._sort_and_prune()
            if self.number >= self.hyper_delay:
                self.state.learn(self.rule)
            state, clusters = self.state, self.state.blocks.clusters
            bound = exact_bound(state) if self.method == "vb" else state.bound(totals.entropy)
            numbers = (totals.leave_one_out, bound, *clusters)
            yield SweepRecord(self.number, change, *numbers, clock())

    def _sweep(self) -> SoftSweep:
        """Update all memberships by the method."""
        if self.method == "vb":
            return sweep_vb(self.state)
        if self.method.endswith("0") or not self.second_order_on:
            return self.engine.sweep_memberships(self.state, self.step)
        return sweep_second_order(self.state, exact=self.exact_variance)

    def _average(self) -> float:
        """Add the sweep to the average (eq:ACVB); return the change of the average."""
        self.averaged += 1
        if self.mean is None:
            self.mean = [q.copy() for q in self.state.q]
            return 1.0
        step = 1.0 / self.averaged
        return max(
            update_average(mean, q, step) / len(q)
            for mean, q in zip(self.mean, self.state.q, strict=True)
        )

    def _update_burn_in(self, change: float) -> None:
        """Decide whether second order, and then averaging, begins."""
        if self.averaging:
            return
        if self.burn_in is not None:
            self.second_order_on |= self.number >= self.burn_in // 2
            self.averaging = self.number >= self.burn_in
        elif not self.second_order_on:
            small = change < SECOND_ORDER_FROM
            self.second_order_on = small or self.number >= LONGEST_BURN_IN // 2
        elif self.number >= SHORTEST_BURN_IN:
            self.order_frozen |= change < ORDER_FROZEN_FROM
            stalled = change > STALLED * self.changes[-SHORTEST_BURN_IN]
            sequential = self.engine.schedule.is_sequential(self.state.relation.sizes)
            if stalled and not sequential and self.step > SHORTEST_STEP:
                self.step /= 2.0  # objects of a batch overshoot together
                stalled = False
            self.averaging = change < SETTLED_FROM or stalled or self.number >= LONGEST_BURN_IN

    def _sort_and_prune(self) -> None:
        """Sort clusters by size and drop negligible ones, in the average, too.

        The order is frozen once memberships change little. The last stick is 1, which favours
        the last cluster where alpha > 1: it would grow and move up, another one would be last
        and grow, and so on without end.
        """
        if self.method == "vb":
            self.state = prune_if_bound_allows(self.state)
            return
        keep = sort_and_prune(self.state, self.mean)
        if self.averaging or self.order_frozen:
            keep = [np.sort(kept) for kept in keep]
        if self.state.is_in_order(keep):
            return
        if self.mean is not None:
            pairs = zip(self.mean, keep, strict=True)
            self.mean = [select_columns(mean, kept) for mean, kept in pairs]
        self.state = self.state.select(keep)
