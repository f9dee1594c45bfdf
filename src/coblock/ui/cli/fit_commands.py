"""Define the commands that fit: ``fit``, ``resume`` and ``demo``."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Exit, Option

from coblock.ui.cli.cluster import fit_on_scheduler
from coblock.ui.cli.console import OutputOptions
from coblock.ui.cli.errors import NOT_CONVERGED, with_options
from coblock.ui.cli.interruption import checkpoint_of, folder_of, interruptible
from coblock.ui.cli.options import (
    CLUSTER,
    OUTPUT,
    EdgesFile,
    FitOptions,
    Force,
    Formulas,
    OutFolder,
    ReadOptions,
    Seed,
)
from coblock.ui.cli.results import REPORT, check_folder, is_complete, result_data, write_results

if TYPE_CHECKING:
    from coblock.estimator import IRM


def fit(
    edges: EdgesFile,
    out: OutFolder,
    read_options: ReadOptions,
    fit_options: FitOptions,
    output: OutputOptions,
    force: Force = False,
    formulas: Formulas = False,
    title: Annotated[
        str | None, Option(help="Title of the report. Default: file name.", rich_help_panel=OUTPUT)
    ] = None,
    scheduler: Annotated[
        str | None,
        Option(
            help="Fit on the Dask cluster of this scheduler, such as tcp://host:8786. EDGES may be "
            "a folder of files that all workers can read.",
            metavar="ADDRESS",
            rich_help_panel=CLUSTER,
        ),
    ] = None,
) -> None:
    """Find the blocks in a file of edges, and write model, tables and report to a folder.

    The folder gets model.safetensors, rows.csv, columns.csv, blocks.csv, trace.csv and report.html,
    or, after an error, none of them.

    Ctrl-C stops a fit after the current sweep and prints the command that continues it.

    Example:  coblock fit purchases.csv --row customer --column product --out result
    """
    model = fit_options.estimator()
    check_folder(out, force=force)
    found: dict[str, object] = {}
    if scheduler is None:
        reading = read_options.read(edges, output.note, fit_options.relation)
        found = {"edges": reading.edges, "duplicates": reading.duplicates}
        found["notes"] = [with_options(note) for note in reading.notes]
        model.set_params(checkpoint=checkpoint_of(out))
        with output.progress(model), interruptible(model):
            model._fit(reading.relation)
    else:
        with output.progress(model):
            fit_on_scheduler(model, edges, scheduler, read_options, checkpoint_of(out))
    write_results(model, out, title=title or edges.name, formulas=formulas)
    checkpoint_of(out).unlink(missing_ok=True)
    _show_result(model, out, output, found)


def resume(
    checkpoint: Annotated[Path, Argument(help="File of an interrupted fit.", metavar="CHECKPOINT")],
    output: OutputOptions,
    out: Annotated[
        Path | None, Option("--out", "-o", help="Folder for the results. Default: as in the fit.")
    ] = None,
    formulas: Formulas = False,
) -> None:
    """Continue an interrupted fit; the result is identical to that of an uninterrupted fit.

    The checkpoint contains the data and all settings. It is removed when the result is written.

    Example:  coblock resume result.checkpoint
    """
    from coblock.loading import Unfinished

    unfinished = Unfinished.read(checkpoint)
    model, folder = unfinished.model, out or folder_of(checkpoint)
    check_folder(folder, force=True)
    with output.progress(model), interruptible(model):
        unfinished.fit()
    write_results(model, folder, title=folder.name, formulas=formulas)
    checkpoint.unlink(missing_ok=True)
    _show_result(model, folder, output, {})


def demo(
    output: OutputOptions,
    seed: Seed = 0,
    out: OutFolder = Path("coblock-demo"),
) -> None:
    """Find the blocks in the votes of a US Senate, print them and write a report.

    Example:  coblock demo --seed 1
    """
    from rich.console import Group

    from coblock.datasets import load_senate
    from coblock.estimator import IRM
    from coblock.model.relation import Relation
    from coblock.ui.mosaic import Mosaic
    from coblock.ui.terminal import report_line, senate_page

    check_folder(out, force=True)
    senate = load_senate()
    relation = Relation.build(senate.values, row_names=senate.senators, column_names=senate.votes)
    model = IRM(random_state=seed)
    with output.progress(model):
        model.fit(relation)
    write_results(model, out, title="Roll calls of the 109th US Senate")
    output.show(
        lambda: Group(
            senate_page(model, senate.senators, senate.parties),
            Mosaic(relation, model.result_.labels),
            report_line(out / REPORT),
        ),
        result_data(model, out),
    )


def _show_result(model: "IRM", out: Path, output: OutputOptions, found: dict[str, object]) -> None:
    """Print the result of a fit; exit with code 1 if it has not converged."""
    from coblock.ui.terminal import result_page

    if not is_complete(model):
        output.note(
            f"The fit had not converged after {model.n_iter_:,} sweeps. The result is written, and "
            "trace.csv has the change in each sweep. For a better result, fit with a larger "
            f"--max-iter (it was {model.max_iter:,}) or --tol."
        )
    output.show(lambda: result_page(model, out / REPORT), {**result_data(model, out), **found})
    if not is_complete(model):
        raise Exit(NOT_CONVERGED)
