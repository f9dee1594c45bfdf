"""From edge files to shards, by tasks: names are numbered and edges sent where they belong."""

from dataclasses import dataclass
from itertools import accumulate
from operator import itemgetter
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
from distributed import Client, Future

from coblock.distributed.connection import ClusterError, ask, this_worker
from coblock.distributed.course import SIDES
from coblock.distributed.crew import Crew, Futures, Layouts, threads
from coblock.distributed.layout import Layout
from coblock.distributed.relation import ClusterRelation
from coblock.distributed.schedule import BatchSize, batch_size
from coblock.distributed.shard import Cells, build
from coblock.io.readers import Reader, ReadError
from coblock.io.readers.coding import States, number_names
from coblock.io.readers.matrices import Cells as MatrixCells
from coblock.io.readers.values import states
from coblock.kernels import Indices
from coblock.model import checks

ENDINGS = (".parquet", ".csv", ".tsv", ".txt", ".edges", ".npz", ".gz", ".zst")


@dataclass(frozen=True, slots=True)
class Coded:
    """The edges of one file; rows and columns are numbered within the file."""

    rows: Indices
    columns: Indices
    states: States | None
    row_names: Any  # polars series by number, or how many rows a matrix has
    column_names: Any


def load(
    client: Client,
    folder: str | Path,
    reader: Reader,
    batch: BatchSize,
    shards: int | None = None,
) -> ClusterRelation:
    """Bring the edges of a folder to the workers, by row and by column.

    Nothing of their number passes through this process, only the names.

    Parameters
    ----------
    client : Client
        Connected.
    folder : path
        Of Parquet, CSV or npz files, seen by every worker under this name. The rows of npz files
        stand below each other, in the order of the files' names.
    reader : Reader
        Which columns to read, and how.
    batch : int, tuple of int or None
        Objects visited together, of rows and of columns; None: a quarter of them.
    shards : int or None
        By row, and as many by column; None: the threads of all workers.
    """
    found = client.submit(list_files, str(folder), key=f"coblock-list-{uuid4().hex}")
    source = Source(client, ask(client, [found])[0], reader, batch)
    layouts, futures, numbered = source.spread(shards or threads(client))
    crew = Crew(client, layouts, futures, None if shards else source.respread)
    described = ask(client, crew.tell("describe", totals, 0, crew.everywhere(0)))
    links, unseen = (sum(part[t] for part in described) for t in (0, 1))
    names = ask(client, [client.submit(_names, one, pure=False) for one in numbered])
    shape = (layouts[0].size, layouts[1].size)
    return ClusterRelation(shape, links, unseen, crew, *names)


@dataclass(frozen=True)
class Source:
    """Edge files and how to read them."""

    client: Client
    paths: list[str]
    reader: Reader
    batch: BatchSize

    def respread(self, shards: int) -> tuple[Layouts, Futures]:
        """Make other shards of the same files."""
        layouts, futures, _ = self.spread(shards)
        return layouts, futures

    def spread(self, shards: int) -> tuple[Layouts, Futures, list[Future]]:
        """Return tasks that make so many shards of each domain, and that number the names."""
        client, run = self.client, uuid4().hex
        files = [
            client.submit(read_file, path, self.reader, key=f"coblock-read-{run}-{number}")
            for number, path in enumerate(self.paths)
        ]
        numbered = []
        for d in (0, 1):
            keys = [f"coblock-names-{SIDES[d]}-{run}-{number}" for number in range(len(files))]
            names = client.map(_names_of, files, d=d, key=keys)
            key = f"coblock-number-{SIDES[d]}-{run}"
            numbered.append(client.submit(number_all, d, names, key=key))
        sizes = ask(client, [client.submit(_count_names, one, pure=False) for one in numbered])
        checks.check_shape((sizes[0], sizes[1]), "bipartite")
        first, second = (
            Layout(size, batch_size(self.batch, d, size), shards) for d, size in enumerate(sizes)
        )
        layouts = (first, second)
        futures = tuple(_shards(client, files, numbered, layouts, d, run) for d in (0, 1))
        return layouts, (futures[0], futures[1]), numbered


def totals(shard: Any) -> tuple[int, int]:
    """Return how many links and unseen cells a shard has."""
    return shard.place.link.size, shard.place.unseen.size


def _names_of(coded: Coded, d: int) -> Any:
    return coded.row_names if d == 0 else coded.column_names


def _shards(
    client: Client,
    files: list[Future],
    numbered: list[Future],
    layouts: Layouts,
    d: int,
    run: str,
) -> list[Future]:
    """Cut every file by shard and put the pieces together."""
    layout, others = layouts[d], layouts[1 - d].size
    cuts = [
        client.submit(
            cut_file,
            *(file, number, *numbered, d, layout),
            key=f"coblock-cut-{SIDES[d]}-{run}-{number}",
        )
        for number, file in enumerate(files)
    ]
    workers = sorted(client.nthreads())
    shards = []
    for s in range(layout.used):
        pieces = [
            client.submit(itemgetter(s), cut, key=f"coblock-piece-{SIDES[d]}-{run}-{s}-{number}")
            for number, cut in enumerate(cuts)
        ]
        shard = client.submit(
            build,
            *(pieces, d, s, layout, others),
            key=f"coblock-shard-{SIDES[d]}-{run}-{s}",
            workers=[workers[s % len(workers)]],
            allow_other_workers=True,
        )
        shards.append(shard)
    return shards


def list_files(folder: str) -> list[str]:
    """Return the edge files of a folder, by name."""
    path = Path(folder)
    if path.is_file():
        return [str(path)]
    if not path.is_dir():
        msg = (
            f"Worker {this_worker()} sees no folder {folder}. Pass a folder of edge files that "
            "every worker sees under the same name."
        )
        raise ClusterError(msg)
    found = sorted(str(p) for p in path.iterdir() if p.suffix in ENDINGS and p.is_file())
    if not found:
        msg = f"{folder} has no edge files: none of its files ends in {', '.join(ENDINGS)}."
        raise ReadError(msg)
    kinds = {name.endswith(".npz") for name in found}
    if len(kinds) > 1:
        msg = f"{folder} has npz files and others. Keep one kind in a folder."
        raise ReadError(msg)
    return found


def read_file(path: str, reader: Reader) -> Coded:
    """Read the edges of one file and number the names in it."""
    import polars as pl

    try:
        found = reader.read(path)
    except OSError as error:
        msg = (
            f"Worker {this_worker()} cannot read {path} ({error.strerror or error}). Every worker "
            "must see all files under the same names."
        )
        raise ClusterError(msg) from None
    if isinstance(found, MatrixCells):
        sizes = (len(found.row_names), len(found.column_names))
        return Coded(found.rows, found.columns, found.states, *sizes)
    values = None
    if "value" in found.frame.columns:
        values = states(found.frame["value"], reader.binarize, found.where)
    (rows,), row_names = number_names([found.frame["row"]])
    (columns,), column_names = number_names([found.frame["column"]])
    names = [pl.Series(found, dtype=pl.String) for found in (row_names, column_names)]
    return Coded(rows, columns, values, *names)


def number_all(d: int, names: list[Any]) -> tuple[list[Any], Any]:
    """Return the numbers of the names of every file, and the names by first appearance.

    Of matrices the rows stand below each other, and the columns are the same.
    """
    if not isinstance(names[0], int):
        return number_names(names)
    if d == 0:
        return [0, *accumulate(names)][:-1], sum(names)
    if len(set(names)) > 1:
        msg = (
            f"The npz files have from {min(names):,} to {max(names):,} columns. They are parts of "
            "one relation, one below the other, and must have the same columns."
        )
        raise ReadError(msg)
    return [0] * len(names), names[0]


def _count_names(numbered: tuple[list[Any], Any]) -> int:
    names = numbered[1]
    return names if isinstance(names, int) else len(names)


def _names(numbered: tuple[list[Any], Any]) -> tuple[str, ...] | None:
    return None if isinstance(numbered[1], int) else numbered[1]


def cut_file(
    coded: Coded,
    number: int,
    rows: tuple[list[Any], Any],
    columns: tuple[list[Any], Any],
    d: int,
    layout: Layout,
) -> list[Cells]:
    """Return the edges of a file by the shard that their objects of domain ``d`` belong to."""
    ends = []
    for codes, numbered in ((coded.rows, rows), (coded.columns, columns)):
        number_of = numbered[0][number]
        ends.append(codes + np.int32(number_of) if isinstance(number_of, int) else number_of[codes])
    shard, position = (home[ends[d]] for home in layout.home)
    order = np.argsort(shard, kind="stable")
    borders = np.cumsum(np.bincount(shard, minlength=layout.used))[:-1]
    mine, others = position[order], ends[1 - d][order]
    given: list[Any] = [None] * layout.used
    if coded.states is not None:
        given = np.split(coded.states[order], borders)
    return list(zip(np.split(mine, borders), np.split(others, borders), given, strict=True))
