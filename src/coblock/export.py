"""What a fit has found as tables: data frames and CSV files."""

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from coblock.checks import check_choice
from coblock.files import WriteError, write_whole
from coblock.inference.report import Sweep
from coblock.relation import Relation
from coblock.result import Result

if TYPE_CHECKING:
    import polars as pl

TABLES = ("rows", "columns", "blocks")
FORMULA_START = r"^[=+\-@\t\r\n]"  # of a text that a spreadsheet may run


def write_tables(result: Result, folder: str | Path, *, formulas: bool = False) -> list[Path]:
    """Write rows.csv, columns.csv, blocks.csv and trace.csv, each whole or not at all.

    Parameters
    ----------
    result : Result
        Of a fit.
    folder : str or Path
        Created where it does not exist.
    formulas : bool
        By default a name that a spreadsheet would run as a formula (it starts with ``=``, ``+``,
        ``-``, ``@``, a tab or a line break) gets an apostrophe before it. True leaves names alone.

    Returns
    -------
    list of Path
        The four files.
    """
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        msg = f"The folder {folder} cannot be made: {error.strerror}. Choose another place."
        raise WriteError(msg) from error
    frames = {what: to_frame(result, what) for what in TABLES} | {"trace": trace_frame(result)}
    paths = []
    for name, frame in frames.items():
        paths.append(folder / f"{name}.csv")
        write_whole(paths[-1], _csv(frame if formulas else _without_formulas(frame)))
    return paths


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
    """Put an apostrophe before names that a spreadsheet would run."""
    import polars as pl

    if "name" not in frame.columns or frame.schema["name"] != pl.String:
        return frame
    name = pl.col("name")
    risky = name.str.contains(FORMULA_START)
    return frame.with_columns(pl.when(risky).then("'" + name).otherwise(name).alias("name"))


def _csv(frame: "pl.DataFrame") -> bytes:
    """Return a frame as CSV; every text is quoted."""
    return frame.write_csv(quote_style="non_numeric").encode()
