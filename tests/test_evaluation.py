"""Holding out cells: the right ones, the right number, and a score that means something."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from coblock import IRM, Relation
from coblock.evaluation import hold_out
from coblock.generate import planted


@given(
    rows=st.integers(1, 8),
    columns=st.integers(1, 8),
    density=st.sampled_from([0.0, 0.3, 1.0]),
    share=st.floats(0.0, 1.0),
    seed=st.integers(0, 2**32 - 1),
)
def test_what_is_held_out_and_what_is_left_make_the_whole(rows, columns, density, share, seed):
    X = (np.random.default_rng(seed).random((rows, columns)) < density).astype(float)
    held = hold_out(sparse.csr_array(X), share, random_state=seed)
    hidden = np.zeros(X.shape, dtype=bool)
    hidden[held.rows, held.columns] = True
    assert hidden.sum() == held.rows.size == round(share * X.size)  # no cell twice
    assert_array_equal(held.unseen.toarray() != 0, hidden)
    assert held.unseen.nnz == held.rows.size
    assert_array_equal(held.X.toarray(), np.where(hidden, 0.0, X))
    assert held.X.nnz == np.count_nonzero(held.X.toarray())
    assert_array_equal(held.values, X[held.rows, held.columns] > 0)
    assert held.values.dtype == bool
    relation = Relation.build(held.X, unseen=held.unseen)
    assert relation.n_unseen == held.rows.size


@pytest.mark.parametrize("name", ["csr", "csc", "coo", "lil"])
def test_every_format_and_the_dense_array_give_the_same(name):
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


def test_the_same_seed_holds_out_the_same_cells():
    X = sparse.eye_array(20, format="csr")
    one, same, other = (hold_out(X, 0.1, seed) for seed in (3, 3, 4))
    assert_array_equal(one.rows, same.rows)
    assert_array_equal(one.columns, same.columns)
    assert not (np.array_equal(one.rows, other.rows) and np.array_equal(one.columns, other.columns))


def test_every_cell_is_held_out_as_often(seed):
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
def test_shares_that_are_none_are_refused(share, error):
    with pytest.raises(error, match="share"):
        hold_out(sparse.eye_array(4, format="csr"), share)


def test_cells_that_are_unseen_already_are_not_scored():
    """A vote that nobody knows cannot be held out as a nay; to refuse it would do as well."""
    X, refusal = np.array([[np.nan, 1.0, 0.0], [0.0, np.nan, 1.0]]), ""
    try:
        held = hold_out(X, 1.0, random_state=0)
    except ValueError as error:
        refusal = str(error)
    assert "NaN" in refusal if refusal else not np.isnan(X[held.rows, held.columns]).any()


def test_a_fit_predicts_held_out_cells_better_than_the_density():
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
