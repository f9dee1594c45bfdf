"""Sums and maxima with four accumulators, for the normalisation of MODEL 5.

Four independent chains of additions keep the processor busy. The order of the additions is
fixed, so the result has the same bits on every run.
"""

from coblock.kernels import Floats, inlined


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
