"""Measure speed and write docs/benchmarks.md.

    python -m speed [--only NAME ...] [--again | --stale] [--trial]   (in benchmarks/, or:
    make bench BENCH="--only 'fit ml1m' 'graph-tool ml1m'")

Every measurement runs in its own process. Finished measurements are kept in
benchmarks/results/speed.json and are repeated on request only. Times depend on the machine; ratios
can be compared.
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
RESULTS = HERE.parent / "results" / "speed.json"
Answers = dict[str, dict]


def main() -> None:
    """Run the missing measurements and write the page."""
    options = parse_options()
    if options.trial:
        os.environ[TRIAL] = "1"
        with tempfile.TemporaryDirectory() as folder:
            found = measure(options, Path(folder) / RESULTS.name)
            write_page(found, describe_machine(), Path(folder))
            sys.stdout.write((Path(folder) / "benchmarks.md").read_text())
        return
    write_page(measure(options, RESULTS), describe_machine(), DOCS)
    sys.stdout.write((DOCS / "benchmarks.md").read_text())


def parse_options() -> argparse.Namespace:
    """Return the options of the command."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--only", nargs="*", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--again", action="store_true", help="repeat finished measurements")
    parser.add_argument(
        "--stale", action="store_true", help="repeat measurements of another commit"
    )
    parser.add_argument(
        "--trial",
        action="store_true",
        help="measure a small relation instead of each; keep nothing",
    )
    return parser.parse_args()


def measure(options: argparse.Namespace, path: Path) -> Answers:
    """Run the selected measurements that are not finished; return all that are.

    Failed ones are not kept.
    """
    finished: Answers = json.loads(path.read_text()) if path.exists() else {}
    source = source_version()
    for name in options.only:
        answer = finished.get(name)
        stale = answer is not None and options.stale and answer["source"] != source
        if answer is None or stale or options.again:
            answer = run_measurement(name) | {"source": source}
            if "failed" not in answer:
                finished[name] = answer
                path.write_text(json.dumps(finished, indent=1) + "\n")
        sys.stdout.write(f"{name}: {json.dumps(answer)}\n")
        sys.stdout.flush()
    return {name: finished[name] for name in TASKS if name in finished}


def run_measurement(name: str) -> dict[str, object]:
    """Run one measurement in its own process."""
    command = [sys.executable, "-W", "ignore", "-m", "speed.tasks", name]
    done = subprocess.run(command, cwd=HERE.parent, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"failed": done.stderr.strip().splitlines()[-1] if done.stderr else "no message"}
    return dict(json.loads(done.stdout.splitlines()[-1]))


def source_version() -> str:
    """Return the last commit that changed the library, marked if there are later changes."""

    def git(*words: str) -> str:
        command = ["git", *words, "--", "src"]
        done = subprocess.run(command, cwd=DOCS.parent, capture_output=True, text=True, check=False)
        return done.stdout.strip()

    return git("log", "-1", "--format=%h") + ("-changed" if git("status", "--porcelain") else "")


def describe_machine() -> str:
    """Return the architecture and the number of cores."""
    return f"{platform.machine()}, {os.cpu_count()} cores"


if __name__ == "__main__":
    main()
