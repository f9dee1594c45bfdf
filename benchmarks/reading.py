"""Time the reading of a CSV file with names: polars alone, and coblock from file to relation.

    python benchmarks/reading.py [--edges 10000000] [--rounds 3]

Each time is the best of several rounds in one process, with compiled kernels. The file is written
to a temporary folder.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

MEASURE = """
import json, resource, sys, time
from pathlib import Path

path, small, reader, rounds = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])
if reader == "polars":
    from polars import read_csv as read
else:
    from coblock import read
read(small)  # compiles
seconds = []
for _ in range(rounds):
    begin = time.perf_counter()
    found = read(path)
    seconds.append(time.perf_counter() - begin)
    del found
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
print(json.dumps({"seconds": min(seconds), "peak": peak}))
"""


def write_edges(path: Path, edges: int, seed: int = 0) -> None:
    """Write edges between users and fewer items; the popularity of items is heavy-tailed."""
    import polars as pl

    rng = np.random.default_rng(seed)
    users, items = max(edges // 20, 1), max(edges // 200, 1)
    table = pl.DataFrame(
        {
            "user": rng.integers(0, users, edges),
            "item": (rng.pareto(1.2, edges) * 50).astype(np.int64) % items,
        }
    )
    names = [pl.format(f"{name}_{{}}", name).alias(name) for name in table.columns]
    table.select(names).write_csv(path)


def measure(path: Path, small: Path, reader: str, rounds: int) -> dict[str, float]:
    """Return seconds and peak memory (GiB) of one reader, measured in its own process."""
    command = [sys.executable, "-c", MEASURE, str(path), str(small), reader, str(rounds)]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return json.loads(output)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--edges", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path, small = Path(folder, "edges.csv"), Path(folder, "small.csv")
        write_edges(path, options.edges)
        write_edges(small, 1000)
        print(f"{options.edges:,} edges, {path.stat().st_size / 2**20:,.0f} MiB")
        found = {
            reader: measure(path, small, reader, options.rounds) for reader in ("polars", "coblock")
        }
    for reader, measured in found.items():
        print(f"{reader:8} {measured['seconds']:7.2f} s   peak {measured['peak']:.2f} GiB")
    print(f"ratio    {found['coblock']['seconds'] / found['polars']['seconds']:7.2f}")


if __name__ == "__main__":
    main()
