"""From edge files to shards, by tasks: names are numbered, and edges are sent to their shards.

A worker keeps what it has read of a file, with the names numbered, next to its local directory. A
task that reads the file again there uses the copy. So the shards of a lost worker are built again
from the copies of the others, and only the files that the lost worker had read are read again. A
worker that is started again with the same local directory finds its copies.
"""

import logging
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from hashlib import blake2b
from itertools import accumulate
from operator import attrgetter, itemgetter
from os import fstat
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import polars as pl
from distributed import Client, Future, get_worker

from coblock.distributed.client import ClusterError, gather_results, task_key
from coblock.distributed.relation import (
    Layouts,
    ShardedRelation,
    ShardPool,
    copy_folder,
    count_threads,
)
from coblock.distributed.replication import DOMAINS, Shards
from coblock.distributed.tasks import Shard, ShardLayout
from coblock.io import container, refuse
from coblock.io.atomic import WriteError
from coblock.io.container import Format, InvalidFileError, convert_refusals, require
from coblock.io.readers import indexing
from coblock.io.readers.indexing import LINK, IndexedEdges, States
from coblock.io.readers.limits import refuse as refuse_edges
from coblock.io.readers.reader import Reader
from coblock.kernels import Incidence, Indices
from coblock.model.checks import check_shape

BATCHES = 4  # per sweep and domain; fewer than on one machine, because a batch costs more here
SUFFIXES = (".parquet", ".csv", ".tsv", ".txt", ".edges", ".npz", ".gz", ".zst")
BatchSize: TypeAlias = int | tuple[int, int] | None  # None: chosen by the number of objects
Cells: TypeAlias = tuple[Indices, Indices, States]  # positions, other ends, states
SAMPLE = 1 << 16  # bytes at the beginning and at the end of a file that are compared
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


class SourceFile(NamedTuple):
    """A file of edges as it was when the fit began."""

    path: str
    size: int
    seconds: int  # time of the last change
    sample: str  # checksum of the first and the last bytes

    @classmethod
    def describe(cls, path: str) -> "SourceFile":
        """Return the present state of a file."""
        with Path(path).open("rb") as file:
            status = fstat(file.fileno())
            sample = file.read(SAMPLE)
            file.seek(max(status.st_size - SAMPLE, 0))
            sample += file.read(SAMPLE)
        checksum = blake2b(sample, digest_size=16).hexdigest()
        return cls(path, status.st_size, int(status.st_mtime), checksum)

    def check_unchanged(self) -> None:
        """Refuse a file that another program has changed since the fit began."""
        if SourceFile.describe(self.path) != self:
            refuse(
                f"{self.path} has changed since the fit began, or differs on worker "
                f"{get_worker().address}: its size, its time or its content is another. Fit again "
                "when no program writes to the files. Copies on the workers must have the same "
                "times, too.",
                ClusterError,
            )


class FileEdges(NamedTuple):
    """The edges of one file; rows and columns are numbered within the file."""

    ends: tuple[Indices, Indices]  # rows and columns
    states: States
    row_names: Any  # polars series; the number of rows of a matrix
    column_names: Any


class NameIndex(NamedTuple):
    """The objects of one domain in all files."""

    size: int
    names: tuple[str, ...] | None  # None for matrices
    numbers: list[Any]  # for each file, those of its names; for a matrix, that of the first object


def load_shards(
    client: Client, folder: Any, reader: Reader, batch: BatchSize, shards: int | None, owned: bool
) -> ShardedRelation:
    """Load the edges of a folder, which has the same path on every worker, by row and by column.

    Nothing that grows with the number of objects passes through this process. The rows of npz files
    are stacked in the order of the file names. By default there is one shard of each domain for
    each thread.
    """
    found, copies = client.submit(list_files, str(folder), key=task_key("list")), task_key("copies")
    sources = gather_results(client, [found])[0]
    build = partial(build_shards, client, sources, reader, batch, copies)
    layouts, futures, numbered = build(shards or count_threads(client))
    pool = ShardPool(client, layouts, futures, None if shards else build, owned, copies)
    counts = pool.map("describe", describe_shard, futures[0])
    links, unseen, self_links = map(sum, zip(*counts, strict=True))
    if self_links:
        told = f"{self_links:,} links of objects with themselves are left out: the diagonal of"
        warnings.warn(f"{told} {reader.relation} relations is unseen.", UserWarning, stacklevel=2)
    names = pool.submit("names", take_names, numbered)
    shape = (layouts[0].size, layouts[-1].size)
    return ShardedRelation(reader.relation, shape, links, unseen, pool, (names[0], names[-1]))


def build_shards(
    client: Client,
    sources: list[SourceFile],
    reader: Reader,
    batch: BatchSize,
    copies: str,
    shards: int,
) -> tuple[Layouts, Shards, list[Future]]:
    """Return tasks that build ``shards`` shards of each domain, and that number its names.

    Each file has a worker that reads it, and keeps a copy, as long as the worker is there.
    """

    def submit(name: str, function: Any, *arguments: Any, **options: Any) -> Future:
        return client.submit(function, *arguments, key=task_key(name), **options)

    workers = sorted(client.nthreads())

    def place(number: int) -> dict[str, Any]:  # spread over the workers
        return {"workers": [workers[number % len(workers)]], "allow_other_workers": True}

    files = [
        submit("read", read_file, source, reader, copies, **place(at))
        for at, source in enumerate(sources)
    ]
    kind, names = reader.relation, []
    for d, part in enumerate(("row_names", "column_names")):
        names.append([submit(f"names-{DOMAINS[d]}", attrgetter(part), file) for file in files])
    number = partial(submit, "number", number_objects)
    if kind == "bipartite":
        numbered = [number(d, of_domain, len(files)) for d, of_domain in enumerate(names)]
    else:
        numbered = [number(0, names[0] + names[1], len(files))]
    sizes = gather_results(client, [submit("size", attrgetter("size"), one) for one in numbered])
    check_shape((sizes[0], sizes[-1]), kind)
    layouts = tuple(ShardLayout(n, batch_size(batch, d, n), shards) for d, n in enumerate(sizes))
    built = []
    for d, layout in enumerate(layouts):
        side, cuts, built_here = DOMAINS[d], [], []
        for at, file in enumerate(files):
            message = (file, at, numbered[0], numbered[-1], d, layout, kind)
            cuts.append(submit(f"cut-{side}", cut_file, *message))
        for s in range(layout.shards):
            pieces = [submit(f"piece-{side}", itemgetter(s), cut) for cut in cuts]
            shard = (pieces, d, s, layout, sizes[-1 - d], kind)
            built_here.append(submit(f"shard-{side}", build_shard, *shard, **place(s)))
        built.append(built_here)
    return layouts, tuple(built), numbered


def batch_size(wanted: BatchSize, d: int, objects: int) -> int:
    """Return how many objects of domain ``d`` are updated together on a cluster."""
    if wanted is None:
        return max(-(-objects // BATCHES), 2)
    return min(wanted if isinstance(wanted, int) else wanted[d], max(objects, 2))


def list_files(folder: str) -> list[SourceFile]:
    """Return the edge files of a folder, sorted by name."""
    path = Path(folder)
    if path.is_file():
        return [SourceFile.describe(str(path))]
    if not path.is_dir():
        advice = "Pass a folder of edge files that has the same path on every worker."
        refuse(f"Worker {get_worker().address} sees no folder {folder}. {advice}", ClusterError)
    found = sorted(str(p) for p in path.iterdir() if p.suffix in SUFFIXES and p.is_file())
    if not found:
        suffixes = ", ".join(SUFFIXES)
        refuse_edges(f"{folder} has no edge files: none of its files ends in {suffixes}.")
    if len({name.endswith(".npz") for name in found}) > 1:
        refuse_edges(f"{folder} has npz files and others. Keep one kind in a folder.")
    return list(map(SourceFile.describe, found))


def read_file(source: SourceFile, reader: Reader, copies: str) -> FileEdges:
    """Return the edges of one file, from a copy on this worker's disk if there is one."""
    return read_once(copies, source, partial(read_source, source, reader))


def read_source(source: SourceFile, reader: Reader) -> FileEdges:
    """Read the edges of one file, which must not have changed, and number the names in it."""
    try:
        source.check_unchanged()
        found = reader.read(source.path)
        source.check_unchanged()
    except OSError as error:
        msg = (
            f"Worker {get_worker().address} cannot read {source.path} "
            f"({error.strerror or error}). All files must have the same paths on every worker."
        )
        raise ClusterError(msg) from None
    names: Any
    if isinstance(found, IndexedEdges):
        rows, columns, states, names = found.rows, found.columns, found.states, found.shape
    else:
        frame, states = found.frame, None
        if "value" in frame.columns:
            states = indexing.cell_states(frame["value"], reader.binarize, found.locate)
        (rows,), row_names = indexing.number_names([frame["row"]])
        (columns,), column_names = indexing.number_names([frame["column"]])
        names = [pl.Series(known, dtype=pl.String) for known in (row_names, column_names)]
    states = np.full(rows.size, LINK, np.int8) if states is None else states
    return FileEdges((rows, columns), states, *names)


def number_objects(d: int, names: list[Any], files: int) -> NameIndex:
    """Return the objects of all files, by first appearance; ``names`` are sizes for matrices.

    In one domain the names of the columns of all files follow those of the rows.
    """
    if not isinstance(names[0], int):
        numbers, found = indexing.number_names(names)
        return NameIndex(len(found), found, numbers)
    rows = [0, *accumulate(names[:files])]
    columns = names if d == 1 else names[files:]
    if len(set(columns)) > 1:
        refuse_edges(
            f"The npz files have from {min(columns):,} to {max(columns):,} columns. Their rows are "
            "stacked to one relation, so they must have the same columns."
        )
    if d == 1:
        return NameIndex(names[0], None, [0] * len(names))
    if columns and columns[0] != rows[-1]:
        refuse_edges(
            f"The npz files have {rows[-1]:,} rows in all and {columns[0]:,} columns. A relation "
            "within one set of objects is a square matrix."
        )
    return NameIndex(rows[-1], None, rows[:-1] + [0] * len(columns))


def cut_file(
    edges: FileEdges,
    file: int,
    rows: NameIndex,
    columns: NameIndex,
    d: int,
    layout: ShardLayout,
    kind: str,
) -> list[tuple[Cells, ...]]:
    """Return the edges of a file by each place of domain ``d``, one piece for each shard."""
    ends, second = [], 0 if kind == "bipartite" else len(rows.numbers) // 2
    for codes, index, at in zip(edges.ends, (rows, columns), (file, second + file), strict=True):
        number = index.numbers[at]
        ends.append(codes + np.int32(number) if isinstance(number, int) else number[codes])
    if kind == "directed":
        pairs = [(ends[0], ends[1], edges.states), (ends[1], ends[0], edges.states)]
    elif kind == "undirected":
        both = (np.concatenate(ends), np.concatenate(ends[::-1]), np.tile(edges.states, 2))
        pairs = [both]
    else:
        pairs = [(ends[d], ends[1 - d], edges.states)]
    places = []
    for own, other, states in pairs:
        shard, position = layout.find(own)
        order = np.argsort(shard, kind="stable")
        borders = np.cumsum(np.bincount(shard, minlength=layout.shards))[:-1]
        arrays = (np.split(array[order], borders) for array in (position, other, states))
        places.append(list(zip(*arrays, strict=True)))
    return list(zip(*places, strict=True))


def build_shard(
    pieces: list[tuple[Cells, ...]], d: int, s: int, layout: ShardLayout, others: int, kind: str
) -> Shard:
    """Return the shard of the pieces of all files; of a repeated pair the largest state counts."""
    places, shape, self_links = [], (layout.objects(s).size, others), 0
    for of_place in zip(*pieces, strict=True):
        objects, ends, states = (np.concatenate(arrays) for arrays in zip(*of_place, strict=True))
        if kind != "bipartite":
            apart = layout.objects(s)[objects] != ends
            self_links = np.unique(objects[~apart & (states == LINK)]).size
            objects, ends, states = objects[apart], ends[apart], states[apart]
        given = None if (states == LINK).all() else states
        links, unseen, _ = indexing.compress_edges(objects, ends, given, shape)
        arrays = (links.indptr, links.indices, unseen.indptr, unseen.indices)
        kinds = (np.int64, np.int32, np.int64, np.int32)
        places.append(Incidence(*(a.astype(t) for a, t in zip(arrays, kinds, strict=True))))
    return Shard(d, s, layout, tuple(places), kind != "bipartite", self_links)


def take_names(index: NameIndex) -> Any:
    """Return the names of the objects of a domain as a polars series, None for matrices."""
    return None if index.names is None else pl.Series(index.names, dtype=pl.String)


def describe_shard(shard: Shard) -> tuple[int, int, int]:
    """Return the numbers of links, of unseen cells and of links that were left out."""
    cells = shard.places[0]
    return cells.link.size, cells.unseen.size, shard.self_links


# Copies on the disks of the workers


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
