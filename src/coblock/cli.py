"""The command line."""

from typing import Annotated

import typer

app = typer.Typer(
    help="coblock finds the blocks in relational data.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
)


@app.callback()
def main() -> None:
    """Find the blocks in relational data: groups of rows, groups of columns, how they link."""


@app.command()
def demo(
    seed: Annotated[int, typer.Option(help="Same seed, same result.")] = 0,
) -> None:
    """Find the blocks in the votes of a US Senate and show them.

    Example:  coblock demo --seed 1
    """
    from rich.console import Console

    from coblock.datasets import load_senate
    from coblock.estimator import IRM
    from coblock.terminal import senate_page

    console = Console()
    senate = load_senate()
    with console.status("Finding the blocks; the first run compiles the kernels ..."):
        model = IRM(random_state=seed).fit(senate.values)
    console.print(senate_page(model, senate.senators, senate.parties))


if __name__ == "__main__":
    app()
