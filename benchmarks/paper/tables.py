"""The tables of the page as lists of Markdown lines."""

from collections.abc import Iterable, Sequence

import numpy as np
from data import FOLDER, whole_relation

from paper import published
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
    is_available,
)
from paper.results import Results, Summary, find_best, is_better, mean_difference

NOT_RUN = "not run"
TRUNCATED = "†"  # mark of values with runs that were stopped at their limit


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return a table in Markdown."""
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    return [*lines, *(f"| {' | '.join(row)} |" for row in rows)]


def command(runs: int, relations: Iterable[str], limit: str = "", **only: Iterable[object]) -> str:
    """Return the command that runs missing experiments."""
    words = [f"--relations {' '.join(dict.fromkeys(relations))}"]
    for name, values in only.items():
        distinct = list(dict.fromkeys(str(value) for value in values))
        words += [f"--{name} {' '.join(distinct)}"] if distinct else []
    settings = f"RUNS={runs} BUDGET=inf {limit}".strip()
    return f'`make paper DATA=folder {settings} PAPER="{" ".join(words)}"`'


def missing_line(
    runs: int, missing: list[tuple[str, str]], clusters: Iterable[int], parts: Iterable[str]
) -> list[str]:
    """Return a line with the command for missing relations and methods; none if all were run."""
    if not missing:
        return []
    absent = sorted({TITLES[name] for name, _ in missing if not is_available(name)})
    lines = [
        "",
        f"Not run: {len(missing)} experiments. "
        + command(
            runs,
            (name for name, _ in missing),
            methods=(method for _, method in missing),
            clusters=clusters,
            parts=parts,
        ),
    ]
    if absent:
        lines[-1] += f" needs {', '.join(absent)} in the data folder."
    return lines


def size_table() -> list[str]:
    """Compare the sizes of the relations, generated with seed 0, with those of the paper."""
    rows = []
    for relation in PROTOCOL:
        ours = ["not available", ""]
        if is_available(relation):
            X = whole_relation(relation, 0)
            ours = [f"{X.shape[0]:,} x {X.shape[1]:,}", f"{X.nnz:,}"]
        theirs = published.size(relation)
        assert theirs is not None
        paper = [f"{theirs[0]:,} x {theirs[1]:,}", f"{theirs[2]:,}"]
        rows.append([TITLES[relation], *ours, *paper, "yes" if ours == paper else "no"])
    return markdown(["relation", "ours", "links", "the paper's", "links", "the same"], rows)


# Held-out log likelihood


def score_table(results: Results, K: int) -> list[str]:
    """Compare held-out log likelihood per cell with that of the paper."""
    rows, missing = [], []
    for relation in PROTOCOL:
        found = {name: results.scores(relation, name, K) for name in METHOD_TITLES}
        missing += [(relation, name) for name, summary in found.items() if summary is None]
        rows.append([TITLES[relation], run_range(found.values()), *score_cells(found)])
        rows.append(["*the paper*", str(published.RUNS), *paper_scores(relation, K), ""])
    head = ["relation", "runs", *METHOD_TITLES.values()]
    return [*markdown(head, rows), *missing_line(results.runs, missing, [K], ["held-out"])]


def score_cells(found: dict[str, Summary | None]) -> list[str]:
    """Return a row: the best of the paper's methods is bold, significantly worse ones are marked.

    The mark of coblock's default compares it with this best one: + better, - worse.
    """
    rivals = {name: one for name in PAPER_METHODS if (one := found[name]) is not None}
    name_of_best = find_best(rivals)
    best = None if name_of_best is None else rivals[name_of_best]
    most = max((one.values.size for one in found.values() if one is not None), default=0)
    cells = []
    for name, summary in found.items():
        if summary is None:
            cells.append(NOT_RUN)
            continue
        mark, bold = "", name == name_of_best
        if best is not None and name == DEFAULT:
            mark = "+" * bool(is_better(summary, best)) + "-" * bool(is_better(best, summary))
            ahead = mean_difference(summary, best)
            bold = ahead is not None and ahead >= 0.0
        elif best is not None:
            mark = "*" * bool(is_better(best, summary))
        fewer = f", {count_runs(summary.values.size)}" if summary.values.size < most else ""
        cells.append(score_cell(summary, bold, mark) + fewer)
    return cells


def count_runs(runs: int) -> str:
    """Return a number of runs with its noun."""
    return f"{runs} run{'s' * (runs != 1)}"


def score_cell(summary: Summary, bold: bool = False, mark: str = "") -> str:
    """Return mean and standard deviation."""
    mean = f"{summary.mean:.4f}"
    mean = f"**{mean}**" if bold else mean
    spread = f" ({summary.deviation:.4f})" if summary.values.size > 1 else ""
    return f"{mean}{mark}{spread}{TRUNCATED if summary.truncated else ''}"


def paper_scores(relation: str, K: int) -> list[str]:
    """Return the row of the paper."""
    cells = []
    for method in PAPER_METHODS:
        one = published.value(published.LOG_LIKELIHOOD, relation, method, K)
        if one is None:
            cells.append("")
            continue
        mean = f"**{one.mean:.4f}**" if one.bold else f"{one.mean:.4f}"
        cells.append(f"{mean}{'*' * one.marked} ({one.deviation:.4f})")
    return cells


def run_range(summaries: Iterable[Summary | None]) -> str:
    """Return the number of runs of a row, or the smallest and the largest number."""
    counts = sorted({0 if one is None else one.values.size for one in summaries})
    return str(counts[0]) if len(counts) == 1 else f"{counts[0]}-{counts[-1]}"


# CPU time


def time_table(results: Results, K: int, threshold: float) -> list[str]:
    """Compare CPU seconds until the threshold with those of the paper, which has 1e-5 only."""
    rows, missing = [], []
    for relation in PROTOCOL:
        found = {name: results.seconds(relation, name, K, threshold) for name in METHOD_TITLES}
        missing += [(relation, name) for name, summary in found.items() if summary is None]
        cells = [time_cell(summary) for summary in found.values()]
        rows.append([TITLES[relation], run_range(found.values()), *cells])
        if threshold == min(THRESHOLDS):
            rows.append(["*the paper*", str(published.RUNS), *paper_times(relation, K), ""])
    head = ["relation", "runs", *METHOD_TITLES.values()]
    return [*markdown(head, rows), *missing_line(results.runs, missing, [K], ["held-out"])]


def time_cell(summary: Summary | None) -> str:
    """Return mean and deviation in seconds, with > if some runs did not reach the threshold."""
    if summary is None:
        return NOT_RUN
    spread = f" ({format_number(summary.deviation)})" if summary.values.size > 1 else ""
    return f"{'> ' if summary.truncated else ''}{format_number(summary.mean)}{spread}"


def paper_times(relation: str, K: int) -> list[str]:
    """Return the row of the paper."""
    found = [published.value(published.CPU_TIME, relation, name, K) for name in PAPER_METHODS]
    return ["" if one is None else f"{one.mean:,.10g} ({one.deviation:,.10g})" for one in found]


def format_number(value: float) -> str:
    """Return a number with three significant digits and no exponent."""
    if value == 0 or not np.isfinite(value):
        return f"{value:.0f}"
    digits = max(2 - int(np.floor(np.log10(abs(value)))), 0)
    return f"{value:,.{min(digits, 6)}f}"


# Linear against naive


def naive_table(results: Results) -> list[str]:
    """Compare CPU seconds of one naive and one linear sweep of CVB0."""
    rows, missing = [], []
    for relation in LASTFM:
        for K in CLUSTERS:
            record = results.one("naive", relation, "both", K)
            if record is None:
                missing.append((relation, K))
                rows.append([TITLES[relation], str(K), *[NOT_RUN] * 4, paper_ratio(relation, K)])
                continue
            rows.append([TITLES[relation], str(K), *naive_cells(record), paper_ratio(relation, K)])
    for size in GROWTH:
        record = results.one("growth", f"growth{size}", "both", 20)
        cells = [NOT_RUN] * 4 if record is None else naive_cells(record)
        rows.append([f"generated, {size:,} x {size:,}", "20", *cells, ""])
        missing += [(f"growth{size}", 20)] if record is None else []
    head = ["relation", "K", "naive", "linear", "naive / linear", "largest difference of q"]
    lines = markdown([*head, "the paper's ratio"], rows)
    if missing:
        clusters, parts = (K for _, K in missing), ("naive", "growth")
        call = command(results.runs, (r for r, _ in missing), clusters=clusters, parts=parts)
        lines += ["", f"Not run: {len(missing)} rows. {call}"]
    return lines


def naive_cells(record: dict[str, float]) -> list[str]:
    """Return seconds of both sweeps, their ratio, and the largest difference of memberships."""
    part = "" if record["share"] == 1.0 else f" (from {record['share']:.0%} of the objects)"
    difference = record["difference"]
    return [
        f"{format_number(record['naive'])}{part}",
        format_number(record["linear"]),
        f"{record['naive'] / record['linear']:,.0f}",
        "" if difference is None else f"{difference:.0e}",
    ]


def paper_ratio(relation: str, K: int) -> str:
    """Return the ratio of the naive and the linear time in the paper."""
    naive = published.value(published.LARGE, relation, "naive", K)
    linear = published.value(published.LARGE, relation, "linear", K)
    return "" if naive is None or linear is None else f"{naive.mean / linear.mean:.1f}"


def large_table(results: Results) -> list[str]:
    """Compare CPU seconds until 1e-5 with nothing unseen, and seconds per sweep."""
    rows, missing = [], []
    for relation in LARGE:
        records = {K: results.one("large", relation, IN_BATCHES, K) for K in CLUSTERS}
        default = results.one("large", relation, DEFAULT, UNTRUNCATED)
        known = next((one for one in (*records.values(), default) if one is not None), None)
        missing += [(relation, IN_BATCHES, K) for K, one in records.items() if one is None]
        missing += [(relation, DEFAULT, UNTRUNCATED)] if default is None else []
        size = ["", "", ""]
        if known is not None:
            density = known["links"] / (known["rows"] * known["columns"])
            size = [f"{known['rows']:,} x {known['columns']:,}", f"{known['links']:,}"]
            size.append(f"{density:.2%}")
        paper = [published.value(published.LARGE, relation, "linear", K) for K in CLUSTERS]
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
        call = command(results.runs, names, "LIMIT=86400", **only)
        lines += ["", f"Not run: {len(missing)} experiments. {call}"]
        absent = [TITLES[name] for name in LARGE if not is_available(name)]
        lines[-1] += f" (not in {FOLDER.name}: {', '.join(absent)})" if absent else ""
    return lines


def large_cell(record: dict[str, float] | None) -> str:
    """Return seconds until convergence, with > if stopped before, and seconds per sweep."""
    if record is None:
        return NOT_RUN
    sign = "" if record["converged"] else "> "
    total, each = (format_number(record["cpu"] / sweeps) for sweeps in (1, record["sweeps"]))
    return f"{sign}{total} ({each})"


# Experiments that are not in the paper


def comparison_table(results: Results, name: str) -> list[str]:
    """Compare held-out log likelihood, clusters and CPU seconds of variants with K = 20."""
    comparison = COMPARISONS[name]
    rows, missing = [], []
    for relation in comparison.relations:
        cells = []
        for variant in comparison.variants:
            scores = results.scores(relation, variant, 20)
            if scores is None:
                missing.append((relation, variant))
                cells.append(NOT_RUN)
                continue
            records = results.records(relation, variant, 20)
            K1, K2 = np.mean([record["clusters"] for record in records], axis=0)
            seconds = float(np.mean([record["cpu"] for record in records]))
            cells.append(f"{score_cell(scores)}; {K1:.0f} x {K2:.0f}; {format_number(seconds)} s")
        rows.append([TITLES[relation], *cells])
    head = ["relation", *comparison.variants.values()]
    return [*markdown(head, rows), *missing_line(results.runs, missing, [20], ["held-out"])]


def unseen_table(results: Results) -> list[str]:
    """Compare seconds per sweep of CVB0 on UserXUser for several shares of unseen cells."""
    relation, rows, missing = "lastfm_userxuser", [], 0
    none = results.one("missing", relation, "unseen0", 20)
    for share in SHARES_UNSEEN:
        record = results.one("missing", relation, f"unseen{share:g}", 20)
        if record is None:
            missing += 1
            rows.append([f"{share:.0%}", *[NOT_RUN] * 3])
            continue
        ratio = "" if none is None else f"{record['linear'] / none['linear']:.1f}"
        rows.append(
            [f"{share:.0%}", f"{record['unseen']:,}", format_number(record["linear"]), ratio]
        )
    lines = markdown(["unseen", "cells", "seconds per sweep", "ratio to none unseen"], rows)
    call = command(results.runs, [relation], parts=["missing"])
    return [*lines, "", f"Not run: {missing} rows. {call}"] if missing else lines
