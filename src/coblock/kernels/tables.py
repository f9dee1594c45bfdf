"""What all objects of a batch have in common (MODEL 5)."""

from typing import NamedTuple

import numpy as np

from coblock.kernels import DIRECTED, Blocks, Floats, kernel
from coblock.kernels.special import link_gain_slopes, non_link_gains, whole_link_gains

SMALLEST = 1e-8  # no prior count is smaller, so that rounding leaves no count below it
LANES = 8  # numbers in the widest registers
MOST_LINKS = 4  # whole numbers of links around which gains are expanded
MOST_HIDDEN = 12  # whole numbers of unseen cells for which gains are kept
VALUE, SLOPES = 1, 2  # what is known of an expansion
PATIENCE = 1  # times that a gain is computed by itself before slopes are
NEGLIGIBLE = 1e-5  # share of what it is left out of
CLOSE = 1e-8  # to the truth is what ``away`` is said to be without the object's share
FURTHEST = 0.1  # share of the non-links of a block that may be left out that way


class Tables(NamedTuple):
    """What a batch shares, for each place of the objects.

    The clusters k of the objects themselves are filled up to a multiple of ``LANES``, so that no
    loop over them ends with single numbers: K stands for that multiple.
    """

    counts: Floats  # (2, P, L, K)  a + n and b + N, clusters of the others first
    least: Floats  # (2, P, L)  smallest counts of the clusters of the others
    away: Floats  # (P, L, K)  gain without a link and with every cell seen
    total: Floats  # (K,)  sums of ``away``, the diagonal of a directed relation left out
    fall: Floats  # (degree, K)  change of ``total`` with the object's share of the cluster left
    # out of the counts, a polynomial in the share over ``reach``
    reach: Floats  # (K,)  largest share for which the polynomials hold
    negligible: Floats  # (K,)  largest share that need not be left out at all


class Expansions(NamedTuple):
    """Gains over ``away`` around whole numbers of links, filled in when first needed."""

    value: Floats  # (P, MOST_LINKS + 1, L, K)
    slope: Floats  # (P, last so many, 3, L, K)  Taylor coefficients: decided neighbours are whole
    # numbers of links, of which only those beyond the last have any use for them
    known: np.ndarray  # (P, MOST_LINKS + 1, L)  nothing, VALUE or SLOPES
    asked: np.ndarray  # (P, MOST_LINKS + 1, L)  how often there were no slopes
    hidden: Floats  # (P, most, MOST_LINKS + 1, L, K)  gains with so many unseen cells, from 1 on
    hidden_known: np.ndarray  # (P, most, MOST_LINKS + 1, L)


@kernel
def shared_tables(
    kind: int, blocks: Blocks, m_other: Floats, places: int, decided: bool = False
) -> Tables:
    """Return what all objects of a domain share while the counts stand still.

    Where all of them are ``decided`` their share is 0 or 1: a straight line is exact.
    """
    K, L = blocks.n.shape
    width = filled_up(K)
    counts, least = np.ones((2, places, L, width)), np.empty((2, places, L))
    away, total = np.empty((places, L, width)), np.zeros(width)
    for p in range(places):
        for l in range(L):
            for k in range(K):
                row, column = (k, l) if p == 0 else (l, k)
                counts[0, p, l, k] = blocks.a[row, column] + blocks.n[row, column]
                counts[1, p, l, k] = blocks.b[row, column] + blocks.N[row, column]
            least[0, p, l], least[1, p, l] = counts[0, p, l, :K].min(), counts[1, p, l, :K].min()
            non_link_gains(counts[0, p, l], counts[1, p, l], m_other[l], away[p, l])
            if kind == DIRECTED:
                away[p, l, l] = 0.0
            total += away[p, l]
    if decided:
        reach, negligible = whole_reach(counts, m_other), np.zeros(width)
        fall = left_out(kind, counts, m_other, reach, total).reshape((1, width))
    else:
        reach, negligible = reach_of(counts, m_other), negligible_shares(counts, m_other)
        fall = cubic(kind, counts, m_other, reach, total)
    return Tables(counts, least, away, total, fall, reach, negligible)


@kernel
def filled_up(count: int) -> int:
    """Return the smallest multiple of ``LANES`` that is not less."""
    return -(-count // LANES) * LANES


@kernel
def reach_of(counts: Floats, m_other: Floats) -> Floats:
    """Return up to which share of a cluster the cubic through four shares is close to the truth.

    The fourth derivative of a block's gain in the share is less than 24 n x**4 times both
    x (1 + 5 / N) and 1 / 4 + 1 / N, where x is the size of the other cluster over N; the error of
    the cubic is 1/24 of that times (reach / 3)**4.
    """
    K = counts.shape[3]
    bound, largest, reach = np.zeros(K), np.zeros(K), np.empty(K)
    for p in range(counts.shape[1]):
        for l in range(m_other.size):
            for k in range(K):
                over_N = 1.0 / counts[1, p, l, k]
                x = m_other[l] * over_N
                bend = min(x * (1.0 + 5.0 * over_N), 0.25 + over_N)
                bound[k] += counts[0, p, l, k] * (x * x) * (x * x) * bend
                largest[k] = max(largest[k], x)
    for k in range(K):
        close = 3.0 * (CLOSE / max(bound[k], CLOSE / 81.0)) ** 0.25
        reach[k] = min(1.0, close, FURTHEST / max(largest[k], FURTHEST))
    return reach


@kernel
def negligible_shares(counts: Floats, m_other: Floats) -> Floats:
    """Return shares so small beside all counts of a cluster that leaving them out does nothing."""
    share = np.full(counts.shape[3], NEGLIGIBLE)
    for p in range(counts.shape[1]):
        for l in range(m_other.size):
            for k in range(share.size):
                few = min(10.0 * counts[0, p, l, k], counts[1, p, l, k] / max(m_other[l], SMALLEST))
                share[k] = min(share[k], NEGLIGIBLE * few)
    return share


@kernel
def whole_reach(counts: Floats, m_other: Floats) -> Floats:
    """Return 1 for clusters that a whole object without links can be left out of, 0 for others.

    Of a small, dense cluster it would leave less than nothing.
    """
    reach = np.ones(counts.shape[3])
    for p in range(counts.shape[1]):
        for l in range(m_other.size):
            for k in range(reach.size):
                if counts[1, p, l, k] - m_other[l] < SMALLEST:
                    reach[k] = 0.0
    return reach


@kernel
def left_out(kind: int, counts: Floats, m_other: Floats, share: Floats, total: Floats) -> Floats:
    """Return how the sums of ``away`` change if so large shares are left out of the counts."""
    rest, gain, change = np.empty(share.size), np.empty(share.size), -total
    for p in range(counts.shape[1]):
        for l in range(m_other.size):
            for k in range(share.size):
                rest[k] = max(counts[1, p, l, k] - share[k] * m_other[l], SMALLEST)
            non_link_gains(counts[0, p, l], rest, m_other[l], gain)
            if kind == DIRECTED:
                gain[l] = 0.0
            change += gain
    return change


@kernel
def cubic(kind: int, counts: Floats, m_other: Floats, reach: Floats, total: Floats) -> Floats:
    """Return the cubics through the changes at no share, 1/3, 2/3 and all of ``reach``."""
    third = left_out(kind, counts, m_other, reach / 3.0, total)
    two_thirds = left_out(kind, counts, m_other, reach * (2.0 / 3.0), total)
    whole, fall = left_out(kind, counts, m_other, reach, total), np.empty((3, reach.size))
    fall[0] = 9.0 * third - 4.5 * two_thirds + whole
    fall[1] = -22.5 * third + 18.0 * two_thirds - 4.5 * whole
    fall[2] = 13.5 * (third - two_thirds) + 4.5 * whole
    return fall


@kernel
def no_expansions(tables: Tables, unseen: bool, decided: bool = False) -> Expansions:
    """Return expansions of which nothing is known; ``unseen`` says if there are unseen cells."""
    P, L, K = tables.away.shape
    most, sloping = MOST_HIDDEN if unseen else 0, 1 if decided else MOST_LINKS + 1
    hidden = np.empty((P, most, MOST_LINKS + 1, L, K))
    return Expansions(
        np.empty((P, MOST_LINKS + 1, L, K)),
        np.empty((P, sloping, 3, L, K)),
        np.zeros((P, MOST_LINKS + 1, L), dtype=np.int8),
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
    n, N = tables.counts[0, p, l], tables.counts[1, p, l] + (m - links)
    whole_link_gains(n, N, links, known.value[p, links, l])
    known.known[p, links, l] = wanted
    if wanted == SLOPES:
        slope = known.slope[p, links - MOST_LINKS - 1]
        link_gain_slopes(n + links, N, slope[0, l], slope[1, l], slope[2, l])
