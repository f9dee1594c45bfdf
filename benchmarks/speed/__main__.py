"""Measure speed and write docs/benchmarks.md.

    python -m speed [--only NAME ...] [--again]     (in benchmarks/, or: make bench)

Every measurement runs in its own process; finished ones are kept in benchmarks/speed/runs and
not repeated unless asked. Times mean little across machines: read the ratios.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
from pathlib import Path

from speed.page import write_page
from speed.tasks import TASKS

HERE = Path(__file__).parent
RUNS = HERE / "runs"


def main() -> None:
    """Run what is missing and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--only", nargs="*", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--again", action="store_true", help="repeat finished measurements")
    arguments = parser.parse_args()
    RUNS.mkdir(exist_ok=True)
    for name in arguments.only:
        kept = RUNS / f"{name.replace(' ', '-').replace(',', '')}.json"
        if arguments.again or not kept.exists():
            kept.write_text(json.dumps(measured(name)))
        sys.stdout.write(f"{name}: {kept.read_text()}\n")
        sys.stdout.flush()
    answers = {
        name: json.loads(kept.read_text())
        for name in TASKS
        if (kept := RUNS / f"{name.replace(' ', '-').replace(',', '')}.json").exists()
    }
    write_page(answers, f"{platform.machine()}, {os.cpu_count()} cores")


def measured(name: str) -> dict[str, object]:
    """Run one measurement in its own process."""
    command = [sys.executable, "-W", "ignore", "-m", "speed.tasks", name]
    done = subprocess.run(command, cwd=HERE.parent, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"failed": done.stderr.strip().splitlines()[-1] if done.stderr else "no message"}
    return dict(json.loads(done.stdout.splitlines()[-1]))


if __name__ == "__main__":
    main()
