"""Collapsed Gibbs: labels of the Chinese restaurant process, one object after another."""

import math
from typing import NamedTuple

import numpy as np

from coblock.kernels import BIPARTITE, Blocks, Domain, Floats, Indices, Place, kernel
from coblock.kernels.blocks import add_likelihood, own_cell, shift, transposed
from coblock.kernels.memberships import next_is_row


class Chain(NamedTuple):
    """One domain's part of the sampler's state; ``domain.q`` is not used."""

    domain: Domain  # sizes m have at least one empty cluster: the room for a new one
    label: Indices  # (objects,)


@kernel
def count_ends(start: np.ndarray, end: np.ndarray, i: int, label: Indices, total: Floats) -> None:
    """Count the ends of object ``i`` by cluster."""
    for at in range(start[i], start[i + 1]):
        total[label[end[at]]] += 1.0


@kernel
def count_place(
    place: Place, i: int, label: Indices, m_other: Floats, n_plus: Floats, N_plus: Floats
) -> None:
    """Write the links and non-links of object ``i`` by cluster of the other end."""
    n_plus[:] = 0.0
    N_plus[:] = 0.0
    count_ends(place.link_start, place.link, i, label, n_plus)
    count_ends(place.unseen_start, place.unseen, i, label, N_plus)
    for l in range(n_plus.size):
        N_plus[l] = m_other[l] - N_plus[l] - n_plus[l]


@kernel
def crp_log_prior(m: Floats, alpha: float, out: Floats) -> None:
    """Write eq:IRM_2dom_Gibbs_z_1_1: the first empty cluster stands for the new one."""
    room = True
    for k in range(m.size):
        if m[k] > 0.0:
            out[k] = math.log(m[k])
        elif room:
            out[k] = math.log(alpha)
            room = False
        else:
            out[k] = -np.inf


@kernel
def draw(log_weight: Floats, uniform: float) -> tuple[int, float]:
    """Return a cluster drawn by the weights and the log of their sum."""
    top = log_weight.max()
    total = 0.0
    for k in range(log_weight.size):
        total += math.exp(log_weight[k] - top)
    left, last = uniform * total, 0
    for k in range(log_weight.size):
        weight = math.exp(log_weight[k] - top)
        if weight > 0.0:
            last = k
            left -= weight
            if left < 0.0:
                break
    return last, top + math.log(total)


@kernel
def visit(kind: int, here: Chain, there: Chain, blocks: Blocks, i: int, uniform: float) -> float:
    """Draw a new label for object ``i`` (eq:IRM_2dom_Gibbs_z_1i_posterior).

    Returns the log normaliser of its conditional distribution.
    """
    domain = here.domain
    n_plus = np.empty((len(domain.places), there.domain.m.size))
    N_plus = np.empty_like(n_plus)
    member, log_weight = np.zeros(domain.m.size), np.empty(domain.m.size)
    own = own_cell(kind, domain, i)
    domain.m[here.label[i]] -= 1.0
    for p in range(n_plus.shape[0]):
        place = domain.places[p]
        count_place(place, i, there.label, there.domain.m, n_plus[p], N_plus[p])
    member[here.label[i]] = 1.0
    shift(kind, blocks.n, -1.0, member, n_plus, own[0])
    shift(kind, blocks.N, -1.0, member, N_plus, own[1])
    crp_log_prior(domain.m, domain.alpha, log_weight)
    add_likelihood(kind, blocks, n_plus, N_plus, own, log_weight)
    member[here.label[i]] = 0.0
    here.label[i], log_normaliser = draw(log_weight, uniform)
    member[here.label[i]] = 1.0
    shift(kind, blocks.n, 1.0, member, n_plus, own[0])
    shift(kind, blocks.N, 1.0, member, N_plus, own[1])
    domain.m[here.label[i]] += 1.0
    return log_normaliser


@kernel
def has_room(chain: Chain) -> bool:
    """Say whether an empty cluster is left for a new one."""
    return chain.domain.m.min() == 0.0


@kernel
def sweep_one_domain(
    kind: int, chain: Chain, blocks: Blocks, uniform: Floats, start: int
) -> tuple[int, float]:
    """Visit the objects from ``start`` on until the end, or until there is no room.

    Returns how many of the domain's objects are done and the sum of the log normalisers.
    """
    order, total = chain.domain.order, 0.0
    done = start
    while done < order.size and has_room(chain):
        total += visit(kind, chain, chain, blocks, order[done], uniform[done])
        done += 1
    return done, total


@kernel
def sweep_two_domains(
    rows: Chain, columns: Chain, blocks: Blocks, uniform: Floats, start: tuple[int, int]
) -> tuple[int, int, float]:
    """Visit rows and columns, interleaved, from ``start`` on until there is no room."""
    row_order, column_order, total = rows.domain.order, columns.domain.order, 0.0
    flipped = transposed(blocks)
    row, column = start
    left = row_order.size + column_order.size - row - column
    while left > 0 and has_room(rows) and has_room(columns):
        u = uniform[row + column]
        if next_is_row(row, column, row_order.size, column_order.size):
            total += visit(BIPARTITE, rows, columns, blocks, row_order[row], u)
            row += 1
        else:
            total += visit(BIPARTITE, columns, rows, flipped, column_order[column], u)
            column += 1
        left -= 1
    return row, column, total
