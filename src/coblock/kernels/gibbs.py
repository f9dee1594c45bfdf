"""Hard labels given all others: drawn (collapsed Gibbs) or the best ones (MODEL 10, RELATIONS 10).

Iterated conditional modes is the same sweep with the best label instead of a draw.
"""

import math
from typing import NamedTuple

import numpy as np

from coblock.kernels import (
    BlockTables,
    DomainView,
    Floats,
    Indices,
    Offsets,
    inlined,
    inlined_kernel,
    inner,
    kernel,
)
from coblock.kernels.gather import own_cell
from coblock.kernels.memberships import normalise
from coblock.kernels.score import (
    GainCache,
    ScoreTables,
    Workspace,
    add_score,
    empty_cache,
    gather_object,
    workspace,
)
from coblock.kernels.special import log, log_rising

TABULATED = 4096  # log rising factorials with fewer factors are looked up


@inner
def crp_log_prior(
    m_rest: Floats, alpha: float, label: int, open_clusters: bool, out: Floats
) -> None:
    """Write eq:IRM_2dom_Gibbs_z_1_1 for an object with this label.

    One empty cluster stands for the new one: the object's own if it is alone in it, else the
    first, provided that clusters may be opened.
    """
    new = label if m_rest[label] == 0.0 else -1
    for k in range(m_rest.size):
        if new < 0 and open_clusters and m_rest[k] == 0.0:
            new = k
        if m_rest[k] > 0.0:
            out[k] = log(m_rest[k])
        else:
            out[k] = math.log(alpha) if k == new else -np.inf


@inner
def draw(log_weight: Floats, uniform: float) -> int:
    """Return a cluster drawn with these weights by a uniform random number."""
    top, total = log_weight.max(), 0.0
    for k in range(log_weight.size):
        total += math.exp(log_weight[k] - top)
    left, last = uniform * total, 0
    for k in range(log_weight.size):
        weight = math.exp(log_weight[k] - top)
        if weight > 0.0:
            last = k
            left -= weight
            if left < 0.0:
                break
    return last


@inner
def choose_label(
    domain: DomainView,
    other: DomainView,
    tables: ScoreTables,
    cache: GainCache,
    i: int,
    open_clusters: bool,
    work: Workspace,
    t: int,
    uniform: Floats,
    probability: Floats,
) -> tuple[int, float]:
    """Return a label of object ``i`` given all other labels, and the log normaliser.

    eq:IRM_2dom_Gibbs_z_1i_posterior. The label is drawn by ``uniform[t]``, or the best one if
    ``uniform`` is empty. The probabilities of all clusters are added to ``probability[t]`` unless
    ``probability`` is empty.
    """
    label, log_weight, chance = domain.hard[i], work.log_weight[: domain.m.size], work.q
    work.q[:] = 0.0
    work.q[label] = 1.0
    gather_object(domain, other, i, work)
    crp_log_prior(work.m_rest, domain.alpha, label, open_clusters, work.log_weight)
    add_score(domain, other, tables, cache, i, work)
    log_normaliser, _ = normalise(log_weight, chance)
    if probability.shape[0] > 0:
        probability[t] += chance
    if uniform.size > 0:
        return draw(log_weight, uniform[t]), log_normaliser
    return int(np.argmax(log_weight)), log_normaliser


@kernel
def label_exactly(
    domain: DomainView,
    other: DomainView,
    tables: ScoreTables,
    objects: Indices,
    uniform: Floats,
    fresh: Indices,
    log_normaliser: Floats,
    probability: Floats,
) -> None:
    """Write new labels of ``objects`` into ``fresh``; all are scored against the same counts.

    ``uniform`` and ``probability`` are as in :func:`choose_label`. No cluster is opened: all
    objects of the batch that choose a new one would share it.
    """
    work, cache = workspace(tables, domain), empty_cache(tables, domain)
    for t in range(objects.size):
        fresh[t], log_normaliser[t] = choose_label(
            domain, other, tables, cache, objects[t], False, work, t, uniform, probability
        )


class RisingTables(NamedTuple):
    """Log rising factorials ln(x (x + 1) ... (x + t - 1)) for x = a, b and a + b of all blocks."""

    x: Floats  # (3,)
    value: Floats  # (3, TABULATED)


@kernel
def rising_tables(a: float, b: float) -> RisingTables:
    """Return the tables of a prior that all blocks share."""
    x, value = np.array([a, b, a + b]), np.zeros((3, TABULATED))
    for s in range(3):
        for t in range(1, TABULATED):
            value[s, t] = log(x[s] + t - 1)
        for t in range(1, TABULATED):
            value[s, t] += value[s, t - 1]
    return RisingTables(x, value)


@inlined
def tabulated(rising: RisingTables, s: int, count: int) -> float:
    """Return a log rising factorial with so many factors."""
    if count < TABULATED:
        return rising.value[s, count]
    return log_rising(rising.x[s], float(count))


@inlined_kernel
def tabulated_value(rising: RisingTables, n: int, N: int) -> float:
    """Return the log marginal of a block with so many links and non-links."""
    return tabulated(rising, 0, n) + tabulated(rising, 1, N) - tabulated(rising, 2, n + N)


class SequenceTables(NamedTuple):
    """Counts and log marginals of all blocks, seen from each place of a domain."""

    counts: Offsets  # (2, P, L, K)  links and non-links; clusters at the other end first
    value: Floats  # (P, L, K)


@kernel
def sequence_tables(
    domain: DomainView, blocks: BlockTables, rising: RisingTables
) -> SequenceTables:
    """Return the tables of a hard partition."""
    K, L = blocks.n.shape
    P = len(domain.incidence)
    tables = SequenceTables(np.empty((2, P, L, K), dtype=np.int64), np.empty((P, L, K)))
    for p in range(P):
        for l in range(L):
            for k in range(K):
                row, column = (k, l) if p == 0 else (l, k)
                n, N = round(blocks.n[row, column]), round(blocks.N[row, column])
                tables.counts[0, p, l, k], tables.counts[1, p, l, k] = n, N
                tables.value[p, l, k] = tabulated_value(rising, n, N)
    return tables


@kernel
def label_sequence(
    domain: DomainView,
    other: DomainView,
    blocks: BlockTables,
    rising: RisingTables,
    start: int,
    stop: int,
    uniform: Floats,
    open_clusters: bool,
    probability: Floats,
) -> tuple[int, float]:
    """Give objects new labels one after another, until a new cluster has no empty slot.

    Each object is taken out of the counts, scored for all clusters and added to one of them.
    Sizes and labels of ``domain`` are updated. ``uniform`` and ``probability`` are those of all
    objects, as in :func:`choose_label`. Returns the next object and the sum of the log normalisers.
    """
    tables, total = sequence_tables(domain, blocks, rising), 0.0
    P, L, K = tables.value.shape
    cells, wide = np.zeros((3, P, L)), np.empty((6, K))
    work = Workspace(
        wide[0], cells[0], cells[1], cells[2], wide[1], wide[2], wide[3], wide[4], wide[5:]
    )
    for i in range(start, stop):
        if open_clusters and domain.m.min() > 0.0:
            return i, total
        old = domain.hard[i]
        work.q[:] = 0.0
        work.q[old] = 1.0
        gather_object(domain, other, i, work)
        update_counts(domain, tables, rising, work, i, old, -1.0)
        crp_log_prior(work.m_rest, domain.alpha, old, open_clusters, work.log_weight)
        add_exact_score(domain, tables, rising, work, i)
        log_normaliser, _ = normalise(work.log_weight, work.q)
        total += log_normaliser
        if probability.shape[0] > 0:
            for k in range(K):
                probability[i, k] += work.q[k]
        if uniform.size > 0:
            new = draw(work.log_weight, uniform[i])
        else:
            new = int(np.argmax(work.log_weight))
        update_counts(domain, tables, rising, work, i, new, 1.0)
        domain.hard[i] = new
        domain.m[old] -= 1.0
        domain.m[new] += 1.0
    return stop, total


@inner
def add_exact_score(
    domain: DomainView, tables: SequenceTables, rising: RisingTables, work: Workspace, i: int
) -> None:
    """Add the gain of each cluster by the cells of object ``i``, which is in no cluster.

    The block of a cluster with itself gains the cells of both places of a directed relation.
    """
    out, counts, value = work.log_weight, tables.counts, tables.value
    P, L, K = value.shape
    joint = domain.repeated and P == 2
    for p in range(P):
        for l in range(L):
            n, N = int(work.n[p, l]), int(work.N[p, l])
            if n + N == 0:
                continue
            own = out[l] if joint else 0.0
            for k in range(K):
                fresh = tabulated_value(rising, counts[0, p, l, k] + n, counts[1, p, l, k] + N)
                out[k] += fresh - value[p, l, k]
            if joint:
                out[l] = own
    if joint:
        link, absent = own_cell(domain, i)
        for k in range(K):
            n = counts[0, 0, k, k] + int(work.n[0, k] + work.n[1, k] + link)
            N = counts[1, 0, k, k] + int(work.N[0, k] + work.N[1, k] + absent)
            out[k] += tabulated_value(rising, n, N) - value[0, k, k]


@kernel
def update_counts(
    domain: DomainView,
    tables: SequenceTables,
    rising: RisingTables,
    work: Workspace,
    i: int,
    k: int,
    sign: float,
) -> None:
    """Add the cells of object ``i`` to cluster ``k``, or take them out of it with sign -1.

    With repeated places a block is also seen from the cluster at its other end.
    """
    counts, value = tables.counts, tables.value
    P, L, _ = value.shape
    for p in range(P):
        for l in range(L):
            n, N = int(sign * work.n[p, l]), int(sign * work.N[p, l])
            counts[0, p, l, k] += n
            counts[1, p, l, k] += N
            if domain.repeated and (P == 2 or l != k):
                counts[0, P - 1 - p, k, l] += n
                counts[1, P - 1 - p, k, l] += N
    if domain.repeated and P == 2:
        link, absent = own_cell(domain, i)
        for p in range(P):
            counts[0, p, k, k] += int(sign * link)
            counts[1, p, k, k] += int(sign * absent)
    for p in range(P):
        for l in range(L):
            value[p, l, k] = tabulated_value(rising, counts[0, p, l, k], counts[1, p, l, k])
            if domain.repeated:
                value[P - 1 - p, k, l] = value[p, l, k]
