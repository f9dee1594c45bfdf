"""Labels of many objects at the same counts: all clusters are screened, few scored (MODEL 15).

The score of a cluster is a sum over the object's links and a part without links, since the cells
of a block do not depend on the links. Tables hold the gain of a first link and of each further
one, so all clusters are valued by additions. The best of them are then scored exactly. Two
domains only: in one domain an object changes the counts at both ends of its cells.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from coblock.kernels import BlockTables, DomainView, Floats, Indices, inlined, inner, kernel
from coblock.kernels.bernoulli import log_beta_gain
from coblock.kernels.gather import links_of, unseen_of
from coblock.kernels.memberships import NEGLIGIBLE
from coblock.kernels.score import (
    SMALLEST_COUNT,
    ScoreTables,
    empty_tables,
    fill_tables,
    sum_tables,
)
from coblock.kernels.special import exp, log, log_rising_difference, unrolled_max

CANDIDATES = 4  # clusters that are scored exactly, beside the present one
ROUNDING, NATS_PER_LINK = 0.1, 0.5  # errors of screened scores, for links beyond a second one
FEW_LINKS = 16  # so many are valued by one logarithm

Singles = NDArray[np.float32]


class ScreenTables(NamedTuple):
    """Gains of cells, rounded and linear in the number of cells; K is padded as in ``exact``."""

    exact: ScoreTables
    first_link: Singles  # (P, L, K)  of one link instead of a non-link
    more_links: Singles  # (P, L, K)  of each further link
    unseen: Singles  # (P, L, K)  of an unseen cell instead of a non-link; empty if there are none
    base: Singles  # (K,)  log size and gain without links; minus infinity for an empty cluster


class ObjectCells(NamedTuple):
    """Cells of one object by cluster at the other end, and scores of its clusters."""

    n: Floats  # (L,)  links
    hidden: Floats  # (L,)  unseen cells
    touched: Indices  # (L,)  clusters with either of them,
    touches: Indices  # (1,)  so many
    screened: Singles  # (K,)  rounded scores
    log_weight: Floats  # (K,)  scores


@kernel
def empty_screen(domain: DomainView, blocks: BlockTables) -> ScreenTables:
    """Return tables of a domain, to be filled."""
    exact = empty_tables(domain, blocks)
    P, L, K = exact.no_link.shape
    first, more = np.empty((2, P, L, K), dtype=np.float32)
    unseen = np.empty((P, L, K if domain.incidence[0].unseen.size > 0 else 0), dtype=np.float32)
    return ScreenTables(exact, first, more, unseen, np.empty(K, dtype=np.float32))


@kernel
def fill_screen(
    domain: DomainView,
    blocks: BlockTables,
    m_other: Floats,
    tables: ScreenTables,
    start: int,
    stop: int,
) -> None:
    """Write the tables at these counts, for some of the clusters at the other end."""
    fill_tables(domain, blocks, m_other, tables.exact, start, stop)
    counts = tables.exact.counts
    for p in range(counts.shape[1]):
        for l in range(start, stop):
            gains = (tables.first_link[p, l], tables.more_links[p, l], tables.unseen[p, l])
            write_gains(counts[0, p, l], counts[1, p, l], m_other[l], *gains)


@kernel
def add_bases(domain: DomainView, tables: ScreenTables) -> None:
    """Add up the gains without links of filled tables."""
    sum_tables(tables.exact)
    tables.base[:] = -np.inf
    for k in range(domain.m.size):
        if domain.m[k] > 0.0:
            tables.base[k] = log(domain.m[k]) + tables.exact.base[k]


@inner
def write_gains(
    n: Floats, N: Floats, m: float, first: Singles, more: Singles, unseen: Singles
) -> None:
    """Write the gains of cells of an object that has ``m`` cells in each of these blocks."""
    for k in range(n.size):
        first[k] = log(n[k] / (N[k] + max(m - 1.0, 0.0)))
        more[k] = log((n[k] + 1.0) / (N[k] + max(m - 2.0, 0.0)))
    for k in range(unseen.size):
        unseen[k] = log(1.0 + n[k] / (N[k] + max(m - 1.0, 0.0)))


@kernel
def object_cells(tables: ScreenTables) -> ObjectCells:
    """Return the arrays that scoring one object needs."""
    _, L, K = tables.first_link.shape
    cells, touched = np.zeros((2, L)), np.empty(L, dtype=np.int32)
    count, screened = np.zeros(1, dtype=np.int32), np.empty(K, dtype=np.float32)
    return ObjectCells(cells[0], cells[1], touched, count, screened, np.empty(K))


@inlined
def gather_cells(domain: DomainView, label_other: Indices, i: int, cells: ObjectCells) -> None:
    """Count the cells of object ``i`` by cluster; those of the last object are forgotten.

    Most of the time of a sweep would go into tuples of arrays, if each link passed them on.
    """
    n, hidden, touched, count = cells.n, cells.hidden, cells.touched, cells.touches[0]
    for t in range(count):
        n[touched[t]] = 0.0
        hidden[touched[t]] = 0.0
    count = 0
    for j in links_of(domain.incidence[0], i):
        l = label_other[j]
        if n[l] == 0.0:
            touched[count] = l
            count += 1
        n[l] += 1.0
    for j in unseen_of(domain.incidence[0], i):
        l = label_other[j]
        if n[l] == 0.0 and hidden[l] == 0.0:
            touched[count] = l
            count += 1
        hidden[l] += 1.0
    cells.touches[0] = count


@inlined
def screen(tables: ScreenTables, cells: ObjectCells) -> float:
    """Write rounded scores of all clusters; return how far they may be from the exact ones.

    Arrays are copied in loops: with an assignment that may raise, Numba counts the references to
    all arrays once more for each object.
    """
    first, more, unseen = tables.first_link[0], tables.more_links[0], tables.unseen[0]
    out, error = cells.screened, ROUNDING
    for k in range(out.size):
        out[k] = tables.base[k]
    for t in range(cells.touches[0]):
        l = cells.touched[t]
        links = cells.n[l]
        if links == 1.0:
            for k in range(out.size):
                out[k] += first[l, k]
        elif links > 1.0:
            further = np.float32(links - 1.0)
            error += NATS_PER_LINK * (links - 2.0)
            for k in range(out.size):
                out[k] += first[l, k] + further * more[l, k]
        if cells.hidden[l] > 0.0:
            error, hidden = np.inf, np.float32(cells.hidden[l])
            for k in range(unseen.shape[1]):
                out[k] += hidden * unseen[l, k]
    return error


@inlined
def link_gain(n: float, N: float, links: float) -> float:
    """Return the log ratio of the rising factorials of ``links`` factors from n and from N."""
    if links > FEW_LINKS:
        return log_rising_difference(n, N, links)
    upper, lower = 1.0, 1.0
    for step in range(int(links)):
        upper *= n + step
        lower *= N + step
    return log(upper / lower)


@inner
def candidate_gain(tables: ScoreTables, m_other: Floats, cells: ObjectCells, k: int) -> float:
    """Return the gain of cluster ``k`` over ``tables.base``, for an object with another label."""
    total, present, absent = 0.0, tables.counts[0, 0], tables.counts[1, 0]
    for t in range(cells.touches[0]):
        l = cells.touched[t]
        n, N, m = present[l, k], absent[l, k], m_other[l]
        links, hidden = cells.n[l], cells.hidden[l]
        if hidden == 0.0:
            total += link_gain(n, N + m - links, links)
        else:
            total += log_beta_gain(n, N, links, m - hidden - links) - tables.no_link[0, l, k]
    return total


@inner
def member_gain(tables: ScoreTables, m_other: Floats, cells: ObjectCells, label: int) -> float:
    """Return the gain of its own cluster over ``tables.member_base``, the object left out."""
    total, present, absent = 0.0, tables.counts[0, 0], tables.counts[1, 0]
    for t in range(cells.touches[0]):
        l = cells.touched[t]
        n, N, m = present[l, label], absent[l, label], m_other[l]
        links, hidden = cells.n[l], cells.hidden[l]
        rest = max(n - links, SMALLEST_COUNT)
        if hidden == 0.0 and N - m > SMALLEST_COUNT:
            total += link_gain(rest, N - m, links)
            continue
        N_plus = m - hidden - links
        gain = log_beta_gain(rest, max(N - N_plus, SMALLEST_COUNT), links, N_plus)
        total += gain - tables.member_no_link[0, l, label]
    return total


@inlined
def best_candidates(screened: Singles, clusters: int, found: Indices) -> int:
    """Write the clusters with the largest screened scores; return how many are not empty."""
    count = 0
    for k in range(clusters):
        if count == found.size and not screened[k] > screened[found[count - 1]]:
            continue
        if screened[k] == -np.inf:
            continue
        count = min(count + 1, found.size)
        at = count - 1
        while at > 0 and screened[k] > screened[found[at - 1]]:
            found[at] = found[at - 1]
            at -= 1
        found[at] = k
    return count


@kernel
def score_clusters(
    domain: DomainView,
    other: DomainView,
    tables: ScreenTables,
    i: int,
    cells: ObjectCells,
    candidates: Indices,
    only_best: bool,
) -> int:
    """Write scores of all clusters for object ``i``; return the best of those that are exact.

    The present cluster and the candidates are scored exactly. If ``only_best`` matters, those
    that are not near the best score are left out.
    """
    label, exact = domain.hard[i], tables.exact
    gather_cells(domain, other.hard, i, cells)
    error = screen(tables, cells)
    cells.screened[label] = -np.inf
    count = best_candidates(cells.screened, domain.m.size, candidates)
    log_weight = cells.log_weight
    for k in range(log_weight.size):
        log_weight[k] = cells.screened[k]
    rest = domain.m[label] - 1.0
    log_weight[label] = log(rest) if rest > 0.0 else math.log(domain.alpha)
    log_weight[label] += exact.member_base[label]
    log_weight[label] += member_gain(exact, other.m, cells, label)
    best = label
    for t in range(count):
        k = candidates[t]
        if only_best and cells.screened[k] + error < log_weight[best]:
            break
        gain = candidate_gain(exact, other.m, cells, k)
        log_weight[k] = log(domain.m[k]) + exact.base[k] + gain
        if log_weight[k] > log_weight[best]:
            best = k
    return best


@kernel
def label_batch(
    domain: DomainView,
    other: DomainView,
    tables: ScreenTables,
    objects: Indices,
    uniform: Floats,
    fresh: Indices,
    log_normaliser: Floats,
    probability: Floats,
) -> None:
    """Write new labels of ``objects`` into ``fresh``; all are scored against the same counts.

    eq:IRM_2dom_Gibbs_z_1i_posterior. Labels are drawn by ``uniform``, or the best ones if it is
    empty. The probabilities of all clusters are added to ``probability`` unless it is empty. The
    weights are those of exact scores for the candidates and of screened ones for the others, and
    0 below ``NEGLIGIBLE`` of the largest. No cluster is opened: all objects of the batch that
    choose a new one would share it.
    """
    cells, candidates = object_cells(tables), np.empty(CANDIDATES, dtype=np.int32)
    K, chance = domain.m.size, np.empty(domain.m.size)
    least, only_best = math.log(NEGLIGIBLE), uniform.size == 0 and probability.shape[0] == 0
    for t in range(objects.size):
        best = score_clusters(domain, other, tables, objects[t], cells, candidates, only_best)
        top, total = unrolled_max(cells.log_weight), 0.0
        for k in range(K):
            chance[k] = 0.0
            if cells.log_weight[k] > top + least:
                chance[k] = exp(cells.log_weight[k] - top)
                total += chance[k]
        fresh[t], log_normaliser[t] = best, top + log(total)
        if probability.shape[0] > 0:
            for k in range(K):
                probability[t, k] += chance[k] / total
        if uniform.size > 0:
            left = uniform[t] * total
            for k in range(K):
                if chance[k] > 0.0:
                    fresh[t] = k
                    left -= chance[k]
                    if left < 0.0:
                        break
