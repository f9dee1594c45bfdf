"""What goes wrong is told in a sentence, with the right exit code."""

import re
from collections.abc import Callable
from functools import wraps
from typing import NoReturn

import typer

from coblock.io.sanitize import printable

NOT_CONVERGED, BAD_INPUT, INTERRUPTED = 1, 2, 130
_WORDS = {
    "header=False": "--no-header",
    "header=True": "--header",
    "max_iter (": "--max-iter (",
    ") or tol;": ") or --tol;",
    "look at trace_": "look at trace.csv",
}
_PARAMETER = re.compile(
    r"\b(?P<name>binarize|column|delimiter|encoding|inference|max_clusters|prior|relation|row|unseen"
    r"|value)=(?P<value>'[\w-]*'|\w*)"
)


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
        except KeyboardInterrupt as error:  # told here, when no bar is in the way any more
            typer.echo(str(error) or "Interrupted; nothing was written.", err=True)
            raise typer.Exit(INTERRUPTED) from error

    return run


def in_options(text: str) -> str:
    """Return advice that names parameters of the library in the words of the command line.

    Examples
    --------
    >>> in_options("Say relation='directed', header=False, or name it with value=.")
    'Say --relation directed, --no-header, or name it with --value.'
    """
    for ours, its in _WORDS.items():
        text = text.replace(ours, its)
    return _PARAMETER.sub(lambda found: _option(found["name"], found["value"]), text)


def _option(name: str, value: str) -> str:
    return f"--{name.replace('_', '-')} {value.strip(chr(39))}".rstrip()


def _fail(message: str, code: int) -> NoReturn:
    typer.echo(f"Error: {printable(in_options(message))}", err=True)
    raise typer.Exit(code)
