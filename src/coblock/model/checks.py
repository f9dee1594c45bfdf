"""Refusals of bad input: what is wrong, how many, where, and what to do."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

KINDS = ("bipartite", "directed", "undirected")


def check_choice(name: str, value: object, choices: Sequence[str]) -> None:
    """Refuse a value that is not one of the named choices."""
    if not isinstance(value, str) or value not in choices:
        allowed = ", ".join(repr(choice) for choice in choices)
        msg = f"{name} must be one of {allowed}, but is {value!r}."
        raise ValueError(msg)


def check_whole_number(name: str, value: object, smallest: int) -> int:
    """Refuse what is not a whole number of at least ``smallest``."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        msg = f"{name} must be a whole number, but is {value!r} ({type(value).__name__})."
        raise TypeError(msg)
    if value < smallest:
        msg = f"{name} must be at least {smallest}, but is {value}."
        raise ValueError(msg)
    return int(value)


def check_number(name: str, value: object, smallest: float = 0.0, largest: float = np.inf) -> float:
    """Refuse what is not a finite number from ``smallest`` to ``largest``."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.number):
        msg = f"{name} must be a number, but is {value!r} ({type(value).__name__})."
        raise TypeError(msg)
    if not np.isfinite(value) or not smallest <= value <= largest:
        limits = f"at least {smallest:g}" if largest == np.inf else f"{smallest:g} to {largest:g}"
        msg = f"{name} must be finite and {limits}, but is {value}."
        raise ValueError(msg)
    return float(value)


def check_clusters(value: object) -> int | tuple[int, int] | None:
    """Refuse numbers of clusters below one; return a pair as a tuple."""
    return None if value is None else _one_or_two("max_clusters", value)


def check_batch_size(value: object) -> int | tuple[int, int] | None:
    """Refuse batches of less than one object; return a pair as a tuple, and "auto" as None."""
    return None if isinstance(value, str) and value == "auto" else _one_or_two("batch_size", value)


def _one_or_two(name: str, value: object) -> int | tuple[int, int]:
    """Refuse what is neither a number of at least 1 nor a pair of such."""
    if isinstance(value, tuple | list):
        if len(value) != 2:
            msg = f"{name} must be a number or (rows, columns), but is {value!r}."
            raise ValueError(msg)
        rows, columns = (check_whole_number(name, one, 1) for one in value)
        return rows, columns
    return check_whole_number(name, value, 1)


def check_shape(shape: tuple[int, ...], kind: str) -> None:
    """Refuse relations without cells, and one-domain relations that are not square."""
    if len(shape) != 2:
        msg = f"A relation has two places, rows and columns, but the input has {len(shape)}."
        raise ValueError(msg)
    if 0 in shape:
        msg = f"The relation is empty: its shape is {shape}. It needs a row and a column at least."
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
    """Refuse an ``unseen`` matrix that does not lie on the relation."""
    if tuple(unseen) != tuple(relation):
        msg = (
            f"unseen has shape {tuple(unseen)}, but the relation has shape {tuple(relation)}. "
            "Store the unseen cells in a sparse matrix of the relation's shape."
        )
        raise ValueError(msg)


def check_indices(X: Any, name: str) -> None:
    """Refuse compressed matrices whose indices or pointers lead outside of the matrix."""
    if X.format == "coo":
        for what, index, size in zip(("row", "column"), X.coords, X.shape, strict=True):
            bad = (index < 0) | (index >= size)
            if bad.any():
                msg = (
                    f"{name} has {bad.sum():,} of {index.size:,} {what} indices outside of 0 to "
                    f"{size - 1}; the first is {index[bad][0]}. Build the matrix with indices "
                    "counted from 0."
                )
                raise ValueError(msg)
    if X.format not in {"csr", "csc", "bsr"}:
        return
    if X.format != "bsr" and X.indices.size:
        _check_compressed(X, name)
    try:
        X.check_format(full_check=True)
    except ValueError as error:
        msg = f"{name} is a damaged {X.format} matrix: {error}. Build it anew."
        raise ValueError(msg) from error


def _check_compressed(X: Any, name: str) -> None:
    bound = X.shape[1] if X.format == "csr" else X.shape[0]
    bad = (X.indices < 0) | (X.indices >= bound)
    if bad.any():
        at = int(np.flatnonzero(bad)[0])
        line = int(np.searchsorted(X.indptr, at, side="right") - 1)
        what, where = ("column", "row") if X.format == "csr" else ("row", "column")
        msg = (
            f"{name} has {bad.sum():,} of {X.indices.size:,} {what} indices outside of "
            f"0 to {bound - 1}; the first is {X.indices[at]} in {where} {line}. Build the matrix "
            "with indices counted from 0."
        )
        raise ValueError(msg)


def check_finite(X: sparse.csr_array) -> None:
    """Refuse infinities; NaN is an unseen cell."""
    bad = np.isinf(X.data)
    if bad.any():
        where = _first(X, bad)
        msg = (
            f"The relation holds infinity in {bad.sum():,} of {X.nnz:,} stored cells; the first "
            f"(inf) is X[{where[0]}, {where[1]}]. Use NaN, or unseen=, for unknown cells."
        )
        raise ValueError(msg)


def check_binary(X: sparse.csr_array) -> None:
    """Refuse values the Bernoulli likelihood cannot mean."""
    bad = ~(np.isin(X.data, (0, 1)) | np.isnan(X.data))
    if bad.any():
        row, column = _first(X, bad)
        value = X.data[np.flatnonzero(bad)[0]]
        msg = (
            f"The relation must hold 0 or 1, but {bad.sum():,} of {X.nnz:,} stored values do "
            f"not; the first is X[{row}, {column}] = {value:g}. Pass binarize=t to count every "
            "value above t as a link, or mark cells as unseen with unseen=."
        )
        raise ValueError(msg)


def check_disjoint(links: sparse.csr_array, unseen: sparse.csr_array) -> None:
    """Refuse cells that are said to be unseen and to be a link."""
    if not unseen.nnz:
        return
    both = sparse.csr_array(links.multiply(unseen))
    both.eliminate_zeros()
    if both.nnz:
        row, column = (int(index[0]) for index in both.nonzero())
        msg = (
            f"{both.nnz:,} of {unseen.nnz:,} unseen cells are links too; the first is "
            f"({row}, {column}). Take the links out of the relation, or the cells out of unseen."
        )
        raise ValueError(msg)


def check_labels(value: Any, sizes: tuple[int, ...]) -> list[NDArray[np.int32]]:
    """Refuse starting labels that do not fit the objects; return them numbered from 0."""
    parts = [value] if len(sizes) == 1 and not isinstance(value, tuple) else list(value)
    if len(parts) != len(sizes):
        msg = (
            f"init must name the labels of {len(sizes)} domain(s), but has {len(parts)} part(s). "
            "Pass (row_labels, column_labels), or one array where rows and columns are the same."
        )
        raise ValueError(msg)
    labels = []
    for part, size in zip(parts, sizes, strict=True):
        label = np.asarray(part)
        if label.shape != (size,):
            msg = (
                f"init has labels of shape {label.shape}, but there are {size:,} objects. Give "
                "every object one label."
            )
            raise ValueError(msg)
        labels.append(np.unique(label, return_inverse=True)[1].astype(np.int32))
    return labels


def check_room(labels: list[NDArray[np.int32]], most: int | tuple[int, int] | None) -> None:
    """Refuse starting labels with more clusters than there may be."""
    limits = most if isinstance(most, tuple) else (most, most)
    for label, limit in zip(labels, limits, strict=False):
        K = int(label.max()) + 1
        if limit is not None and limit < K:
            msg = (
                f"init has {K:,} clusters, but max_clusters allows {limit:,}. Raise max_clusters, "
                "or start from fewer."
            )
            raise ValueError(msg)


def check_names(names: Sequence[object] | None, size: int, what: str) -> tuple[str, ...] | None:
    """Refuse names that do not fit the relation; return them as strings."""
    if names is None:
        return None
    if len(names) != size:
        msg = f"There are {size:,} {what}s, but {len(names):,} {what} names. Give one name each."
        raise ValueError(msg)
    return tuple(str(name) for name in names)


def check_positions(values: object, size: int, what: str) -> NDArray[np.int64]:
    """Refuse positions of objects that the model does not know."""
    positions = np.asarray(values)
    if positions.size == 0:
        return positions.astype(np.int64)
    if positions.dtype.kind not in "iu":
        msg = f"{what}s must be positions (whole numbers), but they are of type {positions.dtype}."
        raise TypeError(msg)
    bad = (positions < 0) | (positions >= size)
    if bad.any():
        first = positions[bad].flat[0]
        msg = (
            f"{bad.sum():,} of {positions.size:,} {what} positions lie outside of 0 to {size - 1}; "
            f"the first is {first}. Only {what}s that the model was fitted to can be asked for."
        )
        raise ValueError(msg)
    return positions.astype(np.int64)


def check_ready(relation: Any, kind: str, columns: int | None, unseen: object) -> None:
    """Refuse a Relation of another kind, with other columns than are known, or with more unseen."""
    if relation.kind != kind:
        msg = f"The relation is {relation.kind}, but {kind} was expected. "
        msg += f"Pass relation={relation.kind!r}."
        raise ValueError(msg)
    if unseen is not None:
        msg = "A Relation has its unseen cells already. Pass unseen= to Relation.build."
        raise ValueError(msg)
    if columns is not None and relation.shape[1] != columns:
        msg = (
            f"The new rows have {relation.shape[1]:,} columns, but the model was fitted to "
            f"{columns:,}. Pass the same columns in the same order."
        )
        raise ValueError(msg)


def check_outcomes(values: object, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """Refuse outcomes of cells that are not 0 or 1, or not one for each cell."""
    links = np.asarray(values)
    if links.shape != shape or links.size == 0:
        msg = (
            f"values has shape {links.shape}, but rows and columns give {shape}. "
            "Give one value for each cell, and one cell at least."
        )
        raise ValueError(msg)
    bad = ~np.isin(links, (0, 1))
    if bad.any():
        msg = (
            f"values must be 0 or 1, but {bad.sum():,} of {links.size:,} are not; the first is "
            f"{links[bad].flat[0]}."
        )
        raise ValueError(msg)
    return links.astype(bool)


def _first(X: sparse.csr_array, chosen: NDArray[np.bool_]) -> tuple[int, int]:
    """Return row and column of the first chosen stored value."""
    at = int(np.flatnonzero(chosen)[0])
    return int(np.searchsorted(X.indptr, at, side="right") - 1), int(X.indices[at])
