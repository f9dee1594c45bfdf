"""Prior of an object's cluster and the step from log weights to memberships."""

import math

import numpy as np

from coblock.kernels import Floats, kernel


@kernel
def stick_log_prior(m: Floats, alpha: float, out: Floats) -> None:
    """Write log p(z_i = k | rest) under truncated sticks (eq:IRM_2dom_CVB_z_1_prior, MODEL 4).

    ``m`` leaves the object out. The last stick is 1: its own factor is 1.
    """
    tail = m.sum()  # M_k + m_k, running
    log_left = 0.0
    for k in range(m.size):
        M_k = max(tail - m[k], 0.0)
        log_stick = math.log(m[k] + M_k + alpha + 1.0)
        out[k] = log_left
        if k < m.size - 1:
            out[k] += math.log(m[k] + 1.0) - log_stick
        log_left += math.log(M_k + alpha) - log_stick
        tail = M_k


@kernel
def normalise(log_weight: Floats, q_i: Floats) -> tuple[float, float]:
    """Write the normalised weights into ``q_i``; return log normaliser and entropy of ``q_i``."""
    top = log_weight.max()
    total = 0.0
    for k in range(q_i.size):
        q_i[k] = math.exp(log_weight[k] - top)
        total += q_i[k]
    log_total = math.log(total)
    entropy = log_total
    for k in range(q_i.size):
        q_i[k] /= total
        if q_i[k] > 0.0:
            entropy -= q_i[k] * (log_weight[k] - top)
    return top + log_total, entropy


@kernel
def remove_members(m: Floats, q_i: Floats) -> None:
    """Take one object's memberships out of the sizes, never below zero by rounding."""
    for k in range(m.size):
        m[k] = max(m[k] - q_i[k], 0.0)


@kernel
def next_is_row(row: int, column: int, n_rows: int, n_columns: int) -> bool:
    """Say whose turn it is so that rows and columns interleave in proportion."""
    return column == n_columns or (row < n_rows and row * n_columns <= column * n_rows)


@kernel
def column_sums(q: Floats) -> Floats:
    """Return the expected sizes m_k (eq:IRM_2dom_CVB_m_1k_2l_E)."""
    m = np.zeros(q.shape[1])
    for i in range(q.shape[0]):
        for k in range(m.size):
            m[k] += q[i, k]
    return m
