"""Fuzz target: whatever bytes a model file has, loading answers with a model or a sentence."""

import json
import random
import struct
import tempfile
from pathlib import Path

from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from coblock import IRM, load
from coblock.model_file import KEY, digest
from coblock.stored import ModelFileError

FIXTURES = Path(__file__).parent.parent / "tests" / "fixtures"
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
    """Load a file and use the model; three of four are signed first, so as to be looked at."""
    if random_numbers.random() < 0.75:
        forged = signed(path.read_bytes())
        if forged is not None:
            path.write_bytes(forged)
    _use(load(path))


def signed(data: bytes) -> bytes | None:
    """Return a safetensors file with the digest of its contents, so that they are looked at."""
    try:
        tensors = load_tensors(data)
        (size,) = struct.unpack("<Q", data[:8])
        header = json.loads(json.loads(data[8 : 8 + size])["__metadata__"][KEY])
        header["digest"] = digest(header, tensors)
        return save_tensors(tensors, {KEY: json.dumps(header)})
    except (SafetensorError, KeyError, ValueError, TypeError, RecursionError):
        return None  # numpy lacks some of the types, and bytes some of the keys


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
