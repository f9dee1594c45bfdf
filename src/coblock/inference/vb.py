"""One sweep of VB: memberships of a domain, then posteriors of sticks and blocks (MODEL 7)."""

from scipy.special import entr

from coblock.inference.engine import SoftSweep, largest_change
from coblock.kernels import vb
from coblock.model.priors import expected_log_sticks
from coblock.model.state import SoftState, sort_and_prune


def sweep_vb(state: SoftState) -> SoftSweep:
    """Update all memberships by VB.

    The posteriors of sticks and blocks are functions of the counts, Beta(1 + m, alpha + M) and
    Beta(a + n, b + N), so counting is the M step.
    """
    old = [q.copy() for q in state.q]
    normalisers, entropy = 0.0, 0.0
    for d in range(len(state.q)):
        statistics = (state.blocks.n, state.blocks.N)
        expected = state.relation.likelihood.expected_log(statistics, state.hyper.prior)
        log_link, log_nonlink = (table.T.copy() if d == 1 else table for table in expected)
        log_sticks = expected_log_sticks(state.m[d], state.hyper.alpha[d])
        views = (state.domain(d), state.domain(-1 - d))
        part = vb.sweep_domain(*views, log_sticks, log_link, log_nonlink)
        normalisers, entropy = normalisers + part[0], entropy + part[1]
        state.recount()
    return SoftSweep(normalisers, entropy, largest_change(old, state.q))


def prune_if_bound_allows(state: SoftState) -> SoftState:
    """Return the state with clusters by size and without negligible ones, if the bound allows.

    Neither is a step of coordinate ascent, and the bound must never fall.
    """
    other = state.select(sort_and_prune(state))
    return other if exact_bound(other) >= exact_bound(state) else state


def exact_bound(state: SoftState) -> float:
    """Return the lower bound with the entropy of the present memberships."""
    return state.bound(sum(float(entr(q).sum()) for q in state.q))
