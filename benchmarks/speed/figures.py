"""Figures of the speed benchmarks."""

from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
from matplotlib.ticker import EngFormatter, Formatter, LogLocator, NullFormatter, StrMethodFormatter

mpl.use("Agg")
mpl.rcParams["svg.hashsalt"] = "coblock"  # the same numbers give the same file
RELATIONS = {
    "artistxtag": "Last.fm, artists and tags",
    "ml1m": "MovieLens, 1 M ratings",
    "20,000": "generated, 20,000 x 5,000",
    "200,000": "generated, 200,000 x 20,000",
}
COLOURS = {  # of each program
    "fit": "tab:blue",
    "graph-tool": "tab:orange",
    "spectral": "tab:green",
    "leiden": "tab:red",
    "sparsebm": "tab:purple",
}
NAMES = {"fit": "coblock", "spectral": "SpectralCoclustering", "leiden": "Leiden"}


def draw_growth(growth: dict, path: Path) -> None:
    """Draw the time of a sweep over the number of links, and proportional growth in grey."""
    links, seconds = growth["links"], growth["seconds"]
    figure, axes = plt.subplots(figsize=(5, 3.2), layout="constrained")
    axes.loglog(links, [seconds[0] * count / links[0] for count in links], color="0.7")
    axes.loglog(links, seconds, "o-")
    format_log_axis(axes, EngFormatter(sep=""))
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("links (grey: proportional)")
    axes.set_ylabel("seconds per sweep")
    axes.set_title(f"exponent {growth['exponent']:.2f}")
    save(figure, path)


def draw_peers(answers: dict[str, dict], path: Path) -> None:
    """Draw evidence over time, one panel per relation; up and left is better."""
    figure, panels = plt.subplots(2, 2, figsize=(8, 6), layout="constrained")
    markers: dict[str, plt.Line2D] = {}
    for axes, (relation, title) in zip(panels.flat, RELATIONS.items(), strict=True):
        axes.set_title(title)
        axes.set_xlabel("seconds")
        axes.set_ylabel("log evidence")
        axes.set_xscale("log")
        axes.margins(0.35)
        for name, fit in answers.items():
            program, _, source = name.partition(" ")
            if source == relation and program in COLOURS and "evidence" in fit:
                label = NAMES.get(program, program)
                point = (fit["seconds"], fit["evidence"])
                (markers[label],) = axes.plot(*point, "o", color=COLOURS[program])
        format_log_axis(axes, StrMethodFormatter("{x:g}"))
        axes.yaxis.set_major_formatter(EngFormatter(sep=""))
    figure.legend(markers.values(), markers, loc="outside lower center", ncols=5, frameon=False)
    save(figure, path)


def format_log_axis(axes: plt.Axes, formatter: Formatter) -> None:
    """Set few ticks without exponents on a logarithmic horizontal axis."""
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.xaxis.set_major_formatter(formatter)
    axes.xaxis.set_minor_formatter(NullFormatter())


def save(figure: plt.Figure, path: Path) -> None:
    """Write a figure and close it."""
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
