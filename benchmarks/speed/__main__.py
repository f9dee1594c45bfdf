"""Measure speed and write docs/benchmarks.md.

    python -m speed [--only NAME ...] [--again | --stale] [--trial]   (in benchmarks/, or:
    make bench BENCH="--only 'fit ml1m' 'graph-tool ml1m'")

Every measurement runs in its own process; finished ones are kept in benchmarks/speed/runs and
not repeated unless asked. Times mean little across machines: read the ratios.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

from speed.page import write_page
from speed.relations import TRIAL
from speed.tasks import TASKS

HERE = Path(__file__).parent
DOCS = HERE.parents[1] / "docs"
Answers = dict[str, dict]


def main() -> None:
    """Run what is missing and write the page."""
    chosen = arguments()
    if chosen.trial:
        os.environ[TRIAL] = "1"
        with tempfile.TemporaryDirectory() as folder:
            measure(chosen, Path(folder))
            write_page(kept(Path(folder)), machine(), Path(folder))
            sys.stdout.write((Path(folder) / "benchmarks.md").read_text())
        return
    (HERE / "runs").mkdir(exist_ok=True)
    measure(chosen, HERE / "runs")
    write_page(kept(HERE / "runs"), machine(), DOCS)
    sys.stdout.write((DOCS / "benchmarks.md").read_text())


def arguments() -> argparse.Namespace:
    """Return what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--only", nargs="*", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--again", action="store_true", help="repeat finished measurements")
    parser.add_argument("--stale", action="store_true", help="repeat those of another source")
    parser.add_argument(
        "--trial",
        action="store_true",
        help="try the measurements on a small relation; keep nothing",
    )
    return parser.parse_args()


def measure(chosen: argparse.Namespace, runs: Path) -> None:
    """Run the chosen measurements that are not finished; one that fails is not kept."""
    finished, source = kept(runs), source_version()
    for name in chosen.only:
        answer = finished.get(name)
        stale = answer is not None and chosen.stale and answer["source"] != source
        if answer is None or stale or chosen.again:
            answer = measured(name) | {"source": source}
            if "failed" not in answer:
                path_of(runs, name).write_text(json.dumps(answer))
        sys.stdout.write(f"{name}: {json.dumps(answer)}\n")
        sys.stdout.flush()


def kept(runs: Path) -> Answers:
    """Return the finished measurements."""
    return {
        name: json.loads(path_of(runs, name).read_text())
        for name in TASKS
        if path_of(runs, name).exists()
    }


def path_of(runs: Path, name: str) -> Path:
    """Return where a finished measurement is kept."""
    return runs / f"{name.replace(' ', '-').replace(',', '')}.json"


def measured(name: str) -> dict[str, object]:
    """Run one measurement in its own process."""
    command = [sys.executable, "-W", "ignore", "-m", "speed.tasks", name]
    done = subprocess.run(command, cwd=HERE.parent, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"failed": done.stderr.strip().splitlines()[-1] if done.stderr else "no message"}
    return dict(json.loads(done.stdout.splitlines()[-1]))


def source_version() -> str:
    """Return the last commit that changed the library, marked where it was changed since."""

    def git(*words: str) -> str:
        command = ["git", *words, "--", "src"]
        done = subprocess.run(command, cwd=DOCS.parent, capture_output=True, text=True, check=False)
        return done.stdout.strip()

    return git("log", "-1", "--format=%h") + ("-changed" if git("status", "--porcelain") else "")


def machine() -> str:
    """Say what the measurements ran on."""
    return f"{platform.machine()}, {os.cpu_count()} cores"


if __name__ == "__main__":
    main()
