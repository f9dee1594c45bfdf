"""Counts and memberships belong together; permuting the input permutes the output."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from coblock.inference import cvb, vb
from coblock.kernels import cvb0
from coblock.model.hyperparameters import Priors
from coblock.model.relation import Relation
from coblock.model.state import State, arrangement, by_size
from strategies import cases, make_case

SWEEPS = {
    "zeroth order": cvb.sweep_zeroth_order,
    "exact": lambda state: cvb.sweep_second_order(state, exact=True),
    "paper": lambda state: cvb.sweep_second_order(state, exact=False),
    "vb": vb.sweep,
}


@settings(max_examples=60)
@given(cases(), st.lists(st.sampled_from(sorted(SWEEPS)), min_size=1, max_size=4))
def test_any_sequence_of_sweeps_leaves_counts_equal_to_a_recount(case, names):
    state = case.state()
    for name in names:
        SWEEPS[name](state)
        again = State(case.relation, [q.copy() for q in state.q], state.priors)
        assert_allclose(state.n, again.n, rtol=1e-9, atol=1e-9)
        assert_allclose(state.N, again.N, rtol=1e-9, atol=1e-9)
        for q, m, expected in zip(state.q, state.m, again.m, strict=True):
            assert np.isfinite(q).all()
            assert_allclose(q.sum(axis=1), 1.0, rtol=1e-12)
            assert_allclose(m, expected, rtol=1e-9, atol=1e-9)


@settings(max_examples=60)
@given(cases(), st.randoms(use_true_random=False))
def test_clusters_in_another_order_have_the_counts_of_a_recount(case, random):
    state = case.state()
    orders = [np.array(random.sample(range(m.size), m.size)) for m in state.m]
    other = state.selected(orders)
    again = State(case.relation, [q.copy() for q in other.q], other.priors)
    assert_allclose(other.n, again.n, rtol=1e-12, atol=1e-12)
    assert_allclose(other.N, again.N, rtol=1e-12, atol=1e-12)
    for d, order in enumerate(orders):
        assert np.array_equal(other.q[d], state.q[d][:, order])
        assert np.array_equal(other.sure[d], again.sure[d])
        assert np.array_equal(other.m[d], state.m[d][order])


def swept(X, q, priors, orders):
    """One bipartite CVB0 sweep in the given orders."""
    state = State(Relation.build(X), [part.copy() for part in q], priors)
    rows, columns = (
        state.domain(d)._replace(order=order.astype(np.int32)) for d, order in enumerate(orders)
    )
    cvb0.sweep_two_domains(rows, columns, state.blocks())
    return state


def test_permuting_rows_and_columns_permutes_the_result():
    rng = np.random.default_rng(0)
    case = make_case(rng, "bipartite", (9, 7), (3, 2), unseen=0.0)
    priors = Priors(case.alpha, case.a, case.b, shared=False)
    rows, columns = rng.permutation(9), rng.permutation(7)
    plain = swept(case.X, case.q, priors, (np.arange(9), np.arange(7)))
    moved = swept(
        case.X[np.ix_(rows, columns)],
        [case.q[0][rows], case.q[1][columns]],
        priors,
        (np.argsort(rows), np.argsort(columns)),
    )
    assert_allclose(moved.q[0], plain.q[0][rows], rtol=1e-10)
    assert_allclose(moved.q[1], plain.q[1][columns], rtol=1e-10)
    assert_allclose(moved.n, plain.n, rtol=1e-10)


def test_another_visiting_order_gives_another_result():
    """Negative control: the equality above is not there for every order."""
    case = make_case(np.random.default_rng(0), "bipartite", (9, 7), (3, 2), unseen=0.0)
    priors = Priors(case.alpha, case.a, case.b, shared=False)
    forth = swept(case.X, case.q, priors, (np.arange(9), np.arange(7)))
    back = swept(case.X, case.q, priors, (np.arange(9)[::-1], np.arange(7)[::-1]))
    assert np.abs(forth.q[0] - back.q[0]).max() > 1e-6


@pytest.mark.parametrize("kind", ["bipartite", "directed", "undirected"])
@pytest.mark.parametrize("name", ["zeroth order", "exact", "vb"])
def test_permuting_cluster_labels_changes_nothing_once_in_order(kind, name):
    rng = np.random.default_rng(1)
    case = make_case(rng, kind, (8, 8), (3, 3), hard=0.0)
    start, other = case.state(), case.state()
    start = start.selected([by_size(m) for m in start.m])
    other = other.selected([rng.permutation(3) for _ in other.q])
    other = other.selected([by_size(m) for m in other.m])
    SWEEPS[name](start)
    SWEEPS[name](other)
    for q, expected in zip(other.q, start.q, strict=True):
        assert_allclose(q, expected, rtol=1e-9, atol=1e-12)
    assert_allclose(other.n, start.n, rtol=1e-9, atol=1e-12)


@given(cases(most_objects=8))
def test_selecting_clusters_keeps_everything_together(case):
    state = case.state()
    chosen = state.selected([by_size(m) for m in state.m])
    for d, order in enumerate(by_size(m) for m in state.m):
        assert_allclose(chosen.q[d], state.q[d][:, order], rtol=1e-12)
        assert (np.diff(chosen.m[d]) <= 1e-9).all()
    table = np.ix_(by_size(state.m[0]), by_size(state.m[-1]))
    assert_allclose(chosen.n, state.n[table], rtol=1e-9, atol=1e-9)
    assert_allclose(chosen.priors.a, state.priors.a[table])


def test_negligible_clusters_are_dropped_but_never_one_with_a_member():
    q = np.full((1000, 3), 1e-9)
    q[:, 0] = 1.0 - 2e-9
    q[7] = (0.0, 0.0, 1.0)
    state = State(Relation.build(np.eye(1000)), [q, np.ones((1000, 1))], _flat_priors(3, 1))
    kept = arrangement(state)
    assert kept[0].tolist() == [0, 2]


def test_a_cluster_that_the_average_still_holds_is_kept():
    q, mean = np.zeros((10, 2)), np.full((10, 2), 0.5)
    q[:, 0] = 1.0
    state = State(Relation.build(np.eye(10)), [q, np.ones((10, 1))], _flat_priors(2, 1))
    assert arrangement(state)[0].tolist() == [0]
    assert arrangement(state, [mean, np.ones((10, 1))])[0].tolist() == [0, 1]


def _flat_priors(rows: int, columns: int) -> Priors:
    return Priors([1.0, 1.0], np.ones((rows, columns)), np.ones((rows, columns)))
