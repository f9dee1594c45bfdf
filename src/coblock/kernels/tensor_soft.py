"""Soft memberships of several relations: expected statistics of blocks (RELATIONS 8).

The expected statistics of a block are sums over cells of products of memberships, one factor for
each distinct object of a cell. Those of one object are kept by *mask*, the set of places that the
object fills: the group of a mask holds sums by the clusters at the other places. The places of a
domain in a relation are numbered by bits, so that a mask, or any subset of them, is a number.

Cells that are not stored are counted by ``total``: for each subset of the places of a domain, the
expected number of tuples of objects of the domain in these clusters. An object is added to it, and
taken out of it, by its masks; this is the sum over partitions of RELATIONS 8.
"""

from typing import NamedTuple

import numpy as np

from coblock.kernels import Floats, Offsets, inlined, inner, kernel
from coblock.kernels.tensors import Layout


class Soft(NamedTuple):
    """Memberships and the expected statistics of all blocks; sweeps change it in place."""

    q: Floats  # memberships of all objects, one after another
    first_q: Offsets  # (domains + 1,)
    n_clusters: Offsets  # (domains,)
    m: Floats  # (domains, most clusters) expected sizes
    alpha: Floats  # (domains,)
    prior: Floats  # (relations, most hyperparameters)
    stride: Offsets  # (places,)
    first: Offsets  # (relations + 1,) first block of a relation
    first_stat: Offsets  # (relations + 1,) first statistic of a relation
    s: Floats  # expected statistics of all blocks, observed zeros included
    n_bits: Offsets  # (relations, domains) places of a domain
    bit_place: Offsets  # (relations, domains, bits) these places
    total: Floats  # expected numbers of tuples, by subset of the places of a domain
    first_total: Offsets  # (relations, domains, subsets)
    total_stride: Offsets  # (relations, domains, subsets, places); 0 at places not in the subset
    group: Floats  # sums of the cells of one object, by mask
    first_group: Offsets  # (relations, domains, masks)
    group_stride: Offsets  # (relations, domains, masks, places); 0 at places in the mask


@inlined
def position(stride: Offsets, index: Offsets) -> int:
    """Return the position of clusters in a table with these strides."""
    at = 0
    for p in range(index.size):
        at += index[p] * stride[p]
    return at


@inlined
def is_pair(layout: Layout, r: int, d: int) -> bool:
    """Return whether domain ``d`` fills the two interchangeable places of a relation."""
    return layout.symmetric[r] and layout.domain[layout.first_place[r]] == d


@inlined
def is_single(mask: int) -> bool:
    """Return whether a mask is one place."""
    return mask & (mask - 1) == 0


@inner
def exposure_of(layout: Layout, soft: Soft, r: int, d: int, i: int, mask: int) -> float:
    """Return the product of the exposures of an object at the places of a mask."""
    weight = 1.0
    for b in range(soft.n_bits[r, d]):
        at = layout.first_exposure[layout.first_place[r] + soft.bit_place[r, d, b]]
        if mask >> b & 1 and at >= 0:
            weight *= layout.exposure[at + i]
    return weight


@inner
def next_index(
    layout: Layout, soft: Soft, r: int, d: int, fixed: int, others: bool, index: Offsets
) -> bool:
    """Advance the clusters of a relation; return False after the last ones.

    The places of domain ``d`` in the mask ``fixed`` stay at 0, as do, without ``others``, the
    places of other domains.
    """
    begin, bit = layout.first_place[r], soft.n_bits[r, d] if d >= 0 else 0
    for p in range(index.size - 1, -1, -1):
        e = layout.domain[begin + p]
        if e == d:
            bit -= 1
            if fixed >> bit & 1:
                continue
        elif not others:
            continue
        index[p] += 1
        if index[p] < soft.n_clusters[e]:
            return True
        index[p] = 0
    return False


@inner
def tuple_count(layout: Layout, soft: Soft, r: int, d: int, subset: int, index: Offsets) -> float:
    """Return the expected number of tuples of objects of a domain in these clusters."""
    if subset == 0:
        return 1.0
    at = position(soft.total_stride[r, d, subset], index)
    count = soft.total[soft.first_total[r, d, subset] + at]
    if subset == 3 and is_pair(layout, r, d):
        if index[0] > index[1]:
            return 0.0
        if index[0] == index[1]:
            count *= 0.5
            if not layout.distinct[r]:
                count += soft.total[soft.first_total[r, d, 1] + index[0]]
    return count


@inner
def cell_count(layout: Layout, soft: Soft, r: int, d: int, mask: int, index: Offsets) -> float:
    """Return the expected number of cells of a block, stored or not (RELATIONS 7, 8).

    With a domain ``d``, of the cells in which one of its objects fills the places of the mask.
    """
    count = 1.0
    for e in range(layout.incidence.shape[1]):
        if layout.incidence[r, e] >= 0:
            subset = (1 << soft.n_bits[r, e]) - 1
            if e == d:
                subset &= ~mask
            count *= tuple_count(layout, soft, r, e, subset, index)
    return count


@inner
def change_totals(layout: Layout, soft: Soft, r: int, d: int, i: int, sign: float) -> None:
    """Add an object to the numbers of tuples, or take it out (``sign`` -1).

    Tuples with the object at the places of a mask are those of the others at the other places.
    Larger subsets come first where it is added, last where it is taken out.
    """
    n, K, q = soft.n_bits[r, d], soft.n_clusters[d], soft.first_q[d] + i * soft.n_clusters[d]
    once = layout.distinct[r] or is_pair(layout, r, d)
    index = np.zeros(layout.first_place[r + 1] - layout.first_place[r], np.int64)
    every = (1 << n) - 1
    for step in range(every):
        subset = every - step if sign > 0.0 else step + 1
        for mask in range(1, subset + 1):
            if mask & ~subset or (once and not is_single(mask)):
                continue
            weight, rest = sign * exposure_of(layout, soft, r, d, i, mask), subset & ~mask
            stride, own = soft.total_stride[r, d, subset], 0
            for b in range(n):
                if mask >> b & 1:
                    own += stride[soft.bit_place[r, d, b]]
            index[:] = 0
            while True:
                others = weight
                if rest:
                    at = position(soft.total_stride[r, d, rest], index)
                    others *= soft.total[soft.first_total[r, d, rest] + at]
                at = soft.first_total[r, d, subset] + position(stride, index)
                for k in range(K):
                    soft.total[at + k * own] += others * soft.q[q + k]
                if not next_index(layout, soft, r, d, every & ~rest, False, index):
                    break


@inner
def add_cell(
    layout: Layout,
    soft: Soft,
    r: int,
    c: int,
    d: int,
    i: int,
    stride: Offsets,
    out: Floats,
) -> None:
    """Add a stored cell to a table of blocks, weighted by the memberships of its objects.

    Object ``i`` of domain ``d`` is left out: its cluster is given. Every other object has one
    factor, however many places it fills (RELATIONS 8).
    """
    begin, S = layout.first_place[r], layout.n_stats[r]
    arity = layout.first_place[r + 1] - begin
    cell, value = layout.first_coordinate[r] + c * arity, layout.first_value[r] + c * S
    row, K, shift = np.empty((3, arity), np.int64)
    n, pair = 0, layout.symmetric[r]
    for p in range(arity):
        e, o = layout.domain[begin + p], layout.coordinate[cell + p]
        if e == d and o == i:
            pair = pair and p > 1
            continue
        at = soft.first_q[e] + o * soft.n_clusters[e]
        known = n
        for t in range(n):
            if row[t] == at:
                known = t
                pair = pair and p > 1
        if known == n:
            row[n], K[n], shift[n] = at, soft.n_clusters[e], 0
            n += 1
        shift[known] += stride[p]
    pair = pair and n > 1
    k, block = np.full(n + 1, -1), np.zeros(n + 1, np.int64)
    weight, level = np.ones(n + 1), 0
    while level >= 0:
        if level == n:
            for t in range(S):
                out[block[n] * S + t] += weight[n] * layout.value[value + t]
            level -= 1
            continue
        k[level] += 1
        if k[level] == K[level]:
            k[level] = -1
            level -= 1
            continue
        share = soft.q[row[level] + k[level]]
        if share == 0.0:
            continue
        weight[level + 1] = weight[level] * share
        block[level + 1] = block[level] + k[level] * shift[level]
        if pair and level == 1:
            low, high = min(k[0], k[1]), max(k[0], k[1])
            block[2] = low * shift[0] + high * shift[1]
        level += 1


@kernel
def count_all(layout: Layout, soft: Soft) -> None:
    """Compute sizes, numbers of tuples and expected statistics from the memberships."""
    soft.m[:] = 0.0
    soft.total[:] = 0.0
    soft.s[:] = 0.0
    for d in range(soft.n_clusters.size):
        K = soft.n_clusters[d]
        for i in range((soft.first_q[d + 1] - soft.first_q[d]) // K):
            q = soft.first_q[d] + i * K
            soft.m[d, :K] += soft.q[q : q + K]
            for r in range(layout.filled.size):
                if layout.incidence[r, d] >= 0 and layout.filled[r]:
                    change_totals(layout, soft, r, d, i, 1.0)
    for r in range(layout.filled.size):
        begin, end, S = layout.first_place[r], layout.first_place[r + 1], layout.n_stats[r]
        s = soft.s[soft.first_stat[r] : soft.first_stat[r + 1]]
        cells = layout.first_coordinate[r + 1] - layout.first_coordinate[r]
        for c in range(cells // (end - begin)):
            add_cell(layout, soft, r, c, -1, -1, soft.stride[begin:end], s)
        if not layout.filled[r]:
            continue
        index, block = np.zeros(end - begin, np.int64), 0
        while True:
            count = cell_count(layout, soft, r, -1, 0, index)
            for t in range(S):
                s[block * S + t] += layout.zero[r, t] * count
            block += 1
            if not next_index(layout, soft, r, -1, 0, True, index):
                break
