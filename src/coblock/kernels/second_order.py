"""CVB: the second-order update with exact variances, or with the paper's (MODEL 6, 11).

Objects are independent categorical variables under q, and a count is a quadratic form in their
indicators. For a mask y over cells (links x, observed non-links N, observed cells T) write
``S_y`` for the counts without object i. Given z_i = k the count of block (k, l) is
``S_y + sum_j y_ij z_jl``, so that

    V[S_y | z_i = k] = V[S_y] + 2 D_y[k, l] + S_l,      S_l = sum_j y_ij q_jl (1 - q_jl)
    D_y[k, l]        = sum_j y_ij Cov(S_y, z_jl)        over the neighbours j of i

and the law of total variance gives V of the whole. The covariances are those of
:mod:`coblock.kernels.covariances`; the paper's variance has none.
"""

from typing import NamedTuple

import numpy as np

from coblock.kernels import BlockTables, DomainView, Floats, Indices, inlined, inner, kernel
from coblock.kernels.covariances import (
    LINKS,
    NONLINKS,
    SEEN,
    ZERO_SPREAD,
    SpreadState,
    covariances,
    mutual_spread,
    shift_covariances,
)
from coblock.kernels.gather import links_of, own_cell, shift, strided, transposed, unseen_of
from coblock.kernels.memberships import (
    hard_label,
    next_is_row,
    remove_members,
    stick_log_prior,
    update_object,
)
from coblock.kernels.special import log_rising, trigamma, unrolled_sum


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


@inner
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


@inner
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


@inner
def add_to_neighbours(
    exact: bool, weight: float, here: Side, there: Side, i: int, sums: CellSums
) -> None:
    """Add object ``i`` to (weight 1) or remove it from (-1) the sums that its neighbours use."""
    domain, mine, theirs, (spread, pairs) = here.domain, here.spread, there.spread, sums
    q_i, repeated, (own_link, own_nonlink) = domain.q[i], domain.repeated, own_cell(domain, i)
    for l in range(q_i.size):
        s = q_i[l] * (1.0 - q_i[l])
        mine.total[l] += weight * s
        if repeated and exact:
            mine.own_seen[l] += weight * s * (own_link + own_nonlink)
            for k in range(q_i.size):
                mine.pairs[k, l] += weight * q_i[k] * q_i[l]
                mine.triples[k, l] += weight * q_i[k] * q_i[l] * q_i[l]
    if exact:
        tables, g = (mine.by_links, theirs.by_links), mine.links[i]
        shift_covariances(repeated, weight, q_i, spread[0], pairs[0], *tables, g, own_link)
    if exact and mine.unseen.shape[0] > 0:
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


@inlined
def expected_gain(c: float, plus: float, V_rest: float, V_gain: float) -> float:
    """Return the second-order E[lnGamma(S + plus)] - E[lnGamma(S)] where E[S] = c.

    eq:IRM_2dom_CVB_approx_example_likelihood. ``V_rest`` is V[S], and ``V_gain`` is added to it.
    """
    V_plus = V_rest + max(V_gain, -V_rest)
    return log_rising(c, plus) + 0.5 * (trigamma(c + plus) * V_plus - trigamma(c) * V_rest)


@inner
def add_second_order_gains(
    repeated: bool, blocks: BlockTables, V: Floats, moments: ObjectMoments, p: int, out: Floats
) -> None:
    """Add the second-order log likelihood of the cells of place ``p``, seen from it, to ``out``.

    The loop over clusters at the other end vectorises. Block (k, k) of one domain is scored with
    the first place, for all of them.
    """
    L = moments.mean.shape[2]
    gain, plus, spread = np.empty(L), moments.mean[:, p].copy(), np.empty((3, L))
    for k in range(out.size):
        for mask in range(3):
            for l in range(L):
                spread[mask, l] = variance_gain(moments, mask, p, k, l, False)
            if repeated:
                plus[mask, k] = moments.mean[mask, :, k].sum() + moments.own[mask]
                spread[mask, k] = variance_gain(moments, mask, p, k, k, True)
        for l in range(L):
            n, N = blocks.a[k, l] + blocks.n[k, l], blocks.b[k, l] + blocks.N[k, l]
            more = plus[LINKS, l] + plus[NONLINKS, l]
            gain[l] = expected_gain(n, plus[LINKS, l], V[LINKS, k, l], spread[LINKS, l])
            gain[l] += expected_gain(N, plus[NONLINKS, l], V[NONLINKS, k, l], spread[NONLINKS, l])
            gain[l] -= expected_gain(n + N, more, V[SEEN, k, l], spread[SEEN, l])
        if repeated:
            plus[:, k] = moments.mean[:, p, k]
            gain[k] *= p == 0
        out[k] += unrolled_sum(gain)


@inner
def add_second_order_likelihood(
    repeated: bool, blocks: BlockTables, V: Floats, moments: ObjectMoments, out: Floats
) -> None:
    """Add the second-order log p(cells of the object | z_i = k, all other cells) to ``out``."""
    add_second_order_gains(repeated, blocks, V, moments, 0, out)
    if moments.mean.shape[1] == 2:
        turned = V.transpose((0, 2, 1))
        add_second_order_gains(repeated, transposed(blocks), turned, moments, 1, out)


@inner
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


@inner
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
    if domain.repeated:
        shift_own_variances(exact, V, weight, q_i, moments)
        return
    for mask in range(3):
        for k in range(V.shape[1]):
            s_k = q_i[k] * (1.0 - q_i[k])
            first, square = (
                (q_i[k], s_k) if exact else (s_k, 0.0)
            )  # not exact: third sum of MODEL 6
            for l in range(V.shape[2]):
                gain = 2.0 * moments.D[mask, 0, k, l] + moments.spread[mask, 0, l]
                part = first * gain + square * moments.mean[mask, 0, l] ** 2
                V[mask, k, l] = max(V[mask, k, l] + weight * part, 0.0)


@inner
def shift_own_variances(
    exact: bool, V: Floats, weight: float, q_i: Floats, moments: ObjectMoments
) -> None:
    """Add an object to the variances of one domain; blocks (k, l) and (l, k) have its cells."""
    last = moments.mean.shape[1] - 1
    for mask in range(3):
        mean, own = moments.mean[mask], moments.own[mask]
        for k in range(V.shape[1]):
            s_k = q_i[k] * (1.0 - q_i[k])
            for l in range(V.shape[2]):
                gain = variance_gain(moments, mask, 0, k, l, k == l)
                if k == l:
                    cells = mean[:, k].sum() + own
                    part = q_i[k] * gain + s_k * cells * cells if exact else s_k * (gain + own)
                else:  # not exact: third sum of MODEL 6 alone
                    s_l = q_i[l] * (1.0 - q_i[l])
                    back = variance_gain(moments, mask, last, l, k, False)
                    part = s_k * gain + s_l * back
                    if exact:
                        part = q_i[k] * gain + s_k * mean[0, l] ** 2
                        part += q_i[l] * back + s_l * mean[last, k] ** 2
                        part -= 2.0 * q_i[k] * q_i[l] * mean[0, l] * mean[last, k]
                V[mask, k, l] = max(V[mask, k, l] + weight * part, 0.0)


@inner
def seen_from(blocks: BlockTables, V: Floats, turned: bool) -> tuple[BlockTables, Floats]:
    """Return views of tables and variances from the rows, or from the columns if ``turned``.

    They have one type, so that what they are passed to is compiled once.
    """
    tables, variances = strided(blocks), V[:, ::1, ::1]
    flipped, V_flipped = transposed(tables), variances.transpose((0, 2, 1))
    return (flipped, V_flipped) if turned else (tables, variances)


@kernel
def update_one(
    exact: bool, here: Side, there: Side, blocks: BlockTables, V: Floats, i: int, turned: bool
) -> tuple[float, float]:
    """Update the memberships of object ``i``; return its log normaliser and entropy.

    ``V`` holds the variances of links, non-links and seen cells, (3, K, K of the others).
    ``turned`` is whether the object is a column, which sees the tables from the other end.
    """
    domain = here.domain
    blocks, V = seen_from(blocks, V, turned)
    q_i = domain.q[i]
    sums = gather_cell_sums(domain, there.domain, i)
    remove_members(domain.m, q_i)
    add_to_neighbours(exact, -1.0, here, there, i, sums)
    moments = object_moments(exact, here, there, i, sums)
    shift_all(domain, exact, blocks, V, -1.0, q_i, moments)
    log_weight = np.empty(q_i.size)
    stick_log_prior(domain.m, domain.alpha, log_weight)
    add_second_order_likelihood(domain.repeated, blocks, V, moments, log_weight)
    result = update_object(domain, i, log_weight)
    shift_all(domain, exact, blocks, V, 1.0, q_i, moments)
    add_to_neighbours(exact, 1.0, here, there, i, sums)
    domain.m[:] += q_i
    return result


@kernel
def add_all(
    exact: bool, here: Side, there: Side, blocks: BlockTables, V: Floats, q: Floats, turned: bool
) -> None:
    """Add all objects of one domain, with memberships ``q``, to tables without them.

    ``turned`` is whether they are the columns.
    """
    blocks, V = seen_from(blocks, V, turned)
    for i in range(q.shape[0]):
        here.domain.q[i] = q[i]
        here.domain.hard[i] = hard_label(q[i])
        sums = gather_cell_sums(here.domain, there.domain, i)
        moments = object_moments(exact, here, there, i, sums)
        shift_all(here.domain, exact, blocks, V, 1.0, q[i], moments)
        add_to_neighbours(exact, 1.0, here, there, i, sums)
        here.domain.m[:] += q[i]


@kernel
def sweep(
    exact: bool, rows: Side, columns: Side, blocks: BlockTables, V: Floats
) -> tuple[float, float]:
    """Update all objects one after another; return leave-one-out likelihood and entropy.

    Rows and columns interleave. With repeated places ``columns`` is ``rows``.
    """
    leave_one_out, entropy = 0.0, 0.0
    n_rows = rows.domain.q.shape[0]
    n_columns, row = 0 if rows.domain.repeated else columns.domain.q.shape[0], 0
    for t in range(n_rows + n_columns):
        if next_is_row(row, t - row, n_rows, n_columns):
            result = update_one(exact, rows, columns, blocks, V, row, False)
            row += 1
        else:
            result = update_one(exact, columns, rows, blocks, V, t - row, True)
        leave_one_out += result[0]
        entropy += result[1]
    return leave_one_out, entropy
