"""Handle Ctrl-C in a fit that has a checkpoint."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coblock.estimator import IRM
    from coblock.model.trace import SweepRecord

SUFFIX = ".checkpoint"
STANDARD_ERROR = 2  # file descriptor
STOPPING = b"\nStopping after this sweep ... Press Ctrl-C again to stop immediately.\n"


def checkpoint_of(folder: Path) -> Path:
    """Return the checkpoint of a fit with this result folder: ``folder.checkpoint``."""
    folder = folder.resolve() if folder.name in {"", ".."} else folder
    return folder.with_name(folder.name + SUFFIX)


def folder_of(checkpoint: Path) -> Path:
    """Return the result folder of a fit with this checkpoint."""
    if checkpoint.suffix == SUFFIX:
        return checkpoint.with_suffix("")
    return checkpoint.with_name(f"{checkpoint.name}-result")


@contextmanager
def interruptible(model: "IRM") -> Iterator[None]:
    """Let Ctrl-C stop the fit of a model after the current sweep, with a checkpoint.

    A second Ctrl-C stops it immediately, with the last checkpoint, at most a minute old. The
    KeyboardInterrupt contains the command that continues the fit.
    """
    interrupted = False

    def on_signal(*_: object) -> None:
        nonlocal interrupted
        if interrupted:
            raise KeyboardInterrupt
        interrupted = True
        os.write(STANDARD_ERROR, STOPPING)  # print is not safe in a signal handler

    def on_sweep(sweep: "SweepRecord") -> object:
        answer = None if callback is None else callback(sweep)
        if interrupted:
            raise KeyboardInterrupt
        return answer

    callback: Callable[[SweepRecord], object] | None = model.callback
    handler = signal.signal(signal.SIGINT, on_signal)
    model.set_params(callback=on_sweep)
    try:
        yield
    except KeyboardInterrupt as error:
        path = Path(str(model.checkpoint))
        msg = "Interrupted before the first checkpoint; nothing was written."
        if path.exists():
            msg = f"Interrupted. To continue:  coblock resume {quote(str(path))}"
        raise KeyboardInterrupt(msg) from error
    finally:
        model.set_params(callback=callback)
        signal.signal(signal.SIGINT, handler)
