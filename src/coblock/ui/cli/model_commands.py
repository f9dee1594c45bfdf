"""Define the commands on fitted models: ``report``, ``predict``, ``recommend`` and ``export``."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from coblock.ui.cli.console import OutputOptions
from coblock.ui.cli.options import OUTPUT, Force, Formulas, ModelFile, ReadOptions
from coblock.ui.cli.results import REPORT, check_folder, load_model

if TYPE_CHECKING:
    import polars as pl

    from coblock.estimator import IRM

TABLES, GRAPHS = ("csv", "parquet"), ("graphml", "gml")
FORMATS = (*TABLES, "json", *GRAPHS)

TableFile = Annotated[
    Path | None,
    Option(
        "--out", "-o", help="CSV file to write. Default: standard output.", rich_help_panel=OUTPUT
    ),
]


def report(
    model: ModelFile,
    output: OutputOptions,
    out: Annotated[
        Path | None, Option("--out", "-o", help="HTML file. Default: report.html with the model.")
    ] = None,
    title: Annotated[str | None, Option(help="Page title. Default: the relation's size.")] = None,
) -> None:
    """Write the report of a fitted model: one HTML page that needs no network.

    Example:  coblock report result --title "Our shops"
    """
    fitted = load_model(model)
    path = out or (model if model.is_dir() else model.parent) / REPORT
    fitted.report(path, title=title)
    output.show_file(path)


def predict(
    model: ModelFile,
    edges: Annotated[Path, Argument(help="File of edges of the new rows.", metavar="EDGES")],
    read_options: ReadOptions,
    output: OutputOptions,
    out: TableFile = None,
    formulas: Formulas = False,
) -> None:
    """Find the clusters of new rows; the model does not change.

    Columns are matched by name. A column of the model that is not in the file counts as a zero of
    every new row, not as unseen.

    Example:  coblock predict result new-customers.csv --out new-clusters.csv
    """
    from coblock.analysis.prediction import align
    from coblock.io.export import membership_frame

    fitted = load_model(model)
    reading = read_options.read(edges, output.note)
    columns = _names(fitted, 1)
    new, unknown = align(reading.relation, columns)
    if len(unknown) == reading.columns:
        msg = (
            f"None of the {reading.columns:,} columns of {edges} is in the model; the first is "
            f"{unknown[0]!r}, and the model's first is {columns[0]!r}. Select other columns of the "
            "file with --row and --column, or use the model of these data."
        )
        raise ValueError(msg)
    if unknown:
        output.note(
            f"{len(unknown):,} of {reading.columns:,} columns are not in the model and were left "
            f"out; the first is {unknown[0]!r}."
        )
    names = new.row_names or tuple(map(str, range(new.shape[0])))
    table = membership_frame(names, fitted.predict_membership(new))
    _write_table(table, out, formulas, output)


def recommend(
    model: ModelFile,
    output: OutputOptions,
    rows: Annotated[
        list[str] | None,
        Option("--rows", "-r", help="Name of a row; may be repeated. Default: all rows."),
    ] = None,
    n: Annotated[int, Option("-n", min=1, help="Number of columns for each row.")] = 10,
    seen: Annotated[
        bool, Option("--seen", help="Include columns that the row is linked to already.")
    ] = False,
    out: TableFile = None,
    formulas: Formulas = False,
) -> None:
    """List, for each row, the most probable columns that it is not linked to.

    Example:  coblock recommend result --rows ann --rows bob -n 5
    """
    import numpy as np

    from coblock.io.export import recommendation_frame

    fitted = load_model(model)
    names = _names(fitted, 0)
    position = {name: i for i, name in enumerate(names)}
    missing = [name for name in rows or () if name not in position]
    if missing:
        msg = (
            f"{len(missing):,} of {len(rows or ()):,} rows are not in the model; the first is "
            f"{missing[0]!r}. The model has {len(names):,} rows, such as {names[0]!r}."
        )
        raise ValueError(msg)
    chosen = np.array([position[name] for name in rows]) if rows else np.arange(len(names))
    columns, probability = fitted.recommend(chosen, n, exclude_seen=not seen)
    table = recommendation_frame(fitted.result_, chosen, columns, probability)
    _write_table(table, out, formulas, output)


def export(
    model: ModelFile,
    to: Annotated[str, Option("--to", help="File format.", metavar="|".join(FORMATS))],
    out: Annotated[Path, Option("--out", "-o", help="Folder for csv and parquet, else a file.")],
    output: OutputOptions,
    graph: Annotated[
        Path | None,
        Option(
            help="GraphML or GML file; its nodes get the clusters as an attribute. Default: a new "
            "graph of the links."
        ),
    ] = None,
    force: Force = False,
    formulas: Formulas = False,
) -> None:
    """Write the clusters and blocks for other programs, as tables, JSON or a graph.

    Example:  coblock export result --to graphml --out clusters.graphml
    """
    from coblock.io.annotate import label_graph, to_graph, write_graph
    from coblock.io.atomic import write_folder
    from coblock.io.export import write_json, write_tables
    from coblock.io.readers import load_graph_file
    from coblock.model.checks import check_choice

    check_choice("--to", to, FORMATS)
    if graph is not None and to not in GRAPHS:
        msg = f"--graph can be used with --to graphml or gml, not with {to}."
        raise ValueError(msg)
    fitted = load_model(model)
    result = fitted.result_
    if to in TABLES:
        check_folder(out, force=force)
        write_folder(out, lambda new: write_tables(result, new, kind=to, formulas=formulas))
    elif to == "json":
        write_json(result, out)
    elif graph is None:
        write_graph(to_graph(fitted), out, to)
    else:
        labelled = load_graph_file(graph)
        label_graph(labelled, fitted)
        write_graph(labelled, out, to)
    output.show_file(out)


def _names(model: "IRM", d: int) -> list[str]:
    """Return the names of rows (0) or columns (1), or their positions as text."""
    from coblock.io.export import object_names

    relation = model.result_.relation
    names = object_names(relation, d)
    return list(map(str, range(relation.shape[d]))) if names is None else list(names)


def _write_table(
    table: "pl.DataFrame", out: Path | None, formulas: bool, output: OutputOptions
) -> None:
    """Write a table to a file, or to standard output as CSV or, with ``--json``, as a list."""
    from coblock.io.atomic import write_atomic
    from coblock.io.export import to_csv

    if out is not None:
        write_atomic(out, to_csv(table, formulas=formulas))
        output.show_file(out)
    elif output.as_json:
        output.show(str, {"lines": table.to_dicts()})
    else:
        typer.echo(to_csv(table, formulas=formulas), nl=False)
