"""Single measurements, each run in its own process: python -m speed.tasks NAME."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from time import perf_counter

import numpy as np
from scipy import sparse
from sklearn.metrics import adjusted_rand_score

from coblock import IRM
from speed.bounded import Answer, peer
from speed.memory import forget_peak, peak, resident
from speed.relations import TRIAL, planted, relation, small

SETTLED = (12, 100)  # sweeps after which one is timed
ROUNDS = 9  # of which the median is taken


def settled_sweep(source: str, clusters: int) -> Answer:
    """Time sweeps of settled memberships against the two products they cannot avoid."""
    from coblock.inference.schedule import Schedule, sweep_memberships

    X = relation(source).X
    links = sparse.csr_array(X, dtype=np.float64)
    back = sparse.csr_array(links.T)
    answer: Answer = {}
    for after, run in settled(X, clusters, SETTLED):
        state = run.state
        sweep = partial(sweep_memberships, state, run.visits, Schedule(), step=run.step)
        due, everybody = partial(sweep, everybody=False), sweep

        def products(q: list = state.q) -> None:
            links @ q[1], back @ q[0]

        rounds = [(median_time(products, ROUNDS), timed(due)) for _ in range(ROUNDS)]
        seconds = np.median(rounds, axis=0).tolist()
        answer[str(after)] = {
            "products": seconds[0],
            "sweep": seconds[1],
            "everybody": median_time(everybody, 3),
            "clusters": list(state.clusters),
        }
    return answer


def settled(X: sparse.csr_array, clusters: int, after: tuple[int, ...]) -> object:
    """Yield a run of CVB0 from the spectral start after so many sweeps."""
    from coblock.inference.fit import FitRun, Settings
    from coblock.model.relation import Relation

    settings = Settings(inference="cvb0", refine=False, max_clusters=clusters)
    run = FitRun(Relation.build(X), settings, np.random.default_rng(0))
    for sweep in run.sweeps():
        if sweep.sweep in after:
            yield sweep.sweep, run.run
        if sweep.sweep == max(after):
            return


def timed(work: Callable[[], object]) -> float:
    """Return how many seconds the work takes."""
    began = perf_counter()
    work()
    return perf_counter() - began


def median_time(work: Callable[[], object], rounds: int) -> float:
    """Return the median time of some rounds."""
    return float(np.median([timed(work) for _ in range(rounds)]))


def threads(source: str, clusters: int) -> Answer:
    """Time sweeps that visit everybody, on one thread and on two, in turns."""
    from concurrent.futures import ThreadPoolExecutor

    from coblock.inference.schedule import Schedule, sweep_memberships

    ((_, run),) = settled(relation(source).X, clusters, SETTLED[:1])
    with ThreadPoolExecutor(2) as pool:
        pairs = [
            [
                timed(partial(sweep_memberships, run.state, run.visits, schedule))
                for schedule in schedules
            ]
            for schedules in [(Schedule(), Schedule(None, pool))] * ROUNDS
        ]
    one, two = np.median(pairs, axis=0)
    ratio = float(np.median([second / first for first, second in pairs]))
    return {"one": float(one), "two": float(two), "ratio": ratio}


def growth() -> Answer:
    """Time sweeps that visit everybody, with rows and links doubled three times."""
    from coblock.inference.schedule import Schedule, sweep_memberships

    rows, count = (1_000, 25_000) if TRIAL in os.environ else (40_000, 1_000_000)
    seconds, links = [], []
    for doubling in range(4):
        X = planted((rows << doubling, 4_000), (20, 20), count << doubling, 1.0).X
        ((_, run),) = settled(X, 20, SETTLED[:1])
        sweep = partial(sweep_memberships, run.state, run.visits, Schedule())
        seconds.append(median_time(sweep, 5))
        links.append(int(X.nnz))
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
    return {"seconds": median_time(lambda: subprocess.run(command, check=True), 5)}


def default_fit(
    source: str, *, jobs: int = 2, max_clusters: int | None = None, fits: int = 1
) -> Answer:
    """Fit with default settings; return time, memory, evidence and what is known of the truth.

    The growth of memory is the peak during the fit less what was resident before it: Python,
    the libraries, the kernels (a small fit has loaded them) and the links as given, what was
    freed before given back. Where there are several fits, the growth of each is told and the
    rest is of the first.
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


def _fit(X: sparse.csr_array, jobs: int, max_clusters: int | None) -> tuple[IRM, Answer]:
    model = IRM(random_state=0, n_jobs=jobs, max_clusters=max_clusters)
    forget_peak()
    before = resident()
    seconds = timed(lambda: model.fit(X))
    most = peak()
    needed = 2 * 4 * X.nnz + model.row_membership_.nbytes + model.column_membership_.nbytes
    return model, {
        "seconds": seconds,
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
    "sweep ml1m": lambda: settled_sweep("ml1m", 40),
    "sweep artistxtag": lambda: settled_sweep("lastfm_artistxtag", 80),
    "threads": lambda: threads("imdb50k", 40),
    "growth": growth,
    "first use": first_use,
    "fit artistxtag": lambda: default_fit("lastfm_artistxtag"),
    "graph-tool artistxtag": lambda: peer(
        "graph-tool nested", "lastfm_artistxtag", seeds=(1, 2, 3)
    ),
    "leiden artistxtag": lambda: peer("Leiden", "lastfm_artistxtag"),
    "fit 20,000": lambda: default_fit("20,000 x 5,000", fits=2),
    "spectral 20,000": lambda: peer("SpectralCoclustering", "20,000 x 5,000", (12, 10)),
    "leiden 20,000": lambda: peer("Leiden", "20,000 x 5,000"),
    "sparsebm 20,000": lambda: peer("sparsebm", "20,000 x 5,000", (12, 10)),
    "fit 200,000": lambda: default_fit("200,000 x 20,000"),
    "spectral 200,000": lambda: peer("SpectralCoclustering", "200,000 x 20,000", (20, 15)),
    "leiden 200,000": lambda: peer("Leiden", "200,000 x 20,000"),
    "fit ml1m": lambda: default_fit("ml1m"),
    "leiden ml1m": lambda: peer("Leiden", "ml1m"),
    "graph-tool ml1m": lambda: peer("graph-tool flat", "ml1m", seeds=(1, 2, 3)),
    "fit netflix": lambda: default_fit("netflix", max_clusters=60),
}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(TASKS[sys.argv[1]]()))
