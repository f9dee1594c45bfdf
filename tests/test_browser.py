"""Test the report in a browser: requests, search, pointer, keyboard, and malicious names."""

import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from coblock.analysis.tree import build_tree
from coblock.io.export import read_names
from coblock.ui.report import write_report
from coblock.ui.style import percent
from fabricated import NASTY, large_result, one_domain_result, result_of, small_result

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(
    CHROMIUM is None,
    reason="no chromium to test the report in; on Debian: apt-get install chromium",
)
ROWS = [f"buyer {i}" for i in range(16)]
COLUMNS = [f"thing {j}" for j in range(12)]
SETTINGS = {"random_state": 0, "tol": 1e-5}
FOCUSED = """(() => {
    const e = document.activeElement;
    const outline = parseFloat(getComputedStyle(e).outlineWidth);
    return [e.id || e.textContent.trim(), outline > 1, e.getBoundingClientRect().top >= 0];
})()"""
LEFT, TOP = 62, 26  # of the blocks on the map, in pixels
HANDLERS = """[...document.querySelectorAll("*")]
    .filter((e) => [...e.attributes].some((a) => a.name.startsWith("on"))).length"""


class OpenPage:
    """An open page with its console messages and requests."""

    def __init__(self, browser, path: Path, **options) -> None:
        self.context = browser.new_context(**options)
        self.page = self.context.new_page()
        self.page.set_default_timeout(10_000)
        self.messages: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.messages.append(message.text))
        self.page.on("pageerror", lambda error: self.messages.append(str(error)))
        self.page.on("dialog", lambda dialog: self.messages.append(dialog.message))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(path.as_uri())
        self.page.wait_for_selector("html[data-ready]")

    def text(self, selector: str) -> str:
        return self.page.locator(selector).inner_text()

    def point_at(self, k: int, l: int, result, act: str = "hover") -> None:
        """Move the pointer to the block of two clusters on the map, or click it."""
        tree = build_tree(result)
        places = [tree.order[d].tolist().index(at) for d, at in ((0, k), (-1, l))]
        box = self.page.locator("#map").bounding_box()
        shares = [(at + 0.5) / n for at, n in zip(places, result.n_clusters, strict=True)]
        x = LEFT + shares[1] * (box["width"] - LEFT - 2)
        y = TOP + shares[0] * (box["height"] - TOP - 2)
        getattr(self.page.locator("#map"), act)(position={"x": x, "y": y})

    def pixel(self, x: float, y: float) -> list[int]:
        """Return red, green, blue and alpha of the map at shares of its blocks."""
        return self.page.evaluate(
            f"""(() => {{ const m = document.getElementById("map");
            const one = document.createElement("canvas");
            one.width = one.height = 1;
            const r = m.width / m.clientWidth;
            const at = [{LEFT} + {x} * (m.clientWidth - {LEFT} - 2),
                        {TOP} + {y} * (m.clientHeight - {TOP} - 2)];
            one.getContext("2d").drawImage(m, -at[0] * r, -at[1] * r);
            return [...one.getContext("2d").getImageData(0, 0, 1, 1).data]; }})()"""
        )


@pytest.fixture(scope="module")
def browser():
    as_root = hasattr(os, "geteuid") and os.geteuid() == 0
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox"] if as_root else []
        )
        yield started
        started.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    write_report(small_result(ROWS, COLUMNS), path, settings=SETTINGS, title="Who buys what")
    return path


@pytest.fixture
def open_page(browser):
    pages: list[OpenPage] = []

    def open_one(path: Path, **options) -> OpenPage:
        pages.append(OpenPage(browser, path, **options))
        return pages[-1]

    yield open_one
    for opened in pages:
        assert opened.messages == []
        assert all(re.match(r"file:|data:|blob:", url) for url in opened.requests)
        opened.context.close()


def test_the_page_requests_only_itself(open_page, report):
    opened = open_page(report)
    assert opened.page.title() == "Who buys what – coblock"
    assert [url for url in opened.requests if not url.startswith("data:")] == [report.as_uri()]
    assert opened.page.locator("table.clusters tbody tr").count() == 5
    sizes = opened.page.evaluate(
        "Array.from(document.querySelectorAll('.relation'), e => e.getBoundingClientRect().height)"
    )
    assert min(sizes) > 100


def test_a_request_is_noticed_and_blocked(open_page, report, tmp_path):
    """Negative control: a page that requests an image logs an error."""
    path = tmp_path / "leaky.html"
    text = report.read_text(encoding="utf-8")
    path.write_text(
        text.replace("<footer>", '<footer><img src="http://127.0.0.1:9/x.png">'), encoding="utf-8"
    )
    opened = open_page(path)
    assert any("Content Security Policy" in line for line in opened.messages)
    opened.messages.clear()
    opened.requests.clear()


@pytest.mark.parametrize(("typed", "noun"), [("buyer 11", "row"), ("THING 7", "column")])
def test_search_finds_a_name_and_opens_its_cluster(open_page, report, typed, noun):
    result = small_result(ROWS, COLUMNS)
    d = 0 if noun == "row" else 1
    cluster = int(result.labels[d][int(typed.split()[1])])
    opened = open_page(report)
    opened.page.fill("#search", typed)
    opened.page.wait_for_selector("#matches li")
    opened.page.keyboard.press("Enter")
    answer = f"{typed.lower()} is in {noun} cluster {cluster}, certainty 90%."
    assert opened.text("#answer") == answer
    assert opened.text("#panel .kind") == f"{noun} cluster {cluster}"
    opened.page.wait_for_selector("#panel .found")
    assert opened.text("#panel .found bdi") == typed.lower()
    assert opened.page.evaluate("location.hash") == f"#{noun}-{cluster}"
    assert opened.page.locator("#matches").is_hidden()
    opened.page.keyboard.press("Escape")
    assert opened.page.locator("#panel").is_hidden()


# Panels


def test_every_link_has_a_target_and_every_cluster_a_panel(open_page, report):
    result = small_result(ROWS, COLUMNS)
    opened = open_page(report)
    for d, noun in enumerate(("row", "column")):
        for k in range(result.n_clusters[d]):
            opened.page.locator(f"#{noun}-{k} a").click()
            opened.page.wait_for_selector("#member-list li")
            members = opened.page.locator("#member-list bdi").all_inner_texts()
            names = (ROWS, COLUMNS)[d]
            expected = [names[i] for i in (result.labels[d] == k).nonzero()[0]]
            assert sorted(members) == sorted(expected)
            lifts = opened.page.locator("#panel .features").nth(1).locator("td:nth-child(3)")
            shown = [float(text.rstrip("×")) for text in lifts.all_inner_texts()]
            assert shown == sorted(shown, reverse=True)
            assert dead_links(opened) == []
            opened.page.keyboard.press("Escape")


def dead_links(opened: OpenPage) -> list[str]:
    return opened.page.evaluate(
        """[...document.querySelectorAll("a[href^='#']")].map((a) => a.getAttribute("href"))
        .filter((target) => !document.getElementById(target.slice(1)))"""
    )


def test_dead_links_are_noticed(open_page, report):
    opened = open_page(report)
    assert dead_links(opened) == []
    opened.page.evaluate("document.querySelector('nav a').setAttribute('href', '#nowhere')")
    assert dead_links(opened) == ["#nowhere"]


def test_members_can_be_filtered_sorted_copied_and_saved(open_page, report):
    opened = open_page(report, permissions=["clipboard-read", "clipboard-write"])
    opened.page.locator("#row-0 a").click()
    opened.page.wait_for_selector("#member-list li")
    members = opened.page.locator("#member-list bdi")
    all_members = members.all_inner_texts()
    assert len(all_members) == 7
    opened.page.get_by_label("Order of the members").select_option("by name")
    assert members.all_inner_texts() == sorted(all_members)
    opened.page.get_by_label("Filter the members").fill("buyer 1")
    some = members.all_inner_texts()
    assert some == [name for name in sorted(all_members) if "buyer 1" in name]
    assert f"{len(some)} of 7 rows" in opened.text("#panel")
    opened.page.get_by_role("button", name="Copy").click()
    opened.page.locator("#said", has_text="Names copied.").wait_for(state="attached")
    assert opened.page.evaluate("navigator.clipboard.readText()") == "\n".join(some)
    with opened.page.expect_download() as download:
        opened.page.get_by_role("button", name="CSV", exact=True).click()
    lines = Path(download.value.path()).read_text(encoding="utf-8").splitlines()
    assert lines[0] == "name,cluster,probability"
    assert lines[1:] == [f'"{name}",0,0.9' for name in some]


def test_a_cluster_can_be_renamed_and_names_saved(open_page, report, tmp_path):
    opened = open_page(report)
    opened.page.locator("#row-1 a").click()
    opened.page.locator("#panel summary").click()
    opened.page.get_by_label("Name of the cluster").fill('Tea, "and" =more')
    assert opened.text("#row-1 .name") == 'Tea, "and" =more'
    with opened.page.expect_download() as download:
        opened.page.get_by_role("button", name="Save names.csv").click()
    path = tmp_path / "names.csv"
    download.value.save_as(path)
    names = read_names(path)
    assert names["row", 1] == 'Tea, "and" =more'
    assert len(names) == 5


def test_two_clusters_can_be_compared(open_page, report):
    result = small_result(ROWS, COLUMNS)
    opened = open_page(report)
    opened.page.locator("#row-0 a").click()
    opened.page.locator("#panel select").last.select_option("1")
    shown = opened.page.locator(".comparison td:not(:first-child)").all_inner_texts()
    p = result.block_probability
    order = sorted(range(2), key=lambda l: -abs(p[0, l] - p[1, l]))
    assert shown == [percent(p[k, l]) for l in order for k in (0, 1)]


def test_the_address_opens_a_panel_and_back_closes_it(open_page, report):
    opened = open_page(report)
    opened.page.locator("#row-2 a").click()
    opened.page.locator("#panel a", has_text="Previous").click()
    assert opened.text("#panel .kind") == "row cluster 1"
    opened.page.go_back()
    assert opened.text("#panel .kind") == "row cluster 2"
    opened.page.go_back()
    assert opened.page.locator("#panel").is_hidden()
    opened.page.goto(report.as_uri() + "#column-1")
    opened.page.reload()
    opened.page.wait_for_selector("html[data-ready]")
    assert opened.text("#panel .kind") == "column cluster 1"


def test_tables_of_clusters_can_be_filtered_and_sorted(open_page, report):
    opened = open_page(report)
    first = opened.page.locator("#rows .clusters tbody tr")
    names = [text.split(None, 1)[1] for text in first.locator("th").all_inner_texts()]
    opened.page.locator("#rows .controls select").select_option("by name")
    again = [text.split(None, 1)[1] for text in first.locator("th").all_inner_texts()]
    assert sorted(names) == sorted(again)
    opened.page.locator("#rows .controls input").fill("no such cluster")
    assert opened.page.locator("#rows tbody tr:visible").count() == 0


# Search


def test_search_lists_matches_and_reports_when_there_are_none(open_page, report):
    opened = open_page(report)
    opened.page.keyboard.press("/")
    opened.page.keyboard.type("buyer")
    opened.page.wait_for_selector("#matches li.more")
    options = opened.page.locator("#matches [role=option]")
    assert options.count() == 12
    assert opened.text("#matches li.more") == "4 more; keep typing to narrow the list."
    opened.page.keyboard.press("ArrowDown")
    assert options.nth(1).get_attribute("aria-selected") == "true"
    second = options.nth(1).locator("bdi").inner_text()
    options.nth(1).click()
    assert opened.text("#answer").startswith(f"{second} is in row cluster")
    opened.page.fill("#search", "unknown name")
    opened.page.wait_for_function(
        "document.querySelector('#matches').innerText.includes('No such')"
    )
    opened.page.keyboard.press("Escape")
    assert opened.page.locator("#matches").is_hidden()


def test_pointing_at_a_block_shows_its_numbers(open_page, report):
    result = small_result(ROWS, COLUMNS)
    opened = open_page(report)
    for k, l in [(1, 1), (2, 0)]:
        opened.point_at(k, l, result)
        read = opened.text("#readout")
        assert f"row cluster {k}," in read
        assert f"column cluster {l}," in read
        assert f"{100 * result.block_probability[k, l]:.0f}%" in read
        links, cells = result.n[k, l], result.n[k, l] + result.N[k, l]
        found = re.search(r"([\d.]+) links in ([\d.]+) seen cells", read)
        assert float(found[1]) == pytest.approx(links, abs=0.06)
        assert float(found[2]) == pytest.approx(cells, abs=0.51)


def test_a_click_pins_a_block_and_escape_releases_it(open_page, report):
    result = small_result(ROWS, COLUMNS)
    opened = open_page(report)
    opened.point_at(1, 1, result, "click")
    assert "Pinned" in opened.text("#readout")
    opened.point_at(2, 0, result)
    assert "row cluster 1," in opened.text("#readout")
    opened.page.keyboard.press("Escape")
    assert "Pinned" not in opened.text("#readout")
    opened.point_at(2, 0, result)
    assert "row cluster 2," in opened.text("#readout")
    opened.page.locator("#sorted").click(position={"x": 5, "y": 5})
    assert "Pinned" in opened.text("#readout")


def test_map_and_picture_can_be_zoomed_and_moved(open_page, report):
    opened = open_page(report)
    whole = opened.pixel(0.02, 0.02), opened.page.evaluate("map.toDataURL()")
    opened.page.locator("#map-zoom button", has_text="+").click()
    zoomed = opened.page.evaluate("map.toDataURL()")
    assert zoomed != whole[1]
    box = opened.page.locator("#map").bounding_box()
    opened.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    opened.page.mouse.down()
    opened.page.mouse.move(box["x"] + box["width"] / 2 - 40, box["y"] + box["height"] / 2, steps=4)
    opened.page.mouse.up()
    assert "Pinned" not in opened.text("#readout")
    assert opened.page.evaluate("map.toDataURL()") != zoomed
    opened.page.focus("#map")
    opened.page.keyboard.press("0")
    assert opened.pixel(0.02, 0.02) == whole[0]
    inner = opened.page.locator("#sorted-view")
    opened.page.locator("#picture-zoom button", has_text="+").click()
    assert inner.get_attribute("viewBox") == "25 25 50 50"
    opened.page.locator("#sorted").hover()
    opened.page.keyboard.down("Control")
    opened.page.mouse.wheel(0, -100)
    opened.page.wait_for_function(
        "document.getElementById('sorted-view').getAttribute('viewBox').endsWith('40 40')"
    )
    opened.page.keyboard.up("Control")
    opened.page.locator("#picture-zoom button", has_text="Whole").click()
    assert inner.get_attribute("viewBox") == "0 0 100 100"


def test_the_level_merges_clusters(open_page, report):
    result = small_result(ROWS, COLUMNS)
    tree = build_tree(result)
    opened = open_page(report)
    evidence = f"{tree.cut(level=0).log_evidence:,.0f}".replace("-", "−")
    assert opened.text("#level-text") == f"3 × 2 clusters, log evidence {evidence}, as found"
    opened.page.focus("#level")
    opened.page.keyboard.press("End")
    assert opened.text("#level-text").startswith("1 × 1 clusters, log evidence ")
    read = opened.text("#readout")
    assert "and 2 more, 16 rows" in read
    links, cells = re.search(r"([\d.]+) links in ([\d.]+) seen", read).groups()
    assert float(links) == pytest.approx(result.n.sum(), abs=0.4)
    assert float(cells) == pytest.approx((result.n + result.N).sum(), abs=3.1)
    opened.page.keyboard.press("Home")
    assert "as found" in opened.text("#level-text")


def test_pointing_at_the_picture_and_at_charts_shows_numbers(open_page, report):
    opened = open_page(report)
    opened.page.locator("#sorted").hover(position={"x": 10, "y": 10})
    tree = build_tree(small_result(ROWS, COLUMNS))
    assert opened.text("#tip").startswith(f"row cluster {tree.order[0][0]}: ")
    assert f"× column cluster {tree.order[1][0]}: " in opened.text("#tip")
    chart = opened.page.locator(".chart svg").nth(1)
    box = chart.bounding_box()
    chart.hover(position={"x": box["width"] * 352 / 360 - 1, "y": 60})
    assert opened.text("#tip") == "sweep 12\nchange 0.003472222"
    opened.page.mouse.move(1, 1)
    assert opened.page.locator("#tip").is_hidden()


def test_the_map_can_be_used_with_the_keyboard(open_page, report):
    tree = build_tree(small_result(ROWS, COLUMNS))
    rows, columns = tree.order
    opened = open_page(report)
    opened.page.focus("#map")
    steps = [
        ("Home", None),
        ("PageUp", (0, 0)),
        ("ArrowDown", (1, 0)),
        ("ArrowRight", (1, 1)),
        ("ArrowRight", (1, 1)),
        ("PageDown", (2, 1)),
        ("ArrowUp", (1, 1)),
        ("ArrowLeft", (1, 0)),
    ]
    for key, at in steps:
        opened.page.keyboard.press(key)
        if at is not None:
            read = opened.text("#readout")
            assert f"row cluster {rows[at[0]]}," in read
            assert f"column cluster {columns[at[1]]}," in read
    opened.page.keyboard.press("Space")
    assert "Pinned" in opened.text("#readout")
    opened.page.keyboard.press("Enter")
    assert opened.text("#panel .kind") == f"row cluster {rows[1]}"
    assert opened.page.evaluate("document.activeElement.id") == "panel-title"
    opened.page.keyboard.press("Escape")
    assert opened.page.evaluate("document.activeElement.id") == "map"


def test_focused_elements_are_visible(open_page, report):
    opened = open_page(report)
    seen = []
    for _ in range(16):
        opened.page.keyboard.press("Tab")
        seen.append(opened.page.evaluate(FOCUSED))
    assert seen[0][0] == "Skip to the content"
    assert "search" in [name for name, _, _ in seen]
    assert "map" in [name for name, _, _ in seen]
    assert all(outlined and inside for _, outlined, inside in seen)


def test_blocks_are_coloured_by_probability_logarithm_or_lift(open_page, report):
    opened = open_page(report)
    pictures, legends = set(), set()
    for scale in ("probability", "logarithm", "lift"):
        opened.page.select_option("#scale", scale)
        pictures.add(opened.page.evaluate("map.toDataURL()"))
        legends.add(opened.text("#legend-low") + opened.text("#legend-high"))
    assert len(pictures) == len(legends) == 3


def test_empty_blocks_are_blank(open_page, tmp_path):
    path = tmp_path / "sparse.html"
    made = large_result(3, (600, 400), (40, 30))
    result = result_of(made.relation, *made.labels, sure=1.0)
    write_report(result, path, settings={})
    opened = open_page(path)
    opened.page.select_option("#scale", "probability")
    tree = build_tree(result)
    links = result.n[np.ix_(tree.order[0], tree.order[1])]
    for empty in (True, False):
        k, l = np.argwhere((links < 0.05) == empty)[-1]
        alpha = opened.pixel((l + 0.5) / 30, (k + 0.5) / 40)[3]
        assert (alpha == 0) == empty


def test_names_do_not_run_scripts(open_page, tmp_path):
    path = tmp_path / "nasty.html"
    write_report(
        small_result(NASTY, NASTY[:12]), path, settings={NASTY[0]: NASTY[1]}, title=NASTY[1]
    )
    opened = open_page(path)
    title = opened.page.title()
    for typed in ("<img", "</script", "onload", "two", "émile", "blank"):
        opened.page.fill("#search", typed)
        opened.page.wait_for_selector("#matches [role=option]")
        opened.page.keyboard.press("Enter")
        assert " cluster " in opened.text("#answer")
        opened.page.keyboard.press("Escape")
    for k in range(3):
        opened.page.locator(f"#row-{k} a").click()
        opened.page.wait_for_selector("#member-list li")
        opened.page.keyboard.press("Escape")
    opened.page.locator("#map").hover()
    opened.page.wait_for_timeout(100)
    assert opened.page.title() == title
    assert "run" not in title.replace("document.title='run'", "")
    assert opened.page.locator("img, main script, main b").count() == 0
    assert opened.page.evaluate(HANDLERS) == 0


def background(opened: OpenPage, selector: str = "body") -> int:
    """Return the lightness of the background, from 0 to 765."""
    colour = opened.page.evaluate(
        f"getComputedStyle(document.querySelector('{selector}')).backgroundColor"
    )
    return sum(int(part) for part in re.findall(r"\d+", colour)[:3])


def test_dark_mode_is_dark_and_print_is_not(open_page, report):
    light = open_page(report, color_scheme="light")
    dark = open_page(report, color_scheme="dark")
    assert background(light) > 700
    assert background(dark) < 150
    assert light.pixel(0.1, 0.1) != dark.pixel(0.1, 0.1)
    dark.page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert light.pixel(0.1, 0.1) == dark.pixel(0.1, 0.1)
    dark.page.emulate_media(media="print", color_scheme="dark")
    assert not dark.page.locator("#search").is_visible()
    assert dark.page.locator("#map").is_visible()
    assert len(dark.page.pdf(format="A4")) > 20_000


@pytest.mark.parametrize("width", [320, 390, 800])
def test_narrow_screens_need_no_horizontal_scrolling(open_page, report, width):
    opened = open_page(report, viewport={"width": width, "height": 800})
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= width
    opened.page.locator("#row-0 a").click()
    opened.page.wait_for_selector("#member-list li")
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= width
    panel = "document.getElementById('panel')"
    assert opened.page.evaluate(f"{panel}.scrollWidth <= {panel}.clientWidth")


@pytest.mark.parametrize("kind", ["directed", "undirected"])
def test_a_one_domain_relation_works(open_page, tmp_path, kind):
    path = tmp_path / "network.html"
    write_report(one_domain_result(kind), path, settings={})
    opened = open_page(path)
    opened.page.fill("#search", "13")
    opened.page.wait_for_selector("#matches li")
    opened.page.keyboard.press("Enter")
    assert opened.text("#answer") == "13 is in object cluster 2, certainty 90%."
    assert "object cluster" in opened.text("#readout")


def test_a_large_relation_has_every_cluster_on_the_page(open_page, tmp_path):
    path = tmp_path / "large.html"
    result = large_result(10, (3_000, 2_000), (150, 130))
    write_report(result, path, settings={})
    opened = open_page(path)
    assert dead_links(opened) == []
    assert opened.page.locator("table.clusters tbody tr").count() == 280
    assert opened.page.locator("#sorted line").count() == 0  # borders vanish above 30 clusters
    name = result.relation.row_names[int((result.labels[0] == 149).argmax())]
    opened.page.fill("#search", name)
    opened.page.wait_for_selector("#matches li")
    opened.page.keyboard.press("Enter")
    assert "is in row cluster 149, certainty 90%." in opened.text("#answer")
    opened.page.wait_for_selector("#panel .found")
    opened.page.keyboard.press("Escape")
    opened.page.focus("#level")
    opened.page.keyboard.press("End")
    for _ in range(3):
        opened.page.keyboard.press("ArrowLeft")
    clusters = [int(n) for n in re.findall(r"\d+", opened.text("#level-text"))[:2]]
    assert opened.page.locator("#sorted line").count() == sum(clusters) - 2 > 0


def test_500_x_500_clusters_are_drawn_and_answer_quickly(open_page, tmp_path):
    path = tmp_path / "huge.html"
    write_report(large_result(20, (5_000, 5_000), (500, 500)), path, settings={})
    opened = open_page(path)
    took = opened.page.evaluate(
        """(() => { const start = performance.now();
        for (let i = 0; i < 20; i += 1) {
            document.getElementById("map").dispatchEvent(
                new KeyboardEvent("keydown", { key: i % 2 ? "ArrowLeft" : "ArrowRight" }));
        }
        return (performance.now() - start) / 20; })()"""
    )
    assert took < 200.0  # milliseconds


# Accessibility: the checks of Lighthouse that a script can make


CONTRAST = """(() => {
    const parse = (text) => text.match(/[\\d.]+/g).map(Number);
    const luminance = (rgb) => {
        const linear = rgb.slice(0, 3).map((c) => c / 255)
            .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
    };
    const behind = (element) => {
        for (let e = element; e; e = e.parentElement) {
            const colour = parse(getComputedStyle(e).backgroundColor);
            if (colour.length < 4 || colour[3] > 0.99) return colour;
        }
        return [255, 255, 255];
    };
    const faint = [];
    for (const element of document.querySelectorAll("body *")) {
        const own = [...element.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
        if (!own || !element.checkVisibility() || element.closest("svg, script")) continue;
        const both = [parse(getComputedStyle(element).color), behind(element)].map(luminance);
        const ratio = (Math.max(...both) + 0.05) / (Math.min(...both) + 0.05);
        const what = element.textContent.trim().slice(0, 30);
        if (ratio < 4.5) faint.push(`${element.tagName} ${what}`);
    }
    return faint;
})()"""
UNNAMED = """[...document.querySelectorAll("button, a, input, select, canvas, [role=dialog]")]
    .filter((e) => !(e.getAttribute("aria-label") || e.textContent.trim() || e.labels?.length
        || e.getAttribute("aria-labelledby"))).map((e) => e.outerHTML)"""
SMALL = """[...document.querySelectorAll("button, select, input")]
    .filter((e) => e.checkVisibility() && e.getBoundingClientRect().height < 24)
    .map((e) => e.outerHTML)"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_contrast_names_and_sizes_of_everything_that_is_shown(open_page, report, scheme, width):
    opened = open_page(report, color_scheme=scheme, viewport={"width": width, "height": 800})
    for panel in (False, True):
        if panel:
            opened.page.locator("#row-0 a").click()
            opened.page.wait_for_selector("#member-list li")
            opened.page.locator("#panel summary").click()
        assert opened.page.evaluate(CONTRAST) == []
        assert opened.page.evaluate(UNNAMED) == []
        assert opened.page.evaluate(SMALL) == []
        ids = opened.page.evaluate("[...document.querySelectorAll('[id]')].map((e) => e.id)")
        assert len(ids) == len(set(ids))
    assert opened.page.evaluate("document.documentElement.lang") == "en"
    assert opened.page.locator("h1").count() == 1


def test_the_checks_of_accessibility_can_fail(open_page, report):
    opened = open_page(report)
    opened.page.evaluate(
        """(() => { const p = document.createElement("p"); p.textContent = "faint";
        p.style.color = "#bbbbbb"; document.querySelector("main").append(p);
        const b = document.createElement("button"); b.style.minHeight = "0"; b.style.height = "9px";
        document.querySelector("main").append(b); })()"""
    )
    assert opened.page.evaluate(CONTRAST) == ["P faint"]
    assert len(opened.page.evaluate(UNNAMED)) == len(opened.page.evaluate(SMALL)) == 1


def test_the_keyboard_reaches_search_pictures_map_and_clusters(open_page, report):
    opened = open_page(report)
    reached = []
    for _ in range(40):
        opened.page.keyboard.press("Tab")
        reached.append(
            opened.page.evaluate(
                "(() => { const e = document.activeElement;"
                " return e.id || e.getAttribute('aria-label') || e.textContent; })()"
            )
        )
    wanted = ["search", "Zoom in", "level", "map", "scale", "Filter the clusters", "row cluster 0"]
    places = [reached.index(name) for name in wanted]
    assert places == sorted(places)
    opened.page.focus("#row-0 a")
    opened.page.keyboard.press("Enter")
    assert opened.page.evaluate("document.activeElement.id") == "panel-title"
    opened.page.keyboard.press("Tab")
    assert opened.page.evaluate("document.activeElement.textContent") == "Close"
