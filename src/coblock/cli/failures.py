"""What goes wrong is told in a sentence, with the right exit code."""

from collections.abc import Callable
from functools import wraps
from typing import NoReturn

import typer

from coblock.printable import printable

NOT_CONVERGED, BAD_INPUT, INTERRUPTED = 1, 2, 130


def guarded(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command with refusals as sentences on standard error instead of tracebacks."""

    @wraps(command)
    def run(**given: object) -> None:
        try:
            command(**given)
        except BrokenPipeError:  # the reader of our output has gone, as head does
            raise
        except (ValueError, OSError, ImportError) as error:
            _fail(str(error), BAD_INPUT)
        except MemoryError:
            _fail("There is not enough memory for this relation.", BAD_INPUT)
        except KeyboardInterrupt:
            _fail("Interrupted; nothing was written.", INTERRUPTED)

    return run


def _fail(message: str, code: int) -> NoReturn:
    typer.echo(f"Error: {printable(message)}", err=True)
    raise typer.Exit(code)
