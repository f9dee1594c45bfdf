"""Pictures for papers and notebooks, with matplotlib."""

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from coblock.kernels import Floats, Indices

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = "Blues"  # one hue, ever darker: it survives colour blindness and a black printer
BARS = ("#286aa7", "#7fa8c9")
LABEL_FROM = 0.035  # share of the side from which a cluster has room for its number


class Fitted(Protocol):
    """What is read from a fitted :class:`~coblock.IRM`."""

    row_labels_: Indices
    column_labels_: Indices
    block_probability_: Floats
    trace_: list[dict[str, float]]
    relation: str


def plot_blocks(model: Fitted, ax: "Axes | None" = None) -> "Axes":
    """Draw the probability of a link in every block; sides are as long as clusters are large.

    Parameters
    ----------
    model : IRM
        A fitted model.
    ax : matplotlib Axes, optional
        Where to draw. Default: a new figure.

    Returns
    -------
    Axes
        With a colour bar beside it.
    """
    ax = _axes(model, ax)
    edges = [
        np.append(0, np.cumsum(np.bincount(label)))
        for label in (model.row_labels_, model.column_labels_)
    ]
    probability = model.block_probability_
    mesh = ax.pcolormesh(
        edges[1],
        edges[0],
        probability,
        cmap=COLOURS,
        vmin=0.0,
        vmax=float(probability.max()),
        edgecolors="white",
        linewidth=min(0.6, 12.0 / max(probability.shape)),
    )
    ax.invert_yaxis()
    one_domain = model.relation != "bipartite"
    ax.set(
        xlabel="cluster" if one_domain else "column cluster",
        ylabel="cluster" if one_domain else "row cluster",
    )
    _number_clusters(ax.xaxis, edges[1])
    _number_clusters(ax.yaxis, edges[0])
    ax.figure.colorbar(mesh, ax=ax, label="probability of a link")
    return ax


def plot_trace(model: Fitted, ax: "Axes | None" = None) -> "Axes":
    """Draw the change of the memberships by sweep, on a logarithmic axis.

    Parameters
    ----------
    model : IRM
        A fitted model.
    ax : matplotlib Axes, optional
        Where to draw. Default: a new figure.

    Returns
    -------
    Axes
        The bound of the log evidence stands on a second axis at the right.
    """
    ax = _axes(model, ax)
    sweeps, change, bound = (
        np.array([sweep[key] for sweep in model.trace_]) for key in ("sweep", "change", "bound")
    )
    ax.semilogy(sweeps, np.where(change > 0, change, np.nan), color=BARS[0], label="change")
    ax.set(xlabel="sweep", ylabel="mean change of a membership")
    right = ax.twinx()
    right.plot(sweeps, bound, color="0.45", linestyle="--", label="bound")
    right.set_ylabel("bound of the log evidence")
    lines = [*ax.get_lines(), *right.get_lines()]
    ax.legend(handles=lines, frameon=False, loc="upper right")
    return ax


def plot_sizes(model: Fitted, ax: "Axes | None" = None) -> "Axes":
    """Draw how many members the clusters have, the largest first.

    Parameters
    ----------
    model : IRM
        A fitted model.
    ax : matplotlib Axes, optional
        Where to draw. Default: a new figure.

    Returns
    -------
    Axes
        One series of bars for rows and one for columns, or one in all.
    """
    from matplotlib.ticker import MaxNLocator

    ax = _axes(model, ax)
    sides = {"rows": model.row_labels_, "columns": model.column_labels_}
    if model.relation != "bipartite":
        sides = {"objects": model.row_labels_}
    width = 0.8 / len(sides)
    for number, (name, label) in enumerate(sides.items()):
        sizes = np.bincount(label)
        shift = (number - (len(sides) - 1) / 2) * width
        ax.bar(np.arange(sizes.size) + shift, sizes, width, label=name, color=BARS[number])
    ax.set(xlabel="cluster", ylabel="members")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    if len(sides) > 1:
        ax.legend(frameon=False)
    return ax


def _axes(model: Fitted, ax: "Axes | None") -> "Axes":
    """Return the axes to draw on, once it is sure that there is something to draw."""
    from sklearn.utils.validation import check_is_fitted

    check_is_fitted(model)
    if ax is not None:
        return ax
    from matplotlib import pyplot

    return pyplot.subplots(layout="constrained")[1]


def _number_clusters(side: Any, edges: NDArray[np.int64]) -> None:
    """Put its number at the middle of each cluster that has room for it."""
    wide = np.flatnonzero(np.diff(edges) >= LABEL_FROM * edges[-1])
    side.set_ticks((edges[wide] + edges[wide + 1]) / 2, [str(k) for k in wide])
    side.set_tick_params(length=0)
