"""A fitted model as the files of a folder."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coblock.estimator import IRM

MODEL, REPORT = "model.safetensors", "report.html"
FILES = (MODEL, REPORT, "rows.csv", "columns.csv", "blocks.csv", "trace.csv")


def check_folder(folder: Path, *, force: bool) -> None:
    """Refuse, before any work is done, a folder that is in use or cannot be written to."""
    from coblock.io.atomic import check_writable

    if folder.is_dir() and any(folder.iterdir()) and not force:
        msg = f"The folder {folder} exists and is not empty. Name another, or say --force."
        raise FileExistsError(msg)
    check_writable(folder)


def write_results(model: "IRM", folder: Path, *, title: str, formulas: bool = False) -> None:
    """Write model, report and tables: all of them or none."""
    from coblock.io.atomic import write_folder
    from coblock.io.export import write_tables

    def fill(place: Path) -> None:
        model.save(place / MODEL)
        write_tables(model.result_, place, formulas=formulas)
        model.report(place / REPORT, title=title)

    write_folder(folder, fill)


def find_model(path: Path) -> "IRM":
    """Load a model from its file, or from the folder that fit has written."""
    from coblock.loading import load

    return load(path / MODEL if path.is_dir() else path)


def has_converged(model: "IRM") -> bool:
    """Say whether a fit has converged, or was never meant to."""
    return model.converged_ or model.inference == "gibbs" or model.tol == 0.0


def describe(model: "IRM") -> dict[str, object]:
    """Return a fitted model in numbers, for other programs."""
    relation = model.result_.relation
    K1, K2 = model.block_probability_.shape
    return {
        "relation": relation.kind,
        "rows": relation.shape[0],
        "columns": relation.shape[1],
        "links": int(relation.n_links),
        "unseen": int(relation.n_unseen),
        "row_clusters": K1,
        "column_clusters": K2,
        "converged": bool(model.converged_),
        "sweeps": model.n_iter_,
        "seconds": float(model.trace_[-1]["seconds"]),
        "log_evidence": float(model.log_evidence_),
        "stability": model.stability_,
    }


def paths_in(folder: Path) -> Mapping[str, str]:
    """Return where each file of a result is."""
    return {name: str(folder / name) for name in FILES}
