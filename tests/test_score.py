"""Score tables, cached gains and scores of objects, against gains computed one by one."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

import reference
from coblock.kernels import BlockTables, DomainView, bernoulli, gibbs
from coblock.kernels.bernoulli import log_beta_gain
from coblock.kernels.score import (
    CACHED_LINKS,
    CACHED_UNSEEN,
    LANES,
    GainCache,
    ScoreTables,
    Workspace,
    add_score,
    empty_cache,
    gather_object,
    is_joint,
    padded,
    rest_counts,
    score_tables,
    workspace,
)
from coblock.kernels.screen import (
    CANDIDATES,
    NATS_PER_LINK,
    ScreenTables,
    add_bases,
    empty_screen,
    fill_screen,
    label_batch,
    object_cells,
    score_clusters,
)
from coblock.model.partition import Partition
from coblock.model.state import SoftState
from strategies import KINDS, Case, cases, make_case

TIGHT = {"rtol": 1e-9, "atol": 1e-9}
PRIOR = (0.4, 0.7)  # a and b

counts = st.floats(1e-8, 1e12)


def gains_of(kernel, n: float, N: float, *cells: float) -> float:
    """Return what a kernel for many blocks writes for one block."""
    out = np.empty(1)
    kernel(np.array([n]), np.array([N]), *cells, out)
    return out[0]


@given(st.floats(1e-3, 1e6), st.floats(1e-3, 1e6), st.floats(0, 100), st.floats(0, 1e4))
def test_link_gains_equal_difference_of_two_gains(n, N, links, more):
    m = links + more
    expected = log_beta_gain(n, N, links, m - links) - log_beta_gain(n, N, 0.0, m)
    found = gains_of(bernoulli.link_gains, n, N, m, links)
    assert found == pytest.approx(expected, rel=1e-9, abs=1e-8)


@given(counts, counts, st.integers(0, CACHED_LINKS), st.floats(0, 1e4))
def test_few_link_gains_equal_link_gains(n, N, links, more):
    m = links + more
    expected = gains_of(bernoulli.link_gains, n, N, m, float(links))
    found = gains_of(bernoulli.few_link_gains, n, N, m, links)
    assert found == pytest.approx(expected, rel=1e-11, abs=1e-11)


@given(st.floats(1e-3, 1e6), st.floats(1e-3, 1e6), st.floats(0, 1e4))
def test_no_link_gains_equal_gains_without_links(n, N, m):
    expected = log_beta_gain(n, N, 0.0, m)
    found = bernoulli.no_link_gain(n, N, m)
    assert found == pytest.approx(expected, rel=1e-9, abs=1e-8)
    member = bernoulli.member_no_link_gain(n, N + m, m)
    assert member == pytest.approx(expected, rel=1e-6, abs=1e-6)  # N + m - m is rounded
    assert bernoulli.member_no_link_gain(n, N, N + 1.0) == 0.0


@pytest.mark.parametrize("m", [3.0, 700.0, 12_345.0])
def test_member_of_its_own_cluster_with_the_smallest_prior_has_a_gain(m):
    """Without the object the block has the prior alone, up to rounding in either direction."""
    n = N = bernoulli.SMALLEST
    found = bernoulli.member_no_link_gain(n, N + m, m)
    assert found == pytest.approx(log_beta_gain(n, N, 0.0, m), abs=1e-3)


@given(st.lists(st.tuples(counts, counts), min_size=1, max_size=9), st.floats(0, 9))
def test_gains_of_many_blocks_equal_gains_one_by_one(rows, n_plus):
    n, N = np.array(rows).T.copy()
    same, many, values = np.empty((3, n.size))
    bernoulli.same_gains(n, N, n_plus, 2.5, same)
    bernoulli.log_beta_gains(n, N, np.full(n.size, n_plus), np.full(n.size, 2.5), many)
    bernoulli.block_values(n, N, *PRIOR, values)
    for t in range(n.size):
        expected = log_beta_gain(n[t], N[t], n_plus, 2.5)
        assert same[t] == pytest.approx(expected, rel=1e-13, abs=1e-13)
        assert many[t] == pytest.approx(expected, rel=1e-13, abs=1e-13)
        assert values[t] == pytest.approx(log_beta_gain(*PRIOR, n[t], N[t]), rel=1e-13, abs=1e-13)


def soft_tables(state: SoftState, d: int) -> tuple[DomainView, DomainView, ScoreTables]:
    domain, other = state.domain(d), state.domain(-1 - d)
    return domain, other, score_tables(domain, state.tables(d), other.m)


def hard_tables(partition: Partition, d: int) -> tuple[DomainView, DomainView, ScoreTables]:
    domain, other = partition.domain(d), partition.domain(-1 - d)
    return domain, other, score_tables(domain, partition.tables(d), other.m)


def assert_tables_equal_gains(
    domain: DomainView, other: DomainView, blocks: BlockTables, tables: ScoreTables
) -> None:
    """Compare the tables with gains of single blocks."""
    K, L = blocks.n.shape
    no_link, member = np.zeros((2, len(domain.incidence), L, K))
    for p in range(len(domain.incidence)):
        for l in range(L):
            for k in range(K):
                at, m = (k, l) if p == 0 else (l, k), other.m[l]
                n, N = blocks.a[at] + blocks.n[at], blocks.b[at] + blocks.N[at]
                assert_allclose(tables.counts[:, p, l, k], (n, N), **TIGHT)
                if is_joint(domain) and k == l:
                    continue
                no_link[p, l, k] = log_beta_gain(n, N, 0.0, m)
                if m < N:
                    member[p, l, k] = log_beta_gain(n, N - m, 0.0, m)
    assert_allclose(tables.no_link[:, :, :K], no_link, **TIGHT)
    assert_allclose(tables.base[:K], no_link.sum(axis=(0, 1)), **TIGHT)
    assert_allclose(tables.member_base[:K], tables.member_no_link[:, :, :K].sum(axis=(0, 1)))
    has_value = member != 0.0
    assert_allclose(tables.member_no_link[:, :, :K][has_value], member[has_value], **TIGHT)


@settings(max_examples=60)
@given(cases())
def test_score_tables_equal_gains_one_by_one(case):
    state, partition = case.state(), case.partition(*PRIOR)
    for d in range(len(case.q)):
        domain, other, tables = soft_tables(state, d)
        assert_tables_equal_gains(domain, other, state.tables(d), tables)
        domain, other, tables = hard_tables(partition, d)
        assert_tables_equal_gains(domain, other, partition.tables(d), tables)


@pytest.mark.parametrize("K", [1, 7, 8, 9])
def test_tables_are_padded_with_finite_numbers(K):
    case = make_case(np.random.default_rng(K), "bipartite", (20, 9), (K, 4))
    tables = soft_tables(case.state(), 0)[2]
    assert tables.no_link.shape[2] == padded(K) == -(-K // LANES) * LANES
    assert all(np.isfinite(table).all() for table in tables)


def prepare(domain: DomainView, other: DomainView, i: int, q_i, work: Workspace) -> None:
    """Count the cells of an object with these memberships, with a flat prior of the clusters."""
    work.q[:], work.log_weight[:] = q_i, 0.0
    gather_object(domain, other, i, work)


def log_likelihood(case: Case, q: list[np.ndarray], d: int, i: int, a, b) -> np.ndarray:
    """Return the dense score of an object for all clusters, without their prior."""
    prior = reference.log_prior_of_object(q, d, i, case.alpha)
    return (
        reference.cvb0_log_posterior(case.X, case.observed, q, case.kind, d, i, a, b, case.alpha)
        - prior
    )


@given(cases())
def test_scores_of_soft_objects_equal_definition(case):
    """All objects share one cache, so that gains of earlier objects are used, too."""
    state = case.state()
    for d, q in enumerate(case.q):
        domain, other, tables = soft_tables(state, d)
        work, cache = workspace(tables, domain), empty_cache(tables, domain)
        for i in range(len(q)):
            prepare(domain, other, i, q[i], work)
            add_score(domain, other, tables, cache, i, work)
            expected = log_likelihood(case, case.q, d, i, case.a, case.b)
            assert_allclose(work.log_weight[: domain.m.size], expected, **TIGHT)


def hot(partition: Partition) -> list[np.ndarray]:
    return [np.eye(m.size)[z] for m, z in zip(partition.m, partition.labels, strict=True)]


def hard_scores(partition: Partition, d: int) -> np.ndarray:
    """Return the scores of all objects for all clusters."""
    domain, other, tables = hard_tables(partition, d)
    work, cache = workspace(tables, domain), empty_cache(tables, domain)
    scores = np.empty((domain.hard.size, domain.m.size))
    for i, q_i in enumerate(hot(partition)[d]):
        prepare(domain, other, i, q_i, work)
        add_score(domain, other, tables, cache, i, work)
        scores[i] = work.log_weight[: domain.m.size]
    return scores


@given(cases(), st.integers(0, 2))
def test_scores_of_hard_objects_equal_definition(case, empty):
    """Empty clusters have scores, too."""
    partition = case.partition(*PRIOR)
    for d in range(len(case.q)):
        partition.blocks.add_clusters(d, empty)
    for d in range(len(case.q)):
        q = hot(partition)
        expected = [log_likelihood(case, q, d, i, *PRIOR) for i in range(len(q[d]))]
        assert_allclose(hard_scores(partition, d), expected, **TIGHT)


@pytest.mark.parametrize("kind", KINDS)
def test_scores_of_hard_objects_with_the_smallest_prior(kind):
    """The tolerance is the rounding of counts relative to a prior of 1e-8."""
    tiny = bernoulli.SMALLEST
    for seed in range(10):
        rng = np.random.default_rng(seed)
        case = make_case(rng, kind, (9, 12), (6, 3), links=0.2, unseen=0.1, hard=1.0)
        partition = case.partition(tiny, tiny)
        q = hot(partition)
        expected = [log_likelihood(case, q, 0, i, tiny, tiny) for i in range(len(q[0]))]
        assert_allclose(hard_scores(partition, 0), expected, rtol=0.0, atol=1e-5)


def test_scores_use_more_links_and_unseen_cells_than_are_cached():
    """One block with 40 columns: objects have up to 40 links or unseen cells there."""
    rng = np.random.default_rng(3)
    for unseen in (0.0, 0.05, 0.6):
        case = make_case(rng, "bipartite", (12, 40), (3, 1), links=0.5, unseen=unseen, hard=1.0)
        partition = case.partition(*PRIOR)
        q = hot(partition)
        links = (case.X * case.observed).sum(axis=1)
        assert links.min() <= CACHED_LINKS or unseen == 0.0
        assert (1.0 - case.observed).sum(axis=1).max() > CACHED_UNSEEN or unseen < 0.6
        expected = [log_likelihood(case, q, 0, i, *PRIOR) for i in range(12)]
        assert_allclose(hard_scores(partition, 0), expected, **TIGHT)


@pytest.mark.parametrize("kind", KINDS)
def test_scores_without_leaving_the_object_out_differ(kind):
    """Negative control of the comparisons above."""
    case = make_case(np.random.default_rng(4), kind, (8, 7), (2, 2), hard=1.0)
    partition = case.partition(*PRIOR)
    domain, other, tables = hard_tables(partition, 0)
    work, cache = workspace(tables, domain), empty_cache(tables, domain)
    prepare(domain, other, 0, np.zeros(domain.m.size), work)  # no member of any cluster
    add_score(domain, other, tables, cache, 0, work)
    expected = log_likelihood(case, hot(partition), 0, 0, *PRIOR)
    assert np.abs(work.log_weight[: domain.m.size] - expected).max() > 1e-3


@given(cases(most_objects=8))
def test_cached_gains_equal_gains_one_by_one(case):
    partition = case.partition(*PRIOR)
    for d in range(len(case.q)):
        domain, other, tables = hard_tables(partition, d)
        work, cache = workspace(tables, domain), empty_cache(tables, domain)
        for i, q_i in enumerate(hot(partition)[d]):
            prepare(domain, other, i, q_i, work)
            add_score(domain, other, tables, cache, i, work)
        assert_cache_equals_gains(domain, other, tables, cache)


def assert_cache_equals_gains(
    domain: DomainView, other: DomainView, tables: ScoreTables, cache: GainCache
) -> None:
    for p, unseen, links, l in np.argwhere(cache.known):
        n, N = tables.counts[:, p, l]
        nonlinks = other.m[l] - links - unseen
        assert nonlinks >= 0.0
        for k in range(domain.m.size):
            if is_joint(domain) and k == l:
                continue  # scored for both places together, without the cache
            gain = log_beta_gain(n[k], N[k], float(links), nonlinks)
            gain -= log_beta_gain(n[k], N[k], 0.0, other.m[l])
            assert cache.gain[p, unseen, links, l, k] == pytest.approx(gain, abs=1e-9)


def test_cache_is_used():
    """Negative control: a wrong entry of the cache changes the score of the next object."""
    case = make_case(np.random.default_rng(0), "bipartite", (2, 9), (2, 1), unseen=0.0, hard=1.0)
    case.X[:] = case.X[0]
    case = replace(case, relation=type(case.relation).build(case.X))
    domain, other, tables = soft_tables(case.state(), 0)
    work, cache = workspace(tables, domain), empty_cache(tables, domain)
    scores = []
    for wrong in (0.0, 1.0):
        cache.gain[:] += wrong
        prepare(domain, other, 0, np.eye(2)[0], work)
        add_score(domain, other, tables, cache, 0, work)
        scores.append(work.log_weight[1])
    assert scores[1] == pytest.approx(scores[0] + 1.0)


@given(cases())
def test_counts_without_an_object_equal_definition(case):
    """For both places and both roles of the object; the clamp at the prior hides rounding only."""
    state = case.state()
    for d, q in enumerate(case.q):
        domain, other, tables = soft_tables(state, d)
        work = workspace(tables, domain)
        for i in range(len(q)):
            prepare(domain, other, i, q[i], work)
            n, N = reference.counts_without(case.X, case.observed, case.q, case.kind, d, i)
            expected = np.array([case.a + n, case.b + N])
            expected = expected if d == 0 else expected.transpose(0, 2, 1)
            for p, k, l in np.ndindex(len(domain.incidence), domain.m.size, other.m.size):
                if is_joint(domain) and k == l:
                    continue  # scored for both places together
                at = (k, l) if p == 0 else (l, k)
                found = rest_counts(domain, tables, work, p, k, l)
                assert_allclose(found, expected[(slice(None), *at)], **TIGHT)


def sequence_tables(partition: Partition, d: int) -> gibbs.SequenceTables:
    """Return the tables of the sequential kernel."""
    rising = gibbs.rising_tables(*PRIOR)
    return gibbs.sequence_tables(partition.domain(d), partition.tables(d), rising)


def move(partition: Partition, d: int, i: int, new: int, tables: gibbs.SequenceTables) -> None:
    """Relabel one object and update the tables as the sequential kernel does."""
    domain, other = partition.domain(d), partition.domain(-1 - d)
    work, old = workspace(hard_tables(partition, d)[2], domain), int(partition.labels[d][i])
    prepare(domain, other, i, np.eye(domain.m.size)[old], work)
    for k, sign in ((old, -1.0), (new, 1.0)):
        gibbs.update_counts(domain, tables, gibbs.rising_tables(*PRIOR), work, i, k, sign)
    partition.relabel(d, np.array([i], dtype=np.int32), np.array([new], dtype=np.int32))


@given(cases(most_objects=7), st.randoms(use_true_random=False))
def test_updated_tables_equal_rebuilt_tables(case, random):
    """A sweep of random moves, into empty clusters and out of their last member, too."""
    partition = case.partition(*PRIOR)
    for d, size in enumerate(case.relation.sizes):
        partition.make_room(d, None, 2)
        tables = sequence_tables(partition, d)
        for i in range(size):
            new = random.randrange(partition.m[d].size)
            move(partition, d, i, new, tables)
            rebuilt = sequence_tables(partition, d)
            assert_array_equal(tables.counts, rebuilt.counts)
            assert_array_equal(tables.value, rebuilt.value)


@given(st.floats(1e-8, 1e8), st.floats(1e-8, 1e8), st.integers(0, 10_000), st.integers(0, 10_000))
def test_value_of_a_block_equals_its_log_marginal(a, b, n, N):
    """Below and above the number of factors that are looked up."""
    found = gibbs.tabulated_value(gibbs.rising_tables(a, b), n, N)
    assert found == pytest.approx(log_beta_gain(a, b, n, N), rel=1e-9, abs=1e-6)
    more = gibbs.tabulated_value(gibbs.rising_tables(a, b), n + 1, N)
    assert more - found == pytest.approx(np.log((a + n) / (a + b + n + N)), abs=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_tables_of_other_labels_differ(kind):
    """Negative control of the comparison above."""
    case = make_case(np.random.default_rng(1), kind, (8, 7), (2, 2), unseen=0.0, hard=1.0)
    partition = case.partition(*PRIOR)
    before = sequence_tables(partition, 0)
    partition.relabel(0, np.array([0], dtype=np.int32), 1 - partition.labels[0][:1])
    after = sequence_tables(partition, 0)
    for found, expected in zip(after, before, strict=True):
        assert np.abs(found - expected).max() > 1e-3


def test_label_scores_of_a_batch_do_not_depend_on_the_objects_before():
    """The same bits where a batch is cut at another object, and so its cache is filled otherwise.

    Shards of a cluster of machines cut batches at other objects than threads do.
    """
    rng = np.random.default_rng(2)
    case = make_case(rng, "bipartite", (260, 40), (2, 2), links=0.3, unseen=0.05, hard=1.0)
    partition = case.partition(*PRIOR)
    domain, other = partition.domain(0), partition.domain(1)
    tables = screen_tables(domain, partition.tables(0), other.m)
    found = []
    for pieces in (1, 2, 7):
        log_normaliser, fresh = np.empty(260), np.empty(260, dtype=np.int32)
        for part in np.array_split(np.arange(260, dtype=np.int32), pieces):
            out, rows = np.empty((part.size, 0)), slice(part[0], part[-1] + 1)
            views = (domain, other, tables, part, np.empty(0))
            label_batch(*views, fresh[rows], log_normaliser[rows], out[:0])
        found.append((log_normaliser, fresh))
    for other_cut in found[1:]:
        assert_array_equal(other_cut[0], found[0][0])
        assert_array_equal(other_cut[1], found[0][1])


def screen_tables(domain: DomainView, blocks: BlockTables, m_other: np.ndarray) -> ScreenTables:
    """Return the tables of a domain, filled from its last cluster at the other end to its first."""
    tables = empty_screen(domain, blocks)
    for l in reversed(range(m_other.size)):
        fill_screen(domain, blocks, m_other, tables, l, l + 1)
    add_bases(domain, tables)
    return tables


def screened_scores(partition: Partition, d: int, *, only_best: bool = False) -> np.ndarray:
    """Return the scores of all clusters for all objects, as a batch computes them."""
    domain, other = partition.domain(d), partition.domain(-1 - d)
    tables = screen_tables(domain, partition.tables(d), other.m)
    cells, candidates = object_cells(tables), np.empty(CANDIDATES, dtype=np.int32)
    found = np.empty((domain.hard.size, domain.m.size))
    for i in range(len(found)):
        score_clusters(domain, other, tables, i, cells, candidates, only_best)
        found[i] = cells.log_weight[: domain.m.size]
    return found


def exact_scores(partition: Partition, d: int) -> np.ndarray:
    """Return log prior plus the scores that the kernel of sequential sweeps computes."""
    label, m = partition.labels[d], partition.m[d]
    rest = m - np.eye(m.size)[label]
    prior = np.where(rest > 0.0, np.log(np.maximum(rest, 1.0)), np.log(partition.hyper.alpha[d]))
    return hard_scores(partition, d) + prior


@given(cases(most_objects=9, most_clusters=5))
def test_scores_of_few_clusters_are_exact_in_a_batch(case):
    partition = case.partition(*PRIOR)
    for d in range(len(case.q)):
        assert_allclose(screened_scores(partition, d), exact_scores(partition, d), atol=1e-8)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("unseen", [0.0, 0.1])
def test_best_of_many_clusters_are_scored_exactly(kind, unseen):
    rng = np.random.default_rng(3)
    case = make_case(rng, kind, (90, 80), (12, 10), links=0.2, unseen=unseen, hard=1.0)
    partition = case.partition(*PRIOR)
    expected = exact_scores(partition, 0)
    found = screened_scores(partition, 0)
    exact = abs(found - expected) < 1e-8
    assert (exact.sum(axis=1) >= CANDIDATES + 1).all()
    links, unknown = case.X.sum(axis=1), (1.0 - case.observed).sum(axis=1)
    if kind == "directed":
        links, unknown = links + case.X.sum(axis=0), unknown + (1.0 - case.observed).sum(axis=0)
    assert (abs(found - expected) < 1.0 + NATS_PER_LINK * (links + unknown)[:, None]).all()
    best = expected.argmax(axis=1)
    assert (found.argmax(axis=1) == best).mean() > 0.95
    quick = screened_scores(partition, 0, only_best=True)
    assert (quick.argmax(axis=1) == found.argmax(axis=1)).all()


@pytest.mark.parametrize("kind", ["directed", "undirected"])
def test_objects_are_left_out_at_both_ends_of_their_cells(kind):
    """Negative control: with the counts of another object in its place the scores differ."""
    case = make_case(np.random.default_rng(5), kind, (9, 9), (3, 3), unseen=0.1, hard=1.0)
    partition = case.partition(*PRIOR)
    found, expected = screened_scores(partition, 0), exact_scores(partition, 0)
    assert_allclose(found, expected, atol=1e-8)
    label = partition.labels[0]
    i = int(np.flatnonzero(label != label[0])[0])
    partition.relabel(0, np.array([i], dtype=np.int32), label[:1])
    assert np.abs(screened_scores(partition, 0)[0] - expected[0]).max() > 1e-3


def test_screened_scores_of_one_link_with_each_cluster_are_exact_but_for_rounding():
    rng = np.random.default_rng(4)
    case = make_case(rng, "bipartite", (200, 100), (30, 100), links=0.05, unseen=0.0, hard=1.0)
    labels = [np.arange(200, dtype=np.int32) % 30, np.arange(100, dtype=np.int32)]
    partition = case.partition(*PRIOR)
    partition.labels = labels
    partition.renumber()
    assert_allclose(screened_scores(partition, 0), exact_scores(partition, 0), atol=1e-4)
