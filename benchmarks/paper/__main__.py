"""Run the missing experiments, then write docs/paper.md."""

import argparse
import math
import sys
from pathlib import Path

from rich.console import Console

from paper.experiments import CLUSTERS, FEWEST_RUNS, PROTOCOL, plan, select_jobs
from paper.page import Request, write_page
from paper.protocol import Limits
from paper.runner import PARTS, Budget, run_all
from paper.store import ROOT, Store

QUICK_RUNS, QUICK_BUDGET, QUICK_LIMIT = 3, 35.0, 45.0  # runs, minutes in all, seconds per fit
FULL_LIMIT = 7200.0  # seconds per fit of the full protocol


def main(words: list[str] | None = None) -> int:
    """Run the experiments within the budget and write docs/paper.md."""
    options = make_parser().parse_args(words)
    full = options.runs >= FEWEST_RUNS
    minutes = options.budget if options.budget is not None else math.inf if full else QUICK_BUDGET
    limit = options.limit if options.limit is not None else FULL_LIMIT if full else QUICK_LIMIT
    store = Store(options.work, options.sweeps, options.results, options.replace)
    console = Console(stderr=True)
    only = (options.relations, options.clusters, options.methods, options.parts)
    jobs = select_jobs(plan(options.runs), *only)
    budget = Budget(60 * minutes, Limits(limit, options.sweeps), options.workers)
    request = Request(options.runs, minutes, limit, options.sweeps, options.workers)
    if minutes > 0 and (outdated := store.outdated(jobs)):
        methods = ", ".join(sorted({job.method for job in outdated}))
        console.print(
            f"{len(outdated)} runs of {options.results} are of an earlier state of the code "
            f"(methods: {methods}). Pass --replace to measure them anew, or --budget 0 to write "
            "the page from the file."
        )
        return 1
    try:
        outcome = run_all(jobs, store, budget, console)
    finally:  # finished runs are on the page even after an error
        store.track()
        write_page(options.out, options.images, store, request)
    console.print(
        f"{outcome.finished} runs finished, {len(outcome.failed)} failed, "
        f"{outcome.remaining} remain for another call. The page is {options.out}."
    )
    return 1 if outcome.failed else 0


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the options."""
    docs = ROOT / "docs"
    parser = argparse.ArgumentParser(prog="paper", description=__doc__)
    add = parser.add_argument
    add(
        "--runs",
        type=int,
        default=QUICK_RUNS,
        help="seeds per experiment; from 5 on, 20 of small ones",
    )
    add("--budget", type=float, help="minutes in all; 0 only writes the page, inf is unlimited")
    add("--limit", type=float, help="CPU seconds of one fit")
    add("--sweeps", type=int, help="largest number of sweeps, for trials")
    add("--workers", type=int, default=2, help="processes of one thread each")
    add("--relations", nargs="+", help=f"only these, such as {PROTOCOL[0]}")
    add("--clusters", nargs="+", type=int, help=f"only these K of {CLUSTERS}")
    add("--methods", nargs="+", help="only these, such as acvb0 or default")
    add("--parts", nargs="+", choices=list(PARTS), help="only these")
    add("--work", type=Path, default=ROOT / "benchmarks" / "paper" / "runs", help="finished runs")
    add("--results", type=Path, default=ROOT / "benchmarks" / "results" / "paper.jsonl")
    add("--replace", action="store_true", help="leave out results of an earlier state of the code")
    add("--out", type=Path, default=docs / "paper.md")
    add("--images", type=Path, default=docs / "images" / "paper")
    return parser


if __name__ == "__main__":
    sys.exit(main())
