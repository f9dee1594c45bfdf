"""Degree-corrected relations beside others: counts, degrees and factors (DEGREES D2 to D7).

Links of binary relations act as counts, and unseen cells have the exposure of the factors of their
objects. Both follow from the labels and the hyperparameters: a fixed number of steps of their
fixed point, from counts and factors of 1. They are constant during a sweep.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import digamma, gammaln

from coblock.kernels import Floats, Indices
from coblock.kernels.degrees import PLAIN
from coblock.kernels.imputation import link_counts
from coblock.kernels.tensors import Layout
from coblock.model.dataset import Dataset, Table, place_degrees
from coblock.model.degrees import SHAPE_BOUNDS, SHAPE_TOL, cluster_sums
from coblock.model.likelihoods.degrees import POISSON

ROUNDS = 8  # steps of the fixed points
FACTOR_ROUNDS = 2  # of the factors of unseen cells, in each step
LN2 = float(np.log(2.0))


@dataclass(slots=True)
class DegreeLayout:
    """The layout of a data set with the counts of links and the exposures of unseen cells."""

    layout: Layout  # its values and degrees are not shared
    constants: list[float]  # of the counts in the bound, for each relation

    @classmethod
    def of(cls, data: Dataset) -> "DegreeLayout":
        """Return counts and exposures of 1."""
        layout = data.layout
        own = layout._replace(value=layout.value.copy(), degree=layout.degree.copy())
        return cls(own, [0.0] * len(data.tables))

    def copy(self) -> "DegreeLayout":
        """Return counts that share no memory with these."""
        layout = self.layout
        own = layout._replace(value=layout.value.copy(), degree=layout.degree.copy())
        return DegreeLayout(own, list(self.constants))

    def values(self, r: int, table: Table) -> Floats:
        """Return the statistics of the stored cells of relation ``r``: a view."""
        start, size = int(self.layout.first_value[r]), len(table.cells) + len(table.unseen)
        return self.layout.value[start : start + 2 * size].reshape(size, 2)

    def degrees(self, r: int, table: Table, sizes: tuple[int, ...]) -> list[Floats]:
        """Return the degrees of relation ``r`` at each place with a degree law: views."""
        found = []
        for p in range(shape_count(table)):
            start = int(self.layout.first_degree[self.layout.first_place[r] + p])
            found.append(self.layout.degree[start : start + sizes[table.domains[p]]])
        return found

    def set_counts(
        self, r: int, table: Table, sizes: tuple[int, ...], counts: Floats, exposure: Floats
    ) -> None:
        """Set the counts of the observed cells and the exposures of the unseen ones."""
        values, degrees = self.values(r, table), place_degrees(table, sizes, counts)
        values[: counts.size, 0] = counts
        values[counts.size :, 1] = -exposure
        for p, view in enumerate(self.degrees(r, table, sizes)):
            view[:] = degrees[p]


def shape_count(table: Table) -> int:
    """Return how many places have a degree law of their own."""
    return 1 if table.symmetric else table.arity


@dataclass(slots=True)
class DegreeBlocks:
    """One degree-corrected relation under fixed labels and hyperparameters."""

    table: Table
    sizes: tuple[int, ...]  # of all domains
    labels: list[Indices]  # of the objects at each of the two places
    prior: Floats  # a, b and the shapes

    @property
    def clusters(self) -> list[int]:
        """Numbers of clusters at each place."""
        return [int(label.max()) + 1 for label in self.labels]

    @property
    def members(self) -> list[Floats]:
        """Sizes of the clusters at each place."""
        return [np.bincount(label).astype(np.float64) for label in self.labels]

    # Statistics

    def exposures(self) -> Floats:
        """Return T of all blocks as if every cell were seen (DEGREES D2, D3)."""
        m, other = self.members
        total = np.outer(m, other)
        at = np.arange(min(total.shape))
        if self.table.symmetric:
            total[at, at] *= 0.5
            if self.table.distinct:
                eta = self.prior[2]
                total[at, at] *= eta * (m - 1.0) / (m * eta + 1.0)
        elif self.table.distinct:
            total[at, at] -= m
        return total

    def add_up(self, cells: Indices, values: Floats) -> Floats:
        """Return the sums of values of cells over the blocks; symmetric ones at both places."""
        K, L = self.clusters
        k, l = self.blocks(cells)
        table = cluster_sums(k * np.int64(L) + l, values, K * L).reshape(K, L)
        if self.table.symmetric:
            both = table + table.T
            both[np.diag_indices(K)] *= 0.5
            return both
        return table

    def blocks(self, cells: Indices) -> tuple[Indices, Indices]:
        """Return the clusters of cells."""
        return self.labels[0][cells[:, 0]], self.labels[1][cells[:, 1]]

    def own(self, cells: Indices) -> NDArray[np.bool_]:
        """Return which cells are those of an object with itself in a symmetric relation."""
        return (cells[:, 0] == cells[:, 1]) & self.table.symmetric

    def degrees(self, cells: Indices, values: Floats) -> list[Floats]:
        """Return the sums of values of cells over the objects at each place with a degree law."""
        found = [
            cluster_sums(cells[:, p], values, self.sizes[d])
            for p, d in enumerate(self.table.domains)
        ]
        return [found[0] + found[1]] if self.table.symmetric else found

    # Factors

    def sums(self, degrees: list[Floats]) -> list[Floats]:
        """Return the sums of degrees over clusters."""
        return [cluster_sums(self.labels[p], each) for p, each in enumerate(degrees)]

    def factors(self, degrees: list[Floats]) -> list[Floats]:
        """Return the posterior means of the factors at both places (DEGREES D3, D7)."""
        found = []
        for p, (degree, total) in enumerate(zip(degrees, self.sums(degrees), strict=True)):
            m, label, eta = self.members[p], self.labels[p], self.prior[2 + p]
            found.append(
                np.ones(degree.size)
                if eta >= PLAIN
                else (m[label] * (degree + eta)) / (total + m * eta)[label]
            )
        return found * 2 if len(found) == 1 else found

    def log_factors(self, degrees: list[Floats]) -> list[Floats]:
        """Return the posterior means of the logarithms of the factors at both places (D3)."""
        found = []
        for p, (degree, total) in enumerate(zip(degrees, self.sums(degrees), strict=True)):
            m, label, eta = self.members[p], self.labels[p], self.prior[2 + p]
            shared = np.log(m) - digamma(total + m * eta)
            plain = eta >= PLAIN
            found.append(np.zeros(degree.size) if plain else shared[label] + digamma(degree + eta))
        return found * 2 if len(found) == 1 else found

    def log_rates(self, n: Floats, T: Floats, degrees: list[Floats], cells: Indices) -> Floats:
        """Return E ln mu of cells."""
        log_rate, _ = POISSON.expected_log((n, T), self.prior[:2])
        logs = self.log_factors(degrees)
        found = log_rate[self.blocks(cells)] + logs[0][cells[:, 0]] + logs[1][cells[:, 1]]
        return np.asarray(found - LN2 * self.own(cells))

    # Fixed points

    def impute(self) -> tuple[Floats, Floats, float]:
        """Return counts of observed cells, exposures of unseen ones, and the constant (D3, D4)."""
        table = self.table
        counts, exposure = table.values.copy(), self.products(None, table.unseen)
        total, constant = self.exposures(), -LN2 * float(counts @ self.own(table.cells))
        if not (len(table.unseen) or has_binary_cells(table)):
            return counts, exposure, constant
        for _ in range(ROUNDS):
            n, degrees = self.add_up(table.cells, counts), self.degrees(table.cells, counts)
            for _ in range(FACTOR_ROUNDS if len(table.unseen) else 0):
                factors = self.factors(self.imputed_degrees(n, degrees, exposure))
                exposure = self.products(factors, table.unseen)
            if has_binary_cells(table):
                T = np.maximum(total - self.add_up(table.unseen, exposure), 0.0)
                imputed = self.imputed_degrees(n, degrees, exposure)
                counts, constant = self.count_links(self.log_rates(n, T, imputed, table.cells))
        return counts, exposure, constant

    def count_links(self, log_mu: Floats) -> tuple[Floats, float]:
        """Return the counts that links of these rates act as, and the constant (DEGREES D4)."""
        counts = np.empty(log_mu.size)
        constant = link_counts(log_mu, counts)
        return counts, constant - LN2 * float(counts @ self.own(self.table.cells))

    def products(self, factors: list[Floats] | None, cells: Indices) -> Floats:
        """Return the products of the factors of cells, which are 1 if None is given.

        The cell of an object with itself in a symmetric relation has half of it (DEGREES D2).
        """
        found = np.ones(len(cells))
        if factors is not None:
            found = factors[0][cells[:, 0]] * factors[1][cells[:, 1]]
        return np.where(self.own(cells), 0.5 * found, found)

    def imputed_degrees(self, n: Floats, degrees: list[Floats], exposure: Floats) -> list[Floats]:
        """Return the degrees with the expected counts of unseen cells (DEGREES D3)."""
        unseen = self.table.unseen
        if not len(unseen):
            return degrees
        T = np.maximum(self.exposures() - self.add_up(unseen, exposure), 0.0)
        rate = POISSON.predictive_mean((n, T), self.prior[:2])
        more = self.degrees(unseen, rate[self.blocks(unseen)] * exposure)
        return [degree + extra for degree, extra in zip(degrees, more, strict=True)]

    # Evidence

    def degree_terms(self, degrees: list[Floats]) -> float:
        """Return the terms of the degrees in the evidence (DEGREES D2)."""
        pairs = enumerate(degrees)
        return sum(self.shape_value(p, degree, float(self.prior[2 + p])) for p, degree in pairs)

    def shape_value(self, p: int, degree: Floats, eta: float) -> float:
        """Return the degree terms of one place for a shape (DEGREES D2, D6)."""
        if eta >= PLAIN:
            return 0.0
        D = cluster_sums(self.labels[p], degree)
        alone = float((gammaln(degree + eta) - gammaln(eta)).sum())
        return float(cluster_terms(self.members[p], D, eta).sum()) + alone

    def learn_shape(self, p: int, degree: Floats) -> float:
        """Return the best shape of the degree law; beyond its bound the place is plain (D6)."""

        def loss(log_eta: float) -> float:
            return -self.shape_value(p, degree, float(np.exp(log_eta)))

        found = minimize_scalar(
            loss, bounds=SHAPE_BOUNDS, method="bounded", options={"xatol": SHAPE_TOL}
        )
        return float(np.exp(found.x)) if found.fun < 0.0 else PLAIN

    def log_bound(self) -> float:
        """Return the lower bound of the log marginal in which unseen cells are imputed (D3, D4)."""
        table, counts, T = self.table, self.table.values.copy(), self.exposures()
        hidden, constant = np.zeros(len(table.unseen)), 0.0
        if not has_binary_cells(table):
            constant = table.constant - LN2 * float(counts @ self.own(table.cells))
        of_unseen = 0.0
        for _ in range(ROUNDS):
            n, degrees = self._with_unseen(counts, hidden)
            if has_binary_cells(table):
                counts, constant = self.count_links(self.log_rates(n, T, degrees, table.cells))
            log_mu = self.log_rates(n, T, degrees, table.unseen)
            hidden = np.exp(log_mu)
            own = LN2 * self.own(table.unseen)
            of_unseen = float((hidden - hidden * (log_mu + own)).sum())
        n, degrees = self._with_unseen(counts, hidden)
        once = np.triu_indices(len(n)) if table.symmetric else np.indices(n.shape).reshape(2, -1)
        n, T = n[tuple(once)], T[tuple(once)]
        value = POISSON.log_marginal((n, T), self.prior[:2].reshape(2, 1, 1))
        return value + self.degree_terms(degrees) + constant + of_unseen

    def _with_unseen(self, counts: Floats, hidden: Floats) -> tuple[Floats, list[Floats]]:
        """Return blocks and degrees of the counts of observed and of unseen cells."""
        cells = np.concatenate((self.table.cells, self.table.unseen))
        values = np.concatenate((counts, hidden))
        return self.add_up(cells, values), self.degrees(cells, values)


@dataclass(frozen=True, slots=True)
class Factors:
    """What predictions of a degree-corrected relation need: degrees by place and cluster."""

    symmetric: bool
    eta: Floats  # of both places
    labels: list[Indices]
    degrees: list[Floats]  # with the expected counts of unseen cells
    members: list[Floats]
    sums: list[Floats]  # of degrees, by cluster

    @classmethod
    def of(cls, blocks: DegreeBlocks, degrees: DegreeLayout, r: int) -> "Factors":
        """Return the factors of relation ``r`` at the counts of a partition."""
        table = blocks.table
        values = degrees.values(r, table)
        counts, exposure = values[: len(table.cells), 0], -values[len(table.cells) :, 1]
        n, seen = blocks.add_up(table.cells, counts), blocks.degrees(table.cells, counts)
        found = blocks.imputed_degrees(n, seen, exposure)
        sums, eta = blocks.sums(found), blocks.prior[2:]
        both = [0, 0] if table.symmetric else [0, 1]
        return cls(
            table.symmetric,
            eta[both],
            blocks.labels,
            [found[p] for p in both],
            blocks.members,
            [sums[p] for p in both],
        )

    def products(self, cells: Indices, at: tuple[NDArray[Any], ...]) -> Floats:
        """Return the expected product of the factors of cells whose objects are in clusters ``at``.

        The factor of an object in another cluster than its own is that of a further member (D7).
        """
        found = np.ones(len(cells))
        for p, k in enumerate(at):
            if self.eta[p] >= PLAIN:
                continue
            i = cells[:, p]
            joins, degree, eta = self.labels[p][i] != k, self.degrees[p][i], self.eta[p]
            m = self.members[p][k] + joins
            total = self.sums[p][k] + joins * degree
            found *= m * (degree + eta) / (total + m * eta)
        if self.symmetric:
            found[cells[:, 0] == cells[:, 1]] *= 0.5
        return found


def extended_counts(
    table: Table, counts: DegreeLayout, r: int, before: Table
) -> tuple[Floats, Floats]:
    """Return the counts of a relation to which cells of a new object were added.

    Those of the cells before are kept, new links act as the count 1, and unseen cells keep their
    exposures.
    """
    values, size = counts.values(r, before), len(before.cells)
    new = table.values[size:]
    return np.concatenate((values[:size, 0], new)), -values[size:, 1]


def cluster_terms(m: Floats, D: Floats, eta: float) -> Floats:
    """Return h(m, D) of clusters with members (DEGREES D2)."""
    if eta >= PLAIN:
        return np.zeros_like(m)
    return np.asarray(D * np.log(m) + gammaln(m * eta) - gammaln(D + m * eta))


def has_binary_cells(table: Table) -> bool:
    """Return whether the cells of a degree-corrected relation are 0 or 1."""
    return bool(table.likelihood.binary)  # type: ignore[attr-defined]
