"""Relations that are part of coblock.

The roll calls of the 109th US Senate (2005 and 2006) are public record. ``senate109.csv`` is a
table for any spreadsheet, and for ``coblock fit``. It has one line per person, named with party and
state, and one column for each of the 645 roll calls: 1 for yea, 0 for nay, blank for neither
(absent, or not in office).
"""

import csv
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

__all__ = ["Votes", "load_senate", "senate_file"]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Votes:
    """Votes of persons in roll calls."""

    values: NDArray[np.float64]  #: 1 for yea, 0 for nay, NaN for an unseen cell
    senators: list[str]  #: names of the rows, with party and state, as in "McCain (R-AZ)"
    parties: list[str]  #: of the rows: "R", "D", or "I" for an independent
    votes: list[str]  #: names of the columns

    def __repr__(self) -> str:
        return f"Votes({len(self.senators):,} senators, {len(self.votes):,} votes)"


def load_senate() -> Votes:
    """Load the roll calls of the 109th US Senate.

    The 102 rows are the president, whose position on some votes is recorded, and the 101 senators
    who served (a seat of New Jersey changed hands). The 645 columns are the roll calls.

    Examples
    --------
    >>> votes = load_senate()
    >>> votes.values.shape
    (102, 645)
    >>> votes.senators[6], votes.parties[6]
    ('McCain (R-AZ)', 'R')
    """
    header, *lines = csv.reader(senate_file().read_text(encoding="ascii").splitlines())
    values = np.array([[float(cell or "nan") for cell in cells] for _, *cells in lines])
    senators = [line[0] for line in lines]
    parties = [name.rpartition("(")[2][0] for name in senators]
    return Votes(values, senators, parties, header[1:])


def senate_file() -> Path:
    """Return the path of the CSV file with the roll calls."""
    return Path(str(files("coblock.datasets") / "senate109.csv"))
