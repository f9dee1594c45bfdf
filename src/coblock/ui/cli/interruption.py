"""What Ctrl-C does to a fit that has a checkpoint, and where that is."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType

    from coblock.estimator import IRM
    from coblock.model.trace import Sweep

SUFFIX = ".checkpoint"
STANDARD_ERROR = 2


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
    """Let Ctrl-C end a fit between two sweeps, with a checkpoint.

    A second Ctrl-C ends it at once; the checkpoint before, a minute old at most, stays. The
    KeyboardInterrupt that comes out says how to go on.

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
        raise KeyboardInterrupt(_way_on(Path(str(model.checkpoint)))) from error
    finally:
        model.set_params(callback=callback)
        signal.signal(signal.SIGINT, earlier)


def _way_on(checkpoint: Path) -> str:
    """Return what to tell a person who has interrupted a fit."""
    from shlex import quote

    if not checkpoint.exists():
        return "Interrupted before there was a checkpoint."
    return f"Interrupted. To go on:  coblock resume {quote(str(checkpoint))}"
