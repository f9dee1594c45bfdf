"""Starts: spectral, labels, an earlier model; relations that are hard to start on."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse
from sklearn.metrics import adjusted_rand_score
from sklearn.utils.extmath import randomized_svd

from coblock import IRM
from coblock.analysis.evaluation import hold_out
from coblock.generate import planted, synth1
from coblock.inference.spectral import POWER_ITERATIONS, NormalisedLinks, scaled_singular_vectors
from coblock.inference.start import (
    memberships_of,
    random_memberships,
    spectral_labels,
    truncation,
)
from coblock.model.relation import Relation


def test_spectral_labels_find_clear_blocks():
    drawn = planted((200, 150), (4, 3), 5)
    rows, columns = spectral_labels(Relation.build(drawn.X), (4, 3), np.random.default_rng(0))
    assert adjusted_rand_score(drawn.row_labels, rows) > 0.9
    assert adjusted_rand_score(drawn.column_labels, columns) > 0.9


@pytest.mark.parametrize("kind", ["directed", "undirected"])
def test_spectral_labels_of_one_domain(kind):
    rng = np.random.default_rng(0)
    label = np.repeat([0, 1, 2], 40)
    X = (rng.random((120, 120)) < 0.05 + 0.5 * (label[:, None] == label)).astype(float)
    np.fill_diagonal(X, 0.0)
    (found,) = spectral_labels(Relation.build(X, kind=kind), (3,), rng)
    assert adjusted_rand_score(label, found) > 0.95


def test_a_directed_start_sees_both_roles():
    """Senders to the same receivers, told apart only by who sends to them."""
    rng = np.random.default_rng(1)
    label = np.repeat([0, 1, 2], 40)
    theta = np.array([[0.1, 0.1, 0.7], [0.1, 0.1, 0.1], [0.7, 0.1, 0.1]]).T
    X = (rng.random((120, 120)) < theta[np.ix_(label, label)]).astype(float)
    np.fill_diagonal(X, 0.0)
    (found,) = spectral_labels(Relation.build(X, kind="directed"), (3,), rng)
    assert adjusted_rand_score(label, found) > 0.9


def test_unseen_cells_are_not_zeros():
    """Half of the cells of some rows hidden: as zeros they would make clusters of their own."""
    drawn = planted((120, 100), (2, 2), 4)
    X = drawn.X.toarray()
    rng = np.random.default_rng(0)
    hidden = np.zeros(X.shape, dtype=bool)
    hidden[::2, :50] = True
    start = np.random.default_rng(1)
    rows, _ = spectral_labels(Relation.build(np.where(hidden, np.nan, X)), (2, 2), start)
    zeros, _ = spectral_labels(Relation.build(np.where(hidden, 0, X)), (2, 2), rng)
    right = adjusted_rand_score(drawn.row_labels, rows)
    assert right > 0.8
    assert right > adjusted_rand_score(drawn.row_labels, zeros)


def dense_normalised_links(X):
    """Return the matrix whose singular vectors a start uses, written out."""
    unseen = np.isnan(X)
    links = np.where(unseen, 0.0, X)
    density = links.sum() / max((~unseen).sum(), 1)
    rates = [
        links.sum(axis=a) / np.maximum((~unseen).sum(axis=a), 1)  # per cell that is seen
        for a in (1, 0)
    ]
    filled = links + unseen * np.minimum(np.outer(*rates) / max(density, 1e-12), 1.0)
    scales = [1 / np.sqrt(d + d.mean()) for d in (filled.sum(axis=1), filled.sum(axis=0))]
    return filled * np.outer(*scales)


@pytest.mark.parametrize("hidden", [0.0, 0.3])
def test_products_are_those_of_the_normalised_links(hidden):
    rng = np.random.default_rng(0)
    X = (rng.random((30, 20)) < 0.3).astype(float)
    X[rng.random(X.shape) < hidden] = np.nan
    links, dense = NormalisedLinks.of(Relation.build(X)), dense_normalised_links(X)
    for d, matrix in enumerate((dense, dense.T)):
        block = rng.random((matrix.shape[1], 7))
        assert_allclose(links.product(d, block), matrix @ block, rtol=1e-12)
    values = links.product(0, np.eye(20))
    assert (values[X == 0] == 0.0).all()
    assert hidden == 0.0 or values[np.isnan(X)].mean() > 0.0


@pytest.mark.parametrize("shape", [(90, 60), (60, 90), (40, 40)])
@pytest.mark.parametrize("kind", [np.float64, np.float32])
def test_singular_vectors_are_those_of_scikit_learn(shape, kind, monkeypatch):
    """Compared by what the points are made of: signs are nobody's."""
    monkeypatch.setattr("coblock.inference.spectral.number_type", lambda _: kind)
    X = planted(shape, (3, 3), 4).X.toarray()
    rows, columns = scaled_singular_vectors(NormalisedLinks.of(Relation.build(X)), 3, 0)
    dense = dense_normalised_links(X)
    U, S, Vt = randomized_svd(dense, 3, n_iter=POWER_ITERATIONS, random_state=0)
    exact = 1e-9 if kind is np.float64 else 1e-4
    assert rows.dtype == columns.dtype == kind
    assert_allclose(abs(rows), abs(U * S), atol=exact)
    assert_allclose(abs(columns), abs(Vt.T * S), atol=exact)


def test_singular_vectors_of_fewer_dimensions_than_asked_for():
    X = np.kron(np.eye(2), np.ones((15, 12)))  # of rank 2
    for given in (X, np.zeros_like(X)):
        points = scaled_singular_vectors(NormalisedLinks.of(Relation.build(given)), 6, 0)
        for found in points:
            assert np.isfinite(found).all()
            assert abs(found[:, 2:]).max() < 1e-6


def test_memberships_of_labels():
    q = memberships_of([np.array([0, 2, 1], dtype=np.int32)], 0.8)[0]
    assert_allclose(q.sum(axis=1), 1.0)
    assert q.argmax(axis=1).tolist() == [0, 2, 1]
    assert memberships_of([np.array([0, 1], dtype=np.int32)], 1.0)[0].tolist() == [[1, 0], [0, 1]]


def test_random_memberships_are_soft_and_truncated_to_the_objects():
    relation = Relation.build(np.eye(5))
    clusters = truncation(relation, (3, 50))
    assert clusters == (3, 5)
    for q, K in zip(
        random_memberships(relation, clusters, np.random.default_rng(0)), clusters, strict=True
    ):
        assert q.shape == (5, K)
        assert_allclose(q.sum(axis=1), 1.0)
        assert (q > 0).all()


def test_starting_from_labels_and_from_an_earlier_model():
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
def test_labels_that_do_not_fit_are_refused(init, message):
    with pytest.raises(ValueError, match=message):
        IRM(init=init).fit(synth1(0).X)


def test_an_earlier_model_of_another_relation_is_refused():
    model = IRM(random_state=0, max_iter=5, tol=0).fit(np.eye(6))
    with pytest.raises(ValueError, match="shape"):
        IRM(init=model).fit(np.eye(7))


HARD = {
    "all-equal rows": np.ones((30, 1)) * np.array([1, 0, 1, 0, 0, 1, 1, 0.0]),
    "one giant hub": np.vstack([np.ones((1, 60)), np.eye(60)[1:]]),
    "nothing at all": np.zeros((20, 15)),
    "everything": np.ones((20, 15)),
    "two halves": np.kron(np.eye(2), np.ones((15, 12))),
    "1 x N": np.array([[0, 1] * 15]),
    "N x 1": np.array([[0, 1] * 15]).T,
    "1 x 1": np.ones((1, 1)),
    "one block": (np.random.default_rng(0).random((40, 30)) < 0.4).astype(float),
    "singletons": np.triu(np.ones((24, 24))),
    "empty rows and columns": np.pad(np.kron(np.eye(2), np.ones((10, 10))), ((0, 9), (0, 7))),
}


@pytest.mark.parametrize("name", sorted(HARD))
def test_hard_relations_end_converged_and_finite(name):
    X = HARD[name]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = IRM(random_state=0).fit(X)
    assert model.converged_
    assert np.isfinite(model.log_evidence_)
    assert np.isfinite(model.block_probability_).all()
    assert np.isfinite(model.row_membership_).all()
    K = model.block_probability_.shape
    if name in {"nothing at all", "everything", "one block"}:
        assert K == (1, 1)
    if name == "two halves":
        assert K == (2, 2)
    if name == "all-equal rows":
        assert K == (1, 2)
    if name == "empty rows and columns":
        assert K[0] == 3
        assert np.unique(model.row_labels_[-9:]).size == 1


def test_duplicated_rows_get_the_same_cluster():
    drawn = planted((80, 60), (4, 4), 2)
    X = sparse.vstack([drawn.X, drawn.X[:8]]).tocsr()
    model = IRM(random_state=0).fit(X)
    assert (model.row_labels_[:8] == model.row_labels_[80:]).all()


@pytest.mark.parametrize("share", [0.1, 0.6])
def test_blocks_are_found_with_many_cells_unseen(share):
    drawn = planted((150, 140), (3, 4), 7)
    held = hold_out(drawn.X, share, 0)
    model = IRM(random_state=0).fit(held.X, unseen=held.unseen)
    assert adjusted_rand_score(drawn.row_labels, model.row_labels_) > 0.95
    assert adjusted_rand_score(drawn.column_labels, model.column_labels_) > 0.95


@pytest.mark.parametrize("max_clusters", [2, 6, 30, None])
def test_a_truncation_that_does_not_bind_does_not_matter(max_clusters):
    drawn = planted((120, 100), (5, 4), 11)
    model = IRM(max_clusters=max_clusters, random_state=0).fit(drawn.X)
    if max_clusters == 2:
        assert model.block_probability_.shape == (2, 2)
    else:
        assert model.block_probability_.shape == (5, 4)


def test_the_default_finds_the_planted_numbers_of_clusters():
    found = []
    for seed in range(8):
        drawn = synth1(seed)
        model = IRM(random_state=seed).fit(drawn.X)
        truth = IRM(init=(drawn.row_labels, drawn.column_labels), refine=False, max_iter=1, tol=0)
        at_least = truth.fit(drawn.X).log_evidence_ - 1e-6
        found.append(model.block_probability_.shape == (4, 5) or model.log_evidence_ >= at_least)
    assert sum(found) >= 7


def test_restarts_report_their_agreement():
    model = IRM(n_init=3, random_state=0).fit(synth1(1).X)
    assert model.stability_ == pytest.approx(1.0)
    assert "Rand index of 1.00" in model.summary()
    assert IRM(random_state=0).fit(synth1(1).X).stability_ is None
