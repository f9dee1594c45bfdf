"""The measurements, each run in its own process: python -m speed.tasks NAME."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, process_time, thread_time

import numpy as np
from data import FOLDER
from reading import write_edges
from scipy import sparse
from sklearn.metrics import adjusted_rand_score

from coblock import IRM, read
from coblock.inference.engine import LocalEngine
from speed.memory import peak, reset_peak, resident
from speed.peer_runs import Answer, measure_peer
from speed.relations import TRIAL, assortative, planted, relation, small

SWEEPS = 12  # of a fit whose sweeps are timed; the first one includes the start
ROUNDS = 3  # of which the median is taken


def sweep_seconds(X: sparse.csr_array, clusters: int, jobs: int = 1) -> np.ndarray:
    """Return the seconds of each sweep of plain CVB0 after the first, from the spectral start."""
    model = IRM(
        inference="cvb0",
        refine=False,
        max_clusters=clusters,
        max_iter=SWEEPS,
        tol=0,
        random_state=0,
        n_jobs=jobs,
    )
    return np.diff([sweep["seconds"] for sweep in model.fit(X).trace_])


def measure_seconds(work: Callable[..., object], *arguments: object) -> float:
    """Return the wall seconds of a call."""
    began = perf_counter()
    work(*arguments)
    return perf_counter() - began


def threads(source: str, clusters: int) -> Answer:
    """Time the same sweeps on one thread and on two, alternately."""
    X = relation(source).X
    sweep_seconds(small().X, clusters, jobs=2)  # loads the compiled kernels
    rounds = [[sweep_seconds(X, clusters, jobs) for jobs in (1, 2)] for _ in range(ROUNDS)]
    one, two = np.median(rounds, axis=0).sum(axis=1)
    return {"one": float(one), "two": float(two), "ratio": float(two / one)}


def whole_fit_threads(source: str) -> Answer:
    """Time default fits on one thread and on two, alternately, and measure their serial part.

    The serial part is the CPU time outside of what threads share. It does not depend on other
    work of the machine, as the times do.
    """
    X = relation(source).X
    IRM(random_state=0, n_jobs=2).fit(small().X)  # loads the compiled kernels
    seconds = [
        [measure_seconds(IRM(random_state=0, n_jobs=jobs).fit, X) for jobs in (1, 2)]
        for _ in range(ROUNDS)
    ]
    one, two = np.median(seconds, axis=0)
    found = {"one": float(one), "two": float(two), "ratio": float(two / one)}
    return found | serial_part(X)


def serial_part(X: sparse.csr_array) -> Answer:
    """Fit with the parts of two threads on one thread; return their CPU time and the rest's."""
    shared, inside = [], []

    def run(_: LocalEngine, function: Callable[[object], object], items: object) -> list[object]:
        items = list(items)
        began, outer = thread_time(), not inside and len(items) > 1
        if outer:
            inside.append(True)
        answers = [function(item) for item in items]
        if outer:
            inside.clear()
            shared.append(thread_time() - began)
        return answers

    kept, LocalEngine.map = LocalEngine.map, run
    began = thread_time()
    IRM(random_state=0, n_jobs=2).fit(X)
    total, LocalEngine.map = thread_time() - began, kept
    return {"cpu": total, "serial": (total - sum(shared)) / total}


def clusters() -> Answer:
    """Time default fits of relations with 20 links per object and more and more clusters."""
    size, counts = (600, (4, 8)) if TRIAL in os.environ else (24_000, (20, 80, 320))
    IRM(random_state=0).fit(small().X)  # loads the compiled kernels
    seconds, found = [], []
    for K in counts:
        X = assortative(size, K, 20)
        began = process_time()
        model = IRM(random_state=0).fit(X)
        seconds.append((process_time() - began) / model.n_iter_)
        found.append(list(model.block_probability_.shape))
    exponent = float(np.polyfit(np.log(counts), np.log(seconds), 1)[0])
    return {"counts": counts, "found": found, "seconds": seconds, "exponent": exponent}


def reading(suffix: str) -> Answer:
    """Read a file of 10 M edges with names; return the growth of memory and the size of links."""
    import polars as pl

    with TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{name}.csv" for name in ("small", "edges")]
        edges = (1000, 20_000 if TRIAL in os.environ else 10_000_000)
        for path, count in zip(paths, edges, strict=True):
            write_edges(path, count)
            if suffix == "parquet":
                pl.scan_csv(path).sink_parquet(path.with_suffix(".parquet"))
        read(paths[0].with_suffix(f".{suffix}"))  # loads the compiled kernels
        reset_peak()
        before, began = resident(), process_time()
        found = read(paths[1].with_suffix(f".{suffix}"))
        grown, cpu = peak() - before, process_time() - began
    places = (place for domain in found.relation.incidence for place in domain)
    held = sum(array.nbytes for place in places for array in place)
    return {"edges": found.edges, "grown": grown, "held": held, "cpu": cpu}


def fit_corrected(name: str, jobs: int = 1) -> Answer:
    """Fit a directed graph with degree correction; return the ARI with the true labels."""
    drawn = relation(name)
    size = min(drawn.X.shape)  # of a trial
    X, truth = drawn.X[:size, :size], drawn.rows
    if truth is None:
        truth = np.load(FOLDER / f"{name}.truth.npy")
    corrected = {"relation": "directed", "degree_corrected": True, "random_state": 0}
    IRM(**corrected).fit(small().X[:900, :900])  # loads the compiled kernels
    model, answer = _fit(X, jobs, None, **corrected)
    return answer | {"ari": float(adjusted_rand_score(truth[:size], model.row_labels_))}


def growth() -> Answer:
    """Time sweeps with rows and links doubled three times."""
    rows, count = (1_000, 25_000) if TRIAL in os.environ else (40_000, 1_000_000)
    sweep_seconds(small().X, 20)  # loads the compiled kernels
    seconds, links = [], []
    for doubling in range(4):
        X = planted((rows << doubling, 4_000), (20, 20), count << doubling, 1.0).X
        rounds = [sweep_seconds(X, 20) for _ in range(ROUNDS)]
        seconds.append(float(np.median(rounds, axis=0).mean()))
        links.append(int(X.nnz))
    exponent = float(np.polyfit(np.log(links), np.log(seconds), 1)[0])
    return {"links": links, "seconds": seconds, "exponent": exponent}


def first_use() -> Answer:
    """Time a process from its start to the end of the first sweep, with cached kernels."""
    code = (
        "from coblock import IRM; import numpy as np; rng = np.random.default_rng(0);"
        "IRM(max_iter=1, callback=lambda s: True).fit(rng.random((1500, 900)) < .1)"
    )
    command = [sys.executable, "-W", "ignore", "-c", code]
    times = [measure_seconds(lambda: subprocess.run(command, check=True)) for _ in range(6)]
    return {"seconds": float(np.median(times[1:]))}  # the first one may compile


def default_fit(
    source: str, *, jobs: int = 2, max_clusters: int | None = None, fits: int = 1
) -> Answer:
    """Fit with default settings; return time, memory, evidence and, for known labels, the ARI.

    The growth of memory is the peak during the fit minus the resident memory before it: Python,
    libraries, kernels (loaded by a small fit) and the links as given. Of several fits, the growth
    of memory is returned for each, everything else for the first.
    """
    drawn = relation(source)
    IRM(random_state=0, n_jobs=jobs).fit(small().X)
    answers = [_fit(drawn.X, jobs, max_clusters) for _ in range(fits)]
    model, answer = answers[0]
    answer["each grown"] = [other["grown"] for _, other in answers]
    if drawn.rows is not None:
        answer["ari"] = float(adjusted_rand_score(drawn.rows, model.row_labels_))
        answer["best"] = drawn.best
    return answer


def mean_fit(source: str, seeds: int = 5) -> Answer:
    """Fit on one thread with several seeds; return the means of CPU time and evidence."""
    X = relation(source).X
    IRM(random_state=0).fit(small().X)  # loads the compiled kernels
    answers = [_fit(X, 1, None, random_state=seed)[1] for seed in range(seeds)]
    means = {key: float(np.mean([each[key] for each in answers])) for key in ("cpu", "evidence")}
    return means | {"seeds": seeds}


def _fit(
    X: sparse.csr_array, jobs: int, max_clusters: int | None, **options: object
) -> tuple[IRM, Answer]:
    options = {"random_state": 0} | options
    model = IRM(n_jobs=jobs, max_clusters=max_clusters, **options)
    reset_peak()
    before, began = resident(), process_time()
    seconds = measure_seconds(model.fit, X)
    cpu, most = process_time() - began, peak()
    needed = 2 * 4 * X.nnz + model.row_membership_.nbytes + model.column_membership_.nbytes
    return model, {
        "seconds": seconds,
        "cpu": cpu,
        "sweeps": model.n_iter_,
        "converged": bool(model.converged_),
        "clusters": list(model.block_probability_.shape),
        "evidence": model.log_evidence_,
        "peak": most,
        "grown": most - before,
        "needed": int(needed),
        "links": int(X.nnz),
    }


TASKS: dict[str, Callable[[], Answer]] = {
    "threads": lambda: threads("imdb50k", 40),
    "growth": growth,
    "first use": first_use,
    "fit artistxtag": lambda: default_fit("lastfm_artistxtag"),
    "graph-tool artistxtag": lambda: measure_peer(
        "graph-tool nested", "lastfm_artistxtag", seeds=(1, 2, 3)
    ),
    "leiden artistxtag": lambda: measure_peer("Leiden", "lastfm_artistxtag"),
    "fit 20,000": lambda: default_fit("20,000 x 5,000", fits=2),
    "spectral 20,000": lambda: measure_peer("SpectralCoclustering", "20,000 x 5,000", (12, 10)),
    "leiden 20,000": lambda: measure_peer("Leiden", "20,000 x 5,000"),
    "sparsebm 20,000": lambda: measure_peer("sparsebm", "20,000 x 5,000", (12, 10)),
    "fit 200,000": lambda: default_fit("200,000 x 20,000"),
    "spectral 200,000": lambda: measure_peer("SpectralCoclustering", "200,000 x 20,000", (20, 15)),
    "leiden 200,000": lambda: measure_peer("Leiden", "200,000 x 20,000"),
    "fit ml1m": lambda: default_fit("ml1m"),
    "leiden ml1m": lambda: measure_peer("Leiden", "ml1m"),
    "graph-tool ml1m": lambda: measure_peer("graph-tool flat", "ml1m", seeds=(1, 2, 3)),
    **{
        f"threads {name}": lambda source=source: whole_fit_threads(source)
        for name, source in (
            ("artistxtag", "lastfm_artistxtag"),
            ("ml1m", "ml1m"),
            ("imdb50k", "imdb50k"),
        )
    },
    "fit gowalla": lambda: default_fit("gowalla", jobs=1),
    "mean userxuser": lambda: mean_fit("lastfm_userxuser"),
    "mean artistxtag": lambda: mean_fit("lastfm_artistxtag"),
    "mean ml1m": lambda: mean_fit("ml1m", seeds=3),
    "clusters": clusters,
    **{
        f"fit {count} M": lambda source=f"{count} M links": default_fit(source)
        for count in (1, 10, 100)
    },
    "read csv": lambda: reading("csv"),
    "read parquet": lambda: reading("parquet"),
    "fit gc_20000": lambda: fit_corrected("gc_20000"),
    "leiden gc_20000": lambda: measure_peer("Leiden", "gc_20000"),
    "fit 1 M nodes": lambda: fit_corrected("1 M nodes", jobs=2),
    "fit 20,000 nodes": lambda: fit_corrected("20,000 nodes"),
    "fit netflix": lambda: default_fit("netflix", max_clusters=60),
}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(TASKS[sys.argv[1]]()))
