"""A whole fit on a cluster: the local stream of sweeps over shards."""

import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from time import perf_counter
from typing import Any, cast

import numpy as np

from coblock.distributed.checkpoint import Keeper, restore
from coblock.distributed.relation import ClusterRelation
from coblock.distributed.schedule import ClusterSchedule
from coblock.distributed.spectral import singular_vectors
from coblock.fitting import (
    Callback,
    FitRun,
    Settings,
    agreement,
    follow,
    has_converged,
    warn_of_no_convergence,
)
from coblock.inference.report import Sweep
from coblock.inference.variational import VariationalRun
from coblock.kernels import Floats
from coblock.relation import Relation
from coblock.result import Result
from coblock.start import START_CLUSTERS, Decompose, memberships_of, spectral_labels, truncation


def fit(
    relation: ClusterRelation,
    settings: Settings,
    rng: np.random.Generator,
    *,
    initial: list[Floats] | None = None,
    callback: Callback | None = None,
    checkpoint: str | Path | None = None,
) -> Result:
    """Fit ``n_init`` times, one after another, and return the one with the largest evidence."""
    if checkpoint is not None and settings.n_init > 1:
        msg = f"checkpoint keeps one fit, but n_init is {settings.n_init}. Pass n_init=1."
        raise ValueError(msg)
    keeper = None
    if checkpoint is not None:
        keeper = Keeper(Path(checkpoint), _identity(relation, settings))
    results = [
        fit_once(relation, settings, start, initial, callback, keeper)
        for start in rng.spawn(settings.n_init)
    ]
    best = max(results, key=lambda result: result.log_evidence)
    if len(results) > 1:
        best = replace(best, stability=agreement(results))
    if settings.tol > 0:
        warn_of_no_convergence(best, settings)
    return best


def _identity(relation: ClusterRelation, settings: Settings) -> dict[str, Any]:
    """Return what a checkpoint must have in common with a fit that goes on from it."""
    parameters = {name: value for name, value in asdict(settings).items() if name != "n_jobs"}
    data = {"shape": relation.shape, "links": relation.n_links, "unseen": relation.n_unseen}
    return json.loads(json.dumps({**parameters, **data}))


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
    run = FitRun(local, settings, rng, initial, schedule)
    began = perf_counter()
    before: list[Sweep] = []
    if keeper is not None and keeper.path.exists():
        run.run, before = restore(keeper.path, keeper.identity, relation, settings, schedule)
        sweeps = run.run.sweeps(began, before=len(before) - run.run.number)
    else:
        if initial is None and settings.init == "spectral":
            run.initial = _spectral_start(relation, settings, rng)
        sweeps = run.sweeps()
    trace, converged = _follow_on(run, sweeps, before, callback, keeper)
    return run.conclude(trace, converged=converged)


def _spectral_start(
    relation: ClusterRelation, settings: Settings, rng: np.random.Generator
) -> list[Floats]:
    local = cast("Relation", relation)
    clusters = truncation(local, settings.max_clusters, START_CLUSTERS)
    decompose = cast("Decompose", singular_vectors)
    return memberships_of(spectral_labels(local, clusters, rng, decompose))


def _follow_on(
    run: FitRun,
    sweeps: Iterator[Sweep],
    before: list[Sweep],
    callback: Callback | None,
    keeper: Keeper | None,
) -> tuple[list[Sweep], bool]:
    """Follow the sweeps after those that were kept, and keep them in turn."""
    settings, trace = run.settings, list(before)
    if before:
        converged = has_converged(before, settings) and run.may_stop()
        if converged or len(before) >= settings.max_iter:
            return before, converged

    def keep(sweep: Sweep) -> object:
        trace.append(sweep)
        if keeper is not None and isinstance(run.run, VariationalRun):
            keeper.keep(run.run, trace)
        return None if callback is None else callback(sweep)

    left = replace(settings, max_iter=settings.max_iter - len(before))
    _, converged = follow(sweeps, left, run.may_stop, keep)
    return trace, converged
