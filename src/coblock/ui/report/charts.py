"""Draw the trace of a fit as line charts in SVG."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from coblock.kernels import Floats
from coblock.model.trace import SweepRecord

MAX_POINTS = 400  # of a line
TICKS = 4  # approximate number of ticks on an axis
FRAME = {"width": 360, "height": 210, "left": 62, "right": 352, "top": 14, "bottom": 178}  # SVG
BOUND_NOTE = (
    "Lower bound of the log evidence. It jumps when the search tries another partition and when "
    "the final sweeps begin, then levels off."
)
CHANGE_NOTE = "Mean change of a membership in one sweep, on a logarithmic axis."
TOLERANCE_NOTE = " The dashed line is the tolerance."
CLUSTERS_NOTE = "Solid: row clusters. Dashed: column clusters."

Ticks = list[tuple[float, str]]  # coordinates and texts


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart with one or two lines."""

    title: str
    note: str
    names: list[str]
    paths: list[str]
    x_ticks: Ticks
    y_ticks: Ticks
    sweeps: list[int]
    values: list[list[float | None]]
    threshold: float | None  # y coordinate of the tolerance


@dataclass(frozen=True, slots=True)
class Scale:
    """A linear map from values, or their decimal logarithms, to SVG coordinates."""

    low: float
    high: float
    start: int
    end: int

    @classmethod
    def around(cls, values: Floats, start: int, end: int) -> "Scale":
        """Return a scale that contains all finite values; its ends always differ."""
        finite = values[np.isfinite(values)]
        low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
        margin = 0.5 if low == high else 0.0
        return cls(low - margin, high + margin, start, end)

    def __call__(self, value: Any) -> Any:
        """Return the coordinate of a value, or of each value of an array."""
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self, *, integer: bool = True, logarithmic: bool = False) -> Ticks:
        """Return the ticks at a few round numbers, or at integers only."""
        rough = (self.high - self.low) / TICKS
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(m * power for m in (1.0, 2.0, 5.0, 10.0) if m * power >= rough * 0.999)
        step = max(1.0, math.ceil(step)) if integer else step
        first, last = math.ceil(self.low / step), math.floor(self.high / step)
        values = [i * step for i in range(first, last + 1)]
        text = _power_of_ten if logarithmic else _number
        return [(round(self(value), 1), text(value)) for value in values]


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 10 or value == int(value) else f"{value:.3g}"


def _power_of_ten(exponent: float) -> str:
    return f"{10.0**exponent:g}" if abs(exponent) <= 3 else f"1e{exponent:.0f}"


def draw_charts(trace: Sequence[SweepRecord], tol: float | None) -> list[Chart]:
    """Return charts of the bound, the change and the numbers of clusters; none without a trace."""
    if not trace:
        return []
    points = np.linspace(0, len(trace) - 1, min(len(trace), MAX_POINTS)).astype(int)
    sweeps = [trace[i] for i in points]
    numbers, bound, change, rows, columns = np.array(
        [(s.sweep, s.bound, s.change, s.row_clusters, s.column_clusters) for s in sweeps]
    ).T
    change_note = CHANGE_NOTE if tol is None else CHANGE_NOTE + TOLERANCE_NOTE
    cluster_note, clusters = CLUSTERS_NOTE, {"rows": rows, "columns": columns}
    if np.array_equal(rows, columns):
        cluster_note, clusters = "", {"clusters": rows}
    return [
        _chart("Bound", BOUND_NOTE, numbers, {"bound": bound}, integer=False),
        _chart("Change", change_note, numbers, {"change": change}, logarithmic=True, tol=tol),
        _chart("Clusters in use", cluster_note, numbers, clusters),
    ]


def _chart(
    title: str,
    note: str,
    numbers: Floats,
    series: dict[str, Floats],
    *,
    integer: bool = True,
    logarithmic: bool = False,
    tol: float | None = None,
) -> Chart:
    lines = list(series.values())
    if logarithmic:
        lines = [np.log10(v, out=np.full(v.size, np.nan), where=v > 0) for v in lines]
    threshold = [] if tol is None else [math.log10(tol)]
    x = Scale.around(numbers, FRAME["left"], FRAME["right"])
    y = Scale.around(np.concatenate([*lines, threshold]), FRAME["bottom"], FRAME["top"])
    return Chart(
        title,
        note,
        list(series),
        [_path(x(numbers), y(line)) for line in lines],
        x.ticks(),
        y.ticks(integer=integer, logarithmic=logarithmic),
        numbers.astype(int).tolist(),
        [[_json_number(value) for value in line.tolist()] for line in series.values()],
        round(y(threshold[0]), 1) if threshold else None,
    )


def _path(x: Floats, y: Floats) -> str:
    """Return the SVG path of a line, interrupted at points that are not finite."""
    path, is_drawing = [], False
    for across, down in zip(x, y, strict=True):
        if math.isfinite(down):  # "h0" repeats the first point, so that a single one is a dot
            point = f"{across:.1f} {down:.1f}"
            path.append(f"L{point}" if is_drawing else f"M{point}h0")
        is_drawing = math.isfinite(down)
    return "".join(path)


def _json_number(value: float) -> float | None:
    """Return a value with seven digits; None if it is not finite, which JSON cannot express."""
    return float(f"{value:.7g}") if math.isfinite(value) else None
