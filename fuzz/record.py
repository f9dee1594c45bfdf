"""Keep the outcomes of the hostile runs, and write the page about them.

    python fuzz/record.py

Runs with ``--record`` write their outcome to a file in ``fuzz/results``; the page
``docs/robustness.md`` is made from all of them.
"""

import json
import platform
import sys
from collections import Counter
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
RESULTS = FOLDER / "results"
PAGE = FOLDER.parent / "docs" / "robustness.md"
SYSTEM = f"{platform.system()}, Python {platform.python_version()}"

INTRODUCTION = """# Robustness

Files from others, killed processes, two writers, lost workers and repeated fits. The figures on
this page are outcomes of the commands below with `--record`. The commands name the full sizes; the
tables say how much was run. `python fuzz/record.py` writes the page from `fuzz/results`.
"""


def record(kind: str, name: str, run: int, outcome: dict[str, Any]) -> None:
    """Write the outcome of a run of a check; an earlier one with the same number is replaced."""
    RESULTS.mkdir(exist_ok=True)
    entry = {"kind": kind, "name": name, "run": run, "system": SYSTEM, "outcome": outcome}
    path = RESULTS / f"{kind}-{name.replace(' ', '-')}-{run}.json"
    path.write_text(json.dumps(entry, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def read_results(kind: str) -> list[tuple[str, list[dict[str, Any]]]]:
    """Return the outcomes of one kind: for each check, those of its runs."""
    found: dict[str, list[dict[str, Any]]] = {}
    for path in sorted(RESULTS.glob(f"{kind}-*.json")):
        entry = json.loads(path.read_text(encoding="utf-8"))
        found.setdefault(entry["name"], []).append(entry["outcome"])
    return sorted(found.items())


def total(runs: list[dict[str, Any]], name: str) -> int:
    """Return the sum of a figure over runs."""
    return sum(int(run.get(name, 0)) for run in runs)


def table(heading: list[str], rows: list[list[str]]) -> str:
    """Return a table in Markdown."""
    lines = [heading, ["---"] * len(heading), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def of_files() -> str:
    """Return the section about damaged and forged files."""
    rows = []
    for target, runs in read_results("files"):
        names = ("inputs", "read", "refused", "findings")
        rows.append([f"`{target}`", *(f"{total(runs, name):,}" for name in names)])
    text = """## Files

`fuzz/run.py --target NAME --inputs N --seed S`. Each input is a damaged or forged valid file;
three of four files with a digest get one that fits. A reader must return, or raise its documented
error with a sentence, within a time limit. Everything else is a finding: another error, a crash,
a hang. A model that is loaded is used, and a checkpoint that is read is continued.

"""
    return text + table(["target", "inputs", "read", "refused", "findings"], rows)


def of_processes() -> str:
    """Return the section about kills and pairs."""
    rows = []
    for check, runs in read_results("processes"):
        outcomes: Counter[str] = Counter()
        for run in runs:
            outcomes.update(run["outcomes"])
        told = "; ".join(f"{name}: {times:,}" for name, times in sorted(outcomes.items()))
        wrong = sum(times for name, times in outcomes.items() if name.startswith("WRONG"))
        rows.append([check, f"{total(runs, 'asked'):,}", told, str(wrong)])
    text = """## Processes

`fuzz/processes.py --kills 200 --pairs 100`. Fits are killed at random moments, the writing of the
result folder included. After each kill the folder must be the complete old or new one; the same
command must end with the bits of a fit that was not killed. Of two fits with one folder or one
checkpoint at the same time, one must end, and the other must end, too, or name the process that
holds the lock.

"""
    return text + table(["check", "asked", "outcomes", "wrong"], rows)


def of_cluster() -> str:
    """Return the section about clusters and repeated fits."""
    rows = [
        [name, run["outcome"], str(run["wrong"])]
        for name, runs in read_results("cluster")
        for run in runs
    ]
    text = """## Clusters and repeated fits

`fuzz/cluster.py --local 200 --cluster 50 --fits 5 --kills 4`. All processes are on one machine.
Handles, threads and memory are those of the process that fits.

"""
    return text + table(["check", "outcome", "wrong"], rows)


def of_memory() -> str:
    """Return the section about relations with many empty objects."""
    rows = [
        [
            run["relation"],
            run["clusters"],
            f"{run['seconds']:.1f}",
            f"{run['growth']:,.0f}",
            f"{run['before']:,.0f}",
            f"{run['peak']:,.0f}",
        ]
        for _, runs in read_results("memory")
        for run in runs
    ]
    text = """## Many objects, few links

`fuzz/empty_objects.py`. A default fit in a process of its own, on one thread, with compiled
kernels in Numba's cache. Megabytes (10⁶ bytes) of resident memory: the growth by the fit, before
the fit with all imports and the data, and the peak of the process. The memberships are part of
the growth.

"""
    heading = ["relation", "clusters", "CPU s", "MB growth", "MB before", "MB peak"]
    return text + table(heading, rows)


def main() -> int:
    """Write the page."""
    sections = (of_files, of_processes, of_cluster, of_memory)
    PAGE.write_text("\n".join((INTRODUCTION, *(s() for s in sections))), encoding="utf-8")
    print(f"{PAGE.name} is written.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
