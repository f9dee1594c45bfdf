"""Blocks of several relations are kept by stored blocks, however many there are (RELATIONS 17)."""

import math
import resource
import tracemalloc

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.special import betaln

from coblock.inference import multi_search
from coblock.inference.multi_gibbs import draw_hyperparameters, draw_labels
from coblock.inference.start import soft_labels
from coblock.kernels.tensors import add_up_cells
from coblock.model import multi_partition, multi_result
from coblock.model.dataset import Dataset, Table
from coblock.model.likelihoods.bernoulli import Bernoulli, bernoulli_gain
from coblock.model.multi_partition import MultiPartition, make_tables
from coblock.model.multi_result import MultiResult, MultiSample, log_predictive, predict_mean
from coblock.model.multi_state import MultiState
from coblock.model.multi_threads import use_threads
from coblock.model.relation import Domain
from test_multi import all_sums, draw_partition

SIZES, CLUSTERS = (10**5, 10**5, 10**3), (5_000, 4_000, 900)


@pytest.fixture
def scattered(monkeypatch):
    """Make tables that have fewer rows than blocks, whatever their number."""

    def never_all(entries, blocks, n_stats):
        return make_tables(entries, [2**40] * len(blocks), n_stats)

    def use(yes):
        monkeypatch.setattr(multi_partition, "make_tables", never_all if yes else make_tables)

    return use


def fixture_settings(**given_settings):
    return settings(
        deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], **given_settings
    )


def values_of(partition, rng):
    """Return everything that the kernels compute from the blocks, and labels after moves."""
    found = [partition.log_joint(), *all_sums(partition)]
    for d, size in enumerate(partition.data.sizes):
        K = partition.sizes[d].size
        found.append(partition.conditional(d))
        pairs = [(a, b) for a in range(K) for b in range(a + 1, K)]
        found.append(partition.merge_gains(d, np.array(pairs, np.int32).reshape(-1, 2)))
        for c in range(K):
            members = np.flatnonzero(partition.labels[d] == c).astype(np.int32)
            if members.size > 1:
                multi_search.try_split(partition, d, c, rng.permutation(members), -np.inf)
        found.append(partition.labels[d].copy())
        partition.renumber()
        partition.sweep(d, rng.permutation(size).astype(np.int32), rng.random(size))
        partition.sweep(d, rng.permutation(size).astype(np.int32), rng.random(size), batch=3)
        found += [partition.labels[d].copy(), *all_sums(partition)]
        partition.renumber()
    draw_labels(partition, rng)
    draw_hyperparameters(partition, rng)
    return [*found, *partition.labels, *partition.priors, partition.log_joint()]


@given(seed=st.integers(0, 10**6))
@fixture_settings(max_examples=25)
def test_stored_blocks_give_what_a_row_for_each_block_gives(scattered, seed):
    found = []
    for yes in (False, True):
        scattered(yes)
        partition, rng = draw_partition(seed)
        assert (partition.state.factor != 1).all() == yes or not yes
        found.append(values_of(partition, rng))
    for one, other in zip(*found, strict=True):
        assert one == pytest.approx(other, abs=1e-9)


def test_the_comparison_can_fail(scattered):
    """Negative control: the row that stands for all other blocks is not 0."""
    scattered(True)
    partition, _ = draw_partition(3)
    before = all_sums(partition)
    state = partition.state
    for r in range(len(partition.data.tables)):
        last = (state.first_row[r + 1] - state.first_row[r] - 1) * partition.layout.n_stats[r]
        state.s[state.first_stat[r] + last] += 1.0
    after = all_sums(partition)
    assert any(np.abs(a - b).max() > 0.5 for a, b in zip(before, after, strict=True))


def sparse_partition(cells=20_000, seed=0, sizes=SIZES, clusters=CLUSTERS):
    """Return labels of thousands of clusters of a relation with few cells, and the cells."""
    rng = np.random.default_rng(seed)
    drawn = np.stack([rng.integers(0, n, cells) for n in sizes], axis=1)
    drawn = np.unique(drawn, axis=0).astype(np.int32)
    unseen, drawn = drawn[: cells // 10], drawn[cells // 10 :]
    places = ("a", "b", "c")
    table = Table("r", places, (0, 1, 2), Bernoulli(), drawn, np.ones(len(drawn)), unseen)
    data = Dataset(places, tuple(Domain(n) for n in sizes), (table,))
    labels = [
        rng.permutation(np.arange(n) % K).astype(np.int32)
        for n, K in zip(sizes, clusters, strict=True)
    ]
    return MultiPartition.from_labels(data, labels)


def test_tables_are_counted_anew_before_they_are_full(scattered):
    """Blocks that have lost their cells stay in a table; sums stay exact when they are dropped."""
    scattered(True)
    partition = sparse_partition(300, sizes=(80, 80, 40), clusters=(20, 20, 8))
    state, rng, dropped = partition.state, np.random.default_rng(1), 0
    rows = np.diff(state.first_row) - 1
    for _ in range(1500):
        d, before = int(rng.integers(3)), int(state.n_rows[0])
        i, k = rng.integers(partition.data.sizes[d]), rng.integers((20, 20, 8)[d])
        partition.sweep(d, np.array([i], np.int32), clusters=(int(k),))
        assert partition.state is state, "the tables are the same"
        assert 2 * state.n_rows[0] <= rows[0]
        dropped += state.n_rows[0] < before
    assert dropped > 0, "the tables were full at least once"
    sums = all_sums(partition)
    add_up_cells(partition.layout, state)
    assert sums[0] == pytest.approx(all_sums(partition)[0], abs=1e-9)


def reference_evidence(partition):
    """Return the evidence of the relation from sizes of clusters and stored blocks, by NumPy."""
    table, (a, b) = partition.data.tables[0], partition.priors[0]
    sizes = [np.bincount(label) for label in partition.labels]
    kinds = [np.unique(m, return_counts=True) for m in sizes]
    total = math.prod(np.meshgrid(*(m for m, _ in kinds), indexing="ij"))
    times = math.prod(np.meshgrid(*(n for _, n in kinds), indexing="ij"))
    value = (times * (betaln(a, b + total) - betaln(a, b))).sum()
    blocks = {}
    for cells, change in ((table.cells, (1.0, -1.0)), (table.unseen, (0.0, -1.0))):
        for cell in cells.tolist():
            at = tuple(int(partition.labels[d][o]) for d, o in enumerate(cell))
            known = blocks.setdefault(at, [0.0, 0.0])
            known[0] += change[0]
            known[1] += change[1]
    for at, (n, less) in blocks.items():
        T = math.prod(float(sizes[d][k]) for d, k in enumerate(at))
        value += betaln(a + n, b + T + less) - betaln(a, b + T)
    return value


def test_nothing_of_the_size_of_all_blocks_is_made():
    """1.8e10 blocks: evidence, merges, splits, moves, conditionals and predictions."""
    blocks = math.prod(CLUSTERS)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    tracemalloc.start()
    partition = sparse_partition()
    assert partition.relation_evidence(0) == pytest.approx(reference_evidence(partition), rel=1e-7)
    pair = np.array([[3, 7]], np.int32)
    for d in range(3):
        before = partition.log_joint()
        gain, labels = partition.merge_gains(d, pair)[0], [z.copy() for z in partition.labels]
        labels[d][labels[d] == 7] = 3
        merged = multi_result.restore(
            partition.data, labels, list(partition.priors), list(partition.alpha)
        )
        assert merged.log_joint() - before == pytest.approx(gain, abs=1e-5)
        assert multi_search.most_clusters(partition, d, None) == SIZES[d], "clusters can be opened"
    few = np.arange(20, dtype=np.int32)
    assert partition.conditional(2, few).sum(axis=1) == pytest.approx(np.ones(20))
    partition.sweep(0, few, np.linspace(0.01, 0.99, 20), batch=10)
    partition.sweep(2, few, np.linspace(0.01, 0.99, 20))
    partition.renumber()
    assert multi_search.nearest_clusters(partition, 2).shape == (partition.sizes[2].size, 3)
    labels = [z.copy() for z in partition.labels]
    sample = MultiSample(labels, list(partition.priors), list(partition.alpha))
    table = (partition.data, labels, sample.priors, sample.alpha, 0.0, [sample], [], True)
    result, cells = MultiResult(*table), partition.data.tables[0].cells[:50]
    mean = predict_mean(result, 0, cells)
    assert np.log(mean) == pytest.approx(log_predictive(result, 0, cells, np.ones(50)))
    n, N = partition.statistics_at(0, tuple(labels[d][cells[:, d]] for d in range(3))).T
    a, b = partition.priors[0]
    assert mean == pytest.approx((a + n) / (a + b + n + N))
    assert len(result.listed_blocks(0)) <= 20_000
    with pytest.raises(ValueError, match="more than the 134,217,728 that fit into one array"):
        result.tensor(0)
    traced = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    more = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak
    assert traced < 2**28 < blocks
    assert 1024 * more < 2**30


def test_threads_give_the_same_bits_with_stored_blocks(scattered):
    scattered(True)
    found = []
    for jobs in (1, 2):
        partition = sparse_partition(2_000, sizes=(400, 400, 50), clusters=(60, 50, 20))
        rng = np.random.default_rng(2)
        with use_threads(jobs):
            for d, size in enumerate(partition.data.sizes):
                order = rng.permutation(size).astype(np.int32)
                partition.sweep(d, order, rng.random(size), batch=100)
                partition.renumber()
            pairs = multi_search.candidate_pairs(partition, 0)
            found.append([partition.merge_gains(0, pairs), partition.conditional(0)])
            found[-1] += [*partition.labels, partition.state.s, partition.state.key]
    for one, other in zip(*found, strict=True):
        assert np.array_equal(one, other)


@given(
    st.floats(1e-3, 50.0),
    st.floats(1e-3, 50.0),
    st.integers(0, 9),
    st.integers(0, 14),
    st.integers(0, 14),
    st.integers(0, 5),
)
@settings(deadline=None)
def test_few_links_and_unseen_cells_in_the_place_of_zeros(a, b, n, links, unseen, more):
    """The product that stands for log Gamma functions is their difference."""
    zeros = links + unseen + more
    statistics, plus = np.array([n, zeros], float), np.array([links, -links - unseen], float)
    gain = bernoulli_gain(statistics, plus, np.array([a, b]))
    after = betaln(a + n + links, b + zeros - links - unseen)
    assert gain == pytest.approx(after - betaln(a + n, b + zeros), abs=1e-7, rel=1e-7)


def test_soft_memberships_of_too_many_blocks_are_refused():
    partition = sparse_partition(100, sizes=(1000, 1000, 1000), clusters=(400, 400, 400))
    with pytest.raises(ValueError, match="need a table of all 64,000,000 blocks of relation 'r'"):
        MultiState.initial(partition.data, soft_labels(partition.labels))
