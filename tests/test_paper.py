"""The paper's experiments: a quick run on the smallest relation, and their parts."""

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from data import Trial
from paper import fingerprint, published, runner
from paper.__main__ import main
from paper.experiments import (
    CLUSTERS,
    COMPARISONS,
    METHOD_TITLES,
    PROTOCOL,
    TITLES,
    Job,
    held_out,
    parameters,
    plan,
)
from paper.internals import CRITERIA
from paper.naive import NaiveState
from paper.page import Request, write_page
from paper.protocol import Limits, follow
from paper.results import Results, Summary, find_best, is_better, mean_difference
from paper.runner import Budget, run_all
from paper.shapes import Shape, draw_shape
from paper.store import Store
from paper.timing import (
    dense_cells,
    largest_difference,
    order_by_size,
    random_start,
    time_linear,
)
from paper.verdicts import (
    BETTER,
    EQUAL,
    WORSE,
    compare_with_paper,
    convergence_sweep,
    count_fastest,
)
from rich.console import Console
from scipy import sparse

import coblock
from coblock import IRM
from coblock.evaluation import hold_out
from coblock.model.relation import BinaryRelation

QUIET = Console(quiet=True)
TABLES = [
    "Agreements and disagreements",
    *(f"Likelihood, K = {K}" for K in CLUSTERS),
    "Difference from the true blocks",
    *(f"CPU time to {threshold}, K = {K}" for threshold in ("1e-05", "1e-04") for K in CLUSTERS),
    "Linear against naive time",
    "Large relations",
    *(comparison.title for comparison in COMPARISONS.values()),
    "Unseen cells in linear time",
]
PICTURES = [
    *(f"convergence-{method}.png" for method in ("cvb", "cvb0")),
    "growth.png",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Run the quick form on synth1 with a few sweeps; return the folder of its output."""
    folder = tmp_path_factory.mktemp("paper")
    assert call(folder, "--budget", "5") == 0
    return folder


def call(folder: Path, *more: str) -> int:
    relations = ["synth1", "growth250", "growth500"]
    small = ["--runs", "1", "--clusters", "20", "--sweeps", "25", "--limit", "5", "--workers", "1"]
    places = {"--work": "runs", "--out": "paper.md", "--images": "images"}
    places |= {"--results": "paper.jsonl"}
    paths = [word for name, place in places.items() for word in (name, str(folder / place))]
    return main([*small, "--relations", *relations, *paths, *more])


def sections(page: str) -> dict[str, list[list[str]]]:
    """Map each heading to the cells of the rows of its table."""
    found = {}
    for part in re.split(r"^##+ ", page, flags=re.MULTILINE)[1:]:
        heading, _, body = part.partition("\n")
        lines = [line for line in body.splitlines() if line.startswith("|")]
        found[heading] = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines[2:]]
    return found


def is_number(cell: str) -> bool:
    return re.search(r"\d", cell) is not None


@pytest.mark.slow
def test_page_has_every_table_and_marks_what_was_not_run(folder):
    page = (folder / "paper.md").read_text()
    found = sections(page)
    assert [title for title in TABLES if not found.get(title)] == []
    for K in CLUSTERS:
        ours = {row[0]: row[2:] for row in found[f"Likelihood, K = {K}"] if "paper" not in row[0]}
        assert list(ours) == [TITLES[name] for name in PROTOCOL]
        assert set(ours["Synth2"]) == {"not run"}
    at_20 = {row[0]: row[2:] for row in found["Likelihood, K = 20"]}
    assert len(at_20["Synth1"]) == len(METHOD_TITLES)
    assert all(map(is_number, at_20["Synth1"]))
    assert is_number(found["CPU time to 1e-04, K = 20"][0][2])
    assert re.search(r'Not run: \d+ experiments\. `make paper .* PAPER="--relations synth2 ', page)
    assert all(len(row) == 3 and row[2] for row in found["Agreements and disagreements"])


@pytest.mark.slow
def test_page_states_commit_settings_and_seeds(folder):
    page = (folder / "paper.md").read_text()
    assert re.search(r"Commit ([0-9a-f]{7,}|unknown)", page)
    assert "Seeds 0 to 0" in page
    assert "- acvb0: `IRM(init='random', refine=False, batch_size=1, prior='per-block'" in page
    assert "- coblock: `IRM(random_state=seed)`" in page


@pytest.mark.slow
def test_figures_are_small_and_linked(folder):
    page = (folder / "paper.md").read_text()
    linked = re.findall(r"!\[[^]]+\]\(([^)]+)\)", page)
    assert sorted(linked) == sorted(f"images/{name}" for name in PICTURES)
    for link in linked:
        assert 1000 < (folder / link).stat().st_size < 150_000
    assert "Lastfm UserXUser, K = 20: not run. `make paper" in page


@pytest.mark.slow
def test_finished_runs_are_not_repeated(folder):
    before = {path: path.stat().st_mtime_ns for path in (folder / "runs").rglob("*.json")}
    page = (folder / "paper.md").read_text()
    assert len(before) > 10
    assert call(folder, "--budget", "5") == 0
    after = {path: path.stat().st_mtime_ns for path in (folder / "runs").rglob("*.json")}
    assert after == before
    assert (folder / "paper.md").read_text() == page


def finished_run(seed: int) -> tuple[Job, dict]:
    """Return a job and a record as a run stores it."""
    curves = {"bound": [-1.0], "leave_one_out": [-1.0], "curve": [], "oracle": -0.1}
    curves |= {"commit": "abc", "clusters": [3, 3], "sweeps": 9, "converged": True}
    run = {"score": -0.123456789, "cpu": 1.0, "truncated": False, "limit": 9.0, "passed": {}}
    return held_out("synth1", "acvb0", 20, seed), run | curves


def test_runs_are_tracked_in_one_file(tmp_path):
    store = Store(tmp_path / "runs", None, tmp_path / "paper.jsonl")
    job, run = finished_run(0)
    store.put(job, run)
    store.track()
    other, more = finished_run(1)
    elsewhere = Store(tmp_path / "other runs", None, tmp_path / "paper.jsonl")
    elsewhere.put(other, more)
    elsewhere.track()
    found = Store(tmp_path / "no runs", None, tmp_path / "paper.jsonl")
    assert [found.get(each)["job"]["seed"] for each in (job, other)] == [0, 1]
    assert found.get(job)["score"] == -0.123457
    assert "bound" not in found.get(job), "no figure shows it"
    assert found.get(held_out("synth1", "acvb0", 20, 2)) is None
    assert not found.outdated([job])
    trial = Store(tmp_path / "no runs", 25, tmp_path / "paper.jsonl")
    assert trial.get(job) is None


def test_runs_of_an_earlier_state_are_kept_until_they_are_replaced(tmp_path, monkeypatch, capsys):
    results = tmp_path / "paper.jsonl"
    earlier = Store(tmp_path / "runs", None, results)
    job, run = finished_run(0)
    with monkeypatch.context() as patch:
        patch.setattr("paper.store.state_of", lambda method: "an earlier one")
        earlier.put(job, run)
        earlier.track()
    before = results.read_text()
    now = Store(tmp_path / "none", None, results)
    assert now.outdated([held_out("lastfm_userxuser", "acvb0", 40)]) == [job]
    assert not now.outdated([held_out("synth1", "vb", 20)]), "of another method"
    assert now.get(job) is not None
    assert Store(tmp_path / "runs").get(job) is None, "the run itself has to be made again"
    assert Store(tmp_path / "none", None, results, replace=True).get(job) is None
    places = ["--work", tmp_path / "none", "--out", tmp_path / "page.md", "--images", tmp_path]
    words = [*map(str, places), "--results", str(results), "--relations", "synth1"]
    assert main([*words, "--budget", "1"]) == 1
    message = " ".join(capsys.readouterr().err.split())
    assert "1 runs of" in message
    assert "(methods: acvb0). Pass --replace" in message
    assert main([*words, "--budget", "0"]) == 0
    assert "measured at commit abc" in (tmp_path / "page.md").read_text()
    assert results.read_text() == before


def test_methods_are_compared_by_each_criterion(tmp_path):
    """VB is first by its own criterion, the bound, and ACVB0 by memberships."""
    store = Store(tmp_path)
    times = {"vb": (1.0, 9.0, 1.0), "acvb": (5.0, 5.0, 5.0), "acvb0": (2.0, 2.0, 2.0)}
    for method, seconds in times.items():
        run = finished_run(0)[1] | {"cpu": 10.0}
        names = ("1e-05", "memberships 1e-05", "bound 1e-05")
        run["passed"] = {name: {"cpu": cpu} for name, cpu in zip(names, seconds, strict=True)}
        store.put(held_out("synth1", method, 20), run)
    found = Results(store, 1)
    assert [count_fastest(found, name) for name in CRITERIA] == [(0, 1), (1, 1), (0, 1)]
    assert found.seconds("synth1", "vb", 20, 1e-5, "memberships").mean == 9.0


def test_followed_fit_is_timed_until_all_criteria_hold():
    trial = Trial.draw("synth1", 1)
    relation = BinaryRelation.build(trial.X, unseen=trial.unseen)
    record = follow(relation, held_out("synth1", "vb", 20, 1), Limits(60.0)).record
    assert {"1e-05", "memberships 1e-05", "bound 1e-05"} <= set(record["passed"])
    assert record["converged"]
    assert record["sweeps"] == record["passed"]["1e-05"]["sweep"]
    assert record["passed"]["memberships 1e-05"]["sweep"] > record["sweeps"]


def test_small_relations_have_twenty_seeds_in_the_full_protocol():
    seeds = {name: {job.seed for job in plan(5) if job.relation == name} for name in PROTOCOL}
    assert {name: len(found) for name, found in seeds.items()} == {
        name: 5 if name.startswith("lastfm") else 20 for name in PROTOCOL
    }
    assert max(job.seed for job in plan(3)) == 2


def test_page_without_runs_says_so_in_every_cell(tmp_path):
    request = Request(2, 0.0, 1.0, None, 1)
    write_page(tmp_path / "paper.md", tmp_path / "images", Store(tmp_path / "runs"), request)
    found = sections((tmp_path / "paper.md").read_text())
    assert [title for title in TABLES if not found.get(title)] == []
    for K in CLUSTERS:
        for row in found[f"Likelihood, K = {K}"]:
            assert row[0] == "*the paper*" or set(row[2:]) == {"not run"}
    verdicts = {row[2] for row in found["Agreements and disagreements"]}
    assert verdicts == {"not run", "misprint"}
    assert not list((tmp_path / "images").glob("*.png"))


def test_followed_fit_gives_the_result_of_the_estimator():
    job, sweeps = held_out("synth1", "acvb0", 20, seed=3), 15
    trial = Trial.draw("synth1", 3)
    relation = BinaryRelation.build(trial.X, unseen=trial.unseen)
    followed = follow(relation, job, Limits(60.0, sweeps), trial)
    model = IRM(**(parameters("acvb0", 20) | {"max_iter": sweeps, "random_state": 3, "tol": 0}))
    model.fit(trial.X, unseen=trial.unseen)
    expected = model.score_links(*trial.cells)
    assert followed.model.score_links(*trial.cells) == expected
    assert followed.record["curve"][-1][1] == expected
    assert followed.record["curve"][0][1] != expected


def test_fit_stopped_at_its_limit_is_marked_and_repeated_with_a_larger_limit(tmp_path):
    store, job = Store(tmp_path), held_out("synth1", "acvb0", 20)
    assert run_all([job], store, Budget(60.0, Limits(1e-6)), QUIET).finished == 1
    record = store.get(job)
    assert record["truncated"]
    assert record["sweeps"] == 1
    assert store.is_done(job, 1e-6)
    assert not store.is_done(job, 10.0)


def test_failure_does_not_stop_other_jobs_and_no_budget_runs_nothing(tmp_path, monkeypatch):
    def fail(job, limits):
        msg = f"cannot fit {job.method}"
        raise ValueError(msg)

    monkeypatch.setitem(runner.PARTS, "large", fail)
    jobs = [Job("large", "synth1", "acvb0", 20), Job("growth", "growth40", "both", 4)]
    store = Store(tmp_path)
    outcome = run_all(jobs, store, Budget(60.0, Limits(1.0)), QUIET)
    assert (outcome.finished, outcome.remaining) == (1, 0)
    assert outcome.failed == ["large-synth1-acvb0-K20-seed0: ValueError: cannot fit acvb0"]
    assert store.get(jobs[0]) is None
    assert run_all(jobs[:1], store, Budget(0.0, Limits(1.0)), QUIET).remaining == 1


def test_path_of_a_run_depends_on_settings(tmp_path):
    plain, trial = Store(tmp_path), Store(tmp_path, sweeps=5)
    one, other = (plain.path(held_out("synth1", name, 20)) for name in ("acvb0", "vb"))
    assert one != other
    assert trial.path(held_out("synth1", "vb", 20)) != other


@pytest.mark.parametrize("method", ["acvb0", "vb", "gibbs"])
def test_state_of_a_plain_method_is_that_of_its_results(method, monkeypatch):
    def compute() -> str:
        fingerprint.digest_of_result.cache_clear()
        return fingerprint.state_of(method)

    before = compute()
    monkeypatch.setattr(fingerprint, "digest_of_files", lambda: "other files")
    assert compute() == before
    score = IRM.score_links
    monkeypatch.setattr(IRM, "score_links", lambda self, *cells: score(self, *cells) * (1 + 1e-5))
    assert compute() != before
    fingerprint.digest_of_result.cache_clear()


@pytest.mark.parametrize(
    ("changed", "matters"),
    [
        ("kernels/cvb0.py", True),
        ("model/likelihoods/bernoulli.py", True),
        ("analysis/prediction.py", True),
        ("inference/multi_search.py", False),
        ("io/export.py", False),
        ("ui/terminal.py", False),
    ],
)
@pytest.mark.parametrize("method", ["default", "acvb0-batches", "acvb0-spectral"])
def test_state_of_other_methods_is_that_of_the_files_that_fit_and_predict(
    tmp_path, monkeypatch, method, changed, matters
):
    """Changes of readers, other models and output keep finished runs."""
    package = tmp_path / "coblock"
    shutil.copytree(Path(coblock.__file__).parent, package)
    monkeypatch.setattr(coblock, "__file__", str(package / "__init__.py"))
    fingerprint.digest_of_files.cache_clear()
    before = fingerprint.state_of(method)
    (package / changed).write_text("# changed")
    fingerprint.digest_of_files.cache_clear()
    assert (fingerprint.state_of(method) != before) is matters
    fingerprint.digest_of_files.cache_clear()


@pytest.mark.parametrize(
    "shape", [(40, 30, 200), (700, 400, 4000)]
)  # the second: batches by default
@pytest.mark.parametrize("share", [0.0, 0.2])
def test_naive_and_linear_sweeps_agree(share, shape):
    X = draw_shape(Shape("", *shape), 1)
    held = hold_out(X, share, 0)
    relation = BinaryRelation.build(held.X, unseen=held.unseen)
    start = random_start(relation, Job("naive", "", "both", 5))
    _, after, fit = time_linear(relation, Job("naive", "", "both", 5), start)

    def distance(unseen: sparse.csr_array | None) -> float:
        q = [np.ascontiguousarray(order_by_size(q)) for q in start]
        naive = NaiveState(dense_cells(held.X, unseen), q, *fit.hyperparameters)
        naive.sweep()
        return largest_difference(naive.q, after)

    assert distance(held.unseen) < 1e-9
    if share:
        assert distance(None) > 1e-3  # control: unseen cells counted as zeros


def test_drawn_shapes_have_about_the_given_number_of_links():
    X = draw_shape(Shape("", 3000, 2000, 40_000), 0)
    assert X.shape == (3000, 2000)
    assert set(X.data) == {1}
    assert 0.9 * 40_000 < X.nnz <= 1.02 * 40_000


def summary(values, seeds=None) -> Summary:
    return Summary(np.array(values, dtype=float), tuple(seeds or range(len(values))))


def test_methods_are_compared_on_common_seeds():
    long, short = summary([-0.1, -0.9]), summary([-0.2])
    assert mean_difference(long, short) == pytest.approx(0.1)
    assert long.mean < short.mean
    assert find_best({"long": long, "short": short}) == "long"
    assert mean_difference(short, summary([-0.3], seeds=[7])) is None
    assert find_best({"short": short, "other": summary([-0.3], seeds=[7])}) is None


def test_significance_needs_two_runs_and_a_clear_difference():
    good, bad = summary([-0.10, -0.11, -0.12]), summary([-0.30, -0.31, -0.33])
    assert is_better(good, bad) is True
    assert is_better(bad, good) is False
    assert is_better(good, summary([-0.11, -0.10, -0.13])) is False
    assert is_better(good, summary([-0.30])) is None


def test_published_values():
    one = published.value(published.LOG_LIKELIHOOD, "lastfm_userxuser", "acvb0", 20)
    assert (one.mean, one.deviation, one.bold, one.marked) == (-0.0267, 0.0005, True, False)
    assert published.best("lastfm_artistxtag", 60)[0] == "gibbs"
    assert published.value(published.CPU_TIME, "synth2", "gibbs", 20).mean == 3593.45
    assert published.size("lastfm_artistxtag") == (6099, 1088, 23253)
    assert published.misprinted_bold() == [("enron156_200110", 20)]
    assert published.value(published.LARGE, "netflix_rate1", "naive", 20) is None


@pytest.mark.parametrize(
    ("ours", "conclusion"), [(-0.0255, BETTER), (-0.0270, EQUAL), (-0.0280, WORSE)]
)
def test_verdicts_use_the_deviation_of_the_paper(ours, conclusion):
    paper = published.Value(-0.0267, 0.0005, bold=True, marked=False)
    assert compare_with_paper("ACVB0", summary([ours]), paper).conclusion == conclusion


def test_convergence_is_the_sweep_after_the_last_large_difference():
    assert convergence_sweep([0.0, 50.0, 99.5, 100.0]) == 3
    assert convergence_sweep([0.0, 100.0, 50.0, 100.0]) == 4
    assert convergence_sweep([5.0, 5.0]) == 1


def test_plan_begins_with_the_requirements_and_grows_with_the_runs():
    few, many = plan(1), plan(20)
    assert {(job.relation, job.method) for job in few[:4]} == {
        (relation, method)
        for relation in ("lastfm_userxuser", "lastfm_artistxtag")
        for method in ("acvb0", "default")
    }
    assert set(few) < set(many)
    later = [(max(job.K, 20), job.seed) for job in many[80:]]
    assert later == sorted(later)  # of each K, all first seeds come before all second seeds
    assert len(set(many)) == len(many)
    protocol = {
        held_out(r, m, K, s)
        for r in PROTOCOL
        for m in METHOD_TITLES
        for K in CLUSTERS
        for s in range(20)
    }
    assert protocol < set(many)


def test_stored_records_are_read_back(tmp_path):
    store, job = Store(tmp_path), held_out("synth1", "vb", 20, seed=1)
    store.put(job, {"score": -0.3, "truncated": False, "limit": 1.0})
    scores = Results(store, runs=2).scores("synth1", "vb", 20)
    assert (scores.mean, scores.seeds) == (-0.3, (1,))
    assert Results(store, runs=1).scores("synth1", "vb", 20) is None
