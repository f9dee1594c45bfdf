"""Sums and maxima in four strands: additions need not wait for one another, bits are the same."""

from coblock.kernels import Floats, inlined


@inlined
def total_of(x: Floats) -> float:
    """Return the sum in four strands, which need not wait for one another."""
    a, b, c, d = 0.0, 0.0, 0.0, 0.0
    rest = x.size % 4
    for t in range(rest):
        a += x[t]
    for t in range(rest, x.size, 4):
        a, b, c, d = a + x[t], b + x[t + 1], c + x[t + 2], d + x[t + 3]
    return (a + b) + (c + d)


@inlined
def largest_of(x: Floats) -> float:
    """Return the largest number, in four strands as well."""
    a = b = c = d = x[0]
    rest = x.size % 4
    for t in range(rest):
        a = max(a, x[t])
    for t in range(rest, x.size, 4):
        a, b, c, d = max(a, x[t]), max(b, x[t + 1]), max(c, x[t + 2]), max(d, x[t + 3])
    return max(a, b, c, d)
