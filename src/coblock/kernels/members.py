"""Leaving an object out of the counts of the clusters it is a member of (MODEL 5).

Exactly, or by what all objects of a batch have in common: the gain of a cluster without links is
a polynomial in the object's share, and only blocks it has links or unseen cells in are its own.
"""

from coblock.kernels import DIRECTED, Floats, inlined
from coblock.kernels.brought import Brought, note, pend
from coblock.kernels.tables import SMALLEST, Tables


@inlined
def list_members(tables: Tables, aside: int, brought: Brought) -> tuple[int, int]:
    """List the clusters the object is left out of; return how many by series, how many exactly.

    The former come first, the latter last. A share that is negligible, also beside those of
    others, stays where it is. Polynomials of the batch serve shares within their reach, and save
    something where few blocks are aside.
    """
    K, few = brought.q.size, 2 * aside <= brought.everywhere.shape[1]
    series, exact = 0, 0
    for k in range(K):
        share = brought.q[k]
        if share == 0.0 or share <= tables.negligible[k] * min(brought.m_rest[k], 1.0):
            continue
        if few and share <= tables.reach[k]:
            brought.members[series] = k
            series += 1
        else:
            exact += 1
            brought.members[K - exact] = k
    return series, exact


@inlined
def pend_over_away(
    kind: int, tables: Tables, m: float, count: int, p: int, l: int, brought: Brought, at: int
) -> int:
    """Note the gains over ``away`` in cluster ``l`` for the first ``count`` clusters listed.

    The object is left out of both. Where all cells are seen the sum of both counts is the same
    for both, and drops out; else ``away`` is noted after its gain. Returns where the next goes.
    """
    seen, n_plus, N_plus = brought.hidden[p, l] == 0.0, brought.n[p, l], brought.N[p, l]
    links, non_links = tables.counts[0, p, l], tables.counts[1, p, l]
    for j in range(count):
        k = brought.members[j]
        share, n, N = brought.q[k], links[k], non_links[k]
        N_rest = max(N - share * m, SMALLEST)
        if seen:
            n_left, N_left = max(n - share * n_plus, SMALLEST), max(N - share * N_plus, SMALLEST)
            note(brought.pending, at, n_left, N_left, N_rest, n_plus, N_plus)
            at += 1
        else:
            pend(kind, tables, k, share, p, l, brought, at)
            note(brought.pending, at + 1, n, N_rest, n + N_rest, 0.0, m)
            at += 2
    return at


@inlined
def pend_members(
    kind: int, tables: Tables, m_other: Floats, aside: int, brought: Brought, at: int
) -> tuple[int, int, int]:
    """Note the gains of the clusters that the object is a member of, itself left out.

    Returns where the next one goes and what :func:`list_members` does.
    """
    series, exact = list_members(tables, aside, brought)
    for t in range(aside if series > 0 else 0):
        p, l = brought.aside[0, t], brought.aside[1, t]
        at = pend_over_away(kind, tables, m_other[l], series, p, l, brought, at)
    for j in range(exact):
        k = brought.members[brought.q.size - 1 - j]
        for t in range(brought.everywhere.shape[1]):
            p, l = brought.everywhere[0, t], brought.everywhere[1, t]
            pend(kind, tables, k, brought.q[k], p, l, brought, at)
            at += 1
    return at, series, exact


@inlined
def add_series(
    kind: int, tables: Tables, aside: int, count: int, brought: Brought, at: int, out: Floats
) -> int:
    """Leave the object out of the first ``count`` clusters listed: polynomials, and blocks aside.

    Block (k, k) of a directed relation is left to :func:`add_diagonal`.
    """
    gain = brought.pending.gain
    for j in range(count):
        k = brought.members[j]
        change, x = 0.0, brought.q[k] / tables.reach[k]
        for degree in range(tables.fall.shape[0] - 1, -1, -1):
            change = x * (tables.fall[degree, k] + change)
        out[k] += change
    for t in range(aside if count > 0 else 0):
        p, l = brought.aside[0, t], brought.aside[1, t]
        seen, before = brought.hidden[p, l] == 0.0, brought.gain[p, l]
        for j in range(count):
            k = brought.members[j]
            if kind != DIRECTED or k != l:
                over_away = gain[at] if seen else gain[at] - gain[at + 1]
                out[k] += over_away - before[k]
            at += 1 if seen else 2
    return at


@inlined
def add_exact(kind: int, count: int, brought: Brought, prior: Floats, at: int, out: Floats) -> None:
    """Leave the object out of the last ``count`` clusters listed, whose gains are all noted."""
    everywhere = brought.everywhere.shape[1]
    for j in range(count):
        k = brought.members[brought.q.size - 1 - j]
        out[k] = prior[k]
        for t in range(everywhere):
            if kind != DIRECTED or k != brought.everywhere[1, t]:
                out[k] += brought.pending.gain[at + t]
        at += everywhere
