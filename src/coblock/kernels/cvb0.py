"""CVB0: one object after another is taken out, scored against the expected counts, put back."""

import numpy as np

from coblock.kernels import BIPARTITE, Blocks, Domain, Floats, kernel
from coblock.kernels.blocks import add_likelihood, gather_all, own_cell, shift, transposed
from coblock.kernels.memberships import (
    next_is_row,
    remove_members,
    renew,
    stick_log_prior,
)


@kernel
def log_posterior(
    kind: int, domain: Domain, blocks: Blocks, i: int, n_plus: Floats, N_plus: Floats
) -> Floats:
    """Return log q(z_i = k) up to a constant (eq:IRM_2dom_CVB_lowerbound_z_1i_posterior).

    Sizes and counts must leave object ``i`` out.
    """
    out = np.empty(domain.m.size)
    stick_log_prior(domain.m, domain.alpha, out)
    add_likelihood(kind, blocks, n_plus, N_plus, own_cell(kind, domain, i), out)
    return out


@kernel
def visit(kind: int, domain: Domain, other: Domain, blocks: Blocks, i: int) -> tuple[float, float]:
    """Renew the memberships of object ``i``; return its log normaliser and entropy.

    In one domain ``other`` is ``domain``: the sizes are renewed first, so that nobody counts
    the object as its own neighbour.
    """
    q_i = domain.q[i]
    n_plus = np.empty((len(domain.places), other.m.size))
    N_plus = np.empty_like(n_plus)
    own_link, own_nonlink = own_cell(kind, domain, i)
    remove_members(domain.m, q_i)
    gather_all(domain, other, i, n_plus, N_plus)
    shift(kind, blocks.n, -1.0, q_i, n_plus, own_link)
    shift(kind, blocks.N, -1.0, q_i, N_plus, own_nonlink)
    log_weight = log_posterior(kind, domain, blocks, i, n_plus, N_plus)
    result = renew(domain, i, log_weight)
    shift(kind, blocks.n, 1.0, q_i, n_plus, own_link)
    shift(kind, blocks.N, 1.0, q_i, N_plus, own_nonlink)
    domain.m[:] += q_i
    return result


@kernel
def sweep_one_domain(kind: int, domain: Domain, blocks: Blocks) -> tuple[float, float]:
    """Visit all objects of a one-domain relation; return leave-one-out and entropy."""
    leave_one_out, entropy = 0.0, 0.0
    for i in domain.order:
        log_normaliser, spread = visit(kind, domain, domain, blocks, i)
        leave_one_out += log_normaliser
        entropy += spread
    return leave_one_out, entropy


@kernel
def sweep_two_domains(rows: Domain, columns: Domain, blocks: Blocks) -> tuple[float, float]:
    """Visit all rows and columns, interleaved; return leave-one-out and entropy."""
    leave_one_out, entropy = 0.0, 0.0
    flipped = transposed(blocks)
    row, column = 0, 0
    while row < rows.order.size or column < columns.order.size:
        if next_is_row(row, column, rows.order.size, columns.order.size):
            result = visit(BIPARTITE, rows, columns, blocks, rows.order[row])
            row += 1
        else:
            result = visit(BIPARTITE, columns, rows, flipped, columns.order[column])
            column += 1
        leave_one_out += result[0]
        entropy += result[1]
    return leave_one_out, entropy
