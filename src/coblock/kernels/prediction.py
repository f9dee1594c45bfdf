"""Memberships of new objects given a fitted model, which does not change (MODEL 13)."""

import numpy as np

from coblock.kernels import BlockTables, DomainView, Floats, kernel
from coblock.kernels.gather import add_gains, gather_place
from coblock.kernels.memberships import stick_log_prior


@kernel
def fold_in_all(new: DomainView, other: DomainView, blocks: BlockTables) -> Floats:
    """Return log q(z_i = k), up to a constant, of new objects at one place.

    eq:IRM_2dom_CVB_lowerbound_z_1i_posterior with all counts fixed. ``new.m`` are the sizes of
    the fitted clusters, which do not contain the new objects.
    """
    out = np.empty((new.incidence[0].link_start.size - 1, new.m.size))
    n_plus, N_plus = np.empty(other.m.size), np.empty(other.m.size)
    for i in range(out.shape[0]):
        gather_place(new.incidence[0], i, other, n_plus, N_plus)
        stick_log_prior(new.m, new.alpha, out[i])
        add_gains(blocks, n_plus, N_plus, out[i])
    return out
