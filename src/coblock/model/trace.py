"""What is told about each sweep."""

import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class Sweep:
    """Report of one sweep (MODEL 9).

    Attributes
    ----------
    sweep : int
        Number of the sweep, from 1.
    change : float
        Mean absolute change of the memberships per object, the larger of the domains; of the
        averaged ones once averaging has begun. Gibbs: twice the share of labels that moved.
    leave_one_out : float
        Pseudo leave-one-out log likelihood: the log normalisers of all objects added up.
    bound : float
        Lower bound of the log evidence (the naive VB bound). Gibbs: log joint of the sample.
    row_clusters, column_clusters : int
        Clusters in use.
    seconds : float
        Since the fit began.
    """

    sweep: int
    change: float
    leave_one_out: float
    bound: float
    row_clusters: int
    column_clusters: int
    seconds: float

    def as_dict(self) -> dict[str, float]:
        """Return the report as a dictionary."""
        return asdict(self)


def sweep_line(sweep: Sweep) -> str:
    """Return what there is to tell of a sweep, on one line."""
    return (
        f"sweep {sweep.sweep}: change {sweep.change:.2e}, bound {sweep.bound:,.1f}, "
        f"{sweep.row_clusters} x {sweep.column_clusters} clusters, {sweep.seconds:.1f} s"
    )


def tell_and(callback: Callable[[Sweep], object] | None) -> Callable[[Sweep], object]:
    """Return a callback that writes a line per sweep to standard error first."""

    def tell(sweep: Sweep) -> object:
        sys.stderr.write(f"{sweep_line(sweep)}\n")
        return None if callback is None else callback(sweep)

    return tell
