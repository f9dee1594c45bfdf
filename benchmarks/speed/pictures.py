"""Pictures of the speed benchmarks."""

from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt

mpl.use("Agg")
mpl.rcParams["svg.hashsalt"] = "coblock"  # the same figures give the same file
RELATIONS = ("artistxtag", "ml1m", "20,000", "200,000")


def draw_growth(growth: dict, path: Path) -> None:
    """Draw the time of a sweep against the number of links, beside growth in proportion."""
    links, seconds = growth["links"], growth["seconds"]
    figure, axes = plt.subplots(figsize=(5, 3.2), layout="constrained")
    axes.loglog(links, [seconds[0] * count / links[0] for count in links], color="0.7")
    axes.loglog(links, seconds, "o-")
    axes.set_xlabel("links (grey: in proportion)")
    axes.set_ylabel("seconds a sweep")
    axes.set_title(f"exponent {growth['exponent']:.2f}")
    save(figure, path)


def draw_peers(answers: dict[str, dict], path: Path) -> None:
    """Draw time against evidence, a panel for each relation; up and left is better."""
    figure, panels = plt.subplots(2, 2, figsize=(8, 6), layout="constrained")
    for axes, relation in zip(panels.flat, RELATIONS, strict=True):
        axes.set_title(relation)
        axes.set_xlabel("seconds")
        axes.set_ylabel("evidence")
        axes.set_xscale("log")
        axes.margins(0.25)
        for name, fit in answers.items():
            program, _, source = name.partition(" ")
            if source == relation and "evidence" in fit:
                label = "coblock" if program == "fit" else program
                axes.plot(fit["seconds"], fit["evidence"], "o")
                at = (fit["seconds"], fit["evidence"])
                axes.annotate(label, at, xytext=(4, 4), textcoords="offset points")
    save(figure, path)


def save(figure: plt.Figure, path: Path) -> None:
    """Write a picture and let go of it."""
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
