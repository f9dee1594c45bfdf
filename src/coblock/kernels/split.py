"""Splits of a cluster in two, by exact evidence (MODEL 10, RELATIONS 9).

Time and memory are linear in the members' links and unseen cells.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from coblock.kernels import DomainView, Floats, Indices, Offsets, kernel
from coblock.kernels.bernoulli import block_values
from coblock.kernels.reductions import unrolled_sum

LEAST_GAIN = 1e-9  # nats; a pass that gains less is the last one


class Profiles(NamedTuple):
    """Blocks of the links and of the unseen cells of members, one member after another.

    Blocks are numbered by the cluster at the other end; those of a second place follow.
    """

    link_start: Offsets  # (members + 1,)
    link: Indices
    unseen_start: Offsets  # (members + 1,)
    unseen: Indices


class SideCounts(NamedTuple):
    """Counts of the sides of a split."""

    n: Floats  # (sides, blocks)  links
    N: Floats  # (sides, blocks)  observed non-links
    m: Floats  # (sides,)  members


@kernel
def zero_counts(sides: int, blocks: int) -> SideCounts:
    """Return counts of empty sides."""
    return SideCounts(np.zeros((sides, blocks)), np.zeros((sides, blocks)), np.zeros(sides))


@kernel
def member_profiles(
    domain: DomainView, members: Indices, label_other: Indices, clusters: int
) -> Profiles:
    """Return the profiles of members, given the labels of the objects at the other end."""
    link_start = np.zeros(members.size + 1, dtype=np.int64)
    unseen_start = np.zeros(members.size + 1, dtype=np.int64)
    for t in range(members.size):
        i, links, cells = members[t], link_start[t], unseen_start[t]
        for p in range(len(domain.incidence)):
            incidence = domain.incidence[p]
            links += incidence.link_start[i + 1] - incidence.link_start[i]
            cells += incidence.unseen_start[i + 1] - incidence.unseen_start[i]
        link_start[t + 1], unseen_start[t + 1] = links, cells
    link = np.empty(link_start[-1], dtype=np.int32)
    unseen = np.empty(unseen_start[-1], dtype=np.int32)
    links, cells = 0, 0
    for i in members:
        for p in range(len(domain.incidence)):
            incidence, first = domain.incidence[p], p * clusters
            for at in range(incidence.link_start[i], incidence.link_start[i + 1]):
                link[links] = first + label_other[incidence.link[at]]
                links += 1
            for at in range(incidence.unseen_start[i], incidence.unseen_start[i + 1]):
                unseen[cells] = first + label_other[incidence.unseen[at]]
                cells += 1
    return Profiles(link_start, link, unseen_start, unseen)


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
    n, N, m = counts
    n[:], N[:], m[:] = 0.0, 0.0, 0.0
    for t in range(members.size):
        i, s = members[t], side[t]
        m[s] += 1.0
        for at in range(profiles.link_start[i], profiles.link_start[i + 1]):
            n[s, profiles.link[at]] += 1.0
        for at in range(profiles.unseen_start[i], profiles.unseen_start[i + 1]):
            N[s, profiles.unseen[at]] -= 1.0
    for s in range(m.size):
        for l in range(cells.size):
            N[s, l] += m[s] * cells[l] - n[s, l]


@kernel
def assign_sides(
    profiles: Profiles, cells: Floats, counts: SideCounts, prior: tuple[float, float]
) -> NDArray[np.int8]:
    """Return the side (0 or 1) that makes each member's cells more probable, counts held."""
    (a, b), (n, N, m) = prior, counts
    link, nonlink = np.empty(cells.size), np.empty(cells.size)  # log odds of side 1 for a cell
    for l in range(cells.size):
        whole = math.log((a + b + n[0, l] + N[0, l]) / (a + b + n[1, l] + N[1, l]))
        link[l] = math.log((a + n[1, l]) / (a + n[0, l])) + whole
        nonlink[l] = math.log((b + N[1, l]) / (b + N[0, l])) + whole
    no_link = math.log((m[1] + 1.0) / (m[0] + 1.0)) + unrolled_sum(cells * nonlink)
    link -= nonlink
    side = np.empty(profiles.link_start.size - 1, dtype=np.int8)
    for i in range(side.size):
        score = no_link
        for at in range(profiles.link_start[i], profiles.link_start[i + 1]):
            score += link[profiles.link[at]]
        for at in range(profiles.unseen_start[i], profiles.unseen_start[i + 1]):
            score -= nonlink[profiles.unseen[at]]
        side[i] = 1 if score > 0.0 else 0
    return side


@kernel
def unsplit_values(counts: SideCounts, prior: tuple[float, float]) -> Floats:
    """Return the contributions to the log evidence of the blocks of all sides together."""
    n, N, values = counts.n[0].copy(), counts.N[0].copy(), np.empty(counts.n.shape[1])
    for s in range(1, counts.m.size):
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


@kernel
def split_around(
    profiles: Profiles,
    cells: Floats,
    prior: tuple[float, float],
    seeds: NDArray[np.int64],
    unsplit: Floats,
    passes: int,
) -> tuple[float, NDArray[np.int8]]:
    """Split the members of a cluster around two of them; return the exact gain and the sides.

    All members choose a side, the sides are counted, and so on until a pass gains nothing.
    """
    members = np.arange(profiles.link_start.size - 1)
    counts, best = zero_counts(2, cells.size), -np.inf
    best_side = np.zeros(members.size, np.int8)
    count_sides(profiles, seeds, np.arange(2).astype(np.int8), cells, counts)
    for _ in range(passes):
        side = assign_sides(profiles, cells, counts, prior)
        count_sides(profiles, members, side, cells, counts)
        gain = split_gain(counts, prior, unsplit)
        if not gain > best + LEAST_GAIN:
            break
        best, best_side = gain, side
    return best, best_side


@kernel
def best_split(
    profiles: Profiles,
    cells: Floats,
    prior: tuple[float, float],
    seeds: NDArray[np.int64],
    passes: int,
) -> tuple[float, NDArray[np.int8]]:
    """Return gain and sides of the best split around the pairs of members ``seeds``."""
    size, whole = profiles.link_start.size - 1, zero_counts(1, cells.size)
    count_sides(profiles, np.arange(size), np.zeros(size, np.int8), cells, whole)
    unsplit = unsplit_values(whole, prior)
    best, best_side = split_around(profiles, cells, prior, seeds[0], unsplit, passes)
    for t in range(1, seeds.shape[0]):
        gain, side = split_around(profiles, cells, prior, seeds[t], unsplit, passes)
        if gain > best:
            best, best_side = gain, side
    return best, best_side
