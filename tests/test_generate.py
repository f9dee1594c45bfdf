"""Drawn relations: they follow the distribution of the model, and report the truth."""

from collections import Counter

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import chisquare

import reference
from coblock.generate import (
    Drawn,
    draw_clusters,
    draw_crp,
    draw_relation,
    draw_sticks,
    generate,
    planted,
    synth1,
    synth2,
)

UNLIKELY = 1e-4  # p-value: a correct sampler fails for one of ten thousand seeds


def p_value(drawn: list[tuple[int, ...]], probability: dict[tuple[int, ...], float]) -> float:
    """Return the p-value of the chi-square test that draws have these probabilities."""
    counts = Counter(drawn)
    assert set(counts) <= set(probability)
    expected = np.array(list(probability.values())) * len(drawn)
    return chisquare([counts[key] for key in probability], expected).pvalue


@pytest.mark.parametrize("alpha", [0.4, 1.0, 3.0])
def test_crp_draws_partitions_with_their_probabilities(alpha, seed):
    rng = np.random.default_rng(seed)
    drawn = [tuple(draw_crp(4, alpha, rng)) for _ in range(4000)]
    probability = {
        z: float(np.exp(reference.crp_log_probability(z, alpha))) for z in reference.partitions(4)
    }
    assert sum(probability.values()) == pytest.approx(1.0)
    assert p_value(drawn, probability) > UNLIKELY


def test_the_chi_square_test_notices_another_concentration(seed):
    """Negative control."""
    rng = np.random.default_rng(seed)
    drawn = [tuple(draw_crp(4, 1.3, rng)) for _ in range(4000)]
    probability = {
        z: float(np.exp(reference.crp_log_probability(z, 1.0))) for z in reference.partitions(4)
    }
    assert p_value(drawn, probability) < UNLIKELY


@pytest.mark.parametrize("alpha", [0.4, 2.0])
def test_sticks_draw_labels_with_their_probabilities(alpha, seed):
    rng = np.random.default_rng(seed)
    drawn = [tuple(draw_sticks(3, alpha, 3, rng)) for _ in range(4000)]
    probability = {}
    for (z,) in reference.labelings([3], [3]):
        m = np.bincount(z, minlength=3)
        probability[z] = float(np.exp(reference.stick_log_probability(m, alpha)))
    assert sum(probability.values()) == pytest.approx(1.0)
    assert p_value(drawn, probability) > UNLIKELY


def test_one_stick_is_one_cluster():
    assert_array_equal(draw_sticks(5, 1.0, 1, np.random.default_rng(0)), 0)


@pytest.mark.parametrize(("size", "clusters"), [(10, 1), (10, 10), (101, 4), (7, 3)])
def test_planted_clusters_are_complete_and_none_is_tiny(size, clusters):
    for number in range(20):
        labels = draw_clusters(size, clusters, np.random.default_rng(number))
        sizes = np.bincount(labels)
        assert (labels.size, sizes.size) == (size, clusters)
        assert sizes.min() >= max(size // (2 * clusters), 1)


def test_links_follow_their_block_probabilities():
    drawn = synth2(random_state=0)
    dense, K = drawn.X.toarray(), drawn.probability.shape
    assert dense.shape == (1000, 1500)
    assert set(np.unique(dense)) == {0.0, 1.0}
    for k in range(K[0]):
        for l in range(K[1]):
            block = dense[np.ix_(drawn.row_labels == k, drawn.column_labels == l)]
            p = drawn.probability[k, l]
            deviation = np.sqrt(p * (1.0 - p) / block.size) + 1e-9
            assert abs(block.mean() - p) < 5.0 * deviation


def test_block_probabilities_follow_their_prior(seed):
    """Mean and variance of many blocks are those of the Beta distribution."""
    rng = np.random.default_rng(seed)
    labels = np.arange(60, dtype=np.int32)
    theta = draw_relation(labels, labels, rng, link_prior=(2.0, 6.0)).probability
    assert theta.mean() == pytest.approx(0.25, abs=0.01)
    assert theta.var() == pytest.approx(0.25 * 0.75 / 9.0, rel=0.15)


@pytest.mark.parametrize(
    ("draw", "shape", "clusters"), [(synth1, (100, 200), (4, 5)), (synth2, (1000, 1500), (7, 6))]
)
def test_relations_of_the_paper_have_their_sizes(draw, shape, clusters):
    drawn = draw(random_state=1)
    assert (drawn.X.shape, drawn.probability.shape) == (shape, clusters)
    found = np.unique(drawn.row_labels).size, np.unique(drawn.column_labels).size
    assert found == clusters


def assert_same(left: Drawn, right: Drawn) -> None:
    assert_array_equal(left.X.toarray(), right.X.toarray())
    assert_array_equal(left.row_labels, right.row_labels)
    assert_array_equal(left.column_labels, right.column_labels)
    assert_array_equal(left.probability, right.probability)


@pytest.mark.parametrize("process", ["crp", "sticks"])
def test_the_same_seed_draws_the_same_relation(process):
    drawn = generate(40, 30, process=process, random_state=4)
    assert_same(drawn, generate(40, 30, process=process, random_state=4))
    other = generate(40, 30, process=process, random_state=5)
    assert (drawn.X != other.X).nnz > 0
    assert_same(planted((20, 10), (2, 3), 7), planted((20, 10), (2, 3), 7))


@pytest.mark.parametrize("process", ["crp", "sticks"])
@pytest.mark.parametrize("alpha", [0.1, 1.0, 20.0])
def test_labels_have_no_gaps(process, alpha):
    drawn = generate(50, 35, alpha=alpha, process=process, random_state=2)
    for label, K in zip(
        (drawn.row_labels, drawn.column_labels), drawn.probability.shape, strict=True
    ):
        assert_array_equal(np.unique(label), np.arange(K))
    assert drawn.X.shape == (50, 35)


def test_sticks_are_truncated():
    few, many = (
        generate(200, 200, alpha=20.0, process="sticks", max_clusters=most, random_state=0)
        for most in (3, 60)
    )
    assert max(few.probability.shape) <= 3 < min(many.probability.shape)


def test_one_cell():
    assert generate(1, 1, random_state=0).X.shape == (1, 1)


def test_log_likelihood_of_the_truth():
    drawn = planted((30, 20), (3, 2), 0)
    rows, columns = np.indices((30, 20)).reshape(2, -1)
    values = drawn.X.toarray().ravel()
    p = drawn.probability[drawn.row_labels][:, drawn.column_labels].ravel()
    expected = np.mean(values * np.log(p) + (1 - values) * np.log1p(-p))
    assert_allclose(drawn.log_likelihood(rows, columns, values), expected, rtol=1e-12)
    assert_allclose(drawn.log_likelihood(rows, columns, values > 0), expected, rtol=1e-12)
    assert drawn.log_likelihood(rows, columns, 1 - values) < expected


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        ({"rows": 0}, ValueError, "rows must be at least 1, but is 0"),
        ({"columns": -2}, ValueError, "columns must be at least 1, but is -2"),
        ({"rows": 2.5}, TypeError, "rows must be a whole number, but is 2.5"),
        ({"alpha": -1.0}, ValueError, "alpha must be .* but is -1"),
        ({"alpha": "much"}, TypeError, "alpha must be a number, but is 'much'"),
        ({"alpha": 0.0, "process": "sticks"}, ValueError, "alpha"),
        ({"process": "urn"}, ValueError, "process must be one of 'crp', 'sticks', but is 'urn'"),
        ({"max_clusters": 0, "process": "sticks"}, ValueError, "max_clusters must be at least 1"),
        ({"link_prior": (0.0, 1.0)}, ValueError, "link_prior"),
    ],
)
def test_wrong_settings_are_refused(settings, error, words):
    with pytest.raises(error, match=words):
        generate(**({"rows": 5, "columns": 4} | settings))


def test_more_clusters_than_objects_are_refused():
    """The numbers of clusters are exact."""
    with pytest.raises(ValueError, match="5"):
        planted((3, 8), (5, 2), 0)
