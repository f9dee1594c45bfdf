"""Splits and merges of whole clusters that keep the posterior exact (Dahl 2003).

Two objects are drawn. If they share a cluster, a split is proposed: the two start clusters of
their own, and the other members join one of them, one after another, by its predictive
probability. Otherwise a merge of their two clusters is proposed; the probability of the reverse
split is that of the present clusters under the same allocation. The ratio of the evidences
(MODEL 10) and of the proposals decides.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from coblock.kernels import DomainView, Floats, Indices, Offsets, inlined, inner, kernel
from coblock.kernels.gather import gather, links_of, unseen_of
from coblock.kernels.gibbs import RisingTables, tabulated_value


@inner
def cells_by_cluster(domain: DomainView, other: DomainView, i: int, cells: Floats) -> None:
    """Write links (0) and observed non-links (1) of object ``i`` by cluster at the other end."""
    incidence = domain.incidence[0]
    cells[:] = 0.0
    gather(links_of(incidence, i), other.q, other.hard, cells[0])
    gather(unseen_of(incidence, i), other.q, other.hard, cells[1])
    for l in range(other.m.size):
        cells[1, l] = other.m[l] - cells[1, l] - cells[0, l]


@inlined
def cluster_value(rising: RisingTables, counts: Offsets, more: Floats) -> float:
    """Return the log marginal of the blocks of one cluster with some more cells."""
    total = 0.0
    for l in range(counts.shape[1]):
        n, N = counts[0, l] + int(more[0, l]), counts[1, l] + int(more[1, l])
        total += tabulated_value(rising, n, N)
    return total


class Parts(NamedTuple):
    """The two clusters that a pair of objects starts, and who joins which."""

    counts: Offsets  # (2, 2, L)  links and non-links of each
    members: Floats  # (2,)
    value: Floats  # (2,)  log marginals of their blocks
    side: NDArray[np.int8]  # (objects,)  part of each object
    cells: Floats  # (2, L)  those of the object that joins


@inner
def join(parts: Parts, i: int, s: int, value: float) -> None:
    """Add object ``i``, whose cells are gathered, to a part, which has this value then."""
    for c in range(2):
        for l in range(parts.cells.shape[1]):
            parts.counts[s, c, l] += int(parts.cells[c, l])
    parts.members[s] += 1.0
    parts.value[s] = value
    parts.side[i] = s


@inner
def allocate(
    domain: DomainView,
    other: DomainView,
    rising: RisingTables,
    ends: Indices,
    order: Indices,
    uniform: Floats,
    parts: Parts,
) -> float:
    """Let the members of the clusters of a pair join its parts; return the log probability.

    They are drawn if the pair shares a cluster, and are those of its two clusters otherwise.
    """
    one, two, log_q = domain.hard[ends[0]], domain.hard[ends[1]], 0.0
    parts.counts[:], parts.members[:] = 0, 0.0
    for s in range(2):
        i = ends[s]
        cells_by_cluster(domain, other, i, parts.cells)
        join(parts, i, s, cluster_value(rising, parts.counts[s], parts.cells))
    for t in range(order.size):
        i = order[t]
        label = domain.hard[i]
        if label not in (one, two) or i in (ends[0], ends[1]):
            continue
        cells_by_cluster(domain, other, i, parts.cells)
        first = cluster_value(rising, parts.counts[0], parts.cells)
        second = cluster_value(rising, parts.counts[1], parts.cells)
        odds = math.log(parts.members[1] / parts.members[0])
        odds += second - parts.value[1] - (first - parts.value[0])
        chosen = uniform[i] < math.exp(-softplus(odds)) if one == two else label == one
        log_q -= softplus(odds if chosen else -odds)
        join(parts, i, 0 if chosen else 1, first if chosen else second)
    return log_q


@kernel
def split_or_merge(
    domain: DomainView,
    other: DomainView,
    rising: RisingTables,
    pairs: Indices,
    orders: Indices,
    uniform: Floats,
    open_clusters: bool,
    start: int,
) -> tuple[int, int]:
    """Propose a split or a merge for each pair from ``start`` on, and accept it or not.

    The two places have different domains. ``orders`` are permutations of all objects; ``uniform``
    has a random number for each object and one that accepts the proposal. Labels and sizes of
    ``domain`` are updated. Returns the next pair, which needs an empty cluster if it is not the
    last, and how many proposals were accepted.
    """
    L, size, accepted = other.m.size, domain.hard.size, 0
    counts, cells = np.empty((2, 2, L), dtype=np.int64), np.empty((2, L))
    parts = Parts(counts, np.empty(2), np.empty(2), np.empty(size, dtype=np.int8), cells)
    members = parts.members
    for t in range(start, len(pairs)):
        one, two = domain.hard[pairs[t, 0]], domain.hard[pairs[t, 1]]
        split, empty = one == two, int(np.argmin(domain.m))
        if split and domain.m[empty] > 0.0:
            if open_clusters:
                return t, accepted
            continue
        log_q = allocate(domain, other, rising, pairs[t], orders[t], uniform[t], parts)
        gain = parts.value.sum() + math.log(domain.alpha)
        gain -= cluster_value(rising, counts[0], counts[1].astype(np.float64))
        gain += math.lgamma(members[0]) + math.lgamma(members[1]) - math.lgamma(members.sum())
        log_ratio = gain - log_q if split else log_q - gain
        if uniform[t, size] >= math.exp(min(log_ratio, 0.0)):
            continue
        accepted += 1
        fresh, left = (empty, 0) if split else (one, 1)
        for i in range(size):
            if domain.hard[i] == two and parts.side[i] == left:
                domain.hard[i] = fresh
        domain.m[fresh] = members[0] if split else members.sum()
        domain.m[two] = members[1] if split else 0.0
    return len(pairs), accepted


@inlined
def softplus(x: float) -> float:
    """Return ln(1 + e**x)."""
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))
