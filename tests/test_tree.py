"""Test the tree of blocks: losses against recomputed evidence, cuts, order and speed."""

from time import perf_counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.metrics import adjusted_rand_score

from coblock import IRM, Relation
from coblock.analysis import tree as module
from coblock.analysis.tree import Tree, build_tree, cut_result, degree_merges, degree_partition
from coblock.datasets import load_senate
from coblock.kernels.tree import add_merge_changes
from coblock.model.partition import Partition, numbered
from coblock.model.result import Result
from fabricated import large_result, one_domain_result, small_result
from test_explain import KINDS, drawn_result


def evidence_at(tree: Tree, level: int) -> float:
    """Return the evidence after some merges, recounted, at the hyperparameters of the result."""
    result = tree.result
    found = Partition.from_labels(result.relation, [label.copy() for label in result.labels])
    labels = tree.labels(tree.clusters_at(level))
    merged = [new[label] for new, label in zip(labels, result.labels, strict=True)]
    return Partition(result.relation, merged, found.hyper.copy(), True).log_joint()


def best_gain(tree: Tree, level: int) -> float:
    """Return the largest gain of all merges that are possible after some merges."""
    now, gains = evidence_at(tree, level), []
    result = tree.result
    hyper = Partition.from_labels(result.relation, [z.copy() for z in result.labels]).hyper
    labels = [
        new[label]
        for new, label in zip(tree.labels(tree.clusters_at(level)), result.labels, strict=True)
    ]
    for d, label in enumerate(labels):
        for k in range(label.max() + 1):
            for g in range(k + 1, label.max() + 1):
                fresh = [z.copy() for z in labels]
                fresh[d][label == g] = k
                joined = Partition(result.relation, fresh, hyper.copy(), True)
                gains.append(joined.log_joint() - now)
    return max(gains)


@settings(max_examples=25, deadline=None)
@given(kind=st.sampled_from(KINDS), seed=st.integers(0, 2**32 - 1), own=st.booleans())
def test_losses_equal_recomputed_evidence_and_are_the_least(kind, seed, own):
    result = drawn_result(kind, seed, self_links=own and kind == "directed")
    tree = build_tree(result)
    assert len(tree.merges) == sum(int(label.max()) for label in result.labels)
    evidence = [evidence_at(tree, level) for level in range(len(tree.merges) + 1)]
    losses = [each.loss for each in tree.merges]
    assert_allclose(-np.diff(evidence), losses, rtol=1e-8, atol=1e-8)
    for level, loss in enumerate(losses):
        assert -loss == pytest.approx(best_gain(tree, level), abs=1e-8)


def test_losses_without_the_updates_are_wrong(monkeypatch):
    """Negative control: gains that other merges have changed must be renewed."""
    result = drawn_result("bipartite", 5)
    right = [each.loss for each in build_tree(result).merges]
    monkeypatch.setattr(module, "add_merge_changes", lambda *_: None)
    wrong = [each.loss for each in build_tree(result).merges]
    assert len(right) == len(wrong) > 2
    assert not np.allclose(sorted(right), sorted(wrong))


def test_changes_of_gains_equal_their_definition():
    rng = np.random.default_rng(1)
    n, N = rng.integers(0, 9, (2, 5)).astype(float), rng.integers(0, 9, (2, 5)).astype(float)
    rest, gains = np.array([0, 2, 3, 5, 6]), np.zeros((7, 7))
    add_merge_changes(n, N, 0.4, 0.7, rest, gains)
    from scipy.special import betaln

    def value(links, others):
        return betaln(0.4 + links, 0.7 + others) - betaln(0.4, 0.7)

    def joint(line_n, line_N, s, t):
        both = value(line_n[s] + line_n[t], line_N[s] + line_N[t])
        return both - value(line_n[s], line_N[s]) - value(line_n[t], line_N[t])

    for s in range(5):
        for t in range(s + 1, 5):
            expected = joint(n.sum(axis=0), N.sum(axis=0), s, t)
            expected -= joint(n[0], N[0], s, t) + joint(n[1], N[1], s, t)
            assert gains[rest[s], rest[t]] == pytest.approx(expected, abs=1e-10)
    assert (gains[1] == 0).all()
    assert (np.tril(gains) == 0).all()


@pytest.mark.parametrize("kind", KINDS)
def test_cuts_are_nested_and_end_with_one_cluster(kind):
    result = small_result() if kind == "bipartite" else one_domain_result(kind)
    tree = build_tree(result)
    assert tree.cut(1).clusters == (1,) * len(result.labels)
    whole = tree.cut(level=0)
    assert whole.log_evidence == pytest.approx(result.log_evidence, rel=1e-9)
    assert_array_equal(whole.labels[0], np.arange(3))
    for level in range(len(tree.merges)):
        fine, coarse = tree.cut(level=level), tree.cut(level=level + 1)
        for before, after in zip(fine.labels, coarse.labels, strict=True):
            pairs = set(zip(before.tolist(), after.tolist(), strict=True))
            assert len(pairs) == len(set(before.tolist()))
        assert sum(fine.clusters) == sum(coarse.clusters) + 1
    if kind == "bipartite":
        assert tree.cut((3, 1)).clusters == (3, 1)
        assert tree.cut(99).clusters == (3, 2)


@pytest.mark.parametrize("wrong", [0, (2, 2, 2), (1, 0)])
def test_wrong_cuts_are_refused(wrong):
    with pytest.raises(ValueError, match="A cut needs"):
        build_tree(small_result()).cut(wrong)


def test_wrong_levels_are_refused():
    tree = build_tree(small_result())
    with pytest.raises(ValueError, match="level must be from 0 to 3, but is 9"):
        tree.cut(level=9)
    with pytest.raises(ValueError, match="either a number of clusters or a level"):
        tree.cut()


def test_subtrees_stand_together():
    result = large_result(30, (600, 400), (40, 30))
    tree = build_tree(result)
    for d, order in enumerate(tree.order):
        assert_array_equal(np.sort(order), np.arange(order.size))
        for clusters in (2, 5, 11):
            label = tree.labels((clusters,) * 2)[d][order]
            assert (np.diff(label) != 0).sum() == clusters - 1


def test_the_result_of_a_cut_has_merged_memberships():
    result = small_result()
    tree = build_tree(result)
    cut = cut_result(result, tree.cut((2, 2)))
    assert cut.n_clusters == (2, 2)
    assert cut.log_evidence == pytest.approx(tree.cut((2, 2)).log_evidence, rel=1e-9)
    assert_allclose(cut.memberships[0].sum(axis=1), 1.0)
    sizes = np.bincount(cut.labels[0])
    assert sizes[0] >= sizes[1]
    assert cut.n.sum() == pytest.approx(result.n.sum())


def test_many_clusters_are_merged_by_near_pairs_first(monkeypatch):
    result = large_result(30, (600, 400), (60, 50))
    exact = build_tree(result)
    monkeypatch.setattr(module, "MOST_COMPARED", 20)
    tree = build_tree(result)
    assert len(tree.merges) == len(exact.merges) == 108
    evidence = [evidence_at(tree, level) for level in (0, 5, 30, 70, 108)]
    total = np.append(0.0, np.cumsum([each.loss for each in tree.merges]))
    assert_allclose(evidence[0] - np.array(evidence), total[[0, 5, 30, 70, 108]], rtol=1e-6)


def test_500_x_500_clusters_take_seconds():
    build_tree(small_result())  # compiles
    result = large_result(10, (2_000, 2_000), (500, 500))
    start = perf_counter()
    tree = build_tree(result)
    assert perf_counter() - start < 30.0  # 6 seconds on two shared cores
    assert len(tree.merges) == 998


@pytest.mark.slow
@pytest.mark.usefixtures("short_chains")
def test_two_clusters_of_senators_are_the_parties():
    votes = load_senate()
    model = IRM(random_state=0).fit(votes.values[:, ::10])
    label = model.tree().cut((2, 99)).labels[0][model.row_labels_]
    parties = np.array(votes.parties)
    same = [np.mean((label == k) == (parties == "R")) for k in (0, 1)]
    assert max(same) > 0.9


def test_a_relation_with_one_cluster_has_a_tree_without_merges():
    result: Result = drawn_result("bipartite", 0)
    one = cut_result(result, build_tree(result).cut(1))
    tree = build_tree(one)
    assert tree.merges == []
    assert tree.shown_levels() == [0]
    assert [order.tolist() for order in tree.order] == [[0], [0]]


@pytest.mark.parametrize("kind", ["undirected", "directed", "bipartite"])
def test_merges_of_a_degree_corrected_result_lose_what_its_evidence_says(kind):
    rng = np.random.default_rng(3)
    X = (rng.random((24, 24)) < 0.3).astype(float)
    X = np.triu(X, 1) + np.triu(X, 1).T if kind == "undirected" else X * (1 - np.eye(24))
    relation = Relation.build(X, kind=kind)
    labels = [(np.arange(24) % (5 - d)).astype(np.int32) for d in range(len(relation.sizes))]
    partition = degree_partition(relation, labels)
    steps = degree_merges(relation, labels)
    assert len(steps) == sum(int(label.max()) for label in labels)
    for d in range(len(labels)):
        merged, before = partition.copy(), partition.log_joint()
        for at, first, second, loss in steps:
            if at != d:
                continue
            merged.labels[d][merged.labels[d] == second] = first
            numbered_again = merged.copy()
            numbered_again.labels = numbered(numbered_again.labels)
            after = numbered_again.log_joint()
            assert_allclose(before - after, loss, atol=1e-8)
            before = after


def test_a_degree_corrected_tree_is_cut_by_the_corrected_evidence():
    rng = np.random.default_rng(0)
    side, pull = np.arange(80) % 2, rng.gamma(1.0, size=80)
    rate = np.where(side[:, None] == side, 0.5, 0.03) * np.outer(pull, pull)
    X = np.triu(rng.random((80, 80)) < 1 - np.exp(-rate), 1).astype(float)
    model = IRM("undirected", degree_corrected=True, random_state=0).fit(X + X.T)
    tree = model.tree()
    assert_allclose(tree.cut(level=0).log_evidence, model.log_evidence_, rtol=2e-3)
    linked = (X + X.T).sum(axis=1) > 3
    label = tree.cut(2).labels[0][model.row_labels_]
    assert adjusted_rand_score(side[linked], label[linked]) > 0.8


@pytest.mark.usefixtures("short_chains")
def test_cuts_are_compared_with_direct_fits():
    X = np.kron(np.eye(4), np.ones((6, 5)))
    X[:12, :10] = 1.0
    model = IRM(random_state=0).fit(X)
    (found,) = model.compare_cuts([2])
    assert found["cut"] == found["direct"] == (2, 2)
    assert found["cut_log_evidence"] == pytest.approx(model.tree().cut(2).log_evidence)
    assert found["direct_log_evidence"] <= model.log_evidence_
