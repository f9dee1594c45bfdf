"""Records of sweeps: the stream that every phase of a fit yields."""

import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class SweepRecord:
    """Record of one sweep over all objects (MODEL 9).

    Attributes
    ----------
    sweep : int
        Number of the sweep, from 1.
    change : float
        Mean absolute change of the memberships per object, the larger of the domains; once
        averaging has begun, of the averaged memberships. Hard labels: twice ``moved``.
    leave_one_out : float
        Pseudo leave-one-out log likelihood: the sum of the log normalisers of all objects.
    bound : float
        Lower bound of the log evidence (the naive VB bound). Hard labels: log joint.
    row_clusters, column_clusters : int
        Clusters in use.
    seconds : float
        Time since the fit began.
    moved : float or None
        Fraction of the labels that changed, the larger of the domains; None for soft memberships.
    """

    sweep: int
    change: float
    leave_one_out: float
    bound: float
    row_clusters: int
    column_clusters: int
    seconds: float
    moved: float | None = None

    def as_dict(self) -> dict[str, float | None]:
        """Return the record as a dictionary."""
        return asdict(self)


Callback: TypeAlias = Callable[[SweepRecord], object]


def sweep_line(record: SweepRecord) -> str:
    """Return one line of text about a sweep."""
    return (
        f"sweep {record.sweep}: change {record.change:.2e}, bound {record.bound:,.1f}, "
        f"{record.row_clusters} x {record.column_clusters} clusters, {record.seconds:.1f} s"
    )


def log_sweeps(callback: Callback | None) -> Callback:
    """Return a callback that first writes a line per sweep to standard error."""

    def log(record: SweepRecord) -> object:
        sys.stderr.write(f"{sweep_line(record)}\n")
        return None if callback is None else callback(record)

    return log
