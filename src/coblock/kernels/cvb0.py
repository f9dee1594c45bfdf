"""CVB0: memberships from expected counts, one object after another or in batches (MODEL 5).

A sequential sweep takes each object out of the counts, scores it and puts it back. A batch
scores many objects against the same counts, each left out of them by formula.
"""

from typing import NamedTuple

import numpy as np

from coblock.kernels import BlockTables, DomainView, Floats, Indices, kernel
from coblock.kernels.gather import (
    add_gains,
    add_log_likelihood,
    add_outer,
    gather_all,
    own_cell,
    shift,
    strided,
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
from coblock.kernels.score import ScoreTables, add_score, empty_cache, gather_object, workspace
from coblock.kernels.special import unrolled_sum


class BatchResult(NamedTuple):
    """Results for the objects of a batch, and the changes of the sums over cells."""

    log_normaliser: Floats  # (objects,)
    entropy: Floats  # (objects,)
    fresh: Floats  # (objects, K)  new memberships
    m: Floats  # (K,)  change of the sizes
    links: Floats  # (K, L)  change of the sum over links of q_ik q_jl
    unseen: Floats  # (K, L)  the same over unseen cells; (0, 0) if there are none


@kernel
def update_one(
    domain: DomainView, other: DomainView, blocks: BlockTables, i: int
) -> tuple[float, float]:
    """Update the memberships of object ``i``; return its log normaliser and entropy.

    eq:IRM_2dom_CVB_lowerbound_z_1i_posterior, at sizes and counts without the object. With
    repeated places ``other`` is ``domain``: the sizes are updated first, so that the object is
    not counted as its own neighbour.
    """
    q_i, log_weight = domain.q[i], np.empty(domain.m.size)
    n_plus, N_plus = np.empty((2, len(domain.incidence), other.m.size))
    own_link, own_nonlink = own_cell(domain, i)
    remove_members(domain.m, q_i)
    gather_all(domain, other, i, n_plus, N_plus)
    shift(domain, blocks.n, -1.0, q_i, n_plus, own_link)
    shift(domain, blocks.N, -1.0, q_i, N_plus, own_nonlink)
    stick_log_prior(domain.m, domain.alpha, log_weight)
    add_log_likelihood(domain, blocks, n_plus, N_plus, (own_link, own_nonlink), log_weight)
    result = update_object(domain, i, log_weight)
    shift(domain, blocks.n, 1.0, q_i, n_plus, own_link)
    shift(domain, blocks.N, 1.0, q_i, N_plus, own_nonlink)
    for k in range(q_i.size):
        domain.m[k] += q_i[k]
    return result


@kernel
def sweep(rows: DomainView, columns: DomainView, blocks: BlockTables) -> tuple[float, float]:
    """Update all objects one after another; return leave-one-out likelihood and entropy.

    Rows and columns interleave. With repeated places ``columns`` is ``rows``.
    """
    leave_one_out, entropy = 0.0, 0.0
    tables = strided(blocks)
    flipped = transposed(tables)
    n_rows, n_columns = rows.q.shape[0], 0 if rows.repeated else columns.q.shape[0]
    done = np.zeros(2, np.int64)
    for _ in range(n_rows + n_columns):
        is_row = next_is_row(done[0], done[1], n_rows, n_columns)
        domain, other = (rows, columns) if is_row else (columns, rows)
        turned, d = (tables, 0) if is_row else (flipped, 1)
        result = update_one(domain, other, turned, done[d])
        done[d] += 1
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
        new, old = result.fresh[t], domain.q[i]
        result.log_normaliser[t], result.entropy[t] = normalise(log_weight, new)
        if step < 1.0:
            for k in range(new.size):
                q = old[k] + step * (new[k] - old[k])
                new[k] = q if q > NEGLIGIBLE else 0.0
            new /= unrolled_sum(new)
            result.entropy[t] = entropy_of(new)
        change = new - old
        result.m[:] += change
        add_outer(result.links, change, work.n[0])
        if result.unseen.size > 0 and not domain.repeated:
            add_outer(result.unseen, change, work.hidden[0])


@kernel
def fold_in_all(
    new: DomainView, other: DomainView, blocks: BlockTables, log_prior: Floats
) -> Floats:
    """Return log q(z_i = k), up to a constant, of new objects at one place.

    eq:IRM_2dom_CVB_lowerbound_z_1i_posterior with all counts fixed and this prior of the fitted
    clusters, which do not contain the new objects.
    """
    out = np.empty((new.incidence[0].link_start.size - 1, new.m.size))
    n_plus, N_plus = np.empty((2, 1, other.m.size))
    for i in range(out.shape[0]):
        gather_all(new, other, i, n_plus, N_plus)
        out[i] = log_prior
        add_gains(blocks, n_plus[0], N_plus[0], out[i])
    return out
