"""The stored cells of one object, added up by block (RELATIONS 6)."""

from typing import NamedTuple

from coblock.kernels import Floats, Indices, Offsets, kernel
from coblock.kernels.tensors import Layout, State


class Scratch(NamedTuple):
    """Arrays that a sweep writes to: the cells of one object, by block."""

    group_slot: Indices  # (masks * blocks,) position of a group, or -1
    group_key: Offsets  # the entry of ``group_slot`` of a group
    group_rest: Offsets  # block number of the clusters at the other places
    group_shift: Offsets  # added to it for each cluster number of the object
    group_other: Indices  # the other cluster of a symmetric pair, or -1
    group_value: Floats  # (groups, statistics)
    block_slot: Indices  # (blocks,) position of a touched block while they are collected, or -1
    block: Indices  # blocks that the object touches in a cluster
    block_value: Floats  # (touched, statistics)
    own: Indices  # the same for the cluster that the object is in
    own_value: Floats
    own_before: Floats  # (touched, statistics) sums of these blocks with the object
    old_slice: Indices  # (blocks,) blocks of the cluster that an object leaves
    new_slice: Indices  # (blocks,) blocks of the cluster that it joins, without those
    weight: Floats  # (places,) exposures of the object


@kernel
def group_cells(layout: Layout, state: State, r: int, d: int, i: int, scratch: Scratch) -> int:
    """Add up the stored cells of an object by the clusters at the other places; count the groups.

    Cells in which the object fills different places are in different groups, except for the two
    ends of symmetric cells.
    """
    begin, S = layout.first_place[r], layout.n_stats[r]
    arity = layout.first_place[r + 1] - begin
    n_blocks = state.first[r + 1] - state.first[r]
    row, count = layout.incidence[r, d] + i, 0
    for at in range(layout.start[row], layout.start[row + 1]):
        c = layout.cell[at]
        place = layout.first_coordinate[r] + c * arity
        mask, rest, shift, other, last = 0, 0, 0, -1, 0
        for p in range(arity):
            q = begin + p
            o = layout.coordinate[place + p]
            if layout.domain[q] == d and o == i:
                mask |= 1 << p
                shift += state.stride[q]
            else:
                k = state.label[layout.first_object[layout.domain[q]] + o]
                if layout.symmetric[r] and p < 2 and layout.domain[q] == d:
                    other = k
                elif layout.symmetric[r] and p == 1:  # a pair of another domain, in order
                    rest += min(last, k) * state.stride[q - 1] + max(last, k) * state.stride[q]
                elif not (layout.symmetric[r] and p == 0):
                    rest += k * state.stride[q]
                last = k
        key = rest
        if other >= 0:
            mask = 1
            key += other * state.stride[begin + 1]
        key += mask * n_blocks
        slot = scratch.group_slot[key]
        if slot < 0:
            slot = count
            count += 1
            scratch.group_slot[key], scratch.group_key[slot] = slot, key
            scratch.group_rest[slot], scratch.group_shift[slot] = rest, shift
            scratch.group_other[slot] = other
            scratch.group_value[slot, :S] = 0.0
        for t in range(S):
            scratch.group_value[slot, t] += layout.value[layout.first_value[r] + c * S + t]
    return count


@kernel
def touch_blocks(
    layout: Layout,
    state: State,
    r: int,
    k: int,
    groups: int,
    scratch: Scratch,
    blocks: Indices,
    values: Floats,
) -> int:
    """Add up the groups of an object by the block they fall into if it is in cluster ``k``."""
    begin, S, count = layout.first_place[r], layout.n_stats[r], 0
    for g in range(groups):
        other = scratch.group_other[g]
        if other >= 0:
            low, high = min(k, other), max(k, other)
            block = (
                scratch.group_rest[g] + low * state.stride[begin] + high * state.stride[begin + 1]
            )
        else:
            block = scratch.group_rest[g] + k * scratch.group_shift[g]
        slot = scratch.block_slot[block]
        if slot < 0:
            slot = count
            count += 1
            scratch.block_slot[block], blocks[slot] = slot, block
            values[slot, :S] = 0.0
        for t in range(S):
            values[slot, t] += scratch.group_value[g, t]
    for slot in range(count):
        scratch.block_slot[blocks[slot]] = -1
    return count


@kernel
def open_object(
    layout: Layout, state: State, r: int, d: int, i: int, c: int, scratch: Scratch
) -> tuple[int, int]:
    """Collect the cells of an object of cluster ``c``; return the numbers of groups and blocks."""
    begin = layout.first_place[r]
    for q in range(begin, layout.first_place[r + 1]):
        at = layout.first_exposure[q]
        own = layout.domain[q] == d and at >= 0
        scratch.weight[q - begin] = layout.exposure[at + i] if own else 1.0
    groups = group_cells(layout, state, r, d, i, scratch)
    found = (scratch.own, scratch.own_value)
    return groups, touch_blocks(layout, state, r, c, groups, scratch, *found)


@kernel
def clear_groups(groups: int, scratch: Scratch) -> None:
    """Mark the groups of an object as unused."""
    for g in range(groups):
        scratch.group_slot[scratch.group_key[g]] = -1
