"""Test the command line as a whole: help, version, start-up time, and the demo."""

import io
import re
import resource
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

import coblock
import coblock.datasets
from coblock.datasets import load_senate
from coblock.ui.cli import COMMANDS, app
from coblock.ui.cli.results import FILES, checkpoint_of, folder_of
from coblock.ui.terminal import senate_page

HEAVY = ("sklearn", "numba", "scipy", "numpy", "polars", "matplotlib", "narwhals")


def plain(text: str) -> str:
    """Return a text without colour codes."""
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], check=False, capture_output=True, text=True, timeout=60
    )


@pytest.fixture(scope="module")
def demo_folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("demo")


@pytest.fixture(scope="module")
def demo(demo_folder) -> str:
    """Return the output of the demo on a wide screen, with every fifth roll call for speed."""
    votes = load_senate()
    fewer = replace(votes, values=votes.values[:, ::5], votes=votes.votes[::5])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(coblock.datasets, "load_senate", lambda: fewer)
        patch.chdir(demo_folder)
        result = CliRunner().invoke(app, ["demo", "--seed", "0"], env={"COLUMNS": "300"})
    assert result.exit_code == 0, result.output
    return plain(result.output)


def numbers_of_groups(page: str) -> tuple[int, int]:
    found = re.search(r"(\d+) groups of people, (\d+) groups of roll calls", page)
    return int(found[1]), int(found[2])


def test_the_demo_shows_the_largest_blocks(demo):
    rows, columns = numbers_of_groups(demo)
    assert rows > 1
    assert columns > 1
    names = dict.fromkeys(re.findall(r"^ *r(\d+) \(", demo, flags=re.MULTILINE))
    assert list(names) == [str(k) for k in range(rows)]
    shown = {int(number) for number in re.findall(r"\bc(\d+)\b", demo)}
    assert shown == set(range(min(columns, 17)))


@pytest.mark.parametrize("columns", [3, 40])
def test_blocks_that_do_not_fit_on_a_narrow_screen_are_noted(columns):
    """A terminal of eighty columns has no room for forty groups."""
    model = SimpleNamespace(
        row_labels_=np.repeat([0, 1], [60, 42]),
        row_membership_=np.eye(2)[np.repeat([0, 1], [60, 42])],
        column_labels_=np.repeat(np.arange(columns), 645 // columns),
        block_probability_=np.linspace(0.0, 1.0, 2 * columns).reshape(2, columns),
        converged_=True,
        n_iter_=12,
        log_evidence_=-1234.5,
    )
    model.result_ = SimpleNamespace(
        n_clusters=(2, columns),
        labels=[model.row_labels_, model.column_labels_],
        block_probability=model.block_probability_,
    )
    page, votes = io.StringIO(), load_senate()
    console = Console(file=page, width=80)
    console.print(senate_page(model, votes.senators, votes.parties))
    lines = page.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    shown = {int(number) for number in re.findall(r"\bc(\d+)\b", page.getvalue())}
    assert shown == set(range(min(columns, 17)))
    cells = [line.split(")", 1)[1].split() for line in lines if re.match(r"^ *r\d+ \(\d+\) ", line)]
    assert sum(map(len, cells)) == 2 * len(shown)
    assert ("23 smaller groups, 368 columns" in page.getvalue()) is (columns == 40)


def test_the_demo_shows_probabilities_in_per_cent(demo):
    rows, columns = numbers_of_groups(demo)
    lines = re.findall(r"^ *r\d+ \(\d+\) +([\d ]+)$", demo, flags=re.MULTILINE)
    cells = np.array([int(cell) for line in lines for cell in line.split()])
    assert ((cells >= 0) & (cells <= 100)).all()
    assert cells.size == rows * min(columns, 17)
    assert np.ptp(cells) > 90


def test_the_demo_counts_each_senator_once(demo):
    parties = load_senate().parties
    found = re.findall(r"^r\d+ +((?:\d+ [RDI] ?)+):", demo, flags=re.MULTILINE)
    totals = dict.fromkeys("RDI", 0)
    for line in found:
        for count, party in re.findall(r"(\d+) ([RDI])", line):
            totals[party] += int(count)
    assert totals == {party: parties.count(party) for party in "RDI"}
    sizes = dict(re.findall(r"^ *r(\d+) \((\d+)\)", demo, flags=re.MULTILINE))
    assert sum(map(int, sizes.values())) == len(parties)


def test_the_demo_names_senators(demo):
    named = [name for name in load_senate().senators if name in demo.replace("\n", " ")]
    assert len(named) > 10
    assert re.search(r"(converged|stopped) after \d+ sweeps, log evidence -[\d,]+", demo)


def test_the_demo_ends_with_the_path_of_its_report(demo, demo_folder):
    report = demo_folder / "coblock-demo" / "report.html"
    assert demo.rstrip().endswith(f"Report: {report.resolve()}")
    page = report.read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert "Roll calls of the 109th US Senate" in page
    assert {path.name for path in report.parent.iterdir()} == set(FILES)


def test_help_lists_the_commands():
    result = CliRunner().invoke(app, ["--help"])
    assert result.exit_code == 0
    assert "US Senate" in result.output
    for command in COMMANDS:
        assert re.search(rf"\b{command.__name__}\b", result.output)


@pytest.mark.parametrize("command", [command.__name__ for command in COMMANDS])
def test_every_command_has_help_with_an_example(command):
    result = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "200"})
    assert result.exit_code == 0
    assert re.search(rf"Example: +coblock {command}( |$)", plain(result.output))
    assert "--json" in plain(result.output)


def test_the_examples_in_the_help_are_valid():
    """Every option in an example is an option of its command."""
    for command in COMMANDS:
        example = command.__doc__.split("Example:")[1]
        options = set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", example))
        shown = plain(CliRunner().invoke(app, [command.__name__, "--help"]).output)
        assert options <= set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", shown)), command


def test_the_version_is_printed():
    result = CliRunner().invoke(app, ["--version"])
    assert result.exit_code == 0
    assert result.output == f"coblock {coblock.__version__}\n"


def test_help_takes_half_a_second():
    """The limit is on the smallest processor time of three calls, as the machine may be busy."""
    seconds = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert run("-m", "coblock", "--help").returncode == 0
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert 0.0 < min(seconds) < 0.5


@pytest.mark.parametrize(
    "arguments", [["dance"], ["demo", "--seed", "many"], ["demo", "--colour", "red"]]
)
def test_wrong_usage_exits_with_code_two(arguments):
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert arguments[-1].lstrip("-") in plain(result.output) or arguments[1] in result.output


def test_without_a_command_help_is_printed():
    assert "Usage" in CliRunner().invoke(app, []).output


@pytest.mark.parametrize(
    "program",
    [
        "import coblock.ui.cli",
        "from typer.testing import CliRunner; from coblock.ui.cli import app; "
        "assert CliRunner().invoke(app, ['--help']).exit_code == 0",
    ],
    ids=["import", "help"],
)
def test_help_imports_nothing_heavy(program):
    report = f"; import sys; print([name for name in {HEAVY} if name in sys.modules])"
    ran = run("-c", program + report)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip() == "[]"


def test_the_check_for_heavy_imports_can_fail():
    ran = run("-c", "import coblock.estimator, sys; print('sklearn' in sys.modules)")
    assert ran.stdout.strip() == "True"


def test_the_module_can_be_run():
    ran = run("-m", "coblock", "--help")
    assert ran.returncode == 0
    assert "demo" in ran.stdout


def test_the_checkpoint_is_beside_the_result_folder():
    assert checkpoint_of(Path("result")).name == "result.checkpoint"
    assert checkpoint_of(Path()).name == f"{Path.cwd().name}.checkpoint"
    assert folder_of(Path("result.checkpoint")).name == "result"
    assert folder_of(Path("mine")).name == "mine-result"
