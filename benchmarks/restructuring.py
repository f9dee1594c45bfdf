"""Compare two checkouts of coblock on this machine and write docs/restructuring.md.

    python benchmarks/restructuring.py --before FOLDER [--only NAME ...] [--data FOLDER]
                                       [--out FILE] [--rounds N] [--page-only]

FOLDER is a checkout of the version to compare with. Every measurement runs in its own process,
alternately in the two checkouts. Finished measurements are kept in benchmarks/restructuring_runs
and are not repeated for the same pair of commits.
"""

import argparse
import json
import os
import sys
from pathlib import Path

from versions.jobs import NAMES, ROUNDS, select_jobs
from versions.page import write_page
from versions.runs import Checkout, Runs

ROOT = Path(__file__).resolve().parents[1]


def main() -> int:
    """Measure what is not finished and write the page."""
    options = parse_options()
    checkouts = (Checkout("before", options.before.resolve()), Checkout("after", ROOT))
    runs = Runs(ROOT / "benchmarks" / "restructuring_runs", checkouts, options.data.resolve())
    failures = 0
    if not options.page_only:
        for job, side, answer, reason in runs.run(select_jobs(options.only, options.rounds)):
            failures += answer is None
            text = f"failed: {reason}" if answer is None else json.dumps(answer)
            sys.stderr.write(f"{job.key}, {side}: {text}\n")
    write_page(options.out, runs)
    return 1 if failures else 0


def parse_options() -> argparse.Namespace:
    """Return the options of the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    data = Path(os.environ.get("DATA", ROOT.parent / "shared" / "data"))
    add = parser.add_argument
    add("--before", type=Path, required=True, help="checkout of the version to compare with")
    add("--only", nargs="+", choices=NAMES, default=list(ROUNDS), metavar="NAME", help=f"{NAMES}")
    add("--data", type=Path, default=data, help="folder of the real relations")
    add("--out", type=Path, default=ROOT / "docs" / "restructuring.md")
    add("--rounds", type=int, help="at most so many seeds or repetitions of each measurement")
    add("--page-only", action="store_true", help="write the page from the finished measurements")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
