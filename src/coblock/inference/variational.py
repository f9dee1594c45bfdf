"""The loop of the deterministic methods: sweeps, hyperparameters, shrinkage, averaging."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from time import perf_counter

import numpy as np

from coblock.inference import cvb, vb
from coblock.inference.schedule import Schedule, Visits, sweep_memberships
from coblock.kernels import Floats
from coblock.kernels.memberships import average_in, distance
from coblock.model.hyperparameters import FIRST_UPDATE, Priors, Rule
from coblock.model.state import State, arrangement, by_size, chosen_columns, each_block_once
from coblock.model.trace import Sweep

METHODS = ("acvb0", "acvb", "cvb0", "cvb", "vb")
WARM = 1e-2  # CVB0 prepares second order until memberships change less than this per object
ORDERLY = 5e-2  # the order of the clusters is held when they change less than this
SETTLED = 1e-3  # averaging waits until memberships change less than this,
STALLED = 0.9  # or hardly less than a burn-in ago: they go round in circles
SHORTEST_STEP = 0.25  # of memberships that go round in circles
SHORTEST_BURN_IN, LONGEST_BURN_IN = 10, 100


@dataclass(slots=True)
class VariationalRun:
    """A run of one of the deterministic methods; it goes on as long as somebody asks.

    ``burn_in`` None waits until memberships change little, because the average remembers the
    distance they travel after it has begun (MODEL 9). Exact second-order methods are prepared
    by CVB0: from a diffuse start they merge too much (MODEL 6).
    """

    state: State
    method: str
    exact_variance: bool = True
    rule: Rule = "newton"
    burn_in: int | None = None
    wait: int = FIRST_UPDATE  # sweeps before hyperparameters are learnt
    schedule: Schedule = field(default_factory=Schedule)
    number: int = 0
    mean: list[Floats] | None = None  # averaged memberships
    averaged: int = 0  # sweeps in the average
    warm: bool = False  # whether second order may begin
    orderly: bool = False  # whether the order of the clusters is held
    settled: bool = False  # whether averaging may begin
    changes: list[float] = field(default_factory=list)  # of q, sweep by sweep
    step: float = 1.0  # fraction of the way that memberships go in batches
    everybody: bool = False  # whether the next sweep visits objects that rest, too
    visits: Visits = field(init=False)

    def __post_init__(self) -> None:
        """Put the start in order; only exact second order needs warming up."""
        self.warm |= self.method not in {"acvb", "cvb"} or not self.exact_variance
        if self.burn_in == 0:
            self.warm = self.settled = True
        self.state = self.state.selected([by_size(m) for m in self.state.m])
        self.visits = Visits.none(self.state.relation.sizes)

    @property
    def memberships(self) -> list[Floats]:
        """The result so far: averaged memberships where the method averages."""
        return self.state.q if self.mean is None else self.mean

    @property
    def priors(self) -> Priors:
        """The current hyperparameters."""
        return self.state.priors

    def sweeps(self, began: float, before: int = 0) -> Iterator[Sweep]:
        """Yield a report after each sweep, without end; ``before`` were done by a search."""
        while True:
            leave_one_out, entropy, change = self._sweep()
            self.number += 1
            self.changes.append(change)
            if self.method.startswith("a") and self.settled:
                change = self._average()
            self._look_at(change)
            self._arrange()
            self._learn()
            yield Sweep(
                before + self.number,
                change,
                leave_one_out,
                vb.exact_bound(self.state) if self.method == "vb" else self.state.bound(entropy),
                *self.state.clusters,
                perf_counter() - began,
            )

    def is_complete(self) -> bool:
        """Say whether the last sweep visited every object; ask for such a sweep if it did not."""
        self.everybody = not self.visits.complete
        return self.visits.complete

    def _sweep(self) -> tuple[float, float, float]:
        """Renew the memberships; return leave-one-out, entropy and mean change per object."""
        state = self.state
        zeroth_order = self.method.endswith("0") or not self.warm
        if self.method != "vb" and zeroth_order and not self._is_sequential():
            everybody, self.everybody = self.everybody, False
            return sweep_memberships(
                state, self.visits, self.schedule, everybody=everybody, step=self.step
            )
        old = [q.copy() for q in state.q]
        if self.method == "vb":
            leave_one_out, entropy = vb.sweep(state)
        elif zeroth_order:
            leave_one_out, entropy = cvb.sweep_zeroth_order(state)
        else:
            leave_one_out, entropy = cvb.sweep_second_order(state, exact=self.exact_variance)
        state.recount()
        self.visits.complete = True
        return leave_one_out, entropy, largest_change(old, state.q)

    def _is_sequential(self) -> bool:
        return self.schedule.is_sequential(self.state.relation.sizes)

    def _average(self) -> float:
        """Take the sweep into the average (eq:ACVB); return how much that changed it."""
        self.averaged += 1
        if self.mean is None:
            self.mean = [q.copy() for q in self.state.q]
            return 1.0
        step = 1.0 / self.averaged
        return max(
            average_in(bar, q, step) / len(q)
            for bar, q in zip(self.mean, self.state.q, strict=True)
        )

    def _look_at(self, change: float) -> None:
        """Decide whether second order, and then the average, may begin."""
        if self.settled:
            return
        if self.burn_in is not None:
            self.warm = self.warm or self.number >= self.burn_in // 2
            self.settled = self.number >= self.burn_in
        elif not self.warm:
            self.warm = change < WARM or self.number >= LONGEST_BURN_IN // 2
        elif self.number >= SHORTEST_BURN_IN:
            self.orderly |= change < ORDERLY
            stalled = change > STALLED * self.changes[-SHORTEST_BURN_IN]
            if stalled and not self._is_sequential() and self.step > SHORTEST_STEP:
                self.step /= 2.0  # batches overshoot together
                stalled = False
            self.settled = change < SETTLED or stalled or self.number >= LONGEST_BURN_IN

    def _arrange(self) -> None:
        """Put clusters in descending order and drop negligible ones, the average included.

        The order is held once memberships change little. The last stick is 1, which favours the
        last cluster where alpha > 1: it grows, moves up, another one is last and grows, and so
        on for ever.
        """
        if self.method == "vb":
            self.state = vb.arrange(self.state)
            return
        keep = arrangement(self.state, self.mean)
        if self.settled or self.orderly:
            keep = [np.sort(kept) for kept in keep]
        if self.state.is_arranged(keep):
            return
        if self.mean is not None:
            pairs = zip(self.mean, keep, strict=True)
            self.mean = [chosen_columns(bar, kept) for bar, kept in pairs]
        before, self.state = self.state, self.state.selected(keep)
        if self.state.clusters == before.clusters:
            self.schedule.hear_of_order(before, self.state, keep)
        self.visits.complete = False  # nobody was visited with the clusters as they are now

    def _learn(self) -> None:
        if self.number >= self.wait:
            state = self.state
            once = each_block_once(state.relation.kind, state.clusters)
            state.priors.learn(state.m, state.n, state.N, once, self.rule)


def largest_change(old: list[Floats], new: list[Floats]) -> float:
    """Return the mean absolute change per object, the largest of the domains (MODEL 9)."""
    pairs = zip(old, new, strict=True)
    return max(distance(before, after) / len(after) for before, after in pairs)
