"""Test the picture of the relation in the terminal, with colours and without."""

import io
import re

import numpy as np
import pytest
from rich.console import Console

from coblock.model.relation import BinaryRelation
from coblock.ui.style import LIGHT_SCALE, UNSEEN
from coblock.ui.terminal import CAPTIONS, GAP, MAX_HEIGHT, MAX_WIDTH, UPPER_HALF, Mosaic

LABELS = [np.arange(40) % 2, np.arange(60) % 2]


def checkerboard() -> np.ndarray:
    """Return a relation with 2 x 2 blocks when sorted, and uniform density before."""
    return (LABELS[0][:, None] == LABELS[1][None, :]).astype(float)


def shown(X, labels, **options) -> list[str]:
    page = io.StringIO()
    console = Console(file=page, **({"width": 80} | options))
    console.print(Mosaic(BinaryRelation.build(X), labels))
    return page.getvalue().splitlines()


def test_sorting_by_cluster_shows_the_blocks():
    blank, captions, *lines = shown(checkerboard(), LABELS)
    assert blank == ""
    assert captions.split("   ")[0] == CAPTIONS[0]
    assert captions.endswith(CAPTIONS[1])
    assert len(lines) == MAX_HEIGHT
    after = [line[MAX_WIDTH + GAP :] for line in lines]
    half = MAX_WIDTH // 2
    assert after[0] == "█" * half + " " * half
    assert after[-1] == " " * half + "█" * half
    before = {line[:MAX_WIDTH] for line in lines}
    assert all(set(line) <= set("░▒▓█") for line in before)


def test_a_single_cluster_changes_no_order():
    """The order depends on the labels, not on the true blocks."""
    lines = shown(checkerboard(), [np.zeros(40, int), np.zeros(60, int)])[2:]
    assert all(line[:MAX_WIDTH] == line[MAX_WIDTH + GAP :] for line in lines)


def colours(line: str) -> list[tuple[int, ...]]:
    found = re.findall(r"38;2;(\d+);(\d+);(\d+);48;2;(\d+);(\d+);(\d+)m" + UPPER_HALF, line)
    return [tuple(map(int, numbers)) for numbers in found]


def test_a_coloured_character_shows_two_pixels():
    options = {"force_terminal": True, "color_system": "truecolor"}
    lines = shown(checkerboard(), LABELS, **options)[2:]
    assert len(lines) == MAX_HEIGHT
    after = colours(lines[0])[-MAX_WIDTH:]
    assert after[0] == LIGHT_SCALE[-1] * 2
    assert after[-1] == LIGHT_SCALE[0] * 2
    middle = colours(lines[MAX_HEIGHT // 2])[-MAX_WIDTH:]
    assert middle[0] == LIGHT_SCALE[-1] + LIGHT_SCALE[0]  # the border is inside


def test_unseen_pixels_have_their_own_colour():
    X = checkerboard()
    X[:20] = np.nan
    lines = shown(X, LABELS, force_terminal=True, color_system="truecolor")[2:]
    assert colours(lines[0])[0] == UNSEEN * 2
    assert UNSEEN * 2 not in colours(lines[-1])


@pytest.mark.parametrize("width", [1, 10, 40, 80, 300])
@pytest.mark.parametrize("shape", [(1, 1), (2, 3), (33, 7), (5, 200)])
@pytest.mark.parametrize("coloured", [True, False])
def test_pictures_fit_on_the_screen(width, shape, coloured):
    options = {"force_terminal": True, "color_system": "truecolor"} if coloured else {}
    labels = [np.zeros(size, int) for size in shape]
    lines = shown(np.ones(shape), labels, width=width, **options)
    bare = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in lines]
    assert max(map(len, bare)) <= max(width, 2 + GAP)
    assert 2 < len(bare) <= MAX_HEIGHT + 3


def test_one_domain_relations_use_the_same_labels_twice():
    X = np.kron(np.eye(2), np.ones((20, 20)))[:, ::-1]
    page = io.StringIO()
    relation = BinaryRelation.build(X, kind="directed")
    Console(file=page, width=80).print(Mosaic(relation, [np.repeat([0, 1], 20)]))
    lines = page.getvalue().splitlines()[2:]
    assert all(line[:MAX_WIDTH] == line[MAX_WIDTH + GAP :] for line in lines)


def test_ascii_terminals_get_ascii_characters():
    page = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    Console(file=page, width=80).print(Mosaic(BinaryRelation.build(checkerboard()), LABELS))
    page.flush()
    text = page.buffer.getvalue().decode("ascii")
    assert "#" in text
