"""The page of the speed benchmarks; every number comes from a measurement."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from speed.figures import draw_growth, draw_peers
from speed.peer_runs import TIME_LIMIT
from speed.tasks import SWEEPS

Answers = dict[str, dict]


def ratio(ours: dict, theirs: dict) -> str:
    """Return the ratio of the times; a peer that was stopped counts with its time limit."""
    mark = "" if theirs["ended"] else f" at most (the peer was stopped after {TIME_LIMIT} s)"
    return f"{ours['seconds'] / theirs['seconds']:.2f}{mark}"


def against_graph_tool(ours: dict, theirs: dict) -> str:
    """Compare a default fit with one of graph-tool."""
    other = f"{theirs['evidence']:,.0f}" if "evidence" in theirs else "no result"
    return f"{ratio(ours, theirs)}; evidence {ours['evidence']:,.0f} against {other}"


def against_spectral(ours: dict, theirs: dict) -> str:
    """Compare a default fit with SpectralCoclustering, which gets the number of clusters."""
    clusters = f"{ours['clusters'][0]} x {ours['clusters'][1]} clusters"
    found = f"{clusters}, row ARI {ours['ari']:.3f} of {ours['best']:.3f}"
    return f"{ratio(ours, theirs)}; {found} (the peer: {theirs['ari']:.3f})"


def describe_fit(fit: dict) -> str:
    """Return time and links of a fit and whether it converged."""
    end = "converged" if fit["converged"] else "not converged"
    return f"{fit['seconds'] / 60:.1f} min, {fit['links'] / 1e6:.1f} M links, {end}"


def memory_growth(fit: dict) -> str:
    """Return the growth of memory divided by the size of links and memberships."""
    each = [f"{grown / fit['needed']:.2f}" for grown in fit["each grown"]]
    return " (first fit), ".join(each[:2]) + (" (second fit)" if len(each) > 1 else "")


def memory_growth_in_bytes(fit: dict) -> str:
    """Return the same with the bytes, for a relation so small that a constant part dominates."""
    grown, needed = (f"{fit[key] / 1e6:.1f} MB" for key in ("grown", "needed"))
    return f"{memory_growth(fit)}: {grown} for {needed}"


def describe_threads(threads: dict) -> str:
    """Return the ratio of whole fits on two threads and on one, and the serial CPU time."""
    return f"{threads['ratio']:.2f}; serial {threads['serial']:.0%} of {threads['cpu']:.1f} CPU s"


def describe_cpu(fit: dict) -> str:
    """Return CPU time and evidence of a fit."""
    return f"{fit['cpu']:.1f} CPU s; evidence {fit['evidence']:,.0f}"


def describe_means(fits: dict) -> str:
    """Return the means of CPU time and evidence of fits with several seeds."""
    return f"{describe_cpu(fits)} (means of {fits['seeds']} seeds)"


def links_exponent(*fits: dict) -> str:
    """Return the exponent of the CPU time of whole fits in their links."""
    links, seconds = ([fit[key] for fit in fits] for key in ("links", "cpu"))
    exponent = np.polyfit(np.log(links), np.log(seconds), 1)[0]
    return f"{exponent:.2f}; {', '.join(f'{cpu:.0f}' for cpu in seconds)} CPU s"


def describe_reading(found: dict) -> str:
    """Return the growth of memory by reading, per edge and relative to the links held."""
    per_edge, share = found["grown"] / found["edges"], found["grown"] / found["held"]
    return f"{per_edge:.0f} bytes per edge, {share:.1f}; {found['cpu']:.1f} CPU s"


def against_leiden(ours: dict, theirs: dict) -> str:
    """Compare a degree-corrected fit with Leiden."""
    return f"{ratio(ours, theirs)}; ARI {ours['ari']:.3f}"


@dataclass(frozen=True)
class Row:
    """A row of the table: a measure, its requirement and aim, and the measurements it needs."""

    measure: str
    must: str
    aim: str
    tasks: tuple[str, ...]
    cell: Callable[..., str]

    def found(self, answers: Answers, source: str) -> str:
        """Return the result, or the reason why there is none."""
        for task in self.tasks:
            if task not in answers:
                return "not run"
            if "missing" in answers[task]:
                return f"{task}: not installed here ({answers[task]['missing']})"
        used = [answers[task] for task in self.tasks]
        return self.cell(*used) + mark_source(used, source)


def mark_source(used: list[dict], source: str) -> str:
    """Return a note on measurements at another commit."""
    other = sorted({answer["source"] for answer in used} - {source})
    return f" (measured at {', '.join(other)})" if other else ""


GROWTH = "growth of memory in a fit ÷ bytes of links by row and by column plus memberships"
ROWS = [
    Row(
        "two threads ÷ one thread, sweeps on imdb50k, K = 40",
        "0.6",
        "0.53",
        ("threads",),
        lambda threads: f"{threads['ratio']:.2f}",
    ),
    Row(
        "default fit, ArtistXTag: time ÷ graph-tool's nested fit",
        "0.5, better evidence",
        "0.2",
        ("fit artistxtag", "graph-tool artistxtag"),
        against_graph_tool,
    ),
    Row(
        "default fit, ml1m: time ÷ graph-tool's flat fit",
        "0.5, better evidence",
        "0.1",
        ("fit ml1m", "graph-tool ml1m"),
        against_graph_tool,
    ),
    Row(
        "default fit, generated 20,000 x 5,000, 12 x 10 blocks, 0.8 M links: time ÷ "
        "SpectralCoclustering with the true K",
        "4, ARI 0.95",
        "2",
        ("fit 20,000", "spectral 20,000"),
        against_spectral,
    ),
    Row(
        "the same, 200,000 x 20,000, 20 x 15 blocks, 5 M links",
        "1.2, ARI 0.93",
        "0.8",
        ("fit 200,000", "spectral 200,000"),
        against_spectral,
    ),
    Row(
        "rows and links doubled three times, K = 20: exponent of the time of a sweep",
        "1.1",
        "1.0",
        ("growth",),
        lambda growth: f"{growth['exponent']:.2f}",
    ),
    *(
        Row(
            f"two threads ÷ one thread, default fit, {name}",
            "0.65",
            "0.55",
            (f"threads {name}",),
            describe_threads,
        )
        for name in ("artistxtag", "ml1m", "imdb50k")
    ),
    Row("default fit, gowalla", "40, -5,245,000", "20", ("fit gowalla",), describe_cpu),
    Row("default fits, ml1m", "18, -2,438,000", "10", ("mean ml1m",), describe_means),
    Row("default fits, ArtistXTag", "3.5, -92,400", "1.5", ("mean artistxtag",), describe_means),
    Row("default fits, UserXUser", "1.5, -95,300", "1", ("mean userxuser",), describe_means),
    Row(
        "24,000 x 24,000, 20 links per object, 20, 80 and 320 clusters: exponent of the CPU time "
        "per sweep, moves included, in the clusters",
        "0.3",
        "0.1",
        ("clusters",),
        lambda found: f"{found['exponent']:.2f}",
    ),
    Row(
        "links 1 and 10 M, K = 30: exponent of the CPU time of a whole fit",
        "1.1",
        "1.0",
        ("fit 1 M", "fit 10 M"),
        links_exponent,
    ),
    Row(
        "links 1, 10 and 100 M: the same",
        "1.1",
        "1.0",
        ("fit 1 M", "fit 10 M", "fit 100 M"),
        links_exponent,
    ),
    Row(
        "100 M links, 4 M x 0.4 M objects, 2 threads",
        "6 GB, 20 min",
        "4 GB, 10 min",
        ("fit 100 M",),
        lambda fit: f"{fit['peak'] / 1e9:.1f} GB, {fit['seconds'] / 60:.0f} min",
    ),
    *(
        Row(
            f"reading 10 M edges with names, {name}: growth of memory, and ÷ bytes of the links",
            "",
            "",
            (f"read {suffix}",),
            describe_reading,
        )
        for name, suffix in (("CSV", "csv"), ("Parquet", "parquet"))
    ),
    Row(
        "gc_20000, degree-corrected: time ÷ Leiden's",
        "3",
        "1",
        ("fit gc_20000", "leiden gc_20000"),
        against_leiden,
    ),
    Row(
        "1 M nodes, 24 M links, 125 clusters, Gamma degrees, degree-corrected, 2 threads",
        "ARI 0.99, 40 min",
        "15 min",
        ("fit 1 M nodes",),
        lambda fit: (
            f"ARI {fit['ari']:.4f}, {fit['seconds'] / 60:.1f} min, {fit['peak'] / 1e9:.1f} GB"
        ),
    ),
    Row(
        "20,000 nodes, 0.48 M links, 3 clusters, power-law degrees, degree-corrected",
        "",
        "",
        ("fit 20,000 nodes",),
        lambda fit: f"{fit['clusters'][0]} clusters, ARI {fit['ari']:.2f}, {fit['cpu']:.0f} CPU s",
    ),
    Row(
        "480,189 x 17,770, heavy-tailed degrees, K = 60, to convergence",
        "30 min",
        "10 min",
        ("fit netflix",),
        describe_fit,
    ),
    Row(
        "its peak memory, including Python, libraries and the links as given",
        "2 GB",
        "1 GB",
        ("fit netflix",),
        lambda fit: f"{fit['peak'] / 1e9:.2f} GB",
    ),
    Row(GROWTH + ": 20,000 x 5,000", "2.5", "", ("fit 20,000",), memory_growth),
    Row("the same, 200,000 x 20,000", "2.5", "", ("fit 200,000",), memory_growth),
    Row("the same, 480,189 x 17,770", "2.5", "", ("fit netflix",), memory_growth),
    Row("the same, ml1m", "2.5", "", ("fit ml1m",), memory_growth),
    Row("the same, ArtistXTag", "2.5", "", ("fit artistxtag",), memory_growth_in_bytes),
    Row(
        "a second process, from its start to the end of a first sweep",
        "3 s",
        "",
        ("first use",),
        lambda use: f"{use['seconds']:.1f} s",
    ),
]

HEAD = """# Speed

Written by `make bench` from measurements at commit {source}{others}, on {machine}. Every
measurement runs in its own process. Other programs have a fixed seed, and their runs are stopped
after {time_limit} s. graph-tool runs with seeds 1 to 3; the table has the median time, the largest
memory and the best result. The evidence of all programs is that of their labels under coblock's
model.

The sweeps that are timed are sweeps 2 to {sweeps} of plain CVB0 from the spectral start. The growth
of memory is the peak of resident memory during a fit minus the memory that was resident before:
Python, libraries, kernels (loaded by a small fit) and the links as given. Memory freed before the
fit has been returned to the system. The peak memory of a process includes everything: the links as
given and, for a peer, its libraries.

| measure | must | aim | found |
|---|---|---|---|
"""
FITS = """
## All fits

| fit | seconds | clusters | evidence | row ARI | peak memory |
|---|---|---|---|---|---|
"""


def write_page(answers: Answers, machine: str, docs: Path) -> None:
    """Write benchmarks.md and its figures from the finished measurements."""
    counts = Counter(answer["source"] for answer in answers.values())
    source = counts.most_common(1)[0][0] if counts else "unknown"
    others = " unless another one is stated" if len(counts) > 1 else ""
    head = HEAD.format(
        source=source, others=others, machine=machine, time_limit=TIME_LIMIT, sweeps=SWEEPS
    )
    lines = [
        f"| {row.measure} | {row.must} | {row.aim} | {row.found(answers, source)} |" for row in ROWS
    ]
    fits = [fit_row(name, answers[name], source) for name in answers if is_fit(name)]
    figures = []
    (docs / "images").mkdir(exist_ok=True)
    if any("evidence" in answer for answer in answers.values()):
        draw_peers(answers, docs / "images" / "peers.svg")
        figures.append("![Time and evidence of coblock and its peers](images/peers.svg)")
    if "growth" in answers:
        draw_growth(answers["growth"], docs / "images" / "growth.svg")
        figures.append("![Time of a sweep against the number of links](images/growth.svg)")
    text = head + "\n".join(lines) + "\n" + FITS + "\n".join(fits) + "\n" + memory_table(answers)
    text += "".join(f"\n{figure}\n" for figure in figures)
    (docs / "benchmarks.md").write_text(text, encoding="utf-8")


MEMORY = """
## Memory by the number of links

A fit holds eight bytes for each link, for each object two offsets of eight bytes and a label of
four bytes, and eight bytes for each object and cluster at its end. Grown is the measured growth of
memory in a fit of generated relations with 25 links per row and 250 per column; it includes the
spectral start. The last row is the sum of the arrays that a fit of 10⁹ links holds, and what
remains of them in memory if the links are mapped from files ([Huge data](howto/huge-data.md)).

| links | objects | links | offsets and labels | memberships, K = 30 | sum | grown |
|---|---|---|---|---|---|---|
"""
LINKS_PER_ROW, LINKS_PER_COLUMN, CLUSTERS = 25, 250, 30


def memory_row(links: float, grown: str) -> str:
    """Return the bytes that a fit of so many links holds, beside what was measured."""
    objects = links / LINKS_PER_ROW + links / LINKS_PER_COLUMN
    parts = [8 * links, (2 * 8 + 4) * objects, 8 * CLUSTERS * objects]
    cells = " | ".join(f"{size / 1e9:.3g} GB" for size in (*parts, sum(parts)))
    return f"| {links:,.0f} | {objects:,.0f} | {cells} | {grown} |"


def memory_table(answers: Answers) -> str:
    """Return the section on memory; the growth is that of the fits that were measured."""
    names = {1e6: "fit 1 M", 1e7: "fit 10 M", 1e8: "fit 100 M"}
    lines = []
    for links, name in names.items():
        fit = answers.get(name)
        lines.append(memory_row(links, f"{fit['grown'] / 1e9:.3g} GB" if fit else "not run"))
    objects = 1e9 / LINKS_PER_ROW + 1e9 / LINKS_PER_COLUMN
    rest = (2 * 8 + 4 + 8 * CLUSTERS) * objects
    lines.append(memory_row(1e9, f"not run; {rest / 1e9:.3g} GB with mapped links"))
    return MEMORY + "\n".join(lines) + "\n"


def is_fit(name: str) -> bool:
    """Return whether a measurement is a fit of coblock or of a peer."""
    return name.partition(" ")[0] in {"fit", "graph-tool", "spectral", "leiden", "sparsebm"}


def fit_row(name: str, fit: dict, source: str) -> str:
    """Return the row of one fit."""
    if "missing" in fit:
        return f"| {name} | not installed here: {fit['missing']} | | | | |"
    seconds = f"{fit['seconds']:.1f}" + ("" if fit.get("ended", True) else " (stopped)")
    shape = "{} x {}".format(*fit["clusters"]) if "clusters" in fit else "none"
    evidence = f"{fit['evidence']:,.0f}" if "evidence" in fit else "none"
    ari = f"{fit['ari']:.3f}" if "ari" in fit else ""
    memory = f"{fit['peak'] / 1e9:.2f} GB"
    name += mark_source([fit], source)
    return f"| {name} | {seconds} | {shape} | {evidence} | {ari} | {memory} |"
