"""Merges and splits: gains from tables equal recomputed evidence, which never falls."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from coblock.generate import planted
from coblock.inference.engine import LocalEngine, Schedule, draw_seeds
from coblock.inference.moves import (
    collapse,
    merge,
    merge_nearest,
    nearest_pairs,
    split,
    split_and_learn,
)
from coblock.inference.search import Search, climb_from
from coblock.inference.settings import SEARCH
from coblock.kernels.moves import (
    assign_sides,
    count_sides,
    current_values,
    member_profiles,
    merge_gains,
    merge_pairs,
    zero_counts,
)
from coblock.model.hyperparameters import Hyperparameters
from coblock.model.partition import Partition
from coblock.model.relation import BinaryRelation
from strategies import cases

PRIOR = (0.7, 1.1)
ENGINE = LocalEngine()


def partition_of(case) -> Partition:
    labels = [q.argmax(axis=1).astype(np.int32) for q in case.q]
    prior = np.array(PRIOR).reshape(2, 1, 1)
    return Partition(case.relation, labels, Hyperparameters(list(case.alpha), prior))


def true_partition(drawn) -> Partition:
    labels = [drawn.row_labels.copy(), drawn.column_labels.copy()]
    return Partition.from_labels(BinaryRelation.build(drawn.X), labels)


def run_search(partition: Partition, rng: np.random.Generator, limits=None, engine=ENGINE):
    """Run a search to its end; return it and its records."""
    search = Search(partition, rng, limits, engine)
    return search, list(search.sweeps(lambda: 0.0))


def all_pairs(K: int) -> np.ndarray:
    return np.array(list(combinations(range(K), 2)), dtype=np.int32).reshape(-1, 2)


def values_of(partition: Partition, d: int) -> tuple:
    """Return the arguments of the merge kernels: current values, sizes and concentration."""
    relation, m, alpha = partition.relation, partition.m[d].copy(), partition.hyper.alpha[d]
    kind = (relation.repeated, relation.symmetric)
    return current_values(*kind, partition.tables(d), m, alpha), m, alpha


def gains_of(partition: Partition, d: int, pairs: np.ndarray) -> np.ndarray:
    gains = np.empty(len(pairs))
    merge_gains(*values_of(partition, d), pairs, gains)
    return gains


def merged_by(partition: Partition, d: int, label: np.ndarray) -> Partition:
    merged = partition.copy()
    merged.labels[d] = label[merged.labels[d]]
    merged.renumber()
    return merged


@given(cases(most_objects=8, most_clusters=4))
def test_merge_gain_equals_the_recomputed_difference(case):
    for d in range(len(case.q)):
        partition = partition_of(case)
        pairs = all_pairs(partition.m[d].size)
        for (k, g), gain in zip(pairs, gains_of(partition, d, pairs), strict=True):
            label = np.arange(partition.m[d].size, dtype=np.int32)
            label[g] = k
            rise = merged_by(partition, d, label).log_joint() - partition.log_joint()
            assert rise == pytest.approx(gain, abs=1e-8)


@given(cases(most_objects=10, most_clusters=6), st.sampled_from([-np.inf, -2.0, 1e-6]))
def test_merges_of_many_pairs_are_the_best_of_each_step(case, least):
    """The tables that merges update give the gains of a recount, in two domains and in one."""
    for d in range(len(case.q)):
        partition = partition_of(case)
        pairs = all_pairs(partition.m[d].size)
        if not len(pairs):
            continue
        now, m, alpha = values_of(partition, d)
        gains = gains_of(partition, d, pairs)
        label = merge_pairs(now, m, alpha, pairs, gains, least, m.size, False)
        merged = merged_by(partition, d, label)
        used = np.flatnonzero(m)
        assert_array_equal(used, np.unique(label))
        expected = values_of(merged, d)[0]
        across = used if partition.relation.repeated else np.arange(now.value.shape[1])
        shape = (used.size, min(across.size, expected.value.shape[1]))
        found = now.value[np.ix_(used, across)][:, : shape[1]]
        assert_allclose(found, expected.value[:, : shape[1]], atol=1e-8)
        left = gains_of(merged, d, all_pairs(used.size))
        assert (left <= least + 1e-8).all() or used.size == 1


def test_disjoint_merges_take_each_cluster_once():
    partition = true_partition(planted((60, 60), (7, 5), 0))
    pairs = all_pairs(7)
    gains = gains_of(partition, 0, pairs)
    arguments = (*values_of(partition, 0), pairs, gains.copy(), -np.inf)
    label = merge_pairs(*arguments, 7, True)
    assert sorted(np.bincount(label, minlength=7)) == [0, 0, 0, 1, 2, 2, 2]
    best = pairs[gains.argmax()]
    assert label[best[0]] == label[best[1]]


@pytest.mark.parametrize("kind", ["bipartite", "directed", "undirected"])
def test_near_pairs_are_those_of_divided_clusters(kind):
    """A cluster that was cut in two at random is nearest to its other half."""
    drawn = planted((300, 300), (12, 12), 0)
    X = drawn.X.toarray()
    labels = [drawn.row_labels + 12 * (np.arange(300) % 2)]
    if kind == "bipartite":
        labels.append(drawn.column_labels)
    elif kind == "undirected":
        X = np.triu(X, 1) + np.triu(X, 1).T
    relation = BinaryRelation.build(X, kind=kind)
    partition = Partition.from_labels(relation, [label.astype(np.int32) for label in labels])
    pairs = {tuple(pair) for pair in nearest_pairs(partition, 0).tolist()}
    assert {(k, k + 12) for k in range(12)} <= pairs
    assert len(pairs) <= 24 * SEARCH.merge_neighbours
    assert all(k < g for k, g in pairs)


def test_merges_do_not_depend_on_threads():
    labels = []
    for threads in (1, 2):
        partition = true_partition(planted((600, 400), (4, 4), 0))
        partition.labels[0] = (np.arange(600) % 80).astype(np.int32)
        partition.renumber()
        with ThreadPoolExecutor(threads) as pool:
            merge(partition, 0, LocalEngine(threads=pool))
        labels.append(partition.labels[0])
    assert_array_equal(*labels)


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
        clusters = partition.m[-1].size
        cells = partition.m[-1] - (np.arange(clusters) == k) * float(partition.relation.repeated)
        cells = np.tile(cells, 2 if case.kind == "directed" else 1)
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


def test_profiles_have_one_entry_for_each_block_with_cells():
    """Without the unseen cells the counts of a side are wrong."""
    X = np.ones((3, 6))
    X[0, 3:], X[1, 1], X[2] = np.nan, 0.0, 0.0
    labels = [np.zeros(3, np.int32), np.array([0, 0, 0, 1, 1, 1], np.int32)]
    partition = Partition.from_labels(BinaryRelation.build(X), labels)
    members = np.arange(3, dtype=np.int32)
    profiles = member_profiles(partition.domain(0), members, labels[1], 2)
    assert profiles.start.tolist() == [0, 2, 4, 4]
    assert profiles.block.tolist() == [0, 1, 0, 1]
    assert profiles.links.tolist() == [3, 0, 2, 3]
    assert profiles.unseen.tolist() == [0, 3, 0, 0]
    counted = []
    for each in (profiles, profiles._replace(unseen=np.zeros_like(profiles.unseen))):
        counts = zero_counts(1, 2)
        count_sides(each, np.arange(3), np.zeros(3, np.int8), np.full(2, 3.0), counts)
        assert counts.n.tolist() == [[5.0, 3.0]]
        counted.append(counts.N.tolist())
    assert counted == [[[4.0, 3.0]], [[4.0, 6.0]]]


@given(st.integers(2, 9), st.integers(0, 99))
def test_split_seeds_are_pairs_of_different_members(members, seed):
    seeds = draw_seeds(np.array([1, members]), np.random.default_rng(seed))[1]
    assert (seeds[:, 0] != seeds[:, 1]).all()
    assert seeds.min() >= 0
    assert seeds.max() < members


def test_all_pairs_of_members_can_be_split_seeds():
    drawn = draw_seeds(np.full(50, 3), np.random.default_rng(0)).reshape(-1, 2)
    assert {tuple(pair) for pair in drawn.tolist()} == {
        (i, j) for i in range(3) for j in range(3) if i != j
    }


def test_gains_of_different_pairs_differ():
    """Negative control: the gain of another pair would fail the tests above."""
    partition = true_partition(planted((40, 40), (4, 4), 0))
    assert np.ptp(gains_of(partition, 0, all_pairs(4))) > 1.0


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
    merge_nearest(partition, 0, -np.inf, 2, ENGINE, disjoint=True)
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
    partition = Partition.from_labels(BinaryRelation.build(drawn.X), labels)
    search, records = run_search(partition, np.random.default_rng(0), (3, 4))
    assert max(record.row_clusters for record in records) <= 3
    assert max(record.column_clusters for record in records) <= 4
    assert search.partition.blocks.clusters == (3, 4)


def test_collapse_undoes_a_prior_that_fits_too_closely():
    """Thirty coin tosses: two clusters by outcome look perfect to a prior that expects 0 or 1."""
    relation = BinaryRelation.build(np.array([[0.0, 1.0] * 15]).T)
    outcome = np.array([0, 1] * 15, dtype=np.int32)
    partition = Partition.from_labels(relation, [outcome, np.zeros(1, dtype=np.int32)])
    value = partition.log_joint()
    assert merge(partition, 0, ENGINE) == 0
    assert collapse(partition)
    assert partition.log_joint() > value + 1.0
    assert not collapse(partition)


def test_collapse_does_not_reward_a_cluster_for_each_object():
    """Its concentration is unbounded, so the partition itself costs nothing."""
    X = (np.random.default_rng(0).random((60, 40)) < 0.2).astype(float)
    labels = [np.zeros(60, dtype=np.int32), np.arange(40, dtype=np.int32)]
    partition = Partition.from_labels(BinaryRelation.build(X), labels)
    one = Partition.from_labels(
        BinaryRelation.build(X), [np.zeros(60, np.int32), np.zeros(40, np.int32)]
    )
    assert partition.log_joint() > one.log_joint() - 1.0  # negative control
    assert collapse(partition)
    assert partition.blocks.clusters == (1, 1)


@pytest.mark.parametrize("axis", [0, 1])
def test_collapse_of_one_domain(axis):
    """Rows differ and columns do not, or the other way round."""
    rates = np.where(np.arange(80) % 2, 0.6, 0.1)[:, None]
    X = (np.random.default_rng(1).random((80, 70)) < rates).astype(float)
    X = X if axis == 0 else X.T
    label = (np.arange(80) % 2).astype(np.int32)
    noise = np.random.default_rng(2).integers(5, size=70).astype(np.int32)
    partition = Partition.from_labels(
        BinaryRelation.build(X), [label, noise][:: 1 if axis == 0 else -1]
    )
    assert collapse(partition)
    assert partition.blocks.clusters == ((2, 1) if axis == 0 else (1, 2))


def test_collapse_leaves_clear_blocks_alone():
    drawn = planted((90, 80), (4, 3), 1)
    labels = [drawn.row_labels.astype(np.int32), drawn.column_labels.astype(np.int32)]
    partition = Partition.from_labels(BinaryRelation.build(drawn.X), labels)
    assert not collapse(partition)
    assert partition.blocks.clusters == (4, 3)


def test_one_cluster_is_split_at_learnt_hyperparameters_only():
    """The prior of one block is a point: under it the best split loses."""
    drawn = planted((90, 80), (4, 3), 1)
    relation = BinaryRelation.build(drawn.X)
    zeros = [np.zeros(size, dtype=np.int32) for size in relation.sizes]
    partition = Partition.from_labels(relation, zeros)
    before = partition.log_joint()
    assert split(partition, 0, np.random.default_rng(0), None, ENGINE) == 0  # negative control
    assert split_and_learn(partition, 0, np.random.default_rng(0), None, ENGINE) > 0
    assert partition.log_joint() > before + 10.0
    assert partition.m[1].size == 1


def test_split_and_learn_keeps_the_limit_of_clusters():
    drawn = planted((90, 80), (4, 3), 1)
    zeros = [np.zeros(size, dtype=np.int32) for size in (90, 80)]
    partition = Partition.from_labels(BinaryRelation.build(drawn.X), zeros)
    split_and_learn(partition, 0, np.random.default_rng(0), 2, ENGINE)
    assert partition.m[0].size == 2


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
    relation = BinaryRelation.build(X, kind=kind)
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
    partition = Partition.from_labels(BinaryRelation.build(drawn.X), start)
    search, _ = run_search(partition, np.random.default_rng(0))
    assert search.partition.blocks.clusters == (6, 4)


@pytest.mark.parametrize("clusters", [1, 2])
def test_a_climb_from_one_block_makes_no_sweep(clusters):
    """A sweep from it changes nothing; from two clusters it does."""
    drawn = planted((80, 60), (4, 4), 2)
    labels = [np.arange(size, dtype=np.int32) % clusters for size in (80, 60)]
    start, swept = Partition.from_labels(BinaryRelation.build(drawn.X), labels), []

    class Engine(LocalEngine):
        def sweep_labels(self, partition, *options, **more):
            swept.append(partition.blocks.clusters)
            return super().sweep_labels(partition, *options, **more)

    found = climb_from(start, Engine())
    assert len(swept) == (0 if clusters == 1 else SEARCH.start_rounds)
    moved = start.copy()
    ENGINE.sweep_labels(moved)
    for same in (found, moved):
        assert np.array_equal(same.labels[0], start.labels[0]) == (clusters == 1)


def test_search_ends_after_its_patience():
    search, records = run_search(
        true_partition(planted((100, 100), (3, 3), 4)), np.random.default_rng(0)
    )
    assert search.finished
    assert search.failures == SEARCH.patience(200) == 10
    assert search.number == len(records)
    assert not list(search.sweeps(lambda: 0.0))  # a finished search has no further sweeps


@pytest.mark.parametrize(
    ("objects", "failures"), [(1, 10), (800, 10), (801, 9), (2_666, 3), (2_667, 2), (10**7, 2)]
)
def test_patience_falls_with_the_number_of_objects(objects, failures):
    assert SEARCH.patience(objects) == failures


@pytest.mark.parametrize("perturbations", [0, 1, 2])
def test_large_relations_are_perturbed_less_often_than_patience_allows(monkeypatch, perturbations):
    budget = replace(SEARCH, perturbed_objects=200 * perturbations + 199)
    monkeypatch.setattr("coblock.inference.search.SEARCH", budget)
    partition = true_partition(planted((100, 100), (3, 3), 4))
    search, _ = run_search(partition, np.random.default_rng(0))
    assert search.perturbations == perturbations
    assert search.finished
    assert not search.climbing  # the local search after the last perturbation has ended
