"""What a batch has in common, against gains computed one by one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from coblock.kernels import BIPARTITE, Blocks
from coblock.kernels.shared import EXPANDED, is_in_reach
from coblock.kernels.special import link_gain_slopes, link_gains, log_beta_gain
from coblock.kernels.tables import (
    CLOSE,
    LANES,
    MOST_LINKS,
    SLOPES,
    VALUE,
    Tables,
    expand,
    filled_up,
    no_expansions,
    shared_tables,
)

A, B = 0.3, 0.8


def blocks_of(rng: np.random.Generator, m: np.ndarray, m_other: np.ndarray) -> Blocks:
    """Counts of clusters of these sizes, sparse and dense blocks among them."""
    cells = np.outer(m, m_other)
    n = cells * rng.beta(0.3, 2.0, cells.shape)
    return Blocks(n, cells - n, np.full(cells.shape, A), np.full(cells.shape, B))


def change(blocks: Blocks, m_other: np.ndarray, k: int, share: float) -> float:
    """How the sum of gains without a link changes with the share left out, by the definition."""
    value = 0.0
    for l, m in enumerate(m_other):
        n, N = A + blocks.n[k, l], B + blocks.N[k, l]
        value += log_beta_gain(n, N - share * m, 0.0, m) - log_beta_gain(n, N, 0.0, m)
    return value


def polynomial(tables: Tables, k: int, share: float) -> float:
    powers = (share / tables.reach[k]) ** np.arange(1, len(tables.fall) + 1)
    return float(powers @ tables.fall[:, k])


@given(st.integers(1, 20), st.integers(0, 2**32 - 1), st.floats(0, 1))
def test_polynomials_are_close_to_the_truth_within_their_reach(K, seed, at):
    rng = np.random.default_rng(seed)
    m, m_other = rng.gamma(1.0, 40.0, K) + 1.0, rng.gamma(1.0, 40.0, 6)
    blocks = blocks_of(rng, m, m_other)
    tables = shared_tables(BIPARTITE, blocks, m_other, 1)
    assert (tables.reach <= 1.0).all()
    for k in range(K):
        share = at * tables.reach[k]
        assert abs(polynomial(tables, k, share) - change(blocks, m_other, k, share)) < CLOSE


def test_polynomials_are_used_up_to_a_whole_object_in_large_clusters_only():
    rng = np.random.default_rng(0)
    m, m_other = np.array([5000.0, 3.0]), np.full(6, 40.0)
    tables = shared_tables(BIPARTITE, blocks_of(rng, m, m_other), m_other, 1)
    assert tables.reach[0] == 1.0
    assert tables.reach[1] < 0.2


def test_beyond_their_reach_polynomials_are_wrong():
    """Negative control."""
    rng = np.random.default_rng(0)
    m, m_other = np.array([3.0]), np.full(6, 40.0)
    blocks = blocks_of(rng, m, m_other)
    tables = shared_tables(BIPARTITE, blocks, m_other, 1)
    wrong = polynomial(tables, 0, 1.0) - change(blocks, m_other, 0, 1.0)
    assert abs(wrong) > 100 * CLOSE


def test_a_decided_object_is_left_out_exactly():
    rng = np.random.default_rng(1)
    m, m_other = np.array([1.0, 3.0, 700.0]), rng.gamma(1.0, 40.0, 6)
    blocks = blocks_of(rng, m, m_other)
    blocks = blocks._replace(n=np.zeros_like(blocks.n), N=np.outer(m, m_other))
    tables = shared_tables(BIPARTITE, blocks, m_other, 1, decided=True)
    for k in range(m.size):
        expected = change(blocks, m_other, k, 1.0)
        assert polynomial(tables, k, 1.0) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("K", [1, 7, 8, 9])
def test_tables_are_filled_up_and_what_is_filled_in_stays_finite(K):
    rng = np.random.default_rng(K)
    m_other = rng.gamma(1.0, 40.0, 4)
    tables = shared_tables(BIPARTITE, blocks_of(rng, np.full(K, 9.0), m_other), m_other, 1)
    assert tables.away.shape[2] == filled_up(K) == -(-K // LANES) * LANES
    assert all(np.isfinite(table).all() for table in tables)


@pytest.mark.parametrize("scale", [1.0, 1e2, 1e4])
def test_expansions_are_left_where_counts_are_large(scale):
    """Their error grows with the counts; the steps they are good for grow less."""
    counts = np.full(1, 30.0 * scale)
    for step in (0.003 * scale**0.75 * 30.0, 0.01 * scale * 30.0):
        series, exact = np.empty((4, 1)), np.empty(1)
        link_gain_slopes(counts + 4.0, counts, series[1], series[2], series[3])
        link_gains(counts + 4.0, counts, 0.0, step, exact)
        wrong = abs(step ** np.arange(1, 4) @ series[1:] - exact)
        assert wrong < 3 * EXPANDED or not is_in_reach(step, 30.0 * scale)
    assert is_in_reach(0.003 * 30.0 * scale**0.75, 30.0 * scale)
    assert not is_in_reach(0.1 * 30.0 * scale, 30.0 * scale)


@pytest.mark.parametrize("links", range(MOST_LINKS + 1))
def test_expansions_around_whole_numbers_of_links(links):
    rng = np.random.default_rng(links)
    m_other = np.array([50.0, 900.0])
    tables = shared_tables(BIPARTITE, blocks_of(rng, np.full(8, 30.0), m_other), m_other, 1)
    known, exact = no_expansions(tables, unseen=False), np.empty(8)
    for l, m in enumerate(m_other):
        expand(tables, known, m, 0, links, l, SLOPES)
        assert known.known[0, links, l] == SLOPES > VALUE
        for step in (0.0, 1e-3, -1e-3 if links else 1e-4):
            n, N = tables.counts[0, 0, l], tables.counts[1, 0, l]
            link_gains(n, N, m, links + step, exact)
            slopes = step ** np.arange(1, 4) @ known.slope[0, links, :, l]
            assert_allclose(known.value[0, links, l] + slopes, exact, rtol=0.0, atol=1e-9)
