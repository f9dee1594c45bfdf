"""Fit and use models of several relations: what the commands do when they are given such ones."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import typer

from coblock.io import refuse
from coblock.io.relation_files import parse_relations, read_description, read_relations
from coblock.ui.cli import results
from coblock.ui.cli.console import FIRST_WORDS, LOG_INTERVAL, NOT_CONVERGED, OutputOptions
from coblock.ui.cli.options import FitOptions, ReadOptions

if TYPE_CHECKING:
    import polars as pl

    from coblock.io.atomic import Fill
    from coblock.io.tables import Relation
    from coblock.model.multi_result import MultiRecord
    from coblock.multi import MultiIRM

INTERRUPTED = "Interrupted. The same command continues the fit."
TABLES = ("csv", "parquet")
Described = dict[str, dict[str, Any]]
METHOD = ("inference", "init", "refine", "burn_in", "tol", "max_iter")
USED = ("relation", "max_clusters", "seed", "jobs", *METHOD)  # of a fit of several relations


def describe_relations(edges: Path | None, fit_options: FitOptions) -> Described | None:
    """Return the keys of several relations, by name; None if one file of edges is given."""
    texts = fit_options.tables
    from_file = edges is not None and edges.suffix == ".toml"
    if not texts and not from_file:
        if edges is None:
            refuse("Name a file of edges, a TOML file, or relations with --relation.")
        return None
    if texts and edges is not None:
        refuse(f"Relations are given with --relation, and {edges} as well. Pass one of the two.")
    if texts:
        return parse_relations(texts)
    assert edges is not None
    if fit_options.relation:
        refuse(f"--relation cannot be used with {edges}, which describes its relations.")
    return read_description(edges)


def read_several(described: Described, output: OutputOptions) -> "dict[str, Relation]":
    """Read the files of several relations; print what was read."""
    relations = read_relations(described)
    for name, relation in relations.items():
        output.say(f"{name}: {relation!r}")
    return relations


READ = ("row", "column", "value", "wide", "layout", "absent", "query", "delimiter", "header")
USED_OF_ONE = (*USED, *READ, "encoding", "max_columns", "max_unpacked", "likelihood")
LIKELIHOODS = ("bernoulli", "poisson", "categorical", "normal")


def read_one(
    edges: Path, read_options: ReadOptions, fit_options: FitOptions, output: OutputOptions
) -> "dict[str, Relation]":
    """Read one relation with values that are not binary; print what was read."""
    from coblock.io.readers import Reader
    from coblock.io.readers.edges import Columns
    from coblock.io.readers.limits import Limits
    from coblock.io.readers.text import TextLayout
    from coblock.io.relation_files import read_single
    from coblock.model.checks import KINDS, check_choice

    check_choice("--likelihood", fit_options.likelihood, LIKELIHOODS)
    check_choice("--relation", fit_options.kind, KINDS)
    given = read_options
    text = TextLayout(given.delimiter, given.header, given.encoding)
    columns = Columns(given.row, given.column, given.value)
    limits = Limits(given.max_columns, given.max_unpacked)
    how: tuple[Any, ...] = (given.chosen_layout, given.absent, given.query)
    reader = Reader(fit_options.kind, columns, None, text, limits, *how)
    relation, notes = read_single(edges, fit_options.kind, fit_options.likelihood, reader)
    name = "standard input" if str(edges) == "-" else edges.stem
    relation.read(name)
    output.say(f"{name}: {relation!r}")
    for note in notes:
        output.note(note)
    return {name: relation}


def refuse_options(
    *groups: Any, used: tuple[str, ...] = USED, what: str = "several relations"
) -> None:
    """Refuse options that a model of several relations does not have."""
    given = [
        f"--{part.name}".replace("_", "-")
        for group in groups
        for part in fields(group)
        if part.name not in used and getattr(group, part.name) != part.default
    ]
    if given:
        refuse(
            f"{', '.join(given)} cannot be used with {what}. Leave it out; options of "
            "a relation follow its file, as in 'bought(user,item)=orders.csv;value=qty'."
        )


def fit_several(
    read: "Callable[[], dict[str, Relation]]",
    out: Path,
    fit_options: FitOptions,
    output: OutputOptions,
    *,
    force: bool,
    formulas: bool,
    title: str | None,
) -> None:
    """Read and fit several relations, and write model, tables and reports to a folder."""
    model = make_model(fit_options)
    checkpoint = results.checkpoint_of(out)
    with results.open_folder(out, force=force) as write:
        relations = read()
        model.set_params(checkpoint=checkpoint)
        if checkpoint.exists():
            output.note(f"The fit goes on from {checkpoint}, where it was interrupted.")
        with show_progress(output) as callback:
            model.set_params(callback=callback)
            with results.interruptible(model, INTERRUPTED):
                model._fit(relations, keep=True)
        model.set_params(callback=None, checkpoint=None)
        _write_folder(model, out, write, title=title or ", ".join(relations), formulas=formulas)
        checkpoint.unlink(missing_ok=True)
    show_several(model, out, output)


def make_model(fit_options: FitOptions) -> "MultiIRM":
    """Return an estimator with these parameters."""
    from coblock.multi import MultiIRM

    return MultiIRM(
        max_clusters=parse_limits(fit_options.max_clusters),
        random_state=fit_options.seed,
        n_jobs=fit_options.jobs,
        **{name: getattr(fit_options, name) for name in METHOD},
    )


def score_several(
    described: Described,
    fit_options: FitOptions,
    output: OutputOptions,
    protocol: dict[str, Any],
) -> None:
    """Hold out cells of all relations, fit the others and print the scores of each relation."""
    from rich.console import Group
    from rich.text import Text
    from sklearn.exceptions import ConvergenceWarning

    from coblock.analysis.evaluation import evaluate_several
    from coblock.io import printable
    from coblock.ui.terminal import evaluation_page

    model, relations = make_model(fit_options), read_relations(described)
    with show_progress(output) as callback, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        model.set_params(callback=callback)
        found = evaluate_several(relations, model, seed=fit_options.seed, **protocol)
    share, unconverged = protocol["share"], 0
    for warning in caught:
        if issubclass(warning.category, ConvergenceWarning):
            unconverged += 1
        else:
            output.note(str(warning.message))
    if unconverged:
        note = f"{unconverged} of {protocol['runs']} fits had not converged"
        output.note(f"{note} after {model.max_iter:,} sweeps. Increase --max-iter or --tol.")
    pages = (
        (Text(f"{printable(name)}\n"), evaluation_page(each, share), Text(""))
        for name, each in found.items()
    )
    relations_data = {name: asdict(each) for name, each in found.items()}
    data = {"relations": relations_data, "share": share, "converged": not unconverged}
    output.show(lambda: Group(*(part for page in pages for part in page)), data)
    if unconverged:
        raise typer.Exit(NOT_CONVERGED)


def resume_several(checkpoint: Path, out: Path, output: OutputOptions, *, formulas: bool) -> None:
    """Continue the fit of a checkpoint, and write the folder."""
    from coblock.loading import resume

    with results.open_folder(out, force=True) as write:
        try:
            with show_progress(output) as callback:
                model = resume(checkpoint, callback=callback, keep=True)
        except KeyboardInterrupt as error:
            raise KeyboardInterrupt(INTERRUPTED) from error
        model.set_params(callback=None, checkpoint=None)
        _write_folder(model, out, write, title=", ".join(model.relations_), formulas=formulas)
        checkpoint.unlink(missing_ok=True)
    show_several(model, out, output)


def _write_folder(
    model: "MultiIRM", out: Path, write: Callable[["Fill"], None], *, title: str, formulas: bool
) -> None:
    """Write the files of a result, and remove those of an earlier one that it does not have."""
    stale = files_in(out)
    write(fill_several(model, title=title, formulas=formulas))
    for name in stale.difference(files_of_several(model)):
        (out / name).unlink(missing_ok=True)


def parse_limits(text: str | None) -> int | dict[str, int] | None:
    """Return ``12`` as a number and ``user=4,item=8`` as a dict.

    Examples
    --------
    >>> parse_limits("user=4,item=8")
    {'user': 4, 'item': 8}
    """
    if text is None:
        return None
    try:
        if "=" not in text:
            return int(text)
        pairs = (part.rpartition("=") for part in text.split(","))
        return {domain.strip(): int(number) for domain, _, number in pairs}
    except ValueError:
        msg = f"--max-clusters must be a number, or DOMAIN=N,DOMAIN=N, but is {text!r}."
        raise ValueError(msg) from None


@contextmanager
def show_progress(output: OutputOptions) -> Iterator[Callable[["MultiRecord"], None]]:
    """Yield a callback that shows the last sweep; not on a terminal, a line every few seconds.

    Warnings about the data are notes. Fits that have not converged are noted at the end.
    """
    from rich.console import Console
    from sklearn.exceptions import ConvergenceWarning

    console, printed = Console(stderr=True), -LOG_INTERVAL

    def line(record: "MultiRecord") -> str:
        clusters = " x ".join(map(str, record.clusters))
        return (
            f"sweep {record.sweep}, {record.phase}, {clusters} clusters, "
            f"log evidence {record.log_evidence:,.0f}"
        )

    def log(record: "MultiRecord") -> None:
        nonlocal printed
        if monotonic() - printed >= LOG_INTERVAL:
            printed = monotonic()
            output.say(line(record))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.showwarning = lambda message, *_, **__: output.note(str(message))
        if output.quiet or not console.is_terminal:
            yield log
            return
        with console.status(FIRST_WORDS) as status:
            yield lambda record: status.update(line(record))


def fill_several(model: "MultiIRM", *, title: str, formulas: bool) -> "Fill":
    """Return a function that writes model, reports and tables to a folder."""
    from coblock.io.export import write_multi_tables

    def fill(staging: Path) -> None:
        model.save(staging / results.MODEL)
        write_multi_tables(model.result_, staging, formulas=formulas)
        for name in (results.REPORT, results.MARKDOWN):
            model.report(staging / name, title=title)

    return fill


def files_of_several(model: "MultiIRM") -> list[str]:
    """Return the names of the files of a result."""
    from coblock.io.export import file_stems

    domains = [f"{stem}.csv" for stem in file_stems(model.result_.data.domain_names)]
    return [results.MODEL, results.REPORT, results.MARKDOWN, *domains, "blocks.csv", "trace.csv"]


def files_in(folder: Path) -> set[str]:
    """Return the names that files of an earlier result in a folder have."""
    from coblock.io.container import has_format
    from coblock.io.model_file import MULTI_FORMAT

    names = set(results.FILES)
    if has_format(folder / results.MODEL, MULTI_FORMAT):
        names.update(files_of_several(load_several(folder)))
    return names


def load_several(folder: Path) -> "MultiIRM":
    """Load a model of several relations."""
    model: MultiIRM = results.load_model(folder)
    return model


def show_several(model: "MultiIRM", out: Path, output: OutputOptions) -> None:
    """Print the result of a fit; exit with code 1 if it has not converged."""
    from rich.console import Group
    from rich.text import Text

    from coblock.io import printable
    from coblock.ui.terminal import path_line

    complete = model.converged_ or model.inference == "gibbs" or model.tol == 0.0
    if not complete:
        output.note(
            f"The fit had not converged after {model.n_iter_:,} sweeps. The result is written. "
            f"For a better one, fit with a larger --max-iter (it was {model.max_iter:,})."
        )
    summary = "\n".join(printable(line) for line in model.summary().splitlines())
    report = (out / results.REPORT).resolve()
    data = {
        "domains": {
            name: {"objects": int(found.labels.size), "clusters": found.n_clusters}
            for name, found in model.domains_.items()
        },
        "relations": {
            name: {
                "places": found.places,
                "likelihood": found.likelihood,
                "log_evidence": float(found.log_evidence),
            }
            for name, found in model.relations_.items()
        },
        "converged": bool(model.converged_),
        "sweeps": model.n_iter_,
        "seconds": model.result_.trace[-1].seconds,
        "log_evidence": float(model.log_evidence_),
        "files": {name: str(out / name) for name in files_of_several(model)},
    }
    output.show(lambda: Group(Text(summary), path_line("\nReport: ", report)), data)
    if not complete:
        raise typer.Exit(NOT_CONVERGED)


def export_several(result: Any, to: Any, out: Path, *, force: bool, formulas: bool) -> None:
    """Write the tables of a result for other programs."""
    from coblock.io.export import write_multi_json, write_multi_tables

    if to == "json":
        write_multi_json(result, out)
    elif to in TABLES:
        with results.open_folder(out, force=force) as write:
            write(lambda new: write_multi_tables(result, new, kind=to, formulas=formulas))
    else:
        refuse(f"--to {to} is for one relation. Export several as csv, parquet or json.")


def choose_relation(model: "MultiIRM", relation: str | None) -> str:
    """Return the relation to use; without a name, the only one."""
    names = list(model.relations_)
    if relation is None and len(names) > 1:
        refuse(f"The model has {len(names)} relations. Name one with --relation: {_list(names)}.")
    return names[0] if relation is None else model.result_.data.table(relation).name


def predict_cells(model: "MultiIRM", path: Path, relation: str | None) -> "pl.DataFrame":
    """Return the cells of a table with their predictive means, or most probable categories."""
    import polars as pl

    from coblock.io.listing import read_frame

    name = choose_relation(model, relation)
    table = model.result_.data.table(name)
    if not path.is_file():
        refuse(f"There is no file {path}.", FileNotFoundError)
    frame = read_frame(path, list(table.places))
    lost = [place for place in table.places if place not in frame.columns]
    if lost:
        refuse(
            f"{path} has no column '{lost[0]}'. The columns must be the places of relation "
            f"'{name}': {_list(table.places)}."
        )
    frame = frame.select(table.places)
    given = {place: as_given(model, name, place, frame[place].to_list()) for place in table.places}
    mean = model.predict(name, **given)
    if mean.ndim == 1:
        return frame.with_columns(predicted_mean=pl.Series(mean))
    categories, best = getattr(table.likelihood, "categories", ()), mean.argmax(axis=1)
    return frame.with_columns(
        predicted_category=pl.Series([str(categories[k]) for k in best.tolist()]),
        predicted_probability=pl.Series(mean.max(axis=1)),
    )


def rank_objects(
    model: "MultiIRM", relation: str | None, at: list[str] | None, n: int
) -> "pl.DataFrame":
    """Return the objects with the largest predictive mean at the place that is not given."""
    import polars as pl

    name = choose_relation(model, relation)
    places = model.result_.data.table(name).places
    given: dict[str, Any] = {}
    for text in at or ():
        place, equals, each = text.partition("=")
        if not equals or place not in places or place in given:
            refuse(
                f"--at {text!r} must be PLACE=NAME, each place once. The places of relation "
                f"'{name}' are: {_list(places)}."
            )
        given[place] = as_given(model, name, place, [each])[0]
    if len(given) != len(places) - 1:
        refuse(
            f"Relation '{name}' has the places {_list(places)}. Give all but one with --at "
            "PLACE=NAME; the objects at the other place are listed."
        )
    found = model.rank(name, n, **given)
    columns = {
        "rank": list(range(1, len(found) + 1)),
        "name": [str(each) for each, _ in found],
        "mean": [value for _, value in found],
    }
    return pl.DataFrame(columns)


def as_given(model: "MultiIRM", relation: str, place: str, names: list[Any]) -> list[Any]:
    """Return names as they are, and positions of objects without names as numbers."""
    data = model.result_.data
    table = data.table(relation)
    if data.domains[table.domains[table.places.index(place)]].names is not None:
        return [str(name) for name in names]
    wrong = [name for name in names if not str(name).isdecimal()]
    if wrong:
        refuse(f"The objects at place '{place}' have no names, but positions from 0.")
    return [int(name) for name in names]


def _list(names: Any) -> str:
    return ", ".join(names)
