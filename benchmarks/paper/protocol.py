"""One fit of the paper's protocol: a tenth of the cells unseen, sweeps on a clock, a score.

A fit is followed sweep by sweep, as ``IRM.fit`` follows it and with the same result, so that one
run gives the score, the time at which each threshold was passed and the likelihood on the way.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from time import perf_counter, process_time
from typing import Any

import numpy as np
from data import Trial
from sklearn.utils import check_random_state

from coblock import IRM
from coblock.analysis.evaluation import HeldOut
from coblock.analysis.prediction import link_probability, mean_log_probability
from coblock.inference.fit import FitRun, Settings, last_change
from coblock.inference.gibbs import GibbsRun
from coblock.model.relation import Relation
from coblock.model.result import Result
from coblock.model.trace import Sweep
from paper.experiments import CURVES, DEFAULT, PICTURES, THRESHOLDS, Job, parameters
from paper.shapes import SHAPES, draw_shape

TRACED = 60  # first sweeps whose quantities are kept for the figures
STEP = 1.4  # from one point of a curve to the next, in sweeps
PILOT = 4  # sweeps of Gibbs that tell how long one takes
FEWEST_GIBBS = 20
GRACE = {  # times the limit that a method gets before it is cut off
    "gibbs": 1.5,  # its sweeps were chosen to fit
    DEFAULT: 4.0,  # half a search is worth little
}


@dataclass(frozen=True)
class Limits:
    """How long a fit may take: CPU seconds, and sweeps where fewer than the method's are wanted."""

    seconds: float
    sweeps: int | None = None


@dataclass(frozen=True)
class Tick:
    """A sweep, and the time that all sweeps up to it took; what we do in between is free."""

    sweep: Sweep
    cpu: float
    wall: float


def fit_held_out(job: Job, limits: Limits) -> dict[str, Any]:
    """Fit with a tenth of the cells unseen and score them."""
    trial = Trial.draw(job.relation, job.seed)
    cells = trial.held
    unseen = None if job.method == "acvb0-zeros" else cells.unseen
    relation = Relation.build(cells.X, unseen=unseen)
    curve = (job.relation, job.K) in CURVES or (
        job.method == DEFAULT and job.relation in dict(CURVES)
    )
    followed = follow(relation, job, limits, cells if curve else None)
    record = followed.record()
    result = followed.result
    record["score"] = score(result, cells)
    record["oracle"] = None if np.isnan(trial.oracle) else trial.oracle
    if job.relation in PICTURES and job.seed == 0:
        record["labels"] = [label.tolist() for label in result.labels]
    return record


def fit_large(job: Job, limits: Limits) -> dict[str, Any]:
    """Fit with nothing unseen; only time counts."""
    X = (
        draw_shape(SHAPES[job.relation], job.seed)
        if job.relation in SHAPES
        else Trial.whole(job.relation, job.seed)
    )
    relation = Relation.build(X)
    record = follow(relation, job, limits).record()
    rows, columns = relation.shape
    return record | {"rows": rows, "columns": columns, "links": relation.n_links}


@dataclass
class Followed:
    """A fit that has come to its end, or to its limit."""

    result: Result
    last: Tick
    wanted_sweeps: int
    truncated: bool
    converged: bool
    passed: dict[str, dict[str, float]]
    curve: list[tuple[float, float]]
    bound: list[float]
    leave_one_out: list[float]

    def record(self) -> dict[str, Any]:
        """Return what is stored of it."""
        result = self.result
        return {
            "sweeps": self.last.sweep.sweep,
            "wanted_sweeps": self.wanted_sweeps,
            "cpu": self.last.cpu,
            "wall": self.last.wall,
            "truncated": self.truncated,
            "converged": self.converged,
            "passed": self.passed,
            "clusters": [len(np.unique(labels)) for labels in result.labels],
            "log_evidence": result.log_evidence,
            "curve": self.curve,
            "bound": self.bound,
            "leave_one_out": self.leave_one_out,
        }


def follow(relation: Relation, job: Job, limits: Limits, cells: HeldOut | None = None) -> Followed:
    """Follow the sweeps of a fit until it converges, has no sweeps left or no time.

    With ``cells`` their likelihood is computed on the way, off the clock.
    """
    settings = settings_of(relation, job, limits)
    wanted, run = settings.max_iter, start(relation, settings, job.seed)
    gibbs = settings.inference == "gibbs"
    most = limits.seconds * GRACE.get(job.method, 1.0)
    passed: dict[str, dict[str, float]] = {}
    curve: list[tuple[float, float]] = []
    trace: list[Sweep] = []
    next_point, converged, late = 1.0, False, False
    for tick in clocked(run):
        trace.append(tick.sweep)
        if run.may_stop():
            change = last_change(trace, settings)
            for threshold in THRESHOLDS:
                if change < threshold:
                    now = {"sweep": tick.sweep.sweep, "cpu": tick.cpu, "wall": tick.wall}
                    passed.setdefault(f"{threshold:g}", now)
            converged = change < settings.tol
        late = tick.cpu > most
        ends = converged or late or len(trace) >= wanted
        if cells is not None and (ends or len(trace) >= next_point):
            next_point = max(len(trace) * STEP, len(trace) + 1)
            curve.append((tick.cpu, score_so_far(run, cells)))
        if ends:
            break
    fewer = gibbs and wanted < parameters(job.method, job.K)["max_iter"]
    return Followed(
        run.conclude(trace, converged=converged),
        tick,
        wanted,
        truncated=not converged and (late or fewer),
        converged=converged,
        passed=passed,
        curve=curve,
        bound=[sweep.bound for sweep in trace[:TRACED]],
        leave_one_out=[sweep.leave_one_out for sweep in trace[:TRACED]],
    )


def settings_of(relation: Relation, job: Job, limits: Limits) -> Settings:
    """Return how ``IRM`` would fit; a Gibbs chain gets as many sweeps as fit the limit."""
    settings = IRM(**parameters(job.method, job.K))._settings()
    if limits.sweeps is not None:
        settings = replace(settings, max_iter=min(limits.sweeps, settings.max_iter))
    if settings.inference != "gibbs":
        return settings
    for tick in clocked(start(relation, settings, job.seed)):
        if tick.sweep.sweep == 1:
            first = tick.cpu  # compiles
        elif tick.sweep.sweep >= PILOT:
            break
    each = max((tick.cpu - first) / (PILOT - 1), 1e-6)
    fitting = max(int(limits.seconds / each), FEWEST_GIBBS)
    return replace(settings, max_iter=min(fitting, settings.max_iter))


def start(relation: Relation, settings: Settings, seed: int) -> FitRun:
    """Return the run that ``IRM(random_state=seed).fit`` follows."""
    rng = np.random.default_rng(check_random_state(seed).randint(2**31))
    return FitRun(relation, settings, rng.spawn(1)[0])


def clocked(run: FitRun) -> Iterator[Tick]:
    """Yield the sweeps of a run with the time they took."""
    sweeps, cpu, wall = run.sweeps(), 0.0, 0.0
    while True:
        cpu_began, wall_began = process_time(), perf_counter()
        sweep = next(sweeps, None)
        if sweep is None:
            return
        cpu += process_time() - cpu_began
        wall += perf_counter() - wall_began
        yield Tick(sweep, cpu, wall)


def score(result: Result, cells: HeldOut) -> float:
    """Return the mean log probability of the held-out cells."""
    probability = link_probability(result, cells.rows, cells.columns)
    return mean_log_probability(probability, cells.values)


def score_so_far(run: FitRun, cells: HeldOut) -> float:
    """Return the score of the fit as it stands; of a Gibbs chain, that of its last sample."""
    if not isinstance(run.run, GibbsRun):
        return score(run.conclude([], converged=False), cells)
    now = run.run.partition
    block = (now.a + now.n) / (now.a + now.b + now.n + now.N)
    probability = block[now.labels[0][cells.rows], now.labels[-1][cells.columns]]
    return mean_log_probability(probability, cells.values)
