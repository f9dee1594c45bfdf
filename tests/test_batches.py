"""Batches: every object against the same counts, the same bits on any number of threads."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

import reference
from coblock.generate import synth1
from coblock.inference.cvb import sweep_zeroth_order
from coblock.inference.fit import FitRun, Settings, follow
from coblock.inference.posterior import MOST_SAMPLES, ConditionalRun
from coblock.inference.schedule import (
    LONGEST_REST,
    Schedule,
    Visits,
    choose_labels,
    conditional_memberships,
    cut,
    no_change,
    sweep_memberships,
)
from coblock.inference.start import memberships_of
from coblock.inference.variational import VariationalRun
from coblock.kernels import batch
from coblock.kernels.tables import shared_tables
from coblock.model.counts import climb
from coblock.model.hyperparameters import Priors
from coblock.model.partition import Partition
from coblock.model.relation import Relation
from coblock.model.state import State
from strategies import Case, cases, make_case

TIGHT = {"rtol": 1e-9, "atol": 1e-9}
PRIOR = (0.4, 0.7)  # a and b
STATED = {"rtol": 0.0, "atol": 1e-6}  # the bound in kernels/shared.py


def posterior(log_weight: np.ndarray) -> np.ndarray:
    weight = np.exp(log_weight - log_weight.max())
    return weight / weight.sum()


def definition(case: Case, state: State, d: int, i: int) -> np.ndarray:
    return posterior(
        reference.cvb0_log_posterior(
            case.X, case.observed, state.q, case.kind, d, i, case.a, case.b, case.alpha
        )
    )


def assert_is_a_recount(state: State) -> None:
    again = State(state.relation, [q.copy() for q in state.q], state.priors)
    assert_allclose(state.n, again.n, **TIGHT)
    assert_allclose(state.N, again.N, **TIGHT)
    for d, m in enumerate(state.m):
        assert_allclose(m, again.m[d], **TIGHT)
        assert_array_equal(state.sure[d], again.sure[d])


@given(cases())
def test_every_object_of_a_batch_sees_the_counts_before_it(case):
    """One batch a domain: rows against the start, columns against the new rows."""
    state = case.state()
    visits = Visits.none(state.relation.sizes)
    schedule = Schedule(batch_size=max(state.relation.sizes))
    expected = case.state()
    for d, q in enumerate(expected.q):
        expected.q[d] = np.stack([definition(case, expected, d, i) for i in range(len(q))])
    sweep_memberships(state, visits, schedule)
    for q, wanted in zip(state.q, expected.q, strict=True):
        assert_allclose(q, wanted, **STATED)
    assert_is_a_recount(state)


@pytest.mark.parametrize("kind", ["bipartite", "directed", "undirected"])
@pytest.mark.parametrize("unseen", [0.0, 0.01])
def test_clusters_of_many_share_what_leaving_somebody_out_does(kind, unseen):
    """Sparse blocks of large clusters: memberships within reach of the polynomials."""
    rng = np.random.default_rng(3)
    case = make_case(rng, kind, (240, 200), (12, 11), links=0.02, unseen=unseen, hard=0.5)
    for q in case.q:
        q[:] = 0.9 * np.eye(q.shape[1])[np.arange(len(q)) % q.shape[1]] + 0.1 * q
        q[q < 0.01] = 0.0
        np.divide(q, q.sum(axis=1, keepdims=True), out=q)
    state = case.state()
    sweep_memberships(state, Visits.none(state.relation.sizes), Schedule(batch_size=240))
    start = case.state()
    for i in range(0, 240, 7):
        assert_allclose(state.q[0][i], definition(case, start, 0, i), **STATED)


@given(cases())
def test_batches_of_one_are_the_sequential_schedule(case):
    state, sequential = case.state(), case.state()
    visits = Visits.none(state.relation.sizes)
    leave_one_out, entropy, _ = sweep_memberships(state, visits, Schedule(batch_size=1))
    expected = sweep_zeroth_order(sequential)
    assert (leave_one_out, entropy) == pytest.approx(expected, rel=1e-6, abs=1e-6)
    for q, wanted in zip(state.q, sequential.q, strict=True):
        assert_allclose(q, wanted, rtol=0.0, atol=1e-6)


def test_rows_and_columns_may_have_batches_of_their_own():
    turns = list(Schedule(batch_size=(4, 3)).turns((8, 9)))
    assert [part for d, part in turns if d == 0] == [slice(0, 4), slice(4, 8)]
    assert [part for d, part in turns if d == 1] == [slice(0, 3), slice(3, 6), slice(6, 9)]
    assert not Schedule(batch_size=(1, 3)).is_sequential((8, 9))


@given(leaves=st.integers(1, 9), shards=st.integers(1, 9), seed=st.integers(0, 2**32 - 1))
def test_a_tree_has_the_same_root_wherever_its_leaves_are_added_first(leaves, shards, seed):
    rng = np.random.default_rng(seed)
    changes = {
        (0, i): tuple(rng.normal(size=shape) for shape in ((2,), (2, 3), (2, 3)))
        for i in range(leaves)
    }
    (whole,) = climb(changes, leaves).values()
    pieces: dict = {}
    for s in range(shards):
        mine = {(0, i): changes[0, i] for i in range(leaves) if i * shards // leaves == s}
        pieces |= climb(mine, leaves, complete=False)
    (root,) = climb(pieces, leaves).values()
    for one, other in zip(root, whole, strict=True):
        np.testing.assert_array_equal(one, other)


def test_another_order_of_the_leaves_gives_other_bits():
    """Negative control of the test above."""
    none = np.zeros(1)
    tables = [np.array([x]) for x in (1e16, 1.0, -1e16, 1.0)]
    roots = []
    for order in ([0, 1, 2, 3], [0, 2, 1, 3]):
        leaves = {(0, i): (tables[t], none, none) for i, t in enumerate(order)}
        roots += [root[0][0] for root in climb(leaves, 4).values()]
    assert roots[0] != roots[1]


def test_sweeps_of_different_batches_differ():
    """Negative control of the comparison above."""
    case = make_case(np.random.default_rng(1), "bipartite", (9, 8), (3, 3), hard=0.0)
    ones, alls = case.state(), case.state()
    sweep_memberships(ones, Visits.none((9, 8)), Schedule(batch_size=1))
    sweep_memberships(alls, Visits.none((9, 8)), Schedule(batch_size=9))
    assert np.abs(ones.q[0] - alls.q[0]).max() > 1e-4


@given(cases(most_objects=7), st.integers(1, 4), st.booleans())
def test_many_sweeps_keep_the_counts(case, batch_size, everybody):
    state = case.state()
    visits = Visits.none(state.relation.sizes)
    for _ in range(5):
        sweep_memberships(state, visits, Schedule(batch_size=batch_size), everybody=everybody)
    assert_is_a_recount(state)


@given(cases(most_objects=7))
def test_chosen_labels_are_the_most_probable_ones(case):
    """Against the ratio of joints, without the new cluster that a batch does not open."""
    labels = [np.unique(q.argmax(axis=1), return_inverse=True)[1] for q in case.q]
    labels = [label.astype(np.int32) for label in labels]
    chosen = chosen_labels(case, labels)
    for i in range(chosen.size):
        if np.unique(np.delete(labels[0], i)).size <= labels[0].max():
            continue  # alone in its cluster
        log_weight = reference.gibbs_log_posterior(
            case.X, case.observed, labels, case.kind, 0, i, *PRIOR, [1.3] * len(labels)
        )[:-1]
        best = np.sort(log_weight)[-2:]
        if best.size == 1 or best[1] - best[0] > 1e-9:
            assert chosen[i] == log_weight.argmax()


@pytest.mark.parametrize("kind", ["bipartite", "directed", "undirected"])
@pytest.mark.parametrize("links", [0.05, 0.5, 0.9])
def test_labels_of_small_and_of_dense_clusters(kind, links):
    """Nothing unseen, few links with most clusters: what one object leaves behind is shared."""
    rng = np.random.default_rng(7)
    case = make_case(rng, kind, (40, 60), (11, 20), links=0.02, unseen=0.0, hard=1.0)
    labels = [np.arange(q.shape[0], dtype=np.int32) % q.shape[1] for q in case.q]
    X = np.where(labels[0][:, None] % 3 == labels[-1][None] % 3, rng.random(case.X.shape), 1.0)
    X = np.less(X, links).astype(float)
    if kind != "bipartite":
        X = np.triu(X, 1) + np.triu(X, 1).T
    relation = Relation.build(X, kind=kind)
    case = replace(case, X=X, observed=np.ones_like(X), relation=relation)
    if kind != "bipartite":
        np.fill_diagonal(case.observed, 0.0)
    chosen = chosen_labels(case, labels)
    for i in range(chosen.size):
        log_weight = reference.gibbs_log_posterior(
            case.X, case.observed, labels, kind, 0, i, *PRIOR, [1.3] * len(labels)
        )[:-1]
        best = np.sort(log_weight)[-2:]
        if best[1] - best[0] > 1e-9:
            assert chosen[i] == log_weight.argmax()


def test_what_an_object_is_told_does_not_depend_on_who_is_visited_before_it():
    """Shards of a cluster cut the objects of a batch in other places than threads do."""
    rng = np.random.default_rng(2)
    X = (rng.random((260, 40)) < 0.3).astype(float)
    labels = [(np.arange(size) % 2).astype(np.int32) for size in X.shape]
    partition = Partition(Relation.build(X), labels, *PRIOR, [1.3, 1.3])
    domain, other, blocks = partition.domain(0), partition.domain(1), partition.blocks(0)
    tables = shared_tables(0, blocks, other.m, 1, decided=True)
    told = []
    for pieces in (1, 2):
        visits, chosen = Visits.none(X.shape), np.empty(260, dtype=np.int32)
        for part in np.array_split(np.arange(260, dtype=np.int32), pieces):
            outcome = visits.outcome(0, np.empty((0, 0)), no_change(blocks, domain))
            best = np.full(260, -1.0)
            visited = domain._replace(order=part)
            batch.choose_all(0, visited, other, tables, best, chosen[part], outcome)
        told.append(visits.log_normaliser[0])
    assert_array_equal(*told)


@pytest.mark.parametrize("prior", [1.0, 1e-3, 1e-5])
@pytest.mark.parametrize("kind", ["bipartite", "undirected"])
def test_tiny_shares_beside_tiny_priors(kind, prior):
    """A share that is small by itself may be most of what a block has."""
    for seed in range(12):
        case = make_case(np.random.default_rng(seed), kind, (10, 9), (9, 8), 0.05, 0.05, hard=0.5)
        case = replace(case, a=case.a * prior, b=case.b * prior)
        for q in case.q:
            q[:] = np.where(q < 0.3, 8e-6 * q, q)
            np.divide(q, q.sum(axis=1, keepdims=True), out=q)
        state, start = case.state(), case.state()
        sweep_memberships(state, Visits.none(state.relation.sizes), Schedule(batch_size=10))
        for i in range(10):
            assert_allclose(state.q[0][i], definition(case, start, 0, i), rtol=0.0, atol=1e-5)


def chosen_labels(case: Case, labels: list[np.ndarray]) -> np.ndarray:
    """The best labels of the first domain as one batch."""
    copies = [label.copy() for label in labels]
    partition = Partition(case.relation, copies, *PRIOR, [1.3] * len(labels))
    domain, other, tables = partition.domain(0), partition.domain(-1), partition.blocks(0)
    shared = shared_tables(case.relation.code, tables, other.m, len(domain.places), decided=True)
    room = [np.zeros(domain.order.size) for _ in range(3)]
    outcome = batch.Outcome(*room, np.empty((0, 0)), *no_change(tables, domain))
    chosen, best = np.empty(domain.order.size, dtype=np.int32), np.full(domain.order.size, -1.0)
    batch.choose_all(case.relation.code, domain, other, shared, best, chosen, outcome)
    return chosen


@given(cases(most_objects=7), st.integers(1, 4), st.integers(0, 99))
def test_choosing_labels_keeps_the_counts(case, batch_size, seed):
    labels = [np.unique(q.argmax(axis=1), return_inverse=True)[1].astype(np.int32) for q in case.q]
    partition = Partition(case.relation, labels, *PRIOR, [1.3] * len(labels))
    uniform = np.random.default_rng(seed).random(sum(case.relation.sizes))
    choose_labels(partition, uniform, Schedule(batch_size=batch_size))
    value = partition.log_joint()
    partition.recount()
    assert partition.log_joint() == pytest.approx(value, abs=1e-9)


@pytest.mark.parametrize("kind", ["bipartite", "directed", "undirected"])
def test_the_same_bits_at_any_number_of_threads(kind):
    """Batches of 400 are cut into parts for the threads."""
    results = []
    for threads in (None, 1, 3):
        case = make_case(np.random.default_rng(5), kind, (900, 800), (7, 5), links=0.1, unseen=0.02)
        state, visits = case.state(), Visits.none(case.relation.sizes)
        with ThreadPoolExecutor(threads or 1) as pool:
            schedule = Schedule(400, pool if threads else None)
            for _ in range(3):
                report = sweep_memberships(state, visits, schedule, everybody=False)
        results.append((report, state.n, state.N, *state.q))
    assert len(cut(400)) > 2
    for other in results[1:]:
        for one, two in zip(results[0], other, strict=True):
            assert_array_equal(one, two)


def test_calm_objects_rest_and_everybody_is_visited_in_the_end():
    drawn = synth1(0)
    labels = [drawn.row_labels, drawn.column_labels]
    priors = Priors.start(drawn.probability.shape, 2, 0.1, True)
    state = State(Relation.build(drawn.X), memberships_of(labels), priors)
    visits, schedule = Visits.none(state.relation.sizes), Schedule(batch_size=50)
    complete = []
    for _ in range(30):
        sweep_memberships(state, visits, schedule, everybody=False)
        complete.append(visits.complete)
    assert complete[0]
    assert not all(complete)
    assert max(due.max() for due in visits.due) <= LONGEST_REST


def test_sweeps_with_resting_objects_end_at_a_fixed_point_of_the_full_sweep():
    """Convergence is declared after a sweep of everybody, and then nobody wants to move."""
    drawn = synth1(1)
    labels = [drawn.row_labels, drawn.column_labels]
    priors = Priors.start(drawn.probability.shape, 2, 0.1, True)
    state = State(Relation.build(drawn.X), memberships_of(labels), priors)
    run = VariationalRun(state, "cvb0", wait=1, schedule=Schedule(64))
    incomplete = 0
    for sweep in run.sweeps(0.0):
        incomplete += not run.visits.complete
        if sweep.change < 1e-6 and run.is_complete():
            break
    assert incomplete > 0
    everybody = Visits.none(run.state.relation.sizes)
    assert sweep_memberships(run.state, everybody, Schedule(64))[2] < 1e-5


def test_objects_go_on_resting_when_clusters_change_places():
    """But that everybody was visited is not said of clusters in another order."""
    drawn = synth1(1)
    labels = [drawn.row_labels, drawn.column_labels]
    priors = Priors.start(drawn.probability.shape, 2, 0.1, True)
    state = State(Relation.build(drawn.X), memberships_of(labels), priors)
    run = VariationalRun(state, "cvb0", schedule=Schedule(64))
    run.visits.complete = True
    for d, size in enumerate(state.relation.sizes):
        run.visits.due[d][:] = np.arange(size) % LONGEST_REST
    run.state = run.state.selected([np.arange(m.size)[::-1] for m in run.state.m])
    run._arrange()
    assert all((np.diff(m) <= 0).all() for m in run.state.m)
    assert all(due.max() == LONGEST_REST - 1 for due in run.visits.due)
    assert not run.visits.complete


@pytest.mark.parametrize("sizes", [(5,), (5, 3), (1, 17), (40, 8)])
@pytest.mark.parametrize("batch_size", [1, 3, 100])
def test_every_object_has_one_turn(sizes, batch_size):
    seen = [np.zeros(size, dtype=int) for size in sizes]
    for d, objects in Schedule(batch_size).turns(sizes):
        seen[d][objects] += 1
    assert all((count == 1).all() for count in seen)


def test_batches_are_full_of_those_that_are_due():
    due = [np.arange(0, 1600, 4, dtype=np.int32), np.arange(5, dtype=np.int32)]
    turns = Schedule().visits_of((1600, 160), due)
    assert [(d, objects.size) for d, objects, _ in turns] == [(0, 100), (1, 5)] + [(0, 100)] * 3
    for d in (0, 1):
        met = np.concatenate([objects for side, objects, _ in turns if side == d])
        assert_array_equal(met, due[d])
    for _, objects, parts in turns:
        assert_array_equal(np.concatenate([objects[part] for part in parts]), objects)


def test_batches_of_a_size_the_user_names_keep_their_borders():
    """Shards of a cluster hold parts of batches; resting objects must not move them."""
    due = [np.array([0, 1, 399, 400, 799], dtype=np.int32), np.array([3], dtype=np.int32)]
    turns = Schedule((400, 10)).visits_of((800, 30), due)
    assert [(d, objects.tolist()) for d, objects, _ in turns] == [
        (0, [0, 1, 399]),
        (1, [3]),
        (0, [400, 799]),
    ]
    _, objects, parts = turns[0]
    for whole, part in zip(cut(400), parts, strict=True):
        inside = (objects >= whole.start) & (objects < whole.stop)
        assert_array_equal(objects[part], objects[inside])


def test_small_relations_are_swept_one_object_after_another():
    assert Schedule().is_sequential((400, 600))
    assert not Schedule().is_sequential((400, 601))
    assert Schedule(1).is_sequential((10**6, 10**6))


def test_a_coarser_schedule_leaves_alone_what_the_user_has_named():
    assert Schedule().coarser((4000, 1001), 4) == Schedule((1000, 251))
    assert Schedule(64).coarser((4000, 1001), 4) == Schedule(64)
    assert Schedule().coarser((400, 100), 4) == Schedule().in_batches((400, 100))
    assert Schedule().coarser((4000,), 4) == Schedule((1000, 1000))


def around_a_partition(X, **settings) -> ConditionalRun:
    run = FitRun(Relation.build(X), Settings(**settings), np.random.default_rng(0))
    _, converged = follow(run.sweeps(), run.settings, run.may_stop)
    assert converged
    assert isinstance(run.run, ConditionalRun)
    return run.run


def given_the_partition(run: ConditionalRun) -> list[np.ndarray]:
    return conditional_memberships(run.partition, Schedule(64))


@pytest.mark.parametrize("batch_size", [1, 64])
def test_a_default_fit_ends_where_nobody_would_change_the_label(batch_size):
    run = around_a_partition(synth1(1).X, batch_size=batch_size, inference="cvb0")
    best = run.partition.copy()
    choose_labels(best, np.full(sum(best.relation.sizes), -1.0), Schedule(64))
    pairs = zip(run.partition.labels, best.labels, strict=True)
    for q, found, (label, again) in zip(run.q, given_the_partition(run), pairs, strict=True):
        assert_allclose(q, found, **TIGHT)
        assert_array_equal(label, again)


def test_memberships_are_averaged_over_samples_around_the_partition():
    drawn = synth1(0).X.toarray()[::3, ::3].astype(bool)
    X = drawn ^ (np.random.default_rng(3).random(drawn.shape) < 0.2)  # nothing to be sure of
    run = around_a_partition(X)
    assert run.samples == MOST_SAMPLES
    assert any((m > 0).sum() > 1 for m in run.partition.m)
    for q, given_labels in zip(run.memberships, given_the_partition(run), strict=True):
        of_samples = 2.0 * q - given_labels  # the other half
        assert_allclose(of_samples.sum(axis=1), 1.0, **TIGHT)
        assert of_samples.min() > -1e-12
        assert np.abs(q - given_labels).max() > 0.01, "the samples say something else"


def test_an_average_may_be_asked_for_before_all_samples_are_drawn():
    run = around_a_partition(synth1(0).X)
    again = ConditionalRun(run.partition, np.random.default_rng(0), Schedule(64))
    given_labels = given_the_partition(run)
    seen = []
    for _ in again.sweeps(0.0):
        for q, alone in zip(again.memberships, given_labels, strict=True):
            assert_allclose(q.sum(axis=1), 1.0, **TIGHT)
            share = MOST_SAMPLES / (MOST_SAMPLES + again.samples)  # of the partition
            assert (q - share * alone).min() > -1e-12
        seen.append(again.samples)
        if again.is_complete:
            break
    assert seen[-1] == MOST_SAMPLES
    assert len(set(seen)) == MOST_SAMPLES + 1


def test_only_the_averaged_method_averages():
    run = around_a_partition(synth1(0).X, inference="cvb0")
    assert run.samples == 0
    for q, found in zip(run.memberships, given_the_partition(run), strict=True):
        assert_allclose(q, found, **TIGHT)


def test_much_data_is_not_sampled(monkeypatch):
    monkeypatch.setattr("coblock.inference.posterior.SAMPLED_VISITS", 100)
    run = around_a_partition(synth1(0).X)
    assert run.samples == 0
    for q, found in zip(run.memberships, given_the_partition(run), strict=True):
        assert_allclose(q, found, **TIGHT)
