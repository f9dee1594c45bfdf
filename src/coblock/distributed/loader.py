"""From edge files to shards, by tasks: names are numbered, and edges are sent to their shards."""

from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from distributed import Client, Future

from coblock.distributed.client import ClusterError, gather_results, this_worker
from coblock.distributed.delta_log import Shards, task_key
from coblock.distributed.layout import DOMAINS, Cells, ShardLayout, build_shard
from coblock.distributed.relation import ShardedRelation
from coblock.distributed.shards import Layouts, ShardPool, count_threads
from coblock.distributed.tasks import count_by_object
from coblock.io.readers import Reader, ReadError
from coblock.io.readers.coding import IndexedEdges, States, cell_states, number_names
from coblock.kernels import Indices
from coblock.model import checks

BATCHES = 4  # per sweep and domain; fewer than on one machine, because a batch costs more here
SUFFIXES = (".parquet", ".csv", ".tsv", ".txt", ".edges", ".npz", ".gz", ".zst")
BatchSize: TypeAlias = int | tuple[int, int] | None  # None: chosen by the number of objects


@dataclass(frozen=True, slots=True)
class FileEdges:
    """The edges of one file; rows and columns are numbered within the file."""

    rows: Indices
    columns: Indices
    states: States | None
    row_names: Any  # polars series, or the number of rows of a matrix
    column_names: Any


@dataclass(frozen=True, slots=True)
class NameIndex:
    """The objects of one domain in all files."""

    size: int
    names: tuple[str, ...] | None  # None for matrices
    numbers: list[Any]  # for each file, those of its names; for a matrix, that of the first object


def load_shards(
    client: Client, folder: str | Path, reader: Reader, batch: BatchSize, shards: int | None = None
) -> ShardedRelation:
    """Load the edges of a folder, which has the same path on every worker, by row and by column.

    The edges do not pass through this process, only the names. The rows of npz files are stacked
    in the order of the file names. ``batch`` is the number of objects updated together, by
    default a quarter of them, and ``shards`` that of each domain, by default one for each thread.
    """
    found = client.submit(list_files, str(folder), key=task_key("list"))
    build = partial(build_shards, client, gather_results(client, [found])[0], reader, batch)
    layouts, futures, numbered = build(shards or count_threads(client))
    pool = ShardPool(client, layouts, futures, None if shards else build)
    counts = pool.map("describe", count_by_object, futures[0])
    links, unseen = (sum(int(part.sum()) for part in parts) for parts in zip(*counts, strict=True))
    names = pool.map("names", attrgetter("names"), numbered)
    return ShardedRelation((layouts[0].size, layouts[1].size), links, unseen, pool, *names)


def build_shards(
    client: Client, paths: list[str], reader: Reader, batch: BatchSize, shards: int
) -> tuple[Layouts, Shards, list[Future]]:
    """Return tasks that build ``shards`` shards of each domain, and that number its names."""
    files = [client.submit(read_file, path, reader, key=task_key("read")) for path in paths]
    numbered = []
    for d, field in enumerate(("row_names", "column_names")):
        keys = [task_key(f"names-{DOMAINS[d]}") for _ in files]
        names = client.map(attrgetter(field), files, key=keys)
        numbered.append(client.submit(number_objects, d, names, key=task_key("number")))
    sizes = [client.submit(attrgetter("size"), one, key=task_key("size")) for one in numbered]
    rows, columns = gather_results(client, sizes)
    checks.check_shape((rows, columns), "bipartite")
    layouts = (
        ShardLayout(rows, batch_size(batch, 0, rows), shards),
        ShardLayout(columns, batch_size(batch, 1, columns), shards),
    )
    by_row, by_column = (_join_pieces(client, files, numbered, layouts, d) for d in (0, 1))
    return layouts, (by_row, by_column), numbered


def _join_pieces(
    client: Client, files: list[Future], numbered: list[Future], layouts: Layouts, d: int
) -> list[Future]:
    """Cut every file by shard and join the pieces of each shard, spread over the workers."""
    layout, workers, cuts, shards = layouts[d], sorted(client.nthreads()), [], []
    for number, file in enumerate(files):
        message = (file, number, *numbered, d, layout)
        cuts.append(client.submit(cut_file, *message, key=task_key(f"cut-{DOMAINS[d]}")))
    for s in range(layout.shards):
        keys = [task_key(f"piece-{DOMAINS[d]}") for _ in cuts]
        pieces = client.map(itemgetter(s), cuts, key=keys)
        shard = client.submit(
            build_shard,
            *(pieces, d, s, layout, layouts[1 - d].size),
            key=task_key(f"shard-{DOMAINS[d]}"),
            workers=[workers[s % len(workers)]],
            allow_other_workers=True,
        )
        shards.append(shard)
    return shards


def batch_size(wanted: BatchSize, d: int, objects: int) -> int:
    """Return how many objects of domain ``d`` are updated together on a cluster."""
    if wanted is None:
        return max(-(-objects // BATCHES), 2)
    return min(wanted if isinstance(wanted, int) else wanted[d], max(objects, 2))


def list_files(folder: str) -> list[str]:
    """Return the edge files of a folder, sorted by name."""
    path = Path(folder)
    if path.is_file():
        return [str(path)]
    if not path.is_dir():
        msg = (
            f"Worker {this_worker()} sees no folder {folder}. Pass a folder of edge files that "
            "has the same path on every worker."
        )
        raise ClusterError(msg)
    found = sorted(str(p) for p in path.iterdir() if p.suffix in SUFFIXES and p.is_file())
    if not found:
        msg = f"{folder} has no edge files: none of its files ends in {', '.join(SUFFIXES)}."
        raise ReadError(msg)
    kinds = {name.endswith(".npz") for name in found}
    if len(kinds) > 1:
        msg = f"{folder} has npz files and others. Keep one kind in a folder."
        raise ReadError(msg)
    return found


def read_file(path: str, reader: Reader) -> FileEdges:
    """Read the edges of one file and number the names in it."""
    import polars as pl

    try:
        found = reader.read(path)
    except OSError as error:
        msg = (
            f"Worker {this_worker()} cannot read {path} ({error.strerror or error}). All files "
            "must have the same paths on every worker."
        )
        raise ClusterError(msg) from None
    if isinstance(found, IndexedEdges):
        sizes = (len(found.row_names), len(found.column_names))
        return FileEdges(found.rows, found.columns, found.states, *sizes)
    values = None
    if "value" in found.frame.columns:
        values = cell_states(found.frame["value"], reader.binarize, found.locate)
    (rows,), row_names = number_names([found.frame["row"]])
    (columns,), column_names = number_names([found.frame["column"]])
    names = [pl.Series(found, dtype=pl.String) for found in (row_names, column_names)]
    return FileEdges(rows, columns, values, *names)


def number_objects(d: int, names: list[Any]) -> NameIndex:
    """Return the objects of all files, numbered by the first appearance of their names.

    For matrices, ``names`` are sizes: rows are stacked, and columns are the same in all files.
    """
    if not isinstance(names[0], int):
        numbers, found = number_names(names)
        return NameIndex(len(found), found, numbers)
    if d == 0:
        return NameIndex(sum(names), None, [0, *accumulate(names)][:-1])
    if len(set(names)) > 1:
        msg = (
            f"The npz files have from {min(names):,} to {max(names):,} columns. Their rows are "
            "stacked to one relation, so they must have the same columns."
        )
        raise ReadError(msg)
    return NameIndex(names[0], None, [0] * len(names))


def cut_file(
    edges: FileEdges,
    number: int,
    rows: NameIndex,
    columns: NameIndex,
    d: int,
    layout: ShardLayout,
) -> list[Cells]:
    """Return the edges of a file, one piece for each shard of domain ``d``."""
    ends = []
    for codes, numbered in ((edges.rows, rows), (edges.columns, columns)):
        number_of = numbered.numbers[number]
        ends.append(codes + np.int32(number_of) if isinstance(number_of, int) else number_of[codes])
    shard, position = (home[ends[d]] for home in layout.home)
    order = np.argsort(shard, kind="stable")
    borders = np.cumsum(np.bincount(shard, minlength=layout.shards))[:-1]
    mine, others = position[order], ends[1 - d][order]
    given: list[Any] = [None] * layout.shards
    if edges.states is not None:
        given = np.split(edges.states[order], borders)
    return list(zip(np.split(mine, borders), np.split(others, borders), given, strict=True))
