"""Command line: run what is missing, then write the page."""

import argparse
import math
import sys
from pathlib import Path

from rich.console import Console

from paper.experiments import CLUSTERS, PROTOCOL, chosen, plan
from paper.page import Request, write_page
from paper.protocol import Limits
from paper.published import RUNS as FULL_PROTOCOL
from paper.runner import PARTS, Budget, run_all
from paper.store import ROOT, Store

QUICK_RUNS, QUICK_BUDGET, QUICK_LIMIT = 3, 35.0, 45.0  # runs, minutes in all, seconds per fit
FULL_LIMIT = 7200.0


def main(words: list[str] | None = None) -> int:
    """Run the experiments within the budget and write docs/paper.md."""
    asked = parser().parse_args(words)
    full = asked.runs >= FULL_PROTOCOL
    minutes = asked.budget if asked.budget is not None else math.inf if full else QUICK_BUDGET
    limit = asked.limit if asked.limit is not None else FULL_LIMIT if full else QUICK_LIMIT
    store, console = Store(asked.work, asked.sweeps), Console(stderr=True)
    jobs = chosen(plan(asked.runs), asked.relations, asked.clusters, asked.methods, asked.parts)
    budget = Budget(60 * minutes, Limits(limit, asked.sweeps), asked.workers)
    request = Request(asked.runs, minutes, limit, asked.sweeps, asked.workers)
    try:
        outcome = run_all(jobs, store, budget, console)
    finally:  # what is finished is on the page, whatever has happened
        write_page(asked.out, asked.images, store, request)
    console.print(
        f"{outcome.finished} runs finished, {len(outcome.failed)} failed, {outcome.left} left for "
        f"another call. The page is {asked.out}."
    )
    return 1 if outcome.failed else 0


def parser() -> argparse.ArgumentParser:
    """Return the options."""
    docs = ROOT / "docs"
    options = argparse.ArgumentParser(prog="paper", description=__doc__)
    add = options.add_argument
    add("--runs", type=int, default=QUICK_RUNS, help="seeds per experiment; the paper has 20")
    add("--budget", type=float, help="minutes in all; 0 only writes the page, inf has no end")
    add("--limit", type=float, help="CPU seconds of one fit")
    add("--sweeps", type=int, help="fewer sweeps than the methods would do, to try things out")
    add("--workers", type=int, default=2, help="processes; each works with one thread")
    add("--relations", nargs="+", help=f"only these, such as {PROTOCOL[0]}")
    add("--clusters", nargs="+", type=int, help=f"only these K of {CLUSTERS}")
    add("--methods", nargs="+", help="only these, such as acvb0 or default")
    add("--parts", nargs="+", choices=list(PARTS), help="only these")
    add("--work", type=Path, default=ROOT / "benchmarks" / "paper" / "runs", help="finished runs")
    add("--out", type=Path, default=docs / "paper.md")
    add("--images", type=Path, default=docs / "images" / "paper")
    return options


if __name__ == "__main__":
    sys.exit(main())
