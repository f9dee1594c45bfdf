"""Define the command line: it reads files, calls the library, and writes and prints results."""

import sys
from io import TextIOWrapper
from typing import Annotated

import typer

from coblock import __version__
from coblock.ui.cli.commands import COMMANDS
from coblock.ui.cli.console import report_errors
from coblock.ui.cli.options import expand_option_groups

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_show_locals=False)


def _show_version(requested: bool) -> None:
    if requested:
        typer.echo(f"coblock {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Find blocks in relational data: clusters of rows, clusters of columns, and their links.

    Start with [bold]coblock demo[/bold], or fit your own file of edges (who links to what).

    Exit codes: 0 success, 1 not converged (the result is written), 2 bad input, 130 interrupted.

    Example:  coblock fit purchases.csv --out result
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # names may be outside of its encoding
            stream.reconfigure(errors="backslashreplace")


for _command in COMMANDS:
    app.command()(report_errors(expand_option_groups(_command)))
