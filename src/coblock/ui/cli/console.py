"""Print results to standard output, and progress, notes and errors to standard error."""

import json
import math
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from functools import wraps
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import typer
from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn
from rich.table import Column

from coblock.io import printable, shorten
from coblock.io.relation_files import DescriptionError
from coblock.model.trace import SweepRecord
from coblock.ui.cli.options import OUTPUT, option, with_options

if TYPE_CHECKING:
    from coblock.estimator import IRM
    from coblock.model.multi_result import MultiRecord
    from coblock.multi import MultiIRM

Record: TypeAlias = "SweepRecord | MultiRecord"
NOT_CONVERGED, BAD_INPUT, INTERRUPTED = 1, 2, 130  # exit codes
LOG_INTERVAL = 2.0  # seconds between two lines of a log
WINDOW = 12  # sweeps that a forecast is based on
MIN_POWER = 0.05  # of the decrease of the change; a slower decrease gives no forecast
FIRST_WORDS = "Initialising; the first use compiles, once, less than a minute"
MAX_GROWTH = 50.0  # logarithm of final sweeps over sweeps so far; avoids an overflow


@dataclass(frozen=True, slots=True)
class OutputOptions:
    """Options on what is printed, and the functions that print it."""

    panel: ClassVar = OUTPUT
    quiet: bool = option(False, "Print errors only.", "--quiet", "-q")
    as_json: bool = option(False, "Print the result as one JSON object.", "--json")

    def note(self, text: str) -> None:
        """Print a note."""
        self.say(f"Note: {with_options(text)}")

    def say(self, text: str) -> None:
        """Print a line on standard error."""
        if not self.quiet:
            typer.echo(printable(shorten(text)), err=True)

    def show(self, page: Callable[[], RenderableType], data: Mapping[str, object]) -> None:
        """Print a result: ``data`` with ``--json`` (NaN is null), else the page."""
        if self.as_json:
            typer.echo(json.dumps(json.loads(json.dumps(data), parse_constant=lambda _: None)))
        elif not self.quiet:
            Console().print(page())

    def show_file(self, path: Path) -> None:
        """Print the path of a file or folder that was written."""
        from coblock.ui.terminal import path_line

        self.show(lambda: path_line("Written: ", path), {"out": str(path)})

    @contextmanager
    def progress(self, model: "IRM | MultiIRM", fits: int | None = None) -> Iterator[list[Warning]]:
        """Print progress and warnings of fits, but not that one has not converged; yield all."""
        from sklearn.exceptions import ConvergenceWarning

        def show_warning(message: Any, *_: object, **__: object) -> None:
            caught.append(message)
            if not isinstance(message, ConvergenceWarning):
                self.note(str(message))

        caught: list[Warning] = []
        console = Console(stderr=True)
        number = fits or int(getattr(model, "n_init", 1))  # MultiIRM has one start
        with warnings.catch_warnings(), ExitStack() as stack:
            warnings.showwarning = show_warning
            warnings.simplefilter("always", ConvergenceWarning)
            if not self.quiet:
                bar = progress_bar(console, model, number)
                log = progress_log(number, model.inference)
                shown = bar if console.is_terminal else nullcontext(log)
                model.set_params(callback=stack.enter_context(shown))
                stack.callback(model.set_params, callback=None)
            yield caught


def report_errors(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command with one sentence and an exit code for each error, not a traceback."""

    @wraps(command)
    def run(**given: object) -> None:
        try:
            command(**given)
        except BrokenPipeError:  # a program like head has closed our output
            raise
        except (ValueError, OSError, ImportError, MemoryError) as error:
            no_memory = "There is not enough memory for this relation."
            message = no_memory if isinstance(error, MemoryError) else shorten(str(error))
            if not isinstance(error, DescriptionError):  # its keys are no options
                message = with_options(message)
            typer.echo(f"Error: {printable(message)}", err=True)
            raise typer.Exit(BAD_INPUT) from error
        except KeyboardInterrupt as error:  # printed here, after the progress bar is removed
            typer.echo(str(error) or "Interrupted; nothing was written.", err=True)
            raise typer.Exit(INTERRUPTED) from error

    return run


@contextmanager
def progress_bar(
    console: Console, model: "IRM | MultiIRM", fits: int
) -> Iterator[Callable[[Record], None]]:
    """Show a bar within the context and yield the callback that updates it."""
    wrap = Column(no_wrap=True, overflow="ellipsis")
    columns = (SpinnerColumn(), BarColumn(8), TextColumn("{task.description}", table_column=wrap))
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(FIRST_WORDS, total=None)
        tol = {"gibbs": 0.0, "vb": None}.get(model.inference, model.tol)
        forecast, count, lock = Forecast(tol, model.max_iter), fit_counter(fits), Lock()

        def update(sweep: Record) -> None:
            with lock:  # fits may run in several threads
                left = forecast.seconds_left(sweep)
                done = None if left is None else sweep.seconds / max(sweep.seconds + left, 1e-9)
                time = f"{timedelta(seconds=round(left))} left, " if left and left >= 1.0 else ""
                text = f"{count(sweep)}{time}{progress_line(sweep, model.inference)}"
                total = None if done is None else 1.0
                progress.update(task, description=text, total=total, completed=done or 0.0)

        yield update


def phase_of(sweep: Record, inference: str) -> str:
    """Return what a fit does in a sweep, in words.

    Examples
    --------
    >>> phase_of(SweepRecord(3, 0.2, -1.0, -2.0, 4, 3, 1.0, moved=0.1), "acvb0")
    'searching'
    """
    if inference == "gibbs":
        return "sampling"
    if sweep.moved is None:
        return f"updating memberships (change {sweep.change:.0e})"
    if isinstance(sweep, SweepRecord):
        searching = sweep.change == 2.0 * sweep.moved
    else:
        searching = sweep.phase == "search"
    return "searching" if searching else "averaging over samples"


def progress_line(sweep: Record, inference: str) -> str:
    """Return phase, clusters and evidence of a fit under way."""
    clusters: tuple[int, ...]
    if isinstance(sweep, SweepRecord):
        clusters = (sweep.row_clusters, sweep.column_clusters)
    else:
        clusters = sweep.clusters
    return (
        f"{phase_of(sweep, inference)}: {' x '.join(map(str, clusters))} clusters, "
        f"evidence {sweep.bound:,.0f}, sweep {sweep.sweep}"
    )


def progress_log(fits: int, inference: str) -> Callable[[Record], None]:
    """Return a callback that prints the first sweep, and then a line every few seconds."""
    printed, count, lock = -math.inf, fit_counter(fits), Lock()

    def log(sweep: Record) -> None:
        nonlocal printed
        with lock:
            current = count(sweep)
            if monotonic() - printed >= LOG_INTERVAL:
                printed = monotonic()
                typer.echo(
                    f"{current}{progress_line(sweep, inference)}, {sweep.seconds:.1f} s", err=True
                )

    return log


def fit_counter(fits: int) -> Callable[[Record], str]:
    """Return a function that counts fits by their first sweeps and names the current one."""
    started = 0

    def count(sweep: Record) -> str:
        nonlocal started
        started += sweep.sweep == 1
        return f"fit {max(started, 1)} of {fits}, " if fits > 1 else ""

    return count


class Forecast:
    """Estimate the time that a fit still takes.

    The change of an average decreases like a power of the number of sweeps. The last sweeps give
    the power; the fit ends at a change of ``tol`` (0: never) or after ``max_iter`` sweeps. A phase
    that ends by another rule has no forecast: the search ends when nothing gains, which cannot be
    foreseen. Its records have ``moved``; a ``tol`` of None means that the method has such a rule.
    """

    def __init__(self, tol: float | None, max_iter: int) -> None:
        self.tol = tol
        self.max_iter = max_iter
        self.recent: deque[Record] = deque(maxlen=WINDOW)

    def seconds_left(self, sweep: Record) -> float | None:
        """Record a sweep and return the seconds to the end; None if they cannot be estimated."""
        if self.recent and sweep.sweep <= self.recent[-1].sweep:
            self.recent.clear()  # another fit has started
        if self.tol is None or (self.tol > 0.0 and sweep.moved is not None):
            return None
        self.recent.append(sweep)
        first = self.recent[0]
        if sweep.sweep == first.sweep:
            return None
        per_sweep = (sweep.seconds - first.seconds) / (sweep.sweep - first.sweep)
        left, most = self._sweeps_left(first, sweep), max(self.max_iter - sweep.sweep, 0)
        if left is None or (most < left < math.inf and len(self.recent) < WINDOW):
            return None  # too few sweeps for a distant end
        return per_sweep * min(left, most)

    def _sweeps_left(self, first: Record, last: Record) -> float | None:
        """Return the number of sweeps until the change is ``tol``."""
        assert self.tol is not None
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
