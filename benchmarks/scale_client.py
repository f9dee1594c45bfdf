"""Peak memory of the client of a fit on a cluster, by the number of objects.

The fit is a search from random labels, two sweeps with the moves between them, and its result.
The labels are written to the client's file piece by piece, so that the start takes no memory: a
spectral start takes more the more objects there are. The client is a process of its own.
"""

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from distributed import Client
from distributed.deploy.subprocess import SubprocessCluster
from scipy import sparse

from coblock.distributed import DaskEngine
from coblock.distributed.labels import CHUNK, LabelFile, SpooledLabels
from coblock.inference.fit import Start
from coblock.inference.search import Search
from coblock.inference.settings import Settings
from coblock.model.partition import Partition

SWEEPS, CLUSTERS, FILES = 2, 8, 4


def write_links(objects: int, folder: Path) -> None:
    """Write a relation of so many objects in all, half of them rows, with one link for each."""
    rng, half = np.random.default_rng(0), objects // 2
    for number, rows in enumerate(np.array_split(np.arange(half, dtype=np.int32), FILES)):
        column = rng.integers(0, half, 2 * rows.size, dtype=np.int32)
        start = np.arange(0, 2 * rows.size + 1, 2, dtype=np.int32)
        ones = np.ones(column.size, np.int8)
        part = sparse.csr_array((ones, column, start), shape=(rows.size, half))
        sparse.save_npz(folder / f"{number}.npz", part, compressed=False)


def random_labels(size: int, seed: int) -> SpooledLabels:
    """Return random labels, which are written piece by piece."""
    rng, sizes = np.random.default_rng(seed), np.zeros(CLUSTERS, np.int64)
    file = LabelFile.create(size, CLUSTERS)
    for first in range(0, size, CHUNK):
        objects = range(first, min(first + CHUNK, size))
        some = rng.integers(0, CLUSTERS, len(objects), dtype=np.int8)
        file.write(objects, some)
        sizes += np.bincount(some, minlength=CLUSTERS)
    return SpooledLabels(file, sizes)


def fit(address: str, folder: str) -> None:
    """Fit in this process, and print the growth of its peak memory in bytes."""
    with Client(address, set_as_default=False) as client:
        engine, settings = DaskEngine(client), Settings(max_iter=SWEEPS)
        before = peak_memory()
        with engine.open(folder, None, "bipartite", 0.0, settings) as relation:
            labels: list[Any] = [random_labels(size, d) for d, size in enumerate(relation.sizes)]
            rng = np.random.default_rng(0)
            start = Start(relation, settings, rng, engine)
            partition = Partition.from_labels(relation, labels)
            start.phase = Search(partition, rng, None, engine)
            del labels, partition
            result = start.run()
            assert len(result.trace) == SWEEPS
            grown = peak_memory() - before
    sys.stdout.write(str(grown))


def peak_memory() -> int:
    """Return the peak memory of this process in bytes; ``getrusage`` includes its parent."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.split("VmHWM:")[1].split()[0])


def measure_client(objects: int) -> int:
    """Return the growth of the peak memory of a client during a fit, in bytes."""
    options: dict[str, Any] = {"threads_per_worker": 1, "worker_kwargs": {"dashboard": False}}
    options["scheduler_kwargs"] = {"dashboard": False}
    with (
        tempfile.TemporaryDirectory() as folder,
        SubprocessCluster(host="127.0.0.1", n_workers=2, **options) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        write_links(objects, Path(folder))
        client.wait_for_workers(2, timeout=120)
        command = [sys.executable, __file__, cluster.scheduler_address, folder]
        found = subprocess.run(command, capture_output=True, check=False, text=True, timeout=600)
        if found.returncode:
            raise RuntimeError(found.stderr)
        print(f"client of {objects:,} objects: {int(found.stdout):,} bytes", flush=True)
        return int(found.stdout)


if __name__ == "__main__":
    if len(sys.argv) == 3:
        fit(*sys.argv[1:])
    else:
        measure_client(int(sys.argv[1]))
