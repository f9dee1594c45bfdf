"""Covariances of the counts of a block with the memberships of an object's neighbours (MODEL 6).

``D_y[k, l] = sum_j y_ij Cov(S_y, z_jl)`` over the neighbours j of object i, see
:mod:`coblock.kernels.second_order`. A neighbour's covariance is linear in its own counts ``g`` by
cluster. With s = q (1 - q), place p of object i, and the opposite place p' = P-1-p,

    two domains           Cov = s_jl g_j[0, k]
    one domain, k != l    Cov = s_jl g_j[p', k] - q_jk q_jl g_j[p, l]
    one domain, k == l    Cov = s_jk (sum_p g_j[p, k] + own cell of j)

because in one domain block (k, l) also changes when j itself joins k. Sums over all j are kept
as tables, and sums over non-links are all minus links minus unseen: the time is linear.
"""

from typing import NamedTuple

import numpy as np

from coblock.kernels import DomainView, Floats, Indices, inner
from coblock.kernels.gather import links_of, own_cell, unseen_of

LINKS, NONLINKS, SEEN = 0, 1, 2  # the masks x, N and T
ZERO_SPREAD = 1e-18  # a spread q (1 - q) below it counts as 0


class SpreadState(NamedTuple):
    """Second-order state of one domain; tables are indexed by the cluster of the others first."""

    links: Floats  # (objects, P, K of the others)  expected links of each object by cluster
    unseen: Floats  # the same for unseen cells; (0, P, K) where the relation has none
    total: Floats  # (K,)  sum_j s_jl
    by_links: Floats  # (P, K of the others, K)  sum_j Cov with g = links of j
    by_unseen: Floats  # the same with g = unseen cells of j
    pairs: Floats  # (K, K)  sum_j q_jk q_jl; one domain only, as the next two
    triples: Floats  # (K, K)  sum_j q_jk q_jl^2
    own_seen: Floats  # (K,)  sum_j s_jk where the own cell of j is seen


@inner
def add_covariance(
    repeated: bool, weight: float, q_j: Floats, g: Floats, own: float, p: int, out: Floats
) -> None:
    """Add ``weight`` Cov(count of block (k, l), z_jl) to ``out[k, l]``."""
    for l in range(q_j.size):
        s = q_j[l] * (1.0 - q_j[l])
        if s < ZERO_SPREAD:
            continue
        opposite = g.shape[0] - 1 - p
        for k in range(out.shape[0]):
            if repeated and k == l:
                out[k, k] += weight * s * (g[:, k].sum() + own)
            else:
                out[k, l] += weight * s * g[opposite, k]
                if repeated:
                    out[k, l] -= weight * q_j[k] * q_j[l] * g[p, l]


@inner
def masked_counts(
    other: DomainView, spread: SpreadState, j: int, m: Floats, seen: Floats, nonlinks: Floats
) -> tuple[float, float]:
    """Write the seen cells and non-links of neighbour ``j`` by cluster; return its own cell's."""
    for p in range(seen.shape[0]):
        for k in range(m.size):
            seen[p, k] = m[k]
            if other.repeated:
                seen[p, k] -= other.q[j, k]
            if spread.unseen.shape[0] > 0:
                seen[p, k] -= spread.unseen[j, p, k]
            nonlinks[p, k] = seen[p, k] - spread.links[j, p, k]
    own_link, own_nonlink = own_cell(other, j)
    return own_link + own_nonlink, own_nonlink


@inner
def all_seen(repeated: bool, P: int, spread: SpreadState, m: Floats, out: Floats) -> None:
    """Write sum_j Cov with g = every cell of j but its unseen ones, from the kept tables."""
    for k in range(out.shape[0]):
        for l in range(out.shape[1]):
            if not repeated:
                out[k, l] = m[k] * spread.total[l]
            elif k == l:
                apart = m[k] * spread.total[k] - spread.pairs[k, k] + spread.triples[k, k]
                out[k, k] = P * apart + spread.own_seen[k]
            else:
                out[k, l] = m[k] * spread.total[l] + 2.0 * spread.triples[k, l]
                out[k, l] -= (1.0 + m[l]) * spread.pairs[k, l]


@inner
def covariances(
    domain: DomainView, other: DomainView, spread: SpreadState, i: int, D: Floats
) -> None:
    """Write D[mask, p, k, l] of object ``i``, which must be out of sizes and tables.

    ``spread`` is the second-order state of ``other``.
    """
    P, repeated = len(domain.incidence), domain.repeated
    seen, nonlinks = np.empty((P, domain.m.size)), np.empty((P, domain.m.size))
    for p in range(P):
        D[LINKS, p] = 0.0
        all_seen(repeated, P, spread, domain.m, D[SEEN, p])
        D[SEEN, p] -= spread.by_unseen[p]
        D[NONLINKS, p] = D[SEEN, p] - spread.by_links[p]
        for j in links_of(domain.incidence[p], i):
            _, own = masked_counts(other, spread, j, domain.m, seen, nonlinks)
            own_link, _ = own_cell(other, j)
            add_covariance(repeated, 1.0, other.q[j], spread.links[j], own_link, p, D[LINKS, p])
            add_covariance(repeated, -1.0, other.q[j], nonlinks, own, p, D[NONLINKS, p])
        for j in unseen_of(domain.incidence[p], i):
            own_seen, own = masked_counts(other, spread, j, domain.m, seen, nonlinks)
            add_covariance(repeated, -1.0, other.q[j], seen, own_seen, p, D[SEEN, p])
            add_covariance(repeated, -1.0, other.q[j], nonlinks, own, p, D[NONLINKS, p])


@inner
def add_common(left: Indices, right: Indices, q: Floats, out: Floats) -> None:
    """Add the spreads of the objects that are in both ascending lists."""
    to = 0
    for j in left:
        while to < right.size and right[to] < j:
            to += 1
        if to < right.size and right[to] == j:
            for l in range(out.size):
                out[l] += q[j, l] * (1.0 - q[j, l])


@inner
def mutual_spread(
    domain: DomainView, total: Floats, i: int, spread: Floats, mutual: Floats
) -> None:
    """Write sum_j y_ij y_ji s_jk for the three masks of a directed relation.

    ``total`` is the sum of s over all objects, and ``spread`` are those over the links and over
    the unseen cells of object ``i`` at both places, (2, 2, K).
    """
    sender, receiver = domain.incidence[0], domain.incidence[-1]
    out, back = links_of(sender, i), links_of(receiver, i)
    out_unseen, back_unseen = unseen_of(sender, i), unseen_of(receiver, i)
    mutual[:] = 0.0
    add_common(out, back, domain.q, mutual[LINKS])
    add_common(out_unseen, back_unseen, domain.q, mutual[SEEN])
    mutual[NONLINKS] = mutual[LINKS] + mutual[SEEN]
    add_common(out, back_unseen, domain.q, mutual[NONLINKS])
    add_common(out_unseen, back, domain.q, mutual[NONLINKS])
    for k in range(mutual.shape[1]):  # cells that are neither, by inclusion and exclusion
        unseen = total[k] - spread[1, 0, k] - spread[1, 1, k]
        mutual[SEEN, k] += unseen
        mutual[NONLINKS, k] += unseen - spread[0, 0, k] - spread[0, 1, k]


@inner
def shift_covariances(
    repeated: bool,
    weight: float,
    q_i: Floats,
    spread: Floats,
    pairs: Floats,
    own_table: Floats,
    other_table: Floats,
    g: Floats,
    own: float,
) -> None:
    """Add object ``i`` to (weight 1) or remove it from (-1) the sums of covariances.

    It contributes by its own counts ``g`` and by its part of the counts of its neighbours.
    """
    P = g.shape[0]
    for p in range(P):
        add_covariance(repeated, weight, q_i, g, own, p, own_table[p])
        for k in range(q_i.size):
            for l in range(spread.shape[1]):
                if repeated and k == l:
                    other_table[p, k, k] += weight * q_i[k] * spread[:, k].sum()
                    continue
                other_table[p, k, l] += weight * q_i[k] * spread[p, l]
                if repeated:
                    other_table[P - 1 - p, k, l] -= weight * q_i[l] * pairs[p, k, l]
