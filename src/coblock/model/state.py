"""What inference works on: memberships, hyperparameters and the expected counts they give."""

from copy import copy
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaln, gammaln

from coblock.kernels import Blocks, Domain, Floats, Indices
from coblock.kernels.memberships import column_sums, sure_clusters
from coblock.kernels.special import log_beta_gains, log_rising
from coblock.model.counts import Sums
from coblock.model.hyperparameters import Priors
from coblock.model.relation import Relation

NEGLIGIBLE = 1e-5  # share of the objects below which a cluster is dropped,
NOBODY = 1e-2  # but never one with an object in it


@dataclass(slots=True)
class State:
    """Memberships with the counts of MODEL 3 and 11, which always belong together.

    For one-domain relations ``q`` and ``m`` have one entry. An undirected relation's tables are
    symmetric: block {k, l} stands at (k, l) and at (l, k).
    """

    relation: Relation
    q: list[Floats]  # per domain (objects, K)
    priors: Priors
    sure: list[Indices] = field(init=False)  # per domain: clusters of decided objects
    m: list[Floats] = field(init=False)  # per domain (K,)
    sums: Sums = field(init=False)
    n: Floats = field(init=False)  # (K1, K2)
    N: Floats = field(init=False)  # (K1, K2)

    def __post_init__(self) -> None:
        """Count."""
        self.recount()

    def recount(self) -> None:
        """Rebuild the counts from the memberships."""
        self.q = [np.ascontiguousarray(q, dtype=np.float64) for q in self.q]
        self.sure = [sure_clusters(q) for q in self.q]
        self.m = [column_sums(q) for q in self.q]
        self.sums = Sums.of_memberships(self.relation, self.q, self.sure)
        self.derive_tables()

    def derive_tables(self) -> None:
        """Renew the tables after a change of the sums and sizes."""
        self.n, self.N = self.sums.tables(self.relation.kind, self.m)

    @property
    def clusters(self) -> tuple[int, int]:
        """Numbers of row and column clusters; the same number twice in one domain."""
        return self.n.shape[0], self.n.shape[1]

    def domain(self, d: int) -> Domain:
        """Return domain ``d`` as the kernels take it, sharing memory with this state."""
        order = np.arange(self.relation.sizes[d], dtype=np.int32)
        return Domain(
            self.relation.places[d],
            self.relation.self_link,
            self.relation.self_seen,
            order,
            self.q[d],
            self.sure[d],
            self.m[d],
            self.priors.alpha[d],
        )

    def blocks(self, d: int = 0) -> Blocks:
        """Return the block tables as domain ``d`` sees them; those of the first share memory."""
        tables = (self.n, self.N, self.priors.a, self.priors.b)
        return Blocks(*(table if d == 0 else np.ascontiguousarray(table.T) for table in tables))

    def is_arranged(self, keep: list[np.ndarray]) -> bool:
        """Say whether these clusters of each domain, in this order, are what there is."""
        pairs = zip(keep, self.m, strict=True)
        return all(np.array_equal(kept, np.arange(m.size)) for kept, m in pairs)

    def selected(self, keep: list[np.ndarray]) -> "State":
        """Return a state with these clusters of each domain, in this order; everything follows.

        Nothing is counted anew where no cluster is left out.
        """
        if self.is_arranged(keep):
            return self
        priors = self.priors.selected(keep)
        q = [chosen_columns(q, kept) for q, kept in zip(self.q, keep, strict=True)]
        if any(kept.size < m.size for kept, m in zip(keep, self.m, strict=True)):
            return State(self.relation, q, priors)
        reordered = copy(self)
        reordered.q, reordered.priors = q, priors
        reordered.sure = [in_order(sure, kept) for sure, kept in zip(self.sure, keep, strict=True)]
        reordered.m = [m[kept] for m, kept in zip(self.m, keep, strict=True)]
        reordered.sums = self.sums.reordered(keep)
        reordered.derive_tables()
        return reordered

    def bound(self, entropy: float) -> float:
        """Return the lower bound of the log evidence at these memberships.

        With the posteriors of sticks and blocks at their best for q, the naive VB bound
        (eq:IRM_2dom_VB_lowerbound_p_x to _q_theta) is the same number as the zeroth-order value
        of the collapsed bound (eq:IRM_2dom_CVB_lowerbound_hyprm): counts in the marginals are
        replaced by their expectations. It costs nothing beyond the counts.
        """
        sticks = sum(
            stick_log_marginal(m, alpha) for m, alpha in zip(self.m, self.priors.alpha, strict=True)
        )
        return self.block_log_marginal() + sticks + entropy

    def block_log_marginal(self) -> float:
        """Return the sum over blocks of lnB(a + n, b + N) - lnB(a, b), each block once."""
        once = each_block_once(self.relation.kind, self.n.shape)
        a, b = self.priors.a[once], self.priors.b[once]
        value = np.empty(a.size)
        log_beta_gains(a, b, self.n[once], self.N[once], value)
        return float(value.sum())


def each_block_once(kind: str, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """Return which entries of a block table to add up: an undirected block stands there twice."""
    everywhere = np.ones(shape, dtype=bool)
    return np.triu(everywhere) if kind == "undirected" else everywhere


def stick_log_marginal(m: Floats, alpha: float) -> float:
    """Return log p(z | alpha) with sticks integrated out, K - 1 of them random.

    eq:IRM_2dom_CVB_z_1_marginal with the errata of MODEL 12.
    """
    M = m.sum() - np.cumsum(m)
    own, tail = m[:-1], np.maximum(M[:-1], 0.0)
    return float((np.log(alpha) + betaln(1.0 + own, alpha + tail)).sum())


def by_size(m: NDArray[Any]) -> np.ndarray:
    """Return the clusters in descending order of size; equal ones keep their order."""
    return np.argsort(-m, kind="stable")


def worth_keeping(m: Floats, objects: int) -> np.ndarray:
    """Return which clusters hold more than a negligible share (the paper's cluster shrinkage)."""
    kept = m > min(NEGLIGIBLE * objects, NOBODY)
    kept[np.argmax(m)] = True
    return kept


def arrangement(state: State, mean: list[Floats] | None = None) -> list[np.ndarray]:
    """Return the clusters of each domain by descending size, without negligible ones.

    A cluster that the averaged memberships ``mean`` still hold is not negligible.
    """
    keep = []
    for d, (m, objects) in enumerate(zip(state.m, state.relation.sizes, strict=True)):
        kept = worth_keeping(m, objects)
        if mean is not None:
            kept |= worth_keeping(mean[d].sum(axis=0), objects)
        order = by_size(m)
        keep.append(order[kept[order]])
    return keep


def in_order(sure: Indices, order: Indices) -> Indices:
    """Return the clusters of decided objects, -1 for others, with clusters in another order."""
    return np.append(np.argsort(order), -1).astype(np.int32)[sure]


def chosen_columns(q: Floats, kept: Indices) -> Floats:
    """Return memberships in these clusters, in this order; they add up to 1 for every object."""
    chosen = np.take(q, kept, axis=1)  # an index would make a copy, and renormalising a second one
    return renormalised(chosen) if kept.size < q.shape[1] else chosen


def renormalised(q: Floats) -> Floats:
    """Return memberships, of which this is a copy, scaled to add up to 1 for every object."""
    q = np.ascontiguousarray(q)
    q /= q.sum(axis=1, keepdims=True)
    return q


def crp_log_probability(m: Floats, alpha: float) -> float:
    """Return log p(z | alpha) of a partition into clusters of these sizes (MODEL 10)."""
    return float(m.size * np.log(alpha) + gammaln(m).sum() - log_rising(alpha, m.sum()))
