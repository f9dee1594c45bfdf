"""One fit of the paper's protocol: a tenth of the cells unseen, timed sweeps, a held-out score.

A fit is followed sweep by sweep, with the result of ``IRM.fit``. One run gives the score, the time
at which the change fell below each threshold, and the held-out likelihood over time.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from time import process_time
from typing import Any

import numpy as np
from data import Trial, whole_relation

from coblock import IRM
from coblock.model.relation import BinaryRelation
from paper.experiments import CURVES, DEFAULT, PICTURES, THRESHOLDS, Job, parameters
from paper.internals import CRITERIA, OWN, StepwiseFit
from paper.shapes import SHAPES, draw_shape

TRACED = 60  # sweeps whose bound and leave-one-out likelihood are kept for the figures
STEP = 1.4  # ratio of the sweep numbers of two consecutive points of a curve
PILOT = 4  # sweeps of Gibbs that estimate the time of one
FEWEST_GIBBS = 20  # sweeps of Gibbs, however short the limit is
GRACE = {  # multiple of the limit at which a fit is stopped
    "gibbs": 1.5,  # the number of its sweeps is chosen to take one limit
    DEFAULT: 4.0,  # the score of an incomplete search is not meaningful
}


@dataclass(frozen=True)
class Limits:
    """The largest CPU seconds of a fit, and the largest number of sweeps of a trial."""

    seconds: float
    sweeps: int | None = None


@dataclass(frozen=True)
class TimedSweep:
    """The report of a sweep, and the time of all sweeps up to it."""

    sweep: Any
    cpu: float


@dataclass
class FollowedFit:
    """A fit that has converged, or that was stopped at its limit."""

    model: IRM
    record: dict[str, Any]  # what is stored of it


def fit_held_out(job: Job, limits: Limits) -> dict[str, Any]:
    """Fit with a tenth of the cells unseen and score them."""
    trial = Trial.draw(job.relation, job.seed)
    unseen = None if job.method == "acvb0-zeros" else trial.unseen
    relation = BinaryRelation.build(trial.X, unseen=unseen)
    curve = (job.relation, job.K) in CURVES or (
        job.method == DEFAULT and job.relation in dict(CURVES)
    )
    followed = follow(relation, job, limits, trial if curve else None)
    record = followed.record
    record["score"] = followed.model.score_links(*trial.cells)
    record["oracle"] = None if np.isnan(trial.oracle) else trial.oracle
    if job.relation in PICTURES and job.seed == 0:
        record["labels"] = [label.tolist() for label in followed.model.result_.labels]
    return record


def fit_large(job: Job, limits: Limits) -> dict[str, Any]:
    """Fit with nothing unseen, to measure its time."""
    if job.relation in SHAPES:
        X = draw_shape(SHAPES[job.relation], job.seed)
    else:
        X = whole_relation(job.relation, job.seed)
    relation = BinaryRelation.build(X)
    rows, columns = relation.shape
    size = {"rows": rows, "columns": columns, "links": relation.n_links}
    return follow(relation, job, limits).record | size


def follow(
    relation: BinaryRelation, job: Job, limits: Limits, trial: Trial | None = None
) -> FollowedFit:
    """Follow a fit until it converges or reaches its limit of sweeps or of time.

    A fit that has converged by its own criterion is the result. It is timed until it has converged
    by the other ones, too, so that methods can be compared by each.
    If a ``trial`` is given, its held-out cells are scored at some sweeps. This is not timed.
    """
    settings = limited_parameters(relation, job, limits)
    fit = StepwiseFit(relation, settings, job.seed)
    tol, most_sweeps = fit.model.tol, fit.model.max_iter
    most_seconds = limits.seconds * GRACE.get(job.method, 1.0)
    passed: dict[str, dict[str, float]] = {}
    curve: list[tuple[float, float]] = []
    next_point, late, ended = 1.0, False, None  # the sweep at which the fit has ended
    for timed in time_sweeps(fit):
        number = len(fit.trace)
        changes = fit.changes(max(*THRESHOLDS, tol))
        now = {"sweep": number, "cpu": timed.cpu}
        for criterion, change in changes.items():
            for threshold in THRESHOLDS:
                if change < threshold:
                    passed.setdefault(f"{criterion} {threshold:g}".strip(), now)
        late = timed.cpu > most_seconds
        stops = late or number >= most_sweeps
        ends = ended is None and (changes[OWN] < tol or stops)
        if trial is not None and (ends or (ended is None and number >= next_point)):
            next_point = max(number * STEP, number + 1)
            curve.append((timed.cpu, fit.score(trial.cells)))
        if ends:
            ended, converged = timed, changes[OWN] < tol
            fit.conclude(converged=converged)
        if stops or (ended and all(f"{c} {tol:g}".strip() in passed for c in CRITERIA)):
            break
    if ended is None:  # the last phase is over
        ended, converged = timed, False
        fit.conclude(converged=converged)
    shortened = job.method == "gibbs" and most_sweeps < parameters(job.method, job.K)["max_iter"]
    late, timed, model = late and not converged, ended, fit.model
    record = {
        "sweeps": timed.sweep.sweep,
        "cpu": timed.cpu,
        "truncated": not converged and (late or shortened),
        "converged": converged,
        "passed": passed,
        "clusters": [len(np.unique(labels)) for labels in model.result_.labels],
        "log_evidence": model.result_.log_evidence,
        "curve": curve,
        "bound": [sweep.bound for sweep in fit.trace[:TRACED]],
        "leave_one_out": [sweep.leave_one_out for sweep in fit.trace[:TRACED]],
    }
    return FollowedFit(model, record)


def limited_parameters(relation: BinaryRelation, job: Job, limits: Limits) -> dict[str, Any]:
    """Return the parameters of a fit; a Gibbs chain gets as many sweeps as the limit allows."""
    found = parameters(job.method, job.K)
    if limits.sweeps is not None:
        most = IRM(**found).max_iter
        found["max_iter"] = min(limits.sweeps, most)
    if job.method != "gibbs":
        return found
    for timed in time_sweeps(StepwiseFit(relation, found, job.seed)):
        if timed.sweep.sweep == 1:
            first = timed.cpu  # includes compilation
        elif timed.sweep.sweep >= PILOT:
            break
    each = max((timed.cpu - first) / (PILOT - 1), 1e-6)
    fitting = max(int(limits.seconds / each), FEWEST_GIBBS)
    return found | {"max_iter": min(fitting, found["max_iter"])}


def time_sweeps(fit: StepwiseFit) -> Iterator[TimedSweep]:
    """Yield the sweeps of a fit; the time of the caller between two sweeps is not counted."""
    sweeps, cpu = fit.sweeps(), 0.0
    while True:
        began = process_time()
        sweep = next(sweeps, None)
        if sweep is None:
            return
        cpu += process_time() - began
        yield TimedSweep(sweep, cpu)
