"""What one object brings to the blocks in a batch, and the gains that wait to be computed.

Gains are noted one by one and computed together, so that the loop over them vectorises.
"""

from typing import NamedTuple

import numpy as np

from coblock.kernels import BIPARTITE, Domain, Floats, Indices, inlined, kernel
from coblock.kernels.blocks import gather
from coblock.kernels.memberships import remove_members
from coblock.kernels.special import log_rising_balances
from coblock.kernels.tables import SMALLEST, Tables, filled_up


class Pending(NamedTuple):
    """Arguments and results of ``log_rising_balances``, all of a length and contiguous."""

    n_rest: Floats
    N_rest: Floats
    both_rest: Floats
    n_plus: Floats
    N_plus: Floats
    gain: Floats


class Brought(NamedTuple):
    """What the object at hand brings, and room to work in."""

    q: Floats  # (clusters,)  its memberships
    n: Floats  # (P, L)  links
    hidden: Floats  # (P, L)  unseen cells, and itself in one domain
    N: Floats  # (P, L)  observed non-links
    m_rest: Floats  # (clusters,)  sizes without the object
    log_weight: Floats  # (K,)
    aside: Indices  # (2, P L)  places and clusters of the others with more than ``away``
    members: Indices  # (clusters,)  those the object is left out of
    everywhere: Indices  # (2, P L)  all places and clusters of the others
    gain: Floats  # (P, L, K)  gains over ``away`` of those aside
    pending: Pending


@kernel
def room_for(kind: int, tables: Tables, domain: Domain, decided: bool = False) -> Brought:
    """Return room for what one object brings.

    Of every block, a gain can be pending for each cluster that a cell of its own is unseen from,
    and for each that the object is a member of.
    """
    P, L, K = tables.away.shape
    clusters, unseen = domain.m.size, kind != BIPARTITE or domain.places[0].unseen.size > 0
    most = P * L * ((K if unseen else 0) + (1 if decided else K)) + K
    cells, sizes = np.zeros((3, P, L)), np.empty((2, clusters))
    everywhere, work = np.empty((2, P * L), dtype=np.int32), np.empty((6, most))
    for t in range(P * L):
        everywhere[0, t], everywhere[1, t] = t // L, t % L
    return Brought(
        sizes[0],
        cells[0],
        cells[1],
        cells[2],
        sizes[1],
        np.zeros(K),
        np.empty_like(everywhere),
        np.empty(clusters, dtype=np.int32),
        everywhere,
        np.zeros((P, L, K)),
        Pending(work[0], work[1], work[2], work[3], work[4], work[5]),
    )


@inlined
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


@inlined
def note(
    pending: Pending,
    at: int,
    n_rest: float,
    N_rest: float,
    both_rest: float,
    n_plus: float,
    N_plus: float,
) -> None:
    """Note the arguments of one gain."""
    pending.n_rest[at] = n_rest
    pending.N_rest[at] = N_rest
    pending.both_rest[at] = both_rest
    pending.n_plus[at] = n_plus
    pending.N_plus[at] = N_plus


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
    n_rest = max(tables.counts[0, p, l, k] - n, SMALLEST)
    N_rest = max(tables.counts[1, p, l, k] - N, SMALLEST)
    note(brought.pending, at, n_rest, N_rest, n_rest + N_rest, n_plus, N_plus)


@inlined
def settle(pending: Pending, count: int) -> None:
    """Compute the first ``count`` gains that are pending, and some more to fill registers."""
    for at in range(count, filled_up(count)):
        note(pending, at, 1.0, 1.0, 1.0, 0.0, 0.0)
    count = filled_up(count)
    log_rising_balances(
        pending.n_rest[:count],
        pending.n_plus[:count],
        pending.N_rest[:count],
        pending.N_plus[:count],
        pending.both_rest[:count],
        pending.gain[:count],
    )
