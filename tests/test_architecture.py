"""The documented call path of a fit is the one that a real call takes."""

import os
import re
import sys
from pathlib import Path

import numpy as np
import pytest

import coblock
from coblock import IRM
from coblock.generate import planted

ROOT = Path(__file__).parent.parent
PACKAGE = Path(coblock.__file__).parent
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
STEP = re.compile(r"^(\d+)\. `([\w/]+\.py)` `([\w.]+)`", re.MULTILINE)


def documented(heading: str) -> list[tuple[str, str]]:
    """File and function of each numbered step of a section."""
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    found = STEP.findall(section)
    assert [int(number) for number, _, _ in found] == list(range(1, len(found) + 1))
    return [(file, function) for _, file, function in found]


def traced(call) -> list[tuple[str, str]]:
    """Python functions of the package in the order of their first call."""
    seen: dict[tuple[str, str], None] = {}

    def note(frame, event, _argument):
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(str(PACKAGE) + os.sep):
            name = Path(file).relative_to(PACKAGE).as_posix()
            seen.setdefault((name, frame.f_code.co_qualname), None)

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return list(seen)


def is_subsequence(steps: list[tuple[str, str]], calls: list[tuple[str, str]]) -> bool:
    remaining = iter(calls)
    return all(step in remaining for step in steps)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="co_qualname needs Python 3.11")
def test_the_documented_call_path_is_the_real_one():
    X = planted((1100, 300), (4, 3), 0).X
    steps = documented("Call path of a fit")
    assert 10 <= len(steps) <= 15
    IRM(random_state=0).fit(X)  # compiles, which takes minutes while calls are traced
    calls = traced(lambda: IRM(random_state=0).fit(X))
    missing = [step for step in steps if step not in calls]
    assert not missing
    assert is_subsequence(steps, calls)
    assert not is_subsequence(steps[::-1], calls)


def test_the_other_call_paths_name_functions_that_exist():
    for heading in (
        "Call path of a sweep",
        "Call path of a move",
        "Call path of a sweep on a cluster",
        "Call path of a batch of several relations on a cluster",
    ):
        steps = documented(heading)
        assert 5 <= len(steps) <= 15
        for file, function in steps:
            source = (PACKAGE / file).read_text(encoding="utf-8")
            name = function.split(".")[-1]
            assert re.search(rf"def {name}\b|class {name}\b", source), (file, function)


def test_the_check_of_existence_can_fail():
    source = (PACKAGE / "estimator.py").read_text(encoding="utf-8")
    assert not re.search(r"def no_such_function\b", source)
    assert np.all([file.endswith(".py") for file, _ in documented("Call path of a fit")])
