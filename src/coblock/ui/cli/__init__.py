"""Define the command line: it reads files, calls the library, and writes and prints results."""

from typing import Annotated

import typer

from coblock.ui.cli.data_commands import evaluate, generate
from coblock.ui.cli.errors import report_errors
from coblock.ui.cli.fit_commands import demo, fit, resume
from coblock.ui.cli.model_commands import export, predict, recommend, report
from coblock.ui.cli.options import expand_option_groups

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_show_locals=False,
)

COMMANDS = (demo, fit, resume, report, predict, recommend, evaluate, generate, export)


def _show_version(requested: bool) -> None:
    if requested:
        from coblock import __version__

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


for _command in COMMANDS:
    app.command()(report_errors(expand_option_groups(_command)))
