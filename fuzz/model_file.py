"""Fuzz target: loading a model file of any bytes gives a model or a sentence."""

import json
import random
import struct
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from coblock import IRM, load
from coblock.io.container import KEY, digest
from coblock.io.model_file import ModelFileError

FIXTURES = Path(__file__).parent.parent / "tests" / "fixtures"
VALUES = (None, True, -1, 0, 1, 3, 10**8, 10**30, -0.5, 1e308, "x", [], {}, [[0]], {"is": "tuple"})
NUMBERS = (-1, 0, 1, 3, 99, 2**31 - 1, -(2**62), 0.5, 1e308, float("inf"), float("nan"))
_FOLDER = tempfile.TemporaryDirectory(prefix="coblock-fuzz-")


def seeds() -> list[bytes]:
    """Return files to start from."""
    return [path.read_bytes() for path in sorted(FIXTURES.glob("model-*.safetensors"))]


def one_input(data: bytes) -> None:
    """Load the bytes, and load them once more with a digest that fits what they hold."""
    _load_and_use(data)
    forged = signed(data)
    if forged is not None:
        _load_and_use(forged)


def read(path: Path, random_numbers: random.Random) -> None:
    """Load a file and use the model; three of four are signed first, so that they are parsed."""
    resign(path, random_numbers)
    _use(load(path))


def resign(path: Path, random_numbers: random.Random) -> None:
    """Give three of four files a digest that fits; a valid file is forged first."""
    data = path.read_bytes()
    if random_numbers.random() < 0.25:
        return
    try:
        data = forged(data, random_numbers)
    except (SafetensorError, ArithmeticError, LookupError, TypeError, ValueError, RecursionError):
        data = signed(data) or data
    path.write_bytes(data)


def signed(data: bytes) -> bytes | None:
    """Return a safetensors file with the digest of its contents, so that they are parsed."""
    try:
        tensors = load_tensors(data)
        (size,) = struct.unpack("<Q", data[:8])
        header = json.loads(json.loads(data[8 : 8 + size])["__metadata__"][KEY])
        header["digest"] = digest(header, tensors)
        return save_tensors(tensors, {KEY: json.dumps(header)})
    except (SafetensorError, KeyError, ValueError, TypeError, RecursionError):
        return None  # numpy lacks some of the types, and bytes some of the keys


def forged(data: bytes, random_numbers: random.Random) -> bytes:
    """Return a file with a few entries, tensors or names changed, and a digest that fits."""
    tensors = load_tensors(data)
    (size,) = struct.unpack("<Q", data[:8])
    header = json.loads(json.loads(data[8 : 8 + size])["__metadata__"][KEY])
    for _ in range(random_numbers.choice((1, 1, 2, 4))):
        if random_numbers.random() < 0.5:
            _forge_entry(header, list(tensors), random_numbers)
        else:
            _forge_tensor(tensors, random_numbers)
    header["digest"] = digest(header, tensors)
    return save_tensors(tensors, {KEY: json.dumps(header)})


def _forge_entry(header: dict[str, Any], names: list[str], random_numbers: random.Random) -> None:
    """Replace a value somewhere in the header."""
    place: Any = header
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = random_numbers.choice(keys)
        inside = place[key]
        if not isinstance(inside, dict | list) or not inside or random_numbers.random() < 0.1:
            break
        place = inside
    place[key] = random_numbers.choice((*VALUES, random_numbers.choice(names), inside))


def _forge_tensor(tensors: dict[str, Any], random_numbers: random.Random) -> None:
    """Remove a tensor, exchange two, shorten one, or change one of its numbers."""
    name = random_numbers.choice(sorted(tensors))
    array = tensors[name].copy()
    chance = random_numbers.random()
    if chance < 0.1:
        del tensors[name]
    elif chance < 0.3:
        other = random_numbers.choice(sorted(tensors))
        tensors[name], tensors[other] = tensors[other], tensors[name]
    elif chance < 0.45 and array.ndim:
        tensors[name] = np.ascontiguousarray(array[: random_numbers.randrange(len(array) + 1)])
    elif array.size:
        with np.errstate(all="ignore"):
            value = np.array(random_numbers.choice(NUMBERS)).astype(array.dtype)
        array.flat[random_numbers.randrange(array.size)] = value
        tensors[name] = array


def _load_and_use(data: bytes) -> None:
    """Load a file; one that is accepted must be fit for use."""
    path = Path(_FOLDER.name) / "model.safetensors"
    path.write_bytes(data)
    try:
        model = load(path)
    except ModelFileError:
        return
    _use(model)


def _use(model: IRM) -> None:
    model.summary()
    model.recommend(n=2)
    model.to_frame("blocks")
