"""Prior of an object's cluster and the step from log weights to memberships."""

import numpy as np

from coblock.kernels import Domain, Floats, kernel
from coblock.kernels.special import exp, log
from coblock.kernels.strands import largest_of, total_of

NOTHING = 1e-10  # a smaller membership, relative to the largest, is 0


@kernel
def stick_log_prior(m: Floats, alpha: float, out: Floats) -> None:
    """Write log p(z_i = k | rest) under truncated sticks (eq:IRM_2dom_CVB_z_1_prior, MODEL 4).

    ``m`` leaves the object out. The last stick is 1: its own factor is 1.
    """
    M, step = np.empty(m.size), np.empty(m.size)  # members after a cluster, step to the next one
    tail = 0.0
    for k in range(m.size - 1, -1, -1):
        M[k] = tail
        tail += m[k]
    for k in range(m.size):
        log_stick = log(m[k] + M[k] + alpha + 1.0)
        out[k] = log(m[k] + 1.0) - log_stick
        step[k] = log(M[k] + alpha) - log_stick
    out[m.size - 1] = 0.0
    log_left = 0.0
    for k in range(m.size):
        out[k] += log_left
        log_left += step[k]


@kernel
def normalise(log_weight: Floats, q_i: Floats) -> tuple[float, float]:
    """Write the normalised weights into ``q_i``; return log normaliser and entropy of ``q_i``."""
    top = largest_of(log_weight)
    for k in range(q_i.size):
        weight = exp(log_weight[k] - top)
        q_i[k] = weight if weight > NOTHING else 0.0
    total = total_of(q_i)
    log_total = log(total)
    for k in range(q_i.size):
        q_i[k] /= total
    return top + log_total, entropy_of(q_i)


@kernel
def entropy_of(q_i: Floats) -> float:
    """Return the entropy of the memberships of one object."""
    part = np.empty(q_i.size)
    for k in range(q_i.size):
        part[k] = -q_i[k] * log(max(q_i[k], NOTHING))
    return total_of(part)


@kernel
def sure_cluster(q_i: Floats) -> int:
    """Return the cluster of a decided object, -1 for another."""
    for k in range(q_i.size):
        if q_i[k] != 0.0:
            return k if q_i[k] == 1.0 else -1
    return -1


@kernel
def sure_clusters(q: Floats) -> np.ndarray:
    """Return the clusters of decided objects, -1 for others."""
    sure = np.empty(q.shape[0], dtype=np.int32)
    for i in range(q.shape[0]):
        sure[i] = sure_cluster(q[i])
    return sure


@kernel
def renew(domain: Domain, i: int, log_weight: Floats) -> tuple[float, float]:
    """Renew the memberships of object ``i``; return their log normaliser and entropy."""
    result = normalise(log_weight, domain.q[i])
    domain.sure[i] = sure_cluster(domain.q[i])
    return result


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


@kernel
def average_in(mean: Floats, q: Floats, step: float) -> float:
    """Move the averaged memberships towards ``q`` (eq:ACVB); return how far, in all."""
    moved = 0.0
    for i in range(q.shape[0]):
        for k in range(q.shape[1]):
            change = (q[i, k] - mean[i, k]) * step
            mean[i, k] += change
            moved += abs(change)
    return moved


@kernel
def distance(old: Floats, new: Floats) -> float:
    """Return the sum of |change| of all memberships."""
    total = 0.0
    for i in range(new.shape[0]):
        for k in range(new.shape[1]):
            total += abs(new[i, k] - old[i, k])
    return total
