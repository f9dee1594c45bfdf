"""Test the report, the plots and the frames of a model of several relations."""

import re

import numpy as np
import pytest

from coblock import MultiIRM, Relation
from coblock.ui.report import multi

pytestmark = pytest.mark.usefixtures("short_chains_in_file")

HOSTILE = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def model():
    """Return a model of counts, categories, real values and triples, with a hostile name."""
    rng = np.random.default_rng(0)
    users = [HOSTILE, *(f"u{i}" for i in range(1, 20))]
    orders = [
        (users[i], f"i{j}", int(rng.poisson(6 if i % 2 == j % 2 else 0.5)))
        for i in range(20)
        for j in range(12)
    ]
    answers = [(users[i], f"q{k}", "yes" if i % 2 else "no") for i in range(20) for k in range(4)]
    prices = [(f"i{j}", float(rng.normal(10 * (j % 2), 1))) for j in range(12)]
    facts = [
        (f"i{a}", f"p{p}", f"i{b}")
        for a in range(12)
        for b in range(12)
        for p in range(3)
        if a % 2 == 0 and b % 2 == 1 and p
    ]
    return MultiIRM(random_state=0).fit(
        {
            "bought": Relation(orders, ["user", "item"], value=2, likelihood="poisson"),
            "answers": Relation(answers, ["user", "question"], value=2, likelihood="categorical"),
            "price": Relation(prices, ["item"], value=1, likelihood="normal"),
            "facts": Relation(facts, {"head": "item", "predicate": "predicate", "tail": "item"}),
        }
    )


@pytest.fixture(scope="module")
def page(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    model.report(path)
    return path.read_text(encoding="utf-8")


def test_domains_come_first_then_relations(page):
    ids = re.findall(r'<section id="([\w-]+)"', page)
    assert ids == [*(f"domain-{d}" for d in range(4)), *(f"relation-{r}" for r in range(4)), "fit",
                   "cite"]  # fmt: skip
    assert "<title>4 relations over 4 domains – coblock</title>" in page


def test_the_page_is_offline_and_names_are_text(page):
    assert HOSTILE not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert not re.search(r'(?:src|href)="(?:https?:)?//', page)
    assert page.count("<script>") == 1
    assert "default-src &#39;none&#39;" in page
    assert " style=" not in page


def test_every_cluster_and_member_is_listed(model, page):
    section = page.split('<section id="domain-0"')[1].split("</section>")[0]
    assert section.count('<tr><th scope="row">') == model.domains_["user"].n_clusters
    assert section.count("<li>") == 20
    assert 'data-filter="domain-0"' in section


def test_two_places_have_a_heat_map_and_others_a_table(model, page):
    sections = [part.split("</section>")[0] for part in page.split('<section id="relation-')[1:]]
    blocks = [model.relations_[name].mean for name in ("bought", "answers")]
    assert sections[0].count("<rect ") == blocks[0].size
    assert sections[1].count("<rect ") == blocks[1].size // 2
    assert "<rect " not in sections[2] + sections[3]
    assert "no 100%" in sections[1] or "no 9" in sections[1]
    lines = sections[3].count("<tr><td>")
    assert lines == min(model.relations_["facts"].mean.size, multi.MAX_BLOCKS)


def test_the_blocks_with_most_deviation_come_first(model):
    facts = multi.relation_sections(model.result_)[3]
    mean = model.relations_["facts"].mean
    first = facts["blocks"][0]
    assert mean[first.clusters] == mean.max()
    distances = [line.deviation for line in facts["blocks"]]
    assert distances == sorted(distances, reverse=True)
    price = multi.relation_sections(model.result_)[2]
    assert {line.shade for line in price["blocks"]} == {0, multi.STEPS - 1}


def test_headers_of_numbers_stand_above_them(page):
    found = re.findall(r'<th scope="col"([^>]*)>(cluster|objects|certainty)<', page)
    assert {name: "number" in attributes for attributes, name in found} == {
        "cluster": False,
        "objects": True,
        "certainty": True,
    }
    assert "th.number, td.number" in page


def test_large_domains_are_cut(model, monkeypatch, tmp_path):
    monkeypatch.setattr(multi, "MAX_MEMBERS", 10)
    monkeypatch.setattr(multi, "MAX_SIDE", 1)
    monkeypatch.setattr(multi, "MAX_BLOCKS", 2)
    model.report(tmp_path / "r.html", title="x" * 300)
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "and 9 more" in page
    assert "user.csv" in page
    assert "The largest clusters are shown: 1 × 1" in page
    assert "2 blocks that are nearer to the average are left out" in page
    assert "x" * 200 not in page


def test_markdown(model, tmp_path):
    model.report(tmp_path / "r.md", title="A *shop*")
    text = (tmp_path / "r.md").read_text(encoding="utf-8")
    assert text.startswith("# A \\*shop\\*\n")
    assert "## Domain user\n\n20 objects in 2 clusters." in text
    assert "## Relation facts(head, predicate, tail)" in text
    assert HOSTILE not in text
    assert "| user cluster | question cluster | most probable category |" in text


def test_pages_are_written_only_where_they_can_be(model, tmp_path):
    with pytest.raises(IsADirectoryError, match="is a folder"):
        model.report(tmp_path)
    with pytest.raises(FileNotFoundError, match="does not exist"):
        model.report(tmp_path / "none" / "r.html")


def test_frames(model):
    users = model.to_frame(domain="user")
    assert users.columns == ["name", "cluster", "probability"]
    assert users["cluster"].to_list() == model.domains_["user"].labels.tolist()
    blocks = model.to_frame(relation="facts")
    assert blocks.columns[:3] == ["head_cluster", "predicate_cluster", "tail_cluster"]
    at = tuple(blocks[name].to_numpy() for name in blocks.columns[:3])
    found = model.relations_["facts"]
    assert np.array_equal(found.mean[at], blocks["mean"].to_numpy())
    assert np.array_equal(found.statistics[at][:, 0], blocks["statistic_1"].to_numpy())
    with pytest.raises(ValueError, match="either domain= or relation="):
        model.to_frame()
    with pytest.raises(ValueError, match="no relation 'user'"):
        model.to_frame(relation="user")
    with pytest.raises(ValueError, match="library"):
        model.to_frame(domain="user", library="numpy")


def test_plots(model):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.switch_backend("agg")
    for name in ("bought", "answers"):
        ax = model.plot_blocks(name)
        mesh = ax.collections[0]
        mean = model.relations_[name].mean
        drawn = mean.max(axis=-1) if mean.ndim == 3 else mean
        assert np.array_equal(np.asarray(mesh.get_array()).reshape(drawn.shape), drawn)
        assert ax.get_ylabel() == "cluster of user"
        assert mesh.get_clim()[0] == 0.0
        pyplot.close(ax.figure)
    with pytest.raises(ValueError, match="'facts' has 3 places"):
        model.plot_blocks("facts")
