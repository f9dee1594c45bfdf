"""Sweeps on a Dask cluster of this machine, and what they say for larger ones: docs/scale.md.

    python benchmarks/scale.py [--links 500000 2000000] [--workers 1 2 4] [--sweeps 5]

Relations with planted blocks are written as npz shards to a temporary folder. Every fit starts
from the same labels and does plain ACVB0 sweeps; the first sweep, which may compile, is left out.
"""

import argparse
import logging
import os
import pickle
import platform
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import psutil
from distributed import Client, LocalCluster
from scipy import sparse
from scipy.optimize import nnls

from coblock import IRM, __version__
from coblock.batches import BATCHES, PARTS
from coblock.distributed import DistributedIRM
from coblock.distributed.crew import Crew

PAGE = Path(__file__).parent.parent / "docs" / "scale.md"
BLOCKS = (20, 15)
PER_ROW = 25  # links, so rows are links / 25, and columns a third of the rows
BATCHES_A_SWEEP = 2 * BATCHES


@dataclass(frozen=True)
class Run:
    """Figures of one fit; ``workers`` 0 is the local fit with two threads."""

    links: int
    objects: int
    workers: int
    seconds: float  # per sweep
    told: int = 0  # bytes per sweep, to the workers
    answered: int = 0  # bytes per sweep, from the workers
    worker_memory: int = 0  # bytes, the largest, less what an idle worker has
    client_memory: int = 0  # bytes, gained by the client during the fit


def planted(links: int, seed: int = 0) -> tuple[sparse.csr_array, list[np.ndarray]]:
    """Return a relation of about so many links in blocks, and labels that are 9 in 10 right."""
    rng = np.random.default_rng(seed)
    shape = (links // PER_ROW, links // PER_ROW // 3)
    labels = [rng.integers(0, K, size) for K, size in zip(BLOCKS, shape, strict=True)]
    members = [
        [np.flatnonzero(label == k) for k in range(K)]
        for label, K in zip(labels, BLOCKS, strict=True)
    ]
    share = rng.dirichlet(np.full(BLOCKS[0] * BLOCKS[1], 0.3)).reshape(BLOCKS)
    rows, columns = [], []
    for (k, l), part in np.ndenumerate(share):
        rows.append(rng.choice(members[0][k], round(part * links)))
        columns.append(rng.choice(members[1][l], round(part * links)))
    cells = (np.concatenate(rows), np.concatenate(columns))
    X = sparse.csr_array((np.ones(cells[0].size), cells), shape=shape)
    X.data[:] = 1.0
    start = [
        np.where(rng.random(label.size) < 0.1, rng.integers(0, K, label.size), label)
        for label, K in zip(labels, BLOCKS, strict=True)
    ]
    return X, start


def per_sweep(model: IRM) -> float:
    """Return the median time of a sweep after the first."""
    seconds = [sweep["seconds"] for sweep in model.trace_]
    return float(np.median(np.diff(seconds)))


def settings(start: list[np.ndarray], sweeps: int) -> dict[str, object]:
    """Return the parameters that all fits share."""
    return {"init": start, "refine": False, "max_iter": sweeps, "tol": 0, "random_state": 0}


@contextmanager
def cluster(workers: int) -> Iterator[Client]:
    """Start worker processes with one thread each."""
    options = {"threads_per_worker": 1, "dashboard_address": ":0", "silence_logs": logging.ERROR}
    with LocalCluster(n_workers=workers, **options) as here, Client(here) as client:
        yield client


def memory() -> int:
    """Return the resident bytes of this process."""
    return psutil.Process().memory_info().rss


def weigh(client: Client, folder: Path, common: dict[str, object]) -> tuple[int, int]:
    """Return bytes per sweep to and from workers, of a fit that is not timed."""
    told, answered, sweeps = [0], [0], int(str(common["max_iter"]))
    ask = Crew.ask

    def counting(self: Crew, what: str, function: Any, d: int, messages: Any, *rest: Any) -> Any:
        messages = list(messages)
        answers = ask(self, what, function, d, messages, *rest)
        if what == "visit":
            told[0] += sum(len(pickle.dumps(message)) for message in messages)
            answered[0] += sum(len(pickle.dumps(answer)) for answer in answers)
        return answers

    with mock.patch.object(Crew, "ask", counting):
        DistributedIRM(client, **common).fit(folder).release()
    return told[0] // sweeps, answered[0] // sweeps


def measure(links: int, workers: list[int], sweeps: int) -> list[Run]:
    """Return the figures of the local fit and of each number of workers."""
    X, start = planted(links)
    common, found = settings(start, sweeps), []
    objects = sum(X.shape)
    with tempfile.TemporaryDirectory() as folder:
        for number, rows in enumerate(np.array_split(np.arange(X.shape[0]), 4)):
            sparse.save_npz(Path(folder, f"{number}.npz"), X[rows], compressed=False)
        local = IRM(**common, n_jobs=2).fit(X)
        found.append(Run(X.nnz, objects, 0, per_sweep(local)))
        for count in workers:
            with cluster(count) as client:
                client.run(__import__, "coblock.distributed.estimator")
                idle, before = max(client.run(memory).values()), memory()
                model = DistributedIRM(client, **common).fit(folder)
                assert np.array_equal(model.row_membership_, local.row_membership_)
                after = max(client.run(memory).values())
                gained = memory() - before
                model.release()
                traffic = weigh(client, Path(folder), common)
            seconds = per_sweep(model)
            found.append(Run(X.nnz, objects, count, seconds, *traffic, after - idle, gained))
            print(found[-1], flush=True)
    return found


@dataclass(frozen=True)
class Model:
    """What sweeps cost, fitted to measured runs; no coefficient is negative."""

    latency: float  # seconds per batch
    message: float  # seconds per batch and worker
    work: float  # seconds per link
    per_object: float  # bytes per object and sweep: answers
    per_copy: float  # bytes per object, sweep and worker: news
    idle: float  # bytes of a worker before there are links
    memory: float  # bytes per link, over all workers

    @classmethod
    def of(cls, runs: list[Run]) -> "Model":
        """Fit the model to measured runs."""
        there, cores = [run for run in runs if run.workers], os.cpu_count() or 1
        tables = BLOCKS[0] * BLOCKS[1] * 8 * BATCHES_A_SWEEP
        seconds = [
            (BATCHES_A_SWEEP, BATCHES_A_SWEEP * run.workers, run.links / min(run.workers, cores))
            for run in there
        ]
        answered = [(run.objects,) for run in there]
        told = [(run.objects * run.workers,) for run in there]
        held = [(1.0, run.links / run.workers) for run in there]
        return cls(
            *_fitted(seconds, [run.seconds for run in there]),
            *_fitted(answered, [run.answered - tables * PARTS for run in there]),
            *_fitted(told, [run.told - 4 * tables * run.workers for run in there]),
            *_fitted(held, [run.worker_memory for run in there]),
        )

    def sweep(self, links: float, workers: int) -> float:
        """Return seconds per sweep if every worker has a core."""
        batch = self.latency + self.message * workers
        return BATCHES_A_SWEEP * batch + self.work * links / workers

    def wire(self, objects: float, workers: int, K: int = 60) -> float:
        """Return bytes per sweep over the wire."""
        tables = K * K * 8 * BATCHES_A_SWEEP
        return objects * (self.per_object + self.per_copy * workers) + tables * (
            PARTS + 4 * workers
        )


def _fitted(terms: list[tuple[float, ...]], measured: list[float]) -> list[float]:
    """Return coefficients that are not negative, relative errors weighed alike."""
    y = np.maximum(np.array(measured), 1e-9)
    return list(nnls(np.array(terms) / y[:, None], np.ones(y.size))[0])


def size(count: float) -> str:
    """Return bytes as people write them."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(count) < 1000:
            return f"{count:,.3g} {unit}"
        count /= 1000
    return f"{count:,.3g} TB"


def page(runs: list[Run], command: str) -> str:
    """Return the page."""
    model = Model.of(runs)
    lines = [
        "# Beyond one machine: what a fit on a cluster costs",
        "",
        f"Written by `{command}`, version {__version__}, Python {platform.python_version()}, "
        f"{os.cpu_count()} cores shared by scheduler, client and workers. Nothing on this page is "
        "typed by hand. How to start: [howto/cluster.md](howto/cluster.md).",
        "",
        "## Measured",
        "",
        "Plain ACVB0 sweeps from the same labels. All fits end with the same bits. Bytes are those "
        "of a sweep's messages to and from the workers; *memberships* are the same objects as a "
        "table of float64. Memory is what the largest worker, and the client, gained.",
        "",
        "| links | objects | engine | s per sweep | to local | wire per sweep | of memberships | "
        "worker memory | client memory |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    local = {run.links: run.seconds for run in runs if not run.workers}
    for run in runs:
        row = f"| {run.links:,} | {run.objects:,} | "
        if not run.workers:
            lines.append(f"{row}local, 2 threads | {run.seconds:.3f} | 1 |  |  |  |  |")
            continue
        wire = run.told + run.answered
        dense = run.objects * 8 * max(BLOCKS)
        lines.append(
            f"{row}{run.workers} workers | {run.seconds:.3f} | "
            f"{run.seconds / local[run.links]:.2f} | {size(wire)} | {wire / dense:.2f} | "
            f"{size(run.worker_memory)} | "
            f"{size(run.client_memory)} |"
        )
    return "\n".join([*lines, *model_lines(model), ""])


def model_lines(model: Model) -> list[str]:
    """Return the model and what it says for larger relations."""
    lines = [
        "",
        "## Cost model",
        "",
        f"- seconds per sweep = {BATCHES_A_SWEEP} batches x ({1e3 * model.latency:.1f} ms "
        f"+ {1e3 * model.message:.1f} ms x workers) + {1e9 * model.work:.0f} ns x links / workers. "
        "The first part is the way from client to "
        "scheduler to worker and back, whatever the data.",
        f"- bytes per sweep = objects x ({model.per_object:.0f} up + {model.per_copy:.1f} down for "
        f"each worker) + K1 K2 x 8 x {BATCHES_A_SWEEP} x ({PARTS} up + 4 down for each worker). "
        "Sure objects travel as one or two bytes, others as what is not 0.",
        f"- memory of a worker = {size(model.idle)} (compiled code, mostly) + "
        f"{model.memory:.0f} bytes "
        "x links / workers (each link is held by row and by column) + 4 bytes x objects, and 8 K "
        "for each object that is not sure.",
        "- memory of the client = 3 tables of objects x K float64, and the names. It does not grow "
        "with links.",
        "",
        "## What it says",
        "",
        f"With {PER_ROW} links per row, K = 60. These are extrapolations, not measurements.",
        "",
        "| links | objects | workers | s per sweep | wire per sweep | memory per worker | client |",
        "|---|---|---|---|---|---|---|",
    ]
    for links, workers in ((1e8, 4), (1e9, 8), (1e9, 64), (1e11, 64), (1e11, 1000)):
        objects = links / PER_ROW * 4 / 3
        held = model.idle + model.memory * links / workers + 4 * objects
        used = min(workers, PARTS)
        lines.append(
            f"| {links:.0e} | {objects:.1e} | {workers} | {model.sweep(links, used):,.1f} | "
            f"{size(model.wire(objects, workers))} | {size(held)} | {size(3 * objects * 60 * 8)} |"
        )
    return [*lines, *BREAKS]


BREAKS = [
    "",
    "## Where it breaks, and what would be done then",
    "",
    f"- **More than {PARTS} threads.** A batch is cut into {PARTS} parts, as on one machine, so "
    f"more than {PARTS} workers hold data but do not shorten a sweep; the table counts {PARTS}. "
    "More parts per batch change the bits of both engines alike; that is one constant.",
    "- **The client's memory**, at about 10^8 objects: memberships are tables there. They would "
    "stay with the shards, and the client would keep counts only.",
    "- **Sums of soft memberships** after a cluster is dropped, and twice at the end, go from "
    "shard to shard to give the bits of one machine, so they take the time of one thread. At "
    "10^11 links this is hours. They would be added in a tree, on both engines.",
    "- **The spectral start** sends a table of objects x 50 float64 twelve times. Start from "
    "labels (`init=`) beyond 10^7 objects, or from the model of a sample.",
    "- **A lost worker** means that its shards are read again from all files, since each has edges "
    "of every shard. Beyond a terabyte the cut files would be kept on disk.",
    "- **Batches of a small relation** cost their latency: below a few million links one machine "
    "is faster.",
]


def main() -> None:
    """Measure and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--links", type=int, nargs="+", default=[500_000, 2_000_000])
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--sweeps", type=int, default=5)
    chosen = parser.parse_args()
    runs = [run for links in chosen.links for run in measure(links, chosen.workers, chosen.sweeps)]
    listed = " ".join(map(str, chosen.links)), " ".join(map(str, chosen.workers))
    command = (
        f"benchmarks/scale.py --links {listed[0]} --workers {listed[1]} --sweeps {chosen.sweeps}"
    )
    PAGE.write_text(page(runs, command))


if __name__ == "__main__":
    main()
