"""Readers of files, frames and graphs: names, values, text layouts and errors."""

import bz2
import gzip
import pickle
import signal
import subprocess
import sys
from io import BytesIO
from pathlib import Path

import networkx as nx
import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.io import mmwrite
from typer.testing import CliRunner

from coblock import read
from coblock.io.readers import ReadError, Reading
from coblock.io.readers.indexing import (
    LINK,
    NO_LINK,
    UNSEEN,
    compress_edges,
    number_names,
)
from coblock.io.readers.names import _FIRST_SLOTS
from coblock.ui.cli import app

NASTY = ["a,b", 'say "hi"', "two\nlines", "<script>x</script>", "😀 ünal", "=1+1", " padded ", "7"]


def links(reading: Reading) -> set[tuple[str, str]]:
    """Return the links by name: (row, column), (sender, receiver), or both orders of a pair."""
    return pairs_of(reading, "link")


def unseen(reading: Reading) -> set[tuple[str, str]]:
    return pairs_of(reading, "unseen")


def pairs_of(reading: Reading, what: str) -> set[tuple[str, str]]:
    relation, place = reading.relation, reading.relation.incidence[0][0]
    start, end = getattr(place, f"{what}_start"), getattr(place, what)
    rows = np.repeat(np.arange(start.size - 1), np.diff(start))
    return {
        (relation.row_names[i], relation.column_names[j]) for i, j in zip(rows, end, strict=True)
    }


def written(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


# Names


WRITERS = {
    "csv": pl.DataFrame.write_csv,
    "tsv": lambda frame, path: frame.write_csv(path, separator="\t"),
    "parquet": pl.DataFrame.write_parquet,
    "arrow": pl.DataFrame.write_ipc,
    "feather": pl.DataFrame.write_ipc_stream,
}
NAMES = st.text(st.characters(codec="utf-8"), max_size=20) | st.sampled_from(NASTY)
EDGES = st.lists(st.tuples(NAMES, NAMES), min_size=1, max_size=15)


@pytest.mark.parametrize("ending", WRITERS)
@given(edges=EDGES)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_names_survive_a_round_trip(tmp_path, ending, edges):
    path = tmp_path / f"edges.{ending}"
    WRITERS[ending](pl.DataFrame(edges, schema=["from", "to"], orient="row"), path)
    delimiter = {"csv": ",", "tsv": "\t"}.get(ending)
    reading = read(path, header=True, delimiter=delimiter)
    assert links(reading) == set(edges)
    assert reading.relation.row_names == tuple(dict.fromkeys(row for row, _ in edges))
    assert reading.relation.column_names == tuple(dict.fromkeys(column for _, column in edges))
    assert reading.edges - reading.duplicates == len(set(edges))


@given(edges=EDGES)
@settings(deadline=None)
def test_rows_and_columns_of_one_domain_share_names(edges):
    frame = pl.DataFrame(edges, schema=["from", "to"], orient="row")
    directed, undirected = (read(frame, relation=kind) for kind in ("directed", "undirected"))
    distinct = {(a, b) for a, b in edges if a != b}
    assert links(directed) == distinct
    assert links(undirected) == distinct | {(b, a) for a, b in distinct}
    names = [a for a, _ in edges] + [b for _, b in edges]
    assert directed.relation.row_names == tuple(dict.fromkeys(names))
    assert directed.relation.row_names is directed.relation.column_names or (
        directed.relation.row_names == directed.relation.column_names
    )
    assert undirected.relation.n_links == len({frozenset(pair) for pair in distinct})


def test_hash_table_grows_with_the_number_of_names():
    names = [f"n{i % (3 * _FIRST_SLOTS)}" for i in range(10 * _FIRST_SLOTS)]
    pieces = [pl.Series(names), pl.Series(["n1", "new"]), pl.Series([], dtype=pl.String)]
    codes, found = number_names(pieces)
    assert found == (*dict.fromkeys(names), "new")
    assert [found[code] for code in codes[0]] == names
    assert (codes[1].tolist(), codes[2].size) == ([1, len(found) - 1], 0)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_tables_read_in_batches_are_the_same(suffix, tmp_path, monkeypatch):
    """Names, values, blank lines and the position of an error do not depend on the batches."""
    rng, path = np.random.default_rng(0), tmp_path / f"edges.{suffix}"
    names = [f"{word} {i}" for i, word in enumerate(NASTY[3:] * 30)]
    frame = pl.DataFrame(
        {
            "row": rng.choice(names, 2000),
            "column": rng.choice(names, 2000),
            "value": rng.integers(0, 2, 2000),
        }
    )
    blank = (pl.int_range(pl.len()) % 7 == 3).alias("blank")
    frame = frame.with_columns(pl.when(~blank).then(pl.col("row", "column", "value")))
    (frame.write_csv if suffix == "csv" else frame.write_parquet)(path)
    whole = read(path, value="value")
    monkeypatch.setattr("coblock.io.readers.names._ROWS", 100)
    parts = read(path, value="value")
    kept = frame.drop_nulls()
    assert whole.relation.row_names == tuple(kept["row"].unique(maintain_order=True))
    assert links(whole) == set(kept.filter(value=1).select("row", "column").rows())
    for place in ("row_names", "column_names"):
        assert getattr(parts.relation, place) == getattr(whole.relation, place)
    assert (links(parts), unseen(parts), parts.notes) == (links(whole), unseen(whole), whole.notes)
    frame[1500, "row"] = None
    frame[1500, "column"] = "alone"
    (frame.write_csv if suffix == "csv" else frame.write_parquet)(path)
    with pytest.raises(ReadError, match=r"1 of 2,000 edges .* (edge 1,501|line 1,502)"):
        read(path, value="value")


CELLS = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 3), st.sampled_from([UNSEEN, NO_LINK, LINK])),
    max_size=30,
)


@given(cells=CELLS)
def test_compressed_edges_match_a_dictionary(cells):
    largest: dict[tuple[int, int], int] = {}
    for row, column, state in cells:
        largest[row, column] = max(state, largest.get((row, column), state))
    rows, columns, states = (
        np.array([cell[i] for cell in cells], dtype=np.int32) for i in range(3)
    )
    found = compress_edges(rows, columns, states.astype(np.int8), (5, 4))
    for pattern, wanted in zip(found[:2], (LINK, UNSEEN), strict=True):
        assert pattern.has_sorted_indices
        expected = {cell for cell, state in largest.items() if state == wanted}
        assert {(int(i), int(j)) for i, j in zip(*pattern.nonzero(), strict=True)} == expected
        assert pattern.nnz == len(expected)
    assert found[2] == len(largest)


def test_objects_without_a_link_keep_their_names():
    frame = pl.DataFrame({"r": ["a", "b", "c"], "c": ["x", "y", "z"], "v": ["yes", "no", None]})
    reading = read(frame, value="v")
    assert reading.relation.row_names == ("a", "b", "c")
    assert (links(reading), unseen(reading)) == ({("a", "x")}, {("c", "z")})
    assert (reading.rows, reading.columns, reading.unseen, reading.edges) == (3, 3, 1, 3)


# Text layouts


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|", " "])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_delimiter_is_inferred(tmp_path, delimiter, end):
    lines = ["user#item", "ann#tea", '"b, ; | b"#tea', "cyd#milk"]
    text = end.join(line.replace("#", delimiter) for line in lines) + end
    reading = read(written(tmp_path, "a.csv", text))
    assert links(reading) == {("ann", "tea"), ("b, ; | b", "tea"), ("cyd", "milk")}
    assert any("header" in note for note in reading.notes)


def test_given_delimiter_is_used(tmp_path):
    path = written(tmp_path, "a.csv", "a,b:c\nd,e:f\n")
    assert links(read(path, delimiter=":", header=False)) == {("a,b", "c"), ("d,e", "f")}
    assert links(read(path, header=False)) == {("a", "b:c"), ("d", "e:f")}


@pytest.mark.parametrize(
    ("text", "header"),
    [
        ("user,item\nann,tea\nann,milk\n", True),
        ("ann,tea\nann,milk\n", False),
        ("1,2\n3,4\n", False),
        ("from,to\n1,2\n", True),
    ],
)
def test_header_is_inferred_or_given(tmp_path, text, header):
    path = written(tmp_path, "a.csv", text)
    first = tuple(text.splitlines()[0].split(","))
    assert (first not in links(read(path))) == header
    assert first in links(read(path, header=False))
    assert first not in links(read(path, header=True))


@pytest.mark.parametrize(
    "text", ["\n\n1,2\n3,4\n", "\r\na,b\r\n1,2\r\n\r\n3,4", "a,b\n\n1,2\n3,4\n\n"]
)
def test_blank_lines_are_skipped(tmp_path, text):
    reading = read(written(tmp_path, "a.csv", text))
    assert links(reading) == {("1", "2"), ("3", "4")}


def test_columns_by_name_and_by_number(tmp_path):
    path = written(tmp_path, "a.csv", "when,what,who,stars\n1,tea,ann,5\n2,tea,bob,1\n")
    reading = read(path, row="who", column="what", value="stars", binarize=3)
    assert links(reading) == {("ann", "tea")}
    assert reading.relation.row_names == ("ann", "bob")
    assert any("'when'" in note for note in reading.notes)
    assert links(read(written(tmp_path, "b.csv", "1,2,3\n4,5,6\n"), row=2, column=3)) == {
        ("2", "3"),
        ("5", "6"),
    }


SNAP = "# Directed graph\n# FromNodeId\tToNodeId\n0\t11\n0\t2\n3\t11\n"


@pytest.mark.parametrize("ending", [".txt", ".edges", ".SNAP"])
@pytest.mark.parametrize("blank", ["\t", " ", "   "])
def test_snap_text(tmp_path, ending, blank):
    path = written(tmp_path, f"a{ending}", SNAP.replace("\t", blank))
    reading = read(path, relation="directed")
    assert links(reading) == {("0", "11"), ("0", "2"), ("3", "11")}
    assert reading.relation.row_names == ("0", "3", "11", "2")


def test_word_above_numbers_is_a_header(tmp_path):
    named = written(tmp_path, "a.txt", "user|item|stars\nann|tea|4\nbob|milk|5\n")
    assert links(read(named)) == {("ann", "tea"), ("bob", "milk")}
    plain = written(tmp_path, "b.txt", "cyd|tea|3\nann|tea|4\nbob|milk|5\n")
    assert len(links(read(plain))) == 3


@pytest.mark.parametrize(
    ("answers", "noted"), [("yes no", True), ("No ", True), ("yes yes", False), ("no maybe", False)]
)
def test_unused_column_of_yes_and_no_is_noted(tmp_path, answers, noted):
    lines = "".join(f"{i},{i + 5},{said}\n" for i, said in enumerate(answers.split(" ")))
    path = written(tmp_path, "a.csv", "who,what,said\n" + lines)
    notes = read(path).notes
    assert any("Column 'said' says yes and no, but was not used" in one for one in notes) == noted
    assert "1 column was not used: 'said'. value= names one to be read." in notes
    if "maybe" not in answers:
        assert not any("not used" in note for note in read(path, value="said").notes)


def test_runs_of_white_space(tmp_path):
    path = written(tmp_path, "a.txt", "  0  1\n2 \t 3\n\n4 5  \n")
    assert links(read(path, delimiter="whitespace")) == {("0", "1"), ("2", "3"), ("4", "5")}


def compress(text: bytes, suffix: str) -> bytes:
    if suffix == ".gz":
        return gzip.compress(text, mtime=0)
    buffer = BytesIO()
    frame = pl.DataFrame({"user": ["ann", "bób"], "item": ["tea", "tea"]})
    frame.write_csv(buffer, compression="zstd")
    return buffer.getvalue()


@pytest.mark.parametrize("suffix", [".gz", ".zst", ".GZ"])
def test_compressed_text(tmp_path, suffix):
    content = compress("user,item\nann,tea\nbób,tea\n".encode(), suffix.lower())
    path = written(tmp_path, f"a.csv{suffix}", content)
    assert links(read(path)) == {("ann", "tea"), ("bób", "tea")}


def test_byte_order_mark_is_not_part_of_a_name(tmp_path):
    path = written(tmp_path, "a.csv", b"\xef\xbb\xbfann,tea\nann,milk\n")
    assert read(path).relation.row_names == ("ann",)


def test_latin_1_is_recognised_and_read(tmp_path):
    content = "user,item\nann,tea\nrené,tea\n".encode("latin-1")
    for name, data in (("a.csv", content), ("a.csv.gz", gzip.compress(content, mtime=0))):
        path = written(tmp_path, name, data)
        with pytest.raises(ReadError, match=r"byte 0xe9 .* line 3.*encoding='latin-1'"):
            read(path)
        assert links(read(path, encoding="latin-1")) == {("ann", "tea"), ("rené", "tea")}


def test_utf_16(tmp_path):
    path = written(tmp_path, "a.csv", "user,item\nann,tea\n".encode("utf-16"))
    with pytest.raises(ReadError, match="encoding='utf-16'"):
        read(path)
    assert links(read(path, encoding="utf-16")) == {("ann", "tea")}


# Values


@pytest.mark.parametrize(
    ("yes", "no"), [("yes", "no"), ("Y", "N"), ("TRUE", "false"), ("1", "0"), (" 2.5 ", "-1")]
)
def test_yes_no_and_blank(tmp_path, yes, no):
    text = f"r,c,v\na,x,{yes}\na,y,{no}\nb,x,\nb,y,NA\n"
    reading = read(written(tmp_path, "a.csv", text), value="v")
    assert links(reading) == {("a", "x")}
    assert unseen(reading) == {("b", "x"), ("b", "y")}


def test_yes_is_a_link_at_any_threshold():
    frame = pl.DataFrame({"r": ["a", "b"], "c": ["x", "x"], "v": ["yes", "4"]})
    assert links(read(frame, value="v", binarize=10)) == {("a", "x")}
    assert len(links(read(frame, value="v"))) == 2


@pytest.mark.parametrize(
    ("values", "state"),
    [([0, 2], "link"), ([2, 0], "link"), ([None, 0], "absent"), ([None, None], "unseen")],
)
def test_largest_value_of_a_repeated_pair_counts(values, state):
    frame = pl.DataFrame({"r": ["a", "a"], "c": ["x", "x"], "v": values})
    reading = read(frame, value="v")
    assert (reading.relation.n_links, reading.unseen) == (state == "link", state == "unseen")
    assert reading.duplicates == 1
    assert any("1 of 2 edges repeat" in note for note in reading.notes)


def test_repeated_edges_are_reported_once(tmp_path):
    path = written(tmp_path, "a.csv", "user,item\nann,tea\nann,tea\nbob,milk\nann,tea\n")
    report = "2 of 4 edges repeat an earlier pair and are counted once."
    assert read(path).notes.count(report) == 1
    ran = CliRunner().invoke(app, ["fit", str(path), "--out", str(tmp_path / "out")])
    assert ran.exit_code == 0, ran.output
    notes = [line for line in ran.stderr.splitlines() if "repeat" in line]
    assert notes == [f"Note: {report}"]


def test_both_directions_of_an_undirected_pair_count_once():
    frame = pl.DataFrame({"r": ["a", "b", "a"], "c": ["b", "a", "a"]})
    reading = read(frame, relation="undirected")
    assert (reading.edges, reading.duplicates, reading.relation.n_links) == (3, 1, 1)
    assert any("with themselves" in note for note in reading.notes)
    assert read(frame, relation="directed").duplicates == 0


def test_list_of_unseen_cells(tmp_path):
    path = written(tmp_path, "a.csv", "user,item\nann,tea\nbob,milk\n")
    unseen_file = written(tmp_path, "u.tsv", "x\ty\nann\tmilk\nzoe\ttea\n")
    reading = read(path, unseen=unseen_file, row="user", header=True)
    assert unseen(reading) == {("ann", "milk"), ("zoe", "tea")}
    assert reading.relation.row_names == ("ann", "bob", "zoe")
    assert any("'zoe'" in note and "1 name" in note for note in reading.notes)
    with pytest.raises(ReadError, match=r"1 of 1 unseen cells are links too.*'ann', 'tea'"):
        read(path, unseen=pl.DataFrame({"u": ["ann"], "i": ["tea"]}))


def test_list_of_unseen_cells_without_header(tmp_path):
    path = written(tmp_path, "a.csv", "user,item\nann,tea\nbob,milk\n")
    unseen_file = written(tmp_path, "u.csv", "ann,milk\nann,rum\n")
    reading = read(path, unseen=unseen_file, row="user", column="item")
    assert unseen(reading) == {("ann", "milk"), ("ann", "rum")}


def test_list_of_unseen_cells_of_one_domain():
    frame = pl.DataFrame({"r": ["a", "b"], "c": ["b", "c"]})
    unseen_frame = pl.DataFrame({"r": ["c"], "c": ["a"]})
    reading = read(frame, relation="undirected", unseen=unseen_frame)
    assert unseen(reading) == {("a", "c"), ("c", "a")}
    assert not any("does not have" in note for note in reading.notes)


# Other sources


def test_pandas_and_polars_frames_agree():
    columns = {"r": ["a", "b", "a"], "c": [3, 4, 4], "v": [1.0, np.nan, 0.0]}
    eager = [read(frame(columns), value="v") for frame in (pd.DataFrame, pl.DataFrame)]
    lazy = read(pl.DataFrame(columns).lazy(), value="v")
    for reading in (*eager, lazy):
        assert links(reading) == {("a", "3")}
        assert unseen(reading) == {("b", "4")}


def test_pandas_objects_with_missing_names():
    frame = pd.DataFrame({"r": ["a", None, "c"], "c": ["x", "y", "z"]}, dtype=object)
    with pytest.raises(ReadError, match=r"1 of 3 edges without a name in column 'r'.*edge 2"):
        read(frame)


@pytest.mark.parametrize(
    ("values", "names"),
    [
        (pl.Series([1, 2], dtype=pl.UInt8), ("1", "2")),
        (pl.Series([1.5, 2.0]), ("1.5", "2.0")),
        (pl.Series(["a", "b"], dtype=pl.Categorical), ("a", "b")),
        (pl.Series([True, False]), ("true", "false")),
    ],
)
def test_names_that_are_not_strings(tmp_path, values, names):
    pl.DataFrame({"r": values, "c": ["x", "x"]}).write_parquet(tmp_path / "a.parquet")
    assert read(tmp_path / "a.parquet").relation.row_names == names


def test_values_that_cannot_be_names():
    for wrong in (
        pl.Series([{"a": 1}, {"a": 2}]),
        pl.Series([1.0, np.nan]),
        pl.Series([b"\xff", b"a"]),
    ):
        with pytest.raises(ReadError):
            read(pl.DataFrame({"r": wrong, "c": ["x", "x"]}))


@pytest.mark.parametrize("kind", ["general", "symmetric", "pattern", "gz"])
def test_matrix_market(tmp_path, kind):
    matrix = sparse.csr_array(np.array([[0, 2.0, 0], [2.0, 0, 0], [0, 0, 0]]))
    buffer = BytesIO()
    field = "pattern" if kind == "pattern" else None
    mmwrite(buffer, matrix, comment="é", field=field, symmetry=None if kind == "gz" else kind
            if kind != "pattern" else "general")  # fmt: skip
    content = gzip.compress(buffer.getvalue()) if kind == "gz" else buffer.getvalue()
    path = written(tmp_path, "a.mtx.gz" if kind == "gz" else "a.mtx", content)
    reading = read(path)
    assert links(reading) == {("1", "2"), ("2", "1")}
    assert reading.relation.row_names == ("1", "2", "3")
    assert read(path, relation="undirected").duplicates == 0


def test_matrix_market_agrees_with_scipy(tmp_path):
    matrix = sparse.random_array((30, 20), density=0.2, rng=0, format="csr")
    mmwrite(tmp_path / "a.mtx", matrix)
    expected = {(str(i + 1), str(j + 1)) for i, j in zip(*(matrix > 0.5).nonzero(), strict=True)}
    assert links(read(tmp_path / "a.mtx", binarize=0.5)) == expected


@pytest.mark.parametrize("layout", ["csr", "csc", "coo", "bsr", "dia"])
def test_npz(tmp_path, layout):
    matrix = sparse.coo_array(np.array([[0, 1.5, np.nan], [0, 0, 0]])).asformat(layout)
    sparse.save_npz(tmp_path / "a.npz", matrix)
    reading = read(tmp_path / "a.npz", unseen=pl.DataFrame({"r": ["1"], "c": ["0"]}))
    assert (links(reading), unseen(reading)) == ({("0", "1")}, {("0", "2"), ("1", "0")})
    with pytest.raises(ReadError, match=r"'9'.*0 to 1"):
        read(tmp_path / "a.npz", unseen=pl.DataFrame({"r": ["9"], "c": ["0"]}))


class Bomb:
    def __reduce__(self):
        return Path.touch, (Path("exploded"),)


def test_npz_is_not_unpickled(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("a.npz", format=np.array(["csr"]), data=np.array([Bomb()], dtype=object))
    with pytest.raises(ReadError):
        read("a.npz")
    assert not Path("exploded").exists()
    pickle.loads(pickle.dumps(Bomb()))  # negative control: unpickling runs it
    assert Path("exploded").exists()


def graph() -> nx.Graph:
    found = nx.Graph([("a", "b", {"weight": 2.0}), ("b", "c", {"weight": 0.5})])
    found.add_node("alone")
    return found


@pytest.mark.parametrize("ending", ["memory", "graphml", "gml", "graphml.gz"])
def test_graphs(tmp_path, ending):
    path = tmp_path / f"a.{ending}"
    source = graph() if ending == "memory" else path
    if "graphml" in ending:
        nx.write_graphml(graph(), path)
    elif ending == "gml":
        nx.write_gml(graph(), path)
    reading = read(source, relation="undirected", value="weight", binarize=1)
    assert links(reading) == {("a", "b"), ("b", "a")}
    assert set(reading.relation.row_names) == {"a", "b", "c", "alone"}
    assert read(source, relation="directed").relation.n_links == 4
    with pytest.raises(ReadError, match="4 of 4 nodes have no attribute bipartite"):
        read(source)


def test_bipartite_graph_and_gml_without_labels(tmp_path):
    found = nx.Graph([("t", "ann")])
    found.add_node("bob", bipartite=0)
    found.nodes["ann"]["bipartite"], found.nodes["t"]["bipartite"] = 0, 1
    reading = read(found)
    assert links(reading) == {("ann", "t")}
    assert reading.relation.row_names == ("ann", "bob")
    path = written(
        tmp_path, "a.gml", "graph [ node [ id 5 ] node [ id 7 ] edge [ source 5 target 7 ] ]"
    )
    assert links(read(path, relation="directed")) == {("5", "7"), ("7", "5")}


# Errors


BAD = [
    ("a.csv", "", {}, "empty \\(0 bytes\\)"),
    ("a.csv", "\n\n \n", {}, "no edges"),
    ("a.csv", "user,item\n", {}, "no edges"),
    ("a.csv", "user\nann\nbob\n", {}, "1 column .*needs two"),
    ("a.csv", "user,item\nann,tea\n", {"row": "who"}, "no column 'who'.*'user', 'item'"),
    ("a.csv", "r,c\na,x\nb,\nc,\n", {}, "2 of 3 edges without a name in column 'c'.*line 3"),
    ("a.csv", 'r,c\n"a\nb",x\n,y\n', {"header": True}, "column 'r'.*line 4"),
    ("a.csv", "r,c\na,x\nb,x,z\n", {}, "ragged: line 3 has more fields"),
    ("a.txt", "# c\n1 2\n3 4 5\n", {"delimiter": " "}, "line 2 without comments has more"),
    ("a.csv", 'r,c\na,"x\nb,y\n', {}, "cannot be read"),
    ("a.csv", "r,c,v\na,x,1\nb,x,many\n", {"value": "v"}, "1 of 2 values.*'many' in line 3"),
    ("a.csv", "r,c,v\na,x,1\nb,x,inf\n", {"value": "v"}, "'inf' in line 3"),
    ("a.csv", "r,c,v\na,x,1\nb,x,3\n", {"value": "v", "binarize": None}, "not 0 or 1.*'3'"),
    ("a.csv", "r,c\na,x\n", {"delimiter": "ab"}, "delimiter must be one"),
    ("a.csv", "r,c\na,x\n", {"encoding": "klingon"}, "no encoding 'klingon'"),
    ("a.csv", "r,c\na,xy\n", {"encoding": "utf-16"}, "not utf-16"),
    ("a.txt", "1  2\n3  4  5\n", {"delimiter": "whitespace"}, "1 of 2 lines without the 2 fields"),
    ("a.csv.gz", gzip.compress(b"r,c\na,x\n" * 9, mtime=0)[:-12], {}, "a.csv.gz"),
    ("a.csv.bz2", bz2.compress(b"r,c\na,x\n"), {}, "does not say what kind"),
    ("a.parquet.gz", b"PAR1", {}, "compressed, which is not possible for .parquet"),
    ("a.parquet", b"PAR1 nonsense PAR1", {}, "not a Parquet file"),
    ("a.arrow", b"ARROW1 nonsense", {}, "not an Arrow file"),
    ("a.mtx", "%%MatrixMarket\n", {}, "not a Matrix Market file"),
    ("a.mtx", "%%MatrixMarket matrix array real general\n1 1\n1\n", {}, "dense"),
    ("a.mtx", "%%MatrixMarket matrix coordinate real general\n2 2 1\n3 1 1\n", {}, "within 2 x 2"),
    ("a.mtx", "%%MatrixMarket matrix coordinate real general\n2 2 2\n1 1 1\n", {}, "says it has 2"),
    ("a.mtx", "%%MatrixMarket matrix coordinate real general\n99999999 2 1\n1 1 1\n", {}, "only 1"),
    ("a.npz", b"PK nonsense", {}, "not a sparse matrix"),
    ("a.graphml", "<graphml>", {}, "not a GraphML file"),
    ("a.gml", "graph [", {}, "not a GML file"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "content", "options", "message"), BAD)
def test_bad_files_are_refused_with_a_sentence(tmp_path, name, content, options, message):
    with pytest.raises(ReadError, match=message) as caught:
        read(written(tmp_path, name, content), **options)
    assert str(caught.value).endswith(".")


def test_missing_files_and_directories(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"There is no file .*a\.csv"):
        read(tmp_path / "a.csv")
    (tmp_path / "b.csv").mkdir()
    with pytest.raises(IsADirectoryError, match="is a directory"):
        read(tmp_path / "b.csv")


def test_file_names_are_not_glob_patterns(tmp_path):
    path = written(tmp_path, "a[1]*.csv", "user,item\nann,tea\n")
    assert links(read(path)) == {("ann", "tea")}


def test_wrong_arguments():
    frame = pl.DataFrame({"r": ["a"], "c": ["b"]})
    with pytest.raises(ValueError, match="relation must be one of"):
        read(frame, relation="tripartite")
    with pytest.raises(ValueError, match="binarize"):
        read(frame, binarize=-1.0)
    with pytest.raises(TypeError, match="path, a data frame or a graph"):
        read(7)
    with pytest.raises(ReadError, match="1 column"):
        read(frame.select("r"))
    with pytest.raises(ReadError, match="no edges"):
        read(frame.clear())


def test_equal_names_of_different_nodes_are_refused():
    with pytest.raises(ReadError, match="2 nodes have only 1 different"):
        read(nx.Graph([(1, "1")]), relation="undirected")


def test_relation_without_links_is_noted():
    reading = read(pl.DataFrame({"r": ["a"], "c": ["x"], "v": [0]}), value="v")
    assert any("has no links" in note for note in reading.notes)


def test_importing_coblock_does_not_import_polars():
    code = "import coblock, sys; coblock.read; assert 'polars' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


# The fuzzer


ROOT = Path(__file__).parent.parent


@pytest.fixture
def fuzzer(monkeypatch):
    if not hasattr(signal, "SIGALRM"):
        pytest.skip("the time limit of the fuzzer needs alarms")
    monkeypatch.syspath_prepend(str(ROOT / "fuzz"))
    import run
    import targets

    return run, targets


INPUTS = {"readers": 600, "checkpoints": 400, "models": 400, "descriptions": 200}
INPUTS |= {"multi_models": 100, "multi_checkpoints": 100}


@pytest.mark.parametrize("target", INPUTS)
def test_a_few_damaged_files(fuzzer, tmp_path, target):
    run, targets = fuzzer
    assert set(targets.TARGETS) == set(INPUTS)
    assert run.run(targets.TARGETS[target](), INPUTS[target], 7, tmp_path) == []


def test_every_sample_of_the_fuzzer_is_valid(fuzzer, tmp_path):
    unchanged = fuzzer[0].Unchanged(0)
    for name in ("readers", "descriptions", "multi_models", "multi_checkpoints"):
        target = fuzzer[1].TARGETS[name]()
        for sample in target.samples:
            path = written(tmp_path, sample.name, sample.content)
            if name == "readers" and sample.name not in {"b.mtx", "a.sheet"}:
                assert read(path, relation="directed").relation.n_links
            elif name != "readers":
                target.read(path, unchanged)


def test_the_page_about_robustness_is_that_of_the_recorded_outcomes(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(ROOT / "fuzz"))
    import record

    page = tmp_path / "robustness.md"
    monkeypatch.setattr(record, "PAGE", page)
    record.main()
    assert page.read_text(encoding="utf-8") == (ROOT / "docs/robustness.md").read_text("utf-8")


def test_the_fuzzer_finds_a_careless_reader(fuzzer, tmp_path):
    run, targets = fuzzer

    def careless(path, _):
        return path.read_bytes().decode()[40]

    target = targets.Target("careless", targets.readers().samples, careless, (UnicodeError,))
    findings = run.run(target, 200, 7, tmp_path)
    assert findings
    assert all("IndexError" in finding for finding in findings)
    assert len(list(tmp_path.glob("[0-9]*-*"))) == len(findings)
