"""The commands as people and programs call them: results, errors, exit codes, no half outputs."""

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
from coblock.ui.cli.failures import in_options
from coblock.ui.cli.options import Fitting, Layout, spread
from coblock.ui.cli.results import FILES
from coblock.ui.terminal import evaluation_page
from fabricated import NASTY

ROWS, COLUMNS = 24, 18
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def coblock_(*arguments: object, **options: object) -> Ran:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], **options)


def blocks(rows: int = ROWS, columns: int = COLUMNS) -> list[tuple[str, str]]:
    """Edges of two by two blocks, but one that is missing."""
    pairs = [(f"u{i}", f"v{j}") for i in range(rows) for j in range(columns) if i % 2 == j % 2]
    return pairs[1:]


def write_edges(path: Path, pairs: list[tuple[str, str]]) -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("user", "item"), *pairs])
    return path


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A folder with edges.csv and the folder result of its fit."""
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
    """One sentence on standard error, code 2, nothing else."""
    assert ran.exit_code == 2, ran.output
    assert ran.stdout == ""
    errors = [line for line in ran.stderr.splitlines() if line.startswith("Error: ")]
    assert len(errors) == 1
    assert "Traceback" not in ran.stderr
    for word in words:
        assert word in errors[0]


# What they do


def test_fit_leaves_all_files(place):
    assert {path.name for path in (place / "result").iterdir()} == set(FILES)
    rows = pl.read_csv(place / "result" / "rows.csv")
    assert rows.columns == ["name", "cluster", "probability"]
    assert rows["name"].to_list() == list(dict.fromkeys(user for user, _ in blocks()))
    truth = [int(name[1:]) % 2 for name in rows["name"]]
    assert adjusted_rand_score(truth, rows["cluster"]) == 1.0
    assert "edges.csv" in (place / "result" / "report.html").read_text(encoding="utf-8")


def test_fit_is_the_library_with_the_same_seed(place, edges, model):
    found = IRM(random_state=0).fit(coblock.read(edges).relation)
    kept = load(model)
    assert np.array_equal(found.row_membership_, kept.row_membership_)
    assert found.log_evidence_ == kept.log_evidence_
    assert kept.random_state == 0


def test_options_reach_the_estimator():
    fitting = Fitting(max_clusters="3,4", batch_size="7", jobs=2, seed=5, refine=False, tol=0.1)
    parameters = fitting.estimator().get_params()
    expected = {"max_clusters": (3, 4), "batch_size": 7, "n_jobs": 2, "random_state": 5}
    assert parameters.items() >= (expected | {"refine": False, "tol": 0.1}).items()
    defaults = Fitting().estimator().get_params()
    assert defaults == IRM(random_state=0, n_jobs=1).get_params()


def test_groups_of_options_become_options():
    def command(layout: Layout, name: str = "x") -> None:
        assert (layout.row, name) == ("r", "y")

    run = spread(command)
    given = {"row": "r", "column": None, "value": None, "binarize": 0.0, "unseen": None}
    run(**given, delimiter=None, header=None, encoding="utf-8", name="y")
    with pytest.raises(AssertionError):
        run(**given | {"row": "s"}, delimiter=None, header=None, encoding="utf-8", name="y")


def test_fit_tells_what_it_found(place, edges, tmp_path):
    ran = coblock_("fit", edges, "--out", tmp_path / "o", "--title", "Some <b>title</b>")
    assert ran.exit_code == 0
    assert f"{ROWS} x {COLUMNS}, {len(blocks())} links, 0 unseen cells" in ran.stdout
    assert "2 x 2 clusters; converged after" in ran.stdout
    page = (tmp_path / "o" / "report.html").read_text(encoding="utf-8")
    assert "Some &lt;b&gt;title&lt;/b&gt;" in page


def test_json_is_all_there_is_on_standard_output(edges, tmp_path):
    ran = coblock_("fit", edges, "--out", tmp_path / "o", "--json")
    found = json.loads(ran.stdout)
    assert ran.stdout.count("\n") == 1
    assert (found["rows"], found["columns"], found["links"]) == (ROWS, COLUMNS, len(blocks()))
    assert (found["row_clusters"], found["column_clusters"]) == (2, 2)
    assert found["converged"] is True
    assert found["stability"] is None
    assert {Path(path).name for path in found["files"].values()} == set(FILES)
    assert all(Path(path).is_file() for path in found["files"].values())


def test_quiet_tells_nothing(edges, tmp_path):
    ran = coblock_("fit", edges, "--out", tmp_path / "o", "--quiet")
    assert (ran.exit_code, ran.output) == (0, "")


def test_a_log_has_plain_lines(edges, tmp_path):
    ran = coblock_("fit", edges, "--out", tmp_path / "o", env={"TERM": "xterm-256color"})
    assert re.search(r"^sweep 1: change .*, bound .*, \d+ x \d+ clusters", ran.stderr, re.MULTILINE)
    assert "\x1b" not in ran.stderr
    assert "\r" not in ran.stderr


def in_a_terminal(arguments: list[str]) -> tuple[int, str]:
    """Run coblock with a terminal of eighty columns for its output."""
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


def test_a_terminal_has_a_bar(edges, tmp_path):
    code, seen = in_a_terminal(["fit", str(edges), "--out", str(tmp_path / "o")])
    assert code == 0, seen
    assert "\x1b[" in seen
    told = ESCAPES.sub("", seen)
    assert re.search(r"sweep \d+, change \S+, \d+ x \d+ clusters, evidence -", told)
    assert "2 x 2 clusters; converged" in told
    assert not re.search(r"^sweep 1: change", told, re.MULTILINE)


def test_report_is_written_again(place, model, tmp_path):
    ran = coblock_("report", model, "--out", tmp_path / "again.html", "--title", "edges.csv")
    assert ran.exit_code == 0
    before = (place / "result" / "report.html").read_bytes()
    assert (tmp_path / "again.html").read_bytes() == before
    assert coblock_("report", model.parent).exit_code == 0
    assert (place / "result" / "report.html").read_bytes() != before  # it has no title now


def test_predict_matches_columns_by_name(model, tmp_path):
    pairs = [("old", f"v{j}") for j in range(16, -1, -2)] + [("new, 1", f"v{j}") for j in (3, 1)]
    new = write_edges(tmp_path / "new.csv", [*pairs, ("old", "unheard of")])
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
    refused(coblock_("recommend", model, "-r", "u0", "-r", "nobody"), "1 of 2 rows", "'nobody'")


def test_evaluate(edges):
    ran = coblock_("evaluate", edges, "--runs", 2, "--json")
    assert ran.exit_code == 0, ran.output
    found = json.loads(ran.stdout)
    assert len(found["runs"]) == 2
    assert found["held_out"] == round(0.1 * ROWS * COLUMNS)
    assert found["mean"]["auc"] > 0.9
    page = coblock_("evaluate", edges, "--runs", 1).stdout
    assert re.search(r"log likelihood per cell +-0\.\d{4}", page)
    assert json.loads(coblock_("evaluate", edges, "--runs", 1, "--json").stdout)["deviation"] == {
        "log_likelihood": None, "auc": None, "average_precision": None,
    }  # fmt: skip


def test_an_evaluation_tells_which_fit_is_under_way_and_small_scores(edges, monkeypatch):
    monkeypatch.setattr("coblock.ui.cli.talk.LOG_EVERY", 0.0)
    ran = coblock_("evaluate", edges, "--runs", "2")
    assert re.search(r"^fit 2 of 2, sweep 1: ", ran.stderr, re.MULTILINE)
    assert "10% held out in each of 2 runs: " in ran.stdout
    scores = Scores(-0.00812345, 0.9, float("nan"))
    page = io.StringIO()
    found = Evaluation((scores,), scores, Scores(*[float("nan")] * 3), 5_000_000, sampled=True)
    Console(file=page).print(evaluation_page(found, 0.1))
    assert "10% held out in one run: 5,000,000 cells, a weighted sample" in page.getvalue()
    assert re.search(r"-0\.008123 .* 0\.9000 .* none", page.getvalue(), re.DOTALL)


def test_generate_and_fit_find_the_truth(tmp_path):
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


def test_generate_draws_the_numbers_of_clusters(tmp_path):
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


def test_clusters_go_back_to_the_graph_they_came_from(tmp_path):
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


def test_no_convergence_ends_with_code_one_and_a_result(edges, tmp_path):
    few = ("--max-iter", 2, "--no-refine", "--init", "random")
    ran = coblock_("fit", edges, "--out", tmp_path / "o", *few)
    assert ran.exit_code == 1
    assert "had not converged after 2 sweeps" in ran.stderr
    assert "stopped after 2 sweeps" in ran.stdout
    assert {path.name for path in (tmp_path / "o").iterdir()} == set(FILES)
    assert coblock_("evaluate", edges, "--runs", 1, *few).exit_code == 1


def test_a_sampler_is_not_expected_to_converge(edges, tmp_path):
    gibbs = ("--inference", "gibbs", "--max-iter", 4, "--json")
    ran = coblock_("fit", edges, "--out", tmp_path / "o", *gibbs)
    assert ran.exit_code == 0
    assert json.loads(ran.stdout)["converged"] is False


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--inference", "magic"], ["inference", "'magic'"]),
        (["--max-clusters", "few"], ["--max-clusters", "'few'"]),
        (["--batch-size", "x"], ["--batch-size"]),
        (["--row", "nobody"], ["'nobody'", "'user'"]),
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
        ("table.xlsx", b"PK", [".csv", ".parquet"]),
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


def test_files_that_are_none(tmp_path, edges):
    refused(coblock_("fit", tmp_path / "no.csv", "--out", tmp_path / "o"), "There is no file")
    (tmp_path / "d.csv").mkdir()
    refused(coblock_("fit", tmp_path / "d.csv", "--out", tmp_path / "o"), "is a directory")
    refused(coblock_("report", edges), "cannot be used as a model")
    refused(coblock_("report", tmp_path / "no"), "There is no file")
    refused(coblock_("recommend", tmp_path), "There is no file")
    refused(coblock_("export", edges, "--to", "pdf", "--out", tmp_path / "o"), "--to", "'pdf'")
    wrong = ("--to", "csv", "--graph", edges, "--out", tmp_path / "o")
    refused(coblock_("export", edges, *wrong), "--graph")


def test_the_message_survives_a_hostile_name(tmp_path):
    refused(coblock_("fit", tmp_path / "\x1b[2J[red]no.csv", "--out", tmp_path / "o"), "[red]no")
    ran = coblock_("fit", tmp_path / "\x1b[2Jno.csv", "--out", tmp_path / "o")
    assert "\x1b" not in ran.stderr
    assert "\\x1b[2Jno.csv" in ran.stderr


def test_advice_is_in_the_words_of_the_command_line():
    assert in_options("Say encoding='latin-1'.") == "Say --encoding latin-1."
    assert in_options("with row=, column= and value=") == "with --row, --column and --value"
    assert in_options("x=3 stays, max_clusters=4 not") == "x=3 stays, --max-clusters 4 not"


def test_a_missing_package_is_named(model, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "networkx", None)
    ran = coblock_("export", model, "--to", "graphml", "--out", tmp_path / "o")
    refused(ran, "pip install 'coblock[graphs]'")


# Nothing half-written


def test_a_folder_in_use_is_kept(place, edges):
    before = {path.name: path.read_bytes() for path in (place / "result").iterdir()}
    refused(coblock_("fit", edges, "--out", place / "result"), "not empty", "--force")
    assert {path.name: path.read_bytes() for path in (place / "result").iterdir()} == before


def test_force_replaces_ours_and_keeps_the_rest(edges, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "rows.csv").write_text("old")
    assert coblock_("fit", edges, "--out", tmp_path, "--force").exit_code == 0
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert (tmp_path / "rows.csv").read_text() != "old"
    assert {path.name for path in tmp_path.iterdir()} == {*FILES, "notes.txt"}


def test_the_folder_is_a_file(edges, tmp_path):
    (tmp_path / "o").write_text("mine")
    refused(coblock_("fit", edges, "--out", tmp_path / "o"), "cannot be written")
    refused(coblock_("fit", edges, "--out", tmp_path / "o" / "below"), "is a file")
    assert (tmp_path / "o").read_text() == "mine"


def limited(arguments: list[str], size: int) -> subprocess.CompletedProcess[str]:
    """Run coblock with a system that lets no file grow above a size."""

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    return subprocess.run(
        [sys.executable, "-m", "coblock", *arguments],
        check=False, capture_output=True, text=True, timeout=60, preexec_fn=limit,
    )  # fmt: skip


def test_files_that_cannot_grow_leave_nothing(place, edges, tmp_path):
    """Model and tables fit, the report does not."""
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
    assert left == ["o", "o.checkpoint", "rows.csv"]  # the work is not lost
    assert (tmp_path / "o" / "rows.csv").read_text() == "old"


@pytest.mark.parametrize(
    ("code", "words"),
    [(errno.ENOSPC, "disk is full"), (errno.EROFS, "read-only"), (errno.EACCES, "may not write")],
)
def test_disks_that_fail_leave_nothing(edges, model, tmp_path, monkeypatch, code, words):
    """After all data are written: the moment before the files get their names."""

    def fail(path: Path) -> None:
        raise OSError(code, os.strerror(code), str(path))

    monkeypatch.setattr(coblock.io.atomic, "_sync", fail)
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


def test_a_read_only_place_is_told_before_the_fit(edges, tmp_path, monkeypatch):
    def fail(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(Path, "mkdir", fail)
    monkeypatch.setattr(IRM, "fit", lambda *_: pytest.fail("fitted all the same"))
    refused(coblock_("fit", edges, "--out", tmp_path / "o"), "may not write")


def test_a_folder_in_the_way_of_a_file_stops_all(edges, tmp_path):
    (tmp_path / "report.html").mkdir()
    refused(coblock_("fit", edges, "--out", tmp_path, "--force"), "report.html", "folder")
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_an_interrupted_fit_leaves_nothing(edges, tmp_path, monkeypatch):
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(IRM, "_fit", interrupt)
    ran = coblock_("fit", edges, "--out", tmp_path / "o")
    assert ran.exit_code == 130
    assert "Interrupted" in ran.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("kept", "told"), [(True, "same command goes on"), (False, "nothing was")])
def test_an_interrupted_fit_on_a_cluster_says_how_to_go_on(
    edges, tmp_path, monkeypatch, kept, told
):
    def interrupt(*_: object, checkpoint: Path, **__: object) -> None:
        if kept:
            checkpoint.touch()
        raise KeyboardInterrupt

    monkeypatch.setattr("coblock.distributed.fit_on_cluster", interrupt)
    ran = coblock_("fit", edges, "--out", tmp_path / "o", "--scheduler", "tcp://nowhere:8786")
    assert ran.exit_code == 130
    assert told in ran.stderr


# Names


@pytest.fixture(scope="module")
def nasty(tmp_path_factory) -> Path:
    """A fitted folder whose names mean harm; names of nothing but blanks are nobody."""
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


def test_nasty_names_survive(nasty):
    names = pl.read_parquet(nasty / "nasty.parquet")["user"].unique(maintain_order=True)
    kept = load(nasty / "o" / "model.safetensors").result_.relation.row_names
    assert list(kept) == names.to_list()
    with (nasty / "o" / "rows.csv").open(encoding="utf-8", newline="") as file:
        written = [line["name"] for line in csv.DictReader(file)]
    safe = ["'" + name if name[0] in "=+-@\t\r\n" else name for name in names]
    assert written == safe
    assert "'=1+1" in written


def test_formulas_only_on_request(nasty, tmp_path):
    for options, first in (([], "'="), (["--formulas"], "=")):
        ran = coblock_("recommend", nasty / "o", "-r", "=1+1", "-n", 1, *options)
        assert f'"{first}1+1",1,"' in ran.stdout
    out = tmp_path / "o"
    assert coblock_("export", nasty / "o", "--to", "csv", "--out", out, "--formulas").exit_code == 0
    assert '\n"=1+1"' in (out / "rows.csv").read_text(encoding="utf-8")


def test_nasty_names_in_a_graph(nasty, tmp_path):
    networkx = pytest.importorskip("networkx")
    out = tmp_path / "o.graphml"
    assert coblock_("export", nasty / "o", "--to", "graphml", "--out", out).exit_code == 0
    names = pl.read_parquet(nasty / "nasty.parquet")["user"]
    found = {data["name"] for _, data in networkx.read_graphml(out).nodes(data=True)}
    expected = {name for name in names if not re.search("[\x00-\x08\r]", name)}
    assert expected <= found


def test_warnings_are_told_as_notes(edges, tmp_path, monkeypatch):
    fit = IRM._fit

    def warn(self, relation):
        warnings.warn("look out", UserWarning, stacklevel=1)
        return fit(self, relation)

    monkeypatch.setattr(IRM, "_fit", warn)
    assert "Note: look out\n" in coblock_("fit", edges, "--out", tmp_path / "o").stderr
    assert coblock_("fit", edges, "--out", tmp_path / "p", "-q").output == ""
