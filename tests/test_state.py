"""Counts, labels and memberships stay consistent; permuted input gives permuted output."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

import reference
from coblock.inference.engine import LocalEngine, Schedule
from coblock.inference.variational import sweep_second_order, sweep_vb
from coblock.kernels.memberships import hard_labels, next_is_row
from coblock.model.blocks import Blocks
from coblock.model.hyperparameters import Hyperparameters
from coblock.model.partition import Partition
from coblock.model.relation import BinaryRelation
from coblock.model.state import SoftState, by_size, select_columns, sort_and_prune
from single_updates import update_cvb0
from strategies import KINDS, cases, make_case

PRIOR = (0.4, 0.7)  # a and b
FIELDS = ("links", "unseen", "self_pairs", "own", "n", "N")

SWEEPS = {
    "cvb0": lambda state: LocalEngine(Schedule(1)).sweep_memberships(state),
    "cvb0 in batches": lambda state: LocalEngine(Schedule(2)).sweep_memberships(state),
    "exact": lambda state: sweep_second_order(state, exact=True),
    "paper": lambda state: sweep_second_order(state, exact=False),
    "vb": sweep_vb,
}


def assert_blocks_close(found: Blocks, expected: Blocks, tolerance: float) -> None:
    for name in FIELDS:
        values = getattr(found, name), getattr(expected, name)
        assert_allclose(*values, rtol=tolerance, atol=tolerance, err_msg=name)
    for m, wanted in zip(found.m, expected.m, strict=True):
        assert_allclose(m, wanted, rtol=tolerance, atol=tolerance)


def assert_blocks_equal(found: Blocks, expected: Blocks) -> None:
    for name in FIELDS:
        assert_array_equal(getattr(found, name), getattr(expected, name), err_msg=name)
    for m, wanted in zip(found.m, expected.m, strict=True):
        assert_array_equal(m, wanted)


def recounted(state: SoftState) -> SoftState:
    return SoftState(state.relation, [q.copy() for q in state.q], state.hyper)


def one_hot(labels: list[np.ndarray], clusters: tuple[int, ...]) -> list[np.ndarray]:
    return [np.eye(K)[label] for label, K in zip(labels, clusters, strict=True)]


@given(cases(), st.integers(0, 2))
def test_blocks_of_labels_equal_blocks_of_one_hot_memberships(case, empty):
    """Both equal the dense definition, with the diagonal seen or not, with empty clusters, too."""
    labels = case.labels()
    clusters = tuple(int(label.max()) + 1 + empty for label in labels)
    hot = one_hot(labels, clusters)
    blocks = Blocks.from_labels(case.relation, labels, clusters)
    assert_blocks_equal(Blocks.from_memberships(case.relation, hot, labels), blocks)
    n, N = reference.counts(case.X, case.observed, hot, case.kind)
    assert_array_equal(blocks.n, n)
    assert_array_equal(blocks.N, N)
    assert blocks.clusters == n.shape
    assert blocks.in_use == (n.shape[0] - empty, n.shape[1] - empty)
    used = np.ix_(*(np.arange(count) for count in blocks.in_use))
    for found, table in zip(blocks.statistics(), (n, N), strict=True):
        expected = reference.each_block_once(table[used], case.kind)
        assert_array_equal(np.sort(found), np.sort(expected))


@given(cases())
def test_blocks_of_memberships_equal_definition(case):
    hard = [hard_labels(q) for q in case.q]
    blocks = Blocks.from_memberships(case.relation, case.q, hard)
    n, N = reference.counts(case.X, case.observed, case.q, case.kind)
    assert_allclose(blocks.n, n, rtol=1e-12, atol=1e-12)
    assert_allclose(blocks.N, N, rtol=1e-12, atol=1e-12)


@given(cases(), st.randoms(use_true_random=False))
def test_reordered_blocks_equal_recount(case, random):
    labels = case.labels()
    blocks = Blocks.from_labels(case.relation, labels)
    orders = [np.array(random.sample(range(m.size), m.size)) for m in blocks.m]
    moved = [np.argsort(order)[label] for order, label in zip(orders, labels, strict=True)]
    moved = [label.astype(np.int32) for label in moved]
    assert_blocks_equal(blocks.reorder(orders), Blocks.from_labels(case.relation, moved))


@given(cases(), st.integers(0, 3))
def test_added_clusters_are_empty(case, count):
    labels = case.labels()
    blocks = Blocks.from_labels(case.relation, labels)
    clusters = [m.size for m in blocks.m]
    for d in range(len(labels)):
        blocks.add_clusters(d, count)
        clusters[d] += count
        assert_blocks_equal(blocks, Blocks.from_labels(case.relation, labels, tuple(clusters)))


@given(cases(kinds=("bipartite",)), st.integers(0, 1), st.integers(0, 2**16))
def test_applied_deltas_equal_recount(case, d, seed):
    """Change the memberships of one domain and add the dense changes of all sums."""
    state = case.state()
    fresh = np.random.default_rng(seed).permutation(case.q[d])
    change, other = fresh - case.q[d], case.q[1 - d]
    cells = [case.X * case.observed, 1.0 - case.observed]
    cells = cells if d == 0 else [each.T for each in cells]
    links, unseen = (change.T @ each @ other for each in cells)
    if not unseen.any():
        unseen = np.zeros((0, 0))  # as batches do where no cell is unseen
    state.blocks.apply_delta(d, change.sum(axis=0), links, unseen)
    state.q[d][:] = fresh
    assert_blocks_close(state.blocks, recounted(state).blocks, 1e-9)


@given(cases(most_objects=8), st.randoms(use_true_random=False))
def test_relabelled_partition_equals_recount_exactly(case, random):
    """Several objects at a time, in all kinds, with the diagonal seen or not."""
    partition = case.partition(*PRIOR)
    for d in range(len(case.q)):
        partition.make_room(d, None, 1)
    for _ in range(3):
        for d, size in enumerate(case.relation.sizes):
            count = random.randint(0, size)
            objects = np.sort(random.sample(range(size), count)).astype(np.int32)
            K = partition.m[d].size
            fresh = np.array([random.randrange(K) for _ in objects], dtype=np.int32)
            partition.relabel(d, objects, fresh)
            assert_array_equal(partition.labels[d][objects], fresh)
            clusters = tuple(m.size for m in partition.m)
            again = Blocks.from_labels(case.relation, partition.labels, clusters)
            assert_blocks_equal(partition.blocks, again)


@pytest.mark.parametrize("kind", KINDS)
def test_relabelling_changes_the_counts(kind):
    """Negative control of the comparison above."""
    case = make_case(np.random.default_rng(0), kind, (8, 7), (2, 2), unseen=0.2, hard=1.0)
    partition = case.partition(*PRIOR)
    before = partition.blocks.n.copy()
    objects = np.arange(4, dtype=np.int32)
    partition.relabel(0, objects, 1 - partition.labels[0][objects])
    assert np.abs(partition.blocks.n - before).max() >= 1.0


def test_renumbered_partition_has_no_empty_clusters():
    case = make_case(np.random.default_rng(0), "bipartite", (8, 7), (3, 2), hard=1.0)
    partition = case.partition(*PRIOR)
    joint = partition.log_joint()
    partition.make_room(0, None, 4)
    assert partition.blocks.clusters == (7, 2)
    assert partition.log_joint() == pytest.approx(joint)
    partition.renumber()
    assert partition.blocks.clusters == partition.blocks.in_use == (3, 2)
    assert partition.log_joint() == pytest.approx(joint)


@given(cases())
def test_log_joint_of_a_partition_equals_definition(case):
    partition = case.partition(*PRIOR)
    expected = reference.log_joint(
        case.X, case.observed, partition.labels, case.kind, *PRIOR, case.alpha
    )
    assert partition.log_joint() == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_copies_of_partitions_share_no_memory():
    case = make_case(np.random.default_rng(0), "directed", (8, 8), (2, 2), hard=1.0)
    partition = case.partition(*PRIOR)
    other = partition.copy()
    other.relabel(0, np.array([0], dtype=np.int32), 1 - other.labels[0][:1])
    other.learn()
    assert_blocks_equal(partition.blocks, case.partition(*PRIOR).blocks)
    assert_array_equal(partition.labels[0], case.labels()[0])
    assert partition.hyper.prior[0].item() == PRIOR[0]


def test_room_is_made_up_to_the_limit():
    case = make_case(np.random.default_rng(0), "bipartite", (8, 7), (2, 2), hard=1.0)
    partition = case.partition(*PRIOR)
    assert not partition.make_room(0, 2, 4)
    assert partition.m[0].size == 2
    assert partition.make_room(0, 4, 4)
    assert partition.m[0].size == 4
    assert partition.make_room(0, 4, 4), "an empty cluster below the limit may be opened"
    assert partition.m[0].size == 4
    partition.relabel(0, np.array([0, 1], dtype=np.int32), np.array([2, 3], dtype=np.int32))
    assert (partition.m[0] > 0).all()
    assert not partition.make_room(0, 4, 4)
    assert partition.make_room(0, None, 4)
    assert partition.m[0].size == 8


class StrictNumpy:
    """NumPy, but ``maximum`` refuses to hide more than rounding below the lower bound."""

    def __init__(self, tolerance: float):
        self.tolerance = tolerance
        self.calls = 0

    def __getattr__(self, name: str):
        return getattr(np, name)

    def maximum(self, values, least):
        assert np.min(values) >= least - self.tolerance
        self.calls += 1
        return np.maximum(values, least)


@settings(max_examples=40)
@given(cases(most_objects=8), st.integers(1, 4))
def test_no_count_falls_below_zero_before_the_clamps(case, batch_size):
    """Expected counts differ from 0 by rounding only; those of labels are exact."""
    engine = LocalEngine(Schedule((batch_size, batch_size + 1)))
    with pytest.MonkeyPatch.context() as patch:
        strict = StrictNumpy(1e-12)
        patch.setattr("coblock.model.blocks.np", strict)
        state = case.state()
        for _ in range(5):
            engine.sweep_memberships(state)
        strict.tolerance = 0.0
        partition = case.partition(*PRIOR)
        for _ in range(3):
            engine.sweep_labels(partition)
        assert strict.calls > 0


@pytest.mark.parametrize("kind", KINDS)
def test_counts_of_many_sweeps_do_not_drift_below_zero(kind):
    rng = np.random.default_rng(6)
    case = make_case(rng, kind, (150, 120), (6, 5), links=0.05, unseen=0.02, hard=0.2)
    engine = LocalEngine(Schedule(40))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("coblock.model.blocks.np", StrictNumpy(1e-9))
        state = case.state()
        for _ in range(40):
            engine.sweep_memberships(state)
    assert_blocks_close(state.blocks, recounted(state).blocks, 1e-9)


@settings(max_examples=60)
@given(cases(), st.lists(st.sampled_from(sorted(SWEEPS)), min_size=1, max_size=4))
def test_counts_after_any_sequence_of_sweeps_equal_recount(case, names):
    state = case.state()
    for name in names:
        SWEEPS[name](state)
        again = recounted(state)
        assert_allclose(state.blocks.n, again.blocks.n, rtol=1e-9, atol=1e-9)
        assert_allclose(state.blocks.N, again.blocks.N, rtol=1e-9, atol=1e-9)
        for d, q in enumerate(state.q):
            assert np.isfinite(q).all()
            assert_allclose(q.sum(axis=1), 1.0, rtol=1e-12)
            assert_allclose(state.m[d], again.m[d], rtol=1e-9, atol=1e-9)
            assert_array_equal(state.hard[d], again.hard[d])


@settings(max_examples=60)
@given(cases(), st.randoms(use_true_random=False))
def test_reordered_state_equals_recount(case, random):
    state = case.state()
    orders = [np.array(random.sample(range(m.size), m.size)) for m in state.m]
    other = state.select(orders)
    again = recounted(other)
    assert_blocks_close(other.blocks, again.blocks, 1e-12)
    for d, order in enumerate(orders):
        assert_array_equal(other.q[d], state.q[d][:, order])
        assert_array_equal(other.hard[d], again.hard[d])
        assert_array_equal(other.m[d], state.m[d][order])


def swept(X, q, hyper: Hyperparameters, orders) -> SoftState:
    """Return the state after one bipartite CVB0 sweep that updates objects in these orders."""
    state = SoftState(BinaryRelation.build(X), [part.copy() for part in q], hyper)
    rows, columns, blocks = state.domain(0), state.domain(1), state.tables()
    done, sizes = [0, 0], [len(order) for order in orders]
    while done != sizes:
        if next_is_row(*done, *sizes):
            update_cvb0(rows, columns, blocks, orders[0][done[0]], False)
            done[0] += 1
        else:
            update_cvb0(columns, rows, blocks, orders[1][done[1]], True)
            done[1] += 1
    return state


def per_block(case) -> Hyperparameters:
    return Hyperparameters(list(case.alpha), np.array([case.a, case.b]), per_block=True)


def test_permuting_rows_and_columns_permutes_the_result():
    rng = np.random.default_rng(0)
    case = make_case(rng, "bipartite", (9, 7), (3, 2), unseen=0.0)
    rows, columns = rng.permutation(9), rng.permutation(7)
    plain = swept(case.X, case.q, per_block(case), (np.arange(9), np.arange(7)))
    moved = swept(
        case.X[np.ix_(rows, columns)],
        [case.q[0][rows], case.q[1][columns]],
        per_block(case),
        (np.argsort(rows), np.argsort(columns)),
    )
    assert_allclose(moved.q[0], plain.q[0][rows], rtol=1e-10)
    assert_allclose(moved.q[1], plain.q[1][columns], rtol=1e-10)
    assert_allclose(moved.blocks.n, plain.blocks.n, rtol=1e-10)


def test_sequential_sweep_updates_objects_in_their_order():
    case = make_case(np.random.default_rng(0), "bipartite", (9, 7), (3, 2), unseen=0.0)
    expected = swept(case.X, case.q, per_block(case), (np.arange(9), np.arange(7)))
    state = case.state()
    SWEEPS["cvb0"](state)
    for q, wanted in zip(state.q, expected.q, strict=True):
        assert_allclose(q, wanted, rtol=1e-12)


def test_another_order_of_updates_gives_another_result():
    """Negative control: the equality above does not hold for every order."""
    case = make_case(np.random.default_rng(0), "bipartite", (9, 7), (3, 2), unseen=0.0)
    forward = swept(case.X, case.q, per_block(case), (np.arange(9), np.arange(7)))
    backward = swept(case.X, case.q, per_block(case), (np.arange(9)[::-1], np.arange(7)[::-1]))
    assert np.abs(forward.q[0] - backward.q[0]).max() > 1e-6


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["cvb0", "cvb0 in batches", "exact", "vb"])
def test_numbering_of_clusters_does_not_matter_once_they_are_sorted(kind, name):
    rng = np.random.default_rng(1)
    case = make_case(rng, kind, (8, 8), (3, 3), hard=0.0)
    start, other = case.state(), case.state()
    start = start.select([by_size(m) for m in start.m])
    other = other.select([rng.permutation(3) for _ in other.q])
    other = other.select([by_size(m) for m in other.m])
    SWEEPS[name](start)
    SWEEPS[name](other)
    for q, expected in zip(other.q, start.q, strict=True):
        assert_allclose(q, expected, rtol=1e-9, atol=1e-12)
    assert_allclose(other.blocks.n, start.blocks.n, rtol=1e-9, atol=1e-12)


@given(cases(most_objects=8))
def test_selected_clusters_keep_memberships_counts_and_prior_together(case):
    state = case.state()
    orders = [by_size(m) for m in state.m]
    chosen = state.select(orders)
    for d, order in enumerate(orders):
        assert_allclose(chosen.q[d], state.q[d][:, order], rtol=1e-12)
        assert (np.diff(chosen.m[d]) <= 1e-9).all()
    table = np.ix_(orders[0], orders[-1])
    assert_allclose(chosen.blocks.n, state.blocks.n[table], rtol=1e-9, atol=1e-9)
    assert_allclose(chosen.hyper.prior, state.hyper.prior[(slice(None), *table)])


@pytest.mark.parametrize("kind", KINDS)
def test_memberships_in_dropped_clusters_go_to_the_others_in_proportion(kind):
    case = make_case(np.random.default_rng(2), kind, (8, 7), (3, 3), hard=0.0)
    state = case.state()
    keep = [np.array([2, 0]) for _ in state.q]
    chosen = state.select(keep)
    for q, old in zip(chosen.q, state.q, strict=True):
        assert_allclose(q.sum(axis=1), 1.0, rtol=1e-12)
        assert_allclose(q[:, 0] * old[:, 0], q[:, 1] * old[:, 2], rtol=1e-12)
    assert_blocks_equal(chosen.blocks, recounted(chosen).blocks)
    assert_array_equal(select_columns(state.q[0], keep[0]), chosen.q[0])
    assert chosen.hyper.prior.shape == (2, 2, 2)


def test_negligible_clusters_are_dropped_unless_they_have_a_member():
    q = np.full((1000, 3), 1e-9)
    q[:, 0] = 1.0 - 2e-9
    q[7] = (0.0, 0.0, 1.0)
    state = SoftState(BinaryRelation.build(np.eye(1000)), [q, np.ones((1000, 1))], flat_hyper())
    assert sort_and_prune(state)[0].tolist() == [0, 2]


def test_clusters_with_averaged_memberships_are_kept():
    q, mean = np.zeros((10, 2)), np.full((10, 2), 0.5)
    q[:, 0] = 1.0
    state = SoftState(BinaryRelation.build(np.eye(10)), [q, np.ones((10, 1))], flat_hyper())
    assert sort_and_prune(state)[0].tolist() == [0]
    assert sort_and_prune(state, [mean, np.ones((10, 1))])[0].tolist() == [0, 1]


def flat_hyper() -> Hyperparameters:
    return Hyperparameters([1.0, 1.0], np.ones((2, 1, 1)))


@given(cases())
def test_partition_from_labels_has_the_most_probable_hyperparameters(case):
    """No factor on any of them raises the joint."""
    partition = Partition.from_labels(case.relation, case.labels())
    best, found = partition.log_joint(), partition.hyper.copy()
    for factor in (0.8, 1.25):
        for row in range(2):
            partition.hyper = found.copy()
            partition.hyper.prior[row] *= factor
            assert partition.log_joint() <= best + 1e-6 * (1.0 + abs(best))
        for d in range(len(found.alpha)):
            partition.hyper = found.copy()
            partition.hyper.alpha[d] *= factor
            assert partition.log_joint() <= best + 1e-6 * (1.0 + abs(best))


@given(cases(), st.randoms(use_true_random=False))
def test_counts_of_merged_and_copied_partitions_equal_recount_exactly(case, random):
    partition = case.partition(*PRIOR)
    for d, m in enumerate(partition.m):
        into = np.arange(m.size, dtype=np.int32)
        for g in range(1, m.size):
            into[g] = random.choice([g, *np.unique(into[:g])])
        expected = [label.copy() for label in partition.labels]
        expected[d] = into[expected[d]]
        expected = Partition(case.relation, expected, partition.hyper.copy())
        copied = partition.copy()
        copied.merge_clusters(d, into)
        for found in (copied, copied.copy()):
            assert_blocks_equal(found.blocks, expected.blocks)
            for label, other in zip(found.labels, expected.labels, strict=True):
                assert_array_equal(label, other)
    assert_blocks_equal(partition.blocks, case.partition(*PRIOR).blocks)  # a copy shares no counts


@given(cases(), st.randoms(use_true_random=False))
def test_counts_without_empty_clusters_equal_recount_exactly(case, random):
    partition = case.partition(*PRIOR)
    for d, label in enumerate(partition.labels):
        fresh = np.full_like(label, random.randrange(partition.m[d].size))
        partition.relabel(d, np.arange(label.size, dtype=np.int32), fresh)
    partition.drop_empty()
    expected = partition.copy()
    expected.renumber()
    assert_blocks_equal(partition.blocks, expected.blocks)
    assert all(m.size == 1 for m in partition.m)
