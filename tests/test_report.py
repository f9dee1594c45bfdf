"""Test the report page: content, size, determinism and safety."""

import base64
import hashlib
import json
import os
import re
import subprocess
import sys
import zipfile
import zlib
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from hatchling.builders.wheel import WheelBuilder
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.exceptions import NotFittedError

from coblock import IRM
from coblock.analysis.description import describe
from coblock.model.relation import BinaryRelation
from coblock.model.result import Result
from coblock.ui.report import render, write_report
from coblock.ui.report.content import pack_clusters, pack_names
from coblock.ui.style import percent
from fabricated import (
    NASTY,
    large_result,
    one_domain_result,
    result_of,
    small_result,
)

ROOT = Path(__file__).parent.parent
TEMPLATES = ROOT / "src/coblock/ui/report/templates"
MOST_BYTES = 3_000_000
SETTINGS = {"inference": "acvb0", "tol": 1e-5, "init": np.zeros(16), "random_state": 7}
ROWS = [f"buyer {i}" for i in range(16)]
COLUMNS = [f"thing {j}" for j in range(12)]


class Page(HTMLParser):
    """The tags, attributes and texts of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: dict[str, list[str]] = {}
        self.open = "none"
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.open = tag

    def handle_data(self, data):
        self.text.setdefault(self.open, []).append(data)

    def by_id(self, name: str) -> str:
        return next(tag for tag, attributes in self.tags if attributes.get("id") == name)

    @property
    def ids(self) -> list[str]:
        return [a["id"] for _, a in self.tags if a.get("id")]


def element(page: str, name: str) -> str:
    """Return the text of the element with this id, which contains no other element."""
    return re.search(rf'id="{name}"[^>]*>([^<]*)<', page)[1]


def unpacked(page: str, name: str = "names"):
    return json.loads(zlib.decompress(base64.b64decode(element(page, name))))


def visible(page: str) -> str:
    """Return the visible text of a page on one line."""
    body = re.sub(r"<(script|style).*?</\1>", "", page, flags=re.DOTALL)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", body))


@pytest.fixture(scope="module")
def page() -> str:
    return render(small_result(ROWS, COLUMNS), settings=SETTINGS, title="Who buys what")


# Content


def test_the_report_has_all_parts(page):
    parsed = Page(page)
    assert page.startswith("<!doctype html>")
    parts = {"relation", "blocks", "rows", "columns", "fit", "cite", "search", "map", "readout"}
    assert parts <= set(parsed.ids)
    assert len(parsed.ids) == len(set(parsed.ids))
    assert {f"row-{k}" for k in range(3)} | {f"column-{l}" for l in range(2)} <= set(parsed.ids)
    assert "row-3" not in parsed.ids


def test_every_link_within_the_page_has_a_target(page):
    parsed = Page(page)
    targets = [a["href"] for tag, a in parsed.tags if tag == "a"]
    assert len(targets) > 10
    assert {target[1:] for target in targets} <= set(parsed.ids)


def test_the_page_shows_the_numbers_of_the_relation(page):
    text = visible(page)
    relation = small_result().relation
    assert "Who buys what" in text
    assert "16 rows fall into 3 clusters, 12 columns into 2 clusters" in text
    for what, value in [
        ("Rows", "16"),
        ("Columns", "12"),
        ("Links", f"{relation.n_links}"),
        ("Unseen cells", "1"),
        ("Density", percent(relation.density)),
    ]:
        assert f"{what} {value} " in text


def test_the_table_has_size_certainty_and_features_of_every_cluster(page):
    line = visible(re.search(r'<tr id="row-0".*?</tr>', page, re.DOTALL)[0])
    assert re.search(r" 0 .* 7 +90% .*thing \d+ +\d+ %, 1\.\d x average", line)
    assert page.count('<tr id="row-') == 3
    assert page.count('<tr id="column-') == 2


def test_profiles_of_all_clusters_are_packed(page):
    """The panel shows lift-ranked partners, similar clusters and unsure members."""
    found = describe(small_result(ROWS, COLUMNS))
    for d, domain in enumerate(unpacked(page, "packed")["domains"]):
        assert domain["names"] == found.names[d]
        assert sorted(domain["order"]) == list(range(len(domain["sizes"])))
        for profile, packed in zip(found.domains.profiles[d], domain["profiles"], strict=True):
            ways = zip(profile.directions, packed["ways"], strict=True)
            for way, shown in ways:
                assert [part.index for part in way.clusters] == [x[0] for x in shown["clusters"]]
                lifts = [x[2] for x in shown["objects"]]
                assert lifts == sorted(lifts, reverse=True)
                np.testing.assert_allclose(lifts, [part.lift for part in way.objects], rtol=5e-3)
            assert [g for g, _ in packed["near"]] == [g for g, _ in profile.nearest]
            assert len(packed["unsure"]) == len(profile.unsure) > 0


def test_profiles_are_shortened_where_they_do_not_fit():
    found = describe(large_result(5, (600, 400), (150, 130)))
    whole, short = pack_clusters(found), pack_clusters(found, 60_000)
    assert len(short) < len(whole)
    kept = json.loads(zlib.decompress(base64.b64decode(short)))["domains"][0]["profiles"]
    assert len(kept) == 150
    assert 0 < max(len(each["ways"][0]["objects"]) for each in kept) < 12


def test_settings_start_with_the_seed(page):
    text = visible(page)
    assert "Seed 7." in text
    assert re.search(r"random_state 7 inference acvb0 tol 1e-05 init array of shape 16", text)


def test_the_page_shows_whether_the_fit_converged(page):
    assert "Converged after 12 sweeps: no further gain was found." in visible(page)
    assert 'class="threshold"' not in page  # the last change is above the tolerance
    below = render(small_result(ROWS, COLUMNS), settings={"tol": 0.01})
    assert "the last change, 0.0035, is below 0.01." in visible(below)
    assert 'class="threshold"' in below
    stopped = visible(render(small_result(converged=False), settings={}))
    assert "Stopped after 12 sweeps, before the memberships converged" in stopped
    assert "Converged" not in stopped


def test_a_result_without_sweeps_has_a_page():
    page = render(small_result(sweeps=0), settings={})
    assert "No sweeps were recorded" in page
    assert 'class="chart"' not in page


def test_the_citation_agrees_with_the_repository():
    cff = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    bibtex = (TEMPLATES / "citation.bib").read_text(encoding="utf-8")
    for what in ("title", "journal"):
        cited = re.search(rf'{what}: "(Averaged[^"]*|Journal[^"]*)"', cff)[1]
        assert f"{{{cited}}}" in bibtex
    for name in re.findall(r"family-names: (\w+)\n\s+given-names: (\w+)", cff):
        assert ", ".join(name) in bibtex
    for what in ("volume", "year"):
        assert re.search(rf"{what}: (\d+)", cff)[1] in re.search(rf"{what} .*", bibtex)[0]
    assert re.search(r"license: (\S+)", cff)[1] in bibtex


def test_block_data_equal_the_result(page):
    result = small_result(ROWS, COLUMNS)
    blocks = unpacked(page, "packed")["blocks"]
    assert blocks["shape"] == [3, 2]
    probability = 1 / (1 + np.exp(-np.array(blocks["logit"]) / blocks["steps"]))
    expected = result.block_probability.ravel()
    np.testing.assert_allclose(probability, expected, rtol=4e-3, atol=0)
    np.testing.assert_allclose(1 - probability, 1 - expected, rtol=4e-3, atol=0)
    np.testing.assert_allclose(np.array(blocks["links"]) / 10, result.n.ravel(), atol=0.051)
    np.testing.assert_allclose(blocks["cells"], (result.n + result.N).ravel(), atol=0.51)
    sizes = [domain["sizes"] for domain in unpacked(page, "packed")["domains"]]
    assert sizes == [[7, 5, 4], [8, 4]]


def test_the_legend_does_not_say_at_least_all_cells():
    """A pixel of several cells that are all links."""
    labels = [np.repeat([0, 1], 750), np.repeat([0, 1], 750)]
    X = np.kron(np.eye(2), np.ones((750, 750)))
    text = visible(render(result_of(BinaryRelation.build(X), *labels), settings={}))
    assert "All cells are links." in text
    assert "100% of the cells" not in text


@pytest.mark.parametrize("kind", ["directed", "undirected"])
@pytest.mark.parametrize("named", [True, False])
def test_one_domain_has_one_set_of_cards(kind, named):
    names = [f"person {i}" for i in range(14)] if named else None
    page = render(one_domain_result(kind, names), settings=SETTINGS)
    ids = Page(page).ids
    assert {"objects", "object-0", "object-2"} <= set(ids)
    assert not {"rows", "columns", "row-0"} & set(ids)
    text = visible(page)
    assert "14 objects fall into 3 clusters" in text
    verbs = unpacked(page, "packed")["domains"][0]["verbs"]
    assert verbs == ["links to", "linked from"][: 1 + (kind == "directed")]
    assert any("person" in name for name in unpacked(page)[0]["names"]) == named
    assert len(unpacked(page)) == 1


def test_objects_without_names_are_shown_by_number():
    page = render(small_result(), settings=SETTINGS)
    assert "by its number, counted from 0" in visible(page)
    rows, columns = unpacked(page)
    assert sorted(rows["names"], key=int) == [str(i) for i in range(16)]
    assert sorted(columns["names"], key=int) == [str(j) for j in range(12)]


def test_a_relation_of_one_cell_has_a_page():
    for X in (np.ones((1, 1)), np.zeros((1, 1)), np.full((1, 1), np.nan)):
        result = result_of(BinaryRelation.build(X), np.zeros(1, int), np.zeros(1, int))
        text = visible(render(result, settings={}))
        assert "1 row falls into 1 cluster, 1 column into 1 cluster." in text


# Search


def test_names_are_packed_with_their_clusters_and_certainty(page):
    result = small_result(ROWS, COLUMNS)
    for d, (packed, names) in enumerate(zip(unpacked(page), (ROWS, COLUMNS), strict=True)):
        cluster = np.repeat(np.arange(len(packed["counts"])), packed["counts"])
        sure = np.concatenate([[value] * run for value, run in packed["certainty"]])
        assert sorted(packed["names"]) == sorted(names)
        at = [names.index(name) for name in packed["names"]]
        np.testing.assert_array_equal(result.labels[d][at], cluster)
        own = result.memberships[d][at, cluster]
        np.testing.assert_allclose(sure, 100 * own, atol=0.5)


def test_a_size_limit_keeps_the_most_certain_members_of_each_cluster():
    result = small_result([os.urandom(20).hex() for _ in range(16)], COLUMNS)
    everything = pack_names(result)
    assert everything.complete
    some = pack_names(result, len(everything.packed) // 2)
    assert len(some.packed) <= len(everything.packed) // 2
    assert not some.complete
    assert 0 < some.per_cluster < 8
    rows, columns = json.loads(zlib.decompress(base64.b64decode(some.packed)))
    assert rows["counts"] == [min(size, some.per_cluster) for size in (7, 5, 4)]
    assert [len(rows["names"]), len(columns["names"])] == some.kept
    nothing = pack_names(result, 120)
    assert nothing.kept == [0, 0]


# Size


@pytest.fixture(scope="module")
def large():
    return large_result(10, (100_000, 20_000), (40, 130))


@pytest.fixture(scope="module")
def large_page(large) -> str:
    return render(large, settings=SETTINGS)


def test_a_page_with_a_million_links_is_below_three_megabytes(large, large_page):
    page = large_page
    assert large.relation.n_links == 1_000_000
    assert len(page.encode()) < MOST_BYTES
    text = visible(page)
    assert "can be found by its name" in text  # all names fit
    assert page.count('<tr id="column-') == 130
    assert "Each pixel covers about 139 × 28 cells" in text


def test_links_are_not_drawn_as_elements(large_page):
    drawn = re.search(r'<svg id="sorted".*?</svg>', large_page, re.DOTALL)[0]
    assert drawn.count("<image") == 1
    assert drawn.count("<line") == 0  # more than 30 clusters on each side
    assert drawn.count("<") < 60


def test_long_names_do_not_exceed_the_size_limit():
    rows, columns = np.arange(400) % 120, np.arange(300) % 110
    names = ["\"'<&>" * 400 + str(i) for i in range(400)]
    X = np.random.default_rng(0).random((400, 300)) < 0.3
    relation = BinaryRelation.build(X, row_names=names, column_names=names[:300])
    page = render(
        result_of(relation, rows, columns), settings={"init": "x" * 10**6}, title="t" * 999
    )
    assert len(page.encode()) < MOST_BYTES


def test_a_page_with_500_x_500_clusters_is_below_three_megabytes():
    result = large_result(20, (50_000, 5_000), (500, 500))
    assert result.relation.n_links == 1_000_000
    page = render(result, settings={})
    assert len(page.encode()) < MOST_BYTES
    assert page.count('<tr id="row-') == page.count('<tr id="column-') == 500
    parsed = Page(page)
    targets = {a["href"][1:] for tag, a in parsed.tags if tag == "a"}
    assert len(targets) > 1000
    assert targets <= set(parsed.ids)


# Determinism


def test_the_same_result_gives_the_same_page(page):
    again = render(small_result(ROWS, COLUMNS), settings=SETTINGS, title="Who buys what")
    assert again == page
    assert render(small_result(ROWS, COLUMNS), settings=SETTINGS, title="Other") != page


def test_another_process_gives_the_same_page():
    """Hash seeds differ between processes."""
    page = render(small_result(), settings={"b": 1, "a": 2})
    code = (
        "import hashlib\n"
        "from coblock.ui.report import render\n"
        "from fabricated import small_result\n"
        "page = render(small_result(), settings={'b': 1, 'a': 2})\n"
        "print(hashlib.sha256(page.encode()).hexdigest())"
    )
    found = subprocess.run(
        [sys.executable, "-c", code],
        env={
            **os.environ,
            "PYTHONHASHSEED": "123",
            "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT / "tests"))),
        },
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.strip() == hashlib.sha256(page.encode()).hexdigest()


# Safety


def tags_of(page: str) -> list[tuple[str, tuple[str, ...]]]:
    return [(tag, tuple(attributes)) for tag, attributes in Page(page).tags]


def test_names_do_not_create_elements_or_attributes():
    harmless = [f"name {i}" for i in range(16)]
    plain = tags_of(render(small_result(harmless, harmless[:12]), settings={}, title="plain"))
    nasty = render(small_result(NASTY, NASTY[:12]), settings={}, title=NASTY[0])
    assert tags_of(nasty) == plain
    assert not any(name.startswith("on") for _, names in plain for name in names)


def test_the_comparison_of_tags_can_fail(page):
    unescaped = page.replace("<title>", f"<title></title>{NASTY[0]}<title>")
    assert unescaped != page
    assert tags_of(unescaped) != tags_of(page)


def named(names: list[str]) -> Result:
    """Return the same result for every example, with other names."""
    result = network()
    relation = replace(result.relation, row_names=tuple(names), column_names=tuple(names))
    return replace(result, relation=relation)


@cache
def network() -> Result:
    return one_domain_result("directed")


@cache
def plain_tags() -> list[tuple[str, tuple[str, ...]]]:
    return tags_of(render(named(["x"] * 14), settings={"a": "b"}, title="t"))


@settings(max_examples=30)
@given(
    names=st.lists(st.text(max_size=30), min_size=14, max_size=14),
    value=st.text(max_size=30),
    title=st.text(min_size=1, max_size=30),
)
def test_text_does_not_create_elements(names, value, title):
    page = render(named(names), settings={"a": value}, title=title)
    assert tags_of(page) == plain_tags()
    json.loads(element(page, "data"))
    unpacked(page, "packed")


def test_the_policy_allows_only_our_style_and_script(page):
    parsed = Page(page)
    policy = next(a["content"] for tag, a in parsed.tags if "http-equiv" in a)
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    script = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    style = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)
    assert len(script) == len(style) == 1
    for text in (*script, *style):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy
    assert not any("style" in attributes for _, attributes in parsed.tags)


def test_the_page_has_no_external_addresses(page):
    addresses = [
        value
        for tag, attributes in Page(page).tags
        for name, value in attributes.items()
        if name in ("src", "href", "srcset", "action", "data", "xlink:href")
    ]
    assert len(addresses) > 10
    assert {address[:1] if address[0] == "#" else address[:5] for address in addresses} == {
        "#",
        "data:",
    }
    assert "url(" not in page
    assert set(re.findall(r"https?://[^\s\"'<]*", page)) == {"http://www.w3.org/2000/svg"}


# The file


def test_the_file_is_replaced(tmp_path, page):
    path = tmp_path / "report.html"
    path.write_text("old", encoding="utf-8")
    write_report(small_result(ROWS, COLUMNS), path, settings=SETTINGS, title="Who buys what")
    assert path.read_text(encoding="utf-8") == page
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]


def test_a_failure_leaves_the_old_file_only(tmp_path, monkeypatch):
    path = tmp_path / "report.html"
    path.write_text("old", encoding="utf-8")

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="disk is full"):
        write_report(small_result(), path, settings={})
    assert path.read_text(encoding="utf-8") == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]


def test_half_a_surrogate_pair_in_a_name_can_be_written(tmp_path):
    path = tmp_path / "report.html"
    write_report(small_result(["\ud800"] * 16), path, settings={})
    assert path.read_bytes().decode("utf-8")


def test_paths_that_cannot_be_written_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="does not exist"):
        write_report(small_result(), tmp_path / "no" / "report.html", settings={})
    with pytest.raises(IsADirectoryError, match="is a folder, not a file"):
        write_report(small_result(), tmp_path, settings={})


def test_templates_are_in_the_package(tmp_path):
    """Build a wheel: it has every file below src/coblock that git does not ignore."""
    wheel = next(WheelBuilder(str(ROOT)).build(directory=str(tmp_path)))
    with zipfile.ZipFile(wheel) as archive:
        shipped = set(archive.namelist())
    for name in (
        "report.html.j2",
        "report.css",
        "core.js",
        "map.js",
        "notebook.html.j2",
        "citation.bib",
    ):
        assert f"coblock/ui/report/templates/{name}" in shipped


def test_an_estimator_writes_its_report(tmp_path):
    X = np.kron(np.eye(2), np.ones((4, 3)))
    path = tmp_path / "report.html"
    model = IRM(random_state=3, tol=1e-3, callback=lambda _sweep: None).fit(X)
    model.report(path, title="Two blocks")
    page = path.read_text(encoding="utf-8")
    assert "<title>Two blocks" in page
    assert "random_state" in page
    assert "callback" not in page
    with pytest.raises(NotFittedError):
        IRM().report(path)
