"""Soft memberships of several relations, with expected statistics and hyperparameters."""

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coblock.kernels import Floats, Indices, Offsets, gain_list
from coblock.kernels.tensor_soft import Soft, count_all
from coblock.kernels.tensor_soft_sweeps import sweep_soft
from coblock.model.dataset import Dataset, offsets
from coblock.model.hyperparameters import (
    expected_log_sticks,
    stick_concentration,
    stick_log_marginal,
)
from coblock.model.state import select_columns

NONE = np.zeros(0)
MOST_SOFT_BLOCKS = 2**25  # of a relation: 1 GB of expected statistics and tuples of 0/1 cells


@dataclass(slots=True)
class MultiState:
    """Memberships of each domain, the expected statistics they give, and hyperparameters."""

    relation: Dataset  # all of them
    q: list[Floats]  # per domain (objects, K); they share memory with ``soft``
    priors: list[Floats]  # of each relation, (rows,)
    alpha: list[float]  # of each domain
    soft: Soft = field(init=False)
    gains: Any = field(init=False)

    def __post_init__(self) -> None:
        """Count."""
        self.gains = gain_list(table.likelihood.gain for table in self.relation.tables)
        self.soft = make_soft(self.relation, [q.shape[1] for q in self.q])
        self.soft.q[:] = np.concatenate([q.ravel() for q in self.q])
        first = self.soft.first_q
        self.q = [
            self.soft.q[first[d] : first[d + 1]].reshape(q.shape) for d, q in enumerate(self.q)
        ]
        self._set_hyperparameters()
        self.recount()

    @classmethod
    def initial(cls, data: Dataset, q: list[Floats]) -> "MultiState":
        """Return the state of these memberships with weak hyperparameters."""
        priors = [
            table.likelihood.initial_prior(table.mean(data.sizes)).ravel() for table in data.tables
        ]
        return cls(data, q, priors, [1.0] * len(q))

    @property
    def m(self) -> list[Floats]:
        """Expected sizes of the clusters of each domain."""
        return [self.soft.m[d, : q.shape[1]] for d, q in enumerate(self.q)]

    @property
    def clusters(self) -> tuple[int, ...]:
        """Number of clusters of each domain."""
        return tuple(q.shape[1] for q in self.q)

    def recount(self) -> None:
        """Rebuild the expected statistics from the memberships."""
        count_all(self.relation.layout, self.soft)

    def is_in_order(self, keep: list[Indices]) -> bool:
        """Return whether ``keep`` lists all clusters of each domain in their present order."""
        pairs = zip(keep, self.clusters, strict=True)
        return all(np.array_equal(kept, np.arange(K)) for kept, K in pairs)

    def select(self, keep: list[Indices]) -> "MultiState":
        """Return a state with these clusters of each domain, in this order.

        Memberships in dropped clusters go to the others in proportion.
        """
        if self.is_in_order(keep):
            return self
        q = list(map(select_columns, self.q, keep))
        return MultiState(self.relation, q, list(self.priors), list(self.alpha))

    def statistics(self, r: int) -> Floats:
        """Return the expected statistics of each block of relation ``r``, (blocks, statistics)."""
        soft = self.soft
        s = soft.s[soft.first_stat[r] : soft.first_stat[r + 1]]
        return s.reshape(-1, int(self.relation.layout.n_stats[r]))

    def tensor(self, r: int) -> Floats:
        """Return them with an axis for each place; symmetric pairs are in order."""
        shape = [self.clusters[d] for d in self.relation.tables[r].domains]
        return self.statistics(r).reshape(*shape, -1)

    def statistics_at(self, r: int, clusters: tuple[NDArray[Any], ...]) -> Floats:
        """Return the expected statistics of the blocks of clusters at each place."""
        if self.relation.tables[r].symmetric:
            low, high = np.minimum(*clusters[:2]), np.maximum(*clusters[:2])
            clusters = (low, high, *clusters[2:])
        return self.tensor(r)[clusters]

    def learn(self, rule: Any = "newton") -> None:
        """Update the hyperparameters; the bound never falls.

        That of Normal relations includes the hyperprior of their hyperparameters.
        """
        for r, table in enumerate(self.relation.tables):
            s, prior = self.statistics(r), self.priors[r].reshape(-1, 1, 1)
            used = tuple(np.ascontiguousarray(s[s.any(axis=1)].T))
            self.priors[r] = table.likelihood.learn_prior(used, prior, rule).ravel()
        pairs = zip(self.m, self.alpha, strict=True)
        self.alpha = [stick_concentration(m, alpha, rule) for m, alpha in pairs]
        self._set_hyperparameters()

    def bound(self, entropy: float) -> float:
        """Return the lower bound of the log evidence at these memberships (RELATIONS 11)."""
        pairs = zip(self.m, self.alpha, strict=True)
        value = entropy + sum(stick_log_marginal(m, alpha) for m, alpha in pairs)
        for r, table in enumerate(self.relation.tables):
            s = self.statistics(r)
            used = tuple(np.ascontiguousarray(s[s.any(axis=1)].T))
            prior = self.priors[r].reshape(-1, 1)
            value += table.likelihood.log_marginal(used, prior) + table.constant
        return value

    def sweep(self, domains: Indices, objects: Indices) -> tuple[float, float]:
        """Update objects by CVB0, one after another; return log normalisers and entropy."""
        sticks = np.zeros((0, 0))
        layout = self.relation.layout
        return sweep_soft(layout, self.soft, self.gains, domains, objects, sticks, NONE)

    def sweep_vb(self, d: int) -> tuple[float, float]:
        """Update the objects of a domain by VB, at the present posteriors of sticks and blocks."""
        objects = np.arange(self.relation.sizes[d], dtype=np.int32)
        sticks = np.zeros_like(self.soft.m)
        sticks[d, : self.clusters[d]] = expected_log_sticks(self.m[d], self.alpha[d])
        layout, which = self.relation.layout, np.full_like(objects, d)
        slope = self.slopes()
        return sweep_soft(layout, self.soft, self.gains, which, objects, sticks, slope)

    def slopes(self) -> Floats:
        """Return the derivatives of the log marginals by all expected statistics."""
        slopes = []
        for r, table in enumerate(self.relation.tables):
            statistics, prior = tuple(self.statistics(r).T), self.priors[r].reshape(-1, 1)
            slopes.append(np.stack(table.likelihood.expected_log(statistics, prior), axis=1))
        return np.concatenate([slope.ravel() for slope in slopes])

    def _set_hyperparameters(self) -> None:
        for r, prior in enumerate(self.priors):
            self.soft.prior[r, : prior.size] = prior
        self.soft.alpha[:] = self.alpha


def make_soft(data: Dataset, clusters: list[int]) -> Soft:
    """Return empty tables for so many clusters of each domain."""
    layout, tables, D = data.layout, data.tables, len(data.domains)
    shapes = [[clusters[d] for d in table.domains] for table in tables]
    blocks = [math.prod(shape) for shape in shapes]
    for table, n in zip(tables, blocks, strict=True):
        if n > MOST_SOFT_BLOCKS:
            msg = (
                f"Soft memberships need a table of all {n:,} blocks of relation '{table.name}', "
                f"more than {MOST_SOFT_BLOCKS:,}. Pass max_clusters, or use inference='acvb0'."
            )
            raise ValueError(msg)
    n_stats = layout.n_stats.tolist()
    bits = np.array([[table.domains.count(d) for d in range(D)] for table in tables])
    masks, arity = 1 << int(bits.max()), max(table.arity for table in tables)
    places = np.zeros((len(tables), D, int(bits.max())), np.int64)
    first_total, first_group = np.zeros((2, len(tables), D, masks + 1), np.int64)
    total_stride, group_stride = np.zeros((2, len(tables), D, masks, arity), np.int64)
    n_total, n_group = 0, 0
    for d in range(D):
        at = 0  # the groups of objects of different domains share their memory
        for r, table in enumerate(tables):
            own = [p for p, e in enumerate(table.domains) if e == d]
            places[r, d, : len(own)] = own
            if not own:
                continue
            first_group[r, d, 0] = at
            for mask in range(1, 1 << len(own)):
                inside = {p for b, p in enumerate(own) if mask >> b & 1}
                first_total[r, d, mask] = n_total
                n_total += _set_strides(total_stride[r, d, mask], shapes[r], inside)
                first_group[r, d, mask] = at
                others = set(range(table.arity)) - inside
                size = _set_strides(group_stride[r, d, mask], shapes[r], others)
                if mask == 2 and table.symmetric and own[0] == 0:  # either end of a pair
                    first_group[r, d, 2] = first_group[r, d, 1]
                    continue
                at += size * n_stats[r]
            first_group[r, d, 1 << len(own)] = at
        n_group = max(n_group, at)
    rows = [table.likelihood.initial_prior(0.5).size for table in tables]
    return Soft(
        q=np.zeros(sum(size * K for size, K in zip(data.sizes, clusters, strict=True))),
        first_q=offsets([size * K for size, K in zip(data.sizes, clusters, strict=True)]),
        n_clusters=np.array(clusters, np.int64),
        m=np.zeros((D, max(clusters))),
        alpha=np.ones(D),
        prior=np.zeros((len(tables), max(rows))),
        stride=np.concatenate([_strides(shape) for shape in shapes]),
        first=offsets(blocks),
        first_stat=offsets([b * S for b, S in zip(blocks, n_stats, strict=True)]),
        s=np.zeros(sum(b * S for b, S in zip(blocks, n_stats, strict=True))),
        n_bits=bits.astype(np.int64),
        bit_place=places,
        total=np.zeros(n_total),
        first_total=first_total,
        total_stride=total_stride,
        group=np.zeros(n_group),
        first_group=first_group,
        group_stride=group_stride,
    )


def _strides(shape: list[int]) -> Offsets:
    """Return the strides of a table."""
    return np.array([np.prod(shape[p + 1 :], dtype=np.int64) for p in range(len(shape))], np.int64)


def _set_strides(out: Offsets, shape: list[int], places: set[int]) -> int:
    """Write the strides of a table of some places, 0 at the others; return its size."""
    chosen = sorted(places)
    out[chosen] = _strides([shape[p] for p in chosen]) if chosen else 0
    return int(np.prod([shape[p] for p in chosen], dtype=np.int64))
