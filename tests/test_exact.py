"""Tiny relations, all partitions enumerated: what the methods must agree with."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.stats import chi2

import reference
from coblock.inference.gibbs import GibbsRun
from coblock.inference.variational import VariationalRun
from coblock.model.hyperparameters import Priors
from coblock.model.partition import Partition
from coblock.model.relation import Relation
from coblock.model.state import State
from strategies import cases

TINY = {
    "bipartite": (np.array([[1, 1, 0], [1, 1, 0], [0, 0, 1.0]]), (3, 3)),
    "directed": (np.array([[0, 1, 0, 0], [1, 0, 0, 1], [0, 0, 0, 1], [0, 1, 1, 0.0]]), (4, 4)),
    "undirected": (np.array([[0, 1, 0, 0], [1, 0, 1, 0], [0, 1, 0, 1], [0, 0, 1, 0.0]]), (4, 4)),
}
A, B, ALPHA = 0.6, 0.8, 1.3
SAMPLES, THINNING = 4000, 4


def observed(kind: str) -> np.ndarray:
    _, shape = TINY[kind]
    seen = np.ones(shape)
    seen[0, 2] = 0.0
    if kind != "bipartite":
        seen[2, 0] = seen[0, 2]
        np.fill_diagonal(seen, 0.0)
    return seen


def canonical(label: np.ndarray) -> tuple[int, ...]:
    """Number the clusters in order of appearance."""
    first = {int(k): at for at, k in reversed(list(enumerate(label)))}
    rank = {k: r for r, k in enumerate(sorted(first, key=first.__getitem__))}
    return tuple(rank[int(k)] for k in label)


def chain_frequencies(kind: str, seed: int) -> dict[tuple, int]:
    X, _ = TINY[kind]
    seen = observed(kind)
    relation = Relation.build(np.where(seen > 0, X, np.nan), kind=kind)
    labels = [np.zeros(size, dtype=np.int32) for size in relation.sizes]
    partition = Partition(relation, labels, A, B, [ALPHA] * len(labels))
    run = GibbsRun(partition, np.random.default_rng(seed), 2 * SAMPLES * THINNING, "fixed")
    counts: dict[tuple, int] = {}
    for sweep in run.sweeps(0.0):
        if sweep.sweep > 100 and sweep.sweep % THINNING == 0:
            visited = tuple(canonical(label) for label in partition.labels)
            counts[visited] = counts.get(visited, 0) + 1
        if sweep.sweep == 100 + SAMPLES * THINNING:
            return counts
    return counts


def p_value(counts: dict[tuple, int], posterior: dict[tuple, float]) -> float:
    """Chi-square test; partitions that are expected fewer than five times are taken together."""
    total = sum(counts.values())
    often = [z for z, p in posterior.items() if p * total >= 5]
    expected = np.array([posterior[z] * total for z in often])
    found = np.array([counts.get(z, 0) for z in often], dtype=float)
    expected, found = (
        np.append(expected, total - expected.sum()),
        np.append(found, total - found.sum()),
    )
    some = expected > 0.5
    statistic = ((found - expected)[some] ** 2 / expected[some]).sum()
    return float(chi2.sf(statistic, some.sum() - 1))


@pytest.mark.parametrize("kind", sorted(TINY))
def test_gibbs_visits_partitions_as_often_as_the_exact_posterior(kind, seed):
    X, _ = TINY[kind]
    domains = 2 if kind == "bipartite" else 1
    counts = chain_frequencies(kind, seed)
    right, _ = reference.exact_posterior(X, observed(kind), kind, A, B, [ALPHA] * domains)
    assert p_value(counts, right) > 1e-3
    wrong, _ = reference.exact_posterior(X, observed(kind), kind, A, B, [3 * ALPHA] * domains)
    assert p_value(counts, wrong) < 1e-6  # negative control: another concentration
    blind, _ = reference.exact_posterior(
        X, np.ones_like(X) - (kind != "bipartite") * np.eye(len(X)), kind, A, B, [ALPHA] * domains
    )
    assert p_value(counts, blind) < 1e-3  # negative control: the unseen cell as a zero


@pytest.mark.parametrize("kind", sorted(TINY))
def test_cvb0_is_near_the_exact_posterior(kind):
    """Link probabilities of two clear blocks: within 0.08 of the exact ones, 0.03 on average."""
    X = np.kron(np.eye(2), np.ones((3, 3)))
    seen = np.ones((6, 6)) if kind == "bipartite" else 1.0 - np.eye(6)
    X = X * seen
    relation = Relation.build(X, kind=kind)
    K = [2] * len(relation.sizes)
    exact = exact_link_probability(X, seen, kind, K)
    start = np.repeat([[0.9, 0.1], [0.1, 0.9]], 3, axis=0)
    priors = Priors([ALPHA] * len(K), np.full((2, 2), A), np.full((2, 2), B))
    run = VariationalRun(State(relation, [start.copy() for _ in K], priors), "cvb0", rule="fixed")
    for sweep in run.sweeps(0.0):
        if sweep.change < 1e-9 or sweep.sweep == 2000:
            break
    n, N = run.state.n, run.state.N
    theta = (A + n) / (A + B + n + N)
    found = run.state.q[0] @ theta @ run.state.q[-1].T
    error = np.abs(found - exact)[seen > 0]
    assert error.max() < 0.08
    assert error.mean() < 0.03
    assert np.abs(X[seen > 0].mean() - exact[seen > 0]).min() > 0.2  # the mean would not do


def exact_link_probability(X, seen, kind, K):
    """Average the blocks' link probability over all labelings under the truncated model."""
    sizes = X.shape if kind == "bipartite" else X.shape[:1]
    total, weight = np.zeros(X.shape), 0.0
    log_evidence = reference.truncated_log_evidence(X, seen, kind, A, B, [ALPHA] * len(K), K)
    for labeling in reference.labelings(sizes, K):
        labels = [np.asarray(label) for label in labeling]
        joint = reference.truncated_log_joint(X, seen, labels, kind, A, B, [ALPHA] * len(K), K)
        hot = [np.eye(K[d])[label] for d, label in enumerate(labels)]
        n, N = reference.counts(X, seen, hot, kind)
        share = np.exp(joint - log_evidence)
        total += share * (hot[0] @ ((A + n) / (A + B + n + N)) @ hot[-1].T)
        weight += share
    assert weight == pytest.approx(1.0)
    return total


@settings(max_examples=40)
@given(cases(most_objects=6))
def test_vb_bound_never_falls_with_hyperparameters_fixed(case):
    run = VariationalRun(case.state(), "vb", rule="fixed")
    last = -np.inf
    for sweep in run.sweeps(0.0):
        assert sweep.bound >= last - 1e-9 * abs(last)
        last = sweep.bound
        if sweep.sweep == 15:
            break


@settings(max_examples=30)
@given(cases(most_objects=3, most_clusters=2), st.floats(0.2, 3.0), st.floats(0.2, 3.0))
def test_vb_bound_is_below_the_evidence_with_one_prior_for_all_blocks(case, a, b):
    priors = Priors(list(case.alpha), np.full_like(case.a, a), np.full_like(case.b, b))
    state = State(case.relation, [q.copy() for q in case.q], priors)
    K = [q.shape[1] for q in case.q]
    exact = reference.truncated_log_evidence(case.X, case.observed, case.kind, a, b, case.alpha, K)
    run = VariationalRun(state, "vb", rule="fixed")
    for sweep in run.sweeps(0.0):
        if run.state.clusters == (K[0], K[-1]):
            assert sweep.bound <= exact + 1e-9
        if sweep.sweep == 10:
            break


@pytest.mark.parametrize("rule", ["newton", "fixed-point"])
@pytest.mark.parametrize("shared", [True, False])
@settings(max_examples=25)
@given(case=cases(most_objects=8))
def test_vb_bound_never_falls_while_hyperparameters_are_learnt(rule, shared, case):
    a, b = float(case.a.flat[0]), float(case.b.flat[0])
    priors = Priors(list(case.alpha), np.full_like(case.a, a), np.full_like(case.b, b), shared)
    state = State(case.relation, [q.copy() for q in case.q], priors)
    run = VariationalRun(state, "vb", rule=rule, wait=0)
    last = -np.inf
    for sweep in run.sweeps(0.0):
        assert sweep.bound >= last - 1e-8 * max(abs(last), 1.0)
        last = sweep.bound
        if sweep.sweep == 20:
            break


@given(cases(most_objects=5))
def test_log_evidence_is_the_joint_at_its_best_hyperparameters(case):
    labels = [np.unique(q.argmax(axis=1), return_inverse=True)[1].astype(np.int32) for q in case.q]
    found = Partition.start(case.relation, labels)

    def joint(a, b, alpha):
        return reference.log_joint(case.X, case.observed, labels, case.kind, a, b, alpha)

    at_best = joint(found.a, found.b, found.alpha)
    assert_allclose(found.log_joint(), at_best, rtol=1e-6, atol=1e-6)
    for factor in (0.8, 1.25):
        assert joint(found.a * factor, found.b, found.alpha) <= at_best + 1e-6
        assert joint(found.a, found.b * factor, found.alpha) <= at_best + 1e-6
        nudged = [alpha * factor for alpha in found.alpha]
        assert joint(found.a, found.b, nudged) <= at_best + 1e-6
