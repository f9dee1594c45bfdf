"""Define the commands about data: ``evaluate`` and ``generate``."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from typer import Exit, Option

from coblock.ui.cli.console import OutputOptions
from coblock.ui.cli.errors import NOT_CONVERGED
from coblock.ui.cli.options import EdgesFile, FitOptions, Force, OutFolder, ReadOptions, Seed
from coblock.ui.cli.results import check_folder


def evaluate(
    edges: EdgesFile,
    read_options: ReadOptions,
    fit_options: FitOptions,
    output: OutputOptions,
    share: Annotated[
        float, Option(min=0.0, max=1.0, help="Share of the observed cells to hold out.")
    ] = 0.1,
    runs: Annotated[int, Option(min=1, help="Number of fits; each holds out other cells.")] = 5,
    largest: Annotated[
        int, Option(min=2, help="Most cells to hold out. A larger share is sampled.")
    ] = 5_000_000,
) -> None:
    """Measure how well a fit predicts: hold out cells, fit the others, score the held-out cells.

    Example:  coblock evaluate purchases.csv --runs 10 --inference cvb0
    """
    from sklearn.exceptions import ConvergenceWarning

    from coblock.analysis.evaluation import evaluate as run_protocol
    from coblock.ui.terminal import evaluation_page

    model = fit_options.estimator()
    reading = read_options.read(edges, output.note, fit_options.relation)
    with output.progress(model, fits=runs * fit_options.n_init) as warned:
        found = run_protocol(
            reading.relation, model, share=share, runs=runs, seed=fit_options.seed, largest=largest
        )
    unconverged = sum(isinstance(warning, ConvergenceWarning) for warning in warned)
    if unconverged:
        note = f"{unconverged} of {runs} fits had not converged after {model.max_iter:,} sweeps."
        output.note(f"{note} Increase --max-iter or --tol.")
    data = asdict(found) | {"share": share, "converged": not unconverged}
    output.show(lambda: evaluation_page(found, share), data)
    if unconverged:
        raise Exit(NOT_CONVERGED)


def generate(
    out: OutFolder,
    output: OutputOptions,
    rows: Annotated[int, Option(min=1, help="Number of rows.")] = 100,
    columns: Annotated[int, Option(min=1, help="Number of columns.")] = 200,
    clusters: Annotated[
        tuple[int, int],
        Option(help="Row clusters and column clusters; 0 0 draws both from the prior."),
    ] = (4, 5),
    alpha: Annotated[float, Option(help="Concentration of the prior, for --clusters 0 0.")] = 1.0,
    seed: Seed = 0,
    force: Force = False,
) -> None:
    """Draw a relation from the model: edges.csv, and the true clusters in rows.csv and columns.csv.

    Example:  coblock generate --rows 100 --columns 200 --clusters 4 5 --out made
    """
    import polars as pl
    from rich.console import Group

    from coblock.generate import generate as draw
    from coblock.generate import planted
    from coblock.io.atomic import write_atomic, write_folder
    from coblock.ui.terminal import file_line

    check_folder(out, force=force)
    if clusters == (0, 0):
        drawn = draw(rows, columns, alpha=alpha, random_state=seed)
    else:
        drawn = planted((rows, columns), clusters, seed)
    row, column = (index.tolist() for index in drawn.X.nonzero())
    tables: dict[str, dict[str, Any]] = {
        "edges": {"row": [f"row{i}" for i in row], "column": [f"column{j}" for j in column]},
        "rows": {"name": [f"row{i}" for i in range(rows)], "cluster": drawn.row_labels},
        "columns": {"name": [f"column{j}" for j in range(columns)], "cluster": drawn.column_labels},
    }

    def fill(staging: Path) -> None:
        for name, table in tables.items():
            write_atomic(staging / f"{name}.csv", pl.DataFrame(table).write_csv().encode())

    write_folder(out, fill)
    K1, K2 = drawn.probability.shape
    sizes = (
        f"{drawn.X.nnz:,} links between {rows:,} rows in {K1} clusters and {columns:,} columns in "
        f"{K2} clusters."
    )
    data = {
        "rows": rows,
        "columns": columns,
        "links": int(drawn.X.nnz),
        "row_clusters": K1,
        "column_clusters": K2,
        "files": {f"{name}.csv": str(out / f"{name}.csv") for name in tables},
    }
    output.show(lambda: Group(sizes, file_line(out)), data)
