"""Benchmarks: every script starts, evidence of labels, comparison of two checkouts."""

import subprocess
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import regimes
from log_evidence import log_evidence
from versions.jobs import NAMES, ROUNDS, Job, select_jobs
from versions.page import NOT_RUN, Pairs, table_rows, write_page
from versions.runs import SIDES, Checkout, Runs
from versions.size import TOP, lines_by_folder, measure_size

from coblock import IRM
from coblock.generate import planted


def test_log_evidence_of_labels_equals_that_of_the_model():
    X = planted((60, 40), (3, 2), 0).X
    model = IRM(random_state=0).fit(X)
    found = log_evidence(X, model.row_labels_, model.column_labels_)
    assert found == pytest.approx(model.log_evidence_, rel=1e-9)
    other = np.roll(model.row_labels_, 1)
    assert log_evidence(X, other, model.column_labels_) < found - 1.0


FOLDER = Path(regimes.__file__).parent
MODULES = sorted(
    ".".join(path.relative_to(FOLDER).with_suffix("").parts)
    for path in FOLDER.rglob("*.py")
    if path.name != "__init__.py"
)


@pytest.mark.parametrize("name", MODULES)
def test_every_script_can_be_imported(name, monkeypatch):
    monkeypatch.setattr(sys, "argv", [name])
    import_module(name)


def test_regimes_are_measured(monkeypatch):
    kind, shape, density = "bipartite", (30, 20), 0.2
    monkeypatch.setattr(regimes, "NOISE", [(kind, shape, density)])
    assert list(regimes.noise(1, []))[-1].startswith("| all | | 1 | 1 |")
    X = regimes.draw_links(kind, np.full(shape, density), np.random.default_rng(0))
    truth = regimes.partition_of(X, kind, [np.zeros(size, dtype=np.int32) for size in shape])
    assert regimes.polish(truth) >= truth.log_joint() - 1e-9


def test_jobs_are_selected_by_measure_and_by_relation():
    assert select_jobs(["planted synth1"], 2) == [
        Job("planted", "synth1", 0),
        Job("planted", "synth1", 1),
    ]
    assert len(select_jobs(["planted"])) == 40
    everything = select_jobs(list(ROUNDS))
    assert len({job.key for job in everything}) == len(everything)
    assert {job.measure for job in everything} == set(ROUNDS) <= set(NAMES)


ANSWERS = {  # measure -> an answer before, a good one after, a bad one after
    "evidence": ({"evidence": -1000.0}, {"evidence": -1000.4}, {"evidence": -1000.6}),
    "held-out": ({"score": -1.0}, {"score": -1.004}, {"score": -1.006}),
    "planted": (
        {"exact": True, "evidence": 0.0, "evidence of the truth": 0.0},
        {"exact": False, "evidence": 0.1, "evidence of the truth": 0.0},
        {"exact": False, "evidence": -0.1, "evidence of the truth": 0.0},
    ),
    "time": (
        {"wall": 1.0, "cpu": 1.0},
        {"wall": 1.09, "cpu": 1.09},
        {"wall": 1.0, "cpu": 1.11},
    ),
    "identity": (
        {"threads": False, "resumed": False},
        {"threads": True, "resumed": True},
        {"threads": True, "resumed": False},
    ),
}


@pytest.mark.parametrize("measure", ANSWERS)
def test_page_marks_missed_requirements(measure):
    before, good, bad = ANSWERS[measure]
    relation = next(iter(ROUNDS[measure]))
    pairs = Pairs(measure, relation, [0], ([before], [good]))
    assert not any("missed" in row.line() for row in table_rows(pairs))
    missed = replace(pairs, answers=([before], [bad]))
    assert any("missed" in row.line() for row in table_rows(missed))
    empty = replace(pairs, rounds=[], answers=([], []))
    assert {row.after for row in table_rows(empty)} == {NOT_RUN}


def test_only_rounds_of_both_checkouts_are_compared():
    finished = {
        "evidence senate 0": {"before": {"evidence": -1.0}, "after": {"evidence": -2.0}},
        "evidence senate 1": {"before": {"evidence": -5.0}},
    }
    found = Pairs.find(finished, "evidence", "senate")
    assert found.rounds == [0]
    assert found.title == "senate (1 of 3 rounds)"
    assert found.values("evidence").tolist() == [[-1.0], [-2.0]]


CODE = '''
@kernel
def compiled(x):
    """Return x."""
    return x


def repeated():
    x = 1

    def inner():
        return 2

    return x


def _private():
    pass
'''


def test_sizes_are_counted(tmp_path):
    (tmp_path / "one.py").write_text(CODE)
    (tmp_path / "two.py").write_text("def repeated():\n    pass\n\n\ndef _private():\n    pass\n")
    size = measure_size(tmp_path)
    assert size["lines"] == CODE.count("\n") + 6
    assert (size["files"], size["functions"], size["kernels"]) == (2, 5, 1)
    assert (size["longest file"], size["longest function"], size["longest kernel"]) == (18, 6, 1)
    assert size["repeated names"] == 1
    assert size["names"]["repeated private"] == ["_private"]
    assert size["names"]["longest"]["file"] == "one.py"


def test_lines_are_counted_by_folder(tmp_path):
    folder = tmp_path / "src" / "coblock"
    (folder / "io" / "readers").mkdir(parents=True)
    for path, lines in (("one.py", 2), ("io/two.py", 3), ("io/readers/three.py", 4)):
        (folder / path).write_text("x = 1\n" * lines)
    (folder / "page.html").write_text("x\n")
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@x"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "x"]):
        subprocess.run([*git, *words], cwd=tmp_path, check=True)
    assert lines_by_folder(tmp_path) == {TOP: 2, "io": 7}
    assert not lines_by_folder(tmp_path, "0" * 40)


class FixedCheckout(Checkout):
    """A checkout without a repository."""

    version = "abc"


def test_finished_measurements_are_not_repeated(tmp_path):
    for side in SIDES:
        (tmp_path / side / "src" / "coblock").mkdir(parents=True)
        (tmp_path / side / "src" / "coblock" / "one.py").write_text(CODE)
    checkouts = tuple(FixedCheckout(side, tmp_path / side) for side in SIDES)
    runs = Runs(tmp_path / "runs", checkouts, tmp_path)
    jobs = select_jobs(["size"])
    assert [(side, reason) for _, side, _, reason in runs.run(jobs)] == [(s, "") for s in SIDES]
    assert list(runs.run(jobs)) == []
    write_page(tmp_path / "page.md", runs)
    page = (tmp_path / "page.md").read_text()
    assert "Before: commit abc. After: commit abc." in page
    assert f"| at most 13,000 | {CODE.count(chr(10))} | {CODE.count(chr(10))} |" in page
    assert NOT_RUN in page
