"""Model files: a fitted IRM or MultiIRM in a :mod:`coblock.io.container`.

An IRM has the tensors of :data:`DTYPES` and the header entries of :data:`FORMAT`. Cells by column,
and labels that are the most probable ones, are not stored: they follow from the rest. Early files
of plain methods have no sticks. The header of a MultiIRM, :data:`MULTI_FORMAT`, describes domains,
relations and parameters; the tensors hold names, cells, labels, hyperparameters, samples and trace
(:mod:`coblock.io.stored_data`). Every format that a released version has written stays readable.
"""

from collections.abc import Mapping
from copy import copy
from pathlib import Path
from types import NoneType
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from coblock.io import codec, container, stored_data
from coblock.io.codec import check_labels, check_memberships
from coblock.io.container import (
    Format,
    Header,
    StoredTensors,
    Tensors,
    require,
    trace_from_table,
    trace_to_table,
)
from coblock.io.stored_data import nonnegative
from coblock.model.degrees import DegreeChoice, DegreeModel
from coblock.model.hyperparameters import Hyperparameters
from coblock.model.multi_result import MultiResult
from coblock.model.result import Result, Sample, count_blocks

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
    "row_labels": "I32",  # (rows,), where they are not the most probable ones
    "column_labels": "I32",
    "row_sticks": "I32",  # (K1,), clusters in the order of their sticks; none with a CRP prior
    "column_sticks": "I32",
    "alpha": "F64",  # one for each domain
    "prior_a": "F64",  # (K1, K2)
    "prior_b": "F64",
    "block_links": "F64",  # (K1, K2), expected
    "block_nonlinks": "F64",
    "trace": "F64",  # (sweeps, fields of SweepRecord)
    "sample_row_labels": "I32",  # (samples, rows), where chains were sampled
    "sample_column_labels": "I32",  # (samples, columns); bipartite relations only
    "sample_clusters": "I64",  # (samples, 2), the shapes of
    "sample_probability": "F64",  # the blocks of all samples, one after another
    "sample_chain": "I64",  # (samples,), the chain of each; older files have one chain
    "degree_evidence": "F64",  # plain and corrected, NaN if not fitted; where both were asked for
    "degree_shape": "F64",  # (places,), of a degree-corrected model,
    "degree_prior": "F64",  # (2,), a and b
    "row_degrees": "F64",  # (rows,)
    "column_degrees": "F64",  # (columns,); not of an undirected relation
    "degree_counts": "F64",  # (K1, K2)
    "degree_exposure": "F64",
}
DEGREES = {name for name in DTYPES if "degree" in name}
OPTIONAL = {"row_labels", "column_labels", "row_sticks", "column_sticks", "sample_chain"} | DEGREES
Parameters: TypeAlias = Mapping[str, object]  # of an estimator
FORMAT = Format(
    "coblock-model",
    1,
    {
        **stored_data.BINARY_ENTRIES,
        **dict.fromkeys(("feature_names", "samples", "shared_prior", "converged"), bool),
        **{"log_evidence": float, "stability": float | None, "parameters": dict},
    },
    known="formats up to 1",
    other_version="Update coblock.",
    damaged="Use a copy.",
)
MULTI_FORMAT = FORMAT._replace(
    name="coblock-multi-model",
    entries={
        **stored_data.DATASET_ENTRIES,
        **{"phases": list, "parameters": dict, "log_evidence": float},
        **{"converged": bool, "samples": int},
    },
)
PARAMETERS: dict[str, Any] = {  # of IRM, the types that they have in a file
    **dict.fromkeys(("relation", "inference", "init", "prior", "variance"), str),
    **dict.fromkeys(("hyperparameters", "likelihood"), str),
    **dict.fromkeys(("refine", "warm_start", "verbose"), bool | int),
    **dict.fromkeys(("max_iter", "n_init"), int),
    "degree_corrected": bool | str,
    **dict.fromkeys(("burn_in", "n_jobs", "random_state"), int | None),
    **{"binarize": float | int | None, "tol": float | int},
    **{"max_clusters": int | tuple[int, int] | None, "batch_size": int | tuple[int, int] | str},
    "concentration": float | int | tuple[float | int, ...] | None,
    **dict.fromkeys(
        ("block_prior", "hyperprior", "block_hyperprior"), tuple[float | int, ...] | None
    ),
    **dict.fromkeys(("checkpoint", "callback", "engine"), NoneType),
}
METHOD_PARAMETERS = ("inference", "init", "refine", "burn_in", "tol")  # not in early files
MULTI_PARAMETERS: dict[str, Any] = {  # of MultiIRM
    **{name: PARAMETERS[name] for name in ("max_iter", "random_state", *METHOD_PARAMETERS)},
    **{"refine": bool, "max_clusters": int | dict | None},
}


class ModelFileError(ValueError):
    """The file is not a model that this version of coblock can use."""


class Stored(NamedTuple):
    """The contents of a model file."""

    result: Result | MultiResult
    parameters: dict[str, Any]
    feature_names: bool = False  # whether the columns were named by a data frame


def save(
    result: Result | MultiResult,
    path: str | Path,
    parameters: Parameters,
    *,
    feature_names: bool = False,
) -> None:
    """Write a :class:`Stored` model to the bit, completely or not at all."""
    entries: Header = {
        "parameters": plain_parameters(parameters),
        "converged": bool(result.converged),
        "log_evidence": float(result.log_evidence),
    }
    if isinstance(result, MultiResult):
        entries |= stored_data.data_entries(result.data)
        entries |= {"phases": [record.phase for record in result.trace]}
        entries |= {"samples": len(result.samples)}
        container.write_container(path, MULTI_FORMAT, entries, multi_result_to_tensors(result))
        return
    entries |= stored_data.relation_entries(result.relation)
    entries |= {"feature_names": feature_names, "samples": bool(result.samples)}
    entries |= {"shared_prior": not result.hyper.per_block, "stability": result.stability}
    container.write_container(path, FORMAT, entries, result_to_tensors(result))


def load(path: str | Path) -> Stored:
    """Read a model file; nothing in it is run, and any other file is a ModelFileError."""
    path = Path(path)
    if not path.exists():
        msg = f"There is no file {path}. Model files are written by IRM.save and coblock fit."
        raise FileNotFoundError(msg)
    with container.convert_refusals(path, "a model", ModelFileError):
        header, tensors = container.read_container(path, FORMAT, MULTI_FORMAT)
        given = header["parameters"]
        if header["format"] == MULTI_FORMAT.name:
            check_multi_parameters(given)
            return Stored(multi_result_from_tensors(header, StoredTensors(tensors)), given)
        _check_header(header, tensors)
        result = result_from_tensors(header, tensors)
        return Stored(result, read_parameters(given), header["feature_names"])


def _check_header(header: Header, tensors: Tensors) -> None:
    """Refuse header entries that are out of range, and tensors of other names or types."""
    numbers = [header["log_evidence"], header["stability"] or 0.0]
    require(np.isfinite(numbers).all(), "its evidence or its stability is not a number.")
    stored_data.check_relation_entries(header)
    named = header["column_names"] or not header["feature_names"]
    require(named, "its columns should have names.")
    expected = set(DTYPES)
    for what in ("row", "column"):
        if not header[f"{what}_names"]:
            expected -= {f"{what}_names", f"{what}_name_end"}
    if not header["samples"]:
        expected -= {name for name in DTYPES if name.startswith("sample")}
    if header["kind"] != "bipartite":
        expected -= {"column_membership", "sample_column_labels"}
    domains = ("row", "column")[: 2 if header["kind"] == "bipartite" else 1]
    optional = {f"{what}_{name}" for what in domains for name in ("labels", "sticks")}
    optional |= {"sample_chain"} if header["samples"] else set()
    expected -= OPTIONAL
    optional |= DEGREES
    different = sorted(expected ^ (set(tensors) - optional))
    require(not different, f"{len(different)} tensors are missing or foreign: {different[:3]}.")
    for name, array in tensors.items():
        right = container.TYPES[array.dtype.str] == DTYPES[name]
        require(right, f"its tensor {name} has the wrong type.")


def plain_parameters(parameters: Parameters) -> dict[str, object]:
    """Return the parameters of an estimator as JSON can express them.

    Numbers, texts, pairs of numbers and numbers by name are stored. A start from labels or from a
    model becomes ``"given"``, a checkpoint (a path may be private) and any other object None.
    """
    plain: dict[str, object] = {}
    for name, value in parameters.items():
        single = value.item() if isinstance(value, np.generic) else value
        pair: Any = value if isinstance(value, tuple | list) else [None]
        if name == "init":
            plain[name] = single if isinstance(single, str) else "given"
        elif isinstance(value, Mapping):
            plain[name] = {key: int(number) for key, number in value.items()}
        elif all(isinstance(x, int | float | np.number) for x in pair):
            plain[name] = [x.item() if isinstance(x, np.generic) else x for x in pair]
        else:
            stored = isinstance(single, str | bool | int | float) and name != "checkpoint"
            plain[name] = single if stored else None
    return plain


def read_parameters(stored: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters; refuse values that :func:`plain_parameters` does not give."""
    parameters = {}
    for name, value in stored.items():
        pair = isinstance(value, list) and all(type(part) in {int, float} for part in value)
        plain = pair or value is None or isinstance(value, str | bool | int | float)
        require(plain, f"its parameter {name[:40]!r} is neither a number nor a text.")
        parameters[name] = tuple(value) if pair else value
    return parameters


def check_multi_parameters(parameters: Header) -> None:
    """Refuse parameters that are not those of a MultiIRM."""
    missing = set(MULTI_PARAMETERS) ^ set(parameters)
    fits = missing in (set(), set(METHOD_PARAMETERS))
    require(fits, "its parameters are not those of a model.")
    check_types(parameters, MULTI_PARAMETERS)


def check_types(parameters: Parameters, kinds: Mapping[str, Any]) -> None:
    """Refuse parameters of other types."""
    for name, value in parameters.items():
        right = codec.is_of_type(value, kinds[name])
        require(right, f"its parameter {name} is of the wrong type.")


# Results of IRM


def result_to_tensors(result: Result) -> Tensors:
    """Return all arrays of a result and of its relation."""
    prior_a, prior_b = result.hyper.tables(result.blocks.clusters)
    tensors: Tensors = stored_data.relation_to_tensors(result.relation) | {
        "alpha": np.array(result.hyper.alpha, dtype=np.float64),
        "prior_a": prior_a,
        "prior_b": prior_b,
        "block_links": result.n,
        "block_nonlinks": result.N,
        "trace": trace_to_table(result.trace),
    }
    if result.degrees is not None:
        tensors |= degrees_to_tensors(result.degrees)
    samples, blocks = result.samples, [sample.probability for sample in result.samples]
    for d, what in enumerate(("row", "column")[: len(result.labels)]):
        tensors[f"{what}_membership"] = result.memberships[d]
        if not np.array_equal(result.labels[d], result.memberships[d].argmax(axis=1)):
            tensors[f"{what}_labels"] = result.labels[d]
        if result.sticks is not None:
            tensors[f"{what}_sticks"] = result.sticks[d]
        if samples:
            tensors[f"sample_{what}_labels"] = np.stack([sample.labels[d] for sample in samples])
    if samples:
        tensors["sample_clusters"] = np.array([block.shape for block in blocks], dtype=np.int64)
        tensors["sample_probability"] = np.concatenate([block.ravel() for block in blocks])
        tensors["sample_chain"] = np.array([sample.chain for sample in samples], dtype=np.int64)
    return tensors


def result_from_tensors(header: Header, tensors: Tensors) -> Result:
    """Return the result; refuse arrays that do not fit each other."""
    sizes = header["shape"] if header["kind"] == "bipartite" else header["shape"][:1]
    q = [tensors[f"{what}_membership"] for what in ("row", "column")[: len(sizes)]]
    check_memberships(q, sizes)
    relation = stored_data.relation_from_tensors(header, tensors)
    clusters = (q[0].shape[1], q[-1].shape[1])
    labels = [
        tensors.get(f"{what}_labels", each.argmax(axis=1).astype(np.int32))
        for what, each in zip(("row", "column"), q, strict=False)
    ]
    check_labels(labels, sizes, [each.shape[1] for each in q])
    counted = count_blocks(relation, q, labels, sampled="sample_chain" in tensors)
    blocks = copy(counted)
    blocks.n = nonnegative(tensors, "block_links", clusters)
    blocks.N = nonnegative(tensors, "block_nonlinks", clusters)
    alpha = nonnegative(tensors, "alpha", (len(sizes),)).tolist()
    prior = np.array([nonnegative(tensors, name, clusters) for name in ("prior_a", "prior_b")])
    if header["shared_prior"]:
        same = (prior == prior[:, :1, :1]).all()
        require(same, "its prior is shared, but differs from block to block.")
        prior = prior[:, :1, :1].copy()
    result = Result(
        relation,
        q,
        labels,
        Hyperparameters(alpha, prior, not header["shared_prior"]),
        blocks,
        header["log_evidence"],
        trace_from_table(tensors["trace"]),
        header["converged"],
        _samples_from_tensors(tensors, sizes) if header["samples"] else [],
        header["stability"],
        [tensors[f"{what}_sticks"] for what in ("row", "column")[: len(sizes)]]
        if "row_sticks" in tensors
        else None,
        degrees_from_tensors(tensors, relation.symmetric),
    )
    codec.check_result(result, counted)
    return result


def degrees_to_tensors(choice: DegreeChoice) -> Tensors:
    """Return the arrays of a choice between the plain and the degree-corrected model."""
    pair = (choice.plain_evidence, choice.corrected_evidence)
    tensors: Tensors = {"degree_evidence": np.array(pair, dtype=np.float64)}
    model = choice.model
    if model is not None:
        names = ("row_degrees", "column_degrees")[: len(model.degrees)]
        tensors |= dict(zip(names, model.degrees, strict=True))
        tensors |= {"degree_shape": model.eta, "degree_prior": model.prior}
        tensors |= {"degree_counts": model.counts, "degree_exposure": model.exposure}
    return tensors


def degrees_from_tensors(tensors: Tensors, symmetric: bool) -> DegreeChoice | None:
    """Return the choice, if the file has one; :func:`codec.check_result` checks its parts."""
    stored = DEGREES.intersection(tensors)
    if not stored:
        return None
    complete = DEGREES - {"column_degrees"} if symmetric else DEGREES
    whole = stored in ({"degree_evidence"}, complete)
    require(whole and tensors["degree_evidence"].shape == (2,), "its degrees are not complete.")
    plain, corrected = tensors["degree_evidence"].tolist()
    evidence = (plain, None if np.isnan(corrected) else corrected)
    if len(stored) == 1:
        return DegreeChoice(*evidence)
    degrees = [tensors[name] for name in ("row_degrees", "column_degrees")[: 2 - symmetric]]
    pair = (tensors["degree_counts"], tensors["degree_exposure"])
    model = DegreeModel(tensors["degree_shape"], tensors["degree_prior"], degrees, *pair)
    return DegreeChoice(*evidence, model)


def _samples_from_tensors(tensors: Tensors, sizes: list[int]) -> list[Sample]:
    """Return the kept states of Gibbs chains, as far as their tables can be cut apart."""
    shapes, flat = tensors["sample_clusters"], tensors["sample_probability"]
    form = shapes.ndim == 2 and shapes.shape[1] == 2 and len(shapes) > 0 and flat.ndim == 1
    require(form, "its samples have another form.")
    possible = ((shapes > 0) & (shapes <= min(flat.size, 2**31))).all()
    possible = possible and sum(K1 * K2 for K1, K2 in shapes.tolist()) == flat.size
    require(possible, "its samples do not have the blocks that they name.")
    labels = [tensors[f"sample_{what}_labels"] for what in ("row", "column")[: len(sizes)]]
    for each, size in zip(labels, sizes, strict=True):
        require(each.shape == (len(shapes), size), "its samples are of other objects.")
    chain = tensors.get("sample_chain", np.zeros(len(shapes), dtype=np.int64))
    require(chain.shape == (len(shapes),), "its samples are of no chain.")
    tables = np.split(flat, np.cumsum(shapes.prod(axis=1))[:-1])
    return [
        Sample([label[s] for label in labels], tables[s].reshape(shape), int(chain[s]))
        for s, shape in enumerate(shapes.tolist())
    ]


# Results of MultiIRM


def multi_result_to_tensors(result: MultiResult) -> Tensors:
    """Return all arrays of a result and of its relations."""
    data = result.data
    stored_data.check_likelihoods(data, "Pickle the model instead.")
    tensors = stored_data.data_tensors(data) | stored_data.partition_tensors(result)
    tensors |= stored_data.sample_tensors(result.samples)
    tensors |= stored_data.trace_tensors(result.trace, len(data.domains))
    return tensors | {f"membership_{d}": q for d, q in enumerate(result.soft or ())}


def multi_result_from_tensors(header: Header, tensors: StoredTensors) -> MultiResult:
    """Return the result; refuse arrays that do not fit each other."""
    data = stored_data.read_data(header, tensors)
    labels, priors, alpha = stored_data.read_partition(tensors, data)
    samples = stored_data.read_samples(header["samples"], tensors, data)
    records = stored_data.read_trace(header["phases"], tensors, data)
    soft = None
    if "membership_0" in tensors.tensors:
        soft = stored_data.read_memberships(tensors, data, "membership_")
        check_labels(labels, data.sizes, [q.shape[1] for q in soft])
    tensors.require_all_used()
    evidence = header["log_evidence"]
    require(np.isfinite(evidence), "its evidence is not a number.")
    found = (labels, priors, alpha, evidence, samples, records, header["converged"], soft)
    return MultiResult(data, *found)
