"""Collapsed Gibbs sampling with sampled hyperparameters (MODEL 8)."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from time import perf_counter

import numpy as np

from coblock.hyperparameters import Priors, Rule
from coblock.inference.report import Sweep
from coblock.kernels import Blocks, Domain, Floats, Indices, gibbs
from coblock.kernels.hyperparameters import LARGEST, SMALLEST, block_log_likelihood
from coblock.relation import Relation
from coblock.state import count_labels, crp_log_probability

ROOM = 4  # empty clusters added when a sweep has used the last one
MOST_SAMPLES = 256  # of the kept sweeps, evenly spaced, that predictions average over
SHAPE, RATE = 1.0, 1.0  # of the Gamma priors of alpha, a and b


@dataclass(frozen=True, slots=True)
class Sample:
    """One kept state of the chain: labels per domain and the blocks' link probabilities."""

    labels: list[Indices]
    probability: Floats  # (K1, K2)


@dataclass(slots=True)
class GibbsRun:
    """A chain over labels; the second half of its sweeps is kept."""

    relation: Relation
    labels: list[Indices]
    priors: Priors
    rng: np.random.Generator
    max_iter: int
    rule: Rule = "newton"
    samples: list[Sample] = field(default_factory=list)
    number: int = 0
    _m: list[Floats] = field(init=False)
    _n: Floats = field(init=False)
    _N: Floats = field(init=False)
    _tally: list[Floats] = field(init=False)  # per domain (objects, K): how often kept there

    def __post_init__(self) -> None:
        """Count the start and make room for new clusters."""
        self._m = [np.bincount(label).astype(np.float64) for label in self.labels]
        self._n, self._N = count_labels(self.relation, self.labels)
        self._tally = [
            np.zeros((label.size, m.size)) for label, m in zip(self.labels, self._m, strict=True)
        ]
        self._grow()

    @property
    def memberships(self) -> list[Floats]:
        """Share of the kept sweeps that each object spent in each cluster."""
        if self.number <= self.max_iter // 2:
            return [np.eye(m.size)[label] for label, m in zip(self.labels, self._m, strict=True)]
        return [tally / (self.number - self.max_iter // 2) for tally in self._tally]

    def sweeps(self) -> Iterator[Sweep]:
        """Yield a report after each sweep."""
        began = perf_counter()
        while True:
            before = [label.copy() for label in self.labels]
            leave_one_out = self._sweep()
            self._sample_hyperparameters()
            self.number += 1
            self._keep()
            moved = [
                float(2.0 * (old != new).mean())
                for old, new in zip(before, self.labels, strict=True)
            ]
            clusters = [int((m > 0).sum()) for m in self._m]
            yield Sweep(
                self.number,
                max(moved),
                leave_one_out,
                self.log_joint(),
                clusters[0],
                clusters[-1],
                perf_counter() - began,
            )

    def log_joint(self) -> float:
        """Return log p(X, z) at the current labels and hyperparameters (MODEL 10)."""
        once = self._each_block_once()
        a, b = self._shared_prior()
        crp = sum(
            crp_log_probability(m[m > 0], alpha)
            for m, alpha in zip(self._m, self.priors.alpha, strict=True)
        )
        return block_log_likelihood(self._n[once], self._N[once], a, b) + crp

    def _sweep(self) -> float:
        """Draw every label once, making room where clusters run out."""
        uniform = self.rng.random(sum(self.relation.sizes))
        total, row, column = 0.0, 0, 0
        while row + column < uniform.size:
            chains = [gibbs.Chain(self._domain(d), self.labels[d]) for d in range(len(self._m))]
            blocks = Blocks(self._n, self._N, self.priors.a, self.priors.b)
            if self.relation.one_domain:
                row, part = gibbs.sweep_one_domain(
                    self.relation.code, chains[0], blocks, uniform, row
                )
            else:
                row, column, part = gibbs.sweep_two_domains(
                    chains[0], chains[1], blocks, uniform, (row, column)
                )
            total += part
            self._grow()
        return total

    def _grow(self) -> None:
        """Give each domain at least one empty cluster."""
        a, b = self._shared_prior()
        room = [0 if (m == 0).any() else ROOM for m in self._m]
        self._m = [np.pad(m, (0, more)) for m, more in zip(self._m, room, strict=True)]
        self._tally = [
            np.pad(t, ((0, 0), (0, more))) for t, more in zip(self._tally, room, strict=True)
        ]
        pad = ((0, room[0]), (0, room[-1]))
        self._n, self._N = np.pad(self._n, pad), np.pad(self._N, pad)
        self.priors.a, self.priors.b = np.full(self._n.shape, a), np.full(self._n.shape, b)

    def _domain(self, d: int) -> Domain:
        relation = self.relation
        order = np.arange(relation.sizes[d], dtype=np.int32)
        own = (relation.self_link, relation.self_seen)
        nothing = np.zeros((0, 0))
        return Domain(relation.places[d], *own, order, nothing, self._m[d], self.priors.alpha[d])

    def _keep(self) -> None:
        """Add the sweep to the averages, if it is of the second half."""
        first = self.max_iter // 2
        if self.number <= first:
            return
        for label, tally in zip(self.labels, self._tally, strict=True):
            tally[np.arange(label.size), label] += 1.0
        every = max((self.max_iter - first) // MOST_SAMPLES, 1)
        if (self.number - first) % every == 0:
            a, b = self._shared_prior()
            probability = (a + self._n) / (a + b + self._n + self._N)
            self.samples.append(Sample([label.copy() for label in self.labels], probability))

    def _each_block_once(self) -> np.ndarray:
        """Return which entries of the tables are blocks of clusters in use, each block once."""
        used = np.outer(self._m[0] > 0, self._m[-1] > 0)
        return np.triu(used) if self.relation.kind == "undirected" else used

    def _shared_prior(self) -> tuple[float, float]:
        return float(self.priors.a.flat[0]), float(self.priors.b.flat[0])

    def _sample_hyperparameters(self) -> None:
        """Draw alpha by auxiliary variables, a and b by slice sampling on the log scale."""
        if self.rule == "fixed":
            return
        self.priors.alpha = [
            sample_concentration(alpha, int((m > 0).sum()), size, self.rng)
            for alpha, m, size in zip(self.priors.alpha, self._m, self.relation.sizes, strict=True)
        ]
        once = self._each_block_once()
        n, N = self._n[once], self._N[once]
        a, b = self._shared_prior()
        a = slice_sample(lambda x: block_log_likelihood(n, N, x, b), a, self.rng)
        b = slice_sample(lambda x: block_log_likelihood(n, N, a, x), b, self.rng)
        self.priors.a[:], self.priors.b[:] = a, b


def sample_concentration(
    alpha: float, clusters: int, objects: int, rng: np.random.Generator
) -> float:
    """Draw alpha given the number of clusters (Escobar and West 1995)."""
    log_eta = float(np.log(rng.beta(alpha + 1.0, objects)))
    rate = RATE - log_eta
    odds = (SHAPE + clusters - 1.0) / (objects * rate)
    shape = SHAPE + clusters - (rng.random() * (1.0 + odds) > odds)
    return float(np.clip(rng.gamma(shape) / rate, SMALLEST, LARGEST))


def slice_sample(
    log_likelihood: Callable[[float], float], x: float, rng: np.random.Generator, width: float = 1.0
) -> float:
    """Draw x given its likelihood and Gamma prior by a slice-sampling step in ln x (Neal 2003)."""

    def log_density(u: float) -> float:
        if not np.log(SMALLEST) <= u <= np.log(LARGEST):
            return -np.inf
        y = float(np.exp(u))
        return log_likelihood(y) + SHAPE * u - RATE * y  # the Jacobian adds one u

    at = float(np.log(x))
    height = log_density(at) - rng.exponential()
    low = at - width * rng.random()
    high = low + width
    while log_density(low) > height:
        low -= width
    while log_density(high) > height:
        high += width
    while True:
        new = rng.uniform(low, high)
        if log_density(new) >= height:
            return float(np.exp(new))
        low, high = (new, high) if new < at else (low, new)
