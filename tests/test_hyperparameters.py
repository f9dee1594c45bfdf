"""Learning alpha, a and b: ascent, agreement of the two rules, hard cases."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.optimize import approx_fprime

import reference
from coblock.inference.gibbs import RATE, SHAPE, sample_concentration, slice_sample
from coblock.kernels.hyperparameters import block_derivatives, block_log_likelihood
from coblock.model.hyperparameters import (
    Priors,
    block_fixed_point,
    block_newton,
    concentration_fixed_point,
    concentration_newton,
    crp_concentration,
)

counts = st.lists(st.floats(0, 1e4), min_size=1, max_size=8)


@given(counts, counts, st.floats(0.01, 20), st.floats(0.01, 20))
def test_one_step_of_either_rule_never_lowers_the_likelihood(n, N, a, b):
    size = min(len(n), len(N))
    n, N = np.array(n[:size]), np.array(N[:size])
    before = reference.block_objective(n, N, a, b)
    for step in (block_newton, block_fixed_point):
        after = reference.block_objective(n, N, *step(n, N, a, b))
        assert after >= before - 1e-7 * (1.0 + abs(before))


def test_fixed_point_equals_the_definition():
    rng = np.random.default_rng(0)
    n, N = rng.gamma(1.0, 10.0, 12), rng.gamma(1.0, 50.0, 12)
    assert_allclose(block_fixed_point(n, N, 0.7, 1.9), reference.block_fixed_point(n, N, 0.7, 1.9))
    m = rng.gamma(1.0, 10.0, 5)
    expected = reference.concentration_fixed_point(m, 0.8)
    assert_allclose(concentration_fixed_point(m, 0.8), expected)


def test_newton_ends_where_the_fixed_point_crawls_to():
    rng = np.random.default_rng(1)
    theta = rng.beta(0.5, 2.0, 40)
    n = rng.binomial(200, theta).astype(float)
    a, b = 1.0, 1.0
    for _ in range(20_000):
        a, b = block_fixed_point(n, 200.0 - n, a, b)
    assert_allclose(block_newton(n, 200.0 - n, 1.0, 1.0), (a, b), rtol=1e-4)
    m = np.array([50.0, 20.0, 5.0, 1.0])
    alpha = 1.0
    for _ in range(2000):
        alpha = concentration_fixed_point(m, alpha)
    assert concentration_newton(m, 1.0) == pytest.approx(alpha, rel=1e-6)
    assert concentration_newton(m, 100.0) == pytest.approx(alpha, rel=1e-6)


def test_derivatives_equal_finite_differences():
    n, N = np.array([3.0, 0.0, 7.5]), np.array([1.0, 4.0, 0.2])
    at = np.log([0.6, 1.7])

    def value(u):
        return block_log_likelihood(n, N, *np.exp(u))

    def gradient(u):
        return block_derivatives(n, N, *np.exp(u))[:2]

    found = block_derivatives(n, N, *np.exp(at))
    assert_allclose(found[:2], approx_fprime(at, value, 1e-6), rtol=1e-4)
    hessian = [approx_fprime(at, lambda u, d=d: gradient(u)[d], 1e-6) for d in range(2)]
    expected = [hessian[0][0], hessian[0][1], hessian[1][1]]
    assert_allclose(found[2:], expected, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    ("n", "N"),
    [([0.0], [0.0]), ([0.0], [100.0]), ([100.0], [0.0]), ([5e8], [5e9]), ([1.0] * 5, [9.0] * 5)],
)
def test_counts_that_no_prior_fits_leave_it_finite_and_positive(n, N):
    for step in (block_newton, block_fixed_point):
        a, b = step(np.array(n), np.array(N), 1.0, 1.0)
        assert np.isfinite([a, b]).all()
        assert a > 0
        assert b > 0


def test_per_block_priors_follow_their_blocks_and_stay_symmetric():
    n = np.array([[90.0, 10.0], [10.0, 5.0]])
    once = np.triu(np.ones((2, 2), dtype=bool))
    for rule in ("newton", "fixed-point"):
        priors = Priors([1.0], np.ones((2, 2)), np.ones((2, 2)), shared=False)
        for _ in range(50):
            priors.learn([np.array([9.0, 4.0])], n, 100.0 - n, once, rule)
        mean = priors.a / (priors.a + priors.b)
        assert_allclose(mean, n / 100.0, atol=0.1)
        assert_allclose(priors.a, priors.a.T)


def test_crp_concentration_is_where_the_expected_number_of_clusters_is_met():
    alpha = crp_concentration(7, 100)
    expected = (alpha / (alpha + np.arange(100))).sum()
    assert expected == pytest.approx(7.0, rel=1e-6)


def test_sampled_concentration_has_the_right_posterior_mean(seed):
    rng, alpha, draws = np.random.default_rng(seed), 1.0, []
    for _ in range(20_000):
        alpha = sample_concentration(alpha, 5, 50, rng)
        draws.append(alpha)
    grid = np.linspace(1e-3, 30, 30_000)
    log_density = 5 * np.log(grid) - (1 - SHAPE) * np.log(grid) - RATE * grid
    log_density += reference.gammaln(grid) - reference.gammaln(grid + 50)
    density = np.exp(log_density - log_density.max())
    expected = (grid * density).sum() / density.sum()
    assert np.mean(draws) == pytest.approx(expected, rel=0.05)


def test_slice_sampling_has_the_right_mean(seed):
    """Without data it must reproduce the Gamma prior; with a steeper likelihood it must not."""
    rng = np.random.default_rng(seed)
    x, y, prior, other = 1.0, 1.0, [], []
    for _ in range(10_000):
        x = slice_sample(lambda _: 0.0, x, rng)
        y = slice_sample(lambda value: -2.0 * value, y, rng)
        prior.append(x)
        other.append(y)
    assert np.mean(prior) == pytest.approx(SHAPE / RATE, rel=0.06)
    assert np.mean(other) == pytest.approx(SHAPE / (RATE + 2.0), rel=0.06)
