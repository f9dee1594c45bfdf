"""The course of the fit as line charts in SVG."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from coblock.inference.report import Sweep
from coblock.kernels import Floats

WIDTH, HEIGHT = 360, 210
LEFT, RIGHT, TOP, BOTTOM = 62, 352, 14, 178  # the frame within
MOST_POINTS = 400
TICKS = 4


@dataclass(frozen=True, slots=True)
class Tick:
    """A number at an axis."""

    at: float
    text: str


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a chart."""

    name: str
    path: str
    style: str  # a class of the style sheet


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart whose lines share both axes; ``sweeps`` and ``values`` are what it shows."""

    title: str
    note: str
    lines: list[Line]
    x_ticks: list[Tick]
    y_ticks: list[Tick]
    sweeps: list[int]
    values: list[list[float | None]]
    threshold: float | None = None  # where on the page the horizontal line of the tolerance is


def charts(trace: Sequence[Sweep], tol: float | None) -> list[Chart]:
    """Return bound, change and numbers of clusters by sweep; none for an empty trace."""
    shown = _thinned(trace)
    if not shown:
        return []
    one_count = all(sweep.row_clusters == sweep.column_clusters for sweep in trace)
    clusters = {"rows": [float(sweep.row_clusters) for sweep in shown]}
    if not one_count:
        clusters["columns"] = [float(sweep.column_clusters) for sweep in shown]
    change = {"change": [sweep.change for sweep in shown]}
    return [
        _chart(
            "Bound",
            "Lower bound of the log evidence. It jumps where the search tries other partitions and "
            "where the final sweeps begin, then levels off.",
            shown,
            {"bound": [sweep.bound for sweep in shown]},
        ),
        _chart(
            "Change",
            "Mean change of a membership in one sweep, on a logarithmic axis."
            + (" The dashed line is the tolerance." if tol else ""),
            shown,
            change,
            logarithmic=True,
            tol=tol,
        ),
        _chart(
            "Clusters in use",
            "" if one_count else "Solid: row clusters. Dashed: column clusters.",
            shown,
            clusters,
        ),
    ]


def _thinned(trace: Sequence[Sweep]) -> list[Sweep]:
    """Return at most so many sweeps as a chart can show, the first and the last among them."""
    if len(trace) <= MOST_POINTS:
        return list(trace)
    return [trace[i] for i in np.linspace(0, len(trace) - 1, MOST_POINTS).astype(int)]


def _chart(
    title: str,
    note: str,
    sweeps: Sequence[Sweep],
    series: dict[str, list[float]],
    *,
    logarithmic: bool = False,
    tol: float | None = None,
) -> Chart:
    values = {name: _on_axis(line, logarithmic) for name, line in series.items()}
    line_at = math.log10(tol) if logarithmic and tol else None
    every = np.concatenate([*values.values(), [] if line_at is None else [line_at]])
    low, high = _limits(every[np.isfinite(every)])
    x_low, x_high = _limits(np.array([sweeps[0].sweep, sweeps[-1].sweep], dtype=float))
    x = [LEFT + (sweep.sweep - x_low) / (x_high - x_low) * (RIGHT - LEFT) for sweep in sweeps]

    def height(value: float) -> float:
        return BOTTOM - (value - low) / (high - low) * (BOTTOM - TOP)

    styles = ("first", "second")
    return Chart(
        title,
        note,
        [
            Line(name, _path(x, [height(v) for v in line]), style)
            for (name, line), style in zip(values.items(), styles, strict=False)
        ],
        [
            Tick(round(LEFT + (t - x_low) / (x_high - x_low) * (RIGHT - LEFT), 1), f"{t:,.0f}")
            for t in _round_numbers(x_low, x_high, whole=True)
        ],
        [
            Tick(round(height(t), 1), _tick_text(t, logarithmic))
            for t in _round_numbers(low, high, whole=logarithmic or title != "Bound")
        ],
        [sweep.sweep for sweep in sweeps],
        [[_short(v) for v in line] for line in series.values()],
        None if line_at is None else round(height(line_at), 1),
    )


def _on_axis(line: list[float], logarithmic: bool) -> Floats:
    """Return heights; what has no logarithm is left out."""
    values = np.array(line, dtype=float)
    if not logarithmic:
        return values
    return np.log10(values, out=np.full(values.size, np.nan), where=values > 0)


def _limits(values: Floats) -> tuple[float, float]:
    """Return the ends of an axis, never the same number twice."""
    if values.size == 0:
        return 0.0, 1.0
    low, high = float(values.min()), float(values.max())
    return (low, high) if high > low else (low - 0.5, low + 0.5)


def _round_numbers(low: float, high: float, *, whole: bool) -> list[float]:
    """Return a few round numbers between the ends of an axis."""
    rough = (high - low) / TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1.0, 2.0, 5.0, 10.0) if m * power >= rough * 0.999)
    if whole:
        step = max(1.0, math.ceil(step))
    return [i * step for i in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _tick_text(value: float, logarithmic: bool) -> str:
    if logarithmic:
        return f"1e{value:.0f}" if value < -3 or value > 3 else f"{10.0**value:g}"
    return f"{value:,.0f}" if abs(value) >= 10 or value == int(value) else f"{value:.3g}"


def _path(x: Sequence[float], y: Sequence[float]) -> str:
    """Return the line through all finite points."""
    points = [(a, b) for a, b in zip(x, y, strict=True) if math.isfinite(b)]
    if len(points) == 1:
        a, b = points[0]
        points.append((a + 0.1, b))  # a dot: round caps show a line of no length
    return "M" + "L".join(f"{a:.1f} {b:.1f}" for a, b in points) if points else ""


def _short(value: float) -> float | None:
    """Return the value with the digits that a reader can use; JSON knows no infinity."""
    return float(f"{value:.7g}") if math.isfinite(value) else None
