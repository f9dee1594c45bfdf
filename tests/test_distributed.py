"""Fits on real worker processes: the bits of one machine, also when workers are killed.

The tests of checkpoints and of model files need the writers of coblock.io.checkpoint and
coblock.io.model_file.
"""

import contextlib
import fcntl
import gc
import json
import os
import pickle
import pty
import re
import shutil
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy import sparse
from sklearn.base import clone
from threadpoolctl import threadpool_info
from typer.testing import CliRunner

pytest.importorskip("distributed")

from distributed import Client, LocalCluster, wait

from clusters import worker_processes
from coblock import IRM, load, read
from coblock.distributed import (
    ClusterError,
    DaskEngine,
    DistributedIRM,
    collect,
    fit_on_cluster,
    release,
)
from coblock.distributed.client import (
    check_versions,
    connect,
    find_failure,
    gather_results,
    own_versions,
)
from coblock.distributed.loader import SourceFile, read_source
from coblock.distributed.relation import ShardPool
from coblock.distributed.replication import DeltaLog, StaleReplica, match_soft_memberships
from coblock.distributed.sparse import SparseMemberships
from coblock.distributed.tasks import ShardLayout
from coblock.inference.engine import LocalEngine
from coblock.inference.settings import Settings
from coblock.io.atomic import WriteError
from coblock.io.checkpoint import CheckpointError, StoredFit
from coblock.io.readers import ReadError
from coblock.io.readers.reader import Columns, Reader, TextLayout
from coblock.kernels.memberships import hard_labels
from coblock.model.partition import Partition
from coblock.ui.cli import app

pytestmark = pytest.mark.usefixtures("brief_searches_in_file")
SEED, SWEEPS = 3, 8
ROWS, COLUMNS = 1500, 700
BATCH = 400  # objects, in three parts
START = tuple(np.random.default_rng(0).integers(0, 6, size) for size in (ROWS, COLUMNS))
PUBLIC = (
    "row_labels_",
    "column_labels_",
    "row_membership_",
    "column_membership_",
    "block_probability_",
    "block_links_",
    "block_cells_",
    "concentration_",
    "block_prior_",
    "log_evidence_",
)


@dataclass
class Edges:
    """The same relation as a folder of files and as one frame."""

    folder: Path
    frame: pl.DataFrame


def planted(rows=ROWS, columns=COLUMNS, seed=0):
    """Return rows and columns of links in five by four blocks, in random order."""
    rng = np.random.default_rng(seed)
    of_row, of_column = rng.integers(0, 5, rows), rng.integers(0, 4, columns)
    density = rng.beta(0.3, 2.0, (5, 4)) * 0.3
    r, c = np.nonzero(rng.random((rows, columns)) < density[of_row][:, of_column])
    order = rng.permutation(r.size)
    return r[order], c[order], rng


@pytest.fixture(scope="module")
def edges(tmp_path_factory):
    folder = tmp_path_factory.mktemp("edges")
    r, c, rng = planted()
    frame = pl.DataFrame({"who": r, "what": c}).select(
        pl.format("user {}", "who"), pl.format("item {}", "what")
    )
    frame.columns = ["who", "what"]
    seen = np.where(rng.random(r.size) < 0.03, None, 1.0)
    frame = frame.with_columns(pl.Series("value", seen.tolist(), dtype=pl.Float64))
    for number, start in enumerate(range(0, frame.height, frame.height // 3 + 1)):
        part = frame.slice(start, frame.height // 3 + 1)
        part.write_parquet(folder / f"part-{number}.parquet")
    return Edges(folder, frame)


@pytest.fixture(scope="module")
def cluster():
    with worker_processes(4) as running:
        yield running


@pytest.fixture
def client(cluster):
    with Client(cluster, set_as_default=False) as connected:
        connected.wait_for_workers(4, timeout=30)
        yield connected


@pytest.fixture(scope="module")
def local(edges, brief_searches_in_file):
    """Return the model fitted on one machine."""
    relation = read(edges.frame, value="value").relation
    common = {"init": START, "max_iter": SWEEPS, "tol": 0, "random_state": SEED}
    return IRM(**common, batch_size=BATCH).fit(relation)


def assert_same(model, local):
    for name in PUBLIC:
        np.testing.assert_array_equal(getattr(model, name), getattr(local, name), err_msg=name)
    for here, there in zip(model.trace_, local.trace_, strict=True):
        assert {**here, "seconds": 0} == {**there, "seconds": 0}


# A fit whose sweeps do not matter: searches on a cluster take much time. So do spectral starts, and
# only the tests that are about them have one.
BRIEF = {"init": "random", "refine": False, "max_iter": 1}


def fitted(client, folder, **parameters):
    chosen = {"max_iter": SWEEPS, "tol": 0, "random_state": SEED, "value": "value"}
    chosen |= {"batch_size": BATCH, "init": START} | parameters
    return DistributedIRM(client, **chosen).fit(folder)


def test_bits_are_those_of_one_machine(client, edges, local):
    model = fitted(client, edges.folder)
    assert_same(model, local)
    assert model.result_.relation.row_names == local.result_.relation.row_names
    model.release()


@pytest.mark.parametrize("start", [{"init": "random", "refine": False}, {"init": START}])
def test_a_sweep_has_four_batches_of_each_domain_by_default(client, edges, start):
    relation = read(edges.frame, value="value").relation
    sizes = [-(-size // 4) for size in relation.sizes]
    common = {"max_iter": 3, "random_state": SEED, **start}
    here = IRM(**common, batch_size=sizes, tol=0).fit(relation)
    assert_same(fitted(client, edges.folder, **common, batch_size="auto"), here)


def test_another_seed_gives_other_bits(client, edges, local):
    model = fitted(client, edges.folder, random_state=SEED + 1, max_iter=3)
    with pytest.raises(AssertionError):
        assert_same(model, local)


def test_sweeps_from_given_labels_give_the_bits_of_one_machine(client, edges):
    relation = read(edges.frame, value="value").relation
    rng = np.random.default_rng(1)
    init = [rng.integers(0, 3, size) for size in relation.sizes]
    common = {"init": init, "refine": False, "inference": "acvb0", "batch_size": 300, "burn_in": 3}
    here = IRM(**common, max_iter=8, tol=0, random_state=0).fit(relation)
    there = fitted(client, edges.folder, **common, max_iter=8, shards=3, random_state=0)
    assert_same(there, here)
    assert max(q.max(axis=1).min() for q in (here.row_membership_, here.column_membership_)) < 1


def test_shortened_steps_give_the_bits_of_one_machine(client, edges, monkeypatch):
    always = "coblock.inference.variational.is_cycling"
    monkeypatch.setattr(always, lambda changes: True)  # steps are halved early
    steps = []
    sweep = DaskEngine.sweep_memberships

    def record(engine, state, step):
        steps.append(step)
        return sweep(engine, state, step)

    monkeypatch.setattr(DaskEngine, "sweep_memberships", record)
    relation = read(edges.frame, value="value").relation
    common = {"init": "random", "refine": False, "inference": "cvb0", "batch_size": BATCH}
    common |= {"max_iter": 12, "random_state": 0}
    here = IRM(**common, tol=0).fit(relation)
    there = fitted(client, edges.folder, **common)
    assert_same(there, here)
    assert min(steps) < 1.0


def test_reordered_clusters_need_no_new_snapshot(client, edges, monkeypatch):
    reordered, snapshots = [], []
    continue_from = DeltaLog.continue_from

    def record(log, memberships, match):
        continue_from(log, memberships, match)
        moved = [not np.array_equal(target, np.arange(target.size)) for target in log._target]
        reordered.append(any(moved))
        snapshots.append(log._snapshot is None)  # the sweep then takes one

    monkeypatch.setattr(DeltaLog, "continue_from", record)
    relation = read(edges.frame, value="value").relation
    rng = np.random.default_rng(2)
    init = [rng.integers(0, 4, size) for size in relation.sizes]
    common = {"init": init, "refine": False, "batch_size": 300, "random_state": 0, "max_iter": 6}
    here = IRM(**common, tol=0).fit(relation)
    assert_same(fitted(client, edges.folder, **common), here)
    assert any(reordered)
    assert snapshots == [True, False, False, False, False, False]


def test_new_numbers_of_clusters_are_found_from_the_memberships():
    rng = np.random.default_rng(0)
    q = rng.dirichlet(np.ones(5), 30)
    q[:, 3] = q[:, 4] = 0.0  # equal sizes
    m, order = q.sum(axis=0), np.array([2, 0, 1, 3, 4])
    reordered = (q[:, order].copy(), m[order])
    np.testing.assert_array_equal(match_soft_memberships((q, m), reordered), np.argsort(order))
    np.testing.assert_array_equal(match_soft_memberships((q, m), (q, m)), np.arange(5))
    other = q[:, order].copy()
    other[7, 0] += 1e-12
    assert match_soft_memberships((q, m), (other, m[order])) is None
    assert match_soft_memberships((q, m), (q[:, :4].copy(), m[:4])) is None


def test_label_sweeps_after_merges_need_no_new_snapshot(client, edges, monkeypatch):
    """Labels are sent again where a search goes back to earlier ones."""
    sent, send_labels = [], ShardPool.send_labels
    monkeypatch.setattr(
        ShardPool, "send_labels", lambda pool, *labels: sent.append(1) or send_labels(pool, *labels)
    )
    engine = DaskEngine(client)
    rng = np.random.default_rng(2)
    with engine.open(str(edges.folder), None, "bipartite", None, Settings()) as there:
        here = there.collect()
        start = [rng.integers(0, 6, size) for size in here.sizes]
        local = LocalEngine(engine.schedule)
        pairs = [(local, Partition.from_labels(here, start))]
        pairs += [(engine, Partition.from_labels(there, start))]

        def sweep() -> int:
            sent.clear()
            for each, partition in pairs:
                each.sweep_labels(partition)
            (_, found), (_, other) = pairs
            for one, two in zip(found.labels, other.labels, strict=True):
                np.testing.assert_array_equal(one, np.asarray(two))
            np.testing.assert_array_equal(found.blocks.links, other.blocks.links)
            return len(sent)

        assert sweep() == 1
        assert sweep() == 0
        for _, partition in pairs:
            partition.merge_clusters(0, np.array([0, 1, 2, 0, 4, 5], np.int32))
        assert sweep() == 0
        pairs = [
            (each, Partition.from_labels(partition.relation, start)) for each, partition in pairs
        ]
        assert sweep() == 1


def test_a_stale_replica_gets_a_new_snapshot(client, edges, local, monkeypatch):
    gather, stale = DeltaLog._gather, []

    def lose_replicas(log, pending, at_once):
        results = gather(log, pending, at_once)
        if len(stale) < 3 and len(results) > 1:
            results[1][0] = StaleReplica()
            stale.append(log.version)
        return results

    monkeypatch.setattr(DeltaLog, "_gather", lose_replicas)
    assert_same(fitted(client, edges.folder), local)
    assert len(stale) == 3


@pytest.mark.parametrize(("prior", "start"), [("shared", "spectral"), ("per-block", START)])
def test_a_complete_fit_gives_the_bits_of_one_machine(client, edges, prior, start):
    relation = read(edges.frame, value="value").relation
    common = {"random_state": SEED, "batch_size": BATCH, "prior": prior, "max_iter": 100}
    common["init"] = start
    here = IRM(**common, tol=1e-3).fit(relation)
    there = fitted(client, edges.folder, **common, tol=1e-3)
    assert there.converged_
    assert_same(there, here)


def test_a_start_in_single_precision_gives_the_bits_of_one_machine(client, edges, monkeypatch):
    monkeypatch.setattr("coblock.inference.singular.SINGLE_PRECISION_FROM", 1000)
    relation = read(edges.frame, value="value").relation
    common = {"max_iter": 2, "random_state": SEED, "batch_size": BATCH, "init": "spectral"}
    here = IRM(**common, tol=0).fit(relation)
    assert_same(fitted(client, edges.folder, **common), here)


def test_a_fit_continues_from_a_checkpoint_of_any_sweep(client, edges, tmp_path):
    path = tmp_path / "fit.checkpoint"
    relation = read(edges.frame, value="value").relation
    common = {"random_state": SEED, "batch_size": BATCH, "max_iter": 100, "tol": 1e-3}
    common["init"] = START
    here = IRM(**common).fit(relation)
    swept, ends = [0], [3, here.n_iter_ - 1]  # in the search, and after it

    def callback(sweep):
        swept.append(sweep.sweep)
        if sweep.sweep in ends:
            raise InterruptedError

    common |= {"checkpoint": path, "callback": callback}
    for _ in ends:
        with pytest.raises(InterruptedError):
            fitted(client, edges.folder, **common)
    assert_same(fitted(client, edges.folder, **common), here)
    assert swept == list(range(here.n_iter_ + 1))  # no sweep is done twice


def interrupt_at_once(sweep):
    raise InterruptedError


def test_a_damaged_checkpoint_or_one_of_another_fit_is_refused(client, edges, tmp_path):
    path = tmp_path / "fit.checkpoint"
    common = BRIEF | {"checkpoint": path}
    with pytest.raises(InterruptedError):
        fitted(client, edges.folder, callback=interrupt_at_once, **common)
    with pytest.raises(CheckpointError, match="random_state"):
        fitted(client, edges.folder, random_state=SEED + 1, **common)
    with pytest.raises(CheckpointError, match="data"):
        fitted(client, edges.folder, value=None, **common)
    whole = path.read_bytes()
    for damaged in (whole[:-9], whole[:-1] + bytes([whole[-1] ^ 1]), b"nothing"):
        path.write_bytes(damaged)
        with pytest.raises(CheckpointError, match="damaged"):
            fitted(client, edges.folder, **common)
    path.write_bytes(whole)
    fitted(client, edges.folder, **common)
    assert not path.exists()


def test_the_command_fits_on_a_cluster(cluster, edges, tmp_path):
    options = ["--value", "value", "--max-iter", "4", "--tol", "0", "--seed", str(SEED)]
    options += ["--batch-size", str(BATCH), "--json"]
    single = tmp_path / "edges.parquet"
    edges.frame.write_parquet(single)
    told = []
    for name, more in (("here", []), ("there", ["--scheduler", cluster.scheduler_address])):
        source = edges.folder if more else single
        command = ["fit", str(source), "--out", str(tmp_path / name), *options, *more]
        result = CliRunner().invoke(app, command)
        assert result.exit_code == 0, result.output
        told.append(json.loads(result.stdout))
    for name in ("row_clusters", "column_clusters", "links", "unseen", "sweeps", "log_evidence"):
        assert told[0][name] == told[1][name]
    for table in ("rows.csv", "columns.csv", "blocks.csv"):
        here, there = (tmp_path / name / table for name in ("here", "there"))
        assert here.read_bytes() == there.read_bytes()
    assert not (tmp_path / "there.checkpoint").exists()


def test_a_terminal_shows_a_progress_bar_during_a_cluster_fit(cluster, edges, tmp_path):
    command = [sys.executable, "-m", "coblock", "fit"]
    command += [str(edges.folder), "--init", "random", "--no-refine", "--max-iter", "3"]
    command += ["--tol", "0", "--out", str(tmp_path / "out"), "--scheduler"]
    mine, theirs = pty.openpty()
    shape = struct.pack("HHHH", 30, 120, 0, 0)
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, shape)
    shown = []

    def read_screen():
        with contextlib.suppress(OSError):  # the other end is closed
            while piece := os.read(mine, 4096):
                shown.append(piece)

    environment = os.environ | {"TERM": "xterm", "COLUMNS": "120"}
    with subprocess.Popen(
        [*command, cluster.scheduler_address], stdout=theirs, stderr=theirs, env=environment
    ) as process:
        os.close(theirs)
        reader = threading.Thread(target=read_screen, daemon=True)
        reader.start()
        try:
            assert process.wait(120) == 0
        finally:
            process.kill()
    reader.join(10)
    os.close(mine)
    screen = b"".join(shown).decode(errors="replace")
    assert re.search(r"[━╸╺]", screen), screen
    assert re.search(r"sweep\s+\d", screen), screen


def test_workers_use_no_more_threads_than_they_have(client, edges):
    assert set(client.nthreads().values()) == {1}
    model = fitted(client, edges.folder, **BRIEF)
    layouts = model.result_.relation.pool.layouts
    assert all(layout.shards == min(4, layout.most) > 1 for layout in layouts)
    pools = client.run(lambda: [pool["num_threads"] for pool in threadpool_info()])
    model.release()
    assert all(pools.values())
    assert {count for counts in pools.values() for count in counts} == {1}


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--scheduler", "nonsense://x"], "No scheduler answers at 'nonsense://x'"),
        (["--scheduler", "nonsense://x", "--delimiter", ";", "-j", "2"], "--delimiter, --jobs can"),
    ],
)
def test_the_command_reports_errors_in_one_sentence(edges, tmp_path, options, sentence):
    command = ["fit", str(edges.folder), "--out", str(tmp_path / "out"), *options]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 2
    assert sentence in result.stderr
    assert "Traceback" not in result.output
    assert not (tmp_path / "out").exists()


def kill_workers(client, stop, when, killed):
    """Kill a busy worker after each of the events."""
    for moment in when:
        moment.wait()  # the test sets all of them at its end
        if stop.is_set():
            return
        pids = client.run(os.getpid)
        busy = [pid for address, pid in pids.items() if client.has_what([address])[address]]
        killed.append(busy[0])
        os.kill(busy[0], signal.SIGKILL)


@pytest.mark.parametrize("relation", ["bipartite", "directed"])
def test_two_killed_workers_do_not_change_the_result(client, edges, local, relation):
    common = {"relation": relation, "init": START}
    if relation == "directed":
        data = read(edges.frame, value="value", relation=relation).relation
        common |= {"init": np.concatenate(START), "random_state": SEED, "batch_size": BATCH}
        local = IRM(**common, max_iter=SWEEPS, tol=0).fit(data)
    moments, stop, killed = [threading.Event(), threading.Event()], threading.Event(), []

    def callback(sweep):
        if sweep.sweep == 2:
            moments[0].set()
        if sweep.sweep == SWEEPS - 3:
            moments[1].set()

    work = (client, stop, moments, killed)
    thread = threading.Thread(target=kill_workers, args=work, daemon=True)
    thread.start()
    try:
        model = fitted(client, edges.folder, callback=callback, **common)
    finally:
        stop.set()
        for moment in moments:
            moment.set()
        thread.join(60)
    assert len(killed) == 2
    assert_same(model, local)


class Processes:
    """A scheduler and a worker, started by their commands."""

    def __init__(self, folder):
        self.file = folder / f"scheduler-{time.monotonic_ns()}.json"
        self.running = []
        here = ("--host", "127.0.0.1")
        self.start("dask_scheduler", "--port", "0", *here, "--no-dashboard")
        self.start_worker(cwd=folder)

    def start(self, module, *options, **more):
        command = [sys.executable, "-m", f"distributed.cli.{module}", *options]
        command += ["--scheduler-file", str(self.file)]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.running.append(subprocess.Popen(command, **quiet, **more))

    def start_worker(self, *paths, **more):
        """Start a worker with the import paths of this process, preceded by ``paths``."""
        here = ("--host", "127.0.0.1", "--no-dashboard", "--no-nanny")
        more["env"] = os.environ | {"PYTHONPATH": os.pathsep.join([*paths, *sys.path])}
        self.start("dask_worker", "--nthreads", "1", "--nworkers", "1", *here, **more)

    def client(self, timeout=30):
        """Connect."""
        return Client(scheduler_file=str(self.file), timeout=timeout, set_as_default=False)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        for process in reversed(self.running):
            process.terminate()
        for process in self.running:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(10)


def test_a_lost_scheduler_is_reported_and_the_fit_continues_from_its_checkpoint(
    edges, tmp_path, monkeypatch
):
    path = tmp_path / "fit.checkpoint"
    monkeypatch.setattr("coblock.io.checkpoint.EVERY", 0.0)
    relation = read(edges.frame, value="value").relation
    rng = np.random.default_rng(1)
    init = [rng.integers(0, 3, size) for size in relation.sizes]
    common = {"init": init, "refine": False, "burn_in": 3, "max_iter": 9, "batch_size": 300}
    local = IRM(**common, tol=0, random_state=0).fit(relation)
    with Processes(tmp_path) as first, first.client() as client:

        def lose(sweep):
            if sweep.sweep == 6:
                client._timeout = 3  # seconds until a lost scheduler is given up
                first.running[0].send_signal(signal.SIGKILL)

        with pytest.raises(ClusterError, match="scheduler was lost"):
            fitted(client, edges.folder, callback=lose, checkpoint=path, **common)
    swept = []
    with Processes(tmp_path) as second, second.client() as client:
        with pytest.raises(CheckpointError, match="tol"):
            fitted(client, edges.folder, checkpoint=path, **common | {"tol": 1.0})
        model = fitted(client, edges.folder, callback=swept.append, checkpoint=path, **common)
        assert_same(model, local)
        assert [sweep.sweep for sweep in swept] == [7, 8, 9]
        assert not path.exists()


def test_an_unsuitable_worker_is_named(edges, tmp_path):
    """One worker has another working directory, and one has another version."""
    shutil.copytree(edges.folder, tmp_path / "edges")
    elsewhere, other = tmp_path / "elsewhere", tmp_path / "other" / "coblock-9.9.dist-info"
    elsewhere.mkdir()
    other.mkdir(parents=True)
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: coblock\nVersion: 9.9\n")
    with Processes(tmp_path) as processes, processes.client() as client:
        client.wait_for_workers(1, timeout=60)
        processes.start_worker(cwd=elsewhere)
        client.wait_for_workers(2, timeout=60)
        with pytest.raises(ClusterError, match=r"Worker tcp://\S+ (sees no folder|cannot read) "):
            fitted(client, "edges")
        processes.start_worker(str(other.parent))
        client.wait_for_workers(3, timeout=60)
        with pytest.raises(ClusterError, match=r"Worker tcp://\S+ has other.*coblock 9\.9 not"):
            fitted(client, "edges")


def test_workers_that_join_get_shards_and_others_may_leave(edges):
    relation = read(edges.frame, value="value").relation
    common = {"init": START, "refine": False, "max_iter": 6, "batch_size": BATCH}
    common["random_state"] = 0
    local = IRM(**common, tol=0).fit(relation)
    with worker_processes(1) as growing, Client(growing, set_as_default=False) as client:

        def grow(sweep):
            if sweep.sweep == 2:
                growing.scale(3)
                client.wait_for_workers(3, timeout=60)
            if sweep.sweep == 4:
                growing.scale(2)

        model = fitted(client, edges.folder, callback=grow, **common)
        assert model.result_.relation.pool.layouts[0].shards == 3
        assert_same(model, local)
        names = client.run_on_scheduler(lambda dask_scheduler: list(dask_scheduler.task_prefixes))
        assert {"coblock-read", "coblock-shard-rows", "coblock-update-columns"} <= set(names)


def test_csv_and_npz_give_the_same_relation(client, edges, tmp_path):
    table, matrices = tmp_path / "csv", tmp_path / "npz"
    table.mkdir()
    matrices.mkdir()
    frame = edges.frame.select("who", "what")
    frame.slice(0, 900).write_csv(table / "a.csv")
    frame.slice(900).write_csv(table / "b.csv")
    relation = read(frame).relation
    start, end = relation.incidence[0][0][:2]
    X = sparse.csr_array((np.ones(end.size), end, start), shape=relation.shape)
    sparse.save_npz(matrices / "0.npz", X[:400])
    sparse.save_npz(matrices / "1.npz", X[400:])
    common = BRIEF | {"max_iter": 3, "random_state": 0}
    here = IRM(**common, tol=0, batch_size=BATCH).fit(relation)
    for folder in (table, matrices):
        there = fitted(client, folder, value=None, **common)
        assert_same(there, here)


def test_the_contract_of_the_estimator(client, edges, tmp_path):
    model = fitted(client, edges.folder, max_iter=4)
    relation = read(edges.frame, value="value").relation
    common = {"init": START, "max_iter": 4, "random_state": SEED, "batch_size": BATCH}
    here = IRM(**common, tol=0).fit(relation)
    rows = np.zeros((2, relation.shape[1]))
    rows[0, :40] = 1
    np.testing.assert_array_equal(model.predict(rows), here.predict(rows))
    assert model.link_probability(0, 1) == here.link_probability(0, 1)
    assert "Single partners are not listed" in model.summary()
    assert model.summary().splitlines()[:2] == here.summary().splitlines()[:2]
    assert model.rows_.shape == here.rows_.shape
    assert pickle.loads(pickle.dumps(model.result_)).log_evidence == here.log_evidence_
    with pytest.raises(RuntimeError, match="collect"):
        model.save(tmp_path / "model.safetensors")
    model.collect().save(tmp_path / "model.safetensors")
    assert model.summary() == here.summary()
    again = load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(again.row_membership_, here.row_membership_)
    for found, expected in zip(model.recommend([0, 5]), here.recommend([0, 5]), strict=True):
        np.testing.assert_array_equal(found, expected)


def wait_until(condition, seconds=20):
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        gc.collect()
        time.sleep(0.1)
    return condition()


def test_fits_by_address_hold_the_number_of_threads_and_files(cluster, edges):
    """Clients are closed by release, by an error, and with the last reference to a model."""
    address = cluster.scheduler_address

    def clients():
        return sum(thread.name.startswith("IO loop") for thread in threading.enumerate())

    def open_files():
        return len(list(Path("/dev/fd").iterdir()))

    fitted(address, edges.folder, **BRIEF).release()
    gc.collect()
    before, files = clients(), open_files()
    kept = fitted(address, edges.folder, **BRIEF)
    assert clients() == before + 1  # the count can tell
    for _ in range(2):
        fitted(address, edges.folder, **BRIEF).release()
        with pytest.raises(InterruptedError):
            fitted(address, edges.folder, callback=interrupt_at_once, **BRIEF)
        with pytest.raises(ClusterError, match="sees no folder"):
            fitted(address, "/nowhere", **BRIEF)
        fitted(address, edges.folder, **BRIEF)
    kept.collect()
    assert wait_until(lambda: clients() == before)
    assert wait_until(lambda: open_files() <= files + 2)


@pytest.mark.parametrize("callback", [None, interrupt_at_once])
def test_a_fit_leaves_no_plugin_on_the_workers(client, edges, callback):
    def plugins():
        found = client.run(lambda dask_worker: list(dask_worker.plugins))
        return [name for names in found.values() for name in names if "coblock" in name]

    during = []

    def record(sweep):
        during.extend(plugins())
        if callback is not None:
            callback(sweep)

    expected = contextlib.nullcontext() if callback is None else pytest.raises(InterruptedError)
    with expected:
        model = fitted(client, edges.folder, callback=record, **BRIEF)
    assert len(during) == 4
    assert plugins() == []
    assert client.status == "running"
    if callback is None:
        model.collect()


def test_the_functions_and_methods_of_a_model_on_a_cluster_are_the_same(client, edges):
    engine = DaskEngine(client, value="value")
    common = BRIEF | {"max_iter": 2}
    model = IRM(**common, tol=0, random_state=SEED, batch_size=BATCH, engine=engine)
    model.fit(edges.folder)
    assert_same(model, fitted(client, edges.folder, **common))
    assert clone(model).engine is engine
    assert pickle.loads(pickle.dumps(engine)).client == client.scheduler.address
    with pytest.raises(RuntimeError, match="collect"):
        model.recommend([0])
    relation = model.result_.relation
    collect(model)
    expected = read(edges.frame, value="value").relation
    cells = (relation.incidence[0][0] for relation in (model.result_.relation, expected))
    for found, wanted in zip(*cells, strict=True):
        np.testing.assert_array_equal(found, wanted)
    release(model)
    with pytest.raises(RuntimeError, match="no longer on a cluster"):
        relation.collect()


def test_the_identity_tells_the_data_from_others(client, edges):
    models = [fitted(client, edges.folder, value=value, **BRIEF) for value in ("value", None)]
    first, other = (model.result_.relation.identity() for model in models)
    assert json.loads(json.dumps(first)) == first
    assert first == models[0].result_.relation.identity()
    assert first != other


@pytest.mark.parametrize(
    ("parameters", "X", "error", "message"),
    [
        ({"degree_corrected": True}, "folder", ValueError, "Degree correction"),
        ({"inference": "gibbs"}, "folder", ValueError, "one after another"),
        ({"batch_size": 1}, "folder", ValueError, "batch_size=1"),
        ({"batch_size": (1, 9)}, "folder", ValueError, "batch_size=1"),
        ({}, np.eye(3), TypeError, "folder of Parquet"),
    ],
)
def test_options_for_one_machine_are_refused(parameters, X, error, message):
    with pytest.raises(error, match=message):
        DistributedIRM("tcp://127.0.0.1:1", **parameters).fit(X)


def test_a_bad_address_is_one_sentence():
    began = time.monotonic()
    with pytest.raises(ClusterError, match="No scheduler answers"):
        connect("tcp://127.0.0.1:1", timeout=1)
    with pytest.raises(ClusterError, match="No scheduler answers"):
        fit_on_cluster("folder", "nonsense://x")
    assert time.monotonic() - began < 30


def test_a_scheduler_without_workers_is_one_sentence():
    with (
        LocalCluster(n_workers=0, dashboard_address=":0") as empty,
        pytest.raises(ClusterError, match="has no workers"),
    ):
        connect(empty.scheduler_address, timeout=1)


def test_other_versions_are_refused(client):
    with pytest.raises(ClusterError, match=r"coblock \S+ not 9\.9\. Install"):
        check_versions(client, own_versions() | {"coblock": "9.9"})
    check_versions(client)


def test_files_that_cannot_be_read_are_named(client, edges, tmp_path):
    with pytest.raises(ClusterError, match="sees no folder"):
        fitted(client, tmp_path / "nowhere")
    folder = tmp_path / "damaged"
    folder.mkdir()
    for path in edges.folder.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    (folder / "part-1.parquet").write_bytes(b"PAR1 but not really PAR1")
    with pytest.raises(ReadError, match=r"part-1\.parquet"):
        fitted(client, folder)
    with pytest.raises(ReadError, match="no column 'gone'"):
        fitted(client, edges.folder, value="gone")


def test_a_file_missing_on_one_worker_is_named_with_the_worker(client, tmp_path):
    reader = Reader("bipartite", Columns(), 0.0, TextLayout())
    lost = client.submit(read_source, SourceFile(str(tmp_path / "gone.csv"), 9, 0, ""), reader)
    with pytest.raises(ClusterError, match=r"Worker tcp://\S+ cannot read \S+gone\.csv"):
        gather_results(client, [lost])


def test_an_error_that_dask_has_dropped_is_found_again(client):
    def fail():
        msg = "the reason"
        raise ClusterError(msg)

    failed = client.submit(fail)
    later = client.submit(lambda _: 1, failed)
    with client.as_current():
        wait([later])
    later._state.exception = None  # as after the failed task was released while others waited
    with pytest.raises(ClusterError, match="the reason"):
        gather_results(client, [later])


def test_a_task_that_waits_for_a_failed_one_does_not_wait_for_ever(client, monkeypatch):
    """Dask leaves a task waiting that is to run again after one that it needs has failed."""

    def fail():
        msg = "the reason"
        raise ClusterError(msg)

    def make_waiting(key, dask_scheduler):
        ts = dask_scheduler.tasks[key]
        ts.state, ts.exception_blame, ts.waiting_on = "waiting", None, set(ts.dependencies)

    monkeypatch.setattr("coblock.distributed.client.POLL_INTERVAL", 0.1)
    failed = client.submit(fail)
    between = client.submit(lambda _: 1, failed)
    later = client.submit(lambda _: 1, between)
    running = client.submit(time.sleep, 1.0)
    with client.as_current():
        wait([later])
        assert client.run_on_scheduler(find_failure, [running.key]) is None
        for each in (between, later):
            client.run_on_scheduler(make_waiting, each.key)
    later._state.retry()  # pending, as the client sees it
    with pytest.raises(ClusterError, match="the reason"):
        gather_results(client, [later])
    assert gather_results(client, [running]) == [None]


def find_copies(client):
    """Return the folders with copies of edge files on all workers."""
    folders = client.run(lambda dask_worker: dask_worker.local_directory).values()
    return {path for each in folders for path in Path(each).parent.glob("coblock-copies-*")}


def test_a_file_that_changes_is_refused_when_it_is_read_again(client, edges, tmp_path):
    folder = tmp_path / "edges"
    shutil.copytree(edges.folder, folder)
    part, before = folder / "part-1.parquet", find_copies(client)

    def change(sweep):
        if sweep.sweep == 2:
            pl.read_parquet(part).reverse().write_parquet(part)
            for copies in find_copies(client) - before:
                shutil.rmtree(copies)
            pids = client.run(os.getpid)
            holders = next(at for key, at in client.who_has().items() if "shard-row" in str(key))
            for address in holders:  # all of them, or the shard would not be built again
                os.kill(pids[address], signal.SIGKILL)

    with pytest.raises(ClusterError, match=r"part-1\.parquet has changed since the fit began"):
        fitted(client, folder, callback=change)


def test_files_are_told_apart(tmp_path):
    path = tmp_path / "edges.csv"
    path.write_bytes(b"a,b\n" * 10**5)
    os.utime(path, (10, 10))
    before = SourceFile.describe(str(path))
    changes = (
        lambda: os.utime(path, (10, 20)),
        lambda: path.write_bytes(b"b,a\n" + b"a,b\n" * (10**5 - 1)),
        lambda: path.write_bytes(b"a,b\n" * (10**5 - 1) + b"b,a\n"),
        lambda: path.write_bytes(b"a,b\n" * (10**5 - 1)),
    )
    for number, change in enumerate(changes):
        change()
        if number:
            os.utime(path, (10, 10))
        assert SourceFile.describe(str(path)) != before


def test_checkpoints_are_those_of_a_local_fit(client, edges, tmp_path, monkeypatch):
    monkeypatch.setattr("coblock.io.checkpoint.EVERY", 0.0)
    folder, path, write = tmp_path / "folder", tmp_path / "fit.checkpoint", StoredFit.write
    folder.mkdir()
    with pytest.raises(CheckpointError, match="it is not a file"):
        fitted(client, edges.folder, checkpoint=folder)
    with pytest.raises(WriteError, match="its folder does not exist"):
        fitted(client, edges.folder, checkpoint=tmp_path / "none" / "fit")

    def full(self, path, tensors):
        if self.fit.current is not None:
            msg = f"{path} cannot be written: the disk is full."
            raise WriteError(msg)
        write(self, path, tensors)

    monkeypatch.setattr(StoredFit, "write", full)
    with pytest.warns(RuntimeWarning, match=r"the disk is full\. The fit goes on"):
        fitted(client, edges.folder, checkpoint=path, **BRIEF)
    assert list(tmp_path.iterdir()) == [folder]


def test_every_object_is_in_one_part_of_one_shard():
    for size, batch, shards in ((1500, 94, 4), (40_000, 2500, 3), (7, 7, 2), (1301, 130, 9)):
        layout = ShardLayout(size, batch, shards)
        together = np.concatenate([layout.objects(s) for s in range(layout.shards)])
        assert sorted(together) == list(range(size))
        for s in range(layout.shards):
            assert (np.diff(layout.objects(s)) > 0).all()


def test_sparse_memberships_are_exact():
    rng = np.random.default_rng(0)
    for clusters in (3, 200, 40_000):
        q = np.zeros((20, clusters))
        q[np.arange(20), rng.integers(0, clusters, 20)] = 1.0
        q[4:9, :3] = rng.dirichlet(np.ones(3), 5)
        q[4:9, 3:] = 0.0
        sparse_q = SparseMemberships.from_dense(q)
        np.testing.assert_array_equal(sparse_q.to_dense(), q)
        np.testing.assert_array_equal(sparse_q.hard, hard_labels(q))
        assert sparse_q.start.dtype == np.int64, "there may be more than 2**31 entries"
        arrays = (sparse_q.hard, sparse_q.start, sparse_q.cluster, sparse_q.value)
        assert sum(array.nbytes for array in arrays) < q.nbytes
