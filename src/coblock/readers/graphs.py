"""Graphs of networkx, in memory and as GraphML or GML."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from coblock.readers.errors import ReadError, refusing
from coblock.readers.pairs import Columns, Pairs, collect_pairs


def is_graph(source: object) -> bool:
    """Say whether it looks like a graph of networkx."""
    return all(hasattr(source, name) for name in ("nodes", "edges", "is_directed", "is_multigraph"))


def load_graph(path: Path, kind: str) -> Any:
    """Return the graph of a GraphML or GML file."""
    try:
        import networkx
    except ImportError as error:
        msg = f"{path} needs networkx to be read: pip install 'coblock[graphs]'"
        raise ImportError(msg) from error
    name = "GraphML" if kind == ".graphml" else "GML"
    with refusing(f"{path} is not a {name} file, or is damaged"):
        if kind == ".graphml":
            return networkx.read_graphml(path)
        try:
            return networkx.read_gml(path)
        except networkx.NetworkXError as error:
            if "label" not in str(error):
                raise
            return networkx.read_gml(path, label="id")


def read_graph(graph: Any, relation: str, columns: Columns) -> Pairs:
    """Read the edges of a graph; nodes without edges are objects too."""
    import polars as pl

    nodes = _names(graph)
    if relation == "bipartite":
        return _two_sided(graph, nodes, columns.value)
    edges = [(nodes[u], nodes[v], _value(data, columns.value)) for u, v, data in _edges(graph)]
    notes: tuple[str, ...] = ()
    if relation == "directed" and not graph.is_directed():
        edges += [(v, u, value) for u, v, value in edges if u != v]
        notes = ("The graph has no directions: each of its edges is a link in both.",)
    objects = tuple(nodes.values())
    return _pairs(edges, columns.value, objects, (), notes, pl)


def _two_sided(graph: Any, nodes: dict[Any, str], value: str | None) -> Pairs:
    import polars as pl

    sides = {node: data.get("bipartite") for node, data in graph.nodes(data=True)}
    rows = {node for node, side in sides.items() if str(side) in {"0", "0.0"}}
    columns = {node for node, side in sides.items() if str(side) in {"1", "1.0"}}
    unknown = len(sides) - len(rows) - len(columns)
    if unknown:
        msg = (
            f"{unknown:,} of {len(sides):,} nodes have no attribute bipartite=0 (a row) or 1 (a "
            "column). Say relation='undirected' or 'directed' for a graph with one set of objects."
        )
        raise ReadError(msg)
    edges = []
    for u, v, data in _edges(graph):
        if (u in rows) == (v in rows):
            msg = (
                f"The edge between {nodes[u]!r} and {nodes[v]!r} joins two nodes of one side. "
                "Correct their attribute bipartite, or take the edge out."
            )
            raise ReadError(msg)
        row, column = (u, v) if u in rows else (v, u)
        edges.append((nodes[row], nodes[column], _value(data, value)))
    row_objects, column_objects = (
        tuple(nodes[node] for node in sides if node in side) for side in (rows, columns)
    )
    return _pairs(edges, value, row_objects, column_objects, (), pl)


def _pairs(
    edges: list[tuple[str, str, object]],
    value: str | None,
    row_objects: tuple[str, ...],
    column_objects: tuple[str, ...],
    notes: tuple[str, ...],
    pl: Any,
) -> Pairs:
    if not edges:
        msg = f"The graph has {len(row_objects) + len(column_objects):,} nodes, but no edges."
        raise ReadError(msg)
    values = [edge[2] for edge in edges]
    if value is not None and all(given is None for given in values):
        msg = f"No edge of the graph has an attribute {value!r}. Name another with value=."
        raise ReadError(msg)
    table = pl.LazyFrame(
        {
            "row": [edge[0] for edge in edges],
            "column": [edge[1] for edge in edges],
            "value": [None if given is None else str(given) for given in values],
        },
        schema=dict.fromkeys(("row", "column", "value"), pl.String),
    )
    wanted = Columns("row", "column", None if value is None else "value")
    found = collect_pairs(table if value is not None else table.drop("value"), wanted, "The graph")
    return Pairs(found.frame, found.where, row_objects, column_objects, notes)


def _names(graph: Any) -> dict[Any, str]:
    names = {node: str(node) for node in graph.nodes}
    if len(set(names.values())) < len(names):
        msg = (
            f"{len(names):,} nodes have only {len(set(names.values())):,} different names: some "
            "are equal as text, such as 1 and '1'. Rename them."
        )
        raise ReadError(msg)
    return names


def _edges(graph: Any) -> Iterable[tuple[Any, Any, dict[str, object]]]:
    return graph.edges(data=True)


def _value(data: dict[str, object], name: str | None) -> object:
    return None if name is None else data.get(name)
