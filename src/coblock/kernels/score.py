"""Scores of one object for all clusters, against counts that other objects share (MODEL 5).

The gain of a block splits into the gain without links, which all objects share, and a difference
for the blocks in which the object has links or unseen cells:

    sum_l F_kl(n_l, N_l) = sum_l F_kl(0, m_l) + sum_{l touched} [F_kl(n_l, N_l) - F_kl(0, m_l)]

The first sum is a table. For clusters that the object is a member of, its share is left out of
the counts. For a hard label the sum without links is a second table, and the touched blocks are
scored exactly; for soft memberships all blocks are scored exactly (RELATIONS 17).
"""

from typing import NamedTuple

import numpy as np

from coblock.kernels import BlockTables, DomainView, Floats, inlined, inlined_kernel, inner, kernel
from coblock.kernels.bernoulli import (
    few_link_gains,
    link_gains,
    log_beta_gain,
    log_beta_gains,
    member_no_link_gain,
    no_link_gain,
    same_gains,
)
from coblock.kernels.gather import gather, links_of, own_cell, unseen_of
from coblock.kernels.memberships import hard_label, remove_members
from coblock.kernels.special import unrolled_sum

SMALLEST_COUNT = 1e-8  # the smallest prior count; rounding leaves no count below it
LANES = 8  # numbers in the widest vector registers; arrays over clusters are padded to them
CACHED_LINKS = 16  # gains of 0 to so many links are cached and computed as one logarithm
CACHED_UNSEEN = 12  # the same for unseen cells


class ScoreTables(NamedTuple):
    """Counts and gains that all objects of a domain share; K is padded to ``LANES``.

    In a directed relation the block of a cluster with itself is scored for both places together,
    so it is left out of ``no_link`` and ``base``.
    """

    counts: Floats  # (2, P, L, K)  a + n and b + N; clusters at the other end first
    no_link: Floats  # (P, L, K)  gain of an object without links or unseen cells in the block
    base: Floats  # (K,)  sums of ``no_link``
    member_no_link: Floats  # (P, L, K)  ``no_link`` for a member that is left out of the counts
    member_base: Floats  # (K,)  sums of ``member_no_link``


class GainCache(NamedTuple):
    """Gains over ``no_link`` for small whole numbers of links and unseen cells."""

    gain: Floats  # (P, unseen, links, L, K)
    known: np.ndarray  # (P, unseen, links, L)  1 where the gain has been computed


class Workspace(NamedTuple):
    """Cells of the object that is scored, by place and cluster, and scratch arrays."""

    q: Floats  # (clusters,)  its memberships
    n: Floats  # (P, L)  links
    hidden: Floats  # (P, L)  unseen cells; with repeated places the object itself, too
    N: Floats  # (P, L)  observed non-links
    m_rest: Floats  # (clusters,)  sizes without the object
    log_weight: Floats  # (K,)
    gain: Floats  # (K,)
    log_prior: Floats  # (K,)
    exact: Floats  # (5, P * L)  arguments and values of exact gains


@kernel
def padded(count: int) -> int:
    """Return the smallest multiple of ``LANES`` that is not less."""
    return -(-count // LANES) * LANES


@inlined_kernel
def is_joint(domain: DomainView) -> bool:
    """Return whether the block of a cluster with itself gains the cells of two places."""
    return domain.repeated and len(domain.incidence) == 2


@kernel
def score_tables(domain: DomainView, blocks: BlockTables, m_other: Floats) -> ScoreTables:
    """Return the tables of a domain at these counts."""
    tables = empty_tables(domain, blocks)
    fill_tables(domain, blocks, m_other, tables, 0, blocks.n.shape[1])
    sum_tables(tables)
    return tables


@inner
def empty_tables(domain: DomainView, blocks: BlockTables) -> ScoreTables:
    """Return tables of a domain, to be filled."""
    K, L = blocks.n.shape
    P, width = len(domain.incidence), padded(K)
    gains = np.empty((2, P, L, width))
    return ScoreTables(
        np.empty((2, P, L, width)), gains[0], np.empty(width), gains[1], np.empty(width)
    )


@inner
def fill_tables(
    domain: DomainView,
    blocks: BlockTables,
    m_other: Floats,
    tables: ScoreTables,
    start: int,
    stop: int,
) -> None:
    """Write counts and gains at these counts, for some of the clusters at the other end."""
    counts, K = tables.counts, blocks.n.shape[0]
    for p in range(counts.shape[1]):
        for l in range(start, stop):
            for k in range(K):
                row, column = (k, l) if p == 0 else (l, k)
                counts[0, p, l, k] = blocks.a[row, column] + blocks.n[row, column]
                counts[1, p, l, k] = blocks.b[row, column] + blocks.N[row, column]
            counts[:, p, l, K:] = 1.0
            update_no_link(domain, tables, m_other, p, l)


@inner
def sum_tables(tables: ScoreTables) -> None:
    """Write the sums of filled tables over the clusters at the other end."""
    P, L, _ = tables.no_link.shape
    tables.base[:], tables.member_base[:] = 0.0, 0.0
    for p in range(P):
        for l in range(L):
            tables.base[:] += tables.no_link[p, l]
            tables.member_base[:] += tables.member_no_link[p, l]


@inner
def update_no_link(
    domain: DomainView, tables: ScoreTables, m_other: Floats, p: int, l: int
) -> None:
    """Write the gains without links of all clusters with cluster ``l`` at place ``p``.

    Blocks with fewer non-links than a member has cells there have links of every member, which
    replace the entry for members.
    """
    n, N, m = tables.counts[0, p, l], tables.counts[1, p, l], m_other[l]
    no_link, member = tables.no_link[p, l], tables.member_no_link[p, l]
    for k in range(n.size):
        no_link[k] = no_link_gain(n[k], N[k], m)
        member[k] = member_no_link_gain(n[k], N[k], m)
    if is_joint(domain):
        no_link[l], member[l] = 0.0, 0.0


@kernel
def empty_cache(tables: ScoreTables, domain: DomainView) -> GainCache:
    """Return a cache without entries; it distinguishes unseen cells if there are any."""
    P, L, K = tables.no_link.shape
    unseen = CACHED_UNSEEN + 1 if domain.incidence[0].unseen.size > 0 else 1
    shape = (P, unseen, CACHED_LINKS + 1, L)
    return GainCache(np.empty((*shape, K)), np.zeros(shape, dtype=np.int8))


@kernel
def workspace(tables: ScoreTables, domain: DomainView) -> Workspace:
    """Return the arrays that scoring one object needs."""
    P, L, K = tables.no_link.shape
    cells, sizes, wide = np.zeros((3, P, L)), np.empty((2, domain.m.size)), np.zeros((3, K))
    exact = np.empty((5, P * L))
    return Workspace(
        sizes[0], cells[0], cells[1], cells[2], sizes[1], wide[0], wide[1], wide[2], exact
    )


@inlined_kernel
def gather_object(domain: DomainView, other: DomainView, i: int, work: Workspace) -> None:
    """Count the cells of object ``i``, whose memberships are in ``work.q``, by cluster."""
    work.n[:], work.hidden[:] = 0.0, 0.0
    for p in range(len(domain.incidence)):
        incidence, n, hidden = domain.incidence[p], work.n[p], work.hidden[p]
        gather(links_of(incidence, i), other.q, other.hard, n)
        gather(unseen_of(incidence, i), other.q, other.hard, hidden)
        if domain.repeated:
            hidden += work.q  # an object has no cell with itself at this point
        for l in range(n.size):
            work.N[p, l] = max(other.m[l] - hidden[l] - n[l], 0.0)
    for k in range(domain.m.size):
        work.m_rest[k] = domain.m[k]
    remove_members(work.m_rest, work.q)


@inlined_kernel
def rest_counts(
    domain: DomainView, tables: ScoreTables, work: Workspace, p: int, k: int, l: int
) -> tuple[float, float]:
    """Return the counts of block (k, l), seen from place ``p``, without the object.

    It is left out as a member of cluster k and, with repeated places, of cluster l.
    """
    n, N = work.q[k] * work.n[p, l], work.q[k] * work.N[p, l]
    if domain.repeated and k != l:
        opposite = work.n.shape[0] - 1 - p
        n += work.q[l] * work.n[opposite, k]
        N += work.q[l] * work.N[opposite, k]
    n_rest = max(tables.counts[0, p, l, k] - n, SMALLEST_COUNT)
    return n_rest, max(tables.counts[1, p, l, k] - N, SMALLEST_COUNT)


@inlined
def add_gain(
    tables: ScoreTables, cache: GainCache, m: float, p: int, l: int, work: Workspace, out: Floats
) -> None:
    """Add the gains over ``no_link`` of the object's cells with cluster ``l``."""
    n_plus, hidden = work.n[p, l], work.hidden[p, l]
    links, unseen = int(n_plus), int(hidden)
    counts, no_link = tables.counts[:, p, l], tables.no_link[p, l]
    whole = links == n_plus and unseen == hidden and links <= CACHED_LINKS
    cached = whole and unseen < cache.known.shape[1] and links + unseen <= m
    gain = cache.gain[p, unseen, links, l] if cached else work.gain
    if not cached or cache.known[p, unseen, links, l] == 0:
        if hidden > 0.0:
            same_gains(counts[0], counts[1], n_plus, work.N[p, l], gain)
            gain -= no_link
        elif cached:
            few_link_gains(counts[0], counts[1], m, links, gain)
        else:
            link_gains(counts[0], counts[1], max(m, n_plus), n_plus, gain)
        if cached:
            cache.known[p, unseen, links, l] = 1
    out += gain


@inlined
def add_touched(
    domain: DomainView,
    tables: ScoreTables,
    cache: GainCache,
    m_other: Floats,
    label: int,
    work: Workspace,
    out: Floats,
) -> float:
    """Add the gains over ``no_link`` of the clusters with links or unseen cells.

    Returns the sum of the gains over ``member_no_link`` of cluster ``label``.
    """
    P, L = work.n.shape
    joint, member_gain = is_joint(domain), 0.0
    for p in range(P):
        for l in range(L):
            n_plus, N_plus = work.n[p, l], work.N[p, l]
            if n_plus == 0.0 and work.hidden[p, l] == 0.0:
                continue
            own = out[l] if joint else 0.0
            if domain.repeated and work.q[l] != 0.0:  # the object is left out of cluster l
                for k in range(domain.m.size):
                    n_rest, N_rest = rest_counts(domain, tables, work, p, k, l)
                    gain = log_beta_gain(n_rest, N_rest, n_plus, N_plus)
                    out[k] += gain - tables.no_link[p, l, k]
            else:
                add_gain(tables, cache, m_other[l], p, l, work, out)
            if joint:
                out[l] = own
            if label >= 0 and not (joint and l == label):
                n_rest, N_rest = rest_counts(domain, tables, work, p, label, l)
                gain = log_beta_gain(n_rest, N_rest, n_plus, N_plus)
                member_gain += gain - tables.member_no_link[p, l, label]
    return member_gain


@inlined
def exact_score(domain: DomainView, tables: ScoreTables, work: Workspace, k: int) -> float:
    """Return the gain of cluster ``k`` over all blocks, the object left out of their counts."""
    P, L = work.n.shape
    n_rest, N_rest, n_plus, N_plus, gain = work.exact
    for p in range(P):
        for l in range(L):
            t = p * L + l
            n_rest[t], N_rest[t] = rest_counts(domain, tables, work, p, k, l)
            n_plus[t], N_plus[t] = work.n[p, l], work.N[p, l]
    log_beta_gains(n_rest, N_rest, n_plus, N_plus, gain)
    if is_joint(domain):
        gain[k], gain[L + k] = 0.0, 0.0
    return unrolled_sum(gain)


@inlined
def add_joint(
    domain: DomainView, tables: ScoreTables, own: tuple[float, float], work: Workspace, out: Floats
) -> None:
    """Add the gain of each block (k, k): cells of both places and the object's own cell."""
    for k in range(domain.m.size):
        n_plus = work.n[0, k] + work.n[1, k] + own[0]
        N_plus = work.N[0, k] + work.N[1, k] + own[1]
        n_rest = max(tables.counts[0, 0, k, k] - work.q[k] * n_plus, SMALLEST_COUNT)
        N_rest = max(tables.counts[1, 0, k, k] - work.q[k] * N_plus, SMALLEST_COUNT)
        out[k] += log_beta_gain(n_rest, N_rest, n_plus, N_plus)


@inlined_kernel
def add_score(
    domain: DomainView,
    other: DomainView,
    tables: ScoreTables,
    cache: GainCache,
    i: int,
    work: Workspace,
) -> None:
    """Add log p(cells of object ``i`` | z_i = k, all other cells) to ``work.log_weight``.

    ``work.log_weight`` holds the log prior, and ``work`` the cells of the object.
    """
    out, label = work.log_weight, hard_label(work.q)
    work.log_prior[:] = out
    out += tables.base
    member_gain = add_touched(domain, tables, cache, other.m, label, work, out)
    if label >= 0:
        out[label] = work.log_prior[label] + tables.member_base[label] + member_gain
    else:
        for k in range(domain.m.size):
            if work.q[k] > 0.0:
                out[k] = work.log_prior[k] + exact_score(domain, tables, work, k)
    if is_joint(domain):
        add_joint(domain, tables, own_cell(domain, i), work, out)
