"""Fit relations of a million by a million objects with ten thousand links; measure the cost.

    python fuzz/empty_objects.py [--record]

Each fit runs in a process of its own, a second time after the kernels are in Numba's cache. It must
take less than 5 CPU seconds and let the process grow by less than 300 MB. The exit code is 1 if it
does not.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
from record import record
from scipy import sparse

OBJECTS, LINKS = 1_000_000, 10_000
MOST_SECONDS, MOST_MEGABYTES = 5.0, 300.0
RELATIONS = {
    "uniform": "links between any two objects",
    "blocks": "links in 4 x 3 blocks of 2,000 x 1,500 objects",
}


def links(name: str) -> sparse.csr_array:
    """Return a relation by its name."""
    rng = np.random.default_rng(0)
    if name == "uniform":
        ends = rng.integers(0, OBJECTS, (2, LINKS))
    else:
        blocks = rng.choice(12, LINKS, p=rng.dirichlet(np.full(12, 0.5)))
        some = (rng.permutation(OBJECTS)[:2_000], rng.permutation(OBJECTS)[:1_500])
        rows = 500 * (blocks // 3) + rng.integers(0, 500, LINKS)
        columns = 500 * (blocks % 3) + rng.integers(0, 500, LINKS)
        ends = np.stack((some[0][rows], some[1][columns]))
    return sparse.csr_array((np.ones(LINKS), tuple(ends)), shape=(OBJECTS, OBJECTS)) > 0


def peak() -> float:
    """Return the largest resident memory of this process so far, in megabytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


def measure(name: str) -> dict[str, Any]:
    """Fit in this process; return seconds and megabytes."""
    from coblock import IRM

    X = links(name)
    before, began = peak(), time.process_time()
    model = IRM(random_state=0, n_jobs=1).fit(X)
    seconds, after = time.process_time() - began, peak()
    K, L = model.row_membership_.shape[1], model.column_membership_.shape[1]
    return {
        "relation": f"{OBJECTS:,} x {OBJECTS:,}, {LINKS:,} {RELATIONS[name]}",
        "clusters": f"{K} x {L}",
        "seconds": seconds,
        "before": before,
        "growth": after - before,
        "peak": after,
    }


def main() -> int:
    """Measure all relations, each in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=sorted(RELATIONS), help="measure in this process")
    parser.add_argument("--record", action="store_true", help="keep the outcome for the page")
    chosen = parser.parse_args()
    if chosen.only:
        print(json.dumps(measure(chosen.only)))
        return 0
    wrong = 0
    for name in RELATIONS:
        command = [sys.executable, __file__, "--only", name]
        for _ in range(2):  # the first one compiles
            answer = subprocess.run(command, check=True, capture_output=True, text=True)
        found = json.loads(answer.stdout.splitlines()[-1])
        print(found)
        wrong += found["seconds"] > MOST_SECONDS or found["growth"] > MOST_MEGABYTES
        if chosen.record:
            record("memory", name, 0, found)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
