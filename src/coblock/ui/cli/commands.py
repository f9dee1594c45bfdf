"""Define the commands."""

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from coblock.io import refuse
from coblock.io.relation_files import read_relations
from coblock.ui.cli import options, results, several
from coblock.ui.cli.console import NOT_CONVERGED, OutputOptions
from coblock.ui.cli.new_links import predict, recommend
from coblock.ui.cli.options import (
    ClusterOptions,
    FitOptions,
    Formulas,
    OutFolder,
    ReadOptions,
    ReportOptions,
    Seed,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from coblock.estimator import IRM
    from coblock.io.tables import Relation

TABLES, GRAPHS = ("csv", "parquet"), ("graphml", "gml")
FORMATS = (*TABLES, "json", *GRAPHS)


def fit(
    *,
    edges: options.FitFile = None,
    out: OutFolder,
    read_options: ReadOptions,
    fit_options: FitOptions,
    cluster: ClusterOptions,
    shown: ReportOptions,
    output: OutputOptions,
    force: options.Force = False,
    formulas: Formulas = False,
    title: options.ReportTitle = None,
) -> None:
    """Find the blocks in a file of edges, and write model, tables and report to a folder.

    The folder gets the model, report.html, report.md and tables, or, after an error, none of them.
    Directed and undirected relations have no columns.csv. Several relations have a table for each
    domain instead of rows.csv and columns.csv.

    Ctrl-C stops a fit after the current sweep and prints the command that continues it.

    Example:  coblock fit purchases.csv --row customer --column product --out result
    """
    from coblock.analysis.description import describe

    described = several.describe_relations(edges, fit_options)
    given: dict[str, Any] = {"force": force, "formulas": formulas, "title": title}
    if described is not None:
        several.refuse_options(read_options, fit_options, cluster, shown)
        relations = partial(several.read_several, described, output)
        _fit_several(relations, out, fit_options, output, **given)
        return
    assert edges is not None
    if fit_options.likelihood != "bernoulli":
        groups, what = (read_options, fit_options, cluster, shown), fit_options.likelihood
        several.refuse_options(*groups, used=several.USED_OF_ONE, what=f"--likelihood {what}")
        relations = partial(several.read_one, edges, read_options, fit_options, output)
        _fit_several(relations, out, fit_options, output, **given)
        return
    model = fit_options.estimator().set_params(checkpoint=results.checkpoint_of(out))
    said = shown.read()
    cluster.check()
    read: dict[str, object] = {}
    with results.open_folder(out, force=force) as write:
        if cluster.scheduler is None:
            reading = read_options.read(edges, output, fit_options.kind)
            read = {"edges": reading.edges, "duplicates": reading.duplicates}
            read["notes"] = list(map(options.with_options, reading.notes))
            results.fit_model(model, reading.relation, output)
        else:
            with output.progress(model):
                _fit_on_cluster(model, edges, cluster, read_options)
        name = "standard input" if str(edges) == "-" else edges.name
        found = describe(model.result_, **said)
        results.write_result(model, found, out, write, title=title or name, formulas=formulas)
    results.show_result(model, found, out, output, read)


def _fit_several(
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
    model = several.make_model(fit_options).set_params(checkpoint=results.checkpoint_of(out))
    with results.open_folder(out, force=force) as write:
        relations = read()
        results.fit_model(model, relations, output, advice=several.INTERRUPTED)
        title = title or ", ".join(relations)
        results.write_result(model, None, out, write, title=title, formulas=formulas)
    results.show_result(model, None, out, output)


def _fit_on_cluster(
    model: "IRM", edges: Path, cluster: ClusterOptions, read_options: ReadOptions
) -> None:
    """Fit a model on the workers of a scheduler, which see ``edges`` at the same path."""
    from coblock.distributed import ClusterError, DaskEngine, collect

    given, default = asdict(read_options), asdict(ReadOptions())
    columns = {name: given.pop(name) for name in ("row", "column", "value")}
    model.set_params(binarize=given.pop("binarize"))
    local = [name for name, value in given.items() if value != default[name]]
    if model.n_jobs != 1:
        local.append("jobs")
    if local:
        refuse(
            f"{', '.join(f'--{name}' for name in local).replace('_', '-')} cannot be used with "
            "--scheduler: the "
            "workers detect the layout of a file and have their own threads. Leave it out; unseen "
            "pairs are edges with a blank --value."
        )
    engine = DaskEngine(cluster.scheduler, **columns, security=cluster.security())
    try:
        model.set_params(engine=engine)._fit(edges.resolve(), keep=True)
        collect(model)
    except ClusterError as error:
        raise ConnectionError(str(error)) from error
    except KeyboardInterrupt:
        if not Path(str(model.checkpoint)).exists():
            raise
        raise KeyboardInterrupt(several.INTERRUPTED) from None
    finally:
        model.set_params(engine=None)


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
    from coblock.analysis.description import describe
    from coblock.loading import Unfinished

    folder = out or results.folder_of(checkpoint)
    with (
        Unfinished.open(checkpoint) as unfinished,
        results.open_folder(folder, force=True) as write,
    ):
        model = unfinished.model
        with output.progress(model), results.interruptible(model):
            unfinished.fit(keep=True)
        found, title = None, folder.name
        if results.is_several(model):
            title = ", ".join(model.relations_)
        else:
            found = describe(model.result_)
        results.write_result(model, found, folder, write, title=title, formulas=formulas)
    results.show_result(model, found, folder, output)


def demo(output: OutputOptions, seed: Seed = 0, out: OutFolder = Path("coblock-demo")) -> None:
    """Find the blocks in the votes of a US Senate, print them and write a report.

    Example:  coblock demo --seed 1
    """
    from rich.console import Group

    from coblock.analysis.description import describe
    from coblock.datasets import load_senate
    from coblock.estimator import IRM
    from coblock.model.relation import BinaryRelation
    from coblock.ui.terminal import Mosaic, path_line, senate_page

    senate = load_senate()
    relation = BinaryRelation.build(
        senate.values, row_names=senate.senators, column_names=senate.votes
    )
    model = IRM(random_state=seed)
    with results.open_folder(out, force=True) as write:
        with output.progress(model):
            model.fit(relation)
        parties = dict(zip(senate.senators, senate.parties, strict=True))
        found = describe(model.result_, labels=parties)
        title = "Roll calls of the 109th US Senate"
        results.write_result(model, found, out, write, title=title)
    output.show(
        lambda: Group(
            senate_page(model, senate.senators, senate.parties),
            Mosaic(relation, model.result_.labels),
            path_line("\nReport: ", (out / results.REPORT).resolve()),
        ),
        results.result_data(model, found, out),
    )


def evaluate(
    *,
    edges: options.FitFile = None,
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

    Two simple predictions are scored beside it: the density of the relation, and the degrees of row
    and column. Several relations are scored one by one; cells of all are held out.

    Example:  coblock evaluate purchases.csv --runs 10 --inference cvb0
    """
    from sklearn.exceptions import ConvergenceWarning

    from coblock.analysis.evaluation import evaluate as evaluate_one
    from coblock.analysis.evaluation import evaluate_several
    from coblock.ui.terminal import evaluation_page, evaluation_pages

    protocol: dict[str, Any] = {"share": share, "runs": runs, "largest": largest}
    protocol["seed"] = fit_options.seed
    described = several.describe_relations(edges, fit_options)
    model: Any
    score: Any
    if described is not None:
        several.refuse_options(read_options, fit_options)
        model = several.make_model(fit_options)
        score = partial(evaluate_several, read_relations(described))
    else:
        assert edges is not None
        model = fit_options.estimator()
        score = partial(evaluate_one, read_options.read(edges, output, fit_options.kind).relation)
    with output.progress(model, fits=runs * getattr(model, "n_init", 1)) as warned:
        found = score(model, **protocol)
    unconverged = sum(isinstance(warning, ConvergenceWarning) for warning in warned)
    if unconverged:
        note = f"{unconverged} of {runs} fits had not converged after {model.max_iter:,} sweeps."
        output.note(f"{note} Increase --max-iter or --tol.")
    data: dict[str, Any] = {"share": share, "converged": not unconverged}
    if described is None:
        output.show(lambda: evaluation_page(found, share), asdict(found) | data)
    else:
        data["relations"] = {name: asdict(each) for name, each in found.items()}
        output.show(lambda: evaluation_pages(found, share), data)
    if unconverged:
        raise typer.Exit(NOT_CONVERGED)


def report(
    model: options.ModelFile,
    shown: ReportOptions,
    output: OutputOptions,
    out: Annotated[
        Path | None,
        Option("--out", "-o", help="HTML or Markdown (.md) file. Default: report.html there."),
    ] = None,
    title: Annotated[str | None, Option(help="Page title. Default: the relation's size.")] = None,
    compare: Annotated[
        str | None,
        Option(
            help="Print the evidence of cuts of the tree at these numbers of clusters next to that "
            "of direct fits, which take time.",
            metavar="N,N,...",
        ),
    ] = None,
) -> None:
    """Write the report of a fitted model: one HTML page that needs no network, or Markdown.

    Example:  coblock report result --title "Our shops"
    """
    path = out or (model if model.is_dir() else model.parent) / results.REPORT
    results.make_parents(path)
    fitted = results.load_model(model)
    if results.is_several(fitted):
        several.refuse_options(shown)
        if compare is not None:
            refuse("--compare is for one binary relation. Leave it out.")
    fitted.report(path, title=title, **({} if results.is_several(fitted) else shown.read()))
    output.show_file(path)
    if compare is not None:
        results.show_cuts(fitted, compare, output)


def export(
    model: options.ModelFile,
    to: Annotated[Any, Option("--to", help="File format.", metavar="|".join(FORMATS))],
    out: Annotated[Path, Option("--out", "-o", help="Folder for csv and parquet, else a file.")],
    output: OutputOptions,
    graph: Annotated[
        Path | None,
        Option(
            help="GraphML or GML file; its nodes get the clusters as an attribute. Default: a new "
            "graph of the links."
        ),
    ] = None,
    force: options.Force = False,
    formulas: Formulas = False,
) -> None:
    """Write the clusters and blocks for other programs, as tables, JSON or a graph.

    Example:  coblock export result --to graphml --out clusters.graphml
    """
    from coblock.io.annotate import label_graph, to_graph, write_graph
    from coblock.io.export import write_json, write_tables
    from coblock.io.readers import load_graph_file
    from coblock.model.checks import check_choice

    check_choice("--to", to, FORMATS)
    if graph is not None and to not in GRAPHS:
        refuse(f"--graph can be used with --to graphml or gml, not with {to}.")
    results.make_parents(out)
    fitted = results.load_model(model)
    result: Any = fitted.result_
    if results.is_several(fitted) and to in GRAPHS:
        refuse(f"--to {to} is for one relation. Export several as csv, parquet or json.")
    if to in TABLES:
        with results.open_folder(out, force=force) as write:
            write(lambda new: write_tables(result, new, kind=to, formulas=formulas))
    elif to == "json":
        write_json(result, out)
    elif graph is None:
        write_graph(to_graph(fitted), out, to)
    else:
        labelled = load_graph_file(graph)
        label_graph(labelled, fitted)
        write_graph(labelled, out, to)
    output.show_file(out)


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
    force: options.Force = False,
) -> None:
    """Draw a relation from the model: edges.csv, and the true clusters in rows.csv and columns.csv.

    Example:  coblock generate --rows 100 --columns 200 --clusters 4 5 --out made
    """
    import polars as pl
    from rich.console import Group

    from coblock.generate import generate as draw
    from coblock.generate import planted
    from coblock.io.atomic import write_atomic
    from coblock.ui.terminal import path_line

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

    with results.open_folder(out, force=force) as write:
        write(fill)
    K1, K2 = drawn.probability.shape
    sides = f"{rows:,} rows in {K1} clusters and {columns:,} columns in {K2} clusters"
    sizes = f"{drawn.X.nnz:,} links between {sides}."
    data: dict[str, object] = {"rows": rows, "columns": columns, "links": int(drawn.X.nnz)}
    data |= {"row_clusters": K1, "column_clusters": K2}
    data["files"] = {f"{name}.csv": str(out / f"{name}.csv") for name in tables}
    output.show(lambda: Group(sizes, path_line("Written: ", out)), data)


COMMANDS = (demo, fit, resume, report, predict, recommend, evaluate, generate, export)
