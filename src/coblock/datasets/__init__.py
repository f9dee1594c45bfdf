"""Relations that are part of coblock.

The roll calls of the 109th US Senate (2005 and 2006) are public record. ``senate109.csv`` has one
line per person: name, party, state, and one character for each of the 645 roll calls: ``y`` for
yea, ``n`` for nay, ``.`` for neither (absent, or not in office).
"""

import csv
from dataclasses import dataclass
from importlib.resources import files

import numpy as np
from numpy.typing import NDArray

__all__ = ["Votes", "load_senate"]

_VALUE = {"y": 1.0, "n": 0.0, ".": np.nan}


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
    text = (files("coblock.datasets") / "senate109.csv").read_text(encoding="ascii")
    lines = list(csv.DictReader(text.splitlines()))
    values = np.array([[_VALUE[vote] for vote in line["votes"]] for line in lines])
    senators = [f"{line['name']} ({line['party']}-{line['state']})" for line in lines]
    votes = [f"vote {number}" for number in range(1, values.shape[1] + 1)]
    return Votes(values, senators, [line["party"] for line in lines], votes)
