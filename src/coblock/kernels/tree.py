"""Gains of merges that another merge has changed (RELATIONS 9)."""

import numpy as np

from coblock.kernels import Floats, Offsets, inlined, kernel
from coblock.kernels.bernoulli import block_values, log_beta_gain


@inlined
def joint_values(n: Floats, N: Floats, s: int, a: float, b: float, out: Floats) -> None:
    """Write the values of the blocks of one merged line with column s and each later column."""
    for t in range(s + 1, n.size):
        out[t] = log_beta_gain(a, b, n[s] + n[t], N[s] + N[t])


@kernel
def add_merge_changes(
    n: Floats, N: Floats, a: float, b: float, rest: Offsets, gains: Floats
) -> None:
    """Add to the gains of pairs of clusters what changes as two lines of blocks become one.

    ``n`` and ``N`` (2, clusters) are the lines at the clusters ``rest``. A pair (i, j) then shares
    one block in place of two: its gain changes by J(sum of the lines) less J of each, where
    J = f(n_i + n_j) - f(n_i) - f(n_j) and f is the log marginal of a block.
    """
    size = rest.size
    lines_n, lines_N = np.empty((3, size)), np.empty((3, size))
    for t in range(size):
        lines_n[0, t], lines_n[1, t], lines_n[2, t] = n[0, t], n[1, t], n[0, t] + n[1, t]
        lines_N[0, t], lines_N[1, t], lines_N[2, t] = N[0, t], N[1, t], N[0, t] + N[1, t]
    single, joint, change = np.empty((3, size)), np.empty(size), np.empty(size)
    for line in range(3):
        block_values(lines_n[line], lines_N[line], a, b, single[line])
    alone = single[2] - single[0] - single[1]
    for s in range(size - 1):
        for t in range(s + 1, size):
            change[t] = -alone[s] - alone[t]
        for line in range(3):
            joint_values(lines_n[line], lines_N[line], s, a, b, joint)
            sign = 1.0 if line == 2 else -1.0
            for t in range(s + 1, size):
                change[t] += sign * joint[t]
        for t in range(s + 1, size):
            gains[rest[s], rest[t]] += change[t]
