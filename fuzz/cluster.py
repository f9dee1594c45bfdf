"""Repeat fits in one process and count handles, threads and memory; kill workers of a cluster.

    python fuzz/cluster.py --local 200 --cluster 50 --fits 5 --kills 4

Handles, threads and memory must not grow with the number of fits. Workers are killed at random
sweeps; each fit must end with the bits of one machine, or with a sentence. All processes are on
this machine. The exit code is 1 if that does not hold.
"""

import argparse
import gc
import logging
import os
import random
import signal
import sys
import tempfile
import threading
import time
import warnings
from pathlib import Path

import numpy as np
import polars as pl
from distributed import Client, LocalCluster
from distributed.deploy.subprocess import SubprocessCluster

from coblock import IRM, read
from coblock.distributed import ClusterError, DaskEngine, release

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


def soak(name: str, fits: int, fit: object) -> list[str]:
    """Repeat a fit; return a finding if it leaves something behind."""
    first = max(fits // 5, 3)  # until caches are full
    for number in range(fits):
        fit()
        if number + 1 == first:
            time.sleep(2.0)
            before = usage()
    time.sleep(2.0)
    after = usage()
    grown = [b - a for a, b in zip(before, after, strict=True)]
    print(f"{name}: handles, threads, MB: {before} after {first} fits, {after} after {fits}")
    limits = (MORE_HANDLES, MORE_THREADS, MORE_MEGABYTES)
    return [f"{name}: {after}"] if any(map(int.__gt__, grown, limits)) else []


def kill_workers(folder: Path, fits: int, kills: int, numbers: random.Random) -> list[str]:
    """Kill workers during fits; return those that end otherwise than they should."""
    local, findings = IRM(**PARAMETERS).fit(read(edges()).relation), []
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
                same = model.log_evidence_ == local.log_evidence_
                same &= np.array_equal(model.row_membership_, local.row_membership_)
                outcome = "the same bits" if same else "OTHER BITS"
            except ClusterError as error:
                outcome = f"a sentence: {error}"
        print(f"fit {number}: {kills} workers killed, {outcome}")
        if outcome == "OTHER BITS":
            findings.append(f"fit {number} has other bits")
    return findings


def main() -> int:
    """Run all checks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--local", type=int, default=40)
    parser.add_argument("--cluster", type=int, default=10)
    parser.add_argument("--fits", type=int, default=1)
    parser.add_argument("--kills", type=int, default=4)
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    relation, findings = read(edges()).relation, []
    with tempfile.TemporaryDirectory(prefix="coblock-fuzz-") as place:
        edges().write_parquet(Path(place) / "edges.parquet")
        findings += soak("local", chosen.local, lambda: IRM(**SHORT).fit(relation))
        with SubprocessCluster(n_workers=2, threads_per_worker=1) as cluster:
            engine = DaskEngine(cluster.scheduler_address)
            fit = lambda: release(IRM(engine=engine, **SHORT).fit(place))  # noqa: E731
            findings += soak("cluster", chosen.cluster, fit)
        findings += kill_workers(Path(place), chosen.fits, chosen.kills, random.Random(0))
    for finding in findings:
        print(f"WRONG {finding}")
    print(f"{threading.active_count()} threads at the end")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
