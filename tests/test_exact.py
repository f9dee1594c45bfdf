"""Inference on tiny relations agrees with the enumeration of all partitions."""

from collections.abc import Iterator
from itertools import islice

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.special import softmax
from scipy.stats import chi2

import reference
from coblock.analysis.prediction import fold_in
from coblock.inference.engine import LocalEngine, Schedule
from coblock.inference.gibbs import GibbsSampler, split_and_merge
from coblock.inference.variational import Variational
from coblock.model.hyperparameters import Hyperparameters
from coblock.model.partition import Partition
from coblock.model.relation import BinaryRelation
from coblock.model.result import make_result
from coblock.model.state import SoftState, by_size
from coblock.model.trace import SweepRecord
from strategies import cases

TINY = {
    "bipartite": (np.array([[1, 1, 0], [1, 1, 0], [0, 0, 1.0]]), (3, 3)),
    "directed": (np.array([[0, 1, 0, 0], [1, 0, 0, 1], [0, 0, 0, 1], [0, 1, 1, 0.0]]), (4, 4)),
    "undirected": (np.array([[0, 1, 0, 0], [1, 0, 1, 0], [0, 1, 0, 1], [0, 0, 1, 0.0]]), (4, 4)),
}
A, B, ALPHA = 0.6, 0.8, 1.3
SAMPLES, THINNING = 4000, 4
SEQUENTIAL = LocalEngine(Schedule(1))


def shared_prior(alpha: list[float], a: float, b: float) -> Hyperparameters:
    return Hyperparameters(list(alpha), np.array([a, b]).reshape(2, 1, 1))


def first_sweeps(phase, count: int) -> Iterator[SweepRecord]:
    return islice(phase.sweeps(lambda: 0.0), count)


def observed(kind: str) -> np.ndarray:
    _, shape = TINY[kind]
    seen = np.ones(shape)
    seen[0, 2] = 0.0
    if kind != "bipartite":
        seen[2, 0] = seen[0, 2]
        np.fill_diagonal(seen, 0.0)
    return seen


def canonical(label: np.ndarray) -> tuple[int, ...]:
    """Return labels with the clusters numbered in order of appearance."""
    first = {int(k): at for at, k in reversed(list(enumerate(label)))}
    rank = {k: r for r, k in enumerate(sorted(first, key=first.__getitem__))}
    return tuple(rank[int(k)] for k in label)


def chain_frequencies(kind: str, seed: int) -> dict[tuple, int]:
    X, _ = TINY[kind]
    seen = observed(kind)
    relation = BinaryRelation.build(np.where(seen > 0, X, np.nan), kind=kind)
    labels = [np.zeros(size, dtype=np.int32) for size in relation.sizes]
    partition = Partition(relation, labels, shared_prior([ALPHA] * len(labels), A, B))
    sweeps = 2 * SAMPLES * THINNING
    chain = GibbsSampler(partition, np.random.default_rng(seed), SEQUENTIAL, sweeps, "fixed")
    counts: dict[tuple, int] = {}
    for record in first_sweeps(chain, 100 + SAMPLES * THINNING):
        if record.sweep > 100 and record.sweep % THINNING == 0:
            visited = tuple(canonical(label) for label in partition.labels)
            counts[visited] = counts.get(visited, 0) + 1
    return counts


def p_value(counts: dict[tuple, int], posterior: dict[tuple, float]) -> float:
    """Return the p-value of a chi-square test; rare partitions (expected < 5) are pooled."""
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


def test_splits_and_merges_alone_visit_partitions_as_often_as_the_exact_posterior(seed):
    """No label is drawn alone: every change is an accepted split or merge."""
    X, seen = TINY["bipartite"][0], observed("bipartite")
    relation = BinaryRelation.build(np.where(seen > 0, X, np.nan))
    labels = [np.zeros(size, dtype=np.int32) for size in relation.sizes]
    partition = Partition(relation, labels, shared_prior([ALPHA] * 2, A, B))
    rng, counts = np.random.default_rng(seed), {}
    for sweep in range(SAMPLES * THINNING):
        split_and_merge(partition, rng, None, 2)
        if sweep % THINNING == 0:
            visited = tuple(canonical(label) for label in partition.labels)
            counts[visited] = counts.get(visited, 0) + 1
    right, _ = reference.exact_posterior(X, seen, "bipartite", A, B, [ALPHA] * 2)
    assert p_value(counts, right) > 1e-3
    wrong, _ = reference.exact_posterior(X, seen, "bipartite", A, B, [3 * ALPHA] * 2)
    assert p_value(counts, wrong) < 1e-6  # negative control: another concentration
    blind, _ = reference.exact_posterior(X, np.ones_like(X), "bipartite", A, B, [ALPHA] * 2)
    assert p_value(counts, blind) < 1e-3  # negative control: the unseen cell as a zero


def test_splits_keep_to_the_largest_numbers_of_clusters():
    X = TINY["bipartite"][0]
    labels = [np.zeros(3, dtype=np.int32), np.zeros(3, dtype=np.int32)]
    partition = Partition(BinaryRelation.build(X), labels, shared_prior([ALPHA] * 2, A, B))
    rng, most = np.random.default_rng(0), [0, 0]
    for _ in range(200):
        split_and_merge(partition, rng, (2, 1), 2)
        most = [max(k, int((m > 0).sum())) for k, m in zip(most, partition.m, strict=True)]
    assert most == [2, 1]


@pytest.mark.parametrize("kind", sorted(TINY))
def test_cvb0_is_near_the_exact_posterior(kind):
    """Link probabilities of two clear blocks are within 0.08 of the exact ones, 0.03 on average."""
    X = np.kron(np.eye(2), np.ones((3, 3)))
    seen = np.ones((6, 6)) if kind == "bipartite" else 1.0 - np.eye(6)
    X = X * seen
    relation = BinaryRelation.build(X, kind=kind)
    K = [2] * len(relation.sizes)
    exact = exact_link_probability(X, seen, kind, K)
    start = np.repeat([[0.9, 0.1], [0.1, 0.9]], 3, axis=0)
    state = SoftState(relation, [start.copy() for _ in K], shared_prior([ALPHA] * len(K), A, B))
    run = Variational(state, SEQUENTIAL, "cvb0", rule="fixed")
    for record in first_sweeps(run, 2000):
        if record.change < 1e-9:
            break
    n, N = run.state.blocks.n, run.state.blocks.N
    theta = (A + n) / (A + B + n + N)
    found = run.state.q[0] @ theta @ run.state.q[-1].T
    error = np.abs(found - exact)[seen > 0]
    assert error.max() < 0.08
    assert error.mean() < 0.03
    assert (
        np.abs(X[seen > 0].mean() - exact[seen > 0]).min() > 0.2
    )  # negative control: the overall mean


def exact_link_probability(X, seen, kind, K):
    """Return link probabilities averaged over all labelings under the truncated model."""
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
    run = Variational(case.state(), SEQUENTIAL, "vb", rule="fixed")
    last = -np.inf
    for record in first_sweeps(run, 15):
        assert record.bound >= last - 1e-9 * abs(last)
        last = record.bound


@settings(max_examples=30)
@given(cases(most_objects=3, most_clusters=2), st.floats(0.2, 3.0), st.floats(0.2, 3.0))
def test_vb_bound_is_below_the_evidence_with_one_prior_for_all_blocks(case, a, b):
    state = SoftState(case.relation, [q.copy() for q in case.q], shared_prior(case.alpha, a, b))
    K = [q.shape[1] for q in case.q]
    exact = reference.truncated_log_evidence(case.X, case.observed, case.kind, a, b, case.alpha, K)
    run = Variational(state, SEQUENTIAL, "vb", rule="fixed")
    for record in first_sweeps(run, 10):
        if run.state.blocks.clusters == (K[0], K[-1]):
            assert record.bound <= exact + 1e-9


@pytest.mark.parametrize("rule", ["newton", "fixed-point"])
@pytest.mark.parametrize("shared", [True, False])
@settings(max_examples=25)
@given(case=cases(most_objects=8))
def test_vb_bound_never_falls_while_hyperparameters_are_learnt(rule, shared, case):
    a, b = float(case.a.flat[0]), float(case.b.flat[0])
    hyper = shared_prior(case.alpha, a, b)
    if not shared:
        hyper = hyper.for_each_block(case.a.shape)
    state = SoftState(case.relation, [q.copy() for q in case.q], hyper)
    run = Variational(state, SEQUENTIAL, "vb", rule=rule, hyper_delay=0)
    last = -np.inf
    for record in first_sweeps(run, 20):
        assert record.bound >= last - 1e-8 * max(abs(last), 1.0)
        last = record.bound


@pytest.mark.parametrize("sticks", [False, True])
@given(case=cases(kinds=("bipartite",), most_objects=4), reverse=st.booleans())
def test_new_row_is_folded_in_with_the_prior_of_the_fit(sticks, case, reverse):
    """The last row is new: its memberships follow from the joint with each of its labels."""
    labels = [np.unique(q.argmax(axis=1), return_inverse=True)[1].astype(np.int32) for q in case.q]
    labels[0] = np.unique(labels[0][:-1], return_inverse=True)[1].astype(np.int32)
    assume(labels[0].size > 0)
    labels = [label.max() - label if reverse else label for label in labels]
    K = [int(label.max()) + 1 for label in labels]
    X = np.where(case.observed, case.X, np.nan)
    rows = BinaryRelation.build(X[:-1])
    q = [np.eye(size)[label] for size, label in zip(K, labels, strict=True)]
    hyper = shared_prior(case.alpha, A, B)
    result = make_result(rows, q, hyper, [], converged=True, sticks=sticks)
    found = fold_in(result, BinaryRelation.build(X[-1:]))[0]
    log_joint = []
    for k in range(K[0]):
        several = (case.X, case.observed, [[*labels[0], k], labels[1]], "bipartite", A, B)
        if sticks:
            log_joint.append(reference.truncated_log_joint(*several, case.alpha, K))
        else:
            log_joint.append(reference.log_joint(*several, case.alpha))
    in_order = found[by_size(np.bincount(labels[0])).argsort()]
    assert_allclose(in_order, softmax(log_joint), rtol=1e-8, atol=1e-12)


def test_the_other_prior_gives_new_rows_other_memberships():
    """Negative control for the test above."""
    X, labels = np.eye(4), [np.array([0, 0, 0, 1]), np.array([0, 0, 1, 1])]
    hyper, relation = shared_prior([1.0, 1.0], A, B), BinaryRelation.build(X)
    found = [
        fold_in(
            make_result(
                relation, [np.eye(2)[z] for z in labels], hyper, [], converged=True, sticks=sticks
            ),
            BinaryRelation.build(X[:1]),
        )
        for sticks in (False, True)
    ]
    assert np.abs(found[0] - found[1]).max() > 0.01


@given(cases(most_objects=5))
def test_log_evidence_is_the_joint_at_the_best_hyperparameters(case):
    labels = [np.unique(q.argmax(axis=1), return_inverse=True)[1].astype(np.int32) for q in case.q]
    found = Partition.from_labels(case.relation, labels)
    (a, b), alpha = found.hyper.prior.ravel(), found.hyper.alpha

    def joint(a, b, alpha):
        return reference.log_joint(case.X, case.observed, labels, case.kind, a, b, alpha)

    at_best = joint(a, b, alpha)
    assert_allclose(found.log_joint(), at_best, rtol=1e-6, atol=1e-6)
    for factor in (0.8, 1.25):
        assert joint(a * factor, b, alpha) <= at_best + 1e-6
        assert joint(a, b * factor, alpha) <= at_best + 1e-6
        assert joint(a, b, [factor * each for each in alpha]) <= at_best + 1e-6
