"""Results of one or several relations as tables: data frames, CSV, Parquet and JSON files.

Tables that people have edited, with names of clusters and known classes, are read here, too.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from coblock.io import refuse
from coblock.io.atomic import WriteError, write_atomic
from coblock.kernels import Floats
from coblock.model.checks import check_choice
from coblock.model.likelihoods.categorical import Categorical
from coblock.model.multi_result import MultiResult, block_means
from coblock.model.relation import BinaryRelation, column_shares
from coblock.model.result import Result
from coblock.model.trace import SweepRecord

if TYPE_CHECKING:
    import polars as pl

__all__ = ["write_json", "write_tables"]

Table: TypeAlias = Literal["rows", "columns", "blocks"]
Library: TypeAlias = Literal["polars", "pandas"]
FileKind: TypeAlias = Literal["csv", "parquet"]
TABLES: tuple[Table, ...] = get_args(Table)
LIBRARIES: tuple[Library, ...] = get_args(Library)
FORMULA_START = r"^[\x00=+\-@\t\r\n]"  # spreadsheets run text that begins so
RESERVED = ("blocks", "trace", "report", "model")  # names of other files of a result
LONGEST_STEM = 80  # characters of the name of a file
NAME_COLUMNS = ("side", "cluster", "name")  # of a file of cluster names
GUARDED = re.compile(f"'{FORMULA_START[1:]}")


def write_tables(
    result: Result | MultiResult,
    folder: str | Path,
    *,
    kind: FileKind = "csv",
    formulas: bool = False,
) -> list[Path]:
    """Write the tables rows, columns, blocks and trace, and return the paths of the files.

    A relation with one set of objects has no table of columns, which would be that of the rows.
    Several relations have a table for each domain instead of rows and columns.

    Each file is written completely or not at all; the folder is created if it does not exist.
    ``kind`` is "csv" or "parquet". In CSV files an apostrophe is put before a name that a
    spreadsheet would run as a formula (it begins with ``=``, ``+``, ``-``, ``@``, NUL, a tab or a
    line break), unless ``formulas`` is True. Parquet files have the unchanged names.
    """
    check_choice("kind", kind, get_args(FileKind))
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        msg = f"The folder {folder} cannot be made: {error.strerror}. Choose another place."
        raise WriteError(msg) from error
    frames = _multi_tables(result) if isinstance(result, MultiResult) else _tables(result)
    paths = {name: folder / f"{name}.{kind}" for name in frames}
    for name, frame in frames.items():
        data = to_csv(frame, formulas=formulas) if kind == "csv" else frame.write_parquet
        write_atomic(paths[name], data)
    return list(paths.values())


def write_json(result: Result | MultiResult, path: str | Path) -> None:
    """Write one JSON object: a summary of the fit, and rows, columns and blocks as lists.

    Several relations have domains, and relations with their blocks.
    """
    document = _multi_document(result) if isinstance(result, MultiResult) else _document(result)
    write_atomic(path, json.dumps(document, allow_nan=False, indent=1).encode())


def _tables(result: Result) -> "dict[str, pl.DataFrame]":
    """Return all tables of a result by the names of their files, without extensions."""
    names = [field.name for field in fields(SweepRecord)]
    trace = {name: [getattr(record, name) for record in result.trace] for name in names}
    frames = {what: to_frame(result, what) for what in tables_of(result)}
    return frames | {"trace": make_frame(trace)}


def _document(result: Result) -> dict[str, Any]:
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
    return summary | {what: to_frame(result, what).to_dicts() for what in tables_of(result)}


def to_csv(frame: "pl.DataFrame", *, formulas: bool = False) -> bytes:
    """Return a frame as CSV with all text quoted, and with formulas only if they are allowed."""
    import polars as pl

    if not formulas:
        text = pl.col(pl.String)
        is_formula = text.str.contains(FORMULA_START)
        frame = frame.with_columns(pl.when(is_formula).then("'" + text).otherwise(text).name.keep())
    return frame.write_csv(quote_style="non_numeric").encode()


def tables_of(result: Result) -> list[Table]:
    """Return the tables of a result; rows and columns of one set of objects are the same."""
    return [what for what in TABLES if what != "columns" or not result.relation.repeated]


def to_frame(result: Result, what: Table = "rows", library: str = "polars") -> Any:
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
    check_choice("library", library, LIBRARIES)
    if what == "blocks":
        columns = _binary_block_columns(result)
    else:
        place = TABLES.index(what)
        label, q = result.labels[-place], result.memberships[-place]
        columns = object_columns(object_names(result.relation, place), label, q)
    return make_frame(columns, library)


def make_frame(columns: dict[str, Any], library: str = "polars") -> Any:
    """Return columns as a data frame of polars or pandas."""
    if library == "polars":
        import polars as pl

        return pl.DataFrame(columns)
    try:
        import pandas as pd
    except ImportError as error:
        msg = "library='pandas' needs pandas, which is not installed: pip install pandas"
        raise ImportError(msg) from error
    return pd.DataFrame(columns)


def library_of(X: object) -> Library:
    """Return the library for tables about an input: pandas if it is a frame of pandas."""
    return "pandas" if type(X).__module__.startswith("pandas.") else "polars"


def recommendation_columns(
    result: Result, rows: NDArray[np.int64], columns: NDArray[np.int64], probability: Floats
) -> dict[str, Any]:
    """Return the recommendations of :meth:`IRM.recommend` for these rows, one pair per line.

    The lift is the probability over the share of links of the column, NaN for one without links.
    """
    relation, (line, rank) = result.relation, np.nonzero(columns >= 0)
    known = [_valid_names(object_names(relation, d), relation.shape[d]) for d in (0, 1)]
    found, share = columns[line, rank], column_shares(relation)
    probability = probability[line, rank]
    lift = np.full(found.size, np.nan)
    np.divide(probability, share[found], out=lift, where=share[found] > 0.0)
    return {
        "row": [known[0][i] for i in rows[line]],
        "rank": rank + 1,
        "column": [known[1][j] for j in found],
        "probability": probability,
        "lift": lift,
    }


def object_names(relation: BinaryRelation, place: int) -> Sequence[str] | None:
    """Return the names of rows (0) or columns (1); in a one-domain relation either will do."""
    names = (relation.row_names, relation.column_names)
    return names[1 - place] if relation.repeated and names[place] is None else names[place]


def object_columns(names: Sequence[str] | None, label: NDArray[Any], q: Floats) -> dict[str, Any]:
    """Return name, cluster and probability of the cluster of each object, by column."""
    probability = q[np.arange(label.size), label]
    return {"name": _valid_names(names, label.size), "cluster": label, "probability": probability}


def _binary_block_columns(result: Result) -> dict[str, Any]:
    """Return the blocks of clusters with members, by row cluster and then by column cluster."""
    K1, K2 = result.n_clusters
    row, column = np.divmod(np.arange(K1 * K2), K2)
    sizes = [np.bincount(label) for label in result.labels]
    return {
        "row_cluster": row,
        "column_cluster": column,
        "rows": sizes[0][row],
        "columns": sizes[-1][column],
        "probability": result.block_probability[result.with_members].ravel(),
        "links": result.n[result.with_members].ravel(),
        "cells": (result.n + result.N)[result.with_members].ravel(),
    }


def _valid_names(names: Sequence[str] | None, size: int) -> Any:
    """Return names that UTF-8 can encode (lone surrogates become escapes), or positions."""
    if names is None:
        return np.arange(size)
    return [name.encode("utf-8", "backslashreplace").decode("utf-8") for name in names]


# Several relations


def file_stems(domain_names: tuple[str, ...]) -> list[str]:
    """Return a name of a file for each domain: no separators, none twice, none reserved.

    Examples
    --------
    >>> file_stems(("user", "../etc", "blocks", "User"))
    ['user', '_etc', 'blocks_2', 'User_2']
    """
    stems: list[str] = []
    taken = set(RESERVED)
    for name in domain_names:
        plain = re.sub(r"[^\w -]+", "_", name).strip()[:LONGEST_STEM] or "domain"
        stem, number = plain, 1
        while stem.lower() in taken:  # some file systems do not distinguish case
            number += 1
            stem = f"{plain}_{number}"
        taken.add(stem.lower())
        stems.append(stem)
    return stems


def domain_columns(result: MultiResult, domain: str) -> dict[str, Any]:
    """Return name, cluster and probability of the cluster of each object of a domain."""
    d = result.data.domain(domain)
    return object_columns(result.data.domains[d].names, result.labels[d], result.memberships[d])


def block_columns(result: MultiResult, relation: str) -> dict[str, Any]:
    """Return the blocks of a relation: a cluster for each place, statistics and mean.

    Categories have a line each, with the number of cells as the only statistic. Of very many
    blocks, those that hold no stored cells are left out.
    """
    r = result.relation_number(relation)
    table, clusters = result.data.tables[r], result.listed_blocks(r)
    mean = block_means(result, r, clusters)
    statistics = result.blocks.statistics_at(r, tuple(clusters.T))
    at = np.arange(len(clusters))
    categories: list[str] = []
    if isinstance(table.likelihood, Categorical):
        categories = [str(each) for each in table.likelihood.categories] * at.size
        at, statistics = np.repeat(at, mean.shape[1]), statistics.reshape(-1, 1)
    columns: dict[str, Any] = {
        f"{place}_cluster": clusters[at, p].astype(np.int64) for p, place in enumerate(table.places)
    }
    if categories:
        columns["category"] = categories
    for s in range(statistics.shape[-1]):
        columns[f"statistic_{s + 1}"] = statistics[:, s].copy()
    return columns | {"mean": mean.ravel()}


def multi_frame(result: MultiResult, domain: str | None, relation: str | None, library: str) -> Any:
    """Return the objects of a domain, or the blocks of a relation, as a data frame."""
    if (domain is None) == (relation is None):
        refuse("to_frame needs either domain= or relation=.")
    if domain is not None:
        return make_frame(domain_columns(result, domain), library)
    assert relation is not None
    return make_frame(block_columns(result, relation), library)


def _multi_tables(result: MultiResult) -> "dict[str, pl.DataFrame]":
    """Return all tables of a result by the names of their files, without extensions."""
    import polars as pl

    data = result.data
    tables = {
        stem: make_frame(domain_columns(result, name))
        for stem, name in zip(file_stems(data.domain_names), data.domain_names, strict=True)
    }
    blocks = pl.concat(
        [
            make_frame(block_columns(result, table.name)).insert_column(
                0, pl.lit(table.name).alias("relation")
            )
            for table in data.tables
        ],
        how="diagonal",
    )
    first = [name for name in blocks.columns if name.endswith("_cluster")]
    tables["blocks"] = blocks.select("relation", *first, pl.exclude("relation", *first))
    trace = result.trace
    columns: dict[str, Any] = {
        name: [getattr(record, name) for record in trace]
        for name in ("sweep", "phase", "log_evidence", "moved", "change", "seconds")
    }
    for d, name in enumerate(data.domain_names):
        columns[f"{name}_clusters"] = [record.clusters[d] for record in trace]
    tables["trace"] = make_frame(columns)
    return tables


def _multi_document(result: MultiResult) -> dict[str, Any]:
    data = result.data
    return {
        "log_evidence": float(result.log_evidence),
        "converged": bool(result.converged),
        "sweeps": len(result.trace),
        "domains": {n: make_frame(domain_columns(result, n)).to_dicts() for n in data.domain_names},
        "relations": {
            table.name: {
                "places": {
                    place: data.domain_names[d]
                    for place, d in zip(table.places, table.domains, strict=True)
                },
                "likelihood": table.likelihood.name,
                "blocks": make_frame(block_columns(result, table.name)).to_dicts(),
            }
            for table in data.tables
        },
    }


# Tables that people have edited: names of clusters, known classes


def read_names(path: str | Path) -> dict[tuple[str, int], str]:
    """Return the names of clusters from a CSV file with the columns side, cluster and name.

    ``clusters.csv`` of a result is such a file. Lines without a name are left out, and so is the
    apostrophe that stands before a name which a spreadsheet would run as a formula.
    """
    frame = _read_csv(path)
    missing = [name for name in NAME_COLUMNS if name not in frame.columns]
    if missing:
        refuse(
            f"{path} has no column {missing[0]!r}; a file of cluster names has the columns side, "
            "cluster and name, like clusters.csv of a result."
        )
    found: dict[tuple[str, int], str] = {}
    for line, (side, cluster, name) in enumerate(frame.select(NAME_COLUMNS).rows(), start=2):
        if side not in {"row", "column", "object"}:
            refuse(f"{path}, line {line}: side must be row, column or object, but is {side!r}.")
        if not (cluster and cluster.isascii() and cluster.isdecimal()):
            refuse(f"{path}, line {line}: cluster must be a number, but is {cluster!r}.")
        if name and name.strip():
            guarded = GUARDED.match(name)
            found[side, int(cluster)] = (name[1:] if guarded else name).strip()
    return found


def read_labels(path: str | Path) -> dict[str, str]:
    """Return the class of each object from a CSV file: names in the first column, then classes.

    Objects with a blank class are left out.
    """
    frame = _read_csv(path)
    if frame.width < 2:
        refuse(f"{path} has one column; a file of labels has names and classes, and a header.")
    found: dict[str, str] = {}
    for line, (name, label) in enumerate(frame[:, :2].rows(), start=2):
        if not name or not label or not label.strip():
            continue
        if found.setdefault(name, label.strip()) != label.strip():
            refuse(f"{path}, line {line}: {name!r} has two classes. Keep one line for each name.")
    if not found:
        refuse(f"{path} has no line with a name and a class.")
    return found


def _read_csv(path: str | Path) -> "pl.DataFrame":
    """Read a CSV file as text."""
    import polars as pl

    path = Path(path)
    if not path.is_file():
        refuse(f"There is no file {path}.", FileNotFoundError)
    try:
        return pl.read_csv(path, infer_schema=False, truncate_ragged_lines=False)
    except (pl.exceptions.PolarsError, UnicodeDecodeError) as error:
        reason = str(error).splitlines()[0]
        refuse(f"{path} is not a CSV file with a header: {reason}.")
