"""Limits: no small file exhausts time or memory, and no message is longer than a paragraph."""

import contextlib
import gzip
import io
import os
import zipfile

import numpy as np
import polars as pl
import pytest
from scipy import sparse

from coblock import IRM, load, read
from coblock.io import MAX_HEAD, MAX_TAIL, shorten
from coblock.io.model_file import ModelFileError
from coblock.io.readers import ReadError
from coblock.io.readers.limits import Limits

ZEROS = b"a,b\n" * 300_000  # 1.2 MB that compress to a few kilobytes
LONGEST = MAX_HEAD + MAX_TAIL + 5


def zstd_file(blocks: int, block: int = 1 << 17) -> bytes:
    """Return a frame of blocks that each repeat one byte (RFC 8878)."""
    frame = (0xFD2FB528).to_bytes(4, "little") + bytes([0, 0x70])
    for number in range(blocks):
        head = (block << 3) | 2 | (number == blocks - 1)
        frame += head.to_bytes(3, "little") + b"a"
    return frame


def write_npz(path) -> None:
    sparse.save_npz(path, sparse.csr_array(np.ones((300, 300))))


def write_bomb(path) -> None:
    write_npz(path)
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as zipped:
        zipped.writestr("more", bytes(1 << 21))


WRITERS = {
    "edges.csv.gz": lambda path: path.write_bytes(gzip.compress(ZEROS)),
    "edges.txt.gz": lambda path: path.write_bytes(gzip.compress(ZEROS)),
    "edges.mtx.gz": lambda path: path.write_bytes(gzip.compress(b"%" * 10**6 + ZEROS)),
    "edges.gml.gz": lambda path: path.write_bytes(gzip.compress(b" " * 10**7)),
    "edges.csv.zst": lambda path: path.write_bytes(zstd_file(50)),
    "edges.npz": write_bomb,
    "edges.parquet": lambda path: pl.DataFrame(
        {"a": pl.repeat("x", 10**6, eager=True), "b": pl.repeat("y", 10**6, eager=True)}
    ).write_parquet(path),
}


@pytest.mark.parametrize("name", WRITERS)
def test_files_that_unpack_to_much_more_are_refused(tmp_path, name):
    path = tmp_path / name
    WRITERS[name](path)
    assert path.stat().st_size < 10**5
    with pytest.raises(ReadError, match=r"bytes, but .* when it is unpacked.*max_unpacked="):
        read(path, max_unpacked=10**6, relation="undirected")


@pytest.mark.parametrize("name", ["edges.csv.gz", "edges.parquet", "edges.npz"])
def test_the_limit_can_be_raised(tmp_path, name):
    path = tmp_path / name
    WRITERS[name](path)
    assert read(path, max_unpacked=10**9, header=False).relation.n_links


def test_zstd_files_of_polars_are_measured(tmp_path):
    path = tmp_path / "edges.csv.zst"
    pl.DataFrame({"a": range(200_000), "b": range(200_000)}).write_csv(path, compression="zstd")
    Limits(unpacked=1).check_archive(path)  # below the ratio
    assert read(path).edges == 200_000


@pytest.mark.parametrize("form", ["csv", "parquet", "arrow"])
def test_too_many_columns_are_refused(tmp_path, form):
    path = tmp_path / f"edges.{form}"
    frame = pl.DataFrame({f"column {j}": ["x"] for j in range(300)})
    {"csv": frame.write_csv, "parquet": frame.write_parquet, "arrow": frame.write_ipc}[form](path)
    with pytest.raises(ReadError, match=r"has 300 columns or more, but at most 200.*max_columns="):
        read(path, max_columns=200)
    assert read(path, max_columns=300).edges == 1


def test_a_line_of_a_million_fields_is_refused_at_once(tmp_path):
    path = tmp_path / "edges.csv"
    path.write_text(("x," * 10**6 + "\n") * 2, encoding="utf-8")
    with pytest.raises(ReadError, match="columns or more, but at most 10,000 are read"):
        read(path)


@pytest.mark.parametrize("form", ["write_ipc", "write_ipc_stream"])
@pytest.mark.parametrize("byte", [127])
@pytest.mark.parametrize("compression", ["uncompressed", "zstd", "lz4"])
def test_arrow_messages_do_not_name_impossible_lengths(tmp_path, form, byte, compression):
    """Polars would allocate them and end the process; every eighth byte is the end of a number."""
    path, buffer = tmp_path / "edges.arrow", io.BytesIO()
    frame = pl.DataFrame({"a": ["a name of many letters"] * 9, "b": range(9)})
    getattr(frame, form)(buffer, compression=compression)
    content = buffer.getvalue()
    for position in range(len(content)):
        path.write_bytes(content[:position] + bytes([byte]) + content[position + 1 :])
        with contextlib.suppress(ReadError):
            read(path)
    path.write_bytes(content)
    assert read(path).edges == 9


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
def test_pipes_and_devices_are_not_read(tmp_path):
    os.mkfifo(tmp_path / "edges.csv")
    with pytest.raises(ReadError, match="is a pipe or a device"):
        read(tmp_path / "edges.csv")


def test_messages_are_short(tmp_path):
    name = "x" * 10**6
    (tmp_path / "edges.csv").write_text(f"a,{name}\nb,{name}\n", encoding="utf-8")
    (tmp_path / "lines.txt").write_text(f"a b\n{name} b c\n", encoding="utf-8")
    for path, options in (
        ("edges.csv", {"row": "z"}),
        ("lines.txt", {}),
        ("edges.csv", {"value": name}),
    ):
        with pytest.raises(ReadError) as refusal:
            read(tmp_path / path, **options)
        assert len(str(refusal.value)) <= LONGEST
    frame = pl.DataFrame({"a": [name], "b": ["y"]})
    with pytest.raises(ReadError) as refusal:
        read(frame, row=name)
    assert len(str(refusal.value)) <= LONGEST
    assert str(refusal.value).endswith("numbered from '1'.")


def test_messages_about_models_are_short(tmp_path):
    (tmp_path / "model").write_bytes(b"\xff" * 8)
    with pytest.raises(ModelFileError) as refusal:
        load(tmp_path / "model")
    assert len(str(refusal.value)) <= LONGEST
    assert shorten("a" * 10**6) == "a" * MAX_HEAD + " ... " + "a" * MAX_TAIL


# Inputs that were refused, or failed without a sentence


def test_a_text_that_begins_with_long_comments(tmp_path):
    path = tmp_path / "edges.txt"
    path.write_text("# comment\n" * 40_000 + "a b\na c\n", encoding="utf-8")
    assert read(path).edges == 2
    path.write_text("# comment\n" * 40_000, encoding="utf-8")
    with pytest.raises(ReadError, match="holds no edges"):
        read(path)


def test_a_graph_with_a_lone_surrogate(tmp_path):
    nodes = 'node [ id 0 label "a&#55296;" ]\nnode [ id 1 label "b" ]\n'
    path = tmp_path / "graph.gml"
    path.write_text(f"graph [\n{nodes}edge [ source 0 target 1 ]\n]\n", encoding="ascii")
    assert read(path, relation="undirected").relation.row_names == ("a\\ud800", "b")


def test_frames_with_repeated_column_names():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(np.kron(np.eye(2), np.ones((2, 2))), columns=list("abbc"))
    words = "1 column name occurs more than once; the first is 'b'. Rename"
    with pytest.raises(ReadError, match=words):
        read(frame)
    with pytest.raises(ValueError, match=words):
        IRM().fit(frame)


def test_frames_with_sparse_columns():
    pandas = pytest.importorskip("pandas")
    X = np.kron(np.eye(2), np.ones((6, 5)))
    names = [f"c{j}" for j in range(10)]
    dense = pandas.DataFrame(X, columns=names)
    thin = pandas.DataFrame.sparse.from_spmatrix(sparse.csr_matrix(X), columns=names)
    fitted = [IRM(random_state=0).fit(frame) for frame in (dense, thin)]
    assert fitted[0].log_evidence_ == fitted[1].log_evidence_
    assert fitted[1].result_.relation.column_names == tuple(names)
    edges = pandas.DataFrame({"r": list("aab"), "c": list("xyx")})
    edges["v"] = pandas.arrays.SparseArray([1, 0, 1])
    assert read(edges, value="v").relation.n_links == 2
