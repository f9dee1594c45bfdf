"""The loop: averaging, its theorem, stop rules, burn-in, shrinkage, restarts."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.exceptions import ConvergenceWarning

from coblock.datasets import load_senate
from coblock.generate import synth1
from coblock.inference.fit import FitRun, Settings, fit, fit_once, follow, has_converged
from coblock.inference.schedule import Schedule
from coblock.inference.start import random_memberships
from coblock.inference.variational import VariationalRun
from coblock.model.hyperparameters import Priors
from coblock.model.relation import Relation
from coblock.model.state import State
from coblock.model.trace import Sweep


def start(relation: Relation, K: int, seed: int = 0) -> State:
    q = random_memberships(relation, (K,) * len(relation.sizes), np.random.default_rng(seed))
    priors = Priors.start((K, K), len(q), relation.density, shared=True)
    return State(relation, q, priors)


@pytest.fixture(scope="module")
def senate() -> Relation:
    return Relation.build(load_senate().values)


@pytest.mark.parametrize("method", ["acvb0", "acvb"])
@pytest.mark.parametrize("data", ["senate", "synth1"])
def test_change_of_the_average_is_at_most_two_over_s(method, data, senate):
    """Theorem 1 of the paper, on real traces with hardly any burn-in."""
    relation = senate if data == "senate" else Relation.build(synth1(0).X)
    run = VariationalRun(start(relation, 8), method, burn_in=2)
    changes = []
    for sweep in run.sweeps(0.0):
        if run.averaged > 1:
            changes.append((run.averaged, sweep.change))
        if sweep.sweep == 36:
            break
    assert len(changes) > 30
    assert all(change <= 2.0 / s for s, change in changes)
    assert max(change * s for s, change in changes) > 1e-3  # the bound is not met by standstill


def test_the_result_is_the_mean_of_the_sweeps_after_burn_in():
    """eq:ACVB, recomputed from the memberships that went into it."""
    state = start(Relation.build(synth1(1).X), 3)
    run = VariationalRun(state, "acvb0", burn_in=3)
    seen = []
    for sweep in run.sweeps(0.0):
        if run.averaged:
            seen.append(run.state.q[0].copy())
        if sweep.sweep == 10:
            break
    assert run.averaged == len(seen) == 7
    widths = {q.shape[1] for q in seen}
    if len(widths) == 1:
        totals = np.sort(np.mean(seen, axis=0).sum(axis=0))
        assert_allclose(np.sort(run.memberships[0].sum(axis=0)), totals, rtol=1e-6)
    assert_allclose(run.memberships[0].sum(axis=1), 1.0, rtol=1e-9)


def test_without_burn_in_every_sweep_is_averaged():
    run = VariationalRun(start(Relation.build(synth1(1).X), 3), "acvb0", burn_in=0)
    for sweep in run.sweeps(0.0):
        assert run.averaged == sweep.sweep
        if sweep.sweep == 4:
            break


def test_plain_cvb_returns_what_it_ended_with():
    run = VariationalRun(start(Relation.build(synth1(1).X), 3), "cvb0")
    for sweep in run.sweeps(0.0):
        if sweep.sweep == 30:
            break
    assert run.mean is None
    assert run.memberships is run.state.q


def report(number: int, change: float, bound: float = -100.0) -> Sweep:
    return Sweep(number, change, 0.0, bound, 1, 1, 0.0)


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
    stream = [report(1, 1.0), report(2, change)]
    _, converged = follow(stream, Settings(inference=inference, tol=1e-5), lambda: may_stop)
    assert converged is expected


@pytest.mark.parametrize("batch_size", [1, 64, (7, 9), None])
def test_a_run_follows_the_schedule_of_its_settings(batch_size):
    relation = Relation.build(synth1(0).X)
    run = FitRun(relation, Settings(batch_size=batch_size), np.random.default_rng(0))
    assert run.schedule == Schedule(batch_size)
    other = Schedule(5)
    assert FitRun(relation, run.settings, run.rng, None, other).schedule is other


@pytest.mark.parametrize("inference", ["acvb0", "acvb", "cvb0", "vb", "gibbs"])
@pytest.mark.parametrize("refine", [True, False])
def test_the_stop_rule_waits_for_the_methods_own_sweeps(inference, refine):
    """Neither the search nor the burn-in can end a fit, nor anything a Gibbs chain."""
    relation = Relation.build(synth1(0).X)
    settings = Settings(inference=inference, refine=refine, max_clusters=6)
    run = FitRun(relation, settings, np.random.default_rng(0))
    allowed = []
    for sweep in run.sweeps():
        allowed.append(run.may_stop())
        if sweep.sweep == 80:
            break
    assert not allowed[0]
    assert any(allowed) is (inference != "gibbs")
    if run.search is not None:
        assert not any(allowed[: run.search.number])


def test_vb_stops_on_its_bound():
    settings = Settings(inference="vb", tol=1e-5)
    assert has_converged([report(1, 1.0), report(2, 1.0, -100.0001)], settings)
    assert not has_converged([report(1, 0.0), report(2, 0.0, -101.0)], settings)


def test_tolerance_zero_runs_to_the_end_without_a_warning():
    relation = Relation.build(synth1(0).X)
    settings = Settings(tol=0.0, max_iter=17, max_clusters=5, init="random", refine=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = fit(relation, settings, np.random.default_rng(0))
    assert len(result.trace) == 17
    assert not result.converged


def test_a_fit_that_ends_at_max_iter_warns_and_says_what_to_do():
    relation = Relation.build(synth1(0).X)
    with pytest.warns(ConvergenceWarning, match=r"after 3 sweeps.*Raise max_iter"):
        fit(relation, Settings(max_iter=3), np.random.default_rng(0))


def test_the_callback_can_stop_the_stream():
    stream = (report(number, 1.0) for number in range(1, 100))
    trace, converged = follow(stream, Settings(), lambda: False, lambda sweep: sweep.sweep == 5)
    assert len(trace) == 5
    assert not converged


def test_burn_in_waits_until_memberships_settle():
    run = VariationalRun(start(Relation.build(synth1(0).X), 6), "acvb0")
    first = next(sweep for sweep in run.sweeps(0.0) if run.averaged)
    assert run.number > 10
    assert first.change == 1.0  # the average has just begun: it cannot be the end


def test_second_order_begins_with_zeroth_order_only_for_exact_variances():
    relation = Relation.build(synth1(0).X)
    exact = VariationalRun(start(relation, 4), "acvb", exact_variance=True)
    plain = VariationalRun(start(relation, 4), "acvb0")
    paper = VariationalRun(start(relation, 4), "acvb", exact_variance=False)
    for run in (exact, plain, paper):
        next(iter(run.sweeps(0.0)))
    assert_allclose(exact.state.q[0], plain.state.q[0])
    assert np.abs(paper.state.q[0] - plain.state.q[0]).max() > 1e-6


def test_clusters_shrink_and_stay_in_descending_order(senate):
    run = VariationalRun(start(senate, 30), "acvb0")
    for sweep in run.sweeps(0.0):
        if not (run.settled or run.orderly):
            assert all((np.diff(m) <= 1e-6).all() for m in run.state.m)
        if sweep.sweep == 60:
            break
    assert run.state.clusters[0] < 30


def test_restarts_keep_the_largest_evidence():
    relation = Relation.build(synth1(2).X)
    once = Settings(max_iter=40, tol=0.0, max_clusters=8, init="random", refine=False)
    starts = np.random.default_rng(5).spawn(4)
    single = [fit_once(relation, once, start).log_evidence for start in starts]
    many = fit(relation, replace(once, n_init=4), np.random.default_rng(5))
    assert many.log_evidence == max(single)
    assert many.stability is not None


@pytest.mark.parametrize("inference", ["acvb0", "acvb", "cvb0", "cvb", "vb", "gibbs"])
def test_traces_are_complete_and_finite(inference):
    relation = Relation.build(synth1(3).X)
    settings = Settings(inference=inference, max_iter=12, tol=0.0, max_clusters=6)
    result = fit(relation, settings, np.random.default_rng(0))
    assert [sweep.sweep for sweep in result.trace] == list(range(1, 13))
    table = np.array([list(sweep.as_dict().values()) for sweep in result.trace])
    assert np.isfinite(table).all()
    seconds = table[:, -1]
    assert (np.diff(seconds) >= 0).all()
