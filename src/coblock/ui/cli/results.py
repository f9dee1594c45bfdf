"""Write a fitted model to a folder, load it from there, and stop a fit with a checkpoint."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import typer

from coblock.ui.cli.console import NOT_CONVERGED, OutputOptions

if TYPE_CHECKING:
    from coblock.analysis.description import Description
    from coblock.estimator import IRM
    from coblock.io.atomic import Fill
    from coblock.multi import MultiIRM

MODEL, REPORT, MARKDOWN = "model.safetensors", "report.html", "report.md"
COLUMNS = "columns.csv"  # not of relations with one set of objects
TABLES = ("rows.csv", COLUMNS, "blocks.csv", "trace.csv")
DESCRIPTIONS = ("clusters.csv", "features.csv", "tree.csv")
FILES = (MODEL, REPORT, MARKDOWN, *TABLES, *DESCRIPTIONS)
OF_SEVERAL = {MODEL, REPORT, MARKDOWN, "blocks.csv", "trace.csv"}  # files of several relations
SUFFIX = ".checkpoint"
STOPPING = b"\nStopping after this sweep ... Press Ctrl-C again to stop immediately.\n"


@contextmanager
def open_folder(folder: Path, *, force: bool) -> Iterator[Callable[["Fill"], None]]:
    """Lock a folder and yield a function that writes its files.

    A folder that is not empty, is in use or cannot be written is refused before any work is done.
    The folders that it is in are created, and removed after an error if they are still empty.
    """
    from coblock.io.atomic import claim_folder

    with _without_new_parents(folder), claim_folder(folder) as write:
        names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
        there = {name for name in names if not name.startswith(".coblock-")}
        found = there.intersection(FILES)
        if there and not force:
            msg = f"The folder {folder} exists and is not empty. Choose another, or pass --force."
            if found != OF_SEVERAL and 0 < len(found - {COLUMNS}) < len(FILES) - 1:
                part = f"has {len(found)} of the {len(FILES)} files of a result"
                msg = f"The folder {folder} {part}. To write all of them, pass --force."
            raise FileExistsError(msg)
        yield write


@contextmanager
def _without_new_parents(folder: Path) -> Iterator[None]:
    """Remove the folders above this one that were created, if an error leaves them empty."""
    new = [parent for parent in folder.parents if not parent.exists()]
    try:
        yield
    except BaseException:
        with suppress(OSError):
            for parent in new:
                parent.rmdir()
        raise


def make_parents(path: Path | None) -> None:
    """Create the folders that an output file is in, before any work is done."""
    from coblock.io import atomic

    if path is not None:
        atomic.make_parents(path)


def fit_model(
    model: "IRM | MultiIRM", data: Any, output: OutputOptions, advice: str | None = None
) -> None:
    """Fit a model, or go on from its checkpoint, which is kept; Ctrl-C stops after a sweep."""
    if Path(str(model.checkpoint)).exists():
        output.note(f"The fit goes on from {model.checkpoint}, where it was interrupted.")
    with output.progress(model), interruptible(model, advice):
        model._fit(data, keep=True)


def write_result(
    model: "IRM | MultiIRM",
    found: "Description | None",
    out: Path,
    write: Callable[["Fill"], None],
    *,
    title: str,
    formulas: bool = False,
) -> None:
    """Write model, reports and tables to a folder; remove an earlier result and the checkpoint.

    ``found`` is what is said about one relation; several have none.
    """
    from coblock.io.atomic import write_atomic
    from coblock.io.export import to_csv, write_tables
    from coblock.ui.report import write_report

    def fill(staging: Path) -> None:
        import polars as pl

        model.save(staging / MODEL)
        write_tables(model.result_ if found is None else found.result, staging, formulas=formulas)
        for name in (REPORT, MARKDOWN):
            given = model.get_params(deep=False)
            write_report(found or model.result_, staging / name, settings=given, title=title)
        if found is not None:
            tables = (found.table(), found.feature_table(), found.tree_table())
            for name, table in zip(DESCRIPTIONS, tables, strict=True):
                frame = pl.DataFrame(table, infer_schema_length=None)
                write_atomic(staging / name, to_csv(frame, formulas=formulas))

    stale = _files_in(out).difference(files_of(model))
    write(fill)
    for name in stale:
        (out / name).unlink(missing_ok=True)
    if model.checkpoint is not None:
        Path(model.checkpoint).unlink(missing_ok=True)


def files_of(model: Any) -> list[str]:
    """Return the names of the files of a result of one or several relations."""
    from coblock.io.export import file_stems

    if is_several(model):
        domains = [f"{stem}.csv" for stem in file_stems(model.result_.data.domain_names)]
        return [MODEL, REPORT, MARKDOWN, *domains, "blocks.csv", "trace.csv"]
    repeated = model.result_.relation.repeated
    return [name for name in FILES if name != COLUMNS or not repeated]


def _files_in(folder: Path) -> set[str]:
    """Return the names that files of an earlier result in a folder have."""
    from coblock.io.container import has_format
    from coblock.io.model_file import MULTI_FORMAT, ModelFileError

    names = set(FILES)
    if has_format(folder / MODEL, MULTI_FORMAT):
        with suppress(ModelFileError):  # it may be damaged, and is replaced
            names.update(files_of(load_model(folder)))
    return names


def load_model(path: Path) -> Any:
    """Load a model of one or several relations from its file, or from the folder of a fit."""
    from coblock.io.atomic import complete_folder
    from coblock.loading import load

    complete_folder(path)
    return load(path / MODEL if path.is_dir() else path)


def is_several(model: object) -> bool:
    """Return whether a model is one of several relations."""
    from coblock.multi import MultiIRM

    return isinstance(model, MultiIRM)


def result_data(model: "IRM", found: "Description", folder: Path) -> dict[str, object]:
    """Return the numbers of a fitted model and the paths of its files, for ``--json``."""
    relation, made = model.result_.relation, found.composition
    K1, K2 = found.result.n_clusters
    known = {} if made is None else {"purity": made.purity, "rand_index": made.rand_index}
    return known | {
        "relation": relation.kind,
        "rows": relation.shape[0],
        "columns": relation.shape[1],
        "links": int(relation.n_links),
        "unseen": int(relation.n_unseen),
        "row_clusters": K1,
        "column_clusters": K2,
        **_fit_data(model, folder),
        "log_evidence": float(found.result.log_evidence),
        "stability": model.stability_,
    }


def several_data(model: "MultiIRM", folder: Path) -> dict[str, object]:
    """Return the numbers of a model of several relations, for ``--json``."""
    domains = {
        name: {"objects": int(found.labels.size), "clusters": found.n_clusters}
        for name, found in model.domains_.items()
    }
    relations = {
        name: {
            "places": found.places,
            "likelihood": found.likelihood,
            "log_evidence": float(found.log_evidence),
        }
        for name, found in model.relations_.items()
    }
    return {"domains": domains, "relations": relations, **_fit_data(model, folder)}


def _fit_data(model: "IRM | MultiIRM", folder: Path) -> dict[str, object]:
    return {
        "converged": bool(model.converged_),
        "sweeps": model.n_iter_,
        "seconds": model.result_.trace[-1].seconds,
        "log_evidence": float(model.log_evidence_),
        "files": {name: str(folder / name) for name in files_of(model)},
    }


def show_result(
    model: "IRM | MultiIRM",
    found: "Description | None",
    out: Path,
    output: OutputOptions,
    read: dict[str, object] | None = None,
) -> None:
    """Print the result of a fit; exit with code 1 if its method converges and it has not.

    ``read`` is what ``--json`` says of the file that was read.
    """
    from coblock.ui.terminal import result_page, several_page

    complete = model.converged_ or model.inference == "gibbs" or model.tol == 0.0
    if not complete:
        output.note(
            f"The fit had not converged after {model.n_iter_:,} sweeps. The result is written, and "
            "trace.csv has the change in each sweep. For a better result, fit with a larger "
            f"--max-iter (it was {model.max_iter:,}) or --tol."
        )
    report: Path = out / REPORT
    if found is None:
        output.show(lambda: several_page(model, report), several_data(model, out))
    else:
        data = result_data(model, found, out) | (read or {})
        output.show(lambda: result_page(model, found, report), data)
    if not complete:
        raise typer.Exit(NOT_CONVERGED)


def show_cuts(model: "IRM", numbers: str, output: OutputOptions) -> None:
    """Print the evidence of cuts of the tree next to that of direct fits."""
    from rich.table import Table

    if not all(part.strip().isdecimal() and int(part) for part in numbers.split(",")):
        msg = f"--compare must be numbers of clusters with commas, but is {numbers!r}."
        raise ValueError(msg)
    found = model.compare_cuts(int(part) for part in numbers.split(","))

    def page() -> Table:
        table = Table(box=None, header_style="bold")
        for heading in ("cut", "log evidence", "direct fit", "log evidence "):
            table.add_column(heading, justify="right")
        for each in found:
            shapes = (" x ".join(map(str, each[name])) for name in ("cut", "direct"))
            values = (f"{each[f'{name}_log_evidence']:,.1f}" for name in ("cut", "direct"))
            table.add_row(*(cell for pair in zip(shapes, values, strict=True) for cell in pair))
        return table

    output.show(page, {"cuts": found})


def checkpoint_of(folder: Path) -> Path:
    """Return the checkpoint of a fit with this result folder: ``folder.checkpoint``."""
    folder = folder.resolve() if folder.name in {"", ".."} else folder
    return folder.with_name(folder.name + SUFFIX)


def folder_of(checkpoint: Path) -> Path:
    """Return the result folder of a fit with this checkpoint."""
    if checkpoint.suffix == SUFFIX:
        return checkpoint.with_suffix("")
    return checkpoint.with_name(f"{checkpoint.name}-result")


@contextmanager
def interruptible(model: "IRM | MultiIRM", advice: str | None = None) -> Iterator[None]:
    """Let Ctrl-C stop the fit of a model after the current sweep, with a checkpoint.

    A second Ctrl-C stops it immediately, with the last checkpoint, at most a minute old. The
    KeyboardInterrupt contains the command that continues the fit, or other advice.
    """
    interrupted = False

    def on_signal(*_: object) -> None:
        nonlocal interrupted
        if interrupted:
            raise KeyboardInterrupt
        interrupted = True
        os.write(2, STOPPING)  # standard error; print is not safe in a signal handler

    def on_sweep(sweep: object) -> object:
        answer = None if callback is None else callback(sweep)
        if interrupted:
            raise KeyboardInterrupt
        return answer

    callback: Callable[[Any], object] | None = model.callback
    handler = signal.signal(signal.SIGINT, on_signal)
    model.set_params(callback=on_sweep)
    try:
        yield
    except KeyboardInterrupt as error:
        path = Path(str(model.checkpoint))
        msg = "Interrupted before the first checkpoint; nothing was written."
        if path.exists():
            msg = advice or f"Interrupted. To continue:  coblock resume {quote(str(path))}"
        raise KeyboardInterrupt(msg) from error
    finally:
        model.set_params(callback=callback)
        signal.signal(signal.SIGINT, handler)
