"""Starts: spectral, random, labels, an earlier model; relations that are hard to start on."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.metrics import adjusted_rand_score
from sklearn.utils.extmath import randomized_svd

from coblock import IRM
from coblock.analysis.evaluation import hold_out
from coblock.generate import planted, synth1
from coblock.inference import singular, start
from coblock.inference.singular import (
    POWER_ITERATIONS,
    NormalisedLinks,
    join_columns,
    scaled_singular_vectors,
    whole_table,
)
from coblock.inference.start import (
    SpectralStart,
    most_probable,
    random_memberships,
    soft_labels,
    take_points,
    truncation,
)
from coblock.kernels.spectral import NEAR_OBJECTS, LinkScales
from coblock.model.relation import BinaryRelation


def find_spectral_labels(
    relation: BinaryRelation, clusters: tuple[int, ...], rng
) -> list[np.ndarray]:
    links = NormalisedLinks.from_relation(relation)
    return SpectralStart.from_links(relation, links, max(clusters), rng).labels(clusters)


def find_vectors(X, k) -> list[np.ndarray]:
    links = NormalisedLinks.from_relation(BinaryRelation.build(X))
    return list(map(whole_table, scaled_singular_vectors(links, k, 0)))


def test_spectral_labels_find_clear_blocks():
    drawn = planted((200, 150), (4, 3), 5)
    relation = BinaryRelation.build(drawn.X)
    rows, columns = find_spectral_labels(relation, (4, 3), np.random.default_rng(0))
    assert adjusted_rand_score(drawn.row_labels, rows) > 0.9
    assert adjusted_rand_score(drawn.column_labels, columns) > 0.9


@pytest.mark.parametrize("kind", ["directed", "undirected"])
def test_spectral_labels_of_one_domain(kind):
    rng = np.random.default_rng(0)
    label = np.repeat([0, 1, 2], 40)
    X = (rng.random((120, 120)) < 0.05 + 0.5 * (label[:, None] == label)).astype(float)
    np.fill_diagonal(X, 0.0)
    (found,) = find_spectral_labels(BinaryRelation.build(X, kind=kind), (3,), rng)
    assert adjusted_rand_score(label, found) > 0.95


def test_directed_spectral_start_uses_both_places():
    """Two clusters send to the same receivers and differ only in the links they receive."""
    rng = np.random.default_rng(1)
    label = np.repeat([0, 1, 2], 40)
    theta = np.array([[0.1, 0.1, 0.7], [0.1, 0.1, 0.1], [0.7, 0.1, 0.1]]).T
    X = (rng.random((120, 120)) < theta[np.ix_(label, label)]).astype(float)
    np.fill_diagonal(X, 0.0)
    (found,) = find_spectral_labels(BinaryRelation.build(X, kind="directed"), (3,), rng)
    assert adjusted_rand_score(label, found) > 0.9


def test_spectral_start_does_not_take_unseen_cells_for_zeros():
    """Half of the cells of every second row are unseen; as zeros they would form clusters."""
    drawn = planted((120, 100), (2, 2), 4)
    X = drawn.X.toarray()
    rng = np.random.default_rng(0)
    hidden = np.zeros(X.shape, dtype=bool)
    hidden[::2, :50] = True
    start = np.random.default_rng(1)
    rows, _ = find_spectral_labels(BinaryRelation.build(np.where(hidden, np.nan, X)), (2, 2), start)
    zeros, _ = find_spectral_labels(BinaryRelation.build(np.where(hidden, 0, X)), (2, 2), rng)
    right = adjusted_rand_score(drawn.row_labels, rows)
    assert right > 0.8
    assert right > adjusted_rand_score(drawn.row_labels, zeros)


def dense_normalised_links(X):
    """Return the normalised links as a dense matrix."""
    unseen = np.isnan(X)
    links = np.where(unseen, 0.0, X)
    density = links.sum() / max((~unseen).sum(), 1)
    rates = [
        links.sum(axis=a) / np.maximum((~unseen).sum(axis=a), 1)  # per observed cell
        for a in (1, 0)
    ]
    filled = links + unseen * np.minimum(np.outer(*rates) / max(density, 1e-12), 1.0)
    scales = [1 / np.sqrt(d + d.mean()) for d in (filled.sum(axis=1), filled.sum(axis=0))]
    return filled * np.outer(*scales)


@pytest.mark.parametrize("hidden", [0.0, 0.3])
def test_products_equal_those_of_the_dense_normalised_links(hidden):
    rng = np.random.default_rng(0)
    X = (rng.random((30, 20)) < 0.3).astype(float)
    X[rng.random(X.shape) < hidden] = np.nan
    links, dense = NormalisedLinks.from_relation(BinaryRelation.build(X)), dense_normalised_links(X)
    for d, matrix in enumerate((dense, dense.T)):
        block = rng.random((matrix.shape[1], 7))
        assert_allclose(links.product(d, block), matrix @ block, rtol=1e-12)
    values = links.product(0, np.eye(20))
    assert (values[X == 0] == 0.0).all()
    assert hidden == 0.0 or values[np.isnan(X)].mean() > 0.0


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_products_with_more_objects_than_are_near(kind):
    """Each sum is added up in the order of the links, whichever objects come first."""
    rng = np.random.default_rng(0)
    X = sparse.random_array((30, 2 * NEAR_OBJECTS + 5), density=0.01, rng=rng).tocsr()
    X.data[:] = 1.0
    links = NormalisedLinks.from_relation(BinaryRelation.build(X))
    scales = [scale.astype(kind) for scale in (links.scales[0].scale, links.scales[1].scale)]
    scale = (LinkScales(scales[0], scales[0]), LinkScales(scales[1], scales[1]))
    links = replace(links, scales=scale)
    block = rng.random((X.shape[1], 3)).astype(kind)
    wanted = np.zeros((30, 3), kind)
    for i in range(30):
        for j in np.sort(X.indices[X.indptr[i] : X.indptr[i + 1]]):
            wanted[i] += scales[1][j] * block[j]
    wanted *= scales[0][:, None]
    assert_array_equal(links.product(0, block), wanted)
    assert_array_equal(links.product(0, np.asfortranarray(block)), wanted)
    block[2 * NEAR_OBJECTS :] = 0.0  # an error: the last objects are left out
    assert (links.product(0, block) != wanted).any()


def test_blocks_of_vectors_are_in_the_order_that_products_read():
    tables = [np.asfortranarray(np.arange(12.0).reshape(6, 2))] * 2
    for some in (tables, tables[:1]):
        joined = join_columns(some, slice(0, 2))
        assert joined.flags.c_contiguous
        assert_array_equal(joined, np.vstack(some))


@pytest.mark.parametrize("shape", [(90, 60), (60, 90), (40, 40)])
@pytest.mark.parametrize("kind", [np.float64, np.float32])
def test_singular_vectors_equal_those_of_scikit_learn(shape, kind, monkeypatch):
    """Absolute values are compared, because the signs are arbitrary."""
    monkeypatch.setattr("coblock.inference.singular.number_type", lambda _: kind)
    X = planted(shape, (3, 3), 4).X.toarray()
    rows, columns = find_vectors(X, 3)
    dense = dense_normalised_links(X)
    U, S, Vt = randomized_svd(dense, 3, n_iter=POWER_ITERATIONS, random_state=0)
    exact = 1e-9 if kind is np.float64 else 1e-4
    assert rows.dtype == columns.dtype == kind
    assert_allclose(abs(rows), abs(U * S), atol=exact)
    assert_allclose(abs(columns), abs(Vt.T * S), atol=exact)


def test_singular_vectors_beyond_the_rank_are_zero():
    X = np.kron(np.eye(2), np.ones((15, 12)))  # of rank 2
    for matrix in (X, np.zeros_like(X)):
        points = find_vectors(matrix, 6)
        for found in points:
            assert np.isfinite(found).all()
            assert abs(found[:, 2:]).max() < 1e-6


@pytest.mark.parametrize("shape", [(90, 60), (60, 90)])
def test_singular_vectors_in_several_tables_are_the_same(shape, monkeypatch):
    """Signs are arbitrary. The factors of the tables matter: without them vectors are not unit."""
    X = planted(shape, (3, 3), 4).X.toarray()
    whole = find_vectors(X, 3)
    monkeypatch.setattr(singular, "VECTOR_CHUNK", 25)
    links = NormalisedLinks.from_relation(BinaryRelation.build(X))
    tables = scaled_singular_vectors(links, 3, 0)
    assert [len(side) for side in tables] == [-(-size // 25) for size in shape]
    for found, wanted in zip(map(whole_table, tables), whole, strict=True):
        assert_allclose(abs(found[:, :2]), abs(wanted[:, :2]), atol=1e-5)
    monkeypatch.setattr(singular, "apply_factor", lambda table, factors, c: table)
    wrong = scaled_singular_vectors(links, 3, 0)
    assert abs(abs(whole_table(wrong[0])) - abs(whole[0])).max() > 1e-3


@pytest.mark.parametrize("kind", ["bipartite", "directed"])
def test_labels_from_a_sample_of_objects_in_regular_order(kind, monkeypatch):
    """Every fourth object would be of one cluster only."""
    rng, label = np.random.default_rng(0), np.arange(800) % 4
    X = (rng.random((800, 800)) < 0.02 + 0.2 * (label[:, None] == label)).astype(float)
    np.fill_diagonal(X, 0.0)
    relation = BinaryRelation.build(X, kind=kind)
    monkeypatch.setattr(singular, "VECTOR_CHUNK", 200)
    for found in find_spectral_labels(relation, (4, 4)[: len(relation.sizes)], rng):
        assert adjusted_rand_score(label, found) > 0.95
    monkeypatch.setattr(
        start, "sample_points", lambda places, width, step, seed: take_points(places, width)[::step]
    )
    poor = find_spectral_labels(relation, (4, 4)[: len(relation.sizes)], rng)
    assert adjusted_rand_score(label, poor[0]) < 0.8


def test_evidence_of_a_fit_whose_start_is_from_samples(monkeypatch):
    drawn = planted((1200, 900), (4, 4), 5)
    whole = IRM(random_state=0).fit(drawn.X)
    monkeypatch.setattr(singular, "VECTOR_CHUNK", 250)
    parts = IRM(random_state=0).fit(drawn.X)
    assert parts.log_evidence_ > 1.001 * whole.log_evidence_  # they are negative
    assert adjusted_rand_score(drawn.row_labels, parts.row_labels_) > 0.95


def test_soft_labels_give_most_weight_to_the_label():
    q = soft_labels([np.array([0, 2, 1], dtype=np.int32)], 0.8)[0]
    assert_allclose(q.sum(axis=1), 1.0)
    assert q.argmax(axis=1).tolist() == [0, 2, 1]
    assert soft_labels([np.array([0, 1], dtype=np.int32)], 1.0)[0].tolist() == [[1, 0], [0, 1]]


def test_most_probable_labels_are_numbered_without_gaps():
    q = np.array([[0.2, 0.1, 0.7], [0.6, 0.1, 0.3]])
    assert most_probable([q])[0].tolist() == [1, 0]


def test_random_memberships_are_soft_with_at_most_one_cluster_per_object():
    relation = BinaryRelation.build(np.eye(5))
    clusters = truncation(relation, (3, 50))
    assert clusters == (3, 5)
    for q, K in zip(
        random_memberships(relation, clusters, np.random.default_rng(0)), clusters, strict=True
    ):
        assert q.shape == (5, K)
        assert_allclose(q.sum(axis=1), 1.0)
        assert (q > 0).all()


@pytest.mark.usefixtures("short_chains")
def test_fit_starts_from_labels_or_an_earlier_model():
    drawn = synth1(1)
    labels = (drawn.row_labels, drawn.column_labels)
    from_labels = IRM(init=labels, random_state=0).fit(drawn.X)
    assert from_labels.block_probability_.shape == (4, 5)
    plain = IRM(init=labels, refine=False, random_state=0).fit(drawn.X)
    assert plain.n_iter_ < from_labels.n_iter_ + 500
    again = IRM(init=from_labels, random_state=0).fit(drawn.X)
    assert again.log_evidence_ == pytest.approx(from_labels.log_evidence_, rel=1e-9)
    names = (np.array(list("abcd"))[drawn.row_labels], drawn.column_labels)
    assert IRM(init=names, random_state=0).fit(drawn.X).block_probability_.shape == (4, 5)


@pytest.mark.parametrize(
    ("init", "message"),
    [
        ((np.zeros(3),), "2 domain"),
        ((np.zeros(3), np.zeros(200)), "100 objects"),
        (np.zeros(100), "2 domain"),
    ],
)
def test_labels_of_the_wrong_shape_are_refused(init, message):
    with pytest.raises(ValueError, match=message):
        IRM(init=init).fit(synth1(0).X)


def test_earlier_model_of_another_relation_is_refused():
    model = IRM(random_state=0, max_iter=5, tol=0).fit(np.eye(6))
    with pytest.raises(ValueError, match="shape"):
        IRM(init=model).fit(np.eye(7))


DEGENERATE = {
    "all-equal rows": np.ones((30, 1)) * np.array([1, 0, 1, 0, 0, 1, 1, 0.0]),
    "one giant hub": np.vstack([np.ones((1, 60)), np.eye(60)[1:]]),
    "no links": np.zeros((20, 15)),
    "all links": np.ones((20, 15)),
    "two halves": np.kron(np.eye(2), np.ones((15, 12))),
    "1 x N": np.array([[0, 1] * 15]),
    "N x 1": np.array([[0, 1] * 15]).T,
    "1 x 1": np.ones((1, 1)),
    "one block": (np.random.default_rng(0).random((40, 30)) < 0.4).astype(float),
    "singletons": np.triu(np.ones((24, 24))),
    "empty rows and columns": np.pad(np.kron(np.eye(2), np.ones((10, 10))), ((0, 9), (0, 7))),
}


@pytest.mark.parametrize("name", sorted(DEGENERATE))
def test_fits_of_degenerate_relations_converge(name):
    X = DEGENERATE[name]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = IRM(random_state=0).fit(X)
    assert model.converged_
    assert np.isfinite(model.log_evidence_)
    assert np.isfinite(model.block_probability_).all()
    assert np.isfinite(model.row_membership_).all()
    K = model.block_probability_.shape
    if name in {"no links", "all links", "one block"}:
        assert K == (1, 1)
    if name == "two halves":
        assert K == (2, 2)
    if name == "all-equal rows":  # eight singletons have more evidence than two clusters
        assert K[0] == 1
        groups = (np.zeros(len(X)), X[0])
        two = IRM(init=groups, refine=False, max_iter=1, tol=0).fit(X)
        assert two.block_probability_.shape == (1, 2)
        assert model.log_evidence_ >= two.log_evidence_ - 1e-9
        assert all(np.unique(X[0, model.column_labels_ == k]).size == 1 for k in range(K[1]))
    if name == "empty rows and columns":
        assert K[0] == 3
        assert np.unique(model.row_labels_[-9:]).size == 1


@pytest.mark.usefixtures("short_chains")
def test_duplicated_rows_get_the_same_cluster():
    drawn = planted((80, 60), (4, 4), 2)
    X = sparse.vstack([drawn.X, drawn.X[:8]]).tocsr()
    model = IRM(random_state=0).fit(X)
    assert (model.row_labels_[:8] == model.row_labels_[80:]).all()


@pytest.mark.parametrize("share", [0.1, 0.6])
@pytest.mark.usefixtures("short_chains")
def test_blocks_are_found_with_many_cells_unseen(share):
    drawn = planted((150, 140), (3, 4), 7)
    held = hold_out(drawn.X, share, 0)
    model = IRM(random_state=0).fit(held.X, unseen=held.unseen)
    assert adjusted_rand_score(drawn.row_labels, model.row_labels_) > 0.95
    assert adjusted_rand_score(drawn.column_labels, model.column_labels_) > 0.95


@pytest.mark.parametrize("max_clusters", [2, 6, 30, None])
@pytest.mark.usefixtures("short_chains")
def test_truncation_above_the_true_number_has_no_effect(max_clusters):
    drawn = planted((120, 100), (5, 4), 11)
    model = IRM(max_clusters=max_clusters, random_state=0).fit(drawn.X)
    if max_clusters == 2:
        assert model.block_probability_.shape == (2, 2)
    else:
        assert model.block_probability_.shape == (5, 4)


@pytest.mark.usefixtures("short_chains")
def test_default_fit_finds_the_planted_numbers_of_clusters():
    found = []
    for seed in range(8):
        drawn = synth1(seed)
        model = IRM(random_state=seed).fit(drawn.X)
        truth = IRM(init=(drawn.row_labels, drawn.column_labels), refine=False, max_iter=1, tol=0)
        at_least = truth.fit(drawn.X).log_evidence_ - 1e-6
        found.append(model.block_probability_.shape == (4, 5) or model.log_evidence_ >= at_least)
    assert sum(found) >= 7


@pytest.mark.usefixtures("short_chains")
def test_restarts_report_their_agreement():
    model = IRM(n_init=3, random_state=0).fit(synth1(1).X)
    assert model.stability_ == pytest.approx(1.0)
    assert "Rand index of 1.00" in model.summary()
    assert IRM(random_state=0).fit(synth1(1).X).stability_ is None


def test_a_relation_with_three_columns_is_not_left_in_one_block():
    rng = np.random.default_rng(0)
    patterns = np.array([[0, 0, 1], [0, 1, 0], [1, 0, 0], [1, 1, 1]])[np.arange(200) % 4]
    X = np.where(rng.random(patterns.shape) < 0.03, 1 - patterns, patterns)
    model = IRM(inference="cvb0", random_state=0).fit(X)
    assert model.log_evidence_ > -360.0  # one block: -416
    assert len(np.unique(model.column_labels_)) == 3
