"""Merge gains of relations of any arity, from the statistics of their blocks (RELATIONS 9)."""

import numpy as np

from coblock.kernels import Floats, Gain, Gains, Indices, Offsets, inlined, inner, kernel
from coblock.kernels.tensor_classes import Classes, list_tuples
from coblock.kernels.tensors import (
    Layout,
    State,
    block_start,
    block_total,
    corrected_half,
    decode,
    empty_table,
    find_slot,
    stored_blocks,
)


@inlined
def merged_exposure(layout: Layout, state: State, r: int, first: int, second: int) -> float:
    """Return the exposure that a merge adds to a block with itself; 0 without degree correction.

    That of a symmetric relation without cells of an object with itself is not the sum of its
    parts (DEGREES D3).
    """
    q, distinct = layout.first_place[r], layout.distinct[r]
    if layout.first_degree[q] < 0:
        return 0.0
    eta = state.prior[r, 2]
    m, other = state.size[q, first], state.size[q, second]
    parts = m * corrected_half(m, eta, distinct) + other * corrected_half(other, eta, distinct)
    both = m + other
    return both * corrected_half(both, eta, distinct) - parts - m * other


@inner
def merged_block(
    layout: Layout,
    state: State,
    gain: Gain,
    r: int,
    d: int,
    merged: Indices,
    second: int,
    first: int,
    stored: bool,
) -> float:
    """Return what a block with the first cluster gains if the second one is merged with it.

    It takes up the blocks that have the second cluster at some of its places instead. Statistics
    are those of the blocks, or those as if nothing were ``stored``.
    """
    begin, S = layout.first_place[r], layout.n_stats[r]
    arity, pair = layout.first_place[r + 1] - begin, layout.symmetric[r]
    index, weight, nothing = np.empty(arity, np.int32), np.ones(arity), np.zeros(S)
    member, total, result, used = np.empty(S), np.zeros(S), 0.0, 0
    prior, count = state.prior[r], 0
    for p in range(arity):
        count += layout.domain[begin + p] == d and merged[p] == first
    for subset in range(1 << count):
        bit = 0
        for p in range(arity):
            index[p] = merged[p]
            if layout.domain[begin + p] == d and merged[p] == first:
                index[p] = second if subset >> bit & 1 else first
                bit += 1
        if pair and merged[0] == merged[1] and index[0] > index[1]:
            continue  # the same block as the one with the two clusters exchanged
        cells = 0.0
        if layout.filled[r]:
            cells = block_total(layout, state, r, index, -1, weight, -1, -1)
        for t in range(S):
            member[t] = layout.zero[r, t] * cells
        if stored:
            if pair and index[0] > index[1]:
                index[0], index[1] = index[1], index[0]
            at = 0
            for p in range(arity):
                at += index[p] * state.stride[begin + p]
            start = block_start(layout, state, r, at)
            for t in range(S):
                member[t] += state.s[start + t]
        if member.any():
            used += 1
            result -= gain(nothing, member, prior)
            total += member
    more = merged_exposure(layout, state, r, first, second) if pair and count == 2 else 0.0
    total[S - 1] += more
    used += more != 0.0
    return result + gain(nothing, total, prior) if used > 1 else 0.0


@inner
def merged_value(
    layout: Layout,
    state: State,
    gain: Gain,
    classes: Classes,
    r: int,
    d: int,
    first: int,
    second: int,
    members: Indices,
) -> float:
    """Return what a relation gains if two clusters of domain ``d`` are merged.

    All blocks count as if nothing were stored; then those that hold cells of the ``members`` of
    the two clusters count as they are.
    """
    begin = layout.first_place[r]
    index, result = np.empty(layout.first_place[r + 1] - begin, np.int32), 0.0
    pair = layout.symmetric[r]
    if layout.filled[r]:
        wanted = np.array([first], np.int32)
        tuples = list_tuples(layout, state, classes, r, d, wanted, second)
        for t in range(tuples.times.size):
            table = (tuples.cluster[t], second, first, False)
            value = merged_block(layout, state, gain, r, d, *table)
            result += tuples.times[t] * value
    blocks = stored_blocks(layout, state, r, d, members)
    keys = empty_table(blocks.size)
    for block in blocks:
        decode(layout, state, r, block, index)
        at = 0
        for p in range(index.size):
            if layout.domain[begin + p] == d and index[p] == second:
                index[p] = first
        if pair and index[0] > index[1]:
            index[0], index[1] = index[1], index[0]
        for p in range(index.size):
            at += index[p] * state.stride[begin + p]
        slot = find_slot(keys, at)
        if keys[slot] < 0:
            keys[slot] = at
            result += merged_block(layout, state, gain, r, d, index, second, first, True)
            if layout.filled[r]:
                result -= merged_block(layout, state, gain, r, d, index, second, first, False)
    return result


@kernel
def add_merge_gains(
    layout: Layout,
    state: State,
    gains: Gains,
    classes: Classes,
    d: int,
    pairs: Indices,
    start: Offsets,
    member: Indices,
    out: Floats,
) -> None:
    """Add to the gains of pairs of clusters what all relations gain by merging each.

    ``start`` and ``member`` are the objects of each cluster.
    """
    for r in range(layout.filled.size):
        if layout.incidence[r, d] < 0:
            continue
        for t in range(out.size):
            first, second = pairs[t, 0], pairs[t, 1]
            one = member[start[first] : start[first + 1]]
            other = member[start[second] : start[second + 1]]
            members = np.concatenate((one, other))
            table = (classes, r, d, first, second, members)
            out[t] += merged_value(layout, state, gains[r], *table)
