"""Test the report in a browser: requests, search, pointer, keyboard, and malicious names."""

import os
import re
import shutil
from pathlib import Path

import pytest

from coblock.ui.report import write_report
from fabricated import NASTY, large_result, one_domain_result, small_result

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

    def text(self, selector: str) -> str:
        return self.page.locator(selector).inner_text()


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
    assert opened.page.locator("#map rect").count() == 3 * 2 + 1
    assert opened.page.locator(".card").count() == 5
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


@pytest.mark.parametrize(("typed", "card"), [("buyer 11", "row"), ("THING 7", "column")])
def test_search_finds_a_name_and_focuses_its_card(open_page, report, typed, card):
    result = small_result(ROWS, COLUMNS)
    d = 0 if card == "row" else 1
    cluster = int(result.labels[d][int(typed.split()[1])])
    opened = open_page(report)
    opened.page.fill("#search", typed)
    opened.page.wait_for_selector("#matches li")
    assert opened.page.locator("#matches li").count() == 1
    opened.page.keyboard.press("Enter")
    assert (
        opened.text("#answer") == f"{typed.lower()} is in {card} cluster {cluster}, certainty 90%."
    )
    assert opened.page.evaluate("document.activeElement.id") == f"{card}-{cluster}"
    assert opened.page.locator("#matches").is_hidden()


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
        opened.page.locator("#map rect").nth(2 * k + l).hover()
        read = opened.text("#readout")
        assert f"row cluster {k} × column cluster {l}" in read
        assert f"{100 * result.block_probability[k, l]:.0f}%" in read
        links, cells = result.n[k, l], result.n[k, l] + result.N[k, l]
        found = re.search(r"([\d.]+) links in ([\d.]+) seen cells", read)
        assert [float(x) for x in found.groups()] == pytest.approx([links, cells], abs=0.06)
        assert any(ROWS[i] in read for i in range(16) if result.labels[0][i] == k)


def test_pointing_at_the_picture_and_at_charts_shows_numbers(open_page, report):
    opened = open_page(report)
    opened.page.locator("#sorted").hover(position={"x": 10, "y": 10})
    assert opened.text("#tip").startswith("row cluster 0 × column cluster 0\n")
    chart = opened.page.locator(".chart svg").nth(1)
    box = chart.bounding_box()
    chart.hover(position={"x": box["width"] * 352 / 360 - 1, "y": 60})
    assert opened.text("#tip") == "sweep 12\nchange 0.003472222"
    opened.page.mouse.move(1, 1)
    assert opened.page.locator("#tip").is_hidden()


def test_the_map_can_be_used_with_the_keyboard(open_page, report):
    opened = open_page(report)
    opened.page.focus("#map")
    steps = [
        ("Home", None),
        ("PageUp", "row cluster 0 × column cluster 0"),
        ("ArrowDown", "row cluster 1 × column cluster 0"),
        ("ArrowRight", "row cluster 1 × column cluster 1"),
        ("ArrowRight", "row cluster 1 × column cluster 1"),
        ("PageDown", "row cluster 2 × column cluster 1"),
        ("ArrowUp", "row cluster 1 × column cluster 1"),
        ("ArrowLeft", "row cluster 1 × column cluster 0"),
    ]
    for key, expected in steps:
        opened.page.keyboard.press(key)
        assert expected is None or expected in opened.text("#readout")
    opened.page.keyboard.press("Enter")
    assert opened.page.evaluate("document.activeElement.id") == "row-1"


def test_focused_elements_are_visible(open_page, report):
    opened = open_page(report)
    seen = []
    for _ in range(10):
        opened.page.keyboard.press("Tab")
        seen.append(opened.page.evaluate(FOCUSED))
    assert seen[0][0] == "Skip to the content"
    assert "search" in [name for name, _, _ in seen]
    assert "map" in [name for name, _, _ in seen]
    assert all(outlined and inside for _, outlined, inside in seen)


def test_the_colour_scale_can_be_logarithmic(open_page, report):
    opened = open_page(report)
    before = opened.page.locator("#map rect").nth(0).get_attribute("class")
    low = opened.text("#legend-low")
    opened.page.locator("#logarithmic").click()
    assert opened.text("#legend-low") != low
    classes = [opened.page.locator("#map rect").nth(i).get_attribute("class") for i in range(6)]
    assert classes != [before] * 6
    assert any(re.search(r"\bs20\b", name) for name in classes)
    assert any(re.search(r"\bs0\b", name) for name in classes)


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
    for number in range(6):
        opened.page.locator("#map rect").nth(number).hover()
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
    fill = "getComputedStyle(document.querySelector('#map .s20')).fill"
    assert light.page.evaluate(fill) != dark.page.evaluate(fill)
    dark.page.emulate_media(media="print", color_scheme="dark")
    assert light.page.evaluate(fill) == dark.page.evaluate(fill)
    assert not dark.page.locator("#search").is_visible()
    assert dark.page.locator("#map").is_visible()
    assert len(dark.page.pdf(format="A4")) > 20_000


@pytest.mark.parametrize("width", [320, 390, 800])
def test_narrow_screens_need_no_horizontal_scrolling(open_page, report, width):
    opened = open_page(report, viewport={"width": width, "height": 800})
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= width


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


def test_a_large_relation_shows_the_largest_clusters(open_page, tmp_path):
    path = tmp_path / "large.html"
    write_report(large_result(10, (3_000, 2_000), (150, 130)), path, settings={})
    opened = open_page(path)
    assert opened.page.locator("#map rect").count() == 120 * 120 + 1
    assert opened.text("#map-note") == "The map shows the largest 120 × 120 of 150 × 130 clusters."
    opened.page.focus("#map")
    opened.page.keyboard.press("End")
    opened.page.keyboard.press("PageDown")
    assert "row cluster 119 × column cluster 119" in opened.text("#readout")


def test_a_name_in_a_cluster_without_a_card_is_found(open_page, tmp_path):
    path = tmp_path / "large.html"
    result = large_result(5, (600, 400), (150, 130))
    write_report(result, path, settings={})
    opened = open_page(path)
    opened.page.fill("#search", result.relation.row_names[int((result.labels[0] == 149).argmax())])
    opened.page.wait_for_selector("#matches li")
    opened.page.keyboard.press("Enter")
    assert "is in row cluster 149, certainty 90%." in opened.text("#answer")
    assert opened.page.locator("#answer a").count() == 0
