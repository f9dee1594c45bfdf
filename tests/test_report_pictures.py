"""Test the pictures, charts and colours of the report."""

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

from coblock.model.relation import BinaryRelation
from coblock.ui import style
from coblock.ui.report import figures, render
from coblock.ui.report.figures import MAX_POINTS, draw_charts
from fabricated import small_result, trace_of

# The picture


def decoded(png: bytes) -> np.ndarray:
    """Return red, green, blue and alpha of each pixel, from 0 to 255."""
    return np.rint(255 * imread(io.BytesIO(png))).astype(int)


def test_each_cell_of_a_small_relation_has_its_colour():
    result = small_result()
    before, after, _ = figures.draw_pictures(result.relation, result.labels)
    step = figures.MAX_PIXELS // 16, figures.MAX_PIXELS // 12
    pixels = decoded(after)
    assert pixels.shape[:2] == (16 * step[0], 12 * step[1])
    cells = pixels[step[0] // 2 :: step[0], step[1] // 2 :: step[1]]
    link = (cells[..., :3] == style.LIGHT_SCALE[-1]).all(axis=2)
    unseen = (cells[..., :3] == style.UNSEEN).all(axis=2)
    expected = np.array([[1, 0], [0, 1], [1, 1]])[np.sort(result.labels[0])]
    expected = expected[:, np.sort(result.labels[1])].astype(bool)
    np.testing.assert_array_equal(link | unseen, expected)
    assert unseen.sum() == 1
    np.testing.assert_array_equal(cells[..., 3] == 0, ~expected)
    assert not np.array_equal(decoded(before), pixels)


@settings(max_examples=30)
@given(
    seed=st.integers(0, 2**32 - 1),
    shape=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    kind=st.sampled_from(["bipartite", "directed", "undirected"]),
    max_pixels=st.integers(1, 12),
    chunk=st.integers(1, 50),
)
def test_bins_count_every_cell_once(seed, shape, kind, max_pixels, chunk):
    rng = np.random.default_rng(seed)
    shape = shape if kind == "bipartite" else (shape[0], shape[0])
    X = (rng.random(shape) < 0.4).astype(float)
    X[rng.random(shape) < 0.2] = np.nan
    if kind != "bipartite":
        np.fill_diagonal(X, 0)
    if kind == "undirected":
        X = np.triu(X, 1)
    relation = BinaryRelation.build(X, kind=kind)
    positions = [rng.permutation(size) for size in shape]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "MAX_PIXELS", max_pixels)
        patch.setattr(figures, "CHUNK_CELLS", chunk)
        sizes = figures.pixel_shape(relation)
        bins = figures.bin_cells(relation, positions, sizes)
    dense = np.nan_to_num(X) if kind != "undirected" else np.nan_to_num(X) + np.nan_to_num(X).T
    unseen = np.isnan(X) if kind != "undirected" else np.isnan(X) | np.isnan(X).T
    if kind != "bipartite":
        unseen = unseen | np.eye(shape[0], dtype=bool)
    links, seen = np.zeros(sizes), np.zeros(sizes)
    for i in range(shape[0]):
        for j in range(shape[1]):
            at = positions[0][i] * sizes[0] // shape[0], positions[1][j] * sizes[1] // shape[1]
            links[at] += dense[i, j]
            seen[at] += not unseen[i, j]
    np.testing.assert_array_equal(bins.links, links)
    np.testing.assert_array_equal(bins.seen, seen)


def test_self_links_are_drawn():
    relation = BinaryRelation.build(sparse.csr_array(np.eye(3)), kind="directed", self_links=True)
    bins = figures.bin_cells(relation, [np.arange(3)] * 2, (3, 3))
    np.testing.assert_array_equal(bins.links, np.eye(3))
    assert bins.seen.sum() == 9


# Charts


def test_long_traces_are_thinned():
    for chart in draw_charts(trace_of(5000), 1e-5):
        assert len(chart.sweeps) == MAX_POINTS
        assert chart.sweeps[0] == 1
        assert chart.sweeps[-1] == 5000
        assert all(len(line) == MAX_POINTS for line in chart.values)


def test_zeros_are_drawn_below_the_tolerance():
    """The curve of a fit that ends with a change of 0 does not end above the tolerance."""
    trace = trace_of(5)
    trace[4] = replace(trace[4], change=0.0)
    chart = draw_charts(trace, 0.02)[1]
    last = float(chart.paths[0].split(" ")[-1])
    assert chart.threshold < last == figures.FRAME["bottom"]
    assert chart.y_ticks[0] == (last, "0")
    assert all(at < last for at, _ in chart.y_ticks[1:])
    without = draw_charts(trace_of(5), 0.02)[1]
    assert "0" not in [text for _, text in without.y_ticks]


def test_lines_are_interrupted_at_values_without_a_logarithm():
    trace = trace_of(5)
    trace[2] = replace(trace[2], change=np.nan)
    change = draw_charts(trace, None)[1].paths[0]
    assert change.count("M") == 2
    assert [part.count("L") for part in change.split("M")[1:]] == [1, 1]
    assert draw_charts(trace_of(5), None)[1].paths[0].count("M") == 1


def test_charts_accept_values_that_are_not_finite():
    trace = [*trace_of(3), *(s for s in trace_of(5)[3:])]
    broken = [s.__class__(s.sweep, np.nan, -np.inf, np.nan, 1, 1, 0.0) for s in trace]
    bound, change, clusters = draw_charts(broken, None)
    assert bound.values == [[None] * 5]
    assert bound.paths[0] == change.paths[0] == ""
    assert len(clusters.paths) == 1
    json.dumps(bound.values, allow_nan=False)
    page = render(replace(small_result(), trace=broken), settings={})
    assert not re.search(r">[^<]*\b(nan|inf)\b", page[page.index('id="fit"') :].split("<script")[0])


# Colours


def luminance(colour: tuple[int, int, int]) -> float:
    """Return the relative luminance as the Web Content Accessibility Guidelines define it."""
    parts = np.array(colour) / 255
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


@pytest.mark.parametrize("stops", [style.LIGHT_SCALE, style.DARK_SCALE])
def test_shades_are_monotonic_and_text_on_them_has_enough_contrast(stops):
    css = style.css_colours()
    part = css.split("@media")[0 if stops is style.LIGHT_SCALE else 1]
    shades = [bytes.fromhex(part.split(f"--s{s}:#")[1][:6]) for s in range(style.STEPS)]
    inks = [bytes.fromhex(part.split(f"--t{s}:#")[1][:6]) for s in range(style.STEPS)]
    light = [luminance(tuple(shade)) for shade in shades]
    assert light == sorted(light, reverse=stops is style.LIGHT_SCALE)
    for shade, ink in zip(light, inks, strict=True):
        low, high = sorted((shade, luminance(tuple(ink))))
        assert (high + 0.05) / (low + 0.05) >= 4.5
