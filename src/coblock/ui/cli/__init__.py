"""The command line: it reads, calls the library, writes, and tells; it holds no mathematics.

Exit codes: 0 all is well, 1 the fit did not converge (its result is written), 2 the input is bad.
"""

from typing import Annotated

import typer

from coblock.ui.cli.data_commands import evaluate, generate
from coblock.ui.cli.failures import guarded
from coblock.ui.cli.fit_commands import demo, fit, resume
from coblock.ui.cli.model_commands import export, predict, recommend, report
from coblock.ui.cli.options import spread

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_show_locals=False,
)

COMMANDS = (fit, resume, report, predict, recommend, evaluate, generate, export, demo)


def _tell_version(asked: bool) -> None:
    if asked:
        from coblock import __version__

        typer.echo(f"coblock {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_tell_version, is_eager=True, help="Tell the version."),
    ] = False,
) -> None:
    """Find the blocks in relational data: groups of rows, groups of columns, how they link.

    Exit codes: 0 all is well, 1 not converged (the result is written), 2 bad input.

    Example:  coblock fit purchases.csv --out result
    """


for _command in COMMANDS:
    app.command()(guarded(spread(_command)))
