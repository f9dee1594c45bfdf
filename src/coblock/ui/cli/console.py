"""Print results to standard output, and progress, notes and warnings to standard error."""

import json
import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from coblock.io.sanitize import printable
from coblock.ui.cli.errors import with_options
from coblock.ui.cli.options import output_option

if TYPE_CHECKING:
    from rich.console import RenderableType

    from coblock.estimator import IRM


@dataclass(frozen=True, slots=True)
class OutputOptions:
    """Options on what is printed, and the functions that print it."""

    quiet: bool = output_option(False, "Print errors only.", "--quiet", "-q")
    as_json: bool = output_option(False, "Print the result as one JSON object.", "--json")

    def note(self, text: str) -> None:
        """Print a note."""
        if not self.quiet:
            typer.echo(f"Note: {printable(with_options(text))}", err=True)

    def show(self, page: Callable[[], "RenderableType"], data: Mapping[str, object]) -> None:
        """Print a result: ``data`` with ``--json``, else the page."""
        if self.as_json:
            typer.echo(json.dumps(_without_nan(data), allow_nan=False))
        elif not self.quiet:
            from rich.console import Console

            Console().print(page())

    def show_file(self, path: Path) -> None:
        """Print the path of a file or folder that was written."""
        from coblock.ui.terminal import file_line

        self.show(lambda: file_line(path), {"out": str(path)})

    @contextmanager
    def progress(self, model: "IRM", fits: int | None = None) -> Iterator[list[Warning]]:
        """Print the progress of ``fits`` fits of a model, and warnings; yield the warnings.

        Commands themselves report that a fit has not converged.
        """
        from rich.console import Console
        from sklearn.exceptions import ConvergenceWarning

        from coblock.ui.cli.progress import progress_bar, progress_log

        def show_warning(message: Any, *_: object, **__: object) -> None:
            caught.append(message)
            if not isinstance(message, ConvergenceWarning):
                self.note(str(message))

        caught: list[Warning] = []
        console, fits = Console(stderr=True), fits or model.n_init
        with warnings.catch_warnings(), ExitStack() as stack:
            warnings.showwarning = show_warning
            warnings.simplefilter("always", ConvergenceWarning)
            if not self.quiet:
                bar = progress_bar(console, model, fits)
                shown = bar if console.is_terminal else nullcontext(progress_log(fits))
                model.set_params(callback=stack.enter_context(shown))
                stack.callback(model.set_params, callback=None)
            yield caught


def _without_nan(value: Any) -> Any:
    """Replace numbers that JSON cannot express by None."""
    if isinstance(value, Mapping):
        return {key: _without_nan(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
