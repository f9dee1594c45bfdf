"""Sweeps over the labels of a domain: best labels or draws from their conditional (RELATIONS 6).

An object is scored for all clusters from the state without it. Blocks that none of its stored
cells touches gain what an object without cells gains (``tensor_zeros``). A sweep moves each
object at once and is exact, or it scores the objects of a batch from one state and moves them
afterwards; threads can share a batch.
"""

import math

import numpy as np

from coblock.kernels import Floats, Gain, Gains, Indices, Offsets, inlined, inner, kernel
from coblock.kernels.gibbs import draw
from coblock.kernels.tensor_cells import (
    ANY,
    Scratch,
    close_object,
    group_block,
    group_blocks,
    make_scratch,
    open_object,
    touch_blocks,
)
from coblock.kernels.tensor_classes import Classes, add_stored_gains, find_classes
from coblock.kernels.tensor_degrees import add_degree_gains, move_degrees
from coblock.kernels.tensor_zeros import (
    ZeroGains,
    add_stored_part,
    add_weighted_zeros,
    all_zeros,
    empty_parts,
    members_of,
    zeros_of_member,
)
from coblock.kernels.tensors import (
    Flags,
    Layout,
    State,
    add_to_block,
    block_start,
    block_total,
    find_row,
    find_slot,
    make_room,
    rest_total,
)

ZERO_ROWS = 512  # clusters whose gains of zeros a sweep keeps


@inner
def score_groups(
    layout: Layout,
    state: State,
    gain: Gain,
    r: int,
    d: int,
    c: int,
    groups: int,
    allowed: Flags,
    scratch: Scratch,
    score: Floats,
) -> None:
    """Add the gains of the groups of an object in the clusters where they share no block.

    The inner loop reads local arrays only: every field of a tuple that it read would be counted
    as a reference, which takes longer than the gain.
    """
    begin, S = layout.first_place[r], layout.n_stats[r]
    arity, K = layout.first_place[r + 1] - begin, state.n_clusters[d]
    rest, plus, index = np.empty(S), np.empty(S), np.empty(arity, np.int32)
    filled, zero, prior = layout.filled[r], layout.zero[r], state.prior[r]
    keys = state.key[state.first_row[r] : state.first_row[r + 1]]
    s, factor = state.s[state.first_stat[r] :], state.factor[r]
    own_key, own_slot, own_value = scratch.own_key, scratch.own_slot, scratch.own_value
    for g in range(groups):
        near, own = scratch.group_near[g], 0
        if near == ANY:
            continue
        for u in range(S):
            plus[u] = scratch.group_value[g, u]
        for p in range(arity):
            index[p] = scratch.group_index[g, p]
            if index[p] < 0:
                own = p
        weight, size = scratch.weight[own], state.size[begin + own]
        around = rest_total(layout, state, r, index, d, scratch.weight, c) if filled else 0.0
        first, shift, last, turn = group_blocks(layout, state, r, d, g, scratch)
        for k in range(K):
            if k == near or not allowed[k]:
                continue
            block = group_block(first, shift, last, turn, k)
            total = around * (size[k] + (weight if k != c else 0.0))
            at = find_row(keys, block, factor) * S
            for u in range(S):
                rest[u] = s[at + u] + zero[u] * total
            if k == c:
                for u in range(S):
                    rest[u] -= plus[u]
            elif near == c:
                take_own(block, own_key, own_slot, own_value, rest)
            score[k] += gain(rest, plus, prior)


@inlined
def take_own(
    block: int, own_key: Offsets, own_slot: Indices, own_value: Floats, rest: Floats
) -> None:
    """Take the cells that the object has in a block out of its statistics."""
    position = find_slot(own_key, block)
    if own_key[position] == block:
        slot = own_slot[position]
        for u in range(rest.size):
            rest[u] -= own_value[slot, u]


@inner
def score_cells(
    layout: Layout,
    state: State,
    gain: Gain,
    r: int,
    d: int,
    c: int,
    groups: int,
    n_own: int,
    allowed: Flags,
    scratch: Scratch,
    score: Floats,
) -> None:
    """Add to the scores of an object of cluster ``c`` what its stored cells change.

    Its cells are taken out of the sums of its own blocks: this changes the gains of zeros there.
    Then they are added to the blocks that they touch in each cluster.
    """
    begin, S = layout.first_place[r], layout.n_stats[r]
    arity, places = layout.first_place[r + 1] - begin, 0
    index, rest, weight = np.empty(arity, np.int32), np.empty(S), scratch.weight
    filled, zero, prior = layout.filled[r], layout.zero[r], state.prior[r]
    if filled:
        own = scratch.own[:n_own]
        table = (own, np.empty((0, 0)), weight, c, allowed, -1.0, score)
        add_stored_gains(layout, state, gain, r, d, *table)
        taken = scratch.own_value[:n_own]
        table = (own, taken, weight, c, allowed, 1.0, score)
        add_stored_gains(layout, state, gain, r, d, *table)
    score_groups(layout, state, gain, r, d, c, groups, allowed, scratch, score)
    for p in range(arity):
        places += layout.domain[begin + p] == d
    for k in range(state.n_clusters[d] if places > 1 else 0):
        if not allowed[k]:
            continue
        for t in range(touch_blocks(layout, state, r, d, k, groups, False, scratch)):
            block, g = scratch.block[t], scratch.block_group[t]
            start, total = block_start(layout, state, r, block), 0.0
            if filled:
                for p in range(arity):
                    index[p] = scratch.group_index[g, p] if scratch.group_index[g, p] >= 0 else k
                total = block_total(layout, state, r, index, d, weight, c, k)
            for u in range(S):
                rest[u] = state.s[start + u] + zero[u] * total
            take_own(block, scratch.own_key, scratch.own_slot, scratch.own_value, rest)
            score[k] += gain(rest, scratch.block_value[t, :S], prior)


@inner
def score_labels(
    layout: Layout,
    state: State,
    gains: Gains,
    d: int,
    i: int,
    allowed: Flags,
    open_clusters: bool,
    zeros: Floats,
    scratch: Scratch,
    score: Floats,
) -> None:
    """Write the log of the conditional probability of each cluster, up to a constant.

    ``zeros`` are the gains of a member of the object's cluster without cells. One empty cluster
    stands for all; an object alone in its cluster has that one.
    """
    c = state.label[layout.first_object[d] + i]
    new = c if state.m[d, c] == 1.0 else -1
    score[:] = -np.inf
    for k in range(state.n_clusters[d]):
        members = state.m[d, k] - (k == c)
        if not allowed[k]:
            continue
        if members > 0.0:
            score[k] = math.log(members) + zeros[k]
        elif k == new or (new < 0 and open_clusters):
            new = k
            score[k] = math.log(state.alpha[d]) + zeros[k]
    add_degree_gains(layout, state, d, i, allowed, score)
    for r in range(layout.filled.size):
        if layout.incidence[r, d] < 0:
            continue
        gain = gains[r]
        groups, n_own = open_object(layout, state, r, d, i, c, scratch)
        if layout.filled[r] and not layout.uniform[r]:
            add_weighted_zeros(layout, state, gain, r, d, c, allowed, scratch.weight, score)
        score_cells(layout, state, gain, r, d, c, groups, n_own, allowed, scratch, score)
        close_object(groups, n_own, scratch)


@inner
def choose(score: Floats, c: int, uniform: float) -> int:
    """Return the best cluster, the present one if it is as good; or a draw, if uniform >= 0."""
    if uniform >= 0.0:
        return draw(score, uniform)
    best = c
    for k in range(score.size):
        if score[k] > score[best]:
            best = k
    return best


@inner
def move_object(layout: Layout, state: State, d: int, i: int, k: int, scratch: Scratch) -> None:
    """Put an object into cluster ``k``: labels, sizes and sums."""
    c = state.label[layout.first_object[d] + i]
    make_room(layout, state, d, i)
    for r in range(layout.filled.size):
        if layout.incidence[r, d] < 0:
            continue
        begin = layout.first_place[r]
        groups, n_own = open_object(layout, state, r, d, i, c, scratch)
        for t in range(n_own):
            add_to_block(layout, state, r, scratch.own[t], scratch.own_value[t], 0, -1.0)
        for t in range(touch_blocks(layout, state, r, d, k, groups, True, scratch)):
            add_to_block(layout, state, r, scratch.block[t], scratch.block_value[t], 0, 1.0)
        for q in range(begin, layout.first_place[r + 1]):
            if layout.domain[q] == d:
                state.size[q, c] -= scratch.weight[q - begin]
                state.size[q, k] += scratch.weight[q - begin]
        close_object(groups, n_own, scratch)
    move_degrees(layout, state, d, i, c, k)
    state.m[d, c] -= 1.0
    state.m[d, k] += 1.0
    state.label[layout.first_object[d] + i] = k


@kernel
def update_labels(
    layout: Layout,
    state: State,
    gains: Gains,
    d: int,
    objects: Indices,
    uniform: Floats,
    allowed: Flags,
    open_clusters: bool,
) -> int:
    """Update the labels of objects one after another; return how many were visited.

    ``uniform`` holds a random number for each object, or -1 for the best label. The sweep ends
    early when no empty cluster is left.
    """
    capacity = state.m.shape[1]
    score, scratch = np.empty(capacity), make_scratch(layout, d, objects)
    rows = min(capacity, ZERO_ROWS)
    table, holds = np.empty((rows, capacity)), np.full(rows, -1)
    classes, zeros = all_zeros(layout, state, gains, d, allowed)
    for visited in range(objects.size):
        i = objects[visited]
        c = state.label[layout.first_object[d] + i]
        of_member = table[c % rows]
        if holds[c % rows] != c:
            zeros_of_member(layout, state, gains, classes, d, c, allowed, zeros, of_member)
            holds[c % rows] = c
        score_labels(layout, state, gains, d, i, allowed, open_clusters, of_member, scratch, score)
        k = choose(score, c, uniform[visited])
        if k == c:
            continue
        opened = state.m[d, k] == 0.0 and k == state.n_clusters[d] - 1
        members = members_of(layout, state, d, c, k)
        add_stored_part(layout, state, gains, d, members, -1, allowed, -1.0, zeros.stored)
        move_object(layout, state, d, i, k, scratch)
        add_stored_part(layout, state, gains, d, members, -1, allowed, 1.0, zeros.stored)
        holds[:] = -1
        if opened:
            if state.n_clusters[d] == allowed.size:
                return visited + 1
            state.n_clusters[d] += 1
            allowed[state.n_clusters[d] - 1] = True
        classes = find_classes(layout, state)
        zeros = empty_parts(layout, state, gains, classes, d, allowed, True, zeros.stored)
    return objects.size


@kernel
def score_batch(
    layout: Layout,
    state: State,
    gains: Gains,
    d: int,
    objects: Indices,
    uniform: Floats,
    allowed: Flags,
    open_clusters: bool,
    base: Floats,
    own: Floats,
    out: Indices,
) -> None:
    """Write new labels of objects given the state, which stays as it is.

    ``base`` are the gains of an object without cells that joins each cluster, ``own`` those of a
    member that leaves the cluster and comes back. The blocks that a cluster has with the
    object's own cluster are taken with the object in it.
    """
    scratch, score, zeros = make_scratch(layout, d, objects), np.empty(base.size), base.copy()
    for t in range(objects.size):
        c = state.label[layout.first_object[d] + objects[t]]
        zeros[c] = own[c]
        table = (allowed, open_clusters, zeros, scratch, score)
        score_labels(layout, state, gains, d, objects[t], *table)
        zeros[c] = base[c]
        out[t] = choose(score, c, uniform[t])


@kernel
def apply_moves(
    layout: Layout, state: State, d: int, objects: Indices, labels: Indices, room: int
) -> None:
    """Move the objects of a batch; a cluster that was empty before takes one of them.

    ``room`` is the largest number of clusters; the last one is opened, and no further ones.
    """
    scratch, first = make_scratch(layout, d, objects), layout.first_object[d]
    empty, opened = state.m[d] == 0.0, np.zeros(state.m.shape[1], np.bool_)
    for t in range(objects.size):
        k = labels[t]
        if k == state.label[first + objects[t]] or opened[k]:
            continue
        opened[k] = empty[k]
        move_object(layout, state, d, objects[t], k, scratch)
        if k == state.n_clusters[d] - 1 and k < room - 1:
            state.n_clusters[d] += 1


@kernel
def score_domain(
    layout: Layout,
    state: State,
    gains: Gains,
    d: int,
    objects: Indices,
    allowed: Flags,
    classes: Classes,
    zeros: ZeroGains,
    out: Floats,
) -> None:
    """Write the scores of objects of a domain; no label changes (RELATIONS 6).

    Objects of a cluster should follow each other.
    """
    capacity, last = state.m.shape[1], -1
    table, score = np.empty(capacity), np.empty(capacity)
    scratch = make_scratch(layout, d, objects)
    for t in range(objects.size):
        i = objects[t]
        c = state.label[layout.first_object[d] + i]
        if c != last:
            zeros_of_member(layout, state, gains, classes, d, c, allowed, zeros, table)
            last = c
        score_labels(layout, state, gains, d, i, allowed, False, table, scratch, score)
        out[t] = score[: out.shape[1]]
