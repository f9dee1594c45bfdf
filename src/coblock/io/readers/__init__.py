"""From a file, a data frame or a graph to a relation with names."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coblock.io.readers.assembly import Reading, assemble, code_cells, code_pairs
from coblock.io.readers.errors import ReadError
from coblock.io.readers.graphs import is_graph, load_graph, read_graph
from coblock.io.readers.matrices import Cells, read_market, read_npz
from coblock.io.readers.pairs import Columns, Pairs
from coblock.io.readers.tables import is_frame, read_arrow, read_frame, read_parquet
from coblock.io.readers.text import Layout, read_text
from coblock.model import checks

__all__ = ["ReadError", "Reader", "Reading", "load_graph_file", "read"]

TEXT, EDGES = (".csv", ".tsv"), (".txt", ".edges", ".snap")
PARQUET, ARROW = (".parquet",), (".arrow", ".feather", ".ipc")
MARKET, NPZ, GRAPHS = (".mtx",), (".npz",), (".graphml", ".gml")
KINDS = TEXT + EDGES + PARQUET + ARROW + MARKET + NPZ + GRAPHS
_PACKED = {".gz": TEXT + EDGES + MARKET + GRAPHS, ".zst": TEXT + EDGES}


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
        The end of its name says what a file is: ``.csv``, ``.tsv``; ``.txt``, ``.edges``, ``.snap``
        (text with ``#`` comments); ``.parquet``; ``.arrow``, ``.feather``, ``.ipc``; ``.mtx``;
        ``.npz``; ``.graphml``, ``.gml``. Text may be compressed (``.gz``, ``.zst``). Tables and
        frames have one edge per row.
    relation : {"bipartite", "directed", "undirected"}
        Rows and columns of directed and undirected relations are the same objects. A graph needs
        the node attribute ``bipartite`` (0 or 1) to be read as bipartite.
    row, column : str or int, optional
        The columns with the names; by default the first two. Without header, columns are counted
        from 1.
    value : str or int, optional
        The column (of a graph: edge attribute) that says whether a pair is a link: a number above
        ``binarize``, or yes, y, true. No, n and false are not; blank is unseen. By default every
        edge is a link.
    binarize : float or None
        Numbers above it are links. None: they must be 0 or 1.
    unseen : path, data frame or graph, optional
        Pairs that are unseen, in any of the forms of ``source``; ``row`` and ``column`` hold where
        it has such columns. Names that the relation lacks are added to it, and noted.
    delimiter : str, optional
        One character, or ``"whitespace"``. By default comma, tab, semicolon, bar or white space,
        as the first lines show.
    header : bool, optional
        Whether the first line of a text names the columns. By default the first lines tell.
    encoding : str
        Of a text.

    Returns
    -------
    Reading
        The relation, counts, and notes. Objects stand in order of first appearance, those of
        matrices by position.

    Raises
    ------
    ReadError
        A ValueError: the content is no relation. The message says where, and what to do.
    OSError
        There is no such file, it is a directory, or it may not be read.

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
    reader = Reader(relation, columns, binarize, Layout(delimiter, header, encoding))
    found = reader.read(source)
    hidden = None if unseen is None else reader.read_unseen(unseen)
    if isinstance(found, Cells):
        return assemble(code_cells(found, hidden), relation)
    if isinstance(hidden, Cells):
        msg = (
            "The unseen pairs come as a matrix, which has no names, but the relation has names. "
            "Give them as a list of edges."
        )
        raise ReadError(msg)
    return assemble(code_pairs(found, hidden, relation != "bipartite", binarize), relation)


def load_graph_file(path: str | Path) -> Any:
    """Return a GraphML or GML file as a graph of networkx, with all its attributes.

    Raises
    ------
    ReadError
        The file is of another kind, or damaged.
    OSError
        There is no such file, it is a directory, or it may not be read.
    """
    path = Path(path)
    kind = _kind(path)
    if kind not in GRAPHS:
        msg = f"{path} is not a graph. Its name must end in one of {', '.join(GRAPHS)}."
        raise ReadError(msg)
    _refuse_unreadable(path)
    return load_graph(path, kind)


@dataclass(frozen=True, slots=True)
class Reader:
    """The choices of the user, and the way from a source to its reader."""

    relation: str
    columns: Columns
    binarize: float | None
    layout: Layout
    lenient: bool = False  # columns that were chosen for another source may be missing

    def read_unseen(self, source: Any) -> Pairs | Cells:
        """Read unseen pairs, where the chosen columns may be missing."""
        lenient = Reader(self.relation, self.columns.without_value(), None, self.layout, True)
        return lenient.read(source)

    def read(self, source: Any) -> Pairs | Cells:
        """Read edges by name, or the cells of a matrix."""
        if isinstance(source, str | os.PathLike):
            return self._read_file(Path(source))
        if is_graph(source):
            return read_graph(source, self.relation, self.columns)
        if is_frame(source):
            return read_frame(source, self.columns, lenient=self.lenient)
        msg = f"A relation is read from a path, a data frame or a graph, not {type(source)}."
        raise TypeError(msg)

    def _read_file(self, path: Path) -> Pairs | Cells:
        kind = _kind(path)
        _refuse_unreadable(path)
        if kind in PARQUET:
            return read_parquet(path, self.columns, lenient=self.lenient)
        if kind in ARROW:
            return read_arrow(path, self.columns, lenient=self.lenient)
        if kind in GRAPHS:
            return read_graph(load_graph(path, kind), self.relation, self.columns)
        if kind in MARKET:
            return read_market(path, self.binarize)
        if kind in NPZ:
            return read_npz(path, self.binarize)
        layout = self.layout.of_edges() if kind in EDGES else self.layout
        if kind == ".tsv" and layout.delimiter is None:
            layout = layout.with_delimiter("\t")
        return read_text(path, self.columns, layout, lenient=self.lenient)


def _kind(path: Path) -> str:
    """Return the ending that says what a file is, without that of its compression."""
    packing = path.suffix.lower() if path.suffix.lower() in _PACKED else ""
    kind = (Path(path.stem) if packing else path).suffix.lower()
    if kind not in KINDS:
        msg = (
            f"The name {path.name!r} does not say what kind of file it is. It must end in one of "
            f"{', '.join(KINDS)}; text may add .gz or .zst."
        )
        raise ReadError(msg)
    if packing and kind not in _PACKED[packing]:
        msg = f"{path} is compressed, which is not possible for {kind}. Unpack it first."
        raise ReadError(msg)
    return kind


def _refuse_unreadable(path: Path) -> None:
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
