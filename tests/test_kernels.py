"""Update kernels against the dense definitions, with negative controls."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import digamma, logsumexp
from scipy.stats import gamma

import reference
import single_updates
from coblock.inference.variational import exact_bound, second_order_state
from coblock.kernels import gather, gibbs, second_order, vb
from coblock.kernels.cvb0 import fold_in_all
from coblock.kernels.memberships import remove_members, stick_log_prior
from coblock.model.blocks import Blocks
from coblock.model.hyperparameters import crp_log_probability, expected_log_sticks, tails
from coblock.model.partition import Partition
from coblock.model.state import SoftState
from strategies import Case, cases, make_case

TIGHT = {"rtol": 1e-9, "atol": 1e-9}
ROUNDING = 1e-12  # of counts of a few dozen cells


def update_cvb0(state: SoftState, d: int, i: int) -> tuple[float, float]:
    views = state.domain(d), state.domain(-1 - d)
    return single_updates.update_cvb0(*views, state.tables(), i, d == 1)


def update_second_order(sides, V, state, d: int, i: int, *, exact: bool) -> tuple[float, float]:
    ends = sides[d], sides[-1 - d]
    return second_order.update_one(exact, *ends, state.tables(), V, i, d == 1)


def posterior(log_weight: np.ndarray) -> tuple[np.ndarray, float]:
    normaliser = float(logsumexp(log_weight))
    return np.exp(log_weight - normaliser), normaliser


def each_object(case: Case):
    return [(d, i) for d, q in enumerate(case.q) for i in range(len(q))]


def assert_counts_equal_recount(state: SoftState) -> None:
    again = SoftState(state.relation, [q.copy() for q in state.q], state.hyper)
    assert_allclose(state.blocks.n, again.blocks.n, **TIGHT)
    assert_allclose(state.blocks.N, again.blocks.N, **TIGHT)
    for d, m in enumerate(state.m):
        assert_allclose(m, again.m[d], **TIGHT)
        assert_array_equal(state.hard[d], again.hard[d])


@given(cases())
def test_counts_equal_definition(case):
    blocks = case.state().blocks
    n, N = reference.counts(case.X, case.observed, case.q, case.kind)
    assert_allclose(blocks.n, n, **TIGHT)
    assert_allclose(blocks.N, N, **TIGHT)


@given(cases())
def test_counts_are_not_negative_before_the_clamps(case):
    """Kernels set negative counts to 0; more than rounding is never hidden by that.

    The cells of each object are recomputed here without the clamps of ``remove_members``,
    ``gather_all`` and ``shift``, and the results of these kernels must be the same.
    """
    state = case.state()
    relation, tables = state.relation, (state.blocks.n, state.blocks.N)
    for d, i in each_object(case):
        domain, q_i = state.domain(d), state.q[d][i]
        rest = domain.m - q_i
        assert rest.min() > -ROUNDING
        m = domain.m.copy()
        remove_members(m, q_i)
        assert_allclose(m, rest, atol=ROUNDING)
        other = domain._replace(m=m) if relation.repeated else state.domain(1 - d)
        n_plus, N_plus = np.empty((2, len(domain.incidence), other.m.size))
        gather.gather_all(domain, other, i, n_plus, N_plus)
        for p, place in enumerate(domain.incidence):
            cells = other.m - n_plus[p]
            for j in place.unseen[place.unseen_start[i] : place.unseen_start[i + 1]]:
                cells -= other.q[j]
            assert cells.min() > -ROUNDING
            assert_allclose(N_plus[p], cells, atol=ROUNDING)
        own_cells = gather.own_cell(domain, i)
        for table, plus, own in zip(tables, (n_plus, N_plus), own_cells, strict=True):
            seen = table.copy() if d == 0 else table.T.copy()
            change = np.outer(q_i, plus[0])
            if case.kind == "directed":
                change += np.outer(plus[1], q_i) + np.diag(q_i * own)
            elif case.kind == "undirected":
                change += change.T - np.diag(np.diag(change))
            without = seen - change
            assert without.min() > -ROUNDING
            gather.shift(domain, seen, -1.0, q_i, plus, own)
            assert_allclose(seen, without, atol=ROUNDING)


@given(st.lists(st.floats(0, 50), min_size=1, max_size=6), st.floats(0.01, 20))
def test_stick_prior_equals_definition(m, alpha):
    out = np.empty(len(m))
    stick_log_prior(np.array(m), alpha, out)
    assert_allclose(out, reference.stick_log_prior(np.array(m), alpha), **TIGHT)
    assert_allclose(np.exp(out).sum(), 1.0, rtol=1e-12)


@given(cases())
def test_cvb0_update_equals_definition(case):
    state = case.state()
    for d, i in each_object(case):
        expected = reference.cvb0_log_posterior(
            case.X, case.observed, state.q, case.kind, d, i, case.a, case.b, case.alpha
        )
        normaliser, entropy = update_cvb0(state, d, i)
        q, log_total = posterior(expected)
        assert_allclose(state.q[d][i], q, **TIGHT)
        assert_allclose(normaliser, log_total, **TIGHT)
        assert_allclose(entropy, -np.sum(q[q > 0] * np.log(q[q > 0])), **TIGHT)
        assert_counts_equal_recount(state)


@settings(max_examples=60)
@given(cases(most_objects=5), st.booleans())
def test_second_order_update_equals_definition(case, exact):
    """Compare the update, and the variances of all blocks, after every object."""
    state = case.state()
    sides, V = second_order_state(state, exact=exact)
    variance = reference.exact_variance if exact else reference.paper_variance
    for d, i in each_object(case):
        expected = reference.cvb_log_posterior(
            case.X,
            case.observed,
            state.q,
            case.kind,
            d,
            i,
            case.a,
            case.b,
            case.alpha,
            "exact" if exact else "paper",
        )
        normaliser, _ = update_second_order(sides, V, state, d, i, exact=exact)
        q, log_total = posterior(expected)
        assert_allclose(state.q[d][i], q, rtol=1e-7, atol=1e-8)
        assert_allclose(normaliser, log_total, rtol=1e-8, atol=1e-8)
        tables = variance(case.X, case.observed, state.q, case.kind)
        for mask, name in enumerate("nNT"):
            assert_allclose(V[mask], tables[name], rtol=1e-8, atol=1e-9)
        assert_counts_equal_recount(state)


@settings(max_examples=40)
@given(cases(most_objects=3, most_clusters=2))
def test_exact_variance_equals_enumeration(case):
    state = case.state()
    _, V = second_order_state(state, exact=True)
    moments = reference.count_moments(case.X, case.observed, case.q, case.kind)
    for mask, name in enumerate("nNT"):
        assert_allclose(V[mask], moments["variance"][name], rtol=1e-9, atol=1e-10)


def test_variance_of_the_paper_differs_from_enumeration():
    """Negative control: the third sum alone is less than half of the variance."""
    case = make_case(np.random.default_rng(1), "bipartite", (4, 4), (2, 2), unseen=0.0, hard=0.0)
    _, V = second_order_state(case.state(), exact=False)
    moments = reference.count_moments(case.X, case.observed, case.q, case.kind)
    assert (V[0] < 0.5 * moments["variance"]["n"]).all()


@given(cases())
def test_vb_update_equals_definition(case):
    """In one domain an object uses the new memberships of the objects before it."""
    state = case.state()
    for d in range(len(case.q)):
        statistics = (state.blocks.n, state.blocks.N)
        a_hat, b_hat = case.a + statistics[0], case.b + statistics[1]
        m, alpha = state.m[d].copy(), case.alpha[d]
        sticks = (1.0 + m[:-1], alpha + tails(m)[:-1])
        expected = state.relation.likelihood.expected_log(statistics, state.hyper.prior)
        assert_allclose(expected[0], digamma(a_hat) - digamma(a_hat + b_hat), rtol=1e-12)
        assert_allclose(expected[1], digamma(b_hat) - digamma(a_hat + b_hat), rtol=1e-12)
        log_link, log_nonlink = (table.T.copy() if d == 1 else table for table in expected)
        q = [old.copy() for old in state.q]
        for i in range(len(q[d])):
            weight = reference.vb_log_posterior(
                case.X, case.observed, q, case.kind, d, i, a_hat, b_hat, *sticks
            )
            q[d][i] = posterior(weight)[0]
        views = (state.domain(d), state.domain(-1 - d))
        vb.sweep_domain(*views, expected_log_sticks(m, alpha), log_link, log_nonlink)
        assert_allclose(state.q[d], q[d], **TIGHT)
        state.recount()


@given(cases())
def test_collapsed_bound_equals_naive_vb_bound_term_by_term(case):
    """The collapsed bound of order zero is the naive VB bound at its optimal parameters.

    Both have the density of the hyperprior of a and b.
    """
    state = case.state()
    sticks = [
        (1.0 + m[:-1], alpha + tails(m)[:-1]) for m, alpha in zip(state.m, case.alpha, strict=True)
    ]
    a_hat, b_hat = case.a + state.blocks.n, case.b + state.blocks.N
    expected = reference.vb_bound(
        case.X, case.observed, case.q, case.kind, case.a, case.b, a_hat, b_hat, case.alpha, sticks
    )
    shape, rate = state.hyper.block_hyperprior
    blocks = state.distinct()
    priors = np.append(case.a[blocks], case.b[blocks])
    expected += gamma.logpdf(priors, shape, scale=1.0 / rate).sum()
    assert_allclose(exact_bound(state), expected, rtol=1e-9, atol=1e-8)


@given(cases())
def test_hard_counts_and_evidence_equal_definition(case):
    labels = case.labels()
    blocks = Blocks.from_labels(case.relation, labels)
    hot = [np.eye(label.max() + 1)[label] for label in labels]
    expected_n, expected_N = reference.counts(case.X, case.observed, hot, case.kind)
    assert_array_equal(blocks.n, expected_n)
    assert_array_equal(blocks.N, expected_N)
    m = np.bincount(labels[0]).astype(float)
    expected = reference.crp_log_probability(labels[0], case.alpha[0])
    assert_allclose(crp_log_probability(m, case.alpha[0]), expected, **TIGHT)


def sequence_views(partition: Partition, d: int) -> tuple:
    """Return the first arguments of the sequential kernel."""
    rising = gibbs.rising_tables(*partition.hyper.prior.ravel())
    return partition.domain(d), partition.domain(-1 - d), partition.tables(d), rising


def label_one(partition: Partition, d: int, i: int, uniform: float | None) -> float:
    """Give one object a new label by the sequential kernel; return its log normaliser."""
    size = partition.relation.sizes[d]
    numbers = np.empty(0) if uniform is None else np.full(size, uniform)
    stop, total = gibbs.label_sequence(
        *sequence_views(partition, d), i, i + 1, numbers, True, np.empty((0, 0))
    )
    assert stop == i + 1
    partition.recount()
    return total


@given(cases(), st.integers(0, 2**16))
def test_gibbs_conditional_equals_ratio_of_joints(case, pick):
    """Draw at the middle of the interval of each label; compare the log normaliser, too."""
    labels = case.labels()
    d, i = each_object(case)[pick % len(each_object(case))]
    others = np.delete(labels[d], i)
    if others.size == 0 or np.unique(others).size <= labels[d].max():
        return  # a single member; the test of the exact posterior covers this case
    a, b = float(case.a[0, 0]), float(case.b[0, 0])
    expected = reference.gibbs_log_posterior(
        case.X, case.observed, labels, case.kind, d, i, a, b, case.alpha
    )
    probability, log_total = posterior(expected)
    edges = np.cumsum(probability)
    for k in range(probability.size):
        if probability[k] < 1e-9:
            continue
        partition = case.partition(a, b)
        partition.make_room(d, None, 2)
        total = label_one(partition, d, i, edges[k] - 0.5 * probability[k])
        assert partition.labels[d][i] == k
    # The reference divides the prior by alpha + N - 1, the kernel does not.
    constant = float(np.log(case.alpha[d] + labels[d].size - 1))
    assert total - log_total == pytest.approx(constant, abs=1e-9)


@given(cases(most_objects=7), st.integers(0, 2**16), st.booleans())
def test_label_sequence_equals_single_updates(case, seed, drawn):
    """Tables that are updated along the way give the labels of tables built for each object.

    The comparison is of partitions: the new cluster may be any of the empty ones.
    """
    a, b = float(case.a[0, 0]), float(case.b[0, 0])
    for d, size in enumerate(case.relation.sizes):
        uniform = np.random.default_rng(seed).random(size) if drawn else np.empty(0)
        whole, single = case.partition(a, b), case.partition(a, b)
        for partition in (whole, single):
            partition.make_room(d, None, size + 1)
        views = sequence_views(whole, d)
        stop, total = gibbs.label_sequence(*views, 0, size, uniform, True, np.empty((0, 0)))
        assert stop == size
        whole.recount()
        parts = [label_one(single, d, i, uniform[i] if drawn else None) for i in range(size)]
        assert total == pytest.approx(sum(parts), abs=1e-8)
        assert_array_equal(whole.labels[d], single.labels[d])
        assert_array_equal(whole.blocks.n, single.blocks.n)


def test_label_sequence_stops_before_a_new_cluster_without_a_slot():
    case = make_case(np.random.default_rng(2), "bipartite", (6, 5), (2, 2), hard=1.0)
    partition = case.partition(0.4, 0.7)
    views = sequence_views(partition, 0)
    nothing = (np.empty(0), True, np.empty((0, 0)))
    assert gibbs.label_sequence(*views, 0, 6, *nothing) == (0, 0.0)


@given(cases(kinds=("bipartite",)))
def test_fold_in_equals_update_of_an_object_without_memberships(case):
    state = case.state()
    n, N = state.blocks.n, state.blocks.N
    log_prior = reference.stick_log_prior(state.m[0], case.alpha[0])
    out = fold_in_all(state.domain(0), state.domain(1), state.tables(), log_prior)
    for i in range(len(case.X)):
        links, seen = case.X[i] * case.observed[i], case.observed[i]
        n_plus, N_plus = links @ case.q[1], (seen - links) @ case.q[1]
        gain = reference.betaln(case.a + n + n_plus, case.b + N + N_plus)
        gain -= reference.betaln(case.a + n, case.b + N)
        assert_allclose(out[i], log_prior + gain.sum(axis=1), **TIGHT)


@pytest.mark.parametrize("kind", ["bipartite", "directed", "undirected"])
def test_unseen_cells_are_not_zeros(kind):
    """Negative control of the CVB0 comparison: the definition with zeros instead differs."""
    case = make_case(np.random.default_rng(3), kind, (5, 5), (2, 2), unseen=0.4, hard=0.0)
    everything = np.ones_like(case.observed)
    wrong = reference.cvb0_log_posterior(
        case.X, everything, case.q, kind, 0, 0, case.a, case.b, case.alpha
    )
    state = case.state()
    update_cvb0(state, 0, 0)
    assert np.abs(state.q[0][0] - posterior(wrong)[0]).max() > 1e-3


def test_objects_are_left_out_of_the_counts():
    """Negative control: the fold-in of a member differs from its leave-one-out update."""
    case = make_case(np.random.default_rng(4), "bipartite", (5, 5), (2, 2), hard=0.0)
    state = case.state()
    log_prior = reference.stick_log_prior(state.m[0], case.alpha[0])
    inside = fold_in_all(state.domain(0), state.domain(1), state.tables(), log_prior)
    update_cvb0(state, 0, 0)
    assert np.abs(state.q[0][0] - posterior(inside[0])[0]).max() > 1e-3


def test_diagonal_blocks_gain_both_places_together():
    """Negative control: two separate gains of block (k, k) of a directed relation differ."""
    case = make_case(
        np.random.default_rng(5), "directed", (6, 6), (2, 2), links=0.7, unseen=0.0, hard=0.0
    )
    state = case.state()
    domain, tables = state.domain(0), state.tables()
    n_plus, N_plus = np.empty((2, 2)), np.empty((2, 2))
    others = domain._replace(m=state.m[0] - state.q[0][0])
    gather.gather_all(domain, others, 0, n_plus, N_plus)
    separate, together = np.zeros(2), np.zeros(2)
    gather.add_gains(tables, n_plus[0], N_plus[0], separate)
    gather.add_gains(gather.transposed(tables), n_plus[1], N_plus[1], separate)
    gather.add_log_likelihood(domain, tables, n_plus, N_plus, (0.0, 0.0), together)
    assert np.abs(separate - together).max() > 1e-3
