"""Soft memberships of several relations: CVB0 and VB against dense definitions."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import entr, logsumexp, softmax

import multi_reference as reference
from coblock.model.multi_state import MultiState
from test_multi import draw_partition


def draw_state(seed):
    """Return random memberships, some of them hard, of random relations."""
    partition, rng = draw_partition(seed)
    data, q = partition.data, []
    for size in data.sizes:
        K = int(rng.integers(1, 4))
        each = rng.dirichlet(np.full(K, 0.7), size)
        hard = rng.random(size) < 0.3
        each[hard] = np.eye(K)[rng.integers(0, K, hard.sum())]
        q.append(each)
    return MultiState(data, q, partition.priors, partition.alpha), rng


def dense_tensor(state, r, **kwargs):
    table = state.relation.tables[r]
    dense = np.zeros(state.tensor(r).shape)
    found = reference.expected_statistics(table, state.relation.sizes, state.q, **kwargs)
    for block, s in found.items():
        dense[block] = s
    return dense


def few_blocks(state):
    """Return whether the dense reference takes less than a moment."""
    cells = sum(
        np.prod([state.relation.sizes[d] * state.clusters[d] for d in t.domains])
        for t in state.relation.tables
    )
    return cells < 20_000


@given(st.integers(0, 10**6))
@settings(max_examples=60, deadline=None)
def test_expected_statistics_are_those_of_enumeration(seed):
    state, _ = draw_state(seed)
    for r in range(len(state.relation.tables)):
        assert state.tensor(r) == pytest.approx(dense_tensor(state, r), abs=1e-10)


@given(st.integers(0, 10**6))
@settings(max_examples=40, deadline=None)
def test_cvb0_updates_are_those_of_the_definition(seed):
    state, rng = draw_state(seed)
    if not few_blocks(state):
        return
    data = state.relation
    d = int(rng.integers(len(data.sizes)))
    i = int(rng.integers(data.sizes[d]))
    args = (data, [q.copy() for q in state.q], state.priors, state.alpha)
    score = reference.cvb0_scores(*args, d, i)
    found = state.sweep(np.array([d], np.int32), np.array([i], np.int32))
    assert state.q[d][i] == pytest.approx(softmax(score), abs=1e-8)
    assert found[0] == pytest.approx(logsumexp(score), abs=1e-7)
    assert found[1] == pytest.approx(entr(state.q[d][i]).sum(), abs=1e-8)


@given(st.integers(0, 10**6))
@settings(max_examples=40, deadline=None)
def test_sums_after_sweeps_are_those_of_the_memberships(seed):
    state, rng = draw_state(seed)
    for d, size in enumerate(state.relation.sizes):
        objects = rng.permutation(size).astype(np.int32)
        state.sweep(np.full_like(objects, d), objects)
    after = [array.copy() for array in (state.soft.s, state.soft.m, state.soft.total)]
    state.recount()
    for kept, counted in zip(after, (state.soft.s, state.soft.m, state.soft.total), strict=True):
        assert kept == pytest.approx(counted, abs=1e-9)


@given(st.integers(0, 10**6))
@settings(max_examples=25, deadline=None)
def test_vb_updates_follow_the_derivative_of_the_bound(seed):
    """An update of VB is the softmax of the derivative of the bound without entropy."""
    state, rng = draw_state(seed)
    if not few_blocks(state):
        return
    data, d = state.relation, int(rng.integers(len(state.relation.sizes)))
    q, step = [each.copy() for each in state.q], 1e-5
    derivative = []
    for k in range(state.clusters[d]):
        values = []
        for sign in (1, -1):
            q[d][0, k] += sign * step
            values.append(reference.collapsed_value(data, q, state.priors, state.alpha))
            q[d][0, k] -= sign * step
        derivative.append((values[0] - values[1]) / (2 * step))
    if np.min(q[d][0]) > step:  # else a negative membership is not one
        state.sweep_vb(d)
        assert state.q[d][0] == pytest.approx(softmax(derivative), abs=1e-5)


@given(st.integers(0, 10**6))
@settings(max_examples=40, deadline=None)
def test_the_bound_never_falls_under_vb(seed):
    state, _ = draw_state(seed)
    bounds = [bound_of(state)]
    free = all(table.likelihood.name != "normal" for table in state.relation.tables)
    for sweep in range(4):
        for d in range(len(state.q)):
            state.sweep_vb(d)
            state.recount()
            bounds.append(bound_of(state))
        if free and sweep > 1:  # a Normal relation has a hyperprior, which the bound has not
            state.learn()
            bounds.append(bound_of(state))
    assert np.diff(bounds).min() > -1e-7 * (1.0 + abs(bounds[0]))


def bound_of(state):
    return state.bound(sum(float(entr(q).sum()) for q in state.q))


@given(st.integers(0, 10**6))
@settings(max_examples=15, deadline=None)
def test_the_bound_is_the_value_of_the_definition(seed):
    state, _ = draw_state(seed)
    if not few_blocks(state):
        return
    args = (state.relation, state.q, state.priors, state.alpha)
    constant = sum(table.constant for table in state.relation.tables)
    assert state.bound(0.0) == pytest.approx(reference.collapsed_value(*args) + constant, abs=1e-8)


def test_the_comparison_with_the_definition_can_fail():
    """Negative control: an object that fills two places of a cell counted as two objects."""
    apart = 0
    for seed in range(60):
        state, _ = draw_state(seed)
        for r, table in enumerate(state.relation.tables):
            if len(set(table.domains)) < table.arity and table.filled and not table.distinct:
                independent = np.ones(())
                for d in table.domains:
                    independent = np.multiply.outer(independent, state.m[d])
                if table.likelihood.name == "bernoulli" and not table.symmetric:
                    cells = state.tensor(r).sum(axis=-1) + dense_unseen(state, r)
                    apart += np.abs(cells - independent).max() > 1e-3
    assert apart > 3


def dense_unseen(state, r):
    """Return the expected number of unseen cells of each block."""
    from dataclasses import replace

    table = state.relation.tables[r]
    every = replace(table, unseen=table.unseen[:0])
    dense = np.zeros(state.tensor(r).shape)
    for block, s in reference.expected_statistics(every, state.relation.sizes, state.q).items():
        dense[block] = s
    return dense.sum(axis=-1) - state.tensor(r).sum(axis=-1)
