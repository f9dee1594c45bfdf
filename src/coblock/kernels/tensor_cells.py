"""The stored cells of one object, added up by block (RELATIONS 6)."""

from typing import NamedTuple

import numpy as np

from coblock.kernels import Floats, Indices, Offsets, inlined, inner
from coblock.kernels.tensors import Layout, State, empty_table, find_slot

APART = -1  # a group that shares its blocks with no other one
ANY = -2  # a group that may share its block with others whatever the cluster of the object


class Scratch(NamedTuple):
    """Arrays for the cells of one object, which are added up by group and by block.

    A group is the set of cells of an object that are in one block whatever its cluster.
    """

    group_key: Offsets  # hash table of the groups
    group_slot: Indices  # the group at each position of the table
    group_at: Offsets  # (groups,) position of a group in the table
    group_rest: Offsets  # block number of the clusters at the other places
    group_shift: Offsets  # added to it for each cluster number of the object
    group_index: Indices  # (groups, places) clusters at the other places, -1 at the object's own
    group_near: Indices  # cluster in which the group may share its block, or APART, or ANY
    group_value: Floats  # (groups, statistics)
    block_key: Offsets  # hash table of blocks that groups share
    block_slot: Indices
    block: Offsets  # blocks that the object touches in a cluster
    block_group: Indices  # a group of each
    block_value: Floats  # (touched, statistics)
    own_key: Offsets  # hash table of the blocks that the object touches in its own cluster
    own_slot: Indices
    own: Offsets  # these blocks
    own_value: Floats
    weight: Floats  # (places,) exposures of the object


@inner
def make_scratch(layout: Layout, d: int, objects: Indices) -> Scratch:
    """Return arrays that have room for the cells of each of these objects of domain ``d``."""
    most, arity, S = 1, 1, layout.zero.shape[1]
    for r in range(layout.filled.size):
        arity = max(arity, layout.first_place[r + 1] - layout.first_place[r])
        if layout.incidence[r, d] >= 0:
            for i in objects:
                row = layout.incidence[r, d] + i
                most = max(most, layout.start[row + 1] - layout.start[row])
    keys = empty_table(most)
    return Scratch(
        group_key=keys,
        group_slot=np.empty(keys.size, np.int32),
        group_at=np.empty(most, np.int64),
        group_rest=np.empty(most, np.int64),
        group_shift=np.empty(most, np.int64),
        group_index=np.empty((most, arity), np.int32),
        group_near=np.empty(most, np.int32),
        group_value=np.empty((most, S)),
        block_key=keys.copy(),
        block_slot=np.empty(keys.size, np.int32),
        block=np.empty(most, np.int64),
        block_group=np.empty(most, np.int32),
        block_value=np.empty((most, S)),
        own_key=keys.copy(),
        own_slot=np.empty(keys.size, np.int32),
        own=np.empty(most, np.int64),
        own_value=np.empty((most, S)),
        weight=np.ones(arity),
    )


@inlined
def may_share(near: int, k: int) -> bool:
    """Return whether a group with this ``group_near`` may share its block in cluster ``k``."""
    return (near == ANY) | (near == k)


@inner
def group_cells(  # noqa: PLR0912 - one loop
    layout: Layout, state: State, r: int, d: int, i: int, scratch: Scratch
) -> int:
    """Add up the stored cells of an object by the clusters at the other places; count the groups.

    Cells in which the object fills different places are in different groups, except for the two
    ends of symmetric cells.
    """
    begin, S = layout.first_place[r], layout.n_stats[r]
    arity = layout.first_place[r + 1] - begin
    n_blocks = state.n_blocks[r]
    row, count, pair = layout.incidence[r, d] + i, 0, layout.symmetric[r]
    index, stride = np.empty(arity, np.int32), state.stride[begin : begin + arity]
    domain, first = layout.domain[begin : begin + arity], layout.first_object
    coordinate, label = layout.coordinate[layout.first_coordinate[r] :], state.label
    value, cells, keys = layout.value[layout.first_value[r] :], layout.cell, scratch.group_key
    for at in range(layout.start[row], layout.start[row + 1]):
        c = cells[at]
        mask, places, others, near = 0, 0, 0, APART
        for p in range(arity):
            own, o = domain[p] == d, coordinate[c * arity + p]
            index[p] = -1
            if own and o == i:
                mask |= 1 << p
                places += 1
            else:
                index[p] = label[first[domain[p]] + o]
                if own:
                    others += 1
                    near = index[p]
        if pair and domain[0] == d and mask & 3 == 2:  # the ends are interchangeable
            index[0], index[1] = -1, index[0]
            mask ^= 3
        elif pair and index[0] > index[1]:
            index[0], index[1] = index[1], index[0]
        if places > 1 or others > 1:
            near = ANY
        rest, shift = 0, 0
        for p in range(arity):
            if index[p] < 0:
                shift += stride[p]
            else:
                rest += index[p] * stride[p]
        key = rest + mask * n_blocks
        position = find_slot(keys, key)
        if keys[position] < 0:
            keys[position], scratch.group_slot[position] = key, count
            scratch.group_at[count], scratch.group_near[count] = position, near
            scratch.group_rest[count], scratch.group_shift[count] = rest, shift
            scratch.group_index[count, :arity] = index
            scratch.group_value[count, :S] = 0.0
            count += 1
        slot = scratch.group_slot[position]
        for t in range(S):
            scratch.group_value[slot, t] += value[c * S + t]
    return count


@inlined
def group_blocks(
    layout: Layout, state: State, r: int, d: int, g: int, scratch: Scratch
) -> tuple[int, int, int, int]:
    """Return four numbers from which :func:`group_block` has the block of a group."""
    begin, last, turn = layout.first_place[r], state.m.shape[1], 0
    pair = layout.symmetric[r] and layout.domain[begin] == d
    if pair and scratch.group_index[g, 0] < 0 <= scratch.group_index[g, 1]:
        last = scratch.group_index[g, 1]
        turn = state.stride[begin] - state.stride[begin + 1]
    return scratch.group_rest[g], scratch.group_shift[g], last, turn


@inlined
def group_block(rest: int, shift: int, last: int, turn: int, k: int) -> int:
    """Return the block of a group if the object is in cluster ``k``.

    Beyond the cluster ``last`` the two ends of a symmetric pair change their places.
    """
    block = rest + k * shift
    return block - (k - last) * turn if k > last else block


@inner
def touch_blocks(
    layout: Layout, state: State, r: int, d: int, k: int, groups: int, every: bool, scratch: Scratch
) -> int:
    """Add up the groups of an object by the block they fall into if it is in cluster ``k``.

    These are all groups, or those that may share their block in cluster ``k``.
    """
    S, count = layout.n_stats[r], 0
    shared, group_near = False, scratch.group_near
    for g in range(groups):
        near, slot = group_near[g], count
        if not (every or may_share(near, k)):
            continue
        rest, shift, last, turn = group_blocks(layout, state, r, d, g, scratch)
        block = group_block(rest, shift, last, turn, k)
        if may_share(near, k):
            shared = True
            position = find_slot(scratch.block_key, block)
            if scratch.block_key[position] < 0:
                scratch.block_key[position], scratch.block_slot[position] = block, count
            slot = scratch.block_slot[position]
        if slot == count:
            scratch.block[count], scratch.block_group[count] = block, g
            scratch.block_value[count, :S] = 0.0
            count += 1
        for t in range(S):
            scratch.block_value[slot, t] += scratch.group_value[g, t]
    if shared:
        for t in range(count):
            clear_key(scratch.block_key, scratch.block[t])
    return count


@inner
def clear_key(keys: Offsets, key: int) -> None:
    """Take a key out of a hash table all of whose keys are taken out together."""
    last = keys.size - 1
    at = find_slot(keys, key)
    while keys[at] >= 0:  # and those that stand behind it: they are taken out, too
        keys[at] = -1
        at = (at + 1) & last


@inner
def open_object(
    layout: Layout, state: State, r: int, d: int, i: int, c: int, scratch: Scratch
) -> tuple[int, int]:
    """Collect the cells of an object of cluster ``c``; return the numbers of groups and blocks."""
    begin, S = layout.first_place[r], layout.n_stats[r]
    for q in range(begin, layout.first_place[r + 1]):
        at = layout.first_exposure[q]
        own = layout.domain[q] == d and at >= 0
        scratch.weight[q - begin] = layout.exposure[at + i] if own else 1.0
    groups = group_cells(layout, state, r, d, i, scratch)
    count = touch_blocks(layout, state, r, d, c, groups, True, scratch)
    for t in range(count):
        scratch.own[t], scratch.own_value[t, :S] = scratch.block[t], scratch.block_value[t, :S]
        position = find_slot(scratch.own_key, scratch.own[t])
        scratch.own_key[position], scratch.own_slot[position] = scratch.own[t], t
    return groups, count


@inner
def close_object(groups: int, n_own: int, scratch: Scratch) -> None:
    """Take the groups and the own blocks of an object out of the hash tables."""
    for g in range(groups):
        scratch.group_key[scratch.group_at[g]] = -1
    for t in range(n_own):
        clear_key(scratch.own_key, scratch.own[t])
