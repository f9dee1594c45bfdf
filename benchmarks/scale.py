"""Measure sweeps on a Dask cluster of this machine, extrapolate them, and write docs/scale.md.

    python benchmarks/scale.py [--data ../shared/data/imdb50k.npz] [--links 5000000]
                               [--workers 1 2 4] [--sweeps 5] [--rounds 2]
                               [--objects 1000000 10000000] [--costs costs.json]
                               [--page docs/scale.md]

Generated relations have planted blocks and all the same shape. Relations are written as npz files
to a temporary folder. A round is a local fit with two threads and a fit on the cluster, from the
same labels, one after the other, so that other load affects both; the median of the rounds is
reported. The first sweep, which may compile, is left out. Bytes are all that the processes of the
cluster write to sockets, counted in each process.
"""

import argparse
import json
import logging
import os
import platform
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
import psutil
from distributed import Client, LocalCluster
from distributed.comm.tcp import TCP
from scale_client import LINKS, SWEEPS, measure_client
from scale_model import CLUSTERS, Cost, Model, graph_size, measure_grid
from scipy import sparse
from scipy.optimize import nnls

from coblock import IRM, __version__
from coblock.distributed import DaskEngine, release
from coblock.distributed.loader import BATCHES
from coblock.distributed.replication import MOST_MESSAGES
from coblock.inference.engine import LARGE_PART, MOST_PARTS, PARTS
from coblock.inference.singular import VECTOR_CHUNK
from coblock.model.sums import FAN_IN

PAGE = Path(__file__).parent.parent / "docs" / "scale.md"
BLOCKS = (20, 15)
SHAPE = (200_000, 66_000)  # of the generated relations
PER_ROW = 25  # links, in the extrapolation
THREADS = 2  # of the local fits
KINDS = {"search": {}, "plain": {"refine": False}}  # sweeps of a default fit; ACVB0 alone
LIMITS = {"time": 1.3, "wire": 3.0}  # ratios to the local fit, and to the memberships


@dataclass(frozen=True)
class Case:
    """A relation, and labels to start from."""

    name: str
    X: sparse.csr_array
    start: list[np.ndarray]


@dataclass(frozen=True)
class Run:
    """Measurements of fits on a cluster, and of the local fits between them."""

    name: str
    kind: str
    links: int
    objects: int
    workers: int
    seconds: float  # per sweep
    local: float  # the same of the local fit
    wire: float  # bytes per sweep
    memberships: float  # bytes, as tables of float64
    worker_memory: float  # bytes, the largest of all workers, less that of an idle one


def planted(links: int, seed: int = 0) -> tuple[sparse.csr_array, list[np.ndarray]]:
    """Return a relation with about ``links`` links in blocks, and labels, 90 % of them right."""
    rng = np.random.default_rng(seed)
    labels = [rng.integers(0, K, size) for K, size in zip(BLOCKS, SHAPE, strict=True)]
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
    X = sparse.csr_array((np.ones(cells[0].size), cells), shape=SHAPE)
    X.data[:] = 1.0
    start = [
        np.where(rng.random(label.size) < 0.1, rng.integers(0, K, label.size), label)
        for label, K in zip(labels, BLOCKS, strict=True)
    ]
    return X, start


def cases(data: list[Path], links: list[int]) -> Iterator[Case]:
    """Yield relations read from files, with random labels, and generated ones."""
    rng = np.random.default_rng(0)
    for path in data:
        X = sparse.csr_array(sparse.load_npz(path))
        yield Case(path.stem, X, [rng.integers(0, 20, size) for size in X.shape])
    for count in links:
        yield Case("generated", *planted(count))


def write(case: Case, folder: Path) -> None:
    """Write the relation as four files."""
    (folder / "edges").mkdir()
    for number, rows in enumerate(np.array_split(np.arange(case.X.shape[0]), 4)):
        sparse.save_npz(folder / "edges" / f"{number}.npz", case.X[rows], compressed=False)


@contextmanager
def cluster(workers: int) -> Iterator[Client]:
    """Start worker processes with one thread each, and count the bytes that they write."""
    options = {"threads_per_worker": 1, "dashboard_address": ":0", "silence_logs": logging.ERROR}
    with LocalCluster(n_workers=workers, **options) as here, Client(here) as client:
        client.run(__import__, "coblock.distributed")
        client.run(count_bytes)
        yield client


def count_bytes() -> None:
    """Count the bytes that this process writes to sockets from now on."""
    if hasattr(TCP, "written"):
        return
    TCP.written, original = 0, TCP.write

    async def counting(self: TCP, *message: Any, **options: Any) -> int:
        count = await original(self, *message, **options)
        TCP.written += count
        return count

    TCP.write = counting


def written(client: Client) -> int:
    """Return the bytes that client, scheduler and workers have written."""
    return TCP.written + sum(client.run(lambda: TCP.written).values())


def memory() -> int:
    """Return the resident bytes of this process."""
    return psutil.Process().memory_info().rss


def parameters(start: list[np.ndarray], sweeps: int, kind: str) -> dict[str, Any]:
    """Return the parameters that all fits share."""
    return {"init": start, "max_iter": sweeps, "tol": 0, "random_state": 0, **KINDS[kind]}


def times(model: IRM) -> np.ndarray:
    """Return the seconds of every sweep after the first."""
    return np.diff([sweep["seconds"] for sweep in model.trace_])


def measure(case: Case, kind: str, workers: int, sweeps: int, rounds: int) -> Run:
    """Fit locally and on the cluster in turn; return the measurements."""
    common, wire = parameters(case.start, sweeps, kind), []
    here, there = [], []
    sizes = tuple(-(-size // BATCHES) for size in case.X.shape)  # the same batches
    with tempfile.TemporaryDirectory() as folder, cluster(workers) as client:
        write(case, Path(folder))
        idle = max(client.run(memory).values())

        def record_bytes(sweep: Any) -> None:
            if sweep.sweep in (1, sweeps):
                wire.append(written(client))

        for _ in range(rounds):
            local = IRM(**common, batch_size=sizes, n_jobs=THREADS).fit(case.X)
            model = IRM(**common, callback=record_bytes, engine=DaskEngine(client))
            model.fit(Path(folder, "edges"))
            assert np.array_equal(model.row_membership_, local.row_membership_)
            here.append(times(local))
            there.append(times(model))
            held = max(client.run(memory).values()) - idle
            release(model)
    dense = 8 * sum(
        size * K for size, K in zip(case.X.shape, model.block_probability_.shape, strict=True)
    )
    seconds, local_seconds = (float(np.median(t, axis=0).mean()) for t in (there, here))
    per_sweep = float(np.median(np.diff(wire)[::2])) / (sweeps - 1)
    objects = sum(case.X.shape)
    figures = (seconds, local_seconds, per_sweep, dense, held)
    run = Run(case.name, kind, case.X.nnz, objects, workers, *figures)
    print(run, f"ratio {seconds / local_seconds:.2f}", flush=True)
    return run


def memory_of_workers(runs: list[Run]) -> tuple[float, float]:
    """Return the bytes of a worker without links, and per link over all workers."""
    y = np.array([run.worker_memory for run in runs])
    terms = np.array([(1.0, run.links / run.workers) for run in runs])
    idle, link = nnls(terms / y[:, None], np.ones(y.size))[0]
    return float(idle), float(link)


def size(count: float) -> str:
    """Return bytes as people write them."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(count) < 1000:
            return f"{count:,.3g} {unit}"
        count /= 1000
    return f"{count:,.3g} TB"


def page(
    runs: list[Run], clients: dict[int, int], costs: list[Cost], command: str, load: float
) -> str:
    """Return the page."""
    lines = [
        "# Beyond one machine: what a fit on a cluster costs",
        "",
        f"Written by `{command}`, version {__version__}, Python {platform.python_version()}, "
        f"{os.cpu_count()} cores shared by scheduler, client and workers, and with others: the "
        f"mean load was {load:.1f}. Nothing on this page is typed by hand. How to start: "
        "[howto/cluster.md](howto/cluster.md).",
        "",
        "## Measured",
        "",
        "*Search* are the sweeps of a default fit with the moves between them; *plain* are ACVB0 "
        "sweeps alone (`refine=False`). Local fits (two threads) and cluster fits alternate, start "
        "from the same labels, and end with the same bits. Wire is everything that client, "
        "scheduler and workers write to sockets; *memberships* are those of all objects as tables "
        f"of float64. The targets for two workers are {LIMITS['time']:g} times the local time and "
        f"{LIMITS['wire']:g} times the memberships.",
        "",
        "| relation | links | objects | sweeps | workers | s per sweep | local | ratio | wire per "
        "sweep | per membership byte | worker memory |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {run.name} | {run.links:,} | {run.objects:,} | {run.kind} | {run.workers} | "
        f"{run.seconds:.2f} | {run.local:.2f} | {run.seconds / run.local:.2f} | {size(run.wire)} | "
        f"{run.wire / run.memberships:.2f} | {size(run.worker_memory)} |"
        for run in runs
    ]
    lines += [
        "",
        "Growth of the peak memory of a client, a process of its own, during a default fit: its "
        f"start, and a search that ends after {SWEEPS} sweeps with moves between them, with "
        f"{LINKS} links for each row and as many columns as rows:",
        "",
        "| objects | client memory |",
        "|---|---|",
        *(f"| {objects:,} | {size(gained)} |" for objects, gained in clients.items()),
    ]
    return "\n".join([*lines, *cost_lines(costs), *model_lines(runs, costs), *LIMITS_OF_A_FIT, ""])


def cost_lines(costs: list[Cost]) -> list[str]:
    """Return the CPU time by process."""
    return [
        "",
        "## CPU time by process",
        "",
        "Milliseconds of one sweep, less what the processes use while nothing runs. All processes "
        "share the cores of one machine, so the time of a sweep with many workers says little; "
        "the CPU time depends little on the load. *Label* are sweeps over labels, as in the "
        f"search, *soft* over memberships; K = {CLUSTERS}.",
        "",
        "| sweeps | objects | links | workers | scheduler | client | each worker: messages | "
        "computing |",
        "|---|---|---|---|---|---|---|---|",
        *(
            f"| {cost.kind} | {cost.objects:,} | {cost.links:,} | {cost.workers} | "
            f"{1e3 * cost.scheduler:.0f} | {1e3 * cost.client:.0f} | "
            f"{1e3 * cost.exchange:.0f} | {1e3 * cost.computing:.0f} |"
            for cost in costs
        ),
    ]


def model_lines(runs: list[Run], costs: list[Cost]) -> list[str]:
    """Return the model and what it says for larger relations."""
    models = [Model.fit(kind, costs) for kind in ("label", "soft")]
    idle, held = memory_of_workers(runs)
    lines = [
        "",
        "## Cost model",
        "",
        "Fitted to the CPU times above. Scheduler, client and worker are added up, as if they "
        "never ran at the same time. The network is not in it.",
        "",
        *(model.describe() for model in models),
        f"- tasks and messages of a batch: one task for each worker, and, beyond {MOST_MESSAGES}, "
        f"tasks that merge the deltas of {FAN_IN}, so that a worker receives at most "
        f"{MOST_MESSAGES} messages of a batch. With 64 workers: {graph_size(64)[0]} tasks and "
        f"{graph_size(64)[1]} messages, instead of 64 and {64 * 64:,} from all to all.",
        f"- memory of a worker = {size(idle)} (mostly compiled code) + {held:.0f} bytes x links / "
        "workers + 4 bytes x objects, and 8 K bytes for each object with soft memberships.",
        "",
        "## Extrapolation",
        "",
        f"With {PER_ROW} links per row. These are extrapolations, not measurements.",
        "",
        "| sweeps | links | objects | workers | s per sweep | scheduler | client | messages | "
        "computing | memory per worker |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for model in models:
        for links, workers in ((1e8, 4), (1e9, 8), (1e9, 64), (1e11, 256)):
            objects = links / PER_ROW * 4 / 3
            parts = model.sweep(links, objects, workers)
            cells = " | ".join(f"{part:,.2f}" for part in (sum(parts.values()), *parts.values()))
            memory = size(idle + held * links / workers + 4 * objects)
            lines.append(
                f"| {model.kind} | {links:.0e} | {objects:.1e} | {workers} | {cells} | {memory} |"
            )
    objects = 1e9 / PER_ROW * 4 / 3
    ratios = [model.seconds(1e9, objects, 64) / model.seconds(1e9, objects, 8) for model in models]
    lines += ["", "Modelled sweep at 10^9 links, 64 workers \u00f7 8 workers (wanted: 0.2): "]
    lines[-1] += ", ".join(
        f"{model.kind} {ratio:.2f}" for model, ratio in zip(models, ratios, strict=True)
    )
    lines[-1] += "."
    return lines


LIMITS_OF_A_FIT = [
    "",
    "## Limits, and how to raise them",
    "",
    f"- **More than {MOST_PARTS} threads.** A batch of a large relation is cut into up to "
    f"{MOST_PARTS} parts of {LARGE_PART:,} objects or more; a smaller one into {PARTS}.",
    "- **The spectral start** sends some 40 blocks of 128 bytes per object of a domain to every "
    "worker, and the workers share tables of up to 70 numbers per object. Start from labels "
    "(`init=`) where this is too much, or from the model of a sample.",
    '- **Soft sweeps** (`refine=False`, `init="random"`) keep tables of objects x K float64 in '
    "the client. So does the search of weak structure in domains of up to "
    f"{VECTOR_CHUNK:,} objects.",
    "- **Every worker has all labels**, 4 bytes per object, and gets those of all objects that "
    "move. The client gets them, too, and writes all labels to a temporary file.",
    "- **Relations with one domain** count the changes of a batch in a second round of tasks. "
    "Their soft sweeps send all memberships after each batch.",
    "- **More than 50 workers** fetch the merged delta of a batch from one worker, which Dask "
    "limits to 50 at a time: raise distributed.worker.connections.outgoing.",
    "- **Batches of a small relation** cost their latency: below a few million links one machine "
    "is faster.",
]


def main() -> None:
    """Measure and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, nargs="*", default=[])
    parser.add_argument("--links", type=int, nargs="*", default=[5_000_000])
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--sweeps", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--costs", type=Path, help="CPU times that scale_model.py has written")
    parser.add_argument("--objects", type=int, nargs="*", default=[1_000_000, 10_000_000])
    parser.add_argument("--page", type=Path, default=PAGE)
    chosen = parser.parse_args()
    count_bytes()
    runs, loads = [], [os.getloadavg()[0]]
    clients = {objects: measure_client(objects) for objects in chosen.objects}
    for case in cases(chosen.data, chosen.links):
        for workers in chosen.workers if case.name != "generated" or not chosen.data else [2]:
            for kind in KINDS if workers == 2 else ["plain"]:
                runs.append(measure(case, kind, workers, chosen.sweeps, chosen.rounds))
                loads.append(os.getloadavg()[0])
    command = " ".join(["benchmarks/scale.py", *map(_public, sys.argv[1:])])
    costs = [Cost(**each) for each in json.loads(chosen.costs.read_text())] if chosen.costs else []
    costs = costs or measure_grid()
    chosen.page.write_text(page(runs, clients, costs, command, float(np.mean(loads))))


def _public(argument: str) -> str:
    """Return an argument without the folders of this machine."""
    return Path(argument).name if "/" in argument else argument


if __name__ == "__main__":
    main()
