"""Commands around data: ``evaluate`` a relation, ``generate`` one."""

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coblock.ui.cli.failures import NOT_CONVERGED
from coblock.ui.cli.options import EdgesFile, Fitting, Force, Layout, Seed
from coblock.ui.cli.results import check_folder
from coblock.ui.cli.talk import Talk

if TYPE_CHECKING:
    import polars as pl
    from rich.console import RenderableType

    from coblock.generate import Drawn


def evaluate(
    edges: EdgesFile,
    layout: Layout,
    fitting: Fitting,
    talk: Talk,
    share: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Of the observed cells, held out in each run.")
    ] = 0.1,
    runs: Annotated[int, typer.Option(min=1, help="Each holds out other cells.")] = 5,
    largest: Annotated[
        int, typer.Option(min=2, help="Held-out cells of a run; of more, a sample is taken.")
    ] = 5_000_000,
) -> None:
    """Hide a tenth of the cells, fit the rest, score the hidden ones; several times.

    Example:  coblock evaluate purchases.csv --runs 10 --inference cvb0
    """
    from sklearn.exceptions import ConvergenceWarning

    from coblock.analysis.evaluation import evaluate as run_protocol
    from coblock.ui.cli.fit_commands import tell_reading

    model = fitting.estimator()
    reading = layout.read(edges, fitting.relation)
    tell_reading(reading, talk)
    with talk.watching(model, fits=runs * fitting.n_init) as heard:
        found = run_protocol(
            reading.relation, model, share=share, runs=runs, seed=fitting.seed, largest=largest
        )

    def page() -> "RenderableType":
        from coblock.ui.terminal import evaluation_page

        return evaluation_page(found, share)

    converged = not any(isinstance(warning, ConvergenceWarning) for warning in heard)
    talk.conclude(page, asdict(found) | {"share": share, "converged": converged})
    if not converged:
        raise typer.Exit(NOT_CONVERGED)


def generate(
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Folder for the files.", show_default=False)
    ],
    talk: Talk,
    rows: Annotated[int, typer.Option(min=1, help="Number of rows.")] = 100,
    columns: Annotated[int, typer.Option(min=1, help="Number of columns.")] = 200,
    clusters: Annotated[
        tuple[int, int],
        typer.Option(help="Clusters of rows and of columns; 0 0 draws their numbers, too."),
    ] = (4, 5),
    alpha: Annotated[float, typer.Option(help="Concentration, where the numbers are drawn.")] = 1.0,
    seed: Seed = 0,
    force: Force = False,
) -> None:
    """Draw a relation from the model: edges.csv, and the true clusters in rows.csv and columns.csv.

    Example:  coblock generate --rows 100 --columns 200 --clusters 4 5 --out made
    """
    from coblock.generate import generate as draw
    from coblock.generate import planted
    from coblock.io.atomic import write_folder, write_whole

    check_folder(out, force=force)
    if clusters == (0, 0):
        drawn = draw(rows, columns, alpha=alpha, random_state=seed)
    else:
        drawn = planted((rows, columns), clusters, seed)
    tables = _tables(drawn)

    def fill(place: Path) -> None:
        for name, table in tables.items():
            write_whole(place / f"{name}.csv", table.write_csv().encode())

    write_folder(out, fill)
    talk.conclude(_page(drawn, out), _describe(drawn, out))


def _tables(drawn: "Drawn") -> "dict[str, pl.DataFrame]":
    import numpy as np
    import polars as pl

    names = [
        pl.Series([f"{what}{i}" for i in range(size)], dtype=pl.String)
        for what, size in zip(("row", "column"), drawn.X.shape, strict=True)
    ]
    row, column = drawn.X.nonzero()
    labels = (drawn.row_labels, drawn.column_labels)
    edges = {"row": names[0].gather(np.asarray(row)), "column": names[1].gather(np.asarray(column))}
    return {
        "edges": pl.DataFrame(edges),
        "rows": pl.DataFrame({"name": names[0], "cluster": labels[0]}),
        "columns": pl.DataFrame({"name": names[1], "cluster": labels[1]}),
    }


def _describe(drawn: "Drawn", out: Path) -> dict[str, object]:
    K1, K2 = drawn.probability.shape
    return {
        "rows": drawn.X.shape[0],
        "columns": drawn.X.shape[1],
        "links": int(drawn.X.nnz),
        "row_clusters": K1,
        "column_clusters": K2,
        "files": {name: str(out / name) for name in ("edges.csv", "rows.csv", "columns.csv")},
    }


def _page(drawn: "Drawn", out: Path) -> "Callable[[], RenderableType]":
    def page() -> "RenderableType":
        from rich.console import Group

        from coblock.ui.terminal import file_line

        K1, K2 = drawn.probability.shape
        drawn_line = (
            f"{drawn.X.nnz:,} links between {drawn.X.shape[0]:,} rows in {K1} clusters and "
            f"{drawn.X.shape[1]:,} columns in {K2} clusters."
        )
        return Group(drawn_line, file_line(out))

    return page
