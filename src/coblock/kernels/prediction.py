"""New objects scored against a fitted model, which does not change."""

import numpy as np

from coblock.kernels import Blocks, Domain, Floats, Indices, kernel
from coblock.kernels.blocks import add_gains, gather_place
from coblock.kernels.memberships import column_sums, stick_log_prior


@kernel
def fold_in_all(rows: Domain, q_other: Floats, sure_other: Indices, blocks: Blocks) -> Floats:
    """Return log q(z_i = k), up to a constant, of new objects at one place.

    eq:IRM_2dom_CVB_lowerbound_z_1i_posterior with all counts fixed; ``rows.m`` are the sizes of
    the fitted clusters, of which the new objects are no members.
    """
    out, m_other = np.empty((rows.order.size, rows.m.size)), column_sums(q_other)
    n_plus, N_plus = np.empty(m_other.size), np.empty(m_other.size)
    for i in rows.order:
        gather_place(rows.places[0], i, q_other, sure_other, m_other, n_plus, N_plus)
        stick_log_prior(rows.m, rows.alpha, out[i])
        add_gains(blocks, n_plus, N_plus, out[i])
    return out
