"""Merges of two clusters and splits of one in two, by exact evidence (MODEL 10, RELATIONS 9).

A split takes time and memory linear in the pairs of a member and a block that it has cells in.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from coblock.kernels import (
    BlockTables,
    DomainView,
    Floats,
    Indices,
    Offsets,
    inlined,
    inner,
    kernel,
)
from coblock.kernels.bernoulli import block_values, log_beta_gain
from coblock.kernels.gather import links_of, unseen_of
from coblock.kernels.score import padded
from coblock.kernels.special import log, unrolled_sum


class CurrentValues(NamedTuple):
    """Contributions of clusters and blocks to the log evidence before a merge."""

    repeated: bool  # whether the other end of a cell is in the same domain
    symmetric: bool  # whether block {k, l} stands at (k, l) and at (l, k)
    blocks: BlockTables  # padded to whole vector registers; the prior is shared
    value: Floats  # (K, L)  of each block
    size: Floats  # (K,)  of the size of each cluster


@inner
def size_value(m: float, alpha: float) -> float:
    """Return the contribution of a cluster of ``m`` members to log CRP(z | alpha)."""
    return math.log(alpha) + math.lgamma(m)


@kernel
def current_values(
    repeated: bool, symmetric: bool, blocks: BlockTables, m: Floats, alpha: float
) -> CurrentValues:
    """Return the contributions of all clusters and blocks."""
    K, L = blocks.n.shape
    n, N, value = np.zeros((3, K, padded(L)))
    size = np.zeros(K)
    for k in range(K):
        for l in range(L):
            n[k, l], N[k, l] = blocks.n[k, l], blocks.N[k, l]
        block_values(n[k], N[k], blocks.a[0, 0], blocks.b[0, 0], value[k])
        size[k] = size_value(m[k], alpha) if m[k] > 0.0 else 0.0
    tables = BlockTables(n, N, blocks.a, blocks.b)
    return CurrentValues(repeated, symmetric, tables, value, size)


@kernel
def merge_gain(now: CurrentValues, m: Floats, alpha: float, k: int, g: int) -> float:
    """Return the gain of merging two nonempty clusters; the hyperparameters are held.

    Only rows k and g of the tables matter and, with repeated places, columns k and g.
    """
    n, N, a, b = now.blocks.n, now.blocks.N, now.blocks.a[0, 0], now.blocks.b[0, 0]
    value, joint = now.value, np.empty(now.value.shape[1])
    gain = size_value(m[k] + m[g], alpha) - now.size[k] - now.size[g]
    for l in range(joint.size):
        both = log_beta_gain(a, b, n[k, l] + n[g, l], N[k, l] + N[g, l])
        joint[l] = both - value[k, l] - value[g, l]
    if not now.repeated:
        return gain + unrolled_sum(joint)
    n_all, N_all = inner_cells(now, n, k, g), inner_cells(now, N, k, g)
    before = inner_cells(now, value, k, g)
    if not now.symmetric:
        for l in range(m.size):
            both = log_beta_gain(a, b, n[l, k] + n[l, g], N[l, k] + N[l, g])
            joint[l] += both - value[l, k] - value[l, g]
    joint[k], joint[g] = 0.0, 0.0
    return gain + log_beta_gain(a, b, n_all, N_all) - before + unrolled_sum(joint)


@inlined
def inner_cells(now: CurrentValues, table: Floats, k: int, g: int) -> float:
    """Return the sum over the blocks between clusters k and g, which a merge makes one."""
    total = table[k, k] + table[g, g] + table[k, g]
    return total if now.symmetric else total + table[g, k]


@kernel
def merge_gains(now: CurrentValues, m: Floats, alpha: float, pairs: Indices, out: Floats) -> None:
    """Write the gains of pairs of nonempty clusters."""
    for t in range(pairs.shape[0]):
        out[t] = merge_gain(now, m, alpha, pairs[t, 0], pairs[t, 1])


@kernel
def merge_two(now: CurrentValues, m: Floats, alpha: float, k: int, g: int) -> None:
    """Merge cluster ``g`` into ``k``: counts, sizes and values are updated, ``g`` is empty then."""
    for table in (now.blocks.n, now.blocks.N):
        inner = inner_cells(now, table, k, g) if now.repeated else 0.0
        for l in range(table.shape[1]):
            table[k, l] += table[g, l]
            table[g, l] = 0.0
        if now.repeated:
            for l in range(table.shape[0]):
                table[l, k] += table[l, g]
                table[l, g] = 0.0
            table[k, k] = inner
    n, N, a, b = now.blocks.n, now.blocks.N, now.blocks.a[0, 0], now.blocks.b[0, 0]
    block_values(n[k], N[k], a, b, now.value[k])
    now.value[g] = 0.0
    if now.repeated:
        block_values(n[:, k], N[:, k], a, b, now.value[:, k])
        now.value[:, g] = 0.0
    m[k], m[g] = m[k] + m[g], 0.0
    now.size[k], now.size[g] = size_value(m[k], alpha), 0.0


@kernel
def merge_pairs(
    now: CurrentValues,
    m: Floats,
    alpha: float,
    pairs: Indices,
    gains: Floats,
    least: float,
    most: int,
    disjoint: bool,
) -> Indices:
    """Merge the pair with the largest gain while it exceeds ``least``; return the new labels.

    The pairs of a merged cluster pass to the cluster that it is part of, unless pairs must be
    ``disjoint``. A gain that a merge since has changed is computed again before it counts: in two
    domains those of the merged clusters, in one domain all. Tables and gains are overwritten.
    """
    label, merged = np.arange(m.size).astype(np.int32), 0
    changed, valued = np.zeros(m.size, np.int64), np.zeros(gains.size, np.int64)
    while merged < most:
        t = np.argmax(gains)
        if not gains[t] > least:
            break
        k, g = label[pairs[t, 0]], label[pairs[t, 1]]
        last = max(changed[k], changed[g])
        if k == g or (disjoint and last > 0):
            gains[t] = -np.inf
        elif valued[t] < (merged if now.repeated else last):
            gains[t], valued[t] = merge_gain(now, m, alpha, k, g), merged
        else:
            merge_two(now, m, alpha, k, g)
            merged += 1
            label[label == g], changed[k] = k, merged
    return label


class SideCounts(NamedTuple):
    """Counts of the sides of a split."""

    n: Floats  # (sides, blocks)  links
    N: Floats  # (sides, blocks)  observed non-links
    m: Floats  # (sides,)  members


@kernel
def zero_counts(sides: int, blocks: int) -> SideCounts:
    """Return counts of empty sides."""
    return SideCounts(np.zeros((sides, blocks)), np.zeros((sides, blocks)), np.zeros(sides))


class Profiles(NamedTuple):
    """Links and unseen cells of members by block; blocks with neither are left out.

    Blocks are numbered by the label of the other end; those of a second place follow.
    """

    start: Offsets  # (members + 1,)  of each member in the others
    block: Indices
    links: Indices
    unseen: Indices


@kernel
def member_profiles(
    domain: DomainView, members: Indices, label_other: Indices, clusters: int
) -> Profiles:
    """Return the profiles of members."""
    entry = np.full(len(domain.incidence) * clusters, -1)  # the last one of each block
    start = np.zeros(members.size + 1, dtype=np.int64)
    for t in range(members.size):
        cells = 0
        for p in range(len(domain.incidence)):
            cells += links_of(domain.incidence[p], members[t]).size
            cells += unseen_of(domain.incidence[p], members[t]).size
        start[t + 1] = start[t] + min(cells, entry.size)  # at most
    block = np.empty(start[-1], dtype=np.int32)
    counts = np.zeros((2, start[-1]), dtype=np.int32)
    end = 0
    for t in range(members.size):
        start[t] = end
        for p in range(len(domain.incidence)):
            place = domain.incidence[p]
            both = (links_of(place, members[t]), unseen_of(place, members[t]))
            for c, ends in enumerate(both):
                for j in ends:
                    l = p * clusters + label_other[j]
                    if entry[l] < start[t]:
                        entry[l], block[end] = end, l
                        end += 1
                    counts[c, entry[l]] += 1
    start[-1] = end
    return Profiles(start, block[:end], counts[0, :end], counts[1, :end])


@kernel
def count_sides(
    profiles: Profiles,
    members: NDArray[np.int64],
    side: NDArray[np.int8],
    cells: Floats,
    counts: SideCounts,
) -> None:
    """Count the cells of some members by side; ``cells`` is the number per member and block.

    With repeated places ``cells`` does not contain the cell of a member with itself.
    """
    (n, N, m), (start, block, links, unseen) = counts, profiles
    n[:], N[:], m[:] = 0.0, 0.0, 0.0
    for t in range(members.size):
        i, s = members[t], side[t]
        m[s] += 1.0
        for e in range(start[i], start[i + 1]):
            n[s, block[e]] += links[e]
            N[s, block[e]] -= unseen[e]
    for s in range(m.size):
        for l in range(cells.size):
            N[s, l] += m[s] * cells[l] - n[s, l]


@inner
def add_copies(counts: SideCounts, cells: Floats, s: int, copies: float) -> None:
    """Add so many members without links or unseen cells to a side."""
    counts.m[s] += copies
    for l in range(cells.size):
        counts.N[s, l] += copies * cells[l]


@kernel
def assign_sides(
    profiles: Profiles, cells: Floats, counts: SideCounts, prior: tuple[float, float]
) -> NDArray[np.int8]:
    """Return the side (0 or 1) that makes each member's cells more probable, counts held."""
    (a, b), (n, N, m) = prior, counts
    link, nonlink = np.empty(cells.size), np.empty(cells.size)  # log odds of side 1 for a cell
    for l in range(cells.size):
        T_0, T_1 = a + b + n[0, l] + N[0, l], a + b + n[1, l] + N[1, l]
        nonlink[l] = log((b + N[1, l]) * T_0 / ((b + N[0, l]) * T_1))
        link[l] = log((a + n[1, l]) * T_0 / ((a + n[0, l]) * T_1)) - nonlink[l]
    no_link = math.log((m[1] + 1.0) / (m[0] + 1.0)) + unrolled_sum(cells * nonlink)
    start, block, links, unseen = profiles
    side = np.empty(start.size - 1, dtype=np.int8)
    for i in range(side.size):
        score = no_link
        for e in range(start[i], start[i + 1]):
            score += links[e] * link[block[e]] - unseen[e] * nonlink[block[e]]
        side[i] = 1 if score > 0.0 else 0
    return side


@kernel
def unsplit_values(counts: SideCounts, prior: tuple[float, float]) -> Floats:
    """Return the contributions to the log evidence of the blocks of all sides together."""
    n, N, values = np.zeros((3, counts.n.shape[1]))
    for s in range(counts.m.size):
        n += counts.n[s]
        N += counts.N[s]
    block_values(n, N, prior[0], prior[1], values)
    return values


@kernel
def split_gain(counts: SideCounts, prior: tuple[float, float], unsplit: Floats) -> float:
    """Return the gain of two sides over :func:`unsplit_values`.

    The prior of one more cluster is not included. Minus infinity if a side is empty.
    """
    n, N, m = counts
    if m[0] == 0.0 or m[1] == 0.0:
        return -np.inf
    sizes = math.lgamma(m[0]) + math.lgamma(m[1]) - math.lgamma(m[0] + m[1])
    first, second = np.empty(unsplit.size), np.empty(unsplit.size)
    block_values(n[0], N[0], prior[0], prior[1], first)
    block_values(n[1], N[1], prior[0], prior[1], second)
    for l in range(first.size):
        first[l] += second[l] - unsplit[l]
    return sizes + unrolled_sum(first)


@inner
def best_split(
    profiles: Profiles,
    cells: Floats,
    prior: tuple[float, float],
    seeds: NDArray[np.int64],
    passes: int,
    copies: float,
) -> tuple[float, NDArray[np.int8]]:
    """Return gain and sides of the best split around the pairs of members ``seeds``.

    All members choose a side, the sides are counted, and so on until none changes. The last
    member stands for ``copies`` more like it.
    """
    members = np.arange(profiles.start.size - 1)
    best, best_side = -np.inf, np.zeros(members.size, np.int8)
    counts = zero_counts(2, cells.size)
    count_sides(profiles, members, best_side, cells, counts)
    add_copies(counts, cells, best_side[-1], copies)
    unsplit = unsplit_values(counts, prior)
    for t in range(seeds.shape[0]):
        count_sides(profiles, seeds[t], np.arange(2).astype(np.int8), cells, counts)
        side = np.full(members.size, -1, np.int8)
        for _ in range(passes):
            before, side = side, assign_sides(profiles, cells, counts, prior)
            if (side == before).all():
                break
            count_sides(profiles, members, side, cells, counts)
            add_copies(counts, cells, side[-1], copies)
        gain = split_gain(counts, prior, unsplit)
        if gain > best:
            best, best_side = gain, side
    return best, best_side


@kernel
def best_splits(
    domain: DomainView,
    other: DomainView,
    members: Indices,
    start: Offsets,
    prior: tuple[float, float],
    seeds: NDArray[np.int64],
    passes: int,
    copies: float,
    clusters: NDArray[np.int64],
    gain: Floats,
    side: NDArray[np.int8],
) -> None:
    """Write gain and sides of the best split of some clusters; their ``members`` are sorted.

    ``start`` is the position of the first member of each cluster. The gain of a single member
    is minus infinity. The last object of the domain stands for ``copies`` objects.
    """
    P, L, new_cluster = len(domain.incidence), other.m.size, math.log(domain.alpha)
    cells = np.empty(P * L)
    for k in clusters:
        some = members[start[k] : start[k + 1]]
        if some.size < 2:
            gain[k] = -np.inf
            continue
        for p in range(P):
            for l in range(L):
                cells[p * L + l] = other.m[l]
            if domain.repeated:  # an object is not its own neighbour
                cells[p * L + k] -= 1.0
        profiles = member_profiles(domain, some, other.hard, L)
        more = copies - 1.0 if domain.hard[-1] == k else 0.0
        found, sides = best_split(profiles, cells, prior, seeds[k], passes, more)
        gain[k] = found + new_cluster
        for t in range(sides.size):
            side[start[k] + t] = sides[t]
