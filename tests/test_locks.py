"""Locks: of two processes that write to one place at once, the second is told about the first."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import coblock
from coblock import IRM, resume
from coblock.io.atomic import InUseError, WriteError, claim_folder, hold
from coblock.ui.cli import app

X = np.kron(np.eye(3), np.ones((8, 6)))
HOLDER = """
import sys, time
from coblock.io.atomic import hold

with hold(sys.argv[1]):
    print("held", flush=True)
    time.sleep(60)
"""


def start_holder(path: Path) -> subprocess.Popen:
    source = str(Path(coblock.__file__).parent.parent)
    command = [sys.executable, "-c", HOLDER, str(path)]
    environment = os.environ | {"PYTHONPATH": source}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout.readline() == "held\n"
    return process


def test_the_lock_of_a_killed_process_does_not_block(tmp_path):
    path = tmp_path / "fit.checkpoint"
    with start_holder(path) as holder:
        try:
            with pytest.raises(InUseError, match=rf"in use: process {holder.pid} on .*, since 20"):
                IRM(checkpoint=path).fit(X)
        finally:
            holder.kill()
    assert holder.returncode == -signal.SIGKILL
    assert [left.suffix for left in tmp_path.iterdir()] == [".lock"]
    IRM(checkpoint=path).fit(X)
    assert list(tmp_path.iterdir()) == []


def test_fits_with_one_checkpoint_at_once(tmp_path):
    path, refused = tmp_path / "fit.checkpoint", []

    def fit_again(_: object) -> None:
        for second in (lambda: IRM(checkpoint=path).fit(X), lambda: resume(path)):
            with pytest.raises(InUseError, match=f"in use: process {os.getpid()}"):
                second()
            refused.append(second)

    IRM(checkpoint=path, callback=fit_again, max_iter=3, random_state=0).fit(X)
    assert refused
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["fit", "generate", "demo"])
def test_a_result_folder_in_use_is_refused_before_any_work(tmp_path, command):
    edges, out = tmp_path / "edges.csv", tmp_path / "out"
    edges.write_text("a,b\nx,1\n", encoding="utf-8")
    arguments = [command, *([str(edges)] if command == "fit" else []), "--out", str(out)]
    with hold(out):
        ran = CliRunner().invoke(app, arguments)
    assert ran.exit_code == 2
    assert "is in use: process" in ran.output.replace("\n", " ")
    assert list(tmp_path.iterdir()) == [edges]


def test_a_lock_file_that_its_holder_removes_is_made_again(tmp_path):
    path, counter = tmp_path / "counter", tmp_path / "count"
    counter.write_text("0", encoding="utf-8")
    script = f"""
import pathlib
from coblock.io.atomic import InUseError, WriteError, claim_folder, hold

counter, done = pathlib.Path({str(counter)!r}), 0
while done < 100:
    try:
        with hold({str(path)!r}):
            counter.write_text(str(int(counter.read_text()) + 1))
            done += 1
    except InUseError:
        pass
"""
    source = str(Path(coblock.__file__).parent.parent)
    began, command = time.monotonic(), [sys.executable, "-c", script]
    environment = os.environ | {"PYTHONPATH": source}
    processes = [subprocess.Popen(command, env=environment) for _ in range(2)]
    assert [process.wait(60) for process in processes] == [0, 0]
    assert counter.read_text(encoding="utf-8") == "200"
    assert time.monotonic() - began < 60


@pytest.mark.parametrize("link", ["symbolic", "hard"])
def test_a_lock_file_that_leads_elsewhere_is_refused(tmp_path, link):
    path, victim = tmp_path / "fit", tmp_path / "victim"
    with hold(path):
        (lock,) = tmp_path.glob("*.lock")
    victim.write_bytes(b"precious")
    if link == "symbolic":
        lock.symlink_to(victim)
    else:
        lock.hardlink_to(victim)
    with pytest.raises(WriteError, match="fit cannot be written"), hold(path):
        pass
    assert victim.read_bytes() == b"precious"


def test_the_lock_is_in_a_folder_whose_parent_cannot_be_written(tmp_path, monkeypatch):
    folder = tmp_path / "volume"
    folder.mkdir()
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != tmp_path)
    with claim_folder(folder) as write:
        assert [path.suffix for path in folder.iterdir()] == [".lock"]
        assert list(tmp_path.iterdir()) == [folder]
        write(lambda staging: (staging / "a").write_bytes(b"new"))
    assert [path.name for path in folder.iterdir()] == ["a"]
