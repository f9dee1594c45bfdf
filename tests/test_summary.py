"""Test the description of a model in words: sizes, names and partners."""

import base64
import json
import re
import warnings
import zlib

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import ConvergenceWarning

from coblock import IRM, Relation
from coblock.analysis.description import typical_members
from coblock.ui.report import render

ROWS = [f"buyer {i}" for i in range(30)]
COLUMNS = [f"thing {j}" for j in range(24)]
BLOCKS = np.zeros((30, 24))
BLOCKS[:18, :14] = 1.0
BLOCKS[18:, 14:] = 1.0
BLOCKS[0, 0] = np.nan


def fit(X, kind="bipartite", **settings) -> IRM:
    settings = {"max_clusters": 10, "n_init": 4, "max_iter": 60, "random_state": 0} | settings
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return IRM(kind, **settings).fit(X)


@pytest.fixture(scope="module")
def model() -> IRM:
    fitted = fit(pd.DataFrame(BLOCKS, index=ROWS, columns=COLUMNS))
    assert fitted.block_probability_.shape == (2, 2)
    return fitted


def test_the_first_lines_describe_the_relation_and_the_fit(model):
    head = model.summary().splitlines()[:2]
    assert head[0] == "bipartite relation, 30 x 24: 371 links, 1 unseen cells, density 51.60%"
    assert "2 x 2 clusters" in head[1]
    assert f"log evidence {model.log_evidence_:,.1f}" in head[1]
    assert f"after {model.n_iter_:,} sweeps" in head[1]


def test_every_cluster_has_its_size_members_and_partners(model):
    text = model.summary()
    assert re.findall(r"(\w+) cluster (\d): (\d+) \w+s, certainty 1\.00", text) == [
        ("row", "0", "18"),
        ("row", "1", "12"),
        ("column", "0", "14"),
        ("column", "1", "10"),
    ]
    clusters = text.split("\n\n")
    first, last = model.block_probability_[0, 0], model.block_probability_[1, 1]
    assert min(first, last) > 0.9
    assert re.search(
        rf"links to: column cluster 0 {100 * first:.0f} %, 1.\d x average", clusters[1]
    )
    assert re.search(rf"links to: row cluster 1 {100 * last:.0f} %, \d.\d x average", clusters[2])
    members = re.findall("members: (.*)", text)
    assert re.search(r"\bbuyer (1[89]|2\d)\b", members[1])
    assert re.search(r"\bthing (1[4-9]|2\d)\b", members[3])
    assert not re.search(r"\bthing\b", "".join(members[:2]))


def test_a_single_block_is_said_to_have_no_structure():
    X = np.random.default_rng(0).random((12, 10)) < 0.5
    text = fit(X.astype(float), max_clusters=1, n_init=1).summary()
    assert "No structure found beyond the density: " in text
    assert "No structure" not in fit(BLOCKS, n_init=1).summary()


def test_large_clusters_show_some_members(model):
    members = re.search("members: (.*)", model.summary())[1]
    assert members.count("buyer") == 5
    assert members.endswith("... 13 more")


def test_objects_without_names_are_shown_by_number():
    text = fit(BLOCKS).summary()
    assert "buyer" not in text
    named = re.findall(
        r"^    members: (\d+), (\d+), (\d+), (\d+), (\d+), \.\.\. \d+ more$", text, re.MULTILINE
    )
    assert len(named) == 4


@pytest.mark.parametrize("kind", ["directed", "undirected"])
def test_one_domain_is_described_once(kind):
    X = np.kron(np.diag([1, 0]), np.ones((12, 12))) * (1.0 - np.eye(24))
    names = [f"person {i}" for i in range(24)]
    model = fit(Relation.build(X, kind=kind, row_names=names, column_names=names), kind)
    text = model.summary()
    clusters = len(model.block_probability_)
    assert clusters > 1
    members = re.findall("members: (.*)", text)
    assert sum(line.count("person ") for line in members) == 5 * clusters
    assert f"{clusters} clusters," in text
    assert len(re.findall(r"^object cluster", text, flags=re.MULTILINE)) == clusters
    assert "row cluster" not in text


@pytest.mark.parametrize("kind", ["directed", "undirected"])
@pytest.mark.parametrize("side", ["row_names", "column_names"])
def test_one_domain_has_the_same_names_in_summary_export_and_report(kind, side):
    """The names of the objects may belong to the rows or to the columns."""
    names = [f"person {i}" for i in range(12)]
    X = np.kron(np.eye(2), np.ones((6, 6))) - np.eye(12)
    model = fit(Relation.build(X, kind=kind, **{side: names}), kind)
    members = " ".join(re.findall("members: (.*)", model.summary()))
    shown = [name for name in names if re.search(rf"\b{name}\b", members)]
    assert len(shown) == 5 * len(model.block_probability_)
    assert model.to_frame("rows")["name"].to_list() == names
    page = render(model.result_, settings={})
    packed = re.search('id="names">([^<]*)<', page)[1]
    found = json.loads(zlib.decompress(base64.b64decode(packed)))
    assert sorted(found[0]["names"]) == sorted(names)


def test_the_summary_states_whether_the_fit_converged():
    assert "not converged after 2 sweeps" in fit(BLOCKS, max_iter=2, n_init=1).summary()
    converged = fit(BLOCKS, inference="vb")
    assert converged.converged_
    assert ", converged after" in converged.summary()


def test_the_most_certain_members_come_first():
    q = np.array([[0.6, 0.4], [0.9, 0.1], [0.2, 0.8], [0.7, 0.3]])
    label = q.argmax(axis=1).astype(np.int32)
    assert typical_members(q, label, 0, ["a", "b", "c", "d"]) == ["b", "d", "a"]
    assert typical_members(q, label, 0, None, most=1) == ["1", "... 2 more"]
    assert typical_members(q, label, 1, ["a", "b", "c", "d"]) == ["c"]


def test_names_cannot_break_lines_or_control_the_terminal():
    names = ["two\nlines", "red\x1b[31m", *(f"x{i}" for i in range(4))]
    text = fit(Relation.build(np.ones((6, 5)), row_names=names)).summary()
    assert "two lines, red\\x1b[31m, x0" in text
    assert "\x1b" not in text
