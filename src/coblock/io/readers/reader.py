"""Read sources of all forms: files by their names, data frames, graphs and Arrow streams."""

import os
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import narwhals.stable.v2 as narwhals
import polars as pl

from coblock import io
from coblock.io.readers import GRAPH_INTERFACE, Absent, Layout, Reading, formats, indexing
from coblock.io.readers import edges as named
from coblock.io.readers.edges import Columns, EdgeTable, read_words
from coblock.io.readers.indexing import IndexedEdges
from coblock.io.readers.limits import Limits, convert_errors, refuse
from coblock.io.readers.shapes import TableSource, read_table_source
from coblock.io.readers.text import TextLayout, read_text
from coblock.model import checks
from coblock.model.checks import Kind

__all__ = ["Columns", "Reader", "TextLayout", "open_graph_file", "read_words"]

TEXT, EDGES = (".csv", ".tsv"), (".txt", ".edges", ".snap")
TABLES, GRAPHS = (".parquet", ".arrow", ".feather", ".ipc"), (".graphml", ".gml")
TABLES_WITHIN = (*formats.EXCEL, *formats.DATABASES)  # of which file::table names one
JSON = (".json", *formats.JSON_LINES)
SUFFIXES = (
    *TEXT, *EDGES, *formats.LISTS, *TABLES, ".mtx", ".npz", *GRAPHS, *TABLES_WITHIN, *JSON,
    *formats.TRIPLES,
)  # fmt: skip
STANDARD_INPUT = "-"
_COMPRESSED = {".gz": (*TEXT, *EDGES, ".mtx", *GRAPHS), ".zst": (*TEXT, *EDGES)}


@dataclass(frozen=True, slots=True)
class Reader:
    """Read sources of all forms with the same options."""

    relation: Kind
    columns: Columns
    binarize: float | None
    text: TextLayout
    limits: Limits = field(default_factory=Limits)
    layout: Layout | None = "edges"  # None: found
    absent: Absent | None = None
    query: str | None = None

    def read_relation(self, source: Any, unseen: Any) -> Reading:
        """Read a relation, and its unseen cells if they are given apart."""
        edges, unseen_edges, kind = self.read(source), None, self.relation
        if unseen is not None:  # there are no values, and the chosen columns may be missing
            columns = replace(self.columns, value=None, optional=True, yes=())
            others = replace(self, columns=columns, binarize=None, layout=None, query=None)
            unseen_edges = others.read(unseen)
        complete = isinstance(edges, EdgeTable) and edges.complete
        all_unseen = self.absent == "unseen" and not complete
        if isinstance(edges, IndexedEdges):
            pairs = indexing.index_unseen(edges, unseen_edges)
            return indexing.assemble(edges, pairs, kind, all_unseen)
        indexed = indexing.index_edges(edges, unseen_edges, kind != "bipartite", self.binarize)
        return indexing.assemble(*indexed, kind, all_unseen)

    def read(self, source: Any) -> EdgeTable | IndexedEdges:
        """Read edges by name, or the cells of a matrix."""
        if isinstance(source, str | os.PathLike):
            path = str(source)
            if path == STANDARD_INPUT:
                return self._read_standard_input()
            whole, _, table = path.rpartition("::")
            if whole and Path(whole).suffix.lower() in TABLES_WITHIN:
                return self._read_file(Path(whole), table)
            return self._read_file(Path(source))
        if all(hasattr(source, name) for name in GRAPH_INTERFACE):
            self._refuse_answers("A graph")
            return named.read_graph(source, self.relation, self.columns)
        with convert_errors("The data frame cannot be read"):
            frame = checks.open_frame(source)
        if isinstance(frame, narwhals.DataFrame | narwhals.LazyFrame):
            lazy, row_names = named.convert_frame(frame)
        elif hasattr(source, "__arrow_c_stream__"):
            with convert_errors("The Arrow stream cannot be read"):
                lazy, row_names = pl.DataFrame(source).lazy(), None
        else:
            msg = f"A relation is read from a path, a data frame or a graph, not {type(source)}."
            raise TypeError(msg)
        return self._read_table(TableSource(lazy, "The data frame", row_names=row_names))

    def _refuse_answers(self, what: str) -> None:
        if self.columns.yes:
            refuse(f"yes= is for tables with answers in words, but {what} is none. Leave it out.")

    def _read_table(self, table: TableSource, *notes: str) -> EdgeTable:
        if self.layout in {"baskets", "adjacency"}:
            refuse(f"layout={self.layout!r} is for text, but {table.what} is a table.")
        edges = read_table_source(table, self.columns, self.layout, self.absent)
        return replace(edges, notes=(*notes, *edges.notes))

    def _read_standard_input(self) -> EdgeTable:
        """Read text from standard input."""
        content = sys.stdin.buffer.read(self.limits.unpacked + 1)
        if len(content) > self.limits.unpacked:
            refuse(
                f"Standard input has more than {self.limits.unpacked:,} bytes. Allow more with "
                "max_unpacked=, or write it to a file."
            )
        if not content.strip():
            refuse("Standard input is empty.")
        return self._read_text(Path("standard input"), self.text, content)

    def _read_text(self, path: Path, text: TextLayout, content: bytes | None = None) -> EdgeTable:
        choices = (self.layout, self.absent)
        return read_text(path, self.columns, text, self.limits, *choices, content=content)

    def _read_file(self, path: Path, within: str | None = None) -> EdgeTable | IndexedEdges:
        suffix = _check_file(path)
        if self.query is not None and suffix not in formats.DATABASES:
            refuse(f"query= is for databases, but {path} is none.")
        if suffix not in (*TEXT, *EDGES) or path.suffix.lower() == ".zst":
            self.limits.check_archive(path)
        if suffix in (*GRAPHS, ".mtx", ".npz", *formats.LISTS):
            self._refuse_answers(str(path))
        if suffix in GRAPHS:
            return named.read_graph(named.load_graph(path, suffix), self.relation, self.columns)
        if suffix == ".mtx":
            return formats.read_market(path, self.binarize)
        if suffix == ".npz":
            return formats.read_npz(path, self.binarize)
        if suffix in (*TABLES, *TABLES_WITHIN, *JSON, *formats.TRIPLES):
            lazy, notes = self._scan(path, suffix, within)
            return self._read_table(TableSource(lazy, str(path)), *notes)
        text = self.text
        if suffix in EDGES:  # as SNAP writes them
            text = replace(text, comment="#", assume_header=False)
        if suffix == ".tsv" and text.delimiter is None:
            text = replace(text, delimiter="\t")
        if suffix in formats.LISTS and self.layout in {None, "edges"}:
            return replace(self, layout=formats.LISTS[suffix])._read_text(path, text)
        return self._read_text(path, text)

    def _scan(self, path: Path, suffix: str, within: str | None) -> tuple[Any, list[str]]:
        """Return the table of a file that is not text, and notes."""
        if suffix in formats.EXCEL:
            lazy = formats.read_sheet(path, within)
        elif suffix in formats.DATABASES:
            lazy = formats.read_database(path, within, self.query)
        elif suffix in formats.JSON_LINES:
            lazy = formats.read_json_lines(path)
        elif suffix == ".json":
            lazy = formats.read_json(path)
        elif suffix in formats.TRIPLES:
            return formats.read_triples(path)
        else:
            return named.scan_table(path, self.limits), []
        self.limits.check_columns(len(lazy.collect_schema()), path)
        return lazy, []


def _check_file(path: Path) -> str:
    """Refuse a file that cannot be read; return its suffix without that of its compression."""
    if path.is_dir():
        io.refuse(f"{path} is a directory, not a file. Name a file in it.", IsADirectoryError)
    compression = path.suffix.lower() if path.suffix.lower() in _COMPRESSED else ""
    suffix = (Path(path.stem) if compression else path).suffix.lower()
    if suffix not in SUFFIXES:
        refuse(
            f"The name {path.name!r} does not say what kind of file it is. It must end in one of "
            f"{', '.join(SUFFIXES)}; text may add .gz or .zst."
        )
    if compression and suffix not in _COMPRESSED[compression]:
        refuse(f"{path} is compressed, which is not possible for {suffix}. Decompress it first.")
    if not path.exists():
        io.refuse(f"There is no file {path}.", FileNotFoundError)
    if not path.is_file():
        refuse(f"{path} is a pipe or a device, which may have no end. Write it to a file first.")
    with path.open("rb") as file:
        if not file.read(1):
            refuse(f"{path} is empty (0 bytes).")
    return suffix


def open_graph_file(path: Path) -> Any:
    """Return a GraphML or GML file as a networkx graph, with all its attributes."""
    suffix = _check_file(path)
    if suffix not in GRAPHS:
        refuse(f"{path} is not a graph. Its name must end in one of {', '.join(GRAPHS)}.")
    Limits().check_archive(path)
    return named.load_graph(path, suffix)
