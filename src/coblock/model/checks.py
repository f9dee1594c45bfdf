"""Checks of input; an error says what is wrong, how often, where, and what to do."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

KINDS = ("bipartite", "directed", "undirected")


def check_choice(name: str, value: object, choices: Sequence[str]) -> None:
    """Refuse a value that is not one of the choices."""
    if not isinstance(value, str) or value not in choices:
        allowed = ", ".join(repr(choice) for choice in choices)
        msg = f"{name} must be one of {allowed}, but is {value!r}."
        raise ValueError(msg)


def check_whole_number(name: str, value: object, smallest: int) -> int:
    """Refuse a value that is not a whole number of at least ``smallest``."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        msg = f"{name} must be a whole number, but is {value!r} ({type(value).__name__})."
        raise TypeError(msg)
    if value < smallest:
        msg = f"{name} must be at least {smallest}, but is {value}."
        raise ValueError(msg)
    return int(value)


def check_number(name: str, value: object, smallest: float = 0.0, largest: float = np.inf) -> float:
    """Refuse a value that is not a finite number from ``smallest`` to ``largest``."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.number):
        msg = f"{name} must be a number, but is {value!r} ({type(value).__name__})."
        raise TypeError(msg)
    if not np.isfinite(value) or not smallest <= value <= largest:
        limits = f"at least {smallest:g}" if largest == np.inf else f"{smallest:g} to {largest:g}"
        msg = f"{name} must be finite and {limits}, but is {value}."
        raise ValueError(msg)
    return float(value)


def check_clusters(value: object) -> int | tuple[int, int] | None:
    """Refuse a limit of clusters below 1; None is no limit."""
    return None if value is None else _check_one_or_two("max_clusters", value)


def check_batch_size(value: object) -> int | tuple[int, int] | None:
    """Refuse batches of less than one object; return None for "auto"."""
    auto = isinstance(value, str) and value == "auto"
    return None if auto else _check_one_or_two("batch_size", value)


def _check_one_or_two(name: str, value: object) -> int | tuple[int, int]:
    """Refuse a value that is neither a positive whole number nor a pair of them."""
    if not isinstance(value, tuple | list):
        return check_whole_number(name, value, 1)
    if len(value) != 2:
        msg = f"{name} must be a number or (rows, columns), but is {value!r}."
        raise ValueError(msg)
    rows, columns = (check_whole_number(name, part, 1) for part in value)
    return rows, columns


def check_shape(shape: tuple[int, ...], kind: str) -> None:
    """Refuse relations without cells, and one-domain relations that are not square."""
    if len(shape) != 2:
        msg = f"A relation has two places, rows and columns, but the input has {len(shape)}."
        raise ValueError(msg)
    if 0 in shape:
        msg = f"The relation is empty: its shape is {shape}. It needs at least one row and column."
        raise ValueError(msg)
    if kind != "bipartite" and shape[0] != shape[1]:
        msg = (
            f"A {kind} relation has the same objects as rows and columns, but the matrix is "
            f"{shape[0]:,} x {shape[1]:,}. Pass a square matrix, or relation='bipartite'."
        )
        raise ValueError(msg)
    if max(shape) > np.iinfo(np.int32).max:
        msg = f"At most {np.iinfo(np.int32).max:,} rows and columns are possible, not {shape}."
        raise ValueError(msg)


def check_same_shape(unseen: tuple[int, ...], relation: tuple[int, ...]) -> None:
    """Refuse an ``unseen`` matrix of another shape than the relation."""
    if tuple(unseen) != tuple(relation):
        msg = (
            f"unseen has shape {tuple(unseen)}, but the relation has shape {tuple(relation)}. "
            "Store the unseen cells in a sparse matrix of the relation's shape."
        )
        raise ValueError(msg)


def check_indices(X: Any, name: str) -> None:
    """Refuse a sparse matrix whose indices or pointers are outside of the matrix."""
    axes = {"coo": (0, 1), "csr": (1,), "csc": (0,)}.get(X.format, ())
    for axis in axes:
        index, size = X.coords[axis] if X.format == "coo" else X.indices, X.shape[axis]
        wrong = (index < 0) | (index >= size)
        if wrong.any():
            first, what = int(wrong.argmax()), ("row", "column")
            where = ""
            if X.format != "coo":
                line = int(np.searchsorted(X.indptr, first, side="right") - 1)
                where = f" in {what[1 - axis]} {line}"
            msg = (
                f"{name} has {wrong.sum():,} of {index.size:,} {what[axis]} indices outside of "
                f"0 to {size - 1}; the first is {index[first]}{where}. Build the matrix with "
                "indices counted from 0."
            )
            raise ValueError(msg)
    if X.format in {"csr", "csc", "bsr"}:
        try:
            X.check_format(full_check=True)
        except ValueError as error:
            msg = f"{name} is a damaged {X.format} matrix: {error}. Build it again."
            raise ValueError(msg) from error


def check_values(X: sparse.csr_array, binary: bool) -> None:
    """Refuse infinite values and, if ``binary``, values other than 0, 1 and NaN."""
    infinite = np.isinf(X.data)
    if infinite.any():
        row, column, _ = _first_cell(X, infinite)
        msg = (
            f"The relation holds infinity in {infinite.sum():,} of {X.nnz:,} stored cells; the "
            f"first is X[{row}, {column}]. Use NaN, or unseen=, for unseen cells."
        )
        raise ValueError(msg)
    other = ~(np.isin(X.data, (0, 1)) | np.isnan(X.data)) if binary else np.zeros(0, bool)
    if other.any():
        row, column, value = _first_cell(X, other)
        msg = (
            f"The relation must hold 0 or 1, but {other.sum():,} of {X.nnz:,} stored values do "
            f"not; the first is X[{row}, {column}] = {value:g}. Pass binarize=t to count every "
            "value above t as a link, or mark cells as unseen with unseen=."
        )
        raise ValueError(msg)


def _first_cell(X: sparse.csr_array, chosen: NDArray[np.bool_]) -> tuple[int, int, float]:
    """Return row, column and value of the first chosen stored cell."""
    first = int(chosen.argmax())
    row = int(np.searchsorted(X.indptr, first, side="right") - 1)
    return row, int(X.indices[first]), X.data[first]


def check_disjoint(
    links: sparse.csr_array,
    unseen: sparse.csr_array,
    names: tuple[Sequence[str], Sequence[str]] | None = None,
) -> None:
    """Refuse cells that are links and unseen at the same time; name the first of them."""
    if not unseen.nnz:
        return
    both = sparse.csr_array(links.multiply(unseen))
    both.eliminate_zeros()
    if both.nnz:
        row, column = (int(index[0]) for index in both.nonzero())
        first = (row, column) if names is None else (names[0][row], names[1][column])
        msg = (
            f"{both.nnz:,} of {unseen.nnz:,} unseen cells are links too; the first is {first}. "
            "Take the links out of the relation, or the cells out of unseen."
        )
        raise ValueError(msg)


def check_labels(
    value: Any, sizes: tuple[int, ...], max_clusters: int | tuple[int, int] | None
) -> list[NDArray[np.int32]]:
    """Refuse initial labels that do not match the objects, or have more clusters than allowed.

    The labels are returned numbered from 0.
    """
    parts = [value] if len(sizes) == 1 and not isinstance(value, tuple) else list(value)
    if len(parts) != len(sizes):
        msg = (
            f"init must hold the labels of {len(sizes)} domain(s), but has {len(parts)} part(s). "
            "Pass (row_labels, column_labels), or one array if rows and columns are the same."
        )
        raise ValueError(msg)
    limits = max_clusters if isinstance(max_clusters, tuple) else (max_clusters, max_clusters)
    labels = []
    for part, size, limit in zip(parts, sizes, limits, strict=False):
        given = np.asarray(part)
        if given.shape != (size,):
            msg = (
                f"init has labels of shape {given.shape}, but there are {size:,} objects. Give "
                "every object one label."
            )
            raise ValueError(msg)
        clusters, label = np.unique(given, return_inverse=True)
        if limit is not None and limit < clusters.size:
            msg = (
                f"init has {clusters.size:,} clusters, but max_clusters allows {limit:,}. Raise "
                "max_clusters, or start from fewer clusters."
            )
            raise ValueError(msg)
        labels.append(label.astype(np.int32))
    return labels


def check_object_names(
    names: Sequence[object] | None, size: int, what: str
) -> tuple[str, ...] | None:
    """Refuse names that are not one for each object; return them as strings."""
    if names is None:
        return None
    if len(names) != size:
        msg = f"There are {size:,} {what}s, but {len(names):,} {what} names. Give one name each."
        raise ValueError(msg)
    return tuple(str(name) for name in names)


def check_positions(values: object, size: int, what: str) -> NDArray[np.int64]:
    """Refuse positions of objects that the model does not have."""
    positions = np.asarray(values)
    if positions.size == 0:
        return positions.astype(np.int64)
    if positions.dtype.kind not in "iu":
        msg = f"{what}s must be positions (whole numbers), but they are of type {positions.dtype}."
        raise TypeError(msg)
    wrong = (positions < 0) | (positions >= size)
    if wrong.any():
        msg = (
            f"{wrong.sum():,} of {positions.size:,} {what} positions lie outside of 0 to "
            f"{size - 1}; the first is {positions[wrong].flat[0]}. Pass {what}s that the model was "
            "fitted to."
        )
        raise ValueError(msg)
    return positions.astype(np.int64)


def check_relation(relation: Any, kind: str, columns: int | None, unseen: object) -> None:
    """Refuse a Relation of another kind or with other columns, and unseen cells apart from it."""
    if relation.kind != kind:
        msg = f"The relation is {relation.kind}, but {kind} was expected. "
        msg += f"Pass relation={relation.kind!r}."
        raise ValueError(msg)
    if unseen is not None:
        msg = "A Relation already has its unseen cells. Pass unseen= to Relation.build."
        raise ValueError(msg)
    if columns is not None and relation.shape[1] != columns:
        msg = (
            f"The new rows have {relation.shape[1]:,} columns, but the model was fitted to "
            f"{columns:,}. Pass the same columns in the same order."
        )
        raise ValueError(msg)


def check_outcomes(values: object, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """Refuse values of cells that are not 0 or 1, or not one for each cell."""
    links = np.asarray(values)
    if links.shape != shape or links.size == 0:
        msg = (
            f"values has shape {links.shape}, but rows and columns give {shape}. Give one value "
            "for each cell, and at least one cell."
        )
        raise ValueError(msg)
    wrong = ~np.isin(links, (0, 1))
    if wrong.any():
        msg = (
            f"values must be 0 or 1, but {wrong.sum():,} of {links.size:,} are not; the first is "
            f"{links[wrong].flat[0]}."
        )
        raise ValueError(msg)
    return links.astype(bool)
