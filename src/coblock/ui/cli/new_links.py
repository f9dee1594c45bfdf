"""Define the commands for new rows and new links of a fitted model."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from coblock.io import printable, refuse
from coblock.ui.cli import options, results, several
from coblock.ui.cli.console import OutputOptions
from coblock.ui.cli.options import Formulas, ReadOptions

if TYPE_CHECKING:
    import polars as pl
    from rich.table import Table

    from coblock.estimator import IRM
    from coblock.multi import MultiIRM

RelationName = Annotated[
    str | None, Option("--relation", help="Several relations: the name of one.", metavar="NAME")
]


def predict(
    model: options.ModelFile,
    edges: Annotated[Path, Argument(help="File of edges of the new rows.", metavar="EDGES")],
    read_options: ReadOptions,
    output: OutputOptions,
    relation: RelationName = None,
    out: options.TableFile = None,
    formulas: Formulas = False,
) -> None:
    """Find the clusters of new rows; the model does not change.

    With a model of several relations, EDGES is a table of cells of one of them, with a column for
    each place; each cell gets its predictive mean, or its most probable category.

    Columns are matched by name. A column of the model that is not in the file counts as a zero of
    every new row, not as unseen.

    Example:  coblock predict result new-customers.csv --out new-clusters.csv
    """
    from coblock.analysis.prediction import align, most_probable_label
    from coblock.io.export import make_frame, object_columns

    results.make_parents(out)
    fitted = results.load_model(model)
    if results.is_several(fitted):
        several.refuse_options(read_options)
        cells = _predict_cells(fitted, edges, relation)
        _write_table(cells, out, formulas, output)
        return
    _refuse_several({"relation": relation})
    reading = read_options.read(edges, output)
    columns = _names(fitted, 1)
    new, unknown = align(reading.relation, columns)
    if len(unknown) == reading.columns:
        refuse(
            f"None of the {reading.columns:,} columns of {edges} is in the model; the first is "
            f"{unknown[0]!r}, and the model's first is {columns[0]!r}. Select other columns of the "
            "file with --row and --column, or use the model of these data."
        )
    if unknown:
        output.note(
            f"{len(unknown):,} of {reading.columns:,} columns are not in the model and were left "
            f"out; the first is {unknown[0]!r}."
        )
    names = new.row_names or tuple(map(str, range(new.shape[0])))
    q = fitted.predict_membership(new)
    table = make_frame(object_columns(names, most_probable_label(fitted.result_, q), q))
    _write_table(table, out, formulas, output)


def recommend(
    model: options.ModelFile,
    output: OutputOptions,
    rows: Annotated[
        list[str] | None,
        Option("--rows", "-r", help="Name of a row; may be repeated. Default: all rows."),
    ] = None,
    n: Annotated[int, Option("-n", min=1, help="Number of columns for each row.")] = 10,
    seen: Annotated[
        bool, Option("--seen", help="Include columns that the row is linked to already.")
    ] = False,
    relation: RelationName = None,
    at: Annotated[
        list[str] | None,
        Option(
            "--at",
            help="Several relations: the name at a place. Repeat it for all places but one.",
            metavar="PLACE=NAME",
        ),
    ] = None,
    out: options.TableFile = None,
    formulas: Formulas = False,
) -> None:
    """List, for each row, the most probable columns that it is not linked to.

    The lift is the probability over the share of links of the column. Equal probabilities are
    ordered by lift, and then by name. With a model of several relations, the objects at one place
    of a relation are ranked by predictive mean, those that are linked already included.

    Example:  coblock recommend result --rows ann --rows bob -n 5
    """
    import numpy as np

    from coblock.io.export import make_frame, recommendation_columns
    from coblock.model.checks import check_positions

    results.make_parents(out)
    fitted = results.load_model(model)
    if results.is_several(fitted):
        if rows or seen:
            refuse("--rows and --seen are for one relation. Use --at PLACE=NAME for several.")
        table = _rank_objects(fitted, relation, at, n)
        _write_table(table, out, formulas, output)
        return
    _refuse_several({"relation": relation, "at": at})
    names = _names(fitted, 0)
    chosen = np.arange(len(names))
    if rows:
        chosen = check_positions(rows, len(names), "row", names)
    columns, probability = fitted.recommend(chosen, n, exclude_seen=not seen)
    table = make_frame(recommendation_columns(fitted.result_, chosen, columns, probability))
    _write_table(table, out, formulas, output)


def _refuse_several(given: dict[str, object]) -> None:
    """Refuse options that only models of several relations have."""
    names = [f"--{name}" for name, value in given.items() if value]
    if names:
        refuse(f"{', '.join(names)} is for several relations, and the model has one. Leave it out.")


def _names(model: "IRM", d: int) -> list[str]:
    """Return the names of rows (0) or columns (1), or their positions as text."""
    from coblock.io.export import object_names

    relation = model.result_.relation
    names = object_names(relation, d)
    return list(map(str, range(relation.shape[d]))) if names is None else list(names)


def _write_table(
    table: "pl.DataFrame", out: Path | None, formulas: bool, output: OutputOptions
) -> None:
    """Write a table to a file, or to standard output as CSV or, with ``--json``, as a list.

    A terminal gets a table for people, with names without control characters; pipes and files get
    them unchanged.
    """
    from coblock.io.atomic import write_atomic
    from coblock.io.export import to_csv

    if out is not None:
        write_atomic(out, to_csv(table, formulas=formulas))
        output.show_file(out)
    elif output.as_json:
        output.show(str, {"lines": table.to_dicts()})
    elif sys.stdout.isatty():
        output.show(lambda: _page_of(table), {})
    else:
        typer.echo(to_csv(table, formulas=formulas), nl=False)


def _page_of(table: "pl.DataFrame") -> "Table":
    """Return a table for a terminal."""
    from rich.table import Table
    from rich.text import Text

    page = Table(box=None, padding=(0, 2, 0, 0), show_edge=False, header_style="none")
    for name, kind in table.schema.items():
        page.add_column(name, justify="right" if kind.is_numeric() else "left")
    for line in table.iter_rows():
        cells = (f"{value:.3g}" if isinstance(value, float) else str(value) for value in line)
        page.add_row(*(Text(printable(cell)) for cell in cells))
    return page


# Several relations


def _choose_relation(model: "MultiIRM", relation: str | None) -> str:
    """Return the relation to use; without a name, the only one."""
    names = list(model.relations_)
    if relation is None and len(names) > 1:
        refuse(
            f"The model has {len(names)} relations. Name one with --relation: {', '.join(names)}."
        )
    return names[0] if relation is None else model.result_.data.table(relation).name


def _predict_cells(model: "MultiIRM", path: Path, relation: str | None) -> "pl.DataFrame":
    """Return the cells of a table with their predictive means, or most probable categories."""
    import polars as pl

    from coblock.io.listing import read_frame

    name = _choose_relation(model, relation)
    table = model.result_.data.table(name)
    frame = read_frame(path, list(table.places))
    lost = [place for place in table.places if place not in frame.columns]
    if lost:
        refuse(
            f"{path} has no column '{lost[0]}'. The columns must be the places of relation "
            f"'{name}': {', '.join(table.places)}."
        )
    frame = frame.select(table.places)
    given = {place: _as_given(model, name, place, frame[place].to_list()) for place in table.places}
    mean = model.predict(name, **given)
    if mean.ndim == 1:
        return frame.with_columns(predicted_mean=pl.Series(mean))
    categories, best = getattr(table.likelihood, "categories", ()), mean.argmax(axis=1)
    return frame.with_columns(
        predicted_category=pl.Series([str(categories[k]) for k in best.tolist()]),
        predicted_probability=pl.Series(mean.max(axis=1)),
    )


def _rank_objects(
    model: "MultiIRM", relation: str | None, at: list[str] | None, n: int
) -> "pl.DataFrame":
    """Return the objects with the largest predictive mean at the place that is not given."""
    import polars as pl

    name = _choose_relation(model, relation)
    places = model.result_.data.table(name).places
    given: dict[str, Any] = {}
    for text in at or ():
        place, equals, each = text.partition("=")
        if not equals or place not in places or place in given:
            refuse(
                f"--at {text!r} must be PLACE=NAME, each place once. The places of relation "
                f"'{name}' are: {', '.join(places)}."
            )
        given[place] = _as_given(model, name, place, [each])[0]
    if len(given) != len(places) - 1:
        refuse(
            f"Relation '{name}' has the places {', '.join(places)}. Give all but one with --at "
            "PLACE=NAME; the objects at the other place are listed."
        )
    found = model.rank(name, n, **given)
    columns = {
        "rank": list(range(1, len(found) + 1)),
        "name": [str(each) for each, _ in found],
        "mean": [value for _, value in found],
    }
    return pl.DataFrame(columns)


def _as_given(model: "MultiIRM", relation: str, place: str, names: list[Any]) -> list[Any]:
    """Return names as they are, and positions of objects without names as numbers."""
    data = model.result_.data
    table = data.table(relation)
    if data.domains[table.domains[table.places.index(place)]].names is not None:
        return [str(name) for name in names]
    wrong = [name for name in names if not str(name).isdecimal()]
    if wrong:
        refuse(f"The objects at place '{place}' have no names, but positions from 0.")
    return [int(name) for name in names]
