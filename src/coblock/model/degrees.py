"""A hard partition under the degree-corrected Poisson model of binary data (DEGREES)."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import digamma, gammaln

from coblock.kernels import Floats, Incidence, Indices
from coblock.kernels.degrees import (
    PLAIN,
    DegreeCells,
    DegreeTables,
    count_cells_by_block,
    degree_values,
    fill_exposures,
    fill_tables,
)
from coblock.kernels.imputation import impute_links, impute_unseen, link_count
from coblock.model.hyperparameters import crp_concentration, crp_log_probability
from coblock.model.likelihoods.poisson import Poisson
from coblock.model.partition import numbered
from coblock.model.relation import BinaryRelation

POISSON = Poisson()
SHAPE_BOUNDS = (-5.0, 10.0)  # of ln eta (DEGREES D6)
SHAPE_TOL = 1e-4  # of ln eta
START_SHAPE = 1.0
REFRESHES = 3  # steps of the fixed point of the counts of links after each sweep (DEGREES D4)
FACTOR_ROUNDS = 2  # of the factors of unseen cells (DEGREES D3)
BOUND_ROUNDS = 8  # of both for the evidence


@dataclass(frozen=True, slots=True)
class DegreeModel:
    """What prediction needs of a degree-corrected fit: shapes, degrees and blocks.

    Degrees and blocks contain the counts that links act as, and degrees those of unseen cells.
    """

    eta: Floats  # (places,); rows and columns, senders and receivers, or one if undirected
    prior: Floats  # (2,)  a and b
    degrees: list[Floats]  # per place (objects,)
    counts: Floats  # (K1, K2)
    exposure: Floats  # (K1, K2)

    def reorder(self, order: list[Indices]) -> "DegreeModel":
        """Return the model with the clusters of each domain in another order."""
        table = np.ix_(order[0], order[-1])
        return replace(self, counts=self.counts[table], exposure=self.exposure[table])

    @property
    def rate(self) -> Floats:
        """Posterior mean rate of every block."""
        a, b = self.prior
        return np.asarray((a + self.counts) / (b + self.exposure))


@dataclass(frozen=True, slots=True)
class DegreeChoice:
    """The evidence of the plain and of the degree-corrected model, and which was taken."""

    plain_evidence: float  # of the partition found under the plain model
    corrected_evidence: float | None  # bound of DEGREES D4; None: too dense for a second fit
    model: DegreeModel | None = None  # None: the plain model was taken


@dataclass(slots=True)
class DegreePartition:
    """Labels of each domain with the hyperparameters of the degree-corrected model.

    ``counts`` are what the links act as (DEGREES D4) and ``factors`` the estimated factors of the
    objects, which weigh unseen cells (DEGREES D3). Both are constant during a sweep. Statistics of
    blocks are counted when they are needed.
    """

    relation: Any  # Relation; its cells are in memory
    labels: list[Indices]
    alpha: list[float]
    prior: Floats  # (2, 1, 1)
    eta: Floats  # (places,)
    counts: list[Floats]  # per place, aligned with the links
    own_counts: Floats  # of objects with themselves
    factors: list[Floats]  # per place (objects,)
    constant: float = 0.0  # of the counts in the bound

    @classmethod
    def from_labels(cls, relation: Any, labels: list[Indices]) -> "DegreePartition":
        """Return a partition with links as the count 1 and weak hyperparameters."""
        places = places_of(relation)
        sizes = [place.link_start.size - 1 for place in places]
        return cls(
            relation,
            numbered(labels),
            [1.0] * len(relation.sizes),
            POISSON.initial_prior(relation.density),
            np.full(len(places), START_SHAPE),
            [np.ones(place.link.size) for place in places],
            relation.own_link.copy(),
            [np.ones(size) for size in sizes],
        )

    def copy(self) -> "DegreePartition":
        """Return a partition that shares no arrays with this one but the relation's."""
        return replace(
            self,
            labels=[label.copy() for label in self.labels],
            alpha=list(self.alpha),
            prior=self.prior.copy(),
            eta=self.eta.copy(),
            counts=[each.copy() for each in self.counts],
            own_counts=self.own_counts.copy(),
            factors=[each.copy() for each in self.factors],
        )

    # Statistics

    def sizes(self, d: int, room: int = 0) -> Floats:
        """Return the sizes of the clusters of a domain, with room for more."""
        label = self.labels[d]
        return np.bincount(label, minlength=int(label.max()) + 1 + room).astype(np.float64)

    @property
    def clusters(self) -> tuple[int, int]:
        """Numbers of row and column clusters."""
        return int(self.labels[0].max()) + 1, int(self.labels[-1].max()) + 1

    def degrees(self) -> list[Floats]:
        """Return the degrees of all objects at each place; own links are in both."""
        found = []
        for place, counts in zip(places_of(self.relation), self.counts, strict=True):
            owner = np.repeat(np.arange(place.link_start.size - 1), np.diff(place.link_start))
            found.append(np.bincount(owner, counts, place.link_start.size - 1) + self._own())
        return found

    def _own(self) -> Any:
        directed = self.relation.repeated and not self.relation.symmetric
        return self.own_counts if directed else 0.0

    def cells(self, d: int) -> DegreeCells:
        """Return the stored cells of domain ``d`` for kernels."""
        relation, at = self.relation, places_of_domain(self.relation, d)
        incidence, degree = places_of(relation), self.degrees()
        other = [len(incidence) - 1 - p for p in at]
        return DegreeCells(
            tuple(incidence[p] for p in at),
            tuple(self.counts[p] for p in at),
            tuple(self.factors[p] for p in at),
            tuple(self.factors[p] for p in other),
            np.array([degree[p] for p in at]),
            self.own_counts if relation.repeated else np.zeros(0),
            relation.own_seen,
        )

    def tables(self, d: int, room: int = 0) -> DegreeTables:
        """Count the cells of all blocks seen from domain ``d``, with room for more clusters."""
        relation, cells = self.relation, self.cells(d)
        label, m = self.labels[d], self.sizes(d, room)
        m_other = m if relation.repeated else self.sizes(-1 - d)
        n, unseen = np.zeros((2, m_other.size, m.size))
        count_cells_by_block(cells, label, self.labels[-1 - d], n, unseen)
        own_seen = np.zeros(m.size)
        if relation.symmetric:  # each pair is stored at both of its objects
            n, unseen = 0.5 * (n + n.T), 0.5 * (unseen + unseen.T)
            for table in (n, unseen):
                np.fill_diagonal(table, 0.5 * np.diag(table))
        elif relation.repeated:
            np.fill_diagonal(n, np.diag(n) + cluster_sums(label, self.own_counts, m.size))
            own_seen = cluster_sums(label, relation.own_seen, m.size)
        two = len(cells.incidence) == 2
        n, unseen = (np.stack((x, x.T)) if two else x[None].copy() for x in (n, unseen))
        degree = np.array([cluster_sums(label, each, m.size) for each in cells.degree])
        a, b = self.prior.ravel().tolist()
        kinds = (relation.repeated, relation.symmetric, a, b)
        eta = np.ascontiguousarray(self.eta[places_of_domain(relation, d)])
        logs = (np.empty_like(n), np.empty_like(n), np.empty(m.size))
        t = DegreeTables(*kinds, eta, m, m_other, n, unseen, own_seen, degree, *logs)
        fill_tables(t)
        return t

    def block_statistics(self) -> tuple[Floats, Floats]:
        """Return counts and exposures of all blocks, (K1, K2)."""
        t = self.tables(0)
        exposure = np.empty_like(t.n[0])
        fill_exposures(t, exposure)
        return np.ascontiguousarray(t.n[0].T), np.ascontiguousarray(exposure.T)

    def _each_once(self, n: Floats, T: Floats) -> tuple[Floats, Floats]:
        """Return the statistics of each block once."""
        if not self.relation.symmetric:
            return n.ravel(), T.ravel()
        once = np.triu_indices(len(n))
        return n[once], T[once]

    def _by_cluster(self, p: int, degree: Floats) -> tuple[Indices, Floats, Floats]:
        """Return the labels at a place, and size and sum of degrees of each cluster."""
        d = domain_of_place(self.relation, p)
        return self.labels[d], self.sizes(d), cluster_sums(self.labels[d], degree)

    # Evidence

    def log_joint(self) -> float:
        """Return the log of the bound of p(X, z), with unseen cells by the plug-in of D3."""
        return self._log_value(*self.block_statistics(), self.degrees()) + self.constant

    def _log_value(self, n: Floats, T: Floats, degrees: list[Floats]) -> float:
        """Return D2 for these statistics, without constants of the cells."""
        value = POISSON.log_marginal(self._each_once(n, T), self.prior)
        for p, degree in enumerate(degrees):
            value += self._shape_value(p, degree, float(self.eta[p]))
        for d, alpha in enumerate(self.alpha):
            value += crp_log_probability(self.sizes(d), alpha)
        return value

    def _shape_value(self, p: int, degree: Floats, eta: float) -> float:
        """Return the degree terms of one place (DEGREES D2, D6)."""
        if eta >= PLAIN:
            return 0.0
        _, m, D = self._by_cluster(p, degree)
        alone = gammaln(degree + eta) - gammaln(eta)
        return degree_values(m, D, eta) + float(alone.sum())

    def log_bound(self) -> float:
        """Return the lower bound of log p(X, z) in which unseen cells are imputed (D3, D4).

        It is tightened by steps of its fixed point; without unseen cells it is
        :meth:`log_joint`, tightened.
        """
        trial = self.copy()
        trial.factors = [np.zeros_like(each) for each in trial.factors]  # T is the full product
        (n, T), degrees, unseen = trial.block_statistics(), trial.degrees(), 0.0
        for _ in range(BOUND_ROUNDS):
            terms = trial._expected_logs(n, T, degrees)
            trial._impute(*terms)
            more_n, more_degrees, unseen = trial._impute_unseen(*terms)
            n, pairs = (
                trial.block_statistics()[0] + more_n,
                zip(trial.degrees(), more_degrees, strict=True),
            )
            degrees = [degree + more for degree, more in pairs]
        return trial._log_value(n, T, degrees) + trial.constant + unseen

    # Updates

    def learn(self, *, shapes: bool = True) -> None:
        """Set hyperparameters to those under which the partition is most probable (D6)."""
        n, T = self.block_statistics()
        self.prior = POISSON.learn_prior(self._each_once(n, T), self.prior, "newton")
        for d, size in enumerate(self.relation.sizes):
            self.alpha[d] = crp_concentration(self.sizes(d).size, size, self.alpha[d])
        for p, degree in enumerate(self.degrees() if shapes else []):
            self.eta[p] = self._learn_shape(p, degree)

    def _learn_shape(self, p: int, degree: Floats) -> float:
        """Return the best shape of the degree law; beyond its bound the model is plain."""

        def loss(log_eta: float) -> float:
            return -self._shape_value(p, degree, float(np.exp(log_eta)))

        found = minimize_scalar(
            loss, bounds=SHAPE_BOUNDS, method="bounded", options={"xatol": SHAPE_TOL}
        )
        return float(np.exp(found.x)) if found.fun < 0.0 else PLAIN

    def refresh(self) -> None:
        """Update the counts of links and the factors of unseen cells (D3, D4)."""
        for _ in range(REFRESHES):
            for _ in range(FACTOR_ROUNDS if self.relation.n_unseen else 0):
                self.factors = self._estimate_factors(self.imputed_degrees())
            n, T = self.block_statistics()
            self._impute(*self._expected_logs(n, T, self.imputed_degrees()))

    def imputed_degrees(self) -> list[Floats]:
        """Return the degrees with the expected counts of unseen cells (D3)."""
        degrees = self.degrees()
        if not self.relation.n_unseen:
            return degrees
        n, T = self.block_statistics()
        log_rate = np.log(POISSON.predictive_mean((n, T), self.prior))
        logs = [np.log(each) for each in self.factors]
        _, more, _ = self._impute_unseen(log_rate, logs)
        return [x + extra for x, extra in zip(degrees, more, strict=True)]

    def model(self) -> DegreeModel:
        """Return what predictions need."""
        n, T = self.block_statistics()
        return DegreeModel(self.eta.copy(), self.prior.ravel().copy(), self.imputed_degrees(), n, T)

    def _estimate_factors(self, degrees: list[Floats]) -> list[Floats]:
        """Return the posterior means of the factors given degrees (D3)."""
        found = []
        for p, degree in enumerate(degrees):
            (label, m, D), eta = self._by_cluster(p, degree), self.eta[p]
            found.append((m[label] * (degree + eta)) / (D + m * eta)[label])
        return found

    def _expected_logs(
        self, n: Floats, T: Floats, degrees: list[Floats]
    ) -> tuple[Floats, list[Floats]]:
        """Return the posterior means of the log rates of blocks and of the log factors (D3)."""
        log_rate, _ = POISSON.expected_log((n, T), self.prior)
        logs = []
        for p, degree in enumerate(degrees):
            (label, m, D), eta = self._by_cluster(p, degree), self.eta[p]
            shared = np.log(m) - digamma(D + m * eta)
            plain = eta >= PLAIN
            logs.append(np.zeros_like(degree) if plain else shared[label] + digamma(degree + eta))
        return log_rate, logs

    def _ends(self, p: int) -> tuple[Indices, Indices, int]:
        """Return the labels of both ends of the cells of a place, and the place of the other."""
        other = len(self.counts) - 1 - p
        domains = [domain_of_place(self.relation, each) for each in (p, other)]
        own, others = (self.labels[d] for d in domains)
        return own, (own if self.relation.repeated else others), other

    def _impute(self, log_rate: Floats, logs: list[Floats]) -> None:
        """Set the counts that links act as at these expected logs."""
        for p, place in enumerate(places_of(self.relation)):
            label, label_other, other = self._ends(p)
            table = np.ascontiguousarray(log_rate.T if p == 0 else log_rate)
            terms = (table, logs[p], logs[other])
            constant = impute_links(place, label, label_other, *terms, self.counts[p])
            if p == 0:
                self.constant = 0.5 * constant if self.relation.symmetric else constant
        for i in np.flatnonzero(self.own_counts):
            k = self.labels[0][i]
            log_mu = log_rate[k, k] + (logs[0][i] + logs[1][i])
            self.own_counts[i], part = link_count(float(log_mu))
            self.constant += part

    def _impute_unseen(
        self, log_rate: Floats, logs: list[Floats]
    ) -> tuple[Floats, list[Floats], float]:
        """Return blocks and degrees of the counts of unseen cells, and their constants."""
        blocks, degrees, constant = np.zeros_like(log_rate), [], 0.0
        for p, place in enumerate(places_of(self.relation)):
            label, label_other, other = self._ends(p)
            table = np.ascontiguousarray(log_rate.T if p == 0 else log_rate)
            degree, n = np.zeros(label.size), np.zeros(table.shape)
            terms = (table, logs[p], logs[other])
            part = impute_unseen(place, label, label_other, *terms, degree, n)
            degrees.append(degree)
            if p == 0:
                blocks, constant = n.T, part
        if self.relation.symmetric:
            blocks, constant = 0.5 * (blocks + blocks.T), 0.5 * constant
            blocks[np.diag_indices(len(blocks))] *= 0.5
        return blocks, degrees, constant


def places_of(relation: BinaryRelation) -> list[Incidence]:
    """Return the cells of each place; an undirected relation has one."""
    return [place for places in relation.incidence for place in places]


def places_of_domain(relation: BinaryRelation, d: int) -> list[int]:
    """Return the places that a domain fills."""
    if not relation.repeated:
        return [d % 2]
    return [0] if relation.symmetric else [0, 1]


def domain_of_place(relation: BinaryRelation, p: int) -> int:
    """Return the domain that fills a place."""
    return 0 if relation.repeated else p


def cluster_sums(label: Indices, values: Floats, clusters: int = 0) -> Floats:
    """Return the sums of values over the members of each cluster."""
    return np.asarray(np.bincount(label, values, clusters), dtype=np.float64)
