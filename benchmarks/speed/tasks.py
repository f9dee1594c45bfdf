"""Single measurements, each run in its own process: python -m speed.tasks NAME [argument]."""

import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import perf_counter

import numpy as np
from data import load
from scipy import sparse
from sklearn.metrics import adjusted_rand_score

from speed.relations import Planted, planted

BOUND = 600  # seconds that a peer may take
DEBIAN = "/usr/bin/python3"  # graph-tool comes from Debian's package python3-graph-tool
SWEEPS = 12  # before a sweep counts as settled
ROUNDS = 7  # of which the median is taken
Answer = dict[str, object]


def settled_sweep(name: str, clusters: int) -> Answer:
    """Time a sweep of settled memberships against the two products it cannot avoid."""
    from coblock.batches import Schedule, sweep_memberships

    X = load(name)
    state, visits = settled(X, clusters)
    sweeps = [
        timed(lambda: sweep_memberships(state, visits, Schedule(), everybody=False))
        for _ in range(ROUNDS)
    ]
    full = [timed(lambda: sweep_memberships(state, visits, Schedule())) for _ in range(3)]
    links = sparse.csr_array(X, dtype=np.float64)
    back = sparse.csr_array(links.T)
    products = [timed(lambda: (links @ state.q[1], back @ state.q[0])) for _ in range(ROUNDS)]
    return {
        "sweep": float(np.median(sweeps)),
        "everybody": float(np.median(full)),
        "products": float(np.median(products)),
        "clusters": list(state.clusters),
    }


def settled(X: sparse.csr_array, clusters: int, schedule: object = None) -> tuple:
    """Return a state after some sweeps from the spectral start, and its visits."""
    from coblock.batches import Schedule
    from coblock.fitting import FitRun, Settings
    from coblock.relation import Relation

    settings = Settings(inference="cvb0", refine=False, max_clusters=clusters)
    run = FitRun(
        Relation.build(X), settings, np.random.default_rng(0), None, schedule or Schedule()
    )
    for sweep in run.sweeps():
        if sweep.sweep == SWEEPS:
            break
    return run.run.state, run.run.visits


def timed(work: Callable[[], object]) -> float:
    """Return how many seconds the work takes."""
    began = perf_counter()
    work()
    return perf_counter() - began


def threads(name: str, clusters: int) -> Answer:
    """Time full sweeps on one thread and on two, in turns."""
    from concurrent.futures import ThreadPoolExecutor

    from coblock.batches import Schedule, sweep_memberships

    state, visits = settled(load(name), clusters)
    with ThreadPoolExecutor(2) as pool:
        pairs = [
            [timed(lambda s=s: sweep_memberships(state, visits, s)) for s in schedules]
            for schedules in [(Schedule(), Schedule(None, pool))] * ROUNDS
        ]
    one, two = np.median(pairs, axis=0)
    return {
        "one": float(one),
        "two": float(two),
        "ratio": float(np.median([b / a for a, b in pairs])),
    }


def growth() -> Answer:
    """Time sweeps of relations with rows and links doubled three times."""
    from coblock.batches import Schedule, sweep_memberships

    seconds, links = [], []
    for doubling in range(4):
        drawn = planted((10_000 << doubling, 4_000), (20, 20), 200_000 << doubling, 1.0)
        sweep = partial(sweep_memberships, *settled(drawn.X, 20), Schedule())
        seconds.append(float(np.median([timed(sweep) for _ in range(5)])))
        links.append(int(drawn.X.nnz))
    exponent = float(np.polyfit(np.log(links), np.log(seconds), 1)[0])
    return {"links": links, "seconds": seconds, "exponent": exponent}


def first_use() -> Answer:
    """Time a process from its start to the first sweep, kernels cached."""
    code = (
        "from coblock import IRM; import numpy as np; rng = np.random.default_rng(0);"
        "IRM(max_iter=1, callback=lambda s: True).fit(rng.random((1500, 900)) < .1)"
    )
    command = [sys.executable, "-W", "ignore", "-c", code]
    subprocess.run(command, check=True)
    return {"seconds": timed(lambda: subprocess.run(command, check=True))}


def default_fit(source: str, jobs: int = 2) -> Answer:
    """Fit with default settings; return time, memory, evidence and what is known of the truth."""
    from coblock import IRM

    drawn = (
        GENERATED[source]() if source in GENERATED else Planted(load(source), None, None, np.nan)
    )
    most = 60 if source == "netflix" else None
    warm_up = planted((1500, 900), (4, 4), 20_000, 1.0).X  # compiles, or loads what is compiled
    IRM(random_state=0, n_jobs=jobs).fit(warm_up)
    X, before = drawn.X, resident()
    model = IRM(random_state=0, n_jobs=jobs, max_clusters=most)
    seconds = timed(lambda: model.fit(X))
    needed = 2 * 4 * X.nnz + 8 * (
        sum(X.shape) * 2 + model.row_membership_.size + model.column_membership_.size
    )
    answer: Answer = {
        "seconds": seconds,
        "sweeps": model.n_iter_,
        "converged": bool(model.converged_),
        "clusters": list(model.block_probability_.shape),
        "evidence": model.log_evidence_,
        "peak": resident(),
        "grown": resident() - before,
        "needed": int(needed),
        "links": int(X.nnz),
    }
    if drawn.rows is not None:
        answer["ari"] = float(adjusted_rand_score(drawn.rows, model.row_labels_))
        answer["best"] = drawn.best
    return answer


def relation(source: str) -> Planted:
    """Return a generated or a real relation; of the latter no truth is known."""
    if source not in GENERATED:
        return Planted(load(source), None, None, np.nan)
    with tempfile.TemporaryDirectory() as folder:  # drawn elsewhere: its memory is not ours
        path = Path(folder) / "drawn.npz"
        subprocess.run([sys.executable, "-m", "speed.tasks", "draw", source, str(path)], check=True)
        with np.load(path) as kept:
            ends = (kept["data"], kept["indices"], kept["indptr"])
            X = sparse.csr_array(ends, shape=tuple(kept["shape"]))
            return Planted(X, kept["rows"], kept["columns"], float(kept["best"]))


def draw(source: str, path: str) -> None:
    """Draw a relation and write it to a file."""
    drawn = GENERATED[source]()
    X = drawn.X
    index = X.indices.astype(np.int32)
    parts = {"data": X.data, "indices": index, "indptr": X.indptr.astype(np.int32)}
    np.savez(path, shape=X.shape, rows=drawn.rows, columns=drawn.columns, best=drawn.best, **parts)


def resident() -> int:
    """Return the largest resident memory of this process so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def peer(name: str, source: str, clusters: int = 0) -> Answer:
    """Fit a peer in its own process; one that does not end counts as its bound."""
    from coblock.partition import Partition
    from coblock.relation import Relation

    drawn = (
        GENERATED[source]() if source in GENERATED else Planted(load(source), None, None, np.nan)
    )
    with tempfile.TemporaryDirectory() as folder:
        links, path = Path(folder) / "links.npz", Path(folder) / "answer.json"
        sparse.save_npz(links, sparse.csr_matrix(drawn.X))
        python = DEBIAN if name.startswith("graph-tool") else sys.executable
        command = [python, "-W", "ignore", str(Path(__file__).parent / "peers.py")]
        ended = True
        try:
            subprocess.run(
                [*command, name, str(links), str(path), str(clusters)],
                check=True,
                timeout=BOUND,
                env={**os.environ, "PYTHONPATH": ""},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        except subprocess.TimeoutExpired:
            ended = False
        except subprocess.CalledProcessError:
            return {"missing": True}
        if not path.exists():
            return {"seconds": BOUND, "ended": False}
        found = json.loads(path.read_text())
    labels = [numbered(found["rows"]), numbered(found["columns"])]
    partition = Partition.start(Relation.build(drawn.X), labels)
    answer: Answer = {
        "seconds": found["seconds"],
        "ended": ended,
        "evidence": partition.log_joint(),
        "clusters": list(partition.n.shape),
    }
    if drawn.rows is not None:
        answer["ari"] = float(adjusted_rand_score(drawn.rows, labels[0]))
    return answer


def numbered(label: list[int]) -> np.ndarray:
    """Return labels from 0 on, every one in use."""
    return np.unique(label, return_inverse=True)[1].astype(np.int32)


GENERATED: dict[str, Callable[[], Planted]] = {
    "20,000 x 5,000": lambda: planted((20_000, 5_000), (12, 10), 800_000, 1.05),
    "200,000 x 20,000": lambda: planted((200_000, 20_000), (20, 15), 5_000_000, 1.04),
    "netflix": lambda: planted((480_189, 17_770), (30, 20), 25_500_000, 1.0, tail=1.5),
}
TASKS: dict[str, Callable[[], Answer]] = {
    "sweep ml1m": lambda: settled_sweep("ml1m", 40),
    "sweep artistxtag": lambda: settled_sweep("lastfm_artistxtag", 80),
    "threads": lambda: threads("imdb50k", 40),
    "growth": growth,
    "first use": first_use,
    "fit artistxtag": lambda: default_fit("lastfm_artistxtag"),
    "graph-tool artistxtag": lambda: peer("graph-tool nested", "lastfm_artistxtag"),
    "leiden artistxtag": lambda: peer("Leiden", "lastfm_artistxtag"),
    "fit ml1m": lambda: default_fit("ml1m"),
    "graph-tool ml1m": lambda: peer("graph-tool flat", "ml1m"),
    "leiden ml1m": lambda: peer("Leiden", "ml1m"),
    "fit 20,000": lambda: default_fit("20,000 x 5,000"),
    "spectral 20,000": lambda: peer("SpectralCoclustering", "20,000 x 5,000", 12),
    "leiden 20,000": lambda: peer("Leiden", "20,000 x 5,000"),
    "fit 200,000": lambda: default_fit("200,000 x 20,000"),
    "spectral 200,000": lambda: peer("SpectralCoclustering", "200,000 x 20,000", 20),
    "fit netflix": lambda: default_fit("netflix"),
}


if __name__ == "__main__":
    if sys.argv[1] == "draw":
        draw(*sys.argv[2:])
        sys.exit()
    sys.stdout.write(json.dumps(TASKS[sys.argv[1]]()))
