"""Graphs of networkx, in memory and as GraphML or GML."""

from pathlib import Path
from typing import Any

from coblock.io.readers.errors import ReadError, refusing
from coblock.io.readers.pairs import Columns, Pairs, collect_pairs


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
    names = _names(graph)
    if relation == "bipartite":
        rows, others = _sides(graph)
        ends = [_in_order(u, v, rows, names) for u, v in graph.edges()]
        row_objects, column_objects = (
            tuple(names[node] for node in side) for side in (rows, others)
        )
    else:
        ends = [(names[u], names[v]) for u, v in graph.edges()]
        row_objects, column_objects = tuple(names.values()), ()
    values = _values(graph, columns.value)
    notes: tuple[str, ...] = ()
    if relation == "directed" and not graph.is_directed():
        values += [value for value, (u, v) in zip(values, ends, strict=True) if u != v]
        ends += [(v, u) for u, v in ends if u != v]
        notes = ("The graph has no directions: each of its edges is a link in both.",)
    if not ends:
        msg = f"The graph has {len(names):,} nodes, but no edges."
        raise ReadError(msg)
    found = _pairs(ends, None if columns.value is None else values)
    return Pairs(found.frame, found.where, row_objects, column_objects, notes)


def _names(graph: Any) -> dict[Any, str]:
    names = {node: str(node) for node in graph.nodes}
    different = len(set(names.values()))
    if different < len(names):
        msg = (
            f"{len(names):,} nodes have only {different:,} different names: some are equal as "
            "text, such as 1 and '1'. Rename them."
        )
        raise ReadError(msg)
    return names


def _sides(graph: Any) -> tuple[dict[Any, None], dict[Any, None]]:
    """Return the nodes that are rows and those that are columns, in the order of the graph."""
    sides: dict[str, dict[Any, None]] = {"0": {}, "1": {}}
    unknown = 0
    for node, side in graph.nodes(data="bipartite"):
        if str(side) in sides:
            sides[str(side)][node] = None
        else:
            unknown += 1
    if unknown:
        msg = (
            f"{unknown:,} of {len(graph):,} nodes have no attribute bipartite=0 (a row) or 1 (a "
            "column). Say relation='undirected' or 'directed' for a graph with one set of objects."
        )
        raise ReadError(msg)
    return sides["0"], sides["1"]


def _in_order(u: Any, v: Any, rows: dict[Any, None], names: dict[Any, str]) -> tuple[str, str]:
    """Return the names of an edge's ends, the row first."""
    if (u in rows) == (v in rows):
        msg = (
            f"The edge between {names[u]!r} and {names[v]!r} joins two nodes of one side. "
            "Correct their attribute bipartite, or take the edge out."
        )
        raise ReadError(msg)
    return (names[u], names[v]) if u in rows else (names[v], names[u])


def _values(graph: Any, attribute: str | None) -> list[str | None]:
    """Return an attribute of all edges, as text."""
    given = [data.get(attribute) for _, _, data in graph.edges(data=True)]
    if attribute is not None and given and all(value is None for value in given):
        msg = f"No edge of the graph has an attribute {attribute!r}. Name another with value=."
        raise ReadError(msg)
    return [None if value is None else str(value) for value in given]


def _pairs(ends: list[tuple[str, str]], values: list[str | None] | None) -> Pairs:
    import polars as pl

    with refusing("The graph cannot be read"):
        table = {"row": [row for row, _ in ends], "column": [column for _, column in ends]}
        frame = pl.DataFrame(table, schema={"row": pl.String, "column": pl.String})
        if values is not None:
            frame = frame.with_columns(pl.Series("value", values, dtype=pl.String))
    chosen = Columns("row", "column", None if values is None else "value")
    return collect_pairs(frame.lazy(), chosen, "The graph")
