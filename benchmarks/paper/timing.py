"""Seconds per sweep: linear against naive, and with more and more unseen cells."""

from time import process_time
from typing import Any

import numpy as np
from data import load
from scipy import sparse

from coblock import IRM
from coblock.analysis.evaluation import hold_out
from coblock.inference.fit import FitRun, Settings
from coblock.model.relation import Relation
from paper.experiments import Job, parameters
from paper.naive import UNSEEN, Naive
from paper.protocol import Limits, clocked
from paper.shapes import draw_growth

SWEEPS = 4  # the first is not timed: it may compile
WHOLE_SWEEP_UP_TO = 4e9  # cells times cluster pairs; above it a share of the objects is timed
SHARE = 0.05


def time_naive(job: Job, limits: Limits) -> dict[str, Any]:
    """Time both sweeps on a relation; after a whole naive sweep, compare the memberships."""
    del limits  # the work is bounded
    X = draw_growth(int(job.relation[6:]), job.seed) if job.part == "growth" else load(job.relation)
    relation = Relation.build(X)
    start = random_start(relation, job)
    linear, after, run = time_linear(relation, job, start)
    assert run.run is not None
    priors = run.run.priors
    share = 1.0 if 2.0 * np.prod(X.shape) * job.K**2 <= WHOLE_SWEEP_UP_TO else SHARE
    ordered = [np.ascontiguousarray(by_size(q)) for q in start]
    dense = Naive(dense_cells(X), ordered, list(priors.alpha), priors.a.flat[0], priors.b.flat[0])
    seconds = seconds_of_naive(dense, share)
    largest = None
    if share == 1.0:
        pairs = zip(dense.q, after, strict=True)
        largest = max(float(np.abs(by_size(a) - by_size(b)).max()) for a, b in pairs)
    return {
        "naive": seconds,
        "linear": linear,
        "share": share,
        "difference": largest,
        "rows": X.shape[0],
        "columns": X.shape[1],
        "links": int(X.nnz),
    }


def time_missing(job: Job, limits: Limits) -> dict[str, Any]:
    """Time the linear sweep with a share of the cells unseen."""
    del limits
    share = float(job.method.removeprefix("unseen"))
    held = hold_out(load(job.relation), share, job.seed)
    relation = Relation.build(held.X, unseen=held.unseen)
    seconds, _, _ = time_linear(relation, job, random_start(relation, job))
    return {"linear": seconds, "unseen": int(held.rows.size), "links": int(held.X.nnz)}


def random_start(relation: Relation, job: Job) -> list[np.ndarray]:
    """Return the paper's start."""
    rng = np.random.default_rng(job.seed)
    weights = [rng.random((size, min(job.K, size))) for size in relation.sizes]
    return [weight / weight.sum(axis=1, keepdims=True) for weight in weights]


def time_linear(
    relation: Relation, job: Job, start: list[np.ndarray]
) -> tuple[float, list[np.ndarray], FitRun]:
    """Return seconds per sweep of CVB0, the memberships after the first one, and the run."""
    rng = np.random.default_rng(job.seed)
    run = FitRun(relation, fixed_settings(job.K), rng, [q.copy() for q in start])
    after: list[np.ndarray] = []
    for tick in clocked(run):
        if tick.sweep.sweep == 1:
            assert run.run is not None
            after, first = [q.copy() for q in run.run.memberships], tick.cpu
        elif tick.sweep.sweep == SWEEPS:
            break
    return (tick.cpu - first) / (SWEEPS - 1), after, run


def fixed_settings(K: int) -> Settings:
    """Return CVB0 with hyperparameters that stay, so that both sweeps have the same ones."""
    fixed = {"inference": "cvb0", "hyperparameters": "fixed", "prior": "shared"}
    return IRM(**(parameters("cvb0", K) | fixed))._settings()


def seconds_of_naive(dense: Naive, share: float) -> float:
    """Return CPU seconds of a sweep, compiled beforehand."""
    tiny = [np.full((2, 2), 0.5), np.full((2, 2), 0.5)]
    Naive(np.eye(2, dtype=np.int8), tiny, [1.0, 1.0], 1.0, 1.0).sweep()
    began = process_time()
    dense.sweep(share)
    return (process_time() - began) / share


def dense_cells(X: sparse.csr_array, unseen: sparse.csr_array | None = None) -> np.ndarray:
    """Return the relation as the naive form needs it: every cell."""
    cells = (X.toarray() > 0).astype(np.int8)
    if unseen is not None:
        cells[unseen.toarray() > 0] = UNSEEN
    return cells


def by_size(q: np.ndarray) -> np.ndarray:
    """Return memberships with the largest cluster first."""
    return q[:, np.argsort(-q.sum(axis=0), kind="stable")]
