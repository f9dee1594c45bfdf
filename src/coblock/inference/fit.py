"""From a relation to a result: phases, stop rule, restarts."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import dataclass, field, replace
from itertools import combinations
from time import perf_counter
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from sklearn.metrics import adjusted_rand_score

from coblock.inference.convergence import last_change, warn_if_not_converged
from coblock.inference.degrees import DegreeAverage, DegreeSearch, normalised_labels
from coblock.inference.draws import UniformDraws
from coblock.inference.engine import SEQUENTIAL_UP_TO, Engine, LocalEngine, Schedule
from coblock.inference.gibbs import GibbsSampler
from coblock.inference.phase import Outcome, Phase
from coblock.inference.posterior import PosteriorAverage, PosteriorChains
from coblock.inference.search import Search, climb_from
from coblock.inference.settings import SEARCH, Settings
from coblock.inference.singular import vector_chunks
from coblock.inference.start import (
    SpectralStart,
    most_probable,
    random_memberships,
    soft_labels,
    thread_pools,
    truncation,
)
from coblock.inference.variational import FIRST_UPDATE, SECOND_ORDER_FROM, Variational
from coblock.kernels import Floats, Indices
from coblock.model.degrees import DegreeChoice
from coblock.model.grouping import GroupedRelation, group
from coblock.model.hyperparameters import Hyperparameters
from coblock.model.labels import HardMemberships, StoredLabels, one_cluster
from coblock.model.partition import Partition, initial_hyper
from coblock.model.relation import BinaryRelation
from coblock.model.result import Result, make_result
from coblock.model.state import SoftState
from coblock.model.trace import Callback, SweepRecord

LONGEST_PREPARATION = 50  # CVB0 sweeps that turn a random start into labels


@dataclass(slots=True)
class Start:
    """One fit from one start: a stream of sweeps through the phases of its settings.

    The fields hold the complete state between any two sweeps, so that a fit can be checkpointed.
    """

    relation: Any  # RelationData with its cells in reach of the engine
    settings: Settings
    rng: np.random.Generator
    engine: Engine
    initial: list[Floats] | None = None  # memberships to start from
    position: int = 0  # of the current phase
    phase: Phase | None = None  # None before the first sweep
    trace: list[SweepRecord] = field(default_factory=list)
    degrees: DegreeChoice | None = None  # of an earlier phase

    def run(self, callback: Callback | None = None) -> Result:
        """Consume the sweeps, from the present state to their end.

        They end when the last phase is finished, when the stop rule holds, after ``max_iter``
        sweeps, or when the callback returns True.
        """
        stream, asked_to_stop = self.sweeps(), False
        while True:
            converged = self._has_converged()
            if converged or asked_to_stop or len(self.trace) >= self.settings.max_iter:
                return self.result(converged=converged)
            record = next(stream, None)
            if record is None:
                assert self.phase is not None
                return self.result(converged=self.phase.converged)
            self.trace.append(record)
            answer = None if callback is None else callback(record)
            asked_to_stop = isinstance(answer, bool | np.bool_) and bool(answer)

    def sweeps(self) -> Iterator[SweepRecord]:
        """Yield a record after each sweep of each phase."""
        began = perf_counter() - (self.trace[-1].seconds if self.trace else 0.0)
        if self.phase is None:
            self.phase = self._make_phase(None)
        while True:
            for record in self.phase.sweeps(lambda: perf_counter() - began):
                yield replace(record, sweep=len(self.trace) + 1)
            if self.position + 1 == len(self.settings.phases):
                return
            outcome = self.phase.outcome()
            self.degrees = outcome.degrees
            self.position += 1
            self.phase = self._make_phase(outcome)

    def result(self, *, converged: bool) -> Result:
        """Return the result as it stands; it takes over the memberships of the phase."""
        assert self.phase is not None
        found = self.phase.outcome()
        degrees = found.degrees or self.degrees
        if self.settings.degree_corrected is True and degrees is None:  # ended before
            found = self._degree_search(found, []).outcome()
            degrees = found.degrees
        labels = None if found.partition is None else found.partition.labels
        q = found.memberships
        if q is None:
            assert labels is not None
            q = certain_memberships(labels)
        relation = self.relation
        if isinstance(relation, GroupedRelation):
            assert labels is not None
            labels = list(map(np.take, labels, relation.objects))
            q = [table[objects] for table, objects in zip(q, relation.objects, strict=True)]
            relation = relation.full
        return make_result(
            relation,
            q,
            found.hyper,
            self.trace,
            converged=converged,
            labels=labels,
            samples=found.samples,
            degrees=degrees,
            sticks=found.sticks,
        )

    def _has_converged(self) -> bool:
        """Return whether the stop rule holds after the last sweep, or the last phase is over."""
        if self.phase is None or not self.trace:
            return False
        last = self.position + 1 == len(self.settings.phases)
        small = last_change(self.trace, self.settings) < self.settings.tol
        return last and (self.phase.converged or (small and self.phase.may_stop))

    def _make_phase(self, before: Outcome | None) -> Phase:
        """Return the phase at the present position, which goes on from what is ``before``."""
        settings, engine = self.settings, self.engine
        name = settings.phases[self.position]
        if name == "search":
            perturb = settings.degree_corrected is not True  # any plain optimum is a start
            return Search(self._start_partition(), self.rng, self._limits(), engine, perturb)
        if name == "degrees":
            assert before is not None
            return self._degree_search(before, self._degree_starts(before))
        if name == "posterior":
            assert before is not None
            return self._posterior(before)
        if name == "gibbs":
            q = self._start_memberships()
            partition = Partition(self.relation, most_probable(q), self._shared_hyper())
            one_by_one = LocalEngine(Schedule(1))
            return GibbsSampler(partition, self.rng, one_by_one, settings.max_iter, settings.rule)
        return self._variational(before)

    def _posterior(self, before: Outcome) -> Phase:
        """Return posterior averaging around the partition of a search."""
        averages, engine = self.settings.averages, self.engine
        if before.corrected is not None:
            return DegreeAverage(before.corrected, self.rng, averages=averages)
        assert before.partition is not None
        if averages and engine.schedule.is_sequential(self.relation.sizes):
            modes = (before.partition, before.modes)
            return PosteriorChains.from_modes(*modes, self.rng, engine, self._limits())
        return PosteriorAverage(before.partition, self.rng, engine, averages=averages)

    def _degree_starts(self, before: Outcome) -> list[list[Indices]]:
        """Return the labels that climbs under the corrected model start from (DEGREES D6).

        A dense relation has none if the plain model may be taken. The random numbers of the
        phases that follow are not used.
        """
        assert before.partition is not None
        auto = self.settings.degree_corrected == "auto"
        if auto and self.relation.density > SEARCH.dense:
            return []
        plain = [label.copy() for label in before.partition.labels]
        if self.initial is not None:
            return [most_probable(self.initial), plain]
        seed = int(deepcopy(self.rng).integers(2**31))
        return [normalised_labels(self.relation, self._limits(), seed), plain]

    def _degree_search(self, before: Outcome, starts: list[list[Indices]]) -> DegreeSearch:
        """Return the search under the corrected model, after one under the plain model."""
        assert before.partition is not None
        auto = self.settings.degree_corrected == "auto"
        return DegreeSearch(before.partition, before.modes, auto, self._limits(), starts)

    def _variational(self, before: Outcome | None) -> Variational:
        """Return the sweeps of a deterministic method, from the start or from a partition."""
        settings = self.settings
        if before is None:
            q = self._start_memberships()
            hyper = self._shared_hyper()
        else:
            assert before.partition is not None
            q = soft_labels(list(map(np.asarray, before.partition.labels)), 1.0)
            hyper = before.hyper
        if not settings.shared_prior:
            hyper = hyper.for_each_block((q[0].shape[1], q[-1].shape[1]), settings.block_hyperprior)
        random_start = settings.init == "random" and self.initial is None and before is None
        return Variational(
            SoftState(self.relation, q, hyper),
            self.engine,
            settings.inference,
            settings.exact_variance,
            settings.rule,
            settings.burn_in,
            settings.tol,
            hyper_delay=FIRST_UPDATE if random_start else 1,
            second_order_on=before is not None,
        )

    def _start_memberships(self) -> list[Floats]:
        """Return the memberships to start from."""
        if self.initial is not None:
            return [q.copy() for q in self.initial]
        if self.settings.init == "random":
            clusters = truncation(self.relation, self.settings.max_clusters, SEARCH.truncation)
            return random_memberships(self.relation, clusters, self.rng)
        spectral, most = self._spectral()
        return soft_labels(spectral.labels(most))

    def _start_partition(self) -> Partition:
        """Return the partition that the search starts from.

        Spectral labels of many clusters are the start where structure is strong. Where few
        clusters explain nearly as much, soft sweeps from these find weak structure better. Both
        numbers are raised while all of the clusters are used and the evidence rises.
        """
        if self.initial is not None:
            return self._partition(most_probable(self.initial))
        if self.settings.init == "random":
            return self._partition(self._sweep_softly(self._start_memberships()))
        spectral, most = self._spectral()
        few = tuple(min(SEARCH.few_start_clusters, K) for K in most)
        many = self._partition(spectral.labels(most))
        starts = [
            list(map(one_cluster, many.labels)),
            many.labels,
            spectral.labels(few),
        ]
        trials = self.engine.map(self._climb, starts)
        one, of_many, of_few = (trial.log_posterior() for trial in trials)
        best = max(trials, key=Partition.log_posterior)
        if of_few - one < SEARCH.weak_share * (of_many - one):
            return self._with_more_clusters(spectral, most, trials[1]) or many
        while True:
            found = self._climb(self._settle(spectral.labels(few)))
            if found.log_posterior() <= best.log_posterior():
                if best is trials[1]:
                    return self._with_more_clusters(spectral, most, best) or many
                return best
            best = found
            all_used = any(m.size == K for m, K in zip(found.m, few, strict=True))
            if few == most or not all_used:
                return best
            few = tuple(min(2 * K, limit) for K, limit in zip(few, most, strict=True))

    def _with_more_clusters(
        self, spectral: SpectralStart, clusters: tuple[int, ...], trial: Partition
    ) -> Partition | None:
        """Return what is found from more spectral clusters than those of a trial.

        Their number is raised while all of them are used and the evidence rises; None if it is
        not raised at all, as where any plain optimum is a start of the corrected model.
        """
        best = None
        while self.settings.max_clusters is None and self.settings.degree_corrected is not True:
            if any(m.size < K for m, K in zip(trial.m, clusters, strict=True)):
                break
            clusters = tuple(SEARCH.start_factor * K for K in clusters)
            found = self._climb(spectral.labels(clusters))
            if found.log_posterior() <= trial.log_posterior():
                break
            best = trial = found
        return best

    def _climb(self, labels: list[Indices]) -> Partition:
        """Return what a few rounds find from these labels."""
        return climb_from(self._partition(labels), self.engine)

    def _partition(self, labels: list[Indices]) -> Partition:
        """Return the partition of these labels."""
        hyper, fixed = self._shared_hyper(), self.settings.rule == "fixed"
        kept = self.engine.keep_labels(labels)
        return Partition.from_labels(self.relation, kept, hyper, fixed=fixed)

    def _settle(self, labels: list[Any]) -> list[Any]:
        """Return labels after soft sweeps, which weak structure needs.

        Memberships of many objects would be large tables. There the labels are drawn instead,
        sweep after sweep.
        """
        if len(vector_chunks(max(self.relation.sizes))) == 1:
            return self._sweep_softly(soft_labels(labels))
        partition = self._partition(labels)
        for _ in range(SEARCH.start_draws):
            uniform = UniformDraws.take(self.rng, sum(self.relation.sizes))
            self.engine.sweep_labels(partition, uniform)
            partition.drop_empty()
            partition.learn()
        return partition.labels

    def _sweep_softly(self, q: list[Floats]) -> list[Indices]:
        """Return the most probable labels after CVB0 sweeps from these memberships."""
        sweeps = Variational(SoftState(self.relation, q, self._shared_hyper()), self.engine, "cvb0")
        for record in sweeps.sweeps(perf_counter):
            if record.change < SECOND_ORDER_FROM or record.sweep == LONGEST_PREPARATION:
                break
        return most_probable(sweeps.state.q)

    def _spectral(self) -> tuple[SpectralStart, tuple[int, ...]]:
        """Return the vectors of the spectral start, and the numbers of clusters to find."""
        most = truncation(self.relation, self.settings.max_clusters, SEARCH.start_clusters)
        links = self.engine.normalised_links(self.relation)
        start = (self.relation, links, max(most), self.rng, self.engine.map)
        return SpectralStart.from_links(*start), most

    def _limits(self) -> tuple[int, ...] | None:
        limit = self.settings.max_clusters
        return None if limit is None else truncation(self.relation, limit, 1)

    def _shared_hyper(self) -> Hyperparameters:
        """Return the hyperparameters of the settings; those that are not given are weak."""
        settings, hyper = self.settings, initial_hyper(self.relation)
        if settings.block_prior is not None:
            hyper.prior = np.reshape(settings.block_prior, hyper.prior.shape)
        if settings.concentration is not None:
            hyper.alpha = list(settings.concentration[: len(hyper.alpha)])
        hyper.hyperprior = settings.hyperprior or hyper.hyperprior
        hyper.block_hyperprior = settings.block_hyperprior or hyper.block_hyperprior
        return hyper


@dataclass(slots=True)
class Fit:
    """Fits from several starts; the one with the largest log evidence is the result."""

    relation: Any
    settings: Settings
    seed: int
    initial: list[Floats] | None = None
    ended: list[Result] = field(default_factory=list)  # results of the starts that have ended
    current: Start | None = None  # the start under way, where starts run one after another

    def run(
        self,
        callback: Callback | None = None,
        *,
        engine: Engine | None = None,
        one_by_one: bool = False,
    ) -> Result:
        """Run the remaining starts and return the best result.

        Starts share the threads of ``n_jobs``; ``one_by_one`` gives all threads to one start at a
        time, which keeps it in ``current`` for checkpoints. A given engine runs them one by one.
        """
        settings = self.settings
        one_by_one |= engine is not None
        starts, threads = settings.threads
        threads, starts = (threads * starts, 1) if one_by_one else (threads, starts)

        def run_start(number: int) -> Result:
            with ThreadPoolExecutor(threads - 1) if threads > 1 else nullcontext() as pool:
                local = LocalEngine(self._schedule(), pool, threads - 1)
                chosen = local if engine is None else engine
                return self._start(number, chosen, keep=one_by_one).run(callback)

        remaining = range(len(self.ended), settings.n_init)
        with thread_pools().limit(limits=1):  # the bits of linear algebra depend on its threads
            if one_by_one:
                for number in remaining:
                    self.ended.append(run_start(number))
                    self.current = None
            else:
                calls = (delayed(run_start)(number) for number in remaining)
                self.ended += Parallel(n_jobs=starts, prefer="threads")(calls)
        return best_of(self.ended, settings)

    def _start(self, number: int, engine: Engine, *, keep: bool) -> Start:
        """Return the start under way with this engine, or a new one."""
        if self.current is not None:
            set_engine(self.current, engine)
            return self.current
        seeds = np.random.SeedSequence(self.seed, spawn_key=(number,))
        rng = np.random.default_rng(seeds)
        start = Start(self.grouped(), self.settings, rng, engine, self.initial)
        if keep:
            self.current = start
        return start

    def grouped(self) -> Any:
        """Return the relation of the starts, in which all objects without cells are one.

        Only the default phases and schedule know such an object.
        """
        default = self.settings.phases == ("search", "posterior") and self.initial is None
        if (
            default
            and self.settings.batch_size is None
            and isinstance(self.relation, BinaryRelation)
        ):
            return group(self.relation)
        return self.relation

    def _schedule(self) -> Schedule:
        """Return the schedule of a local engine; grouped objects count, too."""
        few = sum(self.relation.sizes) <= SEQUENTIAL_UP_TO
        return Schedule(self.settings.batch_size, SEQUENTIAL_UP_TO if few else 0)


def set_engine(start: Start, engine: Engine) -> None:
    """Let a start that was read from a file run on this engine."""
    start.engine = engine
    name = start.settings.phases[start.position]
    if name != "gibbs" and hasattr(start.phase, "engine"):  # those of degree correction have none
        start.phase.engine = engine  # type: ignore[union-attr]


def certain_memberships(labels: list[Any]) -> list[Any]:
    """Return memberships of 1 in the clusters of labels, stored as these are."""
    if isinstance(labels[0], StoredLabels):
        return [HardMemberships(label, np.flatnonzero(label.count(1))[-1] + 1) for label in labels]
    return list(soft_labels(labels, 1.0))


def best_of(results: list[Result], settings: Settings) -> Result:
    """Return the result with the largest log evidence; warn if it has not converged."""
    best = max(results, key=lambda result: result.log_evidence)
    if len(results) > 1:
        best = replace(best, stability=agreement(results))
    if settings.inference != "gibbs" and settings.tol > 0:
        warn_if_not_converged(best, settings)
    return best


def agreement(results: list[Result]) -> float:
    """Return the mean adjusted Rand index over all pairs of results and their domains."""
    pairs = (zip(a.labels, b.labels, strict=True) for a, b in combinations(results, 2))
    return float(np.mean([adjusted_rand_score(*labels) for pair in pairs for labels in pair]))
