"""Read what users say about clusters and objects: names of clusters, known classes."""

import re
from pathlib import Path
from typing import TYPE_CHECKING

from coblock.io import refuse
from coblock.io.export import FORMULA_START

if TYPE_CHECKING:
    import polars as pl

NAME_COLUMNS = ("side", "cluster", "name")
GUARDED = re.compile(f"'{FORMULA_START[1:]}")


def read_names(path: str | Path) -> dict[tuple[str, int], str]:
    """Return the names of clusters from a CSV file with the columns side, cluster and name.

    ``clusters.csv`` of a result is such a file. Lines without a name are left out, and so is the
    apostrophe that stands before a name which a spreadsheet would run as a formula.
    """
    frame = _read(path)
    missing = [name for name in NAME_COLUMNS if name not in frame.columns]
    if missing:
        refuse(
            f"{path} has no column {missing[0]!r}; a file of cluster names has the columns side, "
            "cluster and name, like clusters.csv of a result."
        )
    found: dict[tuple[str, int], str] = {}
    for line, (side, cluster, name) in enumerate(frame.select(NAME_COLUMNS).rows(), start=2):
        if side not in {"row", "column", "object"}:
            refuse(f"{path}, line {line}: side must be row, column or object, but is {side!r}.")
        if not (cluster and cluster.isascii() and cluster.isdecimal()):
            refuse(f"{path}, line {line}: cluster must be a number, but is {cluster!r}.")
        if name and name.strip():
            guarded = GUARDED.match(name)
            found[side, int(cluster)] = (name[1:] if guarded else name).strip()
    return found


def read_labels(path: str | Path) -> dict[str, str]:
    """Return the class of each object from a CSV file: names in the first column, then classes.

    Objects with a blank class are left out.
    """
    frame = _read(path)
    if frame.width < 2:
        refuse(f"{path} has one column; a file of labels has names and classes, and a header.")
    found: dict[str, str] = {}
    for line, (name, label) in enumerate(frame[:, :2].rows(), start=2):
        if not name or not label or not label.strip():
            continue
        if found.setdefault(name, label.strip()) != label.strip():
            refuse(f"{path}, line {line}: {name!r} has two classes. Keep one line for each name.")
    if not found:
        refuse(f"{path} has no line with a name and a class.")
    return found


def _read(path: str | Path) -> "pl.DataFrame":
    """Read a CSV file as text."""
    import polars as pl

    path = Path(path)
    if not path.is_file():
        refuse(f"There is no file {path}.", FileNotFoundError)
    try:
        return pl.read_csv(path, infer_schema=False, truncate_ragged_lines=False)
    except (pl.exceptions.PolarsError, UnicodeDecodeError) as error:
        reason = str(error).splitlines()[0]
        refuse(f"{path} is not a CSV file with a header: {reason}.")
