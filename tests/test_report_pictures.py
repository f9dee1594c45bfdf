"""The report's pictures: every cell counted once, lines where they belong, colours for all eyes."""

import io
import json
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.image import imread
from scipy import sparse

from coblock.model.relation import Relation
from coblock.ui.report import palette, picture, render
from coblock.ui.report.charts import MOST_POINTS
from coblock.ui.report.charts import draw as draw_charts
from fabricated import small_result, trace_of

# The picture


def decoded(png: bytes) -> np.ndarray:
    """Red, green, blue and alpha of each pixel, from 0 to 255."""
    return np.rint(255 * imread(io.BytesIO(png))).astype(int)


def test_each_cell_of_a_small_relation_has_its_colour():
    result = small_result()
    came, grouped = picture.before_and_after(result.relation, result.labels)
    step = picture.MOST_PIXELS // 16, picture.MOST_PIXELS // 12
    pixels = decoded(grouped.png)
    assert pixels.shape[:2] == (16 * step[0], 12 * step[1])
    cells = pixels[step[0] // 2 :: step[0], step[1] // 2 :: step[1]]
    link = (cells[..., :3] == palette.LIGHT[-1]).all(axis=2)
    unseen = (cells[..., :3] == palette.UNSEEN).all(axis=2)
    expected = np.array([[1, 0], [0, 1], [1, 1]])[np.sort(result.labels[0])]
    expected = expected[:, np.sort(result.labels[1])].astype(bool)
    np.testing.assert_array_equal(link | unseen, expected)
    assert unseen.sum() == 1
    np.testing.assert_array_equal(cells[..., 3] == 0, ~expected)
    assert not np.array_equal(decoded(came.png), pixels)


@settings(max_examples=30)
@given(
    seed=st.integers(0, 2**32 - 1),
    shape=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    kind=st.sampled_from(["bipartite", "directed", "undirected"]),
    most=st.integers(1, 12),
    at_once=st.integers(1, 50),
)
def test_bins_hold_every_cell_once(seed, shape, kind, most, at_once):
    rng = np.random.default_rng(seed)
    shape = shape if kind == "bipartite" else (shape[0], shape[0])
    X = (rng.random(shape) < 0.4).astype(float)
    X[rng.random(shape) < 0.2] = np.nan
    if kind != "bipartite":
        np.fill_diagonal(X, 0)
    if kind == "undirected":
        X = np.triu(X, 1)
    relation = Relation.build(X, kind=kind)
    places = [rng.permutation(size) for size in shape]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(picture, "MOST_PIXELS", most)
        patch.setattr(picture, "AT_ONCE", at_once)
        bins = picture.count(relation, places)
        sizes = [picture.pixels(size) for size in shape]
    dense = np.nan_to_num(X) if kind != "undirected" else np.nan_to_num(X) + np.nan_to_num(X).T
    hidden = np.isnan(X) if kind != "undirected" else np.isnan(X) | np.isnan(X).T
    if kind != "bipartite":
        hidden = hidden | np.eye(shape[0], dtype=bool)
    links, seen = np.zeros(sizes), np.zeros(sizes)
    for i in range(shape[0]):
        for j in range(shape[1]):
            at = places[0][i] * sizes[0] // shape[0], places[1][j] * sizes[1] // shape[1]
            links[at] += dense[i, j]
            seen[at] += not hidden[i, j]
    np.testing.assert_array_equal(bins.links, links)
    np.testing.assert_array_equal(bins.seen, seen)


def test_links_of_objects_with_themselves_are_drawn():
    relation = Relation.build(sparse.csr_array(np.eye(3)), kind="directed", self_links=True)
    bins = picture.count(relation, [np.arange(3)] * 2)
    np.testing.assert_array_equal(bins.links, np.eye(3))
    assert bins.seen.sum() == 9


# Charts


def test_a_long_trace_is_thinned():
    course = draw_charts(trace_of(5000), 1e-5)
    for chart in course:
        assert len(chart.sweeps) == MOST_POINTS
        assert chart.sweeps[0] == 1
        assert chart.sweeps[-1] == 5000
        assert all(len(line) == MOST_POINTS for line in chart.values)


def test_lines_are_broken_where_there_is_nothing_to_draw():
    trace = trace_of(5)
    trace[2] = replace(trace[2], change=0.0)  # has no logarithm
    change = draw_charts(trace, None)[1].lines[0].path
    assert change.count("M") == 2
    assert [part.count("L") for part in change.split("M")[1:]] == [1, 1]
    assert draw_charts(trace_of(5), None)[1].lines[0].path.count("M") == 1


def test_charts_survive_what_is_not_finite():
    trace = [*trace_of(3), *(s for s in trace_of(5)[3:])]
    broken = [s.__class__(s.sweep, 0.0, -np.inf, np.nan, 1, 1, 0.0) for s in trace]
    bound, change, clusters = draw_charts(broken, None)
    assert bound.values == [[None] * 5]
    assert bound.lines[0].path == change.lines[0].path == ""
    assert len(clusters.lines) == 1
    json.dumps(bound.values, allow_nan=False)
    page = render(replace(small_result(), trace=broken), settings={})
    assert not re.search(r">[^<]*\b(nan|inf)\b", page[page.index('id="fit"') :].split("<script")[0])


# Colours that can be told apart and letters that can be read


def luminance(colour: tuple[int, int, int]) -> float:
    """Relative luminance, as the Web Content Accessibility Guidelines define it."""
    parts = np.array(colour) / 255
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


@pytest.mark.parametrize("stops", [palette.LIGHT, palette.DARK])
def test_shades_grow_steadily_and_carry_readable_letters(stops):
    css = palette.shade_css()
    part = css.split("@media")[0 if stops is palette.LIGHT else 1]
    shades = [bytes.fromhex(part.split(f"--s{s}:#")[1][:6]) for s in range(palette.STEPS)]
    inks = [bytes.fromhex(part.split(f"--t{s}:#")[1][:6]) for s in range(palette.STEPS)]
    light = [luminance(tuple(shade)) for shade in shades]
    assert light == sorted(light, reverse=stops is palette.LIGHT)
    for shade, ink in zip(light, inks, strict=True):
        low, high = sorted((shade, luminance(tuple(ink))))
        assert (high + 0.05) / (low + 0.05) >= 4.5
