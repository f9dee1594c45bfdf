"""Atomic writes, exact round trips of models, and refusal of files that are not models."""

import errno
import json
import os
import re
import socket
import stat
import struct
import subprocess
import sys
import threading
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors
from sklearn.exceptions import ConvergenceWarning

import coblock
from coblock import IRM, Relation
from coblock.generate import planted
from coblock.io import container, model_file
from coblock.io.atomic import WriteError, write_atomic
from coblock.io.model_file import DTYPES, ModelFileError, result_to_tensors
from coblock.loading import PARAMETERS
from coblock.model.hyperparameters import Hyperparameters
from coblock.model.result import Result, Sample, make_result
from coblock.model.trace import SweepRecord
from strategies import cases

FIXTURES = Path(__file__).parent / "fixtures"
FIXTURE = FIXTURES / "model-1.safetensors"
DIRECTED = FIXTURES / "model-1-directed.safetensors"


def files_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# Atomic writes


def test_bytes_are_written_and_replaced_and_nothing_else_is_left(tmp_path):
    path = tmp_path / "a"
    write_atomic(path, b"one")
    write_atomic(str(path), b"two")
    write_atomic(tmp_path / "b", lambda there: there.write_bytes(b"three"))
    assert path.read_bytes() == b"two"
    assert (tmp_path / "b").read_bytes() == b"three"
    assert files_in(tmp_path) == ["a", "b"]


def test_permissions_are_those_of_new_files_or_of_the_earlier_one(tmp_path):
    (tmp_path / "plain").write_bytes(b"")
    write_atomic(tmp_path / "new", b"")
    assert (tmp_path / "new").stat().st_mode == (tmp_path / "plain").stat().st_mode
    (tmp_path / "plain").chmod(0o640)
    write_atomic(tmp_path / "plain", b"x")
    assert (tmp_path / "plain").stat().st_mode & 0o777 == 0o640


def test_a_symbolic_link_stays_one(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "folder" / "target")
    write_atomic(tmp_path / "link", b"x")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "folder" / "target").read_bytes() == b"x"
    assert files_in(tmp_path / "folder") == ["target"]


@pytest.mark.parametrize(
    ("code", "words"),
    [(errno.ENOSPC, "disk is full"), (errno.EROFS, "read-only"), (errno.EACCES, "may not write")],
)
@pytest.mark.parametrize("step", ["write", "fsync", "replace"])
def test_when_the_system_refuses_the_old_file_stays(tmp_path, monkeypatch, code, words, step):
    path = tmp_path / "a"
    path.write_bytes(b"old")

    def refuse(*_args):
        raise OSError(code, os.strerror(code))

    if step == "fsync":
        monkeypatch.setattr(os, "fsync", refuse)
    elif step == "replace":
        monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(WriteError, match=words) as error:
        write_atomic(path, refuse if step == "write" else b"new")
    assert str(path) in str(error.value)
    assert path.read_bytes() == b"old"
    assert files_in(tmp_path) == ["a"]


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("missing/file", "folder does not exist"),
        ("file/inside", "is a file"),
        (".", "is a folder"),
        ("x" * 300, "too long"),
    ],
)
def test_impossible_paths_get_a_sentence(tmp_path, where, words):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(WriteError, match=words) as error:
        write_atomic(tmp_path / where, b"x")
    assert "\n" not in str(error.value)
    assert files_in(tmp_path) == ["file"]


# What is not a regular file


def device(folder: Path) -> Path:
    """Return a node of the null device of our own; that of the system is never used."""
    path = folder / "null"
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3))
        path.write_bytes(b"")
    except OSError as error:
        pytest.skip(f"device nodes cannot be made or opened here: {error}")
    return path


def through_pipe(path: Path, write) -> bytes:
    """Return what ``write`` puts into the pipe at ``path``."""
    found = []
    reader = threading.Thread(target=lambda: found.append(path.read_bytes()), daemon=True)
    reader.start()
    write()
    reader.join(timeout=30)
    return found[0]


@pytest.mark.parametrize("data", [b"12", lambda path: path.write_bytes(b"12")])
def test_a_pipe_is_written_to_and_not_replaced(tmp_path, data):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert through_pipe(pipe, lambda: write_atomic(pipe, data)) == b"12"
    assert pipe.is_fifo()
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]


@pytest.mark.parametrize("data", [b"12", lambda path: path.write_bytes(b"12")])
def test_a_device_is_written_to_and_not_replaced(tmp_path, data):
    null = device(tmp_path)
    (tmp_path / "link").symlink_to("null")
    for path in (null, tmp_path / "link"):
        write_atomic(path, data)
        assert null.is_char_device()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "null"]


def test_models_and_reports_go_to_pipes_and_devices(tmp_path):
    model = IRM(random_state=0).fit(np.kron(np.eye(2), np.ones((4, 4))))
    pipe, null, file = tmp_path / "pipe", device(tmp_path), tmp_path / "model"
    os.mkfifo(pipe)
    model.save(file)
    assert through_pipe(pipe, lambda: model.save(pipe)) == file.read_bytes()
    assert through_pipe(pipe, lambda: model.report(pipe)).startswith(b"<!doctype html>")
    model.save(null)
    model.report(null)
    assert null.is_char_device()
    assert pipe.is_fifo()


def test_a_socket_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as end:
        end.bind("socket")
        with pytest.raises(WriteError, match="neither a regular file nor a pipe"):
            write_atomic(tmp_path / "socket", b"12")
    assert (tmp_path / "socket").is_socket()


def test_an_error_of_the_writer_leaves_nothing(tmp_path):
    def half(path):
        path.write_bytes(b"half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_atomic(tmp_path / "a", half)
    assert files_in(tmp_path) == []


def test_a_process_killed_while_it_writes_leaves_the_old_file(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"old")
    code = (
        "import os, signal, sys\n"
        "from coblock.io.atomic import write_atomic\n"
        "def half(path):\n"
        "    path.write_bytes(b'half')\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "write_atomic(sys.argv[1], half)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, path], check=False, capture_output=True)
    assert done.returncode == -9, done.stderr
    assert path.read_bytes() == b"old"
    write_atomic(path, b"new")  # the temporary file of the killed process does no harm
    assert path.read_bytes() == b"new"


# Round trips


def same_bits(one, other):
    """Compare results field by field, NaN and signs of zeros included."""
    left, right = result_to_tensors(one), result_to_tensors(other)
    assert left.keys() == right.keys()
    for name, array in left.items():
        assert array.dtype == right[name].dtype, name
        assert array.shape == right[name].shape, name
        assert array.tobytes() == right[name].tobytes(), name
    for a, b in zip(one.relation.incidence, other.relation.incidence, strict=True):
        for place, again in zip(a, b, strict=True):
            for array, back in zip(place, again, strict=True):
                assert array.dtype == back.dtype
                assert_array_equal(array, back)
    for label, back in zip(one.labels, other.labels, strict=True):
        assert label.dtype == back.dtype
        assert_array_equal(label, back)
    for name in ("kind", "shape", "row_names", "column_names"):
        assert getattr(one.relation, name) == getattr(other.relation, name)
    for name in ("log_evidence", "converged", "stability"):
        assert getattr(one, name) == getattr(other, name)
    assert one.hyper.per_block == other.hyper.per_block
    assert one.hyper.prior.tobytes() == other.hyper.prior.tobytes()
    assert repr(one.trace) == repr(other.trace)


names_of = st.text(st.characters(), max_size=6)  # lone surrogates included


@st.composite
def results(draw) -> Result:
    case = draw(cases())
    hyper = Hyperparameters(list(case.alpha), np.array([case.a, case.b]), per_block=True)
    number = st.floats(allow_nan=True)
    count = st.integers(0, 9)
    moved = st.none() | st.floats(0.0, 1.0)
    sweep = st.builds(SweepRecord, count, number, number, number, count, count, number, moved)
    trace = draw(st.lists(sweep, max_size=3))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    samples = []
    for K in draw(st.lists(st.integers(1, 3), max_size=2)):
        labels = [rng.integers(K, size=size, dtype=np.int32) for size in case.relation.sizes]
        samples.append(Sample(labels, rng.random((K, K)), int(rng.integers(3))))
    converged = draw(st.booleans())
    result = make_result(case.relation, case.q, hyper, trace, converged=converged, samples=samples)
    rows, columns = case.relation.shape
    if draw(st.booleans()):
        row_names = tuple(draw(st.lists(names_of, min_size=rows, max_size=rows)))
        column_names = tuple(draw(st.lists(names_of, min_size=columns, max_size=columns)))
        relation = replace(case.relation, row_names=row_names, column_names=column_names)
        result = replace(result, relation=relation, stability=0.5)
    return result


@settings(max_examples=60)
@given(result=results())
def test_a_result_comes_back_to_the_bit(result, tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "m"
    model_file.save(result, path, {})
    same_bits(result, model_file.load(path).result)


def fitted(kind="bipartite", X=None, **settings_) -> IRM:
    if X is None:
        X = planted((24, 24) if kind != "bipartite" else (24, 18), (2, 2), 0).X.toarray()
        X[2, 3] = np.nan
        X[3, 2] = np.nan
        np.fill_diagonal(X, 0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return IRM(kind, **{"max_iter": 12, "random_state": 0} | settings_).fit(X)


@pytest.mark.parametrize("inference", ["acvb0", "gibbs"])
@pytest.mark.parametrize("kind", ["bipartite", "directed", "undirected"])
def test_a_fitted_model_comes_back_with_everything(tmp_path, kind, inference):
    given = {"block_prior": (0.5, 1.5), "concentration": 2.0, "hyperprior": (1, 0.5)}
    model = fitted(kind, inference=inference, max_clusters=(6, 6), n_init=2, **given)
    model.save(tmp_path / "m")
    again = coblock.load(tmp_path / "m")
    assert again.get_params() == model.get_params()
    assert vars(again).keys() == vars(model).keys()
    for name, value in vars(model).items():
        if name != "result_":
            np.testing.assert_equal(getattr(again, name), value)
    same_bits(model.result_, again.result_)
    assert again.summary() == model.summary()
    for one, other in zip(again.recommend(n=4), model.recommend(n=4), strict=True):
        assert_array_equal(one, other)
    new = np.eye(2, model.n_features_in_)
    assert_array_equal(again.predict_membership(new), model.predict_membership(new))
    again.save(tmp_path / "n")
    assert (tmp_path / "n").read_bytes() == (tmp_path / "m").read_bytes()


@pytest.mark.parametrize("kind", ["bipartite", "directed"])
def test_labels_that_are_not_the_most_probable_ones_come_back(kind, tmp_path):
    result = fitted(kind, max_clusters=(3, 3)).result_
    labels = [label.copy() for label in result.labels]
    K = result.memberships[0].shape[1]
    labels[0][np.flatnonzero(labels[0] == K - 1)[0]] = 0  # clusters stay in the order of sizes
    other = replace(result, labels=labels)
    assert K > 1
    assert np.bincount(labels[0], minlength=K).min() > 0
    model_file.save(other, tmp_path / "m", {})
    same_bits(other, model_file.load(tmp_path / "m").result)
    labels[0][0] = K
    model_file.save(other, tmp_path / "n", {})
    with pytest.raises(ModelFileError, match="labels of clusters that do not exist"):
        model_file.load(tmp_path / "n")


def test_names_of_a_frame_come_back(tmp_path):
    X = pd.DataFrame(np.kron(np.eye(2), np.ones((5, 4))), index=[f"r{i}" for i in range(10)])
    X.columns = [f"c{j}" for j in range(8)]
    model = fitted(X=X)
    model.save(tmp_path / "m")
    again = coblock.load(tmp_path / "m")
    assert_array_equal(again.feature_names_in_, model.feature_names_in_)
    assert again.result_.relation.row_names == tuple(X.index)
    assert_array_equal(again.predict(X), model.predict(X))


def test_parameters_that_json_cannot_express(tmp_path):
    labels = (np.arange(24) % 2, np.arange(18) % 2)
    model = fitted(init=labels, random_state=np.random.RandomState(1), callback=lambda _: None)
    model.set_params(tol=np.float64(0.25), max_iter=np.int64(7), max_clusters=[5, 6])
    model.save(tmp_path / "m")
    again = coblock.load(tmp_path / "m")
    assert again.init == "given"
    assert (again.random_state, again.callback) == (None, None)
    assert (again.tol, again.max_iter, again.max_clusters) == (0.25, 7, (5, 6))
    with pytest.raises(ValueError, match="init must be one of"):  # not another start without notice
        again.fit(np.eye(4))


def test_every_parameter_has_a_type_in_files():
    assert set(PARAMETERS) == set(IRM().get_params())


def test_an_unfitted_model_is_not_saved(tmp_path):
    with pytest.raises(ValueError, match="not fitted"):
        IRM().save(tmp_path / "m")
    assert files_in(tmp_path) == []


def test_a_full_disk_while_a_model_is_saved(tmp_path, monkeypatch):
    def full(*_args):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(container, "write_tensors", full)
    with pytest.raises(WriteError, match="disk is full"):
        fitted().save(tmp_path / "m")
    assert files_in(tmp_path) == []


# Files of format 1 stay readable


def test_the_first_format_is_read():
    model = coblock.load(FIXTURE)
    relation = model.result_.relation
    assert relation.row_names == ("=Ann", "Bob\nand, Co", "Zoë 🙂")
    assert relation.column_names == ("", '"tea"')
    assert (relation.kind, relation.shape, relation.n_links, relation.n_unseen) == (
        *("bipartite", (3, 2)),
        *(3, 1),
    )
    assert relation.incidence[0][0].link.tolist() == [0, 0, 1]
    assert relation.incidence[1][0].link.tolist() == [0, 1, 2]
    assert model.row_labels_.tolist() == [0, 0, 1]
    assert model.row_membership_.tolist() == [[1.0, 0.0], [0.75, 0.25], [0.0, 1.0]]
    assert model.column_membership_.tolist() == [[1.0, 0.0], [0.0, 1.0]]
    assert model.block_links_.tolist() == [[1.75, 0.0], [0.25, 1.0]]
    assert model.block_cells_.tolist() == [[1.75, 1.0], [1.25, 1.0]]
    assert model.concentration_ == (1.5, 0.5)
    assert model.block_prior_ == (0.25, 0.75)
    assert (model.log_evidence_, model.converged_, model.stability_) == (-9.5, True, 0.875)
    assert list(model.trace_[0].values())[:-1] == [1, 0.5, -8.25, -9.5, 3, 2, 0.125]
    assert model.trace_[0]["moved"] is None  # which the first version did not record
    assert np.isnan(model.trace_[1]["bound"])
    first, second = model.result_.samples
    assert first.probability.tolist() == [[0.75, 0.25], [0.25, 0.75]]
    assert second.labels[1].tolist() == [0, 0]
    assert model.link_probability(0, 1) == 0.375
    assert (model.inference, model.max_clusters, model.init) == ("gibbs", (4, 3), "given")
    assert (model.tol, model.random_state, model.callback) == (0.0625, 7, None)


def test_the_first_format_of_one_domain_is_read():
    model = coblock.load(DIRECTED)
    relation = model.result_.relation
    assert (relation.kind, relation.n_links, relation.n_unseen) == ("directed", 3, 1)
    assert relation.own_link.tolist() == [1.0, 0.0, 0.0]
    assert relation.own_seen.tolist() == [1.0, 1.0, 1.0]
    assert model.labels_.tolist() == [0, 0, 1]
    assert model.block_prior_[0].tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert model.block_probability_[0, 0] == 0.5
    assert not model.converged_


# What is refused


def refused(path, words=" ") -> str:
    """Load a file, expect one sentence about it, and return the sentence."""
    with pytest.raises(ModelFileError, match=words) as error:
        coblock.load(path)
    text = str(error.value)
    assert text.startswith(f"{path} cannot be used as a model: ")
    assert "\n" not in text
    return text


@pytest.fixture
def target(tmp_path):
    return tmp_path / "model.safetensors"


def test_paths_without_a_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="There is no file"):
        coblock.load(tmp_path / "nothing")
    refused(tmp_path, "not a file")
    os.mkfifo(tmp_path / "pipe")
    refused(tmp_path / "pipe", "not a file")  # and does not wait for a writer
    (tmp_path / "link").symlink_to(FIXTURE)
    assert coblock.load(tmp_path / "link").converged_


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"PK\x03\x04" + bytes(100),
        b"\x80\x04\x95" + bytes(60),
        b"user,item\nAnn,tea\n" * 9,
        struct.pack("<Q", 2**63) + b"{}",
        struct.pack("<Q", 10**9) + b"{}" + bytes(1000),
        struct.pack("<Q", 100_000) + b"[" * 100_000,
    ],
)
def test_other_files(target, data):
    target.write_bytes(data)
    refused(target, "not a safetensors file")


def test_a_foreign_safetensors_file(target):
    target.write_bytes(save_tensors({"w": np.zeros(3)}, {"format": "pt"}))
    refused(target, "not written by coblock")
    target.write_bytes(save_tensors({"w": np.zeros(3)}))
    refused(target, "not written by coblock")


@pytest.mark.parametrize("fixture", [FIXTURE, DIRECTED])
def test_every_cut_is_refused(target, fixture):
    whole = fixture.read_bytes()
    for size in range(0, len(whole), 7):
        target.write_bytes(whole[:size])
        refused(target)
    target.write_bytes(whole + b"\0")
    refused(target)


def test_every_changed_byte_is_refused(target):
    """Except white space between the parts of the header of safetensors, which has no meaning."""
    whole = DIRECTED.read_bytes()
    original, accepted = model_file.load(DIRECTED).result, []
    for at in range(len(whole)):
        changed = bytearray(whole)
        changed[at] ^= 1 << (at % 8)
        target.write_bytes(changed)
        try:
            again = model_file.load(target).result
        except ModelFileError:
            continue
        same_bits(original, again)
        accepted.append(at)
    assert len(accepted) < 10


def split(data: bytes) -> tuple[dict, dict]:
    """Return tensors and header of a model file."""
    (size,) = struct.unpack("<Q", data[:8])
    container = json.loads(data[8 : 8 + size])
    return load_tensors(data), json.loads(container["__metadata__"]["coblock"])


def forge(path: Path, fixture=FIXTURE, tensors=None, **header) -> None:
    """Write a file with other contents and the digest that belongs to them."""
    arrays, known = split(fixture.read_bytes())
    arrays |= tensors or {}
    arrays = {name: array for name, array in arrays.items() if array is not None}
    known |= header
    known["digest"] = container.digest(known, arrays)
    path.write_bytes(save_tensors(arrays, {"coblock": json.dumps(known)}))


def test_a_forged_file_without_a_flaw_is_read(target):
    """The negative control of all refusals below."""
    for fixture in (FIXTURE, DIRECTED):
        forge(target, fixture)
        same_bits(model_file.load(fixture).result, model_file.load(target).result)


def test_the_digest_is_checked(target):
    tensors, header = split(FIXTURE.read_bytes())
    tensors["trace"][0, 1] += 1.0  # plausible, but not what was written
    target.write_bytes(save_tensors(tensors, {"coblock": json.dumps(header)}))
    refused(target, "digest")


@pytest.mark.parametrize(
    ("version", "words"),
    [(2, "format 2.*Update coblock"), (10**40, "Update"), (True, "version"), ("1", "version")],
)
def test_unknown_versions(target, version, words):
    forge(target, version=version, kind="of the future")
    refused(target, words)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", "[" * 50_000, '{"kind": NaN}', '{"log_evidence": ' + "9" * 9999]
)
def test_headers_that_are_not_json_objects(target, text):
    tensors, _ = split(FIXTURE.read_bytes())
    target.write_bytes(save_tensors(tensors, {"coblock": text}))
    refused(target, "header")


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ({"kind": "tripartite"}, "no known kind"),
        ({"kind": "directed"}, "not square"),
        ({"kind": 3}, "lacks kind"),
        ({"shape": [3, 2, 1]}, "shape"),
        ({"shape": [3, -2]}, "shape"),
        ({"shape": [3, 2**31]}, "shape"),
        ({"shape": [3, True]}, "shape"),
        ({"shape": [4, 2]}, "memberships"),
        ({"shape": [3, 3]}, "memberships"),
        ({"row_names": False}, "missing or foreign"),
        ({"samples": False}, "missing or foreign"),
        ({"log_evidence": None}, "log_evidence"),
        ({"stability": "high"}, "stability"),
        ({"converged": 1}, "converged"),
        ({"parameters": []}, "parameters"),
        ({"more": 1}, "entries too many"),
        ({"parameters": {"tol": {"a": 1}}}, "tol"),
        ({"parameters": {"colour": 1}}, "Update coblock"),
        ({"parameters": {"checkpoint": "/any/path"}}, "its parameter checkpoint is of the wrong"),
        ({"parameters": {"engine": "tcp://host:8786"}}, "its parameter engine is of the wrong"),
        ({"parameters": {"callback": "print"}}, "its parameter callback is of the wrong type"),
        ({"parameters": {"max_iter": "many"}}, "its parameter max_iter is of the wrong type"),
        ({"parameters": {"batch_size": [1, 2, 3]}}, "its parameter batch_size is of the wrong"),
    ],
)
def test_headers_that_do_not_fit(target, header, words):
    forge(target, **header)
    refused(target, words)


@pytest.mark.parametrize("depth", [100, 900, 20_000])
@pytest.mark.parametrize("entry", ["more", "shape", "parameters"])
def test_deep_headers(target, entry, depth):
    """Headers that are too deep to be written again give a sentence, not a traceback."""
    tensors, header = split(FIXTURE.read_bytes())
    header[entry] = "DEEP"
    deep = '{"a": ' * depth + "1" + "}" * depth
    text = json.dumps(header).replace('"DEEP"', f"[{deep}]" if entry == "shape" else deep)
    target.write_bytes(save_tensors(tensors, {"coblock": text}))
    refused(target)


def test_every_entry_of_the_header_is_needed(target):
    tensors, header = split(FIXTURE.read_bytes())
    for name in header:
        less = {entry: value for entry, value in header.items() if entry != name}
        less["digest"] = "" if name == "digest" else container.digest(less, tensors)
        target.write_bytes(save_tensors(tensors, {"coblock": json.dumps(less)}))
        refused(target, "version|digest|lacks|not written by coblock")


def floats(*values):
    return np.array(values, dtype=np.float64)


BAD_TENSORS = [
    ("alpha", floats(1.0), "alpha"),
    ("alpha", floats(1.0, np.nan), "alpha"),
    ("alpha", floats(1.0, 0.0), "positive number in range"),
    ("prior_a", floats([1, 1], [1, 2]), "shared"),
    ("prior_b", floats([1, 1], [1, -1]), "prior_b"),
    ("row_membership", floats([1, 0], [0.5, 0.25], [0, 1]), "add up to 1"),
    ("row_membership", floats([1, 0], [2, -1], [0, 1]), "add up to 1"),
    ("row_membership", floats([1, 0], [np.nan, 1], [0, 1]), "add up to 1"),
    ("row_membership", floats([0, 1], [0, 1], [1, 0]), "order of their sizes"),
    ("row_sticks", np.array([0, 1], dtype=np.int32), "do not fit together"),
    ("row_labels", np.array([0, 0, 2], dtype=np.int32), "clusters that do not exist"),
    ("row_labels", np.array([0, 0], dtype=np.int32), "clusters that do not exist"),
    ("row_labels", floats(0, 0, 1), "wrong type"),
    ("row_membership", floats([1], [1], [1]), "block_links has shape"),
    ("row_membership", np.zeros((3, 0)), "memberships of shape"),
    ("column_membership", None, "missing or foreign"),
    ("block_links", floats([1.75, 0], [0.25, -1]), "block_links"),
    ("block_links", floats([np.inf, 0], [0.25, 1]), "block_links"),
    ("block_links", floats([9, 0], [0.25, 1]), "links that their labels or memberships give"),
    ("block_links", floats([0, 1], [1, 0]), "links that their labels or memberships give"),
    ("block_links", np.zeros((2, 2), dtype=np.float32), "wrong type"),
    ("link", np.array([0, 0, 2], dtype=np.int32), "outside"),
    ("link", np.array([0, 0, -1], dtype=np.int32), "outside"),
    ("link", np.array([0, 1, 1], dtype=np.int32), "unseen cells are links too"),
    ("link", np.array([0, 0, 1], dtype=np.int64), "wrong type"),
    ("link_start", np.array([0, 1, 2], dtype=np.int64), "outside"),
    ("link_start", np.array([0, 2, 1, 3], dtype=np.int64), "outside"),
    ("link_start", np.array([0, 2, 2, 3], dtype=np.int64), "not in order"),
    ("link_start", np.array([0, 1, 2, 2**40], dtype=np.int64), "outside"),
    ("self_link", floats(1.0), "self_link"),
    ("row_name_end", np.array([4, 3, 23], dtype=np.int64), "names do not fit"),
    ("row_name_end", np.array([4, 2**50, 23], dtype=np.int64), "names do not fit"),
    ("row_names", np.full(23, 255, dtype=np.uint8), "row names"),
    ("trace", np.zeros((2, 6)), "trace"),
    ("trace", np.full((2, 7), 0.5), "counted"),
    ("trace", np.full((2, 7), np.inf), "counted"),
    ("sample_clusters", np.array([[2, 2], [1, 2]]), "blocks that they name"),
    ("sample_clusters", np.array([[2, 2], [2**40, 2**40]]), "blocks that they name"),
    ("sample_clusters", np.zeros((0, 2), dtype=np.int64), "samples"),
    ("sample_probability", floats(0.5, 0.5, 0.5, 0.5, 1.5), "probabilities"),
    ("sample_row_labels", np.array([[0, 0, 1], [0, 0, 1]], dtype=np.int32), "do not exist"),
    ("sample_column_labels", np.array([[0, -1], [0, 0]], dtype=np.int32), "do not exist"),
    ("shell", np.zeros(1), "missing or foreign"),
]


@pytest.mark.parametrize(("name", "array", "words"), BAD_TENSORS)
def test_tensors_that_do_not_fit(target, name, array, words):
    forge(target, tensors={name: array})
    refused(target, words)


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("self_link", floats(1, 0, 0.5)),
        ("self_seen", floats(0, 1, 1)),
        ("link", np.array([0, 1], dtype=np.int32)),  # a link with itself among the others
    ],
)
def test_links_of_objects_with_themselves_that_do_not_fit(target, name, array):
    forge(target, DIRECTED, {name: array})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        refused(target)


def test_an_undirected_relation_must_be_symmetric(target, tmp_path):
    fitted("undirected").save(tmp_path / "m")
    tensors, _ = split((tmp_path / "m").read_bytes())
    links, start = tensors["link"].copy(), tensors["link_start"]
    taken = {0, *links[: start[1]], *tensors["unseen"][: tensors["unseen_start"][1]]}
    links[: start[1]] = sorted({min(set(range(24)) - taken), *links[: start[1] - 1]})
    forge(target, tmp_path / "m", {"link": links})
    refused(target, "not in order")


def test_any_two_swapped_tensors(target):
    tensors, _ = split(FIXTURE.read_bytes())
    names, accepted = sorted(tensors), []
    for i, one in enumerate(names):
        for other in names[i + 1 :]:
            forge(target, tensors={one: tensors[other], other: tensors[one]})
            try:
                coblock.load(target)
            except ModelFileError:
                continue
            accepted.append((one, other))
    # these are valid: equal contents, or numbers of the same kind
    assert set(accepted) <= {
        ("block_nonlinks", "column_membership"),
        ("prior_a", "prior_b"),
        ("self_link", "self_seen"),
    }


def test_nothing_in_a_file_is_run():
    """No module that could run code from a file is used to read one."""
    package = Path(coblock.__file__).parent
    readers = [package / "loading.py", *(package / "io").rglob("*.py")]
    assert len(readers) > 10
    for path in readers:
        source = path.read_text(encoding="utf-8")
        assert not re.search(r"\b(pickle|eval|exec|joblib|__import__|allow_pickle)\b", source)


def test_every_tensor_of_the_format_is_in_a_fixture():
    found = set(load_tensors(FIXTURE.read_bytes())) | set(load_tensors(DIRECTED.read_bytes()))
    assert found | model_file.OPTIONAL == set(DTYPES)  # these have tests of their own


def test_the_fuzz_target_lets_only_refusals_pass(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent.parent / "fuzz"))
    import model_file as target_module

    rng = np.random.default_rng(0)
    for seed in target_module.seeds():
        target_module.one_input(seed)
        for _ in range(100):
            data = bytearray(seed)
            data[rng.integers(len(data))] = rng.integers(256)
            target_module.one_input(bytes(data))
    assert target_module.signed(target_module.seeds()[0]) is not None
    assert target_module.signed(b"nothing") is None


def test_a_relation_of_names_alone_fits(tmp_path):
    """Rows without links, all cells unseen."""
    relation = Relation.build(np.full((2, 2), np.nan), row_names=["a", "b"])
    model = fitted(X=relation)
    model.save(tmp_path / "m")
    same_bits(model.result_, coblock.load(tmp_path / "m").result_)
