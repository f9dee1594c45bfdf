"""Merges and splits: gains from tables equal recomputed evidence, which never falls."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from coblock.generate import planted
from coblock.inference import moves
from coblock.inference.moves import (
    cells_of,
    draw_seeds,
    merge,
    merge_and_learn,
    merge_gains,
    merge_nearest,
    part_clusters,
    split,
)
from coblock.inference.search import SearchRun
from coblock.kernels import partings
from coblock.model.partition import Partition
from coblock.model.relation import Relation
from strategies import cases


def partition_of(case) -> Partition:
    labels = [q.argmax(axis=1).astype(np.int32) for q in case.q]
    return Partition(case.relation, labels, 0.7, 1.1, list(case.alpha))


@given(cases(most_objects=8, most_clusters=4))
def test_merge_gain_from_tables_equals_the_recomputed_difference(case):
    for d in range(len(case.q)):
        partition = partition_of(case)
        before = partition.log_joint()
        gains = merge_gains(partition, d)
        for k, g in zip(*np.nonzero(np.isfinite(gains)), strict=True):
            merged = partition.copy()
            merged.labels[d][merged.labels[d] == g] = k
            merged.recount()
            assert merged.log_joint() - before == pytest.approx(gains[k, g], abs=1e-8)


def test_gains_shared_among_threads_are_the_same(monkeypatch):
    drawn = planted((60, 60), (7, 5), 0)
    labels = [drawn.row_labels.copy(), drawn.column_labels.copy()]
    partition = Partition.start(Relation.build(drawn.X), labels)
    alone = merge_gains(partition, 0)
    monkeypatch.setattr(moves, "WORTH_SHARING", 0)
    with ThreadPoolExecutor(2) as pool:
        assert_array_equal(merge_gains(partition, 0, pool.map), alone)
    assert np.isfinite(alone).sum() == 21


@given(cases(most_objects=8, most_clusters=3, kinds=("bipartite",)), st.integers(0, 99))
def test_split_gain_from_tables_equals_the_recomputed_difference(case, seed):
    rng = np.random.default_rng(seed)
    for d in range(2):
        partition = partition_of(case)
        before = partition.log_joint()
        for k, (gain, side) in enumerate(part_clusters(partition, d, rng)):
            if not np.isfinite(gain):
                continue
            parted = partition.copy()
            members = np.flatnonzero(parted.labels[d] == k)
            parted.labels[d][members[side == 1]] = partition.m[d].size
            parted.recount()
            assert parted.log_joint() - before == pytest.approx(gain, abs=1e-8)


def dense_profiles(case, partition, members) -> tuple[np.ndarray, np.ndarray]:
    """Links and observed non-links of members by block, cell by cell."""
    seen, X = case.observed, case.X
    label, clusters = partition.labels[-1], partition.m[-1].size
    n, N = np.zeros((2, members.size, len(case.relation.places[0]) * clusters))
    for t, i in enumerate(members):
        for p in range(len(case.relation.places[0])):
            for j in range(label.size):
                row, column = (i, j) if p == 0 else (j, i)
                if case.relation.one_domain and i == j:
                    continue
                if seen[row, column]:
                    (n if X[row, column] else N)[t, p * clusters + label[j]] += 1.0
    return n, N


@given(cases(most_objects=9, most_clusters=3), st.integers(0, 99))
def test_sides_and_their_counts_are_those_of_the_cells(case, seed):
    """Against sums over all cells of every member."""
    partition, rng = partition_of(case), np.random.default_rng(seed)
    prior = (0.7, 1.1)
    for k in range(partition.m[0].size):
        members = np.flatnonzero(partition.labels[0] == k).astype(np.int32)
        cells = cells_of(partition, 0, k)
        clusters = partition.m[-1].size
        brought = partings.profiles(partition.domain(0), members, partition.labels[-1], clusters)
        n, N = dense_profiles(case, partition, members)
        side = rng.integers(2, size=members.size).astype(np.int8)
        sides = partings.no_sides(2, cells.size)
        partings.count_sides(brought, np.arange(members.size), side, cells, sides)
        for s in range(2):
            assert_array_equal(sides.n[s], n[side == s].sum(axis=0))
            assert_array_equal(sides.N[s], N[side == s].sum(axis=0))
        a, b = prior
        chance = (a + sides.n) / (a + b + sides.n + sides.N)
        each = n @ np.log(chance).T + N @ np.log1p(-chance).T + np.log(sides.m + 1.0)
        clear = abs(each[:, 1] - each[:, 0]) > 1e-9
        taken = partings.take_sides(brought, cells, sides, prior)
        assert_array_equal(taken[clear], each.argmax(axis=1)[clear])


@given(st.integers(2, 9), st.integers(0, 99))
def test_a_cluster_is_parted_around_two_different_members(members, seed):
    seeds = draw_seeds(members, np.random.default_rng(seed))
    assert (seeds[:, 0] != seeds[:, 1]).all()
    assert seeds.min() >= 0
    assert seeds.max() < members


def test_all_members_may_be_seeds():
    drawn = np.concatenate([draw_seeds(3, np.random.default_rng(seed)) for seed in range(50)])
    assert {tuple(pair) for pair in drawn.tolist()} == {
        (i, j) for i in range(3) for j in range(3) if i != j
    }


def test_the_gain_of_another_pair_would_not_do():
    """Negative control: the gains of different pairs differ."""
    drawn = planted((40, 40), (4, 4), 0)
    partition = Partition.start(
        Relation.build(drawn.X), [drawn.row_labels.copy(), drawn.column_labels.copy()]
    )
    gains = merge_gains(partition, 0)
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
        lambda d: merge(partition, d),
        lambda d: split(partition, d, rng, None),
        lambda _: partition.sweep(np.full(sum(case.relation.sizes), -1.0)),
        lambda _: partition.learn(),
    ):
        for d in range(len(case.q)):
            move(d)
            assert partition.log_joint() >= value - 1e-8 * max(abs(value), 1.0)
            value = partition.log_joint()


def test_forced_mergers_may_lower_it():
    """Negative control: what is done to leave a local optimum is not a gain."""
    drawn = planted((60, 60), (4, 4), 0)
    labels = [drawn.row_labels.copy(), drawn.column_labels.copy()]
    partition = Partition.start(Relation.build(drawn.X), labels)
    value = partition.log_joint()
    merge_nearest(partition, 0, 0.5)
    assert partition.m[0].size == 2
    assert partition.log_joint() < value - 1.0


def test_a_merged_truth_is_split_and_a_split_truth_is_merged():
    drawn = planted((90, 80), (3, 4), 3)
    relation, rng = Relation.build(drawn.X), np.random.default_rng(0)
    truth = Partition.start(relation, [drawn.row_labels.copy(), drawn.column_labels.copy()])
    joined = truth.copy()
    joined.labels[0][joined.labels[0] == 2] = 1
    joined.recount()
    assert split(joined, 0, rng, None) == 1
    assert joined.log_joint() == pytest.approx(truth.log_joint(), rel=1e-3)
    torn = truth.copy()
    members = np.flatnonzero(torn.labels[0] == 0)
    torn.labels[0][members[::2]] = 3
    torn.recount()
    assert merge(torn, 0) == 1
    assert torn.log_joint() == pytest.approx(truth.log_joint(), abs=1e-8)


def test_a_cap_on_clusters_is_kept():
    drawn = planted((90, 80), (5, 5), 1)
    relation, rng = Relation.build(drawn.X), np.random.default_rng(0)
    labels = [drawn.row_labels % 2, drawn.column_labels % 2]
    run = SearchRun(Partition.start(relation, labels), rng, (3, 4))
    for sweep in run.sweeps(0.0):
        assert sweep.row_clusters <= 3
        assert sweep.column_clusters <= 4
    assert run.partition.n.shape == (3, 4)


def test_a_prior_that_fits_too_closely_does_not_keep_clusters_apart():
    """Thirty coin tosses: two clusters by outcome look perfect to a prior that expects 0 or 1."""
    relation = Relation.build(np.array([[0.0, 1.0] * 15]).T)
    outcome = np.array([0, 1] * 15, dtype=np.int32)
    partition = Partition.start(relation, [outcome, np.zeros(1, dtype=np.int32)])
    value = partition.log_joint()
    assert merge(partition, 0) == 0
    assert merge_and_learn(partition, 0) == 1
    assert partition.log_joint() > value + 1.0


@pytest.mark.parametrize("kind", ["bipartite", "directed", "undirected"])
def test_the_search_finds_the_truth_from_torn_clusters(kind):
    rng = np.random.default_rng(2)
    label = np.repeat(np.arange(4), 25)
    theta = np.full((4, 4), 0.05) + 0.6 * np.eye(4)
    X = (rng.random((100, 100)) < theta[np.ix_(label, label)]).astype(float)
    if kind == "undirected":
        X = np.triu(X, 1) + np.triu(X, 1).T
    np.fill_diagonal(X, 0.0)
    relation = Relation.build(X, kind=kind)
    torn = [(3 * label + rng.integers(3, size=100)).astype(np.int32) for _ in relation.sizes]
    run = SearchRun(Partition.start(relation, torn), rng)
    last = [sweep.bound for sweep in run.sweeps(0.0)][-1]
    assert run.partition.n.shape == (4, 4)
    for found in run.partition.labels:
        assert len(set(zip(found.tolist(), label.tolist(), strict=True))) == 4
    truth = Partition.start(relation, [label.astype(np.int32) for _ in relation.sizes])
    assert run.partition.log_joint() == pytest.approx(truth.log_joint(), rel=1e-6)
    assert last <= run.partition.log_joint() + 1e-6


def test_the_search_grows_where_there_is_more_to_tell_apart():
    drawn = planted((100, 100), (6, 4), 4)
    relation = Relation.build(drawn.X)
    start = [(drawn.row_labels // 3).astype(np.int32), drawn.column_labels.copy()]
    run = SearchRun(Partition.start(relation, start), np.random.default_rng(0))
    list(run.sweeps(0.0))
    assert run.partition.n.shape == (6, 4)
