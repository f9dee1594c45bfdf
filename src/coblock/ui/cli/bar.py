"""The progress bar of a fit."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn
from rich.table import Column

from coblock.model.trace import Sweep
from coblock.ui.cli.progress import Forecast, counted

if TYPE_CHECKING:
    from coblock.estimator import IRM


@contextmanager
def bar(console: Console, model: "IRM", fits: int) -> Iterator[Callable[[Sweep], object]]:
    """Show a bar while the context lasts, and give the callback that moves it.

    It shows sweep, change, clusters, evidence (the bound of it that a sweep has reached) and the
    time left. It goes away at the end.
    """
    line = Column(no_wrap=True, overflow="ellipsis")
    text = TextColumn("{task.description}", table_column=line)
    columns = (SpinnerColumn(), BarColumn(bar_width=8), text)
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("Looking for a start (the first run compiles)", total=None)
        tol = model.tol if model.inference not in {"gibbs", "vb"} else 0.0
        forecast, which, lock = Forecast(tol, model.max_iter), counted(fits), Lock()

        def move(sweep: Sweep) -> None:
            with lock:  # starts may run side by side
                left = forecast.seconds_left(sweep)
                done = None if left is None else sweep.seconds / max(sweep.seconds + left, 1e-9)
                progress.update(
                    task,
                    description=which(sweep) + describe(sweep, left),
                    total=None if done is None else 1.0,
                    completed=done or 0.0,
                )

        yield move


def describe(sweep: Sweep, left: float | None) -> str:
    """Return what the bar says of a sweep; a narrow screen cuts the end."""
    return (
        f"{'' if left is None or left < 1.0 else clock(left) + ' left, '}sweep {sweep.sweep}, "
        f"change {sweep.change:.0e}, {sweep.row_clusters} x {sweep.column_clusters} clusters, "
        f"evidence {sweep.bound:,.0f}"
    )


def clock(seconds: float) -> str:
    """Return a length of time as a clock shows it.

    Examples
    --------
    >>> clock(8.4), clock(95), clock(7300)
    ('0:08', '1:35', '2:01:40')
    """
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}:{rest:02}"
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"
