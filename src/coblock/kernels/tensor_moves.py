"""Merge gains of relations of any arity, from the statistics of their blocks (RELATIONS 9)."""

import numpy as np

from coblock.kernels import Floats, Gain, Gains, Indices, inlined, kernel
from coblock.kernels.tensors import (
    Layout,
    State,
    block_total,
    corrected_half,
    decode,
    list_slice,
)


@inlined
def merged_exposure(layout: Layout, state: State, r: int, first: int, second: int) -> float:
    """Return the exposure that a merge adds to a degree-corrected block with itself (DEGREES D3).

    That of a symmetric relation without cells of an object with itself is not the sum of its
    parts.
    """
    q, eta, distinct = layout.first_place[r], state.prior[r, 2], layout.distinct[r]
    m, other = state.size[q, first], state.size[q, second]
    parts = m * corrected_half(m, eta, distinct) + other * corrected_half(other, eta, distinct)
    both = m + other
    return both * corrected_half(both, eta, distinct) - parts - m * other


@kernel
def merged_value(  # noqa: PLR0912 - one loop
    layout: Layout,
    state: State,
    gain: Gain,
    r: int,
    d: int,
    first: int,
    second: int,
    statistics: Floats,
    values: Floats,
    blocks: Indices,
) -> float:
    """Return what a relation gains if two clusters of domain ``d`` are merged.

    A block of the first cluster takes up the blocks that have the second one at some of its
    places instead. ``statistics`` and ``values`` are those of all blocks as they are, or empty
    where only few of them are needed.
    """
    begin, S = layout.first_place[r], layout.n_stats[r]
    arity = layout.first_place[r + 1] - begin
    index, weight, nothing = np.empty(arity, np.int32), np.ones(arity), np.zeros(S)
    member, total, places = np.empty(S), np.empty(S), np.empty(arity, np.int64)
    result = 0.0
    for block in blocks[: list_slice(layout, state, r, d, first, second, blocks)]:
        decode(layout, state, r, block, index)
        count = 0
        for p in range(arity):
            if layout.domain[begin + p] == d and index[p] == first:
                places[count] = p
                count += 1
        total[:] = 0.0
        apart, used = 0.0, 0
        for subset in range(1 << count):
            for bit in range(count):
                index[places[bit]] = second if subset >> bit & 1 else first
            if layout.symmetric[r] and index[0] > index[1]:
                if count == 2:  # its pair is the block with the two clusters exchanged
                    continue
                index[0], index[1] = index[1], index[0]
                for bit in range(count):
                    places[bit] = 1 - places[bit] if places[bit] < 2 else places[bit]
            at, cells = 0, 0.0
            for p in range(arity):
                at += index[p] * state.stride[begin + p]
            if values.size:
                member[:] = statistics[at]
            else:
                if layout.filled[r]:
                    cells = block_total(layout, state, r, index, -1, weight, -1, -1)
                for t in range(S):
                    member[t] = state.s[state.first_stat[r] + at * S + t]
                    member[t] += layout.zero[r, t] * cells
            if member.any():
                used += 1
                apart += values[at] if values.size else gain(nothing, member, state.prior[r])
                total += member
        if count == 2 and layout.symmetric[r] and layout.first_degree[begin] >= 0:
            total[1] += merged_exposure(layout, state, r, first, second)
            used += 1
        if used > 1:
            result += gain(nothing, total, state.prior[r]) - apart
    return result


@kernel
def add_merge_gains(
    layout: Layout,
    state: State,
    gains: Gains,
    r: int,
    d: int,
    pairs: Indices,
    statistics: Floats,
    values: Floats,
    blocks: Indices,
    out: Floats,
) -> None:
    """Add to the gains of pairs of clusters what relation ``r`` gains by merging each."""
    gain = gains[r]
    for t in range(out.size):
        first, second = pairs[t, 0], pairs[t, 1]
        tables = (statistics, values, blocks)
        out[t] += merged_value(layout, state, gain, r, d, first, second, *tables)
