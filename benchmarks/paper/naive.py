"""The naive sweep of CVB0, O(N1 N2 K1 K2): every cell is read for every pair of clusters.

It is timed against the linear sweep and checks it: both update the same memberships in the same
order, compiled with the same options.
"""

import math
from dataclasses import dataclass

import numba
import numpy as np
from numpy.typing import NDArray

UNSEEN = -1
Floats = NDArray[np.float64]
# the options of coblock's kernels
kernel = numba.njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract", "nsz"})


@dataclass
class NaiveState:
    """A dense relation (1, 0, or -1 for unseen) with memberships and counts."""

    X: NDArray[np.int8]
    q: list[Floats]
    alpha: list[float]
    a: float
    b: float

    def __post_init__(self) -> None:
        """Count links, non-links and members."""
        q_row, q_col = self.q
        self.n = q_row.T @ (self.X == 1).astype(float) @ q_col
        self.N = q_row.T @ (self.X == 0).astype(float) @ q_col
        self.m = [q.sum(axis=0) for q in self.q]

    def sweep(self, share: float = 1.0) -> None:
        """Update the first ``share`` of rows and of columns, interleaved."""
        by_row, by_col = self.X, np.ascontiguousarray(self.X.T)
        ends = [max(round(share * size), 1) for size in self.X.shape]
        row, column = 0, 0
        n_col, N_col = self.n.T, self.N.T
        while row < ends[0] or column < ends[1]:
            if row * ends[1] <= column * ends[0] and row < ends[0]:
                args = (by_row[row], self.q[0][row], self.q[1], self.m[0])
                update_object(*args, self.n, self.N, self.alpha[0], self.a, self.b)
                row += 1
            else:
                args = (by_col[column], self.q[1][column], self.q[0], self.m[1])
                update_object(*args, n_col, N_col, self.alpha[1], self.a, self.b)
                column += 1


@kernel
def update_object(
    x: NDArray[np.int8],
    q_i: Floats,
    q_other: Floats,
    m: Floats,
    n: Floats,
    N: Floats,
    alpha: float,
    a: float,
    b: float,
) -> None:
    """Update the memberships of one object and all counts."""
    K, L = n.shape
    n_plus, N_plus = np.empty(L), np.empty(L)
    m -= q_i
    weight = log_prior(m, alpha)
    for k in range(K):
        for l in range(L):
            n_plus[l] = N_plus[l] = 0.0
            for j in range(x.size):
                if x[j] == 1:
                    n_plus[l] += q_other[j, l]
                elif x[j] == 0:
                    N_plus[l] += q_other[j, l]
            n_rest = a + max(n[k, l] - q_i[k] * n_plus[l], 0.0)
            N_rest = b + max(N[k, l] - q_i[k] * N_plus[l], 0.0)
            weight[k] += log_beta(n_rest + n_plus[l], N_rest + N_plus[l])
            weight[k] -= log_beta(n_rest, N_rest)
    new = np.exp(weight - weight.max())
    new /= new.sum()
    for k in range(K):
        n[k] += (new[k] - q_i[k]) * n_plus
        N[k] += (new[k] - q_i[k]) * N_plus
    q_i[:] = new
    m += q_i


@kernel
def log_prior(m: Floats, alpha: float) -> Floats:
    """Return the truncated stick-breaking prior given all other objects (MODEL 4)."""
    out = np.empty(m.size)
    before, tail = 0.0, m.sum()
    for k in range(m.size):
        tail = max(tail - m[k], 0.0)
        whole = m[k] + tail + alpha + 1.0
        out[k] = before + (math.log((m[k] + 1.0) / whole) if k < m.size - 1 else 0.0)
        before += math.log((tail + alpha) / whole)
    return out


@kernel
def log_beta(a: float, b: float) -> float:
    """Return the log beta function."""
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
