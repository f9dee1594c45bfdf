"""What all objects of a batch have in common (MODEL 5)."""

from typing import NamedTuple

import numpy as np

from coblock.kernels import DIRECTED, Blocks, Floats, kernel
from coblock.kernels.special import digammas, log_beta_gains, tetragammas, trigammas

MOST_LINKS = 4  # whole numbers of links around which gains are expanded
MOST_HIDDEN = 12  # whole numbers of unseen cells for which gains are kept
VALUE, SLOPES = 1, 2  # what is known of an expansion


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

    coefficient: Floats  # (P, MOST_LINKS + 1, 4, L, K)  value and Taylor coefficients; for decided
    # neighbours most of it is never touched, and so takes no memory
    known: np.ndarray  # (P, MOST_LINKS + 1, L)  nothing, VALUE or SLOPES
    hidden: Floats  # (P, most, MOST_LINKS + 1, L, K)  gains with so many unseen cells, from 1 on
    hidden_known: np.ndarray  # (P, most, MOST_LINKS + 1, L)


@kernel
def shared_tables(
    kind: int, blocks: Blocks, m_other: Floats, places: int, slopes: bool = True
) -> Tables:
    """Return what all objects of a domain share while the counts stand still.

    Where all of them are decided nobody is left out to first order, which is what slopes are for.
    """
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
            write_away(counts[0, p, l], counts[1, p, l], m_other[l], away[p, l])
            if slopes:
                write_slope(counts[0, p, l], counts[1, p, l], m_other[l], slope[p, l])
            else:
                slope[p, l] = 0.0
            if kind == DIRECTED:
                away[p, l, l], slope[p, l, l] = 0.0, 0.0
            total += away[p, l]
            total_slope += slope[p, l]
    return Tables(counts, least, away, total, slope, total_slope)


@kernel
def write_away(n: Floats, N: Floats, m: float, away: Floats) -> None:
    """Write the gains of ``m`` observed non-links for blocks with these counts."""
    log_beta_gains(n, N, np.zeros(n.size), np.full(n.size, m), away)


@kernel
def write_slope(n: Floats, N: Floats, m: float, slope: Floats) -> None:
    """Write how fast those gains fall with the share of the object in the counts."""
    at, psi = N + m, np.empty(n.size)
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
def no_expansions(tables: Tables, unseen: bool) -> Expansions:
    """Return expansions of which nothing is known; ``unseen`` says if there are unseen cells."""
    P, L, K = tables.away.shape
    most = MOST_HIDDEN if unseen else 0
    coefficient = np.empty((P, MOST_LINKS + 1, 4, L, K))
    hidden = np.empty((P, most, MOST_LINKS + 1, L, K))
    return Expansions(
        coefficient,
        np.zeros((P, MOST_LINKS + 1, L), dtype=np.int8),
        hidden,
        np.zeros(hidden.shape[:4], dtype=np.int8),
    )


@kernel
def expand(
    tables: Tables, known: Expansions, m: float, p: int, links: int, l: int, wanted: int
) -> None:
    """Fill in value, or value and Taylor coefficients, of the gain at so many links over ``away``.

    ``m`` is the size of cluster ``l`` of the others, all cells with which are seen.
    """
    n, N, c = tables.counts[0, p, l], tables.counts[1, p, l], known.coefficient
    rest, at, part = max(m - links, 0.0), n + links, np.empty(n.size)
    value = c[p, links, 0, l]
    log_beta_gains(n, N, np.full(n.size, float(links)), np.full(n.size, rest), value)
    value -= tables.away[p, l]
    known.known[p, links, l] = wanted
    if wanted == VALUE:
        return
    first, second, third = c[p, links, 1, l], c[p, links, 2, l], c[p, links, 3, l]
    digammas(at, first)
    trigammas(at, second)
    tetragammas(at, third)
    at[:] = N + rest
    digammas(at, part)
    first -= part
    trigammas(at, part)
    second[:] = (second + part) / 2.0
    tetragammas(at, part)
    third[:] = (third - part) / 6.0
