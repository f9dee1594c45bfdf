"""CVB: the second-order update with exact variances, or with the paper's (MODEL 6, 11).

Objects are independent categorical variables under q, and a count is a quadratic form in their
indicators. For a mask y over cells (links x, observed non-links N, observed cells T) write
``S_y`` for the counts without object i. Given z_i = k the count of block (k, l) is
``S_y + sum_j y_ij z_jl``, so that

    V[S_y | z_i = k] = V[S_y] + 2 D_y[k, l] + S_l,      S_l = sum_j y_ij q_jl (1 - q_jl)
    D_y[k, l]        = sum_j y_ij Cov(S_y, z_jl)        over the neighbours j of i

and the law of total variance gives V of the whole. A neighbour's covariance is linear in its own
counts ``g`` by cluster. With s = q (1 - q), place p of object i, and the opposite place p' = P-1-p,

    two domains           Cov = s_jl g_j[0, k]
    one domain, k != l    Cov = s_jl g_j[p', k] - q_jk q_jl g_j[p, l]
    one domain, k == l    Cov = s_jk (sum_p g_j[p, k] + own cell of j)

because in one domain block (k, l) also changes when j itself joins k. Sums over all j are kept
as tables, and sums over non-links are all minus links minus unseen: the time is linear.
"""

from typing import NamedTuple

import numpy as np

from coblock.kernels import BlockTables, DomainView, Floats, Indices, inlined, kernel
from coblock.kernels.gather import links_of, own_cell, shift, transposed, unseen_of
from coblock.kernels.memberships import (
    hard_label,
    next_is_row,
    remove_members,
    stick_log_prior,
    update_object,
)
from coblock.kernels.special import log_rising, trigamma

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


class Side(NamedTuple):
    """One domain with its second-order state."""

    domain: DomainView
    spread: SpreadState


class CellSums(NamedTuple):
    """Sums over the cells of one object; the first index is 0 for links, 1 for unseen cells."""

    spread: Floats  # (2, P, K of the others)  sum_j s_jl of the spreads s = q (1 - q)
    pairs: Floats  # (2, P, K, K)  sum_j q_jk q_jl, k != l; one domain only


class ObjectMoments(NamedTuple):
    """Moments of the cells of one object; the first index is the mask (links, non-links, seen)."""

    mean: Floats  # (3, P, K of the others)
    spread: Floats  # (3, P, K of the others)  S_l = sum_j y_ij s_jl
    D: Floats  # (3, P, K, K of the others)
    mutual: Floats  # (3, K of the others)  sum_j y_ij y_ji s_jl, directed relations only
    own: Floats  # (3,)  the object's cell with itself


@kernel
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


@kernel
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


@kernel
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


@kernel
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


@kernel
def add_common(left: Indices, right: Indices, q: Floats, out: Floats) -> None:
    """Add the spreads of the objects that are in both ascending lists."""
    to = 0
    for j in left:
        while to < right.size and right[to] < j:
            to += 1
        if to < right.size and right[to] == j:
            for l in range(out.size):
                out[l] += q[j, l] * (1.0 - q[j, l])


@kernel
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


@kernel
def gather_spread(ends: Indices, q: Floats, spread: Floats, pairs: Floats) -> None:
    """Add the spreads of the objects ``ends`` and, in one domain, their q_k q_l."""
    for j in ends:
        for l in range(spread.size):
            s = q[j, l] * (1.0 - q[j, l])
            if s < ZERO_SPREAD:
                continue
            spread[l] += s
            for k in range(pairs.shape[0]):
                if k != l:
                    pairs[k, l] += q[j, k] * q[j, l]


@kernel
def gather_cell_sums(domain: DomainView, other: DomainView, i: int) -> CellSums:
    """Return the sums over the links and over the unseen cells of object ``i``."""
    P, L = len(domain.incidence), other.m.size
    size = L if domain.repeated else 0
    sums = CellSums(np.zeros((2, P, L)), np.zeros((2, P, size, size)))
    for p in range(P):
        cells = domain.incidence[p]
        gather_spread(links_of(cells, i), other.q, sums.spread[0, p], sums.pairs[0, p])
        gather_spread(unseen_of(cells, i), other.q, sums.spread[1, p], sums.pairs[1, p])
    return sums


@kernel
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


@kernel
def add_to_neighbours(weight: float, here: Side, there: Side, i: int, sums: CellSums) -> None:
    """Add object ``i`` to (weight 1) or remove it from (-1) the sums that its neighbours use."""
    domain, mine, theirs, (spread, pairs) = here.domain, here.spread, there.spread, sums
    q_i, repeated, (own_link, own_nonlink) = domain.q[i], domain.repeated, own_cell(domain, i)
    for l in range(q_i.size):
        s = q_i[l] * (1.0 - q_i[l])
        mine.total[l] += weight * s
        if repeated:
            mine.own_seen[l] += weight * s * (own_link + own_nonlink)
            for k in range(q_i.size):
                mine.pairs[k, l] += weight * q_i[k] * q_i[l]
                mine.triples[k, l] += weight * q_i[k] * q_i[l] * q_i[l]
    tables, g = (mine.by_links, theirs.by_links), mine.links[i]
    shift_covariances(repeated, weight, q_i, spread[0], pairs[0], *tables, g, own_link)
    if mine.unseen.shape[0] > 0:
        tables, g = (mine.by_unseen, theirs.by_unseen), mine.unseen[i]
        shift_covariances(repeated, weight, q_i, spread[1], pairs[1], *tables, g, 0.0)
    step, P = weight * q_i, len(domain.incidence)
    for p in range(P):
        for j in links_of(domain.incidence[p], i):
            theirs.links[j, P - 1 - p] += step
        for j in unseen_of(domain.incidence[p], i):
            theirs.unseen[j, P - 1 - p] += step


@inlined
def variance_gain(moments: ObjectMoments, mask: int, p: int, k: int, l: int, joint: bool) -> float:
    """Return V[count of block (k, l) | z_i = k] - V[count without i], seen from place ``p``.

    ``joint`` is whether the block is that of a cluster of one domain with itself, which has the
    cells of all places. The paper's variance has D = 0.
    """
    if joint:
        gain = moments.spread[mask, :, k].sum() + 2.0 * moments.D[mask, :, k, k].sum()
        return gain + 2.0 * moments.mutual[mask, k]
    return 2.0 * moments.D[mask, p, k, l] + moments.spread[mask, p, l]


@kernel
def expected_gain(c: float, plus: float, V_rest: float, V_gain: float) -> float:
    """Return the second-order E[lnGamma(S + plus)] - E[lnGamma(S)] where E[S] = c.

    eq:IRM_2dom_CVB_approx_example_likelihood. ``V_rest`` is V[S], and ``V_gain`` is added to it.
    """
    V_plus = V_rest + max(V_gain, -V_rest)
    return log_rising(c, plus) + 0.5 * (trigamma(c + plus) * V_plus - trigamma(c) * V_rest)


@kernel
def add_second_order_likelihood(
    repeated: bool, blocks: BlockTables, V: Floats, moments: ObjectMoments, out: Floats
) -> None:
    """Add the second-order log p(cells of the object | z_i = k, all other cells) to ``out``."""
    mean, own = moments.mean, moments.own
    for p in range(mean.shape[1]):
        for k in range(out.size):
            for l in range(mean.shape[2]):
                if p > 0 and k == l:  # block (k, k) is scored once, for both places
                    continue
                row, column = (k, l) if p == 0 else (l, k)
                joint = repeated and k == l
                n_plus, N_plus = mean[LINKS, p, l], mean[NONLINKS, p, l]
                if joint:
                    n_plus = mean[LINKS, :, k].sum() + own[LINKS]
                    N_plus = mean[NONLINKS, :, k].sum() + own[NONLINKS]
                n = blocks.a[row, column] + blocks.n[row, column]
                N = blocks.b[row, column] + blocks.N[row, column]
                V_n = variance_gain(moments, LINKS, p, k, l, joint)
                V_N = variance_gain(moments, NONLINKS, p, k, l, joint)
                V_T = variance_gain(moments, SEEN, p, k, l, joint)
                gain = expected_gain(n, n_plus, V[LINKS, row, column], V_n)
                gain += expected_gain(N, N_plus, V[NONLINKS, row, column], V_N)
                out[k] += gain - expected_gain(n + N, n_plus + N_plus, V[SEEN, row, column], V_T)


@kernel
def object_moments(exact: bool, here: Side, there: Side, i: int, sums: CellSums) -> ObjectMoments:
    """Return the moments of object ``i``; sizes and tables must not contain it."""
    domain, other = here.domain, there.domain
    P, K, L = len(domain.incidence), domain.m.size, other.m.size
    mean, S, mutual = np.empty((3, P, L)), np.empty((3, P, L)), np.zeros((3, L))
    for p in range(P):
        for l in range(L):
            hidden = here.spread.unseen[i, p, l] if here.spread.unseen.shape[0] > 0 else 0.0
            mean[LINKS, p, l] = max(here.spread.links[i, p, l], 0.0)
            mean[SEEN, p, l] = max(other.m[l] - hidden, 0.0)
            mean[NONLINKS, p, l] = max(mean[SEEN, p, l] - mean[LINKS, p, l], 0.0)
            S[LINKS, p, l] = sums.spread[0, p, l]
            S[SEEN, p, l] = max(there.spread.total[l] - sums.spread[1, p, l], 0.0)
            S[NONLINKS, p, l] = max(S[SEEN, p, l] - S[LINKS, p, l], 0.0)
    D = np.zeros((3, P, K, L))
    if exact:
        covariances(domain, other, there.spread, i, D)
        if domain.repeated and P == 2:
            mutual_spread(domain, there.spread.total, i, sums.spread, mutual)
    own_link, own_nonlink = own_cell(domain, i)
    own = np.array([own_link, own_nonlink, own_link + own_nonlink])
    return ObjectMoments(mean, S, D, mutual, own)


@kernel
def shift_all(
    domain: DomainView,
    exact: bool,
    blocks: BlockTables,
    V: Floats,
    weight: float,
    q_i: Floats,
    moments: ObjectMoments,
) -> None:
    """Add the object to (weight 1) or remove it from (-1) counts and variances.

    Its part of V[count] follows from the law of total variance.
    """
    shift(domain, blocks.n, weight, q_i, moments.mean[LINKS], moments.own[LINKS])
    shift(domain, blocks.N, weight, q_i, moments.mean[NONLINKS], moments.own[NONLINKS])
    for mask in range(3):
        mean, own, last = moments.mean[mask], moments.own[mask], moments.mean.shape[1] - 1
        for k in range(V.shape[1]):
            s_k = q_i[k] * (1.0 - q_i[k])
            for l in range(V.shape[2]):
                joint = domain.repeated and k == l
                gain = variance_gain(moments, mask, 0, k, l, joint)
                if joint:
                    cells = mean[:, k].sum() + own
                    part = s_k * (gain + own)
                    if exact:
                        part = q_i[k] * gain + q_i[k] * (1.0 - q_i[k]) * cells * cells
                else:  # not exact: third sum of MODEL 6 alone
                    part = q_i[k] * gain + s_k * mean[0, l] ** 2 if exact else s_k * gain
                if domain.repeated and k != l:
                    s_l = q_i[l] * (1.0 - q_i[l])
                    gain = variance_gain(moments, mask, last, l, k, False)
                    if exact:
                        part += q_i[l] * gain + s_l * mean[last, k] ** 2
                        part -= 2.0 * q_i[k] * q_i[l] * mean[0, l] * mean[last, k]
                    else:
                        part += s_l * gain
                V[mask, k, l] = max(V[mask, k, l] + weight * part, 0.0)


@kernel
def update_one(
    exact: bool, here: Side, there: Side, blocks: BlockTables, V: Floats, i: int
) -> tuple[float, float]:
    """Update the memberships of object ``i``; return its log normaliser and entropy.

    ``V`` holds the variances of links, non-links and seen cells, (3, K, K of the others).
    """
    domain = here.domain
    q_i = domain.q[i]
    sums = gather_cell_sums(domain, there.domain, i)
    remove_members(domain.m, q_i)
    add_to_neighbours(-1.0, here, there, i, sums)
    moments = object_moments(exact, here, there, i, sums)
    shift_all(domain, exact, blocks, V, -1.0, q_i, moments)
    log_weight = np.empty(q_i.size)
    stick_log_prior(domain.m, domain.alpha, log_weight)
    add_second_order_likelihood(domain.repeated, blocks, V, moments, log_weight)
    result = update_object(domain, i, log_weight)
    shift_all(domain, exact, blocks, V, 1.0, q_i, moments)
    add_to_neighbours(1.0, here, there, i, sums)
    domain.m[:] += q_i
    return result


@kernel
def add_all(
    exact: bool, here: Side, there: Side, blocks: BlockTables, V: Floats, q: Floats
) -> None:
    """Add all objects of one domain, with memberships ``q``, to tables without them."""
    for i in range(q.shape[0]):
        here.domain.q[i] = q[i]
        here.domain.hard[i] = hard_label(q[i])
        sums = gather_cell_sums(here.domain, there.domain, i)
        moments = object_moments(exact, here, there, i, sums)
        shift_all(here.domain, exact, blocks, V, 1.0, q[i], moments)
        add_to_neighbours(1.0, here, there, i, sums)
        here.domain.m[:] += q[i]


@kernel
def sweep(
    exact: bool, rows: Side, columns: Side, blocks: BlockTables, V: Floats
) -> tuple[float, float]:
    """Update all objects one after another; return leave-one-out likelihood and entropy.

    Rows and columns interleave. With repeated places ``columns`` is ``rows``.
    """
    leave_one_out, entropy = 0.0, 0.0
    flipped, V_flipped = transposed(blocks), V.transpose((0, 2, 1))
    n_rows = rows.domain.q.shape[0]
    n_columns, row = 0 if rows.domain.repeated else columns.domain.q.shape[0], 0
    for t in range(n_rows + n_columns):
        if next_is_row(row, t - row, n_rows, n_columns):
            result = update_one(exact, rows, columns, blocks, V, row)
            row += 1
        else:
            result = update_one(exact, columns, rows, flipped, V_flipped, t - row)
        leave_one_out += result[0]
        entropy += result[1]
    return leave_one_out, entropy
