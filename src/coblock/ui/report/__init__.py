"""Render a fitted model as one HTML page that needs no network, and as a view for notebooks."""

import hashlib
import math
from base64 import b64encode
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup
from numpy.typing import NDArray

from coblock.analysis.description import Description, describe
from coblock.analysis.explain import (
    describe_certainty,
    describe_structure,
    explain_clusters,
    name_clusters,
)
from coblock.analysis.prediction import describe_degrees, describe_samples
from coblock.inference.settings import SEARCH
from coblock.io import quantity
from coblock.io.atomic import write_atomic
from coblock.io.export import object_names
from coblock.model.multi_result import MultiResult
from coblock.model.relation import BinaryRelation
from coblock.model.result import Result
from coblock.ui import style
from coblock.ui.report import content, figures
from coblock.ui.report.markdown import render_markdown
from coblock.ui.style import LIGHT_SCALE, STEPS, percent, to_hex

MAX_TITLE = 200  # characters
SEEDS = ("random_state", "seed")  # names of the setting that is shown first
NOT_SHOWN = ("callback", "checkpoint")  # settings
MIN_ASPECT, MAX_ASPECT = 0.8, 1.6  # width over height of the picture
MAX_ROWS, MAX_COLUMNS = 20, 24  # clusters in the block map of a notebook
MAX_BORDERS = 30  # clusters of a side above which borders are not drawn
MIN_LABEL = 4.5  # size of a cluster whose number is shown, in per cent of the side
MAX_PAGE = 2_900_000  # bytes
PER_ROW, OVERHEAD = 600, 250_000  # bytes of a line of the table of clusters, and of the rest
MAX_DETAILED = 2_000  # clusters above which the table leaves out their features
SCRIPTS = ("core", "zoom", "picture", "map", "members", "panel", "search", "charts", "start")


def write_report(
    found: Description | Result | MultiResult,
    path: str | Path,
    *,
    settings: Mapping[str, object],
    title: str | None = None,
) -> None:
    """Write the report of a fit: one HTML file that needs no network, or Markdown (``.md``).

    ``settings`` are the parameters of the fit by name. The default title is the relation's size,
    or the numbers of relations and domains. An existing file is replaced; after an error it is
    unchanged.
    """
    from coblock.ui.report import multi

    path = Path(path)
    _check_page(path)
    found, markdown = describe(found) if isinstance(found, Result) else found, path.suffix == ".md"
    title = title or default_title(found)
    if isinstance(found, MultiResult) and markdown:
        page = multi.render_multi_markdown(found, title)
    elif isinstance(found, MultiResult):
        page = multi.render_multi(found, settings, title)
    elif markdown:
        page = render_markdown(found, title=title)
    else:
        page = render(found, settings=settings, title=title)
    write_atomic(path, page.encode("utf-8", "replace"))


def _check_page(path: Path) -> None:
    """Refuse a folder, and a path in a folder that does not exist."""
    if path.is_dir():
        msg = f"{path} is a folder, not a file. Name a file in it, such as {path / 'report.html'}."
        raise IsADirectoryError(msg)
    if not path.parent.is_dir():
        msg = f"The folder {path.parent} does not exist. Create it, or choose another folder."
        raise FileNotFoundError(msg)


def default_title(found: Description | MultiResult) -> str:
    """Return the size of the relation in words, or how many relations and domains there are."""
    if isinstance(found, MultiResult):
        domains, relations = len(found.data.domains), len(found.data.tables)
        return f"{quantity(relations, 'relation')} over {quantity(domains, 'domain')}"
    relation = found.result.relation
    nouns = ("object",) if relation.repeated else ("row", "column")
    pairs = zip(relation.sizes, nouns, strict=True)
    return " × ".join(quantity(size, noun) for size, noun in pairs)


def render(
    found: Description | Result, *, settings: Mapping[str, object], title: str | None = None
) -> str:
    """Return the HTML of the report; equal results and settings give equal pages."""
    found = describe(found) if isinstance(found, Result) else found
    result = found.result
    relation, domains = result.relation, domain_tables(found)
    packed = content.pack_clusters(found)
    state = convergence(result, settings)
    charts = figures.draw_charts(result.trace, state["tolerance"])
    order = [found.tree.order[0], found.tree.order[-1]]
    before, after, full_density = figures.draw_pictures(relation, result.labels, order)
    lines = sum(domain["clusters"] for domain in domains)
    room = MAX_PAGE - OVERHEAD - (len(before) + len(after)) * 4 // 3 - len(packed) - PER_ROW * lines
    names = content.pack_names(result, max(room, content.MAX_BYTES // 4))
    ratio = relation.shape[1] / relation.shape[0]
    return load_template("report.html.j2").render(
        page_frame(title or default_title(found), wrap_scripts(*SCRIPTS), settings),
        result=result,
        state=state,
        single=describe_structure(result),
        certainty=describe_certainty(result),
        composition=found.composition,
        samples=describe_degrees(result) + describe_samples(result),
        relation=relation,
        domains=domains,
        levels=len(found.cuts),
        before=f"data:image/png;base64,{b64encode(before).decode()}",
        after=f"data:image/png;base64,{b64encode(after).decode()}",
        full_density=full_density,
        axes=cluster_axes(result, order),
        aspect="tall" if ratio <= MIN_ASPECT else "wide" if ratio >= MAX_ASPECT else "square",
        cells_per_pixel=_cells_per_pixel(relation),
        link_colour=to_hex(LIGHT_SCALE[-1]),
        faint_colour=to_hex(LIGHT_SCALE[1]),
        unseen_colour=to_hex(style.UNSEEN),
        charts=charts,
        frame=figures.FRAME,
        data=_page_data(result, charts),
        packed=packed,
        names=names,
        seed=next((str(settings[key]) for key in SEEDS if key in settings), None),
    )


def page_frame(title: str, script: str, settings: Mapping[str, object]) -> dict[str, Any]:
    """Return what all reports have: title, style, script, policy, settings and citation."""
    css, release = f"{style.css_colours()}\n{read_asset('report.css')}", version("coblock")
    shown = {name: value for name, value in settings.items() if name not in NOT_SHOWN}
    return {
        "title": style.truncate(title, MAX_TITLE),
        "policy": security_policy(css, script),
        "style": Markup(css),
        "script": Markup(script),
        "version": release,
        "settings": [
            (name, style.display_setting(shown[name]))
            for name in sorted(shown, key=lambda name: name not in SEEDS)
        ],
        "bibtex": read_asset("citation.bib").replace("VERSION", release),
    }


def _page_data(result: Result, charts: list[figures.Chart]) -> dict[str, Any]:
    """Return the small part of the data, which the script reads at once."""
    relation = result.relation
    scales = (style.LIGHT_SCALE, style.DARK_SCALE)
    return {
        "nouns": ["object", "object"] if relation.repeated else ["row", "column"],
        "oneDomain": relation.repeated,
        "symmetric": relation.symmetric,
        "borders": MAX_BORDERS,
        "shades": [
            [style.blend(scale, step / (STEPS - 1)) for step in range(STEPS)] for scale in scales
        ],
        "charts": [{"sweeps": c.sweeps, "names": c.names, "values": c.values} for c in charts],
    }


def convergence(result: Result, settings: Mapping[str, object]) -> dict[str, Any]:
    """Return whether the fit has converged, in words that agree with the chart of the change.

    The tolerance is that of the rule which ended the fit; None if it was another rule.
    """
    sweeps = quantity(len(result.trace), "sweep")
    tol = _tolerance(result, settings)
    last = result.trace[-1].change if result.trace else None
    if not result.converged:
        words = f"Stopped after {sweeps}, before the memberships converged"
        return {"converged": False, "words": words, "tolerance": tol}
    if tol is None or last is None or not last < tol:
        words = f"Converged after {sweeps}: no further gain was found"
        return {"converged": True, "words": words, "tolerance": None}
    words = f"Converged after {sweeps}: the last change, {last:.2g}, is below {tol:g}"
    return {"converged": True, "words": words, "tolerance": tol}


def _tolerance(result: Result, settings: Mapping[str, object]) -> float | None:
    """Return the change below which the fit has converged, if it has such a rule."""
    tol = settings.get("tol")
    if result.trace and result.trace[-1].moved is not None:  # a fit that ends with hard labels
        return None if settings.get("inference") == "gibbs" else SEARCH.average_tol
    return tol if isinstance(tol, float) and tol > 0 else None


def domain_tables(found: Description) -> list[dict[str, Any]]:
    """Return the table of clusters of every domain, the largest clusters first."""
    total = sum(map(len, found.names))
    return [
        {
            "noun": noun,
            "partner": found.domains.nouns[found.domains.partner(d)],
            "objects": found.result.labels[d].size,
            "clusters": len(found.names[d]),
            "rows": content.cluster_rows(found, d, features=total <= MAX_DETAILED),
            "unnamed": object_names(found.result.relation, d) is None,
        }
        for d, noun in enumerate(found.domains.nouns)
    ]


def cluster_axes(result: Result, order: list[NDArray[np.int64]]) -> list[dict[str, Any]]:
    """Return borders and numbers of the clusters of each side, in per cent of the side.

    Borders are drawn if there are few clusters, and numbers where there is room.
    """
    axes = []
    for sizes, sequence in zip(content.cluster_sizes(result), order, strict=True):
        ends = 100.0 * np.cumsum(sizes[sequence]) / sizes.sum()
        starts = [0.0, *ends[:-1]]
        labels = [
            (round(float(start + end) / 2, 3), int(k))
            for k, start, end in zip(sequence, starts, ends, strict=True)
            if end - start >= MIN_LABEL
        ]
        few = sizes.size <= MAX_BORDERS
        borders = [round(float(end), 3) for end in ends[:-1]] if few else []
        axes.append({"borders": borders, "labels": labels, "all_drawn": few})
    return axes


def notebook_view(result: Result) -> str:
    """Return a fragment of HTML, without a script, with the numbers and the blocks of a model."""
    probability = result.block_probability[result.with_members]
    largest = float(probability.max())
    unit = 10 ** max(2, math.ceil(1.0 - math.log10(largest)))  # per 100, per 1,000 and so on
    cells: list[list[dict[str, str]]] = []
    for k, row in enumerate(probability[:MAX_ROWS, :MAX_COLUMNS].tolist()):
        cells.append([])
        for l, p in enumerate(row):
            colour = style.blend(LIGHT_SCALE, p / largest)
            shown = {"text": f"{unit * p:.0f}", "tip": f"{k} × {l}: {percent(p)}"}
            cells[k].append(shown | {"colour": to_hex(colour), "ink": style.ink_on(colour)})
    sizes = [size.tolist() for size in content.cluster_sizes(result)]
    numbers = {"sizes": sizes, "unit": unit}
    names = name_clusters(result, explain_clusters(result))
    template = load_template("notebook.html.j2")
    return template.render(
        numbers, result=result, relation=result.relation, cells=cells, names=names
    )


@cache
def load_template(name: str) -> Template:
    """Return a template, which escapes all text and accepts no unknown name."""
    environment = Environment(
        loader=PackageLoader("coblock.ui.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"percent": percent, "quantity": quantity}
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    return environment.get_template(name)


def read_asset(name: str) -> str:
    """Return the text of a file among the templates."""
    return (files("coblock.ui.report") / "templates" / name).read_text(encoding="utf-8")


@cache
def wrap_scripts(*names: str) -> str:
    """Return the parts of a script as one function, so that they share their names only."""
    parts = "\n".join(read_asset(f"{name}.js") for name in names)
    return f'"use strict";\n(() => {{\n{parts}}})();\n'


def security_policy(css: str, script: str) -> str:
    """Return a content security policy that allows this style sheet and this script only."""
    hashes = [b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (css, script)]
    return (
        f"default-src 'none'; style-src 'sha256-{hashes[0]}'; script-src 'sha256-{hashes[1]}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def _cells_per_pixel(relation: BinaryRelation) -> str | None:
    """Return rows × columns of a pixel as text; None if each pixel is one cell."""
    pairs = zip(relation.shape, figures.pixel_shape(relation), strict=True)
    sizes = [n / pixels for n, pixels in pairs]
    if max(sizes) == 1.0:
        return None
    return " × ".join(f"{size:,.0f}" if size >= 10 else f"{size:.2g}" for size in sizes)
