"""One sweep of VB: memberships of each domain in turn, parameters at their best in between."""

import numpy as np
from scipy.special import digamma, entr

from coblock.kernels import Floats, vb
from coblock.model.hyperparameters import tails
from coblock.model.state import State, arrangement


def sweep(state: State) -> tuple[float, float]:
    """Renew all memberships by VB; return the sum of log normalisers and the entropy.

    The posteriors of sticks and blocks are functions of the counts, Beta(1 + m, alpha + M) and
    Beta(a + n, b + N), so counting anew is the M step.
    """
    normalisers, entropy = 0.0, 0.0
    for d in range(len(state.q)):
        log_link, log_nonlink = expected_log_blocks(state)
        if d == 1:
            log_link, log_nonlink = log_link.T.copy(), log_nonlink.T.copy()
        total, spread = vb.sweep_domain(
            state.relation.code,
            state.domain(d),
            state.domain(-1 - d),
            expected_log_sticks(state.m[d], state.priors.alpha[d]),
            log_link,
            log_nonlink,
        )
        normalisers += total
        entropy += spread
        state.recount()
    return normalisers, entropy


def expected_log_blocks(state: State) -> tuple[Floats, Floats]:
    """Return E[log theta] and E[log(1 - theta)] (eq:IRM_2dom_VB_posterior_ahat_kl, _bhat_kl)."""
    a_hat, b_hat = state.priors.a + state.n, state.priors.b + state.N
    both = digamma(a_hat + b_hat)
    return digamma(a_hat) - both, digamma(b_hat) - both


def expected_log_sticks(m: Floats, alpha: float) -> Floats:
    """Return E[log pi_k]; the last stick is 1.

    eq:IRM_2dom_VB_posterior_alphahat_1k, eq:IRM_VB_posterior_betahat_1k
    """
    a_hat, b_hat = 1.0 + m[:-1], alpha + tails(m)[:-1]
    both = digamma(a_hat + b_hat)
    own = np.append(digamma(a_hat) - both, 0.0)
    return own + np.append(0.0, np.cumsum(digamma(b_hat) - both))


def arrange(state: State) -> State:
    """Return the state with clusters by size and without negligible ones, if the bound agrees.

    Neither is a step of coordinate ascent, and the bound must never fall.
    """
    other = state.selected(arrangement(state))
    return other if exact_bound(other) >= exact_bound(state) else state


def exact_bound(state: State) -> float:
    """Return the lower bound with the entropy of the memberships as they are."""
    return state.bound(sum(float(entr(q).sum()) for q in state.q))
