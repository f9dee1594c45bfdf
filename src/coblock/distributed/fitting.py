"""A whole fit on a cluster: the local stream of sweeps over shards."""

from dataclasses import replace
from typing import cast

import numpy as np

from coblock import fitting
from coblock.distributed.relation import ClusterRelation
from coblock.distributed.schedule import ClusterSchedule
from coblock.distributed.spectral import singular_vectors
from coblock.fitting import Callback, FitRun, Settings, agreement, follow
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
) -> Result:
    """Fit ``n_init`` times, one after another, and return the one with the largest evidence."""
    results = [
        fit_once(relation, settings, start, initial, callback)
        for start in rng.spawn(settings.n_init)
    ]
    best = max(results, key=lambda result: result.log_evidence)
    if len(results) > 1:
        best = replace(best, stability=agreement(results))
    if settings.tol > 0:
        fitting._warn_of_no_convergence(best, settings)
    return best


def fit_once(
    relation: ClusterRelation,
    settings: Settings,
    rng: np.random.Generator,
    initial: list[Floats] | None = None,
    callback: Callback | None = None,
) -> Result:
    """Fit from one start."""
    local = cast("Relation", relation)  # it answers all that a fit asks of one
    schedule = ClusterSchedule(settings.batch_size, crew=relation.at_work())
    if initial is None and settings.init == "spectral":
        clusters = truncation(local, settings.max_clusters, START_CLUSTERS)
        labels = spectral_labels(local, clusters, rng, cast("Decompose", singular_vectors))
        initial = memberships_of(labels)
    run = FitRun(local, settings, rng, initial, schedule)
    trace, converged = follow(run.sweeps(), settings, run.may_stop, callback)
    return run.conclude(trace, converged=converged)
