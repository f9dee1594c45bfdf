"""Fits: phases, averaging and its theorem, stop rule, burn-in, shrinkage, restarts."""

import warnings
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, replace
from itertools import chain, islice, repeat

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score

from coblock import IRM
from coblock.datasets import load_senate
from coblock.generate import planted, synth1
from coblock.inference.convergence import last_change
from coblock.inference.engine import LocalEngine, Schedule
from coblock.inference.fit import Fit, Start
from coblock.inference.phase import Outcome
from coblock.inference.posterior import PosteriorAverage
from coblock.inference.settings import METHODS, SEARCH, Settings
from coblock.inference.start import random_memberships, soft_labels
from coblock.inference.variational import Variational
from coblock.model.hyperparameters import Hyperparameters
from coblock.model.partition import Partition
from coblock.model.relation import BinaryRelation
from coblock.model.result import Result
from coblock.model.state import SoftState
from coblock.model.trace import SweepRecord

ENGINE = LocalEngine()
NAMES = {
    "Search": "search",
    "PosteriorAverage": "posterior",  # in batches
    "PosteriorChains": "posterior",  # sequential
    "Variational": "variational",
    "GibbsSampler": "gibbs",
}
every_method = pytest.mark.parametrize("inference", METHODS)


def random_state(relation: BinaryRelation, K: int, seed: int = 0) -> SoftState:
    q = random_memberships(relation, (K,) * len(relation.sizes), np.random.default_rng(seed))
    hyper = Hyperparameters.initial(relation.likelihood, relation.density, (K, K), len(q))
    return SoftState(relation, q, hyper)


def variational(relation: BinaryRelation, K: int, method: str, **options) -> Variational:
    return Variational(random_state(relation, K), ENGINE, method, **options)


def first_sweeps(phase, count: int) -> Iterator[SweepRecord]:
    return islice(phase.sweeps(lambda: 0.0), count)


def new_start(relation: BinaryRelation, settings: Settings, seed: int = 0) -> Start:
    engine = LocalEngine(Schedule(settings.batch_size))
    return Start(relation, settings, np.random.default_rng(seed), engine)


def run_fit(relation: BinaryRelation, settings: Settings, seed: int = 0) -> Result:
    return Fit(relation, settings, seed).run()


def record_of(number: int, change: float, bound: float = -100.0) -> SweepRecord:
    return SweepRecord(number, change, 0.0, bound, 1, 1, 0.0)


@pytest.fixture(scope="module")
def senate() -> BinaryRelation:
    return BinaryRelation.build(load_senate().values)


@pytest.fixture(scope="module")
def small() -> BinaryRelation:
    return BinaryRelation.build(synth1(0).X)


# Phases


@pytest.mark.parametrize(
    ("inference", "options", "phases"),
    [
        ("acvb0", {}, ("search", "posterior")),
        ("cvb0", {}, ("search", "posterior")),
        ("acvb0", {"shared_prior": False}, ("search", "variational")),
        ("cvb0", {"shared_prior": False}, ("search", "variational")),
        ("acvb", {}, ("search", "variational")),
        ("cvb", {}, ("search", "variational")),
        ("vb", {}, ("search", "variational")),
        ("gibbs", {}, ("gibbs",)),
        ("gibbs", {"refine": False}, ("gibbs",)),
        *((method, {"refine": False}, ("variational",)) for method in METHODS[:-1]),
    ],
)
def test_phases_of_the_settings(inference, options, phases):
    assert Settings(inference=inference, **options).phases == phases


@every_method
def test_phases_depend_on_method_prior_and_refinement_alone(inference):
    others = {
        "max_clusters": 3,
        "init": "random",
        "exact_variance": False,
        "rule": "fixed",
        "burn_in": 2,
        "tol": 0.0,
        "max_iter": 1,
        "n_init": 3,
        "batch_size": 1,
        "n_jobs": 2,
    }
    for refine in (True, False):
        settings = Settings(inference=inference, refine=refine)
        for name, value in others.items():
            assert replace(settings, **{name: value}).phases == settings.phases


def phases_run(relation: BinaryRelation, settings: Settings) -> list[str]:
    """Return the names of the phases of a fit that made sweeps, in their order."""
    start, names = new_start(relation, settings), []

    def note_phase(_record: SweepRecord) -> None:
        name = NAMES[type(start.phase).__name__]
        if names[-1:] != [name]:
            names.append(name)

    start.run(note_phase)
    return names


@pytest.mark.parametrize("refine", [True, False])
@every_method
def test_batch_size_does_not_change_the_phases(inference, refine, small):
    for batch_size in (None, 1, 16, (7, 30)):
        settings = Settings(
            inference=inference, refine=refine, batch_size=batch_size, max_clusters=8, max_iter=80
        )
        assert phases_run(small, settings) == list(settings.phases), batch_size


@pytest.mark.parametrize("inference", ["acvb0", "cvb0", "vb"])
@pytest.mark.parametrize("rows", [500, 501])
def test_number_of_objects_does_not_change_the_phases(inference, rows):
    """A sweep is sequential up to 1,000 objects, and in batches above."""
    relation = BinaryRelation.build(planted((rows, 500), (3, 3), 0).X)
    assert Schedule().is_sequential(relation.sizes) is (rows == 500)
    settings = Settings(inference=inference)
    assert phases_run(relation, settings) == list(settings.phases)


@every_method
def test_copied_start_continues_to_the_same_bits(inference, small):
    """The fields of a start are its complete state between any two sweeps, in every phase."""
    settings = Settings(inference=inference, max_clusters=6, max_iter=60)
    start, copies = new_start(small, settings), {}

    def keep_copies(_record: SweepRecord) -> None:
        if len(start.trace) in {1, 4, 25}:
            copies[len(start.trace)] = deepcopy(start)

    expected = start.run(keep_copies)
    assert len(copies) >= 2
    for copied in copies.values():
        found = copied.run()
        assert found.converged == expected.converged
        assert [replace(record, seconds=0.0) for record in found.trace] == [
            replace(record, seconds=0.0) for record in expected.trace
        ]
        for one, other in zip(found.memberships, expected.memberships, strict=True):
            assert_array_equal(one, other)


# Averaging over sweeps


@pytest.mark.parametrize("method", ["acvb0", "acvb"])
@pytest.mark.parametrize("data", ["senate", "synth1"])
def test_change_of_the_average_is_at_most_two_over_s(method, data, senate, small):
    """Theorem 1 of the paper, on real traces with a short burn-in."""
    run = variational(senate if data == "senate" else small, 8, method, burn_in=2)
    changes = []
    for record in first_sweeps(run, 36):
        if run.averaged > 1:
            changes.append((run.averaged, record.change))
    assert len(changes) > 30
    assert all(change <= 2.0 / s for s, change in changes)
    assert max(change * s for s, change in changes) > 1e-3  # negative control: it does change


def test_result_is_the_mean_of_the_sweeps_after_burn_in():
    """eq:ACVB, recomputed from the memberships that were averaged."""
    run = variational(BinaryRelation.build(synth1(1).X), 3, "acvb0", burn_in=3)
    averaged = [run.state.q[0].copy() for _ in first_sweeps(run, 10) if run.averaged]
    assert run.averaged == len(averaged) == 7
    mean = run.outcome().memberships[0]
    if len({q.shape[1] for q in averaged}) == 1:
        totals = np.sort(np.mean(averaged, axis=0).sum(axis=0))
        assert_allclose(np.sort(mean.sum(axis=0)), totals, rtol=1e-6)
    assert_allclose(mean.sum(axis=1), 1.0, rtol=1e-9)


def test_without_burn_in_every_sweep_is_averaged():
    run = variational(BinaryRelation.build(synth1(1).X), 3, "acvb0", burn_in=0)
    for record in first_sweeps(run, 4):
        assert run.averaged == record.sweep


def test_plain_cvb0_returns_its_last_memberships():
    run = variational(BinaryRelation.build(synth1(1).X), 3, "cvb0")
    list(first_sweeps(run, 30))
    assert run.mean is None
    for q, expected in zip(run.outcome().memberships, run.state.q, strict=True):
        assert q is expected


def test_burn_in_lasts_until_memberships_change_little(small):
    run = variational(small, 6, "acvb0")
    first = next(record for record in first_sweeps(run, 200) if run.averaged)
    assert run.number > 10
    assert first.change == 1.0  # an average of one sweep cannot end the fit


def test_second_order_starts_with_cvb0_for_exact_variances_only(small):
    exact = variational(small, 4, "acvb", exact_variance=True)
    plain = variational(small, 4, "acvb0")
    paper = variational(small, 4, "acvb", exact_variance=False)
    for run in (exact, plain, paper):
        list(first_sweeps(run, 1))
    assert_allclose(exact.state.q[0], plain.state.q[0])
    assert np.abs(paper.state.q[0] - plain.state.q[0]).max() > 1e-6


def test_clusters_shrink_and_stay_in_descending_order(senate):
    run = variational(senate, 30, "acvb0")
    for _ in first_sweeps(run, 60):
        if not (run.averaging or run.order_frozen):
            assert all((np.diff(m) <= 1e-6).all() for m in run.state.m)
    assert run.state.blocks.clusters[0] < 30


# Posterior averaging


def posterior_of(relation: BinaryRelation, labels: list[np.ndarray], *, averages: bool = True):
    partition = Partition.from_labels(relation, labels)
    engine = LocalEngine(Schedule(64))
    return PosteriorAverage(partition, np.random.default_rng(0), engine, averages=averages)


def noisy_labels(drawn, share: float) -> list[np.ndarray]:
    """Return the true labels with a share of them replaced at random."""
    rng = np.random.default_rng(0)
    noisy = []
    for label in (drawn.row_labels, drawn.column_labels):
        change = rng.random(label.size) < share
        noisy.append(np.where(change, rng.permutation(label), label).astype(np.int32))
    return noisy


def test_posterior_improves_labels_first_and_then_samples():
    drawn = synth1(1)
    phase = posterior_of(BinaryRelation.build(drawn.X), noisy_labels(drawn, 0.1))
    evidence, samples = phase.partition.log_joint(), 0
    for _ in phase.sweeps(lambda: 0.0):
        assert phase.partition.log_joint() >= evidence
        assert phase.samples == 0 or phase.partition.log_joint() == evidence
        evidence = phase.partition.log_joint()
        samples = phase.samples
    assert phase.finished
    assert samples == phase.samples_wanted == SEARCH.most_samples
    assert adjusted_rand_score(phase.partition.labels[0], drawn.row_labels) > 0.95
    for q in phase.outcome().memberships:
        assert_allclose(q.sum(axis=1), 1.0, rtol=1e-9)


def test_posterior_without_averaging_ends_with_the_conditional_memberships():
    drawn = synth1(1)
    labels = [drawn.row_labels.copy(), drawn.column_labels.copy()]
    phase = posterior_of(BinaryRelation.build(drawn.X), labels, averages=False)
    list(phase.sweeps(lambda: 0.0))
    assert phase.finished
    assert phase.samples == phase.samples_wanted == 0
    expected = ENGINE.conditional_memberships(phase.partition)
    for q, conditional in zip(phase.outcome().memberships, expected, strict=True):
        assert_array_equal(q, conditional)


def test_posterior_average_is_half_mode_and_half_samples():
    """eq:ACVB: recomputed from the conditionals that each sampled sweep adds."""
    drawn = synth1(1)
    phase = posterior_of(BinaryRelation.build(drawn.X), noisy_labels(drawn, 0.0))
    added, before = [], 0.0
    for _ in phase.sweeps(lambda: 0.0):
        if phase.samples:
            added.append(phase.sample_sum[0] - before)
            before = phase.sample_sum[0].copy()
    for q in added:
        assert_allclose(q.sum(axis=1), 1.0, rtol=1e-9)
    expected = 0.5 * (phase.mode_q[0] + np.mean(added, axis=0))
    assert_allclose(phase.outcome().memberships[0], expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", ["bipartite", "directed"])
@pytest.mark.parametrize("inference", ["acvb0", "cvb0"])
def test_evidence_of_a_default_fit_is_that_of_the_posterior_labels(kind, inference):
    """The labels keep the evidence that the search found."""
    X = planted((90, 90), (3, 3), 2).X.toarray()
    if kind == "directed":
        np.fill_diagonal(X, 0.0)
    relation = BinaryRelation.build(X, kind=kind)
    start = new_start(relation, Settings(inference=inference))
    found = []

    def note_search(_record: SweepRecord) -> None:
        if type(start.phase).__name__ == "Search" and start.phase.best is not None:
            found.append(start.phase.best.log_joint())

    result = start.run(note_search)
    partition = Partition.from_labels(relation, result.labels)
    assert result.log_evidence == partition.log_joint()
    assert result.log_evidence >= max(found) - 1e-5 * abs(max(found))
    for label, own in zip(result.labels, start.phase.partition.labels, strict=True):
        assert adjusted_rand_score(label, own) == 1.0
    for label, q in zip(result.labels, result.memberships, strict=True):
        assert_array_equal(label, q.argmax(axis=1))


# Stop rule


@dataclass
class ScriptedPhase:
    """A phase whose records are given; the last one is repeated."""

    records: list[SweepRecord]
    relation: BinaryRelation
    may_stop: bool = True
    finished: bool = False
    converged: bool = False
    number: int = 0

    def sweeps(self, _clock) -> Iterator[SweepRecord]:
        yield from chain(self.records, repeat(self.records[-1]))

    def outcome(self) -> Outcome:
        q = [np.ones((size, 1)) for size in self.relation.sizes]
        likelihood, density = self.relation.likelihood, self.relation.density
        hyper = Hyperparameters.initial(likelihood, density, (1, 1), len(q))
        return Outcome(hyper, q, Partition.from_labels(self.relation, list(labels_of(q))))


def labels_of(q: list[np.ndarray]) -> Iterator[np.ndarray]:
    return (each.argmax(axis=1).astype(np.int32) for each in q)


def scripted(settings: Settings, changes: list[float], position: int = 0, **options) -> Start:
    """Return a start in a phase whose records have these changes."""
    relation = BinaryRelation.build(np.eye(4))
    records = [record_of(number, change) for number, change in enumerate(changes, start=1)]
    start = new_start(relation, settings)
    start.phase, start.position = ScriptedPhase(records, relation, **options), position
    return start


@pytest.mark.parametrize(
    ("inference", "change", "may_stop", "expected"),
    [
        ("acvb0", 1e-6, True, True),
        ("acvb0", 1e-6, False, False),
        ("acvb", 1e-3, True, False),
        ("cvb0", 1e-6, True, True),
        ("cvb", 1e-4, True, False),
    ],
)
def test_stop_rule(inference, change, may_stop, expected):
    settings = Settings(inference=inference, refine=False, tol=1e-5, max_iter=6)
    result = scripted(settings, [1.0, 0.1, change], may_stop=may_stop).run()
    assert result.converged is expected
    assert len(result.trace) == (3 if expected else 6)


def test_stop_rule_applies_to_the_last_phase_only():
    settings = Settings(inference="vb", max_iter=6)
    assert len(settings.phases) == 2
    assert not scripted(settings, [0.0], position=0).run().converged
    assert scripted(settings, [0.0], position=1).run().converged


@pytest.mark.parametrize("tol", [0.0, 1e-5])
def test_finished_last_phase_is_converged_for_every_tolerance(tol):
    settings = Settings(tol=tol, max_iter=6)
    result = scripted(settings, [1.0], position=1, may_stop=False, converged=True).run()
    assert result.converged
    assert len(result.trace) == 1


@every_method
@pytest.mark.parametrize("refine", [True, False])
def test_search_burn_in_and_gibbs_chain_do_not_end_a_fit(inference, refine, small):
    settings = Settings(inference=inference, refine=refine, max_clusters=6, max_iter=900)
    start, can_end = new_start(small, settings), []

    def note_end(_record: SweepRecord) -> None:
        last = start.position + 1 == len(settings.phases)
        searching = type(start.phase).__name__ == "Search"
        assert not (searching and start.phase.may_stop)
        can_end.append(last and (start.phase.may_stop or start.phase.finished))

    start.run(note_end)
    assert not can_end[0]
    assert any(can_end) is (inference != "gibbs")


def test_vb_stops_on_its_bound():
    settings = Settings(inference="vb", tol=1e-5)
    same = [record_of(1, 1.0), record_of(2, 1e-3, -100.0001)]
    other = [record_of(1, 0.0), record_of(2, 0.0, -101.0)]
    moving = [record_of(1, 1.0), record_of(2, 0.1, -100.0001)]
    assert last_change(same, settings) < settings.tol
    assert last_change(other, settings) > settings.tol
    assert last_change(moving, settings) > settings.tol
    assert last_change(other, replace(settings, inference="cvb")) == 0.0


def test_vb_learns_the_prior_by_its_own_fixed_point(small):
    for method, rule in (("vb", "vb-fixed-point"), ("cvb0", "fixed-point")):
        run = variational(small, 3, method, rule="fixed-point", hyper_delay=1)
        before = run.state.hyper.prior.copy()
        next(first_sweeps(run, 1))
        statistics = run.state.blocks.statistics()
        expected = small.likelihood.learn_prior(statistics, before, rule)
        assert_array_equal(run.state.hyper.prior, expected)


def test_tolerance_zero_runs_a_plain_method_to_max_iter_without_a_warning(small):
    settings = Settings(tol=0.0, max_iter=17, max_clusters=5, init="random", refine=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = run_fit(small, settings)
    assert len(result.trace) == 17
    assert not result.converged


def test_tolerance_does_not_change_a_default_fit(small):
    """A default fit ends with its phases, not by the stop rule."""
    results = [run_fit(small, Settings(tol=tol)) for tol in (0.0, 1e-5, 1.0)]
    for result in results:
        assert result.converged
        assert len(result.trace) == len(results[0].trace) < 1000
        assert_array_equal(result.memberships[0], results[0].memberships[0])


def test_fit_that_ends_at_max_iter_warns_with_advice(small):
    with pytest.warns(ConvergenceWarning, match=r"after 3 sweeps.*Raise max_iter"):
        run_fit(small, Settings(max_iter=3))


def test_warning_does_not_blame_a_change_below_the_tolerance(small):
    labels = [np.zeros(size, dtype=np.int32) for size in small.sizes]
    fit = Fit(small, Settings(refine=False, max_iter=2), 0, soft_labels(labels, 1.0))
    with pytest.warns(ConvergenceWarning, match="their average had just begun"):
        assert fit.run().trace[-1].change < 1e-5


def test_callback_stops_the_sweeps():
    start = scripted(Settings(refine=False), [1.0])
    result = start.run(lambda record: record.sweep == 5)
    assert len(result.trace) == 5
    assert not result.converged


# Fits


@pytest.mark.parametrize("batch_size", [1, 64, (7, 9), None])
def test_fit_uses_the_batch_size_of_its_settings(batch_size, small, monkeypatch):
    engines = []
    run = Start.run

    def record_engine(self, callback=None):
        engines.append(self.engine)
        return run(self, callback)

    monkeypatch.setattr(Start, "run", record_engine)
    settings = Settings(batch_size=batch_size, max_iter=1, tol=0.0)
    run_fit(small, settings)
    other = LocalEngine(Schedule(5))
    Fit(small, settings, 0).run(engine=other)
    assert engines[0].schedule == Schedule(batch_size)
    assert engines[1] is other


def test_restarts_keep_the_largest_evidence():
    relation = BinaryRelation.build(synth1(2).X)
    once = Settings(max_iter=40, tol=0.0, max_clusters=8, init="random", refine=False)
    seeds = [np.random.SeedSequence(5, spawn_key=(number,)) for number in range(4)]
    single = [new_start(relation, once, seed).run().log_evidence for seed in seeds]
    best = run_fit(relation, replace(once, n_init=4), 5)
    assert len(set(single)) > 1
    assert best.log_evidence == max(single)
    assert best.stability is not None


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_restarts_one_by_one_give_the_same_bits(n_jobs, small):
    settings = Settings(n_init=3, n_jobs=n_jobs, max_iter=30, tol=0.0, init="random")
    fit = Fit(small, settings, 2)
    one_by_one = fit.run(one_by_one=True)
    assert len(fit.ended) == 3
    assert fit.current is None
    together = run_fit(small, settings, 2)
    assert one_by_one.log_evidence == together.log_evidence
    assert one_by_one.stability == together.stability
    assert_array_equal(one_by_one.memberships[0], together.memberships[0])


def test_fit_continues_with_the_remaining_starts(small):
    settings = Settings(n_init=3, max_iter=30, tol=0.0, init="random")
    whole, rest = Fit(small, settings, 2), Fit(small, settings, 2)
    expected = whole.run()
    rest.ended = whole.ended[:2]
    assert rest.run().log_evidence == expected.log_evidence
    assert_array_equal(rest.ended[2].memberships[0], whole.ended[2].memberships[0])


@every_method
def test_traces_are_complete_and_finite(inference):
    relation = BinaryRelation.build(synth1(3).X)
    settings = Settings(inference=inference, max_iter=12, tol=0.0, max_clusters=6)
    result = run_fit(relation, settings)
    assert [record.sweep for record in result.trace] == list(range(1, 13))
    *_, seconds, moved = zip(*(record.as_dict().values() for record in result.trace), strict=True)
    table = np.array([list(record.as_dict().values())[:-1] for record in result.trace])
    assert np.isfinite(table).all()
    assert (np.diff(seconds) >= 0).all()
    assert all(0.0 <= share <= 1.0 for share in moved if share is not None)
    assert moved[0] is not None  # labels of a search or a chain


def test_start_from_given_memberships_does_not_change_them(small):
    initial = soft_labels([np.arange(size, dtype=np.int32) % 3 for size in small.sizes])
    before = [q.copy() for q in initial]
    for refine in (True, False):
        Fit(small, Settings(refine=refine, max_iter=5, tol=0.0), 0, initial).run()
    for q, expected in zip(initial, before, strict=True):
        assert_array_equal(q, expected)


@pytest.mark.parametrize(
    ("blocks", "limit", "grows"), [(12, None, True), (3, None, False), (12, 4, False)]
)
def test_start_has_more_clusters_where_all_are_used(monkeypatch, blocks, limit, grows):
    few = replace(SEARCH, start_clusters=4, few_start_clusters=1)
    monkeypatch.setattr("coblock.inference.fit.SEARCH", few)
    relation = BinaryRelation.build(planted((240, 240), (blocks, blocks), 0).X)
    settings = Settings(max_clusters=limit)
    start = Start(relation, settings, np.random.default_rng(0), LocalEngine(Schedule(40)))
    found = start._start_partition()
    assert all((m.size > 4) == grows for m in found.m)


@pytest.mark.parametrize("inference", ["acvb0", "acvb"])
def test_averaged_methods_converge_with_a_prior_for_each_block(inference):
    """The likelihood alone has no best prior of a block, and memberships would never settle."""
    drawn = synth1(0)

    def fit(method: str, **settings: object) -> IRM:
        model = IRM(
            inference=method,
            variance="paper",
            init="random",
            refine=False,
            batch_size=1,
            prior="per-block",
            hyperparameters="fixed-point",
            max_clusters=12,
            max_iter=400,
            random_state=0,
            **settings,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            return model.fit(drawn.X[:60, :50])

    model, unaveraged = fit(inference), fit(inference.removeprefix("a"))
    assert model.converged_
    assert unaveraged.converged_
    assert model.n_iter_ < 1.2 * unaveraged.n_iter_
    assert not fit(inference, block_hyperprior=(1.0, 1e-8)).converged_  # negative control
