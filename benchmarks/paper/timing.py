"""Seconds per sweep: linear against naive, and with an increasing share of unseen cells."""

from time import process_time
from typing import Any

import numpy as np
from data import load
from scipy import sparse

from coblock.evaluation import hold_out
from coblock.model.relation import BinaryRelation
from paper.experiments import Job, parameters
from paper.internals import StepwiseFit
from paper.naive import UNSEEN, NaiveState
from paper.protocol import Limits, time_sweeps
from paper.shapes import draw_growth

SWEEPS = 4  # the first is not timed: it may compile
WHOLE_SWEEP_UP_TO = 4e9  # cells times cluster pairs; above it a share of the objects is timed
SHARE = 0.05  # of the objects
FIXED = {"inference": "cvb0", "hyperparameters": "fixed", "prior": "shared"}


def time_naive(job: Job, limits: Limits) -> dict[str, Any]:
    """Time both sweeps of a relation; after a complete naive sweep, compare the memberships."""
    del limits  # the work is bounded
    X = draw_growth(int(job.relation[6:]), job.seed) if job.part == "growth" else load(job.relation)
    relation = BinaryRelation.build(X)
    start = random_start(relation, job)
    linear, after, fit = time_linear(relation, job, start)
    share = 1.0 if 2.0 * np.prod(X.shape) * job.K**2 <= WHOLE_SWEEP_UP_TO else SHARE
    ordered = [np.ascontiguousarray(order_by_size(q)) for q in start]
    naive = NaiveState(dense_cells(X), ordered, *fit.hyperparameters)
    seconds = time_naive_sweep(naive, share)
    return {
        "naive": seconds,
        "linear": linear,
        "share": share,
        "difference": largest_difference(naive.q, after) if share == 1.0 else None,
        "rows": X.shape[0],
        "columns": X.shape[1],
        "links": int(X.nnz),
    }


def time_missing(job: Job, limits: Limits) -> dict[str, Any]:
    """Time the linear sweep with a share of the cells unseen."""
    del limits
    share = float(job.method.removeprefix("unseen"))
    held = hold_out(load(job.relation), share, job.seed)
    relation = BinaryRelation.build(held.X, unseen=held.unseen)
    seconds, _, _ = time_linear(relation, job, random_start(relation, job))
    return {"linear": seconds, "unseen": int(held.rows.size), "links": int(held.X.nnz)}


def random_start(relation: BinaryRelation, job: Job) -> list[np.ndarray]:
    """Return the random soft memberships from which the paper starts."""
    rng = np.random.default_rng(job.seed)
    weights = [rng.random((size, min(job.K, size))) for size in relation.sizes]
    return [weight / weight.sum(axis=1, keepdims=True) for weight in weights]


def time_linear(
    relation: BinaryRelation, job: Job, start: list[np.ndarray]
) -> tuple[float, list[np.ndarray], StepwiseFit]:
    """Return CPU seconds per sweep of CVB0, the memberships after the first one, and the fit.

    The hyperparameters are fixed, so that the naive sweep can use the same ones.
    """
    settings = parameters("cvb0", job.K) | FIXED
    fit = StepwiseFit(relation, settings, job.seed, [q.copy() for q in start])
    after: list[np.ndarray] = []
    for timed in time_sweeps(fit):
        if timed.sweep.sweep == 1:
            after, first = [q.copy() for q in fit.memberships], timed.cpu
        elif timed.sweep.sweep == SWEEPS:
            break
    return (timed.cpu - first) / (SWEEPS - 1), after, fit


def time_naive_sweep(naive: NaiveState, share: float) -> float:
    """Return the CPU seconds of a sweep, extrapolated from a share of the objects."""
    tiny = [np.full((2, 2), 0.5), np.full((2, 2), 0.5)]
    NaiveState(np.eye(2, dtype=np.int8), tiny, [1.0, 1.0], 1.0, 1.0).sweep()  # compiles
    began = process_time()
    naive.sweep(share)
    return (process_time() - began) / share


def dense_cells(X: sparse.csr_array, unseen: sparse.csr_array | None = None) -> np.ndarray:
    """Return all cells of a relation as a dense array of 1, 0 and ``UNSEEN``."""
    cells = (X.toarray() > 0).astype(np.int8)
    if unseen is not None:
        cells[unseen.toarray() > 0] = UNSEEN
    return cells


def order_by_size(q: np.ndarray) -> np.ndarray:
    """Return memberships with the largest cluster first."""
    return q[:, np.argsort(-q.sum(axis=0), kind="stable")]


def largest_difference(one: list[np.ndarray], other: list[np.ndarray]) -> float:
    """Return the largest difference of two memberships, clusters ordered by size."""
    pairs = zip(one, other, strict=True)
    return max(float(np.abs(order_by_size(a) - order_by_size(b)).max()) for a, b in pairs)
