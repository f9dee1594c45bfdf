"""The page as a whole: what it holds, and how it is written."""

import base64
import hashlib
import json
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from coblock.io.atomic import write_whole
from coblock.model.result import Result
from coblock.ui.report import charts, words
from coblock.ui.report.blocks import Axis, axis, block_data, cluster_sizes
from coblock.ui.report.citation import BIBTEX
from coblock.ui.report.clusters import Side, sides
from coblock.ui.report.names import pack
from coblock.ui.report.palette import LIGHT, UNSEEN, css_colour, shade_css
from coblock.ui.report.picture import Picture, before_and_after, pixels

LONGEST_TITLE = 200
SEEDS = ("random_state", "seed")
NARROWEST_PICTURE, WIDEST_PICTURE = 0.8, 1.6  # width over height


def write_report(
    result: Result,
    path: str | Path,
    *,
    settings: Mapping[str, object],
    title: str | None = None,
) -> None:
    """Write the result as one HTML file that needs no network; the file is whole or not there.

    Parameters
    ----------
    result : Result
        What a fit has found.
    path : path
        Where to write; a file that is there is replaced.
    settings : mapping
        What the fit was asked for, by name, in the order of the page. The seed goes first.
    title : str, optional
        Head line of the page. Default: the size of the relation.
    """
    _check_place(Path(path))
    page = render(result, settings=settings, title=title)
    write_whole(path, page.encode("utf-8", "replace"))


def render(result: Result, *, settings: Mapping[str, object], title: str | None = None) -> str:
    """Return the page as text: the same result and settings give the same characters."""
    release = version("coblock")
    style = f"{_asset('report.css')}\n{shade_css()}"
    script = _asset("report.js")
    tol = settings.get("tol")
    course = charts.draw(result.trace, tol if isinstance(tol, float) and tol > 0 else None)
    names = pack(result)
    came, grouped = before_and_after(result.relation, result.labels)
    domains = sides(result)
    return (
        environment()
        .get_template("report.html.j2")
        .render(
            title=words.cut(title or _default_title(domains), LONGEST_TITLE),
            policy=_policy(style, script),
            style=Markup(style),
            script=Markup(script),
            version=release,
            result=result,
            relation=result.relation,
            sides=domains,
            came=_picture_address(came),
            grouped=_picture_address(grouped),
            full=grouped.full,
            axes=_axes(result),
            aspect=_aspect(result.relation.shape),
            binned=_binned(result.relation.shape),
            link_colour=css_colour(LIGHT[-1]),
            faint_colour=css_colour(LIGHT[1]),
            unseen_colour=css_colour(UNSEEN),
            charts=course,
            frame=charts.FRAME,
            data=_json({"blocks": block_data(result), "charts": _chart_data(course)}),
            names=names,
            all_names=names.complete(result),
            settings=_settings(settings),
            seed=next((str(settings[key]) for key in SEEDS if key in settings), None),
            bibtex=BIBTEX.format(version=release),
        )
    )


@cache
def environment() -> Environment:
    """Return the templates' environment: everything is escaped, nothing may be undefined."""
    made = Environment(
        loader=PackageLoader("coblock.ui.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["percent"] = words.percent
    made.filters["of"] = words.count
    return made


def _default_title(domains: list[Side]) -> str:
    return " × ".join(words.count(side.objects, side.what) for side in domains)


def _asset(name: str) -> str:
    return (files("coblock.ui.report") / "templates" / name).read_text(encoding="utf-8")


def _policy(style: str, script: str) -> str:
    """Return a content security policy that lets our style and script run, and nothing else."""
    style_hash, script_hash = (
        base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")
        for text in (style, script)
    )
    return (
        f"default-src 'none'; style-src 'sha256-{style_hash}'; script-src 'sha256-{script_hash}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def _picture_address(picture: Picture) -> str:
    return f"data:image/png;base64,{base64.b64encode(picture.png).decode('ascii')}"


def _axes(result: Result) -> list[Axis]:
    return [axis(sizes) for sizes in cluster_sizes(result)]


def _aspect(shape: tuple[int, int]) -> str:
    """Return one of a few shapes of the picture, near to that of the relation."""
    ratio = shape[1] / shape[0]
    if ratio <= NARROWEST_PICTURE:
        return "tall"
    return "wide" if ratio >= WIDEST_PICTURE else "square"


def _binned(shape: tuple[int, int]) -> str | None:
    """Return what a pixel stands for where it is more than one cell."""
    per_pixel = [size / pixels(size) for size in shape]
    if max(per_pixel) == 1.0:
        return None
    return " × ".join(f"{cells:,.0f}" if cells >= 10 else f"{cells:.2g}" for cells in per_pixel)


def _chart_data(course: list[charts.Chart]) -> list[dict[str, object]]:
    return [
        {"sweeps": c.sweeps, "names": [line.name for line in c.lines], "values": c.values}
        for c in course
    ]


def _settings(settings: Mapping[str, object]) -> list[tuple[str, str]]:
    """Return names and values, the seed first."""
    names = sorted(settings, key=lambda name: name not in SEEDS)
    return [(name, words.setting(settings[name])) for name in names]


def _json(data: Any) -> Markup:
    """Return data for a script element; no character of it can end the element."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)  # ASCII only
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


def _check_place(path: Path) -> None:
    """Refuse, before any work is done, a place that cannot be written to."""
    if path.is_dir():
        msg = f"{path} is a folder, not a file. Name a file in it, such as {path / 'report.html'}."
        raise IsADirectoryError(msg)
    if not path.parent.is_dir():
        msg = f"The folder {path.parent} for the report does not exist. Make it, or choose another."
        raise FileNotFoundError(msg)
