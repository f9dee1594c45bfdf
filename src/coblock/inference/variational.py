"""The deterministic methods: sweeps, learning, shrinkage, averaging (MODEL 5, 6, 7, 9)."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from scipy.special import entr

from coblock.inference.engine import Engine, SoftSweep, largest_change
from coblock.inference.phase import Clock, Outcome
from coblock.kernels import Floats, second_order, vb
from coblock.kernels.covariances import SpreadState
from coblock.kernels.memberships import update_average
from coblock.kernels.second_order import Side
from coblock.model.hyperparameters import expected_log_sticks
from coblock.model.likelihoods import Rule
from coblock.model.state import SoftState, by_size, select_columns, sort_and_prune
from coblock.model.trace import SweepRecord

FIRST_UPDATE = 5  # sweeps after a random start before hyperparameters are learnt
SECOND_ORDER_FROM = 1e-2  # change per object below which second order replaces CVB0
ORDER_FROZEN_FROM = 5e-2  # change per object below which clusters keep their order
SETTLED_FROM = 10.0  # times tol: change per object below which averaging begins,
USUAL_TOL = 1e-5  # in place of a tol of 0
RESTART = 0.1  # ratio to the change when averaging began, below which it begins again
CYCLE = 20  # or sweeps without a new smallest change, which show that memberships cycle
SHORTEST_STEP = 0.25  # smallest damping of memberships that cycle in batches
SHORTEST_BURN_IN, LONGEST_FIRST_ORDER = 10, 50  # sweeps


@dataclass(slots=True)
class Variational:
    """A run of one of the deterministic methods; it goes on until the fit stops it.

    ``burn_in`` None waits until memberships change little or cycle, because the average
    remembers the distance they move after it has begun (MODEL 9). Exact second-order methods
    start with CVB0: from a diffuse start they merge too much (MODEL 6).
    """

    state: SoftState
    engine: Engine
    method: str
    exact_variance: bool = True
    rule: Rule = "newton"
    burn_in: int | None = None
    tol: float = 1e-5  # change of memberships that ends the fit
    hyper_delay: int = FIRST_UPDATE  # sweeps before hyperparameters are learnt
    number: int = 0
    mean: list[Floats] | None = None  # averaged memberships
    averaged: int = 0  # sweeps in the average
    first_change: float = 0.0  # change of q in the first of them
    second_order_on: bool = False
    order_frozen: bool = False  # whether clusters keep their order
    averaging: bool = False
    changes: list[float] = field(default_factory=list)  # of q, sweep by sweep
    step: float = 1.0  # fraction of the way that memberships move in batches,
    step_since: int = 0  # from this sweep on

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
    def converged(self) -> bool:
        """Whether the sweeps are within their tolerance: the stop rule of the fit says that."""
        return False

    @property
    def may_stop(self) -> bool:
        """Whether a small change in the last record ends the fit."""
        return self.averaged > 1 if self.method.startswith("a") else self.number > 1

    def outcome(self) -> Outcome:
        """Return the averaged memberships where the method averages, else the last ones."""
        q = self.state.q if self.mean is None else self.mean
        return Outcome(self.state.hyper, list(q), sticks=True)

    def sweeps(self, clock: Clock) -> Iterator[SweepRecord]:
        """Yield a record after each sweep, without end."""
        while True:
            totals, change, bound = self.advance()
            numbers = (totals.leave_one_out, bound, *self.state.blocks.clusters)
            yield SweepRecord(self.number, change, *numbers, clock())

    def advance(self) -> tuple[SoftSweep, float, float]:
        """Sweep once, average, sort and learn; return the sweep, the change and the bound."""
        totals = self._sweep()
        self.number += 1
        self.changes.append(totals.change)
        averages = self.method.startswith("a") and self.averaging
        change = self._average() if averages else totals.change
        self._update_burn_in(change)
        change = max(change, self._sort_and_prune())
        if self.number >= self.hyper_delay:
            own = self.method == "vb" and self.rule == "fixed-point"
            self.state.learn("vb-fixed-point" if own else self.rule)
        state = self.state
        bound = exact_bound(state) if self.method == "vb" else state.bound(totals.entropy)
        return totals, change, bound

    def _sweep(self) -> SoftSweep:
        """Update all memberships by the method."""
        if self.method == "vb":
            return sweep_vb(self.state)
        if self.method.endswith("0") or not self.second_order_on:
            return self.engine.sweep_memberships(self.state, self.step)
        return sweep_second_order(self.state, exact=self.exact_variance)

    def _average(self) -> float:
        """Add the sweep to the average (eq:ACVB); return the change of the average.

        Without a given burn-in it begins again once memberships move much less than when it
        began: it would remember where they were.
        """
        self.averaged += 1
        early = self.burn_in is None and self.changes[-1] < RESTART * self.first_change
        if self.mean is None or early:
            self.mean = [q.copy() for q in self.state.q]
            self.averaged, self.first_change = 1, self.changes[-1]
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
            self.second_order_on = small or self.number >= LONGEST_FIRST_ORDER
        elif self.number >= SHORTEST_BURN_IN:
            self.order_frozen |= change < ORDER_FROZEN_FROM
            stalled = is_cycling(self.changes[self.step_since :])
            sequential = self.engine.schedule.is_sequential(self.state.relation.sizes)
            if stalled and not sequential and self.step > SHORTEST_STEP:
                self.step /= 2.0  # objects of a batch overshoot together
                self.step_since, stalled = self.number, False
            settled = SETTLED_FROM * (self.tol if self.tol > 0.0 else USUAL_TOL)
            self.averaging = change < settled or stalled

    def _sort_and_prune(self) -> float:
        """Sort clusters by size and drop negligible ones, in the average, too.

        Returns the change of the memberships by that: those of dropped clusters go to others.

        The order is frozen once memberships change little. The last stick is 1, which favours
        the last cluster where alpha > 1: it would grow and move up, another one would be last
        and grow, and so on without end.
        """
        if self.method == "vb":
            self.state = prune_if_bound_allows(self.state)
            return 0.0  # it stops on its bound
        keep = sort_and_prune(self.state, self.mean)
        if self.averaging or self.order_frozen:
            keep = [np.sort(kept) for kept in keep]
        if self.state.is_in_order(keep):
            return 0.0
        if self.mean is not None:
            pairs = zip(self.mean, keep, strict=True)
            self.mean = [select_columns(mean, kept) for mean, kept in pairs]
        kept = [float(m[some].sum()) for m, some in zip(self.state.m, keep, strict=True)]
        self.state = self.state.select(keep)
        sizes = zip(kept, self.state.relation.sizes, strict=True)
        return max(2.0 * (1.0 - size / objects) for size, objects in sizes)


def is_cycling(changes: list[float]) -> bool:
    """Return whether the last sweeps have had no new smallest change."""
    return min(changes[-CYCLE:], default=0.0) > min(changes[:-CYCLE], default=np.inf)


def sweep_vb(state: SoftState) -> SoftSweep:
    """Update all memberships by VB.

    The posteriors of sticks and blocks are functions of the counts, Beta(1 + m, alpha + M) and
    Beta(a + n, b + N), so counting is the M step.
    """
    old = [q.copy() for q in state.q]
    normalisers, entropy = 0.0, 0.0
    for d in range(len(state.q)):
        statistics = (state.blocks.n, state.blocks.N)
        expected = state.relation.likelihood.expected_log(statistics, state.hyper.prior)
        log_link, log_nonlink = (table.T.copy() if d == 1 else table for table in expected)
        log_sticks = expected_log_sticks(state.m[d], state.hyper.alpha[d])
        views = (state.domain(d), state.domain(-1 - d))
        part = vb.sweep_domain(*views, log_sticks, log_link, log_nonlink)
        normalisers, entropy = normalisers + part[0], entropy + part[1]
        state.recount()
    return SoftSweep(normalisers, entropy, largest_change(old, state.q))


def prune_if_bound_allows(state: SoftState) -> SoftState:
    """Return the state with clusters by size and without negligible ones, if the bound allows.

    Neither is a step of coordinate ascent, and the bound must never fall.
    """
    other = state.select(sort_and_prune(state))
    return other if exact_bound(other) >= exact_bound(state) else state


def exact_bound(state: SoftState) -> float:
    """Return the lower bound with the entropy of the present memberships."""
    return state.bound(sum(float(entr(q).sum()) for q in state.q))


def sweep_second_order(state: SoftState, *, exact: bool) -> SoftSweep:
    """Update all memberships by CVB with exact variances, or with the paper's."""
    old = [q.copy() for q in state.q]
    sides, V = second_order_state(state, exact=exact)
    totals = second_order.sweep(exact, sides[0], sides[-1], state.tables(), V)
    state.recount()
    return SoftSweep(*totals, largest_change(old, state.q))


def second_order_state(state: SoftState, *, exact: bool) -> tuple[list[Side], Floats]:
    """Return the second-order state, built by adding every object to empty tables.

    The counts of ``state`` are rebuilt on the way.
    """
    memberships, blocks = [q.copy() for q in state.q], state.blocks
    for table in (*state.q, *state.m, blocks.n, blocks.N):
        table[:] = 0.0
    V = np.zeros((3, *blocks.clusters))
    sides = [Side(state.domain(d), _empty_spread(state, d)) for d in range(len(state.q))]
    tables = state.tables()
    second_order.add_all(exact, sides[0], sides[-1], tables, V, memberships[0], False)
    if not state.relation.repeated:
        second_order.add_all(exact, sides[1], sides[0], tables, V, memberships[1], True)
    return sides, V


def _empty_spread(state: SoftState, d: int) -> SpreadState:
    """Return the second-order state of domain ``d`` before any object has been added."""
    objects, K = state.q[d].shape
    L, relation = state.q[-1 - d].shape[1], state.relation
    P = 2 if relation.repeated and not relation.symmetric else 1
    one = K if relation.repeated else 0
    some_unseen = len(state.domain(d).incidence[0].unseen) > 0
    return SpreadState(
        links=np.zeros((objects, P, L)),
        unseen=np.zeros((objects if some_unseen else 0, P, L)),
        total=np.zeros(K),
        by_links=np.zeros((P, L, K)),
        by_unseen=np.zeros((P, L, K)),
        pairs=np.zeros((one, one)),
        triples=np.zeros((one, one)),
        own_seen=np.zeros(one),
    )
