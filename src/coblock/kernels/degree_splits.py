"""Splits of degree-corrected clusters by singular vectors of their members (DEGREES D5)."""

import math
from typing import NamedTuple

import numpy as np

from coblock.kernels import Floats, Indices, Offsets, inner, kernel
from coblock.kernels.degrees import (
    DegreeCells,
    DegreeTables,
    fill_values,
    gather_counts,
    merger_gain,
    object_counts,
    shift_object,
    sweep_objects,
)

ITERATIONS = 20  # of the power method
TINY = 1e-300  # avoids divisions by 0


class MemberLinks(NamedTuple):
    """Counts of the members of a cluster, compressed by member.

    For each place there is a column for each object at the other end, and one for each cluster.
    """

    start: Offsets  # (members + 1,)
    column: Indices
    value: Floats  # divided by the roots of both degrees
    columns: int
    expected: Floats  # (places, members)  orthonormal vectors that contain those of one block


@inner
def member_links(
    cells: DegreeCells, members: Indices, position: Indices, label_other: Indices, L: int
) -> MemberLinks:
    """Return the normalised counts of the members with objects and with clusters.

    ``position`` is the column of an object at the other end, and -1 for objects that have none:
    with repeated places only members have one. In one block the counts of a place have rank one,
    and their left vector follows from the degrees.
    """
    P, size, wide = len(cells.incidence), 0, position.max() + 1 + L
    for i in members:
        for place in cells.incidence:
            size += 2 * (place.link_start[i + 1] - place.link_start[i])
    start, column = np.zeros(members.size + 1, np.int64), np.empty(size, np.int32)
    value, row, across, at = np.empty(size), np.zeros((P, members.size)), np.zeros(P * wide), 0
    for s in range(members.size):
        i = members[s]
        for p in range(P):
            place, counts = cells.incidence[p], cells.counts[p]
            for t in range(place.link_start[i], place.link_start[i + 1]):
                j = place.link[t]
                for c in (np.int64(position[j]), np.int64(wide - L + label_other[j])):
                    if c >= 0:
                        column[at], value[at] = p * wide + c, counts[t]
                        row[p, s] += counts[t]
                        across[p * wide + c] += counts[t]
                        at += 1
        start[s + 1] = at
    across += across.sum() / max((across > 0.0).sum(), 1) + TINY
    for p in range(P):
        more = row[p].mean() + TINY
        for s in range(members.size):
            for t in range(start[s], start[s + 1]):
                if column[t] // wide == p:
                    value[t] /= math.sqrt((row[p, s] + more) * across[column[t]])
        row[p] /= np.sqrt(row[p] + more)
        for q in range(p):
            row[p] -= (row[p] * row[q]).sum() * row[q]
        row[p] /= math.sqrt((row[p] * row[p]).sum() + TINY)
    return MemberLinks(start, column[:at], value[:at], P * wide, row)


@inner
def multiply_both_ways(links: MemberLinks, x: Floats, out: Floats) -> None:
    """Write the product of the counts, their transpose and a vector over members."""
    across = np.zeros(links.columns)
    for s in range(x.size):
        for t in range(links.start[s], links.start[s + 1]):
            across[links.column[t]] += links.value[t] * x[s]
    for s in range(x.size):
        total = 0.0
        for t in range(links.start[s], links.start[s + 1]):
            total += links.value[t] * across[links.column[t]]
        out[s] = total


@inner
def dividing_vector(links: MemberLinks) -> Floats:
    """Return the first left singular vector beyond those of one block, by the power method."""
    size = links.start.size - 1
    vector, out = np.empty(size), np.empty(size)
    for s in range(size):  # any fixed vector that is not smooth
        vector[s] = (s * 0.6180339887498949) % 1.0 - 0.5
    for _ in range(ITERATIONS):
        multiply_both_ways(links, vector, out)
        for p in range(links.expected.shape[0]):
            out -= (out * links.expected[p]).sum() * links.expected[p]
        vector[:] = out / math.sqrt((out * out).sum() + TINY)
    return vector


@kernel
def split_cluster(
    t: DegreeTables,
    cells: DegreeCells,
    label: Indices,
    label_other: Indices,
    position: Indices,
    members: Indices,
    new: int,
    alpha: float,
    sweeps: int,
    least: float,
) -> bool:
    """Split a cluster into itself and the empty cluster ``new`` if the evidence rises so.

    Members are divided by the sign of their singular vector, and choose between both
    parts in ``sweeps`` passes. If the evidence does not rise, all of them return.
    """
    k = label[members[0]]
    vector = dividing_vector(member_links(cells, members, position, label_other, t.m_other.size))
    found = object_counts(len(cells.incidence), t.m_other.size)
    for s in range(members.size):
        if vector[s] > 0.0:
            gather_counts(cells, label_other, members[s], found)
            shift_object(t, cells, members[s], found, k, -1.0)
            label[members[s]] = new
            shift_object(t, cells, members[s], found, new, 1.0)
    which, best, nothing = np.array([k, new], dtype=np.int32), np.empty(0), np.empty((0, 0))
    for _ in range(sweeps):
        before = label[members].copy()
        args = (label, label_other, members, which, alpha, True, best, nothing)
        sweep_objects(t, cells, *args)
        if (label[members] == before).all():
            break
    if t.m[k] > 0.0 and t.m[new] > 0.0:
        value = np.empty_like(t.n)
        fill_values(t, value)
        if -merger_gain(t, value, alpha, k, new) > least:
            return True
    for s in range(members.size):
        if label[members[s]] == new:
            gather_counts(cells, label_other, members[s], found)
            shift_object(t, cells, members[s], found, new, -1.0)
            label[members[s]] = k
            shift_object(t, cells, members[s], found, k, 1.0)
    return False
