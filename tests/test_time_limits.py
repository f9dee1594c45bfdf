"""Tests that wait for ever end, wherever they wait."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

FILE = """
import threading
import pytest
import time_limits

time_limits.{limit} = {seconds}

@pytest.fixture
def waiting():
    yield
    {fixture}

def test_one(waiting):
    {body}

@pytest.fixture(scope="session", autouse=True)
def left_over():
    yield
    threading.Thread(target=threading.Event().wait, daemon={daemon}).start()
"""
WAIT = "threading.Event().wait()"


@pytest.mark.parametrize(
    ("limit", "seconds", "fixture", "body", "daemon", "ends"),
    [
        ("TEST", 0.5, "pass", "with pytest.raises(ValueError): " + WAIT, True, False),
        ("TEARDOWN", 0.5, WAIT, "assert 0", True, False),
        ("EXIT", 0.5, "pass", "pass", False, False),
        ("EXIT", 50, "pass", "pass", True, True),
    ],
)
def test_a_process_that_waits_for_ever_ends(limit, seconds, fixture, body, daemon, ends, tmp_path):
    path, settings = tmp_path / "test_file.py", {"fixture": fixture, "body": body, "daemon": daemon}
    path.write_text(FILE.format(limit=limit, seconds=seconds, **settings), encoding="utf-8")
    (tmp_path / "pytest.ini").touch()  # nothing above this folder is read
    environment = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    environment["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    command = [sys.executable, "-m", "pytest", "-p", "time_limits", "-p", "no:cacheprovider"]
    command += ["-c", str(tmp_path / "pytest.ini"), str(path)]
    ran = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert ("Timeout" in ran.stderr) == (not ends), ran.stdout
    assert ran.returncode == (0 if ends else 1)
