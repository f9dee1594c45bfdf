"""Commands that fit: ``fit``, ``resume`` and ``demo``."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coblock.ui.cli.cluster import fit_remotely
from coblock.ui.cli.failures import NOT_CONVERGED, in_options
from coblock.ui.cli.interruption import checkpoint_of, folder_of, keeping
from coblock.ui.cli.options import (
    CLUSTER,
    OUTPUT,
    EdgesFile,
    Fitting,
    Force,
    Formulas,
    Layout,
    Seed,
)
from coblock.ui.cli.results import (
    REPORT,
    check_folder,
    describe,
    has_converged,
    paths_in,
    write_results,
)
from coblock.ui.cli.talk import Talk

if TYPE_CHECKING:
    from rich.console import RenderableType

    from coblock.estimator import IRM
    from coblock.io.readers import Reading


def fit(
    edges: EdgesFile,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Folder for the result.", show_default=False)
    ],
    layout: Layout,
    fitting: Fitting,
    talk: Talk,
    force: Force = False,
    formulas: Formulas = False,
    title: Annotated[
        str | None, typer.Option(help="Head line of the report.", rich_help_panel=OUTPUT)
    ] = None,
    scheduler: Annotated[
        str | None,
        typer.Option(
            help="Fit on the Dask cluster of this scheduler, like tcp://host:8786; EDGES may be a "
            "folder that all its workers see.",
            metavar="ADDRESS",
            rich_help_panel=CLUSTER,
        ),
    ] = None,
) -> None:
    """Find the blocks in a file of edges, and write model, tables and report to a folder.

    The folder gets model.safetensors, rows.csv, columns.csv, blocks.csv, trace.csv and report.html:
    all of them, or none.

    Example:  coblock fit purchases.csv --row customer --column product --out result
    """
    model = fitting.estimator()
    check_folder(out, force=force)
    told: dict[str, object] = {}
    if scheduler is None:
        reading = layout.read(edges, fitting.relation)
        tell_reading(reading, talk)
        told = {"edges": reading.edges, "duplicates": reading.duplicates}
        told["notes"] = [in_options(note) for note in reading.notes]
        model.set_params(checkpoint=checkpoint_of(out))
        with talk.watching(model), keeping(model):
            model._fit(reading.relation)
    else:
        with talk.watching(model):
            fit_remotely(model, edges, scheduler, layout, checkpoint_of(out))
    write_results(model, out, title=title or edges.name, formulas=formulas)
    checkpoint_of(out).unlink(missing_ok=True)
    conclude(model, out, talk, told)


def resume(
    checkpoint: Annotated[
        Path, typer.Argument(help="What the interrupted fit has left.", metavar="CHECKPOINT")
    ],
    talk: Talk,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Folder for the result; by default that of the fit."),
    ] = None,
    formulas: Formulas = False,
) -> None:
    """Go on with a fit that was interrupted; the result is that of an unbroken fit, to the bit.

    The data and all settings are in the checkpoint. It is removed when the result is written.

    Example:  coblock resume result.checkpoint
    """
    from coblock.loading import Unfinished

    unfinished = Unfinished.read(checkpoint)
    model, folder = unfinished.model, out or folder_of(checkpoint)
    check_folder(folder, force=True)
    with talk.watching(model), keeping(model):
        unfinished.fit()
    write_results(model, folder, title=folder.name, formulas=formulas)
    checkpoint.unlink(missing_ok=True)
    conclude(model, folder, talk, {})


def demo(
    talk: Talk,
    seed: Seed = 0,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the result.")] = Path(
        "coblock-demo"
    ),
) -> None:
    """Find the blocks in the votes of a US Senate, show them and write a report.

    Example:  coblock demo --seed 1
    """
    from coblock.datasets import load_senate
    from coblock.estimator import IRM
    from coblock.model.relation import Relation

    check_folder(out, force=True)
    senate = load_senate()
    relation = Relation.build(senate.values, row_names=senate.senators, column_names=senate.votes)
    model = IRM(random_state=seed)
    with talk.watching(model):
        model.fit(relation)
    write_results(model, out, title="Roll calls of the 109th US Senate")

    def page() -> "RenderableType":
        from rich.console import Group

        from coblock.ui.mosaic import Mosaic
        from coblock.ui.terminal import report_line, senate_page

        return Group(
            senate_page(model, senate.senators, senate.parties),
            Mosaic(relation, model.result_.labels),
            report_line(out / REPORT),
        )

    talk.conclude(page, describe(model) | {"files": paths_in(out)})


def tell_reading(reading: "Reading", talk: Talk) -> None:
    """Tell what reading a file has found out."""
    for note in reading.notes:
        talk.note(note)
    if reading.duplicates:
        talk.note(
            f"{reading.duplicates:,} of {reading.edges:,} edges repeat an earlier pair and were "
            "counted once."
        )


def conclude(model: "IRM", out: Path, talk: Talk, told: Mapping[str, object]) -> None:
    """Tell what was found and where it is, and what reading has told; end with the right code."""

    def page() -> "RenderableType":
        from coblock.ui.terminal import result_page

        return result_page(model, out / REPORT)

    talk.conclude(page, {**describe(model), **told, "files": paths_in(out)})
    if not has_converged(model):
        raise typer.Exit(NOT_CONVERGED)
