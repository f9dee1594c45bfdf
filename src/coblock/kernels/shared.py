"""Many objects scored against the same counts, each left out of them (MODEL 5).

What all objects of a batch have in common is computed once: the gain of a block for an object
without a link in it, and its expansion around whole numbers of links. An object then pays for
the blocks it has links or unseen cells in. From the counts it is left out exactly in clusters it
is a member of; what that does to blocks without its links follows, unless the cluster is a small
one, from a polynomial in its share that the batch has in common.

Memberships are within 1e-6 of what the exact update gives, within 1e-5 where shares and priors are
tiny beside one another (tests/test_batches.py).
"""

import numpy as np

from coblock.kernels import BIPARTITE, DIRECTED, Floats, inlined, kernel
from coblock.kernels.brought import Brought, note, pend, settle
from coblock.kernels.members import add_exact, add_series, pend_members
from coblock.kernels.special import link_gains, log_beta_gains
from coblock.kernels.tables import (
    MOST_LINKS,
    PATIENCE,
    SLOPES,
    SMALLEST,
    VALUE,
    Expansions,
    Tables,
    expand,
)

EXPANDED = 2.5e-9  # error of an expansion, at the most
UNLINKED = 1e-5  # links that make no difference to what leaving the object out does


@inlined
def hidden_gain(
    tables: Tables, known: Expansions, m: float, p: int, l: int, brought: Brought, gain: Floats
) -> bool:
    """Write the gain over ``away`` if links and unseen cells of cluster ``l`` are whole numbers.

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
    gain[:] = value
    return True


@inlined
def is_in_reach(step: float, count: float) -> bool:
    """Say whether an expansion is good for so large a step from the smallest count.

    The first term left out is step**4 / 24 times the third derivative of digamma, which is less
    than 6 / count**4 + 2 / count**3.
    """
    square = step / count * (step / count)
    return square * square * (0.25 + count / 12.0) <= EXPANDED


@inlined
def is_worth_it(known: Expansions, p: int, links: int, l: int, step: float) -> bool:
    """Say whether an expansion is there, is cheap, or has been asked for often enough.

    Whole numbers, all there are among decided neighbours, always get one: what an object is told
    must not depend on who is visited before it.
    """
    if step == int(step) or known.known[p, links, l] == SLOPES:
        return True
    known.asked[p, links, l] += 1
    return known.asked[p, links, l] > PATIENCE


@inlined
def link_gain(
    tables: Tables, known: Expansions, m: float, p: int, l: int, n_plus: float, gain: Floats
) -> None:
    """Write the gain over ``away`` of links to cluster ``l``, all cells with which are seen.

    From an expansion if they are nearly a whole number.
    """
    links = int(n_plus + 0.5) if n_plus < MOST_LINKS + 0.5 else MOST_LINKS
    step, few = n_plus - links, tables.least[1, p, l] + m - n_plus
    near = is_in_reach(step, min(tables.least[0, p, l] + links, few))
    if not (near and is_worth_it(known, p, links, l, step)):
        link_gains(tables.counts[0, p, l], tables.counts[1, p, l], max(m, n_plus), n_plus, gain)
        return
    wanted = VALUE if step == 0.0 else SLOPES
    if known.known[p, links, l] < wanted:
        expand(tables, known, m, p, links, l, wanted)
    value = known.value[p, links, l]
    if step == 0.0:
        gain[:] = value
        return
    slope = known.slope[p, links - MOST_LINKS - 1]
    first, second, third = slope[0, l], slope[1, l], slope[2, l]
    for k in range(gain.size):
        gain[k] = value[k] + step * (first[k] + step * (second[k] + step * third[k]))


@inlined
def add_known(
    kind: int, tables: Tables, m_other: Floats, known: Expansions, brought: Brought, out: Floats
) -> tuple[int, int]:
    """Add the gains over ``away`` that tables have or that cost little; set clusters aside.

    Returns how many are aside because their gain is not yet known, and, listed after them, how
    many because they have links or unseen cells.
    """
    P, L = brought.n.shape
    unknown, linked = 0, 0
    for p in range(P):
        for l in range(L):
            n_plus, hidden = brought.n[p, l], brought.hidden[p, l]
            if n_plus == 0.0 and hidden == 0.0:
                continue
            gain, is_known = brought.gain[p, l], hidden == 0.0
            if is_known:
                link_gain(tables, known, m_other[l], p, l, n_plus, gain)
            elif kind == BIPARTITE or brought.q[l] == 0.0:
                is_known = hidden_gain(tables, known, m_other[l], p, l, brought, gain)
            if not is_known:
                brought.aside[0, unknown], brought.aside[1, unknown] = p, l
                unknown += 1
                continue
            add_gain(kind, l, gain, out)
            if n_plus > UNLINKED * min(10.0 * tables.least[0, p, l], 1.0) or hidden > 0.0:
                linked += 1
                brought.aside[0, P * L - linked], brought.aside[1, P * L - linked] = p, l
    for t in range(linked):
        brought.aside[:, unknown + t] = brought.aside[:, P * L - linked + t]
    return unknown, linked


@inlined
def add_gain(kind: int, l: int, gain: Floats, out: Floats) -> None:
    """Add the gain of one cluster of the others; the diagonal of a directed relation has none."""
    if kind == DIRECTED:
        gain[l] = 0.0
    for k in range(out.size):
        out[k] += gain[k]


@inlined
def pend_unknown(kind: int, tables: Tables, count: int, brought: Brought) -> int:
    """Note the gains of the first ``count`` clusters aside for all clusters of the object."""
    at, K = 0, brought.q.size
    for t in range(count):
        p, l = brought.aside[0, t], brought.aside[1, t]
        for k in range(K):
            pend(kind, tables, k, 0.0, p, l, brought, at + k)
        at += K
    return at


@inlined
def add_unknown(kind: int, tables: Tables, count: int, brought: Brought, out: Floats) -> int:
    """Add the gains over ``away`` noted by :func:`pend_unknown`."""
    at, K = 0, brought.q.size
    for t in range(count):
        p, l = brought.aside[0, t], brought.aside[1, t]
        for k in range(K):
            brought.gain[p, l, k] = brought.pending.gain[at + k] - tables.away[p, l, k]
        add_gain(kind, l, brought.gain[p, l], out)
        at += K
    return at


@kernel
def add_diagonal(tables: Tables, own: tuple[float, float], brought: Brought, out: Floats) -> None:
    """Add the gain of block (k, k) of a directed relation: the cells of both places and its own."""
    K = brought.q.size
    for k in range(K):
        n_plus = brought.n[0, k] + brought.n[1, k] + own[0]
        N_plus = brought.N[0, k] + brought.N[1, k] + own[1]
        n_rest = max(tables.counts[0, 0, k, k] - brought.q[k] * n_plus, SMALLEST)
        N_rest = max(tables.counts[1, 0, k, k] - brought.q[k] * N_plus, SMALLEST)
        note(brought.pending, k, n_rest, N_rest, n_rest + N_rest, n_plus, N_plus)
    settle(brought.pending, K)
    out[:K] += brought.pending.gain[:K]


@inlined
def add_likelihood(
    kind: int,
    tables: Tables,
    known: Expansions,
    m_other: Floats,
    own: tuple[float, float],
    brought: Brought,
) -> None:
    """Add log p(cells of the object | z_i = k, all other cells) to its log weights (MODEL 5).

    For clusters that the object is no member of, the sum of ``away`` is put right where it has
    links or unseen cells; from the others it is left out.
    """
    out = brought.log_weight
    prior = out.copy()
    out += tables.total
    unknown, linked = add_known(kind, tables, m_other, known, brought, out)
    at = pend_unknown(kind, tables, unknown, brought)
    aside = unknown + linked
    at, series, exact = pend_members(kind, tables, m_other, aside, brought, at)
    settle(brought.pending, at)
    at = add_unknown(kind, tables, unknown, brought, out)
    at = add_series(kind, tables, aside, series, brought, at, out)
    add_exact(kind, exact, brought, prior, at, out)
    if kind == DIRECTED:
        add_diagonal(tables, own, brought, out)
