"""Test the command line with several relations: descriptions, result folders, other commands."""

import io
import json
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from coblock import IRM, MultiIRM, load
from coblock.io.export import file_stems, write_tables
from coblock.io.relation_files import (
    DescriptionError,
    parse_relations,
    read_description,
    read_relations,
)
from coblock.io.tables import build_dataset
from coblock.ui.cli import app, several

pytestmark = pytest.mark.usefixtures("short_chains_in_file")

BOUGHT = "bought(user,item)=orders.csv;value=qty;likelihood=poisson"
TAGGED = "tagged(item,tag)=tags.parquet"
KNOWS = "knows(who:user,whom:user)=knows.tsv;symmetric=true"
TOML = """
[relations.bought]
data = "orders.csv"
places = ["user", "item"]
value = "qty"
likelihood = "poisson"

[relations.tagged]
data = "tags.parquet"
places = ["item", "tag"]

[relations.knows]
data = "knows.tsv"
places = { who = "user", whom = "user" }
symmetric = true
"""
FILES = ["blocks.csv", "item.csv", "model.safetensors", "report.html", "report.md", "tag.csv"]
FILES += ["trace.csv", "user.csv"]


def write_shop(folder):
    """Write orders, tags and acquaintances of 24 users with two tastes; names look like numbers."""
    rng = np.random.default_rng(0)
    orders = [
        (f"{i:03}", f"i{j}", int(rng.poisson(5.0 if i % 2 == j % 2 else 0.5)))
        for i in range(24)
        for j in range(12)
    ]
    tags = [(f"i{j}", f"t{t}") for j in range(12) for t in range(6) if j % 2 == t % 2]
    knows = [
        (f"{i:03}", f"{j:03}")
        for i in range(24)
        for j in range(i)
        if rng.random() < (0.6 if i % 2 == j % 2 else 0.1)
    ]
    frame = pl.DataFrame(orders, schema=["user", "item", "qty"], orient="row")
    frame.write_csv(folder / "orders.csv")
    pl.DataFrame(tags, schema=["item", "tag"], orient="row").write_parquet(folder / "tags.parquet")
    frame = pl.DataFrame(knows, schema=["who", "whom"], orient="row")
    frame.write_csv(folder / "knows.tsv", separator="\t")
    (folder / "shop.toml").write_text(TOML, encoding="utf-8")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shop")
    write_shop(folder)
    return folder


@pytest.fixture(autouse=True)
def _inside(place, monkeypatch):
    monkeypatch.chdir(place)


def coblock_(*arguments):
    return CliRunner().invoke(app, [str(each) for each in arguments])


def refused(ran, *words):
    """Check that a command has printed one sentence with these words, and no traceback."""
    assert ran.exit_code == 2, ran.output
    lines = ran.stderr.splitlines()
    assert [line.startswith("Error: ") for line in lines] == [False] * (len(lines) - 1) + [True]
    for word in words:
        assert word in lines[-1]


@pytest.fixture(scope="module")
def result(place):
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        relations = [part for text in (BOUGHT, TAGGED, KNOWS) for part in ("--relation", text)]
        ran = coblock_("fit", *relations, "--out", "result")
    assert ran.exit_code == 0, ran.output
    assert "user: 24 objects in 2 clusters of 12, 12" in ran.stdout
    return place / "result"


def read_csv(path):
    return pl.read_csv(path, schema_overrides={"name": pl.String})


def test_a_result_folder_has_a_table_for_each_domain(result):
    assert sorted(path.name for path in result.iterdir()) == FILES
    users = read_csv(result / "user.csv")
    assert users.columns == ["name", "cluster", "probability"]
    assert users["name"][0] == "000"
    parity = {int(name) % 2: k for name, k in zip(users["name"], users["cluster"], strict=True)}
    assert all(parity[int(n) % 2] == k for n, k, _ in users.iter_rows())
    assert len(set(parity.values())) == 2
    blocks = read_csv(result / "blocks.csv")
    assert blocks.columns[:4] == ["relation", "user_cluster", "item_cluster", "tag_cluster"]
    bought = blocks.filter(relation="bought")
    assert bought.height == 4
    assert bought["statistic_1"].sum() == pl.read_csv("orders.csv")["qty"].sum()
    assert bought["statistic_2"].sum() == 24 * 12
    trace = read_csv(result / "trace.csv")
    assert trace["sweep"].to_list() == list(range(1, trace.height + 1))
    assert trace["tag_clusters"][-1] == 2


def test_a_toml_file_gives_the_result_of_the_options_and_of_the_library(result, tmp_path):
    (tmp_path / "in").mkdir()
    write_shop(tmp_path / "in")
    ran = coblock_("fit", tmp_path / "in" / "shop.toml", "--out", tmp_path / "o", "--json")
    assert ran.exit_code == 0, ran.output
    said = json.loads(ran.stdout)
    assert said["domains"]["tag"] == {"objects": 6, "clusters": 2}
    assert sorted(said["files"]) == FILES
    first, second = load(result / "model.safetensors"), load(tmp_path / "o" / "model.safetensors")
    library = MultiIRM(random_state=0, max_iter=1000).fit(
        read_relations(parse_relations([BOUGHT, TAGGED, KNOWS]))
    )
    assert (
        first.log_evidence_ == second.log_evidence_ == library.log_evidence_ == said["log_evidence"]
    )
    assert first.max_iter == 1000


def test_options_reach_the_model(tmp_path):
    arguments = ("--relation", BOUGHT, "--out", tmp_path / "o", "--seed", 3, "--title", "My <shop>")
    ran = coblock_("fit", *arguments, "--max-clusters", "user=1,item=7")
    assert ran.exit_code == 0, ran.output
    model = load(tmp_path / "o" / "model.safetensors")
    assert model.max_clusters == {"user": 1, "item": 7}
    assert model.domains_["user"].n_clusters == 1
    assert model.random_state == 3
    assert "My &lt;shop&gt;" in (tmp_path / "o" / "report.html").read_text(encoding="utf-8")
    assert several.parse_limits("4") == 4


def test_a_fit_that_has_not_converged_is_written_with_exit_code_1(tmp_path):
    given = ("--relation", BOUGHT, "--relation", TAGGED, "--out", tmp_path / "o")
    ran = coblock_("fit", *given, "--max-iter", 1)
    assert ran.exit_code == 1
    assert "had not converged after 1 sweeps" in ran.stderr
    assert (tmp_path / "o" / "model.safetensors").exists()


def interrupt_at(patch, sweep):
    """Let the progress of a fit raise what a second Ctrl-C raises, after this sweep."""

    @contextmanager
    def progress(_output, model):
        def callback(record):
            if record.sweep == sweep:
                raise KeyboardInterrupt

        model.set_params(callback=callback)
        yield []

    patch.setattr(several.OutputOptions, "progress", progress)


def test_an_interrupted_fit_is_continued(result, tmp_path):
    whole = load(result / "model.safetensors")
    for command in ("fit", "resume"):
        out = tmp_path / command
        fit = ("fit", "shop.toml", "--out", out)
        with pytest.MonkeyPatch.context() as patch:
            interrupt_at(patch, 3)
            ran = coblock_(*fit)
        assert ran.exit_code == 130
        assert "The same command continues the fit" in ran.stderr
        checkpoint = tmp_path / f"{command}.checkpoint"
        assert checkpoint.exists()
        assert not out.exists()
        ran = coblock_(*(fit if command == "fit" else ("resume", checkpoint)))
        assert ran.exit_code == 0, ran.output
        assert ("goes on from" in ran.stderr) == (command == "fit")
        assert sorted(path.name for path in out.iterdir()) == FILES
        assert load(out / "model.safetensors").log_evidence_ == whole.log_evidence_
        assert not checkpoint.exists()


def test_an_earlier_result_is_replaced_whole(tmp_path):
    out = tmp_path / "o"
    assert coblock_("fit", "--relation", BOUGHT, "--relation", TAGGED, "--out", out).exit_code == 0
    (out / "notes.txt").write_text("mine")
    again = ("fit", "--relation", TAGGED, "--relation", "t(tag)=tags.parquet", "--out", out)
    refused(coblock_(*again), "exists and is not empty", "--force")
    assert coblock_(*again, "--force").exit_code == 0
    names = sorted(path.name for path in out.iterdir())
    assert names == sorted([*(set(FILES) - {"user.csv"}), "notes.txt"])


@pytest.mark.parametrize("damaged", [False, True])
def test_a_result_of_one_relation_replaces_one_of_several(tmp_path, damaged):
    """The tables of the domains go, as far as the earlier model says what they are."""
    out = tmp_path / "o"
    assert coblock_("fit", "--relation", BOUGHT, "--relation", TAGGED, "--out", out).exit_code == 0
    if damaged:
        content = bytearray((out / "model.safetensors").read_bytes())
        content[-1] ^= 1
        (out / "model.safetensors").write_bytes(content)
    ran = coblock_("fit", "knows.tsv", "--out", out, "--force", "--json")
    assert ran.exit_code == 0, ran.output
    names = {path.name for path in out.iterdir()}
    left = {"user.csv", "item.csv", "tag.csv"} if damaged else set()
    assert names == set(json.loads(ran.stdout)["files"]) | left


def test_nothing_is_left_where_data_are_refused(tmp_path):
    (tmp_path / "orders.csv").write_text("user,item,qty\na,b,-1\n")
    bad = f"bought(user,item)={tmp_path}/orders.csv;value=qty;likelihood=poisson"
    ran = coblock_("fit", "--relation", bad, "--out", tmp_path / "new" / "folder" / "result")
    refused(ran, "Relation 'bought', file ", "not counts", "row 1, cell (user='a', item='b')")
    assert [path.name for path in tmp_path.iterdir()] == ["orders.csv"]


def test_exposures_are_read_from_files(tmp_path):
    (tmp_path / "orders.csv").write_text("user,item,qty\na,x,1\nb,x,20\nb,y,10\n")
    days, toml = tmp_path / "days.csv", tmp_path / "shop.toml"
    days.write_text("user,days\nb,10\na,1\n")
    lines = ["[relations.bought]", 'data = "orders.csv"', 'places = ["user", "item"]']
    lines += ['value = "qty"', 'likelihood = "poisson"', 'exposure = { user = "days.csv" }']
    toml.write_text("\n".join(lines))
    text = f"bought(user,item)={tmp_path}/orders.csv;value=qty;likelihood=poisson"
    for described in (
        read_description(toml),
        parse_relations([f"{text};exposure=user:{days}"]),
    ):
        table = build_dataset(read_relations(described)).tables[0]
        assert [each.tolist() for each in table.exposures] == [[1.0, 10.0], [1.0, 1.0]]
    for content, words in (
        ("user,days\nb,10\n", ["'bought', place 'user': that of 'a' is missing in exposure"]),
        ("user,days\nb,10\nb,9\na,1\n", ["2 of 3 rows of", "the first is 'b'"]),
        ("user,days,more\nb,10,1\n", ["two columns, 'user' and the factor", "more"]),
        ("who,days\nb,10\n", ["two columns, 'user' and the factor", "who"]),
        ("user,days\na,few\nb,0\n", ["2 of 2 exposures of place 'user'", "of 'a'"]),
    ):
        days.write_text(content)
        refused(coblock_("fit", toml, "--out", tmp_path / "o"), *words)
    days.unlink()
    refused(coblock_("fit", toml, "--out", tmp_path / "o"), "'bought'", "There is no file")
    for wrong in ("exposure=shop:d.csv", "exposure=user"):
        refused(coblock_("fit", "--relation", f"{text};{wrong}", "--out", tmp_path / "o"), "place:")
    assert not (tmp_path / "o").exists()


def test_warnings_about_data_are_notes(tmp_path):
    (tmp_path / "knows.csv").write_text("who,whom\na,a\na,b\nb,c\n")
    (tmp_path / "hidden.csv").write_text("who,whom\na,zz\n")
    text = f"knows(who:user,whom:user)={tmp_path}/knows.csv;unseen={tmp_path}/hidden.csv"
    ran = coblock_("fit", "--relation", text, "--out", tmp_path / "o")
    assert ran.exit_code == 0, ran.output
    assert "Note: 1 of 3 cells of relation 'knows' have an object twice" in ran.stderr
    assert "Note: 1 objects of domain 'user' are named only by unseen cells" in ran.stderr
    assert "UserWarning" not in ran.stderr


def test_unseen_cells_are_listed_in_a_file(tmp_path):
    (tmp_path / "tags.csv").write_text("item,tag\na,x\nb,y\n")
    (tmp_path / "hidden.csv").write_text("item,tag\na,y\n")
    text = '[relations.tagged]\ndata = "tags.csv"\nplaces = ["item", "tag"]\nunseen = "hidden.csv"'
    (tmp_path / "tags.toml").write_text(text)
    found = read_relations(read_description(tmp_path / "tags.toml"))["tagged"]
    assert [each.tolist() for each in found.read("tagged").unseen] == [["a"], ["y"]]
    (tmp_path / "hidden.csv").write_text("item,tag\na,x\n")
    with pytest.raises(DescriptionError, match=r"'tagged', .* listed with a value, too.*item='a'"):
        read_relations(read_description(tmp_path / "tags.toml"))
    (tmp_path / "hidden.csv").unlink()
    with pytest.raises(DescriptionError, match=r"There is no file .*hidden.csv"):
        read_relations(read_description(tmp_path / "tags.toml"))


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (["bought(user,item)"], ["NAME(PLACE,PLACE)=FILE"]),
        (["(user,item)=orders.csv"], ["NAME(PLACE,PLACE)=FILE"]),
        ([BOUGHT, "directed"], ["'directed'", "NAME(PLACE,PLACE)=FILE"]),
        ([BOUGHT, BOUGHT], ["'bought'", "twice"]),
        (["a(user,item)=twice.csv"], ["'a'", "'item' is the name of several columns"]),
        (
            [BOUGHT, "tagged(item,tag)=tags.parquet;degree_corrected=auto"],
            ["'tagged': the automatic choice of degree correction"],
        ),
        (["a(x,x)=orders.csv"], ["'a'", "who:user,whom:user"]),
        (["a()=orders.csv"], ["'a'"]),
        (["a(user,item)=orders.csv;valeu=qty"], ["'a'", "'valeu'", "value, likelihood"]),
        (["a(user,item)=orders.csv;value"], ["'value'", "'a'"]),
        (["a(user,item)=orders.csv;symmetric=maybe"], ["symmetric", "'a'", "true or false"]),
        (["a(user,item)=orders.csv;absent=no"], ["'a'", "absent", "'no'"]),
        (["a(user,item)=orders.csv;likelihood=beta"], ["'a'", "orders.csv", "'beta'"]),
        (["a(user,thing)=orders.csv"], ["'a'", "thing", "qty"]),
        (["a(user,item)=none.csv"], ["'a'", "none.csv", "There is no file"]),
        (["a(user,item)=shop.toml"], ["'a'", ".parquet"]),
        (["a(user)=orders.csv;value=item;likelihood=normal"], ["'a'", "i0"]),
        (["a(user,item)=orders.csv;value=item"], ["'a'", "value is 'item', which is a place"]),
        (["a(user,item)=empty.csv"], ["'a'", "empty.csv", "cannot be read"]),
        (["a(user,item)=false.parquet"], ["'a'", "false.parquet", "cannot be read"]),
        (["a(user,item)=gaps.csv"], ["'a'", "1 of 2 names at place 'user' are missing"]),
    ],
)
def test_wrong_descriptions_are_refused(place, tmp_path, texts, words):
    (place / "empty.csv").write_text("")
    (place / "twice.csv").write_text("user,item,item\na,b,c\n")
    (place / "false.parquet").write_text("user,item\n")
    (place / "gaps.csv").write_text("user,item\na,b\n,c\n")
    relations = [part for text in texts for part in ("--relation", text)]
    refused(coblock_("fit", *relations, "--out", tmp_path / "o"), *words)
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("relations = 3", ["[relations.NAME]"]),
        ('[relations.""]\ndata = "orders.csv"\nplaces = ["u"]', ["no name"]),
        ("[relations.a]\nexposure = 3", ["exposure of relation 'a'", "table from places"]),
        ("[relations]\nbought = 3", ["bought", "table"]),
        ("[relations.a\n", ["not a TOML file"]),
        ("seed = 3", ["'seed'", "[relations.NAME]"]),
        ('[relations.a]\ndata = "x.csv"\nplace = ["u"]', ["'a'", "'place'", "data, places"]),
        ('[relations.a]\nplaces = ["u"]', ["'a'", "no data"]),
        ('[relations.a]\ndata = "orders.csv"\nplaces = []', ["'a'", "no places"]),
        ('[relations.a]\ndata = "orders.csv"\nplaces = [1]', ["'a'", "texts"]),
        ('[relations.a]\ndata = 3\nplaces = ["u"]', ["data", "'a'", "path"]),
    ],
)
def test_wrong_toml_files_are_refused(tmp_path, content, words):
    path = tmp_path / "wrong.toml"
    path.write_text(content)
    refused(coblock_("fit", path, "--out", tmp_path / "o"), *words)
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], ["Name a file of edges"]),
        (["none.toml"], ["There is no file none.toml"]),
        (["orders.csv", "--relation", BOUGHT], ["orders.csv", "one of the two"]),
        (["shop.toml", "--relation", "directed"], ["--relation", "shop.toml"]),
        (["shop.toml", "--value", "qty", "--variance", "paper"], ["--value, --variance"]),
        (["shop.toml", "--degree-corrected", "true"], ["--degree-corrected"]),
        (["shop.toml", "--scheduler", "tcp://host:1"], ["--scheduler"]),
        (["shop.toml", "--max-clusters", "few"], ["--max-clusters", "'few'"]),
        (["shop.toml", "--max-clusters", "shop=3"], ["'shop'", "'user'"]),
        (["orders.csv", "--relation", "directed", "--relation", "bipartite"], ["2 times"]),
    ],
)
def test_options_that_do_not_belong_together_are_refused(tmp_path, arguments, words):
    refused(coblock_("fit", *arguments, "--out", tmp_path / "o"), *words)
    assert not (tmp_path / "o").exists()


def test_held_out_cells_of_all_relations_are_scored():
    several = ("--relation", BOUGHT, "--relation", KNOWS)
    ran = coblock_("evaluate", *several, "--runs", 2, "--json")
    assert ran.exit_code == 0, ran.output
    found = json.loads(ran.stdout)["relations"]
    assert found["bought"]["held_out"] == 29
    assert found["bought"]["mean"]["auc"] is None
    assert found["bought"]["mean"]["log_likelihood"] > (
        found["bought"]["baselines"]["one block"]["log_likelihood"] + 0.3
    )
    assert found["knows"]["mean"]["auc"] > 0.6
    assert found["knows"]["baselines"]["density"]["auc"] == 0.5
    page = coblock_("evaluate", "shop.toml", "--runs", 1, "--inference", "cvb0").stdout
    assert "tagged" in page
    assert "10% held out in one run: 29 cells" in page
    assert "one block and degrees: the same cells predicted without clusters" in page
    ran = coblock_("evaluate", *several, "--runs", 2, "--max-iter", 1, "--json")
    assert ran.exit_code == 1
    assert not json.loads(ran.stdout)["converged"]
    assert "2 of 2 fits had not converged" in ran.stderr
    refused(coblock_("evaluate", "orders.csv", *several), "Pass one of the two")
    refused(coblock_("evaluate", *several, "--prior", "per-block"), "--prior")


@pytest.mark.parametrize("method", ["acvb0", "vb", "gibbs"])
def test_methods_of_several_relations(tmp_path, method):
    out = tmp_path / "out"
    plain = ("--no-refine", "--max-iter", "60", "--tol", "1e-3", "--inference", method)
    ran = coblock_("fit", "shop.toml", *plain, "--out", out, "--json")
    assert ran.exit_code == 0, ran.output
    model = load(out / "model.safetensors")
    assert (model.inference, model.refine, model.tol) == (method, False, 1e-3)
    phase = "gibbs" if method == "gibbs" else "variational"
    assert {record["phase"] for record in model.trace_} == {phase}
    assert (out / "report.html").exists()
    refused(coblock_("fit", "shop.toml", "--inference", "acvb", "--out", tmp_path / "no"), "IRM")


def test_cells_are_predicted(result, tmp_path):
    cells = tmp_path / "cells.csv"
    cells.write_text("item,user,other\ni1,001,x\ni0,001,y\n")
    ran = coblock_("predict", result, cells, "--relation", "bought")
    assert ran.exit_code == 0, ran.output
    found = pl.read_csv(io.StringIO(ran.stdout), schema_overrides={"user": pl.String})
    assert found.columns == ["user", "item", "predicted_mean"]
    model = load(result / "model.safetensors")
    mean = model.predict("bought", user="001", item=["i1", "i0"])
    assert found["predicted_mean"].to_list() == mean.tolist()
    assert mean[0] > 3
    assert mean[1] < 1
    refused(coblock_("predict", result, cells), "3 relations", "bought, tagged, knows")
    refused(coblock_("predict", result, cells, "--relation", "sold"), "'sold'", "'bought'")
    refused(coblock_("predict", result, cells, "--relation", "tagged"), "'tag'", "item, tag")
    refused(coblock_("predict", result, cells, "--relation", "bought", "--wide"), "--wide")
    refused(coblock_("predict", result, "none.csv", "--relation", "bought"), "none.csv")
    cells.write_text("item,user\ni1,901\n")
    refused(coblock_("predict", result, cells, "--relation", "bought"), "'901'", "'user'")


def test_categories_are_predicted(tmp_path):
    rows = [(f"u{i}", f"q{j}", "no" if i % 2 else "yes") for i in range(20) for j in range(5)]
    frame = pl.DataFrame(rows, schema=["user", "question", "answer"], orient="row")
    frame.write_csv(tmp_path / "a.csv")
    text = f"a(user,question)={tmp_path / 'a.csv'};value=answer;likelihood=categorical"
    assert coblock_("fit", "--relation", text, "--out", tmp_path / "o").exit_code == 0
    ran = coblock_("predict", tmp_path / "o", tmp_path / "a.csv", "--out", tmp_path / "p.csv")
    assert ran.exit_code == 0, ran.output
    found = pl.read_csv(tmp_path / "p.csv")
    assert found["predicted_category"].to_list() == frame["answer"].to_list()
    assert found["predicted_probability"].min() > 0.9
    refused(coblock_("recommend", tmp_path / "o", "--at", "user=u0"), "categories")
    blocks = read_csv(tmp_path / "o" / "blocks.csv")
    assert blocks["category"].to_list()[:2] == ["no", "yes"]
    assert blocks["statistic_1"].sum() == 100
    sums = blocks.group_by("user_cluster", "question_cluster").agg(pl.col("mean").sum())
    assert sums["mean"].to_list() == pytest.approx([1.0] * sums.height)


def test_objects_are_ranked(result):
    given = ("recommend", result, "--relation", "bought")
    ran = coblock_(*given, "--at", "user=001", "-n", 3)
    assert ran.exit_code == 0, ran.output
    found = pl.read_csv(io.StringIO(ran.stdout))
    assert found["rank"].to_list() == [1, 2, 3]
    assert all(int(name[1:]) % 2 for name in found["name"])
    refused(coblock_(*given), "Give all but one", "user, item")
    refused(coblock_(*given, "--at", "user=001", "--at", "item=i1"), "Give all but one")
    refused(coblock_(*given, "--at", "shop=1"), "'shop=1'", "user, item")
    refused(coblock_(*given, "--at", "user=unknown"), "'unknown'")
    refused(coblock_(*given, "--rows", "001"), "--rows", "--at")


def test_options_of_several_relations_are_refused_for_one(tmp_path):
    assert coblock_("fit", "orders.csv", "--out", tmp_path / "o").exit_code == 0
    refused(coblock_("recommend", tmp_path / "o", "--at", "user=001"), "--at", "has one")
    refused(coblock_("predict", tmp_path / "o", "orders.csv", "--relation", "a"), "--relation")


def test_reports_and_exports(result, tmp_path):
    assert coblock_("report", result, "--out", tmp_path / "r.md").exit_code == 0
    assert "## Domain user" in (tmp_path / "r.md").read_text(encoding="utf-8")
    refused(coblock_("report", result, "--out", tmp_path / "r.md", "--level", 2), "--level")
    assert coblock_("export", result, "--to", "parquet", "--out", tmp_path / "p").exit_code == 0
    assert pl.read_parquet(tmp_path / "p" / "user.parquet").height == 24
    assert coblock_("export", result, "--to", "csv", "--out", tmp_path / "c").exit_code == 0
    assert (tmp_path / "c" / "user.csv").read_bytes() == (result / "user.csv").read_bytes()
    assert coblock_("export", result, "--to", "json", "--out", tmp_path / "e.json").exit_code == 0
    document = json.loads((tmp_path / "e.json").read_text())
    assert document["relations"]["knows"]["places"] == {"who": "user", "whom": "user"}
    assert len(document["domains"]["item"]) == 12
    refused(coblock_("export", result, "--to", "gml", "--out", tmp_path / "g.gml"), "json")
    assert not (tmp_path / "g.gml").exists()


def test_file_names_of_domains_are_safe(tmp_path):
    names = ("../up", "a/b", "a\\b", "blocks", "Trace", "", "x" * 300, "user", "USER", "=1+1")
    stems = file_stems(names)
    assert len({stem.lower() for stem in stems}) == len(names)
    assert not any(set(stem) & set("/\\.=") for stem in stems)
    assert max(map(len, stems)) <= 90
    (tmp_path / "x.csv").write_text("a,b\n=1,y\n2,y\n=1,z\n")
    described = {"r": {"data": str(tmp_path / "x.csv"), "places": {"a": "../up", "b": "blocks"}}}
    model = MultiIRM(random_state=0).fit(read_relations(described))
    write_tables(model.result_, tmp_path / "o")
    found = sorted(path.name for path in (tmp_path / "o").iterdir())
    assert found == ["_up.csv", "blocks.csv", "blocks_2.csv", "trace.csv"]
    assert '"\'=1"' in (tmp_path / "o" / "_up.csv").read_text()


def test_descriptions_are_read():
    assert parse_relations([KNOWS]) == {
        "knows": {
            "data": "knows.tsv",
            "places": {"who": "user", "whom": "user"},
            "symmetric": True,
        }
    }
    described = read_description(Path("shop.toml").resolve())
    assert described["tagged"]["data"] == str(Path("tags.parquet").resolve())
    with pytest.raises(DescriptionError, match=r"Relation 'a', file .*: .*no column"):
        read_relations({"a": {"data": "orders.csv", "places": ["user", "shop"]}})


def write_counts(folder):
    """Write counts of 12 shops and 10 items in two groups, one of them blank."""
    rng = np.random.default_rng(1)
    lines = ["date,shop,item,n"]
    for i in range(12):
        for j in range(10):
            n = rng.poisson(9.0 if i % 2 == j % 2 else 0.3)
            lines += [f"2024-01-02,{i},i{j},{n}"] if n and (i, j) != (0, 1) else []
    path = folder / "counts.csv"
    path.write_text("\n".join([*lines, "2024-01-02,0,i1,"]) + "\n")
    return path


def test_counts_of_one_relation_are_fitted(tmp_path):
    command = ["fit", str(write_counts(tmp_path)), "--value", "n", "--likelihood", "poisson"]
    run = CliRunner().invoke(app, [*command, "--out", str(tmp_path / "result"), "--json"])
    assert run.exit_code == 0, run.output
    model = load(tmp_path / "result" / "model.safetensors")
    assert {name: found.n_clusters for name, found in model.domains_.items()} == {
        "rows": 2,
        "columns": 2,
    }
    assert len({model.domains_["rows"].labels[i] for i in range(0, 12, 2)}) == 1
    table = model.result_.data.table("counts")
    assert (table.likelihood.name, table.places) == ("poisson", ("row", "column"))
    assert (tmp_path / "result" / "rows.csv").exists()
    assert "Not used as names: 'date' (dates)" in run.stderr


def test_counts_of_a_wide_table_are_read(tmp_path):
    path = tmp_path / "wide.csv"
    path.write_text("shop,tea,milk,nails\na,3,0,1\nb,,2,1\nc,0,5,7\nd,1,1,0\ne,2,2,2\n")
    options = (several.ReadOptions(wide=True), several.FitOptions(likelihood="poisson"))
    relation = several.read_one(path, *options, several.OutputOptions(quiet=True))["wide"].read("")
    assert relation.filled
    assert sorted(relation.values.tolist()) == [1, 1, 1, 1, 2, 2, 2, 2, 3, 5, 7]
    assert [each.tolist() for each in relation.unseen] == [["b"], ["tea"]]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--value", "n", "--binarize", "2"], "--binarize cannot be used with --likelihood"),
        (
            ["--row", "shop", "--column", "item", "--value", "date"],
            "values that are not numbers; the first is '2024-01-02', line 2",
        ),
        (["--likelihood", "gamma"], "--likelihood must be one of"),
    ],
)
def test_counts_that_cannot_be_fitted_are_refused(tmp_path, arguments, words):
    given = ["fit", str(write_counts(tmp_path)), "--out", str(tmp_path / "result")]
    run = CliRunner().invoke(app, [*given, "--likelihood", "poisson", *arguments])
    assert run.exit_code == 2
    assert words in run.output


def test_an_estimator_of_counts_is_named():
    with pytest.raises(ValueError, match=r"MultiIRM\(\).fit\({'data': Relation\(X, "):
        IRM(likelihood="poisson").fit(np.eye(3))
