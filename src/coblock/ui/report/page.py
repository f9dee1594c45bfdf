"""Render the report page and write it."""

import base64
import hashlib
import json
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from coblock.io.atomic import write_atomic
from coblock.model.relation import Relation
from coblock.model.result import Result
from coblock.ui.names import display_setting, percent, quantity, truncate
from coblock.ui.palette import LIGHT_SCALE, UNSEEN, css_colours, to_hex
from coblock.ui.report.blocks import ClusterAxis, block_data, cluster_sizes
from coblock.ui.report.charts import FRAME, draw_charts
from coblock.ui.report.clusters import domain_cards
from coblock.ui.report.picture import draw_pictures, pixel_shape
from coblock.ui.report.search import pack_names

MAX_TITLE = 200  # characters
SEEDS = ("random_state", "seed")  # names of the setting that is shown first
MIN_ASPECT, MAX_ASPECT = 0.8, 1.6  # width over height of the picture


def write_report(
    result: Result, path: str | Path, *, settings: Mapping[str, object], title: str | None = None
) -> None:
    """Write the report of a fit as one HTML file that needs no network.

    ``settings`` are the parameters of the fit by name. The default title is the relation's size.
    An existing file is replaced; after an error it is unchanged.
    """
    path = Path(path)
    if path.is_dir():
        msg = f"{path} is a folder, not a file. Name a file in it, such as {path / 'report.html'}."
        raise IsADirectoryError(msg)
    if not path.parent.is_dir():
        msg = f"The folder {path.parent} does not exist. Create it, or choose another folder."
        raise FileNotFoundError(msg)
    page = render(result, settings=settings, title=title)
    write_atomic(path, page.encode("utf-8", "replace"))


def render(result: Result, *, settings: Mapping[str, object], title: str | None = None) -> str:
    """Return the HTML of the report; equal results and settings give equal pages."""
    relation, domains = result.relation, domain_cards(result)
    release, names = version("coblock"), pack_names(result)
    style, script = f"{css_colours()}\n{_asset('report.css')}", _asset("report.js")
    tol = settings.get("tol")
    charts = draw_charts(result.trace, tol if isinstance(tol, float) and tol > 0 else None)
    chart_data = [{"sweeps": c.sweeps, "names": c.names, "values": c.values} for c in charts]
    before, after, full_density = draw_pictures(relation, result.labels)
    title = title or " × ".join(quantity(domain.objects, domain.noun) for domain in domains)
    seeds_first = sorted(settings, key=lambda name: name not in SEEDS)
    template = environment().get_template("report.html.j2")
    return template.render(
        title=truncate(title, MAX_TITLE),
        policy=_policy(style, script),
        style=Markup(style),
        script=Markup(script),
        version=release,
        result=result,
        relation=relation,
        domains=domains,
        before=f"data:image/png;base64,{_base64(before)}",
        after=f"data:image/png;base64,{_base64(after)}",
        full_density=full_density,
        axes=[ClusterAxis.of(sizes) for sizes in cluster_sizes(result)],
        aspect=_aspect(relation.shape),
        cells_per_pixel=_cells_per_pixel(relation),
        link_colour=to_hex(LIGHT_SCALE[-1]),
        faint_colour=to_hex(LIGHT_SCALE[1]),
        unseen_colour=to_hex(UNSEEN),
        charts=charts,
        frame=FRAME,
        data=_json({"blocks": block_data(result), "charts": chart_data}),
        names=names,
        all_names=names.is_complete(result),
        settings=[(name, display_setting(settings[name])) for name in seeds_first],
        seed=next((str(settings[key]) for key in SEEDS if key in settings), None),
        bibtex=_asset("citation.bib").replace("VERSION", release),
    )


@cache
def environment() -> Environment:
    """Return the environment of the templates: it escapes all text and accepts no unknown name."""
    templates = Environment(
        loader=PackageLoader("coblock.ui.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters |= {"percent": percent, "quantity": quantity}
    return templates


def _asset(name: str) -> str:
    return (files("coblock.ui.report") / "templates" / name).read_text(encoding="utf-8")


def _policy(style: str, script: str) -> str:
    """Return a content security policy that allows this style sheet and this script only."""
    hashes = [_base64(hashlib.sha256(text.encode()).digest()) for text in (style, script)]
    return (
        f"default-src 'none'; style-src 'sha256-{hashes[0]}'; script-src 'sha256-{hashes[1]}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _aspect(shape: tuple[int, int]) -> str:
    """Return the style sheet's class for a picture of about the relation's aspect ratio."""
    ratio = shape[1] / shape[0]
    return "tall" if ratio <= MIN_ASPECT else "wide" if ratio >= MAX_ASPECT else "square"


def _cells_per_pixel(relation: Relation) -> str | None:
    """Return rows × columns of a pixel as text; None if each pixel is one cell."""
    sizes = [n / pixels for n, pixels in zip(relation.shape, pixel_shape(relation), strict=True)]
    if max(sizes) == 1.0:
        return None
    return " × ".join(f"{size:,.0f}" if size >= 10 else f"{size:.2g}" for size in sizes)


def _json(data: object) -> Markup:
    """Return JSON for a script element; none of its characters can end the element."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)  # ASCII only
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)
