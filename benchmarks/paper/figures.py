"""The figures of the page: small PNG files drawn from finished runs."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from data import whole_relation
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from PIL import Image

from paper.experiments import (
    CLUSTERS,
    CONVERGENCE,
    CURVES,
    GROWTH,
    METHOD_TITLES,
    PAPER_METHODS,
    PICTURES,
    SMALL,
    TITLES,
)
from paper.results import Results, seeds_of
from paper.store import write_atomically

COLOURS = {  # distinguishable with colour blindness (Okabe and Ito)
    "gibbs": "#E69F00",
    "vb": "#56B4E9",
    "acvb": "#009E73",
    "acvb0": "#D55E00",
    "default": "#000000",
}
RESOLUTION = 80  # dots per inch
LARGEST_FILE = 150_000  # bytes
PALETTE = 64  # colours of a file
PIXELS = 140  # rows, and columns, of a density


def draw_all(results: Results, folder: Path) -> dict[str, Path | None]:
    """Draw all figures; the value is None for a figure without finished runs."""
    drawn: dict[str, Figure | None] = {}
    for method in CONVERGENCE:
        drawn[f"convergence-{method}"] = convergence(results, method)
    for relation, K in CURVES:
        drawn[f"curve-{relation}-K{K}"] = curve(results, relation, K)
    for relation in PICTURES:
        drawn[f"blocks-{relation}"] = blocks(results, relation)
    drawn["growth"] = growth(results)
    return {name: _saved(figure, folder / f"{name}.png") for name, figure in drawn.items()}


def _saved(figure: Figure | None, path: Path) -> Path | None:
    """Write a figure; remove the file if there are no finished runs."""
    if figure is None:
        path.unlink(missing_ok=True)
        return None
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=RESOLUTION, format="png")
    picture = Image.open(buffer).convert("RGB").quantize(PALETTE)
    buffer = io.BytesIO()
    picture.save(buffer, format="png", optimize=True)
    if buffer.tell() > LARGEST_FILE:
        msg = (
            f"{path.name} has {buffer.tell():,} bytes, more than {LARGEST_FILE:,}. "
            "Lower RESOLUTION or PIXELS."
        )
        raise ValueError(msg)
    write_atomically(path, buffer.getvalue())
    return path


def _panels(count: int, width: float = 4.5, height: float = 3.2) -> tuple[Figure, Sequence[Axes]]:
    figure = Figure(figsize=(width * count, height), layout="constrained")
    return figure, list(np.atleast_1d(figure.subplots(1, count)))


def convergence(results: Results, method: str) -> Figure | None:
    """Draw naive VB bound (solid) and leave-one-out likelihood (dashed) over sweeps."""
    found = {relation: results.records(relation, method, 20) for relation in SMALL}
    if not any(found.values()):
        return None
    figure, axes = _panels(len(SMALL))
    for axis, (relation, records) in zip(axes, found.items(), strict=True):
        axis.set(title=f"{TITLES[relation]}, {method.upper()}", xlabel="sweep")
        if not records:
            _mark_not_run(axis)
            continue
        for quantity, style in (("bound", "-"), ("leave_one_out", "--")):
            length = min(len(record[quantity]) for record in records)
            values = np.array([record[quantity][:length] for record in records])
            mean, spread = values.mean(axis=0), values.std(axis=0)
            label = {"bound": "naive VB bound", "leave_one_out": "leave-one-out"}[quantity]
            sweeps = np.arange(1, length + 1)
            axis.errorbar(sweeps, mean, spread, ls=style, lw=1.2, elinewidth=0.5, label=label)
        low, high = np.percentile(
            np.concatenate([r["bound"] + r["leave_one_out"] for r in records]), (2, 98)
        )
        margin = 0.2 * (high - low)
        axis.set_ylim(low - margin, high + margin)  # outliers of second order are cut off
        axis.legend(fontsize=8, loc="lower right")
    return figure


def curve(results: Results, relation: str, K: int) -> Figure | None:
    """Draw held-out log likelihood over CPU time, one line per run, common seeds only."""
    found = {name: results.records(relation, name, K) for name in METHOD_TITLES}
    if not any(found[name] for name in PAPER_METHODS):
        return None
    shared = set.intersection(*(set(seeds_of(records)) for records in found.values() if records))
    found = {
        name: [record for record in records if record["job"]["seed"] in shared]
        for name, records in found.items()
    }
    if not shared:
        return None
    figure, (axis,) = _panels(1, 5.5, 3.6)
    ends = []
    for name, records in found.items():
        for position, record in enumerate(records):
            seconds, scores = np.array(record["curve"]).T
            ends.append(scores[-1])
            label = None if position else METHOD_TITLES[name]
            axis.plot(seconds, scores, color=COLOURS[name], lw=1, label=label)
            axis.plot(seconds[-1], scores[-1], "o", color=COLOURS[name], ms=4)
    span = max(np.ptp(ends), 0.05 * abs(max(ends)))
    axis.set(
        title=f"{TITLES[relation]}, K = {K}",
        xlabel="CPU seconds",
        ylabel="held-out log likelihood per cell",
        xscale="log",
        ylim=(min(ends) - 2 * span, max(ends) + 0.3 * span),
    )
    axis.legend(fontsize=8)
    return figure


def picture_clusters(results: Results, relation: str) -> int | None:
    """Return the largest K for which labels of one of the paper's methods are stored."""
    for K in reversed(CLUSTERS):
        if any(labelled_run(results, relation, name, K) for name in PAPER_METHODS):
            return K
    return None


def labelled_run(results: Results, relation: str, method: str, K: int) -> dict[str, Any] | None:
    """Return a run with stored labels."""
    records = results.records(relation, method, K)
    return next((record for record in records if "labels" in record), None)


def blocks(results: Results, relation: str) -> Figure | None:
    """Draw the relation sorted by the most probable clusters of each method."""
    K = picture_clusters(results, relation)
    if K is None:
        return None
    found = {name: labelled_run(results, relation, name, K) for name in METHOD_TITLES}
    X = whole_relation(relation, 0).tocoo()
    figure, axes = _panels(len(METHOD_TITLES), 2.3, 2.6)
    for axis, (name, record) in zip(axes, found.items(), strict=True):
        axis.set(title=METHOD_TITLES[name], xticks=[], yticks=[])
        if record is None:
            _mark_not_run(axis)
            continue
        sides = [np.array(labels) for labels in record["labels"]]
        orders = [np.argsort(labels, kind="stable") for labels in sides]
        ranks = [np.argsort(order) for order in orders]
        density, _, _ = np.histogram2d(
            ranks[0][X.row],
            ranks[1][X.col],
            bins=PIXELS,
            range=[[0, X.shape[0]], [0, X.shape[1]]],
        )
        axis.imshow(
            density,
            cmap="Blues",
            norm=PowerNorm(0.5),
            extent=(0, X.shape[1], X.shape[0], 0),
            aspect="auto",
        )
        for labels, draw in zip(sides, (axis.axhline, axis.axvline), strict=True):
            for edge in np.cumsum(np.bincount(labels))[:-1]:
                draw(edge, color="#D55E00", lw=0.3)
        axis.set_xlabel(f"{len(set(sides[0]))} x {len(set(sides[1]))}")
    return figure


def growth(results: Results) -> Figure | None:
    """Draw seconds per naive and linear sweep over the number of objects."""
    records = [results.one("growth", f"growth{size}", "both", 20) for size in GROWTH]
    known = [(size, one) for size, one in zip(GROWTH, records, strict=True) if one is not None]
    if len(known) < 2:
        return None
    figure, (axis,) = _panels(1)
    for form, colour in (("naive", COLOURS["vb"]), ("linear", COLOURS["acvb0"])):
        axis.loglog(*zip(*((n, one[form]) for n, one in known), strict=True), "o-", color=colour)
        size, record = known[-1]
        axis.annotate(form, (size, record[form]), xytext=(-40, 6), textcoords="offset points")
    axis.set(xlabel="rows, and columns", ylabel="CPU seconds per sweep", title="CVB0, K = 20")
    return figure


def _mark_not_run(axis: Axes) -> None:
    axis.text(0.5, 0.5, "not run", ha="center", va="center", transform=axis.transAxes)
