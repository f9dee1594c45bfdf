"""CVB0: memberships from expected counts, one object after another or in batches (MODEL 5).

A sequential sweep takes each object out of the counts, scores it and puts it back. A batch
scores many objects against the same counts, each left out of them by formula.
"""

from typing import NamedTuple

import numpy as np

from coblock.kernels import BlockTables, DomainView, Floats, Indices, kernel
from coblock.kernels.gather import (
    add_log_likelihood,
    add_outer,
    gather_all,
    own_cell,
    shift,
    transposed,
)
from coblock.kernels.memberships import (
    NEGLIGIBLE,
    entropy_of,
    next_is_row,
    normalise,
    remove_members,
    stick_log_prior,
    update_object,
)
from coblock.kernels.reductions import unrolled_sum
from coblock.kernels.score import ScoreTables, add_score, empty_cache, gather_object, workspace


class BatchResult(NamedTuple):
    """Results for the objects of a batch, and the changes of the sums over cells."""

    log_normaliser: Floats  # (objects,)
    entropy: Floats  # (objects,)
    fresh: Floats  # (objects, K)  new memberships
    m: Floats  # (K,)  change of the sizes
    links: Floats  # (K, L)  change of the sum over links of q_ik q_jl
    unseen: Floats  # (K, L)  the same over unseen cells; (0, 0) if there are none


@kernel
def log_posterior(
    domain: DomainView, blocks: BlockTables, i: int, n_plus: Floats, N_plus: Floats
) -> Floats:
    """Return log q(z_i = k) up to a constant (eq:IRM_2dom_CVB_lowerbound_z_1i_posterior).

    Sizes and counts must not contain object ``i``.
    """
    out = np.empty(domain.m.size)
    stick_log_prior(domain.m, domain.alpha, out)
    add_log_likelihood(domain, blocks, n_plus, N_plus, own_cell(domain, i), out)
    return out


@kernel
def update_one(
    domain: DomainView, other: DomainView, blocks: BlockTables, i: int
) -> tuple[float, float]:
    """Update the memberships of object ``i``; return its log normaliser and entropy.

    With repeated places ``other`` is ``domain``: the sizes are updated first, so that the object
    is not counted as its own neighbour.
    """
    q_i = domain.q[i]
    n_plus = np.empty((len(domain.incidence), other.m.size))
    N_plus = np.empty_like(n_plus)
    own_link, own_nonlink = own_cell(domain, i)
    remove_members(domain.m, q_i)
    gather_all(domain, other, i, n_plus, N_plus)
    shift(domain, blocks.n, -1.0, q_i, n_plus, own_link)
    shift(domain, blocks.N, -1.0, q_i, N_plus, own_nonlink)
    log_weight = log_posterior(domain, blocks, i, n_plus, N_plus)
    result = update_object(domain, i, log_weight)
    shift(domain, blocks.n, 1.0, q_i, n_plus, own_link)
    shift(domain, blocks.N, 1.0, q_i, N_plus, own_nonlink)
    domain.m[:] += q_i
    return result


@kernel
def sweep(rows: DomainView, columns: DomainView, blocks: BlockTables) -> tuple[float, float]:
    """Update all objects one after another; return leave-one-out likelihood and entropy.

    Rows and columns interleave. With repeated places ``columns`` is ``rows``.
    """
    leave_one_out, entropy, flipped = 0.0, 0.0, transposed(blocks)
    row, column = 0, 0
    n_rows, n_columns = rows.q.shape[0], 0 if rows.repeated else columns.q.shape[0]
    while row < n_rows or column < n_columns:
        if next_is_row(row, column, n_rows, n_columns):
            result = update_one(rows, columns, blocks, row)
            row += 1
        else:
            result = update_one(columns, rows, flipped, column)
            column += 1
        leave_one_out += result[0]
        entropy += result[1]
    return leave_one_out, entropy


@kernel
def update_batch(
    domain: DomainView,
    other: DomainView,
    tables: ScoreTables,
    objects: Indices,
    step: float,
    result: BatchResult,
) -> None:
    """Write new memberships of ``objects``; the old ones stay in place.

    eq:IRM_2dom_CVB_lowerbound_z_1i_posterior for each object, at the same counts. Memberships
    move the fraction ``step`` of the way: objects that respond to the same counts would overshoot
    together.
    """
    work, cache = workspace(tables, domain), empty_cache(tables, domain)
    log_weight = work.log_weight[: domain.m.size]
    for t in range(objects.size):
        i = objects[t]
        work.q[:] = domain.q[i]
        gather_object(domain, other, i, work)
        stick_log_prior(work.m_rest, domain.alpha, log_weight)
        add_score(domain, other, tables, cache, i, work)
        result.log_normaliser[t], result.entropy[t] = normalise(log_weight, result.fresh[t])
        if step < 1.0:
            result.entropy[t] = damp(domain.q[i], step, result.fresh[t])
        change = result.fresh[t] - domain.q[i]
        result.m[:] += change
        add_outer(result.links, change, work.n[0])
        if result.unseen.size > 0 and not domain.repeated:
            add_outer(result.unseen, change, work.hidden[0])


@kernel
def damp(old: Floats, step: float, new: Floats) -> float:
    """Move ``new`` back to the fraction ``step`` of the way from ``old``; return its entropy."""
    for k in range(new.size):
        q = old[k] + step * (new[k] - old[k])
        new[k] = q if q > NEGLIGIBLE else 0.0
    new /= unrolled_sum(new)
    return entropy_of(new)
