"""From edge files to shards, by tasks: names are numbered, and edges are sent to their shards."""

from functools import partial
from hashlib import blake2b
from itertools import accumulate
from operator import attrgetter, itemgetter
from os import fstat
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from distributed import Client, Future, get_worker

from coblock.distributed.client import ClusterError, gather_results, task_key
from coblock.distributed.relation import Layouts, ShardedRelation, ShardPool, count_threads
from coblock.distributed.replication import DOMAINS, Shards
from coblock.distributed.tasks import Shard, ShardLayout, count_by_object
from coblock.io import refuse
from coblock.io.readers import Reader, indexing
from coblock.io.readers.edges import refuse as refuse_edges
from coblock.io.readers.indexing import LINK, IndexedEdges, States
from coblock.kernels import Incidence, Indices
from coblock.model.checks import check_shape

BATCHES = 4  # per sweep and domain; fewer than on one machine, because a batch costs more here
SUFFIXES = (".parquet", ".csv", ".tsv", ".txt", ".edges", ".npz", ".gz", ".zst")
BatchSize: TypeAlias = int | tuple[int, int] | None  # None: chosen by the number of objects
Cells: TypeAlias = tuple[Indices, Indices, States]  # positions, other ends, states
SAMPLE = 1 << 16  # bytes at the beginning and at the end of a file that are compared


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

    Only the names pass through this process. The rows of npz files are stacked in the order of the
    file names. By default there is one shard of each domain for each thread.
    """
    found = client.submit(list_files, str(folder), key=task_key("list"))
    build = partial(build_shards, client, gather_results(client, [found])[0], reader, batch)
    layouts, futures, numbered = build(shards or count_threads(client))
    pool = ShardPool(client, layouts, futures, None if shards else build, owned)
    counts = pool.map("describe", count_by_object, futures[0])
    links, unseen = (sum(int(part.sum()) for part in parts) for parts in zip(*counts, strict=True))
    names = pool.map("names", attrgetter("names"), numbered)
    return ShardedRelation((layouts[0].size, layouts[1].size), links, unseen, pool, *names)


def build_shards(
    client: Client, sources: list[SourceFile], reader: Reader, batch: BatchSize, shards: int
) -> tuple[Layouts, Shards, list[Future]]:
    """Return tasks that build ``shards`` shards of each domain, and that number its names."""

    def submit(name: str, function: Any, *arguments: Any, **options: Any) -> Future:
        return client.submit(function, *arguments, key=task_key(name), **options)

    files = [submit("read", read_file, source, reader) for source in sources]
    numbered = []
    for d in (0, 1):
        of_domain = attrgetter(("row_names", "column_names")[d])
        names = [submit(f"names-{DOMAINS[d]}", of_domain, file) for file in files]
        numbered.append(submit("number", number_objects, d, names))
    sizes = gather_results(client, [submit("size", attrgetter("size"), one) for one in numbered])
    check_shape((sizes[0], sizes[1]), "bipartite")
    rows, columns = (ShardLayout(n, batch_size(batch, d, n), shards) for d, n in enumerate(sizes))
    workers, built = sorted(client.nthreads()), []
    for d, layout in enumerate((rows, columns)):
        side, cuts, built_here = DOMAINS[d], [], []
        for number, file in enumerate(files):
            cuts.append(submit(f"cut-{side}", cut_file, file, number, *numbered, d, layout))
        for s in range(layout.shards):  # spread over the workers
            pieces = [submit(f"piece-{side}", itemgetter(s), cut) for cut in cuts]
            place = {"workers": [workers[s % len(workers)]], "allow_other_workers": True}
            message = (pieces, d, s, layout, sizes[1 - d])
            built_here.append(submit(f"shard-{side}", build_shard, *message, **place))
        built.append(built_here)
    return (rows, columns), (built[0], built[1]), numbered


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


def read_file(source: SourceFile, reader: Reader) -> FileEdges:
    """Read the edges of one file, which must not have changed, and number the names in it."""
    import polars as pl

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


def number_objects(d: int, names: list[Any]) -> NameIndex:
    """Return the objects of all files, by first appearance; ``names`` are sizes for matrices."""
    if not isinstance(names[0], int):
        numbers, found = indexing.number_names(names)
        return NameIndex(len(found), found, numbers)
    if d == 0:
        return NameIndex(sum(names), None, [0, *accumulate(names)][:-1])
    if len(set(names)) > 1:
        refuse_edges(
            f"The npz files have from {min(names):,} to {max(names):,} columns. Their rows are "
            "stacked to one relation, so they must have the same columns."
        )
    return NameIndex(names[0], None, [0] * len(names))


def cut_file(
    edges: FileEdges, file: int, rows: NameIndex, columns: NameIndex, d: int, layout: ShardLayout
) -> list[Cells]:
    """Return the edges of a file, one piece for each shard of domain ``d``."""
    ends = []
    for codes, index in zip(edges.ends, (rows, columns), strict=True):
        number = index.numbers[file]
        ends.append(codes + np.int32(number) if isinstance(number, int) else number[codes])
    shard, position = layout.find(ends[d])
    order = np.argsort(shard, kind="stable")
    borders = np.cumsum(np.bincount(shard, minlength=layout.shards))[:-1]
    arrays = (position, ends[1 - d], edges.states)
    return list(zip(*(np.split(array[order], borders) for array in arrays), strict=True))


def build_shard(pieces: list[Cells], d: int, s: int, layout: ShardLayout, others: int) -> Shard:
    """Return the shard of the pieces of all files; of a repeated pair the largest state counts."""
    objects, ends, states = (np.concatenate(arrays) for arrays in zip(*pieces, strict=True))
    given, shape = None if (states == LINK).all() else states, (layout.objects(s).size, others)
    links, unseen, _ = indexing.compress_edges(objects, ends, given, shape)
    arrays = (links.indptr, links.indices, unseen.indptr, unseen.indices)
    kinds = (np.int64, np.int32, np.int64, np.int32)
    cells = Incidence(*(a.astype(kind) for a, kind in zip(arrays, kinds, strict=True)))
    return Shard(d, s, layout, cells)
