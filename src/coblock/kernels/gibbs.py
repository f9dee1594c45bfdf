"""Hard labels given all others: drawn (collapsed Gibbs) or the best ones (MODEL 10, RELATIONS 10).

Iterated conditional modes is the same sweep with the best label instead of a draw.
"""

import math

import numpy as np

from coblock.kernels import BlockTables, DomainView, Floats, Indices, kernel
from coblock.kernels.bernoulli import member_no_link_gain, no_link_gain
from coblock.kernels.memberships import normalise
from coblock.kernels.score import (
    GainCache,
    ScoreTables,
    Workspace,
    add_score,
    empty_cache,
    gather_object,
    score_tables,
    update_no_link,
    workspace,
)
from coblock.kernels.special import log


@kernel
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


@kernel
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


@kernel
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


@kernel
def label_sequence(
    domain: DomainView,
    other: DomainView,
    blocks: BlockTables,
    start: int,
    stop: int,
    uniform: Floats,
    open_clusters: bool,
    probability: Floats,
) -> tuple[int, float]:
    """Give objects new labels one after another, until a new cluster has no empty slot.

    Sizes and labels of ``domain`` are updated. ``uniform`` and ``probability`` are those of all
    objects, as in :func:`choose_label`. Returns the next object and the sum of the log normalisers.
    """
    tables, total = score_tables(domain, blocks, other.m), 0.0
    work, cache = workspace(tables, domain), empty_cache(tables, domain)
    for i in range(start, stop):
        if open_clusters and domain.m.min() > 0.0:
            return i, total
        old = domain.hard[i]
        new, log_normaliser = choose_label(
            domain, other, tables, cache, i, open_clusters, work, i, uniform, probability
        )
        total += log_normaliser
        if new != old:
            domain.hard[i] = new
            domain.m[old] -= 1.0
            domain.m[new] += 1.0
            add_cells(domain, tables, work, i, old, -1.0)
            add_cells(domain, tables, work, i, new, 1.0)
            update_cluster(domain, tables, other.m, old)
            update_cluster(domain, tables, other.m, new)
            cache.known[:] = 0
    return stop, total


@kernel
def add_cells(
    domain: DomainView, tables: ScoreTables, work: Workspace, i: int, k: int, weight: float
) -> None:
    """Add ``weight`` times the cells of object ``i`` to the counts of cluster ``k``.

    With repeated places a block is also seen from the cluster at its other end.
    """
    P, L = work.n.shape
    for p in range(P):
        for l in range(L):
            tables.counts[0, p, l, k] += weight * work.n[p, l]
            tables.counts[1, p, l, k] += weight * work.N[p, l]
            if domain.repeated and (P == 2 or l != k):
                tables.counts[0, P - 1 - p, k, l] += weight * work.n[p, l]
                tables.counts[1, P - 1 - p, k, l] += weight * work.N[p, l]
        if domain.repeated and P == 2:
            tables.counts[0, p, k, k] += weight * domain.own_link[i]
            tables.counts[1, p, k, k] += weight * (domain.own_seen[i] - domain.own_link[i])


@kernel
def update_cluster(domain: DomainView, tables: ScoreTables, m_other: Floats, k: int) -> None:
    """Recompute the gains without links that a change of cluster ``k`` affects.

    With repeated places its size is also the size of a cluster at the other end.
    """
    P, L, _ = tables.no_link.shape
    joint = domain.repeated and P == 2
    if domain.repeated:
        for p in range(P):
            tables.base[:] -= tables.no_link[p, k]
            tables.member_base[:] -= tables.member_no_link[p, k]
            update_no_link(domain, tables, m_other, p, k)
            tables.base[:] += tables.no_link[p, k]
            tables.member_base[:] += tables.member_no_link[p, k]
    tables.base[k], tables.member_base[k] = 0.0, 0.0
    for p in range(P):
        for l in range(L):
            if joint and l == k:
                continue
            n, N, m = tables.counts[0, p, l, k], tables.counts[1, p, l, k], m_other[l]
            tables.no_link[p, l, k] = no_link_gain(n, N, m)
            tables.base[k] += tables.no_link[p, l, k]
            tables.member_no_link[p, l, k] = member_no_link_gain(n, N, m)
            tables.member_base[k] += tables.member_no_link[p, l, k]
