"""Sweeps over the memberships of several relations: CVB0 and VB (RELATIONS 8, 11).

An object is taken out of the expected numbers of tuples, its cells are added up by mask, and it is
scored for all clusters in all blocks of its relations. Its change is then added to the blocks.
"""

import numpy as np

from coblock.kernels import Floats, Gain, Gains, Indices, Offsets, inlined, inner, kernel
from coblock.kernels.memberships import normalise, remove_members, stick_log_prior
from coblock.kernels.tensor_soft import (
    Soft,
    add_cell,
    cell_count,
    change_totals,
    exposure_of,
    is_pair,
    is_single,
    next_index,
    position,
)
from coblock.kernels.tensors import Layout

NOISE = 1e-12  # what is left of a sum is 0 if it is a smaller share of it than this


@inner
def gather_groups(layout: Layout, soft: Soft, r: int, d: int, i: int) -> None:
    """Add up the expected cells of an object by mask, observed zeros included (RELATIONS 6, 8).

    The object must not be in the numbers of tuples.
    """
    begin, S, n = layout.first_place[r], layout.n_stats[r], soft.n_bits[r, d]
    arity, row = layout.first_place[r + 1] - begin, layout.incidence[r, d] + i
    soft.group[soft.first_group[r, d, 0] : soft.first_group[r, d, 1 << n]] = 0.0
    for at in range(layout.start[row], layout.start[row + 1]):
        c, mask = layout.cell[at], 0
        for b in range(n):
            o = layout.coordinate[layout.first_coordinate[r] + c * arity + soft.bit_place[r, d, b]]
            mask |= (o == i) << b
        out = soft.group[soft.first_group[r, d, mask] :]
        add_cell(layout, soft, r, c, d, i, soft.group_stride[r, d, mask], out)
    if not layout.filled[r]:
        return
    index = np.zeros(arity, np.int64)
    for mask in range(1, 1 << n):
        repeats = layout.distinct[r] and not is_single(mask)
        if repeats or (mask == 2 and is_pair(layout, r, d)):  # the same table as mask 1
            continue
        weight, stride = exposure_of(layout, soft, r, d, i, mask), soft.group_stride[r, d, mask]
        index[:] = 0
        while True:
            count = weight * cell_count(layout, soft, r, d, mask, index)
            at = soft.first_group[r, d, mask] + position(stride, index) * S
            for t in range(S):
                soft.group[at + t] += layout.zero[r, t] * count
            if not next_index(layout, soft, r, d, mask, True, index):
                break


@inner
def block_gains(
    layout: Layout, soft: Soft, r: int, d: int, index: Offsets, cluster: Offsets, gain: Floats
) -> int:
    """Write what a block gains by an object in each of its clusters; return their number.

    ``cluster`` gets the different clusters at the places of domain ``d``, and ``gain`` the
    statistics of the cells that the object brings there: G of RELATIONS 6.
    """
    S, n, count, done = layout.n_stats[r], soft.n_bits[r, d], 0, 0
    pair = is_pair(layout, r, d)
    for b in range(n):
        if done >> b & 1:
            continue
        k, same = index[soft.bit_place[r, d, b]], 0
        for e in range(b, n):
            same |= (index[soft.bit_place[r, d, e]] == k) << e
        done |= same
        cluster[count] = k
        gain[count, :S] = 0.0
        for mask in range(1, same + 1):
            if mask & ~same or (pair and mask == 2 and same == 3):
                continue
            at = position(soft.group_stride[r, d, mask], index) * S + soft.first_group[r, d, mask]
            for t in range(S):
                gain[count, t] += soft.group[at + t]
        count += 1
    return count


@inner
def add_scores(
    layout: Layout,
    soft: Soft,
    gain: Gain,
    r: int,
    d: int,
    q_i: Floats,
    slope: Floats,
    score: Floats,
) -> None:
    """Add to the scores of an object what it gains in the blocks of a relation.

    CVB0: f at the expected statistics with the object less f without it. VB: the derivative of f
    at the statistics as they were, ``slope``, times the change (RELATIONS 8, 11).
    """
    begin, S, n = layout.first_place[r], layout.n_stats[r], soft.n_bits[r, d]
    index, cluster = np.zeros(layout.first_place[r + 1] - begin, np.int64), np.empty(n, np.int64)
    plus, rest, at = np.empty((n, S)), np.empty(S), soft.first_stat[r]
    while True:
        count = 0
        if not (layout.symmetric[r] and index[0] > index[1]):
            count = block_gains(layout, soft, r, d, index, cluster, plus)
        if slope.size == 0 and count > 0:
            leave_out(soft.s[at : at + S], q_i, cluster[:count], plus, rest)
        for c in range(count):
            if slope.size > 0:
                for t in range(S):
                    score[cluster[c]] += slope[at + t] * plus[c, t]
            elif plus[c].any():
                score[cluster[c]] += gain(rest, plus[c], soft.prior[r])
        at += S
        if not next_index(layout, soft, r, -1, 0, True, index):
            break


@inlined
def leave_out(s: Floats, q_i: Floats, cluster: Offsets, plus: Floats, rest: Floats) -> None:
    """Write the expected statistics of a block without an object (RELATIONS 8)."""
    for t in range(s.size):
        rest[t] = s[t]
        for c in range(cluster.size):
            rest[t] -= q_i[cluster[c]] * plus[c, t]
        if abs(rest[t]) <= NOISE * abs(s[t]):
            rest[t] = 0.0


@inner
def apply_change(layout: Layout, soft: Soft, r: int, d: int, change: Floats) -> None:
    """Add a change of the memberships of an object to the expected statistics."""
    begin, S, n = layout.first_place[r], layout.n_stats[r], soft.n_bits[r, d]
    index, cluster = np.zeros(layout.first_place[r + 1] - begin, np.int64), np.empty(n, np.int64)
    plus, at = np.empty((n, S)), soft.first_stat[r]
    while True:
        wanted = False
        for b in range(n):
            wanted |= change[index[soft.bit_place[r, d, b]]] != 0.0
        if wanted and not (layout.symmetric[r] and index[0] > index[1]):
            for c in range(block_gains(layout, soft, r, d, index, cluster, plus)):
                for t in range(S):
                    soft.s[at + t] += change[cluster[c]] * plus[c, t]
        at += S
        if not next_index(layout, soft, r, -1, 0, True, index):
            break


@inner
def update_soft(
    layout: Layout,
    soft: Soft,
    gains: Gains,
    d: int,
    i: int,
    log_stick: Floats,
    slope: Floats,
    score: Floats,
) -> tuple[float, float]:
    """Update the memberships of one object; return its log normaliser and entropy."""
    K, first = soft.n_clusters[d], soft.first_q[d] + i * soft.n_clusters[d]
    q_i = soft.q[first : first + K]
    old = q_i.copy()
    remove_members(soft.m[d, :K], q_i)
    if slope.size > 0:
        score[:K] = log_stick[d, :K]
    else:
        stick_log_prior(soft.m[d, :K], soft.alpha[d], score[:K])
    for r in range(layout.filled.size):
        if layout.incidence[r, d] < 0:
            continue
        if layout.filled[r]:
            change_totals(layout, soft, r, d, i, -1.0)
        gather_groups(layout, soft, r, d, i)
        add_scores(layout, soft, gains[r], r, d, old, slope, score)
    result = normalise(score[:K], q_i)
    change = q_i - old
    for r in range(layout.filled.size):
        if layout.incidence[r, d] < 0:
            continue
        if change.any():
            apply_change(layout, soft, r, d, change)
        if layout.filled[r]:
            change_totals(layout, soft, r, d, i, 1.0)
    soft.m[d, :K] += q_i
    return result


@kernel
def sweep_soft(
    layout: Layout,
    soft: Soft,
    gains: Gains,
    domains: Indices,
    objects: Indices,
    log_stick: Floats,
    slope: Floats,
) -> tuple[float, float]:
    """Update objects one after another; return the sums of log normalisers and entropies.

    ``slope`` has the derivatives of f for VB, whose prior is ``log_stick``; CVB0 has none.
    """
    score, total, entropy = np.empty(soft.m.shape[1]), 0.0, 0.0
    for t in range(objects.size):
        found = update_soft(layout, soft, gains, domains[t], objects[t], log_stick, slope, score)
        total += found[0]
        entropy += found[1]
    return total, entropy
