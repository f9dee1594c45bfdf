"""Posterior averaging: samples of chains around the partition found."""

from dataclasses import replace

import numpy as np
import pytest
from calibration import calibration_error, draw_crp
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.metrics import rand_score

import coblock
import reference
from coblock import IRM, Relation
from coblock.analysis.prediction import chain_disagreement, cluster_numbers
from coblock.generate import planted
from coblock.inference import posterior
from coblock.inference.engine import LocalEngine, Schedule
from coblock.inference.gibbs import sample_hyperparameters
from coblock.inference.posterior import PosteriorAverage, PosteriorChains
from coblock.inference.settings import SEARCH
from coblock.model.hyperparameters import Hyperparameters
from coblock.model.partition import Partition
from coblock.model.result import Sample, fraction_apart, match_memberships

TINY = np.array([[1, 1, 0], [1, 1, 0], [0, 0, 1], [0, 1, 1.0]])
A, B, ALPHA = 0.6, 0.8, 1.3
SEQUENTIAL = LocalEngine(Schedule(1))


@pytest.fixture(scope="module")
def weak() -> IRM:
    """Return a default fit of blocks that are hard to tell apart."""
    rng = np.random.default_rng(4)
    row, column = rng.integers(0, 4, 50), rng.integers(0, 3, 40)
    theta = rng.beta(1, 3, (4, 3))[row][:, column]
    return IRM(random_state=0).fit((rng.random(theta.shape) < theta).astype(float))


def labels_of(*labels: list[int]) -> list[np.ndarray]:
    return [np.array(label, dtype=np.int32) for label in labels]


def chains_of(X: np.ndarray, *modes: list[np.ndarray], **options) -> PosteriorChains:
    """Return chains from these labels, with fixed hyperparameters."""
    hyper = Hyperparameters([ALPHA, ALPHA], np.array([A, B]).reshape(2, 1, 1))
    best = Partition(Relation.build(X), modes[0], hyper, fixed=True)
    rng, limits = np.random.default_rng(options.get("seed", 0)), options.get("limits")
    return PosteriorChains.from_modes(best, list(modes[1:]), rng, SEQUENTIAL, limits)


# Memberships in the clusters of the partition found


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), min_size=1, max_size=12))
def test_memberships_are_the_shares_of_the_clusters_found(pairs):
    label, published = (
        np.unique(side, return_inverse=True)[1].astype(np.int32)
        for side in zip(*pairs, strict=True)
    )
    found = match_memberships(label, published)
    for i, k in enumerate(label):
        expected = np.bincount(published[label == k], minlength=published.max() + 1)
        assert_allclose(found[i], expected / expected.sum())


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), min_size=2, max_size=12))
def test_the_fraction_of_pairs_apart_is_that_of_the_rand_index(pairs):
    label, other = (np.array(side, dtype=np.int32) for side in zip(*pairs, strict=True))
    assert_allclose(fraction_apart(label, other), 1.0 - rand_score(label, other), atol=1e-12)
    assert fraction_apart(label, label) == 0.0


def test_a_split_changes_no_membership_and_a_merger_does():
    published = labels_of([0, 0, 0, 1, 1])[0]
    assert_array_equal(
        match_memberships(labels_of([0, 2, 0, 1, 1])[0], published).argmax(1), published
    )
    split = match_memberships(labels_of([0, 2, 0, 1, 1])[0], published)
    assert_array_equal(split, np.eye(2)[published])
    assert_allclose(match_memberships(labels_of([0, 0, 0, 0, 0])[0], published)[0], [0.6, 0.4])


# Chains


def exact_averages(X: np.ndarray, alpha: float) -> dict[str, np.ndarray]:
    """Return posterior averages over all partitions of a tiny relation, which may have gaps."""
    seen = ~np.isnan(X)
    X = np.where(seen, X, 0.0)
    exact, _ = reference.exact_posterior(X, seen.astype(float), "bipartite", A, B, [alpha, alpha])
    total: dict[str, np.ndarray] = {}
    for labels, p in exact.items():
        hot = [np.eye(max(label) + 1)[list(label)] for label in labels]
        n, N = reference.counts(X, seen.astype(float), hot, "bipartite")
        terms = {
            "rows": hot[0] @ hot[0].T,
            "columns": hot[1] @ hot[1].T,
            "clusters": np.eye(5)[hot[0].shape[1]],
            "cells": hot[0] @ ((A + n) / (A + B + n + N)) @ hot[1].T,
        }
        total = {name: total.get(name, 0.0) + p * term for name, term in terms.items()}
    return total


@pytest.mark.parametrize("proposals", [0, 3])
def test_averages_of_chains_converge_to_the_exact_posterior(monkeypatch, proposals):
    """Pairs, numbers of clusters and predictions, with and without splits and merges."""
    more = {"most_chained": 2400, "chain_visits": 10**9, "chain_tol": 0.0, "sweeps_per_sample": 2}
    new = replace(SEARCH, **more, cluster_proposals=proposals)
    monkeypatch.setattr(posterior, "SEARCH", new)
    X = TINY.copy()
    X[0, 2] = np.nan
    chains = chains_of(X, labels_of([0, 0, 1, 1], [0, 0, 1]), labels_of([0] * 4, [0] * 3))
    for _ in chains.sweeps(lambda: 0.0):
        pass
    rows, columns = ([sample.labels[d] for sample in chains.samples] for d in (0, 1))
    found = {
        "rows": np.mean([label[:, None] == label for label in rows], axis=0),
        "columns": np.mean([label[:, None] == label for label in columns], axis=0),
        "clusters": np.mean([np.eye(5)[np.unique(label).size] for label in rows], axis=0),
        "cells": np.mean(
            [s.probability[s.labels[0]][:, s.labels[1]] for s in chains.samples], axis=0
        ),
    }
    assert len(rows) == 2400
    right, wrong = exact_averages(X, ALPHA), exact_averages(X, 3 * ALPHA)
    for name, average in right.items():
        assert_allclose(found[name], average, atol=0.05, err_msg=name)
    apart = {name: np.abs(found[name] - average).max() for name, average in wrong.items()}
    assert min(apart["rows"], apart["columns"], apart["clusters"]) > 0.1, "another concentration"
    partition = (np.array([0, 0, 1, 1])[:, None] == np.array([0, 0, 1, 1])).astype(float)
    assert np.abs(partition - right["rows"]).max() > 0.2, "the partition alone is no posterior"


def test_samples_predict_with_their_own_hyperparameters():
    X = planted((30, 20), (3, 2), random_state=0).X
    partition = Partition.from_labels(Relation.build(X), labels_of([0] * 30, [0] * 20))
    at = partition.blocks
    for prior in ((0.5, 2.0), (30.0, 1.0)):
        partition.hyper.prior = np.reshape(prior, (2, 1, 1))
        a, b = prior
        expected = (a + at.n) / (a + b + at.n + at.N)
        assert_allclose(Sample.of(partition).probability, expected)


def test_a_chain_that_does_not_move_is_not_an_average():
    chains = chains_of(TINY, labels_of([0] * 4, [0] * 3), limits=(1, 1))
    records = list(chains.sweeps(lambda: 0.0))
    assert all(record.moved == 0.0 for record in records)
    assert chains.samples
    assert chains.outcome().samples == []
    moving = chains_of(TINY, labels_of([0] * 4, [0] * 3))
    assert max(record.moved for record in moving.sweeps(lambda: 0.0)) > 0.0
    assert len(moving.outcome().samples) == len(moving.samples) > 0


def test_fixed_hyperparameters_are_not_sampled():
    partition = chains_of(TINY, labels_of([0, 0, 1, 1], [0, 0, 1])).partition
    before = partition.hyper.prior.copy(), list(partition.hyper.alpha)
    sample_hyperparameters(partition, np.random.default_rng(0))
    assert_array_equal(partition.hyper.prior, before[0])
    assert partition.hyper.alpha == before[1]
    partition.fixed = False
    sample_hyperparameters(partition, np.random.default_rng(0))
    assert partition.hyper.alpha != before[1]
    assert (partition.hyper.prior != before[0]).all()


def test_a_fit_whose_averages_have_not_settled_has_not_converged(monkeypatch):
    X = planted((30, 20), (3, 2), random_state=0).X
    few = replace(SEARCH, most_chained=SEARCH.least_samples, average_tol=1e-9)
    for settings, converged in ((few, False), (SEARCH, True)):
        monkeypatch.setattr(posterior, "SEARCH", settings)
        assert IRM(random_state=0).fit(X).converged_ is converged


def test_averages_in_batches_report_the_change_of_the_average():
    relation = Relation.build(TINY)
    partition = Partition.from_labels(relation, labels_of([0, 0, 1, 1], [0, 0, 1]))
    phase = PosteriorAverage(partition, np.random.default_rng(0), LocalEngine(Schedule(2)))
    before = None
    for record in phase.sweeps(lambda: 0.0):
        q = phase.outcome().memberships
        if phase.samples > 1:
            expected = max(
                np.abs(new - old).sum() / len(new) for old, new in zip(before, q, strict=True)
            )
            assert record.change == pytest.approx(expected, abs=1e-15)
        before = q
    assert phase.converged is (phase.change < SEARCH.average_tol)


# What a fit says


def test_predictions_average_over_the_samples(weak):
    samples, rows, columns = weak.result_.samples, np.arange(50)[:, None], np.arange(40)
    expected = np.mean([s.probability[s.labels[0]][:, s.labels[1]] for s in samples], axis=0)
    assert len({sample.chain for sample in samples}) > 1
    assert_allclose(weak.link_probability(rows, columns), expected, rtol=1e-12)
    alone = weak.block_probability_[weak.row_labels_][:, weak.column_labels_]
    assert np.abs(alone - expected).max() > 0.01


def test_pairs_share_a_cluster_as_often_as_in_the_samples(weak):
    for columns, d in ((False, 0), (True, 1)):
        labels = [sample.labels[d] for sample in weak.result_.samples]
        expected = np.mean([label[:, None] == label for label in labels], axis=0)
        at = np.arange(len(expected))
        found = weak.same_cluster_probability(at[:, None], at, columns=columns)
        assert_allclose(found, expected)
    assert_allclose(np.diag(found), 1.0)


def test_pairs_without_samples_have_independent_memberships():
    model = IRM(inference="cvb0", random_state=0).fit(TINY)
    q, at = model.row_membership_, np.arange(4)
    expected = q @ q.T
    np.fill_diagonal(expected, 1.0)
    assert_allclose(model.same_cluster_probability(at[:, None], at), expected)


def test_numbers_of_clusters_and_disagreement(weak):
    for numbers, d in zip(weak.cluster_numbers_, (0, 1), strict=True):
        found = [np.unique(sample.labels[d]).size for sample in weak.result_.samples]
        assert sum(numbers.values()) == pytest.approx(1.0)
        assert numbers[found[0]] == found.count(found[0]) / len(found)
    assert 0.0 < weak.chain_disagreement_ < 1.0
    one = [sample for sample in weak.result_.samples if sample.chain == 0]
    assert chain_disagreement(replace(weak.result_, samples=one)) is None
    same = [replace(sample, chain=c) for sample in one for c in (0, 1)]
    assert chain_disagreement(replace(weak.result_, samples=same)) == pytest.approx(0.0)
    assert cluster_numbers(replace(weak.result_, samples=[]))[0] == {
        weak.block_probability_.shape[0]: 1.0
    }


def test_blocks_of_a_fit_with_samples_are_those_of_its_labels(weak):
    exact = Partition.from_labels(weak.result_.relation, [z.copy() for z in weak.result_.labels])
    assert_array_equal(weak.block_links_, exact.blocks.n)
    assert weak.log_evidence_ == exact.log_joint()


def test_samples_and_chains_are_saved(weak, tmp_path):
    weak.save(tmp_path / "model")
    found = coblock.load(tmp_path / "model")
    assert [s.chain for s in found.result_.samples] == [s.chain for s in weak.result_.samples]
    assert found.chain_disagreement_ == weak.chain_disagreement_
    assert found.trace_[-1]["moved"] == weak.trace_[-1]["moved"]
    assert found.summary() == weak.summary()
    assert "sampled partitions" in weak.summary()


def test_certainty_is_calibrated_and_that_of_one_partition_is_not():
    said, hard, true = [], [], []
    one, other = np.triu_indices(60, 1)
    for seed in range(6):
        rng = np.random.default_rng(seed)
        row, column = draw_crp(60, rng), draw_crp(50, rng)
        theta = rng.beta(4, 12, (60, 50))[row][:, column]
        model = IRM(random_state=0).fit((rng.random(theta.shape) < theta).astype(float))
        said.append(model.same_cluster_probability(one, other))
        hard.append(model.row_labels_[one] == model.row_labels_[other])
        true.append(row[one] == row[other])
    said, hard, true = map(np.concatenate, (said, hard, true))
    of_samples, of_partition = (calibration_error(x.astype(float), true) for x in (said, hard))
    assert of_samples < 0.15
    assert of_partition > 0.3
