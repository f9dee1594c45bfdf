"""Relations of any arity: blocks, their totals, and the gain of an object without cells.

A relation with places ``p = 0..A-1`` has one block for each tuple of clusters, numbered by
strides. The statistics of a block are the sum over its stored cells, which is kept, plus those of
an observed zero times the number of its cells, which follows from the sizes of the clusters
(RELATIONS 3, 6).
A *slice* is the set of blocks that have a given cluster at a place of a given domain.
A block is *stored* if it holds a stored cell; the cells of the members of a cluster give the
stored blocks of its slice.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from coblock.kernels import Floats, Indices, Offsets, inlined, kernel

Flags = NDArray[np.bool_]


class Layout(NamedTuple):
    """Relations as kernels read them; nothing here depends on labels."""

    first_place: Offsets  # (relations + 1,) into arrays with one entry for each place
    domain: Indices  # (places,) the domain that fills a place
    n_stats: Indices  # (relations,) statistics of a cell
    zero: Floats  # (relations, most statistics) of an observed zero; 0 if others are unseen
    filled: Flags  # (relations,) whether cells that are not stored are observed zeros
    symmetric: Flags  # (relations,) whether the first two places are interchangeable
    distinct: Flags  # (relations,) whether cells with an object twice are unseen
    uniform: Flags  # (relations,) whether all exposures are 1
    exposure: Floats  # of the objects at each place, one place after another
    first_exposure: Offsets  # (places,)
    coordinate: Indices  # objects of the stored cells, one relation after another
    first_coordinate: Offsets  # (relations + 1,)
    value: Floats  # statistics of the stored cells, less those of a zero
    first_value: Offsets  # (relations,)
    incidence: Offsets  # (relations, domains) into ``start``; -1 if the domain fills no place
    start: Offsets  # cells of each object of a relation and domain, compressed
    cell: Indices
    first_object: Offsets  # (domains + 1,) into ``State.label``
    degree: Floats  # of the objects at each place with degree correction (DEGREES D2)
    first_degree: Offsets  # (places,) into ``degree``; -1 without correction


class State(NamedTuple):
    """Labels and the sums over the stored cells of all blocks; sweeps change it in place."""

    label: Indices  # of all objects, one domain after another
    n_clusters: Indices  # (domains,) clusters in use and one that is empty
    m: Floats  # (domains, capacity) sizes of the clusters
    size: Floats  # (places, capacity) the same, weighted by exposure
    stride: Offsets  # (places,)
    first: Offsets  # (relations + 1,) first block of a relation
    first_stat: Offsets  # (relations,) first statistic of a relation
    s: Floats  # sums over the stored cells of all blocks
    prior: Floats  # (relations, most hyperparameters)
    alpha: Floats  # (domains,)
    degree: Floats  # (places, capacity) sums of the degrees of the clusters


@inlined
def decode(layout: Layout, state: State, r: int, block: int, index: Indices) -> None:
    """Write the clusters of a block."""
    begin, end = layout.first_place[r], layout.first_place[r + 1]
    rest = block
    for q in range(begin, end):
        index[q - begin] = rest // state.stride[q]
        rest %= state.stride[q]


@inlined
def block_total(
    layout: Layout,
    state: State,
    r: int,
    index: Indices,
    d: int,
    weight: Floats,
    less: int,
    more: int,
) -> float:
    """Return the number of cells of a block, stored or not (RELATIONS 6, 7).

    An object of domain ``d`` with exposures ``weight`` is taken out of cluster ``less`` and put
    into cluster ``more`` before; -1 stands for none.
    """
    begin, end = layout.first_place[r], layout.first_place[r + 1]
    total = 1.0
    for q in range(begin, end):
        p = q - begin
        x = state.size[q, index[p]]
        if layout.domain[q] == d:
            if index[p] == more:
                x += weight[p]
            if index[p] == less:
                x -= weight[p]
        if layout.symmetric[r] and p == 1 and index[0] == index[1]:
            if layout.first_degree[begin] >= 0:
                x = corrected_half(x, state.prior[r, 2], layout.distinct[r])
            else:
                x = 0.5 * (x - 1.0) if layout.distinct[r] else 0.5 * (x + 1.0)
        elif layout.distinct[r]:
            for e in range(p):
                if layout.domain[begin + e] == layout.domain[q] and index[e] == index[p]:
                    x -= 1.0
        total *= x
    return total


@inlined
def rest_total(
    layout: Layout, state: State, r: int, index: Indices, d: int, weight: Floats, less: int
) -> float:
    """Return the product of the factors of :func:`block_total` at all places but one.

    That place, of domain ``d``, has index -1: a cluster that the other places do not have.
    """
    begin, end = layout.first_place[r], layout.first_place[r + 1]
    total = 1.0
    for q in range(begin, end):
        p = q - begin
        if index[p] < 0:
            continue
        x = state.size[q, index[p]]
        if layout.domain[q] == d and index[p] == less:
            x -= weight[p]
        if layout.symmetric[r] and p == 1 and index[0] == index[1]:
            x = 0.5 * (x - 1.0) if layout.distinct[r] else 0.5 * (x + 1.0)
        elif layout.distinct[r]:
            for e in range(p):
                if layout.domain[begin + e] == layout.domain[q] and index[e] == index[p]:
                    x -= 1.0
        total *= x
    return total


@inlined
def find_slot(keys: Offsets, key: int) -> int:
    """Return the position of a key in a hash table, or the free position where it belongs."""
    last = keys.size - 1
    at = ((key * -7046029254386353131) >> 31) & last
    while keys[at] != key and keys[at] >= 0:
        at = (at + 1) & last
    return at


@kernel
def empty_table(entries: int) -> Offsets:
    """Return a hash table without keys that has room for so many."""
    size = 16
    while size < 2 * entries:
        size *= 2
    return np.full(size, -1, np.int64)


@kernel
def list_members(layout: Layout, state: State, d: int) -> tuple[Offsets, Indices]:
    """Return the objects of each cluster of domain ``d``, compressed by cluster."""
    begin, end = layout.first_object[d], layout.first_object[d + 1]
    start = np.zeros(state.m.shape[1] + 1, np.int64)
    for i in range(begin, end):
        start[state.label[i] + 1] += 1
    start = np.cumsum(start)
    free, member = start.copy(), np.empty(end - begin, np.int32)
    for i in range(begin, end):
        k = state.label[i]
        member[free[k]] = i - begin
        free[k] += 1
    return start, member


@kernel
def stored_blocks(layout: Layout, state: State, r: int, d: int, objects: Indices) -> Offsets:
    """Return the blocks of relation ``r`` that hold stored cells of objects of domain ``d``."""
    begin, row = layout.first_coordinate[r], layout.incidence[r, d]
    arity, most = layout.first_place[r + 1] - layout.first_place[r], 0
    for i in objects:
        most += layout.start[row + i + 1] - layout.start[row + i]
    most = min(most, state.first[r + 1] - state.first[r])
    keys, found, count = empty_table(most), np.empty(most, np.int64), 0
    for i in objects:
        for at in range(layout.start[row + i], layout.start[row + i + 1]):
            block = cell_block(layout, state, r, begin + layout.cell[at] * arity)
            slot = find_slot(keys, block)
            if keys[slot] < 0:
                keys[slot] = found[count] = block
                count += 1
    return found[:count]


@kernel
def add_up_cells(layout: Layout, state: State) -> None:
    """Count sizes and stored cells of all blocks from the labels."""
    state.m[:] = 0.0
    state.size[:] = 0.0
    state.degree[:] = 0.0
    state.s[:] = 0.0
    for d in range(layout.first_object.size - 1):
        for i in range(layout.first_object[d], layout.first_object[d + 1]):
            state.m[d, state.label[i]] += 1.0
    for q in range(layout.domain.size):
        d, at = layout.domain[q], layout.first_exposure[q]
        begin = layout.first_object[d]
        for i in range(layout.first_object[d + 1] - begin):
            weight = layout.exposure[at + i] if at >= 0 else 1.0
            state.size[q, state.label[begin + i]] += weight
            if layout.first_degree[q] >= 0:
                state.degree[q, state.label[begin + i]] += layout.degree[layout.first_degree[q] + i]
    for r in range(layout.filled.size):
        begin, S = layout.first_place[r], layout.n_stats[r]
        arity = layout.first_place[r + 1] - begin
        first, last = layout.first_coordinate[r], layout.first_coordinate[r + 1]
        for c in range((last - first) // arity):
            block = cell_block(layout, state, r, first + c * arity)
            to, source = state.first_stat[r] + block * S, layout.first_value[r] + c * S
            for t in range(S):
                state.s[to + t] += layout.value[source + t]


@inlined
def cell_block(layout: Layout, state: State, r: int, at: int) -> int:
    """Return the block of the cell whose objects are at this position of the coordinates."""
    begin, block, last = layout.first_place[r], 0, 0
    for q in range(begin, layout.first_place[r + 1]):
        o = layout.coordinate[at + q - begin]
        k = state.label[layout.first_object[layout.domain[q]] + o]
        if layout.symmetric[r] and q == begin + 1 and k < last:
            block += (k - last) * state.stride[begin]
            k = last
        block += k * state.stride[q]
        last = k
    return block


@kernel
def block_statistics(layout: Layout, state: State, r: int, out: Floats) -> None:
    """Write the statistics of each block of a relation, observed zeros included (RELATIONS 3)."""
    arity = layout.first_place[r + 1] - layout.first_place[r]
    index, weight = np.zeros(arity, np.int32), np.ones(arity)
    S, first = layout.n_stats[r], state.first_stat[r]
    for block in range(out.shape[0]):
        total = 0.0
        decode(layout, state, r, block, index)
        if layout.filled[r] and not (layout.symmetric[r] and index[0] > index[1]):
            total = block_total(layout, state, r, index, -1, weight, -1, -1)
        for t in range(S):
            out[block, t] = state.s[first + block * S + t] + layout.zero[r, t] * total


@inlined
def corrected_half(m: float, eta: float, distinct: bool) -> float:
    """Return the exposure of a cluster with itself in a symmetric relation, over m (DEGREES D3)."""
    return 0.5 * m * (eta * (m - 1.0) / (m * eta + 1.0)) if distinct else 0.5 * m
