"""Relations of any arity: blocks, their totals, and the gain of an object without cells.

A relation with places ``p = 0..A-1`` has one block for each tuple of clusters, numbered by
strides. The statistics of a block are the sum over its stored cells, which is kept, plus those of
an observed zero times the number of its cells, which follows from the sizes of the clusters
(RELATIONS 3, 6).
A *slice* is the set of blocks that have a given cluster at a place of a given domain.
A block is *stored* if it holds a stored cell; the cells of the members of a cluster give the
stored blocks of its slice. Only the sums of stored blocks are kept, in a hash table (RELATIONS 17).
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from coblock.kernels import Floats, Indices, Offsets, inlined, inner, kernel

Flags = NDArray[np.bool_]
SCATTER = -7046029254386353131  # factor of the hash of tables with fewer rows than keys


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
    """Labels and the sums over the stored cells of blocks; sweeps change it in place.

    The sums of a relation have rows: those of a hash table, then one that is 0 and stands for all
    blocks that are not stored. Blocks that have lost their last cell stay until all are counted
    anew.
    """

    label: Indices  # of all objects, one domain after another
    n_clusters: Indices  # (domains,) clusters in use and one that is empty
    m: Floats  # (domains, capacity) sizes of the clusters
    size: Floats  # (places, capacity) the same, weighted by exposure
    stride: Offsets  # (places,)
    n_blocks: Offsets  # (relations,) blocks of a relation, stored or not
    first_row: Offsets  # (relations + 1,) first row of a relation
    factor: Offsets  # (relations,) of the hash; 1 if there are as many rows as blocks
    n_rows: Offsets  # (relations,) rows of the table in use
    key: Offsets  # (rows,) block of a row, or -1
    first_stat: Offsets  # (relations,) first statistic of a relation
    s: Floats  # sums over the stored cells of the blocks, (statistics,) for each row
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
def hash_key(key: int, factor: int) -> int:
    """Return a number whose lowest bits depend on all bits of a key; the key, if factor is 1."""
    return key if factor == 1 else (key * factor) >> 31


@inlined
def find_slot(keys: Offsets, key: int, factor: int = SCATTER) -> int:
    """Return the position of a key in a hash table, or the free position where it belongs."""
    last = keys.size - 1
    at = hash_key(key, factor) & last
    while keys[at] != key and keys[at] >= 0:
        at = (at + 1) & last
    return at


@kernel
def table_size(entries: int) -> int:
    """Return the size of a hash table that is at most half full with so many entries."""
    size = 16
    while size < 2 * entries:
        size *= 2
    return size


@inner
def empty_table(entries: int) -> Offsets:
    """Return a hash table without keys that has room for so many."""
    return np.full(table_size(entries), -1, np.int64)


@inlined
def find_row(keys: Offsets, block: int, factor: int) -> int:
    """Return the row of a block in a table of sums; the last one if it is not stored."""
    last = keys.size - 2
    at = hash_key(block, factor) & last
    while keys[at] != block and keys[at] >= 0:
        at = (at + 1) & last
    return at if keys[at] == block else last + 1


@inlined
def block_start(layout: Layout, state: State, r: int, block: int) -> int:
    """Return where the sums of a block begin; those of a block that is not stored are 0."""
    keys = state.key[state.first_row[r] : state.first_row[r + 1]]
    row = find_row(keys, block, state.factor[r])
    return state.first_stat[r] + row * layout.n_stats[r]


@inlined
def add_to_block(
    layout: Layout, state: State, r: int, block: int, value: Floats, start: int, sign: float
) -> None:
    """Add statistics, which begin at ``start``, to the sums of a block."""
    S, first = layout.n_stats[r], state.first_row[r]
    row = find_slot(state.key[first : state.first_row[r + 1] - 1], block, state.factor[r])
    if state.key[first + row] < 0:
        state.key[first + row] = block
        state.n_rows[r] += 1
    to = state.first_stat[r] + row * S
    for t in range(S):
        state.s[to + t] += sign * value[start + t]


@inner
def make_room(layout: Layout, state: State, d: int, i: int) -> None:
    """Count all blocks anew if a table might be more than half full after a move of an object.

    A table has room for twice the stored cells of its relation, or for all blocks.
    """
    full = False
    for r in range(layout.filled.size):
        row = layout.incidence[r, d]
        if row >= 0 and state.factor[r] != 1:
            needed = state.n_rows[r] + layout.start[row + i + 1] - layout.start[row + i]
            size = state.first_row[r + 1] - state.first_row[r] - 1
            full |= 2 * needed > size
    if full:
        add_up_cells(layout, state)


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


@inner
def stored_blocks(layout: Layout, state: State, r: int, d: int, objects: Indices) -> Offsets:
    """Return the blocks of relation ``r`` that hold stored cells of objects of domain ``d``."""
    begin, row = layout.first_coordinate[r], layout.incidence[r, d]
    arity, most = layout.first_place[r + 1] - layout.first_place[r], 0
    for i in objects:
        most += layout.start[row + i + 1] - layout.start[row + i]
    most = min(most, state.n_blocks[r])
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
def count_stored_blocks(layout: Layout, state: State, r: int) -> int:
    """Return how many blocks of a relation hold stored cells."""
    d = layout.domain[layout.first_place[r]]
    everyone = np.arange(layout.first_object[d + 1] - layout.first_object[d]).astype(np.int32)
    return stored_blocks(layout, state, r, d, everyone).size


@kernel
def add_up_cells(layout: Layout, state: State) -> None:
    """Count sizes and stored cells of all blocks from the labels."""
    state.m[:] = 0.0
    state.size[:] = 0.0
    state.degree[:] = 0.0
    state.s[:] = 0.0
    state.key[:] = -1
    state.n_rows[:] = 0
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
            source = layout.first_value[r] + c * S
            add_to_block(layout, state, r, block, layout.value, source, 1.0)


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
def block_statistics(layout: Layout, state: State, r: int, blocks: Offsets, out: Floats) -> None:
    """Write the statistics of blocks of a relation, observed zeros included (RELATIONS 3)."""
    arity = layout.first_place[r + 1] - layout.first_place[r]
    index, weight = np.zeros(arity, np.int32), np.ones(arity)
    for t in range(blocks.shape[0]):
        start, total = block_start(layout, state, r, blocks[t]), 0.0
        decode(layout, state, r, blocks[t], index)
        if layout.filled[r] and not (layout.symmetric[r] and index[0] > index[1]):
            total = block_total(layout, state, r, index, -1, weight, -1, -1)
        for u in range(layout.n_stats[r]):
            out[t, u] = state.s[start + u] + layout.zero[r, u] * total


@inlined
def corrected_half(m: float, eta: float, distinct: bool) -> float:
    """Return the exposure of a cluster with itself in a symmetric relation, over m (DEGREES D3)."""
    return 0.5 * m * (eta * (m - 1.0) / (m * eta + 1.0)) if distinct else 0.5 * m
