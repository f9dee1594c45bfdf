"""The progress bar of a fit."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

from coblock.inference.report import Sweep
from coblock.progress import Forecast

if TYPE_CHECKING:
    from coblock.estimator import IRM


@contextmanager
def bar(console: Console, model: "IRM", starts: int) -> Iterator[Callable[[Sweep], object]]:
    """Show a bar while the context lasts, and give the callback that moves it.

    It shows sweep, change, clusters, evidence (the bound of it that a sweep has reached) and the
    time left. It goes away at the end.
    """
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(bar_width=12))
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("Looking for a start (the first run compiles)", total=None)
        tol = model.tol if model.inference not in {"gibbs", "vb"} else 0.0
        forecast, lock, begun = Forecast(tol, model.max_iter), Lock(), 0

        def move(sweep: Sweep) -> None:
            nonlocal begun
            with lock:  # starts may run side by side
                begun += sweep.sweep == 1
                left = forecast.seconds_left(sweep)
                which = f"start {begun} of {starts}, " if starts > 1 else ""
                done = None if left is None else sweep.seconds / max(sweep.seconds + left, 1e-9)
                progress.update(
                    task,
                    description=which + describe(sweep, left),
                    total=None if done is None else 1.0,
                    completed=done or 0.0,
                )

        yield move


def describe(sweep: Sweep, left: float | None) -> str:
    """Return what the bar says of a sweep; short, for eighty columns."""
    return (
        f"sweep {sweep.sweep}  change {sweep.change:.1e}  "
        f"{sweep.row_clusters} x {sweep.column_clusters} clusters  evidence {sweep.bound:,.0f}  "
        f"{'' if left is None else duration(left) + ' left'}"
    )


def duration(seconds: float) -> str:
    """Return a length of time as people say it.

    Examples
    --------
    >>> duration(8.4), duration(95), duration(7300)
    ('8 s', '1 min 35 s', '2 h 1 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
