"""The estimator in scikit-learn's workflows, with frames, graphs and names."""

import warnings

import networkx as nx
import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline

import coblock
from coblock import IRM, Relation, read
from coblock.analysis import prediction
from coblock.datasets import load_senate
from coblock.generate import planted

QUICK = {"inference": "cvb0", "random_state": 0}


@pytest.fixture(scope="module", name="X")
def made_cells() -> np.ndarray:
    return planted((60, 24), (3, 2), 1).X.toarray()


@pytest.fixture(scope="module")
def shop() -> pd.DataFrame:
    """Return edges of two groups of customers, with and without a few pairs."""
    pairs = [
        (f"P{i}", f"{'tea' if i % 2 else 'beer'} {j}")
        for i in range(16)
        for j in range(7)
        if (i * j) % 5 != 1
    ]
    return pd.DataFrame(pairs, columns=["customer", "product"])


@pytest.fixture(scope="module")
def model(shop) -> IRM:
    return IRM(**QUICK).fit(shop)


# Scores, searches and pipelines


def row_probability(result, row: np.ndarray) -> float:
    """Return the log probability of a row by the chain rule: each cell given those before it.

    Fractional counts of soft memberships make the rule approximate.
    """
    total = 0.0
    for j in np.flatnonzero(~np.isnan(row)):
        known = np.full((1, row.size), np.nan)
        known[0, :j] = row[:j]
        with_cell = {}
        for value in (0.0, 1.0):
            known[0, j] = value
            new = Relation.build(known.copy())
            with_cell[value] = prediction.log_probability_of_rows(result, new)[0]
        total += with_cell[row[j]] - np.logaddexp(with_cell[0.0], with_cell[1.0])
    return total


def test_score_is_the_log_probability_of_new_rows_by_the_chain_rule(X):
    fitted = IRM(**QUICK).fit(X[:50])
    expected = sum(row_probability(fitted.result_, row) for row in X[50:53])
    assert_allclose(fitted.score(X[50:53]), expected / X[50:53].size, rtol=1e-5)
    swapped = 1.0 - X[50:53]
    assert abs(fitted.score(swapped) - expected / swapped.size) > 0.1


def test_score_leaves_unseen_cells_out(X):
    fitted = IRM(**QUICK).fit(X[:50])
    new = X[50:51].copy()
    new[0, 10:] = np.nan
    assert_allclose(fitted.score(new), row_probability(fitted.result_, new[0]) / 10, rtol=1e-5)
    with pytest.raises(ValueError, match="no observed cells"):
        fitted.score(np.full((1, 24), np.nan))


def test_score_prefers_the_true_model(X):
    good = IRM(**QUICK).fit(X[:50]).score(X[50:])
    one_block = IRM(max_clusters=1, **QUICK).fit(X[:50]).score(X[50:])
    assert good > one_block + 0.05
    shuffled = np.random.default_rng(0).permuted(X[50:], axis=1)
    assert IRM(**QUICK).fit(X[:50]).score(shuffled) < good


def test_cross_validation_and_grid_search(X):
    scores = cross_val_score(IRM(**QUICK), X, cv=3)
    assert scores.shape == (3,)
    assert (scores < 0.0).all()
    search = GridSearchCV(IRM(**QUICK), {"max_clusters": [1, 4]}, cv=3).fit(sparse.csr_array(X))
    assert search.best_params_ == {"max_clusters": 4}
    assert search.predict(X).shape == (60,)


def test_pipeline_with_a_classifier(X):
    classes = IRM(**QUICK).fit_predict(X)
    pipeline = make_pipeline(IRM(**QUICK), LogisticRegression()).fit(X, classes)
    assert pipeline.score(X, classes) > 0.9


@pytest.mark.parametrize(("library", "kind"), [("pandas", pd.DataFrame), ("polars", pl.DataFrame)])
def test_set_output(X, library, kind):
    fitted = IRM(**QUICK).set_output(transform=library).fit(X)
    table = fitted.transform(X)
    assert isinstance(table, kind)
    assert list(table.columns) == [f"irm{k}" for k in range(fitted.row_membership_.shape[1])]
    assert_array_equal(np.asarray(table), fitted.predict_membership(X))


def test_fit_predict_and_probabilities(X):
    fitted = IRM(**QUICK)
    labels = fitted.fit_predict(X)
    assert_array_equal(labels, fitted.row_labels_)
    assert_array_equal(labels, fitted.labels_)
    assert_array_equal(fitted.predict_proba(X), fitted.transform(X))
    assert_allclose(fitted.transform(X).sum(axis=1), 1.0)
    assert_array_equal(fitted.fit_transform(X), fitted.transform(X))
    for method in ("score", "transform", "predict_proba"):
        with pytest.raises(NotFittedError):
            getattr(IRM(), method)(X)


# Frames, graphs and names


def test_edges_are_fitted_as_they_are_read(shop, model):
    expected = IRM(**QUICK).fit(read(shop).relation)
    assert_array_equal(model.labels_, expected.labels_)
    assert_array_equal(IRM(**QUICK).fit(read(shop)).labels_, expected.labels_)
    frame = pl.DataFrame(shop.to_dict("list"))
    assert_array_equal(IRM(**QUICK).fit(frame).labels_, expected.labels_)
    assert model.row_names_.tolist() == list(dict.fromkeys(shop["customer"]))
    assert model.column_names_.tolist() == list(dict.fromkeys(shop["product"]))


def test_paths_and_unseen_pairs_are_fitted(shop, model, tmp_path):
    shop.to_csv(tmp_path / "shop.csv", index=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the header
        fitted = IRM(**QUICK).fit(tmp_path / "shop.csv")
    assert_array_equal(fitted.labels_, model.labels_)
    unseen = pd.DataFrame({"customer": ["P0"], "product": ["tea 1"]})
    assert IRM(**QUICK).fit(shop, unseen=unseen).result_.relation.n_unseen == 1


def test_edges_of_numbers_are_a_matrix_with_a_warning():
    frame = pd.DataFrame({"user": np.arange(1, 40) % 7 + 2, "item": np.arange(1, 40) % 5 + 2})
    with pytest.warns(UserWarning, match=r"If each line is an edge, pass coblock\.read\(X\)"):
        IRM(**QUICK).fit(frame)


def test_graphs_are_fitted():
    graph = nx.karate_club_graph()
    fitted = IRM("undirected", **QUICK).fit(graph)
    assert fitted.labels_.shape == (34,)
    assert fitted.row_names_[0] == "0"
    with pytest.raises(ValueError, match="attribute bipartite"):
        IRM(**QUICK).fit(graph)


def test_what_a_reader_infers_from_a_frame_is_a_warning(shop):
    dated = shop.assign(day="2024-01-05")[["day", "customer", "product"]]
    with pytest.warns(UserWarning, match=r"'day' \(dates\).*coblock\.read has options"):
        fitted = IRM(**QUICK).fit(dated)
    assert fitted.row_names_[0] == "P0"


def test_new_rows_of_edges_are_matched_by_name(shop, model):
    new = shop[shop["customer"].isin(["P3", "P4"])].iloc[::-1]
    labels = model.predict(new)
    assert labels.tolist() == [model.labels_[4], model.labels_[3]]
    other = pd.DataFrame({"who": ["new", "new"], "what": ["tea 0", "nothing that was fitted"]})
    assert model.predict(other).tolist() == [model.labels_[1]]


def test_names_in_and_names_out(shop, model):
    table = model.recommend(["P1", "P2"], n=2)
    assert isinstance(table, pd.DataFrame)
    assert list(table.columns) == ["row", "rank", "column", "probability", "lift"]
    assert table["row"].tolist() == ["P1", "P1", "P2", "P2"]
    positions, probability = model.recommend([1, 2], n=2)
    assert table["column"].tolist() == model.column_names_[positions.ravel()].tolist()
    assert_array_equal(table["probability"], probability.ravel())
    columns = [model.column_names_.tolist().index(name) for name in table["column"]]
    share = read(shop).relation.incidence[1][0]
    shares = np.diff(share.link_start)[columns] / 16
    assert_allclose(table["lift"], table["probability"] / shares)
    one = model.link_probability("P1", ["tea 0", "beer 0"])
    assert_array_equal(one, model.link_probability(1, [model_column(model, "tea 0"), 0]))
    pair = model.same_cluster_probability("P1", "P3")
    assert pair == model.same_cluster_probability(1, 3)
    with pytest.raises(ValueError, match="1 of 2 rows are not in the model; the first is 'Nemo'"):
        model.recommend(["P1", "Nemo"])


def model_column(model: IRM, name: str) -> int:
    return model.column_names_.tolist().index(name)


def test_names_that_are_not_unique_are_refused():
    X = pd.DataFrame(np.eye(3), index=["a", "a", "b"], columns=["x", "y", "z"])
    fitted = IRM(**QUICK).fit(X)
    assert fitted.link_probability("b", "x").shape == ()
    with pytest.raises(ValueError, match="Several rows have the name 'a'"):
        fitted.link_probability("a", "x")


def test_tables_come_back_in_the_library_that_was_fitted(shop, model):
    assert isinstance(model.to_frame("rows"), pd.DataFrame)
    assert isinstance(model.to_frame("rows", library="polars"), pl.DataFrame)
    other = IRM(**QUICK).fit(pl.DataFrame(shop.to_dict("list")))
    assert isinstance(other.to_frame("rows"), pl.DataFrame)
    assert isinstance(other.recommend(["P1"]), pl.DataFrame)


def test_numbers_as_objects_are_accepted(X):
    expected = IRM(**QUICK).fit(X).labels_
    assert_array_equal(IRM(**QUICK).fit(X.astype(object)).labels_, expected)
    assert_array_equal(IRM(**QUICK).fit(pd.DataFrame(X).astype(object)).labels_, expected)
    cells = np.array([[1, None], [0, 1]], dtype=object)
    assert Relation.build(cells).n_unseen == Relation.build(pd.DataFrame(cells)).n_unseen == 1
    with pytest.raises(TypeError, match="must hold real numbers"):
        Relation.build(np.array([[1, "yes"], [0, 1]], dtype=object))


def test_values_that_are_cut_at_zero_are_a_warning(X):
    with pytest.warns(UserWarning, match=r"neither 0 nor 1; they are from 3 to 3.*binarize=t"):
        IRM(**QUICK).fit(3 * X)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for quiet in (IRM(**QUICK).fit(X), IRM(binarize=2, **QUICK).fit(3 * X)):
            assert quiet.labels_.size == 60
        unseen = X.copy()
        unseen[0, 0] = np.nan
        Relation.build(unseen)


def test_short_representations(shop):
    reading = read(shop, unseen=pd.DataFrame({"a": ["P0"], "b": ["tea 0"]}))
    relation = f"Relation(bipartite, 16 x 14, {len(shop)} links, 1 unseen)"
    assert repr(reading.relation) == relation
    assert repr(reading).startswith(f"Reading({relation}, edges={len(shop)}")
    assert repr(load_senate()) == "Votes(102 senators, 645 votes)"


def test_clusters_of_an_anndata_object(X):
    anndata = pytest.importorskip("anndata")
    names = {"obs": pd.DataFrame(index=[f"cell {i}" for i in range(60)])}
    adata = anndata.AnnData(np.zeros_like(X), **names, layers={"counts": X})
    changed = coblock.tl.blocks(adata, layer="counts", key_added="block", copy=True, **QUICK)
    assert "block" not in adata.obs
    expected = IRM(**QUICK).fit(X)
    assert changed.obs["block"].tolist() == [str(k) for k in expected.row_labels_]
    assert changed.var["block"].tolist() == [str(k) for k in expected.column_labels_]
    assert changed.uns["block"]["params"]["layer"] == "counts"
    assert changed.uns["block"]["block_probability"].shape == expected.result_.n_clusters
    assert coblock.tl.blocks(changed, **QUICK) is None
    assert set(changed.obs["coblock"]) == {"0"}
