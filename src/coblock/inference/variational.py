"""The loop of the deterministic methods: sweeps, hyperparameters, shrinkage, averaging."""

from collections.abc import Iterator
from dataclasses import dataclass
from time import perf_counter

import numpy as np

from coblock.hyperparameters import FIRST_UPDATE, Rule
from coblock.inference import cvb, vb
from coblock.inference.report import Sweep
from coblock.kernels import Floats
from coblock.state import State, arrangement, by_size, renormalised

METHODS = ("acvb0", "acvb", "cvb0", "cvb", "vb")
WARM = 1e-2  # CVB0 prepares second order until memberships change less than this per object
SETTLED = 1e-3  # averaging waits until they change less than this
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
    number: int = 0
    mean: list[Floats] | None = None  # averaged memberships
    averaged: int = 0  # sweeps in the average
    warm: bool = False
    settled: bool = False

    def __post_init__(self) -> None:
        """Put the start in order; only exact second order needs warming up."""
        self.warm = self.method not in {"acvb", "cvb"} or not self.exact_variance
        self.state = self.state.selected([by_size(m) for m in self.state.m])

    @property
    def memberships(self) -> list[Floats]:
        """The result so far: averaged memberships where the method averages."""
        return self.state.q if self.mean is None else self.mean

    def sweeps(self) -> Iterator[Sweep]:
        """Yield a report after each sweep, without end."""
        began = perf_counter()
        while True:
            before = [q.copy() for q in self.state.q]
            leave_one_out, entropy = self._sweep()
            self.number += 1
            change = largest_change(before, self.state.q)
            if self.method.startswith("a") and self.settled:
                change = self._average()
            self._look_at(change)
            self._arrange()
            self._learn()
            yield Sweep(
                self.number,
                change,
                leave_one_out,
                vb.exact_bound(self.state) if self.method == "vb" else self.state.bound(entropy),
                *self.state.clusters,
                perf_counter() - began,
            )

    def _sweep(self) -> tuple[float, float]:
        if self.method == "vb":
            return vb.sweep(self.state)
        if self.method.endswith("0") or not self.warm:
            return cvb.sweep_zeroth_order(self.state)
        return cvb.sweep_second_order(self.state, exact=self.exact_variance)

    def _average(self) -> float:
        """Take the sweep into the average (eq:ACVB); return how much that changed it."""
        self.averaged += 1
        if self.mean is None:
            self.mean = [q.copy() for q in self.state.q]
            return 1.0
        old = self.mean
        step = 1.0 / self.averaged
        self.mean = [bar + (q - bar) * step for bar, q in zip(old, self.state.q, strict=True)]
        return largest_change(old, self.mean)

    def _look_at(self, change: float) -> None:
        """Decide whether second order, and then the average, may begin."""
        if self.settled:
            return
        if self.burn_in is not None:
            self.warm = self.warm or self.number >= self.burn_in // 2
            self.settled = self.number >= self.burn_in
        elif not self.warm:
            self.warm = change < WARM or self.number >= LONGEST_BURN_IN // 2
        else:
            quiet = change < SETTLED and self.number >= SHORTEST_BURN_IN
            self.settled = quiet or self.number >= LONGEST_BURN_IN

    def _arrange(self) -> None:
        """Put clusters in descending order and drop negligible ones, the average included."""
        if self.method == "vb":
            self.state = vb.arrange(self.state)
            return
        keep = arrangement(self.state, self.mean)
        if self.mean is not None:
            self.mean = [
                renormalised(bar[:, kept]) for bar, kept in zip(self.mean, keep, strict=True)
            ]
        self.state = self.state.selected(keep)

    def _learn(self) -> None:
        if self.number >= self.wait:
            state = self.state
            symmetric = state.relation.kind == "undirected"
            state.priors.learn(state.m, state.n, state.N, self.rule, symmetric=symmetric)


def largest_change(old: list[Floats], new: list[Floats]) -> float:
    """Return the mean absolute change per object, the largest of the domains (MODEL 9)."""
    return max(
        float(np.abs(after - before).sum() / len(after))
        for before, after in zip(old, new, strict=True)
    )
