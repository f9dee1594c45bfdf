"""A fit kept in a file of the client, so that a lost scheduler costs a minute."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any, cast

import numpy as np
from safetensors import SafetensorError, safe_open

from coblock.distributed.relation import ClusterRelation
from coblock.distributed.schedule import ClusterSchedule
from coblock.inference.fit import Callback, FitRun
from coblock.io.atomic import write_whole
from coblock.io.checkpoint import CheckpointError, write_tensors
from coblock.io.model_file import digest
from coblock.io.result_codec import Tensors
from coblock.io.state_codec import SHARED_KINDS, Shared, pack, unpack
from coblock.model.relation import Relation
from coblock.model.trace import Sweep

EVERY = 60.0  # seconds
KEY, FORMAT = "coblock", "coblock-cluster-checkpoint 2"
NAMED_ONLY = {**SHARED_KINDS, "relation": ClusterRelation}  # the data stay on the cluster


@dataclass
class Keeper:
    """Writes a fit after a sweep, not more often than every ``EVERY`` seconds."""

    path: Path
    identity: dict[str, Any]  # of data and parameters
    last: float = field(default=-np.inf)

    def beside(self, run: FitRun, callback: Callback | None) -> Callback:
        """Return a callback that does what the given one does, and writes when it is time."""

        def keep(sweep: Sweep) -> object:
            try:
                answer = None if callback is None else callback(sweep)
            except BaseException:
                self.save(run)
                raise
            if monotonic() - self.last >= EVERY:
                self.save(run)
            return answer

        return keep

    def save(self, run: FitRun) -> None:
        """Write the run, but not where it began: that is behind it."""
        tensors: Tensors = {}
        initial, run.initial = run.initial, None
        try:
            packed = pack(run, "run", tensors, NAMED_ONLY)
        finally:
            run.initial = initial
        header: dict[str, Any] = {
            "format": FORMAT,
            "identity": self.identity,
            "rng": run.rng.bit_generator.state,
            "run": packed,
        }
        header["digest"] = digest(header, tensors)
        metadata = {KEY: json.dumps(header, allow_nan=False)}
        write_whole(self.path, lambda temporary: write_tensors(temporary, tensors, metadata))
        self.last = monotonic()


def restore(
    path: Path, identity: dict[str, Any], relation: ClusterRelation, schedule: ClusterSchedule
) -> FitRun:
    """Return a run as it was kept."""
    header, tensors = _read(path)
    kept = header["identity"]
    wrong = [name for name in identity if kept.get(name) != identity[name]]
    if wrong:
        msg = (
            f"{path} is of another fit: {', '.join(wrong)} differ. Use the same data and "
            "parameters, or delete the file."
        )
        raise CheckpointError(msg)
    rng = np.random.default_rng(0)
    try:
        rng.bit_generator.state = header["rng"]
        shared = Shared(cast("Relation", relation), schedule, rng)
        return cast("FitRun", unpack(header["run"], tensors, shared))
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        msg = f"{path} does not fit together ({error}). Delete it to begin anew."
        raise CheckpointError(msg) from error


def _read(path: Path) -> tuple[dict[str, Any], Tensors]:
    """Return header and arrays of a checkpoint that is whole."""
    try:
        with safe_open(path, framework="numpy") as file:
            header = json.loads((file.metadata() or {}).get(KEY, "{}"))
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, ValueError) as error:
        msg = f"{path} is no checkpoint, or is damaged ({error}). Delete it to begin anew."
        raise CheckpointError(msg) from error
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        msg = f"{path} is no checkpoint of a fit on a cluster. Name another file."
        raise CheckpointError(msg)
    if header.get("digest") != digest(header, arrays):
        msg = f"{path} is damaged: its contents do not agree with their digest. Delete it."
        raise CheckpointError(msg)
    return header, arrays
