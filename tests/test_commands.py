"""Test the commands: results, error messages, exit codes, and files after errors."""

import csv
import errno
import io
import json
import os
import pty
import re
import resource
import signal
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from click.testing import Result as Ran
from rich.console import Console
from sklearn.metrics import adjusted_rand_score
from typer.testing import CliRunner

import coblock.io.atomic
from coblock import load
from coblock.analysis.evaluation import Evaluation, Scores
from coblock.estimator import IRM
from coblock.ui.cli import app
from coblock.ui.cli.options import FitOptions, ReadOptions, expand_option_groups, with_options
from coblock.ui.cli.results import FILES
from coblock.ui.terminal import evaluation_page
from fabricated import NASTY

pytestmark = pytest.mark.usefixtures("short_chains_in_file")
ROWS, COLUMNS = 24, 18
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def coblock_(*arguments: object, **options: object) -> Ran:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], **options)


def blocks(rows: int = ROWS, columns: int = COLUMNS) -> list[tuple[str, str]]:
    """Return the edges of 2 x 2 blocks; the first and every 31st after it are missing."""
    pairs = [(f"u{i}", f"v{j}") for i in range(rows) for j in range(columns) if i % 2 == j % 2]
    return [pair for number, pair in enumerate(pairs) if number % 31]


def write_edges(path: Path, pairs: list[tuple[str, str]]) -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("user", "item"), *pairs])
    return path


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """Return a folder with edges.csv and the folder ``result`` of its fit."""
    folder = tmp_path_factory.mktemp("commands")
    edges = write_edges(folder / "edges.csv", blocks())
    ran = coblock_("fit", edges, "--out", folder / "result")
    assert ran.exit_code == 0, ran.output
    return folder


@pytest.fixture
def edges(place) -> Path:
    return place / "edges.csv"


@pytest.fixture
def model(place) -> Path:
    return place / "result" / "model.safetensors"


def refused(ran: Ran, *words: str) -> None:
    """Assert that there is one sentence on standard error, exit code 2, and no other output."""
    assert ran.exit_code == 2, ran.output
    assert ran.stdout == ""
    errors = [line for line in ran.stderr.splitlines() if line.startswith("Error: ")]
    assert len(errors) == 1
    assert "Traceback" not in ran.stderr
    for word in words:
        assert word in errors[0]


# Results


def test_fit_writes_all_files(place):
    assert {path.name for path in (place / "result").iterdir()} == set(FILES)
    rows = pl.read_csv(place / "result" / "rows.csv")
    assert rows.columns == ["name", "cluster", "probability"]
    assert rows["name"].to_list() == list(dict.fromkeys(user for user, _ in blocks()))
    truth = [int(name[1:]) % 2 for name in rows["name"]]
    assert adjusted_rand_score(truth, rows["cluster"]) == 1.0
    assert "edges.csv" in (place / "result" / "report.html").read_text(encoding="utf-8")


def test_fit_gives_the_result_of_the_library(place, edges, model):
    found = IRM(random_state=0).fit(coblock.read(edges).relation)
    kept = load(model)
    assert np.array_equal(found.row_membership_, kept.row_membership_)
    assert found.log_evidence_ == kept.log_evidence_
    assert kept.random_state == 0


def test_options_reach_the_estimator():
    options = FitOptions(
        max_clusters="3,4",
        batch_size="7",
        jobs=2,
        seed=5,
        refine=False,
        tol=0.1,
        block_prior="0.5,2",
        concentration="3",
    )
    parameters = options.estimator().get_params()
    expected = {"max_clusters": (3, 4), "batch_size": 7, "n_jobs": 2, "random_state": 5}
    expected |= {"block_prior": (0.5, 2.0), "concentration": 3.0, "hyperprior": None}
    assert parameters.items() >= (expected | {"refine": False, "tol": 0.1}).items()
    defaults = FitOptions().estimator().get_params()
    assert defaults == IRM(random_state=0, n_jobs=1).get_params()


def test_option_groups_become_options():
    def command(read_options: ReadOptions, name: str = "x") -> None:
        assert (read_options.row, name) == ("r", "y")

    run = expand_option_groups(command)
    given = {"row": "r", "column": None, "value": None, "binarize": 0.0, "unseen": None}
    given |= {"delimiter": None, "header": None, "encoding": "utf-8", "max_columns": 9}
    given |= {"wide": False, "layout": None, "absent": None, "query": None, "yes": None}
    run(**given, max_unpacked=9, name="y")
    with pytest.raises(AssertionError):
        run(**given | {"row": "s"}, max_unpacked=9, name="y")


def test_fit_prints_its_result(place, edges, tmp_path):
    ran = coblock_("fit", edges, "--out", tmp_path / "o", "--title", "Some <b>title</b>")
    assert ran.exit_code == 0
    assert f"{ROWS} x {COLUMNS}, {len(blocks())} links, 0 unseen cells" in ran.stdout
    assert "2 x 2 clusters; converged after" in ran.stdout
    page = (tmp_path / "o" / "report.html").read_text(encoding="utf-8")
    assert "Some &lt;b&gt;title&lt;/b&gt;" in page


def test_json_is_the_only_standard_output(edges, tmp_path):
    ran = coblock_("fit", edges, "--out", tmp_path / "o", "--json")
    found = json.loads(ran.stdout)
    assert ran.stdout.count("\n") == 1
    assert (found["rows"], found["columns"], found["links"]) == (ROWS, COLUMNS, len(blocks()))
    assert (found["row_clusters"], found["column_clusters"]) == (2, 2)
    assert found["converged"] is True
    assert found["stability"] is None
    assert {Path(path).name for path in found["files"].values()} == set(FILES)
    assert all(Path(path).is_file() for path in found["files"].values())


def test_quiet_prints_nothing(edges, tmp_path):
    ran = coblock_("fit", edges, "--out", tmp_path / "o", "--quiet")
    assert (ran.exit_code, ran.output) == (0, "")


def test_a_log_has_lines_without_control_characters(edges, tmp_path):
    ran = coblock_("fit", edges, "--out", tmp_path / "o", env={"TERM": "xterm-256color"})
    assert re.search(
        r"^searching: \d+ x \d+ clusters, evidence .*, sweep 1,", ran.stderr, re.MULTILINE
    )
    assert "\x1b" not in ran.stderr
    assert "\r" not in ran.stderr


def in_a_terminal(arguments: list[str]) -> tuple[int, str]:
    """Run coblock in a terminal with eighty columns."""
    ours, theirs = pty.openpty()
    environment = os.environ | {"TERM": "xterm-256color", "COLUMNS": "80", "LINES": "24"}
    process = subprocess.Popen(
        [sys.executable, "-m", "coblock", *arguments],
        stdout=theirs, stderr=theirs, stdin=subprocess.DEVNULL, env=environment,
    )  # fmt: skip
    os.close(theirs)
    parts = []
    while True:
        try:
            part = os.read(ours, 1 << 16)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        parts.append(part)
    os.close(ours)
    return process.wait(timeout=60), b"".join(parts).decode()


def test_a_terminal_shows_a_progress_bar(edges, tmp_path):
    code, seen = in_a_terminal(["fit", str(edges), "--out", str(tmp_path / "o")])
    assert code == 0, seen
    assert "\x1b[" in seen
    text = ESCAPES.sub("", seen)
    assert re.search(r"searching: \d+ x \d+ clusters, evidence -", text)
    assert "2 x 2 clusters; converged" in text
    assert not re.search(r"^searching: .* s$", text, re.MULTILINE)


def test_report_rewrites_the_page(place, model, tmp_path):
    ran = coblock_("report", model, "--out", tmp_path / "again.html", "--title", "edges.csv")
    assert ran.exit_code == 0
    before = (place / "result" / "report.html").read_bytes()
    assert (tmp_path / "again.html").read_bytes() == before
    assert coblock_("report", model.parent).exit_code == 0
    assert (place / "result" / "report.html").read_bytes() != before  # it has the default title now


def test_names_labels_and_level_change_what_is_said(place, edges, tmp_path):
    names, labels = tmp_path / "names.csv", tmp_path / "labels.csv"
    names.write_text("side,cluster,name\nrow,0,First group\n", encoding="utf-8")
    users = list(dict.fromkeys(user for user, _ in blocks()))
    lines = [f"{user},{'even' if int(user[1:]) % 2 == 0 else 'odd'}" for user in users]
    labels.write_text("\n".join(["who,class", *lines]), encoding="utf-8")
    out = tmp_path / "o"
    ran = coblock_("fit", edges, "--out", out, "--names", names, "--labels", labels)
    assert ran.exit_code == 0, ran.output
    assert "r0  First group" in ran.stdout
    assert f"Known classes of {ROWS} rows: purity 1.00, adjusted Rand index 1.00." in ran.stdout
    assert "x average" in ran.stdout
    clusters = pl.read_csv(out / "clusters.csv")
    assert clusters.columns == [
        *("side", "cluster", "name", "size", "certainty", "features"),
        *("nearest", "similarity", "classes"),
    ]
    assert clusters["name"][0] == "First group"
    assert clusters["size"].sum() == ROWS + COLUMNS
    features = pl.read_csv(out / "features.csv")
    assert (features["lift"] > 1.0).all()
    tree = pl.read_csv(out / "tree.csv")
    assert tree["log_evidence"].null_count() == 0  # few cuts: all are valued
    assert (tree["row_clusters"][-1], tree["column_clusters"][-1]) == (1, 1)
    assert "First group" in (out / "report.md").read_text(encoding="utf-8")
    level = coblock_("fit", edges, "--out", tmp_path / "l", "--level", "1,2", "--json")
    found = json.loads(level.stdout)
    assert (found["row_clusters"], found["column_clusters"]) == (1, 2)
    assert pl.read_csv(tmp_path / "l" / "rows.csv")["cluster"].unique().to_list() == [0]
    edited = coblock_("report", out, "--names", out / "clusters.csv", "--out", tmp_path / "r.md")
    assert edited.exit_code == 0, edited.output
    assert "First group" in (tmp_path / "r.md").read_text(encoding="utf-8")
    refused(coblock_("report", out, "--level", "0"), "of at least 1")
    refused(coblock_("report", out, "--labels", tmp_path / "none.csv"), "There is no file")


def test_predict_matches_columns_by_name(model, tmp_path):
    pairs = [("old", f"v{j}") for j in range(16, -1, -2)] + [("new, 1", f"v{j}") for j in (3, 1)]
    new = write_edges(tmp_path / "new.csv", [*pairs, ("old", "unknown")])
    ran = coblock_("predict", model.parent, new)
    assert ran.exit_code == 0, ran.output
    assert "1 of 12 columns are not in the model" in ran.stderr
    table = pl.read_csv(ran.stdout.encode())
    assert table["name"].to_list() == ["old", "new, 1"]
    known = load(model)
    names = known.result_.relation.row_names
    assert table["cluster"][0] == known.row_labels_[names.index("u2")]
    assert table["cluster"][1] == known.row_labels_[names.index("u3")]


def test_predicting_fitted_rows_gives_their_clusters(edges, model):
    ran = coblock_("predict", model, edges, "--json")
    lines = json.loads(ran.stdout)["lines"]
    assert [line["cluster"] for line in lines] == load(model).row_labels_.tolist()


def test_predict_refuses_foreign_columns(model, tmp_path):
    new = write_edges(tmp_path / "new.csv", [("a", "b"), ("c", "d")])
    refused(coblock_("predict", model, new), "None of the 2 columns", "'b'", "'v2'")


def test_recommend(model, tmp_path):
    ran = coblock_("recommend", model, "--rows", "u0", "-n", 3)
    table = pl.read_csv(ran.stdout.encode())
    assert table["row"].to_list() == ["u0"] * 3
    assert table["rank"].to_list() == [1, 2, 3]
    assert table["column"][0] == "v0"  # the one link that was left out of its block
    assert table["probability"].is_sorted(descending=True)
    out = tmp_path / "all.csv"
    assert coblock_("recommend", model, "-n", 2, "--out", out).exit_code == 0
    assert pl.read_csv(out)["row"].n_unique() == ROWS
    refused(coblock_("recommend", model, "-r", "u0", "-r", "unknown"), "1 of 2 rows", "'unknown'")


def test_evaluate(edges):
    ran = coblock_("evaluate", edges, "--runs", 2, "--json")
    assert ran.exit_code == 0, ran.output
    found = json.loads(ran.stdout)
    assert len(found["runs"]) == 2
    assert found["held_out"] == round(0.1 * ROWS * COLUMNS)
    assert found["mean"]["auc"] > 0.9
    assert found["baselines"]["density"]["auc"] == 0.5
    assert found["baselines"]["degrees"]["auc"] < found["mean"]["auc"]
    page = coblock_("evaluate", edges, "--runs", 1).stdout
    assert re.search(r"log likelihood per cell( +-\d\.\d{4,}){3}", page)
    assert re.search(r"mean +deviation +density +degrees", page)
    assert json.loads(coblock_("evaluate", edges, "--runs", 1, "--json").stdout)["deviation"] == {
        "log_likelihood": None, "auc": None, "average_precision": None,
    }  # fmt: skip


def test_evaluate_prints_the_current_fit_and_small_scores(edges, monkeypatch):
    monkeypatch.setattr("coblock.ui.cli.console.LOG_INTERVAL", 0.0)
    ran = coblock_("evaluate", edges, "--runs", "2")
    assert re.search(r"^fit 2 of 2, .* sweep 1, ", ran.stderr, re.MULTILINE)
    assert "10% held out in each of 2 runs: " in ran.stdout
    scores = Scores(-0.00812345, 0.9, float("nan"))
    page = io.StringIO()
    found = Evaluation((scores,), scores, Scores(*[float("nan")] * 3), 5_000_000, sampled=True)
    Console(file=page).print(evaluation_page(found, 0.1))
    assert "10% held out in one run: 5,000,000 cells, a weighted sample" in page.getvalue()
    assert re.search(r"-0\.008123 .* 0\.9000 .* none", page.getvalue(), re.DOTALL)


def test_fit_recovers_generated_clusters(tmp_path):
    ran = coblock_("generate", "--out", tmp_path / "made", "--json")
    assert json.loads(ran.stdout)["row_clusters"] == 4
    made = {path.name for path in (tmp_path / "made").iterdir()}
    assert made == {"edges.csv", "rows.csv", "columns.csv"}
    fit = coblock_("fit", tmp_path / "made" / "edges.csv", "--out", tmp_path / "found", "-q")
    assert fit.exit_code == 0
    for table in ("rows", "columns"):
        truth, found = (
            pl.read_csv(tmp_path / folder / f"{table}.csv") for folder in ("made", "found")
        )
        both = truth.join(found, on="name")
        assert both.height == found.height
        assert adjusted_rand_score(both["cluster"], both["cluster_right"]) == 1.0


def test_generate_can_draw_the_numbers_of_clusters(tmp_path):
    folders = [tmp_path / name for name in ("a", "b", "c")]
    for folder, seed in zip(folders, (1, 1, 2), strict=True):
        drawn = ("--rows", 9, "--columns", 8, "--clusters", 0, 0, "--seed", seed)
        assert coblock_("generate", *drawn, "--out", folder).exit_code == 0
    same, again, other = ((folder / "edges.csv").read_bytes() for folder in folders)
    assert same == again != other
    refused(coblock_("generate", "--rows", 3, "--out", tmp_path / "d"), "3 objects")
    assert not (tmp_path / "d").exists()


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_export_to_tables(model, tmp_path, kind):
    assert coblock_("export", model, "--to", kind, "--out", tmp_path / "o").exit_code == 0
    read = {"csv": pl.read_csv, "parquet": pl.read_parquet}[kind]
    tables = {path.stem: read(path) for path in (tmp_path / "o").iterdir()}
    assert set(tables) == {"rows", "columns", "blocks", "trace"}
    assert tables["rows"]["cluster"].to_list() == load(model).row_labels_.tolist()
    refused(coblock_("export", model, "--to", kind, "--out", tmp_path / "o"), "--force")


def test_export_to_json(model, tmp_path):
    out = tmp_path / "o.json"
    assert coblock_("export", model, "--to", "json", "--out", out).exit_code == 0
    found = json.loads(out.read_text(encoding="utf-8"))
    assert [row["cluster"] for row in found["rows"]] == load(model).row_labels_.tolist()
    assert len(found["blocks"]) == 4


@pytest.mark.parametrize("kind", ["graphml", "gml"])
def test_export_to_a_graph(model, tmp_path, kind):
    networkx = pytest.importorskip("networkx")
    out = tmp_path / f"o.{kind}"
    assert coblock_("export", model, "--to", kind, "--out", out).exit_code == 0
    graph = getattr(networkx, f"read_{kind}")(out)
    known = load(model)
    assert graph.number_of_edges() == len(blocks())
    for name, label in zip(known.result_.relation.row_names, known.row_labels_, strict=True):
        assert graph.nodes[name]["cluster"] == label
        assert graph.nodes[name]["bipartite"] == 0


def test_export_adds_clusters_to_an_existing_graph(tmp_path):
    networkx = pytest.importorskip("networkx")
    graph = networkx.disjoint_union(networkx.complete_graph(8), networkx.complete_graph(7))
    networkx.set_node_attributes(graph, "blue", "colour")
    networkx.write_graphml(graph, tmp_path / "g.graphml")
    fitted = ("fit", tmp_path / "g.graphml", "--relation", "undirected", "--out", tmp_path / "o")
    assert coblock_(*fitted).exit_code == 0
    ran = coblock_(
        "export", tmp_path / "o", "--to", "graphml", "--graph", tmp_path / "g.graphml",
        "--out", tmp_path / "h.graphml",
    )  # fmt: skip
    assert ran.exit_code == 0, ran.output
    labelled = networkx.read_graphml(tmp_path / "h.graphml")
    assert {data["colour"] for _, data in labelled.nodes(data=True)} == {"blue"}
    found = [labelled.nodes[str(i)]["cluster"] for i in range(15)]
    assert found == [0] * 8 + [1] * 7
    assert labelled.number_of_edges() == graph.number_of_edges()


# Exit codes


def test_an_unconverged_fit_exits_with_code_one_and_a_result(edges, tmp_path):
    few = ("--max-iter", 2, "--no-refine", "--init", "random")
    ran = coblock_("fit", edges, "--out", tmp_path / "o", *few)
    assert ran.exit_code == 1
    assert "had not converged after 2 sweeps" in ran.stderr
    assert "stopped after 2 sweeps" in ran.stdout
    assert {path.name for path in (tmp_path / "o").iterdir()} == set(FILES)
    assert "larger --max-iter (it was 2) or --tol" in ran.stderr
    ran = coblock_("evaluate", edges, "--runs", 3, *few)
    assert ran.exit_code == 1
    assert ran.stderr.count("3 of 3 fits had not converged after 2 sweeps") == 1


def test_a_sampler_does_not_have_to_converge(edges, tmp_path):
    gibbs = ("--inference", "gibbs", "--max-iter", 4, "--json")
    ran = coblock_("fit", edges, "--out", tmp_path / "o", *gibbs)
    assert ran.exit_code == 0
    assert json.loads(ran.stdout)["converged"] is False


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--inference", "magic"], ["inference", "'magic'"]),
        (["--max-clusters", "few"], ["--max-clusters", "'few'"]),
        (["--block-prior", "1;2"], ["--block-prior", "'1;2'"]),
        (["--batch-size", "x"], ["--batch-size"]),
        (["--row", "unknown"], ["'unknown'", "'user'"]),
        (["--value", "rating"], ["'rating'"]),
        (["--relation", "round"], ["relation", "'round'"]),
        (["--encoding", "nothing"], ["nothing"]),
        (["--unseen", "missing.csv"], ["missing.csv"]),
    ],
)
def test_bad_options_are_refused_with_a_sentence(edges, tmp_path, arguments, words):
    refused(coblock_("fit", edges, "--out", tmp_path / "o", *arguments), *words)
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("empty.csv", b"", ["0 bytes"]),
        ("latin.csv", "user,item\nJosé,thé\nAna,café\n".encode("latin-1"), ["UTF-8", "--encoding"]),
        ("table.docx", b"PK", [".csv", ".parquet"]),
        ("table.xlsx", b"PK", ["is not a workbook"]),
        ("broken.parquet", b"PAR1 no", ["broken.parquet"]),
        ("one.csv", b"a\nb\nc\n", ["one.csv"]),
    ],
)
def test_bad_files_are_refused_with_a_sentence(tmp_path, name, content, words):
    (tmp_path / name).write_bytes(content)
    for command in (
        ["fit", tmp_path / name, "--out", tmp_path / "o"],
        ["evaluate", tmp_path / name],
    ):
        refused(coblock_(*command), *words)
    assert not (tmp_path / "o").exists()


def test_missing_and_unsuitable_files_are_refused(tmp_path, edges):
    refused(coblock_("fit", tmp_path / "no.csv", "--out", tmp_path / "o"), "There is no file")
    (tmp_path / "d.csv").mkdir()
    refused(coblock_("fit", tmp_path / "d.csv", "--out", tmp_path / "o"), "is a directory")
    refused(coblock_("report", edges), "cannot be used as a model")
    refused(coblock_("report", tmp_path / "no"), "There is no file")
    refused(coblock_("recommend", tmp_path), "There is no file")
    refused(coblock_("export", edges, "--to", "pdf", "--out", tmp_path / "o"), "--to", "'pdf'")
    wrong = ("--to", "csv", "--graph", edges, "--out", tmp_path / "o")
    refused(coblock_("export", edges, *wrong), "--graph")


def test_names_cannot_control_the_terminal_through_messages(tmp_path):
    refused(coblock_("fit", tmp_path / "\x1b[2J[red]no.csv", "--out", tmp_path / "o"), "[red]no")
    ran = coblock_("fit", tmp_path / "\x1b[2Jno.csv", "--out", tmp_path / "o")
    assert "\x1b" not in ran.stderr
    assert "\\x1b[2Jno.csv" in ran.stderr


def test_messages_name_options_instead_of_parameters():
    assert with_options("Say encoding='latin-1'.") == "Say --encoding latin-1."
    assert with_options("with row=, column= and value=") == "with --row, --column and --value"
    assert with_options("x=3 stays, max_clusters=4 not") == "x=3 stays, --max-clusters 4 not"
    assert with_options("header=False or header=True") == "--no-header or --header"


def test_a_missing_package_is_named(model, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "networkx", None)
    ran = coblock_("export", model, "--to", "graphml", "--out", tmp_path / "o")
    refused(ran, "pip install 'coblock[graphs]'")


# Incomplete output


def test_a_folder_with_files_is_not_changed(place, edges):
    before = {path.name: path.read_bytes() for path in (place / "result").iterdir()}
    refused(coblock_("fit", edges, "--out", place / "result"), "not empty", "--force")
    assert {path.name: path.read_bytes() for path in (place / "result").iterdir()} == before


def test_force_replaces_our_files_and_keeps_others(edges, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "rows.csv").write_text("old")
    assert coblock_("fit", edges, "--out", tmp_path, "--force").exit_code == 0
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert (tmp_path / "rows.csv").read_text() != "old"
    assert {path.name for path in tmp_path.iterdir()} == {*FILES, "notes.txt"}


def test_a_file_in_place_of_the_folder_is_refused(edges, tmp_path):
    (tmp_path / "o").write_text("mine")
    refused(coblock_("fit", edges, "--out", tmp_path / "o"), "cannot be written")
    refused(coblock_("fit", edges, "--out", tmp_path / "o" / "below"), "is a file")
    assert (tmp_path / "o").read_text() == "mine"


def test_an_incomplete_folder_is_refused_with_advice(edges, tmp_path):
    (tmp_path / "o").mkdir()
    (tmp_path / "o" / "rows.csv").write_text("half")
    ran = coblock_("fit", edges, "--out", tmp_path / "o")
    refused(ran, f"has 1 of the {len(FILES)} files of a result", "pass --force")
    (tmp_path / "p" / ".coblock-files-1.tmp").mkdir(parents=True)  # a killed process left it
    assert coblock_("fit", edges, "--out", tmp_path / "p", "--tol", 0.01).exit_code == 0
    assert {path.name for path in (tmp_path / "p").iterdir()} == set(FILES)


def test_parents_of_the_output_are_made(edges, model, tmp_path):
    below = tmp_path / "new" / "deep"
    assert coblock_("fit", edges, "--out", below / "o", "--tol", 0.01).exit_code == 0
    assert {path.name for path in below.iterdir()} == {"o"}
    for number, command in enumerate(
        (["predict", model, edges], ["recommend", model], ["report", model],
         ["export", model, "--to", "json"])
    ):  # fmt: skip
        out = tmp_path / str(number) / "deep" / "out"
        assert coblock_(*command, "--out", out).exit_code == 0
        assert out.is_file()


def limited(arguments: list[str], size: int) -> subprocess.CompletedProcess[str]:
    """Run coblock with a limit on the size of files."""

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    return subprocess.run(
        [sys.executable, "-m", "coblock", *arguments],
        check=False, capture_output=True, text=True, timeout=60, preexec_fn=limit,
    )  # fmt: skip


def test_a_limit_on_file_size_leaves_no_result(place, edges, tmp_path):
    """The model and the tables are below the limit, the report is not."""
    sizes = {path.name: path.stat().st_size for path in (place / "result").iterdir()}
    assert max(sizes, key=sizes.get) == "report.html"
    limit = sizes["report.html"] * 9 // 10
    (tmp_path / "o").mkdir()
    (tmp_path / "o" / "rows.csv").write_text("old")
    ran = limited(["fit", str(edges), "--out", str(tmp_path / "o"), "--force"], limit)
    assert ran.returncode == 2, ran.stderr
    assert "Error: " in ran.stderr
    assert "report.html cannot be written" in ran.stderr
    assert "Traceback" not in ran.stderr
    left = sorted(path.name for path in tmp_path.rglob("*"))
    assert left == ["o", "o.checkpoint", "rows.csv"]  # the fit can be resumed
    assert (tmp_path / "o" / "rows.csv").read_text() == "old"


@pytest.mark.parametrize(
    ("code", "words"),
    [(errno.ENOSPC, "disk is full"), (errno.EROFS, "read-only"), (errno.EACCES, "may not write")],
)
def test_a_failing_disk_leaves_no_file(edges, model, tmp_path, monkeypatch, code, words):
    """The disk fails after all data are written, before the files are renamed."""

    def fail(path: Path) -> None:
        raise OSError(code, os.strerror(code), str(path))

    monkeypatch.setattr(os, "fsync", fail)
    out = str(tmp_path / "o")
    for command in (
        ["fit", edges, "--out", out],
        ["report", model, "--out", out],
        ["recommend", model, "--out", out],
        ["predict", model, edges, "--out", out],
        ["generate", "--out", out],
        ["export", model, "--to", "parquet", "--out", out],
        ["export", model, "--to", "graphml", "--out", out],
    ):
        ran = coblock_(*command, "--quiet")
        refused(ran, words, out)
        assert ".tmp" not in ran.stderr
        assert list(tmp_path.iterdir()) == []


def test_a_read_only_folder_is_refused_before_the_fit(edges, tmp_path, monkeypatch):
    def fail(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(Path, "mkdir", fail)
    monkeypatch.setattr(IRM, "fit", lambda *_: pytest.fail("fitted all the same"))
    refused(coblock_("fit", edges, "--out", tmp_path / "o"), "may not write")


def test_a_folder_in_place_of_a_file_stops_the_output(edges, tmp_path):
    (tmp_path / "report.html").mkdir()
    refused(coblock_("fit", edges, "--out", tmp_path, "--force"), "report.html", "folder")
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_an_interrupted_fit_leaves_no_file(edges, tmp_path, monkeypatch):
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(IRM, "_fit", interrupt)
    ran = coblock_("fit", edges, "--out", tmp_path / "o")
    assert ran.exit_code == 130
    assert "Interrupted" in ran.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("kept", "message"), [(True, "same command continues"), (False, "nothing was written")]
)
def test_an_interrupted_fit_on_a_cluster_says_how_to_continue(
    edges, tmp_path, monkeypatch, kept, message
):
    def interrupt(self: IRM, *_: object, **__: object) -> None:
        if kept:
            self.checkpoint.touch()
        raise KeyboardInterrupt

    monkeypatch.setattr(IRM, "_fit", interrupt)
    ran = coblock_("fit", edges, "--out", tmp_path / "o", "--scheduler", "tcp://nowhere:8786")
    assert ran.exit_code == 130
    assert message in ran.stderr


# Names


@pytest.fixture(scope="module")
def nasty(tmp_path_factory) -> Path:
    """Return the folder of a fit with malicious names; blank names are not objects."""
    folder = tmp_path_factory.mktemp("nasty")
    names = [*(name for name in NASTY if name.strip("\x00\x07\u2028\u2029")), "=1+1", "@SUM(A1)"]
    pairs = [(name, f"{j}{name}") for i, name in enumerate(names) for j in range(4 + i % 2)]
    table = pl.DataFrame(pairs, schema=["user", "item"], orient="row")
    table.write_parquet(folder / "nasty.parquet")
    ran = coblock_("fit", folder / "nasty.parquet", "--out", folder / "o", "--tol", 0.01)
    assert ran.exit_code == 0, ran.output
    assert not re.search("[\x00\x07\u202e]", ran.output)
    assert "x" * 50 not in ran.output
    return folder


def test_malicious_names_are_kept(nasty):
    names = pl.read_parquet(nasty / "nasty.parquet")["user"].unique(maintain_order=True)
    kept = load(nasty / "o" / "model.safetensors").result_.relation.row_names
    assert list(kept) == names.to_list()
    with (nasty / "o" / "rows.csv").open(encoding="utf-8", newline="") as file:
        written = [line["name"] for line in csv.DictReader(file)]
    safe = ["'" + name if name[0] in "\x00=+-@\t\r\n" else name for name in names]
    assert written == safe
    assert "'=1+1" in written


@pytest.mark.parametrize("charset", ["ascii", "cp1252", "cp932"])
def test_names_outside_of_the_encoding_of_the_output(edges, tmp_path, charset):
    pairs = [(f"ж{row}", f"名{column}é") for row, column in blocks()]
    file = write_edges(tmp_path / "edges.csv", pairs)
    arguments = ["fit", str(file), "--out", str(tmp_path / "o"), "--tol", "0.01"]
    ran = CliRunner(charset=charset).invoke(app, arguments)
    assert ran.exit_code == 0, ran.output
    assert "Report: " in ran.stdout
    assert {path.name for path in (tmp_path / "o").iterdir()} == set(FILES)


def test_names_cannot_control_the_terminal_through_tables(tmp_path):
    pairs = [(f"u{i}\x1b[31m", f"v{j}\x07") for i in range(6) for j in range(6) if i % 2 == j % 2]
    table = pl.DataFrame(pairs, schema=["user", "item"], orient="row")
    table.write_parquet(tmp_path / "edges.parquet")
    assert coblock_("fit", tmp_path / "edges.parquet", "--out", tmp_path / "o").exit_code == 0
    for command in (["recommend", "o", "-n", "1"], ["predict", "o", "edges.parquet"]):
        arguments = [str(tmp_path / a) if (tmp_path / a).exists() else a for a in command]
        code, seen = in_a_terminal(arguments)
        assert code == 0, seen
        assert "u0\\x1b[31m" in seen
        assert not re.search("[\x07\x1b]", seen)
        assert "u0\x1b[31m" in coblock_(*arguments).stdout, "pipes get unchanged names"


def test_formulas_are_escaped_by_default(nasty, tmp_path):
    for options, first in (([], "'="), (["--formulas"], "=")):
        ran = coblock_("recommend", nasty / "o", "-r", "=1+1", "-n", 1, *options)
        assert f'"{first}1+1",1,"' in ran.stdout
    out = tmp_path / "o"
    assert coblock_("export", nasty / "o", "--to", "csv", "--out", out, "--formulas").exit_code == 0
    assert '\n"=1+1"' in (out / "rows.csv").read_text(encoding="utf-8")


def test_malicious_names_are_kept_in_a_graph(nasty, tmp_path):
    networkx = pytest.importorskip("networkx")
    out = tmp_path / "o.graphml"
    assert coblock_("export", nasty / "o", "--to", "graphml", "--out", out).exit_code == 0
    names = pl.read_parquet(nasty / "nasty.parquet")["user"]
    found = {data["name"] for _, data in networkx.read_graphml(out).nodes(data=True)}
    expected = {name for name in names if not re.search("[\x00-\x08\r]", name)}
    assert expected <= found


def test_warnings_are_printed_as_notes(edges, tmp_path, monkeypatch):
    fit = IRM._fit

    def warn(self, relation, **options):
        warnings.warn("look out", UserWarning, stacklevel=1)
        return fit(self, relation, **options)

    monkeypatch.setattr(IRM, "_fit", warn)
    assert "Note: look out\n" in coblock_("fit", edges, "--out", tmp_path / "o").stderr
    assert coblock_("fit", edges, "--out", tmp_path / "p", "-q").output == ""
