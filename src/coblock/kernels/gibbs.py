"""Collapsed Gibbs: labels of the Chinese restaurant process, one object after another."""

import math
from typing import NamedTuple

import numpy as np

from coblock.kernels import Blocks, Domain, Floats, Indices, Place, kernel
from coblock.kernels.blocks import add_likelihood, own_cell, shift
from coblock.kernels.special import log_beta_gain


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
    """Return a cluster drawn by the weights and the log of their sum.

    A negative number asks for the best cluster instead of a draw.
    """
    top = log_weight.max()
    total = 0.0
    for k in range(log_weight.size):
        total += math.exp(log_weight[k] - top)
    if uniform < 0.0:
        return int(log_weight.argmax()), top + math.log(total)
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
    kind: int,
    chain: Chain,
    blocks: Blocks,
    uniform: Floats,
    start: int,
    stop: int,
    growing: bool,
) -> tuple[int, float]:
    """Visit a stretch of the objects of a one-domain relation, until a growing one lacks room.

    Returns the next object's place in the order and the sum of the log normalisers.
    """
    order, total = chain.domain.order, 0.0
    done = start
    while done < stop and (has_room(chain) or not growing):
        total += visit(kind, chain, chain, blocks, order[done], uniform[done])
        done += 1
    return done, total


class Away(NamedTuple):
    """What a block adds for an object that has no link and no unseen cell in it."""

    block: Floats  # (K, K of the others)
    cluster: Floats  # (K,)  sums over the blocks of a cluster


@kernel
def renew(away: Away, blocks: Blocks, m_other: Floats, k: int) -> None:
    """Compute the row of cluster ``k`` anew."""
    away.cluster[k] = 0.0
    for l in range(m_other.size):
        n_rest = blocks.a[k, l] + blocks.n[k, l]
        N_rest = blocks.b[k, l] + blocks.N[k, l]
        away.block[k, l] = log_beta_gain(n_rest, N_rest, 0.0, m_other[l])
        away.cluster[k] += away.block[k, l]


@kernel
def count_touched(
    start: np.ndarray, end: np.ndarray, i: int, label: Indices, total: Floats, touched: Indices
) -> None:
    """Count the ends of object ``i`` by cluster and flag the clusters."""
    for at in range(start[i], start[i + 1]):
        l = label[end[at]]
        total[l] += 1.0
        touched[l] = 1


@kernel
def add_touched(
    blocks: Blocks,
    away: Away,
    m_other: Floats,
    n_plus: Floats,
    unseen: Floats,
    touched: np.ndarray,
    label: int,
    out: Floats,
) -> None:
    """Add the log likelihood of an object to ``out``: sums of ``away``, put right where it is not.

    Its own cluster ``label`` has lost the object: there nothing of ``away`` holds.
    """
    n, N, a, b = blocks
    for k in range(out.size):
        if out[k] == -np.inf or k == label:
            continue
        out[k] += away.cluster[k]
        for l in touched:
            N_plus = m_other[l] - unseen[l] - n_plus[l]
            gain = log_beta_gain(a[k, l] + n[k, l], b[k, l] + N[k, l], n_plus[l], N_plus)
            out[k] += gain - away.block[k, l]
    for l in range(m_other.size):
        N_plus = m_other[l] - unseen[l] - n_plus[l]
        n_rest = a[label, l] + n[label, l] - n_plus[l]
        N_rest = b[label, l] + N[label, l] - N_plus
        out[label] += log_beta_gain(n_rest, N_rest, n_plus[l], N_plus)


@kernel
def sweep_stretch(
    here: Chain,
    there: Chain,
    blocks: Blocks,
    uniform: Floats,
    start: int,
    stop: int,
    growing: bool,
) -> tuple[int, float]:
    """Visit a stretch of the objects of one of two domains, until a growing one lacks room.

    The same draws as :func:`visit`, but only the blocks an object has cells in are scored anew.
    """
    domain, label, m_other = here.domain, here.label, there.domain.m
    place, K, L = domain.places[0], domain.m.size, m_other.size
    away = Away(np.empty((K, L)), np.empty(K))
    for k in range(K):
        renew(away, blocks, m_other, k)
    n_plus, unseen, flag = np.zeros(L), np.zeros(L), np.zeros(L, dtype=np.int32)
    log_weight, total, done = np.empty(K), 0.0, start
    while done < stop and (has_room(here) or not growing):
        i = domain.order[done]
        n_plus[:], unseen[:], flag[:] = 0.0, 0.0, 0
        count_touched(place.link_start, place.link, i, there.label, n_plus, flag)
        count_touched(place.unseen_start, place.unseen, i, there.label, unseen, flag)
        old = label[i]
        domain.m[old] -= 1.0
        crp_log_prior(domain.m, domain.alpha, log_weight)
        if domain.m[old] == 0.0:  # alone: its cluster is the new one
            log_weight[domain.m == 0.0] = -np.inf
            log_weight[old] = math.log(domain.alpha)
        touched = np.flatnonzero(flag)
        add_touched(blocks, away, m_other, n_plus, unseen, touched, old, log_weight)
        new, log_normaliser = draw(log_weight, uniform[done])
        domain.m[new] += 1.0
        if new != old:
            label[i] = new
            for l in range(L):
                N_plus = m_other[l] - unseen[l] - n_plus[l]
                blocks.n[old, l] -= n_plus[l]
                blocks.N[old, l] -= N_plus
                blocks.n[new, l] += n_plus[l]
                blocks.N[new, l] += N_plus
            renew(away, blocks, m_other, old)
            renew(away, blocks, m_other, new)
        total += log_normaliser
        done += 1
    return done, total
