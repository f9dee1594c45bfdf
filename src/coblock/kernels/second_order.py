"""CVB: the second-order update with exact variances, or with the paper's (MODEL 6, 11)."""

from typing import NamedTuple

import numpy as np

from coblock.kernels import BlockTables, DomainView, Floats, Indices, Offsets, kernel
from coblock.kernels.covariance import (
    LINKS,
    NONLINKS,
    SEEN,
    ZERO_SPREAD,
    SpreadState,
    add_covariance,
    covariances,
    mutual_spread,
)
from coblock.kernels.gather import own_cell, shift, transposed
from coblock.kernels.memberships import (
    hard_label,
    next_is_row,
    remove_members,
    stick_log_prior,
    update_object,
)
from coblock.kernels.special import log_rising, trigamma


class Side(NamedTuple):
    """One domain with its second-order state."""

    domain: DomainView
    spread: SpreadState


class CellSums(NamedTuple):
    """Sums over the links, or over the unseen cells, of one object; spreads s = q (1 - q)."""

    spread: Floats  # (P, K of the others)  sum_j s_jl
    pairs: Floats  # (P, K, K)  sum_j q_jk q_jl, k != l; one domain only


class ObjectMoments(NamedTuple):
    """Moments of the cells of one object; the first index is the mask (links, non-links, seen)."""

    mean: Floats  # (3, P, K of the others)
    spread: Floats  # (3, P, K of the others)  S_l = sum_j y_ij s_jl
    D: Floats  # (3, P, K, K of the others)
    mutual: Floats  # (3, K of the others)  sum_j y_ij y_ji s_jl, directed relations only
    own: Floats  # (3,)  the object's cell with itself


@kernel
def gather_spread(
    start: Offsets, end: Indices, i: int, q: Floats, spread: Floats, pairs: Floats
) -> None:
    """Add the spreads of all neighbours of object ``i`` and, in one domain, their q_k q_l."""
    for at in range(start[i], start[i + 1]):
        q_j = q[end[at]]
        for l in range(q_j.size):
            s = q_j[l] * (1.0 - q_j[l])
            if s < ZERO_SPREAD:
                continue
            spread[l] += s
            for k in range(pairs.shape[0]):
                if k != l:
                    pairs[k, l] += q_j[k] * q_j[l]


@kernel
def gather_cell_sums(domain: DomainView, other: DomainView, i: int) -> tuple[CellSums, CellSums]:
    """Return the sums over the links and over the unseen cells of object ``i``."""
    P, L = len(domain.incidence), other.m.size
    size = L if domain.repeated else 0
    links = CellSums(np.zeros((P, L)), np.zeros((P, size, size)))
    unseen = CellSums(np.zeros((P, L)), np.zeros((P, size, size)))
    for p in range(P):
        incidence = domain.incidence[p]
        gather_spread(
            incidence.link_start, incidence.link, i, other.q, links.spread[p], links.pairs[p]
        )
        gather_spread(
            incidence.unseen_start, incidence.unseen, i, other.q, unseen.spread[p], unseen.pairs[p]
        )
    return links, unseen


@kernel
def update_neighbours(
    start: Offsets, end: Indices, i: int, p: int, step: Floats, g: Floats
) -> None:
    """Add ``step`` to the counts ``g`` of all neighbours of object ``i`` at place ``p``."""
    opposite = g.shape[1] - 1 - p
    for at in range(start[i], start[i + 1]):
        g[end[at], opposite] += step


@kernel
def shift_covariances(
    repeated: bool,
    weight: float,
    q_i: Floats,
    ends: CellSums,
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
            for l in range(ends.spread.shape[1]):
                if repeated and k == l:
                    other_table[p, k, k] += weight * q_i[k] * ends.spread[:, k].sum()
                    continue
                other_table[p, k, l] += weight * q_i[k] * ends.spread[p, l]
                if repeated:
                    other_table[P - 1 - p, k, l] -= weight * q_i[l] * ends.pairs[p, k, l]


@kernel
def shift_sizes(
    repeated: bool, weight: float, q_i: Floats, own_seen: float, spread: SpreadState
) -> None:
    """Add the object to, or remove it from, the domain's sums over objects."""
    for l in range(q_i.size):
        s = q_i[l] * (1.0 - q_i[l])
        spread.total[l] += weight * s
        if repeated:
            spread.own_seen[l] += weight * s * own_seen
            for k in range(q_i.size):
                spread.pairs[k, l] += weight * q_i[k] * q_i[l]
                spread.triples[k, l] += weight * q_i[k] * q_i[l] * q_i[l]


@kernel
def block_variance(
    repeated: bool,
    exact: bool,
    V: Floats,
    weight: float,
    q_i: Floats,
    mask: int,
    moments: ObjectMoments,
) -> None:
    """Add ``weight`` times the object's part of V[count] to ``V`` (law of total variance)."""
    mean, S, D = moments.mean[mask], moments.spread[mask], moments.D[mask]
    for k in range(V.shape[0]):
        s_k = q_i[k] * (1.0 - q_i[k])
        for l in range(V.shape[1]):
            if repeated and k == l:
                part = diagonal_part(exact, q_i[k], k, mask, moments)
            elif not exact:  # third sum of MODEL 6 alone
                part = s_k * S[0, l]
                if repeated:
                    part += q_i[l] * (1.0 - q_i[l]) * S[-1, k]
            else:
                part = q_i[k] * (2.0 * D[0, k, l] + S[0, l]) + s_k * mean[0, l] ** 2
                if repeated:
                    s_l = q_i[l] * (1.0 - q_i[l])
                    part += q_i[l] * (2.0 * D[-1, l, k] + S[-1, k]) + s_l * mean[-1, k] ** 2
                    part -= 2.0 * q_i[k] * q_i[l] * mean[0, l] * mean[-1, k]
            V[k, l] = max(V[k, l] + weight * part, 0.0)


@kernel
def diagonal_gain(exact: bool, k: int, mask: int, moments: ObjectMoments) -> float:
    """Return V[count of block (k, k) | z_i = k] - V[count without i], one domain."""
    gain = moments.spread[mask, :, k].sum()
    if exact:
        gain += 2.0 * moments.D[mask, :, k, k].sum()
        if moments.mean.shape[1] == 2:
            gain += 2.0 * moments.mutual[mask, k]
    return gain


@kernel
def diagonal_part(exact: bool, q_ik: float, k: int, mask: int, moments: ObjectMoments) -> float:
    """Return the object's part of V[count of block (k, k)], one domain."""
    gain = diagonal_gain(exact, k, mask, moments)
    if exact:
        mean = moments.mean[mask, :, k].sum() + moments.own[mask]
        return q_ik * gain + q_ik * (1.0 - q_ik) * mean * mean
    return q_ik * (1.0 - q_ik) * (gain + moments.own[mask])


@kernel
def expected_gain(c: float, V_rest: float, plus: float, V_plus: float) -> float:
    """Return the second-order E[lnGamma(S + plus)] - E[lnGamma(S)] where E[S] = c.

    eq:IRM_2dom_CVB_approx_example_likelihood; the variances are those of the two arguments.
    """
    return log_rising(c, plus) + 0.5 * (trigamma(c + plus) * V_plus - trigamma(c) * V_rest)


@kernel
def block_gain(
    prior: tuple[float, float],
    rest: tuple[float, float],
    plus: tuple[float, float],
    V_rest: tuple[float, float, float],
    V_gain: tuple[float, float, float],
) -> float:
    """Return the second-order log likelihood of an object's cells in one block."""
    n, N = prior[0] + rest[0], prior[1] + rest[1]
    gain = expected_gain(n, V_rest[0], plus[0], V_rest[0] + V_gain[0])
    gain += expected_gain(N, V_rest[1], plus[1], V_rest[1] + V_gain[1])
    return gain - expected_gain(n + N, V_rest[2], plus[0] + plus[1], V_rest[2] + V_gain[2])


@kernel
def score_block(
    repeated: bool,
    exact: bool,
    p: int,
    k: int,
    l: int,
    blocks: BlockTables,
    V: Floats,
    moments: ObjectMoments,
) -> float:
    """Return the gain of block (k, l), seen from place ``p``, given z_i = k."""
    row, column = (k, l) if p == 0 else (l, k)
    prior = (blocks.a[row, column], blocks.b[row, column])
    rest = (blocks.n[row, column], blocks.N[row, column])
    V_rest = (V[LINKS, row, column], V[NONLINKS, row, column], V[SEEN, row, column])
    mean, S, D = moments.mean, moments.spread, moments.D
    if repeated and k == l and mean.shape[1] == 2:
        n_plus = mean[LINKS, 0, k] + mean[LINKS, 1, k] + moments.own[LINKS]
        N_plus = mean[NONLINKS, 0, k] + mean[NONLINKS, 1, k] + moments.own[NONLINKS]
        V_gain = (
            max(diagonal_gain(exact, k, LINKS, moments), -V_rest[0]),
            max(diagonal_gain(exact, k, NONLINKS, moments), -V_rest[1]),
            max(diagonal_gain(exact, k, SEEN, moments), -V_rest[2]),
        )
        return block_gain(prior, rest, (n_plus, N_plus), V_rest, V_gain)
    factor = 2.0 if exact else 0.0
    V_gain = (
        max(factor * D[LINKS, p, k, l] + S[LINKS, p, l], -V_rest[0]),
        max(factor * D[NONLINKS, p, k, l] + S[NONLINKS, p, l], -V_rest[1]),
        max(factor * D[SEEN, p, k, l] + S[SEEN, p, l], -V_rest[2]),
    )
    plus = (mean[LINKS, p, l], mean[NONLINKS, p, l])
    return block_gain(prior, rest, plus, V_rest, V_gain)


@kernel
def add_second_order_likelihood(
    repeated: bool, exact: bool, blocks: BlockTables, V: Floats, moments: ObjectMoments, out: Floats
) -> None:
    """Add the second-order log p(cells of the object | z_i = k, all other cells) to ``out``."""
    for p in range(moments.mean.shape[1]):
        for k in range(out.size):
            for l in range(moments.mean.shape[2]):
                if p == 0 or k != l:  # block (k, k) is scored once, for both places
                    out[k] += score_block(repeated, exact, p, k, l, blocks, V, moments)


@kernel
def add_to_neighbours(
    weight: float, here: Side, there: Side, i: int, links: CellSums, unseen: CellSums
) -> None:
    """Add object ``i`` to (weight 1) or remove it from (-1) the state of its neighbours."""
    domain, mine, theirs = here.domain, here.spread, there.spread
    q_i, repeated = domain.q[i], domain.repeated
    directed = repeated and len(domain.incidence) == 2
    own = domain.own_link[i] if directed else 0.0
    own_seen = domain.own_seen[i] if directed else 0.0
    shift_sizes(repeated, weight, q_i, own_seen, mine)
    g = mine.links[i]
    shift_covariances(repeated, weight, q_i, links, mine.by_links, theirs.by_links, g, own)
    some_unseen = mine.unseen.shape[0] > 0
    if some_unseen:
        g = mine.unseen[i]
        shift_covariances(repeated, weight, q_i, unseen, mine.by_unseen, theirs.by_unseen, g, 0.0)
    step = weight * q_i
    for p in range(len(domain.incidence)):
        incidence = domain.incidence[p]
        update_neighbours(incidence.link_start, incidence.link, i, p, step, theirs.links)
        if some_unseen:
            update_neighbours(incidence.unseen_start, incidence.unseen, i, p, step, theirs.unseen)


@kernel
def object_moments(
    exact: bool, here: Side, there: Side, i: int, links: CellSums, unseen: CellSums
) -> ObjectMoments:
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
            S[LINKS, p, l] = links.spread[p, l]
            S[SEEN, p, l] = max(there.spread.total[l] - unseen.spread[p, l], 0.0)
            S[NONLINKS, p, l] = max(S[SEEN, p, l] - S[LINKS, p, l], 0.0)
    D = np.zeros((3, P, K, L))
    if exact:
        covariances(domain, other, there.spread, i, D)
        if domain.repeated and P == 2:
            mutual_spread(domain, there.spread, i, links.spread, unseen.spread, mutual)
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
    """Add the object to (weight 1) or remove it from (-1) counts and variances."""
    shift(domain, blocks.n, weight, q_i, moments.mean[LINKS], moments.own[LINKS])
    shift(domain, blocks.N, weight, q_i, moments.mean[NONLINKS], moments.own[NONLINKS])
    for mask in range(3):
        block_variance(domain.repeated, exact, V[mask], weight, q_i, mask, moments)


@kernel
def add_object(
    exact: bool, here: Side, there: Side, blocks: BlockTables, V: Floats, i: int
) -> None:
    """Add object ``i`` with its memberships to tables that do not contain it."""
    links, unseen = gather_cell_sums(here.domain, there.domain, i)
    moments = object_moments(exact, here, there, i, links, unseen)
    shift_all(here.domain, exact, blocks, V, 1.0, here.domain.q[i], moments)
    add_to_neighbours(1.0, here, there, i, links, unseen)
    here.domain.m[:] += here.domain.q[i]


@kernel
def update_one(
    exact: bool, here: Side, there: Side, blocks: BlockTables, V: Floats, i: int
) -> tuple[float, float]:
    """Update the memberships of object ``i``; return its log normaliser and entropy.

    ``V`` holds the variances of links, non-links and seen cells, (3, K, K of the others).
    """
    domain = here.domain
    q_i = domain.q[i]
    links, unseen = gather_cell_sums(domain, there.domain, i)
    remove_members(domain.m, q_i)
    add_to_neighbours(-1.0, here, there, i, links, unseen)
    moments = object_moments(exact, here, there, i, links, unseen)
    shift_all(domain, exact, blocks, V, -1.0, q_i, moments)
    log_weight = np.empty(q_i.size)
    stick_log_prior(domain.m, domain.alpha, log_weight)
    add_second_order_likelihood(domain.repeated, exact, blocks, V, moments, log_weight)
    result = update_object(domain, i, log_weight)
    shift_all(domain, exact, blocks, V, 1.0, q_i, moments)
    add_to_neighbours(1.0, here, there, i, links, unseen)
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
        add_object(exact, here, there, blocks, V, i)


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
    n_columns = 0 if rows.domain.repeated else columns.domain.q.shape[0]
    row, column = 0, 0
    while row < n_rows or column < n_columns:
        if next_is_row(row, column, n_rows, n_columns):
            result = update_one(exact, rows, columns, blocks, V, row)
            row += 1
        else:
            result = update_one(exact, columns, rows, flipped, V_flipped, column)
            column += 1
        leave_one_out += result[0]
        entropy += result[1]
    return leave_one_out, entropy
