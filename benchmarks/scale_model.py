"""CPU time of sweeps on a cluster by process, and a cost model that is fitted to it.

All processes of a cluster share the cores of this machine, so the time of a sweep says little
about workers with a core each. The CPU time of scheduler, client and workers depends little on
the load. Scheduler and client are one process each, whatever the number of workers; the model
adds their time to that of one worker, as if they never ran at the same time. A worker has a thread
that computes and one that exchanges messages; they are measured separately.
"""

import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from distributed import Client
from distributed.deploy.subprocess import SubprocessCluster
from scipy import sparse
from scipy.optimize import nnls

from coblock.distributed import DaskEngine
from coblock.distributed.loader import BATCHES
from coblock.distributed.replication import MOST_MESSAGES
from coblock.inference.settings import Settings
from coblock.inference.start import soft_labels
from coblock.model.partition import Partition
from coblock.model.state import SoftState
from coblock.model.sums import FAN_IN

STEPS = 2 * BATCHES  # batches of a sweep
KINDS = ("label", "soft")  # sweeps over labels (search), over memberships (ACVB0 alone)
CLUSTERS, SWEEPS, IDLE = 20, 5, 2.0  # of the measured relations; sweeps; seconds
TINY, LINKED, WIDE = (16_384, 25), (16_384, 250), (1_000_000, 25)  # objects of a domain, links
GRID = [(TINY, (1, 2, 4, 8)), (LINKED, (1, 2)), (WIDE, (1, 2))]


@dataclass(frozen=True)
class Cost:
    """CPU seconds of one sweep, by process."""

    kind: str
    objects: int
    links: int
    workers: int
    scheduler: float
    client: float
    computing: float  # of a worker, the mean
    exchange: float  # the same, all threads but those that compute


def graph_size(workers: int) -> tuple[int, int]:
    """Return the tasks of a batch, and the messages between them, of so many shards."""
    tasks = nodes = workers
    while nodes > MOST_MESSAGES:
        nodes = -(-nodes // FAN_IN)
        tasks += nodes
    merged = tasks - nodes if tasks > workers else 0
    return tasks, merged + workers * nodes


def write_blocks(objects: int, degree: int, folder: Path) -> list[np.ndarray]:
    """Write a relation of links within blocks, nine of ten; return the labels."""
    rng = np.random.default_rng(0)
    labels = [rng.integers(0, CLUSTERS, objects).astype(np.int32) for _ in (0, 1)]
    members = np.argsort(labels[1], kind="stable")
    first = np.searchsorted(labels[1][members], np.arange(CLUSTERS + 1))
    rows = np.repeat(np.arange(objects), degree)
    block = labels[0][rows]
    inside = members[rng.integers(first[block], first[block + 1])]
    columns = np.where(rng.random(rows.size) < 0.9, inside, rng.integers(0, objects, rows.size))
    X = sparse.csr_array((np.ones(rows.size), (rows, columns)), shape=(objects, objects))
    X.data[:] = 1.0
    sparse.save_npz(folder / "0.npz", X, compressed=False)
    return labels


@dataclass(frozen=True)
class Processes:
    """The processes of a cluster, and the threads of its workers that compute."""

    scheduler: int
    client: int
    threads: dict[int, set[int]]  # of each worker

    @classmethod
    def of(cls, client: Client) -> "Processes":
        """Return those of a cluster."""
        scheduler = client.run_on_scheduler(os.getpid)
        found = client.run(lambda dask_worker: (os.getpid(), computing_threads(dask_worker)))
        return cls(scheduler, os.getpid(), dict(found.values()))

    def times(self) -> np.ndarray:
        """Return the CPU seconds so far by the fields of :class:`Cost`, and the time."""
        one = [sum(thread_times(pid).values()) for pid in (self.scheduler, self.client)]
        both = []
        for pid, threads in self.threads.items():
            used = thread_times(pid)
            computing = sum(used.get(thread, 0.0) for thread in threads)
            both.append((computing, sum(used.values()) - computing))
        return np.array([*one, *np.mean(both, axis=0), time.perf_counter()])


def computing_threads(worker: Any) -> set[int]:
    """Return the numbers of the threads of a worker that run tasks."""
    return {thread.native_id for thread in worker.executors["default"]._threads}


def thread_times(pid: int) -> dict[int, float]:
    """Return the CPU seconds of the threads of a process so far."""
    return {t.id: t.user_time + t.system_time for t in psutil.Process(pid).threads()}


def per_sweep(sweep: Callable[[], Any], client: Client) -> np.ndarray:
    """Return the CPU seconds of a sweep, less what the processes use while nothing runs.

    This process does nothing then.
    """
    sweep()
    sweep()
    time.sleep(IDLE)  # until all results are released
    processes = Processes.of(client)
    before = processes.times()
    time.sleep(IDLE)
    start = processes.times()
    for _ in range(SWEEPS):
        sweep()
    used, idle = processes.times() - start, start - before
    idle[1] = 0.0
    return np.maximum(used - idle * used[-1] / idle[-1], 0.0)[:-1] / SWEEPS


def measure_costs(shape: tuple[int, int], workers: int) -> list[Cost]:
    """Return the CPU time of both kinds of sweeps with so many workers."""
    found = []
    options: dict[str, Any] = {"threads_per_worker": 1, "worker_kwargs": {"dashboard": False}}
    options["scheduler_kwargs"] = {"dashboard": False}
    with (
        tempfile.TemporaryDirectory() as folder,
        SubprocessCluster(host="127.0.0.1", n_workers=workers, **options) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        labels = write_blocks(*shape, Path(folder))
        client.wait_for_workers(workers, timeout=120)
        engine = DaskEngine(client, shards=workers)
        with engine.open(folder, None, "bipartite", 0.0, Settings()) as relation:
            partition = Partition.from_labels(relation, labels)
            state = SoftState(relation, soft_labels(labels), partition.hyper.copy())
            sweeps = {
                "label": lambda: engine.sweep_labels(partition),
                "soft": lambda: engine.sweep_memberships(state),
            }
            for kind in KINDS:
                used = per_sweep(sweeps[kind], client)
                size = (2 * shape[0], relation.n_links, workers)
                found.append(Cost(kind, *size, *map(float, used)))
                print(found[-1], flush=True)
    return found


@dataclass(frozen=True)
class Model:
    """Seconds of a sweep of one kind; no coefficient is negative."""

    kind: str
    sweep_start: float  # scheduler and client, per sweep,
    task: float  # per task,
    message: float  # and per message between tasks
    client_object: float  # client, per object
    exchange: float  # worker, per batch,
    received: float  # per message that it receives,
    copied: float  # and per object: every worker gets all labels;
    batch: float  # its computing thread, per batch,
    scored: float  # per object of its share,
    link: float  # and per link of its share

    @classmethod
    def fit(cls, kind: str, costs: list[Cost]) -> "Model":
        """Fit the model to the CPU times of one kind of sweeps."""
        some = [cost for cost in costs if cost.kind == kind]
        serial, exchange, computing = [], [], []
        for cost in some:
            tasks, messages = graph_size(cost.workers)
            received, W = min(cost.workers, MOST_MESSAGES), cost.workers
            serial.append((1.0, STEPS * tasks, STEPS * messages, cost.objects))
            exchange.append((STEPS, STEPS * received, cost.objects))
            computing.append((STEPS, cost.objects / W, cost.links / W))
        one = _fitted(serial, [cost.scheduler + cost.client for cost in some])
        sent = _fitted(exchange, [cost.exchange for cost in some])
        return cls(kind, *one, *sent, *_fitted(computing, [cost.computing for cost in some]))

    def sweep(self, links: float, objects: float, workers: int) -> dict[str, float]:
        """Return the parts of the seconds of a sweep if every worker has a core."""
        tasks, messages = graph_size(workers)
        received = min(workers, MOST_MESSAGES)
        return {
            "scheduler": self.sweep_start + STEPS * (self.task * tasks + self.message * messages),
            "client": self.client_object * objects,
            "exchange": STEPS * (self.exchange + self.received * received) + self.copied * objects,
            "share": STEPS * self.batch + (self.scored * objects + self.link * links) / workers,
        }

    def seconds(self, links: float, objects: float, workers: int) -> float:
        """Return the seconds of a sweep."""
        return sum(self.sweep(links, objects, workers).values())

    def describe(self) -> str:
        """Return the model as a line of the page."""
        ms, ns = 1e3, 1e9
        return (
            f"- seconds per sweep ({self.kind}) = {ms * self.sweep_start:.0f} ms + "
            f"{STEPS} batches x ("
            f"{ms * self.task:.2f} ms x tasks + "
            f"{ms * self.message:.2f} ms x messages + {ms * (self.exchange + self.batch):.2f} ms + "
            f"{ms * self.received:.2f} ms x min(workers, {MOST_MESSAGES})) + "
            f"({ns * self.client_object:.0f} + {ns * self.copied:.0f}) ns x objects + "
            f"({ns * self.scored:.0f} ns x objects + {ns * self.link:.1f} ns x links) / workers"
        )


def _fitted(terms: list[tuple[float, ...]], measured: list[float]) -> list[float]:
    """Return coefficients that are not negative, relative errors weighed alike."""
    y = np.maximum(np.array(measured), 1e-9)
    return list(nnls(np.array(terms) / y[:, None], np.ones(y.size))[0])


def measure_grid() -> list[Cost]:
    """Return the CPU time of sweeps of all relations of the grid."""
    return [cost for shape, workers in GRID for W in workers for cost in measure_costs(shape, W)]


if __name__ == "__main__":
    import json

    costs = measure_grid()
    Path("costs.json").write_text(json.dumps([asdict(cost) for cost in costs]))
