"""Model files: a fitted model in a :mod:`coblock.io.container`.

Format 1 has the tensors of :data:`coblock.io.codec.DTYPES` and the header entries of
:data:`FORMAT`. Cells by column and labels are not stored: they follow from the rest. Every
format that a released version has written stays readable.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from coblock.io import codec, container
from coblock.io.container import Format, Header, InvalidFileError, require
from coblock.model.result import Result

FORMAT = Format(
    "coblock-model",
    1,
    {
        **codec.RELATION_ENTRIES,
        **dict.fromkeys(("feature_names", "samples", "shared_prior", "converged"), bool),
        **{"log_evidence": float, "stability": float | None, "parameters": dict},
    },
    known="formats up to 1",
    other_version="Update coblock.",
    damaged="Use a copy.",
)


class ModelFileError(ValueError):
    """The file is not a model that this version of coblock can use."""


class Stored(NamedTuple):
    """The contents of a model file."""

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
    """Write a result and the parameters of its estimator, completely or not at all.

    Parameters
    ----------
    result : Result
        Stored to the bit, with the relation, its names and its unseen cells.
    path : str or Path
        An earlier file is replaced.
    parameters : mapping
        Of the estimator; see :func:`plain_parameters`.
    feature_names : bool
        Whether scikit-learn took the names of the columns from a data frame.
    """
    entries = codec.relation_entries(result.relation) | {
        "feature_names": feature_names,
        "samples": bool(result.samples),
        "shared_prior": not result.hyper.per_block,
        "converged": bool(result.converged),
        "log_evidence": float(result.log_evidence),
        "stability": result.stability,
        "parameters": plain_parameters(parameters),
    }
    container.write_container(path, FORMAT, entries, codec.result_to_tensors(result))


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
        header, tensors = container.read_container(path, FORMAT, _check_header)
        result = codec.result_from_tensors(header, tensors)
        return Stored(result, read_parameters(header["parameters"]), header["feature_names"])
    except InvalidFileError as error:
        msg = f"{path} cannot be used as a model: {error}"
        raise ModelFileError(msg) from error


def plain_parameters(parameters: Mapping[str, object]) -> dict[str, object]:
    """Return the parameters of an estimator as JSON can express them.

    Numbers, texts, None and pairs of numbers are stored. A start from labels or from a model
    becomes ``"given"``. A checkpoint, a callback, an engine, and a random state that is not a
    number become None.
    """
    plain: dict[str, object] = {}
    for name, value in parameters.items():
        single = value.item() if isinstance(value, np.generic) else value
        pair = isinstance(value, tuple | list)
        if name == "checkpoint":
            single = None  # a path may be private
        elif name == "init":
            single = single if isinstance(single, str) else "given"
        elif pair and all(isinstance(part, int | np.integer) for part in value):  # type: ignore[attr-defined]
            single = [int(part) for part in value]  # type: ignore[attr-defined]
        elif not isinstance(single, str | bool | int | float):
            single = None
        plain[name] = single
    return plain


def read_parameters(stored: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters; refuse values that :func:`plain_parameters` does not give."""
    parameters = {}
    for name, value in stored.items():
        pair = isinstance(value, list) and all(type(part) is int for part in value)
        plain = pair or value is None or isinstance(value, str | bool | int | float)
        require(plain, f"its parameter {name[:40]!r} is neither a number nor a text.")
        parameters[name] = tuple(value) if pair else value
    return parameters


def _check_header(header: Header, types: dict[str, str]) -> None:
    """Refuse header entries that are out of range, and tensors of other names or types."""
    read_parameters(header["parameters"])
    numbers = [header["log_evidence"], header["stability"] or 0.0]
    require(np.isfinite(numbers).all(), "its evidence or its stability is not a number.")
    codec.check_relation_entries(header)
    named = header["column_names"] or not header["feature_names"]
    require(named, "its columns should have names.")
    codec.check_tensor_names(header, types)
