"""Turn exceptions into one sentence on standard error and an exit code."""

import re
from collections.abc import Callable
from dataclasses import fields
from functools import wraps

import typer

from coblock.io.sanitize import printable
from coblock.ui.cli.options import FitOptions, ReadOptions

NOT_CONVERGED, BAD_INPUT, INTERRUPTED = 1, 2, 130
_NAMES = "|".join(field.name for group in (ReadOptions, FitOptions) for field in fields(group))
_PARAMETER = re.compile(rf"\b(?P<name>{_NAMES})=(?P<value>'[\w-]*'|\w*)")


def report_errors(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command with error messages on standard error instead of tracebacks."""

    @wraps(command)
    def run(**given: object) -> None:
        try:
            command(**given)
        except BrokenPipeError:  # a program like head has closed our output
            raise
        except (ValueError, OSError, ImportError, MemoryError) as error:
            message = "There is not enough memory for this relation."
            if not isinstance(error, MemoryError):
                message = printable(with_options(str(error)))
            typer.echo(f"Error: {message}", err=True)
            raise typer.Exit(BAD_INPUT) from error
        except KeyboardInterrupt as error:  # printed here, after the progress bar is removed
            typer.echo(str(error) or "Interrupted; nothing was written.", err=True)
            raise typer.Exit(INTERRUPTED) from error

    return run


def with_options(text: str) -> str:
    """Replace parameters of the library (``name=value``) by options of the command line.

    Examples
    --------
    >>> with_options("Pass relation='directed', header=False, or name it with value=.")
    'Pass --relation directed, --no-header, or name it with --value.'
    """
    return _PARAMETER.sub(_option, text)


def _option(parameter: re.Match[str]) -> str:
    name, value = parameter["name"].replace("_", "-"), parameter["value"].strip("'")
    if value in {"True", "False"}:
        return f"--{name}" if value == "True" else f"--no-{name}"
    return f"--{name} {value}".rstrip()
