"""Commands that use a fitted model: ``report``, ``predict``, ``recommend`` and ``export``."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coblock.ui.cli.options import OUTPUT, Force, Formulas, Layout, ModelFile
from coblock.ui.cli.results import REPORT, check_folder, find_model
from coblock.ui.cli.talk import Talk, write_bytes

if TYPE_CHECKING:
    import polars as pl
    from numpy.typing import NDArray
    from rich.console import RenderableType

    from coblock.estimator import IRM

TABLES, GRAPHS = ("csv", "parquet"), ("graphml", "gml")
FORMATS = (*TABLES, "json", *GRAPHS)

TableFile = Annotated[
    Path | None,
    typer.Option(
        "--out", "-o", help="CSV file to write; by default standard output.", rich_help_panel=OUTPUT
    ),
]


def report(
    model: ModelFile,
    talk: Talk,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="HTML file; by default report.html beside the model."),
    ] = None,
    title: Annotated[str | None, typer.Option(help="Head line of the page.")] = None,
) -> None:
    """Write the report of a model again: one HTML page that needs nothing else.

    Example:  coblock report result/model.safetensors --title "Our shops"
    """
    fitted = find_model(model)
    place = out or (model if model.is_dir() else model.parent) / REPORT
    fitted.report(place, title=title)
    _tell_file(talk, place)


def predict(
    model: ModelFile,
    edges: Annotated[
        Path, typer.Argument(help="Edges of the new rows.", metavar="EDGES", show_default=False)
    ],
    layout: Layout,
    talk: Talk,
    out: TableFile = None,
    formulas: Formulas = False,
) -> None:
    """Find the clusters of new rows; columns are matched by name, the model does not change.

    Columns of the model that the file does not name are zeros of the new rows, not unseen.

    Example:  coblock predict result new-customers.csv --out new-clusters.csv
    """
    from coblock.analysis.prediction import align
    from coblock.io.export import membership_frame
    from coblock.ui.cli.fit_commands import tell_reading

    fitted = find_model(model)
    reading = layout.read(edges)
    tell_reading(reading, talk)
    columns = _names(fitted, 1)
    new, unknown = align(reading.relation, columns)
    if len(unknown) == reading.columns:
        msg = (
            f"None of the {reading.columns:,} columns of {edges} is in the model; the first is "
            f"{unknown[0]!r}, and the model's first is {columns[0]!r}. Name other columns of the "
            "file with --row and --column, or use the model of these data."
        )
        raise ValueError(msg)
    if unknown:
        talk.note(
            f"{len(unknown):,} of {reading.columns:,} columns are not in the model and were left "
            f"out; the first is {unknown[0]!r}."
        )
    names = new.row_names or tuple(map(str, range(new.shape[0])))
    table = membership_frame(names, fitted.predict_membership(new))
    _put_table(table, out, formulas, talk)


def recommend(
    model: ModelFile,
    talk: Talk,
    rows: Annotated[
        list[str] | None,
        typer.Option("--rows", "-r", help="Name of a row; may be repeated. By default all."),
    ] = None,
    n: Annotated[int, typer.Option("-n", min=1, help="Columns for each row.")] = 10,
    seen: Annotated[
        bool, typer.Option("--seen", help="Links that are there already, too.")
    ] = False,
    out: TableFile = None,
    formulas: Formulas = False,
) -> None:
    """List for each row the most probable columns that it is not yet linked to.

    Example:  coblock recommend result --rows ann --rows bob -n 5
    """
    from coblock.io.export import recommendation_frame

    fitted = find_model(model)
    chosen = _positions(fitted, rows)
    columns, probability = fitted.recommend(chosen, n, exclude_seen=not seen)
    table = recommendation_frame(fitted.result_, chosen, columns, probability)
    _put_table(table, out, formulas, talk)


def export(
    model: ModelFile,
    to: Annotated[str, typer.Option("--to", help="Form of the files.", metavar="|".join(FORMATS))],
    out: Annotated[
        Path,
        typer.Option("--out", "-o", help="Folder for csv and parquet, else a file."),
    ],
    talk: Talk,
    graph: Annotated[
        Path | None,
        typer.Option(help="GraphML or GML file whose nodes get the clusters, all else kept."),
    ] = None,
    force: Force = False,
    formulas: Formulas = False,
) -> None:
    """Write clusters and blocks for other programs: tables, JSON, or a graph with clusters.

    Example:  coblock export result --to graphml --out clusters.graphml
    """
    from coblock.model.checks import check_choice

    check_choice("--to", to, FORMATS)
    if graph is not None and to not in GRAPHS:
        msg = f"--graph goes with --to graphml or gml, not with {to}."
        raise ValueError(msg)
    if to in TABLES:
        check_folder(out, force=force)
    fitted = find_model(model)
    if to in TABLES:
        _export_tables(fitted, out, to, formulas)
    elif to == "json":
        from coblock.io.export import write_json

        write_json(fitted.result_, out)
    else:
        _export_graph(fitted, out, to, graph)
    _tell_file(talk, out)


def _export_tables(model: "IRM", out: Path, kind: str, formulas: bool) -> None:
    from coblock.io.atomic import write_folder
    from coblock.io.export import write_tables

    write_folder(
        out, lambda place: write_tables(model.result_, place, kind=kind, formulas=formulas)
    )


def _export_graph(model: "IRM", out: Path, kind: str, graph: Path | None) -> None:
    from coblock.io.annotate import label_graph, to_graph, write_graph
    from coblock.io.readers import load_graph_file

    if graph is None:
        labelled = to_graph(model)
    else:
        labelled = load_graph_file(graph)
        label_graph(labelled, model)
    write_graph(labelled, out, kind)


def _names(model: "IRM", domain: int) -> list[str]:
    """Return the names of rows (0) or columns (1), or their positions as text."""
    from coblock.io.export import object_names

    relation = model.result_.relation
    names = object_names(relation, domain)
    return list(map(str, range(relation.shape[domain]))) if names is None else list(names)


def _positions(model: "IRM", rows: list[str] | None) -> "NDArray":  # type: ignore[type-arg]
    """Return where the named rows stand; all of them where none is named."""
    import numpy as np

    names = _names(model, 0)
    if not rows:
        return np.arange(len(names))
    position = {name: at for at, name in enumerate(names)}
    missing = [name for name in rows if name not in position]
    if missing:
        msg = (
            f"{len(missing):,} of {len(rows):,} rows are not in the model; the first is "
            f"{missing[0]!r}. The model has {len(names):,} rows, such as {names[0]!r}."
        )
        raise ValueError(msg)
    return np.array([position[name] for name in rows], dtype=np.int64)


def _put_table(table: "pl.DataFrame", out: Path | None, formulas: bool, talk: Talk) -> None:
    """Write a table to a file or to standard output; with ``--json`` it is a list there."""
    from coblock.io.atomic import write_whole
    from coblock.io.export import to_csv

    if out is not None:
        write_whole(out, to_csv(table, formulas=formulas))
        _tell_file(talk, out)
    elif talk.as_json:
        talk.conclude(str, {"lines": table.to_dicts()})
    else:
        write_bytes(to_csv(table, formulas=formulas))


def _tell_file(talk: Talk, path: Path) -> None:
    def page() -> "RenderableType":
        from coblock.ui.terminal import file_line

        return file_line(path)

    talk.conclude(page, {"out": str(path)})
