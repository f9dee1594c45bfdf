"""Copies of edge files on the disks of workers: what is read again when a worker is lost."""

import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from numpy.testing import assert_array_equal
from scipy import sparse

pytest.importorskip("distributed")

from distributed import Client

from coblock import IRM
from coblock.distributed import DaskEngine, release
from coblock.distributed.loader import READ_TOPIC, FileEdges, load_copy, save_copy
from coblock.io.container import InvalidFileError

FILES, ROWS, COLUMNS = 6, 1200, 520
COMMON = {"random_state": 0, "max_iter": 5, "tol": 0, "batch_size": (300, 260)}
COMMON |= {"init": "random", "refine": False}


@pytest.fixture(scope="module")
def cells():
    rng = np.random.default_rng(0)
    row, column = rng.integers(0, 3, ROWS), rng.integers(0, 3, COLUMNS)
    density = rng.beta(0.4, 1.0, (3, 3)) * 0.2
    return sparse.csr_array(rng.random((ROWS, COLUMNS)) < density[row][:, column]).astype(float)


@pytest.fixture(scope="module")
def local(cells):
    return IRM(**COMMON).fit(cells)


@pytest.fixture
def folder(cells, tmp_path):
    edges = tmp_path / "edges"
    edges.mkdir()
    for number in range(FILES):
        part = cells[number * ROWS // FILES : (number + 1) * ROWS // FILES]
        sparse.save_npz(edges / f"{number}.npz", part)
    return edges


class Machines:
    """A scheduler and workers, each with a local directory of its own."""

    def __init__(self, folder, workers):
        self.folder, self.file = folder, folder / "scheduler.json"
        self.running = [self.start("dask_scheduler", "--port", "0", "--no-dashboard")]
        self.workers = [self.start_worker(number) for number in range(workers)]

    def start(self, module, *options):
        command = [sys.executable, "-m", f"distributed.cli.{module}", "--host", "127.0.0.1"]
        command += [*options, "--scheduler-file", str(self.file)]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        path = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        return subprocess.Popen(command, **quiet, env=path, cwd=self.folder)

    def start_worker(self, number):
        place = ("--local-directory", str(self.folder / f"machine-{number}"))
        options = ("--nthreads", "1", "--no-nanny", "--no-dashboard")
        worker = self.start("dask_worker", *options, *place)
        self.running.append(worker)
        return worker

    def __enter__(self):
        return self

    def __exit__(self, *error):
        for process in reversed(self.running):
            process.kill()
            process.wait(10)


def files_read(client):
    """Return the names of the files that workers have read, not their copies."""
    return [Path(event["file"]).name for _, event in client.get_events(READ_TOPIC)]


def copies(folder):
    return sorted(folder.glob("machine-*/**/coblock-copies-*/*.safetensors"))


@contextmanager
def connected(folder, workers):
    """Start machines and a client."""
    with (
        Machines(folder, workers) as machines,
        Client(scheduler_file=str(machines.file), timeout=30, set_as_default=False) as client,
    ):
        client.wait_for_workers(workers, timeout=60)
        yield machines, client


def assert_same(there, here):
    for name in ("row_membership_", "column_labels_", "block_links_"):
        assert_array_equal(getattr(there, name), getattr(here, name))


@pytest.mark.parametrize("keep", ["copies", "nothing"])
def test_a_lost_worker_costs_its_share_of_the_files(folder, tmp_path, local, keep):
    with connected(tmp_path, 2) as (machines, client):

        def lose_a_worker(sweep):
            if sweep.sweep == 3:
                assert len(files_read(client)) == len(copies(tmp_path)) == FILES
                for path in copies(tmp_path) if keep == "nothing" else []:
                    path.unlink()
                machines.workers[1].kill()

        engine = DaskEngine(client, shards=2)
        model = IRM(**COMMON, engine=engine, callback=lose_a_worker).fit(folder)
        again = files_read(client)[FILES:]
        wanted = FILES if keep == "nothing" else FILES // 2
        assert len(again) == len(set(again)) == wanted, again
        assert_same(model, local)
        assert any("machine-0" in str(path) for path in copies(tmp_path))
        release(model)
        left = [path for path in copies(tmp_path) if "machine-0" in str(path)]
        assert left == [], "release removes the copies of the workers that are there"


def test_a_worker_that_starts_again_uses_its_copies(folder, tmp_path, local):
    with connected(tmp_path, 1) as (machines, client):

        def restart(sweep):
            if sweep.sweep == 3:
                machines.workers[0].kill()
                machines.workers[0].wait(10)
                machines.start_worker(0)

        engine = DaskEngine(client, shards=2)
        model = IRM(**COMMON, engine=engine, callback=restart).fit(folder)
        assert len(files_read(client)) == FILES, "no file is read again"
        assert_same(model, local)
        release(model)


def test_copies_are_exact_and_damaged_ones_are_refused(tmp_path):
    names = [pl.Series(["a", "\u00e9\u4e2d", ""]), pl.Series(["x"])]
    ends = (np.array([0, 2, 1], np.int32), np.zeros(3, np.int32))
    edges, path = FileEdges(ends, np.array([1, -1, 0], np.int8), *names), tmp_path / "copy"
    save_copy(path, edges)
    found = load_copy(path)
    assert_array_equal(found.ends, edges.ends)
    assert_array_equal(found.states, edges.states)
    assert [n.to_list() for n in found[2:]] == [n.to_list() for n in names]
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(InvalidFileError, match="digest"):
        load_copy(path)
    save_copy(path, FileEdges(ends, edges.states, 3, 1))
    assert load_copy(path)[2:] == (3, 1)
    save_copy(path, FileEdges(ends, edges.states, 2, 1))  # the last row does not exist
    with pytest.raises(InvalidFileError, match="edges do not fit"):
        load_copy(path)
