"""Every kernel against the dense definitions, with controls that must fail."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.special import digamma, logsumexp

import reference
from coblock.inference import cvb
from coblock.inference.vb import exact_bound, expected_log_blocks, expected_log_sticks
from coblock.kernels import Blocks, blocks, cvb0, gibbs, second_order, vb
from coblock.kernels.memberships import stick_log_prior
from coblock.kernels.prediction import fold_in_all
from coblock.model.counts import Sums
from coblock.model.hyperparameters import tails
from coblock.model.state import State, crp_log_probability
from strategies import Case, cases, make_case

TIGHT = {"rtol": 1e-9, "atol": 1e-9}


def visit_zeroth_order(state: State, d: int, i: int) -> tuple[float, float]:
    table = state.blocks() if d == 0 else blocks.transposed(state.blocks())
    here, there = state.domain(d), state.domain(-1 - d)
    if state.relation.one_domain:
        there = here
    return cvb0.visit(state.relation.code, here, there, table, i)


def visit_second_order(sides, V, state: State, d: int, i: int, exact: bool) -> tuple[float, float]:
    table, variances = state.blocks(), V
    if d == 1:
        table, variances = blocks.transposed(table), V.transpose(0, 2, 1)
    return second_order.visit(
        state.relation.code, exact, sides[d], sides[-1 - d], table, variances, i
    )


def posterior(log_weight: np.ndarray) -> tuple[np.ndarray, float]:
    normaliser = float(logsumexp(log_weight))
    return np.exp(log_weight - normaliser), normaliser


def each_object(case: Case):
    return [(d, i) for d, q in enumerate(case.q) for i in range(len(q))]


def assert_counts_are_a_recount(state: State) -> None:
    again = State(state.relation, [q.copy() for q in state.q], state.priors)
    assert_allclose(state.n, again.n, **TIGHT)
    assert_allclose(state.N, again.N, **TIGHT)
    for m, expected in zip(state.m, again.m, strict=True):
        assert_allclose(m, expected, **TIGHT)


@given(cases())
def test_counts_equal_the_definition(case):
    state = case.state()
    n, N = reference.counts(case.X, case.observed, case.q, case.kind)
    assert_allclose(state.n, n, **TIGHT)
    assert_allclose(state.N, N, **TIGHT)


@given(st.lists(st.floats(0, 50), min_size=1, max_size=6), st.floats(0.01, 20))
def test_stick_prior_equals_the_definition(m, alpha):
    out = np.empty(len(m))
    stick_log_prior(np.array(m), alpha, out)
    assert_allclose(out, reference.stick_log_prior(np.array(m), alpha), **TIGHT)
    assert_allclose(np.exp(out).sum(), 1.0, rtol=1e-12)


@given(cases())
def test_cvb0_update_equals_the_definition(case):
    state = case.state()
    for d, i in each_object(case):
        expected = reference.cvb0_log_posterior(
            case.X, case.observed, state.q, case.kind, d, i, case.a, case.b, case.alpha
        )
        normaliser, entropy = visit_zeroth_order(state, d, i)
        q, log_total = posterior(expected)
        assert_allclose(state.q[d][i], q, **TIGHT)
        assert_allclose(normaliser, log_total, **TIGHT)
        assert_allclose(entropy, -np.sum(q[q > 0] * np.log(q[q > 0])), **TIGHT)
        assert_counts_are_a_recount(state)


@settings(max_examples=60)
@given(cases(most_objects=5), st.booleans())
def test_second_order_update_equals_the_definition(case, exact):
    """Variances of all blocks, and the update, after every single visit."""
    state = case.state()
    sides, V = cvb.enter_everybody(state, exact=exact)
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
        normaliser, _ = visit_second_order(sides, V, state, d, i, exact)
        q, log_total = posterior(expected)
        assert_allclose(state.q[d][i], q, rtol=1e-7, atol=1e-8)
        assert_allclose(normaliser, log_total, rtol=1e-8, atol=1e-8)
        tables = variance(case.X, case.observed, state.q, case.kind)
        for mask, name in enumerate("nNT"):
            assert_allclose(V[mask], tables[name], rtol=1e-8, atol=1e-9)
        assert_counts_are_a_recount(state)


@settings(max_examples=40)
@given(cases(most_objects=3, most_clusters=2))
def test_exact_variance_equals_the_enumerated_one(case):
    state = case.state()
    _, V = cvb.enter_everybody(state, exact=True)
    moments = reference.count_moments(case.X, case.observed, case.q, case.kind)
    for mask, name in enumerate("nNT"):
        assert_allclose(V[mask], moments["variance"][name], rtol=1e-9, atol=1e-10)


def test_the_papers_variance_is_not_the_enumerated_one():
    """Negative control: the third sum alone is far too small."""
    case = make_case(np.random.default_rng(1), "bipartite", (4, 4), (2, 2), unseen=0.0, hard=0.0)
    _, V = cvb.enter_everybody(case.state(), exact=False)
    moments = reference.count_moments(case.X, case.observed, case.q, case.kind)
    assert (V[0] < 0.5 * moments["variance"]["n"]).all()


@given(cases())
def test_vb_update_equals_the_definition(case):
    """One domain: objects see the new memberships of those before them."""
    state = case.state()
    for d in range(len(case.q)):
        a_hat, b_hat = case.a + state.n, case.b + state.N
        m, alpha = state.m[d].copy(), case.alpha[d]
        sticks = (1.0 + m[:-1], alpha + tails(m)[:-1])
        log_link, log_nonlink = expected_log_blocks(state)
        assert_allclose(log_link, digamma(a_hat) - digamma(a_hat + b_hat), rtol=1e-12)
        if d == 1:
            log_link, log_nonlink = log_link.T.copy(), log_nonlink.T.copy()
        q = [old.copy() for old in state.q]
        for i in range(len(q[d])):
            weight = reference.vb_log_posterior(
                case.X, case.observed, q, case.kind, d, i, a_hat, b_hat, *sticks
            )
            q[d][i] = posterior(weight)[0]
        here = state.domain(d)
        there = here if state.relation.one_domain else state.domain(1 - d)
        log_stick = expected_log_sticks(m, alpha)
        vb.sweep_domain(state.relation.code, here, there, log_stick, log_link, log_nonlink)
        assert_allclose(state.q[d], q[d], **TIGHT)
        state.recount()


@given(cases())
def test_bound_equals_the_naive_vb_bound_term_by_term(case):
    """The collapsed bound at order zero is the naive VB bound at its best parameters."""
    state = case.state()
    sticks = [
        (1.0 + m[:-1], alpha + tails(m)[:-1]) for m, alpha in zip(state.m, case.alpha, strict=True)
    ]
    a_hat, b_hat = case.a + state.n, case.b + state.N
    expected = reference.vb_bound(
        case.X, case.observed, case.q, case.kind, case.a, case.b, a_hat, b_hat, case.alpha, sticks
    )
    assert_allclose(exact_bound(state), expected, rtol=1e-9, atol=1e-8)


def labelled(case: Case) -> list[np.ndarray]:
    """Hard labels, all clusters in use."""
    labels = [q.argmax(axis=1) for q in case.q]
    return [np.unique(label, return_inverse=True)[1].astype(np.int32) for label in labels]


def count_labels(case: Case, labels: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    m = [np.bincount(label).astype(float) for label in labels]
    sums = Sums.of_labels(case.relation, labels, (m[0].size, m[-1].size))
    return sums.tables(case.kind, m)


@given(cases())
def test_hard_counts_and_evidence_equal_the_definition(case):
    labels = labelled(case)
    n, N = count_labels(case, labels)
    hot = [np.eye(label.max() + 1)[label] for label in labels]
    expected_n, expected_N = reference.counts(case.X, case.observed, hot, case.kind)
    assert_allclose(n, expected_n, **TIGHT)
    assert_allclose(N, expected_N, **TIGHT)
    m = np.bincount(labels[0]).astype(float)
    expected = reference.crp_log_probability(labels[0], case.alpha[0])
    assert_allclose(crp_log_probability(m, case.alpha[0]), expected, **TIGHT)


@given(cases(), st.integers(0, 2**16))
def test_gibbs_conditional_equals_the_ratio_of_joints(case, pick):
    """The normaliser and the draw at u = 0+ and 1- pin down the whole distribution."""
    labels = labelled(case)
    d, i = each_object(case)[pick % len(each_object(case))]
    others = np.delete(labels[d], i)
    if others.size == 0 or np.unique(others).size <= labels[d].max():
        return  # the object is alone in its cluster; the exact posterior test covers that
    a, b = float(case.a[0, 0]), float(case.b[0, 0])
    expected = reference.gibbs_log_posterior(
        case.X, case.observed, labels, case.kind, d, i, a, b, case.alpha
    )
    probability, log_total = posterior(expected)
    edges = np.cumsum(probability)
    for k in range(probability.size):
        if probability[k] < 1e-9:
            continue
        uniform = edges[k] - 0.5 * probability[k]
        chains, tables = start_chain(case, labels, a, b)
        flipped = tables if d == 0 else blocks.transposed(tables)
        total = gibbs.visit(case.relation.code, chains[d], chains[-1 - d], flipped, i, uniform)
        assert chains[d].label[i] == k
    assert total - log_total == pytest.approx(crp_normaliser(labels[d], case.alpha[d]), abs=1e-9)


@given(cases(most_objects=7, kinds=("bipartite",)), st.integers(0, 1))
def test_the_quick_sweep_of_two_domains_equals_single_visits(case, d):
    """Best labels, so that it does not matter which of the empty clusters is the new one."""
    labels, best = labelled(case), np.full(len(case.q[d]), -1.0)
    a, b = float(case.a[0, 0]), float(case.b[0, 0])
    quick, tables = start_chain(case, labels, a, b)
    table = tables if d == 0 else Blocks(*(np.ascontiguousarray(part.T) for part in tables))
    _, total = gibbs.sweep_stretch(quick[d], quick[1 - d], table, best, 0, best.size, False)
    single, tables = start_chain(case, labels, a, b)
    flipped = tables if d == 0 else blocks.transposed(tables)
    visits = [gibbs.visit(0, single[d], single[1 - d], flipped, i, -1.0) for i in range(best.size)]
    assert total == pytest.approx(sum(visits), abs=1e-8)
    together = [chain[d].label[:, None] == chain[d].label for chain in (quick, single)]
    assert (together[0] == together[1]).all()
    assert_allclose(np.sort(table.n.sum(axis=1)), np.sort(flipped.n.sum(axis=1)), atol=1e-9)


def start_chain(case: Case, labels: list[np.ndarray], a: float, b: float):
    n, N = count_labels(case, labels)
    pad = ((0, 2), (0, 2))
    n, N = np.pad(n, pad), np.pad(N, pad)
    tables = Blocks(n, N, np.full(n.shape, a), np.full(n.shape, b))
    state = case.state()
    chains = []
    for d, label in enumerate(labels):
        m = np.pad(np.bincount(label).astype(float), (0, 2))
        domain = state.domain(d)._replace(m=m, alpha=case.alpha[d])
        chains.append(gibbs.Chain(domain, label.copy()))
    return chains, tables


def crp_normaliser(label: np.ndarray, alpha: float) -> float:
    """The kernel's prior is m_k and alpha, the reference's is divided by alpha + N - 1."""
    return float(np.log(alpha + label.size - 1))


@given(cases(kinds=("bipartite",)))
def test_fold_in_equals_the_update_without_leaving_out(case):
    """A new row scored by the kernel is a row whose own memberships are nil."""
    state = case.state()
    rows = state.domain(0)._replace(m=state.m[0].copy())
    out = fold_in_all(rows, state.q[1], state.sure[1], state.blocks())
    for i in range(len(case.X)):
        links, seen = case.X[i] * case.observed[i], case.observed[i]
        n_plus, N_plus = links @ case.q[1], (seen - links) @ case.q[1]
        gain = reference.betaln(case.a + state.n + n_plus, case.b + state.N + N_plus)
        gain -= reference.betaln(case.a + state.n, case.b + state.N)
        expected = reference.stick_log_prior(state.m[0], case.alpha[0]) + gain.sum(axis=1)
        assert_allclose(out[i], expected, **TIGHT)


@pytest.mark.parametrize("kind", ["bipartite", "directed", "undirected"])
def test_treating_unseen_cells_as_zeros_breaks_the_equality(kind):
    """Negative control of the CVB0 comparison."""
    case = make_case(np.random.default_rng(3), kind, (5, 5), (2, 2), unseen=0.4, hard=0.0)
    everything = np.ones_like(case.observed)
    wrong = reference.cvb0_log_posterior(
        case.X, everything, case.q, kind, 0, 0, case.a, case.b, case.alpha
    )
    state = case.state()
    visit_zeroth_order(state, 0, 0)
    assert np.abs(state.q[0][0] - posterior(wrong)[0]).max() > 1e-3


def test_not_leaving_the_object_out_breaks_the_equality():
    """Negative control: the fold-in of a member differs from its leave-one-out update."""
    case = make_case(np.random.default_rng(4), "bipartite", (5, 5), (2, 2), hard=0.0)
    state = case.state()
    inside = fold_in_all(state.domain(0), state.q[1], state.sure[1], state.blocks())
    visit_zeroth_order(state, 0, 0)
    assert np.abs(state.q[0][0] - posterior(inside[0])[0]).max() > 1e-3


def test_two_separate_gains_on_the_diagonal_break_the_equality():
    """Negative control: block (k, k) of a directed relation gains both places together."""
    case = make_case(
        np.random.default_rng(5), "directed", (6, 6), (2, 2), links=0.7, unseen=0.0, hard=0.0
    )
    state = case.state()
    domain, table = state.domain(0), state.blocks()
    n_plus, N_plus = np.empty((2, 2)), np.empty((2, 2))
    others = domain._replace(m=state.m[0] - state.q[0][0])
    blocks.gather_all(domain, others, 0, n_plus, N_plus)
    apart, together = np.zeros(2), np.zeros(2)
    blocks.add_gains(table, n_plus[0], N_plus[0], apart)
    blocks.add_gains(blocks.transposed(table), n_plus[1], N_plus[1], apart)
    blocks.add_likelihood(1, table, n_plus, N_plus, (0.0, 0.0), together)
    assert np.abs(apart - together).max() > 1e-3
