"""Many objects scored against the same counts, each left out of them (MODEL 5).

What all objects of a batch have in common is computed once: the gain of a block for an object
without a link in it, and its expansion around whole numbers of links. An object then pays for
the blocks it has links or unseen cells in. From the counts it is left out exactly in clusters it
is a member of; where its membership is small, blocks without its links follow to first order.

Memberships are within 1e-7 of what the exact update gives (tests/test_batches.py).
"""

from typing import NamedTuple

import numpy as np

from coblock.kernels import (
    BIPARTITE,
    DIRECTED,
    Blocks,
    Domain,
    Floats,
    Indices,
    inlined,
    kernel,
)
from coblock.kernels.blocks import gather
from coblock.kernels.memberships import remove_members
from coblock.kernels.special import digammas, log_beta_gains, tetragammas, trigammas

MOST_LINKS = 4  # whole numbers of links around which gains are expanded
RADIUS = 3e-3  # of an expansion, relative to the smallest count: its error is below 1e-10
SMALL = 1e-3  # memberships for which the first order is enough
NEGLIGIBLE = 1e-5  # memberships that need not be left out at all
SMALLEST = 1e-8  # no prior count is smaller, so that rounding leaves no count below it
VALUE, SLOPES = 1, 2


class Tables(NamedTuple):
    """What a batch shares, for each place of the objects."""

    counts: Floats  # (2, P, L, K)  a + n and b + N, clusters of the others first
    least: Floats  # (2, P, L)  smallest counts of the clusters of the others
    away: Floats  # (P, L, K)  gain without a link and with every cell seen
    total: Floats  # (K,)  sums of ``away``, the diagonal of a directed relation left out
    slope: Floats  # (P, L, K)  how fast ``away`` falls with the share of the object in the counts
    total_slope: Floats  # (K,)


class Expansions(NamedTuple):
    """Gains over ``away`` around whole numbers of links, filled in when first needed."""

    coefficient: Floats  # (P, MOST_LINKS + 1, L, 4, K)  value and Taylor coefficients
    known: np.ndarray  # (P, MOST_LINKS + 1, L)  nothing, VALUE or SLOPES


class Brought(NamedTuple):
    """What the object at hand brings, and room to work in."""

    q: Floats  # (K,)  its memberships
    n: Floats  # (P, L)  links
    hidden: Floats  # (P, L)  unseen cells, and itself in one domain
    N: Floats  # (P, L)  observed non-links
    m_rest: Floats  # (K,)  sizes without the object
    log_weight: Floats  # (K,)
    aside: Indices  # (2, P L)  places and clusters of the others with more than ``away``
    everywhere: Indices  # (2, P L)  all places and clusters of the others
    pending: Floats  # (5, 3 P L K)  arguments and results of ``log_beta_gains``


@kernel
def shared_tables(kind: int, blocks: Blocks, m_other: Floats, places: int) -> Tables:
    """Return what all objects of a domain share while the counts stand still."""
    K, L = blocks.n.shape
    counts, least = np.empty((2, places, L, K)), np.empty((2, places, L))
    away, slope = np.empty((places, L, K)), np.empty((places, L, K))
    total, total_slope = np.zeros(K), np.zeros(K)
    for p in range(places):
        for l in range(L):
            for k in range(K):
                row, column = (k, l) if p == 0 else (l, k)
                counts[0, p, l, k] = blocks.a[row, column] + blocks.n[row, column]
                counts[1, p, l, k] = blocks.b[row, column] + blocks.N[row, column]
            least[0, p, l], least[1, p, l] = counts[0, p, l].min(), counts[1, p, l].min()
            write_away(counts[0, p, l], counts[1, p, l], m_other[l], away[p, l], slope[p, l])
            if kind == DIRECTED:
                away[p, l, l], slope[p, l, l] = 0.0, 0.0
            total += away[p, l]
            total_slope += slope[p, l]
    return Tables(counts, least, away, total, slope, total_slope)


@kernel
def write_away(n: Floats, N: Floats, m: float, away: Floats, slope: Floats) -> None:
    """Write the gains of ``m`` observed non-links for blocks with these counts, and the slopes."""
    none, all_of_it, at, psi = np.zeros(n.size), np.full(n.size, m), N + m, np.empty(n.size)
    log_beta_gains(n, N, none, all_of_it, away)
    digammas(at, slope)
    at[:] = N
    digammas(at, psi)
    slope -= psi
    at += n
    digammas(at, psi)
    slope += psi
    at += m
    digammas(at, psi)
    slope -= psi
    slope *= m


@kernel
def no_expansions(tables: Tables) -> Expansions:
    """Return expansions of which nothing is known."""
    P, L, K = tables.away.shape
    coefficient = np.empty((P, MOST_LINKS + 1, L, 4, K))
    return Expansions(coefficient, np.zeros((P, MOST_LINKS + 1, L), dtype=np.int8))


@kernel
def room_for(tables: Tables) -> Brought:
    """Return room for what one object brings."""
    P, L, K = tables.away.shape
    cells, sizes = np.zeros((3, P, L)), np.empty((3, K))
    everywhere, pending = np.empty((2, P * L), dtype=np.int32), np.empty((5, 3 * P * L * K + K))
    for t in range(P * L):
        everywhere[0, t], everywhere[1, t] = t // L, t % L
    return Brought(
        sizes[0],
        cells[0],
        cells[1],
        cells[2],
        sizes[1],
        sizes[2],
        np.empty_like(everywhere),
        everywhere,
        pending,
    )


@kernel
def bring(kind: int, domain: Domain, other: Domain, i: int, brought: Brought) -> None:
    """Gather what object ``i``, whose memberships are in ``brought.q``, brings at its places."""
    brought.n[:], brought.hidden[:] = 0.0, 0.0
    for p in range(len(domain.places)):
        place, n, hidden = domain.places[p], brought.n[p], brought.hidden[p]
        gather(place.link_start, place.link, i, other.q, other.sure, n)
        gather(place.unseen_start, place.unseen, i, other.q, other.sure, hidden)
        if kind != BIPARTITE:
            hidden += brought.q  # nobody is their own neighbour
        for l in range(n.size):
            brought.N[p, l] = max(other.m[l] - hidden[l] - n[l], 0.0)
    brought.m_rest[:] = domain.m
    remove_members(brought.m_rest, brought.q)


@kernel
def expand(
    tables: Tables, known: Expansions, m: float, p: int, links: int, l: int, wanted: int
) -> None:
    """Fill in value, or value and Taylor coefficients, of the gain at so many links over ``away``.

    ``m`` is the size of cluster ``l`` of the others, all cells with which are seen.
    """
    c, n, N = known.coefficient[p, links, l], tables.counts[0, p, l], tables.counts[1, p, l]
    rest, at, part = max(m - links, 0.0), n + links, np.empty(n.size)
    log_beta_gains(n, N, np.full(n.size, float(links)), np.full(n.size, rest), c[0])
    c[0] -= tables.away[p, l]
    known.known[p, links, l] = wanted
    if wanted == VALUE:
        return
    digammas(at, c[1])
    trigammas(at, c[2])
    tetragammas(at, c[3])
    at[:] = N + rest
    digammas(at, part)
    c[1] -= part
    trigammas(at, part)
    c[2] = (c[2] + part) / 2.0
    tetragammas(at, part)
    c[3] = (c[3] - part) / 6.0


@kernel
def add_expanded(
    kind: int, tables: Tables, m_other: Floats, known: Expansions, brought: Brought, out: Floats
) -> tuple[int, int]:
    """Add the gains over ``away`` of clusters with nearly whole numbers of links; set others aside.

    Returns how many are aside because their gain is not yet added, and, listed after them, how
    many because they have links.
    """
    P, L = brought.n.shape
    aside, linked = 0, 0
    for p in range(P):
        for l in range(L):
            n_plus, m = brought.n[p, l], m_other[l]
            if n_plus == 0.0 and brought.hidden[p, l] == 0.0:
                continue
            links = int(n_plus + 0.5) if n_plus < MOST_LINKS + 0.5 else MOST_LINKS
            step = n_plus - links
            least = min(tables.least[0, p, l] + links, tables.least[1, p, l] + m - links)
            if brought.hidden[p, l] > 0.0 or abs(step) > RADIUS * least:
                brought.aside[0, aside], brought.aside[1, aside] = p, l
                aside += 1
                continue
            wanted = VALUE if step == 0.0 else SLOPES
            if known.known[p, links, l] < wanted:
                expand(tables, known, m, p, links, l, wanted)
            c, diagonal = known.coefficient, out[l] if kind == DIRECTED else 0.0
            if step == 0.0:
                for k in range(out.size):
                    out[k] += c[p, links, l, 0, k]
            else:
                for k in range(out.size):
                    slope = c[p, links, l, 2, k] + step * c[p, links, l, 3, k]
                    slope = c[p, links, l, 1, k] + step * slope
                    out[k] += c[p, links, l, 0, k] + step * slope
            if kind == DIRECTED:
                out[l] = diagonal
            if links > 0:
                linked += 1
                brought.aside[0, P * L - linked], brought.aside[1, P * L - linked] = p, l
    for t in range(linked):
        brought.aside[:, aside + t] = brought.aside[:, P * L - linked + t]
    return aside, linked


@inlined
def pend(
    kind: int, tables: Tables, k: int, share: float, p: int, l: int, brought: Brought, at: int
) -> None:
    """Note the arguments of the gain of block (k, l), seen from place ``p``.

    The object's ``share`` of cluster ``k`` is left out of the counts, and in one domain what it
    brings to the block as a member of cluster ``l``.
    """
    n_plus, N_plus = brought.n[p, l], brought.N[p, l]
    n, N = share * n_plus, share * N_plus
    if kind != BIPARTITE and k != l:
        back = brought.n.shape[0] - 1 - p
        n += brought.q[l] * brought.n[back, k]
        N += brought.q[l] * brought.N[back, k]
    brought.pending[0, at] = max(tables.counts[0, p, l, k] - n, SMALLEST)
    brought.pending[1, at] = max(tables.counts[1, p, l, k] - N, SMALLEST)
    brought.pending[2, at] = n_plus
    brought.pending[3, at] = N_plus


@kernel
def pend_touched(kind: int, tables: Tables, count: int, brought: Brought) -> int:
    """Note the gains of the first ``count`` clusters aside for all clusters of the object."""
    at, K = 0, brought.q.size
    for t in range(count):
        p, l = brought.aside[0, t], brought.aside[1, t]
        for k in range(K):
            pend(kind, tables, k, 0.0, p, l, brought, at + k)
        at += K
    return at


@inlined
def share_of(k: int, brought: Brought) -> float:
    """Return the membership in cluster ``k`` relative to the cluster, if it is a small one."""
    return brought.q[k] / min(brought.m_rest[k], 1.0) if brought.m_rest[k] > 0.0 else 1.0


@kernel
def pend_members(kind: int, tables: Tables, aside: int, brought: Brought, at: int) -> int:
    """Note the gains of the clusters that the object is a member of.

    Of a small membership only blocks aside, with the object left out and with it in.
    """
    everywhere = brought.everywhere.shape[1]
    for k in range(brought.q.size):
        share, relative = brought.q[k], share_of(k, brought)
        if aside >= 0 and relative <= NEGLIGIBLE:
            continue
        if aside >= 0 and relative <= SMALL:
            for t in range(aside):
                p, l = brought.aside[0, t], brought.aside[1, t]
                pend(kind, tables, k, share, p, l, brought, at)
                pend(kind, tables, k, 0.0, p, l, brought, at + 1)
                at += 2
        elif share > 0.0:  # all memberships where nothing is aside
            for t in range(everywhere):
                p, l = brought.everywhere[0, t], brought.everywhere[1, t]
                pend(kind, tables, k, share, p, l, brought, at)
                at += 1
    return at


@kernel
def add_touched(kind: int, tables: Tables, count: int, brought: Brought, out: Floats) -> int:
    """Add the gains over ``away`` noted by :func:`pend_touched`."""
    at, K = 0, out.size
    for t in range(count):
        p, l = brought.aside[0, t], brought.aside[1, t]
        diagonal = out[l] if kind == DIRECTED else 0.0
        for k in range(K):
            out[k] += brought.pending[4, at + k] - tables.away[p, l, k]
        if kind == DIRECTED:
            out[l] = diagonal
        at += K
    return at


@kernel
def add_members(
    kind: int, tables: Tables, aside: int, brought: Brought, prior: Floats, at: int, out: Floats
) -> None:
    """Leave the object out of the clusters it is a member of: gains noted by ``pend_members``.

    Block (k, k) of a directed relation is left to :func:`add_diagonal`.
    """
    everywhere, gain = brought.everywhere.shape[1], brought.pending[4]
    for k in range(brought.q.size):
        share, relative = brought.q[k], share_of(k, brought)
        if aside >= 0 and relative <= NEGLIGIBLE:
            continue
        if aside >= 0 and relative <= SMALL:
            slope = tables.total_slope[k]
            for t in range(aside):
                p, l = brought.aside[0, t], brought.aside[1, t]
                slope -= tables.slope[p, l, k]
                if kind != DIRECTED or k != l:
                    out[k] += gain[at] - gain[at + 1]
                at += 2
            out[k] -= share * slope
        elif share > 0.0:
            total = prior[k]
            for t in range(everywhere):
                if kind != DIRECTED or k != brought.everywhere[1, t]:
                    total += gain[at + t]
            out[k] = total
            at += everywhere


@kernel
def add_diagonal(tables: Tables, own: tuple[float, float], brought: Brought, out: Floats) -> None:
    """Add the gain of block (k, k) of a directed relation: the cells of both places and its own."""
    n_rest, N_rest, n_plus, N_plus, gain = brought.pending[:, : out.size]
    for k in range(out.size):
        n_plus[k] = brought.n[0, k] + brought.n[1, k] + own[0]
        N_plus[k] = brought.N[0, k] + brought.N[1, k] + own[1]
        share = brought.q[k]
        n_rest[k] = max(tables.counts[0, 0, k, k] - share * n_plus[k], SMALLEST)
        N_rest[k] = max(tables.counts[1, 0, k, k] - share * N_plus[k], SMALLEST)
    log_beta_gains(n_rest, N_rest, n_plus, N_plus, gain)
    out += gain


@kernel
def add_likelihood(
    kind: int,
    tables: Tables,
    known: Expansions,
    m_other: Floats,
    own: tuple[float, float],
    brought: Brought,
    out: Floats,
) -> None:
    """Add log p(cells of the object | z_i = k, all other cells) to ``out`` (MODEL 5).

    For clusters that the object is no member of, the sum of ``away`` is put right where it has
    links or unseen cells; from the others it is left out.
    """
    prior, touched, aside = out.copy(), 0, -1
    if brought.q.min() == 0.0:
        out += tables.total
        touched, linked = add_expanded(kind, tables, m_other, known, brought, out)
        aside = touched + linked
    if 2 * aside > brought.everywhere.shape[1]:  # the first order would save nothing
        aside = -1
    at = pend_touched(kind, tables, touched, brought)
    at = pend_members(kind, tables, aside, brought, at)
    n_rest, N_rest, n_plus, N_plus, gain = brought.pending[:, :at]
    log_beta_gains(n_rest, N_rest, n_plus, N_plus, gain)
    at = add_touched(kind, tables, touched, brought, out)
    add_members(kind, tables, aside, brought, prior, at, out)
    if kind == DIRECTED:
        add_diagonal(tables, own, brought, out)
