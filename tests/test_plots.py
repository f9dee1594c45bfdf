"""Test the plots and the notebook view."""

import re

import matplotlib as mpl
import numpy as np
import pytest
from sklearn import config_context
from sklearn.exceptions import NotFittedError

from coblock import IRM, Relation
from coblock.ui import plots
from coblock.ui.report import notebook_view
from fabricated import NASTY, one_domain_result, result_of, small_result

mpl.use("Agg")
from matplotlib import pyplot


def model_of(result) -> IRM:
    """Return a fitted model with this result."""
    model = IRM(result.relation.kind)
    model._publish(result)
    return model


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    pyplot.close("all")


@pytest.fixture
def model() -> IRM:
    return model_of(small_result())


def test_plot_blocks_shows_sizes_and_probabilities(model):
    ax = model.plot_blocks()
    mesh = ax.collections[0]
    np.testing.assert_allclose(mesh.get_array(), model.block_probability_)
    corners = mesh.get_coordinates()
    assert corners[0, :, 0].tolist() == [0, 8, 12]
    assert corners[:, 0, 1].tolist() == [0, 7, 12, 16]
    assert ax.yaxis_inverted()
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("column cluster", "row cluster")
    assert [text.get_text() for text in ax.get_yticklabels()] == ["0", "1", "2"]
    assert mesh.get_clim() == (0.0, model.block_probability_.max())


def test_small_clusters_have_no_number():
    labels = np.repeat([0, 1, 2], [60, 38, 2])
    relation = Relation.build(np.ones((100, 3)))
    ax = model_of(result_of(relation, labels, np.zeros(3, int))).plot_blocks()
    assert [text.get_text() for text in ax.get_yticklabels()] == ["0", "1"]


def test_plot_trace_shows_change_and_bound(model):
    ax = model.plot_trace()
    change = ax.get_lines()[0]
    np.testing.assert_allclose(change.get_ydata(), [sweep["change"] for sweep in model.trace_])
    np.testing.assert_allclose(change.get_xdata(), np.arange(1, 13))
    assert ax.get_yscale() == "log"
    right = next(other for other in ax.figure.axes if other is not ax)
    bound = right.get_lines()[0]
    np.testing.assert_allclose(bound.get_ydata(), [sweep["bound"] for sweep in model.trace_])
    assert {text.get_text() for text in ax.get_legend().get_texts()} == {"change", "bound"}


def test_plot_sizes_has_bars_for_rows_and_columns(model):
    ax = model.plot_sizes()
    heights = [[bar.get_height() for bar in bars] for bars in ax.containers]
    assert heights == [[7, 5, 4], [8, 4]]
    assert {text.get_text() for text in ax.get_legend().get_texts()} == {"rows", "columns"}


@pytest.mark.parametrize("kind", ["directed", "undirected"])
def test_one_domain_has_one_series(kind):
    model = model_of(one_domain_result(kind))
    assert model.plot_blocks().get_xlabel() == "cluster"
    ax = model.plot_sizes()
    assert [[bar.get_height() for bar in bars] for bars in ax.containers] == [[6, 5, 3]]
    assert ax.get_legend() is None


@pytest.mark.parametrize("name", ["plot_blocks", "plot_trace", "plot_sizes"])
def test_plots_use_the_given_axes(model, name):
    ax = pyplot.figure().add_subplot()
    assert getattr(model, name)(ax=ax) is ax
    assert getattr(plots, name)(model) is not ax
    ax.figure.canvas.draw()


@pytest.mark.parametrize("name", ["plot_blocks", "plot_trace", "plot_sizes"])
def test_an_unfitted_model_raises_before_a_figure_is_made(name):
    with pytest.raises(NotFittedError):
        getattr(IRM(), name)()
    assert not pyplot.get_fignums()


def test_the_notebook_view_shows_numbers_and_blocks(model):
    html = model._repr_html_()
    assert "16 × 12" in html
    assert "3 row clusters, 2 column clusters" in html
    assert "converged after 12 sweeps" in html
    values = [int(cell) for cell in re.findall(r"<td title[^>]*>(\d+)</td>", html)]
    np.testing.assert_allclose(values, 100 * model.block_probability_.ravel(), atol=0.5)
    assert "<script" not in html
    assert model._repr_mimebundle_()["text/html"] == html


def test_an_unfitted_model_has_the_view_of_scikit_learn():
    html = IRM(max_clusters=5)._repr_html_()
    assert "sk-" in html
    assert "max_clusters" in html
    assert "sk-" in IRM()._repr_mimebundle_()["text/html"]


def test_the_text_display_of_scikit_learn_is_respected(model):
    with config_context(display="text"):
        assert not hasattr(model, "_repr_html_")
        assert list(model._repr_mimebundle_()) == ["text/plain"]


def test_the_notebook_view_of_many_clusters_is_cut_with_a_note():
    labels = np.arange(60)
    relation = Relation.build(np.eye(60, 50), row_names=(NASTY * 4)[:60])
    html = notebook_view(result_of(relation, labels, labels[:50]))
    assert "the largest 20 × 24 of 60 × 50" in html
    assert html.count("<td title") == 20 * 24
    assert "&lt;img src=x" in html
    assert not re.search(r"<(img|script|svg|b )", html)


def test_the_notebook_view_of_a_sparse_relation_uses_a_larger_unit():
    X = np.zeros((300, 100))
    X[0, 0] = 1
    zeros = np.zeros(300, int)
    html = notebook_view(result_of(Relation.build(X), zeros, zeros[:100]))
    assert "Links per 1,000,000 cells" in html
