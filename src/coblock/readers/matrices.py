"""Sparse matrices in files: Matrix Market and SciPy's npz. Their objects are named by position."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import io, sparse

from coblock import checks
from coblock.kernels import Indices
from coblock.readers.coding import States
from coblock.readers.errors import ReadError, refusing
from coblock.readers.values import states

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
    """Read a Matrix Market file, plain or gzip."""
    what = f"{path} is not a Matrix Market file, or is damaged"
    with refusing(what):
        rows, columns, entries, *_ = io.mminfo(path)
        _refuse_unlikely_sizes((rows, columns), entries, path)
        matrix = io.mmread(path, spmatrix=False)
    return _cells(matrix, 1, binarize, path)


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
