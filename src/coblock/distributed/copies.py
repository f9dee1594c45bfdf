"""Copies of the edge files on the disks of the workers.

A worker keeps what it has read of a file, with the names numbered, next to its local directory. A
task that reads the file again there uses the copy. So the shards of a lost worker are built again
from the copies of the others, and only the files that the lost worker had read are read again. A
worker that is started again with the same local directory finds its copies.
"""

import logging
import shutil
from collections.abc import Callable
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from distributed import Worker, get_worker

from coblock.io import container
from coblock.io.atomic import WriteError
from coblock.io.container import Format, InvalidFileError, convert_refusals, require
from coblock.io.readers.indexing import States
from coblock.kernels import Indices

READ_TOPIC = "coblock-read"  # events of files that were read from their source
FORM = Format(
    "coblock edges",
    1,
    {"sizes": list, "named": bool},
    "format 1",
    "It is read again from its source.",
    "It is read again from its source.",
)
log = logging.getLogger("distributed.worker")


class FileEdges(NamedTuple):
    """The edges of one file; rows and columns are numbered within the file."""

    ends: tuple[Indices, Indices]  # rows and columns
    states: States
    row_names: Any  # polars series; the number of rows of a matrix
    column_names: Any


def copy_folder(name: str, worker: Worker) -> Path:
    """Return the folder of the copies of one relation on a worker.

    It is beside the worker's own folder, which Dask removes.
    """
    return Path(worker.local_directory).parent / name


def read_once(name: str, source: Any, read: Callable[[], FileEdges]) -> FileEdges:
    """Return the edges of a file from its copy, or read them and make one.

    A damaged copy is replaced. A copy that cannot be written is reported in the worker's log.
    """
    worker = get_worker()
    folder = copy_folder(name, worker)
    path = folder / f"{blake2b(repr(source).encode(), digest_size=16).hexdigest()}.safetensors"
    with suppress(FileNotFoundError):
        try:
            return load_copy(path)
        except InvalidFileError as error:
            log.warning("%s", error)
    edges = read()
    worker.log_event(READ_TOPIC, {"worker": worker.address, "file": str(source[0])})
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        save_copy(path, edges)
    except (OSError, WriteError) as error:
        log.warning("%s was not copied to the disk of this worker: %s", source[0], error)
    return edges


def save_copy(path: Path, edges: FileEdges) -> None:
    """Write the edges of a file, completely or not at all."""
    tensors: container.Tensors = {
        "rows": edges.ends[0],
        "columns": edges.ends[1],
        "states": edges.states.view(np.uint8),
    }
    sizes = [n if isinstance(n, int) else len(n) for n in edges[2:]]
    named = not isinstance(edges.row_names, int)
    if named:
        for what, names in zip(("row", "column"), edges[2:], strict=True):
            tensors[f"{what}_names"], tensors[f"{what}_ends"] = container.encode_names(
                names.to_list()
            )
    container.write_container(path, FORM, {"sizes": sizes, "named": named}, tensors)


def load_copy(path: Path) -> FileEdges:
    """Return the edges of a copy, which must agree with its digest."""
    with convert_refusals(path, "a copy of edges", InvalidFileError):
        header, tensors = container.read_container(path, FORM)
        sizes = header["sizes"]
        require(len(sizes) == 2 and all(type(n) is int for n in sizes), "its sizes do not fit.")
        rows, columns, states = (tensors[name] for name in ("rows", "columns", "states"))
        same = rows.shape == columns.shape == states.shape
        require(same and rows.ndim == 1, "its edges do not fit.")
        for ends, size in zip((rows, columns), sizes, strict=True):
            inside = ends.size == 0 or (ends.min() >= 0 and ends.max() < size)
            require(ends.dtype == np.int32 and inside, "its edges do not fit.")
        names: list[Any] = list(sizes)
        if header["named"]:
            names = []
            for what, size in zip(("row", "column"), sizes, strict=True):
                parts = (tensors[f"{what}_names"], tensors[f"{what}_ends"])
                known = container.decode_names(*parts, size, "names") if size else ()
                names.append(pl.Series(known, dtype=pl.String))
    return FileEdges((rows, columns), states.view(np.int8), names[0], names[1])


def remove_copies(name: str, dask_worker: Worker) -> None:
    """Remove the copies of one relation from the disk of a worker, which Dask passes."""
    shutil.rmtree(copy_folder(name, dask_worker), ignore_errors=True)
