"""Objects as JSON with named arrays, and back.

:func:`pack` and :func:`unpack` work on all fields of the classes of a fit. Only these classes are
made, and their fields are set without a call of their constructors: nothing in a file chooses
code. A relation and a result also have a form of tensors with fixed names, which model files use.
"""

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import astuple, fields, replace
from math import isfinite
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from coblock.inference.fit import Start
from coblock.inference.phase import Phase
from coblock.inference.settings import Settings
from coblock.io.codec_checks import CHECKS, PHASES, check_memberships, check_result, count_blocks
from coblock.io.container import Header, InvalidFileError, Tensors, require
from coblock.kernels import Floats
from coblock.model.blocks import Blocks
from coblock.model.checks import KINDS
from coblock.model.hyperparameters import Hyperparameters
from coblock.model.partition import Partition
from coblock.model.relation import Relation
from coblock.model.result import Result, Sample
from coblock.model.state import SoftState
from coblock.model.trace import SweepRecord

SHARED = ("relation", "settings", "initial", "rng", "engine")  # fields that are stored elsewhere
DEEPEST = 16  # objects inside one another; a fit needs 8
WHOLE = ("sweep", "row_clusters", "column_clusters")  # fields of SweepRecord that are counts
DTYPES = {
    "link_start": "I64",  # (rows + 1,), the links of each row, and
    "link": "I32",  # their columns
    "unseen_start": "I64",
    "unseen": "I32",
    "self_link": "F64",  # (objects,) of a one-domain relation, (0,) of a bipartite one
    "self_seen": "F64",
    "row_names": "U8",  # UTF-8, one after another
    "row_name_end": "I64",  # (rows,), where each ends
    "column_names": "U8",
    "column_name_end": "I64",
    "row_membership": "F64",  # (rows, K1)
    "column_membership": "F64",  # (columns, K2); bipartite relations only
    "alpha": "F64",  # one for each domain
    "prior_a": "F64",  # (K1, K2)
    "prior_b": "F64",
    "block_links": "F64",  # (K1, K2), expected
    "block_nonlinks": "F64",
    "trace": "F64",  # (sweeps, fields of SweepRecord)
    "sample_row_labels": "I32",  # (samples, rows); Gibbs only
    "sample_column_labels": "I32",  # (samples, columns); bipartite relations only
    "sample_clusters": "I64",  # (samples, 2), the shapes of
    "sample_probability": "F64",  # the blocks of all samples, one after another
}


def trace_to_table(trace: list[SweepRecord]) -> Floats:
    """Return the records as a table with one row for each sweep."""
    table = np.array([astuple(record) for record in trace], dtype=np.float64)
    return table.reshape(len(trace), len(fields(SweepRecord)))


def trace_from_table(table: Floats) -> list[SweepRecord]:
    """Return the records; their counts are whole numbers."""
    names = [field.name for field in fields(SweepRecord)]
    require(table.ndim == 2 and table.shape[1] == len(names), "its trace has another form.")
    counts = table[:, [name in WHOLE for name in names]]
    possible = np.isfinite(counts).all() and (counts == np.clip(np.round(counts), 0, 2**53)).all()
    require(possible, "the numbers of sweeps and clusters in its trace cannot be counted.")
    return [
        SweepRecord(*(int(x) if name in WHOLE else x for name, x in zip(names, line, strict=True)))
        for line in table.tolist()
    ]


# Objects of a fit

CLASSES: dict[str, type] = {
    known.__name__: known
    for known in (
        *PHASES.values(),
        *(Blocks, Hyperparameters, Partition, Result, Sample, Settings, SoftState, Start),
    )
}
ARRAYS: dict[str, Callable[[NDArray[Any]], Any]] = {
    "array": lambda array: array,
    "array by column": lambda array: array.T,
    "floats": lambda array: array.tolist(),
    "trace": trace_from_table,
}


def pack(value: Any, name: str, tensors: Tensors) -> Any:  # noqa: PLR0911 - one for each form
    """Return a value as JSON can express it; its arrays go to ``tensors``, named by their path.

    Fields named in :data:`SHARED` are left out.
    """
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):  # in its order in memory: sums depend on it in the last bits
        by_column = value.flags.f_contiguous and not value.flags.c_contiguous
        tensors[name] = np.ascontiguousarray(value.T if by_column else value)
        return {"is": "array by column" if by_column else "array", "name": name}
    if isinstance(value, list | tuple):
        if value and all(isinstance(part, SweepRecord) for part in value):
            tensors[name] = trace_to_table(list(value))
            return {"is": "trace", "name": name}
        if value and isinstance(value, list) and all(isinstance(part, float) for part in value):
            tensors[name] = np.array(value, dtype=np.float64)
            return {"is": "floats", "name": name}
        parts = [pack(part, f"{name}.{number}", tensors) for number, part in enumerate(value)]
        return {"is": "tuple", "parts": parts} if isinstance(value, tuple) else parts
    assert type(value).__name__ in CLASSES, type(value)
    inside = {
        field.name: pack(getattr(value, field.name), f"{name}.{field.name}", tensors)
        for field in fields(value)
        if field.name not in SHARED
    }
    return {"is": type(value).__name__, "fields": inside}


def unpack(packed: Any, tensors: Tensors, shared: Mapping[str, Any], depth: int = 0) -> Any:
    """Return the value that was packed; refuse parts that do not fit together.

    A tensor is removed from ``tensors`` when it is used, so that no two arrays share memory.
    """
    require(depth < DEEPEST, "its parts are nested too deeply.")
    if isinstance(packed, list):
        return [unpack(part, tensors, shared, depth + 1) for part in packed]
    if not isinstance(packed, dict):
        return packed
    kind = packed["is"]
    if kind in ARRAYS:
        require(packed["name"] in tensors, "one of its tensors is missing, or named twice.")
        return ARRAYS[kind](tensors.pop(packed["name"]))
    if kind == "tuple":
        return tuple(unpack(part, tensors, shared, depth + 1) for part in packed["parts"])
    require(kind in CLASSES, f"it holds a {str(kind)[:40]!r}, which is not part of a fit.")
    return _make_object(CLASSES[kind], packed["fields"], tensors, shared, depth)


def _make_object(
    kind: type, packed: dict[str, Any], tensors: Tensors, shared: Mapping[str, Any], depth: int
) -> Any:
    """Return an object with these fields, each of the type of its annotation."""
    names, hints = [field.name for field in fields(kind)], get_type_hints(kind)
    expected = set(names).difference(SHARED)
    require(expected == set(packed), f"its {kind.__name__} has other fields than this version's.")
    value: Any = object.__new__(kind)
    for name in names:
        inside = shared.get(name)
        if name not in SHARED:
            inside = unpack(packed[name], tensors, shared, depth + 1)
            require(is_of_type(inside, hints[name]), f"its {name} is of the wrong type.")
        object.__setattr__(value, name, inside)
    if kind in CHECKS:
        CHECKS[kind](value)
    return value


def is_of_type(value: Any, hint: Any) -> bool:  # noqa: PLR0911 - one return for each form
    """Return whether a value agrees with a type annotation of one of :data:`CLASSES`."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin in {Union, UnionType}:
        return any(is_of_type(value, part) for part in parts)
    if origin is Literal:
        return value in parts
    if origin is list:
        return isinstance(value, list) and all(is_of_type(item, parts[0]) for item in value)
    if origin is tuple:
        if not isinstance(value, tuple):
            return False
        kinds = parts[:1] * len(value) if parts[-1] is ... else parts
        return len(value) == len(kinds) and all(map(is_of_type, value, kinds))
    if origin is np.ndarray:
        return isinstance(value, np.ndarray) and value.dtype == get_args(parts[1])[0]
    if hint is Phase:
        return isinstance(value, tuple(PHASES.values()))
    exact = hint in {bool, int, float, str, NoneType}
    finite = hint is not float or (type(value) is float and isfinite(value))
    return (type(value) is hint if exact else isinstance(value, hint)) and finite


# Relations

RELATION_ENTRIES = {"kind": str, "shape": list, "row_names": bool, "column_names": bool}


def relation_entries(relation: Any) -> dict[str, object]:
    """Return the entries of a header that describe a relation."""
    return {
        "kind": relation.kind,
        "shape": list(relation.shape),
        "row_names": relation.row_names is not None,
        "column_names": relation.column_names is not None,
    }


def check_relation_entries(header: Header) -> None:
    """Refuse a kind or shape that no relation has."""
    kind, shape = header["kind"], header["shape"]
    possible = len(shape) == 2 and all(type(size) is int and 0 < size < 2**31 for size in shape)
    require(possible, "its relation has an impossible shape.")
    require(kind in KINDS, f"its relation is of no known kind ({kind[:20]!r}).")
    square = kind == "bipartite" or shape[0] == shape[1]
    require(square, f"its relation is {kind}, but not square.")


def relation_to_tensors(relation: Relation) -> Tensors:
    """Return the arrays of a relation and its names."""
    tensors: Tensors = relation.incidence[0][0]._asdict() | {
        "self_link": relation.own_link,
        "self_seen": relation.own_seen,
    }
    for what, names in (("row", relation.row_names), ("column", relation.column_names)):
        if names is not None:
            parts = [name.encode("utf-8", "surrogatepass") for name in names]
            tensors[f"{what}_names"] = np.frombuffer(b"".join(parts), dtype=np.uint8)
            ends = np.cumsum([len(part) for part in parts], dtype=np.int64)
            tensors[f"{what}_name_end"] = ends
    return tensors


def relation_from_tensors(header: Header, tensors: Tensors) -> Relation:
    """Rebuild a relation and check that it has the arrays that were stored."""
    rows, columns = header["shape"]
    links, unseen = (_pattern(tensors, name, (rows, columns)) for name in ("link", "unseen"))
    diagonal = links.diagonal().any() or unseen.diagonal().any()
    alone = header["kind"] == "bipartite" or not diagonal
    require(alone, "objects are linked with themselves among its other links.")
    try:
        relation = Relation.build(
            links,
            unseen=unseen,
            kind=header["kind"],
            row_names=_decode_names(header, tensors, "row", rows),
            column_names=_decode_names(header, tensors, "column", columns),
        )
    except ValueError as error:
        if isinstance(error, InvalidFileError):
            raise
        msg = f"its relation is not one. {error}"
        raise InvalidFileError(msg) from error
    rebuilt = relation.incidence[0][0]._asdict()
    same = all(np.array_equal(array, tensors[name]) for name, array in rebuilt.items())
    require(same, "its links are not in order.")
    own = (rows if relation.repeated else 0,)
    own_link, own_seen = (_nonnegative(tensors, name, own) for name in ("self_link", "self_seen"))
    binary = np.isin(own_link, (0, 1)).all() and np.isin(own_seen, (0, 1)).all()
    possible = binary and (own_link <= own_seen).all()
    possible &= relation.kind == "directed" or not own_seen.any()
    require(possible, "its links of objects with themselves are impossible.")
    return replace(relation, own_link=own_link, own_seen=own_seen)


def _pattern(tensors: Tensors, name: str, shape: tuple[int, int]) -> sparse.csr_array:
    """Return links or unseen cells as a matrix; all indices are inside it."""
    start, index = tensors[f"{name}_start"], tensors[name]
    inside = (
        start.shape == (shape[0] + 1,)
        and index.ndim == 1
        and start[0] == 0
        and start[-1] == index.size
        and (start[1:] >= start[:-1]).all()
        and (index >= 0).all()
        and (index < shape[1]).all()
    )
    require(inside, f"its arrays {name}_start and {name} lead outside of the relation.")
    return sparse.csr_array((np.ones(index.size), index, start), shape=shape)


def _decode_names(header: Header, tensors: Tensors, what: str, size: int) -> tuple[str, ...] | None:
    """Return the names of rows or columns, if the file has them."""
    if not header[f"{what}_names"]:
        return None
    letters, end = tensors[f"{what}_names"], tensors[f"{what}_name_end"]
    fits = end.shape == (size,) and letters.ndim == 1 and end[-1] == letters.size and end[0] >= 0
    require(fits and (end[1:] >= end[:-1]).all(), f"its {what} names do not fit.")
    text, ends = letters.tobytes(), end.tolist()
    try:
        return tuple(
            text[first:last].decode("utf-8", "surrogatepass")
            for first, last in zip([0, *ends[:-1]], ends, strict=True)
        )
    except UnicodeDecodeError as error:
        msg = f"its {what} names are not UTF-8."
        raise InvalidFileError(msg) from error


def _nonnegative(tensors: Tensors, name: str, shape: tuple[int, ...]) -> Floats:
    """Return an array; refuse another shape, and numbers that are not finite or below 0."""
    array = tensors[name]
    require(array.shape == shape, f"its {name} has shape {array.shape} where {shape} is right.")
    possible = np.isfinite(array).all() and (array >= 0.0).all()
    require(possible, f"its {name} has impossible numbers.")
    return array


# Results


def check_tensor_names(header: Header, types: Mapping[str, str]) -> None:
    """Refuse a model file that lacks a tensor, has one too many, or one of another type."""
    expected = {name for name in DTYPES if "name" not in name and not name.startswith("sample")}
    for what in ("row", "column"):
        if header[f"{what}_names"]:
            expected |= {f"{what}_names", f"{what}_name_end"}
    if header["samples"]:
        expected |= {name for name in DTYPES if name.startswith("sample")}
    if header["kind"] != "bipartite":
        expected -= {"column_membership", "sample_column_labels"}
    different = sorted(expected ^ set(types))
    require(not different, f"{len(different)} tensors are missing or foreign: {different[:3]}.")
    for name, kind in types.items():
        require(kind == DTYPES[name], f"its tensor {name} has the wrong type.")


def result_to_tensors(result: Result) -> Tensors:
    """Return all arrays of a result and of its relation."""
    prior_a, prior_b = result.hyper.tables(result.blocks.clusters)
    tensors: Tensors = relation_to_tensors(result.relation) | {
        "alpha": np.array(result.hyper.alpha, dtype=np.float64),
        "prior_a": prior_a,
        "prior_b": prior_b,
        "block_links": result.n,
        "block_nonlinks": result.N,
        "trace": trace_to_table(result.trace),
    }
    for what, q in zip(("row", "column"), result.memberships, strict=False):
        tensors[f"{what}_membership"] = q
    if result.samples:
        blocks = [sample.probability for sample in result.samples]
        tensors["sample_clusters"] = np.array([block.shape for block in blocks], dtype=np.int64)
        tensors["sample_probability"] = np.concatenate([block.ravel() for block in blocks])
        for d, what in enumerate(("row", "column")[: len(result.labels)]):
            labels = np.stack([sample.labels[d] for sample in result.samples])
            tensors[f"sample_{what}_labels"] = labels
    return {name: np.ascontiguousarray(array) for name, array in tensors.items()}


def result_from_tensors(header: Header, tensors: Tensors) -> Result:
    """Return the result; refuse arrays that do not fit each other."""
    sizes = header["shape"] if header["kind"] == "bipartite" else header["shape"][:1]
    q = [tensors[f"{what}_membership"] for what in ("row", "column")[: len(sizes)]]
    for each, size in zip(q, sizes, strict=True):
        check_memberships(each, size)
    relation, clusters = relation_from_tensors(header, tensors), (q[0].shape[1], q[-1].shape[1])
    counted = count_blocks(relation, q)
    blocks = copy(counted)
    blocks.n = _nonnegative(tensors, "block_links", clusters)
    blocks.N = _nonnegative(tensors, "block_nonlinks", clusters)
    alpha = _nonnegative(tensors, "alpha", (len(sizes),)).tolist()
    names = ("prior_a", "prior_b")
    prior = np.array([_nonnegative(tensors, name, clusters) for name in names])
    if header["shared_prior"]:
        same = (prior == prior[:, :1, :1]).all()
        require(same, "its prior is shared, but differs from block to block.")
        prior = prior[:, :1, :1].copy()
    result = Result(
        relation,
        q,
        [each.argmax(axis=1).astype(np.int32) for each in q],
        Hyperparameters(alpha, prior, not header["shared_prior"]),
        blocks,
        header["log_evidence"],
        trace_from_table(tensors["trace"]),
        header["converged"],
        _samples_from_tensors(tensors, sizes) if header["samples"] else [],
        header["stability"],
    )
    check_result(result, counted)
    return result


def _samples_from_tensors(tensors: Tensors, sizes: list[int]) -> list[Sample]:
    """Return the kept states of a Gibbs chain, as far as their tables can be cut apart."""
    shapes, flat = tensors["sample_clusters"], tensors["sample_probability"]
    form = shapes.ndim == 2 and shapes.shape[1] == 2 and len(shapes) > 0 and flat.ndim == 1
    require(form, "its samples have another form.")
    possible = (shapes > 0).all() and (shapes <= min(flat.size, 2**31)).all()
    possible = possible and sum(K1 * K2 for K1, K2 in shapes.tolist()) == flat.size
    require(possible, "its samples do not have the blocks that they name.")
    labels = [tensors[f"sample_{what}_labels"] for what in ("row", "column")[: len(sizes)]]
    for each, size in zip(labels, sizes, strict=True):
        require(each.shape == (len(shapes), size), "its samples are of other objects.")
    ends = np.cumsum(shapes.prod(axis=1))
    return [
        Sample([label[s] for label in labels], flat[end - K1 * K2 : end].reshape(K1, K2))
        for s, (end, (K1, K2)) in enumerate(zip(ends.tolist(), shapes.tolist(), strict=True))
    ]
