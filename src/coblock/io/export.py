"""Results as tables: data frames, CSV, Parquet and JSON files."""

import json
from collections.abc import Sequence
from dataclasses import fields
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coblock.io.atomic import WriteError, write_atomic
from coblock.kernels import Floats
from coblock.model.checks import check_choice
from coblock.model.relation import Relation
from coblock.model.result import Result
from coblock.model.trace import SweepRecord

if TYPE_CHECKING:
    import polars as pl

TABLES = ("rows", "columns", "blocks")
FORMULA_START = r"^[=+\-@\t\r\n]"  # spreadsheets run text that begins so


def write_tables(
    result: Result, folder: str | Path, *, kind: str = "csv", formulas: bool = False
) -> list[Path]:
    """Write the tables rows, columns, blocks and trace, each file completely or not at all.

    Parameters
    ----------
    result : Result
        Result of a fit.
    folder : str or Path
        Created if it does not exist.
    kind : {"csv", "parquet"}
        Format of the files, and suffix of their names.
    formulas : bool
        By default an apostrophe is put before a name that a spreadsheet would run as a formula (it
        begins with ``=``, ``+``, ``-``, ``@``, a tab or a line break). True leaves names
        unchanged. Parquet files always have the unchanged names.

    Returns
    -------
    list of Path
        The four files.
    """
    check_choice("kind", kind, ("csv", "parquet"))
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        msg = f"The folder {folder} cannot be made: {error.strerror}. Choose another place."
        raise WriteError(msg) from error
    frames = {what: to_frame(result, what) for what in TABLES} | {"trace": trace_frame(result)}
    paths = []
    for name, frame in frames.items():
        paths.append(folder / f"{name}.{kind}")
        if kind == "csv":
            data = to_csv(frame, formulas=formulas)
        else:
            buffer = BytesIO()
            frame.write_parquet(buffer)
            data = buffer.getvalue()
        write_atomic(paths[-1], data)
    return paths


def write_json(result: Result, path: str | Path) -> None:
    """Write one JSON object: a summary of the fit, and rows, columns and blocks as lists."""
    relation = result.relation
    summary = {
        "relation": relation.kind,
        "shape": list(relation.shape),
        "links": int(relation.n_links),
        "unseen": int(relation.n_unseen),
        "log_evidence": float(result.log_evidence),
        "converged": bool(result.converged),
        "sweeps": len(result.trace),
    }
    tables = {what: to_frame(result, what).to_dicts() for what in TABLES}
    write_atomic(path, json.dumps(summary | tables, allow_nan=False, indent=1).encode())


def to_csv(frame: "pl.DataFrame", *, formulas: bool = False) -> bytes:
    """Return a frame as CSV with all text quoted, and with formulas only if they are allowed."""
    import polars as pl

    if not formulas:
        text = pl.col(pl.String)
        is_formula = text.str.contains(FORMULA_START)
        frame = frame.with_columns(pl.when(is_formula).then("'" + text).otherwise(text).name.keep())
    return frame.write_csv(quote_style="non_numeric").encode()


def to_frame(result: Result, what: str = "rows", library: str = "polars") -> Any:
    """Return rows, columns or blocks of a result as a data frame of polars or pandas.

    Examples
    --------
    >>> import numpy as np
    >>> from coblock import IRM
    >>> model = IRM(random_state=0).fit(np.kron(np.eye(2), np.ones((9, 8))))
    >>> model.to_frame("rows").columns
    ['name', 'cluster', 'probability']
    """
    check_choice("what", what, TABLES)
    check_choice("library", library, ("polars", "pandas"))
    columns = _block_columns(result) if what == "blocks" else _object_columns(result, what)
    if library == "polars":
        return _polars_frame(columns)
    try:
        import pandas as pd
    except ImportError as error:
        msg = "library='pandas' needs pandas, which is not installed: pip install pandas"
        raise ImportError(msg) from error
    return pd.DataFrame(columns)


def trace_frame(result: Result) -> "pl.DataFrame":
    """Return the records of all sweeps as a polars data frame."""
    names = [field.name for field in fields(SweepRecord)]
    return _polars_frame({name: [getattr(s, name) for s in result.trace] for name in names})


def recommendation_frame(
    result: Result, rows: NDArray[np.int64], columns: NDArray[np.int64], probability: Floats
) -> "pl.DataFrame":
    """Return the recommendations of :meth:`IRM.recommend` for these rows, one pair per line."""
    line, rank = np.nonzero(columns >= 0)
    return _polars_frame(
        {
            "row": _names_at(result.relation, 0, rows[line]),
            "rank": rank + 1,
            "column": _names_at(result.relation, 1, columns[line, rank]),
            "probability": probability[line, rank],
        }
    )


def membership_frame(names: Sequence[str], membership: Floats) -> "pl.DataFrame":
    """Return name, most probable cluster and its probability of each object."""
    return _polars_frame(
        {
            "name": [_valid_text(name) for name in names],
            "cluster": membership.argmax(axis=1),
            "probability": membership.max(axis=1),
        }
    )


def object_names(relation: Relation, place: int) -> Sequence[str] | None:
    """Return the names of rows (0) or columns (1); in a one-domain relation either will do."""
    names = (relation.row_names, relation.column_names)
    if relation.repeated and names[place] is None:
        return names[1 - place]
    return names[place]


def _object_columns(result: Result, what: str) -> dict[str, Any]:
    place = TABLES.index(what)
    domain = min(place, len(result.labels) - 1)
    label, q = result.labels[domain], result.memberships[domain]
    names = object_names(result.relation, place)
    return {
        "name": np.arange(label.size) if names is None else [_valid_text(name) for name in names],
        "cluster": label,
        "probability": q[np.arange(label.size), label],
    }


def _block_columns(result: Result) -> dict[str, Any]:
    """Return all blocks, by row cluster and then by column cluster."""
    K1, K2 = result.n.shape
    row, column = np.divmod(np.arange(K1 * K2), K2)
    sizes = [np.bincount(label) for label in result.labels]
    return {
        "row_cluster": row,
        "column_cluster": column,
        "rows": sizes[0][row],
        "columns": sizes[-1][column],
        "probability": result.block_probability.ravel(),
        "links": result.n.ravel(),
        "cells": (result.n + result.N).ravel(),
    }


def _names_at(relation: Relation, place: int, positions: NDArray[np.int64]) -> "pl.Series":
    """Return the names of objects, or their positions if there are no names."""
    import polars as pl

    names = object_names(relation, place)
    if names is None:
        return pl.Series(positions)
    return pl.Series([_valid_text(name) for name in names], dtype=pl.String).gather(positions)


def _valid_text(name: str) -> str:
    """Return a name that UTF-8 can encode: lone surrogates become escapes."""
    return name.encode("utf-8", "backslashreplace").decode("utf-8")


def _polars_frame(columns: dict[str, Any]) -> "pl.DataFrame":
    import polars as pl

    return pl.DataFrame(columns)
