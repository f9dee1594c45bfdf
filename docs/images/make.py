"""Render the image of the report in the README, from the bundled votes of a US Senate.

    python docs/images/make.py

It requires the development environment and Debian's chromium, and takes about a minute.
"""

import os
import shutil
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

from coblock import IRM
from coblock.datasets import load_senate
from coblock.model.relation import BinaryRelation

PICTURE = Path(__file__).parent / "report.png"
WIDTH, HEIGHT = 1240, 2060  # pixels of the window; it ends below the block map
COLOURS = 64  # of the palette; keeps the file small
BLOCK = (0.3, 0.8)  # place of the mouse pointer on the map, as shares of width and height


def make_report(path: Path) -> None:
    """Fit the default model to the Senate's votes and write its report."""
    senate = load_senate()
    relation = BinaryRelation.build(
        senate.values, row_names=senate.senators, column_names=senate.votes
    )
    model = IRM(random_state=0).fit(relation)
    model.report(path, title="Roll calls of the 109th US Senate")


def save_screenshot(report: Path, picture: Path, chromium: str) -> None:
    """Open the report, point at a block, and save a screenshot."""
    with sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=chromium, args=["--no-sandbox"] if os.geteuid() == 0 else []
        )
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        page.goto(report.as_uri())
        page.wait_for_selector("html[data-ready]")
        box = page.locator("#map").bounding_box()
        at = {"x": BLOCK[0] * box["width"], "y": BLOCK[1] * box["height"]}
        page.locator("#map").hover(position=at)
        page.evaluate("window.scrollTo({top: 0, behavior: 'instant'})")
        page.screenshot(path=picture)
        browser.close()
    with Image.open(picture) as taken:
        taken.convert("RGB").quantize(COLOURS).save(picture, optimize=True)


def main() -> None:
    """Write the image file."""
    chromium = shutil.which("chromium")
    if chromium is None:
        sys.exit("chromium is required to open the report. On Debian: apt-get install chromium")
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.html"
        make_report(report)
        save_screenshot(report, PICTURE, chromium)


if __name__ == "__main__":
    main()
