"""One measurement of the coblock on the path: python -m versions.tasks MEASURE RELATION ROUND.

Only the public API is used, so the same code measures every version. The result is printed as one
line of JSON.
"""

import hashlib
import json
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np
from data import SYNTHETIC, Trial, whole_relation
from log_evidence import log_evidence
from speed.relations import GENERATED, relation, small

import coblock
from coblock import IRM
from coblock.evaluation import hold_out

Answer = dict[str, Any]


def evidence(name: str, seed: int) -> Answer:
    """Fit all cells with the default settings."""
    IRM(random_state=0).fit(small().X)  # loads the compiled kernels
    X = load(name)
    wall, cpu = perf_counter(), process_time()
    model = IRM(random_state=seed).fit(X)
    return {
        "wall": perf_counter() - wall,
        "cpu": process_time() - cpu,
        "evidence": model.log_evidence_,
        "clusters": list(model.block_probability_.shape),
        "sweeps": model.n_iter_,
        "digest": digest(model),
    }


def time(name: str, repetition: int) -> Answer:
    """Time the default fit with seed 0."""
    del repetition  # the same fit every time
    return evidence(name, 0)


def load(name: str) -> Any:
    """Return a relation to fit without held-out cells."""
    if name == "senate":
        from coblock.datasets import load_senate

        return load_senate().values
    return relation(name).X if name in GENERATED else whole_relation(name, 0)


def digest(model: IRM) -> str:
    """Return a digest of the bits of all labels and memberships."""
    arrays = (model.row_labels_, model.column_labels_)
    arrays += (model.row_membership_, model.column_membership_)
    bits = b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)
    return hashlib.sha256(bits).hexdigest()[:16]


def held_out(name: str, seed: int) -> Answer:
    """Score a tenth of the cells after a default fit to the others."""
    trial = Trial.draw(name, seed)
    model = IRM(random_state=seed).fit(trial.X, unseen=trial.unseen)
    return {
        "score": model.score_links(*trial.cells),
        "clusters": list(model.block_probability_.shape),
        "digest": digest(model),
    }


def planted(name: str, seed: int) -> Answer:
    """Say whether a default fit finds the planted numbers of clusters."""
    drawn = SYNTHETIC[name](seed)
    model = IRM(random_state=seed).fit(drawn.X)
    return {
        "exact": model.block_probability_.shape == drawn.probability.shape,
        "evidence": model.log_evidence_,
        "evidence of the truth": log_evidence(drawn.X, drawn.row_labels, drawn.column_labels),
        "clusters": list(model.block_probability_.shape),
    }


def identity(name: str, seed: int) -> Answer:
    """Compare the bits of a fit on two threads, and of a resumed fit, with those of a plain fit."""
    X = load(name)
    plain = IRM(random_state=seed, n_jobs=1).fit(X)
    threads = IRM(random_state=seed, n_jobs=2).fit(X)
    return {
        "threads": digest(threads) == digest(plain),
        "resumed": digest(interrupt_and_resume(X, seed, plain.n_iter_ // 2)) == digest(plain),
        "digest": digest(plain),
    }


class InterruptedFitError(Exception):
    """Raised by a callback to interrupt a fit."""


def interrupt_and_resume(X: Any, seed: int, sweep: int) -> IRM:
    """Interrupt a fit at a sweep and resume it from its checkpoint."""

    def interrupt(report: Any) -> None:
        if report.sweep == sweep:
            raise InterruptedFitError

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "checkpoint"
        try:
            IRM(random_state=seed, checkpoint=path, callback=interrupt).fit(X)
        except InterruptedFitError:
            return coblock.resume(path)
    msg = f"The fit ended before sweep {sweep}."
    raise RuntimeError(msg)


def compile_kernels(name: str, seed: int) -> Answer:
    """Fit small relations in every way that is measured, so that the kernels are compiled."""
    del name, seed
    held_out("synth1", 0)  # objects one after another, unseen cells
    X = small().X  # objects in batches
    IRM(random_state=0, n_jobs=2).fit(X)
    held = hold_out(X, 0.1, 0)
    IRM(random_state=0).fit(held.X, unseen=held.unseen)
    interrupt_and_resume(X, 0, 3)
    return {}


TASKS: dict[str, Callable[[str, int], Answer]] = {
    "evidence": evidence,
    "held-out": held_out,
    "planted": planted,
    "time": time,
    "identity": identity,
    "compile": compile_kernels,
}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    measure, relation_name, number = sys.argv[1:]
    answer = TASKS[measure](relation_name, int(number))
    source = str(Path(coblock.__file__).parent)
    sys.stdout.write(f"{json.dumps({'source': source, **answer})}\n")
