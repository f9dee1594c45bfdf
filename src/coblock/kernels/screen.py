"""Labels of many objects at the same counts: all clusters are screened, few scored (MODEL 15).

The score of a cluster is a sum over the object's links and a part without links, since the cells
of a block do not depend on the links. Tables hold the gains of a first and of a second link, and
further ones count as the one in their middle. The best clusters are then scored exactly.

With repeated places an object also stands at the other end of cells. The tables contain it there;
exact scores leave it out (RELATIONS 6). The block of a cluster with itself gains the cells of both
places of a directed relation together (RELATIONS 7).
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from coblock.kernels import BlockTables, DomainView, Floats, Indices, inlined, inner, kernel
from coblock.kernels.bernoulli import log_beta_gain, no_link_gain
from coblock.kernels.gather import links_of, own_cell, unseen_of
from coblock.kernels.memberships import NEGLIGIBLE
from coblock.kernels.score import (
    SMALLEST_COUNT,
    ScoreTables,
    empty_tables,
    fill_tables,
    is_joint,
    sum_tables,
)
from coblock.kernels.special import exp, log, log_rising_difference, unrolled_max

CANDIDATES = 4  # clusters that are scored exactly, beside the present one
ROUNDING, NATS_PER_LINK = 0.1, 0.5  # errors of screened scores, for links beyond a second one
NATS_REPEATED = 1.0  # the same with repeated places: tables contain the object at the other end
FEW_LINKS = 16  # so many are valued by one logarithm

Singles = NDArray[np.float32]


class ScreenTables(NamedTuple):
    """Gains of cells, rounded and linear in the number of cells; K is padded as in ``exact``."""

    exact: ScoreTables
    first_link: Singles  # (P, L, K)  of one link instead of a non-link
    second_link: Singles  # (P, L, K)  of a second one
    unseen: Singles  # (P, L, K)  of an unseen cell instead of a non-link; empty if there are none
    base: Singles  # (K,)  log size and gain without links; minus infinity for an empty cluster


class ObjectCells(NamedTuple):
    """Cells of one object by place and cluster at the other end, and scores of its clusters."""

    n: Floats  # (P, L)  links
    hidden: Floats  # (P, L)  unseen cells
    touched: Indices  # (P, L)  clusters with either of them,
    touches: Indices  # (P,)  so many
    own: Floats  # (2,)  link and observed non-link with itself
    screened: Singles  # (K,)  rounded scores
    log_weight: Floats  # (K,)  scores


@kernel
def empty_screen(domain: DomainView, blocks: BlockTables) -> ScreenTables:
    """Return tables of a domain, to be filled."""
    exact = empty_tables(domain, blocks)
    P, L, K = exact.no_link.shape
    first, second = np.empty((2, P, L, K), dtype=np.float32)
    unseen = np.empty((P, L, K if domain.incidence[0].unseen.size > 0 else 0), dtype=np.float32)
    return ScreenTables(exact, first, second, unseen, np.empty(K, dtype=np.float32))


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
            gains = (tables.first_link[p, l], tables.second_link[p, l], tables.unseen[p, l])
            write_gains(counts[0, p, l], counts[1, p, l], m_other[l], *gains)


@kernel
def add_bases(domain: DomainView, tables: ScreenTables) -> None:
    """Add up the gains without links of filled tables."""
    sum_tables(tables.exact)
    tables.base[:] = -np.inf
    for k in range(domain.m.size):
        if domain.m[k] > 0.0:
            tables.base[k] = log(domain.m[k]) + tables.exact.base[k]
            if is_joint(domain):
                n, N = tables.exact.counts[0, 0, k, k], tables.exact.counts[1, 0, k, k]
                tables.base[k] += no_link_gain(n, N, 2.0 * domain.m[k])


@inner
def write_gains(
    n: Floats, N: Floats, m: float, first: Singles, second: Singles, unseen: Singles
) -> None:
    """Write the gains of cells of an object that has ``m`` cells in each of these blocks."""
    for k in range(n.size):
        first[k] = log(n[k] / (N[k] + max(m - 1.0, 0.0)))
        second[k] = log((n[k] + 1.0) / (N[k] + max(m - 2.0, 0.0)))
    for k in range(unseen.size):
        unseen[k] = log(1.0 + n[k] / (N[k] + max(m - 1.0, 0.0)))


@kernel
def object_cells(tables: ScreenTables) -> ObjectCells:
    """Return the arrays that scoring one object needs."""
    P, L, K = tables.first_link.shape
    cells, touched = np.zeros((2, P, L)), np.empty((P, L), dtype=np.int32)
    count, screened = np.zeros(P, dtype=np.int32), np.empty(K, dtype=np.float32)
    return ObjectCells(cells[0], cells[1], touched, count, np.empty(2), screened, np.empty(K))


@inlined
def gather_cells(domain: DomainView, label_other: Indices, i: int, cells: ObjectCells) -> None:
    """Count the cells of object ``i`` by cluster; those of the last object are forgotten.

    The arrays are local variables: a function that takes their tuple, called for each link, would
    take most of the time of a sweep.
    """
    for p in range(len(domain.incidence)):
        n, hidden, touched, count = cells.n[p], cells.hidden[p], cells.touched[p], cells.touches[p]
        for t in range(count):
            n[touched[t]] = 0.0
            hidden[touched[t]] = 0.0
        count = 0
        for j in links_of(domain.incidence[p], i):
            l = label_other[j]
            if n[l] == 0.0:
                touched[count] = l
                count += 1
            n[l] += 1.0
        for j in unseen_of(domain.incidence[p], i):
            l = label_other[j]
            if n[l] == 0.0 and hidden[l] == 0.0:
                touched[count] = l
                count += 1
            hidden[l] += 1.0
        cells.touches[p] = count
    cells.own[0], cells.own[1] = own_cell(domain, i)


@inlined
def screen(  # noqa: PLR0912 - a function that takes a row of a table for each cluster is slower
    tables: ScreenTables, m_other: Floats, cells: ObjectCells, repeated: bool
) -> float:
    """Write rounded scores of all clusters; return how far they may be from the exact ones.

    Arrays are copied in loops: with an assignment that may raise, Numba counts the references to
    all arrays once more for each object.
    """
    out, P = cells.screened, cells.n.shape[0]
    error = ROUNDING + NATS_REPEATED if repeated else ROUNDING
    for k in range(out.size):
        out[k] = tables.base[k]
    for p in range(P):
        first, second, unseen = tables.first_link[p], tables.second_link[p], tables.unseen[p]
        present, absent = tables.exact.counts[0, p], tables.exact.counts[1, p]
        for t in range(cells.touches[p]):
            l = cells.touched[p, t]
            links, before = cells.n[p, l], out[l]
            if links == 1.0:
                for k in range(out.size):
                    out[k] += first[l, k]
            elif links == 2.0:
                for k in range(out.size):
                    out[k] += first[l, k] + second[l, k]
            elif links > 2.0:
                further, middle = np.float32(links - 2.0), 0.5 * (links + 1.0)
                rest = m_other[l] - 1.0 - middle
                error += NATS_PER_LINK * (links - 2.0)
                for k in range(out.size):
                    ratio = (present[l, k] + middle) / max(absent[l, k] + rest, 1.0)
                    out[k] += first[l, k] + second[l, k] + further * np.float32(log(ratio))
            if cells.hidden[p, l] > 0.0:
                error, hidden = np.inf, np.float32(cells.hidden[p, l])
                for k in range(unseen.shape[1]):
                    out[k] += hidden * unseen[l, k]
            if P == 2:  # the block of a cluster with itself, at the first place that has cells
                out[l] = before
                if p == 0 or (cells.n[0, l] == 0.0 and cells.hidden[0, l] == 0.0):
                    out[l] += joint_cells_gain(tables.exact, m_other, cells, l)
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


@inlined
def joint_cells_gain(tables: ScoreTables, m_other: Floats, cells: ObjectCells, l: int) -> float:
    """Return the gain of the block of cluster ``l`` with itself, over one without links.

    A cell of the object with itself is left out.
    """
    n, N, m = tables.counts[0, 0, l, l], tables.counts[1, 0, l, l], 2.0 * m_other[l]
    links, hidden = cells.n[0, l] + cells.n[1, l], cells.hidden[0, l] + cells.hidden[1, l]
    if hidden == 0.0:
        return link_gain(n, N + m - links, links)
    return log_beta_gain(n, N, links, max(m - hidden - links, 0.0)) - no_link_gain(n, N, m)


@inner
def candidate_gain(
    domain: DomainView, tables: ScoreTables, m_other: Floats, cells: ObjectCells, label: int, k: int
) -> float:
    """Return the gain of cluster ``k`` over ``tables.base``, for an object with another label."""
    total, joint = 0.0, is_joint(domain)
    for p in range(cells.n.shape[0]):
        present, absent = tables.counts[0, p], tables.counts[1, p]
        for t in range(cells.touches[p]):
            l = cells.touched[p, t]
            if domain.repeated and (l == label or (joint and l == k)):
                continue  # they follow
            n, N, m = present[l, k], absent[l, k], m_other[l]
            links, hidden = cells.n[p, l], cells.hidden[p, l]
            if hidden == 0.0:
                total += link_gain(n, N + m - links, links)
            else:
                total += log_beta_gain(n, N, links, m - hidden - links) - tables.no_link[p, l, k]
        if domain.repeated:
            total += left_gain(tables, m_other, cells, p, label, k) - tables.no_link[p, label, k]
    return total + joint_gain(tables, m_other, cells, k, 0.0) if joint else total


@inlined
def left_gain(
    tables: ScoreTables, m_other: Floats, cells: ObjectCells, p: int, label: int, k: int
) -> float:
    """Return the gain of the block of cluster ``k`` with the one that the object leaves.

    The object is left out of the counts at the other end of the cells, and has none with itself.
    """
    opposite = cells.n.shape[0] - 1 - p
    links, hidden = cells.n[opposite, k], cells.hidden[opposite, k]
    n = max(tables.counts[0, p, label, k] - links, SMALLEST_COUNT)
    N = max(tables.counts[1, p, label, k] - (m_other[k] - hidden - links), SMALLEST_COUNT)
    links, hidden = cells.n[p, label], cells.hidden[p, label]
    return log_beta_gain(n, N, links, max(m_other[label] - 1.0 - hidden - links, 0.0))


@inlined
def joint_gain(
    tables: ScoreTables, m_other: Floats, cells: ObjectCells, k: int, member: float
) -> float:
    """Return the gain of the block of cluster ``k`` with itself by the cells of both places.

    A member (1, otherwise 0) is left out of the counts first.
    """
    links, hidden = cells.n[0, k] + cells.n[1, k], cells.hidden[0, k] + cells.hidden[1, k]
    N_plus = max(2.0 * (m_other[k] - member) - hidden - links, 0.0) + cells.own[1]
    links += cells.own[0]
    n = max(tables.counts[0, 0, k, k] - member * links, SMALLEST_COUNT)
    N = max(tables.counts[1, 0, k, k] - member * N_plus, SMALLEST_COUNT)
    return log_beta_gain(n, N, links, N_plus)


@inner
def member_gain(
    domain: DomainView, tables: ScoreTables, m_other: Floats, cells: ObjectCells, label: int
) -> float:
    """Return the gain of its own cluster over ``tables.member_base``, the object left out."""
    total = 0.0
    for p in range(cells.n.shape[0]):
        present, absent = tables.counts[0, p], tables.counts[1, p]
        for t in range(cells.touches[p]):
            l = cells.touched[p, t]
            if domain.repeated and l == label:
                continue  # it follows
            n, N, m = present[l, label], absent[l, label], m_other[l]
            links, hidden = cells.n[p, l], cells.hidden[p, l]
            rest = max(n - links, SMALLEST_COUNT)
            if hidden == 0.0 and N - m > SMALLEST_COUNT:
                total += link_gain(rest, N - m, links)
                continue
            N_plus = m - hidden - links
            gain = log_beta_gain(rest, max(N - N_plus, SMALLEST_COUNT), links, N_plus)
            total += gain - tables.member_no_link[p, l, label]
    if is_joint(domain):
        return total + joint_gain(tables, m_other, cells, label, 1.0)
    if domain.repeated:
        links, hidden = cells.n[0, label], cells.hidden[0, label]
        N_plus = max(m_other[label] - 1.0 - hidden - links, 0.0)
        n = max(tables.counts[0, 0, label, label] - links, SMALLEST_COUNT)
        N = max(tables.counts[1, 0, label, label] - N_plus, SMALLEST_COUNT)
        total += log_beta_gain(n, N, links, N_plus) - tables.member_no_link[0, label, label]
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
    error = screen(tables, other.m, cells, domain.repeated)
    cells.screened[label] = -np.inf
    count = best_candidates(cells.screened, domain.m.size, candidates)
    log_weight = cells.log_weight
    for k in range(log_weight.size):
        log_weight[k] = cells.screened[k]
    rest = domain.m[label] - 1.0
    log_weight[label] = log(rest) if rest > 0.0 else math.log(domain.alpha)
    log_weight[label] += exact.member_base[label]
    log_weight[label] += member_gain(domain, exact, other.m, cells, label)
    best = label
    for t in range(count):
        k = candidates[t]
        if only_best and cells.screened[k] + error < log_weight[best]:
            break
        gain = candidate_gain(domain, exact, other.m, cells, label, k)
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
