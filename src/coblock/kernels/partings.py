"""Parting the members of a cluster in two, valued by exact evidence (MODEL 10).

Time and memory are linear in the members' links and unseen cells, not in members times blocks.
"""

import math
from typing import NamedTuple

import numpy as np

from coblock.kernels import Domain, Floats, Indices, Offsets, kernel
from coblock.kernels.special import log_beta_values
from coblock.kernels.strands import total_of

LEAST_RISE = 1e-9  # of the gain, for another pass


class Profiles(NamedTuple):
    """In which blocks the links, and the unseen cells, of members are: one after another.

    Blocks are numbered by the cluster of the other end, those of a second place after those of
    the first.
    """

    link_start: Offsets  # (members + 1,)
    link: Indices
    unseen_start: Offsets  # (members + 1,)
    unseen: Indices


class Sides(NamedTuple):
    """What is counted of the sides of a parting."""

    n: Floats  # (sides, blocks)  links
    N: Floats  # (sides, blocks)  observed non-links
    m: Floats  # (sides,)  members


@kernel
def no_sides(sides: int, blocks: int) -> Sides:
    """Return empty sides."""
    return Sides(np.zeros((sides, blocks)), np.zeros((sides, blocks)), np.zeros(sides))


@kernel
def profiles(domain: Domain, members: Indices, label_other: Indices, clusters: int) -> Profiles:
    """Return the profiles of members, where the others are in so many clusters."""
    link_start = np.zeros(members.size + 1, dtype=np.int64)
    unseen_start = np.zeros(members.size + 1, dtype=np.int64)
    for t in range(members.size):
        i, links, cells = members[t], link_start[t], unseen_start[t]
        for p in range(len(domain.places)):
            place = domain.places[p]
            links += place.link_start[i + 1] - place.link_start[i]
            cells += place.unseen_start[i + 1] - place.unseen_start[i]
        link_start[t + 1], unseen_start[t + 1] = links, cells
    link = np.empty(link_start[-1], dtype=np.int32)
    unseen = np.empty(unseen_start[-1], dtype=np.int32)
    links, cells = 0, 0
    for i in members:
        for p in range(len(domain.places)):
            place, first = domain.places[p], p * clusters
            for at in range(place.link_start[i], place.link_start[i + 1]):
                link[links] = first + label_other[place.link[at]]
                links += 1
            for at in range(place.unseen_start[i], place.unseen_start[i + 1]):
                unseen[cells] = first + label_other[place.unseen[at]]
                cells += 1
    return Profiles(link_start, link, unseen_start, unseen)


@kernel
def count_sides(
    brought: Profiles, members: np.ndarray, side: np.ndarray, cells: Floats, sides: Sides
) -> None:
    """Count some members anew, by the side of each; ``cells`` is how many of each block one has.

    In one domain ``cells`` leaves one member of the cluster out: nobody is their own neighbour.
    """
    n, N, m = sides
    n[:], N[:], m[:] = 0.0, 0.0, 0.0
    for t in range(members.size):
        i, s = members[t], side[t]
        m[s] += 1.0
        for at in range(brought.link_start[i], brought.link_start[i + 1]):
            n[s, brought.link[at]] += 1.0
        for at in range(brought.unseen_start[i], brought.unseen_start[i + 1]):
            N[s, brought.unseen[at]] -= 1.0
    for s in range(m.size):
        for l in range(cells.size):
            N[s, l] += m[s] * cells[l] - n[s, l]


@kernel
def take_sides(
    brought: Profiles, cells: Floats, sides: Sides, prior: tuple[float, float]
) -> np.ndarray:
    """Return the side (0 or 1) that makes each member's cells more probable, counts held."""
    (a, b), (n, N, m) = prior, sides
    link, nonlink = np.empty(cells.size), np.empty(cells.size)  # what a cell says for side 1
    for l in range(cells.size):
        whole = math.log((a + b + n[0, l] + N[0, l]) / (a + b + n[1, l] + N[1, l]))
        link[l] = math.log((a + n[1, l]) / (a + n[0, l])) + whole
        nonlink[l] = math.log((b + N[1, l]) / (b + N[0, l])) + whole
    alone = math.log((m[1] + 1.0) / (m[0] + 1.0)) + total_of(cells * nonlink)
    link -= nonlink
    side = np.empty(brought.link_start.size - 1, dtype=np.int8)
    for i in range(side.size):
        score = alone
        for at in range(brought.link_start[i], brought.link_start[i + 1]):
            score += link[brought.link[at]]
        for at in range(brought.unseen_start[i], brought.unseen_start[i + 1]):
            score -= nonlink[brought.unseen[at]]
        side[i] = 1 if score > 0.0 else 0
    return side


@kernel
def undivided_values(sides: Sides, prior: tuple[float, float]) -> Floats:
    """Return what the blocks of all sides as one cluster add to the log evidence."""
    n, N, values = sides.n[0].copy(), sides.N[0].copy(), np.empty(sides.n.shape[1])
    for s in range(1, sides.m.size):
        n += sides.n[s]
        N += sides.N[s]
    log_beta_values(n, N, prior[0], prior[1], values)
    return values


@kernel
def parting_gain(sides: Sides, prior: tuple[float, float], undivided: Floats) -> float:
    """Return the gain of two sides over :func:`undivided_values`.

    Without the price of one more cluster; minus infinity where a side is empty.
    """
    n, N, m = sides
    if m[0] == 0.0 or m[1] == 0.0:
        return -np.inf
    sizes = math.lgamma(m[0]) + math.lgamma(m[1]) - math.lgamma(m[0] + m[1])
    one, other = np.empty(undivided.size), np.empty(undivided.size)
    log_beta_values(n[0], N[0], prior[0], prior[1], one)
    log_beta_values(n[1], N[1], prior[0], prior[1], other)
    for l in range(one.size):
        one[l] += other[l] - undivided[l]
    return sizes + total_of(one)


@kernel
def part_in_two(
    brought: Profiles,
    cells: Floats,
    prior: tuple[float, float],
    seeds: np.ndarray,
    undivided: Floats,
    passes: int,
) -> tuple[float, np.ndarray]:
    """Part the members of a cluster around two of them; return the gain and the sides.

    All members take sides at once and the sides are counted anew, until that gains nothing. The
    gain is exact.
    """
    everybody = np.arange(brought.link_start.size - 1)
    sides, best, best_side = no_sides(2, cells.size), -np.inf, np.zeros(everybody.size, np.int8)
    count_sides(brought, seeds, np.arange(2), cells, sides)
    for _ in range(passes):
        side = take_sides(brought, cells, sides, prior)
        count_sides(brought, everybody, side, cells, sides)
        gain = parting_gain(sides, prior, undivided)
        if not gain > best + LEAST_RISE:
            break
        best, best_side = gain, side
    return best, best_side


@kernel
def best_parting(
    brought: Profiles,
    cells: Floats,
    prior: tuple[float, float],
    seeds: np.ndarray,
    passes: int,
) -> tuple[float, np.ndarray]:
    """Return the best of the partings around the pairs of members ``seeds``."""
    size, whole = brought.link_start.size - 1, no_sides(1, cells.size)
    count_sides(brought, np.arange(size), np.zeros(size, np.int8), cells, whole)
    undivided = undivided_values(whole, prior)
    best, best_side = part_in_two(brought, cells, prior, seeds[0], undivided, passes)
    for t in range(1, seeds.shape[0]):
        gain, side = part_in_two(brought, cells, prior, seeds[t], undivided, passes)
        if gain > best:
            best, best_side = gain, side
    return best, best_side
