"""Tables, frames and annotations agree with the model for names of all kinds."""

import csv
import sys
import warnings
from dataclasses import replace

import networkx as nx
import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from sklearn.exceptions import ConvergenceWarning

from coblock import IRM, Relation
from coblock.io.annotate import label_anndata, label_graph
from coblock.io.atomic import WriteError
from coblock.io.export import to_frame, write_tables

X = np.kron(np.eye(2), np.ones((6, 5)))
X[11] = 0.0
ROWS = [
    "=1+1",
    "+2",
    "-3",
    "@SUM(A1)",
    "\tindented",
    "\rreturned",
    "two\nlines",
    'comma, "quote"',
    "<b>bold</b>",
    "🙂 é",
    "",
    "plain",
]
COLUMNS = [f"item {j}" for j in range(10)]
RISKY = 6  # the first rows, which look like formulas


def fit(X, kind="bipartite", **settings) -> IRM:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return IRM(kind, **{"random_state": 0, "max_iter": 30} | settings).fit(X)


SMALL = fit(np.eye(2), max_iter=3)


@pytest.fixture(scope="module")
def model() -> IRM:
    return fit(Relation.build(X, row_names=ROWS, column_names=COLUMNS))


@pytest.fixture(scope="module")
def graph_model() -> IRM:
    return fit(np.kron(np.eye(2), 1.0 - np.eye(6)), "undirected")


def read(path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_tables_agree_with_the_model(model, tmp_path):
    paths = write_tables(model.result_, tmp_path / "new" / "folder")
    assert [path.name for path in paths] == ["rows.csv", "columns.csv", "blocks.csv", "trace.csv"]
    assert sorted(path.name for path in (tmp_path / "new" / "folder").iterdir()) == sorted(
        path.name for path in paths
    )
    rows, columns, blocks, trace = (read(path) for path in paths)
    assert [row["name"] for row in columns] == COLUMNS
    assert [int(row["cluster"]) for row in rows] == model.row_labels_.tolist()
    best = model.row_membership_[np.arange(12), model.row_labels_]
    assert [float(row["probability"]) for row in rows] == best.tolist()
    K1, K2 = model.block_probability_.shape
    assert len(blocks) == K1 * K2
    for block in blocks:
        k, l = int(block["row_cluster"]), int(block["column_cluster"])
        assert int(block["rows"]) == (model.row_labels_ == k).sum()
        assert int(block["columns"]) == (model.column_labels_ == l).sum()
        assert float(block["probability"]) == model.block_probability_[k, l]
        assert float(block["links"]) == model.block_links_[k, l]
        assert float(block["cells"]) == model.block_cells_[k, l]
    assert [list(map(float, line.values())) for line in trace] == [
        list(map(float, sweep.values())) for sweep in model.trace_
    ]
    assert list(trace[0]) == list(model.trace_[0])


def test_names_are_not_formulas_unless_allowed(model, tmp_path):
    rows = read(write_tables(model.result_, tmp_path)[0])
    expected = [f"'{name}" for name in ROWS[:RISKY]] + ROWS[RISKY:]
    assert [row["name"] for row in rows] == expected
    rows = read(write_tables(model.result_, tmp_path, formulas=True)[0])
    assert [row["name"] for row in rows] == ROWS
    again = pl.read_csv(tmp_path / "rows.csv")  # another reader agrees
    assert again["name"].fill_null("").to_list() == ROWS


@settings(max_examples=50)
@given(names=st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=2, max_size=2))
def test_names_survive_a_round_trip_through_a_table(names, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    result = replace(SMALL.result_, relation=Relation.build(np.eye(2), row_names=names))
    rows = read(write_tables(result, folder, formulas=True)[0])
    assert [row["name"] for row in rows] == names
    rows = read(write_tables(result, folder)[0])
    assert not any(row["name"].startswith(tuple("=+-@\t\r\n")) for row in rows)


def test_names_that_utf_8_cannot_encode_are_escaped(tmp_path):
    model = fit(Relation.build(np.eye(2), row_names=["ok", "half \ud83d"]), max_iter=3)
    assert read(write_tables(model.result_, tmp_path)[0])[1]["name"] == "half \\ud83d"


def test_objects_without_names_have_positions(tmp_path):
    frame = SMALL.to_frame()
    assert frame["name"].to_list() == [0, 1]
    assert read(write_tables(SMALL.result_, tmp_path)[0])[1]["name"] == "1"


def test_one_domain_has_one_table_of_objects(graph_model, tmp_path):
    paths = write_tables(graph_model.result_, tmp_path)
    assert [path.name for path in paths] == ["rows.csv", "blocks.csv", "trace.csv"]
    assert graph_model.to_frame("rows").equals(graph_model.to_frame("columns"))


def test_names_of_columns_are_used_for_one_domain():
    frame = pl.DataFrame(np.eye(3)[::-1], schema=["a", "b", "c"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = fit(frame, "directed", max_iter=3)
    assert model.to_frame("rows")["name"].to_list() == ["a", "b", "c"]


def test_a_folder_that_cannot_be_made(model, tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(WriteError, match="cannot be made"):
        write_tables(model.result_, tmp_path / "file")
    with pytest.raises(WriteError, match="cannot be made"):
        write_tables(model.result_, tmp_path / "file" / "inside")


@pytest.mark.parametrize("what", ["rows", "columns", "blocks"])
def test_frames_of_both_libraries_agree(model, what):
    one, other = model.to_frame(what), model.to_frame(what, library="pandas")
    assert isinstance(one, pl.DataFrame)
    assert isinstance(other, pd.DataFrame)
    assert one.columns == list(other.columns)
    for name in one.columns:
        assert_array_equal(one[name].to_numpy(), other[name].to_numpy())


def test_unknown_frames_are_refused(model, monkeypatch):
    with pytest.raises(ValueError, match="what must be one of"):
        model.to_frame("cells")
    with pytest.raises(ValueError, match="library must be one of"):
        model.to_frame("rows", library="excel")
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="pip install pandas"):
        to_frame(model.result_, "rows", "pandas")


# Graphs


def test_nodes_get_their_cluster_by_name():
    nodes = [f"n{i}" for i in range(12)]
    graph = nx.Graph()
    graph.add_nodes_from(reversed(nodes))  # not the order of the model
    matrix = np.kron(np.eye(2), 1.0 - np.eye(6))
    relation = Relation.build(matrix, kind="undirected", row_names=nodes)
    model = fit(relation, "undirected")
    label_graph(graph, model, "block")
    for i, node in enumerate(nodes):
        data = graph.nodes[node]
        assert data["block"] == model.labels_[i]
        assert type(data["block"]) is int  # GraphML and JSON cannot hold numpy integers
        assert data["block_probability"] == model.row_membership_[i, model.labels_[i]]
        assert "block_side" not in data
    assert {graph.nodes[n]["block"] for n in nodes[:6]} != {
        graph.nodes[n]["block"] for n in nodes[6:]
    }


def test_nodes_without_names_are_labelled_in_order(graph_model):
    graph = nx.disjoint_union(nx.complete_graph(6), nx.complete_graph(6))
    label_graph(graph, graph_model)
    assert [graph.nodes[n]["cluster"] for n in graph] == graph_model.labels_.tolist()
    graph.remove_node(0)
    with pytest.raises(ValueError, match="11 nodes, but the model 12"):
        label_graph(graph, graph_model)


def test_rows_and_columns_of_a_bipartite_graph(model):
    graph = nx.Graph()
    graph.add_nodes_from(COLUMNS)
    graph.add_nodes_from(ROWS)
    label_graph(graph, model)
    assert [graph.nodes[n]["cluster"] for n in ROWS] == model.row_labels_.tolist()
    assert [graph.nodes[n]["cluster"] for n in COLUMNS] == model.column_labels_.tolist()
    assert {graph.nodes[n]["cluster_side"] for n in COLUMNS} == {"column"}
    list(nx.generate_graphml(graph))


def test_other_graphs_are_refused(model):
    graph = nx.Graph()
    graph.add_nodes_from([*COLUMNS, *ROWS[1:]])
    with pytest.raises(ValueError, match=r"1 of 12 objects .* '=1\+1'"):
        label_graph(graph, model)
    graph.add_nodes_from([1, "1"])
    with pytest.raises(ValueError, match="text of another node"):
        label_graph(graph, model)
    both = fit(Relation.build(np.eye(2), row_names=["a", "b"], column_names=["b", "c"]), max_iter=3)
    with pytest.raises(ValueError, match="a row and a column"):
        label_graph(nx.path_graph(["a", "b", "c"]), both)
    half = fit(Relation.build(np.eye(2), row_names=["a", "b"]), max_iter=3)
    with pytest.raises(ValueError, match="no names"):
        label_graph(nx.path_graph(["a", "b", "c"]), half)
    assert not any(graph.nodes[node] for node in graph)  # nothing was changed


# AnnData


def annotated(rows=ROWS, columns=COLUMNS):
    anndata = pytest.importorskip("anndata")
    obs, var = pd.DataFrame(index=pd.Index(rows)), pd.DataFrame(index=pd.Index(columns))
    return anndata.AnnData(np.zeros((len(rows), len(columns))), obs=obs, var=var)


def test_observations_and_variables_get_their_clusters(model):
    adata = annotated()
    label_anndata(adata, model, "block")
    assert adata.obs["block"].dtype == "category"
    assert_array_equal(adata.obs["block"].astype(int), model.row_labels_)
    assert_array_equal(adata.var["block"].astype(int), model.column_labels_)
    best = model.column_membership_[np.arange(10), model.column_labels_]
    assert_array_equal(adata.var["block_probability"], best)


def test_one_domain_relation_does_not_change_the_variables(graph_model):
    adata = annotated([f"cell {i}" for i in range(12)], ["gene"])
    label_anndata(adata, graph_model)
    assert_array_equal(adata.obs["coblock"].astype(int), graph_model.labels_)
    assert list(adata.var.columns) == []


def test_other_objects_are_refused(model):
    with pytest.raises(ValueError, match="11 observations, but the model was fitted to 12"):
        label_anndata(annotated(ROWS[1:]), model)
    adata = annotated(ROWS, COLUMNS[::-1])
    with pytest.raises(ValueError, match="10 of 10 variables have other names"):
        label_anndata(adata, model)
    assert list(adata.obs.columns) == []  # nothing was changed
