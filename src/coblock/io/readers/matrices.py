"""Stored cells of matrices in files; objects are named by position."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import io, sparse

from coblock.io.readers.edges import convert_errors, refuse
from coblock.io.readers.indexing import IndexedEdges, cell_states, describe_threshold
from coblock.io.readers.text import split_at_whitespace
from coblock.model import checks

if TYPE_CHECKING:
    import polars as pl

# Rows and columns that a file may have: a million, and a thousand for each stored cell.
_MAX_EMPTY, _MAX_PER_CELL = 1_000_000, 1_000


def read_market(path: Path, binarize: float | None) -> IndexedEdges:
    """Read a sparse Matrix Market file, plain or compressed with gzip.

    SciPy reads only the header: a damaged body can crash SciPy's parser and with it the process.
    """
    with convert_errors(f"{path} is not a Matrix Market file, or is damaged"):
        rows, columns, stored, layout, field, symmetry = io.mminfo(path)
        if layout != "coordinate":
            refuse(
                f"{path} is a dense Matrix Market file ({layout}). Save it as a sparse one "
                "(coordinate): scipy.io.mmwrite(path, scipy.sparse.csr_array(matrix))."
            )
        if field == "complex":
            refuse(f"{path} must hold real numbers, but holds complex ones.")
        _check_size((rows, columns), stored, path)
        body = split_at_whitespace(path, "%").slice(1)  # the first line has the size
        cells = _parse_cells(body, stored, (rows, columns), field == "pattern", path)
        row, column, values = (series.to_numpy() for series in cells)
        if symmetry != "general":  # only one half is stored
            off = row != column
            sign = -1.0 if symmetry == "skew-symmetric" else 1.0
            row, column = np.append(row, column[off]), np.append(column, row[off])
            values = np.append(values, sign * values[off])
        matrix = sparse.coo_array((values, (row, column)), shape=(rows, columns))
    return _to_cells(matrix, 1, binarize, path)


def _parse_cells(
    body: "pl.Series", stored: int, shape: tuple[int, int], pattern: bool, path: Path
) -> tuple["pl.Series", "pl.Series", "pl.Series"]:
    """Return rows and columns, from 0, and values of the lines of a file."""
    import polars as pl

    width = 2 if pattern else 3
    if len(body) != stored:
        refuse(f"{path} is damaged: it says it has {stored:,} stored cells, but has {len(body):,}.")
    fields = [body.list.get(i, null_on_oob=True) for i in range(width)]
    row, column = (field.cast(pl.Int64, strict=False) - 1 for field in fields[:2])
    ones = pl.repeat(1.0, len(body), eager=True)
    value = ones if pattern else fields[2].cast(pl.Float64, strict=False)
    good = (body.list.len() == width) & value.is_not_null()
    for index, size in zip((row, column), shape, strict=True):
        good = good & index.is_between(0, size - 1).fill_null(False)
    if not good.all():
        first = int((~good).arg_max() or 0)
        refuse(
            f"{path} is damaged: {(~good).sum():,} of {stored:,} stored cells are not {width} "
            f"numbers within {shape[0]:,} x {shape[1]:,}; the first is {body[first].to_list()!r}."
        )
    return row, column, value


def read_npz(path: Path, binarize: float | None) -> IndexedEdges:
    """Read a sparse matrix that SciPy has saved; nothing in the file is unpickled."""
    expected = "a sparse matrix saved by scipy.sparse.save_npz"
    with convert_errors(f"{path} is not {expected}, or is damaged"):
        matrix = sparse.load_npz(path)
    return _to_cells(matrix, 0, binarize, path)


def _to_cells(matrix: Any, first: int, binarize: float | None, path: Path) -> IndexedEdges:
    """Return the stored cells; objects are named by their positions, counted from ``first``."""
    import polars as pl

    with convert_errors(str(path)):
        if matrix.dtype.kind not in "buif":
            refuse(f"{path} must hold real numbers, but holds {matrix.dtype}.")
        checks.check_shape(matrix.shape, "bipartite")
        _check_size(matrix.shape, matrix.nnz, path)
        checks.check_indices(matrix, str(path))
        found = sparse.coo_array(matrix)
        rows, columns = (index.astype(np.int32) for index in found.coords)

    def locate(position: int) -> str:
        return f"row {rows[position] + first:,}, column {columns[position] + first:,}"

    values = pl.Series(found.data.astype(np.float64))
    states = cell_states(values, binarize, locate)
    notes = tuple(describe_threshold(values, states, binarize))
    names = [tuple(map(str, range(first, first + size))) for size in matrix.shape]
    return IndexedEdges(rows, columns, states, names[0], names[1], both_halves=True, notes=notes)


def _check_size(shape: tuple[int, ...], stored: int, path: Path) -> None:
    """Refuse matrices without cells, and sizes of damaged headers that would exhaust the memory."""
    if len(shape) != 2 or 0 in shape or not stored:
        refuse(f"{path} holds no edges: its shape is {shape}, with {stored:,} stored cells.")
    if sum(shape) > _MAX_EMPTY + _MAX_PER_CELL * stored:
        refuse(
            f"{path} has {shape[0]:,} rows and {shape[1]:,} columns, but only {stored:,} stored "
            "cells. If the size is correct, remove rows and columns without stored cells."
        )
