"""Run other programs in processes with a time limit, and measure their memory."""

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep

import numpy as np
from log_evidence import log_evidence
from scipy import sparse
from sklearn.metrics import adjusted_rand_score

from speed.memory import peak
from speed.peers import MISSING
from speed.relations import Planted, relation

TIME_LIMIT = 600  # seconds of one run of a peer
INTERVAL = 0.1  # seconds between two readings of its memory
DEBIAN = "/usr/bin/python3"  # graph-tool comes from Debian's package python3-graph-tool
SCRIPT = Path(__file__).parent / "peers.py"
Answer = dict[str, object]


@dataclass
class FinishedProcess:
    """Exit code, memory and messages of a process."""

    in_time: bool
    code: int
    peak: int  # bytes, including its libraries and the links
    errors: str  # standard error


def run_process(command: list[str], time_limit: float, folder: str) -> FinishedProcess:
    """Run a process in a folder, at most for so many seconds."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    began, most, in_time = monotonic(), 0, True
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=errors
        )
        while process.poll() is None:
            most = max(most, peak(process.pid))
            if monotonic() - began > time_limit:
                process.kill()
                process.wait()
                in_time = False
            sleep(INTERVAL)
        errors.seek(0)
        return FinishedProcess(in_time, process.returncode, most, errors.read())


def measure_peer(
    name: str, source: str, clusters: tuple[int, int] = (0, 0), seeds: tuple[int, ...] = (1,)
) -> Answer:
    """Fit a peer with each seed; return the median time, the peak memory and the best result.

    A run that is stopped counts with its time limit and is the last.
    """
    drawn = relation(source)
    times, most, best, in_time = [], 0, None, True
    with tempfile.TemporaryDirectory() as folder:
        links, path = Path(folder) / "links.npz", Path(folder) / "answer.json"
        sparse.save_npz(links, sparse.csr_matrix(drawn.X))
        python = DEBIAN if name.startswith("graph-tool") else sys.executable
        for seed in seeds:
            numbers = (str(number) for number in (seed, *clusters))
            program = [python, "-P", "-W", "ignore", str(SCRIPT)]
            command = [*program, name, str(links), str(path), *numbers]
            done = run_process(command, TIME_LIMIT, folder)
            most, in_time = max(most, done.peak), in_time and done.in_time
            if not done.in_time:
                times.append(float(TIME_LIMIT))
                break
            if done.code:
                last = done.errors.strip().splitlines()[-1:] or ["no message"]
                return {"missing" if done.code == MISSING else "failed": last[0]}
            found = json.loads(path.read_text())
            times.append(found["seconds"])
            if best is None or found["objective"] < best["objective"]:
                best = found
    answer: Answer = {"seconds": float(np.median(times)), "ended": in_time, "peak": most}
    answer["runs"] = times
    return answer if best is None else answer | judge_labels(drawn, best)


def judge_labels(drawn: Planted, found: dict) -> Answer:
    """Return the evidence of a peer's labels under coblock's model, and their ARI if known."""
    labels = [np.array(found[side]) for side in ("rows", "columns")]
    clusters = [np.unique(label).size for label in labels]
    answer: Answer = {"evidence": log_evidence(drawn.X, *labels), "clusters": clusters}
    if drawn.rows is not None:
        answer["ari"] = float(adjusted_rand_score(drawn.rows, labels[0]))
    return answer
