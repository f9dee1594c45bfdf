"""One sweep of CVB0 and of second-order CVB over all objects."""

import numpy as np

from coblock.kernels import Floats, cvb0, second_order
from coblock.kernels.blocks import transposed
from coblock.kernels.covariance import Spread
from coblock.kernels.second_order import Side
from coblock.model.state import State


def sweep_zeroth_order(state: State) -> tuple[float, float]:
    """Renew all memberships by CVB0; return pseudo leave-one-out and entropy (MODEL 5, 9)."""
    if state.relation.one_domain:
        return cvb0.sweep_one_domain(state.relation.code, state.domain(0), state.blocks())
    return cvb0.sweep_two_domains(state.domain(0), state.domain(1), state.blocks())


def sweep_second_order(state: State, *, exact: bool) -> tuple[float, float]:
    """Renew all memberships by CVB with exact variances, or with the paper's (MODEL 6)."""
    sides, V = enter_everybody(state, exact=exact)
    blocks = state.blocks()
    if state.relation.one_domain:
        return second_order.sweep_one_domain(state.relation.code, exact, sides[0], blocks, V)
    return second_order.sweep_two_domains(exact, sides[0], sides[1], blocks, V)


def enter_everybody(state: State, *, exact: bool) -> tuple[list[Side], Floats]:
    """Return the second-order state: every object enters tables that begin empty.

    The counts of ``state`` are built anew on the way.
    """
    memberships = [q.copy() for q in state.q]
    for table in (*state.q, *state.m, state.n, state.N):
        table[:] = 0.0
    V = np.zeros((3, *state.clusters))
    sides = [Side(state.domain(d), _empty_spread(state, d)) for d in range(len(state.q))]
    code, blocks = state.relation.code, state.blocks()
    second_order.enter_all(code, exact, sides[0], sides[-1], blocks, V, memberships[0])
    if not state.relation.one_domain:
        flipped, V_flipped = transposed(blocks), V.transpose(0, 2, 1)
        second_order.enter_all(code, exact, sides[1], sides[0], flipped, V_flipped, memberships[1])
    return sides, V


def _empty_spread(state: State, d: int) -> Spread:
    """Return the second-order state of domain ``d`` before any object has entered."""
    objects, K = state.q[d].shape
    L = state.q[-1 - d].shape[1]
    P = len(state.relation.places[d])
    one = K if state.relation.one_domain else 0
    return Spread(
        links=np.zeros((objects, P, L)),
        unseen=np.zeros((objects if state.relation.n_unseen else 0, P, L)),
        total=np.zeros(K),
        by_links=np.zeros((P, L, K)),
        by_unseen=np.zeros((P, L, K)),
        pairs=np.zeros((one, one)),
        triples=np.zeros((one, one)),
        own_seen=np.zeros(one),
    )
