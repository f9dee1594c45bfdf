"""Cells of a relation from frames, arrays, sparse matrices, graphs, tuples and files."""

from pathlib import Path
from typing import Any, NamedTuple

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from coblock.io import refuse
from coblock.model.likelihoods import quoted


class Listing(NamedTuple):
    """Listed cells: objects by place, values, the shape of an array, the kind of a graph."""

    objects: list[NDArray[Any]]
    values: Any = None
    shape: tuple[int, ...] | None = None
    kind: str | None = None


def list_cells(data: Any, places: list[str], value: str | int | None) -> Listing:
    """Return the cells that the data list."""
    if isinstance(data, str | Path):
        data = read_frame(Path(data), places)
    if bool(sparse.issparse(data)):
        coo = data.tocoo()
        coo.sum_duplicates()
        _check_arity(2, places, "A sparse matrix")
        return Listing([coo.coords[0], coo.coords[1]], coo.data, coo.shape)
    if isinstance(data, np.ndarray) and data.dtype != object and data.dtype.kind not in "USV":
        _check_arity(data.ndim, places, f"An array of shape {data.shape}")
        indices = np.indices(data.shape).reshape(data.ndim, -1)
        return Listing(list(indices), data.ravel(), data.shape)
    if hasattr(data, "edges") and hasattr(data, "nodes"):
        return _list_edges(data, places, value)
    if isinstance(data, list | tuple) and (not data or isinstance(data[0], tuple | list)):
        return _list_tuples(data, places, value)
    frame = nw.from_native(data, eager_only=True, pass_through=True)
    if not isinstance(frame, nw.DataFrame):
        refuse(
            f"data must be a frame, an array, a sparse matrix, a graph, a list of tuples or a "
            f"path, but is {type(data).__name__}.",
            TypeError,
        )
    wanted = [*places, *([] if value is None else [value])]
    lost = [str(column) for column in wanted if column not in frame.columns]
    if lost:
        refuse(
            f"The data have no column {quoted(lost[0])}. Their columns are: "
            f"{quoted(', '.join(frame.columns))}."
        )
    objects = [as_objects(frame[place].to_list()) for place in places]
    return Listing(objects, None if value is None else frame[str(value)].to_list())


def _list_edges(graph: Any, places: list[str], value: Any) -> Listing:
    """Return the edges of a graph."""
    _check_arity(2, places, "A graph")
    edges = list(graph.edges(data=value) if value is not None else graph.edges())
    objects = [as_objects([edge[p] for edge in edges]) for p in (0, 1)]
    values = None if value is None else [edge[2] for edge in edges]
    return Listing(objects, values, kind="directed" if graph.is_directed() else "undirected")


def _list_tuples(data: Any, places: list[str], value: Any) -> Listing:
    """Return tuples of objects, one of whose entries may be the value."""
    width = len(places) + (value is not None)
    wrong = [t for t, row in enumerate(data) if len(row) != width]
    if wrong:
        refuse(
            f"{len(wrong):,} of {len(data):,} tuples do not have {width} entries; the first is "
            f"number {wrong[0] + 1}."
        )
    at = width - 1 if value is None else int(value)
    positions = [p for p in range(width) if value is None or p != at]
    objects = [as_objects([row[p] for row in data]) for p in positions]
    return Listing(objects, None if value is None else [row[at] for row in data])


def read_frame(path: Path, places: list[str]) -> Any:
    """Read a table of a file; names at places are text, even if they look like numbers."""
    import polars as pl
    from polars.exceptions import PolarsError

    if path.suffix not in {".csv", ".tsv", ".parquet"}:
        refuse(f"{path} must be a .csv, .tsv or .parquet file with one row for each cell.")
    try:
        if path.suffix == ".parquet":
            return pl.read_parquet(path)
        return pl.read_csv(
            path,
            separator="\t" if path.suffix == ".tsv" else ",",
            schema_overrides=dict.fromkeys(places, pl.String),
            infer_schema_length=None,
        )
    except PolarsError as error:
        reason = str(error).split("\n", maxsplit=1)[0].rstrip(".")
        msg = f"{path} cannot be read as a table: {reason}. Repair it, or write it anew."
        raise ValueError(msg) from error


def _check_arity(arity: int, places: list[str], what: str) -> None:
    if arity != len(places):
        refuse(f"{what} has {arity} places, but {len(places)} are named: {', '.join(places)}.")


def as_objects(values: Any) -> NDArray[Any]:
    """Return names as an array of text; positions stay numbers."""
    if isinstance(values, np.ndarray) and values.dtype.kind in "iu":
        return values
    names = list(values)
    missing = [t for t, name in enumerate(names) if is_missing(name)]
    if missing:
        refuse(f"{len(missing):,} names are missing; the first is that of cell {missing[0] + 1:,}.")
    return np.array([str(name) for name in names], dtype=object)


def is_missing(value: object) -> bool:
    """Return whether a value stands for none: None or NaN."""
    return value is None or (isinstance(value, float) and np.isnan(value))


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
