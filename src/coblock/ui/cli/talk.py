"""What is told to the person, and what to the next program."""

import json
import math
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coblock.io.sanitize import printable
from coblock.ui.cli.failures import in_options
from coblock.ui.cli.options import OUTPUT

if TYPE_CHECKING:
    from rich.console import RenderableType

    from coblock.estimator import IRM
    from coblock.model.trace import Sweep

LOG_EVERY = 2.0  # seconds between the lines of a log


@dataclass(frozen=True, slots=True)
class Talk:
    """Results go to standard output, everything else to standard error."""

    quiet: Annotated[
        bool,
        typer.Option("--quiet", "-q", help="Tell nothing but errors.", rich_help_panel=OUTPUT),
    ] = False
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Tell the result as one JSON object.", rich_help_panel=OUTPUT),
    ] = False

    def note(self, text: str) -> None:
        """Tell a sentence on the side."""
        if not self.quiet:
            typer.echo(f"Note: {printable(in_options(text))}", err=True)

    def conclude(self, page: Callable[[], "RenderableType"], found: Mapping[str, object]) -> None:
        """Tell the result: to a program with ``--json``, else to a person."""
        if self.as_json:
            typer.echo(json.dumps(_without_nan(found), allow_nan=False))
        elif not self.quiet:
            from rich.console import Console

            Console().print(page())

    @contextmanager
    def watching(self, model: "IRM", fits: int | None = None) -> Iterator[list[Warning]]:
        """Tell of the sweeps of a model and of warnings while the context lasts.

        It gives the list of the warnings.

        Parameters
        ----------
        model : IRM
            Gets a callback for that time.
        fits : int, optional
            How many there will be; by default the model's ``n_init``.
        """
        from rich.console import Console

        console, fits = Console(stderr=True), fits or model.n_init
        with warnings.catch_warnings(), ExitStack() as stack:
            heard: list[Warning] = []
            warnings.showwarning = self._hear(heard)
            if not self.quiet and console.is_terminal:
                from coblock.ui.cli.bar import bar

                callback = stack.enter_context(bar(console, model, fits))
                stack.enter_context(_called(model, callback))
            elif not self.quiet:
                stack.enter_context(_called(model, _log(fits)))
            yield heard

    def _hear(self, heard: list[Warning]) -> Callable[..., None]:
        """Return what is called with every warning."""

        def hear(message: Warning, *_: object, **__: object) -> None:
            heard.append(message)
            self.note(str(message))

        return hear


@contextmanager
def _called(model: "IRM", callback: "Callable[[Sweep], object]") -> Iterator[None]:
    model.set_params(callback=callback)
    try:
        yield
    finally:
        model.set_params(callback=None)


def _log(fits: int) -> "Callable[[Sweep], object]":
    """Return a callback for a log: the first sweep, then a line every few seconds."""
    from coblock.model.trace import sweep_line
    from coblock.ui.cli.progress import counted

    told, which, lock = -math.inf, counted(fits), Lock()

    def tell(sweep: "Sweep") -> None:
        nonlocal told
        with lock:
            fit = which(sweep)
            if monotonic() - told >= LOG_EVERY:
                told = monotonic()
                typer.echo(fit + sweep_line(sweep), err=True)

    return tell


def write_bytes(data: bytes) -> None:
    """Write a result to standard output as it is."""
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def _without_nan(value: Any) -> Any:
    """Return numbers that JSON does not know as null."""
    if isinstance(value, Mapping):
        return {key: _without_nan(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
