"""Checks of input; an error says what is wrong, how often, where, and what to do."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias, get_args

import narwhals.stable.v2 as nw
import numpy as np
from narwhals.exceptions import DuplicateError
from numpy.typing import NDArray
from scipy import sparse

from coblock.kernels.bernoulli import LARGEST, SMALLEST

Kind: TypeAlias = Literal["bipartite", "directed", "undirected"]
Inference: TypeAlias = Literal["acvb0", "acvb", "cvb0", "cvb", "vb", "gibbs"]
Prior: TypeAlias = Literal["shared", "per-block"]
Variance: TypeAlias = Literal["exact", "paper"]
Learning: TypeAlias = Literal["newton", "fixed-point", "fixed"]
KINDS: tuple[str, ...] = get_args(Kind)


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


def check_flag(name: str, value: object) -> bool:
    """Refuse a value that is neither True nor False."""
    if not isinstance(value, bool | np.bool_):
        msg = f"{name} must be True or False, but is {value!r}."
        raise TypeError(msg)
    return bool(value)


def check_jobs(value: object) -> int | None:
    """Refuse a number of threads that is neither None nor a whole number other than 0."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value == 0:
        msg = f"n_jobs must be None, a number of threads, or -1 for all, but is {value!r}."
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


def check_one_or_two(name: str, value: object, unset: str | None) -> int | tuple[int, int] | None:
    """Refuse a value that is neither a positive whole number nor a pair; None for ``unset``."""
    if value is None or isinstance(value, str):
        if value == unset:
            return None
    elif isinstance(value, tuple | list):
        if len(value) != 2:
            msg = f"{name} must be a number or (rows, columns), but is {value!r}."
            raise ValueError(msg)
        rows, columns = (check_whole_number(name, part, 1) for part in value)
        return rows, columns
    return check_whole_number(name, value, 1)


def check_positive_pair(name: str, value: object) -> tuple[float, float] | None:
    """Refuse a value that is neither None nor a pair of possible hyperparameters."""
    if value is None:
        return None
    if not isinstance(value, tuple | list) or len(value) != 2:
        msg = f"{name} must be a pair of positive numbers, but is {value!r}."
        raise ValueError(msg)
    first, second = (check_number(name, part, SMALLEST, LARGEST) for part in value)
    return first, second


def check_shape(shape: tuple[int, ...], kind: str) -> None:
    """Refuse relations without cells, and one-domain relations that are not square."""
    largest = np.iinfo(np.int32).max
    if len(shape) != 2:
        msg = f"A relation has two places, rows and columns, but the input has {len(shape)}."
    elif 0 in shape:
        msg = f"The relation is empty: its shape is {shape}. It needs at least one row and column."
    elif kind != "bipartite" and shape[0] != shape[1]:
        msg = (
            f"A {kind} relation has the same objects as rows and columns, but the matrix is "
            f"{shape[0]:,} x {shape[1]:,}. Pass a square matrix, or relation='bipartite'."
        )
    elif max(shape) > largest:
        msg = f"At most {largest:,} rows and columns are possible, not {shape}."
    else:
        return
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
    wrong = infinite
    if binary and not infinite.any():
        wrong = ~(np.isin(X.data, (0, 1)) | np.isnan(X.data))
    if not wrong.any():
        return
    first, count = int(wrong.argmax()), f"{wrong.sum():,} of {X.nnz:,} stored"
    cell = f"X[{np.searchsorted(X.indptr, first, side='right') - 1}, {X.indices[first]}]"
    if infinite.any():
        msg = (
            f"The relation holds infinity in {count} cells; the first is {cell}. Use NaN, or "
            "unseen=, for unseen cells."
        )
    else:
        msg = (
            f"The relation must hold 0 or 1, but {count} values do not; the first is {cell} = "
            f"{X.data[first]:g}. Pass binarize=t to count every value above t as a link, or mark "
            "cells as unseen with unseen=."
        )
    raise ValueError(msg)


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


def check_positions(
    values: object, size: int, what: str, names: Sequence[str] | None = None
) -> NDArray[np.int64]:
    """Refuse positions or names of objects that the model does not have; return positions."""
    positions = np.asarray(values)
    if positions.size == 0:
        return positions.astype(np.int64)
    if names is not None and positions.dtype.kind in "UO":
        return _positions_of(positions, what, names)
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


def _positions_of(wanted: NDArray[Any], what: str, names: Sequence[str]) -> NDArray[np.int64]:
    """Return the positions of names, each of which must occur once."""
    position = {name: at for at, name in enumerate(names)}
    texts = [str(name) for name in wanted.flat]
    missing = [name for name in texts if name not in position]
    if missing:
        msg = (
            f"{len(missing):,} of {len(texts):,} {what}s are not in the model; the first is "
            f"{missing[0]!r}. The model has {len(names):,} {what}s, such as {names[0]!r}."
        )
        raise ValueError(msg)
    if len(position) < len(names):
        repeated = {name for name, count in Counter(names).items() if count > 1}
        doubtful = [name for name in texts if name in repeated]
        if doubtful:
            msg = f"Several {what}s have the name {doubtful[0]!r}. Pass positions instead."
            raise ValueError(msg)
    return np.array([position[name] for name in texts], np.int64).reshape(wanted.shape)


def convert_objects(X: NDArray[Any]) -> NDArray[Any]:
    """Return a matrix of Python objects as floats if all are numbers or None, which is NaN."""
    if X.dtype != object or X.ndim != 2 or not all(map(_is_number_or_none, X.flat)):
        return X
    return X.astype(np.float64)


def _is_number_or_none(value: object) -> bool:
    return value is None or isinstance(value, int | float | np.number)


def text_columns(frame: Any) -> list[str]:
    """Return the columns of a data frame of narwhals that are not numbers.

    Numbers in a column of objects are numbers.
    """
    found = [
        name for name, kind in frame.schema.items() if not (kind.is_numeric() or kind == nw.Boolean)
    ]
    return [
        name
        for name in found
        if frame.schema[name] != nw.Object
        or not all(map(_is_number_or_none, frame.get_column(name)))
    ]


def check_relation(relation: Any, kind: str, columns: int | None, unseen: object) -> None:
    """Refuse a Relation of another kind or with other columns, and unseen cells apart from it."""
    given = relation.kind
    if given != kind:
        msg = f"The relation is {given}, but {kind} was expected. Pass relation={given!r}."
    elif unseen is not None:
        msg = "A Relation already has its unseen cells. Pass unseen= to Relation.build."
    elif columns is not None and relation.shape[1] != columns:
        msg = (
            f"The new rows have {relation.shape[1]:,} columns, but the model was fitted to "
            f"{columns:,}. Pass the same columns in the same order."
        )
    else:
        return
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
    wrong = links[~np.isin(links, (0, 1))]
    if wrong.size:
        msg = f"values must be 0 or 1, but {wrong.size:,} of {links.size:,} are not; the first is "
        raise ValueError(msg + f"{wrong[0]}.")
    return links.astype(bool)


def open_frame(X: Any, *, eager_only: bool = False) -> Any:
    """Return a data frame of any library as one of narwhals, and any other object unchanged."""
    try:
        return nw.from_native(X, eager_only=eager_only, pass_through=True)
    except DuplicateError as error:
        repeated = [name for name, count in Counter(map(str, X.columns)).items() if count > 1]
        names = "column name occurs" if len(repeated) == 1 else "column names occur"
        msg = (
            f"{len(repeated):,} {names} more than once; the first is {repeated[0]!r}. Rename the "
            "columns of the data frame."
        )
        raise ValueError(msg) from error


def check_same_form(earlier: Any, relation: Any) -> None:
    """Refuse to start from a model of a relation of another kind or shape."""
    if (earlier.kind, earlier.shape) != (relation.kind, relation.shape):
        msg = (
            f"The earlier model has a {earlier.kind} relation of shape {earlier.shape}, but this "
            f"one is {relation.kind} of shape {relation.shape}. Pass warm_start=False and "
            "init='spectral'."
        )
        raise ValueError(msg)
