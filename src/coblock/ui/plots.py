"""Draw a fitted model with matplotlib, on given axes or in a new figure."""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coblock.ui.palette import SECONDARY, SERIES, colour_map, to_hex

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from coblock.estimator import IRM

MIN_LABEL = 0.035  # size of a cluster whose number is shown, as a share of the side


def plot_blocks(model: "IRM", ax: "Axes | None" = None) -> "Axes":
    """Draw the link probability of every block; the sides are as long as the clusters are large."""
    ax = _axes(model, ax)
    labels = (model.row_labels_, model.column_labels_)
    row_edges, column_edges = (np.append(0, np.cumsum(np.bincount(label))) for label in labels)
    probability = model.block_probability_
    mesh = ax.pcolormesh(
        column_edges,
        row_edges,
        probability,
        cmap=colour_map(),
        vmin=0.0,
        vmax=float(probability.max()),
        edgecolors="white",
        linewidth=min(0.6, 12.0 / max(probability.shape)),
    )
    ax.invert_yaxis()
    one_domain = model.relation != "bipartite"
    ax.set_xlabel("cluster" if one_domain else "column cluster")
    ax.set_ylabel("cluster" if one_domain else "row cluster")
    _number_clusters(ax.xaxis, column_edges)
    _number_clusters(ax.yaxis, row_edges)
    ax.figure.colorbar(mesh, ax=ax, label="probability of a link")
    return ax


def plot_trace(model: "IRM", ax: "Axes | None" = None) -> "Axes":
    """Draw the change of the memberships in each sweep, and the bound on a second axis."""
    ax = _axes(model, ax)
    sweeps, change, bound = (
        np.array([sweep[key] for sweep in model.trace_]) for key in ("sweep", "change", "bound")
    )
    positive = np.where(change > 0, change, np.nan)
    ax.semilogy(sweeps, positive, color=to_hex(SERIES[0]), label="change")
    ax.set(xlabel="sweep", ylabel="mean change of a membership")
    right = ax.twinx()
    right.plot(sweeps, bound, color=SECONDARY, linestyle="--", label="bound")
    right.set_ylabel("bound of the log evidence")
    lines = [*ax.get_lines(), *right.get_lines()]
    ax.legend(handles=lines, frameon=False, loc="upper right")
    return ax


def plot_sizes(model: "IRM", ax: "Axes | None" = None) -> "Axes":
    """Draw the number of members of each cluster, the largest first."""
    from matplotlib.ticker import MaxNLocator

    ax = _axes(model, ax)
    domains = {"rows": model.row_labels_, "columns": model.column_labels_}
    if model.relation != "bipartite":
        domains = {"objects": model.row_labels_}
    width = 0.8 / len(domains)
    for d, (name, label) in enumerate(domains.items()):
        sizes = np.bincount(label)
        centres = np.arange(sizes.size) + (d - (len(domains) - 1) / 2) * width
        ax.bar(centres, sizes, width, label=name, color=to_hex(SERIES[d]))
    ax.set(xlabel="cluster", ylabel="members")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    if len(domains) > 1:
        ax.legend(frameon=False)
    return ax


def _axes(model: "IRM", ax: "Axes | None") -> "Axes":
    """Return the axes to draw on; refuse a model that is not fitted before a figure is made."""
    from sklearn.utils.validation import check_is_fitted

    check_is_fitted(model)
    if ax is not None:
        return ax
    from matplotlib import pyplot

    return pyplot.subplots(layout="constrained")[1]


def _number_clusters(axis: Any, edges: NDArray[np.int64]) -> None:
    """Write the number of each cluster at its middle if the cluster is large enough."""
    large = np.flatnonzero(np.diff(edges) >= MIN_LABEL * edges[-1])
    axis.set_ticks((edges[large] + edges[large + 1]) / 2, [str(k) for k in large])
    axis.set_tick_params(length=0)
