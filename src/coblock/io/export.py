"""What a fit has found as tables: data frames and CSV files."""

import json
from collections.abc import Sequence
from dataclasses import fields
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coblock.io.atomic import WriteError, write_whole
from coblock.kernels import Floats
from coblock.model.checks import check_choice
from coblock.model.relation import Relation
from coblock.model.result import Result
from coblock.model.trace import Sweep

if TYPE_CHECKING:
    import polars as pl

TABLES = ("rows", "columns", "blocks")
FORMULA_START = r"^[=+\-@\t\r\n]"  # of a text that a spreadsheet may run


def write_tables(
    result: Result, folder: str | Path, *, kind: str = "csv", formulas: bool = False
) -> list[Path]:
    """Write the tables rows, columns, blocks and trace, each whole or not at all.

    Parameters
    ----------
    result : Result
        Of a fit.
    folder : str or Path
        Created where it does not exist.
    kind : {"csv", "parquet"}
        Of the files, which are called rows.csv and so on.
    formulas : bool
        By default a name that a spreadsheet would run as a formula (it starts with ``=``, ``+``,
        ``-``, ``@``, a tab or a line break) gets an apostrophe before it. True leaves names alone,
        and Parquet always does.

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
        data = to_csv(frame, formulas=formulas) if kind == "csv" else _parquet(frame)
        write_whole(paths[-1], data)
    return paths


def write_json(result: Result, path: str | Path) -> None:
    """Write one JSON object: what the fit has found, and rows, columns and blocks as lists."""
    relation = result.relation
    found = {
        "relation": relation.kind,
        "shape": list(relation.shape),
        "links": int(relation.n_links),
        "unseen": int(relation.n_unseen),
        "log_evidence": float(result.log_evidence),
        "converged": bool(result.converged),
        "sweeps": len(result.trace),
    }
    tables = {what: to_frame(result, what).to_dicts() for what in TABLES}
    write_whole(path, json.dumps(found | tables, allow_nan=False, indent=1).encode())


def to_csv(frame: "pl.DataFrame", *, formulas: bool = False) -> bytes:
    """Return a frame as CSV; every text is quoted, and none is a formula unless asked for."""
    safe = frame if formulas else _without_formulas(frame)
    return safe.write_csv(quote_style="non_numeric").encode()


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
    columns = _blocks(result) if what == "blocks" else _objects(result, what)
    if library == "polars":
        return _polars_frame(columns)
    try:
        import pandas as pd
    except ImportError as error:
        msg = "library='pandas' needs pandas, which is not installed: pip install pandas"
        raise ImportError(msg) from error
    return pd.DataFrame(columns)


def trace_frame(result: Result) -> "pl.DataFrame":
    """Return the report of every sweep as a data frame of polars."""
    names = [field.name for field in fields(Sweep)]
    return _polars_frame({name: [getattr(s, name) for s in result.trace] for name in names})


def recommendation_frame(
    result: Result, rows: NDArray[np.int64], columns: NDArray[np.int64], probability: Floats
) -> "pl.DataFrame":
    """Return what :meth:`IRM.recommend` has found for these rows, one line for each pair."""
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
    """Return name, most probable cluster and its probability."""
    return _polars_frame(
        {
            "name": [_valid_text(name) for name in names],
            "cluster": membership.argmax(axis=1),
            "probability": membership.max(axis=1),
        }
    )


def object_names(relation: Relation, domain: int) -> Sequence[str] | None:
    """Return the names of rows (0) or columns (1); of one-domain objects those there are."""
    names = (relation.row_names, relation.column_names)
    if relation.one_domain and names[domain] is None:
        return names[1 - domain]
    return names[domain]


def _objects(result: Result, what: str) -> dict[str, Any]:
    d = TABLES.index(what)
    label, q = (
        per_domain[0 if d == 0 else -1] for per_domain in (result.labels, result.memberships)
    )
    names = object_names(result.relation, d)
    return {
        "name": np.arange(label.size) if names is None else [_valid_text(name) for name in names],
        "cluster": label,
        "probability": q[np.arange(label.size), label],
    }


def _names_at(relation: Relation, domain: int, positions: NDArray[np.int64]) -> "pl.Series":
    """Return the names, or positions, of some objects."""
    import polars as pl

    names = object_names(relation, domain)
    if names is None:
        return pl.Series(positions)
    return pl.Series([_valid_text(name) for name in names], dtype=pl.String).gather(positions)


def _valid_text(name: str) -> str:
    """Return a name that UTF-8 can write: halves of surrogate pairs become escapes."""
    return name.encode("utf-8", "backslashreplace").decode("utf-8")


def _blocks(result: Result) -> dict[str, Any]:
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


def _polars_frame(columns: dict[str, Any]) -> "pl.DataFrame":
    import polars as pl

    return pl.DataFrame(columns)


def _without_formulas(frame: "pl.DataFrame") -> "pl.DataFrame":
    """Put an apostrophe before texts that a spreadsheet would run."""
    import polars as pl

    texts = pl.col(pl.String)
    risky = texts.str.contains(FORMULA_START)
    return frame.with_columns(pl.when(risky).then("'" + texts).otherwise(texts).name.keep())


def _parquet(frame: "pl.DataFrame") -> bytes:
    buffer = BytesIO()
    frame.write_parquet(buffer)
    return buffer.getvalue()
