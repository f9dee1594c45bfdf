"""Test how cells are held out and scored."""

import warnings
from dataclasses import astuple, replace
from time import process_time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, UndefinedMetricWarning

from coblock import IRM, Relation
from coblock.analysis.evaluation import evaluate, hold_out, score, score_baselines
from coblock.analysis.held_out import MAX_HELD, sample_held_out, without_cells
from coblock.generate import planted
from strategies import cases


@given(
    rows=st.integers(1, 8),
    columns=st.integers(1, 8),
    density=st.sampled_from([0.0, 0.3, 1.0]),
    share=st.floats(0.0, 1.0),
    seed=st.integers(0, 2**32 - 1),
)
def test_hold_out_splits_the_matrix(rows, columns, density, share, seed):
    X = (np.random.default_rng(seed).random((rows, columns)) < density).astype(float)
    held = hold_out(sparse.csr_array(X), share, random_state=seed)
    taken = np.zeros(X.shape, dtype=bool)
    taken[held.rows, held.columns] = True
    assert taken.sum() == held.rows.size == round(share * X.size)  # no cell twice
    assert_array_equal(held.unseen.toarray() != 0, taken)
    assert held.unseen.nnz == held.rows.size
    assert_array_equal(held.X.toarray(), np.where(taken, 0.0, X))
    assert held.X.nnz == np.count_nonzero(held.X.toarray())
    assert_array_equal(held.values, X[held.rows, held.columns] > 0)
    assert held.values.dtype == bool
    relation = Relation.build(held.X, unseen=held.unseen)
    assert relation.n_unseen == held.rows.size


@pytest.mark.parametrize("name", ["csr", "csc", "coo", "lil"])
def test_all_formats_give_the_same_cells(name):
    X = planted((12, 9), (2, 2), 0).X
    first, second = hold_out(X.asformat(name), 0.3, 1), hold_out(X.toarray(), 0.3, 1)
    assert_array_equal(first.X.toarray(), second.X.toarray())
    assert_array_equal(first.rows, second.rows)
    assert_array_equal(first.values, second.values)


def test_the_input_is_not_modified():
    X = planted((12, 9), (2, 2), 0).X
    before = X.toarray()
    hold_out(X, 0.5, 0)
    assert_array_equal(X.toarray(), before)


def test_the_seed_determines_the_cells():
    X = sparse.eye_array(20, format="csr")
    one, same, other = (hold_out(X, 0.1, seed) for seed in (3, 3, 4))
    assert_array_equal(one.rows, same.rows)
    assert_array_equal(one.columns, same.columns)
    assert not (np.array_equal(one.rows, other.rows) and np.array_equal(one.columns, other.columns))


def test_every_cell_is_equally_likely_to_be_held_out(seed):
    X, draws = sparse.csr_array((6, 5)), 3000
    counts = np.zeros((6, 5))
    for number in range(draws):
        held = hold_out(X, 0.2, random_state=1_000_000 * seed + number)
        counts[held.rows, held.columns] += 1.0
    deviation = np.sqrt(draws * 0.2 * 0.8)
    assert np.abs(counts - 0.2 * draws).max() < 4.5 * deviation


@pytest.mark.parametrize(
    ("share", "error"),
    [(1.5, ValueError), (-0.1, ValueError), (np.nan, ValueError), ("some", TypeError)],
)
def test_invalid_shares_are_refused(share, error):
    with pytest.raises(error, match="share"):
        hold_out(sparse.eye_array(4, format="csr"), share)


def test_unseen_cells_cannot_be_held_out():
    """An unseen cell has no true value; to score it as a zero would be wrong."""
    X = np.array([[np.nan, 1.0, 0.0], [0.0, np.nan, 1.0]])
    with pytest.raises(ValueError, match="2 cells are NaN"):
        hold_out(X, 1.0, random_state=0)


def test_hold_out_keeps_the_values_of_the_matrix():
    X = 3.0 * planted((12, 9), (2, 2), 0).X
    held = hold_out(X, 0.3, random_state=0)
    expected = X.toarray()
    expected[held.rows, held.columns] = 0.0
    assert_array_equal(held.X.toarray(), expected)


def test_a_fit_predicts_held_out_cells_better_than_the_density_does():
    drawn = planted((60, 50), (3, 3), 2)
    held = hold_out(drawn.X, 0.1, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = IRM(max_clusters=8, n_init=3, max_iter=100, random_state=0)
        model.fit(held.X, unseen=held.unseen)
    score = model.score_links(held.rows, held.columns, held.values)
    density = held.X.nnz / (3000 - held.rows.size)
    share = held.values.mean()
    by_density = share * np.log(density) + (1.0 - share) * np.log(1.0 - density)
    oracle = drawn.log_likelihood(held.rows, held.columns, held.values)
    assert by_density + 0.1 < score < oracle + 0.02


# Relations


def cells_of(relation):
    """Return dense values, NaN for unseen cells; undirected pairs above the diagonal only."""
    values = np.zeros(relation.shape)
    place = relation.incidence[0][0]
    rows = np.arange(relation.shape[0])
    values[np.repeat(rows, np.diff(place.link_start)), place.link] = 1.0
    values[np.repeat(rows, np.diff(place.unseen_start)), place.unseen] = np.nan
    if relation.repeated:
        np.fill_diagonal(values, np.nan)
    if relation.kind == "undirected":
        values[np.tril_indices(len(values))] = np.nan
    return values


@settings(max_examples=150)
@given(case=cases(most_objects=8), share=st.floats(0.05, 0.95), largest=st.sampled_from([4, 10**6]))
def test_held_out_cells_and_the_rest_make_the_relation(case, share, largest):
    whole = cells_of(case.relation)
    observed = np.isfinite(whole)
    wanted = round(share * observed.sum())
    if wanted in {0, observed.sum()}:
        with pytest.raises(ValueError, match="Choose another share"):
            sample_held_out(case.relation, share, np.random.default_rng(0), largest=largest)
        return
    held = sample_held_out(case.relation, share, np.random.default_rng(0), largest=largest)
    left = without_cells(case.relation, held)
    assert held.sampled == (wanted > largest)
    assert held.rows.size <= largest
    assert held.sampled or held.rows.size == wanted
    taken = np.zeros(whole.shape, dtype=bool)
    taken[held.rows, held.columns] = True
    assert taken.sum() == held.rows.size  # no cell twice
    assert observed[taken].all()
    assert_array_equal(held.values, whole[held.rows, held.columns] == 1.0)
    assert_array_equal(cells_of(left), np.where(taken, np.nan, whole))
    assert_array_equal(left.own_seen, case.relation.own_seen)
    if not held.sampled:
        assert held.weights is None
        assert held.odds == 1.0


def test_four_billion_cells_are_sampled_in_seconds():
    """The limit leaves room for slow machines; an earlier implementation took minutes."""
    rows, columns, rng = 200_000, 20_000, np.random.default_rng(0)
    cells = np.sort(rng.integers(rows * columns, size=200_000))
    X = sparse.csr_array((np.ones(cells.size), np.divmod(cells, columns)), shape=(rows, columns))
    relation = Relation.build(X)
    began = process_time()
    held = sample_held_out(relation, 0.1, rng)
    left = without_cells(relation, held)
    assert process_time() - began < 20.0
    assert held.sampled
    assert held.rows.size == left.n_unseen == MAX_HELD
    assert held.values.sum() == relation.n_links // 10
    assert left.n_links == relation.n_links - relation.n_links // 10
    assert_allclose(held.weights.sum(), 0.1 * rows * columns)


def test_weights_sum_to_the_whole_share():
    X = planted((40, 30), (2, 2), 0).X
    links = X.nnz
    held = sample_held_out(Relation.build(X), 0.2, np.random.default_rng(0), largest=150)
    assert held.rows.size == 150
    assert_allclose(held.weights[held.values].sum(), 0.2 * links)
    assert_allclose(held.weights[~held.values].sum(), 0.2 * (1200 - links))


def test_samples_are_drawn_uniformly(seed):
    X = np.array([[1.0, 0.0, np.nan, 0.0], [0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 1.0]])
    relation, draws = Relation.build(X), 1000
    rng = np.random.default_rng(seed)
    for largest, of_zeros, of_links in ((99, 4 / 11, 4 / 11), (3, 2 / 7, 1 / 4)):
        counts = np.zeros(X.shape)
        for _ in range(draws):
            held = sample_held_out(relation, 0.4, rng, largest=largest)
            counts[held.rows, held.columns] += 1.0
        expected = np.where(X == 1.0, of_links, of_zeros) * np.isfinite(X)
        deviation = np.sqrt(draws * expected * (1.0 - expected))
        assert (np.abs(counts - draws * expected) <= 4.5 * deviation).all()


def test_scores_of_weighted_cells_are_those_of_repeated_ones():
    X = planted((30, 20), (2, 2), 0).X
    relation = Relation.build(X)
    held = sample_held_out(relation, 0.5, np.random.default_rng(0))
    model = quick().set_params(max_iter=300).fit(without_cells(relation, held))
    copies = np.where(held.values, 1, 3)
    weighted = score(model, replace(held, weights=copies.astype(float)))
    many = (np.repeat(array, copies) for array in (held.rows, held.columns, held.values))
    rows, columns, values = many
    repeated = replace(held, rows=rows, columns=columns, values=values)
    assert_allclose(astuple(weighted), astuple(score(model, repeated)))
    assert abs(weighted.log_likelihood - score(model, held).log_likelihood) > 1e-3
    plain = model.score_links(held.rows, held.columns, held.values)
    assert_allclose(score(model, held).log_likelihood, plain)


def quick(**parameters) -> IRM:
    return IRM(max_clusters=6, max_iter=30, tol=1e-3, random_state=0, **parameters)


@pytest.fixture(scope="module")
def both_protocols(seed):
    """Return scores by the full protocol, by the sampled one, and by that without weights."""
    labels = np.arange(120) % 3, np.arange(100) % 3
    theta = (0.02 + 0.28 * np.eye(3))[np.ix_(*labels)]
    relation = Relation.build((np.random.default_rng(seed).random(theta.shape) < theta) * 1.0)
    model, found = quick(), {"full": [], "sampled": [], "unweighted": []}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for run in range(24):
            rng = np.random.default_rng([seed, run])
            held = sample_held_out(relation, 0.1, rng)
            fitted = clone(model).fit(without_cells(relation, held))
            found["full"].append(astuple(score(fitted, held)))
            held = sample_held_out(relation, 0.1, rng, largest=300)
            assert held.sampled
            fitted = clone(model).fit(without_cells(relation, held))
            found["sampled"].append(astuple(score(fitted, held)))
            equal = replace(held, weights=None, odds=1.0)
            found["unweighted"].append(astuple(score(fitted, equal)))
    return {name: np.array(scores) for name, scores in found.items()}


def distance(one, other):
    """Return the difference of the means in standard errors, for each score."""
    error = np.sqrt(one.var(axis=0, ddof=1) / len(one) + other.var(axis=0, ddof=1) / len(other))
    return np.abs(one.mean(axis=0) - other.mean(axis=0)) / error


def test_a_sample_of_zeros_estimates_the_scores_of_the_full_protocol(both_protocols):
    assert (distance(both_protocols["full"], both_protocols["sampled"]) < 4.0).all()


def test_without_weights_the_sample_is_biased(both_protocols):
    log_likelihood, _, average_precision = distance(
        both_protocols["full"], both_protocols["unweighted"]
    )
    assert log_likelihood > 6.0
    assert average_precision > 6.0


def test_odds_are_corrected_for_held_out_links():
    rng = np.random.default_rng(0)
    relation = Relation.build((rng.random((150, 120)) < 0.3).astype(float))
    held = sample_held_out(relation, 0.5, rng, largest=4000)
    model = quick(init="random", refine=False).set_params(max_clusters=1)
    model.fit(without_cells(relation, held))
    seen = model.block_probability_[0, 0]
    corrected = seen / (seen + (1.0 - seen) * held.odds)
    assert_allclose(corrected, relation.density, rtol=0.01)
    assert seen < 0.9 * relation.density  # without the correction


def test_evaluate_is_reproducible_and_does_not_change_the_model():
    X, model = planted((30, 20), (2, 2), 0).X, quick()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        one, same = (evaluate(X, model, runs=3, seed=4) for _ in range(2))
        other = evaluate(Relation.build(X), model, runs=3, seed=5)
        single = evaluate(X, model, runs=1)
    assert one == same
    assert one.runs != other.runs
    assert len(one.runs) == 3
    assert one.held_out == 60
    assert not one.sampled
    assert not hasattr(model, "row_labels_")
    values = [run.log_likelihood for run in one.runs]
    assert len(set(values)) == 3
    assert_allclose(one.mean.log_likelihood, np.mean(values))
    assert_allclose(one.deviation.log_likelihood, np.std(values, ddof=1))
    assert np.isnan(single.deviation.auc)


@pytest.mark.parametrize("kind", ["directed", "undirected"])
def test_evaluate_accepts_one_domain(kind):
    X = np.kron(np.eye(2), np.ones((12, 12))) - np.eye(24)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = evaluate(X, quick().set_params(relation=kind), runs=2)
    assert found.held_out == round(0.1 * 24 * 23 / (2 if kind == "undirected" else 1))
    assert found.mean.auc > 0.95
    assert found.mean.log_likelihood > -0.2


def test_undefined_scores_are_nan():
    with warnings.catch_warnings():
        warnings.simplefilter("error", UndefinedMetricWarning)
        found = evaluate(sparse.csr_array((12, 10)), quick(), runs=2)
    assert np.isnan([found.mean.auc, found.mean.average_precision]).all()
    assert found.mean.log_likelihood < 0.0


@pytest.mark.parametrize(
    "wrong", [{"share": 0.0}, {"share": 1.0}, {"share": 2.0}, {"runs": 0}, {"largest": 1}]
)
def test_invalid_protocols_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        evaluate(np.eye(6), quick(), **wrong)


# Baselines


def test_baselines_are_those_of_the_definition():
    relation = Relation.build(planted((30, 20), (3, 2), 0).X)
    held = sample_held_out(relation, 0.2, np.random.default_rng(0))
    left = without_cells(relation, held)
    found = score_baselines(left, held)
    X, seen = np.zeros((30, 20)), np.ones((30, 20))
    X[held.X.nonzero()] = 1.0
    seen[held.unseen.nonzero()] = 0.0
    density = (X.sum() + 0.5) / (seen.sum() + 1.0)
    rows = (X.sum(axis=1) + density) / (seen.sum(axis=1) + 1.0)
    columns = (X.sum(axis=0) + density) / (seen.sum(axis=0) + 1.0)
    p = np.minimum(np.outer(rows, columns) / density, 1.0 - 0.5 / (seen.sum() + 1.0))
    own = p[held.rows, held.columns]
    expected = np.where(held.values, np.log(own), np.log1p(-own)).mean()
    assert_allclose(found["degrees"].log_likelihood, expected)
    share = held.values.mean()
    expected = share * np.log(density) + (1.0 - share) * np.log1p(-density)
    assert_allclose(found["density"].log_likelihood, expected)
    assert found["density"].auc == 0.5


@pytest.mark.parametrize("kind", ["directed", "undirected"])
def test_baselines_of_networks(kind):
    X = np.kron(np.eye(3), np.ones((8, 8)))
    relation = Relation.build(X - np.eye(24), kind=kind)
    found = evaluate(relation, IRM(kind, inference="cvb0"), runs=1)
    assert set(found.baselines) == {"density", "degrees"}
    assert found.mean.log_likelihood > found.baselines["density"].log_likelihood
    assert found.mean.auc > found.baselines["degrees"].auc
