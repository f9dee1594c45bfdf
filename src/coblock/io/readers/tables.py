"""Tables that know their columns: Parquet, Arrow and data frames."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import narwhals.stable.v2 as nw

from coblock.io.readers.errors import refusing
from coblock.io.readers.pairs import Columns, Pairs, collect_pairs

if TYPE_CHECKING:
    import polars as pl


def read_parquet(path: Path, columns: Columns, *, lenient: bool = False) -> Pairs:
    """Read the edges of a Parquet file."""
    import polars as pl

    with refusing(f"{path} is not a Parquet file, or is damaged"):
        lazy = pl.scan_parquet(path, glob=False)
        present = lazy.collect_schema().names()
    return collect_pairs(lazy, columns.known_to(present) if lenient else columns, str(path))


def read_arrow(path: Path, columns: Columns, *, lenient: bool = False) -> Pairs:
    """Read the edges of an Arrow file, also known as Feather or IPC, or of an Arrow stream."""
    import polars as pl

    with refusing(f"{path} is not an Arrow file, or is damaged"):
        content = path.read_bytes()
        reader = pl.read_ipc if content.startswith(b"ARROW1") else pl.read_ipc_stream
        frame = reader(content)
    chosen = columns.known_to(frame.columns) if lenient else columns
    return collect_pairs(frame.lazy(), chosen, str(path))


def is_frame(source: object) -> bool:
    """Say whether narwhals knows it as a data frame, eager or lazy."""
    wrapped = nw.from_native(source, pass_through=True)
    return isinstance(wrapped, nw.DataFrame | nw.LazyFrame)


def read_frame(source: Any, columns: Columns, *, lenient: bool = False) -> Pairs:
    """Read the edges of a data frame, one edge per row."""
    import polars as pl

    what = "The data frame"
    with refusing(f"{what} cannot be read"):
        frame = nw.from_native(source)
        frame = frame.collect() if isinstance(frame, nw.LazyFrame) else frame
        present = [str(name) for name in frame.columns]
        wanted = (columns.known_to(present) if lenient else columns).choose(present, what)
        native = frame.to_native()
        if not isinstance(native, pl.DataFrame):
            needed = [str(name) for name in (wanted.row, wanted.column, wanted.value) if name]
            native = pl.DataFrame([_to_polars(name, frame[name]) for name in needed])
    return collect_pairs(native.lazy(), wanted, what)


def _to_polars(name: str, column: Any) -> "pl.Series":
    """Return a column as polars has it; mixed objects become strings, and missing ones null."""
    import polars as pl

    if column.dtype.is_numeric() or column.dtype == nw.Boolean:
        return pl.Series(name, column.to_list())
    missing = column.is_null().to_list()
    values = column.to_list()
    return pl.Series(
        name,
        [None if gone else str(value) for value, gone in zip(values, missing, strict=True)],
        dtype=pl.String,
    )
