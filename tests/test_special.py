"""Special functions against SciPy and, at large counts, against exact arithmetic."""

from fractions import Fraction
from math import lgamma, log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special

from coblock.kernels.special import digamma, log_beta_gain, log_rising, trigamma

positive = st.floats(1e-8, 1e13)


@given(positive)
def test_digamma_equals_scipy(x):
    assert digamma(x) == pytest.approx(special.digamma(x), rel=1e-12, abs=1e-13)


@given(positive)
def test_trigamma_equals_scipy(x):
    assert trigamma(x) == pytest.approx(special.polygamma(1, x), rel=1e-11)


@given(st.floats(1e-8, 1e4), st.floats(0, 1e4))
def test_log_rising_equals_the_difference_of_log_gammas(x, d):
    expected = special.gammaln(x + d) - special.gammaln(x)
    scale = max(abs(special.gammaln(x + d)), abs(special.gammaln(x)), 1.0)
    assert log_rising(x, d) == pytest.approx(expected, abs=4e-15 * scale, rel=1e-12)


@pytest.mark.parametrize("x", [10**3, 10**6, 10**9, 10**12])
@pytest.mark.parametrize("d", [1, 2, 7])
def test_log_rising_keeps_all_digits_at_large_counts(x, d):
    """x (x+1) ... (x+d-1) is a whole number: its logarithm is known to the last digit."""
    product = 1
    for step in range(d):
        product *= x + step
    assert log_rising(float(x), float(d)) == pytest.approx(log(product), rel=1e-15)


def test_differences_of_log_gammas_would_not_do():
    """Negative control: the plain difference loses six digits at a count of 1e9."""
    exact = log(10**9)
    assert abs((lgamma(1e9 + 1) - lgamma(1e9)) - exact) > 1e-7
    assert abs(log_rising(1e9, 1.0) - exact) < 1e-14


@pytest.mark.parametrize(("n", "N"), [(3, 5), (10**6, 10**9), (1, 10**10)])
def test_log_beta_gain_of_one_cell_is_the_predictive_probability(n, N):
    """One more link has probability n / (n + N); one more non-link N / (n + N)."""
    link = Fraction(n, n + N)
    assert log_beta_gain(n, N, 1.0, 0.0) == pytest.approx(float(np.log(float(link))), rel=1e-13)
    nonlink = np.log1p(-float(link))
    assert log_beta_gain(n, N, 0.0, 1.0) == pytest.approx(nonlink, rel=1e-6, abs=1e-14)


def test_nothing_brought_gains_nothing():
    assert abs(log_rising(3.0, 0.0)) < 1e-18
    assert abs(log_beta_gain(0.5, 0.5, 0.0, 0.0)) < 1e-18
