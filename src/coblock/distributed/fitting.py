"""A whole fit on a cluster: the local stream of sweeps over shards."""

import hashlib
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import numpy as np

from coblock.distributed import tasks
from coblock.distributed.checkpoint import Keeper, restore
from coblock.distributed.relation import ClusterRelation
from coblock.distributed.schedule import ClusterSchedule
from coblock.distributed.spectral import ClusterLinks
from coblock.inference.fit import Callback, FitRun, Settings, best_of
from coblock.inference.start import START_CLUSTERS, memberships_of, spectral_labels, truncation
from coblock.kernels import Floats
from coblock.model.relation import Relation
from coblock.model.result import Result


def fit(
    relation: ClusterRelation,
    settings: Settings,
    seed: int,
    *,
    initial: list[Floats] | None = None,
    callback: Callback | None = None,
    checkpoint: str | Path | None = None,
    any_seed: bool = False,
) -> Result:
    """Fit ``n_init`` times, one after another, and return the one with the largest evidence.

    A checkpoint of another seed is refused, unless there may be ``any_seed``.
    """
    if checkpoint is not None and settings.n_init > 1:
        msg = f"checkpoint keeps one fit, but n_init is {settings.n_init}. Pass n_init=1."
        raise ValueError(msg)
    keeper = None
    if checkpoint is not None:
        identity = _identity(relation, settings, initial)
        identity |= {} if any_seed else {"random_state": seed}
        keeper = Keeper(Path(checkpoint), identity)
    results = [
        fit_once(relation, settings, start, initial, callback, keeper)
        for start in np.random.default_rng(seed).spawn(settings.n_init)
    ]
    return best_of(results, settings)


def _identity(
    relation: ClusterRelation, settings: Settings, initial: list[Floats] | None
) -> dict[str, Any]:
    """Return what a checkpoint must have in common with a fit that goes on from it."""
    parameters = {name: value for name, value in asdict(settings).items() if name != "n_jobs"}
    if initial is not None:
        parameters["init"] = _digest(*initial)
    return json.loads(json.dumps(parameters | {"data": _data_identity(relation)}))


def _data_identity(relation: ClusterRelation) -> dict[str, Any]:
    """Return what tells the data from others, without looking at every link."""
    crew = relation.at_work()
    counts = []
    for d in (0, 1):
        answers = crew.ask("describe", tasks.describe, d, crew.everywhere(d))
        counts += [crew.whole(d, list(part)) for part in zip(*answers, strict=True)]
    names = json.dumps([relation.row_names, relation.column_names]).encode()
    of_names = np.frombuffer(names, dtype=np.uint8)
    return {"shape": relation.shape, "digest": _digest(of_names, *counts)}


def _digest(*arrays: np.ndarray) -> str:
    total = hashlib.sha256()
    for array in arrays:
        total.update(np.ascontiguousarray(array).data)
    return total.hexdigest()


def fit_once(
    relation: ClusterRelation,
    settings: Settings,
    rng: np.random.Generator,
    initial: list[Floats] | None = None,
    callback: Callback | None = None,
    keeper: Keeper | None = None,
) -> Result:
    """Fit from one start, or go on from what was kept."""
    local = cast("Relation", relation)  # it answers all that a fit asks of one
    schedule = ClusterSchedule(settings.batch_size, crew=relation.at_work())
    if keeper is not None and keeper.path.exists():
        run = restore(keeper.path, keeper.identity, relation, schedule)
    else:
        if initial is None and settings.init == "spectral":
            initial = _spectral_start(relation, settings, rng)
        run = FitRun(local, settings, rng, initial, schedule)
    return run.result(callback if keeper is None else keeper.beside(run, callback))


def _spectral_start(
    relation: ClusterRelation, settings: Settings, rng: np.random.Generator
) -> list[Floats]:
    local = cast("Relation", relation)
    clusters = truncation(local, settings.max_clusters, START_CLUSTERS)
    return memberships_of(spectral_labels(local, clusters, rng, ClusterLinks.of(relation)))
