"""From a relation to a result: start, sweeps, stop rule, restarts."""

import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from itertools import combinations
from time import perf_counter

import numpy as np
from joblib import Parallel, delayed, effective_n_jobs
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score

from coblock.batches import Schedule
from coblock.hyperparameters import FIRST_UPDATE, Priors, Rule
from coblock.inference.gibbs import GibbsRun
from coblock.inference.report import Sweep
from coblock.inference.search import SearchRun
from coblock.inference.variational import WARM, VariationalRun
from coblock.kernels import Floats
from coblock.partition import Partition
from coblock.relation import Relation
from coblock.result import Result, conclude
from coblock.start import (
    START_CLUSTERS,
    TRUNCATION,
    memberships_of,
    most_probable,
    random_memberships,
    spectral_labels,
    truncation,
)
from coblock.state import State

Callback = Callable[[Sweep], object]
LONGEST_PREPARATION = 50  # CVB0 sweeps that make labels of a random start


@dataclass(frozen=True, slots=True)
class Settings:
    """How to fit; see :class:`coblock.IRM` for what each means."""

    inference: str = "acvb0"
    max_clusters: int | tuple[int, int] | None = None
    init: str = "spectral"
    refine: bool = True
    shared_prior: bool = True
    exact_variance: bool = True
    rule: Rule = "newton"
    burn_in: int | None = None
    tol: float = 1e-5
    max_iter: int = 1000
    n_init: int = 1
    batch_size: int | None = None
    n_jobs: int | None = None

    @property
    def threads(self) -> tuple[int, int]:
        """Starts that run at the same time, and threads for the sweeps of each."""
        jobs = effective_n_jobs(self.n_jobs)
        starts = min(jobs, self.n_init)
        return starts, jobs // starts


def fit(
    relation: Relation,
    settings: Settings,
    rng: np.random.Generator,
    *,
    initial: list[Floats] | None = None,
    callback: Callback | None = None,
) -> Result:
    """Fit ``n_init`` times and return the result with the largest log evidence."""
    results: list[Result] = Parallel(n_jobs=settings.threads[0], prefer="threads")(
        delayed(fit_once)(relation, settings, start, initial, callback)
        for start in rng.spawn(settings.n_init)
    )
    best = max(results, key=lambda result: result.log_evidence)
    if len(results) > 1:
        best = replace(best, stability=agreement(results))
    if settings.inference != "gibbs" and settings.tol > 0:
        warn_of_no_convergence(best, settings)
    return best


def agreement(results: list[Result]) -> float:
    """Return the mean adjusted Rand index over all pairs of results and their domains."""
    return float(
        np.mean(
            [
                adjusted_rand_score(one, other)
                for first, second in combinations(results, 2)
                for one, other in zip(first.labels, second.labels, strict=True)
            ]
        )
    )


def fit_once(
    relation: Relation,
    settings: Settings,
    rng: np.random.Generator,
    initial: list[Floats] | None = None,
    callback: Callback | None = None,
) -> Result:
    """Fit from one start."""
    threads = settings.threads[1]
    with ThreadPoolExecutor(threads) if threads > 1 else nullcontext() as pool:
        schedule = Schedule(settings.batch_size, pool)
        run = FitRun(relation, settings, rng, initial, schedule)
        trace, converged = follow(run.sweeps(), settings, run.may_stop, callback)
        return run.conclude(trace, converged=converged)


@dataclass(slots=True)
class FitRun:
    """One fit as one stream of sweeps: the start, the search, the method's own sweeps."""

    relation: Relation
    settings: Settings
    rng: np.random.Generator
    initial: list[Floats] | None = None  # memberships to start from
    schedule: Schedule = field(default_factory=Schedule)
    search: SearchRun | None = field(init=False, default=None)
    run: GibbsRun | VariationalRun | None = field(init=False, default=None)

    def sweeps(self) -> Iterator[Sweep]:
        """Yield a report after each sweep."""
        began = perf_counter()
        settings, relation = self.settings, self.relation
        memberships = self._start()
        if settings.inference == "gibbs":
            priors = self._priors(memberships)
            weak = (float(priors.a.flat[0]), float(priors.b.flat[0]), priors.alpha)
            partition = Partition(relation, most_probable(memberships), *weak)
            self.run = GibbsRun(partition, self.rng, settings.max_iter, settings.rule)
            yield from self.run.sweeps(began)
        elif not settings.refine:
            self.run = self._variational(memberships, self._priors(memberships))
            yield from self.run.sweeps(began)
        else:
            partition = Partition.start(relation, most_probable(self._prepared(memberships)))
            self.search = SearchRun(partition, self.rng, self._most_clusters(), self.schedule)
            yield from self.search.sweeps(began)
            found = self.search.partition
            sure = memberships_of(found.labels, 1.0)
            self.run = self._variational(sure, self._priors_of(found))
            self.run.warm = True
            yield from self.run.sweeps(began, before=self.search.number)

    def may_stop(self) -> bool:
        """Say whether the stop rule applies to the last sweep."""
        run = self.run
        if not isinstance(run, VariationalRun):
            return False
        begun = run.averaged > 1 if run.method.startswith("a") else run.number > 1
        return begun and run.is_complete()

    def conclude(self, trace: list[Sweep], *, converged: bool) -> Result:
        """Return the result as it stands."""
        if self.run is not None:
            samples = self.run.samples if isinstance(self.run, GibbsRun) else None
            found, priors = self.run.memberships, self.run.priors
        else:  # stopped during the search
            assert self.search is not None
            partition, samples = self.search.partition, None
            partition.recount()
            found, priors = memberships_of(partition.labels, 1.0), self._priors_of(partition)
        return conclude(self.relation, found, priors, trace, converged=converged, samples=samples)

    def _start(self) -> list[Floats]:
        """Return the memberships to start from."""
        settings = self.settings
        if self.initial is not None:
            return [q.copy() for q in self.initial]
        if settings.init == "random":
            clusters = truncation(self.relation, settings.max_clusters, TRUNCATION)
            return random_memberships(self.relation, clusters, self.rng)
        clusters = truncation(self.relation, settings.max_clusters, START_CLUSTERS)
        return memberships_of(spectral_labels(self.relation, clusters, self.rng))

    def _prepared(self, memberships: list[Floats]) -> list[Floats]:
        """Return memberships whose labels mean something: random ones are swept first."""
        if self.settings.init != "random" or self.initial is not None:
            return memberships
        state = State(self.relation, memberships, self._priors(memberships))
        run = VariationalRun(state, "cvb0", schedule=self.schedule)
        for sweep in run.sweeps(perf_counter()):
            if sweep.change < WARM or sweep.sweep == LONGEST_PREPARATION:
                break
        return run.memberships

    def _variational(self, memberships: list[Floats], priors: Priors) -> VariationalRun:
        settings = self.settings
        blind = settings.init == "random" and self.initial is None and not settings.refine
        return VariationalRun(
            State(self.relation, memberships, priors),
            settings.inference,
            settings.exact_variance,
            settings.rule,
            settings.burn_in,
            wait=FIRST_UPDATE if blind else 1,
            schedule=self.schedule,
        )

    def _most_clusters(self) -> tuple[int, ...] | None:
        limit = self.settings.max_clusters
        return None if limit is None else truncation(self.relation, limit)

    def _priors(self, memberships: list[Floats]) -> Priors:
        """Return weak priors for a start."""
        tables = (memberships[0].shape[1], memberships[-1].shape[1])
        density, shared = self.relation.density, self.settings.shared_prior
        return Priors.start(tables, len(memberships), density, shared)

    def _priors_of(self, partition: Partition) -> Priors:
        """Return the priors that a search has ended with."""
        if self.settings.rule == "fixed":
            return self._priors(memberships_of(partition.labels))
        shape, shared = partition.n.shape, self.settings.shared_prior
        a, b = np.full(shape, partition.a), np.full(shape, partition.b)
        return Priors(list(partition.alpha), a, b, shared)


def follow(
    sweeps: Iterable[Sweep],
    settings: Settings,
    may_stop: Callable[[], bool],
    callback: Callback | None = None,
) -> tuple[list[Sweep], bool]:
    """Consume sweeps until they converge, ``max_iter`` is reached or the callback says True."""
    trace: list[Sweep] = []
    for sweep in sweeps:
        trace.append(sweep)
        answer = None if callback is None else callback(sweep)
        asked_to_stop = isinstance(answer, bool | np.bool_) and bool(answer)
        converged = has_converged(trace, settings) and may_stop()
        if converged or asked_to_stop or len(trace) >= settings.max_iter:
            return trace, converged
    return trace, False


def has_converged(trace: list[Sweep], settings: Settings) -> bool:
    """Say whether the change of memberships, or of VB's bound, fell below tol (MODEL 9)."""
    return last_change(trace, settings) < settings.tol


def last_change(trace: list[Sweep], settings: Settings) -> float:
    """Return what the stop rule looks at: the change of memberships, or of VB's bound."""
    last = trace[-1]
    if settings.inference == "vb" and len(trace) > 1:
        return abs(last.bound - trace[-2].bound) / max(abs(last.bound), 1.0)
    return last.change


def warn_of_no_convergence(result: Result, settings: Settings) -> None:
    """Warn if the fit ended because it had no sweeps left."""
    trace = result.trace
    if result.converged or len(trace) < settings.max_iter:
        return
    what = "bound" if settings.inference == "vb" else "memberships"
    warnings.warn(
        f"The {what} had not converged after {len(trace):,} sweeps: the last change was "
        f"{last_change(trace, settings):.2g}, tol is {settings.tol:g}. Raise max_iter (now "
        f"{settings.max_iter:,}) or tol; the result so far is usable, look at trace_.",
        ConvergenceWarning,
        stacklevel=4,
    )
