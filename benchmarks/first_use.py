"""Measure what a new user waits for, and cuts of the tree, and write docs/first-use.md.

Run with ``python benchmarks/first_use.py DATA [first] [left] [cuts]``. DATA is the folder of ml1m
and polblogs. Sections that are named are measured, the others kept; without names, all are. One
thread is used.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"  # before NumPy is imported
if len(sys.argv) > 1:
    os.environ["DATA"] = sys.argv[1]

import numpy as np
from data import FOLDER, load
from sklearn.metrics import adjusted_rand_score

from coblock import IRM
from coblock.model.trace import SweepRecord
from coblock.ui.cli.console import Forecast

PAGE = Path(__file__).parents[1] / "docs" / "first-use.md"
HEAD = """# First use, time left, and cuts of the tree

`python benchmarks/first_use.py DATA` writes this page, with one thread of a shared machine.
"""


def demo_seconds(cache: str) -> float:
    """Return the CPU seconds of ``coblock demo`` with this cache of compiled kernels."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            [sys.executable, "-m", "coblock", "demo", "--quiet", "--out", f"{folder}/demo"],
            check=True,
            env=os.environ | {"NUMBA_CACHE_DIR": cache},
        )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime - before.ru_utime) + (after.ru_stime - before.ru_stime)


def first_use() -> str:
    """Return the section on the first demo of a fresh environment."""
    with tempfile.TemporaryDirectory() as cache:
        first, second = demo_seconds(cache), demo_seconds(cache)
    return (
        "\n## First use\n\nCPU seconds of `coblock demo`, start of Python included.\n\n"
        "| cache of compiled kernels | CPU seconds |\n|---|---|\n"
        f"| empty: the first use | {first:.1f} |\n| filled: the second | {second:.1f} |\n"
    )


def time_left() -> str:
    """Return the section on the estimate of the progress bar in a default fit of ml1m."""
    records: list[SweepRecord] = []
    model = IRM(random_state=0, callback=records.append).fit(load("ml1m"))
    forecast, end = Forecast(model.tol, model.max_iter), records[-1].seconds
    shown, off = 0, [1.0]
    late = [record for record in records if record.seconds >= end / 4]
    for record in records:
        left, true = forecast.seconds_left(record), end - record.seconds
        if left is not None and left >= 1.0 and record in late:
            shown += 1
            off.append(max(left / max(true, 1.0), true / left))
    largest = f"{max(off):.1f}" if shown else "none shown"
    return (
        "\n## Time left\n\nThe estimate of the progress bar after the first quarter of a default "
        "fit of ml1m. The search ends when nothing gains any more, which cannot be foreseen, so "
        "that no time is shown in it.\n\n"
        "| sweeps | of these with an estimate | largest factor between estimate and truth |\n"
        f"|---|---|---|\n| {len(late)} | {shown} | {largest} |\n"
    )


def cuts_at_two() -> str:
    """Return the section on polblogs: the tree cut at two against the two camps."""
    camps = json.loads((FOLDER / "polblogs.labels.json").read_text())
    truth = np.array(camps["row_class"])
    lines = []
    for kind in ("undirected", "directed"):
        X = load("polblogs")
        X = ((X + X.T) > 0).astype(float) if kind == "undirected" else X
        for asked in (False, True):
            model = IRM(kind, random_state=0, degree_corrected=asked).fit(X)
            cut = model.tree().cut(2)
            labels = cut.labels[0][model.row_labels_]
            direct = IRM(kind, random_state=0, degree_corrected=asked, max_clusters=2).fit(X)
            scores = [adjusted_rand_score(truth, each) for each in (labels, direct.row_labels_)]
            clusters = int(model.row_labels_.max()) + 1
            lines.append(
                f"| {kind} | {'yes' if asked else 'no'} | {clusters} | {scores[0]:.3f} | "
                f"{scores[1]:.3f} |\n"
            )
    return (
        "\n## polblogs cut at two\n\nThe tree of blocks cut at two clusters, and a direct fit with "
        "at most two, against the two camps: adjusted Rand index.\n\n"
        "| relation | degree correction | clusters | cut at two | direct fit |\n"
        "|---|---|---|---|---|\n" + "".join(lines)
    )


TITLES = {"first": "First use", "left": "Time left", "cuts": "polblogs cut at two"}
SECTIONS = {"first": first_use, "left": time_left, "cuts": cuts_at_two}


def main() -> None:
    """Measure the sections that are named and write the page."""
    wanted = sys.argv[2:] or list(SECTIONS)
    old = PAGE.read_text(encoding="utf-8").split("\n## ")[1:] if PAGE.exists() else []
    kept = {text.split("\n")[0]: f"\n## {text.rstrip()}\n" for text in old}
    for name in wanted:
        kept[TITLES[name]] = SECTIONS[name]()
    text = "".join(kept.get(title, "") for title in TITLES.values())
    PAGE.write_text(HEAD + text, encoding="utf-8")


if __name__ == "__main__":
    main()
