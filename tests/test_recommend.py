"""Test recommendations: the most probable columns that a row is not linked to."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from coblock import IRM, Relation
from coblock.analysis import prediction
from coblock.kernels.memberships import hard_labels
from coblock.model.blocks import Blocks
from coblock.model.hyperparameters import Hyperparameters
from coblock.model.result import Result, Sample, make_result
from strategies import cases


def hard(relation: Relation, labels, probability) -> Result:
    """Return a result with given labels and block probabilities."""
    q = [np.eye(np.max(label) + 1)[label] for label in labels]
    n = np.asarray(probability, dtype=float)
    hyper = Hyperparameters([1.0] * len(q), np.full((2, 1, 1), 1e-12))
    blocks = Blocks.from_memberships(relation, q, [hard_labels(each) for each in q])
    blocks.n, blocks.N = n, 1.0 - n
    return Result(relation, q, [np.asarray(x) for x in labels], hyper, blocks, 0.0, [], True)


def as_model(result: Result) -> IRM:
    model = IRM(result.relation.kind)
    model._publish(result)
    return model


@st.composite
def results(draw) -> Result:
    case = draw(cases(most_objects=8))
    hyper = Hyperparameters(list(case.alpha), np.array([case.a, case.b]), per_block=True)
    result = make_result(case.relation, case.q, hyper, [], converged=True)
    rng, samples = np.random.default_rng(draw(st.integers(0, 99))), []
    for K in draw(st.lists(st.integers(1, 3), max_size=2)):
        labels = [rng.integers(K, size=size, dtype=np.int32) for size in case.relation.sizes]
        samples.append(Sample(labels, rng.random((K, K))))
    return replace(result, samples=samples)


def candidates(result: Result, row: int, exclude_seen: bool) -> set[int]:
    relation = result.relation
    place = relation.incidence[0][0]
    linked = set(place.link[place.link_start[row] : place.link_start[row + 1]].tolist())
    found = set(range(relation.shape[1])) - (linked if exclude_seen else set())
    return found - {row} if relation.repeated else found


@settings(max_examples=150)
@given(result=results(), n=st.integers(1, 10), exclude_seen=st.booleans(), step=st.integers(1, 40))
def test_every_row_gets_its_best_candidates(result, n, exclude_seen, step):
    model = as_model(result)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prediction, "BATCH_CELLS", step)  # any size of the batches of rows
        columns, probability = model.recommend(n=n, exclude_seen=exclude_seen)
    assert columns.shape == probability.shape == (result.relation.shape[0], n)
    for row in range(len(columns)):
        possible = sorted(candidates(result, row, exclude_seen))
        found = columns[row][columns[row] >= 0].tolist()
        assert len(found) == len(set(found)) == min(n, len(possible))
        assert set(found) <= set(possible)
        assert np.isnan(probability[row, len(found) :]).all()
        assert (columns[row, len(found) :] == -1).all()
        own = model.link_probability(row, found)
        assert_allclose(probability[row, : len(found)], own, rtol=1e-12)
        best = np.sort(model.link_probability(row, possible))[::-1][: len(found)]
        assert_allclose(own, best, rtol=1e-8)  # in descending order


def test_ties_are_broken_by_position():
    relation = Relation.build(sparse.csr_array((3, 7)))
    result = hard(relation, ([0, 0, 0], [0, 1, 0, 1, 0, 1, 0]), [[0.25, 0.5]])
    for rows in (None, [2], [1, 0]):
        columns, probability = as_model(result).recommend(rows, n=5)
        assert columns.tolist() == [[1, 3, 5, 0, 2]] * len(columns)
        assert_allclose(probability[0], [0.5, 0.5, 0.5, 0.25, 0.25])


def test_ties_are_broken_by_lift_and_then_by_name():
    X = np.zeros((4, 5))
    X[1:, 0] = X[1:3, 2] = X[1, 4] = 1.0  # columns with 3, 0, 2, 0 and 1 links
    names = ["a", "z", "c", "b", "e"]
    relation = Relation.build(X, column_names=names)
    result = hard(relation, ([0] * 4, [0] * 5), [[0.5]])
    columns, _ = as_model(result).recommend([0], n=5)
    assert [names[j] for j in columns[0]] == ["b", "z", "e", "c", "a"]
    better = hard(relation, ([0] * 4, [1, 0, 0, 0, 0]), [[0.5, 0.9]])
    columns, _ = as_model(better).recommend([0], n=2)
    assert [names[j] for j in columns[0]] == ["a", "b"]


def test_rounding_does_not_break_ties():
    relation = Relation.build(sparse.csr_array((1, 50)))
    result = hard(relation, ([0], [0] * 50), [[0.5]])
    noise = 1.0 + 1e-13 * np.random.default_rng(0).normal(size=(50, 1))
    result = replace(result, memberships=[result.memberships[0], noise])
    assert as_model(result).recommend([0], n=4)[0].tolist() == [[0, 1, 2, 3]]
    louder = replace(result, memberships=[result.memberships[0], 1.0 + 1e6 * (noise - 1.0)])
    assert as_model(louder).recommend([0], n=4)[0].tolist() != [[0, 1, 2, 3]]


def test_links_are_excluded_but_zeros_and_unseen_cells_are_not():
    X = np.array([[1.0, np.nan, 0.0], [1.0, 1.0, 1.0]])
    result = hard(Relation.build(X), ([0, 0], [0, 1, 2]), [[0.9, 0.8, 0.7]])
    columns, probability = as_model(result).recommend(n=2)
    assert columns.tolist() == [[1, 2], [-1, -1]]
    assert np.isnan(probability[1]).all()
    columns, _ = as_model(result).recommend(n=4, exclude_seen=False)
    assert columns.tolist() == [[0, 1, 2, -1]] * 2


@pytest.mark.parametrize("exclude_seen", [True, False])
def test_an_object_is_not_recommended_to_itself(exclude_seen):
    relation = Relation.build(sparse.csr_array((3, 3)), kind="directed", self_links=True)
    result = hard(relation, ([0, 0, 0],), [[0.5]])
    columns, _ = as_model(result).recommend(n=3, exclude_seen=exclude_seen)
    assert columns.tolist() == [[1, 2, -1], [0, 2, -1], [0, 1, -1]]


def test_invalid_arguments_are_refused():
    model = as_model(hard(Relation.build(np.eye(2)), ([0, 0], [0, 0]), [[0.5]]))
    with pytest.raises(ValueError, match="row positions lie outside"):
        model.recommend([2])
    with pytest.raises(ValueError, match="n must be at least 1"):
        model.recommend(n=0)
    with pytest.raises(TypeError, match="positions"):
        model.recommend(["Ann"])
    with pytest.raises(ValueError, match="not fitted"):
        IRM().recommend()
    columns, probability = model.recommend([])
    assert columns.shape == probability.shape == (0, 10)
    assert_array_equal(model.recommend(1, n=1)[0], model.recommend([1], n=1)[0])


def test_memory_does_not_grow_with_the_number_of_cells():
    rows, columns = 3000, 5000  # 120 MB as a dense matrix
    rng = np.random.default_rng(0)
    relation = Relation.build(sparse.random_array((rows, columns), density=1e-3, rng=rng))
    labels = rng.integers(3, size=rows), rng.integers(4, size=columns)
    result = hard(relation, labels, rng.random((3, 4)))
    model = as_model(result)
    tracemalloc.start()
    model.recommend(n=10)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 90e6 < rows * columns * 8
