"""The page that compares two checkouts; every number comes from a finished measurement."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from versions.jobs import ROUNDS, Job
from versions.runs import SIDES, Answers, Runs
from versions.size import lines_by_folder

EVIDENCE_LOSS, SCORE_LOSS = 0.0005, 0.005  # largest relative losses
TIME_RATIO = 1.10  # largest time after divided by time before
SIZES = {  # what is counted -> what must be reached, None: nothing
    "lines": 13_000,
    "files": None,
    "longest file": 450,
    "longest function": 60,
    "longest kernel": 80,
    "median function": None,
    "median kernel": None,
    "repeated names": 15,
}
TITLES = {
    "lines": "lines of source (.py below src/coblock)",
    "files": "files",
    "longest file": "longest file, lines",
    "longest function": "longest function body, lines",
    "longest kernel": "longest kernel body, lines",
    "median function": "median function body, lines",
    "median kernel": "median kernel body, lines",
    "repeated names": "public names defined at top level in more than one file",
}
HEAD = """# Before and after the restructuring

Written by `benchmarks/restructuring.py`, which measures two checkouts of coblock with the same code
on the same machine. Before: commit {before}. After: commit {after}. Machine: {machine}; mean load
{load:.1f}. Fits have no parameter but the seed and run on one thread. Every measurement has its own
process, and the checkouts take turns. Compilation is not measured. A row says "not run" where no
round is finished, and how many are finished where some are not. [An earlier
page](restructuring-ca23e77.md) compares the commit of the restructuring, without later features.

| measure | must | before | after |
|---|---|---|---|
"""
RESTRUCTURED = "ca23e77"  # the commit of the restructuring; other features came after it
FOLDERS = """
## Lines by folder

The limit of {limit:,} lines was set for the features that the package had before the restructuring.
Commit {restructured} is the restructuring alone. Several relations, other likelihoods, degree
correction, further file formats and the defences against damaged files came after it.

| folder | {restructured} | after |
|---|---|---|
"""
NOT_RUN = "not run"


@dataclass(frozen=True)
class Row:
    """A row of the table."""

    measure: str
    must: str
    before: str
    after: str
    reached: bool | None = None  # None: nothing must be reached, or it was not run

    def line(self) -> str:
        """Return the row in Markdown."""
        missed = " **missed**" if self.reached is False else ""
        return f"| {self.measure} | {self.must} | {self.before} | {self.after}{missed} |"


@dataclass(frozen=True)
class Pairs:
    """The rounds of one measurement of one relation that are finished in both checkouts."""

    measure: str
    relation: str
    rounds: list[int]
    answers: tuple[list[dict[str, Any]], list[dict[str, Any]]]

    @classmethod
    def find(cls, finished: Answers, measure: str, relation: str) -> "Pairs":
        """Return the finished rounds."""
        rounds, sides = [], ([], [])
        for number in range(ROUNDS[measure][relation]):
            found = finished.get(Job(measure, relation, number).key, {})
            if set(found) == set(SIDES):
                rounds.append(number)
                for answers, side in zip(sides, SIDES, strict=True):
                    answers.append(found[side])
        return cls(measure, relation, rounds, sides)

    @property
    def title(self) -> str:
        """Name of the relation, with the number of rounds if some are missing."""
        planned = ROUNDS[self.measure][self.relation]
        missing = (
            f" ({len(self.rounds)} of {planned} rounds)" if 0 < len(self.rounds) < planned else ""
        )
        return f"{self.relation}{missing}"

    def values(self, key: str) -> np.ndarray:
        """Return one quantity as an array of shape (2, rounds)."""
        return np.array([[answer[key] for answer in side] for side in self.answers], dtype=float)


def write_page(path: Path, runs: Runs) -> None:
    """Write the page from the finished measurements."""
    finished = runs.finished()
    pairs = [Pairs.find(finished, measure, name) for measure in ROUNDS for name in ROUNDS[measure]]
    answers = [answer for sides in finished.values() for answer in sides.values()]
    loads = [answer["load"] for answer in answers if "load" in answer]
    machines = sorted({answer["machine"] for answer in answers if "machine" in answer})
    before, after = (checkout.version for checkout in runs.checkouts)
    head = HEAD.format(
        before=before,
        after=after,
        machine="; ".join(machines) or "none",
        load=np.mean(loads) if loads else 0.0,
    )
    rows = [row.line() for pair in pairs for row in table_rows(pair)]
    details = [line for pair in pairs if pair.rounds for line in detail_lines(pair)]
    folders = folder_table(runs.checkouts[1].folder)
    parts = [*rows, *folders, "", "## Details", *details]
    path.write_text(head + "\n".join(parts) + "\n", encoding="utf-8")


def folder_table(repository: Path) -> list[str]:
    """Return a table of the lines of each folder after the restructuring and today."""
    counts = [lines_by_folder(repository, commit) for commit in (RESTRUCTURED, "HEAD")]
    if not all(counts):
        return []
    head = FOLDERS.format(limit=SIZES["lines"], restructured=RESTRUCTURED)
    lines = [
        f"| {name} | {counts[0][name]:,} | {counts[1][name]:,} |" for name in sorted(counts[1])
    ]
    totals = (f"{count.total():,}" for count in counts)
    return [head + "\n".join([*lines, f"| all | {' | '.join(totals)} |"])]


def table_rows(pairs: Pairs) -> list[Row]:
    """Return the rows of one measurement of one relation."""
    return list(ROWS[pairs.measure](pairs))


def evidence_rows(pairs: Pairs) -> Iterator[Row]:
    """Compare mean log evidence."""
    measure = f"log evidence, {pairs.title}: mean of seeds"
    yield compare_means(measure, pairs, "evidence", EVIDENCE_LOSS, "{:,.1f}")


def held_out_rows(pairs: Pairs) -> Iterator[Row]:
    """Compare mean held-out log probability."""
    measure = f"held-out log probability per cell, {pairs.title}: mean of seeds"
    yield compare_means(measure, pairs, "score", SCORE_LOSS, "{:.5f}")


def compare_means(measure: str, pairs: Pairs, key: str, loss: float, form: str) -> Row:
    """Return a row that compares the means of a quantity that should be large."""
    must = f"at most {loss:.2%} lower"
    if not pairs.rounds:
        return Row(measure, must, NOT_RUN, NOT_RUN)
    before, after = pairs.values(key).mean(axis=1)
    gain = (after - before) / abs(before)
    texts = (form.format(before), f"{form.format(after)} ({gain:+.3%})")
    return Row(measure, must, *texts, reached=bool(gain >= -loss))


def planted_rows(pairs: Pairs) -> Iterator[Row]:
    """Count the draws whose numbers of clusters are found, or improved on."""
    measure = f"planted numbers of clusters found, {pairs.title}"
    must = f"all {ROUNDS['planted'][pairs.relation]}, exactly or with at least the truth's evidence"
    if not pairs.rounds:
        yield Row(measure, must, NOT_RUN, NOT_RUN)
        return
    exact = [sum(answer["exact"] for answer in side) for side in pairs.answers]
    other = [
        sum(not a["exact"] and a["evidence"] >= a["evidence of the truth"] for a in side)
        for side in pairs.answers
    ]
    texts = [f"{a} + {b} of {len(pairs.rounds)}" for a, b in zip(exact, other, strict=True)]
    yield Row(measure, must, *texts, reached=exact[1] + other[1] == len(pairs.rounds))


def time_rows(pairs: Pairs) -> Iterator[Row]:
    """Compare median CPU times; other work on the machine changes wall times much more."""
    measure = f"default fit, {pairs.title}: median CPU (wall) seconds"
    must = f"CPU: after ÷ before at most {TIME_RATIO:.2f}"
    if not pairs.rounds:
        yield Row(measure, must, NOT_RUN, NOT_RUN)
        return
    wall, cpu = (np.median(pairs.values(key), axis=1) for key in ("wall", "cpu"))
    texts = [f"{c:.2f} ({w:.2f})" for w, c in zip(wall, cpu, strict=True)]
    ratio = cpu[1] / cpu[0]
    texts[1] += f"; ratio {ratio:.2f} ({wall[1] / wall[0]:.2f})"
    yield Row(measure, must, *texts, reached=bool(ratio <= TIME_RATIO))


def identity_rows(pairs: Pairs) -> Iterator[Row]:
    """Say whether fits that should have the same bits have them."""
    ways = {"threads": "1 and 2 threads", "resumed": "resumed and uninterrupted"}
    for key, way in ways.items():
        measure = f"labels and memberships, {pairs.relation}: {way}"
        if not pairs.rounds:
            yield Row(measure, "same bits", NOT_RUN, NOT_RUN)
            continue
        same = [all(answer[key] for answer in side) for side in pairs.answers]
        texts = ["same bits" if one else "other bits" for one in same]
        yield Row(measure, "same bits", *texts, reached=same[1])


def size_rows(pairs: Pairs) -> Iterator[Row]:
    """Compare the sizes of the source."""
    for key, most in SIZES.items():
        must = "" if most is None else f"at most {most:,}"
        if not pairs.rounds:
            yield Row(TITLES[key], must, NOT_RUN, NOT_RUN)
            continue
        counts = [side[0][key] for side in pairs.answers]
        reached = None if most is None else counts[1] <= most
        yield Row(TITLES[key], must, *(f"{count:,g}" for count in counts), reached=reached)


def detail_lines(pairs: Pairs) -> Iterator[str]:
    """Yield a section with the rounds of one measurement of one relation."""
    yield from ("", f"### {pairs.measure.capitalize()}, {pairs.relation}", "")
    if pairs.measure == "size":
        for side, (answer,) in zip(SIDES, pairs.answers, strict=True):
            yield f"- {side}: {size_sentence(answer)}"
        return
    round_name = "repetition" if pairs.measure == "time" else "seed"
    yield f"| {round_name} | before | after |"
    yield "|---|---|---|"
    for number, *both in zip(pairs.rounds, *pairs.answers, strict=True):
        yield f"| {number} | {' | '.join(map(detail_cell, both))} |"
    if "digest" in pairs.answers[0][0]:
        digests = ([answer["digest"] for answer in side] for side in pairs.answers)
        same = sum(one == other for one, other in zip(*digests, strict=True))
        yield ""
        yield f"Before and after gave the same bits in {same} of {len(pairs.rounds)} rounds."


def detail_cell(answer: dict[str, Any]) -> str:
    """Return what one round measured."""
    parts = []
    if "clusters" in answer:
        parts.append("{} x {} clusters".format(*answer["clusters"]))
    if "evidence" in answer:
        parts.append(f"evidence {answer['evidence']:,.2f}")
    if "evidence of the truth" in answer:
        parts.append(f"of the truth {answer['evidence of the truth']:,.2f}")
    if "score" in answer:
        parts.append(f"score {answer['score']:.6f}")
    if "wall" in answer:
        parts.append(f"{answer['sweeps']} sweeps, {answer['wall']:.2f} s ({answer['cpu']:.2f} CPU)")
    if "threads" in answer:
        parts.append(f"threads: {answer['threads']}, resumed: {answer['resumed']}")
    return "; ".join(parts)


def size_sentence(size: dict[str, Any]) -> str:
    """Return the largest objects and the repeated names of one checkout."""
    names = size["names"]
    longest = "; ".join(
        f"longest {kind} {name} ({size[f'longest {kind}']:,} lines)"
        for kind, name in names["longest"].items()
    )
    counts = f"{size['functions']:,} functions and {size['kernels']:,} kernels"
    repeated = ", ".join(names["repeated"]) or "none"
    private = len(names["repeated private"])
    return f"{counts}; {longest}; repeated public names: {repeated}; private ones: {private}."


ROWS = {
    "evidence": evidence_rows,
    "held-out": held_out_rows,
    "planted": planted_rows,
    "time": time_rows,
    "identity": identity_rows,
    "size": size_rows,
}
