"""The course of the fit as line charts in SVG."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from coblock.kernels import Floats
from coblock.model.trace import Sweep

MOST_POINTS = 400
TICKS = 4  # about so many numbers at an axis


@dataclass(frozen=True, slots=True)
class Frame:
    """The size of a chart and where its frame stands within."""

    width: int = 360
    height: int = 210
    left: int = 62
    right: int = 352
    top: int = 14
    bottom: int = 178


FRAME = Frame()


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
    threshold: float | None  # where the horizontal line of the tolerance stands


@dataclass(frozen=True, slots=True)
class Scale:
    """Takes values to places of the chart."""

    low: float
    high: float
    begin: int
    end: int
    whole: bool = True  # ticks at whole numbers only
    logarithmic: bool = False

    @classmethod
    def around(cls, values: Floats, begin: int, end: int, **options: bool) -> "Scale":
        """Return a scale that all finite values fit on; its ends always differ."""
        finite = values[np.isfinite(values)]
        low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
        if low == high:
            low, high = low - 0.5, high + 0.5
        return cls(low, high, begin, end, **options)

    def __call__(self, value: float) -> float:
        """Return where on the chart a value stands."""
        return self.begin + (value - self.low) / (self.high - self.low) * (self.end - self.begin)

    def ticks(self) -> list[Tick]:
        """Return a few round numbers between the ends."""
        rough = (self.high - self.low) / TICKS
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(m * power for m in (1.0, 2.0, 5.0, 10.0) if m * power >= rough * 0.999)
        if self.whole:
            step = max(1.0, math.ceil(step))
        first, last = math.ceil(self.low / step), math.floor(self.high / step)
        places = [i * step for i in range(first, last + 1)]
        return [Tick(round(self(place), 1), self._text(place)) for place in places]

    def _text(self, value: float) -> str:
        if self.logarithmic:
            return f"{10.0**value:g}" if abs(value) <= 3 else f"1e{value:.0f}"
        return f"{value:,.0f}" if abs(value) >= 10 or value == int(value) else f"{value:.3g}"


def draw(trace: Sequence[Sweep], tol: float | None) -> list[Chart]:
    """Return bound, change and numbers of clusters by sweep; none for an empty trace."""
    shown = _thinned(trace)
    if not shown:
        return []
    return [_bound(shown), _change(shown, tol), _clusters(shown)]


def _thinned(trace: Sequence[Sweep]) -> list[Sweep]:
    """Return at most so many sweeps as a chart can show, the first and the last among them."""
    if len(trace) <= MOST_POINTS:
        return list(trace)
    return [trace[i] for i in np.linspace(0, len(trace) - 1, MOST_POINTS).astype(int)]


def _bound(sweeps: Sequence[Sweep]) -> Chart:
    note = (
        "Lower bound of the log evidence. It jumps where the search tries other partitions and "
        "where the final sweeps begin, then levels off."
    )
    series = {"bound": np.array([sweep.bound for sweep in sweeps])}
    return _chart("Bound", note, sweeps, series, whole=False)


def _change(sweeps: Sequence[Sweep], tol: float | None) -> Chart:
    note = "Mean change of a membership in one sweep, on a logarithmic axis."
    if tol is not None:
        note += " The dashed line is the tolerance."
    series = {"change": np.array([sweep.change for sweep in sweeps])}
    return _chart("Change", note, sweeps, series, logarithmic=True, tol=tol)


def _clusters(sweeps: Sequence[Sweep]) -> Chart:
    rows = np.array([sweep.row_clusters for sweep in sweeps], dtype=float)
    columns = np.array([sweep.column_clusters for sweep in sweeps], dtype=float)
    title = "Clusters in use"
    if np.array_equal(rows, columns):
        return _chart(title, "", sweeps, {"clusters": rows})
    note = "Solid: row clusters. Dashed: column clusters."
    return _chart(title, note, sweeps, {"rows": rows, "columns": columns})


def _chart(
    title: str,
    note: str,
    sweeps: Sequence[Sweep],
    series: dict[str, Floats],
    *,
    whole: bool = True,
    logarithmic: bool = False,
    tol: float | None = None,
) -> Chart:
    heights = [_log10(line) if logarithmic else line for line in series.values()]
    level = None if tol is None else math.log10(tol)
    every = np.concatenate([*heights, [] if level is None else [level]])
    x = Scale.around(np.array([s.sweep for s in sweeps], dtype=float), FRAME.left, FRAME.right)
    y = Scale.around(every, FRAME.bottom, FRAME.top, whole=whole, logarithmic=logarithmic)
    styles = ("first", "second")[: len(series)]
    return Chart(
        title,
        note,
        [
            Line(
                name, _path([(x(s.sweep), y(v)) for s, v in zip(sweeps, line, strict=True)]), style
            )
            for name, line, style in zip(series, heights, styles, strict=True)
        ],
        x.ticks(),
        y.ticks(),
        [sweep.sweep for sweep in sweeps],
        [[_short(float(value)) for value in line] for line in series.values()],
        None if level is None else round(y(level), 1),
    )


def _log10(values: Floats) -> Floats:
    """Return logarithms; what has none is left out of the chart."""
    return np.log10(values, out=np.full(values.size, np.nan), where=values > 0)


def _path(points: Sequence[tuple[float, float]]) -> str:
    """Return the line through the finite points; it is broken where others stand between."""
    path, inside = [], False
    for x, y in points:
        if math.isfinite(y):  # a line begins with a point twice, so that one alone is a dot
            path.append(f"L{x:.1f} {y:.1f}" if inside else f"M{x:.1f} {y:.1f}h0")
        inside = math.isfinite(y)
    return "".join(path)


def _short(value: float) -> float | None:
    """Return the value with the digits that a reader can use; JSON knows no infinity."""
    return float(f"{value:.7g}") if math.isfinite(value) else None
