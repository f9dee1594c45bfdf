"""Write a fitted model to a folder, and load it from there."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coblock.estimator import IRM

MODEL, REPORT = "model.safetensors", "report.html"
FILES = (MODEL, REPORT, "rows.csv", "columns.csv", "blocks.csv", "trace.csv")


def check_folder(folder: Path, *, force: bool) -> None:
    """Refuse a folder that is not empty or cannot be written, before any work is done."""
    from coblock.io.atomic import check_writable

    if folder.is_dir() and any(folder.iterdir()) and not force:
        msg = f"The folder {folder} exists and is not empty. Choose another, or pass --force."
        raise FileExistsError(msg)
    check_writable(folder)


def write_results(model: "IRM", folder: Path, *, title: str, formulas: bool = False) -> None:
    """Write model, report and tables; after an error none of them."""
    from coblock.io.atomic import write_folder
    from coblock.io.export import write_tables

    def fill(staging: Path) -> None:
        model.save(staging / MODEL)
        write_tables(model.result_, staging, formulas=formulas)
        model.report(staging / REPORT, title=title)

    write_folder(folder, fill)


def load_model(path: Path) -> "IRM":
    """Load a model from its file, or from the folder of a fit."""
    from coblock.loading import load

    return load(path / MODEL if path.is_dir() else path)


def is_complete(model: "IRM") -> bool:
    """Return whether a fit has converged, or its method does not converge."""
    return model.converged_ or model.inference == "gibbs" or model.tol == 0.0


def result_data(model: "IRM", folder: Path) -> Mapping[str, object]:
    """Return the numbers of a fitted model and the paths of its files, for ``--json``."""
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
        "files": {name: str(folder / name) for name in FILES},
    }
