"""Cells of a relation from frames, arrays, sparse matrices, graphs, tuples and files."""

import csv
from collections.abc import Iterable, Mapping, Sequence, Set
from pathlib import Path
from typing import Any, NamedTuple

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from coblock.io import refuse
from coblock.io.readers import DELIMITERS
from coblock.model.checks import open_frame
from coblock.model.dataset import as_name
from coblock.model.likelihoods import quoted

LONGEST_HEADER = 1 << 16  # characters


def check_places(places: object) -> dict[str, str]:
    """Return the domain of each place, or refuse them."""
    if not places or isinstance(places, str) or not isinstance(places, Mapping | Sequence):
        refuse(
            f"places must be a list of domains, or a dict from places to domains, but is "
            f"{quoted(places)}.",
            TypeError,
        )
    named = dict(places) if isinstance(places, Mapping) else None
    given = [*places, *(named or {}).values()]
    wrong = [each for each in given if not (isinstance(each, str) and each)]
    if wrong:
        refuse(
            f"Places and domains must be named by texts, but {quoted(wrong[0])} is among them. "
            "Give texts; rename the columns of a frame that are numbers.",
            TypeError,
        )
    if named is not None:
        return named
    named = {place: place for place in places}
    if len(named) < len(places):
        refuse(
            f"A domain fills several of the places {', '.join(places)}. Name the places: "
            "{'from': 'person', 'to': 'person'}."
        )
    return named


class Listing(NamedTuple):
    """Listed cells: objects by place, values, the shape of an array, all objects of a graph."""

    objects: list[NDArray[Any]]
    values: Any = None
    shape: tuple[int, ...] | None = None
    nodes: list[NDArray[Any]] | None = None
    undirected: bool = False


def list_cells(
    data: Any, places: Mapping[str, str], value: str | int | None, what: str = "data"
) -> Listing:
    """Return the cells that ``what`` lists; ``places`` are filled by domains."""
    if isinstance(data, str | Path):
        data = read_frame(Path(data), list(places))
    if bool(sparse.issparse(data)) or isinstance(data, np.ndarray):
        return _list_array(data, list(places), value)
    if hasattr(data, "edges") and hasattr(data, "nodes"):
        return _list_edges(data, places, value)
    frame = open_frame(data)
    if isinstance(frame, nw.LazyFrame):
        frame = frame.collect()
    if isinstance(frame, nw.DataFrame):
        return _list_rows(frame, list(places), value, what)
    if isinstance(data, str | bytes | Mapping | nw.Series) or not isinstance(data, Iterable):
        refuse(
            f"{what} must be a frame, an array, a sparse matrix, a graph, tuples or a path, but is "
            f"{type(data).__name__}. Pass one of them.",
            TypeError,
        )
    unordered = isinstance(data, Set) and not isinstance(data, Sequence)
    rows = sorted(data, key=str) if unordered else list(data)
    return _list_tuples(rows, list(places), value)


def _list_array(data: Any, places: list[str], value: Any) -> Listing:
    """Return the stored cells of a sparse matrix, or all cells of an array."""
    if value is not None:
        refuse(f"value is {quoted(value)}, but an array holds its values. Leave value out.")
    if data.dtype.kind in "OUST" and data.ndim == 2 and data.shape[1] == len(places) != 2:
        refuse(
            f"An array has an axis for each place, and {len(places)} are named, but the array of "
            f"texts has the shape {data.shape}. If its rows list objects, pass data.tolist()."
        )
    _check_arity(data.ndim, places, f"An array of shape {data.shape}")
    if bool(sparse.issparse(data)):
        coo = data.tocoo(copy=True)  # the data of the user stay as they are
        if coo.dtype.kind in "iu":
            coo = coo.astype(np.float64)  # sums of small integers overflow
        coo.sum_duplicates()
        return Listing(list(coo.coords), coo.data, coo.shape)
    if np.ma.isMaskedArray(data):
        mask, data = np.ma.getmaskarray(data), np.array(data.data, dtype=object)
        data[mask] = None
    indices = np.indices(data.shape).reshape(data.ndim, -1)
    return Listing(list(indices), np.asarray(data).ravel(), data.shape)


def _list_rows(frame: "nw.DataFrame[Any]", places: list[str], value: Any, what: str) -> Listing:
    """Return the rows of a long frame."""
    wanted = [*places, *([] if value is None else [value])]
    lost = [str(column) for column in wanted if column not in frame.columns]
    if lost:
        refuse(
            f"There is no column {quoted(lost[0])} in {what}. The columns are: "
            f"{quoted(', '.join(map(str, frame.columns)))}. Name the columns as places and value."
        )
    twice = [column for column in wanted if f"{column}_duplicated_0" in frame.columns]
    if twice:  # polars renames the second one
        refuse(f"{quoted(twice[0])} is the name of several columns in {what}. Rename all but one.")
    if value in places:
        refuse(f"value is {quoted(value)}, which is a place. Name the column that holds values.")
    objects = [as_objects(frame[place].to_list(), place) for place in places]
    return Listing(objects, None if value is None else frame[str(value)].to_list())


def _list_edges(graph: Any, places: Mapping[str, str], value: Any) -> Listing:
    """Return the edges of a graph, and its nodes: some may have no edges."""
    _check_arity(2, list(places), "A graph")
    edges = [(*edge[:2], edge[-1]) for edge in graph.edges(data=value)]
    values = None if value is None else [edge[2] for edge in edges]
    if values and all(is_missing(each) for each in values):
        refuse(f"No edge of the graph has an attribute {quoted(value)}. Name another as value.")
    domains, nodes = list(places.values()), None
    undirected = not graph.is_directed()
    if domains[0] == domains[1]:
        nodes = [as_objects(list(graph.nodes), place) for place in places]
    elif undirected:  # an edge is listed from either end
        side = dict(graph.nodes(data="bipartite"))
        wrong = [edge for edge in edges if {str(side[edge[0]]), str(side[edge[1]])} != {"0", "1"}]
        if wrong:
            refuse(
                f"{len(wrong):,} of {len(edges):,} edges do not join a node with the attribute "
                f"bipartite=0, of domain '{domains[0]}', and one with bipartite=1, of domain "
                f"'{domains[1]}'; the first is {wrong[0][:2]}. Set the attribute of the nodes."
            )
        edges = [edge if str(side[edge[0]]) == "0" else (edge[1], edge[0]) for edge in edges]
        sides = [[node for node in side if str(side[node]) == which] for which in "01"]
        nodes = [as_objects(each, place) for each, place in zip(sides, places, strict=True)]
        undirected = False
    objects = [as_objects([edge[p] for edge in edges], place) for p, place in enumerate(places)]
    return Listing(objects, values, nodes=nodes, undirected=undirected)


def _list_tuples(data: list[Any], places: list[str], value: Any) -> Listing:
    """Return tuples of objects, one of whose entries may be the value."""
    width = len(places) + (value is not None)
    wrong = [t for t, row in enumerate(data) if not isinstance(row, tuple | list)]
    wrong = wrong or [t for t, row in enumerate(data) if len(row) != width]
    if wrong:
        refuse(
            f"{len(wrong):,} of {len(data):,} rows are not tuples of {width} entries; the first is "
            f"row {wrong[0] + 1:,}. A tuple has an object for each place, and the value if its "
            "position is given."
        )
    if value is not None and not (isinstance(value, int) and -width <= value < width):
        refuse(f"value must be the position of the values in a tuple, but is {quoted(value)}.")
    at = None if value is None else value % width
    positions = [p for p in range(width) if p != at]
    objects = [
        as_objects([row[p] for row in data], place)
        for p, place in zip(positions, places, strict=True)
    ]
    return Listing(objects, None if at is None else [row[at] for row in data])


def read_frame(path: Path, places: list[str]) -> Any:
    """Read a table of a file; names at places are text, even if they look like numbers."""
    import polars as pl
    from polars.exceptions import PolarsError

    kind = path.suffix.lower()
    if kind not in {".csv", ".tsv", ".parquet"}:
        refuse(f"{path} must be a .csv, .tsv or .parquet file with one row for each cell.")
    if not path.is_file():
        refuse(f"There is no file {path}. Correct the path.", FileNotFoundError)
    try:
        if kind == ".parquet":
            return pl.read_parquet(path)
        return pl.read_csv(
            path,
            separator=_delimiter_of(path, places),
            schema_overrides=dict.fromkeys(places, pl.String),
            infer_schema_length=None,
        )
    except PolarsError as error:
        reason = str(error).split("\n", maxsplit=1)[0].rstrip(".")
        msg = f"{path} cannot be read as a table: {reason}. Repair it, or write it anew."
        raise ValueError(msg) from error


def _delimiter_of(path: Path, places: list[str]) -> str:
    """Return the delimiter by which the header names most of the places."""
    usual = "\t" if path.suffix.lower() == ".tsv" else ","
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        first = file.readline(LONGEST_HEADER)

    def count_places(delimiter: str) -> int:
        fields = next(csv.reader([first], delimiter=delimiter), [])
        return len(set(places) & set(fields))

    return max([usual, *DELIMITERS], key=count_places)


def _check_arity(arity: int, places: list[str], what: str) -> None:
    if arity != len(places):
        refuse(f"{what} has {arity} places, but {len(places)} are named: {', '.join(places)}.")


def as_objects(values: Any, place: str) -> NDArray[Any]:
    """Return the objects at a place: names as text; positions stay numbers."""
    if isinstance(values, np.ndarray) and values.dtype.kind in "iu":
        return values
    names = list(values)
    missing = np.flatnonzero([is_missing(name) for name in names])
    if missing.size:
        refuse(
            f"{missing.size:,} of {len(names):,} names at place '{place}' are missing; the first "
            f"is in row {missing[0] + 1:,}. Name the objects, or remove the rows."
        )
    return np.array([as_name(name) for name in names], dtype=object)


def cell_in_words(places: Iterable[str], objects: Iterable[object]) -> str:
    """Return the objects of a cell, by place."""
    pairs = zip(places, objects, strict=True)
    return "(" + ", ".join(f"{place}={quoted(str(each))}" for place, each in pairs) + ")"


def is_missing(value: Any) -> bool:
    """Return whether a value stands for none: None, NaN, or what a frame has for them."""
    if value is None:
        return True
    try:
        return bool(value != value)  # noqa: PLR0124 - NaN and NaT differ from themselves
    except TypeError:  # pandas.NA has no truth value
        return True


def as_values(values: Any) -> NDArray[Any]:
    """Return listed values as an array; NumPy would make text of a missing value beside texts."""
    if isinstance(values, np.ndarray) or {*map(type, values)} <= {int, float, bool}:
        return np.asarray(values)
    return np.fromiter(values, dtype=object, count=len(values))


def find_missing(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which values stand for none."""
    if values.dtype.kind == "f":
        return np.isnan(values)
    if values.dtype.kind in "iub":
        return np.zeros(values.size, dtype=bool)
    return np.array([is_missing(each) for each in values.tolist()], dtype=bool)


def distinct_cells(
    objects: list[NDArray[Any]],
) -> tuple[list[NDArray[Any]], NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]:
    """Return the distinct cells, where each is first, which one a row is, and how often."""
    codes = np.zeros(len(objects[0]), np.int64)
    for each in objects:
        values, code = np.unique(each, return_inverse=True)
        codes = codes * max(len(values), 1) + code
        codes = np.unique(codes, return_inverse=True)[1]
    _, first, inverse, counts = np.unique(
        codes, return_index=True, return_inverse=True, return_counts=True
    )
    order = np.argsort(first, kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(order.size)
    return [each[first[order]] for each in objects], first[order], rank[inverse], counts[order]
