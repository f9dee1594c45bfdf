"""Many objects scored against the same counts, each left out of them (MODEL 5).

What all objects of a batch have in common is computed once: the gain of a block for an object
without a link in it, and its expansion around whole numbers of links. An object then pays for
the blocks it has links or unseen cells in. From the counts it is left out exactly in clusters it
is a member of; where its membership is small, blocks without its links follow to first order.

Memberships are within 1e-6 of what the exact update gives (tests/test_batches.py).
"""

from typing import NamedTuple

import numpy as np

from coblock.kernels import BIPARTITE, DIRECTED, Domain, Floats, Indices, inlined, kernel
from coblock.kernels.blocks import gather
from coblock.kernels.memberships import remove_members
from coblock.kernels.special import FAR, add_link_gains, add_link_gains_far, log_beta_gains
from coblock.kernels.tables import MOST_LINKS, SLOPES, VALUE, Expansions, Tables, expand

RADIUS = 3e-3  # of an expansion, relative to the smallest count: its error is below 1e-10
SMALL = 1e-3  # memberships for which the first order is enough
NEGLIGIBLE = 1e-5  # memberships that need not be left out at all
SMALLEST = 1e-8  # no prior count is smaller, so that rounding leaves no count below it


class Pending(NamedTuple):
    """Arguments and results of ``log_beta_gains``, each (3 P L K + K,) and contiguous."""

    n_rest: Floats
    N_rest: Floats
    n_plus: Floats
    N_plus: Floats
    gain: Floats


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
    pending: Pending


@kernel
def room_for(tables: Tables) -> Brought:
    """Return room for what one object brings."""
    P, L, K = tables.away.shape
    cells, sizes = np.zeros((3, P, L)), np.empty((3, K))
    everywhere, size = np.empty((2, P * L), dtype=np.int32), 3 * P * L * K + K
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
        Pending(np.empty(size), np.empty(size), np.empty(size), np.empty(size), np.empty(size)),
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
def add_hidden(
    tables: Tables, known: Expansions, m: float, p: int, l: int, brought: Brought, out: Floats
) -> bool:
    """Add the gain over ``away`` if links and unseen cells with cluster ``l`` are whole numbers.

    They are where all neighbours are decided; the same few numbers come again and again.
    """
    n_plus, hidden = brought.n[p, l], brought.hidden[p, l]
    if n_plus > MOST_LINKS or hidden > known.hidden.shape[1] or hidden > m:
        return False
    links, cells = int(n_plus), int(hidden)
    if links != n_plus or cells != hidden:
        return False
    value = known.hidden[p, cells - 1, links, l]
    if known.hidden_known[p, cells - 1, links, l] == 0:
        n, N, rest = tables.counts[0, p, l], tables.counts[1, p, l], max(m - cells - links, 0.0)
        log_beta_gains(n, N, np.full(n.size, n_plus), np.full(n.size, rest), value)
        value -= tables.away[p, l]
        known.hidden_known[p, cells - 1, links, l] = 1
    for k in range(out.size):
        out[k] += value[k]
    return True


@kernel
def add_links(
    tables: Tables, known: Expansions, m: float, p: int, l: int, n_plus: float, out: Floats
) -> bool:
    """Add the gain over ``away`` of links to cluster ``l``, all cells with which are seen.

    From an expansion if they are nearly a whole number; says whether that number is 0.
    """
    links = int(n_plus + 0.5) if n_plus < MOST_LINKS + 0.5 else MOST_LINKS
    step, few = n_plus - links, tables.least[1, p, l] + m - n_plus
    if abs(step) > RADIUS * min(tables.least[0, p, l] + links, few):
        if few > FAR:
            add_link_gains_far(tables.counts[0, p, l], tables.counts[1, p, l], m, n_plus, out)
        else:
            rest = max(m, n_plus)
            add_link_gains(tables.counts[0, p, l], tables.counts[1, p, l], rest, n_plus, out)
        return False
    wanted = VALUE if step == 0.0 else SLOPES
    if known.known[p, links, l] < wanted:
        expand(tables, known, m, p, links, l, wanted)
    c = known.coefficient
    if step == 0.0:
        for k in range(out.size):
            out[k] += c[p, links, 0, l, k]
    else:
        for k in range(out.size):
            slope = c[p, links, 2, l, k] + step * c[p, links, 3, l, k]
            out[k] += c[p, links, 0, l, k] + step * (c[p, links, 1, l, k] + step * slope)
    return links == 0


@kernel
def add_known(
    kind: int, tables: Tables, m_other: Floats, known: Expansions, brought: Brought, out: Floats
) -> tuple[int, int]:
    """Add the gains over ``away`` that tables have or that cost little; set clusters aside.

    Returns how many are aside because their gain is not yet added, and, listed after them, how
    many because they have links or unseen cells.
    """
    P, L = brought.n.shape
    aside, linked = 0, 0
    for p in range(P):
        for l in range(L):
            n_plus, hidden = brought.n[p, l], brought.hidden[p, l]
            if n_plus == 0.0 and hidden == 0.0:
                continue
            diagonal = out[l] if kind == DIRECTED else 0.0
            added, unlinked = hidden == 0.0, False
            if added:
                unlinked = add_links(tables, known, m_other[l], p, l, n_plus, out)
            elif kind == BIPARTITE or brought.q[l] == 0.0:
                added = add_hidden(tables, known, m_other[l], p, l, brought, out)
            if kind == DIRECTED:
                out[l] = diagonal
            if not added:
                brought.aside[0, aside], brought.aside[1, aside] = p, l
                aside += 1
            elif not unlinked:
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
    pending = brought.pending
    pending.n_rest[at] = max(tables.counts[0, p, l, k] - n, SMALLEST)
    pending.N_rest[at] = max(tables.counts[1, p, l, k] - N, SMALLEST)
    pending.n_plus[at] = n_plus
    pending.N_plus[at] = N_plus


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
            out[k] += brought.pending.gain[at + k] - tables.away[p, l, k]
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
    everywhere, gain = brought.everywhere.shape[1], brought.pending.gain
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
def settle(pending: Pending, count: int) -> None:
    """Compute the first ``count`` gains that are pending."""
    log_beta_gains(
        pending.n_rest[:count],
        pending.N_rest[:count],
        pending.n_plus[:count],
        pending.N_plus[:count],
        pending.gain[:count],
    )


@kernel
def add_diagonal(tables: Tables, own: tuple[float, float], brought: Brought, out: Floats) -> None:
    """Add the gain of block (k, k) of a directed relation: the cells of both places and its own."""
    n_rest, N_rest, n_plus, N_plus, gain = brought.pending
    for k in range(out.size):
        n_plus[k] = brought.n[0, k] + brought.n[1, k] + own[0]
        N_plus[k] = brought.N[0, k] + brought.N[1, k] + own[1]
        share = brought.q[k]
        n_rest[k] = max(tables.counts[0, 0, k, k] - share * n_plus[k], SMALLEST)
        N_rest[k] = max(tables.counts[1, 0, k, k] - share * N_plus[k], SMALLEST)
    settle(brought.pending, out.size)
    out += gain[: out.size]


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
        touched, linked = add_known(kind, tables, m_other, known, brought, out)
        aside = touched + linked
    if 2 * aside > brought.everywhere.shape[1]:  # the first order would save nothing
        aside = -1
    at = pend_touched(kind, tables, touched, brought)
    at = pend_members(kind, tables, aside, brought, at)
    settle(brought.pending, at)
    at = add_touched(kind, tables, touched, brought, out)
    add_members(kind, tables, aside, brought, prior, at, out)
    if kind == DIRECTED:
        add_diagonal(tables, own, brought, out)
