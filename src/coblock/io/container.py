"""The container of model files and checkpoints: safetensors with a JSON header and a digest.

The metadata of the safetensors file hold one text, ``coblock``: a JSON object with ``format``,
``version``, the entries of the format, and ``digest`` (BLAKE2b of all other entries and of the
tensors). It is one text so that equal contents give equal files. Reading a file runs no code.
"""

import json
from collections.abc import Callable, Mapping
from hashlib import blake2b
from pathlib import Path
from stat import S_ISREG
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from coblock.io.atomic import write_atomic

KEY = "coblock"
TYPES = {"<f8": "F64", "<i8": "I64", "<i4": "I32", "|u1": "U8"}  # of NumPy: of safetensors

Tensors: TypeAlias = dict[str, NDArray[Any]]
Header: TypeAlias = dict[str, Any]


class InvalidFileError(ValueError):
    """The contents of a file are refused; the message is a sentence without the path."""


class Format(NamedTuple):
    """A kind of file that coblock writes."""

    name: str
    version: int
    entries: Mapping[str, Any]  # of the header, with the types that isinstance accepts
    known: str  # versions that can be read, for a sentence,
    other_version: str  # and advice for a file of another version
    damaged: str  # advice for a file that does not agree with its digest


def require(holds: object, sentence: str) -> None:
    """Refuse a file for the reason in ``sentence``."""
    if not holds:
        raise InvalidFileError(sentence)


def digest(header: Mapping[str, object], tensors: Tensors) -> str:
    """Return the checksum of the header entries and the tensors."""
    entries = {name: value for name, value in header.items() if name != "digest"}
    total = blake2b(json.dumps(entries, sort_keys=True).encode(), digest_size=32)
    for name in sorted(tensors):
        array = tensors[name]
        total.update(f"\n{name} {array.dtype.str} {array.shape}\n".encode())
        total.update(np.ascontiguousarray(array).data)
    return total.hexdigest()


def write_container(
    path: str | Path, form: Format, entries: Mapping[str, object], tensors: Tensors
) -> None:
    """Write a file completely or not at all; an earlier one is replaced."""
    header = {"format": form.name, "version": form.version, **entries}
    header["digest"] = digest(header, tensors)
    metadata = {KEY: json.dumps(header, allow_nan=False)}
    write_atomic(path, lambda temporary: write_tensors(temporary, tensors, metadata))


def write_tensors(path: Path, tensors: Tensors, metadata: dict[str, str]) -> None:
    """Write a safetensors file without a copy of any array.

    The library's own function makes a copy, and if it is killed it leaves a temporary file that
    cannot be recognised.
    """
    header: dict[str, object] = {"__metadata__": metadata}
    arrays = dict(sorted(tensors.items(), key=lambda item: (-item[1].itemsize, item[0])))
    end = 0
    for name, array in arrays.items():
        offsets = [end, end := end + array.nbytes]
        shape, kind = list(array.shape), TYPES[array.dtype.str]
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": offsets}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # so that the arrays are aligned
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for array in arrays.values():
            file.write(np.ascontiguousarray(array).data)


def read_container(
    path: Path, form: Format, check: Callable[[Header, dict[str, str]], None]
) -> tuple[Header, Tensors]:
    """Return header and tensors of a file of this format that agrees with its digest.

    ``check`` gets the header and the types of the tensors before any tensor is read.
    """
    require(S_ISREG(path.stat().st_mode), "it is not a file.")
    try:
        with safe_open(path, framework="numpy") as file:
            header = _parse_header((file.metadata() or {}).get(KEY), form)
            names = list(file.keys())
            types = {name: file.get_slice(name).get_dtype() for name in names}
            check(header, types)
            wrong = [name for name in names if types[name] not in TYPES.values()]
            require(not wrong, f"{len(wrong)} of its tensors have the wrong type.")
            tensors = {name: file.get_tensor(name) for name in names}
        same = header["digest"] == digest(header, tensors)
    except SafetensorError as error:
        msg = f"it is not a safetensors file, or damaged or cut short ({error})."
        raise InvalidFileError(msg) from error
    except RecursionError as error:
        msg = "its header is nested too deeply."
        raise InvalidFileError(msg) from error
    damaged = "its contents do not agree with their digest: the file is damaged."
    require(same, f"{damaged} {form.damaged}")
    return header, tensors


def _parse_header(text: str | None, form: Format) -> Header:
    """Return the header; it has this format and version, and every entry has its type."""
    require(text is not None, "it was not written by coblock.")
    try:
        header = json.loads(str(text), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        msg = "its header is not JSON: the file is damaged."
        raise InvalidFileError(msg) from error
    require(isinstance(header, dict), "its header is not a JSON object.")
    require("format" in header, "it was not written by coblock.")
    require(header["format"] == form.name, f"it is a {str(header['format'])[:40]} file.")
    version = header.get("version")
    require(type(version) is int and version > 0, "its version is not a number.")
    require(
        version == form.version,
        f"it has format {str(version)[:20]}, but this coblock knows {form.known}. "
        f"{form.other_version}",
    )
    entries = {"format": str, "version": int, "digest": str, **form.entries}
    wrong = sorted(
        name for name, kind in entries.items() if not isinstance(header.get(name, ...), kind)
    )
    require(not wrong, f"its header lacks {', '.join(wrong)}, or has them in another form.")
    foreign = sorted(set(header) - set(entries))
    require(not foreign, f"its header has {len(foreign)} entries too many: {foreign[:3]!r:.100}.")
    return header


def _refuse_constant(text: str) -> float:
    msg = f"{text} is not JSON"
    raise ValueError(msg)
