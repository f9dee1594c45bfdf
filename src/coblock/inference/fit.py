"""From a relation to a result: start, sweeps, stop rule, restarts."""

import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import InitVar, dataclass, field, replace
from itertools import combinations
from time import perf_counter

import numpy as np
from joblib import Parallel, delayed, effective_n_jobs
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score

from coblock.inference.gibbs import GibbsRun
from coblock.inference.posterior import ConditionalRun
from coblock.inference.schedule import Schedule
from coblock.inference.search import SearchRun
from coblock.inference.start import (
    START_CLUSTERS,
    TRUNCATION,
    memberships_of,
    most_probable,
    random_memberships,
    spectral_labels,
    truncation,
)
from coblock.inference.variational import SHORTEST_BURN_IN, WARM, VariationalRun
from coblock.kernels import Floats, Indices
from coblock.model.hyperparameters import FIRST_UPDATE, Priors, Rule
from coblock.model.partition import Partition
from coblock.model.relation import Relation
from coblock.model.result import Result, conclude
from coblock.model.state import State
from coblock.model.trace import Sweep

Callback = Callable[[Sweep], object]
LONGEST_PREPARATION = 50  # CVB0 sweeps that make labels of a random start
LONGEST_SETTLING = 100  # and those that follow the search of a small relation,
STILL = 1e-5  # until memberships change less


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
    batch_size: int | tuple[int, int] | None = None
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
    return best_of(results, settings)


def best_of(results: list[Result], settings: Settings) -> Result:
    """Return the result with the largest log evidence; warn if it has not converged."""
    best = max(results, key=lambda result: result.log_evidence)
    if len(results) > 1:
        best = replace(best, stability=agreement(results))
    if settings.inference != "gibbs" and settings.tol > 0:
        _warn_of_no_convergence(best, settings)
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
        return FitRun(relation, settings, rng, initial, schedule).result(callback)


@dataclass(slots=True)
class FitRun:
    """One fit as one stream of sweeps: the start, the search, the method's own sweeps.

    Between two sweeps the fields say all that the next ones depend on.
    """

    relation: Relation
    settings: Settings
    rng: np.random.Generator
    initial: list[Floats] | None = None  # memberships to start from
    given: InitVar[Schedule | None] = None  # None: as the settings say, on one thread
    schedule: Schedule = field(init=False)
    search: SearchRun | None = field(init=False, default=None)
    run: GibbsRun | VariationalRun | ConditionalRun | None = field(init=False, default=None)
    trace: list[Sweep] = field(init=False, default_factory=list)  # what was followed so far

    def __post_init__(self, given: Schedule | None) -> None:
        """Take the schedule that is given, or make it."""
        self.schedule = Schedule(self.settings.batch_size) if given is None else given

    def result(self, callback: Callback | None = None) -> Result:
        """Follow the sweeps, from wherever the run stands, to their end."""
        stream = self.sweeps()
        _, converged = follow(stream, self.settings, self.may_stop, callback, self.trace)
        return self.conclude(self.trace, converged=converged)

    def sweeps(self) -> Iterator[Sweep]:
        """Yield a report after each sweep."""
        began = perf_counter() - (self.trace[-1].seconds if self.trace else 0.0)
        if self.search is None and self.run is None:
            self._begin()
        if self.run is None:
            assert self.search is not None
            yield from self.search.sweeps(began)
            self.run = self._after(self.search.partition)
        before = 0 if self.search is None else self.search.number
        if isinstance(self.run, VariationalRun) and self._ends_around_a_partition():
            yield from settling_sweeps(self.run, began, before)
            found = Partition.start(self.relation, most_probable(self.run.memberships))
            self.run = self._around(found, self.run.number)
        if isinstance(self.run, GibbsRun):
            yield from self.run.sweeps(began)
        else:
            yield from self.run.sweeps(began, before)

    def _begin(self) -> None:
        """Make the search, or where there is none the method's own run, at the start."""
        settings, relation = self.settings, self.relation
        if settings.inference == "gibbs":
            memberships = self._start()
            priors = self._priors(memberships)
            weak = (float(priors.a.flat[0]), float(priors.b.flat[0]), priors.alpha)
            partition = Partition(relation, most_probable(memberships), *weak)
            self.run = GibbsRun(partition, self.rng, settings.max_iter, settings.rule)
        elif not settings.refine:
            memberships = self._start()
            self.run = self._variational(memberships, self._priors(memberships))
        else:
            partition = Partition.start(relation, self._start_labels())
            self.search = SearchRun(partition, self.rng, self._most_clusters(), self.schedule)

    def _after(self, found: Partition) -> ConditionalRun | VariationalRun:
        """Return what follows the search: memberships around its partition, or soft sweeps.

        Where there are few objects, soft sweeps come first in any case: the evidence may make
        each a cluster of its own, which they undo. With many, in batches, they would drift to
        less evidence.
        """
        if self._ends_around_a_partition() and not self._is_small():
            return self._around(found)
        run = self._variational(memberships_of(found.labels, 1.0), self._priors_of(found))
        run.warm = True
        return run

    def _around(self, found: Partition, number: int = 0) -> ConditionalRun:
        """Return the last sweeps, around a partition, after ``number`` soft ones."""
        averages = self.settings.inference.startswith("a")
        return ConditionalRun(found, self.rng, self.schedule, averages, number)

    def _ends_around_a_partition(self) -> bool:
        """Say whether the fit ends so: after a search, but for second order and other priors."""
        settings = self.settings
        return settings.refine and settings.inference.endswith("0") and settings.shared_prior

    def _is_small(self) -> bool:
        return self.schedule.is_sequential(self.relation.sizes)

    def may_stop(self) -> bool:
        """Say whether the stop rule applies to the last sweep."""
        run = self.run
        if isinstance(run, ConditionalRun):
            return run.is_complete
        if not isinstance(run, VariationalRun) or self._ends_around_a_partition():
            return False
        begun = run.averaged > 1 if run.method.startswith("a") else run.number > 1
        return begun and run.is_complete()

    def conclude(self, trace: list[Sweep], *, converged: bool) -> Result:
        """Return the result as it stands."""
        if isinstance(self.run, ConditionalRun):
            samples, found = None, self.run.memberships
            priors = self._priors_of(self.run.partition)
        elif self.run is not None:
            samples = self.run.samples if isinstance(self.run, GibbsRun) else None
            found, priors = list(self.run.memberships), self.run.priors
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

    def _start_labels(self) -> list[Indices]:
        """Return labels to start the search from; random memberships are swept first."""
        settings = self.settings
        if self.initial is not None:
            return most_probable(self.initial)
        if settings.init != "random":
            clusters = truncation(self.relation, settings.max_clusters, START_CLUSTERS)
            return spectral_labels(self.relation, clusters, self.rng)
        memberships = self._start()
        state = State(self.relation, memberships, self._priors(memberships))
        run = VariationalRun(state, "cvb0", schedule=self.schedule)
        for sweep in run.sweeps(perf_counter()):
            if sweep.change < WARM or sweep.sweep == LONGEST_PREPARATION:
                break
        return most_probable(run.memberships)

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


def settling_sweeps(run: VariationalRun, began: float, before: int) -> Iterator[Sweep]:
    """Yield the sweeps of a run until its memberships hardly change, but not very many.

    From a partition they may change slowly at first.
    """
    sweeps = run.sweeps(began, before)
    while run.number < LONGEST_SETTLING:
        if run.number >= SHORTEST_BURN_IN and run.changes[-1] < STILL:
            break
        yield next(sweeps)


def follow(
    sweeps: Iterable[Sweep],
    settings: Settings,
    may_stop: Callable[[], bool],
    callback: Callback | None = None,
    trace: list[Sweep] | None = None,
) -> tuple[list[Sweep], bool]:
    """Consume sweeps until they converge, ``max_iter`` is reached or the callback says True.

    A ``trace`` of earlier sweeps is gone on with; the stop rule looks at its last one first.
    """
    trace = [] if trace is None else trace
    stream, asked_to_stop = iter(sweeps), False
    while True:
        converged = bool(trace) and has_converged(trace, settings) and may_stop()
        if converged or asked_to_stop or len(trace) >= settings.max_iter:
            return trace, converged
        sweep = next(stream, None)
        if sweep is None:
            return trace, False
        trace.append(sweep)
        answer = None if callback is None else callback(sweep)
        asked_to_stop = isinstance(answer, bool | np.bool_) and bool(answer)


def has_converged(trace: list[Sweep], settings: Settings) -> bool:
    """Say whether the change of memberships, or of VB's bound, fell below tol (MODEL 9)."""
    return last_change(trace, settings) < settings.tol


def last_change(trace: list[Sweep], settings: Settings) -> float:
    """Return what the stop rule looks at: the change of memberships, or of VB's bound."""
    last = trace[-1]
    if settings.inference == "vb" and len(trace) > 1:
        return abs(last.bound - trace[-2].bound) / max(abs(last.bound), 1.0)
    return last.change


def _warn_of_no_convergence(result: Result, settings: Settings) -> None:
    """Warn if the fit ended because it had no sweeps left."""
    trace = result.trace
    if result.converged or len(trace) < settings.max_iter:
        return
    what = "bound" if settings.inference == "vb" else "memberships"
    why = f"the last change was {last_change(trace, settings):.2g}, tol is {settings.tol:g}"
    if has_converged(trace, settings):
        why = "the search, or the samples after it, had not come to their end"
    warnings.warn(
        f"The {what} had not converged after {len(trace):,} sweeps: {why}. Raise max_iter (now "
        f"{settings.max_iter:,}) or tol; the result so far is usable, look at trace_.",
        ConvergenceWarning,
        stacklevel=6,
    )
