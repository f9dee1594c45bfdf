"""Prior of an object's cluster, and the step from log weights to memberships (MODEL 4, 5, 9)."""

import numpy as np

from coblock.kernels import DomainView, Floats, Indices, inner, kernel
from coblock.kernels.special import exp, log, unrolled_max, unrolled_sum

NEGLIGIBLE = 1e-10  # memberships below this fraction of the largest are set to 0


@kernel
def stick_log_prior(m: Floats, alpha: float, out: Floats) -> None:
    """Write log p(z_i = k | rest) under truncated sticks (eq:IRM_2dom_CVB_z_1_prior, MODEL 4).

    ``m`` leaves the object out. The last stick is 1: its own factor is 1.
    """
    M, step = np.empty(m.size), np.empty(m.size)  # members of later clusters, step to the next one
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


@inner
def normalise(log_weight: Floats, q_i: Floats) -> tuple[float, float]:
    """Write the normalised weights into ``q_i``; return log normaliser and entropy of ``q_i``."""
    top = unrolled_max(log_weight)
    for k in range(q_i.size):
        weight = exp(log_weight[k] - top)
        q_i[k] = weight if weight > NEGLIGIBLE else 0.0
    total = unrolled_sum(q_i)
    log_total = log(total)
    for k in range(q_i.size):
        q_i[k] /= total
    return top + log_total, entropy_of(q_i)


@inner
def entropy_of(q_i: Floats) -> float:
    """Return the entropy of the memberships of one object."""
    part = np.empty(q_i.size)
    for k in range(q_i.size):
        part[k] = -q_i[k] * log(max(q_i[k], NEGLIGIBLE))
    return unrolled_sum(part)


@inner
def hard_label(q_i: Floats) -> int:
    """Return the cluster of a hard assignment, -1 for a soft one."""
    for k in range(q_i.size):
        if q_i[k] != 0.0:
            return k if q_i[k] == 1.0 else -1
    return -1


@kernel
def hard_labels(q: Floats) -> Indices:
    """Return the clusters of hard assignments, -1 for soft ones."""
    hard = np.empty(q.shape[0], dtype=np.int32)
    for i in range(q.shape[0]):
        hard[i] = hard_label(q[i])
    return hard


@inner
def update_object(domain: DomainView, i: int, log_weight: Floats) -> tuple[float, float]:
    """Write new memberships of object ``i``; return their log normaliser and entropy."""
    result = normalise(log_weight, domain.q[i])
    domain.hard[i] = hard_label(domain.q[i])
    return result


@kernel
def remove_members(m: Floats, q_i: Floats) -> None:
    """Subtract one object's memberships from the sizes; rounding never leaves less than 0."""
    for k in range(m.size):
        m[k] = max(m[k] - q_i[k], 0.0)


@kernel
def next_is_row(row: int, column: int, n_rows: int, n_columns: int) -> bool:
    """Return whether a row is next, so that rows and columns interleave in proportion."""
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
def total_change(old: Floats, old_count: int, new: Floats, new_count: int) -> float:
    """Return the sum of |change| from one mean to another; sums of so many are given."""
    total, old_share, new_share = 0.0, 1.0 / old_count, 1.0 / new_count
    for i in range(old.shape[0]):
        row = 0.0
        for k in range(old.shape[1]):
            row += abs(new_share * new[i, k] - old_share * old[i, k])
        total += row
    return total


@kernel
def update_average(mean: Floats, q: Floats, step: float) -> float:
    """Move the averaged memberships towards ``q`` (eq:ACVB); return the sum of |change|."""
    moved = 0.0
    for i in range(q.shape[0]):
        for k in range(q.shape[1]):
            change = (q[i, k] - mean[i, k]) * step
            mean[i, k] += change
            moved += abs(change)
    return moved
