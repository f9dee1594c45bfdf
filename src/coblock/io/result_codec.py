"""A result as named arrays, and back: what comes back is checked, since kernels trust it."""

from dataclasses import astuple, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from coblock.kernels import Floats
from coblock.model.hyperparameters import Priors
from coblock.model.relation import Relation
from coblock.model.result import Result, Sample
from coblock.model.state import each_block_once
from coblock.model.trace import Sweep

CLOSE = 1e-6  # what rounding may do to sums

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
    "trace": "F64",  # (sweeps, fields of Sweep)
    "sample_row_labels": "I32",  # (samples, rows); Gibbs only
    "sample_column_labels": "I32",  # (samples, columns); bipartite relations only
    "sample_clusters": "I64",  # (samples, 2), the shapes of
    "sample_probability": "F64",  # the blocks of all samples, one after another
}
WHOLE = ("sweep", "row_clusters", "column_clusters")  # fields of Sweep that are counts

Tensors = dict[str, NDArray[Any]]


class ModelFileError(ValueError):
    """The file is not a model that this version of coblock can use."""


# To arrays


def tensors_of(result: Result) -> Tensors:
    """Return everything that is an array."""
    relation = result.relation
    tensors: Tensors = relation_tensors(relation) | {
        "row_membership": result.memberships[0],
        "alpha": np.array(result.priors.alpha, dtype=np.float64),
        "prior_a": result.priors.a,
        "prior_b": result.priors.b,
        "block_links": result.n,
        "block_nonlinks": result.N,
        "trace": trace_table(result.trace),
    }
    if not relation.one_domain:
        tensors["column_membership"] = result.memberships[1]
    if result.samples:
        tensors |= _sample_tensors(result.samples)
    return {name: np.ascontiguousarray(array) for name, array in tensors.items()}


def relation_tensors(relation: Relation) -> Tensors:
    """Return the arrays of a relation, its names among them."""
    tensors: Tensors = relation.places[0][0]._asdict() | {
        "self_link": relation.self_link,
        "self_seen": relation.self_seen,
    }
    for what, names in (("row", relation.row_names), ("column", relation.column_names)):
        if names is not None:
            parts = [name.encode("utf-8", "surrogatepass") for name in names]
            tensors[f"{what}_names"] = np.frombuffer(b"".join(parts), dtype=np.uint8)
            ends = np.cumsum([len(part) for part in parts], dtype=np.int64)
            tensors[f"{what}_name_end"] = ends
    return tensors


def trace_table(trace: list[Sweep]) -> Floats:
    """Return the reports as a table: one row for each sweep."""
    table = np.array([astuple(sweep) for sweep in trace], dtype=np.float64)
    return table.reshape(len(trace), len(fields(Sweep)))


def _sample_tensors(samples: list[Sample]) -> Tensors:
    tensors: Tensors = {
        "sample_row_labels": np.stack([sample.labels[0] for sample in samples]),
        "sample_clusters": np.array([sample.probability.shape for sample in samples]),
        "sample_probability": np.concatenate([sample.probability.ravel() for sample in samples]),
    }
    if len(samples[0].labels) == 2:
        tensors["sample_column_labels"] = np.stack([sample.labels[1] for sample in samples])
    return tensors


# And back


def require(holds: object, sentence: str) -> None:
    """Refuse a file for the reason that the sentence names."""
    if not holds:
        raise ModelFileError(sentence)


def check_names(names: set[str], header: dict[str, Any]) -> None:
    """Refuse files that lack a tensor or have one too many."""
    expected = {name for name in DTYPES if "name" not in name and not name.startswith("sample")}
    for what in ("row", "column"):
        if header[f"{what}_names"]:
            expected |= {f"{what}_names", f"{what}_name_end"}
    if header["samples"]:
        expected |= {name for name in DTYPES if name.startswith("sample")}
    if header["kind"] != "bipartite":
        expected -= {"column_membership", "sample_column_labels"}
    different = sorted(names ^ expected)
    require(not different, f"{len(different)} tensors are missing or foreign: {different[:3]}.")


def result_of(header: dict[str, Any], tensors: Tensors) -> Result:
    """Return the result that the arrays hold; refuse arrays that do not fit each other."""
    sizes = header["shape"][:1] if header["kind"] != "bipartite" else header["shape"]
    memberships = [
        _membership(tensors[f"{what}_membership"], size)
        for what, size in zip(("row", "column"), sizes, strict=False)
    ]
    relation = relation_of(header, tensors)
    clusters = (memberships[0].shape[1], memberships[-1].shape[1])
    n, N = (_positive(tensors, name, clusters) for name in ("block_links", "block_nonlinks"))
    _check_totals(relation, n, N)
    return Result(
        relation,
        memberships,
        [q.argmax(axis=1).astype(np.int32) for q in memberships],
        _priors(tensors, len(sizes), clusters, shared=header["shared_prior"]),
        n,
        N,
        header["log_evidence"],
        trace_of(tensors["trace"]),
        header["converged"],
        _samples(tensors, sizes) if header["samples"] else [],
        header["stability"],
    )


def relation_of(header: dict[str, Any], tensors: Tensors) -> Relation:
    """Rebuild the relation; it must come out as it was stored."""
    shape = (header["shape"][0], header["shape"][1])
    names = [_names(header, tensors, "row", shape[0]), _names(header, tensors, "column", shape[1])]
    links, unseen = (_pattern(tensors, name, shape) for name in ("link", "unseen"))
    require(
        header["kind"] == "bipartite" or not (links.diagonal().any() or unseen.diagonal().any()),
        "objects are linked with themselves among its other links.",
    )
    try:
        relation = Relation.build(
            links,
            unseen=unseen,
            kind=header["kind"],
            row_names=names[0],
            column_names=names[1],
        )
    except ValueError as error:
        msg = f"its relation is not one. {error}"
        raise ModelFileError(msg) from error
    same = all(
        np.array_equal(rebuilt, tensors[name])
        for name, rebuilt in relation.places[0][0]._asdict().items()
    )
    require(same, "its links are not in order.")
    own = shape[0] if relation.one_domain else 0
    self_link, self_seen = (_positive(tensors, name, (own,)) for name in ("self_link", "self_seen"))
    ones_and_zeros = np.isin(self_link, (0, 1)).all() and np.isin(self_seen, (0, 1)).all()
    require(
        ones_and_zeros
        and (self_link <= self_seen).all()
        and (relation.kind == "directed" or not self_seen.any()),
        "its links of objects with themselves are impossible.",
    )
    return replace(relation, self_link=self_link, self_seen=self_seen)


def _pattern(tensors: Tensors, name: str, shape: tuple[int, int]) -> sparse.csr_array:
    """Return links or unseen cells as a matrix; all indices lie inside."""
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


def _names(
    header: dict[str, Any], tensors: Tensors, what: str, size: int
) -> tuple[str, ...] | None:
    """Return the names of rows or columns, where there are some."""
    if not header[f"{what}_names"]:
        return None
    letters, end = tensors[f"{what}_names"], tensors[f"{what}_name_end"]
    start = np.concatenate(([0], end[:-1])) if end.shape == (size,) else end
    fit = start is not end and letters.ndim == 1 and end[-1] == letters.size
    require(fit and (start <= end).all() and end[0] >= 0, f"its {what} names do not fit.")
    text = letters.tobytes()
    try:
        return tuple(
            text[first:last].decode("utf-8", "surrogatepass")
            for first, last in zip(start.tolist(), end.tolist(), strict=True)
        )
    except UnicodeDecodeError as error:
        msg = f"its {what} names are not UTF-8."
        raise ModelFileError(msg) from error


def _membership(q: Floats, size: int) -> Floats:
    """Refuse memberships that are no probabilities, or clusters out of order."""
    require(
        q.ndim == 2 and q.shape[0] == size and q.shape[1] > 0,
        f"it has memberships of shape {q.shape} for {size:,} objects.",
    )
    sums = np.abs(q.sum(axis=1) - 1.0) if np.isfinite(q).all() and (q >= 0.0).all() else np.ones(1)
    require((sums < CLOSE).all(), "its memberships are not probabilities that add up to 1.")
    members = np.bincount(q.argmax(axis=1), minlength=q.shape[1])
    require(
        members[-1] > 0 and (members[1:] <= members[:-1]).all(),
        "its clusters are not in the order of their sizes, or one is empty.",
    )
    return q


def _positive(tensors: Tensors, name: str, shape: tuple[int, ...]) -> Floats:
    """Refuse an array of another shape, and numbers that are not finite or below 0."""
    array = tensors[name]
    require(array.shape == shape, f"its {name} has shape {array.shape} where {shape} is right.")
    require(
        np.isfinite(array).all() and (array >= 0.0).all(), f"its {name} has impossible numbers."
    )
    return array


def _check_totals(relation: Relation, n: Floats, N: Floats) -> None:
    """Refuse block counts that do not add up to the links and cells of the relation."""
    once = each_block_once(relation.kind, n.shape)
    links, cells = float(n[once].sum()), float((n + N)[once].sum())
    near = CLOSE * max(relation.n_cells, 1)
    fit = abs(links - relation.n_links) < near and abs(cells - relation.n_cells) < near
    require(fit, "its blocks do not add up to the links and cells of the relation.")


def _priors(tensors: Tensors, domains: int, clusters: tuple[int, int], *, shared: bool) -> Priors:
    alpha = _positive(tensors, "alpha", (domains,))
    a, b = (_positive(tensors, name, clusters) for name in ("prior_a", "prior_b"))
    require(all((array > 0.0).all() for array in (alpha, a, b)), "its priors are not above 0.")
    require(
        not shared or ((a == a[0, 0]).all() and (b == b[0, 0]).all()),
        "its prior is shared, but differs from block to block.",
    )
    return Priors(alpha.tolist(), a, b, shared)


def trace_of(table: Floats) -> list[Sweep]:
    """Return the reports; their counts are whole numbers."""
    names = [field.name for field in fields(Sweep)]
    require(table.ndim == 2 and table.shape[1] == len(names), "its trace has another form.")
    counts = table[:, [name in WHOLE for name in names]]
    require(
        np.isfinite(counts).all() and (counts == np.clip(np.round(counts), 0, 2**53)).all(),
        "its trace counts what cannot be counted.",
    )
    return [
        Sweep(*(int(x) if name in WHOLE else x for name, x in zip(names, line, strict=True)))
        for line in table.tolist()
    ]


def _samples(tensors: Tensors, sizes: list[int]) -> list[Sample]:
    """Return the kept states of a Gibbs chain; every label has its block."""
    shapes, flat = tensors["sample_clusters"], tensors["sample_probability"]
    require(
        shapes.ndim == 2 and shapes.shape[1] == 2 and len(shapes) > 0 and flat.ndim == 1,
        "its samples have another form.",
    )
    possible = (shapes > 0).all() and (shapes <= min(flat.size, 2**31)).all()
    require(
        possible and sum(K1 * K2 for K1, K2 in shapes.tolist()) == flat.size,
        "its samples do not have the blocks that they name.",
    )
    require(
        (len(sizes) == 2 or (shapes[:, 0] == shapes[:, 1]).all())
        and np.isfinite(flat).all()
        and (flat >= 0.0).all()
        and (flat <= 1.0).all(),
        "its samples have impossible probabilities.",
    )
    labels = []
    for d, (what, size) in enumerate(zip(("row", "column"), sizes, strict=False)):
        label = tensors[f"sample_{what}_labels"]
        require(
            label.shape == (len(shapes), size)
            and (label >= 0).all()
            and (label < shapes[:, d : d + 1]).all(),
            f"its samples name {what} clusters that do not exist.",
        )
        labels.append(label)
    ends = np.cumsum(shapes.prod(axis=1))
    return [
        Sample([label[s] for label in labels], flat[end - K1 * K2 : end].reshape(K1, K2))
        for s, (end, (K1, K2)) in enumerate(zip(ends.tolist(), shapes.tolist(), strict=True))
    ]
