"""Run jobs in one or several processes until all are done or the time budget is used up."""

import multiprocessing
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numba
import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from coblock import IRM
from paper.experiments import Job, is_available, parameters
from paper.protocol import Limits, fit_held_out, fit_large
from paper.store import Store, current_commit
from paper.timing import time_missing, time_naive

PARTS: dict[str, Callable[[Job, Limits], dict[str, Any]]] = {
    "held-out": fit_held_out,
    "large": fit_large,
    "naive": time_naive,
    "growth": time_naive,
    "missing": time_missing,
}
_compiled: set[str] = set()


@dataclass(frozen=True)
class Budget:
    """Wall seconds of all jobs, limits of one fit, and the number of processes."""

    seconds: float
    limits: Limits
    workers: int = 1


@dataclass(frozen=True)
class Outcome:
    """Numbers of finished and remaining jobs, and the messages of failed ones."""

    finished: int
    remaining: int
    failed: list[str]


def run_all(jobs: list[Job], store: Store, budget: Budget, console: Console) -> Outcome:
    """Run the jobs that are not done, in order; none starts when the budget is used up."""
    waiting = [
        job
        for job in jobs
        if is_available(job.relation) and not store.is_done(job, budget.limits.seconds)
    ]
    failed: list[str] = []
    finished = 0
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=console) as progress:
        task = progress.add_task("paper", total=len(waiting))
        for job, error in _results(waiting, store, budget):
            if error is None:
                finished += 1
            else:
                failed.append(f"{job.key}: {error}")
                console.print(failed[-1], style="red", markup=False)
            progress.update(task, advance=1, description=job.key)
    return Outcome(finished, len(waiting) - finished - len(failed), failed)


def _results(jobs: list[Job], store: Store, budget: Budget) -> Iterator[tuple[Job, str | None]]:
    """Yield each job when it has ended, with the reason if it failed."""
    ends_at = perf_counter() + budget.seconds
    if budget.workers == 1:
        for job in jobs:
            if perf_counter() >= ends_at:
                return
            yield job, attempt(job, store, budget.limits)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(budget.workers, mp_context=context) as pool:
        running: dict[Future[str | None], Job] = {}
        queue = iter(jobs)
        while True:
            while len(running) < budget.workers and perf_counter() < ends_at:
                following = next(queue, None)
                if following is None:
                    break
                running[pool.submit(attempt, following, store, budget.limits)] = following
            if not running:
                return
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                yield running.pop(future), future.result()


def attempt(job: Job, store: Store, limits: Limits) -> str | None:
    """Run one job and store its record; return the message of an error, so that others run."""
    numba.set_num_threads(1)  # the cores are used by processes
    try:
        with threadpool_limits(1), warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # it is in the record
            _compile_kernels(job)
            record = PARTS[job.part](job, limits)
    except Exception as error:  # shown; the page says "not run"
        return f"{type(error).__name__}: {error}"
    record |= {
        "limit": limits.seconds,
        "commit": current_commit(),
    }
    store.put(job, record)
    return None


def _compile_kernels(job: Job) -> None:
    """Fit a tiny relation with the same settings, so that compilation is not timed."""
    method = job.method if job.part in {"held-out", "large"} else "cvb0"
    if method in _compiled:
        return
    tiny = parameters(method, 4) | {"max_iter": 30, "tol": 0, "random_state": 0}
    rng = np.random.default_rng(0)
    X = (rng.random((12, 14)) < 0.4).astype(float)
    X[0, 0] = np.nan
    IRM(**tiny).fit(X)
    _compiled.add(method)
