"""Repeat fits in one process and count handles, threads and memory; disturb fits on a cluster.

    python fuzz/cluster.py --local 200 --cluster 50 --fits 5 --kills 4 [--record]

Handles, threads and memory must not grow with the number of fits. Workers are killed at random
sweeps, a file of edges changes, the disk of the checkpoint is full, the scheduler is killed; each
fit must end with the bits of one machine, or with a sentence. All processes are on this machine.
The exit code is 1 if that does not hold.
"""

import argparse
import gc
import logging
import os
import random
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
import polars as pl
from distributed import Client, LocalCluster
from distributed.deploy.subprocess import SubprocessCluster
from record import record

from coblock import IRM, read
from coblock.distributed import ClusterError, DaskEngine, release

CHECKPOINT = "coblock.io.checkpoint"
PARAMETERS = {"random_state": 0, "tol": 0, "max_iter": 12, "batch_size": 100}
SHORT = {"random_state": 0, "max_iter": 1, "refine": False, "init": "random", "batch_size": 100}
MORE_HANDLES, MORE_THREADS, MORE_MEGABYTES = 5, 2, 40  # that may come after the first fits


def edges() -> pl.DataFrame:
    """Return the links of five by four blocks."""
    rng = np.random.default_rng(0)
    rows, columns = rng.integers(0, 5, 400), rng.integers(0, 4, 300)
    links = rng.random((400, 300)) < rng.beta(0.3, 2.0, (5, 4))[rows][:, columns] * 0.3
    row, column = links.nonzero()
    return pl.DataFrame({"row": row, "column": column})


def usage() -> tuple[int, int, int]:
    """Return open handles, threads and megabytes of this process."""
    gc.collect()
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    handles = len(list(Path("/proc/self/fd").iterdir()))
    return handles, int(status["Threads"]), int(status["VmRSS"].split()[0]) // 1024


def soak(name: str, fits: int, fit: object) -> tuple[str, bool]:
    """Repeat a fit; return what is open before and after, and whether something was left."""
    first = max(fits // 5, 3)  # until caches are full
    for number in range(fits):
        fit()
        if number + 1 == first:
            time.sleep(2.0)
            before = usage()
    time.sleep(2.0)
    after = usage()
    grown = [b - a for a, b in zip(before, after, strict=True)]
    told = f"handles, threads, MB: {before} after {first} fits, {after} after {fits}"
    limits = (MORE_HANDLES, MORE_THREADS, MORE_MEGABYTES)
    return f"{name}: {told}", any(map(int.__gt__, grown, limits))


def compare(model: IRM, local: IRM) -> str:
    """Return whether a fit on a cluster has the bits of one machine."""
    same = model.log_evidence_ == local.log_evidence_
    same &= np.array_equal(model.row_membership_, local.row_membership_)
    return "the same bits" if same else "OTHER BITS"


def kill_workers(
    folder: Path, local: IRM, fits: int, kills: int, numbers: random.Random
) -> tuple[str, bool]:
    """Kill workers during fits; return how they ended, and whether any did otherwise."""
    outcomes: Counter[str] = Counter()
    for number in range(fits):
        moments = set(numbers.sample(range(1, local.n_iter_), kills))
        with (
            LocalCluster(
                n_workers=4,
                threads_per_worker=1,
                dashboard_address=":0",
                silence_logs=logging.CRITICAL,
            ) as cluster,
            Client(cluster, set_as_default=False) as client,
        ):
            client.wait_for_workers(4, timeout=60)

            def kill(sweep: object, at: set[int] = moments, client: Client = client) -> None:
                if sweep.sweep in at:
                    pids = list(client.run(os.getpid).values())
                    os.kill(numbers.choice(pids), signal.SIGKILL)

            try:
                model = IRM(engine=DaskEngine(client), callback=kill, **PARAMETERS).fit(str(folder))
                outcome = compare(model, local)
            except ClusterError as error:
                outcome = f"a sentence: {error}"
        print(f"fit {number}: {kills} workers killed, {outcome}")
        outcomes[outcome] += 1
    ended = "; ".join(f"{times} of {fits} fits with {name}" for name, times in outcomes.items())
    return f"{fits * kills} workers killed: {ended}", "OTHER BITS" in outcomes


def change_a_file(folder: Path, local: IRM) -> tuple[str, bool]:
    """Change the file of edges and kill the workers that hold it; return how the fit ended."""
    part = folder / "edges.parquet"
    with (
        SubprocessCluster(n_workers=2, threads_per_worker=1) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):

        def change(sweep: object) -> None:
            if sweep.sweep == 3:
                pl.read_parquet(part).reverse().write_parquet(part)
                pids = client.run(os.getpid)
                for key, holders in client.who_has().items():
                    for address in holders if "shard-row" in str(key) else ():
                        with suppress(ProcessLookupError):
                            os.kill(pids[address], signal.SIGKILL)

        try:
            model = IRM(engine=DaskEngine(client), callback=change, **PARAMETERS).fit(folder)
        except ClusterError as error:
            sentence = str(error).replace(str(folder), "FOLDER")
            return f"a sentence: {re.sub('tcp://[^ ]+[0-9]', 'ADDRESS', sentence)}", False
    return compare(model, local), True


def fill_the_disk(folder: Path, local: IRM) -> tuple[str, bool]:
    """Let no file grow beyond some bytes after two sweeps; return how the fit ended."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill(sweep: object) -> None:
        if sweep.sweep == 2:
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))

    with SubprocessCluster(n_workers=2, threads_per_worker=1) as cluster:
        engine, path = DaskEngine(cluster.scheduler_address), folder / "fit.checkpoint"
        try:
            with warnings.catch_warnings(record=True) as told, mock.patch(f"{CHECKPOINT}.EVERY", 0):
                warnings.simplefilter("always")
                model = IRM(engine=engine, callback=fill, checkpoint=path, **PARAMETERS).fit(folder)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    warned = any("The fit goes on" in str(warning.message) for warning in told)
    outcome = f"{compare(model, local)}, {'a' if warned else 'NO'} warning"
    return outcome, "NO warning" in outcome or "OTHER" in outcome or path.exists()


def lose_the_scheduler(folder: Path, local: IRM) -> tuple[str, bool]:
    """Kill the scheduler, then go on from the checkpoint with another one."""
    path, outcome = folder / "fit.checkpoint", "NO SENTENCE"
    for first in (True, False):
        with processes(folder) as (scheduler, file):

            def lose(sweep: object, process: object = scheduler if first else None) -> None:
                if process is not None and sweep.sweep == 4:
                    process.kill()

            with Client(scheduler_file=file, timeout=60, set_as_default=False) as client:
                client.wait_for_workers(1, timeout=60)
                model = IRM(engine=DaskEngine(client), callback=lose, checkpoint=path, **PARAMETERS)
                try:
                    with mock.patch(f"{CHECKPOINT}.EVERY", 0):
                        model.fit(folder)
                except ClusterError as error:
                    outcome = f"a sentence: {error}"
    outcome = f"{outcome} Then, from the checkpoint, {compare(model, local)}"
    return outcome, "NO SENTENCE" in outcome or "OTHER" in outcome


@contextmanager
def processes(folder: Path) -> Iterator[tuple[object, str]]:
    """Start a scheduler and a worker by their commands; yield the scheduler and its file."""
    file, running = str(folder / f"{time.monotonic_ns()}.scheduler"), []
    here = ("--scheduler-file", file, "--host", "127.0.0.1")
    for module, options in (
        ("dask_scheduler", ("--port", "0", "--dashboard-address", ":0")),
        ("dask_worker", ("--nthreads", "1", "--nworkers", "1", "--no-dashboard")),
    ):
        command = [sys.executable, "-m", f"distributed.cli.{module}", *here, *options]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        running.append(subprocess.Popen(command, cwd=folder, **quiet))
    try:
        yield running[0], file
    finally:
        for process in reversed(running):
            process.kill()
            process.wait(30)


def main() -> int:
    """Run all checks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--local", type=int, default=40)
    parser.add_argument("--cluster", type=int, default=10)
    parser.add_argument("--fits", type=int, default=1)
    parser.add_argument("--kills", type=int, default=4)
    parser.add_argument("--record", action="store_true", help="keep the outcome for the page")
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    relation, wrong = read(edges()).relation, 0
    local = IRM(**PARAMETERS).fit(relation)

    def cluster_fits(place: Path) -> tuple[str, bool]:
        with SubprocessCluster(n_workers=2, threads_per_worker=1) as cluster:
            engine = DaskEngine(cluster.scheduler_address)
            fit = lambda: release(IRM(engine=engine, **SHORT).fit(place))  # noqa: E731
            return soak("cluster", chosen.cluster, fit)

    checks = {
        "local fits": lambda _: soak("local", chosen.local, lambda: IRM(**SHORT).fit(relation)),
        "cluster fits": cluster_fits,
        "killed workers": lambda place: kill_workers(
            place, local, chosen.fits, chosen.kills, random.Random(0)
        ),
        "changed file": lambda place: change_a_file(place, local),
        "full disk": lambda place: fill_the_disk(place, local),
        "lost scheduler": lambda place: lose_the_scheduler(place, local),
    }
    for name, check in checks.items():
        with tempfile.TemporaryDirectory(prefix="coblock-fuzz-") as folder:
            edges().write_parquet(Path(folder) / "edges.parquet")
            outcome, finding = check(Path(folder))
        print(f"{'WRONG ' if finding else ''}{name}: {outcome}")
        wrong += finding
        if chosen.record:
            record("cluster", name, 0, {"outcome": outcome, "wrong": int(finding)})
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
