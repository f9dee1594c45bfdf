"""Peak memory of the client of a default fit on a cluster, by the number of objects.

    python benchmarks/scale_client.py OBJECTS [SHARE]

The fit is a default one: its spectral start, the comparison of starts, and two sweeps of the search
with the moves between them. The relation has as many columns as rows, eight planted clusters and
eight links for each row, this share of them inside of a block (default 0.9; with 0.4 the structure
is weak, and the search starts from few clusters). The client is a process of its own.
"""

import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from distributed import Client
from distributed.deploy.subprocess import SubprocessCluster
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from coblock import IRM
from coblock.distributed import DaskEngine

SWEEPS, CLUSTERS, FILES, LINKS = 2, 8, 16, 8
INSIDE = 0.9  # share of the links that are inside of a block


def write_links(objects: int, folder: Path, inside: float) -> None:
    """Write a relation of so many objects in all, half of them rows; cluster k is k, k + 8, ..."""
    rng, half = np.random.default_rng(0), objects // 2
    for number, rows in enumerate(np.array_split(np.arange(half, dtype=np.int32), FILES)):
        block = np.repeat(rows % CLUSTERS, LINKS)
        column = rng.integers(0, half // CLUSTERS, block.size, dtype=np.int32) * CLUSTERS
        other = rng.integers(0, CLUSTERS, block.size, dtype=np.int32)
        column += np.where(rng.random(block.size) < inside, block, other)
        start = np.arange(0, column.size + 1, LINKS, dtype=np.int64)
        ones = np.ones(column.size, np.int8)
        part = sparse.csr_array((ones, column, start), shape=(rows.size, half))
        part.sum_duplicates()
        part.data[:] = 1
        sparse.save_npz(folder / f"{number:02}.npz", part, compressed=False)


def fit(address: str, folder: str) -> None:
    """Fit in this process, and print the growth of its peak memory in bytes."""
    with Client(address, set_as_default=False) as client, warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        before, began = peak_memory(), time.perf_counter()
        engine = DaskEngine(client)
        model = IRM(engine=engine, random_state=0, max_iter=SWEEPS).fit(folder)
        grown = peak_memory() - before
        seconds, blocks = time.perf_counter() - began, model.block_links_.shape
    print(grown, f"{seconds:.0f} s, {len(model.trace_)} sweeps, {blocks[0]} x {blocks[1]} clusters")


def peak_memory() -> int:
    """Return the peak memory of this process in bytes; ``getrusage`` includes its parent."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.split("VmHWM:")[1].split()[0])


def measure_client(objects: int, inside: float = INSIDE) -> int:
    """Return the growth of the peak memory of a client during a fit, in bytes."""
    options: dict[str, Any] = {"threads_per_worker": 1, "worker_kwargs": {"dashboard": False}}
    options["scheduler_kwargs"] = {"dashboard": False}
    with (
        tempfile.TemporaryDirectory() as folder,
        SubprocessCluster(host="127.0.0.1", n_workers=2, **options) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        write_links(objects, Path(folder), inside)
        client.wait_for_workers(2, timeout=120)
        command = [sys.executable, __file__, cluster.scheduler_address, folder]
        found = subprocess.run(command, capture_output=True, check=False, text=True)
        if found.returncode:
            raise RuntimeError(found.stderr)
        grown, about = found.stdout.split(maxsplit=1)
        print(f"client of {objects:,} objects: {int(grown):,} bytes ({about.strip()})", flush=True)
        return int(grown)


if __name__ == "__main__":
    if sys.argv[1].isdigit():
        measure_client(int(sys.argv[1]), *map(float, sys.argv[2:]))
    else:
        fit(*sys.argv[1:])
