"""Special functions without branches, so that loops over them vectorise, and sums (MODEL 5).

Absolute errors are a few units of the last digit of the largest term, for arguments from 1e-8
to 1e13. A difference of two log-gammas is never formed, so nothing cancels at large counts.
Sums have four independent chains of additions in a fixed order: the processor is kept busy, and
the result has the same bits on every run.
"""

import numpy as np

from coblock.kernels import Floats, fma, inlined, inlined_kernel

LN2_HIGH, LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10  # their sum is ln 2
EXPONENT_OF_1 = 1023  # of a float64, at bit 52
ROOT_HALF = 0x3FE6A09E667F3BCD  # bits of sqrt(1/2), the smallest mantissa of the logarithm
MANTISSA = (1 << 52) - 1
ONE = EXPONENT_OF_1 << 52  # bits of 1.0
TWO_TO_52 = 4503599627370496.0
BITS_OF_TWO_TO_52 = (EXPONENT_OF_1 + 52) << 52
ROUNDER = 6755399441055744.0  # 1.5 * 2**52: adding it rounds to a whole number
BITS_OF_ROUNDER = 0x4338000000000000
UNDERFLOW = -708.0  # exp of anything smaller is 0
SHIFT = 8.0  # the Stirling series has an error below 1e-15 from here on
DERIVATIVE_SHIFT = 10.0  # the same for the series of its derivatives


@inlined_kernel
def log(x: float) -> float:
    """Return the natural logarithm of a normal x > 0.

    x = 2**e * (1 + f) with 1 + f from sqrt(1/2) to sqrt(2); in s = f / (2 + f) the logarithm of
    1 + f is an odd function, with the coefficients of fdlibm.
    """
    bits = np.float64(x).view(np.int64) + (ONE - ROOT_HALF)
    exponent = np.int64(np.uint64(bits) >> np.uint64(52))  # AVX2 has no signed shift of 64 bits
    e = np.int64(exponent | BITS_OF_TWO_TO_52).view(np.float64) - (TWO_TO_52 + EXPONENT_OF_1)
    f = np.int64((bits & MANTISSA) + ROOT_HALF).view(np.float64) - 1.0
    s = f / (2.0 + f)
    z = s * s
    w = z * z
    odd = fma(w, 0.1531383769920937332, 0.2222219843214978396)
    odd = fma(w, odd, 0.3999999999940941908)
    even = fma(w, 0.1479819860511658591, 0.1818357216161805012)
    even = fma(w, fma(w, even, 0.2857142874366239149), 0.6666666666666735130)
    square = 0.5 * f * f
    rest = fma(s, fma(z, even, fma(w, odd, square)), e * LN2_LOW)
    return fma(e, LN2_HIGH, rest - square + f)


@inlined_kernel
def exp(x: float) -> float:
    """Return e**x for x below 709; 0 below -708."""
    inside = max(x, UNDERFLOW)
    shifted = fma(inside, 1.4426950408889634, ROUNDER)
    n = shifted - ROUNDER
    r = fma(n, -LN2_LOW, fma(n, -LN2_HIGH, inside))
    series = fma(r, fma(r, 1 / 6227020800, 1 / 479001600), 1 / 39916800)
    series = fma(r, fma(r, fma(r, series, 1 / 3628800), 1 / 362880), 1 / 40320)
    series = fma(r, fma(r, fma(r, series, 1 / 5040), 1 / 720), 1 / 120)
    series = fma(r, fma(r, fma(r, series, 1 / 24), 1 / 6), 1 / 2)
    series = fma(r, fma(r, series, 1.0), 1.0)
    bits = np.float64(shifted).view(np.int64) - BITS_OF_ROUNDER + EXPONENT_OF_1
    scale = np.int64(bits << 52).view(np.float64)
    return series * scale if x >= UNDERFLOW else 0.0


@inlined_kernel
def stirling_remainder(r: float) -> float:
    """Return lnGamma(x) - (x - 1/2) ln x + x - ln(2 pi)/2 for x = 1/r >= 8."""
    z = r * r
    series = fma(-z, fma(-z, fma(z, -1 / 156, 691 / 360360), 1 / 1188), 1 / 1680)
    return r * fma(-z, fma(-z, fma(-z, series, 1 / 1260), 1 / 360), 1 / 12)


@inlined
def first_factors(x: float) -> float:
    """Return x (x + 1) ... (x + 7)."""
    return x * (x + 1.0) * (x + 2.0) * (x + 3.0) * ((x + 4.0) * (x + 5.0) * (x + 6.0) * (x + 7.0))


@inlined
def rising_parts(x: float, d: float) -> tuple[float, float, float, float, float]:
    """Return A, y, 1/y, B and C of lnGamma(x + d) - lnGamma(x) = A + d (ln y - 1) - ln(B / C).

    y is x + 8, where Stirling's series is exact; B and C are the products that the shift leaves.
    One division serves y, y + d and the logarithm of 1 + d / y.
    """
    low = x + SHIFT
    high = low + d
    both = 1.0 / (low * high)
    one, other = high * both, low * both  # over low and over high
    growth = d * one
    rounded = 1.0 + growth
    log_growth = log(rounded) + (growth - (rounded - 1.0)) * (low * other)
    smooth = (high - 0.5) * log_growth + (stirling_remainder(other) - stirling_remainder(one))
    return smooth, low, one, first_factors(x + d), first_factors(x)


@inlined_kernel
def log_rising(x: float, d: float) -> float:
    """Return lnGamma(x + d) - lnGamma(x), the log rising factorial, for x > 0 and d >= 0."""
    smooth, low, _, high_x, low_x = rising_parts(x, d)
    return smooth + d * (log(low) - 1.0) - log(high_x / low_x)


@inlined_kernel
def log_rising_difference(x: float, y: float, d: float) -> float:
    """Return log_rising(x, d) - log_rising(y, d) at less than the cost of both."""
    smooth_x, shifted_x, _, high_x, low_x = rising_parts(x, d)
    smooth_y, _, over_y, high_y, low_y = rising_parts(y, d)
    factors = high_x * low_y / (low_x * high_y)
    return smooth_x - smooth_y + d * log(shifted_x * over_y) - log(factors)


@inlined_kernel
def log_rising_balance(x: float, dx: float, y: float, dy: float, z: float) -> float:
    """Return log_rising(x, dx) + log_rising(y, dy) - log_rising(z, dx + dy)."""
    smooth_x, shifted_x, _, high_x, low_x = rising_parts(x, dx)
    smooth_y, shifted_y, _, high_y, low_y = rising_parts(y, dy)
    smooth_z, _, over_z, high_z, low_z = rising_parts(z, dx + dy)
    smooth = smooth_x + smooth_y - smooth_z
    logs = dx * log(shifted_x * over_z) + dy * log(shifted_y * over_z)
    factors = (high_x / low_x) * (high_y * low_z / (low_y * high_z))
    return smooth + logs - log(factors)


@inlined_kernel
def digamma(x: float) -> float:
    """Return the derivative of lnGamma for x > 0."""
    total = 0.0
    for step in range(10):
        total += 1.0 / (x + step)
    y = x + DERIVATIVE_SHIFT
    r = 1.0 / y
    z = r * r
    series = 1 / 240 - z * (1 / 132 - z * (691 / 32760 - z / 12))
    return log(y) - 0.5 * r - z * (1 / 12 - z * (1 / 120 - z * (1 / 252 - z * series))) - total


@inlined_kernel
def trigamma(x: float) -> float:
    """Return the second derivative of lnGamma for x > 0."""
    total = 0.0
    for step in range(10):
        r = 1.0 / (x + step)
        total += r * r
    r = 1.0 / (x + DERIVATIVE_SHIFT)
    z = r * r
    series = 1 / 30 - z * (5 / 66 - z * (691 / 2730 - z * (7 / 6)))
    return r + 0.5 * z + r * z * (1 / 6 - z * (1 / 30 - z * (1 / 42 - z * series))) + total


@inlined
def unrolled_sum(x: Floats) -> float:
    """Return the sum of an array."""
    a, b, c, d = 0.0, 0.0, 0.0, 0.0
    rest = x.size % 4
    for t in range(rest):
        a += x[t]
    for t in range(rest, x.size, 4):
        a, b, c, d = a + x[t], b + x[t + 1], c + x[t + 2], d + x[t + 3]
    return (a + b) + (c + d)


@inlined
def unrolled_max(x: Floats) -> float:
    """Return the largest entry of an array."""
    a = b = c = d = x[0]
    rest = x.size % 4
    for t in range(rest):
        a = max(a, x[t])
    for t in range(rest, x.size, 4):
        a, b, c, d = max(a, x[t]), max(b, x[t + 1]), max(c, x[t + 2]), max(d, x[t + 3])
    return max(a, b, c, d)
