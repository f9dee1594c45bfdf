"""Test that each code block of the documentation runs and prints what the page shows."""

import doctest
import io
import re
import shlex
import subprocess
import sys
from contextlib import redirect_stdout
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest
from typer.testing import CliRunner

import coblock.datasets
from coblock import IRM, MultiIRM
from coblock.ui.cli import COMMANDS, app

ROOT = Path(__file__).parent.parent
GENERATED = {"commands.md", "paper.md"}
PAGES = [
    ROOT / "README.md",
    *sorted(page for page in (ROOT / "docs").rglob("*.md") if page.name not in GENERATED),
]
NOT_RUN = ("pip install ", "make ")  # shell lines that other tests cover
FILE = re.compile(r"^cat > (\S+) <<'END'\n(.*?)^END\n", flags=re.DOTALL | re.MULTILINE)
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


class Block(NamedTuple):
    language: str
    text: str


def blocks_of(text: str) -> list[Block]:
    found = re.findall(r"^```([^\n]*)\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)
    return [Block(*pair) for pair in found if not pair[0].startswith("{")]


def run_shell(text: str) -> str:
    """Write the files and run the coblock commands of a block; return their output."""
    for name, content in FILE.findall(text):
        Path(name).write_text(content, encoding="utf-8")
    outputs = []
    for line in FILE.sub("", text).splitlines():
        words = shlex.split(line, comments=True)
        if not words or line.startswith(NOT_RUN):
            continue
        assert words[0] == "coblock", f"{line!r} is not run"
        result = CliRunner().invoke(app, words[1:])
        assert result.exit_code == 0, f"{line}\n{result.output}"
        outputs.append(result.stdout)
    return "".join(outputs)


def run_page(text: str, name: str) -> str:
    """Run all blocks of a page in the current folder; return their output."""
    namespace: dict[str, object] = {"__name__": "page"}
    outputs = []
    for block, after in pairwise([*blocks_of(text), Block("", "")]):
        if block.language == "text":
            continue
        assert block.language in {"python", "sh"}, f"{name}: what is {block.language!r}?"
        if block.language == "sh":
            printed = run_shell(block.text)
        else:
            with redirect_stdout(io.StringIO()) as output:
                exec(compile(block.text, name, "exec"), namespace)
            printed = output.getvalue()
        if after.language == "text":
            same = doctest.OutputChecker().check_output(after.text, printed, FLAGS)
            assert same, f"{name} says\n{after.text}but\n{printed}was printed"
        outputs.append(printed)
    return "".join(outputs)


@pytest.fixture
def fewer_votes(monkeypatch):
    """Use every fifth roll call of the Senate, for speed."""
    votes = coblock.datasets.load_senate()
    fewer = replace(votes, values=votes.values[:, ::5], votes=votes.votes[::5])
    monkeypatch.setattr(coblock.datasets, "load_senate", lambda: fewer)


@pytest.mark.parametrize("page", PAGES[1:], ids=lambda page: page.stem)
def test_the_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_page(page.read_text(encoding="utf-8"), page.name)


def test_the_readme_runs(tmp_path, monkeypatch, fewer_votes):
    monkeypatch.chdir(tmp_path)
    printed = run_page(PAGES[0].read_text(encoding="utf-8"), "README.md")
    assert "bipartite relation, 102 x 129" in printed
    assert re.search(r"^\d+ McCain \(R-AZ\)$", printed, flags=re.MULTILINE)
    assert (tmp_path / "coblock-demo" / "report.html").exists()


def test_the_shell_example_of_the_readme_has_ten_lines():
    shell = next(block for block in blocks_of(PAGES[0].read_text()) if block.language == "sh")
    assert len(shell.text.splitlines()) == 10


def test_the_pages_show_every_command():
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    for command in COMMANDS:
        assert re.search(rf"\n *coblock {command.__name__} ", text)


@pytest.mark.parametrize(
    ("page", "complaint"),
    [
        ("```python\nprint(2)\n```\n\n```text\n3\n```\n", r"2\s+was printed"),
        ("```python\n1 / 0\n```\n", "division"),
        ("```sh\ncoblock report nowhere\n```\n", "There is no file"),
        ("```sh\nrm -rf folder\n```\n", "is not run"),
        ("```rust\nfn main() {}\n```\n", "what is 'rust'"),
    ],
)
def test_errors_on_a_page_are_noticed(page, complaint, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises((AssertionError, ZeroDivisionError), match=complaint):
        run_page(page, "page.md")
    assert run_page("```python\nprint(2)\n```\n\n```text\n2\n```\n", "page.md") == "2\n"


def links_of(page: Path) -> list[str]:
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.S | re.M)
    return [link for link in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in link]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_between_pages_have_a_target(page):
    gone = [
        link
        for link in links_of(page)
        if not link.startswith("#") and not (page.parent / link.split("#")[0]).exists()
    ]
    assert not gone


def test_the_documentation_builds_without_warnings(tmp_path):
    """Nothing is fetched: every address is one that cannot be reached."""
    pytest.importorskip("sphinx")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-d"]
    ran = subprocess.run(
        [*command, tmp_path / "trees", "-b", "html", ROOT / "docs", tmp_path / "html"],
        check=False, capture_output=True, text=True, timeout=120,
        env={"PATH": "/nowhere", "PYTHONPATH": ":".join(sys.path), "https_proxy": "localhost:1"},
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    commands = (tmp_path / "html" / "reference" / "commands.html").read_text(encoding="utf-8")
    for command in COMMANDS:
        assert f'id="{command.__name__}"' in commands
    reference = (tmp_path / "html" / "reference" / "python.html").read_text(encoding="utf-8")
    shown = re.sub(r"<[^>]+>", "", reference)
    assert "max_clusters" in shown
    for kind in (IRM, MultiIRM):  # names keep their last underscore
        listed = re.findall(r"^    ([a-z]\w*_(?:, [a-z]\w*_)*) :", kind.__doc__, flags=re.M)
        names = ", ".join(listed).split(", ")
        assert len(names) > 5
        assert [name for name in names if not re.search(rf"\b{name}(?!\w)", shown)] == []
