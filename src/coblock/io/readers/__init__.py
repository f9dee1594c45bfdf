"""From a file, a data frame or a graph to a relation with names."""

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from coblock.io.readers.assembly import Reading, assemble, index_edges, index_unseen
from coblock.io.readers.coding import IndexedEdges
from coblock.io.readers.edges import Columns, EdgeTable, is_frame, read_frame, read_table
from coblock.io.readers.errors import ReadError
from coblock.io.readers.graphs import is_graph, load_graph, read_graph
from coblock.io.readers.matrices import read_market, read_npz
from coblock.io.readers.text import TextLayout, read_text
from coblock.model import checks

__all__ = ["ReadError", "Reader", "Reading", "load_graph_file", "read"]

TEXT, EDGES = (".csv", ".tsv"), (".txt", ".edges", ".snap")
TABLES, GRAPHS = (".parquet", ".arrow", ".feather", ".ipc"), (".graphml", ".gml")
SUFFIXES = (*TEXT, *EDGES, *TABLES, ".mtx", ".npz", *GRAPHS)
_COMPRESSED = {".gz": (*TEXT, *EDGES, ".mtx", *GRAPHS), ".zst": (*TEXT, *EDGES)}


def read(
    source: Any,
    *,
    relation: str = "bipartite",
    row: str | int | None = None,
    column: str | int | None = None,
    value: str | int | None = None,
    binarize: float | None = 0.0,
    unseen: Any = None,
    delimiter: str | None = None,
    header: bool | None = None,
    encoding: str = "utf-8",
) -> Reading:
    """Read a relation and keep its names.

    Parameters
    ----------
    source : path, data frame or networkx graph
        The suffix decides how a file is read: ``.csv``, ``.tsv``; ``.txt``, ``.edges``, ``.snap``
        (text with ``#`` comments); ``.parquet``; ``.arrow``, ``.feather``, ``.ipc``; ``.mtx``;
        ``.npz``; ``.graphml``, ``.gml``. Text may be compressed (``.gz``, ``.zst``). Tables and
        frames have one edge per row.
    relation : {"bipartite", "directed", "undirected"}
        Rows and columns of directed and undirected relations are the same objects. A graph needs
        the node attribute ``bipartite`` (0 or 1) to be read as bipartite.
    row, column : str or int, optional
        The columns with the names; by default the first two. Without a header, columns are
        numbered from 1.
    value : str or int, optional
        The column (of a graph: edge attribute) that decides whether a pair is a link: it is if the
        value is a number above ``binarize``, yes, y or true. It is not if the value is another
        number, no, n or false. A blank is an unseen cell. By default every edge is a link.
    binarize : float or None
        Numbers above it are links. None: they must be 0 or 1.
    unseen : path, data frame or graph, optional
        Unseen cells, in any of the forms of ``source``; ``row`` and ``column`` apply if it has such
        columns. Names that the relation does not have are added to it, with a note.
    delimiter : str, optional
        One character, or ``"whitespace"``. By default comma, tab, semicolon, bar or white space,
        according to the first lines.
    header : bool, optional
        Whether the first line of a text names the columns. By default the first lines decide.
    encoding : str
        Encoding of a text.

    Returns
    -------
    Reading
        The relation, counts, and notes. Objects are in order of first appearance, those of
        matrices by position.

    Raises
    ------
    ReadError
        A ValueError: the content is not a relation. The message says where, and what to do.
    OSError
        The file does not exist, is a directory, or may not be read.

    Examples
    --------
    >>> import polars as pl
    >>> reading = read(pl.DataFrame({"who": ["ann", "bob"], "what": ["tea", "tea"]}))
    >>> reading.relation.row_names, reading.relation.column_names
    (('ann', 'bob'), ('tea',))
    """
    checks.check_choice("relation", relation, checks.KINDS)
    if binarize is not None:
        checks.check_number("binarize", binarize)
    columns = Columns(*(None if name is None else str(name) for name in (row, column, value)))
    reader = Reader(relation, columns, binarize, TextLayout(delimiter, header, encoding))
    edges = reader.read(source)
    unseen_edges = None if unseen is None else reader.read_unseen(unseen)
    try:
        if isinstance(edges, IndexedEdges):
            return assemble(edges, index_unseen(edges, unseen_edges), relation)
        indexed = index_edges(edges, unseen_edges, relation != "bipartite", binarize)
        return assemble(*indexed, relation)
    except ReadError:
        raise
    except ValueError as error:
        raise ReadError(str(error)) from error


def load_graph_file(path: str | Path) -> Any:
    """Return a GraphML or GML file as a networkx graph, with all its attributes.

    Raises
    ------
    ReadError
        The file is of another kind, or damaged.
    OSError
        The file does not exist, is a directory, or may not be read.
    """
    path = Path(path)
    suffix = _data_suffix(path)
    if suffix not in GRAPHS:
        msg = f"{path} is not a graph. Its name must end in one of {', '.join(GRAPHS)}."
        raise ReadError(msg)
    _check_readable(path)
    return load_graph(path, suffix)


@dataclass(frozen=True, slots=True)
class Reader:
    """Read sources of all forms with the same options."""

    relation: str
    columns: Columns
    binarize: float | None
    layout: TextLayout

    def read_unseen(self, source: Any) -> EdgeTable | IndexedEdges:
        """Read unseen cells; there are no values, and the chosen columns may be missing."""
        columns = replace(self.columns, value=None, optional=True)
        return replace(self, columns=columns, binarize=None).read(source)

    def read(self, source: Any) -> EdgeTable | IndexedEdges:
        """Read edges by name, or the cells of a matrix."""
        if isinstance(source, str | os.PathLike):
            return self._read_file(Path(source))
        if is_graph(source):
            return read_graph(source, self.relation, self.columns)
        if is_frame(source):
            return read_frame(source, self.columns)
        msg = f"A relation is read from a path, a data frame or a graph, not {type(source)}."
        raise TypeError(msg)

    def _read_file(self, path: Path) -> EdgeTable | IndexedEdges:
        suffix = _data_suffix(path)
        _check_readable(path)
        if suffix in TABLES:
            return read_table(path, self.columns)
        if suffix in GRAPHS:
            return read_graph(load_graph(path, suffix), self.relation, self.columns)
        if suffix == ".mtx":
            return read_market(path, self.binarize)
        if suffix == ".npz":
            return read_npz(path, self.binarize)
        layout = self.layout
        if suffix in EDGES:  # as SNAP writes them
            layout = replace(layout, comment="#", assume_header=False)
        if suffix == ".tsv" and layout.delimiter is None:
            layout = replace(layout, delimiter="\t")
        return read_text(path, self.columns, layout)


def _data_suffix(path: Path) -> str:
    """Return the suffix of a file name without that of its compression."""
    compression = path.suffix.lower() if path.suffix.lower() in _COMPRESSED else ""
    suffix = (Path(path.stem) if compression else path).suffix.lower()
    if suffix not in SUFFIXES:
        msg = (
            f"The name {path.name!r} does not say what kind of file it is. It must end in one of "
            f"{', '.join(SUFFIXES)}; text may add .gz or .zst."
        )
        raise ReadError(msg)
    if compression and suffix not in _COMPRESSED[compression]:
        msg = f"{path} is compressed, which is not possible for {suffix}. Decompress it first."
        raise ReadError(msg)
    return suffix


def _check_readable(path: Path) -> None:
    if path.is_dir():
        msg = f"{path} is a directory, not a file. Name a file in it."
        raise IsADirectoryError(msg)
    if not path.exists():
        msg = f"There is no file {path}."
        raise FileNotFoundError(msg)
    with path.open("rb") as file:
        if not file.read(1):
            msg = f"{path} is empty (0 bytes)."
            raise ReadError(msg)
