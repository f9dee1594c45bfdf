"""The tables of the page, each a list of Markdown lines."""

from collections.abc import Iterable, Sequence

import numpy as np
from data import FOLDER, Trial

from paper import published
from paper.evidence import Evidence, Summary, best_of, better, gap
from paper.experiments import (
    CLUSTERS,
    COMPARISONS,
    DEFAULT,
    GROWTH,
    IN_BATCHES,
    LARGE,
    LASTFM,
    METHOD_TITLES,
    PAPER_METHODS,
    PROTOCOL,
    SHARES_UNSEEN,
    THRESHOLDS,
    TITLES,
    UNTRUNCATED,
    is_here,
)

NOT_RUN = "not run"
CUT = "†"  # some runs were cut off by the limit


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return a table."""
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    return [*lines, *(f"| {' | '.join(row)} |" for row in rows)]


def command(runs: int, relations: Iterable[str], limit: str = "", **only: Iterable[object]) -> str:
    """Return the call that runs what is missing."""
    words = [f"--relations {' '.join(dict.fromkeys(relations))}"]
    for name, values in only.items():
        distinct = list(dict.fromkeys(str(value) for value in values))
        words += [f"--{name} {' '.join(distinct)}"] if distinct else []
    settings = f"RUNS={runs} BUDGET=inf {limit}".strip()
    return f'`make paper DATA=folder {settings} PAPER="{" ".join(words)}"`'


def missing_line(
    runs: int, missing: list[tuple[str, str]], clusters: Iterable[int], parts: Iterable[str]
) -> list[str]:
    """Return a line about the relations and methods that were not run; nothing if all were."""
    if not missing:
        return []
    absent = sorted({TITLES[name] for name, _ in missing if not is_here(name)})
    lines = [
        "",
        f"Not run: {len(missing)} cells. "
        + command(
            runs,
            (name for name, _ in missing),
            methods=(method for _, method in missing),
            clusters=clusters,
            parts=parts,
        ),
    ]
    if absent:
        lines[-1] += f" needs {', '.join(absent)} in the folder of the data."
    return lines


def size_table() -> list[str]:
    """Sizes of our relations, those drawn with seed 0, next to the paper's."""
    rows = []
    for relation in PROTOCOL:
        ours = ["not here", ""]
        if is_here(relation):
            X = Trial.whole(relation, 0)
            ours = [f"{X.shape[0]:,} x {X.shape[1]:,}", f"{X.nnz:,}"]
        theirs = published.size(relation)
        assert theirs is not None
        paper = [f"{theirs[0]:,} x {theirs[1]:,}", f"{theirs[2]:,}"]
        rows.append([TITLES[relation], *ours, *paper, "yes" if ours == paper else "no"])
    return markdown(["relation", "ours", "links", "the paper's", "links", "the same"], rows)


# Held-out log likelihood


def score_table(evidence: Evidence, K: int) -> list[str]:
    """Held-out log likelihood per cell, ours above the paper's."""
    rows, missing = [], []
    for relation in PROTOCOL:
        found = {name: evidence.scores(relation, name, K) for name in METHOD_TITLES}
        missing += [(relation, name) for name, summary in found.items() if summary is None]
        rows.append([TITLES[relation], runs_of(found.values()), *score_cells(found)])
        rows.append(["*the paper*", str(published.RUNS), *paper_scores(relation, K), ""])
    head = ["relation", "runs", *METHOD_TITLES.values()]
    return [*markdown(head, rows), *missing_line(evidence.runs, missing, [K], ["held-out"])]


def score_cells(found: dict[str, Summary | None]) -> list[str]:
    """Return a row: the best of the paper's methods bold, those it beats marked.

    coblock's default is compared with that best one: + significantly better, - worse.
    """
    rivals = {name: one for name in PAPER_METHODS if (one := found[name]) is not None}
    name_of_best = best_of(rivals)
    best = None if name_of_best is None else rivals[name_of_best]
    most = max((one.values.size for one in found.values() if one is not None), default=0)
    cells = []
    for name, summary in found.items():
        if summary is None:
            cells.append(NOT_RUN)
            continue
        mark, bold = "", name == name_of_best
        if best is not None and name == DEFAULT:
            mark = "+" * bool(better(summary, best)) + "-" * bool(better(best, summary))
            ahead = gap(summary, best)
            bold = ahead is not None and ahead >= 0.0
        elif best is not None:
            mark = "*" * bool(better(best, summary))
        fewer = f", {counted(summary.values.size)}" if summary.values.size < most else ""
        cells.append(score_cell(summary, bold, mark) + fewer)
    return cells


def counted(runs: int) -> str:
    """Return how many runs there are, in words."""
    return f"{runs} run{'s' * (runs != 1)}"


def score_cell(summary: Summary, bold: bool = False, mark: str = "") -> str:
    """Return mean and deviation."""
    mean = f"{summary.mean:.4f}"
    mean = f"**{mean}**" if bold else mean
    spread = f" ({summary.deviation:.4f})" if summary.values.size > 1 else ""
    return f"{mean}{mark}{spread}{CUT if summary.truncated else ''}"


def paper_scores(relation: str, K: int) -> list[str]:
    """Return the paper's row as it is printed."""
    cells = []
    for method in PAPER_METHODS:
        one = published.figure(published.LOG_LIKELIHOOD, relation, method, K)
        if one is None:
            cells.append("")
            continue
        mean = f"**{one.mean:.4f}**" if one.bold else f"{one.mean:.4f}"
        cells.append(f"{mean}{'*' * one.marked} ({one.deviation:.4f})")
    return cells


def runs_of(summaries: Iterable[Summary | None]) -> str:
    """Return how many runs a row stands for."""
    counts = sorted({0 if one is None else one.values.size for one in summaries})
    return str(counts[0]) if len(counts) == 1 else f"{counts[0]}-{counts[-1]}"


# CPU time


def time_table(evidence: Evidence, K: int, threshold: float) -> list[str]:
    """CPU seconds until the threshold, ours above the paper's (which has 1e-5 only)."""
    rows, missing = [], []
    for relation in PROTOCOL:
        found = {name: evidence.seconds(relation, name, K, threshold) for name in METHOD_TITLES}
        missing += [(relation, name) for name, summary in found.items() if summary is None]
        cells = [time_cell(summary) for summary in found.values()]
        rows.append([TITLES[relation], runs_of(found.values()), *cells])
        if threshold == min(THRESHOLDS):
            rows.append(["*the paper*", str(published.RUNS), *paper_times(relation, K), ""])
    head = ["relation", "runs", *METHOD_TITLES.values()]
    return [*markdown(head, rows), *missing_line(evidence.runs, missing, [K], ["held-out"])]


def time_cell(summary: Summary | None) -> str:
    """Return mean and deviation in seconds; > where some runs never passed the threshold."""
    if summary is None:
        return NOT_RUN
    spread = f" ({number(summary.deviation)})" if summary.values.size > 1 else ""
    return f"{'> ' if summary.truncated else ''}{number(summary.mean)}{spread}"


def paper_times(relation: str, K: int) -> list[str]:
    """Return the paper's row."""
    found = [published.figure(published.CPU_TIME, relation, name, K) for name in PAPER_METHODS]
    return ["" if one is None else f"{one.mean:,.10g} ({one.deviation:,.10g})" for one in found]


def number(value: float) -> str:
    """Return three digits of a number without an exponent."""
    if value == 0 or not np.isfinite(value):
        return f"{value:.0f}"
    digits = max(2 - int(np.floor(np.log10(abs(value)))), 0)
    return f"{value:,.{min(digits, 6)}f}"


# Linear against naive


def naive_table(evidence: Evidence) -> list[str]:
    """CPU seconds of one sweep of CVB0."""
    rows, missing = [], []
    for relation in LASTFM:
        for K in CLUSTERS:
            record = evidence.one("naive", relation, "both", K)
            if record is None:
                missing.append((relation, K))
                rows.append([TITLES[relation], str(K), *[NOT_RUN] * 4, paper_ratio(relation, K)])
                continue
            rows.append([TITLES[relation], str(K), *naive_cells(record), paper_ratio(relation, K)])
    for size in GROWTH:
        record = evidence.one("growth", f"growth{size}", "both", 20)
        cells = [NOT_RUN] * 4 if record is None else naive_cells(record)
        rows.append([f"generated, {size:,} x {size:,}", "20", *cells, ""])
        missing += [(f"growth{size}", 20)] if record is None else []
    head = ["relation", "K", "naive", "linear", "naive / linear", "largest difference of q"]
    lines = markdown([*head, "the paper's ratio"], rows)
    if missing:
        clusters, parts = (K for _, K in missing), ("naive", "growth")
        call = command(evidence.runs, (r for r, _ in missing), clusters=clusters, parts=parts)
        lines += ["", f"Not run: {len(missing)} rows. {call}"]
    return lines


def naive_cells(record: dict[str, float]) -> list[str]:
    """Return seconds of both sweeps, their ratio, and how far their memberships differ."""
    part = "" if record["share"] == 1.0 else f" (from {record['share']:.0%} of the objects)"
    difference = record["difference"]
    return [
        f"{number(record['naive'])}{part}",
        number(record["linear"]),
        f"{record['naive'] / record['linear']:,.0f}",
        "" if difference is None else f"{difference:.0e}",
    ]


def paper_ratio(relation: str, K: int) -> str:
    """Return how much faster the paper's linear form is than its naive one."""
    naive = published.figure(published.LARGE, relation, "naive", K)
    linear = published.figure(published.LARGE, relation, "linear", K)
    return "" if naive is None or linear is None else f"{naive.mean / linear.mean:.1f}"


def large_table(evidence: Evidence) -> list[str]:
    """CPU seconds until 1e-5 with nothing unseen; in brackets seconds per sweep."""
    rows, missing = [], []
    for relation in LARGE:
        records = {K: evidence.one("large", relation, IN_BATCHES, K) for K in CLUSTERS}
        default = evidence.one("large", relation, DEFAULT, UNTRUNCATED)
        known = next((one for one in (*records.values(), default) if one is not None), None)
        missing += [(relation, IN_BATCHES, K) for K, one in records.items() if one is None]
        missing += [(relation, DEFAULT, UNTRUNCATED)] if default is None else []
        size = ["", "", ""]
        if known is not None:
            density = known["links"] / (known["rows"] * known["columns"])
            size = [f"{known['rows']:,} x {known['columns']:,}", f"{known['links']:,}"]
            size.append(f"{density:.2%}")
        paper = [published.figure(published.LARGE, relation, "linear", K) for K in CLUSTERS]
        rows.append(
            [
                TITLES[relation],
                *size,
                *(large_cell(one) for one in records.values()),
                large_cell(default),
                " / ".join(f"{one.mean:,.0f}" for one in paper if one is not None),
            ]
        )
    head = ["relation", "size", "links", "density", *(f"ACVB0, K = {K}" for K in CLUSTERS)]
    lines = markdown([*head, "coblock", "the paper, K = 20 / 40 / 60"], rows)
    if missing:
        names, methods = (m[0] for m in missing), (m[1] for m in missing)
        clusters = (m[2] for m in missing if m[2] != UNTRUNCATED)
        only = {"methods": methods, "clusters": clusters, "parts": ["large"]}
        call = command(evidence.runs, names, "LIMIT=86400", **only)
        lines += ["", f"Not run: {len(missing)} cells. {call}"]
        absent = [TITLES[name] for name in LARGE if not is_here(name)]
        lines[-1] += f" (not in {FOLDER.name}: {', '.join(absent)})" if absent else ""
    return lines


def large_cell(record: dict[str, float] | None) -> str:
    """Return seconds until convergence, or > what it had, and seconds per sweep."""
    if record is None:
        return NOT_RUN
    sign = "" if record["converged"] else "> "
    return f"{sign}{number(record['cpu'])} ({number(record['cpu'] / record['sweeps'])})"


# What the paper did not know


def comparison_table(evidence: Evidence, name: str) -> list[str]:
    """Held-out log likelihood, clusters and CPU seconds of variants at K = 20."""
    comparison = COMPARISONS[name]
    rows, missing = [], []
    for relation in comparison.relations:
        cells = []
        for variant in comparison.variants:
            scores = evidence.scores(relation, variant, 20)
            if scores is None:
                missing.append((relation, variant))
                cells.append(NOT_RUN)
                continue
            records = evidence.records(relation, variant, 20)
            K1, K2 = np.mean([record["clusters"] for record in records], axis=0)
            seconds = float(np.mean([record["cpu"] for record in records]))
            cells.append(f"{score_cell(scores)}; {K1:.0f} x {K2:.0f}; {number(seconds)} s")
        rows.append([TITLES[relation], *cells])
    head = ["relation", *comparison.variants.values()]
    return [*markdown(head, rows), *missing_line(evidence.runs, missing, [20], ["held-out"])]


def unseen_table(evidence: Evidence) -> list[str]:
    """Seconds per sweep of CVB0 on UserXUser, more and more cells unseen."""
    relation, rows, missing = "lastfm_userxuser", [], 0
    none = evidence.one("missing", relation, "unseen0", 20)
    for share in SHARES_UNSEEN:
        record = evidence.one("missing", relation, f"unseen{share:g}", 20)
        if record is None:
            missing += 1
            rows.append([f"{share:.0%}", *[NOT_RUN] * 3])
            continue
        ratio = "" if none is None else f"{record['linear'] / none['linear']:.1f}"
        rows.append([f"{share:.0%}", f"{record['unseen']:,}", number(record["linear"]), ratio])
    lines = markdown(["unseen", "cells", "seconds per sweep", "times that of none"], rows)
    call = command(evidence.runs, [relation], parts=["missing"])
    return [*lines, "", f"Not run: {missing} rows. {call}"] if missing else lines
