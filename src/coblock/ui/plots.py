"""Draw a fitted model with matplotlib, on given axes or in a new figure."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from coblock.ui.style import LIGHT_SCALE, to_hex

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from coblock.estimator import IRM
    from coblock.kernels import Floats, Indices
    from coblock.multi import MultiIRM

FROM_ZERO = ("bernoulli", "poisson", "categorical")  # whose colours begin at 0
MIN_LABEL = 0.035  # size of a cluster whose number is shown, as a share of the side
SERIES = (to_hex(LIGHT_SCALE[3]), "#7fa8c9")  # bars of rows and of columns
SECONDARY = "0.45"  # matplotlib's grey for a line on a second axis


def plot_blocks(model: "IRM", ax: "Axes | None" = None) -> "Axes":
    """Draw the link probability of every block; the sides are as long as the clusters are large."""
    ax = _axes(model, ax)
    labels = (model.row_labels_, model.column_labels_)
    probability = model.block_probability_[model.result_.with_members]
    names = ("row cluster", "column cluster") if model.relation == "bipartite" else ("cluster",) * 2
    return _draw_blocks(ax, labels, probability, names, "probability of a link")


def plot_relation(model: "MultiIRM", relation: str, ax: "Axes | None" = None) -> "Axes":
    """Draw the mean of every block of a relation of two places; of categories the most probable."""
    from coblock.ui.report.multi import value_noun

    table = model.result_.data.table(relation)
    if table.arity != 2:
        msg = (
            f"Relation '{relation}' has {table.arity} places, and plot_blocks draws two. Use "
            f"to_frame(relation='{relation}')."
        )
        raise ValueError(msg)
    mean, what = model.relations_[relation].mean, value_noun(table)
    if mean.ndim == 3:
        mean, what = mean.max(axis=-1), f"probability of the {what}"
    labels = [model.result_.labels[d] for d in table.domains]
    names = (f"cluster of {table.places[0]}", f"cluster of {table.places[1]}")
    low = 0.0 if table.values_name in FROM_ZERO else float(mean.min())
    return _draw_blocks(_axes(model, ax), labels, mean, names, what, low)


def _draw_blocks(
    ax: "Axes",
    labels: Sequence["Indices"],
    mean: "Floats",
    names: tuple[str, str],
    what: str,
    low: float = 0.0,
) -> "Axes":
    """Draw a rectangle for each block, as long as its clusters are large, with a colour bar."""
    from matplotlib.colors import LinearSegmentedColormap

    row_edges, column_edges = (np.append(0, np.cumsum(np.bincount(label))) for label in labels)
    cmap = LinearSegmentedColormap.from_list("coblock", [to_hex(stop) for stop in LIGHT_SCALE])
    lines = {"edgecolors": "white", "linewidth": min(0.6, 12.0 / max(mean.shape))}
    mesh = ax.pcolormesh(column_edges, row_edges, mean, cmap=cmap, **lines)
    mesh.set_clim(low, float(mean.max()))
    ax.invert_yaxis()
    ax.set(xlabel=names[1], ylabel=names[0])
    for axis, edges in ((ax.xaxis, column_edges), (ax.yaxis, row_edges)):
        large = np.flatnonzero(np.diff(edges) >= MIN_LABEL * edges[-1])
        axis.set_ticks((edges[large] + edges[large + 1]) / 2, [str(k) for k in large])
        axis.set_tick_params(length=0)
    ax.figure.colorbar(mesh, ax=ax, label=what)
    return ax


def plot_trace(model: "IRM", ax: "Axes | None" = None) -> "Axes":
    """Draw the change of the memberships in each sweep, and the bound on a second axis."""
    ax = _axes(model, ax)
    trace = model.trace_
    sweeps, change, bound = np.array([(s["sweep"], s["change"], s["bound"]) for s in trace]).T
    ax.semilogy(sweeps, np.where(change > 0, change, np.nan), color=SERIES[0], label="change")
    ax.set(xlabel="sweep", ylabel="mean change of a membership")
    right = ax.twinx()
    right.plot(sweeps, bound, color=SECONDARY, linestyle="--", label="bound")
    right.set_ylabel("bound of the log evidence")
    ax.legend(handles=[*ax.get_lines(), *right.get_lines()], frameon=False, loc="upper right")
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
        ax.bar(centres, sizes, width, label=name, color=SERIES[d])
    ax.set(xlabel="cluster", ylabel="members")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    if len(domains) > 1:
        ax.legend(frameon=False)
    return ax


def _axes(model: "IRM | MultiIRM", ax: "Axes | None") -> "Axes":
    """Return the axes to draw on; refuse a model that is not fitted before a figure is made."""
    from sklearn.utils.validation import check_is_fitted

    check_is_fitted(model)
    if ax is not None:
        return ax
    from matplotlib import pyplot

    return pyplot.subplots(layout="constrained")[1]
