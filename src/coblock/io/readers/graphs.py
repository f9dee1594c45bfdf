"""networkx graphs, in memory and as GraphML or GML files."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from coblock.io.readers.edges import Columns, EdgeTable, collect_edges
from coblock.io.readers.errors import ReadError, convert_errors


def import_networkx() -> Any:
    """Return the package networkx, which is optional."""
    try:
        import networkx
    except ImportError as error:
        msg = "Graphs need networkx, which is not installed: pip install 'coblock[graphs]'"
        raise ImportError(msg) from error
    return networkx


def is_graph(source: object) -> bool:
    """Return whether an object has the interface of a networkx graph."""
    return all(hasattr(source, name) for name in ("nodes", "edges", "is_directed", "is_multigraph"))


def load_graph(path: Path, kind: str) -> Any:
    """Return the graph of a GraphML or GML file."""
    networkx = import_networkx()
    name = "GraphML" if kind == ".graphml" else "GML"
    with convert_errors(f"{path} is not a {name} file, or is damaged"):
        if kind == ".graphml":
            return networkx.read_graphml(path)
        try:
            return networkx.read_gml(path)
        except networkx.NetworkXError as error:
            if "label" not in str(error):
                raise
            return networkx.read_gml(path, label="id")


def read_graph(graph: Any, relation: str, columns: Columns) -> EdgeTable:
    """Read the edges of a graph; nodes without edges are objects too."""
    import polars as pl

    names = _node_names(graph)
    row_nodes: dict[Any, None] = dict.fromkeys(names)
    column_nodes: dict[Any, None] = {}
    ends = list(graph.edges())
    if relation == "bipartite":
        row_nodes, column_nodes = _split_nodes(graph)
        ends = [_row_first(u, v, row_nodes, names) for u, v in ends]
    values = _edge_values(graph, columns.value)
    notes: tuple[str, ...] = ()
    if relation == "directed" and not graph.is_directed():
        values += [value for value, (u, v) in zip(values, ends, strict=True) if u != v]
        ends += [(v, u) for u, v in ends if u != v]
        notes = ("The graph is undirected: each of its edges is a link in both directions.",)
    if not ends:
        msg = f"The graph has {len(names):,} nodes, but no edges."
        raise ReadError(msg)
    table: dict[str, list[Any]] = {
        "row": [names[u] for u, _ in ends],
        "column": [names[v] for _, v in ends],
    }
    if columns.value is not None:
        table["value"] = values
    with convert_errors("The graph cannot be read"):
        lazy = pl.LazyFrame(table, schema=dict.fromkeys(table, pl.String))
    return replace(
        collect_edges(lazy, Columns(*table), "The graph"),
        row_objects=tuple(names[node] for node in row_nodes),
        column_objects=tuple(names[node] for node in column_nodes),
        notes=notes,
    )


def _node_names(graph: Any) -> dict[Any, str]:
    names = {node: str(node) for node in graph.nodes}
    distinct = len(set(names.values()))
    if distinct < len(names):
        msg = (
            f"{len(names):,} nodes have only {distinct:,} different names: some are equal as text, "
            "such as 1 and '1'. Rename them."
        )
        raise ReadError(msg)
    return names


def _split_nodes(graph: Any) -> tuple[dict[Any, None], dict[Any, None]]:
    """Return the row nodes and the column nodes, each in the order of the graph."""
    nodes: dict[str, dict[Any, None]] = {"0": {}, "1": {}}
    for node, side in graph.nodes(data="bipartite"):
        nodes.setdefault(str(side), {})[node] = None
    unknown = len(graph) - len(nodes["0"]) - len(nodes["1"])
    if unknown:
        msg = (
            f"{unknown:,} of {len(graph):,} nodes have no attribute bipartite=0 (a row) or 1 (a "
            "column). Pass relation='undirected' or 'directed' for a graph with one set of objects."
        )
        raise ReadError(msg)
    return nodes["0"], nodes["1"]


def _row_first(u: Any, v: Any, rows: dict[Any, None], names: dict[Any, str]) -> tuple[Any, Any]:
    """Return the ends of an edge, the row first."""
    if (u in rows) == (v in rows):
        msg = (
            f"The edge between {names[u]!r} and {names[v]!r} joins two rows or two columns. "
            "Correct the attribute bipartite of its nodes, or remove the edge."
        )
        raise ReadError(msg)
    return (u, v) if u in rows else (v, u)


def _edge_values(graph: Any, attribute: str | None) -> list[str | None]:
    """Return an attribute of all edges, as text."""
    values = [data.get(attribute) for _, _, data in graph.edges(data=True)]
    if attribute is not None and values and all(value is None for value in values):
        msg = f"No edge of the graph has an attribute {attribute!r}. Name another with value=."
        raise ReadError(msg)
    return [None if value is None else str(value) for value in values]
