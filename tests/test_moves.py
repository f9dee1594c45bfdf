"""Merges and splits: gains from tables equal recomputed evidence, which never falls."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from coblock.generate import planted
from coblock.inference import moves
from coblock.inference.engine import LocalEngine, cells_of_member, draw_seeds
from coblock.inference.moves import all_merge_gains, merge, merge_and_learn, merge_nearest, split
from coblock.inference.schedule import Schedule
from coblock.inference.search import Search
from coblock.inference.settings import SEARCH
from coblock.kernels.split import assign_sides, count_sides, member_profiles, zero_counts
from coblock.model.hyperparameters import Hyperparameters
from coblock.model.partition import Partition
from coblock.model.relation import Relation
from strategies import cases

PRIOR = (0.7, 1.1)
ENGINE = LocalEngine()


def partition_of(case) -> Partition:
    labels = [q.argmax(axis=1).astype(np.int32) for q in case.q]
    prior = np.array(PRIOR).reshape(2, 1, 1)
    return Partition(case.relation, labels, Hyperparameters(list(case.alpha), prior))


def true_partition(drawn) -> Partition:
    labels = [drawn.row_labels.copy(), drawn.column_labels.copy()]
    return Partition.from_labels(Relation.build(drawn.X), labels)


def run_search(partition: Partition, rng: np.random.Generator, limits=None, engine=ENGINE):
    """Run a search to its end; return it and its records."""
    search = Search(partition, rng, limits, engine)
    return search, list(search.sweeps(lambda: 0.0))


@given(cases(most_objects=8, most_clusters=4))
def test_merge_gain_equals_the_recomputed_difference(case):
    for d in range(len(case.q)):
        partition = partition_of(case)
        before = partition.log_joint()
        gains = all_merge_gains(partition, d, ENGINE)
        for k, g in zip(*np.nonzero(np.isfinite(gains)), strict=True):
            merged = partition.copy()
            merged.labels[d][merged.labels[d] == g] = k
            merged.renumber()
            assert merged.log_joint() - before == pytest.approx(gains[k, g], abs=1e-8)


def test_merge_gains_do_not_depend_on_threads(monkeypatch):
    partition = true_partition(planted((60, 60), (7, 5), 0))
    expected = all_merge_gains(partition, 0, ENGINE)
    monkeypatch.setattr(moves, "SLICES_FROM", 0)
    with ThreadPoolExecutor(2) as pool:
        engine = LocalEngine(threads=pool)
        assert_array_equal(all_merge_gains(partition, 0, engine), expected)
    assert np.isfinite(expected).sum() == 21


@given(cases(most_objects=8, most_clusters=3, kinds=("bipartite",)), st.integers(0, 99))
def test_split_gain_equals_the_recomputed_difference(case, seed):
    rng = np.random.default_rng(seed)
    for d in range(2):
        partition = partition_of(case)
        before = partition.log_joint()
        for k, (gain, side) in enumerate(ENGINE.propose_splits(partition, d, rng)):
            if not np.isfinite(gain):
                continue
            divided = partition.copy()
            members = np.flatnonzero(divided.labels[d] == k)
            divided.labels[d][members[side == 1]] = partition.m[d].size
            divided.renumber()
            assert divided.log_joint() - before == pytest.approx(gain, abs=1e-8)


def dense_profiles(case, partition, members) -> tuple[np.ndarray, np.ndarray]:
    """Return links and observed non-links of members by block, counted cell by cell."""
    seen, X = case.observed, case.X
    label, clusters = partition.labels[-1], partition.m[-1].size
    places = 2 if case.kind == "directed" else 1
    n, N = np.zeros((2, members.size, places * clusters))
    for t, i in enumerate(members):
        for p in range(places):
            for j in range(label.size):
                row, column = (i, j) if p == 0 else (j, i)
                if case.relation.repeated and i == j:
                    continue
                if seen[row, column]:
                    (n if X[row, column] else N)[t, p * clusters + label[j]] += 1.0
    return n, N


@given(cases(most_objects=9, most_clusters=3), st.integers(0, 99))
def test_sides_of_a_split_and_their_counts_equal_sums_over_cells(case, seed):
    partition, rng = partition_of(case), np.random.default_rng(seed)
    for k in range(partition.m[0].size):
        members = np.flatnonzero(partition.labels[0] == k).astype(np.int32)
        cells, clusters = cells_of_member(partition, 0, k), partition.m[-1].size
        profiles = member_profiles(partition.domain(0), members, partition.labels[-1], clusters)
        n, N = dense_profiles(case, partition, members)
        side = rng.integers(2, size=members.size).astype(np.int8)
        counts = zero_counts(2, cells.size)
        count_sides(profiles, np.arange(members.size), side, cells, counts)
        for s in range(2):
            assert_array_equal(counts.n[s], n[side == s].sum(axis=0))
            assert_array_equal(counts.N[s], N[side == s].sum(axis=0))
        a, b = PRIOR
        chance = (a + counts.n) / (a + b + counts.n + counts.N)
        score = n @ np.log(chance).T + N @ np.log1p(-chance).T + np.log(counts.m + 1.0)
        clear = abs(score[:, 1] - score[:, 0]) > 1e-9
        assigned = assign_sides(profiles, cells, counts, PRIOR)
        assert_array_equal(assigned[clear], score.argmax(axis=1)[clear])


@given(st.integers(2, 9), st.integers(0, 99))
def test_split_seeds_are_pairs_of_different_members(members, seed):
    seeds = draw_seeds(members, np.random.default_rng(seed))
    assert (seeds[:, 0] != seeds[:, 1]).all()
    assert seeds.min() >= 0
    assert seeds.max() < members


def test_all_pairs_of_members_can_be_split_seeds():
    drawn = np.concatenate([draw_seeds(3, np.random.default_rng(seed)) for seed in range(50)])
    assert {tuple(pair) for pair in drawn.tolist()} == {
        (i, j) for i in range(3) for j in range(3) if i != j
    }


def test_gains_of_different_pairs_differ():
    """Negative control: the gain of another pair would fail the tests above."""
    partition = true_partition(planted((40, 40), (4, 4), 0))
    gains = all_merge_gains(partition, 0, ENGINE)
    finite = gains[np.isfinite(gains)]
    assert finite.size == 6
    assert np.ptp(finite) > 1.0


@settings(max_examples=60)
@given(cases(most_objects=10, most_clusters=5), st.integers(0, 99))
def test_moves_never_lower_the_evidence(case, seed):
    rng = np.random.default_rng(seed)
    partition = partition_of(case)
    value = partition.log_joint()
    for move in (
        lambda d: merge(partition, d, ENGINE),
        lambda d: split(partition, d, rng, None, ENGINE),
        lambda _: ENGINE.sweep_labels(partition, open_clusters=True),
        lambda _: partition.learn(),
    ):
        for d in range(len(case.q)):
            move(d)
            assert partition.log_joint() >= value - 1e-8 * max(abs(value), 1.0)
            value = partition.log_joint()


def test_forced_merges_can_lower_the_evidence():
    """Negative control: a perturbation is not accepted on evidence."""
    partition = true_partition(planted((60, 60), (4, 4), 0))
    value = partition.log_joint()
    merge_nearest(partition, 0, 0.5, ENGINE)
    assert partition.m[0].size == 2
    assert partition.log_joint() < value - 1.0


def test_merged_clusters_are_split_and_split_clusters_are_merged():
    truth = true_partition(planted((90, 80), (3, 4), 3))
    too_few = truth.copy()
    too_few.labels[0][too_few.labels[0] == 2] = 1
    too_few.renumber()
    assert split(too_few, 0, np.random.default_rng(0), None, ENGINE) == 1
    assert too_few.log_joint() == pytest.approx(truth.log_joint(), rel=1e-3)
    too_many = truth.copy()
    members = np.flatnonzero(too_many.labels[0] == 0)
    too_many.labels[0][members[::2]] = 3
    too_many.renumber()
    assert merge(too_many, 0, ENGINE) == 1
    assert too_many.log_joint() == pytest.approx(truth.log_joint(), abs=1e-8)


def test_search_keeps_the_limits_of_clusters():
    drawn = planted((90, 80), (5, 5), 1)
    labels = [drawn.row_labels % 2, drawn.column_labels % 2]
    partition = Partition.from_labels(Relation.build(drawn.X), labels)
    search, records = run_search(partition, np.random.default_rng(0), (3, 4))
    assert max(record.row_clusters for record in records) <= 3
    assert max(record.column_clusters for record in records) <= 4
    assert search.partition.blocks.clusters == (3, 4)


def test_merging_with_learning_undoes_a_prior_that_fits_too_closely():
    """Thirty coin tosses: two clusters by outcome look perfect to a prior that expects 0 or 1."""
    relation = Relation.build(np.array([[0.0, 1.0] * 15]).T)
    outcome = np.array([0, 1] * 15, dtype=np.int32)
    partition = Partition.from_labels(relation, [outcome, np.zeros(1, dtype=np.int32)])
    value = partition.log_joint()
    assert merge(partition, 0, ENGINE) == 0
    assert merge_and_learn(partition, 0, ENGINE) == 1
    assert partition.log_joint() > value + 1.0


@pytest.mark.parametrize("kind", ["bipartite", "directed", "undirected"])
@pytest.mark.parametrize("batch_size", [1, 20])
def test_search_finds_the_truth_from_divided_clusters(kind, batch_size):
    rng = np.random.default_rng(2)
    label = np.repeat(np.arange(4), 25)
    theta = np.full((4, 4), 0.05) + 0.6 * np.eye(4)
    X = (rng.random((100, 100)) < theta[np.ix_(label, label)]).astype(float)
    if kind == "undirected":
        X = np.triu(X, 1) + np.triu(X, 1).T
    np.fill_diagonal(X, 0.0)
    relation = Relation.build(X, kind=kind)
    divided = [(3 * label + rng.integers(3, size=100)).astype(np.int32) for _ in relation.sizes]
    engine = LocalEngine(Schedule(batch_size))
    search, records = run_search(Partition.from_labels(relation, divided), rng, engine=engine)
    assert search.partition.blocks.clusters == (4, 4)
    for found in search.partition.labels:
        assert len(set(zip(found.tolist(), label.tolist(), strict=True))) == 4
    truth = Partition.from_labels(relation, [label.astype(np.int32) for _ in relation.sizes])
    assert search.partition.log_joint() == pytest.approx(truth.log_joint(), rel=1e-6)
    assert records[-1].bound <= search.partition.log_joint() + 1e-6


def test_search_adds_clusters_where_the_start_has_too_few():
    drawn = planted((100, 100), (6, 4), 4)
    start = [(drawn.row_labels // 3).astype(np.int32), drawn.column_labels.copy()]
    partition = Partition.from_labels(Relation.build(drawn.X), start)
    search, _ = run_search(partition, np.random.default_rng(0))
    assert search.partition.blocks.clusters == (6, 4)


def test_search_ends_after_its_patience():
    search, records = run_search(
        true_partition(planted((100, 100), (3, 3), 4)), np.random.default_rng(0)
    )
    assert search.finished
    assert search.failures == SEARCH.patience(200) == 3
    assert search.number == len(records)
    assert not list(search.sweeps(lambda: 0.0))  # a finished search has no further sweeps


@pytest.mark.parametrize(
    ("objects", "failures"), [(1, 3), (1_000, 3), (1_001, 2), (1_500, 2), (1_501, 1), (10**7, 1)]
)
def test_patience_falls_with_the_number_of_objects(objects, failures):
    assert SEARCH.patience(objects) == failures
