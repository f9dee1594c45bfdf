"""Learning the concentrations and the blocks' prior from expected counts (MODEL 8)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma, polygamma

from coblock.kernels import Floats, Indices
from coblock.kernels.hyperparameters import (
    LARGEST,
    SMALLEST,
    climb_blocks,
    climb_each_block,
)

Rule = Literal["newton", "fixed-point", "fixed"]
NEWTON_STEPS = 20
FIRST_UPDATE = 5  # sweeps after a start before memberships mean enough to learn from


@dataclass(slots=True)
class Priors:
    """Hyperparameters: a concentration per domain, and a and b of every block.

    With a shared prior all entries of ``a`` are equal, and so are those of ``b``.
    """

    alpha: list[float]
    a: Floats  # (K1, K2)
    b: Floats  # (K1, K2)
    shared: bool = True

    @classmethod
    def start(
        cls, clusters: tuple[int, int], domains: int, density: float, shared: bool
    ) -> "Priors":
        """Return weak priors that expect the relation's density."""
        mean = min(max(density, 1e-6), 1.0 - 1e-6)
        return cls([1.0] * domains, np.full(clusters, mean), np.full(clusters, 1.0 - mean), shared)

    def copy(self) -> "Priors":
        """Return priors that share nothing with these."""
        return Priors(list(self.alpha), self.a.copy(), self.b.copy(), self.shared)

    def selected(self, keep: list[Indices]) -> "Priors":
        """Return those of these clusters of each domain, in this order."""
        table = np.ix_(keep[0], keep[-1])
        return Priors(list(self.alpha), self.a[table], self.b[table], self.shared)

    def learn(
        self, m: list[Floats], n: Floats, N: Floats, once: NDArray[np.bool_], rule: Rule
    ) -> None:
        """Renew all hyperparameters; the collapsed bound at these counts never falls.

        ``once`` says which entries of the tables to add up. Where it leaves out the lower half,
        the tables are symmetric.
        """
        if rule == "fixed":
            return
        learn_alpha = concentration_newton if rule == "newton" else concentration_fixed_point
        self.alpha = [learn_alpha(m_d, alpha) for m_d, alpha in zip(m, self.alpha, strict=True)]
        a, b = self.a[once], self.b[once]
        if self.shared:
            learn_shared = block_newton if rule == "newton" else block_fixed_point
            self.a[:], self.b[:] = learn_shared(n[once], N[once], a[0], b[0])
            return
        if rule == "newton":
            climb_each_block(n[once], N[once], a, b, 1)
        else:
            a, b = each_block_fixed_point(n[once], N[once], a, b)
        self.a[once], self.b[once] = a, b
        if not once.all():
            self.a.T[once], self.b.T[once] = a, b


def block_newton(n: Floats, N: Floats, a: float, b: float) -> tuple[float, float]:
    """Return the a and b shared by all blocks that make the counts most probable."""
    return climb_blocks(np.ascontiguousarray(n), np.ascontiguousarray(N), a, b, NEWTON_STEPS)


def _rise(x: Floats | float, count: Floats) -> Floats:
    """Return psi(x + count) - psi(x)."""
    return np.asarray(digamma(x + count) - digamma(x))


def block_fixed_point(n: Floats, N: Floats, a: float, b: float) -> tuple[float, float]:
    """Return one step of the shared fixed point of MODEL 8; without cells nothing moves."""
    both = _rise(a + b, n + N).sum()
    if both <= 0.0:
        return a, b
    return _within(a * _rise(a, n).sum() / both), _within(b * _rise(b, N).sum() / both)


def each_block_fixed_point(n: Floats, N: Floats, a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """Return one step of the paper's per-block fixed point.

    eq:IRM_2dom_CVB_lowerbound_a_kl_update, eq:IRM_2dom_CVB_lowerbound_b_kl_update
    """
    both = _rise(a + b, n + N)
    some = both > 0.0
    both = np.where(some, both, 1.0)
    new_a = np.where(some, a * _rise(a, n) / both, a)
    new_b = np.where(some, b * _rise(b, N) / both, b)
    return np.clip(new_a, SMALLEST, LARGEST), np.clip(new_b, SMALLEST, LARGEST)


def concentration_fixed_point(m: Floats, alpha: float) -> float:
    """Return one step of eq:IRM_2dom_CVB_alpha_1_update with K - 1 random sticks (MODEL 12)."""
    if m.size == 1:
        return alpha
    M = tails(m)[:-1]
    return _within((m.size - 1) / _rise(M + alpha, m[:-1] + 1.0).sum())


def concentration_newton(m: Floats, alpha: float) -> float:
    """Return the concentration that makes the sizes most probable under truncated sticks."""
    if m.size == 1:
        return alpha
    M = tails(m)[:-1]

    def slope(alpha: float) -> tuple[float, float]:
        whole = m[:-1] + M + alpha + 1.0
        first = M.size / alpha + (digamma(M + alpha) - digamma(whole)).sum()
        second = (polygamma(1, M + alpha) - polygamma(1, whole)).sum() - M.size / alpha**2
        return float(first), float(second)

    return climb_on_log_scale(slope, alpha)


def crp_concentration(clusters: int, objects: int, alpha: float = 1.0) -> float:
    """Return the concentration under which the number of clusters is most probable (MODEL 10)."""

    def slope(alpha: float) -> tuple[float, float]:
        first = clusters / alpha + digamma(alpha) - digamma(alpha + objects)
        second = polygamma(1, alpha) - polygamma(1, alpha + objects) - clusters / alpha**2
        return float(first), float(second)

    return climb_on_log_scale(slope, alpha)


def climb_on_log_scale(slope: Callable[[float], tuple[float, float]], x: float) -> float:
    """Return the root of a slope in ln x by Newton steps, kept inside a shrinking bracket.

    ``slope`` returns first and second derivative in x of a function with one maximum.
    """
    low, high, at = np.log(SMALLEST), np.log(LARGEST), np.log(x)
    for _ in range(100):
        x = float(np.exp(at))
        first, second = slope(x)
        gradient, bend = x * first, x * x * second + x * first
        low, high = (at, high) if gradient > 0 else (low, at)
        step = -gradient / bend if bend < 0 else np.inf
        new = at + step
        if not low < new < high:
            new = 0.5 * (low + high)
        if abs(new - at) < 1e-10:
            break
        at = new
    return _within(float(np.exp(at)))


def tails(m: Floats) -> Floats:
    """Return M_k, the members of later clusters (eq:IRM_2dom_CVB_M_1k_2l_E)."""
    return np.append(np.cumsum(m[::-1])[::-1][1:], 0.0)


def _within(x: float) -> float:
    return float(min(max(x, SMALLEST), LARGEST))
