"""Building relations: input formats, names, unseen cells, kinds, memory, and errors."""

import subprocess
import sys
import tracemalloc
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from numpy.testing import assert_array_equal
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

import coblock.inference.fit
from coblock import IRM, Relation

KINDS = ("bipartite", "directed", "undirected")
FORMATS = ("csr", "csc", "coo", "lil", "dok", "dia", "bsr")
NAN = np.nan
VOTES = np.array(
    [
        [1.0, 0.0, NAN, 2.5],
        [0.0, 0.0, 1.0, NAN],
        [0.0, 3.0, 0.0, -1.0],
        [0.0, 0.0, 0.0, 0.0],
        [NAN, 1.0, 1.0, 1.0],
    ]
)


def dense(start: np.ndarray, end: np.ndarray, width: int) -> np.ndarray:
    """Return the boolean matrix of a compressed pattern, whose ends must be sorted and distinct."""
    matrix = np.zeros((start.size - 1, width), dtype=bool)
    for i in range(start.size - 1):
        ends = end[start[i] : start[i + 1]]
        assert (np.diff(ends) > 0).all()
        matrix[i, ends] = True
    return matrix


def links_and_unseen(relation: Relation) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return links and unseen cells of each place as matrices with rows first."""
    rows, columns = relation.shape
    places = [place for domain in relation.incidence for place in domain]
    found = []
    for number, place in enumerate(places):
        width = columns if number == 0 else rows
        pair = (
            dense(place.link_start, place.link, width),
            dense(place.unseen_start, place.unseen, width),
        )
        found.append(pair if number == 0 else (pair[0].T, pair[1].T))
    return found


def assert_same(left: Relation, right: Relation) -> None:
    assert (left.kind, left.shape) == (right.kind, right.shape)
    assert_array_equal(left.own_link, right.own_link)
    assert_array_equal(left.own_seen, right.own_seen)
    for domain, other in zip(left.incidence, right.incidence, strict=True):
        for place, twin in zip(domain, other, strict=True):
            for name in place._fields:
                assert_array_equal(getattr(place, name), getattr(twin, name))
                assert getattr(place, name).dtype == getattr(twin, name).dtype


# Formats


@pytest.mark.parametrize("container", ["array", "matrix"])
@pytest.mark.parametrize("name", FORMATS)
def test_every_sparse_format_agrees_with_the_dense_array(name, container):
    X = getattr(sparse, f"{name}_{container}")(VOTES)
    assert (X.format, isinstance(X, sparse.sparray)) == (name, container == "array")
    assert_same(Relation.build(X), Relation.build(VOTES))


def test_duplicates_of_a_coo_matrix_are_summed():
    rows, columns, values = [0, 0, 1, 1], [2, 2, 0, 0], [0.4, 0.4, 0.4, NAN]
    X = sparse.coo_array((values, (rows, columns)), shape=(2, 3))
    links, unseen = links_and_unseen(Relation.build(X, binarize=0.5))[0]
    assert_array_equal(np.argwhere(links), [[0, 2]])
    assert_array_equal(np.argwhere(unseen), [[1, 0]])
    assert Relation.build(X, binarize=0.9).n_links == 0


def test_duplicates_of_small_integers_do_not_overflow():
    """256 duplicates are a link, although their sum does not fit into a byte."""
    ones, zeros = np.ones(256, dtype=np.uint8), np.zeros(256, dtype=int)
    X = sparse.coo_array((ones, (zeros, zeros)), shape=(2, 2))
    assert Relation.build(X).n_links == 1


@pytest.mark.parametrize("dtype", [bool, np.int8, np.uint16, np.int64, np.float32, np.float64])
def test_numpy_arrays_of_every_number_type(dtype):
    X = np.array([[1, 0, 1], [0, 0, 1]])
    expected = Relation.build(X.astype(np.float64))
    assert_same(Relation.build(X.astype(dtype)), expected)
    assert_same(Relation.build(sparse.csr_array(X.astype(dtype))), expected)
    assert (expected.n_links, expected.n_unseen) == (3, 0)


def test_lists_and_fortran_order():
    assert_same(Relation.build(VOTES.tolist()), Relation.build(VOTES))
    assert_same(Relation.build(np.asfortranarray(VOTES)), Relation.build(VOTES))
    assert_same(Relation.build(np.repeat(VOTES, 2, axis=1)[:, ::2]), Relation.build(VOTES))


def test_nan_is_unseen_in_arrays():
    relation = Relation.build(VOTES)
    links, unseen = links_and_unseen(relation)[0]
    assert_array_equal(unseen, np.isnan(VOTES))
    assert_array_equal(links, np.nan_to_num(VOTES) > 0)
    assert (relation.n_links, relation.n_unseen, relation.n_cells) == (7, 3, 17)
    assert relation.density == 7 / 17


@pytest.mark.parametrize(("binarize", "links"), [(0.0, 7), (1.0, 2), (2.5, 1), (9.0, 0)])
def test_values_above_the_threshold_are_links(binarize, links):
    assert Relation.build(VOTES, binarize=binarize).n_links == links


# Data frames


def test_pandas_frames_keep_their_names():
    frame = pd.DataFrame(VOTES, index=list("vwxyz"), columns=["n1", "n2", "n3", "n4"])
    relation = Relation.build(frame)
    assert_same(relation, Relation.build(VOTES))
    assert relation.row_names == ("v", "w", "x", "y", "z")
    assert relation.column_names == ("n1", "n2", "n3", "n4")


def test_polars_frames_keep_their_column_names():
    values = [[None if np.isnan(x) else x for x in column] for column in VOTES.T]
    relation = Relation.build(pl.DataFrame(dict(zip("abcd", values, strict=True))))
    assert_same(relation, Relation.build(VOTES))
    assert (relation.row_names, relation.column_names) == (None, ("a", "b", "c", "d"))


MIXED = {"a": [1, None, 0], "b": [True, False, None], "c": [0.5, float("nan"), 0.0]}
MIXED_FRAMES = {
    "polars": lambda: pl.DataFrame(MIXED),
    "pandas": lambda: pd.DataFrame(MIXED).astype({"a": "Int64", "b": "boolean"}),
}


@pytest.mark.parametrize("make", MIXED_FRAMES.values(), ids=MIXED_FRAMES)
def test_nulls_of_integers_and_booleans_are_unseen(make):
    links, unseen = links_and_unseen(Relation.build(make()))[0]
    assert_array_equal(links, [[1, 1, 1], [0, 0, 0], [0, 0, 0]])
    assert_array_equal(unseen, [[0, 0, 0], [1, 0, 1], [0, 1, 0]])


@pytest.mark.parametrize("make", MIXED_FRAMES.values(), ids=MIXED_FRAMES)
def test_the_estimator_and_the_relation_agree_on_frames(make):
    frame, matrix = make(), np.array([[1, 1, 0.5], [NAN, 0, NAN], [0, NAN, 0]])
    fitted = [IRM(max_iter=3, tol=0, random_state=0).fit(X) for X in (frame, matrix)]
    assert_array_equal(fitted[0].row_membership_, fitted[1].row_membership_)
    assert list(fitted[0].feature_names_in_) == ["a", "b", "c"]


@pytest.mark.parametrize("library", [pd, pl], ids=["pandas", "polars"])
def test_a_column_without_numbers_is_refused(library):
    frame = library.DataFrame({"age": [3, 4], "name": ["Ann", "Bo"], "town": ["A", "B"]})
    with pytest.raises(TypeError, match=r"2 of 3 columns .* the first is 'name'.*one row per obj"):
        Relation.build(frame)
    with pytest.warns(UserWarning, match="1 column was not used: 'town'"):  # read as edges
        model = IRM().fit(frame)
    assert model.column_names_.tolist() == ["Ann", "Bo"]


# Names


def test_given_names_replace_those_of_a_frame():
    frame = pd.DataFrame(np.eye(2), index=["a", "b"], columns=["c", "d"])
    relation = Relation.build(frame, row_names=[1, 2], column_names=np.array(["e", "f"]))
    assert (relation.row_names, relation.column_names) == (("1", "2"), ("e", "f"))
    assert Relation.build(np.eye(2)).row_names is None


# Unseen cells


@pytest.mark.parametrize("name", FORMATS)
def test_unseen_cells_can_be_stored_in_every_format(name):
    mask = np.array([[0, 0, 1, 0], [0, 0, 0, 1], [0, 0, 0, 0], [0, 0, 0, 0], [1, 0, 0, 0]])
    unseen = sparse.coo_array(mask).asformat(name)
    assert_same(Relation.build(np.nan_to_num(VOTES, nan=0.0), unseen=unseen), Relation.build(VOTES))


@pytest.mark.parametrize("name", ["csr", "csc", "coo"])
def test_stored_zeros_are_unseen_too(name):
    cells = ([0.0, 0.0, 1.0, NAN, 7.0], ([0, 0, 1, 2, 2], [1, 1, 0, 2, 0]))
    unseen = sparse.coo_array(cells, shape=(3, 3)).asformat(name)
    found = links_and_unseen(Relation.build(np.zeros((3, 3)), unseen=unseen))[0][1]
    assert_array_equal(np.argwhere(found), [[0, 1], [1, 0], [2, 0], [2, 2]])


def test_unseen_and_nan_are_combined():
    X, unseen = np.array([[NAN, 0.0], [1.0, 0.0]]), sparse.csr_array([[1, 0], [0, 1]])
    assert Relation.build(X, unseen=unseen).n_unseen == 2


def test_unseen_is_not_ignored_when_a_relation_is_fitted():
    """A Relation already has unseen cells; more of them must be used or refused."""
    X, unseen = np.kron(np.eye(2), np.ones((3, 3))), sparse.csr_array(np.eye(6)[::-1])
    model, refusal = IRM(max_iter=2, tol=0, random_state=0), ""
    try:
        model.fit(Relation.build(X), unseen=unseen)
    except (TypeError, ValueError) as error:
        refusal = str(error)
    assert "unseen" in refusal if refusal else model.block_cells_.sum() == pytest.approx(30)


# Kinds


matrices = arrays(
    np.float64,
    st.one_of(array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=6)),
    elements=st.sampled_from([0.0, 0.0, 1.0, 2.0, -1.0, NAN]),
)
squares = st.integers(1, 6).flatmap(
    lambda size: arrays(
        np.float64, (size, size), elements=st.sampled_from([0.0, 0.0, 1.0, 0.5, NAN])
    )
)


@given(matrices, st.booleans())
def test_bipartite_rows_and_columns_agree_with_the_dense_matrix(X, as_sparse):
    relation = Relation.build(sparse.csr_array(X) if as_sparse else X)
    by_row, by_column = links_and_unseen(relation)
    for links, unseen in (by_row, by_column):
        assert_array_equal(links, np.nan_to_num(X) > 0)
        assert_array_equal(unseen, np.isnan(X))
    assert relation.n_links == (np.nan_to_num(X) > 0).sum()
    assert relation.n_unseen == np.isnan(X).sum()
    assert relation.n_cells == X.size - np.isnan(X).sum()
    assert relation.density == (relation.n_links / relation.n_cells if relation.n_cells else 0.0)


@given(squares, st.booleans())
def test_directed_senders_and_receivers_agree_with_the_dense_matrix(X, self_links):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        relation = Relation.build(X, kind="directed", self_links=self_links)
    apart = ~np.eye(len(X), dtype=bool)
    linked, is_nan = np.nan_to_num(X) > 0, np.isnan(X)
    for links, unseen in links_and_unseen(relation):
        assert_array_equal(links, linked & apart)
        assert_array_equal(unseen, is_nan & apart)
    counts = apart | self_links
    assert_array_equal(relation.own_link, np.diag(linked & counts))
    assert_array_equal(relation.own_seen, np.diag(~is_nan & counts))
    assert relation.n_links == (linked & counts).sum()
    assert relation.n_unseen == (is_nan & apart).sum()
    assert relation.n_cells == (~is_nan & counts).sum()


@given(squares)
def test_a_triangle_is_read_as_the_symmetric_matrix(X):
    upper = np.triu(X, 1)
    full = np.where(np.triu(np.ones_like(X), 1) > 0, upper, upper.T)
    relation = Relation.build(full, kind="undirected")
    assert_same(Relation.build(upper, kind="undirected"), relation)
    assert_same(Relation.build(upper.T, kind="undirected"), relation)
    ((links, unseen),) = links_and_unseen(relation)
    assert_array_equal(links, np.nan_to_num(full) > 0)
    assert_array_equal(unseen, np.isnan(full))
    assert relation.n_links == (np.nan_to_num(upper) > 0).sum()
    assert relation.n_unseen == np.isnan(upper).sum()
    assert relation.n_cells == len(X) * (len(X) - 1) // 2 - relation.n_unseen


@given(matrices)
def test_transposing_swaps_rows_and_columns(X):
    relation, transposed = Relation.build(X), Relation.build(X.T)
    places = relation.incidence[0] + relation.incidence[1]
    swapped = transposed.incidence[1] + transposed.incidence[0]
    for place, twin in zip(places, swapped, strict=True):
        for name in place._fields:
            assert_array_equal(getattr(place, name), getattr(twin, name))


@pytest.mark.parametrize("kind", ["directed", "undirected"])
def test_self_links_are_left_out_with_a_warning(kind):
    X = np.array([[1, 1, 0], [0, 1, 1], [0, 0, 0]])
    with pytest.warns(UserWarning, match=rf"2 links .* the diagonal of {kind} relations"):
        relation = Relation.build(X, kind=kind)
    assert (relation.n_links, relation.own_link.sum(), relation.own_seen.sum()) == (2, 0, 0)
    with pytest.warns(UserWarning, match="2 links of objects with themselves"):
        IRM(kind, max_iter=1, tol=0).fit(X)


def test_self_links_can_be_kept():
    X = np.array([[1, 1, 0], [0, NAN, 1], [0, 0, 0]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        relation = Relation.build(X, kind="directed", self_links=True)
    assert_array_equal(relation.own_link, [1, 0, 0])
    assert_array_equal(relation.own_seen, [1, 0, 1])
    assert (relation.n_links, relation.n_unseen, relation.n_cells) == (3, 0, 8)


def test_no_warning_without_self_links():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for kind in ("directed", "undirected"):
            Relation.build(np.array([[NAN, 1.0], [0.0, 0.0]]), kind=kind)


@pytest.mark.parametrize("kind", KINDS)
def test_a_relation_and_its_matrix_give_the_same_fit(kind):
    X = np.triu(np.kron(np.eye(2), np.ones((4, 4))), 1)
    settings = {"relation": kind, "max_iter": 4, "tol": 0, "random_state": 0}
    from_relation = IRM(**settings).fit(Relation.build(X, kind=kind))
    from_matrix = IRM(**settings).fit(X)
    assert_array_equal(from_relation.row_membership_, from_matrix.row_membership_)
    with pytest.raises(ValueError, match=rf"The relation is {kind}"):
        IRM("directed" if kind == "bipartite" else "bipartite").fit(Relation.build(X, kind=kind))


# The input is not changed


def parts(X) -> list[np.ndarray]:
    """Return the arrays of a matrix."""
    if not sparse.issparse(X):
        return [X]
    names = ("data", "indices", "indptr", "row", "col", "rows", "offsets")
    return [getattr(X, name) for name in names if hasattr(X, name)]


def untidy_csr() -> sparse.csr_array:
    """Return a matrix with unsorted indices, a duplicate, a stored zero and a NaN."""
    data, indices = np.array([1.0, 2.0, 0.5, 0.5, 0.0, NAN]), np.array([2, 0, 1, 1, 3, 1])
    return sparse.csr_array((data, indices, np.array([0, 2, 4, 6, 6])), shape=(4, 4))


INPUTS = {
    "array": VOTES[:4].copy,
    "untidy csr": untidy_csr,
    **{name: lambda name=name: sparse.coo_array(VOTES[:4]).asformat(name) for name in FORMATS},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("make", INPUTS.values(), ids=INPUTS)
def test_the_input_is_not_modified(make, kind):
    X, untouched = make(), make()
    unseen = sparse.csr_array((np.zeros(1), ([3], [3])), shape=(4, 4))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        Relation.build(X, unseen=unseen, kind=kind)
        IRM(kind, max_iter=1, tol=0).fit(X, unseen=unseen)
    for now, before in zip(parts(X), parts(untouched), strict=True):
        if now.dtype == object:  # lists of a lil matrix
            assert repr(now.tolist()) == repr(before.tolist())
        else:
            assert_array_equal(now, before)
    assert_array_equal(unseen.data, [0.0])


@pytest.mark.parametrize(
    "name", [name for name in INPUTS if name not in {"lil", "dok"}]
)  # which hold no arrays
def test_read_only_input_is_accepted(name):
    make = INPUTS[name]
    X = make()
    for part in parts(X):
        part.flags.writeable = False
    assert Relation.build(X).n_links == Relation.build(make()).n_links
    IRM(max_iter=1, tol=0).fit(X)
    IRM(max_iter=1, tol=0).fit(X).predict(X)


# Memory


OBJECTS, LINKS = 200_000, 1_000
MOST_BYTES_PER_OBJECT = 1_000  # one bit per cell would be 25,000


def peak_memory(action) -> int:
    """Return the peak memory of an action in bytes, including allocated but unused memory."""
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", KINDS)
def test_memory_grows_with_objects_and_not_with_cells(kind):
    rng = np.random.default_rng(0)
    rows, columns = (rng.permutation(OBJECTS)[: 2 * LINKS] for _ in range(2))
    ones = np.ones(LINKS)
    X = sparse.coo_array((ones, (rows[:LINKS], columns[:LINKS])), shape=(OBJECTS, OBJECTS))
    unseen = sparse.coo_array((ones, (rows[LINKS:], columns[LINKS:])), shape=(OBJECTS, OBJECTS))
    relation = None

    def build():
        nonlocal relation
        relation = Relation.build(X, unseen=unseen, kind=kind)

    assert peak_memory(build) < MOST_BYTES_PER_OBJECT * OBJECTS
    assert (relation.n_links, relation.n_unseen) == (LINKS, LINKS)
    model = IRM(kind, max_iter=2, max_clusters=3, random_state=0)

    def fit():
        with pytest.warns(ConvergenceWarning):
            model.fit(X, unseen=unseen)

    assert peak_memory(fit) < MOST_BYTES_PER_OBJECT * OBJECTS
    assert model.row_labels_.shape == (OBJECTS,)
    links, cells = model.block_links_, model.block_cells_
    if kind == "undirected":  # each block is stored twice
        links, cells = np.triu(links), np.triu(cells)
    assert links.sum() == pytest.approx(LINKS)
    assert cells.sum() == pytest.approx(relation.n_cells, rel=1e-9)


def test_the_memory_test_notices_a_dense_array():
    """Negative control: an array of a thousandth of the cells, never written to."""
    needed = peak_memory(lambda: np.zeros((OBJECTS // 1_000, OBJECTS)))
    assert needed > MOST_BYTES_PER_OBJECT * OBJECTS


# Errors


def with_index(name: str, index: int) -> sparse.sparray:
    """Return a compressed matrix with a wrong index in its third row or column."""
    X = sparse.eye_array(4, 5).asformat(name)
    X.indices[2] = index
    return X


HALF = np.array([[1.0, 0.5, 0.0], [0.0, 0.0, 2.0]])
INFINITE = np.array([[0.0, np.inf, 0.0], [-np.inf, 0.0, 1.0]])
NEGATIVE_INFINITE = np.array([[0.0, 0.0], [0.0, -np.inf]])
CORNER = sparse.csr_array(([1.0], ([0], [1])), shape=(2, 2))

# input, options, error, and words of the message; those of the estimator follow after a bar
BAD_RELATIONS = {
    "not binary": (HALF, {"binarize": None}, ValueError, "2 of 3 stored; X[0, 1] = 0.5; binarize="),
    "not binary, sparse": (
        sparse.csr_array(HALF),
        {"binarize": None},
        ValueError,
        "0 or 1; 2 of 3 stored; X[0, 1] = 0.5; binarize=t; unseen=",
    ),
    "csr index too large": (
        with_index("csr", 7),
        {},
        ValueError,
        "1 of 4 column indices; 0 to 4; 7 in row 2; counted from 0",
    ),
    "csr index negative": (with_index("csr", -1), {}, ValueError, "1 of 4; -1 in row 2"),
    "csc index too large": (
        with_index("csc", 4),
        {},
        ValueError,
        "1 of 4 row indices; 0 to 3; 4 in column 2; counted from 0",
    ),
    "csc index negative": (with_index("csc", -3), {}, ValueError, "1 of 4; -3 in column 2"),
    "unseen index too large": (
        np.zeros((4, 5)),
        {"unseen": with_index("csr", 7)},
        ValueError,
        "unseen has 1 of 4 column indices; 7 in row 2",
    ),
    "unseen and a link": (
        CORNER,
        {"unseen": sparse.csr_array(np.ones((2, 2)))},
        ValueError,
        "1 of 4 unseen cells; (0, 1); out of the relation; out of unseen",
    ),
    "unseen and a link once symmetric": (
        CORNER,
        {"unseen": CORNER.T.tocsr(), "kind": "undirected"},
        ValueError,
        "unseen cells are links too; (0, 1); out of unseen",
    ),
    "NaN and a link once symmetric": (
        np.array([[0.0, 1.0], [NAN, 0.0]]),
        {"kind": "undirected"},
        ValueError,
        "unseen cells are links too; (0, 1)",
    ),
    "unseen transposed": (
        np.zeros((2, 3)),
        {"unseen": sparse.csr_array((3, 2))},
        ValueError,
        "(3, 2); (2, 3); the relation's shape",
    ),
    "unseen one-dimensional": (
        np.zeros((2, 3)),
        {"unseen": sparse.coo_array(np.ones(3))},
        ValueError,
        "(3,); (2, 3)",
    ),
    "unseen dense": (
        np.zeros((2, 2)),
        {"unseen": np.eye(2, dtype=bool)},
        TypeError,
        "SciPy sparse; ndarray; csr_array(array)",
    ),
    "unseen a word": (np.zeros((2, 2)), {"unseen": "diagonal"}, TypeError, "SciPy sparse; str"),
    "no rows": (np.zeros((0, 3)), {}, ValueError, "(0, 3)"),
    "no columns": (np.zeros((3, 0)), {}, ValueError, "(3, 0)"),
    "no rows, sparse": (sparse.csr_array((0, 3)), {}, ValueError, "(0, 3)"),
    "no columns, sparse": (sparse.csr_array((3, 0)), {}, ValueError, "(3, 0)"),
    "infinities": (INFINITE, {}, ValueError, "infinity in 2 of 3; X[0, 1]; NaN; unseen="),
    "infinities, sparse": (
        sparse.csc_array(INFINITE),
        {"binarize": None},
        ValueError,
        "infinity in 2 of 3 stored; X[0, 1]; NaN; unseen=",
    ),
    "minus infinity": (NEGATIVE_INFINITE, {}, ValueError, "infinity in 1 of 1; X[1, 1]"),
    "minus infinity, sparse": (
        sparse.coo_array(NEGATIVE_INFINITE),
        {},
        ValueError,
        "infinity in 1 of 1; X[1, 1]",
    ),
    "not square, directed": (
        np.zeros((2, 1_500)),
        {"kind": "directed"},
        ValueError,
        "directed; 2 x 1,500; square matrix; 'bipartite'",
    ),
    "not square, undirected": (
        sparse.csr_array((3, 2)),
        {"kind": "undirected"},
        ValueError,
        "undirected; 3 x 2; square matrix; 'bipartite'",
    ),
    "one-dimensional": (np.ones(3), {}, ValueError, "two places; has 1|2D array; 1D array"),
    "one-dimensional, sparse": (
        sparse.coo_array(np.ones(3)),
        {},
        ValueError,
        "two places; has 1|2D input; (3,)",
    ),
    "three-dimensional": (np.ones((2, 2, 2)), {}, ValueError, "two places; has 3|dim 3; dim <= 2"),
    "strings": (np.array([["a", "b"]]), {}, (TypeError, ValueError), "numbers; <U1|numeric"),
    "complex": (np.eye(2) * 1j, {}, (TypeError, ValueError), "numbers; complex128|Complex"),
    "complex, sparse": (
        sparse.csr_array(np.eye(2) * 1j),
        {},
        (TypeError, ValueError),
        "numbers; complex128|Complex",
    ),
    "nothing": (None, {}, (TypeError, ValueError), "numbers|2D array"),
    "negative binarize": (
        np.eye(2),
        {"binarize": -0.5},
        ValueError,
        "binarize=-0.5; cells that are 0; at least 0",
    ),
    "binarize NaN": (np.eye(2), {"binarize": NAN}, ValueError, "binarize; finite; nan"),
    "binarize a word": (np.eye(2), {"binarize": "yes"}, TypeError, "binarize; number; 'yes'"),
    "unknown kind": (
        np.eye(2),
        {"kind": "tripartite"},
        ValueError,
        "relation; 'bipartite'; 'directed'; 'undirected'; 'tripartite'",
    ),
}


def assert_says(message: str, words: str) -> None:
    """Assert that a message has all words, separated by semicolons, of one of the alternatives."""
    missing = [
        [word for word in option.split("; ") if word not in message.replace("\n", " ")]
        for option in words.split("|")
    ]
    assert [] in missing, f"{message!r} does not say {missing}"


def test_assert_says_notices_missing_words():
    assert_says("There are 3 rows.", "2 columns|3; rows")
    with pytest.raises(AssertionError, match="does not say"):
        assert_says("There are 3 rows.", "3; columns")


@pytest.fixture
def no_work(monkeypatch):
    """Fail the test as soon as the estimator begins to fit."""

    def begun(*_args, **_kwargs):
        pytest.fail("The fit has begun although the input is wrong.")

    monkeypatch.setattr(coblock.inference.fit.Fit, "run", begun)


@pytest.mark.parametrize("case", BAD_RELATIONS.values(), ids=BAD_RELATIONS)
def test_wrong_input_is_refused(case):
    X, settings, error, words = case
    with pytest.raises(error) as caught:
        Relation.build(X, **settings)
    assert_says(str(caught.value), words)


@pytest.mark.parametrize("case", BAD_RELATIONS.values(), ids=BAD_RELATIONS)
@pytest.mark.usefixtures("no_work")
def test_wrong_input_is_refused_before_the_fit(case):
    X, settings, error, words = case
    settings = dict(settings)
    unseen = settings.pop("unseen", None)
    model = IRM(settings.pop("kind", "bipartite"), **settings)
    with pytest.raises(error) as caught:
        model.fit(X, unseen=unseen)
    assert_says(str(caught.value), words)


@pytest.mark.parametrize("side", ["row", "column"])
@pytest.mark.parametrize("names", [["a"], list("abc"), []])
def test_names_must_match_the_objects(side, names):
    with pytest.raises(ValueError, match=rf"2 {side}s, but {len(names)} {side} names"):
        Relation.build(np.eye(2), **{f"{side}_names": names})


BAD_PARAMETERS = [
    ("relation", "net", ValueError, "'bipartite'; 'directed'; 'undirected'; 'net'"),
    ("inference", "em", ValueError, "'acvb0'; 'acvb'; 'cvb0'; 'cvb'; 'vb'; 'gibbs'; 'em'"),
    ("prior", "flat", ValueError, "'shared'; 'per-block'; 'flat'"),
    ("variance", "none", ValueError, "'exact'; 'paper'; 'none'"),
    ("init", "zeros", ValueError, "'spectral'; 'random'; 'zeros'"),
    ("init", 3, (TypeError, ValueError), "3"),
    ("init", None, (TypeError, ValueError), "None"),
    ("hyperparameters", "best", ValueError, "'newton'; 'fixed-point'; 'fixed'; 'best'"),
    ("binarize", True, TypeError, "number; True; bool"),
    ("burn_in", -1, ValueError, "at least 0; -1"),
    ("tol", -1e-3, ValueError, "at least 0; -0.001"),
    ("max_iter", 0, ValueError, "at least 1; is 0"),
    ("n_init", 0, ValueError, "at least 1; is 0"),
    ("max_clusters", 0, ValueError, "at least 1; is 0"),
    ("relation", None, ValueError, "'bipartite'; None"),
    ("inference", 3, ValueError, "'acvb0'; 3"),
    ("max_clusters", -4, ValueError, "at least 1; -4"),
    ("max_clusters", (3, 0), ValueError, "at least 1; is 0"),
    ("max_clusters", (3, 4, 5), ValueError, "(rows, columns); (3, 4, 5)"),
    ("max_clusters", (), ValueError, "(rows, columns); ()"),
    ("max_clusters", 2.0, TypeError, "whole number; 2.0; float"),
    ("max_clusters", "many", TypeError, "whole number; 'many'; str"),
    ("max_clusters", (2, "many"), TypeError, "whole number; 'many'; str"),
    ("max_clusters", True, TypeError, "whole number; True; bool"),
    ("burn_in", 1.5, TypeError, "whole number; 1.5; float"),
    ("tol", NAN, ValueError, "finite; nan"),
    ("tol", np.inf, ValueError, "finite; inf"),
    ("tol", "small", TypeError, "number; 'small'; str"),
    ("max_iter", 10.0, TypeError, "whole number; 10.0; float"),
    ("n_init", None, TypeError, "whole number; None"),
    ("callback", 3, TypeError, "callback"),
]


@pytest.mark.parametrize(
    ("name", "value", "error", "words"),
    BAD_PARAMETERS,
)
@pytest.mark.usefixtures("no_work")
def test_wrong_parameters_are_refused_before_the_fit(name, value, error, words):
    model = IRM(**{name: value})
    with pytest.raises(error) as caught:
        model.fit(np.eye(3))
    assert_says(str(caught.value), f"{name}; {words}")


@pytest.mark.usefixtures("no_work")
def test_gibbs_refuses_a_prior_per_block():
    with pytest.raises(ValueError, match=r"'gibbs'.*prior='shared'"):
        IRM(inference="gibbs", prior="per-block").fit(np.eye(3))


@pytest.mark.usefixtures("no_work")
def test_the_no_work_fixture_notices_a_fit():
    with pytest.raises(pytest.fail.Exception, match="has begun"):
        IRM().fit(np.eye(3))


BROKEN = {
    "a block index": """
X = sparse.bsr_array((np.ones((1, 2, 2)), [0], [0, 1, 1]), shape=(4, 4))
X.indices[0] = 500_000""",
    "a coordinate": """
X = sparse.coo_array(np.eye(4))
X.coords[0][1] = 5_000_000""",
    "a row pointer": """
X = sparse.csr_array(np.eye(4))
X.indptr[2] = 1_000_000""",
}


@pytest.mark.parametrize("damage", BROKEN.values(), ids=BROKEN)
def test_a_broken_sparse_matrix_does_not_crash_the_process(damage):
    """The test uses a separate process, because a failure would crash it."""
    program = f"""
import numpy as np
from scipy import sparse
from coblock.model.relation import BinaryRelation
{damage}
try:
    BinaryRelation.build(X)
except ValueError as error:
    print("refused:", error)
"""
    ran = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True
    )
    assert ran.returncode == 0, f"ended with {ran.returncode}: {ran.stderr[-300:]}"
    assert "refused:" in ran.stdout


def test_masked_cells_are_unseen():
    X = np.ma.masked_array(np.eye(3), mask=np.eye(3)[::-1].astype(bool))
    relation = Relation.build(X)
    assert (relation.n_links, relation.n_unseen) == (2, 3)
    model = IRM(max_iter=2, tol=0, random_state=0).fit(X)
    assert model.block_cells_.sum() == pytest.approx(6.0)


@pytest.mark.parametrize("kind", KINDS)
def test_patterns_and_matrices_give_the_same_relation(kind):
    rng = np.random.default_rng(0)
    values = rng.choice([0.0, 1.0, NAN], size=(7, 7), p=[0.6, 0.3, 0.1])
    np.fill_diagonal(values, 0.0)
    values = np.triu(values) if kind == "undirected" else values
    built = Relation.build(values, kind=kind)
    links, unseen = (sparse.csr_array(np.asarray(x)) for x in (values == 1, np.isnan(values)))
    taken = Relation.from_patterns(links, unseen, kind=kind)
    for left, right in zip(links_and_unseen(built), links_and_unseen(taken), strict=True):
        assert_array_equal(left, right)
    assert_array_equal(built.own_link, taken.own_link)
    assert taken.own_link.dtype == taken.own_seen.dtype == np.float64
    assert (built.n_links, built.n_unseen) == (taken.n_links, taken.n_unseen)
