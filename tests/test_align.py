"""Test the matching of columns of new rows to the fitted columns."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from coblock.analysis.prediction import align
from coblock.model.relation import BinaryRelation

NAMES = [f"c{j}" for j in range(7)]


def dense(relation: BinaryRelation) -> np.ndarray:
    """Return 1 for links, NaN for unseen cells, else 0."""
    place, X = relation.incidence[0][0], np.zeros(relation.shape)
    for i in range(relation.shape[0]):
        X[i, place.link[place.link_start[i] : place.link_start[i + 1]]] = 1.0
        X[i, place.unseen[place.unseen_start[i] : place.unseen_start[i + 1]]] = np.nan
    return X


@given(seed=st.integers(0, 2**32 - 1), rows=st.integers(1, 5), known=st.integers(1, 7))
def test_columns_are_matched_by_name(seed, rows, known):
    rng = np.random.default_rng(seed)
    fitted = rng.permutation(NAMES)[:known].tolist()
    here = rng.permutation(NAMES)[: rng.integers(1, 8)].tolist()
    X = rng.choice([0.0, 1.0, np.nan], size=(rows, len(here)), p=[0.4, 0.4, 0.2])
    names = [f"r{i}" for i in range(rows)]
    aligned, unknown = align(BinaryRelation.build(X, row_names=names, column_names=here), fitted)
    expected = np.zeros((rows, known))
    for j, name in enumerate(here):
        if name in fitted:
            expected[:, fitted.index(name)] = X[:, j]
    assert_array_equal(dense(aligned), expected)
    assert aligned.row_names == tuple(names)
    assert aligned.column_names == tuple(fitted)
    assert unknown == [name for name in here if name not in fitted]


def test_the_comparison_can_fail():
    """Negative control: columns matched by position would be wrong."""
    X = np.array([[1.0, 0.0]])
    aligned, _ = align(BinaryRelation.build(X, column_names=["b", "a"]), ["a", "b"])
    assert not np.array_equal(dense(aligned), X)


def test_columns_without_names_are_matched_by_position():
    aligned, unknown = align(BinaryRelation.build(np.array([[0.0, 1.0, 1.0]])), ["1", "0"])
    assert dense(aligned).tolist() == [[1.0, 0.0]]
    assert unknown == ["2"]
