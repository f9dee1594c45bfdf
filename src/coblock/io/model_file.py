"""Model files: a fitted model as safetensors with a JSON header; reading one runs no code.

Format 1
--------
The metadata of the safetensors file hold one text, ``coblock``: a JSON object with ``format``
("coblock-model"), ``version`` (1), the entries that :func:`save` writes, and ``digest`` (BLAKE2b of
all other entries and of the tensors). It is one text so that equal models give equal files. The
tensors are those of :mod:`coblock.io.result_codec`. Places by column and labels are not kept: they
follow from the rest. What a released version has written is read for ever.
"""

import json
import re
from collections.abc import Callable, Mapping
from hashlib import blake2b
from pathlib import Path
from stat import S_ISREG
from typing import Any, NamedTuple

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from coblock.io.atomic import write_whole
from coblock.io.result_codec import (
    DTYPES,
    ModelFileError,
    Tensors,
    check_names,
    require,
    result_of,
    tensors_of,
)
from coblock.model.checks import KINDS
from coblock.model.result import Result

KEY, FORMAT, VERSION = "coblock", "coblock-model", 1


class Stored(NamedTuple):
    """What a model file holds."""

    result: Result
    parameters: dict[str, Any]
    feature_names: bool  # whether the columns were named by a data frame


def save(
    result: Result,
    path: str | Path,
    parameters: Mapping[str, object],
    *,
    feature_names: bool = False,
) -> None:
    """Write a result and the parameters of its estimator, whole or not at all.

    Parameters
    ----------
    result : Result
        Kept to the bit, with the relation, its names and its unseen cells.
    path : str or Path
        An earlier file is replaced.
    parameters : mapping
        Of the estimator. Numbers, texts, None and pairs of numbers are kept. A start from
        labels or from a model becomes ``"given"``; a callback, a checkpoint and a random state
        that is not a number become None.
    feature_names : bool
        Whether scikit-learn took the names of the columns from a data frame.
    """
    relation = result.relation
    header = {
        "format": FORMAT,
        "version": VERSION,
        "kind": relation.kind,
        "shape": list(relation.shape),
        "row_names": relation.row_names is not None,
        "column_names": relation.column_names is not None,
        "feature_names": feature_names,
        "samples": bool(result.samples),
        "shared_prior": bool(result.priors.shared),
        "converged": bool(result.converged),
        "log_evidence": float(result.log_evidence),
        "stability": result.stability,
        "parameters": plain_parameters(parameters),
    }
    tensors = tensors_of(result)
    header["digest"] = digest(header, tensors)
    metadata = {KEY: json.dumps(header, allow_nan=False)}
    write_whole(path, lambda temporary: _save_tensors(temporary, tensors, metadata))


def load(path: str | Path) -> Stored:
    """Read a model file; nothing in it is run.

    Raises
    ------
    ModelFileError
        With a sentence, where the file is foreign, damaged, cut short, inconsistent, or written
        by a newer version.
    """
    path = Path(path)
    if not path.exists():
        msg = f"There is no file {path}. Model files are written by IRM.save and coblock fit."
        raise FileNotFoundError(msg)
    try:
        header, tensors = read_whole(path, _model_header, "Use a copy.")
        result = result_of(header, tensors)
        return Stored(result, header["parameters"], header["feature_names"])
    except ModelFileError as error:
        msg = f"{path} cannot be used as a model: {error}"
        raise ModelFileError(msg) from error


def digest(header: Mapping[str, object], tensors: Tensors) -> str:
    """Return the sum that tells whether a file is as it was written."""
    entries = {name: value for name, value in header.items() if name != "digest"}
    total = blake2b(json.dumps(entries, sort_keys=True).encode(), digest_size=32)
    for name in sorted(tensors):
        array = tensors[name]
        total.update(f"\n{name} {array.dtype.str} {array.shape}\n".encode())
        total.update(np.ascontiguousarray(array).data)
    return total.hexdigest()


# Writing


def plain_parameters(parameters: Mapping[str, object]) -> dict[str, object]:
    """Return the parameters of an estimator as JSON can say them."""
    return {name: _plain(name, value) for name, value in parameters.items()}


def _plain(name: str, value: object) -> object:
    """Return a parameter as JSON can say it; where checkpoints went is nobody else's business."""
    if name == "checkpoint":
        return None
    if isinstance(value, np.generic):
        value = value.item()
    if name == "init":
        return value if isinstance(value, str) else "given"
    if isinstance(value, tuple | list) and all(
        isinstance(part, int | np.integer) for part in value
    ):
        return [int(part) for part in value]
    return value if isinstance(value, str | bool | int | float) else None


def _save_tensors(path: Path, tensors: Tensors, metadata: dict[str, str]) -> None:
    """Write the file; an error of the system comes back as one."""
    try:
        save_file(tensors, path, metadata)
    except SafetensorError as error:
        code = re.search(r"os error (\d+)", str(error))
        if code is None:
            raise
        raise OSError(int(code[1]), str(error)) from error


# Reading


def read_whole(
    path: Path, header_of: Callable[[str | None, Any], dict[str, Any]], advice: str
) -> tuple[dict[str, Any], Tensors]:
    """Return header and tensors of a file that agrees with its digest.

    ``header_of`` gets the header's text and the open file, and refuses what it does not like
    before any tensor is read; ``advice`` is for a person whose file is damaged.
    """
    require(S_ISREG(path.stat().st_mode), "it is not a file.")
    try:
        with safe_open(path, framework="numpy") as file:
            header = header_of((file.metadata() or {}).get(KEY), file)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        msg = f"it is not a safetensors file, or damaged or cut short ({error})."
        raise ModelFileError(msg) from error
    require(
        header.get("digest") == digest(header, tensors),
        f"its contents do not agree with their digest: the file is damaged. {advice}",
    )
    return header, tensors


def _model_header(text: str | None, file: Any) -> dict[str, Any]:
    """Return the header of a model file whose tensors have the right names and types."""
    require(text is not None, "it was not written by coblock.")
    header = _read_header(str(text))
    check_names(set(file.keys()), header)
    for name in file.keys():  # noqa: SIM118 - the handle is no dictionary
        require(
            file.get_slice(name).get_dtype() == DTYPES[name],
            f"its tensor {name} has the wrong type.",
        )
    return header


def _check_version(header: object) -> None:
    """Refuse other formats and later versions before anything else is looked at."""
    require(isinstance(header, dict), "its header is not a JSON object.")
    known: dict[str, object] = header  # type: ignore[assignment]
    require(known.get("format") == FORMAT, "it was not written by coblock.")
    version = known.get("version")
    require(type(version) is int and version > 0, "its version is not a number.")
    require(
        version == VERSION,
        f"it has format {str(version)[:20]}, but this coblock knows formats up to {VERSION}. "
        "Update coblock.",
    )


def _read_header(text: str) -> dict[str, Any]:
    """Return the header; every entry has its type."""
    try:
        header = json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        msg = "its header is not JSON: the file is damaged."
        raise ModelFileError(msg) from error
    kinds: dict[str, Any] = {
        "format": str,
        "version": int,
        "digest": str,
        "kind": str,
        "shape": list,
        "row_names": bool,
        "column_names": bool,
        "feature_names": bool,
        "samples": bool,
        "shared_prior": bool,
        "converged": bool,
        "log_evidence": float,
        "stability": float | None,
        "parameters": dict,
    }
    _check_version(header)
    wrong = sorted(
        name for name, kind in kinds.items() if not isinstance(header.get(name, ...), kind)
    )
    require(not wrong, f"its header lacks {', '.join(wrong)}, or has them in another form.")
    foreign = sorted(set(header) - set(kinds))
    require(not foreign, f"its header has {len(foreign)} entries too many: {foreign[:3]!r:.100}.")
    header["parameters"] = read_parameters(header["parameters"])
    require(
        np.isfinite([header["log_evidence"], header["stability"] or 0.0]).all(),
        "its evidence or its stability is not a number.",
    )
    shape = header["shape"]
    require(
        len(shape) == 2 and all(type(size) is int and 0 < size < 2**31 for size in shape),
        "its relation has an impossible shape.",
    )
    require(header["kind"] in KINDS, f"its relation is of no known kind ({header['kind'][:20]!r}).")
    require(
        header["kind"] == "bipartite" or shape[0] == shape[1],
        f"its relation is {header['kind']}, but not square.",
    )
    require(header["column_names"] or not header["feature_names"], "its columns should have names.")
    return header


def read_parameters(stored: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters; only plain values are possible."""
    parameters = {}
    for name, value in stored.items():
        pair = isinstance(value, list) and all(type(part) is int for part in value)
        require(
            pair or value is None or isinstance(value, str | bool | int | float),
            f"its parameter {name[:40]!r} is neither a number nor a text.",
        )
        parameters[name] = tuple(value) if pair else value
    return parameters


def _no_number(text: str) -> float:
    msg = f"{text} is not JSON"
    raise ValueError(msg)
