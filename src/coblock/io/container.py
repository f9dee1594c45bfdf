"""The container of model files and checkpoints.

A container is a safetensors file. Its metadata hold one text, ``coblock``: a JSON object with
``format``, ``version``, the entries of the format, and ``digest`` (BLAKE2b of all other entries
and of the tensors). It is one text so that equal contents give equal files. Reading a file runs no
code. The names, shapes and types of entries and tensors are checked here, their contents by those
who read them, because kernels index with them and do not check.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple, fields
from hashlib import blake2b
from os import PathLike
from pathlib import Path
from stat import S_ISREG
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from coblock.io import shorten
from coblock.io.atomic import write_atomic
from coblock.kernels import Floats
from coblock.model.trace import SweepRecord

Tensors: TypeAlias = dict[str, NDArray[Any]]
Header: TypeAlias = dict[str, Any]

KEY = "coblock"
TYPES = {"<f8": "F64", "<i8": "I64", "<i4": "I32", "|u1": "U8"}  # of NumPy: of safetensors
PARTS_DO_NOT_FIT = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


class InvalidFileError(ValueError):
    """The contents of a file are refused; the message is a sentence without the path."""


def require(holds: object, sentence: str) -> None:
    """Refuse a file for the reason in ``sentence``."""
    if not holds:
        raise InvalidFileError(sentence)


class Format(NamedTuple):
    """A kind of file that coblock writes."""

    name: str
    version: int
    entries: Mapping[str, Any]  # of the header, with the types that isinstance accepts
    known: str  # versions that can be read, for a sentence,
    other_version: str  # and advice for a file of another version
    damaged: str  # advice for a file that does not agree with its digest


def digest(header: Mapping[str, object], tensors: Tensors) -> str:
    """Return the checksum of the header entries and the tensors."""
    entries = {name: value for name, value in header.items() if name != "digest"}
    total = blake2b(json.dumps(entries, sort_keys=True).encode(), digest_size=32)
    for name in sorted(tensors):
        array = tensors[name]
        total.update(f"\n{name} {array.dtype.str} {array.shape}\n".encode())
        total.update(np.ascontiguousarray(array).data)
    return total.hexdigest()


def write_container(path: str | Path, form: Format, entries: Header, tensors: Tensors) -> None:
    """Write a file completely or not at all; an earlier one is replaced."""
    header = {"format": form.name, "version": form.version, **entries}
    header["digest"] = digest(header, tensors)
    metadata = {KEY: json.dumps(header, allow_nan=False)}
    write_atomic(path, lambda temporary: write_tensors(temporary, tensors, metadata))


def write_tensors(path: Path, tensors: Tensors, metadata: dict[str, str]) -> None:
    """Write a safetensors file without a copy of any array.

    The library's own function renames a temporary file of its own, which cannot be recognised if
    it is killed, and its older versions copy all arrays.
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


@contextmanager
def convert_refusals(path: object, what: str, kind: type[ValueError]) -> Iterator[None]:
    """Convert whatever a wrong file causes into one sentence that names the file."""
    try:
        yield
    except kind:
        raise
    except (*PARTS_DO_NOT_FIT, RecursionError, SafetensorError) as error:
        reason = f"its parts do not fit together ({error})."
        if isinstance(error, InvalidFileError):
            reason = str(error)
        elif isinstance(error, SafetensorError):
            reason = f"it is not a safetensors file, or damaged or cut short ({error})."
        elif isinstance(error, RecursionError):
            reason = "its header is nested too deeply."
        raise kind(shorten(f"{path} cannot be used as {what}: {reason}")) from error


def read_container(path: Path, *forms: Format) -> tuple[Header, Tensors]:
    """Return header and tensors of a file of one of these formats that agrees with its digest."""
    require(S_ISREG(path.stat().st_mode), "it is not a file.")
    with safe_open(path, framework="numpy") as file:
        form, header = _parse_header((file.metadata() or {}).get(KEY), forms)
        types = {name: file.get_slice(name).get_dtype() for name in file.keys()}  # noqa: SIM118
        wrong = [kind for kind in types.values() if kind not in TYPES.values()]
        require(not wrong, f"{len(wrong)} of its tensors have the wrong type.")
        tensors = {name: file.get_tensor(name) for name in types}
    damaged = f"its contents do not agree with their digest: the file is damaged. {form.damaged}"
    require(header["digest"] == digest(header, tensors), damaged)
    return header, tensors


def _parse_header(text: str | None, forms: Sequence[Format]) -> tuple[Format, Header]:
    """Return the format and the header, which has its version; every entry has its type."""
    require(text is not None, "it was not written by coblock.")
    try:
        header = json.loads(str(text), parse_constant=int)  # which refuses NaN and Infinity
    except (ValueError, RecursionError) as error:
        msg = "its header is not JSON: the file is damaged."
        raise InvalidFileError(msg) from error
    require(isinstance(header, dict), "its header is not a JSON object.")
    require("format" in header, "it was not written by coblock.")
    form = next((form for form in forms if form.name == header["format"]), None)
    require(form is not None, f"it is a {str(header['format'])[:40]} file.")
    assert form is not None
    version = header.get("version")
    require(type(version) is int and version > 0, "its version is not a number.")
    read = f"it has format {str(version)[:20]}, but this coblock knows {form.known}."
    require(version == form.version, f"{read} {form.other_version}")
    entries = {"format": str, "version": int, "digest": str, **form.entries}
    wrong = [name for name, kind in entries.items() if not isinstance(header.get(name, ...), kind)]
    require(not wrong, f"its header lacks {', '.join(sorted(wrong))}, or has them in another form.")
    foreign = sorted(set(header) - set(entries))
    require(not foreign, f"its header has {len(foreign)} entries too many: {foreign[:3]!r:.100}.")
    return form, header


def has_format(path: str | PathLike[str], form: Format) -> bool:
    """Return whether a file says that it has this format."""
    try:
        if not Path(path).is_file():  # a pipe is not waited for
            return False
        with safe_open(path, framework="numpy") as file:
            header = json.loads((file.metadata() or {}).get(KEY, "null"))
    except (OSError, ValueError, RecursionError, SafetensorError):
        return False
    return isinstance(header, dict) and header.get("format") == form.name


# Parts of a container


class StoredTensors:
    """Tensors of a file; each has the shape and the type that is asked for, and is read once."""

    def __init__(self, tensors: Tensors) -> None:
        self.tensors = tensors
        self.used: set[str] = set()

    def require_all_used(self) -> None:
        """Refuse tensors that belong nowhere."""
        left = sorted(set(self.tensors) - self.used)
        require(not left, f"it has {len(left)} tensors too many: {left[:3]!r:.100}.")

    def take(self, name: str, shape: tuple[int | None, ...], kind: type) -> Any:
        """Return a tensor of this shape, None being any size, and this type."""
        require(name in self.tensors, f"its tensor {name} is missing.")
        array = self.tensors[name]
        fits = array.ndim == len(shape) and array.dtype == kind
        pairs = zip(array.shape, shape, strict=False)
        fits = fits and all(want is None or have == want for have, want in pairs)
        require(fits, f"its tensor {name} has the wrong shape or type.")
        require(name not in self.used, f"its tensor {name} is used twice.")
        require(kind != np.float64 or np.isfinite(array).all(), f"{name} has numbers not finite.")
        self.used.add(name)
        return array.copy()


def read_entry(value: object, kinds: Mapping[str, Any]) -> Header:
    """Return an entry of a header that has these keys with values of these types."""
    require(isinstance(value, dict) and set(value) == set(kinds), "an entry has other keys.")
    assert isinstance(value, dict)
    for name, kind in kinds.items():
        require(isinstance(value[name], kind), f"the entry {name} has another type.")
    return value


def encode_names(names: Sequence[str]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return names in UTF-8, one after another, and where each ends."""
    parts = [name.encode("utf-8", "surrogatepass") for name in names]
    ends = np.cumsum([len(part) for part in parts], dtype=np.int64)
    return np.frombuffer(b"".join(parts), dtype=np.uint8), ends


def decode_names(
    letters: NDArray[np.uint8], end: NDArray[np.int64], size: int, what: str
) -> tuple[str, ...]:
    """Return the names of ``size`` objects; ``what`` are they, for a sentence."""
    fits = end.shape == (size,) and letters.ndim == 1 and end[-1] == letters.size and end[0] >= 0
    require(fits and (end[1:] >= end[:-1]).all(), f"its {what} do not fit.")
    text, ends = letters.tobytes(), end.tolist()
    pairs = zip([0, *ends[:-1]], ends, strict=True)
    try:
        return tuple(text[first:last].decode("utf-8", "surrogatepass") for first, last in pairs)
    except UnicodeDecodeError as error:
        msg = f"its {what} are not UTF-8."
        raise InvalidFileError(msg) from error


def trace_to_table(trace: list[SweepRecord]) -> Floats:
    """Return the records as a table with one row for each sweep."""
    table = np.array([astuple(record) for record in trace], dtype=np.float64)
    return table.reshape(len(trace), len(fields(SweepRecord)))


def trace_from_table(table: Floats) -> list[SweepRecord]:
    """Return the records; their counts are whole numbers."""
    kinds: list[Any] = [field.type for field in fields(SweepRecord)][:-1]
    if table.ndim == 2 and table.shape[1] == len(kinds):  # of version 0.1, without moves
        table = np.column_stack((table, np.full(len(table), np.nan)))
    require(table.ndim == 2 and table.shape[1] == len(kinds) + 1, "its trace has another form.")
    counts = table[:, :-1][:, [kind is int for kind in kinds]]
    possible = (counts == np.clip(np.round(counts), 0, 2**53)).all()  # not so if one is not finite
    require(possible, "the numbers of sweeps and clusters in its trace cannot be counted.")
    records = []
    for *line, moved in table.tolist():
        values: list[Any] = [kind(x) for kind, x in zip(kinds, line, strict=True)]
        values.append(None if np.isnan(moved) else moved)
        records.append(SweepRecord(*values))
    return records
