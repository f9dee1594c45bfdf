"""Show the progress of a fit: a bar in a terminal, lines in a log."""

import math
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn
from rich.table import Column

from coblock.model.trace import SweepRecord, sweep_line

if TYPE_CHECKING:
    from coblock.estimator import IRM

LOG_INTERVAL = 2.0  # seconds between two lines of a log
WINDOW = 12  # sweeps that a forecast is based on
MIN_POWER = 0.05  # of the decrease of the change; a slower decrease gives no forecast
MAX_GROWTH = 50.0  # logarithm of final sweeps over sweeps so far; avoids an overflow


@contextmanager
def progress_bar(
    console: Console, model: "IRM", fits: int
) -> Iterator[Callable[[SweepRecord], object]]:
    """Show a bar within the context and yield the callback that updates it.

    The bar shows the time left, sweep, change, clusters and evidence (the bound of the sweep).
    """
    text = TextColumn("{task.description}", table_column=Column(no_wrap=True, overflow="ellipsis"))
    columns = (SpinnerColumn(), BarColumn(bar_width=8), text)
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("Initialising (the first run compiles)", total=None)
        tol = model.tol if model.inference not in {"gibbs", "vb"} else 0.0
        forecast, count, lock = Forecast(tol, model.max_iter), fit_counter(fits), Lock()

        def update(sweep: SweepRecord) -> None:
            with lock:  # fits may run in several threads
                left = forecast.seconds_left(sweep)
                done = None if left is None else sweep.seconds / max(sweep.seconds + left, 1e-9)
                known = left is not None and left >= 1.0
                time_left = f"{timedelta(seconds=round(left or 0.0))} left, " if known else ""
                progress.update(
                    task,
                    description=f"{count(sweep)}{time_left}sweep {sweep.sweep}, "
                    f"change {sweep.change:.0e}, {sweep.row_clusters} x {sweep.column_clusters} "
                    f"clusters, evidence {sweep.bound:,.0f}",
                    total=None if done is None else 1.0,
                    completed=done or 0.0,
                )

        yield update


def progress_log(fits: int) -> Callable[[SweepRecord], object]:
    """Return a callback that prints the first sweep, and then a line every few seconds."""
    printed, count, lock = -math.inf, fit_counter(fits), Lock()

    def log(sweep: SweepRecord) -> None:
        nonlocal printed
        with lock:
            current = count(sweep)
            if monotonic() - printed >= LOG_INTERVAL:
                printed = monotonic()
                typer.echo(current + sweep_line(sweep), err=True)

    return log


def fit_counter(fits: int) -> Callable[[SweepRecord], str]:
    """Return a function that counts fits by their first sweeps and names the current one."""
    started = 0

    def count(sweep: SweepRecord) -> str:
        nonlocal started
        started += sweep.sweep == 1
        return f"fit {max(started, 1)} of {fits}, " if fits > 1 else ""

    return count


class Forecast:
    """Estimate the time that a fit still takes.

    The change of an average decreases like a power of the number of sweeps. The last sweeps give
    the power; the fit ends at a change of ``tol`` (0: never) or after ``max_iter`` sweeps.
    """

    def __init__(self, tol: float, max_iter: int) -> None:
        self.tol = tol
        self.max_iter = max_iter
        self.recent: deque[SweepRecord] = deque(maxlen=WINDOW)

    def seconds_left(self, sweep: SweepRecord) -> float | None:
        """Record a sweep and return the seconds to the end; None if they cannot be estimated."""
        if self.recent and sweep.sweep <= self.recent[-1].sweep:
            self.recent.clear()  # another fit has started
        self.recent.append(sweep)
        first = self.recent[0]
        if sweep.sweep == first.sweep:
            return None
        per_sweep = (sweep.seconds - first.seconds) / (sweep.sweep - first.sweep)
        left, most = self._sweeps_left(first, sweep), max(self.max_iter - sweep.sweep, 0)
        if left is None or (most < left < math.inf and len(self.recent) < WINDOW):
            return None  # too few sweeps for a distant end
        return per_sweep * min(left, most)

    def _sweeps_left(self, first: SweepRecord, last: SweepRecord) -> float | None:
        """Return the number of sweeps until the change is ``tol``."""
        if self.tol <= 0.0:
            return math.inf
        if last.change <= self.tol:
            return 0.0
        decrease = math.log(max(first.change, self.tol) / last.change)
        power = decrease / math.log(last.sweep / first.sweep)
        if power < MIN_POWER:
            return None
        growth = math.log(last.change / self.tol) / power
        return last.sweep * math.expm1(min(growth, MAX_GROWTH))
