"""Sweeps over the labels of a domain: best labels or draws from their conditional (RELATIONS 6).

An object is scored for all clusters from the state without it, and moved at once. Blocks that
none of its stored cells touches gain what an object without cells gains; this part is kept in
``base`` for each cluster, and with a member of cluster c taken out first in ``without[c]``.
"""

import math

import numpy as np

from coblock.kernels import Floats, Gain, Gains, Indices, kernel
from coblock.kernels.gibbs import draw
from coblock.kernels.tensor_cells import Scratch, clear_groups, open_object, touch_blocks
from coblock.kernels.tensor_degrees import add_degree_gains, move_degrees
from coblock.kernels.tensors import Flags, Layout, State, add_base, block_total, decode, list_slice


@kernel
def score_cells(
    layout: Layout,
    state: State,
    gain: Gain,
    r: int,
    d: int,
    c: int,
    weight: Floats,
    groups: int,
    n_own: int,
    allowed: Flags,
    scratch: Scratch,
    score: Floats,
) -> None:
    """Add to the scores of an object of cluster ``c`` what its stored cells change.

    Its cells are taken out of the sums meanwhile: first from the gains of zeros in its own
    blocks, then they are added to the blocks that they touch in each cluster.
    """
    begin, S, own = layout.first_place[r], layout.n_stats[r], scratch.own[:n_own]
    index, rest = np.empty(layout.first_place[r + 1] - begin, np.int32), np.empty(S)
    if layout.filled[r]:
        add_base(layout, state, gain, r, d, own, weight, c, allowed, -1.0, score)
    for t in range(n_own):
        start = state.first_stat[r] + own[t] * S
        scratch.own_before[t, :S] = state.s[start : start + S]
        state.s[start : start + S] -= scratch.own_value[t, :S]
    if layout.filled[r]:
        add_base(layout, state, gain, r, d, own, weight, c, allowed, 1.0, score)
    for k in range(state.n_clusters[d]):
        if not allowed[k]:
            continue
        found = (scratch.block, scratch.block_value)
        for t in range(touch_blocks(layout, state, r, k, groups, scratch, *found)):
            start, total = state.first_stat[r] + scratch.block[t] * S, 0.0
            if layout.filled[r]:
                decode(layout, state, r, scratch.block[t], index)
                total = block_total(layout, state, r, index, d, weight, c, k)
            for u in range(S):
                rest[u] = state.s[start + u] + layout.zero[r, u] * total
            score[k] += gain(rest, scratch.block_value[t, :S], state.prior[r])
    for t in range(n_own):
        start = state.first_stat[r] + own[t] * S
        state.s[start : start + S] = scratch.own_before[t, :S]


@kernel
def add_slices(
    layout: Layout,
    state: State,
    gain: Gain,
    r: int,
    d: int,
    less: int,
    allowed: Flags,
    scratch: Scratch,
    base: Floats,
) -> None:
    """Add to ``base`` what all blocks of the allowed clusters gain (see ``add_base``)."""
    single = np.zeros(allowed.size, np.bool_)
    for k in range(state.n_clusters[d]):
        if allowed[k]:
            single[k] = True
            count = list_slice(layout, state, r, d, k, -1, scratch.old_slice)
            blocks = scratch.old_slice[:count]
            add_base(layout, state, gain, r, d, blocks, scratch.weight, less, single, 1.0, base)
            single[k] = False


@kernel
def take_member_out(
    layout: Layout,
    state: State,
    gains: Gains,
    d: int,
    c: int,
    allowed: Flags,
    scratch: Scratch,
    base: Floats,
) -> None:
    """Change ``base`` to that of the state with an object without cells taken out of ``c``."""
    scratch.weight[:] = 1.0
    for r in range(layout.filled.size):
        if layout.incidence[r, d] >= 0 and layout.filled[r] and layout.uniform[r]:
            gain = gains[r]
            count = list_slice(layout, state, r, d, c, -1, scratch.old_slice)
            blocks = scratch.old_slice[:count]
            add_base(layout, state, gain, r, d, blocks, scratch.weight, -1, allowed, -1.0, base)
            add_base(layout, state, gain, r, d, blocks, scratch.weight, c, allowed, 1.0, base)


@kernel
def move_object(
    layout: Layout,
    state: State,
    gains: Gains,
    d: int,
    i: int,
    k: int,
    allowed: Flags,
    exact: bool,
    scratch: Scratch,
    base: Floats,
) -> None:
    """Put an object into cluster ``k``: labels, sizes, sums and, if it is to be exact, ``base``."""
    c = state.label[layout.first_object[d] + i]
    for r in range(layout.filled.size):
        if layout.incidence[r, d] < 0:
            continue
        gain, S, begin = gains[r], layout.n_stats[r], layout.first_place[r]
        groups, n_own = open_object(layout, state, r, d, i, c, scratch)
        weight = scratch.weight
        old = new = 0
        if exact and layout.filled[r] and layout.uniform[r]:
            old = list_slice(layout, state, r, d, c, -1, scratch.old_slice)
            new = list_slice(layout, state, r, d, k, c, scratch.new_slice)
        slices = (scratch.old_slice[:old], scratch.new_slice[:new])
        for blocks in slices:
            add_base(layout, state, gain, r, d, blocks, weight, -1, allowed, -1.0, base)
        for t in range(n_own):
            start = state.first_stat[r] + scratch.own[t] * S
            state.s[start : start + S] -= scratch.own_value[t, :S]
        found = (scratch.block, scratch.block_value)
        for t in range(touch_blocks(layout, state, r, k, groups, scratch, *found)):
            start = state.first_stat[r] + scratch.block[t] * S
            state.s[start : start + S] += scratch.block_value[t, :S]
        for q in range(begin, layout.first_place[r + 1]):
            if layout.domain[q] == d:
                state.size[q, c] -= weight[q - begin]
                state.size[q, k] += weight[q - begin]
        for blocks in slices:
            add_base(layout, state, gain, r, d, blocks, weight, -1, allowed, 1.0, base)
        clear_groups(groups, scratch)
    move_degrees(layout, state, d, i, c, k)
    state.m[d, c] -= 1.0
    state.m[d, k] += 1.0
    state.label[layout.first_object[d] + i] = k


@kernel
def score_labels(
    layout: Layout,
    state: State,
    gains: Gains,
    d: int,
    i: int,
    allowed: Flags,
    open_clusters: bool,
    without: Floats,
    scratch: Scratch,
    score: Floats,
) -> None:
    """Write the log of the conditional probability of each cluster, up to a constant.

    One empty cluster stands for all; an object alone in its cluster has that one.
    """
    c = state.label[layout.first_object[d] + i]
    new = c if state.m[d, c] == 1.0 else -1
    score[:] = -np.inf
    for k in range(state.n_clusters[d]):
        members = state.m[d, k] - (k == c)
        if not allowed[k]:
            continue
        if members > 0.0:
            score[k] = math.log(members) + without[k]
        elif k == new or (new < 0 and open_clusters):
            new = k
            score[k] = math.log(state.alpha[d]) + without[k]
    add_degree_gains(layout, state, d, i, allowed, score)
    for r in range(layout.filled.size):
        if layout.incidence[r, d] < 0:
            continue
        gain = gains[r]
        groups, n_own = open_object(layout, state, r, d, i, c, scratch)
        if layout.filled[r] and not layout.uniform[r]:
            add_slices(layout, state, gain, r, d, c, allowed, scratch, score)
        size = (groups, n_own)
        score_cells(layout, state, gain, r, d, c, scratch.weight, *size, allowed, scratch, score)
        clear_groups(groups, scratch)


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
def compute_base(
    layout: Layout,
    state: State,
    gains: Gains,
    d: int,
    allowed: Flags,
    scratch: Scratch,
    base: Floats,
) -> None:
    """Add to ``base`` what an object without cells gains in each allowed cluster."""
    scratch.weight[:] = 1.0
    for r in range(layout.filled.size):
        if layout.incidence[r, d] >= 0 and layout.filled[r] and layout.uniform[r]:
            add_slices(layout, state, gains[r], r, d, -1, allowed, scratch, base)


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
    stale: int,
    scratch: Scratch,
) -> int:
    """Update the labels of objects one after another; return how many were visited.

    ``uniform`` holds a random number for each object, or -1 for the best label. With ``stale`` 0
    scores are exact. Else the gains of objects without cells are those before the last moves, up
    to ``stale`` of them, and an object is taken out of the blocks of its own cluster only where
    it is scored for that one. The sweep ends early when no empty cluster is left.
    """
    capacity, moves = state.m.shape[1], 0
    base, score = np.zeros(capacity), np.empty(capacity)
    without, valid = np.empty((capacity, capacity)), np.zeros(capacity, np.bool_)
    single = np.zeros(allowed.size, np.bool_)
    compute_base(layout, state, gains, d, allowed, scratch, base)
    for visited in range(objects.size):
        i = objects[visited]
        c = state.label[layout.first_object[d] + i]
        if not valid[c]:
            without[c], single[c] = base, allowed[c]
            changed = allowed if stale == 0 else single
            take_member_out(layout, state, gains, d, c, changed, scratch, without[c])
            valid[c], single[c] = True, False
        score_labels(layout, state, gains, d, i, allowed, open_clusters, without[c], scratch, score)
        k = choose(score, c, uniform[visited])
        if k == c:
            continue
        opened = state.m[d, k] == 0.0 and k == state.n_clusters[d] - 1
        move_object(layout, state, gains, d, i, k, allowed, stale == 0, scratch, base)
        moves += 1
        if opened:
            if state.n_clusters[d] == allowed.size:
                return visited + 1
            state.n_clusters[d] += 1
            new = state.n_clusters[d] - 1
            single[new] = allowed[new] = True
            compute_base(layout, state, gains, d, single, scratch, base)
            without[:, new], single[new] = base[new], False
        if stale == 0:
            valid[:] = False
        elif moves % stale == 0:
            base[:] = 0.0
            compute_base(layout, state, gains, d, allowed, scratch, base)
            valid[:] = False
    return objects.size


@kernel
def score_domain(
    layout: Layout,
    state: State,
    gains: Gains,
    d: int,
    objects: Indices,
    allowed: Flags,
    scratch: Scratch,
    out: Floats,
) -> None:
    """Write the scores of objects of a domain; no label changes (RELATIONS 6)."""
    capacity = state.m.shape[1]
    base, score = np.zeros(capacity), np.empty(capacity)
    without, valid = np.empty((capacity, capacity)), np.zeros(capacity, np.bool_)
    compute_base(layout, state, gains, d, allowed, scratch, base)
    for t in range(objects.size):
        i = objects[t]
        c = state.label[layout.first_object[d] + i]
        if not valid[c]:
            without[c] = base
            take_member_out(layout, state, gains, d, c, allowed, scratch, without[c])
            valid[c] = True
        score_labels(layout, state, gains, d, i, allowed, False, without[c], scratch, score)
        out[t] = score[: out.shape[1]]
