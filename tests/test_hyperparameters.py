"""Concentrations and the prior of the blocks: ascent, agreement of both rules, extreme counts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import approx_fprime, minimize
from scipy.stats import gamma as gamma_distribution

import reference
from coblock.inference.gibbs import sample_concentration, slice_sample
from coblock.kernels.bernoulli import LARGEST, SMALLEST, block_derivatives, block_log_likelihood
from coblock.model.hyperparameters import (
    EACH_HYPERPRIOR,
    Hyperparameters,
    crp_concentration,
    crp_log_probability,
    expected_log_sticks,
    newton_on_log_scale,
    stick_concentration,
    stick_log_marginal,
)
from coblock.model.likelihoods.bernoulli import LEAST_MEAN, Bernoulli, learn_each_prior

LEARNING_RULES = ("newton", "fixed-point", "vb-fixed-point")
counts = st.lists(st.floats(0, 1e4), min_size=1, max_size=8)


def learn_shared(n, N, a: float, b: float, rule: str) -> tuple[float, float]:
    """Return a and b after one update of the prior that all blocks share."""
    prior = Bernoulli().learn_prior((n, N), np.array([a, b]).reshape(2, 1, 1), rule)
    assert prior.shape == (2, 1, 1)
    return prior[0].item(), prior[1].item()


@given(counts, counts, st.floats(0.01, 20), st.floats(0.01, 20))
def test_one_step_of_either_rule_never_lowers_the_likelihood(n, N, a, b):
    size = min(len(n), len(N))
    n, N = np.array(n[:size]), np.array(N[:size])
    before = reference.block_objective(n, N, a, b)
    for rule in LEARNING_RULES:
        after = reference.block_objective(n, N, *learn_shared(n, N, a, b, rule))
        assert after >= before - 1e-7 * (1.0 + abs(before))


@given(counts, counts, st.floats(0.01, 20), st.floats(0.01, 20))
def test_learning_per_block_never_lowers_the_posterior_of_any_block(n, N, a, b):
    size = min(len(n), len(N))
    n, N = np.array(n[:size]), np.array(N[:size])
    prior = np.array([np.full(size, a), np.full(size, b)])
    for rule in LEARNING_RULES:
        for hyperprior in (EACH_HYPERPRIOR, (1.0, 1e-9), (1.5, 0.2)):
            learnt = learn_each_prior((n, N), prior, rule, hyperprior)
            for t in range(size):
                before = block_posterior(n[t], N[t], (a, b), hyperprior)
                after = block_posterior(n[t], N[t], learnt[:, t], hyperprior)
                assert after >= before - 1e-7 * (1.0 + abs(before))
    assert (prior == [[a], [b]]).all(), "the given prior does not change"


def block_posterior(n, N, prior, hyperprior):
    """Return the log marginal of a block plus the log density of the Gamma hyperprior."""
    shape, rate = hyperprior
    density = gamma_distribution(shape, scale=1.0 / rate).logpdf(prior).sum()
    return reference.block_objective(n, N, *prior) + density


@pytest.mark.parametrize("rule", LEARNING_RULES)
def test_prior_of_each_block_converges_under_its_hyperprior(rule):
    """Without it, a + b of a block grows by a half in every step of the fixed point."""
    n, N = np.array([3.0, 0.0, 40.0]), np.array([57.0, 60.0, 20.0])
    prior = np.ones((2, 3))
    for _ in range(200):
        before, prior = prior, learn_each_prior((n, N), prior, rule, EACH_HYPERPRIOR)
    assert_allclose(prior, before, rtol=1e-6)
    for t in range(3):
        best = minimize(
            lambda u, t=t: -block_posterior(n[t], N[t], np.exp(u), EACH_HYPERPRIOR), [0.0, 0.0]
        )
        assert_allclose(prior[:, t], np.exp(best.x), rtol=1e-3)
    assert prior.min() > 0.1  # a block without links: second-order terms grow with 1 / a**2
    if rule == "fixed-point":  # negative control
        grown = 10.0 * np.array([[40.0], [20.0]])
        step = learn_each_prior((n[2:], N[2:]), grown, rule, (1.0, 1e-12)) - grown
        assert step.sum() == pytest.approx(0.5, abs=0.1)


@given(st.lists(st.floats(0, 1e4), min_size=1, max_size=6), st.floats(0.01, 20))
def test_stick_concentration_never_lowers_the_marginal(m, alpha):
    m = np.array(m)
    before = reference.concentration_objective(m, alpha)
    assert stick_log_marginal(m, alpha) == pytest.approx(before, rel=1e-9, abs=1e-9)
    for rule in LEARNING_RULES:
        after = reference.concentration_objective(m, stick_concentration(m, alpha, rule))
        assert after >= before - 1e-7 * (1.0 + abs(before))


def test_fixed_rule_changes_nothing():
    n, N, prior = np.array([3.0, 0.0]), np.array([1.0, 9.0]), np.array([0.6, 1.7]).reshape(2, 1, 1)
    assert Bernoulli().learn_prior((n, N), prior, "fixed") is prior
    assert stick_concentration(np.array([5.0, 2.0]), 0.7, "fixed") == 0.7
    assert stick_concentration(np.array([5.0]), 0.7, "newton") == 0.7, "one cluster has no stick"


def test_fixed_point_equals_definition():
    rng = np.random.default_rng(0)
    n, N = rng.gamma(1.0, 10.0, 12), rng.gamma(1.0, 50.0, 12)
    expected = reference.block_fixed_point(n, N, 0.7, 1.9)
    assert_allclose(learn_shared(n, N, 0.7, 1.9, "fixed-point"), expected)
    m = rng.gamma(1.0, 10.0, 5)
    expected = reference.concentration_fixed_point(m, 0.8)
    assert_allclose(stick_concentration(m, 0.8, "fixed-point"), expected)


def test_fixed_point_of_vb_equals_definition():
    rng = np.random.default_rng(0)
    n, N = rng.gamma(1.0, 10.0, 12), rng.gamma(1.0, 50.0, 12)
    found = learn_shared(n, N, 0.7, 1.9, "vb-fixed-point")
    assert_allclose(found, reference.vb_block_fixed_point(n, N, 0.7, 1.9))
    collapsed = reference.block_fixed_point(n, N, 0.7, 1.9)
    assert abs(found[0] / collapsed[0] - 1.0) > 0.01  # negative control
    prior = np.array([np.full(12, 0.7), np.full(12, 1.9)])
    each = learn_each_prior((n, N), prior, "vb-fixed-point", (1.0, 1e-12))
    for t in range(12):
        one = reference.vb_block_fixed_point(n[t : t + 1], N[t : t + 1], 0.7, 1.9)
        assert_allclose(each[:, t], one)


@pytest.mark.parametrize("rule", ["fixed-point", "vb-fixed-point"])
def test_newton_ends_at_the_limit_of_the_fixed_point(rule):
    rng = np.random.default_rng(1)
    theta = rng.beta(0.5, 2.0, 40)
    n = rng.binomial(200, theta).astype(float)
    a, b = 1.0, 1.0
    for _ in range(20_000):
        a, b = learn_shared(n, 200.0 - n, a, b, rule)
    assert_allclose(learn_shared(n, 200.0 - n, 1.0, 1.0, "newton"), (a, b), rtol=1e-4)
    m = np.array([50.0, 20.0, 5.0, 1.0])
    alpha = 1.0
    for _ in range(2000):
        alpha = stick_concentration(m, alpha, rule)
    assert stick_concentration(m, 1.0, "newton") == pytest.approx(alpha, rel=1e-6)
    assert stick_concentration(m, 100.0, "newton") == pytest.approx(alpha, rel=1e-6)


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
def test_prior_stays_inside_its_bounds_where_counts_have_no_optimum(n, N):
    for rule in LEARNING_RULES:
        a, b = learn_shared(np.array(n), np.array(N), 1.0, 1.0, rule)
        assert SMALLEST <= a <= LARGEST
        assert SMALLEST <= b <= LARGEST


def test_per_block_priors_follow_their_blocks_and_stay_symmetric():
    n = np.array([[90.0, 10.0], [10.0, 5.0]])
    distinct = np.triu(np.ones((2, 2), dtype=bool))
    for rule in LEARNING_RULES:
        hyper = Hyperparameters([1.0], np.ones((2, 2, 2)), per_block=True)
        for _ in range(50):
            hyper.learn(Bernoulli(), [np.array([9.0, 4.0])], (n, 100.0 - n), distinct, rule)
        mean = hyper.prior[0] / hyper.prior.sum(axis=0)
        assert_allclose(mean, n / 100.0, atol=0.1)
        assert_allclose(hyper.prior, hyper.prior.transpose(0, 2, 1))


def test_hyperparameters_of_selected_clusters():
    prior = np.arange(12.0).reshape(2, 2, 3)
    keep = [np.array([1, 0]), np.array([2, 0])]
    own = Hyperparameters([1.0, 2.0], prior, per_block=True).select(keep)
    assert_array_equal(own.prior, prior[:, ::-1][:, :, [2, 0]])
    assert_array_equal(own.tables((2, 2)), own.prior)
    shared = Hyperparameters([1.0, 2.0], prior[:, :1, :1]).select(keep)
    assert_array_equal(shared.prior, prior[:, :1, :1])
    assert_array_equal(shared.tables((2, 2)), np.broadcast_to(prior[:, :1, :1], (2, 2, 2)))
    assert shared.alpha == own.alpha == [1.0, 2.0]


def test_copies_of_hyperparameters_share_no_memory():
    hyper = Hyperparameters.initial(Bernoulli(), 0.1, (3, 2), 2, per_block=True)
    other = hyper.copy()
    other.prior[:], other.alpha[0] = 7.0, 7.0
    assert_allclose(hyper.prior[0], 0.1)
    assert_allclose(hyper.prior[1], 0.9)
    assert hyper.alpha == [1.0, 1.0]


@pytest.mark.parametrize("mean", [0.0, 0.3, 1.0])
def test_initial_prior_weighs_one_cell_of_the_mean(mean):
    a, b = Bernoulli().initial_prior(mean)
    assert a.item() + b.item() == pytest.approx(1.0)
    assert a.item() == pytest.approx(mean, abs=2.0 * LEAST_MEAN)
    assert min(a.item(), b.item()) > 0.0


@given(counts, st.floats(0.01, 20), st.floats(0.01, 20))
def test_marginal_and_predictive_mean_equal_definition(n, a, b):
    n = np.array(n)
    N = n[::-1].copy()
    shared = np.array([a, b]).reshape(2, 1)
    per_block = np.repeat(shared, n.size, axis=1)
    for prior in (shared, per_block):
        found = Bernoulli().log_marginal((n, N), prior)
        assert found == pytest.approx(reference.block_objective(n, N, a, b), rel=1e-9, abs=1e-7)
        mean = Bernoulli().predictive_mean((n, N), prior)
        assert_allclose(mean, (a + n) / (a + b + n + N))


@given(st.lists(st.floats(0, 50), min_size=1, max_size=6), st.floats(0.01, 20))
def test_expected_log_sticks_equal_definition(m, alpha):
    m = np.array(m)
    sticks = (1.0 + m[:-1], alpha + reference.tail(m)[:-1])
    expected = reference.expected_log_sticks(*sticks)
    assert_allclose(expected_log_sticks(m, alpha), expected, rtol=1e-9, atol=1e-9)


@given(st.lists(st.integers(1, 40), min_size=1, max_size=8), st.floats(0.01, 20))
def test_crp_probability_equals_definition(m, alpha):
    labels = np.repeat(np.arange(len(m)), m)
    sizes = np.array([*m, 0.0])  # an empty cluster adds nothing
    expected = reference.crp_log_probability(labels, alpha)
    assert crp_log_probability(sizes, alpha) == pytest.approx(expected, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("start", [1e-308, 1e-6, 1.0, 1e6, 1e308])
def test_newton_on_log_scale_finds_the_root_from_any_start(start):
    """The slope of 3 ln x - x is 0 at 3."""
    found = newton_on_log_scale(lambda x: (3.0 / x - 1.0, -3.0 / x**2), start)
    assert found == pytest.approx(3.0, rel=1e-9)


def test_crp_concentration_reproduces_the_expected_number_of_clusters():
    alpha = crp_concentration(7, 100)
    expected = (alpha / (alpha + np.arange(100))).sum()
    assert expected == pytest.approx(7.0, rel=1e-6)


@pytest.mark.parametrize("hyperprior", [(1.0, 1.0), (3.0, 0.5)])
def test_sampled_concentrations_have_the_posterior_mean(hyperprior, seed):
    rng, alpha, draws = np.random.default_rng(seed), 1.0, []
    shape, rate = hyperprior
    for _ in range(20_000):
        alpha = sample_concentration(alpha, 5, 50, rng, hyperprior)
        draws.append(alpha)
    grid = np.linspace(1e-3, 30, 30_000)
    log_density = (5 + shape - 1) * np.log(grid) - rate * grid
    log_density += reference.gammaln(grid) - reference.gammaln(grid + 50)
    density = np.exp(log_density - log_density.max())
    expected = (grid * density).sum() / density.sum()
    assert np.mean(draws) == pytest.approx(expected, rel=0.05)
    found = crp_concentration(5, 50, hyperprior=hyperprior)
    assert found == pytest.approx(grid[log_density.argmax()], abs=2e-3)


@pytest.mark.parametrize("hyperprior", [(1.0, 1.0), (3.0, 0.5)])
def test_slice_samples_have_the_posterior_mean(hyperprior, seed):
    """Without data samples have the mean of the Gamma prior; with a likelihood, another one."""
    rng = np.random.default_rng(seed)
    shape, rate = hyperprior
    x, y, prior, other = 0.0, 0.0, [], []
    for _ in range(10_000):
        x = slice_sample(lambda u: shape * u - rate * np.exp(u), x, rng)
        y = slice_sample(lambda u: shape * u - (rate + 2.0) * np.exp(u), y, rng)
        prior.append(np.exp(x))
        other.append(np.exp(y))
    assert np.mean(prior) == pytest.approx(shape / rate, rel=0.06)
    assert np.mean(other) == pytest.approx(shape / (rate + 2.0), rel=0.06)
