"""VB: memberships given the posteriors of sticks and blocks (MODEL 7, RELATIONS 11)."""

import numpy as np

from coblock.kernels import DomainView, Floats, inner, kernel
from coblock.kernels.gather import gather_all, own_cell
from coblock.kernels.memberships import remove_members, update_object


@inner
def add_expected_log(
    n_plus: Floats, N_plus: Floats, log_link: Floats, log_nonlink: Floats, out: Floats
) -> None:
    """Add the expected log likelihood of one place (eq:IRM_2dom_VB_posterior_pihat_1ik)."""
    for k in range(out.size):
        for l in range(n_plus.size):
            out[k] += n_plus[l] * log_link[k, l] + N_plus[l] * log_nonlink[k, l]


@kernel
def sweep_domain(
    domain: DomainView,
    other: DomainView,
    log_stick: Floats,
    log_link: Floats,
    log_nonlink: Floats,
) -> tuple[float, float]:
    """Update q(z) of one domain, object by object; return log normalisers and entropy.

    ``log_stick`` is E[log pi_k], ``log_link`` and ``log_nonlink`` are E[log theta_kl] and
    E[log(1 - theta_kl)], fixed during the sweep. With repeated places an object uses the new
    memberships of earlier objects, so that every step raises the bound.
    """
    n_plus, N_plus = np.empty((2, len(domain.incidence), other.m.size))
    total, entropy = 0.0, 0.0
    for i in range(domain.q.shape[0]):
        log_weight = log_stick.copy()
        if domain.repeated:
            remove_members(domain.m, domain.q[i])
        gather_all(domain, other, i, n_plus, N_plus)
        add_expected_log(n_plus[0], N_plus[0], log_link, log_nonlink, log_weight)
        if domain.repeated and n_plus.shape[0] == 2:
            add_expected_log(n_plus[1], N_plus[1], log_link.T, log_nonlink.T, log_weight)
            own_link, own_nonlink = own_cell(domain, i)
            for k in range(log_weight.size):
                log_weight[k] += own_link * log_link[k, k] + own_nonlink * log_nonlink[k, k]
        result = update_object(domain, i, log_weight)
        if domain.repeated:
            domain.m[:] += domain.q[i]
        total += result[0]
        entropy += result[1]
    return total, entropy
