"""Sweeps kept in a file of the client, so that a lost scheduler costs a minute."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any, cast

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from coblock.distributed.relation import ClusterRelation
from coblock.distributed.schedule import ClusterSchedule
from coblock.files import write_whole
from coblock.fitting import Settings
from coblock.hyperparameters import Priors
from coblock.inference.report import Sweep
from coblock.inference.variational import VariationalRun
from coblock.relation import Relation
from coblock.state import State

EVERY = 60.0  # seconds
FORMAT = "coblock distributed checkpoint 1"
COUNTERS = ("number", "averaged", "warm", "orderly", "settled", "changes", "everybody", "wait")
VISITS = ("log_normaliser", "entropy", "moved", "rest", "due")


class CheckpointError(ValueError):
    """A checkpoint cannot be used; the message says why."""


@dataclass
class Keeper:
    """Writes the state of a run after a sweep, not more often than ``EVERY`` seconds."""

    path: Path
    identity: dict[str, Any]  # of data and parameters
    last: float = field(default=-np.inf)

    def keep(self, run: VariationalRun, trace: list[Sweep]) -> None:
        """Write the run if it is time."""
        if monotonic() - self.last < EVERY:
            return
        state, visits = run.state, run.visits
        arrays = {"a": state.priors.a, "b": state.priors.b, "alpha": np.array(state.priors.alpha)}
        arrays |= {"links": state.sums.links, "unseen": state.sums.unseen}
        for d in (0, 1):
            arrays |= {f"q{d}": state.q[d], f"m{d}": state.m[d]}
            arrays |= {f"{name}{d}": getattr(visits, name)[d] for name in VISITS}
            if run.mean is not None:
                arrays[f"mean{d}"] = run.mean[d]
        told = {
            "identity": self.identity,
            "counters": {name: getattr(run, name) for name in COUNTERS},
            "complete": visits.complete,
            "shared": state.priors.shared,
            "trace": [sweep.as_dict() for sweep in trace],
        }
        tensors = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        write_whole(self.path, save(tensors, {"format": FORMAT, "told": json.dumps(told)}))
        self.last = monotonic()


def restore(
    path: Path,
    identity: dict[str, Any],
    relation: ClusterRelation,
    settings: Settings,
    schedule: ClusterSchedule,
) -> tuple[VariationalRun, list[Sweep]]:
    """Return a run as it was kept, and the sweeps before."""
    arrays, told = _read(path)
    if told["identity"] != identity:
        wrong = [name for name in identity if told["identity"].get(name) != identity[name]]
        msg = (
            f"{path} is of another fit: {', '.join(wrong)} differ. Use the same data and "
            "parameters, or delete the file."
        )
        raise CheckpointError(msg)
    priors = Priors(arrays["alpha"].tolist(), arrays["a"], arrays["b"], told["shared"])
    state = State(cast("Relation", relation), [arrays["q0"], arrays["q1"]], priors)
    run = VariationalRun(
        state,
        settings.inference,
        settings.exact_variance,
        settings.rule,
        settings.burn_in,
        schedule=schedule,
    )
    run.state = state  # as it was, not put in order
    state.m = [arrays["m0"], arrays["m1"]]
    state.sums.links, state.sums.unseen = arrays["links"], arrays["unseen"]
    state.derive_tables()
    for name, value in told["counters"].items():
        setattr(run, name, value)
    for name in VISITS:
        setattr(run.visits, name, [arrays[f"{name}0"], arrays[f"{name}1"]])
    run.visits.complete = told["complete"]
    if "mean0" in arrays:
        run.mean = [arrays["mean0"], arrays["mean1"]]
    return run, [Sweep(**sweep) for sweep in told["trace"]]


def _read(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        msg = f"{path} is no checkpoint, or is damaged ({error}). Delete it to begin anew."
        raise CheckpointError(msg) from error
    if metadata.get("format") != FORMAT:
        msg = f"{path} is no checkpoint of a fit on a cluster. Name another file."
        raise CheckpointError(msg)
    return arrays, json.loads(metadata["told"])
