"""Sweeps over the labels of a domain: best labels or draws from their conditional (RELATIONS 6).

An object is scored for all clusters from the state without it. Blocks that none of its stored
cells touches gain what an object without cells gains; this part is the same for all objects of a
cluster (RELATIONS 17). A sweep moves each object at once and is exact, or it scores the objects
of a batch from one state and moves them afterwards; threads can share a batch.
"""

import math
from typing import NamedTuple

import numpy as np

from coblock.kernels import Floats, Gain, Gains, Indices, Offsets, inlined, kernel
from coblock.kernels.gibbs import draw
from coblock.kernels.tensor_cells import (
    ANY,
    Scratch,
    close_object,
    group_block,
    make_scratch,
    open_object,
    touch_blocks,
)
from coblock.kernels.tensor_classes import (
    Classes,
    add_stored_gains,
    empty_gain,
    find_classes,
    list_tuples,
)
from coblock.kernels.tensor_degrees import add_degree_gains, move_degrees
from coblock.kernels.tensors import (
    Flags,
    Layout,
    State,
    block_total,
    find_slot,
    list_members,
    rest_total,
    stored_blocks,
)

NOT_TAKEN = np.empty((0, 0))  # for add_stored_gains: nothing is taken from the sums


class ZeroGains(NamedTuple):
    """Gains of an object without cells, by class of the cluster, and as the blocks change them."""

    empty: Floats  # (classes,) as if nothing were stored
    own: Floats  # (classes,) the same for a member that leaves the cluster and comes back
    cross: Floats  # (classes, classes) more, if it leaves a cluster of the second class before
    stored: Floats  # (capacity,) more, by what the blocks of a cluster hold


@kernel
def empty_parts(
    layout: Layout,
    state: State,
    gains: Gains,
    classes: Classes,
    d: int,
    allowed: Flags,
    exact: bool,
    zeros: ZeroGains,
) -> None:
    """Write the gains of an object without cells as if nothing were stored."""
    C = classes.number[d]
    zeros.empty[:C], zeros.own[:C], zeros.cross[:C, :C] = 0.0, 0.0, 0.0
    one, two = np.empty(1, np.int32), np.empty(2, np.int32)
    weight = np.ones(layout.domain.size)
    for a in range(C):
        members = classes.member[d, classes.start[d, a] : classes.start[d, a + 1]]
        if not allowed[members].any():
            continue
        one[0] = two[0] = k = members[0]
        for r in range(layout.filled.size):
            if layout.incidence[r, d] < 0 or not (layout.filled[r] and layout.uniform[r]):
                continue
            gain, places = gains[r], 0
            tuples = list_tuples(layout, state, classes, r, d, one, -1)
            zeros.empty[a] += empty_gain(layout, state, gain, r, d, tuples, weight, -1, k)
            if state.m[d, k] > 0.0:
                zeros.own[a] += empty_gain(layout, state, gain, r, d, tuples, weight, k, k)
            for q in range(layout.first_place[r], layout.first_place[r + 1]):
                places += layout.domain[q] == d
            if not exact or places == 1:
                continue
            for b in range(C):
                others = classes.member[d, classes.start[d, b] : classes.start[d, b + 1]]
                two[1] = others[0] if b != a else others[others.size - 1]
                if state.m[d, two[1]] > 0.0 and two[1] != k:
                    tuples = list_tuples(layout, state, classes, r, d, two, -1)
                    table = (r, d, tuples, weight)
                    zeros.cross[a, b] += empty_gain(layout, state, gain, *table, two[1], k)
                    zeros.cross[a, b] -= empty_gain(layout, state, gain, *table, -1, k)


@kernel
def add_stored_part(
    layout: Layout,
    state: State,
    gains: Gains,
    d: int,
    members: Indices,
    less: int,
    allowed: Flags,
    sign: float,
    stored: Floats,
) -> None:
    """Add what the blocks that hold cells of members of a cluster change for an object's gain.

    It leaves cluster ``less`` before; -1 stands for none.
    """
    for r in range(layout.filled.size):
        if layout.incidence[r, d] >= 0 and layout.filled[r] and layout.uniform[r]:
            weight = np.ones(layout.first_place[r + 1] - layout.first_place[r])
            blocks = stored_blocks(layout, state, r, d, members)
            table = (blocks, NOT_TAKEN, weight, less, allowed, sign, stored)
            add_stored_gains(layout, state, gains[r], r, d, *table)


@kernel
def stored_parts(
    layout: Layout,
    state: State,
    gains: Gains,
    d: int,
    clusters: Indices,
    start: Offsets,
    member: Indices,
    stored: Floats,
    own: Floats,
) -> None:
    """Write what the blocks of clusters change for an object: a new one, and a member."""
    single = np.zeros(state.m.shape[1], np.bool_)
    for k in clusters:
        members = member[start[k] : start[k + 1]]
        stored[k] = own[k] = 0.0
        single[k] = True
        add_stored_part(layout, state, gains, d, members, -1, single, 1.0, stored)
        add_stored_part(layout, state, gains, d, members, k, single, 1.0, own)
        single[k] = False


@kernel
def add_weighted_zeros(
    layout: Layout,
    state: State,
    gain: Gain,
    r: int,
    d: int,
    c: int,
    allowed: Flags,
    weight: Floats,
    score: Floats,
) -> None:
    """Add the gains of zeros of an object of cluster ``c`` that has exposures of its own."""
    start, member = list_members(layout, state, d)
    classes, single = find_classes(layout, state), np.zeros(allowed.size, np.bool_)
    for k in range(state.n_clusters[d]):
        if not allowed[k]:
            continue
        wanted = np.array([k], np.int32)
        tuples = list_tuples(layout, state, classes, r, d, wanted, -1 if k == c else c)
        score[k] += empty_gain(layout, state, gain, r, d, tuples, weight, c, k)
        if k != c:
            wanted = np.array([k, c], np.int32)
            tuples = list_tuples(layout, state, classes, r, d, wanted, -1)
            score[k] += empty_gain(layout, state, gain, r, d, tuples, weight, c, k)
        single[k] = True
        blocks = stored_blocks(layout, state, r, d, member[start[k] : start[k + 1]])
        table = (blocks, NOT_TAKEN, weight, c, single, 1.0, score)
        add_stored_gains(layout, state, gain, r, d, *table)
        single[k] = False


@kernel
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
    """Add the gains of the groups of an object in the clusters where they share no block."""
    begin, S = layout.first_place[r], layout.n_stats[r]
    arity = layout.first_place[r + 1] - begin
    rest, plus, first = np.empty(S), np.empty(S), state.first_stat[r]
    filled, zero, prior, s = layout.filled[r], layout.zero[r], state.prior[r], state.s
    index = np.empty(arity, np.int32)
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
        for k in range(state.n_clusters[d]):
            if k == near or not allowed[k]:
                continue
            block = group_block(layout, state, r, d, k, g, scratch)
            total, at = around * (size[k] + (weight if k != c else 0.0)), first + block * S
            for u in range(S):
                rest[u] = s[at + u] + zero[u] * total
            if k == c:
                for u in range(S):
                    rest[u] -= plus[u]
            elif near == c:
                take_own(block, S, scratch, rest)
            score[k] += gain(rest, plus, prior)


@inlined
def take_own(block: int, S: int, scratch: Scratch, rest: Floats) -> None:
    """Take the cells that the object has in a block out of its statistics."""
    position = find_slot(scratch.own_key, block)
    if scratch.own_key[position] == block:
        slot = scratch.own_slot[position]
        for u in range(S):
            rest[u] -= scratch.own_value[slot, u]


@kernel
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
        table = (own, NOT_TAKEN, weight, c, allowed, -1.0, score)
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
            start, total = state.first_stat[r] + block * S, 0.0
            if filled:
                for p in range(arity):
                    index[p] = scratch.group_index[g, p] if scratch.group_index[g, p] >= 0 else k
                total = block_total(layout, state, r, index, d, weight, c, k)
            for u in range(S):
                rest[u] = state.s[start + u] + zero[u] * total
            take_own(block, S, scratch, rest)
            score[k] += gain(rest, scratch.block_value[t, :S], prior)


@kernel
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


@kernel
def choose(score: Floats, c: int, uniform: float) -> int:
    """Return the best cluster, the present one if it is as good; or a draw, if uniform >= 0."""
    if uniform >= 0.0:
        return draw(score, uniform)
    best = c
    for k in range(score.size):
        if score[k] > score[best]:
            best = k
    return best


@kernel
def move_object(layout: Layout, state: State, d: int, i: int, k: int, scratch: Scratch) -> None:
    """Put an object into cluster ``k``: labels, sizes and sums."""
    c = state.label[layout.first_object[d] + i]
    for r in range(layout.filled.size):
        if layout.incidence[r, d] < 0:
            continue
        S, begin = layout.n_stats[r], layout.first_place[r]
        groups, n_own = open_object(layout, state, r, d, i, c, scratch)
        for t in range(n_own):
            start = state.first_stat[r] + scratch.own[t] * S
            state.s[start : start + S] -= scratch.own_value[t, :S]
        for t in range(touch_blocks(layout, state, r, d, k, groups, True, scratch)):
            start = state.first_stat[r] + scratch.block[t] * S
            state.s[start : start + S] += scratch.block_value[t, :S]
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
def members_of(layout: Layout, state: State, d: int, k: int, c: int) -> Indices:
    """Return the objects of two clusters of domain ``d``."""
    begin, end = layout.first_object[d], layout.first_object[d + 1]
    found, count = np.empty(end - begin, np.int32), 0
    for i in range(begin, end):
        if state.label[i] == k or state.label[i] == c:
            found[count] = i - begin
            count += 1
    return found[:count]


@kernel
def make_zeros(state: State) -> ZeroGains:
    """Return room for the gains of zeros."""
    size = state.m.shape[1]
    return ZeroGains(np.zeros(size), np.zeros(size), np.zeros((size, size)), np.zeros(size))


@kernel
def zeros_of_member(
    layout: Layout,
    state: State,
    gains: Gains,
    classes: Classes,
    d: int,
    c: int,
    allowed: Flags,
    zeros: ZeroGains,
    out: Floats,
) -> None:
    """Write the gains of zeros in each cluster for a member of ``c``, exactly."""
    b = classes.label[d, c]
    for k in range(state.n_clusters[d]):
        a = classes.label[d, k]
        out[k] = zeros.stored[k] + (zeros.own[a] if k == c else zeros.empty[a] + zeros.cross[a, b])
    members = members_of(layout, state, d, c, c)
    add_stored_part(layout, state, gains, d, members, -1, allowed, -1.0, out)
    add_stored_part(layout, state, gains, d, members, c, allowed, 1.0, out)


@kernel
def all_zeros(
    layout: Layout, state: State, gains: Gains, d: int, allowed: Flags
) -> tuple[Classes, ZeroGains]:
    """Return the classes of the clusters and the gains of zeros of all allowed clusters."""
    zeros, classes = make_zeros(state), find_classes(layout, state)
    empty_parts(layout, state, gains, classes, d, allowed, True, zeros)
    start, member = list_members(layout, state, d)
    single = np.zeros(state.m.shape[1], np.bool_)
    for k in range(state.n_clusters[d]):
        zeros.stored[k] = 0.0
        if allowed[k]:
            single[k] = True
            members = member[start[k] : start[k + 1]]
            add_stored_part(layout, state, gains, d, members, -1, single, 1.0, zeros.stored)
            single[k] = False
    return classes, zeros


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
    table, valid = np.empty((capacity, capacity)), np.zeros(capacity, np.bool_)
    classes, zeros = all_zeros(layout, state, gains, d, allowed)
    for visited in range(objects.size):
        i = objects[visited]
        c = state.label[layout.first_object[d] + i]
        if not valid[c]:
            zeros_of_member(layout, state, gains, classes, d, c, allowed, zeros, table[c])
            valid[c] = True
        score_labels(layout, state, gains, d, i, allowed, open_clusters, table[c], scratch, score)
        k = choose(score, c, uniform[visited])
        if k == c:
            continue
        opened = state.m[d, k] == 0.0 and k == state.n_clusters[d] - 1
        members = members_of(layout, state, d, c, k)
        add_stored_part(layout, state, gains, d, members, -1, allowed, -1.0, zeros.stored)
        move_object(layout, state, d, i, k, scratch)
        add_stored_part(layout, state, gains, d, members, -1, allowed, 1.0, zeros.stored)
        valid[:] = False
        if opened:
            if state.n_clusters[d] == allowed.size:
                return visited + 1
            state.n_clusters[d] += 1
            allowed[state.n_clusters[d] - 1] = True
        classes = find_classes(layout, state)
        empty_parts(layout, state, gains, classes, d, allowed, True, zeros)
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
    """Move the objects of a batch; an empty cluster takes one of them.

    ``room`` is the largest number of clusters; the last one is opened, and no further ones.
    """
    scratch, first = make_scratch(layout, d, objects), layout.first_object[d]
    opened = np.zeros(state.m.shape[1], np.bool_)
    for t in range(objects.size):
        k = labels[t]
        if k == state.label[first + objects[t]] or opened[k]:
            continue
        opened[k] = state.m[d, k] == 0.0
        move_object(layout, state, d, objects[t], k, scratch)
        if k == state.n_clusters[d] - 1 and k < room - 1:
            state.n_clusters[d] += 1


@kernel
def batch_zeros(
    layout: Layout, state: State, gains: Gains, d: int, allowed: Flags
) -> tuple[Floats, Floats]:
    """Return the gains of zeros as if nothing were stored: of a new object, and of a member."""
    zeros, classes = make_zeros(state), find_classes(layout, state)
    empty_parts(layout, state, gains, classes, d, allowed, False, zeros)
    return zeros.empty[classes.label[d]], zeros.own[classes.label[d]]


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
