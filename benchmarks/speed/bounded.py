"""Peers in processes of their own, bounded in time, their memory watched."""

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep

import numpy as np
from scipy import sparse
from sklearn.metrics import adjusted_rand_score

from speed.memory import peak
from speed.peers import MISSING
from speed.relations import relation

BOUND = 600  # seconds that one run of a peer may take
BETWEEN_LOOKS = 0.1  # seconds, at the memory of a peer
DEBIAN = "/usr/bin/python3"  # graph-tool comes from Debian's package python3-graph-tool
SCRIPT = Path(__file__).parent / "peers.py"
Answer = dict[str, object]


@dataclass
class Watched:
    """How a process went."""

    ended: bool
    code: int
    peak: int  # bytes, importing its libraries and reading the links included
    told: str  # on its standard error


def watch(command: list[str], bound: float, folder: str) -> Watched:
    """Run a process, for so many seconds at most; what it leaves behind is left in a folder."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    began, most, ended = monotonic(), 0, True
    with tempfile.TemporaryFile("w+") as told:
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=told
        )
        while process.poll() is None:
            most = max(most, peak(process.pid))
            if monotonic() - began > bound:
                process.kill()
                process.wait()
                ended = False
            sleep(BETWEEN_LOOKS)
        told.seek(0)
        return Watched(ended, process.returncode, most, told.read())


def peer(
    name: str, source: str, clusters: tuple[int, int] = (0, 0), seeds: tuple[int, ...] = (1,)
) -> Answer:
    """Fit a peer with each seed; of several, the median time, the most memory and the best result.

    One run that does not end counts as its bound, and is the last.
    """
    drawn = relation(source)
    times, most, best, ended = [], 0, None, True
    with tempfile.TemporaryDirectory() as folder:
        links, path = Path(folder) / "links.npz", Path(folder) / "answer.json"
        sparse.save_npz(links, sparse.csr_matrix(drawn.X))
        python = DEBIAN if name.startswith("graph-tool") else sys.executable
        for seed in seeds:
            numbers = (str(number) for number in (seed, *clusters))
            program = [python, "-P", "-W", "ignore", str(SCRIPT)]
            command = [*program, name, str(links), str(path), *numbers]
            went = watch(command, BOUND, folder)
            most, ended = max(most, went.peak), ended and went.ended
            if not went.ended:
                times.append(float(BOUND))
                break
            if went.code:
                last = went.told.strip().splitlines()[-1:] or ["no message"]
                return {"missing" if went.code == MISSING else "failed": last[0]}
            found = json.loads(path.read_text())
            times.append(found["seconds"])
            if best is None or found["objective"] < best["objective"]:
                best = found
    answer: Answer = {"seconds": float(np.median(times)), "ended": ended, "peak": most}
    answer["runs"] = times
    return answer if best is None else answer | judged(drawn, best)


def judged(drawn: object, found: dict) -> Answer:
    """Return the evidence of a peer's labels under coblock's model, and how true they are."""
    from coblock.model.partition import Partition
    from coblock.model.relation import Relation

    labels = [
        np.unique(found[side], return_inverse=True)[1].astype(np.int32)
        for side in ("rows", "columns")
    ]
    partition = Partition.start(Relation.build(drawn.X), labels)
    answer: Answer = {"evidence": partition.log_joint(), "clusters": list(partition.n.shape)}
    if drawn.rows is not None:
        answer["ari"] = float(adjusted_rand_score(drawn.rows, labels[0]))
    return answer
