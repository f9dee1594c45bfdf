"""The page of the speed benchmarks: every number comes from a measurement."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt

DOCS = Path(__file__).parents[2] / "docs"
Answers = dict[str, dict]


def ratio(answers: Answers, ours: str, theirs: str, key: str = "seconds") -> str:
    """Return our time over theirs; a peer that did not end counts as its bound."""
    mine, other = answers[ours], answers[theirs]
    mark = "" if other.get("ended", True) else " (the peer was stopped at its bound)"
    return f"{mine[key] / other[key]:.2f}{mark}"


def better(answers: Answers, ours: str, theirs: str) -> str:
    """Say how the evidence compares."""
    if "evidence" not in answers[theirs]:
        return "the peer has no result"
    return f"evidence {answers[ours]['evidence']:,.0f} against {answers[theirs]['evidence']:,.0f}"


def found(answers: Answers, name: str) -> str:
    """Say what a default fit has found of the truth."""
    fit = answers[name]
    return (
        f"{fit['clusters'][0]} x {fit['clusters'][1]} clusters, row ARI {fit['ari']:.3f} of "
        f"{fit['best']:.3f}, {fit['seconds']:.1f} s"
    )


def products(answers: Answers, name: str) -> str:
    """Return the time of a sweep over that of the two products it cannot avoid."""
    sweep = answers[name]
    settled, everybody = (sweep[key] / sweep["products"] for key in ("sweep", "everybody"))
    return f"{settled:.1f} (everybody visited: {everybody:.1f})"


def against_graph_tool(answers: Answers, source: str) -> str:
    """Compare a default fit with graph-tool's."""
    pair = (answers, f"fit {source}", f"graph-tool {source}")
    return f"{ratio(*pair)}; {better(*pair)}"


def against_spectral(answers: Answers, size: str) -> str:
    """Compare a default fit with SpectralCoclustering, which is told the number of clusters."""
    ours, theirs = f"fit {size}", f"spectral {size}"
    return (
        f"{ratio(answers, ours, theirs)}; {found(answers, ours)} (SpectralCoclustering: ARI "
        f"{answers[theirs]['ari']:.3f}, {answers[theirs]['seconds']:.1f} s)"
    )


def netflix(answers: Answers) -> str:
    """Say how the largest fit went."""
    fit = answers["fit netflix"]
    end = "converged" if fit["converged"] else "not converged"
    return f"{fit['seconds'] / 60:.1f} min, {fit['links'] / 1e6:.1f} M links, {end}"


LINES: list[tuple[str, str, str, Callable[[Answers], str]]] = [
    (
        "ml1m, K = 40, one thread: settled sweep ÷ (X @ R plus X.T @ Q by SciPy)",
        "5",
        "3",
        lambda a: products(a, "sweep ml1m"),
    ),
    ("ArtistXTag, K = 80: the same", "40", "15", lambda a: products(a, "sweep artistxtag")),
    (
        "two threads ÷ one thread, sweep on imdb50k, K = 40",
        "0.6",
        "0.53",
        lambda a: f"{a['threads']['ratio']:.2f}",
    ),
    (
        "default fit, ArtistXTag: time ÷ graph-tool's nested fit",
        "0.5, better evidence",
        "0.2",
        lambda a: against_graph_tool(a, "artistxtag"),
    ),
    (
        "default fit, ml1m: time ÷ graph-tool's flat fit",
        "0.5, better evidence",
        "0.1",
        lambda a: against_graph_tool(a, "ml1m"),
    ),
    (
        "default fit, generated 20,000 x 5,000, 12 x 10 blocks, 0.8 M links: time ÷ "
        "SpectralCoclustering with the true K",
        "4, ARI 0.95",
        "2",
        lambda a: against_spectral(a, "20,000"),
    ),
    (
        "the same, 200,000 x 20,000, 20 x 15 blocks, 5 M links",
        "8, ARI 0.93",
        "3",
        lambda a: against_spectral(a, "200,000"),
    ),
    (
        "rows and links doubled three times, K = 20: exponent of the sweep's time",
        "1.1",
        "1.0",
        lambda a: f"{a['growth']['exponent']:.2f}",
    ),
    (
        "480,189 x 17,770, heavy-tailed degrees, K = 60, to convergence",
        "30 min",
        "10 min",
        netflix,
    ),
    (
        "its peak memory, the links as given included",
        "2 GB",
        "1 GB",
        lambda a: f"{a['fit netflix']['peak'] / 1e9:.2f} GB",
    ),
    (
        "growth of memory in that fit ÷ bytes of links by row and by column plus memberships",
        "2.5",
        "",
        lambda a: f"{a['fit netflix']['grown'] / a['fit netflix']['needed']:.2f}",
    ),
    (
        "a second process, from its start to the end of a first sweep",
        "3 s",
        "",
        lambda a: f"{a['first use']['seconds']:.1f} s",
    ),
]


def write_page(answers: Answers, machine: str) -> None:
    """Write docs/benchmarks.md with everything that was measured."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    lines = [
        "# Speed",
        "",
        "Written by `make bench`; every figure is measured. "
        f"Commit {commit}, {machine}. Ratios are from one run; every measurement has a process. "
        "Peers are seeded (graph-tool: seeds 1 to 3, the median time and the best of three) and "
        "stopped after 600 s.",
        "",
        "| measure | must | aim | found |",
        "|---|---|---|---|",
    ]
    for measure, must, aim, cell in LINES:
        lines.append(f"| {measure} | {must} | {aim} | {_or_not_run(cell, answers)} |")
    lines += [
        "",
        "## All fits",
        "",
        "| fit | seconds | clusters | evidence | row ARI | peak memory |",
    ]
    lines.append("|---|---|---|---|---|---|")
    lines += [
        _fit_line(name, fit)
        for name, fit in answers.items()
        if "seconds" in fit and "clusters" in fit
    ]
    if "growth" in answers and "links" in answers["growth"]:
        _draw_growth(answers["growth"])
        lines += ["", "![Time of a sweep against the number of links](images/growth.svg)"]
    (DOCS / "benchmarks.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _or_not_run(cell: Callable[[Answers], str], answers: Answers) -> str:
    try:
        return cell(answers)
    except KeyError:
        return "not run"


def _fit_line(name: str, fit: dict) -> str:
    ari = f"{fit['ari']:.3f}" if "ari" in fit else ""
    peak = f"{fit['peak'] / 1e9:.2f} GB" if "peak" in fit else ""
    stopped = "" if fit.get("ended", True) else " (stopped)"
    shape = f"{fit['clusters'][0]} x {fit['clusters'][1]}"
    seconds, evidence = f"{fit['seconds']:.1f}{stopped}", f"{fit['evidence']:,.0f}"
    return f"| {name} | {seconds} | {shape} | {evidence} | {ari} | {peak} |"


def _draw_growth(growth: dict) -> None:
    figure, axes = plt.subplots(figsize=(5, 3.2), layout="constrained")
    axes.loglog(growth["links"], growth["seconds"], "o-")
    axes.set_xlabel("links")
    axes.set_ylabel("seconds a sweep")
    axes.set_title(f"exponent {growth['exponent']:.2f}")
    figure.savefig(DOCS / "images" / "growth.svg", metadata={"Date": None})
