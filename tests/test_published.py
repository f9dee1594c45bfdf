"""What a plain method publishes is the state that its sweeps ended in, up to the order of clusters.

The residual of published memberships is the largest change of any of them by one more sweep. For
the averaging methods it is taken at the average, which is a fixed point once the sweeps that it
averages over are at rest.
"""

import warnings
from dataclasses import replace
from functools import cache
from io import StringIO

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from rich.console import Console

from coblock import IRM, load
from coblock.analysis.description import describe, summarise
from coblock.analysis.prediction import most_probable_label
from coblock.inference.engine import LocalEngine, Schedule
from coblock.inference.variational import sweep_second_order, sweep_vb
from coblock.io import annotate, export, model_file
from coblock.model.result import Result
from coblock.model.state import SoftState, select_columns
from coblock.ui.cli.results import result_data
from coblock.ui.report import domain_tables, notebook_view, render
from coblock.ui.terminal import result_page
from fabricated import with_a_cluster_without_members

KINDS = ("bipartite", "directed", "undirected")
PLAIN = ("vb", "cvb", "cvb0", "acvb", "acvb0")
RESIDUAL = 1e-6


def relation(kind: str) -> np.ndarray:
    """Return blocks with unseen cells; sweeps with five clusters leave some without members."""
    rng = np.random.default_rng(4)
    rows, columns = rng.integers(3, size=36), rng.integers(3, size=28)
    columns = columns if kind == "bipartite" else rows
    probability = rng.beta(1.0, 1.0, size=(3, 3))[rows][:, columns]
    X = (rng.random(probability.shape) < probability).astype(float)
    X[rng.random(X.shape) < 0.1] = np.nan
    if kind == "directed":
        np.fill_diagonal(X, 0.0)
    return np.triu(X, 1) + np.triu(X, 1).T if kind == "undirected" else X


@cache
def plain_fit(kind: str, inference: str) -> IRM:
    model = IRM(
        kind,
        inference=inference,
        refine=False,
        init="random",
        max_clusters=5,
        tol=1e-11,
        random_state=0,
    )
    return model.fit(relation(kind))


def residual(result: Result, inference: str, keep: list[np.ndarray]) -> float:
    """Return the largest change of a membership by one more sweep, with these clusters only."""
    q = [select_columns(each, kept) for each, kept in zip(result.memberships, keep, strict=True)]
    state = SoftState(result.relation, [each.copy() for each in q], result.hyper.select(keep))
    if inference == "vb":
        sweep_vb(state)
    elif inference.endswith("0"):
        LocalEngine(Schedule(1)).sweep_memberships(state)
    else:
        sweep_second_order(state, exact=True)
    return max(np.abs(new - old).max() for new, old in zip(state.q, q, strict=True))


@pytest.mark.parametrize("inference", PLAIN)
@pytest.mark.parametrize("kind", KINDS)
def test_published_memberships_are_a_fixed_point(kind, inference):
    model = plain_fit(kind, inference)
    assert model.converged_
    assert residual(model.result_, inference, model.result_.sticks) <= RESIDUAL


@pytest.mark.parametrize("inference", ["cvb", "cvb0", "acvb", "acvb0"])
@pytest.mark.parametrize("kind", KINDS)
def test_without_clusters_that_have_no_members_they_are_not(kind, inference):
    """Negative control: dropping these clusters is not a step of the method."""
    result = plain_fit(kind, inference).result_
    pairs = list(zip(result.sticks, result.n_clusters, strict=False))
    keep = [sticks[sticks < K] for sticks, K in pairs]
    assert any(kept.size < sticks.size for kept, (sticks, _) in zip(keep, pairs, strict=True))
    assert residual(result, inference, keep) > 100 * RESIDUAL


def published(kind: str) -> IRM:
    """Return a model with a cluster without members in each domain."""
    model = IRM(kind)
    model._publish(with_a_cluster_without_members(kind))
    model.n_features_in_ = model.result_.relation.shape[1]
    return model


@pytest.mark.parametrize("kind", KINDS)
def test_clusters_without_members_come_last_and_keep_their_memberships(kind):
    model = published(kind)
    K1, K2 = model.result_.n_clusters
    assert model.block_probability_.shape == (K1 + 1, K2 + 1)
    assert_allclose(model.row_membership_[:, K1], 0.1)
    assert_array_equal(model.result_.sticks[0], [K1, *range(K1)])  # it was the first
    assert_array_equal(np.unique(model.row_labels_), np.arange(K1))
    q, p = model.row_membership_, model.block_probability_
    expected = q[0] @ p @ model.column_membership_[1]
    assert model.link_probability(0, 1) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_tables_texts_and_pictures_show_clusters_with_members(kind, tmp_path):
    model = published(kind)
    result, (K1, K2) = model.result_, model.result_.n_clusters
    found = describe(result)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        blocks = model.to_frame("blocks")
        texts = [summarise(result), render(result, settings={}), notebook_view(result)]
        model.plot_blocks().figure.clear()
        model.plot_sizes().figure.clear()
        graph = annotate.to_graph(model)
        export.write_json(result, tmp_path / "result.json")
        page = Console(width=120, file=StringIO(), record=True)
        page.print(result_page(model, found, tmp_path / "report.html"))
        texts.append(page.export_text())
    assert blocks.height == K1 * K2
    assert min(blocks["rows"].min(), blocks["columns"].min()) > 0
    assert not any("nan" in text.lower() for text in texts[::2])
    assert f"cluster {K1}" not in texts[0]
    assert f"r{K1 - 1}" in texts[3]
    assert f"r{K1}" not in texts[3]
    assert f"{K1} clusters" in texts[3].replace(f" x {K2} clusters", " clusters")
    assert max(data["cluster"] for _, data in graph.nodes(data=True)) < max(K1, K2)
    assert len(model.rows_) == len(model.columns_) == K1 * K2
    assert result_data(model, found, tmp_path)["row_clusters"] == K1
    assert [row["number"] for row in domain_tables(found)[0]["rows"]] == list(range(K1))


def test_new_rows_get_labels_of_clusters_with_members():
    model = published("bipartite")
    K1 = model.result_.n_clusters[0]
    q = np.array([[0.1] * K1 + [1.0 - 0.1 * K1]])
    assert q.argmax() == K1
    assert most_probable_label(model.result_, q).tolist() == [0]
    new = np.eye(3, model.n_features_in_)
    assert model.predict_membership(new).shape == (3, K1 + 1)
    assert model.predict(new).max() < K1


@pytest.mark.parametrize("kind", KINDS)
def test_model_file_keeps_clusters_without_members_and_sticks(kind, tmp_path):
    model = published(kind)
    model.save(tmp_path / "m")
    again = load(tmp_path / "m").result_
    assert_array_equal(again.memberships[-1], model.column_membership_)
    for sticks, back in zip(model.result_.sticks, again.sticks, strict=True):
        assert_array_equal(sticks, back)
    broken = replace(model.result_, sticks=[sticks * 0 for sticks in again.sticks])
    model_file.save(broken, tmp_path / "n", {})
    with pytest.raises(model_file.ModelFileError, match="sticks"):
        model_file.load(tmp_path / "n")
