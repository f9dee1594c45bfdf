"""Batches of a domain whose cells are divided into shares of consecutive objects.

The blocks of a cluster are listed by each share and put together in the order of the objects. So
sums over them have the bits of a domain that is not divided (``tensor_zeros``, RELATIONS 17).
"""

import numpy as np

from coblock.kernels import Floats, Gains, Indices, Offsets, inner, kernel
from coblock.kernels.tensor_classes import add_stored_gains
from coblock.kernels.tensors import (
    Layout,
    State,
    add_to_block,
    empty_table,
    find_slot,
    stored_blocks,
)


@kernel
def set_sums(layout: Layout, state: State, r: int, blocks: Offsets, sums: Floats) -> None:
    """Write the sums of blocks of a relation, one block after another, into an empty table."""
    S = layout.n_stats[r]
    for t in range(blocks.size):
        add_to_block(layout, state, r, blocks[t], sums, t * S, 1.0)


@kernel
def list_blocks(
    layout: Layout, state: State, r: int, d: int, start: Offsets, member: Indices
) -> tuple[Offsets, Offsets]:
    """Return the blocks that hold cells of the members of each cluster, compressed by cluster."""
    row, most = layout.incidence[r, d], 0
    for i in member:
        most += layout.start[row + i + 1] - layout.start[row + i]
    found, first = np.empty(most, np.int64), np.zeros(start.size, np.int64)
    for k in range(start.size - 1):
        blocks = stored_blocks(layout, state, r, d, member[start[k] : start[k + 1]])
        first[k + 1] = first[k] + blocks.size
        found[first[k] : first[k + 1]] = blocks
    return first, found[: first[-1]].copy()


@inner
def first_of_each(listed: Offsets, first: Offsets, at: int) -> Offsets:
    """Return the blocks that shares list for a cluster, in their order, each once."""
    most, count = 0, 0
    for s in range(first.shape[0]):
        most += first[s, at + 1] - first[s, at]
    keys, blocks = empty_table(most), np.empty(most, np.int64)
    for s in range(first.shape[0]):
        for t in range(first[s, at], first[s, at + 1]):
            slot = find_slot(keys, listed[t])
            if keys[slot] < 0:
                keys[slot] = blocks[count] = listed[t]
                count += 1
    return blocks[:count]


@kernel
def add_listed_gains(
    layout: Layout,
    state: State,
    gains: Gains,
    r: int,
    d: int,
    clusters: Indices,
    listed: Offsets,
    first: Offsets,
    stored: Floats,
    own: Floats,
) -> None:
    """Add what the blocks of clusters change for an object: a new one, and a member.

    ``first`` (shares, clusters + 1) is where the blocks of a cluster begin in the list of a share.
    """
    weight = np.ones(layout.first_place[r + 1] - layout.first_place[r])
    single, nothing = np.zeros(state.m.shape[1], np.bool_), np.empty((0, 0))
    for at in range(clusters.size):
        k = clusters[at]
        single[k] = True
        table = (first_of_each(listed, first, at), nothing, weight)
        add_stored_gains(layout, state, gains[r], r, d, *table, -1, single, 1.0, stored)
        add_stored_gains(layout, state, gains[r], r, d, *table, k, single, 1.0, own)
        single[k] = False
