"""The local engine: sequential and batched sweeps, and the same bits on any number of threads."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier, current_thread, main_thread
from time import perf_counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import logsumexp

import reference
from coblock.generate import synth1
from coblock.inference.engine import (
    LARGE_PART,
    MOST_PARTS,
    PARTS,
    SEQUENTIAL_UP_TO,
    SMALLEST_PART,
    LocalEngine,
    Schedule,
    apply_batch,
    label_kernel,
    largest_change,
    parts,
)
from coblock.inference.fit import Start
from coblock.inference.posterior import PosteriorAverage
from coblock.inference.settings import SEARCH, Settings
from coblock.inference.start import soft_labels
from coblock.inference.variational import Variational
from coblock.model.hyperparameters import Hyperparameters
from coblock.model.partition import Partition
from coblock.model.relation import BinaryRelation
from coblock.model.state import SoftState
from single_updates import update_cvb0
from strategies import KINDS, Case, cases, make_case

TIGHT = {"rtol": 1e-9, "atol": 1e-9}
PRIOR = (0.4, 0.7)  # a and b


def engine_of(batch_size: int | tuple[int, int] | None = None) -> LocalEngine:
    return LocalEngine(Schedule(batch_size))


def posterior(log_weight: np.ndarray) -> np.ndarray:
    weight = np.exp(log_weight - log_weight.max())
    return weight / weight.sum()


def definition(case: Case, state: SoftState, d: int, i: int) -> np.ndarray:
    return posterior(
        reference.cvb0_log_posterior(
            case.X, case.observed, state.q, case.kind, d, i, case.a, case.b, case.alpha
        )
    )


def assert_counts_equal_recount(state: SoftState) -> None:
    again = SoftState(state.relation, [q.copy() for q in state.q], state.hyper)
    assert_allclose(state.blocks.n, again.blocks.n, **TIGHT)
    assert_allclose(state.blocks.N, again.blocks.N, **TIGHT)
    for d, m in enumerate(state.m):
        assert_allclose(m, again.m[d], **TIGHT)
        assert_array_equal(state.hard[d], again.hard[d])


# The schedule


@pytest.mark.parametrize("sizes", [(5,), (5, 3), (1, 17), (40, 8)])
@pytest.mark.parametrize("batch_size", [1, 3, 100, (2, 5)])
def test_every_object_is_in_one_batch(sizes, batch_size):
    count = [np.zeros(size, dtype=int) for size in sizes]
    for d, objects in Schedule(batch_size).batches(sizes):
        count[d][objects] += 1
        assert_array_equal(np.diff(objects), 1)
    assert all((each == 1).all() for each in count)


def test_rows_and_columns_have_batches_of_their_own_size():
    batches = list(Schedule(batch_size=(4, 3)).batches((8, 9)))
    ends = [(d, objects[0], objects[-1] + 1) for d, objects in batches]
    assert [end[1:] for end in ends if end[0] == 0] == [(0, 4), (4, 8)]
    assert [end[1:] for end in ends if end[0] == 1] == [(0, 3), (3, 6), (6, 9)]
    assert [end[0] for end in ends] == [0, 1, 1, 0, 1], "rows and columns alternate"
    assert not Schedule(batch_size=(1, 3)).is_sequential((8, 9))


def test_small_relations_are_swept_sequentially():
    assert SEQUENTIAL_UP_TO == 1000
    assert Schedule().is_sequential((400, 600))
    assert not Schedule().is_sequential((400, 601))
    assert Schedule(1).is_sequential((10**6, 10**6))


def test_coarser_schedule_keeps_the_batch_size_of_the_user():
    assert Schedule().coarser((4000, 1001), 4) == Schedule((1000, 251))
    assert Schedule(64).coarser((4000, 1001), 4) == Schedule(64)
    assert Schedule().coarser((400, 100), 4) == Schedule(), "sequential sweeps stay sequential"
    assert Schedule().coarser((4000,), 4) == Schedule((1000, 1000))


@given(st.integers(1, 3_000_000))
def test_parts_of_a_batch_cover_it_once(objects):
    found, numbers = parts(objects), np.arange(objects)
    assert_array_equal(np.concatenate([numbers[part] for part in found]), numbers)
    assert len(found) <= (PARTS if objects < (PARTS + 1) * LARGE_PART else MOST_PARTS)
    assert len(found) == 1 or objects >= SMALLEST_PART * len(found)


def test_large_batches_have_parts_for_many_workers():
    assert [len(parts(n)) for n in (100, 1024, 18_431)] == [1, 8, 8], "as before"
    assert [len(parts(n)) for n in (65_536, 10**6, 10**8)] == [32, 256, 256]


# Soft memberships


@given(cases())
def test_batched_updates_equal_definition(case):
    """One batch a domain: rows at the first counts, columns at the counts of the new rows."""
    state, expected = case.state(), case.state()
    for d, q in enumerate(expected.q):
        expected.q[d] = np.stack([definition(case, expected, d, i) for i in range(len(q))])
    for d, size in enumerate(case.relation.sizes):
        update_batch(state, d, np.arange(size, dtype=np.int32))
    for q, wanted in zip(state.q, expected.q, strict=True):
        assert_allclose(q, wanted, **TIGHT)
    assert_counts_equal_recount(state)


def update_batch(state: SoftState, d: int, objects: np.ndarray) -> tuple[float, float]:
    """Update objects as one batch, also where a schedule would be sequential."""
    results, fresh = LocalEngine()._update(state, d, objects, 1.0)
    apply_batch(state, d, objects, fresh, results)
    return (
        sum(float(part.log_normaliser.sum()) for part in results),
        sum(float(part.entropy.sum()) for part in results),
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("unseen", [0.0, 0.01])
def test_batched_updates_of_large_clusters_equal_definition(kind, unseen):
    """Sparse blocks of large clusters; memberships of most objects in few clusters."""
    rng = np.random.default_rng(3)
    case = make_case(rng, kind, (240, 200), (12, 11), links=0.02, unseen=unseen, hard=0.5)
    for q in case.q:
        q[:] = 0.9 * np.eye(q.shape[1])[np.arange(len(q)) % q.shape[1]] + 0.1 * q
        q[q < 0.01] = 0.0
        np.divide(q, q.sum(axis=1, keepdims=True), out=q)
    state, start = case.state(), case.state()
    engine_of(240).sweep_memberships(state)
    for i in range(0, 240, 60):
        assert_allclose(state.q[0][i], definition(case, start, 0, i), **TIGHT)
    for i in range(240):
        single = case.state()
        update_cvb0(single.domain(0), single.domain(-1), single.tables(), i, False)
        assert_allclose(state.q[0][i], single.q[0][i], **TIGHT)


@given(cases())
def test_batches_of_one_equal_the_sequential_sweep(case):
    state, sequential = case.state(), case.state()
    totals = [
        update_batch(state, d, objects) for d, objects in Schedule(1).batches(state.relation.sizes)
    ]
    expected = engine_of(1).sweep_memberships(sequential)
    assert np.sum(totals, axis=0) == pytest.approx(expected[:2], rel=1e-9, abs=1e-9)
    for q, wanted in zip(state.q, sequential.q, strict=True):
        assert_allclose(q, wanted, **TIGHT)


def test_sweeps_of_different_batch_sizes_differ():
    """Negative control of the comparison above."""
    case = make_case(np.random.default_rng(1), "bipartite", (9, 8), (3, 3), hard=0.0)
    ones, alls = case.state(), case.state()
    engine_of(1).sweep_memberships(ones)
    engine_of(9).sweep_memberships(alls)
    assert np.abs(ones.q[0] - alls.q[0]).max() > 1e-4


@given(cases(most_objects=7), st.integers(1, 4), st.sampled_from([1.0, 0.25]))
def test_counts_after_many_sweeps_equal_recount(case, batch_size, step):
    state = case.state()
    for _ in range(5):
        engine_of(batch_size).sweep_memberships(state, step)
    assert_counts_equal_recount(state)


@given(cases(kinds=("bipartite",)), st.floats(0.05, 0.95))
def test_damped_memberships_move_a_fraction_of_the_way(case, step):
    """The batch of the rows is the first, so that both sweeps start from the same counts."""
    start, full, damped = case.state(), case.state(), case.state()
    rows = np.arange(len(case.q[0]), dtype=np.int32)
    fresh = LocalEngine()._update(full, 0, rows, 1.0)[1]
    results, moved = LocalEngine()._update(damped, 0, rows, step)
    assert_allclose(moved, start.q[0] + step * (fresh - start.q[0]), rtol=1e-8, atol=1e-8)
    assert_allclose(moved.sum(axis=1), 1.0, rtol=1e-12)
    entropy = -np.where(moved > 0, moved * np.log(np.maximum(moved, 1e-300)), 0.0).sum(axis=1)
    assert_allclose(results[0].entropy, entropy, **TIGHT)


def test_change_of_a_sweep_is_the_mean_change_of_an_object():
    for batch_size in (1, 4):
        case = make_case(np.random.default_rng(1), "bipartite", (9, 8), (3, 3), hard=0.0)
        state = case.state()
        totals = engine_of(batch_size).sweep_memberships(state)
        moved = [np.abs(q - old).sum() / len(q) for q, old in zip(state.q, case.q, strict=True)]
        assert totals.change == pytest.approx(max(moved))


@pytest.mark.parametrize("prior", [1.0, 1e-3, 1e-5])
@pytest.mark.parametrize("kind", KINDS)
def test_small_memberships_and_weak_priors(kind, prior):
    """A membership that is small by itself may be most of the counts of a block."""
    for seed in range(12):
        case = make_case(np.random.default_rng(seed), kind, (10, 9), (9, 8), 0.05, 0.05, hard=0.5)
        case = replace(case, a=case.a * prior, b=case.b * prior)
        for q in case.q:
            q[:] = np.where(q < 0.3, 8e-6 * q, q)
            np.divide(q, q.sum(axis=1, keepdims=True), out=q)
        state, start = case.state(), case.state()
        engine_of(10).sweep_memberships(state)
        for i in range(10):
            expected = definition(case, start, 0, i)
            assert_allclose(state.q[0][i], expected, rtol=0.0, atol=1e-9)


def test_batched_sweeps_end_at_a_fixed_point():
    run = Variational(planted_state(1), engine_of(64), "cvb0", hyper_delay=1)
    for record in run.sweeps(perf_counter):
        if record.change < 1e-6:
            break
    assert engine_of(64).sweep_memberships(run.state).change < 1e-5


def test_clusters_are_sorted_by_size_after_a_sweep():
    run = Variational(planted_state(1), engine_of(64), "cvb0")
    run.state = run.state.select([np.arange(m.size)[::-1] for m in run.state.m])
    assert any((np.diff(m) > 0).any() for m in run.state.m)
    next(run.sweeps(perf_counter))
    assert all((np.diff(m) <= 0).all() for m in run.state.m)


def planted_state(seed: int) -> SoftState:
    """Return soft memberships around the clusters that a relation was drawn from."""
    drawn = synth1(seed)
    relation = BinaryRelation.build(drawn.X)
    hyper = Hyperparameters.initial(relation.likelihood, 0.1, drawn.probability.shape, 2)
    return SoftState(relation, soft_labels([drawn.row_labels, drawn.column_labels]), hyper)


# Hard labels


def best_labels(partition: Partition) -> tuple[np.ndarray, np.ndarray]:
    """Return the best labels of the first domain as one batch, and their log normalisers."""
    domain, other = partition.domain(0), partition.domain(-1)
    kernel, tables = label_kernel(domain, partition.tables(0), other.m)
    size = domain.hard.size
    fresh, log_normaliser = np.empty(size, dtype=np.int32), np.empty(size)
    objects, out = np.arange(size, dtype=np.int32), (fresh, log_normaliser, np.empty((0, 0)))
    kernel(domain, other, tables, objects, np.empty(0), *out)
    return fresh, log_normaliser


def assert_labels_are_the_best(case: Case, partition: Partition) -> None:
    """Compare with ratios of joints, without the new cluster that a batch does not open."""
    labels, alpha = partition.labels, partition.hyper.alpha
    fresh, log_normaliser = best_labels(partition)
    for i in range(fresh.size):
        if partition.m[0][labels[0][i]] == 1.0:
            continue  # the reference needs clusters without gaps
        log_weight = reference.gibbs_log_posterior(
            case.X, case.observed, labels, case.kind, 0, i, *PRIOR, alpha
        )[:-1]
        constant = np.log(alpha[0] + fresh.size - 1)  # the kernel does not divide by it
        expected = logsumexp(log_weight) + constant
        assert log_normaliser[i] == pytest.approx(expected, abs=0.5)  # of screened scores
        best = np.sort(log_weight)[-2:]
        if best.size == 1 or best[1] - best[0] > 1e-9:
            assert fresh[i] == log_weight.argmax()


@given(cases(most_objects=7))
def test_batched_labels_are_the_most_probable_ones(case):
    assert_labels_are_the_best(case, case.partition(*PRIOR))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("links", [0.05, 0.5, 0.9])
def test_batched_labels_of_small_and_dense_clusters(kind, links):
    """No unseen cells; most objects have links with few clusters, or with all."""
    rng = np.random.default_rng(7)
    case = make_case(rng, kind, (40, 60), (11, 20), links=0.02, unseen=0.0, hard=1.0)
    most = 20 if kind == "bipartite" else 5  # all are scored exactly
    labels = [np.arange(q.shape[0], dtype=np.int32) % min(q.shape[1], most) for q in case.q]
    X = np.where(labels[0][:, None] % 3 == labels[-1][None] % 3, rng.random(case.X.shape), 1.0)
    X = np.less(X, links).astype(float)
    if kind != "bipartite":
        X = np.triu(X, 1) + np.triu(X, 1).T
    relation = BinaryRelation.build(X, kind=kind)
    case = replace(case, X=X, observed=np.ones_like(X), relation=relation)
    if kind != "bipartite":
        np.fill_diagonal(case.observed, 0.0)
    prior = np.array(PRIOR).reshape(2, 1, 1)
    hyper = Hyperparameters([1.3] * len(labels), prior)
    assert_labels_are_the_best(case, Partition(relation, labels, hyper))


@given(cases(most_objects=7), st.integers(1, 4), st.booleans(), st.booleans(), st.integers(0, 99))
def test_sweeps_of_labels_keep_the_counts_exact(case, batch_size, drawn, opens, seed):
    """Sequential and batched, drawn and best labels."""
    partition = case.partition(*PRIOR)
    uniform = np.random.default_rng(seed).random(sum(case.relation.sizes)) if drawn else None
    engine_of(batch_size).sweep_labels(partition, uniform, open_clusters=opens)
    found = partition.blocks
    partition.recount()
    for name in ("links", "unseen", "self_pairs", "own", "n", "N"):
        assert_array_equal(getattr(found, name), getattr(partition.blocks, name))
    for m, expected in zip(found.m, partition.m, strict=True):
        assert_array_equal(m, expected)


@given(cases(most_objects=7), st.booleans())
def test_sequential_sweep_of_best_labels_never_lowers_the_joint(case, opens):
    partition = case.partition(*PRIOR)
    before = partition.log_joint()
    for _ in range(3):
        engine_of(1).sweep_labels(partition, open_clusters=opens)
        after = partition.log_joint()
        assert after >= before - 1e-9 * (1.0 + abs(before))
        before = after


def test_drawn_labels_may_lower_the_joint():
    """Negative control of the test above."""
    partition = planted_partition(0)
    before = partition.log_joint()
    uniform = np.random.default_rng(0).random(300)
    engine_of(1).sweep_labels(partition, uniform * 0.0)  # always the first cluster with a chance
    assert partition.log_joint() < before


def planted_partition(seed: int, merged: bool = False) -> Partition:
    """Return the clusters that a relation was drawn from, or one cluster a domain."""
    drawn = synth1(seed)
    labels = [drawn.row_labels.astype(np.int32), drawn.column_labels.astype(np.int32)]
    return Partition.from_labels(
        BinaryRelation.build(drawn.X), [label * 0 if merged else label for label in labels]
    )


def test_only_sequential_sweeps_open_clusters_and_only_if_asked():
    for batch_size, opens, grows in ((1, True, True), (1, False, False), (50, True, False)):
        partition = planted_partition(0, merged=True)
        partition.hyper.alpha = [1e6, 1e6]
        uniform = np.random.default_rng(0).random(300)
        for _ in range(3):
            engine_of(batch_size).sweep_labels(partition, uniform, open_clusters=opens)
        assert (partition.blocks.in_use != (1, 1)) == grows


@pytest.mark.parametrize("limits", [(1, 1), (2, 3), (1, 4)])
def test_limits_of_the_numbers_of_clusters_are_kept_and_reached(limits):
    """A wide prior of the partition opens clusters wherever that is allowed."""
    partition = planted_partition(0, merged=True)
    partition.hyper.alpha = [1e6, 1e6]
    rng = np.random.default_rng(0)
    for _ in range(3):
        engine_of(1).sweep_labels(partition, rng.random(300), limits=limits, open_clusters=True)
        assert (np.array(partition.blocks.clusters) <= limits).all()
    assert partition.blocks.in_use == limits


def test_emptied_cluster_is_opened_again_below_the_limit():
    """Clusters that a sweep has emptied do not use up the limit."""
    partition = planted_partition(0, merged=True)
    partition.hyper.alpha = [1e6, 1e6]
    assert partition.make_room(0, 3, 2)
    engine_of(1).sweep_labels(
        partition, np.random.default_rng(0).random(300), limits=(3, 1), open_clusters=True
    )
    assert partition.blocks.in_use[0] == 3


@pytest.mark.parametrize("batch_size", [1, 5])
@pytest.mark.parametrize("kind", KINDS)
def test_sums_of_probabilities(kind, batch_size):
    """Probabilities add up to 1 for every sweep; drawn labels are not those of probability 0."""
    case = make_case(np.random.default_rng(8), kind, (20, 16), (3, 3), hard=1.0)
    partition = case.partition(*PRIOR)
    sums = [np.zeros((len(label), 3)) for label in partition.labels]
    rng, engine = np.random.default_rng(0), engine_of(batch_size)
    for sweep in range(1, 4):
        before = [table.copy() for table in sums]
        uniform = rng.random(sum(case.relation.sizes))
        engine.sweep_labels(partition, uniform, probability=sums)
        for table, old, label in zip(sums, before, partition.labels, strict=True):
            assert_allclose(table.sum(axis=1), sweep, rtol=1e-9)
            assert ((table - old)[np.arange(label.size), label] > 0.0).all()


@pytest.mark.parametrize("batch_size", [1, 7])
def test_probabilities_of_a_sweep_do_not_change_its_labels(batch_size):
    uniform, found = np.random.default_rng(0).random(300), []
    for tables in (None, [np.zeros((100, 4)), np.zeros((200, 5))]):
        partition = planted_partition(0)
        total = engine_of(batch_size).sweep_labels(partition, uniform, probability=tables)
        found.append((total, *partition.labels))
    for one, other in zip(*found, strict=True):
        assert_array_equal(one, other)


def test_label_sweeps_use_few_batches(monkeypatch):
    case = make_case(np.random.default_rng(5), "bipartite", (900, 800), (3, 3), links=0.1)
    sizes = []
    relabel = Partition.relabel

    def record(self, d, objects, fresh):
        sizes.append(objects.size)
        relabel(self, d, objects, fresh)

    monkeypatch.setattr(Partition, "relabel", record)
    LocalEngine().sweep_labels(case.partition(*PRIOR))
    assert sum(sizes) == 1700
    assert len(sizes) == 2 * SEARCH.label_batches


@settings(max_examples=60)
@given(cases(most_objects=7))
def test_conditional_memberships_equal_ratios_of_joints(case):
    partition = case.partition(*PRIOR)
    found = engine_of().conditional_memberships(partition)
    for d, label in enumerate(case.labels()):
        assert_array_equal(partition.labels[d], label)
        for i in range(label.size):
            if partition.m[d][label[i]] == 1.0:
                continue  # the reference needs clusters without gaps
            log_weight = reference.gibbs_log_posterior(
                case.X, case.observed, partition.labels, case.kind, d, i, *PRIOR, case.alpha
            )[:-1]
            assert_allclose(found[d][i], posterior(log_weight), **TIGHT)


# Threads


@pytest.mark.parametrize("kind", KINDS)
def test_bits_do_not_depend_on_the_number_of_threads(kind):
    """Batches of 400 are cut into parts for the threads."""
    assert len(parts(400)) > 2
    results = []
    for threads in (None, 1, 3):
        case = make_case(np.random.default_rng(5), kind, (900, 800), (7, 5), links=0.1, unseen=0.02)
        state, partition = case.state(), case.partition(*PRIOR)
        uniform = np.random.default_rng(0).random(sum(case.relation.sizes))
        sums = [np.zeros((len(z), m.size)) for z, m in labels_and_sizes(partition)]
        with ThreadPoolExecutor(threads or 1) as pool:
            engine = LocalEngine(Schedule(400), pool if threads else None, threads or 1)
            for _ in range(3):
                totals = engine.sweep_memberships(state)
                total = engine.sweep_labels(partition, uniform, probability=sums)
            best = engine.sweep_labels(partition)
            conditional = engine.conditional_memberships(partition)
        tables = (state.blocks.n, state.blocks.N, partition.blocks.n, partition.blocks.N)
        found = (*totals, total, best, *tables, *state.q, *partition.labels, *sums, *conditional)
        results.append(found)
    for other in results[1:]:
        for one, two in zip(results[0], other, strict=True):
            assert_array_equal(one, two)


def labels_and_sizes(partition: Partition) -> list[tuple[np.ndarray, np.ndarray]]:
    return list(zip(partition.labels, partition.m, strict=True))


def test_results_of_a_map_are_in_the_order_of_the_items():
    with ThreadPoolExecutor(3) as pool:
        for threads in (None, pool):
            engine = LocalEngine(threads=threads, helpers=3)
            assert engine.map(str, range(20)) == [str(i) for i in range(20)]


def test_maps_inside_a_map_do_not_wait_for_each_other():
    with ThreadPoolExecutor(1) as pool:
        engine = LocalEngine(threads=pool)
        found = engine.map(lambda i: engine.map(lambda j: i * j, range(5)), range(6))
    assert found == [[i * j for j in range(5)] for i in range(6)]


def test_a_map_passes_on_the_error_of_a_helper():
    """The two items wait for each other, so that each thread has one of them."""
    meeting = Barrier(2)

    def fail(item: str) -> None:
        meeting.wait(10)
        if current_thread() is not main_thread():
            raise ValueError(item)

    with ThreadPoolExecutor(1) as pool, pytest.raises(ValueError, match=r"^[ab]$"):
        LocalEngine(threads=pool).map(fail, "ab")


def test_largest_change_equals_its_definition():
    rng = np.random.default_rng(0)
    old, new = ([rng.random((size, 3)) for size in (5, 7)] for _ in range(2))
    wanted = max(np.abs(b / 4 - a / 3).sum(axis=1).mean() for a, b in zip(old, new, strict=True))
    assert largest_change(old, new, (3, 4)) == pytest.approx(wanted, rel=1e-12)


# Averages around a partition


def posterior_phase(X, batch_size: int = 64, **options) -> PosteriorAverage:
    """Fit a relation; return the last phase."""
    settings = Settings(batch_size=batch_size, **options)
    engine, rng = engine_of(batch_size), np.random.default_rng(0)
    start = Start(BinaryRelation.build(X), settings, rng, engine)
    for record in start.sweeps():  # not run(): the result reorders the memberships of the phase
        start.trace.append(record)
    assert isinstance(start.phase, PosteriorAverage)
    assert start.phase.finished
    return start.phase


def given_the_partition(run: PosteriorAverage) -> list[np.ndarray]:
    return engine_of(64).conditional_memberships(run.partition)


def outcome_of(run: PosteriorAverage) -> list[np.ndarray]:
    memberships = run.outcome().memberships
    assert memberships is not None
    return memberships


@pytest.mark.parametrize("batch_size", [1, 64])
def test_labels_of_a_default_fit_are_the_best_given_all_others(batch_size):
    run = posterior_phase(synth1(1).X, batch_size, inference="cvb0")
    best = run.partition.copy()
    engine_of(64).sweep_labels(best)
    pairs = zip(run.partition.labels, best.labels, strict=True)
    for q, found, (label, again) in zip(
        outcome_of(run), given_the_partition(run), pairs, strict=True
    ):
        assert_allclose(q, found, **TIGHT)
        assert_array_equal(label, again)


def test_memberships_are_averaged_over_samples_around_the_partition():
    drawn = synth1(0).X.toarray()[::3, ::3].astype(bool)
    X = drawn ^ (np.random.default_rng(3).random(drawn.shape) < 0.2)  # labels are uncertain
    run = posterior_phase(X)
    assert run.samples == SEARCH.most_samples
    assert any((m > 0).sum() > 1 for m in run.partition.m)
    for q, given_labels in zip(outcome_of(run), given_the_partition(run), strict=True):
        of_samples = 2.0 * q - given_labels  # the other half
        assert_allclose(of_samples.sum(axis=1), 1.0, **TIGHT)
        assert of_samples.min() > -1e-12
        assert np.abs(q - given_labels).max() > 0.01, "the samples differ from the partition"


def test_outcome_before_all_samples_are_drawn():
    """One half is given the partition and one half is the mean over the samples so far."""
    run = posterior_phase(synth1(0).X)
    again = PosteriorAverage(run.partition, np.random.default_rng(0), engine_of(64))
    given_labels = given_the_partition(run)
    counts = []
    for _ in again.sweeps(perf_counter):
        for q, alone in zip(outcome_of(again), given_labels, strict=True):
            assert_allclose(q.sum(axis=1), 1.0, **TIGHT)
            share = 0.5 if again.samples else 1.0  # of the partition
            assert (q - share * alone).min() > -1e-12
        counts.append(again.samples)
    assert counts == list(range(SEARCH.most_samples + 1))


def test_only_the_averaged_method_averages():
    run = posterior_phase(synth1(0).X, inference="cvb0")
    assert run.samples == 0
    for q, found in zip(outcome_of(run), given_the_partition(run), strict=True):
        assert_allclose(q, found, **TIGHT)


def test_large_relations_are_not_sampled(monkeypatch):
    few = replace(SEARCH, sampled_visits=100)
    monkeypatch.setattr("coblock.inference.posterior.SEARCH", few)
    run = posterior_phase(synth1(0).X)
    assert run.samples == 0
    for q, found in zip(outcome_of(run), given_the_partition(run), strict=True):
        assert_allclose(q, found, **TIGHT)
