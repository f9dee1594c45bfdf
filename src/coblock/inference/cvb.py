"""One sweep of second-order CVB over all objects (MODEL 6)."""

import numpy as np

from coblock.inference.engine import SoftSweep, largest_change
from coblock.kernels import Floats, second_order
from coblock.kernels.covariance import SpreadState
from coblock.kernels.gather import transposed
from coblock.kernels.second_order import Side
from coblock.model.state import SoftState


def sweep_second_order(state: SoftState, *, exact: bool) -> SoftSweep:
    """Update all memberships by CVB with exact variances, or with the paper's."""
    old = [q.copy() for q in state.q]
    sides, V = second_order_state(state, exact=exact)
    totals = second_order.sweep(exact, sides[0], sides[-1], state.tables(), V)
    state.recount()
    return SoftSweep(*totals, largest_change(old, state.q))


def second_order_state(state: SoftState, *, exact: bool) -> tuple[list[Side], Floats]:
    """Return the second-order state, built by adding every object to empty tables.

    The counts of ``state`` are rebuilt on the way.
    """
    memberships, blocks = [q.copy() for q in state.q], state.blocks
    for table in (*state.q, *state.m, blocks.n, blocks.N):
        table[:] = 0.0
    V = np.zeros((3, *blocks.clusters))
    sides = [Side(state.domain(d), _empty_spread(state, d)) for d in range(len(state.q))]
    tables = state.tables()
    second_order.add_all(exact, sides[0], sides[-1], tables, V, memberships[0])
    if not state.relation.repeated:
        flipped, V_flipped = transposed(tables), V.transpose(0, 2, 1)
        second_order.add_all(exact, sides[1], sides[0], flipped, V_flipped, memberships[1])
    return sides, V


def _empty_spread(state: SoftState, d: int) -> SpreadState:
    """Return the second-order state of domain ``d`` before any object has been added."""
    objects, K = state.q[d].shape
    L, relation = state.q[-1 - d].shape[1], state.relation
    P = 2 if relation.repeated and not relation.symmetric else 1
    one = K if relation.repeated else 0
    some_unseen = len(state.domain(d).incidence[0].unseen) > 0
    return SpreadState(
        links=np.zeros((objects, P, L)),
        unseen=np.zeros((objects if some_unseen else 0, P, L)),
        total=np.zeros(K),
        by_links=np.zeros((P, L, K)),
        by_unseen=np.zeros((P, L, K)),
        pairs=np.zeros((one, one)),
        triples=np.zeros((one, one)),
        own_seen=np.zeros(one),
    )
