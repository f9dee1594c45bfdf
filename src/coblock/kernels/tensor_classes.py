"""Blocks without stored cells, taken together by the sizes of their clusters (RELATIONS 17).

The statistics of such a block follow from the sizes of its clusters. Clusters of one domain that
have the same sizes are a *class*; blocks whose clusters are of the same classes, equal and
different at the same places, have the same statistics. One of them stands for all: sums over the
blocks of a relation take time for each tuple of classes, not for each block. Sums over all blocks
take them as if nothing were stored, and add for the stored blocks what that changes.
"""

from typing import NamedTuple

import numpy as np

from coblock.kernels import Floats, Gain, Gains, Indices, Offsets, inner, kernel
from coblock.kernels.tensors import (
    Flags,
    Layout,
    State,
    block_start,
    block_total,
    decode,
    stored_blocks,
)


class Classes(NamedTuple):
    """Clusters of each domain that are in use, by size."""

    label: Indices  # (domains, capacity) class of a cluster
    number: Indices  # (domains,) number of classes
    start: Offsets  # (domains, capacity + 1) into ``member``
    member: Indices  # (domains, capacity) clusters, one class after another


class Tuples(NamedTuple):
    """Tuples of clusters, each of which stands for blocks with the same statistics."""

    cluster: Indices  # (tuples, places)
    times: Floats  # (tuples,) number of blocks


@kernel
def find_classes(layout: Layout, state: State) -> Classes:
    """Return the classes of all domains; empty clusters are in a class of their own."""
    D, capacity = state.m.shape
    label, count = np.zeros((D, capacity), np.int32), np.zeros(D, np.int32)
    start, member = np.zeros((D, capacity + 1), np.int64), np.empty((D, capacity), np.int32)
    first = np.empty(capacity, np.int32)
    for d in range(D):
        for k in range(state.n_clusters[d]):
            found = 0
            while found < count[d]:
                same = state.m[d, k] == state.m[d, first[found]]
                for q in range(layout.domain.size):
                    if layout.domain[q] == d:
                        same &= state.size[q, k] == state.size[q, first[found]]
                if same:
                    break
                found += 1
            if found == count[d]:
                first[found] = k
                count[d] += 1
            label[d, k] = found
            start[d, found + 1] += 1
        for each in range(count[d]):
            start[d, each + 1] += start[d, each]
        free = start[d].copy()
        for k in range(state.n_clusters[d]):
            member[d, free[label[d, k]]] = k
            free[label[d, k]] += 1
    return Classes(label, count, start, member)


@inner
def has_cluster(layout: Layout, r: int, d: int, index: Indices, p: int, k: int) -> bool:
    """Return whether one of the first ``p`` places of domain ``d`` has cluster ``k``."""
    begin, found = layout.first_place[r], False
    for e in range(p):
        found |= layout.domain[begin + e] == d and index[e] == k
    return found


@inner
def free_member(classes: Classes, e: int, each: int, named: Indices, other: int) -> tuple[int, int]:
    """Return a cluster of a class that is neither named nor ``other``, and how many there are."""
    free, chosen = 0, -1
    for at in range(classes.start[e, each], classes.start[e, each + 1]):
        k, taken = classes.member[e, at], False
        for u in range(named.size):
            taken |= named[u] == k
        if not (taken or k == other):
            chosen, free = k, free + 1
    return chosen, free


@inner
def list_tuples(  # noqa: PLR0912 - one loop
    layout: Layout,
    state: State,
    classes: Classes,
    r: int,
    d: int,
    wanted: Indices,
    other: int,
) -> Tuples:
    """Return tuples of clusters that stand for blocks of relation ``r``.

    They have all of the ``wanted`` clusters, and not the ``other`` one, at places of domain
    ``d``. A place holds a cluster of an earlier place, a wanted one, or another one, of which
    each class is represented by one. Empty clusters are left out where they are not wanted.
    """
    begin = layout.first_place[r]
    arity = layout.first_place[r + 1] - begin
    index, times = np.empty((1, arity), np.int32), np.ones(1)
    named = np.empty(arity + wanted.size, np.int32)
    for p in range(arity):
        e, left, count = layout.domain[begin + p], 0, 0
        for q in range(p, arity):
            left += layout.domain[begin + q] == d
        most = times.size * (classes.number[e] + named.size)
        longer, product = np.empty((most, arity), np.int32), np.empty(most)
        for t in range(times.size):
            n_named, missing = 0, 0
            for k in wanted:
                missing += not has_cluster(layout, r, d, index[t], p, k)
                if e == d:
                    named[n_named] = k
                    n_named += 1
            for earlier in range(p):
                new = layout.domain[begin + earlier] == e
                for u in range(n_named):
                    new &= named[u] != index[t, earlier]
                if new:
                    named[n_named] = index[t, earlier]
                    n_named += 1
            must = e == d and missing == left  # only a wanted cluster that is missing
            for u in range(n_named if missing <= left else 0):
                if must and has_cluster(layout, r, d, index[t], p, named[u]):
                    continue
                longer[count], longer[count, p], product[count] = index[t], named[u], times[t]
                count += 1
            for each in range(classes.number[e] if missing < left or e != d else 0):
                if missing > left or state.m[e, classes.member[e, classes.start[e, each]]] == 0.0:
                    continue
                excluded = other if e == d else -1
                chosen, free = free_member(classes, e, each, named[:n_named], excluded)
                if free > 0:
                    longer[count], longer[count, p] = index[t], chosen
                    product[count] = times[t] * free
                    count += 1
        index, times = longer[:count].copy(), product[:count].copy()
    if layout.symmetric[r]:  # the two orders of a pair are one block
        for t in range(times.size):
            if index[t, 0] != index[t, 1]:
                times[t] *= 0.5
    return Tuples(index, times)


@inner
def empty_gain(
    layout: Layout,
    state: State,
    gain: Gain,
    r: int,
    d: int,
    tuples: Tuples,
    weight: Floats,
    less: int,
    k: int,
) -> float:
    """Return what blocks, as if nothing were stored, gain by an object that joins cluster ``k``.

    Before, the object, with exposures ``weight``, leaves cluster ``less``.
    """
    S, total = layout.n_stats[r], 0.0
    rest, plus = np.empty(S), np.empty(S)
    zero, prior = layout.zero[r], state.prior[r]
    for t in range(tuples.times.size):
        index = tuples.cluster[t]
        left = block_total(layout, state, r, index, d, weight, less, -1)
        grown = block_total(layout, state, r, index, d, weight, less, k) - left
        if grown != 0.0:
            for u in range(S):
                rest[u], plus[u] = zero[u] * left, zero[u] * grown
            total += tuples.times[t] * gain(rest, plus, prior)
    return total


@inner
def add_stored_gains(
    layout: Layout,
    state: State,
    gain: Gain,
    r: int,
    d: int,
    blocks: Offsets,
    taken: Floats,
    weight: Floats,
    less: int,
    allowed: Flags,
    sign: float,
    base: Floats,
) -> None:
    """Add to ``base[k]`` what an object without cells gains more by what blocks hold.

    It leaves cluster ``less`` and joins cluster ``k``. What is ``taken`` (blocks, statistics)
    from the sums before may be empty. Only clusters that are allowed are changed, by ``sign``
    times the gain of the blocks less that of the same blocks as if nothing were stored.
    """
    begin, S = layout.first_place[r], layout.n_stats[r]
    arity = layout.first_place[r + 1] - begin
    index, held, rest, plus = np.empty(arity, np.int32), np.empty(S), np.empty(S), np.empty(S)
    zero, prior = layout.zero[r], state.prior[r]
    for t in range(blocks.size):
        decode(layout, state, r, blocks[t], index)
        start, stored = block_start(layout, state, r, blocks[t]), False
        for u in range(S):
            held[u] = state.s[start + u] - (taken[t, u] if taken.size else 0.0)
            stored |= held[u] != 0.0
        if not stored:
            continue
        left = block_total(layout, state, r, index, d, weight, less, -1)
        for p in range(arity):
            k = index[p]
            used = layout.domain[begin + p] == d and allowed[k]
            for e in range(p):
                used &= not (layout.domain[begin + e] == d and index[e] == k)
            if not used:
                continue
            grown = block_total(layout, state, r, index, d, weight, less, k) - left
            if grown != 0.0:
                for u in range(S):
                    rest[u], plus[u] = zero[u] * left, zero[u] * grown
                base[k] -= sign * gain(rest, plus, prior)
                for u in range(S):
                    rest[u] += held[u]
                base[k] += sign * gain(rest, plus, prior)


@kernel
def stored_statistics(layout: Layout, state: State, r: int) -> tuple[Indices, Floats, Floats]:
    """Return the stored blocks of a relation: clusters, statistics and number of cells.

    The number of cells counts the unseen ones, too; it is 0 where other cells are unseen.
    """
    S, d = layout.n_stats[r], layout.domain[layout.first_place[r]]
    arity = layout.first_place[r + 1] - layout.first_place[r]
    everyone = np.arange(layout.first_object[d + 1] - layout.first_object[d]).astype(np.int32)
    blocks, weight = stored_blocks(layout, state, r, d, everyone), np.ones(arity)
    index, cells = np.empty((blocks.size, arity), np.int32), np.zeros(blocks.size)
    statistics = np.empty((blocks.size, S))
    for t in range(blocks.size):
        start = block_start(layout, state, r, blocks[t])
        decode(layout, state, r, blocks[t], index[t])
        if layout.filled[r]:
            cells[t] = block_total(layout, state, r, index[t], -1, weight, -1, -1)
        for u in range(S):
            statistics[t, u] = state.s[start + u] + layout.zero[r, u] * cells[t]
    return index, statistics, cells


@kernel
def relation_statistics(layout: Layout, state: State, r: int) -> tuple[Floats, Floats]:
    """Return statistics of blocks, (blocks, statistics), and how often each counts.

    Stored blocks come first. In a relation whose other cells are zeros they count -1 times as if
    nothing were stored, and then all blocks are counted so.
    """
    _, statistics, cells = stored_statistics(layout, state, r)
    if not layout.filled[r]:
        return statistics, np.ones(cells.size)
    d, nothing, n = layout.domain[layout.first_place[r]], np.empty(0, np.int32), cells.size
    tuples = list_tuples(layout, state, find_classes(layout, state), r, d, nothing, -1)
    rows, count = np.empty((2 * n + tuples.times.size, statistics.shape[1])), np.ones(2 * n)
    rows[:n], count[n:] = statistics, -1.0
    weight = np.ones(tuples.cluster.shape[1])
    for t in range(rows.shape[0] - n):
        if t < n:
            total = cells[t]
        else:
            index = tuples.cluster[t - n]
            total = block_total(layout, state, r, index, -1, weight, -1, -1)
        for u in range(rows.shape[1]):
            rows[n + t, u] = layout.zero[r, u] * total
    return rows, np.concatenate((count, tuples.times))


@kernel
def sum_of_marginals(
    statistics: Floats, count: Floats, gains: Gains, r: int, prior: Floats
) -> float:
    """Return the log marginal of blocks of relation ``r``, each counted so often (RELATIONS 4)."""
    gain, nothing, total = gains[r], np.zeros(statistics.shape[1]), 0.0
    for t in range(count.size):
        if statistics[t].any():
            total += count[t] * gain(nothing, statistics[t], prior)
    return total
