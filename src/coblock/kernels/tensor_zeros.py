"""Gains of an object without stored cells, which are the same for all members of a cluster.

They are sums over the blocks of a cluster: as if nothing were stored, and what the stored blocks
change (RELATIONS 17).
"""

from typing import NamedTuple

import numpy as np

from coblock.kernels import Floats, Gain, Gains, Indices, Offsets, inner, kernel
from coblock.kernels.tensor_classes import (
    Classes,
    add_stored_gains,
    empty_gain,
    find_classes,
    list_tuples,
)
from coblock.kernels.tensors import Flags, Layout, State, list_members, stored_blocks


class ZeroGains(NamedTuple):
    """Gains of an object without cells, by class of the cluster, and as the blocks change them."""

    empty: Floats  # (classes,) as if nothing were stored
    own: Floats  # (classes,) the same for a member that leaves the cluster and comes back
    cross: Floats  # (classes, classes) more, if it leaves a cluster of the second class before
    stored: Floats  # (capacity,) more, by what the blocks of a cluster hold


@inner
def empty_parts(
    layout: Layout,
    state: State,
    gains: Gains,
    classes: Classes,
    d: int,
    allowed: Flags,
    exact: bool,
    stored: Floats,
) -> ZeroGains:
    """Return the gains of an object without cells: as if nothing were stored, and ``stored``."""
    C = classes.number[d]
    zeros = ZeroGains(np.zeros(C), np.zeros(C), np.zeros((C, C)), stored)
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
    return zeros


@inner
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
            table = (blocks, np.empty((0, 0)), weight, less, allowed, sign, stored)
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


@inner
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
        table = (blocks, np.empty((0, 0)), weight, c, single, 1.0, score)
        add_stored_gains(layout, state, gain, r, d, *table)
        single[k] = False


@inner
def members_of(layout: Layout, state: State, d: int, k: int, c: int) -> Indices:
    """Return the objects of two clusters of domain ``d``."""
    begin, end = layout.first_object[d], layout.first_object[d + 1]
    found, count = np.empty(end - begin, np.int32), 0
    for i in range(begin, end):
        if state.label[i] == k or state.label[i] == c:
            found[count] = i - begin
            count += 1
    return found[:count]


@inner
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
    stored, classes = np.zeros(state.m.shape[1]), find_classes(layout, state)
    zeros = empty_parts(layout, state, gains, classes, d, allowed, True, stored)
    start, member = list_members(layout, state, d)
    single = np.zeros(state.m.shape[1], np.bool_)
    for k in range(state.n_clusters[d]):
        if allowed[k]:
            single[k] = True
            members = member[start[k] : start[k + 1]]
            add_stored_part(layout, state, gains, d, members, -1, single, 1.0, stored)
            single[k] = False
    return classes, zeros


@kernel
def batch_zeros(
    layout: Layout, state: State, gains: Gains, d: int, allowed: Flags
) -> tuple[Floats, Floats]:
    """Return the gains of zeros as if nothing were stored: of a new object, and of a member."""
    stored, classes = np.zeros(state.m.shape[1]), find_classes(layout, state)
    zeros = empty_parts(layout, state, gains, classes, d, allowed, False, stored)
    return zeros.empty[classes.label[d]], zeros.own[classes.label[d]]
