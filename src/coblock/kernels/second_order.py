"""CVB: the second-order update with exact variances, or with the paper's (MODEL 6, 11)."""

from typing import NamedTuple

import numpy as np

from coblock.kernels import BIPARTITE, DIRECTED, Blocks, Domain, Floats, kernel
from coblock.kernels.blocks import own_cell, shift, transposed
from coblock.kernels.covariance import (
    DECIDED,
    LINKS,
    NONLINKS,
    SEEN,
    Spread,
    add_covariance,
    covariances,
    mutual_spread,
)
from coblock.kernels.memberships import (
    next_is_row,
    remove_members,
    renew,
    stick_log_prior,
    sure_cluster,
)
from coblock.kernels.special import log_rising, trigamma


class Side(NamedTuple):
    """One domain with its second-order state."""

    domain: Domain
    spread: Spread


class Ends(NamedTuple):
    """Sums over the links, or over the unseen cells, of one object; spreads s = q (1 - q)."""

    spread: Floats  # (P, K of the others)  sum_j s_jl
    pairs: Floats  # (P, K, K)  sum_j q_jk q_jl, k != l; one domain only


class Brought(NamedTuple):
    """What one object brings, first index the mask (links, non-links, seen cells)."""

    mean: Floats  # (3, P, K of the others)
    spread: Floats  # (3, P, K of the others)  S_l = sum_j y_ij s_jl
    D: Floats  # (3, P, K, K of the others)
    mutual: Floats  # (3, K of the others)  sum_j y_ij y_ji s_jl, directed relations only
    own: Floats  # (3,)  the object's cell with itself


@kernel
def gather_spread(
    start: np.ndarray, end: np.ndarray, i: int, q: Floats, spread: Floats, pairs: Floats
) -> None:
    """Add the spreads of all ends of object ``i`` and, one domain, their products q_k q_l."""
    for at in range(start[i], start[i + 1]):
        q_j = q[end[at]]
        for l in range(q_j.size):
            s = q_j[l] * (1.0 - q_j[l])
            if s < DECIDED:
                continue
            spread[l] += s
            for k in range(pairs.shape[0]):
                if k != l:
                    pairs[k, l] += q_j[k] * q_j[l]


@kernel
def gather_ends(kind: int, domain: Domain, other: Domain, i: int) -> tuple[Ends, Ends]:
    """Return the sums over the links and over the unseen cells of object ``i``."""
    P, L = len(domain.places), other.m.size
    size = 0 if kind == BIPARTITE else L
    links = Ends(np.zeros((P, L)), np.zeros((P, size, size)))
    unseen = Ends(np.zeros((P, L)), np.zeros((P, size, size)))
    for p in range(P):
        place = domain.places[p]
        gather_spread(place.link_start, place.link, i, other.q, links.spread[p], links.pairs[p])
        gather_spread(
            place.unseen_start, place.unseen, i, other.q, unseen.spread[p], unseen.pairs[p]
        )
    return links, unseen


@kernel
def pass_on(start: np.ndarray, end: np.ndarray, i: int, p: int, step: Floats, g: Floats) -> None:
    """Tell all ends of object ``i`` at place ``p`` that its memberships moved by ``step``."""
    opposite = g.shape[1] - 1 - p
    for at in range(start[i], start[i + 1]):
        g[end[at], opposite] += step


@kernel
def shift_covariances(
    kind: int,
    weight: float,
    q_i: Floats,
    ends: Ends,
    own_table: Floats,
    other_table: Floats,
    g: Floats,
    own: float,
) -> None:
    """Put object ``i`` into (weight 1) or take it out of (-1) the kept sums of covariances.

    It stands in them itself, with what it brings (``g``), and by what it brings to others.
    """
    P = g.shape[0]
    for p in range(P):
        add_covariance(kind, weight, q_i, g, own, p, own_table[p])
        for k in range(q_i.size):
            for l in range(ends.spread.shape[1]):
                if kind != BIPARTITE and k == l:
                    other_table[p, k, k] += weight * q_i[k] * ends.spread[:, k].sum()
                    continue
                other_table[p, k, l] += weight * q_i[k] * ends.spread[p, l]
                if kind != BIPARTITE:
                    other_table[P - 1 - p, k, l] -= weight * q_i[l] * ends.pairs[p, k, l]


@kernel
def shift_sizes(kind: int, weight: float, q_i: Floats, own_seen: float, spread: Spread) -> None:
    """Put the object into, or take it out of, the domain's sums over objects."""
    for l in range(q_i.size):
        s = q_i[l] * (1.0 - q_i[l])
        spread.total[l] += weight * s
        if kind != BIPARTITE:
            spread.own_seen[l] += weight * s * own_seen
            for k in range(q_i.size):
                spread.pairs[k, l] += weight * q_i[k] * q_i[l]
                spread.triples[k, l] += weight * q_i[k] * q_i[l] * q_i[l]


@kernel
def block_variance(
    kind: int, exact: bool, V: Floats, weight: float, q_i: Floats, mask: int, brought: Brought
) -> None:
    """Add ``weight`` times the object's part of V[count] to ``V`` (law of total variance)."""
    mean, S, D = brought.mean[mask], brought.spread[mask], brought.D[mask]
    for k in range(V.shape[0]):
        s_k = q_i[k] * (1.0 - q_i[k])
        for l in range(V.shape[1]):
            if kind != BIPARTITE and k == l:
                part = diagonal_part(kind, exact, q_i[k], k, mask, brought)
            elif not exact:  # third sum of MODEL 6 alone
                part = s_k * S[0, l]
                if kind != BIPARTITE:
                    part += q_i[l] * (1.0 - q_i[l]) * S[-1, k]
            else:
                part = q_i[k] * (2.0 * D[0, k, l] + S[0, l]) + s_k * mean[0, l] ** 2
                if kind != BIPARTITE:
                    s_l = q_i[l] * (1.0 - q_i[l])
                    part += q_i[l] * (2.0 * D[-1, l, k] + S[-1, k]) + s_l * mean[-1, k] ** 2
                    part -= 2.0 * q_i[k] * q_i[l] * mean[0, l] * mean[-1, k]
            V[k, l] = max(V[k, l] + weight * part, 0.0)


@kernel
def diagonal_gain(kind: int, exact: bool, k: int, mask: int, brought: Brought) -> float:
    """Return V[count of block (k, k) | z_i = k] - V[count without i], one domain."""
    gain = brought.spread[mask, :, k].sum()
    if exact:
        gain += 2.0 * brought.D[mask, :, k, k].sum()
        if kind == DIRECTED:
            gain += 2.0 * brought.mutual[mask, k]
    return gain


@kernel
def diagonal_part(
    kind: int, exact: bool, q_ik: float, k: int, mask: int, brought: Brought
) -> float:
    """Return the object's part of V[count of block (k, k)], one domain."""
    gain = diagonal_gain(kind, exact, k, mask, brought)
    if exact:
        mean = brought.mean[mask, :, k].sum() + brought.own[mask]
        return q_ik * gain + q_ik * (1.0 - q_ik) * mean * mean
    return q_ik * (1.0 - q_ik) * (gain + brought.own[mask])


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
    """Return the second-order log likelihood of what an object brings to one block."""
    n, N = prior[0] + rest[0], prior[1] + rest[1]
    gain = expected_gain(n, V_rest[0], plus[0], V_rest[0] + V_gain[0])
    gain += expected_gain(N, V_rest[1], plus[1], V_rest[1] + V_gain[1])
    return gain - expected_gain(n + N, V_rest[2], plus[0] + plus[1], V_rest[2] + V_gain[2])


@kernel
def score_block(
    kind: int, exact: bool, p: int, k: int, l: int, blocks: Blocks, V: Floats, brought: Brought
) -> float:
    """Return the gain of block (k, l), seen from place ``p``, given z_i = k."""
    row, column = (k, l) if p == 0 else (l, k)
    prior = (blocks.a[row, column], blocks.b[row, column])
    rest = (blocks.n[row, column], blocks.N[row, column])
    V_rest = (V[LINKS, row, column], V[NONLINKS, row, column], V[SEEN, row, column])
    mean, S, D = brought.mean, brought.spread, brought.D
    if kind == DIRECTED and k == l:
        n_plus = mean[LINKS, 0, k] + mean[LINKS, 1, k] + brought.own[LINKS]
        N_plus = mean[NONLINKS, 0, k] + mean[NONLINKS, 1, k] + brought.own[NONLINKS]
        V_gain = (
            max(diagonal_gain(kind, exact, k, LINKS, brought), -V_rest[0]),
            max(diagonal_gain(kind, exact, k, NONLINKS, brought), -V_rest[1]),
            max(diagonal_gain(kind, exact, k, SEEN, brought), -V_rest[2]),
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
def add_likelihood(
    kind: int, exact: bool, blocks: Blocks, V: Floats, brought: Brought, out: Floats
) -> None:
    """Add the second-order log p(cells of the object | z_i = k, all other cells) to ``out``."""
    for p in range(brought.mean.shape[1]):
        for k in range(out.size):
            for l in range(brought.mean.shape[2]):
                if p == 0 or k != l:  # block (k, k) is scored once, for both places
                    out[k] += score_block(kind, exact, p, k, l, blocks, V, brought)


@kernel
def move(
    kind: int, weight: float, here: Side, there: Side, i: int, links: Ends, unseen: Ends
) -> None:
    """Put object ``i`` into (weight 1) or take it out of (-1) all that neighbours know of it."""
    domain, mine, theirs = here.domain, here.spread, there.spread
    q_i = domain.q[i]
    own = domain.self_link[i] if kind == DIRECTED else 0.0
    own_seen = domain.self_seen[i] if kind == DIRECTED else 0.0
    shift_sizes(kind, weight, q_i, own_seen, mine)
    g = mine.links[i]
    shift_covariances(kind, weight, q_i, links, mine.by_links, theirs.by_links, g, own)
    some_unseen = mine.unseen.shape[0] > 0
    if some_unseen:
        g = mine.unseen[i]
        shift_covariances(kind, weight, q_i, unseen, mine.by_unseen, theirs.by_unseen, g, 0.0)
    step = weight * q_i
    for p in range(len(domain.places)):
        place = domain.places[p]
        pass_on(place.link_start, place.link, i, p, step, theirs.links)
        if some_unseen:
            pass_on(place.unseen_start, place.unseen, i, p, step, theirs.unseen)


@kernel
def bring(
    kind: int, exact: bool, here: Side, there: Side, i: int, links: Ends, unseen: Ends
) -> Brought:
    """Return what object ``i`` brings; sizes and tables must leave it out."""
    domain, other = here.domain, there.domain
    P, K, L = len(domain.places), domain.m.size, other.m.size
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
        covariances(kind, domain, other, there.spread, i, D)
        if kind == DIRECTED:
            mutual_spread(domain, there.spread, i, links.spread, unseen.spread, mutual)
    own_link, own_nonlink = own_cell(kind, domain, i)
    own = np.array([own_link, own_nonlink, own_link + own_nonlink])
    return Brought(mean, S, D, mutual, own)


@kernel
def shift_all(
    kind: int, exact: bool, blocks: Blocks, V: Floats, weight: float, q_i: Floats, brought: Brought
) -> None:
    """Put the object into (weight 1) or take it out of (-1) counts and variances."""
    shift(kind, blocks.n, weight, q_i, brought.mean[LINKS], brought.own[LINKS])
    shift(kind, blocks.N, weight, q_i, brought.mean[NONLINKS], brought.own[NONLINKS])
    for mask in range(3):
        block_variance(kind, exact, V[mask], weight, q_i, mask, brought)


@kernel
def enter(
    kind: int, exact: bool, here: Side, there: Side, blocks: Blocks, V: Floats, i: int
) -> None:
    """Put object ``i`` with its memberships into tables that were built without it."""
    links, unseen = gather_ends(kind, here.domain, there.domain, i)
    brought = bring(kind, exact, here, there, i, links, unseen)
    shift_all(kind, exact, blocks, V, 1.0, here.domain.q[i], brought)
    move(kind, 1.0, here, there, i, links, unseen)
    here.domain.m[:] += here.domain.q[i]


@kernel
def visit(
    kind: int, exact: bool, here: Side, there: Side, blocks: Blocks, V: Floats, i: int
) -> tuple[float, float]:
    """Renew the memberships of object ``i``; return its log normaliser and entropy.

    ``V`` holds the variances of links, non-links and seen cells, (3, K, K of the others).
    """
    domain = here.domain
    q_i = domain.q[i]
    links, unseen = gather_ends(kind, domain, there.domain, i)
    remove_members(domain.m, q_i)
    move(kind, -1.0, here, there, i, links, unseen)
    brought = bring(kind, exact, here, there, i, links, unseen)
    shift_all(kind, exact, blocks, V, -1.0, q_i, brought)
    log_weight = np.empty(q_i.size)
    stick_log_prior(domain.m, domain.alpha, log_weight)
    add_likelihood(kind, exact, blocks, V, brought, log_weight)
    result = renew(domain, i, log_weight)
    shift_all(kind, exact, blocks, V, 1.0, q_i, brought)
    move(kind, 1.0, here, there, i, links, unseen)
    domain.m[:] += q_i
    return result


@kernel
def enter_all(
    kind: int, exact: bool, here: Side, there: Side, blocks: Blocks, V: Floats, q: Floats
) -> None:
    """Build the tables: enter the objects of one domain, so far absent, with memberships ``q``."""
    for i in range(q.shape[0]):
        here.domain.q[i] = q[i]
        here.domain.sure[i] = sure_cluster(q[i])
        enter(kind, exact, here, there, blocks, V, i)


@kernel
def sweep_one_domain(
    kind: int, exact: bool, side: Side, blocks: Blocks, V: Floats
) -> tuple[float, float]:
    """Visit all objects of a one-domain relation; return leave-one-out and entropy."""
    leave_one_out, entropy = 0.0, 0.0
    for i in side.domain.order:
        result = visit(kind, exact, side, side, blocks, V, i)
        leave_one_out += result[0]
        entropy += result[1]
    return leave_one_out, entropy


@kernel
def sweep_two_domains(
    exact: bool, rows: Side, columns: Side, blocks: Blocks, V: Floats
) -> tuple[float, float]:
    """Visit all rows and columns, interleaved; return leave-one-out and entropy."""
    leave_one_out, entropy = 0.0, 0.0
    flipped, V_flipped = transposed(blocks), V.transpose((0, 2, 1))
    row_order, column_order = rows.domain.order, columns.domain.order
    row, column = 0, 0
    while row < row_order.size or column < column_order.size:
        if next_is_row(row, column, row_order.size, column_order.size):
            result = visit(BIPARTITE, exact, rows, columns, blocks, V, row_order[row])
            row += 1
        else:
            result = visit(
                BIPARTITE, exact, columns, rows, flipped, V_flipped, column_order[column]
            )
            column += 1
        leave_one_out += result[0]
        entropy += result[1]
    return leave_one_out, entropy
