"""Render a model of several relations: domains first, then relations; HTML or Markdown."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from coblock.io import quantity
from coblock.io.export import file_stems
from coblock.kernels import Floats
from coblock.model.dataset import Table
from coblock.model.likelihoods.categorical import Categorical
from coblock.model.multi_result import MultiResult, block_means
from coblock.ui import style
from coblock.ui.plots import FROM_ZERO
from coblock.ui.report import MAX_TITLE, load_template, page_frame, wrap_scripts
from coblock.ui.report.markdown import escape
from coblock.ui.style import STEPS, percent

MAX_MEMBERS = 20_000  # names on the page, of all domains together
MAX_SIDE = 40  # clusters along a side of a heat map
MAX_BLOCKS = 30  # lines of a table of blocks
MARKDOWN_MEMBERS = 10  # named of each cluster
CELL, MARGIN = 30, 34  # pixels of a block, and of the numbers beside the map


@dataclass(frozen=True, slots=True)
class ClusterLine:
    """A cluster with its most certain members, each with its certainty."""

    number: int
    size: int
    certainty: float
    members: list[tuple[str, float]]

    @property
    def left_out(self) -> int:
        """Members that are not listed."""
        return self.size - len(self.members)


@dataclass(frozen=True, slots=True)
class BlockLine:
    """A block of a relation: a cluster for each place, the value in words, and its shade."""

    clusters: tuple[int, ...]
    value: str
    deviation: float
    shade: int


def render_multi(result: MultiResult, settings: Mapping[str, object], title: str) -> str:
    """Return the HTML of the report."""
    return load_template("multi.html.j2").render(
        page_frame(title, wrap_scripts("multi"), settings),
        result=result,
        domains=domain_sections(result, MAX_MEMBERS),
        relations=relation_sections(result),
        state=_state(result),
        frame={"cell": CELL, "margin": MARGIN},
    )


def _state(result: MultiResult) -> str:
    sweeps = quantity(len(result.trace), "sweep")
    return f"Converged after {sweeps}" if result.converged else f"Stopped after {sweeps}"


def domain_sections(result: MultiResult, most: int) -> list[dict[str, Any]]:
    """Return name and clusters of each domain; ``most`` names are shown, shared by clusters."""
    data = result.data
    per_cluster = max(most // sum(int(label.max()) + 1 for label in result.labels), 1)
    stems = file_stems(data.domain_names)
    sections = []
    for d, name in enumerate(data.domain_names):
        label = result.labels[d]
        certainty = result.memberships[d][np.arange(label.size), label]
        lines = []
        for k in range(int(label.max()) + 1):
            members = np.flatnonzero(label == k)
            order = members[np.argsort(-certainty[members], kind="stable")][:per_cluster]
            listed = [
                (style.display_name(data.domains[d].names, int(o)), float(certainty[o]))
                for o in order
            ]
            lines.append(ClusterLine(k, members.size, float(certainty[members].mean()), listed))
        sections.append(
            {
                "name": name,
                "objects": label.size,
                "clusters": lines,
                "complete": not any(line.left_out for line in lines),
                "file": f"{stems[d]}.csv",
                "alpha": result.alpha[d],
            }
        )
    return sections


def relation_sections(result: MultiResult) -> list[dict[str, Any]]:
    """Return places, evidence and blocks of each relation."""
    data, sections = result.data, []
    for r, table in enumerate(data.tables):
        shape, blocks = result.block_shape(r), block_lines(result, r)
        domains = [data.domain_names[d] for d in table.domains]
        sections.append(
            {
                "name": table.name,
                "places": list(zip(table.places, domains, strict=True)),
                "likelihood": table.likelihood.name,
                "cells": table.n_observed(data.sizes),
                "stored": len(table.cells),
                "shape": shape,
                "evidence": result.partition.relation_bound(r),
                "average": _in_words(table, _average(result, r)),
                "what": value_noun(table),
                "blocks": sorted(blocks, key=lambda line: -line.deviation)[:MAX_BLOCKS],
                "n_blocks": len(blocks),
                "map": _heat_map(blocks, shape) if table.arity == 2 else None,
            }
        )
    return sections


def value_noun(table: Table) -> str:
    """Return what the mean of a block is."""
    known = {"bernoulli": "probability", "poisson": "mean count", "normal": "mean value"}
    if isinstance(table.likelihood, Categorical):
        return "most probable category"
    return known.get(table.values_name, "mean")


def block_lines(result: MultiResult, r: int) -> list[BlockLine]:
    """Return the blocks with their values, shades and how far they are from the average.

    The distance of categories is half the sum of the differences of their probabilities. Of very
    many blocks, those that hold no stored cells are left out.
    """
    table, average = result.data.tables[r], _average(result, r)
    clusters = result.listed_blocks(r)
    mean = block_means(result, r, clusters)
    difference = np.abs(mean - average)
    level = mean
    if isinstance(table.likelihood, Categorical):
        difference, level = difference.sum(axis=-1) / 2.0, mean.max(axis=-1)
    shade = shades_of(table, level)
    return [
        BlockLine(tuple(at), _in_words(table, mean[t]), float(difference[t]), int(shade[t]))
        for t, at in enumerate(clusters.tolist())
    ]


def shades_of(table: Table, level: Floats) -> Any:
    """Return the number of the shade of each block: from 0, or from the smallest real value."""
    low = 0.0 if table.values_name in FROM_ZERO else level.min()
    span = max(float(level.max() - low), 1e-300)
    return np.rint((level - low) / span * (STEPS - 1)).astype(int)


def _average(result: MultiResult, r: int) -> Floats:
    """Return the predictive mean of all cells as one block."""
    table = result.data.tables[r]
    statistics, count = result.partition.used_statistics(r)
    total, prior = (np.array([each @ count]) for each in statistics), result.priors[r]
    return table.likelihood.predictive_mean(tuple(total), prior.reshape(-1, 1))[0]


def _in_words(table: Table, mean: Any) -> str:
    """Return the value of a block: a probability, a number, or a category with its probability."""
    if isinstance(table.likelihood, Categorical):
        best = int(np.argmax(mean))
        name = style.truncate(str(table.likelihood.categories[best]), 40)
        return f"{name} {percent(float(mean[best]))}"
    value = float(mean)
    return percent(value) if table.values_name == "bernoulli" else f"{value:.3g}"


def _heat_map(blocks: list[BlockLine], shape: tuple[int, ...]) -> dict[str, Any]:
    """Return the blocks of the largest clusters, and the size of the picture in pixels."""
    rows, columns = (min(size, MAX_SIDE) for size in shape)
    shown = [line for line in blocks if line.clusters[0] < rows and line.clusters[1] < columns]
    return {
        "rows": rows,
        "columns": columns,
        "width": MARGIN + CELL * columns,
        "height": MARGIN + CELL * rows,
        "blocks": shown,
        "complete": len(shown) == len(blocks),
    }


def render_multi_markdown(result: MultiResult, title: str) -> str:
    """Return the report as Markdown: domains with their clusters, then relations."""
    lines = [
        f"# {escape(style.truncate(title, MAX_TITLE))}",
        "",
        f"- log evidence {result.log_evidence:,.1f} (log probability of all data and clusters "
        "together; of two fits to the same data, the larger is better)",
        f"- {_state(result)} (a sweep is one pass over all objects)",
        "",
        "Certainty is the probability of the cluster of an object given the clusters of all "
        "others.",
        "",
    ]
    for domain in domain_sections(result, MAX_MEMBERS):
        clusters = quantity(len(domain["clusters"]), "cluster")
        lines += [f"## Domain {escape(domain['name'])}", ""]
        lines += [f"{quantity(domain['objects'], 'object')} in {clusters}.", ""]
        for line in domain["clusters"]:
            members = ", ".join(escape(name) for name, _ in line.members[:MARKDOWN_MEMBERS])
            more = line.size - min(len(line.members), MARKDOWN_MEMBERS)
            rest = f" and {more:,} more" if more else ""
            lines.append(
                f"- cluster {line.number}: {quantity(line.size, 'object')}, certainty "
                f"{percent(line.certainty)}: {members}{rest}"
            )
        lines.append("")
    for relation in relation_sections(result):
        lines += _markdown_relation(relation)
    return "\n".join(lines)


def _markdown_relation(relation: Mapping[str, Any]) -> list[str]:
    """Return a section with the blocks that are farthest from the average."""
    places = [escape(place) for place, _ in relation["places"]]
    lines = [
        f"## Relation {escape(relation['name'])}({', '.join(places)})",
        "",
        f"{relation['likelihood']}, {quantity(relation['cells'], 'observed cell')}, log evidence "
        f"{relation['evidence']:,.1f}. All cells: {escape(relation['average'])}.",
        "",
        f"| {' | '.join(f'{place} cluster' for place in places)} | {relation['what']} |",
        "|---" * (len(places) + 1) + "|",
    ]
    for block in relation["blocks"]:
        cells = (*map(str, block.clusters), escape(block.value))
        lines.append(f"| {' | '.join(cells)} |")
    left = relation["n_blocks"] - len(relation["blocks"])
    if left:
        lines += ["", f"{left:,} blocks that are nearer to the average are left out."]
    return [*lines, ""]
