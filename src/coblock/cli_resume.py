"""The command ``resume``, and what Ctrl-C does to a fit that has a checkpoint."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from types import FrameType

    from coblock.estimator import IRM
    from coblock.inference.report import Sweep

NOT_CONVERGED, BAD_INPUT, INTERRUPTED = 1, 2, 130
SUFFIX = ".checkpoint"
STANDARD_ERROR = 2


def resume(
    checkpoint: Annotated[Path, typer.Argument(help="What the interrupted fit has left.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Folder for the result; by default that of the fit."),
    ] = None,
) -> None:
    """Go on with a fit that was interrupted; the result is that of an unbroken fit, to the bit.

    The data and all settings are in the checkpoint. It is removed when the result is written.

    Example:  coblock resume result.checkpoint
    """
    from coblock.loading import Unfinished

    try:
        unfinished = Unfinished.read(checkpoint)
        model, folder = unfinished.model, out or folder_of(checkpoint)
        folder.mkdir(parents=True, exist_ok=True)
        with keeping(model):
            unfinished.fit()
        _write(model, folder)
    except (ValueError, OSError) as error:
        typer.echo(f"Error: {error}", err=True)
        raise typer.Exit(BAD_INPUT) from error
    checkpoint.unlink(missing_ok=True)
    typer.echo(f"The result is in {folder}.")
    if not (model.converged_ or model.inference == "gibbs" or model.tol == 0.0):
        raise typer.Exit(NOT_CONVERGED)


def checkpoint_of(folder: Path) -> Path:
    """Return where a fit whose result goes to ``folder`` has its checkpoint: beside it.

    Examples
    --------
    >>> checkpoint_of(Path("result")).name
    'result.checkpoint'
    """
    folder = folder.resolve() if folder.name in {"", ".."} else folder
    return folder.with_name(folder.name + SUFFIX)


def folder_of(checkpoint: Path) -> Path:
    """Return the folder for the result of a fit that has its checkpoint here.

    Examples
    --------
    >>> folder_of(Path("result.checkpoint")).name, folder_of(Path("mine")).name
    ('result', 'mine-result')
    """
    if checkpoint.suffix == SUFFIX:
        return checkpoint.with_suffix("")
    return checkpoint.with_name(f"{checkpoint.name}-result")


@contextmanager
def keeping(model: "IRM") -> Iterator[None]:
    """Let Ctrl-C end a fit between two sweeps, with a checkpoint, and say how to go on.

    A second Ctrl-C ends it at once; the checkpoint before, a minute old at most, stays.

    Parameters
    ----------
    model : IRM
        Has its ``checkpoint`` set. Its callback is called as before.
    """
    asked = False

    def ask(_signal: int, _frame: "FrameType | None") -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True
        told = b"\nStopping after this sweep ... Ctrl-C again stops at once.\n"
        os.write(STANDARD_ERROR, told)  # a print could be in the middle of another

    def look(sweep: "Sweep") -> object:
        answer = None if callback is None else callback(sweep)
        if asked:
            raise KeyboardInterrupt
        return answer

    callback: Callable[[Sweep], object] | None = model.callback
    earlier = signal.signal(signal.SIGINT, ask)
    model.set_params(callback=look)
    try:
        yield
    except KeyboardInterrupt as error:
        typer.echo(_way_on(Path(str(model.checkpoint))), err=True)
        raise typer.Exit(INTERRUPTED) from error
    finally:
        model.set_params(callback=callback)
        signal.signal(signal.SIGINT, earlier)


def _way_on(checkpoint: Path) -> str:
    """Return what to tell a person who has interrupted a fit."""
    from shlex import quote

    if not checkpoint.exists():
        return "Interrupted before there was a checkpoint."
    return f"Interrupted. To go on:  coblock resume {quote(str(checkpoint))}"


def _write(model: "IRM", folder: Path) -> None:
    """Write model, tables and report."""
    from coblock.export import write_tables
    from coblock.report import write_report

    model.save(folder / "model.safetensors")
    write_tables(model._result, folder)
    told = model.get_params()
    settings = {name: told[name] for name in told if name not in {"callback", "checkpoint"}}
    write_report(model._result, folder / "report.html", settings=settings, title=folder.name)
