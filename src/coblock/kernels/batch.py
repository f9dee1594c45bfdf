"""Batches: objects visited against the same counts, and what their moves do to the sums."""

from typing import NamedTuple

import numpy as np

from coblock.kernels import BIPARTITE, Domain, Floats, Indices, kernel
from coblock.kernels.blocks import add_outer, gather, own_cell
from coblock.kernels.brought import Brought, bring, room_for
from coblock.kernels.gibbs import draw
from coblock.kernels.memberships import (
    NOTHING,
    entropy_of,
    normalise,
    stick_log_prior,
    sure_cluster,
)
from coblock.kernels.shared import add_likelihood
from coblock.kernels.special import log
from coblock.kernels.strands import total_of
from coblock.kernels.tables import Tables, no_expansions


class Outcome(NamedTuple):
    """What visits leave behind, for all objects of the domain, and the change of the sums."""

    log_normaliser: Floats  # (objects,)
    entropy: Floats  # (objects,)
    moved: Floats  # (objects,)  sum of |change of q|
    fresh: Floats  # (visited, K)  new memberships
    m: Floats  # (K,)  change of the sizes
    links: Floats  # (L, K)  change of the sum over links of q_ik q_jl, by their first ends
    unseen: Floats  # (L, K)  the same over unseen cells; nothing where there are none


@kernel
def visit_all(
    kind: int, domain: Domain, other: Domain, tables: Tables, step: float, outcome: Outcome
) -> None:
    """Write new memberships of the objects in ``domain.order``; the old ones stay in place.

    eq:IRM_2dom_CVB_lowerbound_z_1i_posterior for every object by itself, at the same counts.
    They go the fraction ``step`` of the way: objects that respond to the same counts would
    otherwise overshoot together.
    """
    brought = room_for(kind, tables, domain)
    known = no_expansions(tables, domain.places[0].unseen.size > 0)
    log_weight = brought.log_weight[: domain.m.size]
    for t in range(domain.order.size):
        i = domain.order[t]
        brought.q[:] = domain.q[i]
        bring(kind, domain, other, i, brought)
        stick_log_prior(brought.m_rest, domain.alpha, log_weight)
        add_likelihood(kind, tables, known, other.m, own_cell(kind, domain, i), brought)
        outcome.log_normaliser[i], outcome.entropy[i] = normalise(log_weight, outcome.fresh[t])
        if step < 1.0:
            outcome.entropy[i] = go_part_way(domain.q[i], step, outcome.fresh[t])
        outcome.moved[i] = add_change(kind, domain.q[i], outcome.fresh[t], brought, outcome)


@kernel
def go_part_way(old: Floats, step: float, new: Floats) -> float:
    """Move ``new`` back to the fraction ``step`` of the way from ``old``; return its entropy."""
    for k in range(new.size):
        q = old[k] + step * (new[k] - old[k])
        new[k] = q if q > NOTHING else 0.0
    new /= total_of(new)
    return entropy_of(new)


@kernel
def add_change(kind: int, old: Floats, new: Floats, brought: Brought, outcome: Outcome) -> float:
    """Add what new memberships do to the sums over the object's cells; return how far they move."""
    change = brought.q
    for k in range(change.size):
        change[k] = new[k] - old[k]
    moved = total_of(np.abs(change))
    if moved > 0.0:
        outcome.m[:] += change
        add_outer(outcome.links, brought.n[0], change)
        if outcome.unseen.size > 0:
            if kind != BIPARTITE:
                brought.hidden[0] -= old  # itself, which is no unseen cell
            add_outer(outcome.unseen, brought.hidden[0], change)
    return moved


@kernel
def choose_all(
    kind: int,
    domain: Domain,
    other: Domain,
    tables: Tables,
    uniform: Floats,
    chosen: Indices,
    outcome: Outcome,
) -> None:
    """Write new labels of the objects in ``domain.order``: drawn, or the best (see ``draw``).

    The labels, in ``domain.sure``, stay in place. No new cluster is opened: all objects of the
    batch that ask for one would share it. Where there is room in ``outcome.fresh``, the
    probabilities of all clusters given the other objects' labels are added to it.
    """
    brought = room_for(kind, tables, domain, decided=True)
    known = no_expansions(tables, domain.places[0].unseen.size > 0, decided=True)
    log_weight = brought.log_weight[: domain.m.size]
    old, new, chance = np.zeros((3, domain.m.size))
    for t in range(domain.order.size):
        i = domain.order[t]
        label = domain.sure[i]
        old[label] = 1.0
        brought.q[:] = old
        bring(kind, domain, other, i, brought)
        for k in range(log_weight.size):
            m = brought.m_rest[k]
            log_weight[k] = log(m) if m > 0.0 else -np.inf
        if brought.m_rest[label] == 0.0:  # alone: its cluster is the new one
            log_weight[label] = log(domain.alpha)
        add_likelihood(kind, tables, known, other.m, own_cell(kind, domain, i), brought)
        chosen[t], outcome.log_normaliser[i] = draw(log_weight, uniform[i])
        if outcome.fresh.shape[0] > 0:
            _, outcome.entropy[i] = normalise(log_weight, chance)
            outcome.fresh[t] += chance
        new[chosen[t]] = 1.0
        outcome.moved[i] = add_change(kind, old, new, brought, outcome)
        old[label], new[chosen[t]] = 0.0, 0.0


@kernel
def put_back(domain: Domain, fresh: Floats) -> None:
    """Give the visited objects their new memberships; ``fresh`` holds the old ones then."""
    for t in range(domain.order.size):
        i = domain.order[t]
        for k in range(fresh.shape[1]):
            fresh[t, k], domain.q[i, k] = domain.q[i, k], fresh[t, k]
        domain.sure[i] = sure_cluster(domain.q[i])


@kernel
def sums_of_neighbours(domain: Domain, moved: Floats, old: Floats, sums: Floats) -> None:
    """Add the changes that neighbours at the last place see, in one domain, to ``sums``.

    The sum over cells of q_ik q_jl changes by what the first ends have moved, seen by the old
    second ends, and by what the second ends have moved, seen by the new first ends. This is the
    latter, transposed, for links (0) and unseen cells (1), and the sum of q_ik q_il (2).
    """
    K = domain.m.size
    change, n, hidden, before = np.empty(K), np.empty(K), np.empty(K), np.empty(K)
    place = domain.places[len(domain.places) - 1]
    for t in range(domain.order.size):
        i = domain.order[t]
        if moved[i] == 0.0:
            continue
        n[:], hidden[:] = 0.0, 0.0
        gather(place.link_start, place.link, i, domain.q, domain.sure, n)
        gather(place.unseen_start, place.unseen, i, domain.q, domain.sure, hidden)
        before[:] = old[t]
        change[:] = domain.q[i] - before
        add_outer(sums[0], change, n)
        add_outer(sums[1], change, hidden)
        add_outer(sums[2], domain.q[i], domain.q[i])
        before *= -1.0
        add_outer(sums[2], before, old[t])
