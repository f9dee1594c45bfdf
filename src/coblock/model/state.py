"""Soft memberships of all objects, with their blocks and hyperparameters (MODEL 3, 11)."""

from copy import copy
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coblock.kernels import BlockTables, DomainView, Floats, Indices
from coblock.kernels.memberships import hard_labels
from coblock.model.blocks import Blocks
from coblock.model.hyperparameters import Hyperparameters, stick_log_marginal
from coblock.model.likelihoods.bernoulli import log_gamma_density
from coblock.model.relation import RelationData

NEGLIGIBLE_SHARE = 1e-5  # fraction of the objects below which a cluster is dropped,
NEGLIGIBLE_SIZE = 1e-2  # expected members; a cluster with more is never dropped


@dataclass(slots=True)
class SoftState:
    """Memberships of each domain, the expected counts they give, and hyperparameters."""

    relation: RelationData
    q: list[Floats]  # per domain (objects, K)
    hyper: Hyperparameters
    hard: list[Indices] = field(init=False)  # per domain: cluster of a hard assignment, else -1
    blocks: Blocks = field(init=False)

    def __post_init__(self) -> None:
        """Count."""
        self.recount()

    def recount(self) -> None:
        """Rebuild the counts from the memberships."""
        self.q = [np.ascontiguousarray(q, dtype=np.float64) for q in self.q]
        self.hard = [hard_labels(q) for q in self.q]
        self.blocks = Blocks.from_memberships(self.relation, self.q, self.hard)

    @property
    def m(self) -> list[Floats]:
        """Expected sizes of the clusters of each domain."""
        return self.blocks.m

    def domain(self, d: int) -> DomainView:
        """Return domain ``d`` for kernels; memberships and sizes share memory with this object."""
        alpha = self.hyper.alpha[d]
        return self.relation.view(d, self.q[d], self.hard[d], self.m[d], alpha)

    def tables(self, d: int = 0) -> BlockTables:
        """Return the block tables seen from domain ``d``; those of the first share memory."""
        tables = (self.blocks.n, self.blocks.N, *self.hyper.tables(self.blocks.clusters))
        return BlockTables(*(t if d == 0 else np.ascontiguousarray(t.T) for t in tables))

    def is_in_order(self, keep: list[Indices]) -> bool:
        """Return whether ``keep`` lists all clusters of each domain in their present order."""
        pairs = zip(keep, self.m, strict=True)
        return all(np.array_equal(kept, np.arange(m.size)) for kept, m in pairs)

    def select(self, keep: list[Indices]) -> "SoftState":
        """Return a state with these clusters of each domain, in this order.

        Memberships in dropped clusters go to the others in proportion.
        """
        if self.is_in_order(keep):
            return self
        hyper, q = self.hyper.select(keep), list(map(select_columns, self.q, keep))
        if any(kept.size < m.size for kept, m in zip(keep, self.m, strict=True)):
            return SoftState(self.relation, q, hyper)
        reordered = copy(self)
        reordered.q, reordered.hyper = q, hyper
        reordered.hard = list(map(reorder_labels, self.hard, keep))
        reordered.blocks = self.blocks.reorder(keep)
        return reordered

    def bound(self, entropy: float) -> float:
        """Return the lower bound of the log evidence at these memberships.

        With the posteriors of sticks and blocks at their optimum for q, the naive VB bound
        (eq:IRM_2dom_VB_lowerbound_p_x to _q_theta) equals the zeroth-order value of the collapsed
        bound (eq:IRM_2dom_CVB_lowerbound_hyprm): counts in the marginals are replaced by their
        expectations. Where each block has its own prior, the bound includes the hyperprior.
        """
        pairs = zip(self.m, self.hyper.alpha, strict=True)
        sticks = sum(stick_log_marginal(m, alpha) for m, alpha in pairs)
        distinct, prior = self.distinct(), self.hyper.prior
        statistics = (self.blocks.n[distinct], self.blocks.N[distinct])
        if self.hyper.per_block:
            prior = prior[:, distinct]
            sticks += log_gamma_density(prior, self.hyper.block_hyperprior)
        return self.relation.likelihood.log_marginal(statistics, prior) + sticks + entropy

    def learn(self, rule: Any) -> None:
        """Update the hyperparameters; the bound never falls."""
        blocks, likelihood = self.blocks, self.relation.likelihood
        self.hyper.learn(likelihood, self.m, (blocks.n, blocks.N), self.distinct(), rule)

    def distinct(self) -> NDArray[np.bool_]:
        """Return which entries of the block tables to add up, so that each block counts once."""
        every = np.ones(self.blocks.clusters, dtype=bool)
        return np.triu(every) if self.relation.symmetric else every


def by_size(m: NDArray[Any]) -> Indices:
    """Return the clusters in descending order of size; ties keep their order."""
    return np.argsort(-m, kind="stable").astype(np.int32)


def is_worth_keeping(m: Floats, objects: int) -> NDArray[np.bool_]:
    """Return which clusters are not negligible (the paper's cluster shrinkage)."""
    kept = m > min(NEGLIGIBLE_SHARE * objects, NEGLIGIBLE_SIZE)
    kept[np.argmax(m)] = True
    return kept


def sort_and_prune(state: SoftState, mean: list[Floats] | None = None) -> list[Indices]:
    """Return the clusters of each domain by descending size, without negligible ones.

    A cluster that the averaged memberships ``mean`` contain is not negligible.
    """
    keep = []
    for d, (m, objects) in enumerate(zip(state.m, state.relation.sizes, strict=True)):
        kept = is_worth_keeping(m, objects)
        if mean is not None:
            kept |= is_worth_keeping(mean[d].sum(axis=0), objects)
        order = by_size(m)
        keep.append(order[kept[order]])
    return keep


def reorder_labels(hard: Indices, order: Indices) -> Indices:
    """Return hard labels, -1 where there is none, with the clusters in another order."""
    return np.append(np.argsort(order), -1).astype(np.int32)[hard]


def select_columns(q: Floats, kept: Indices) -> Floats:
    """Return memberships in these clusters, in this order; they add up to 1 for every object."""
    chosen = np.take(q, kept, axis=1)
    if kept.size < q.shape[1]:
        chosen /= chosen.sum(axis=1, keepdims=True)
    return chosen
