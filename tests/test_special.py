"""Special functions against SciPy and, at large counts, against exact arithmetic."""

import os
import platform
import re
import subprocess
import sys
from fractions import Fraction
from math import lgamma, log

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special

from coblock.kernels import fma
from coblock.kernels import special as ours
from coblock.kernels.bernoulli import log_beta_gain, log_beta_gains
from coblock.kernels.special import digamma, log_rising, trigamma

positive = st.floats(1e-8, 1e13)


@given(positive)
def test_digamma_equals_scipy(x):
    assert digamma(x) == pytest.approx(special.digamma(x), rel=1e-12, abs=1e-13)


@given(positive)
def test_trigamma_equals_scipy(x):
    assert trigamma(x) == pytest.approx(special.polygamma(1, x), rel=1e-11)


@given(st.floats(1e-8, 1e4), st.floats(0, 1e4))
def test_log_rising_equals_difference_of_log_gammas(x, d):
    expected = special.gammaln(x + d) - special.gammaln(x)
    scale = max(abs(special.gammaln(x + d)), abs(special.gammaln(x)), 1.0)
    assert log_rising(x, d) == pytest.approx(expected, abs=4e-15 * scale, rel=1e-12)


@pytest.mark.parametrize("x", [10**3, 10**6, 10**9, 10**12])
@pytest.mark.parametrize("d", [1, 2, 7])
def test_log_rising_keeps_all_digits_at_large_counts(x, d):
    """x (x+1) ... (x+d-1) is a whole number, so its logarithm is known to the last digit."""
    product = 1
    for step in range(d):
        product *= x + step
    assert log_rising(float(x), float(d)) == pytest.approx(log(product), rel=1e-15)


def test_differences_of_log_gammas_lose_digits():
    """Negative control: the plain difference has an error of 1e-7 at a count of 1e9."""
    exact = log(10**9)
    assert abs((lgamma(1e9 + 1) - lgamma(1e9)) - exact) > 1e-7
    assert abs(log_rising(1e9, 1.0) - exact) < 1e-14


@pytest.mark.parametrize(("n", "N"), [(3, 5), (10**6, 10**9), (1, 10**10)])
def test_log_beta_gain_of_one_cell_is_its_predictive_probability(n, N):
    """The next cell is a link with probability n / (n + N)."""
    link = Fraction(n, n + N)
    assert log_beta_gain(n, N, 1.0, 0.0) == pytest.approx(float(np.log(float(link))), rel=1e-13)
    nonlink = np.log1p(-float(link))
    assert log_beta_gain(n, N, 0.0, 1.0) == pytest.approx(nonlink, rel=1e-6, abs=1e-14)


def test_gain_of_no_cells_is_zero():
    assert abs(log_rising(3.0, 0.0)) < 1e-18
    assert abs(log_beta_gain(0.5, 0.5, 0.0, 0.0)) < 1e-18


@given(positive)
def test_log_equals_numpy(x):
    assert ours.log(x) == pytest.approx(np.log(x), rel=4e-16, abs=2e-16)


@given(st.floats(ours.SHIFT, 1e13))
def test_stirling_series_equals_log_gamma(x):
    smooth = (x - 0.5) * np.log(x) - x + 0.5 * np.log(2.0 * np.pi)
    found = smooth + ours.stirling_remainder(1.0 / x)
    assert found == pytest.approx(special.gammaln(x), rel=1e-14, abs=1e-14)


@given(st.floats(-800, 700))
def test_exp_equals_numpy_and_underflows_to_zero(x):
    expected = np.exp(x) if x >= ours.UNDERFLOW else 0.0
    assert ours.exp(x) == pytest.approx(expected, rel=4e-16, abs=0.0)
    assert ours.exp(-np.inf) == 0.0


@given(positive, positive, st.floats(0, 1e6))
def test_log_rising_difference_equals_two_log_risings(x, y, d):
    expected = log_rising(x, d) - log_rising(y, d)
    scale = max(abs(log_rising(x, d)), abs(log_rising(y, d)), d, 1.0)
    assert ours.log_rising_difference(x, y, d) == pytest.approx(expected, abs=1e-14 * scale)


@given(positive, st.floats(0, 1e5), positive, st.floats(0, 1e6), positive)
def test_log_rising_balance_equals_three_log_risings(x, dx, y, dy, z):
    parts = log_rising(x, dx), log_rising(y, dy), -log_rising(z, dx + dy)
    scale = max(*map(abs, parts), dx + dy, 1.0)
    found = ours.log_rising_balance(x, dx, y, dy, z)
    assert found == pytest.approx(sum(parts), abs=1e-14 * scale)


def loop_over(function):
    def loop(x, out):
        for t in range(out.size):
            out[t] = function(x[t])

    return loop


@pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="looks at compiled code")
@pytest.mark.skipif(platform.machine() not in {"x86_64", "AMD64"}, reason="looks for x86 registers")
@pytest.mark.parametrize("name", ["log", "exp", "stirling_remainder", "digamma", "trigamma"])
def test_loops_over_special_functions_vectorise(name):
    """The compiled loop uses registers of 256 or 512 bits; a loop over math.lgamma does not."""
    assert vectorises(loop_over(getattr(ours, name)))
    assert not vectorises(loop_over(lgamma))


def vectorises(loop) -> bool:
    """Return whether the code of the loop multiplies packed doubles."""
    options = log_beta_gains.targetoptions
    compiled = numba.njit(
        "void(f8[::1], f8[::1])",
        error_model=options["error_model"],
        fastmath=options["fastmath"],
    )(loop)
    code = "".join(compiled.inspect_asm().values())
    return re.search(r"mul(pd|add\w*pd).*[yz]mm|fn?m\w+pd.*[yz]mm", code) is not None


ASCENT = """
import numpy as np
from coblock.kernels.poisson import gamma_ascent
rng = np.random.default_rng(0)
for _ in range(30):
    n, T = rng.poisson(3.0, 40).astype(float), rng.integers(1, 60, 40).astype(float)
    print(*(value.hex() for value in gamma_ascent(n, T, 1.0, 1.0, 20)))
"""


@pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="looks at compiled code")
def test_kernels_from_the_cache_have_the_bits_of_those_just_compiled(tmp_path):
    """A kernel that is compiled calls functions compiled before it; a cached one has copies.

    With contracted multiplications and additions the copies differ in their last bits.
    """
    there = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    found = [
        subprocess.run(
            [sys.executable, "-c", ASCENT], env=there, capture_output=True, text=True, check=True
        ).stdout
        for _ in range(2)
    ]
    assert found[0]
    assert found[0] == found[1]


@pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="looks at compiled code")
def test_fma_rounds_once():
    """The square of 1 + u has the term u**2, which two roundings lose."""
    u = 2.0**-30
    fused = numba.njit(lambda x, z: fma(x, x, z))
    assert fused(1.0 + u, -(1.0 + 2.0 * u)) == u * u
    assert (1.0 + u) * (1.0 + u) - (1.0 + 2.0 * u) == 0.0
