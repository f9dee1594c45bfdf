"""Sparse matrices in files: Matrix Market and SciPy's npz. Their objects are named by position."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import io, sparse

from coblock.io.readers.coding import States
from coblock.io.readers.errors import ReadError, refusing
from coblock.io.readers.text import whitespace_fields
from coblock.io.readers.values import states
from coblock.kernels import Floats, Indices, Offsets
from coblock.model import checks

if TYPE_CHECKING:
    import polars as pl

_MOST_EMPTY = 1_000_000


@dataclass(frozen=True, slots=True)
class Cells:
    """Stored cells of a matrix.

    Attributes
    ----------
    rows, columns : ndarray of int32
        Where they are.
    states : ndarray of int8
        What they are.
    row_names, column_names : tuple of str
        Positions as the format counts them: from 1 in Matrix Market, from 0 in npz.
    """

    rows: Indices
    columns: Indices
    states: States
    row_names: tuple[str, ...]
    column_names: tuple[str, ...]


def read_market(path: Path, binarize: float | None) -> Cells:
    """Read a sparse Matrix Market file, plain or gzip.

    SciPy reads its head only: damage in the body can end SciPy's parser, and the process with it.
    """
    with refusing(f"{path} is not a Matrix Market file, or is damaged"):
        rows, columns, stored, layout, field, symmetry = io.mminfo(path)
        _refuse_dense_or_complex(path, layout, field)
        _refuse_unlikely_sizes((rows, columns), stored, path)
        body = whitespace_fields(path, "%").slice(1)  # the first line tells the sizes
        entries = _entries(body, stored, (rows, columns), field == "pattern", path)
        if symmetry != "general":
            entries = _mirrored(*entries, sign=-1.0 if symmetry == "skew-symmetric" else 1.0)
        row, column, values = entries
        matrix = sparse.coo_array((values, (row, column)), shape=(rows, columns))
    return _cells(matrix, 1, binarize, path)


def _entries(
    body: "pl.Series", stored: int, shape: tuple[int, int], pattern: bool, path: Path
) -> tuple[Offsets, Offsets, Floats]:
    """Return rows and columns, counted from 0, and values of the lines of a file."""
    import polars as pl

    width = 2 if pattern else 3
    if len(body) != stored:
        msg = f"{path} is damaged: it says it has {stored:,} stored cells, but has {len(body):,}."
        raise ReadError(msg)
    fields = [body.list.get(i, null_on_oob=True) for i in range(width)]
    row, column = (field.cast(pl.Int64, strict=False) - 1 for field in fields[:2])
    ones = pl.repeat(1.0, len(body), eager=True)
    value = ones if pattern else fields[2].cast(pl.Float64, strict=False)
    good = (body.list.len() == width) & value.is_not_null()
    for index, size in zip((row, column), shape, strict=True):
        good = good & index.is_between(0, size - 1).fill_null(False)
    if not good.all():
        first = int((~good).arg_max() or 0)
        msg = (
            f"{path} is damaged: {(~good).sum():,} of {stored:,} stored cells are not {width} "
            f"numbers within {shape[0]:,} x {shape[1]:,}; the first is {body[first].to_list()!r}."
        )
        raise ReadError(msg)
    return row.to_numpy(), column.to_numpy(), value.to_numpy()


def _mirrored(
    row: Offsets, column: Offsets, values: Floats, sign: float
) -> tuple[Offsets, Offsets, Floats]:
    """Add the other half of a matrix that is stored by half."""
    off = row != column
    return (
        np.concatenate([row, column[off]]),
        np.concatenate([column, row[off]]),
        np.concatenate([values, sign * values[off]]),
    )


def read_npz(path: Path, binarize: float | None) -> Cells:
    """Read a sparse matrix saved by SciPy; nothing in the file is unpickled."""
    with refusing(f"{path} is not a sparse matrix saved by scipy.sparse.save_npz, or is damaged"):
        matrix = sparse.load_npz(path)
    return _cells(matrix, 0, binarize, path)


def _cells(matrix: Any, first: int, binarize: float | None, path: Path) -> Cells:
    with refusing(str(path)):
        if matrix.dtype.kind not in "buif":
            msg = f"{path} must hold real numbers, but holds {matrix.dtype}."
            raise ReadError(msg)
        if bool(sparse.issparse(matrix)):
            checks.check_shape(matrix.shape, "bipartite")
            _refuse_unlikely_sizes(matrix.shape, matrix.nnz, path)
            checks.check_indices(matrix, str(path))
        found = sparse.coo_array(matrix)
        rows, columns = (index.astype(np.int32) for index in found.coords)

    def where(position: int) -> str:
        return f"row {rows[position] + first:,}, column {columns[position] + first:,}"

    import polars as pl

    return Cells(
        rows,
        columns,
        states(pl.Series(found.data.astype(np.float64)), binarize, where),
        *(tuple(str(i) for i in range(first, first + size)) for size in matrix.shape),
    )


def _refuse_dense_or_complex(path: Path, layout: str, field: str) -> None:
    if layout != "coordinate":
        msg = (
            f"{path} is a dense Matrix Market file ({layout}). Save it as a sparse one "
            "(coordinate): scipy.io.mmwrite(path, scipy.sparse.csr_array(matrix))."
        )
        raise ReadError(msg)
    if field == "complex":
        msg = f"{path} must hold real numbers, but holds complex ones."
        raise ReadError(msg)


def _refuse_unlikely_sizes(shape: tuple[int, ...], stored: int, path: Path) -> None:
    """Refuse what would fill the memory with objects that have no cell, as damaged headers do."""
    if len(shape) != 2 or 0 in shape or not stored:
        msg = f"{path} holds no edges: its shape is {shape}, with {stored:,} stored cells."
        raise ReadError(msg)
    if sum(shape) > _MOST_EMPTY + 1000 * stored:
        msg = (
            f"{path} says it has {shape[0]:,} rows and {shape[1]:,} columns, but only {stored:,} "
            "stored cells. If that is no mistake, leave out the rows and columns without any."
        )
        raise ReadError(msg)
