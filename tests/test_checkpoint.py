"""Checkpoints: a fit that is stopped or killed ends with the bits of an uninterrupted one."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from safetensors import safe_open
from safetensors.numpy import load_file, save_file
from typer.testing import CliRunner

import coblock
from coblock import IRM, resume
from coblock.inference.engine import LocalEngine, Schedule
from coblock.inference.fit import Fit
from coblock.inference.gibbs import GibbsSampler
from coblock.inference.posterior import PosteriorAverage, PosteriorChains
from coblock.inference.search import Search
from coblock.inference.settings import Settings
from coblock.io import checkpoint
from coblock.io.atomic import WriteError
from coblock.io.checkpoint import (
    CheckpointError,
    CheckpointWriter,
    StoredFit,
    open_or_begin,
    read,
)
from coblock.io.codec import pack, unpack
from coblock.io.container import digest, write_tensors
from coblock.loading import Unfinished
from coblock.model.relation import BinaryRelation
from coblock.ui.cli import app, results

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
KINDS = ("bipartite", "directed", "undirected")
POSIX = pytest.mark.skipif(os.name != "posix", reason="needs fork and signals")


class StoppedError(Exception):
    """Raised by a callback in the middle of a fit."""


def data(kind: str, size: int = 36, seed: int = 3) -> np.ndarray:
    """Return blocks with noise and unseen cells."""
    rng = np.random.default_rng(seed)
    row = rng.integers(0, 5, size)
    column = rng.integers(0, 4, size) if kind == "bipartite" else row
    X = (rng.random((size, size)) < rng.beta(0.4, 1.2, (5, 5))[row][:, column]).astype(float)
    X[rng.random((size, size)) < 0.05] = np.nan
    np.fill_diagonal(X, 0.0)
    return np.triu(X, 1) + np.triu(X, 1).T if kind == "undirected" else X


def bits(model: IRM) -> tuple:
    """Return everything that must be the same."""
    trace = [{name: x for name, x in line.items() if name != "seconds"} for line in model.trace_]
    arrays = (
        *(model.row_labels_, model.column_labels_, model.row_membership_),
        *(model.column_membership_, model.block_links_, model.block_cells_),
        *(np.asarray(part) for part in (*model.concentration_, *model.block_prior_)),
        *(sample.probability for sample in model.result_.samples),
        *(label for sample in model.result_.samples for label in sample.labels),
    )
    numbers = (model.log_evidence_, model.stability_, model.converged_, model.n_iter_)
    return trace, numbers, [(array.dtype, array.shape, array.tobytes()) for array in arrays]


def stop_at(number: int):
    """Return a callback that raises at the sweep of this number, counted over all starts."""
    records = []

    def callback(sweep):
        records.append(sweep)
        if len(records) == number:
            raise StoppedError

    return callback


def stopped(path: Path, X: np.ndarray, number: int, **parameters) -> StoredFit:
    """Stop a fit at a sweep and return its checkpoint."""
    with pytest.raises(StoppedError):
        IRM(checkpoint=path, callback=stop_at(number), random_state=1, **parameters).fit(X)
    return read(path)


def total_sweeps(X: np.ndarray, **parameters) -> tuple[IRM, int]:
    records = []
    model = IRM(callback=records.append, random_state=1, **parameters).fit(X)
    return model, len(records)


def sweeps_done(found: StoredFit) -> int:
    """Return the number of sweeps in a checkpoint, over all starts."""
    current = found.fit.current
    traces = [result.trace for result in found.fit.ended] + ([current.trace] if current else [])
    return sum(map(len, traces))


def stage(found: StoredFit) -> str:
    """Return the name of the stage that a fit is in."""
    phase = found.fit.current.phase
    if isinstance(phase, GibbsSampler):
        return "gibbs, keeping" if phase.samples else "gibbs"
    if isinstance(phase, Search):
        return "local search" if phase.climbing else "perturbation"
    if isinstance(phase, PosteriorAverage | PosteriorChains):
        return "sampling" if phase.samples else "posterior"
    return "averaging" if phase.averaged else "variational"


# The same bits

SETTINGS = {
    "sequential": {"max_iter": 240},
    "batches": {"batch_size": 8, "max_iter": 80},
    "second order": {"inference": "acvb", "burn_in": 3, "max_iter": 200},
    "gibbs": {"inference": "gibbs", "max_iter": 16},
    "three starts": {"n_init": 3, "max_iter": 30},
    "vb": {"inference": "vb", "max_iter": 40},
    "plain": {"init": "random", "refine": False, "batch_size": 7, "burn_in": 9, "max_iter": 40},
    "per block": {"prior": "per-block", "hyperparameters": "fixed-point", "max_iter": 40},
}
SEARCH = {"local search", "perturbation"}
STAGES = {
    "sequential": SEARCH | {"posterior", "sampling"},
    "batches": SEARCH | {"posterior", "sampling"},
    "second order": SEARCH | {"variational", "averaging"},
    "plain": {"variational", "averaging"},
    "gibbs": {"gibbs", "gibbs, keeping"},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.usefixtures("short_chains")
def test_a_stopped_fit_resumes_with_the_same_bits(kind, name, tmp_path, monkeypatch):
    X, parameters, path = data(kind, 28), {"relation": kind, **SETTINGS[name]}, tmp_path / "fit"
    uninterrupted, total = total_sweeps(X, **parameters)
    stages = stages_of(X, path, monkeypatch, **parameters)
    assert len(stages) == total
    assert set(stages) >= STAGES.get(name, set())
    middles = {int(np.median(np.flatnonzero(np.array(stages) == each))) + 1 for each in stages}
    for number in sorted({1, total} | middles):
        found = stopped(path, X, number, **parameters)
        assert sweeps_done(found) == number, "the checkpoint is of the same sweep"
        assert bits(resume(path)) == bits(uninterrupted)
        assert not path.exists()


def stages_of(X: np.ndarray, path: Path, monkeypatch, **parameters) -> list[str]:
    """Return the stage of a fit after each of its sweeps."""
    stages = []

    with monkeypatch.context() as patch:
        patch.setattr(
            CheckpointWriter, "save_if_due", lambda writer: stages.append(stage(writer.stored))
        )
        IRM(checkpoint=path, random_state=1, **parameters).fit(X)
    return stages


@pytest.mark.parametrize("kind", KINDS)
def test_a_fit_can_be_stopped_at_every_single_sweep(kind, tmp_path):
    X, path = data(kind, 24), tmp_path / "fit"
    parameters = {"relation": kind, "batch_size": 6, "max_iter": 50}
    uninterrupted, total = total_sweeps(X, **parameters)
    stopped(path, X, 1, **parameters)
    for _ in range(total - 1):
        with pytest.raises(StoppedError):
            resume(path, callback=stop_at(1))
    assert bits(resume(path)) == bits(uninterrupted)


@pytest.mark.usefixtures("short_chains")
def test_the_comparison_can_fail(tmp_path):
    """Different random numbers, or one changed label, give different bits."""
    X, path = data("bipartite"), tmp_path / "fit"
    uninterrupted, _ = total_sweeps(X)
    found = stopped(path, X, 3)
    found.fit.current.rng.random()
    assert bits_of(found, path) != bits(uninterrupted)
    found = read(path)
    found.fit.current.phase.partition.labels[0][0] ^= 1
    found.fit.current.phase.partition.recount()
    assert bits_of(found, path) != bits(uninterrupted)


def bits_of(found: StoredFit, path: Path) -> tuple:
    """Return the bits of a fit that was changed; its file stays as it was."""
    model = IRM()
    model._publish(found.run(path.with_name("other")))
    return bits(model)


@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 1), (2, 2)])
@pytest.mark.usefixtures("short_chains")
def test_the_number_of_threads_may_change_when_a_fit_resumes(before, after, tmp_path):
    rng = np.random.default_rng(0)
    row, column = rng.integers(0, 6, 700), rng.integers(0, 5, 500)
    X = (rng.random((700, 500)) < rng.beta(0.4, 1.2, (6, 5))[row][:, column]).astype(float)
    parameters = {"max_iter": 30, "n_init": 2, "batch_size": 300}
    uninterrupted, total = total_sweeps(X, **parameters)
    path = tmp_path / "fit"
    for number in (5, total - 3):
        stopped(path, X, number, n_jobs=before, **parameters)
        model = IRM(checkpoint=path, random_state=1, n_jobs=after, **parameters).fit(X)
        assert bits(model) == bits(uninterrupted)


@pytest.mark.parametrize("inference", ["acvb0", "gibbs"])
@pytest.mark.usefixtures("short_chains")
def test_a_checkpoint_changes_nothing(inference, tmp_path):
    X, parameters = data("directed"), {"relation": "directed", "inference": inference}
    parameters |= {"max_iter": 30, "n_init": 2, "random_state": 4}
    plain = IRM(**parameters).fit(X)
    assert bits(IRM(checkpoint=tmp_path / "fit", **parameters).fit(X)) == bits(plain)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("start", ["labels", "model", "warm"])
@pytest.mark.usefixtures("short_chains")
def test_a_given_start_is_kept(start, tmp_path):
    X, path = data("bipartite"), tmp_path / "fit"
    earlier = IRM(max_iter=4, tol=0, random_state=9).fit(X)
    labels = (np.arange(36) % 3, np.arange(36) % 4)
    given = {"labels": {"init": labels}, "model": {"init": earlier}, "warm": {"warm_start": True}}
    parameters = {"n_init": 2, "max_iter": 30, "random_state": 1, **given[start]}

    def model(**more):
        made = IRM(**parameters, **more)
        if start == "warm":
            made._publish(earlier.result_)
        return made

    uninterrupted = model().fit(X)
    for number in (2, 33):
        with pytest.raises(StoppedError):
            model(checkpoint=path, callback=stop_at(number)).fit(X)
        shutil.copy(path, tmp_path / "again")
        assert bits(resume(path)) == bits(uninterrupted)
        assert bits(model(checkpoint=tmp_path / "again").fit(X)) == bits(uninterrupted)
    assert start == "warm" or bits(IRM(**parameters | {"init": "spectral"}).fit(X)) != bits(
        uninterrupted
    )


@pytest.mark.usefixtures("short_chains")
def test_seconds_continue_from_those_of_the_checkpoint(tmp_path):
    path = tmp_path / "fit"
    stopped(path, data("bipartite"), 6)
    spent = read(path).fit.current.trace[-1].seconds
    seconds = [line["seconds"] for line in resume(path).trace_]
    assert seconds == sorted(seconds)
    assert spent == seconds[5] < seconds[6]


@pytest.mark.usefixtures("short_chains")
def test_names_and_parameters_are_in_the_file(tmp_path):
    X, path = data("bipartite", 20), str(tmp_path / "fit")
    names = [f"thing {j} <ä\n😀>" for j in range(20)]
    frame = pd.DataFrame(X, columns=names, index=[f"buyer {i}" for i in range(20)])
    given = {"max_clusters": (6, 7), "tol": 1e-4, "prior": "per-block", "random_state": 5}
    with pytest.raises(StoppedError):
        IRM(checkpoint=path, callback=stop_at(4), **given).fit(frame)
    records = []
    model = resume(path, callback=records.append, keep=True)
    assert Path(path).exists()
    assert model.result_.relation.column_names == tuple(names)
    assert list(model.feature_names_in_) == names
    assert model.n_features_in_ == 20
    assert model.predict(frame).shape == (20,)
    assert {name: model.get_params()[name] for name in given} == given
    assert [sweep.sweep for sweep in records] == list(range(5, model.n_iter_ + 1))
    model.save(tmp_path / "model")
    assert coblock.load(tmp_path / "model").checkpoint is None


def test_a_callback_that_returns_true_ends_the_fit_and_its_checkpoint(tmp_path):
    path = tmp_path / "fit"
    model = IRM(checkpoint=path, callback=lambda sweep: sweep.sweep == 3, random_state=0)
    assert model.fit(data("bipartite")).n_iter_ == 3
    assert not path.exists()


# Other fits


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"tol": 1e-3}, "tol"),
        ({"prior": "per-block"}, "prior"),
        ({"random_state": 2}, "random_state"),
        ({"init": (np.arange(36) % 2, np.arange(36) % 2)}, "init"),
        ({"max_clusters": 3, "n_init": 2}, "max_clusters, n_init"),
    ],
)
def test_the_checkpoint_of_another_fit_is_refused(change, what, tmp_path):
    X, path = data("bipartite"), tmp_path / "fit"
    stopped(path, X, 3)
    contents = path.read_bytes()
    with pytest.raises(CheckpointError, match=rf"another fit: it differs in {what}\. Name another"):
        IRM(checkpoint=path, **{"random_state": 1} | change).fit(X)
    assert path.read_bytes() == contents


def test_the_checkpoint_of_other_data_is_refused(tmp_path):
    X, path = data("bipartite"), tmp_path / "fit"
    stopped(path, X, 3)
    other = X.copy()
    other[0, 0] = 1.0 - np.nan_to_num(other[0, 0])
    named = pd.DataFrame(X, columns=[f"c{j}" for j in range(36)])
    for changed in (other, X[:-1], named):
        with pytest.raises(CheckpointError, match="another fit: it differs in data"):
            IRM(checkpoint=path, random_state=1).fit(changed)
    with pytest.raises(CheckpointError, match="another fit: it differs in data"):
        IRM("directed", checkpoint=path, random_state=1).fit(X)


@pytest.mark.parametrize("random_state", [None, np.random.RandomState(3)])
@pytest.mark.usefixtures("short_chains")
def test_without_a_seed_the_one_of_the_checkpoint_is_taken(random_state, tmp_path):
    X, path = data("bipartite"), tmp_path / "fit"
    uninterrupted, _ = total_sweeps(X)
    stopped(path, X, 5)
    assert bits(IRM(checkpoint=path, random_state=random_state).fit(X)) == bits(uninterrupted)


def test_a_checkpoint_must_be_a_path():
    with pytest.raises(TypeError, match=r"checkpoint must be a path or None, but is 7 \(int\)"):
        IRM(checkpoint=7).fit(data("bipartite"))


def test_a_checkpoint_of_another_version_warns(tmp_path, monkeypatch):
    path = tmp_path / "fit"
    stopped(path, data("bipartite"), 2)
    monkeypatch.setattr(checkpoint, "version", lambda _: "9.9")
    with pytest.warns(UserWarning, match=r"was written by coblock \S+, this is 9\.9"):
        read(path)


# Data on a cluster


class RemoteRelation:
    """A relation whose cells are not in memory."""

    def __init__(self, X: np.ndarray, source: str):
        self.cells, self.source = BinaryRelation.build(X), source

    def __getattr__(self, name: str):
        if name == "incidence":
            raise AttributeError(name)
        return getattr(self.cells, name)

    def identity(self) -> dict:
        return {"source": self.source, "shape": self.shape}


class RemoteEngine(LocalEngine):
    """An engine that can reach the cells of remote relations."""

    def normalised_links(self, relation):
        return super().normalised_links(relation.cells)


def remote_fit(source: str = "edges.parquet", **settings) -> StoredFit:
    settings = Settings(**{"n_init": 2, "max_iter": 30, "batch_size": 7} | settings)
    return StoredFit(Fit(RemoteRelation(data("bipartite", 24), source), settings, 5), {})


def remote_bits(result) -> tuple:
    model = IRM()
    model._publish(result)
    return bits(model)


@pytest.mark.parametrize("number", [4, 33])
def test_a_fit_on_a_cluster_resumes_with_the_same_bits(number, tmp_path):
    path, engine = tmp_path / "fit", RemoteEngine(Schedule(7))
    uninterrupted = remote_bits(remote_fit().fit.run(engine=engine))
    with pytest.raises(StoppedError):
        remote_fit().run(path, stop_at(number), engine=engine)
    assert "link" not in load_file(path), "the cells are not in the file"
    with open_or_begin(path, remote_fit(), any_seed=False) as found:
        assert sweeps_done(found) == number
        assert remote_bits(found.run(path, engine=engine)) == uninterrupted


def refuse_to_open(path, wanted, what):
    with (
        pytest.raises(CheckpointError, match=f"another fit: it differs in {what}"),
        open_or_begin(path, wanted, any_seed=False),
    ):
        pass


def test_the_data_of_a_fit_on_a_cluster_must_be_the_same(tmp_path):
    path, engine = tmp_path / "fit", RemoteEngine(Schedule(7))
    with pytest.raises(StoppedError):
        remote_fit().run(path, stop_at(4), engine=engine)
    local = remote_fit()
    local.fit.relation = local.fit.relation.cells
    for other in (remote_fit("other.parquet"), local):
        refuse_to_open(path, other, "data")
    refuse_to_open(path, remote_fit(tol=0.5), "tol")
    with pytest.raises(CheckpointError, match="its data are on a cluster"):
        resume(path)
    path.unlink()
    with pytest.raises(StoppedError):
        local.run(path, stop_at(4))
    refuse_to_open(path, remote_fit(), "data")


# Packing

ARRAYS = st.builds(
    lambda array, by_column: np.asfortranarray(array) if by_column else array,
    arrays(
        st.sampled_from([np.float64, np.int32]),
        array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=4),
    ),
    st.booleans(),
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False) | ARRAYS,
    lambda inner: st.lists(inner, max_size=4) | st.lists(inner, max_size=3).map(tuple),
)


def alike(one: object, other: object) -> bool:
    if isinstance(one, np.ndarray):
        layout = one.flags.c_contiguous == other.flags.c_contiguous or one.size == 0
        return layout and one.dtype == other.dtype and one.tobytes() == other.tobytes()
    if isinstance(one, list | tuple):
        same = type(one) is type(other) and len(one) == len(other)
        return same and all(map(alike, one, other))
    return type(one) is type(other) and one == other


@given(value=VALUES)
def test_packed_values_are_unpacked_unchanged(value):
    """Through JSON: values, types, and the order of arrays in memory."""
    tensors: dict[str, np.ndarray] = {}
    packed = json.loads(json.dumps(pack(value, "x", tensors), allow_nan=True))
    assert alike(unpack(packed, tensors, {}), value)


@given(value=st.lists(ARRAYS, min_size=1, max_size=5))
def test_safetensors_reads_what_write_tensors_writes(value, tmp_path_factory):
    tensors: dict[str, np.ndarray] = {}
    pack(value, "x", tensors)
    path = tmp_path_factory.mktemp("tensors") / "file"
    write_tensors(path, tensors, {"said": "ä"})
    found = load_file(path)
    assert set(found) == set(tensors)
    assert all(alike(found[name], tensors[name]) for name in tensors)
    with safe_open(path, "numpy") as file:
        assert file.metadata() == {"said": "ä"}


# Files that are not checkpoints


@pytest.fixture(scope="module")
def contents(tmp_path_factory) -> bytes:
    path = tmp_path_factory.mktemp("contents") / "fit"
    stopped(path, data("bipartite", 16), 180, max_iter=200, tol=0, inference="acvb", burn_in=3)
    return path.read_bytes()


@pytest.fixture(scope="module")
def search_contents(tmp_path_factory) -> bytes:
    """Return a checkpoint of the first perturbation of a search."""
    path = tmp_path_factory.mktemp("contents") / "fit"
    for number in range(1, 40):
        found = stopped(path, data("bipartite", 16), number, tol=0)
        if stage(found) == "perturbation":
            return path.read_bytes()
        path.unlink()
    pytest.fail("no perturbation in 40 sweeps")


def test_damaged_files_are_refused(contents, tmp_path):
    path = tmp_path / "fit"
    rng = np.random.default_rng(0)
    damaged = [b"", b"\0", contents[:-1], contents + b"\0", contents[: len(contents) // 2]]
    for at in rng.integers(0, len(contents), 60):
        flipped = bytearray(contents)
        flipped[at] ^= 1 << int(rng.integers(8))
        damaged.append(bytes(flipped))
    for part in damaged:
        path.write_bytes(part)
        with pytest.raises(CheckpointError, match=r"fit cannot be used as a checkpoint: .*\.$"):
            read(path)
        with pytest.raises(CheckpointError):
            IRM(checkpoint=path).fit(data("bipartite", 16))
        assert path.read_bytes() == part


def test_other_files_are_refused(tmp_path):
    path = tmp_path / "fit"
    with pytest.raises(FileNotFoundError, match=r"no file .*fit\. Checkpoints are removed when"):
        resume(path)
    IRM(max_iter=3, tol=0).fit(data("bipartite")).save(path)
    with pytest.raises(CheckpointError, match="it is a coblock-model file"):
        resume(path)
    save_file({"x": np.zeros(3)}, path)
    with pytest.raises(CheckpointError, match="it was not written by coblock"):
        resume(path)
    with pytest.raises(CheckpointError, match="it is not a file"):
        resume(tmp_path)


def rewritten(contents: bytes, path: Path, change) -> None:
    """Write a checkpoint with something changed and a digest that fits."""
    path.write_bytes(contents)
    tensors = load_file(path)
    with safe_open(path, "numpy") as file:
        header = json.loads(file.metadata()["coblock"])
    change(header, tensors)
    header["digest"] = digest(header, tensors)
    save_file(tensors, path, {"coblock": json.dumps(header)})


def test_a_rewritten_file_without_changes_is_read(contents, tmp_path):
    rewritten(contents, tmp_path / "fit", lambda _header, _tensors: None)
    assert sweeps_done(read(tmp_path / "fit")) == 180


def _set(entry: str, value):
    """Return a change of an entry of the header, given by its path."""
    *parents, last = entry.split("/")

    def change(header, _tensors):
        for step in parents:
            header = header[int(step) if step.isdigit() else step]
        header[int(last) if last.isdigit() else last] = value

    return change


def _tensor(ending: str, change):
    def change_one(_header, tensors):
        name = next(name for name in sorted(tensors) if name.endswith(ending))
        tensors[name] = change(tensors[name].copy())

    return change_one


def _at(value):
    def put(array):
        array.flat[0] = value
        return array

    return put


def _nested(depth: int) -> object:
    value: object = 0
    for _ in range(depth):
        value = [value]
    return value


PHASE = "current/fields/phase/fields"
ASKED = "settings/fields"
WRONG = {  # changes of a checkpoint of second-order sweeps
    "version": (_set("version", 3), "has format 3, but this coblock knows 2 only"),
    "earlier version": (_set("version", 1), "has format 1, but this coblock knows 2 only"),
    "format": (_set("format", "other"), "it is a other file"),
    "entry": (_set("seed", "x"), "its header lacks seed"),
    "more entries": (_set("more", 1), "its header has 1 entries too many"),
    "negative seed": (_set("seed", -1), "its seed is out of range"),
    "shape": (_set("shape", [0, 16]), "its relation has an impossible shape"),
    "kind": (_set("kind", "tripartite"), "its relation is of no known kind"),
    "class": (_set("current/is", "Popen"), "holds a 'Popen', which is not part of a fit"),
    "field": (_set(f"{PHASE}/more", 1), "its Variational has other fields"),
    "type": (_set(f"{PHASE}/number", "many"), "its number is of the wrong type"),
    "missing": (_set(f"{PHASE}/state", None), "its state is of the wrong type"),
    "no phase": (_set("current/fields/phase", None), "its phase is not one of its settings"),
    "no start": (_set("current", {"is": "tuple", "parts": []}), "it has other starts than it"),
    "position": (_set("current/fields/position", 0), "its phase is not one of its settings"),
    "positions": (_set("current/fields/position", -1), "its phase is not one of its settings"),
    "starts": (_set(f"{ASKED}/n_init", 0), "it asks for 0 starts"),
    "no settings": (_set("settings", {"is": "tuple", "parts": []}), "its settings are of the"),
    "rng": (_set("rng", {"bit_generator": "MT19937"}), "its parts do not fit together"),
    "sweeps": (_set(f"{PHASE}/number", 41), "its sweeps are not those that it has counted"),
    "average": (_set(f"{PHASE}/averaged", -1), "its sweeps are not those that it has counted"),
    "rng state": (_set("rng/uinteger", 2**40), "its parts do not fit together"),
    "parameter": (_set("parameters/tol", {}), "parameter 'tol' is neither a number nor a text"),
    "hard labels": (_tensor("state.hard.0", _at(-2)), "labels of clusters that do not exist"),
    "memberships": (_tensor("state.q.0", _at(np.nan)), "memberships are not probabilities"),
    "rows": (_tensor("state.q.0", lambda q: q[1:]), "it has memberships of shape"),
    "table": (
        _tensor("state.blocks.n", lambda n: n[:, :-1].copy()),
        "does not have the shape",
    ),
    "not finite": (_tensor("state.blocks.N", _at(np.inf)), "entries that are not numbers"),
    "link": (_tensor("link", _at(10**6)), "lead outside of the relation"),
    "tensor": (lambda _, tensors: tensors.pop("current.trace"), "tensors is missing"),
    "no links": (lambda _, tensors: tensors.pop("link"), "its parts do not fit together"),
    "soft sizes": (
        _tensor("state.blocks.m.0", _at(-5.0)),
        "not have the sizes that their memberships",
    ),
    "soft counts": (
        _tensor("state.blocks.n", _at(77.0)),
        "not have the links that their memberships",
    ),
    "prior": (_tensor("state.hyper.prior", _at(0.0)), "not a positive number"),
    "large prior": (_tensor("state.hyper.prior", _at(1e9)), "not a positive number"),
    "shared memory": (
        _set(f"{PHASE}/state/fields/q/1/name", "current.phase.state.q.0"),
        "one of its tensors is missing, or named twice",
    ),
    "foreign tensor": (
        lambda _, tensors: tensors.update({"current.more": np.zeros(1)}),
        "1 tensors that belong nowhere",
    ),
    "foreign table": (
        lambda _, tensors: tensors.update({"more": np.zeros(1)}),
        "1 tensors that belong nowhere",
    ),
    "depth": (_set("ended", _nested(50)), "its parts are nested too deeply"),
    "deeper": (_set("ended", _nested(900)), "nested too deeply"),
    "many starts": (_set(f"{ASKED}/n_init", 10**8), "asks for 100,000,000 starts"),
    "batches": (_set(f"{ASKED}/batch_size", 0), "limits on clusters or batches"),
    "negative batches": (_set(f"{ASKED}/batch_size", -3), "limits on clusters or batches"),
    "no threads": (_set(f"{ASKED}/n_jobs", 0), "its settings are out of range"),
    "method": (_set(f"{ASKED}/inference", "magic"), "its settings are out of range"),
    "other method": (_set(f"{PHASE}/method", "vb"), "method of its phase is not that of its"),
    "other rule": (_set(f"{PHASE}/rule", "fixed"), "rule of its phase is not that of its settings"),
    "flag": (_set(f"{PHASE}/averaging", "yes"), "its averaging is of the wrong type"),
    "shared": (_set(f"{PHASE}/engine", {"is": "Start"}), "its Variational has other fields"),
    "step": (_set(f"{PHASE}/step", -1.0), "its steps are out of range"),
    "identity": (_set("identity", {"path": "x"}), "its data are on a cluster"),
}
FAULTY_SEARCH = {  # changes of a checkpoint of a search
    "labels": (_tensor("phase.partition.labels.0", _at(99)), "labels of clusters that do not"),
    "negative": (_tensor("phase.best.labels.1", _at(-1)), "labels of clusters that do not"),
    "sizes": (
        _tensor("phase.partition.blocks.m.0", _at(-1e200)),
        "not have the sizes that their labels",
    ),
    "counts": (_tensor("phase.partition.blocks.n", _at(0.5)), "not have the links that their"),
    "sums": (_tensor("phase.partition.blocks.links", lambda n: n[1:]), "does not have the shape"),
    "more sums": (_tensor("phase.best.blocks.links", _at(0.5)), "the links that their labels"),
    "alpha": (_tensor("phase.partition.hyper.alpha", _at(-1.0)), "not a positive number"),
    "shared memory": (
        _set(f"{PHASE}/best/fields/labels/0/name", "current.phase.partition.labels.0"),
        "one of its tensors is missing, or named twice",
    ),
    "search": (_set(f"{PHASE}/sweeps_since_moves", 10**6), "the moves of its search are overdue"),
    "failures": (_set(f"{PHASE}/failures", -(10**9)), "a counter of its search is below 0"),
    "sweeps": (_set(f"{PHASE}/number", 3), "its sweeps are not those that it has counted"),
    "best": (_set(f"{PHASE}/best", None), "its search lacks its best partition"),
    "limits": (_set(f"{PHASE}/limits", {"is": "tuple", "parts": [3, 0]}), "limits on clusters"),
}


@pytest.mark.parametrize("name", WRONG)
def test_inconsistent_files_are_refused(name, contents, tmp_path):
    change, sentence = WRONG[name]
    rewritten(contents, tmp_path / "fit", change)
    with pytest.raises(CheckpointError, match=sentence):
        read(tmp_path / "fit")


@pytest.mark.parametrize("name", FAULTY_SEARCH)
def test_inconsistent_searches_are_refused(name, search_contents, tmp_path):
    change, sentence = FAULTY_SEARCH[name]
    rewritten(search_contents, tmp_path / "fit", change)
    with pytest.raises(CheckpointError, match=sentence):
        read(tmp_path / "fit")


def test_settings_that_are_not_those_of_the_parameters_are_refused(contents, tmp_path):
    rewritten(contents, tmp_path / "fit", _set(f"{ASKED}/max_iter", 10**9))
    with pytest.raises(CheckpointError, match="its settings are not its parameters"):
        resume(tmp_path / "fit")
    rewritten(contents, tmp_path / "fit", _set("parameters/tol", "small"))
    with pytest.raises(CheckpointError, match="its parameter tol is of the wrong type"):
        resume(tmp_path / "fit")


def test_unknown_parameters_are_refused(contents, tmp_path):
    rewritten(contents, tmp_path / "fit", _set("parameters/magic", 1))
    with pytest.raises(CheckpointError, match=r"1 parameters that this version .* 'magic'"):
        resume(tmp_path / "fit")


# When it is written


class Clock:
    """A clock that the test sets."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


class CountingWriter(CheckpointWriter):
    """A writer with such a clock, whose writes are counted instead of done."""

    writes = 0
    duration = 0.0


@pytest.fixture
def writer(tmp_path, monkeypatch):
    found = stopped(tmp_path / "fit", data("bipartite"), 3)
    made = CountingWriter(found, tmp_path / "fit", Clock())

    def write(_self, _path, _tensors):
        made.writes += 1
        made.clock.now += made.duration

    monkeypatch.setattr(StoredFit, "write", write)
    made.save()
    return made


def test_it_is_written_every_minute(writer):
    for second in range(1, 181):
        writer.clock.now += 1.0
        writer.save_if_due()
        assert writer.writes == 1 + second // 60


def test_it_is_written_after_each_round_of_moves_but_not_more_than_once_a_second(writer):
    for tenth in range(1, 51):
        writer.clock.now += 0.1 + 1e-9
        writer.stored.fit.current.phase.rounds += 1
        writer.save_if_due()
        assert writer.writes == 1 + tenth // 10


def test_an_expensive_checkpoint_is_written_less_often(writer):
    writer.duration = 0.5
    writer.save()
    writes = writer.writes
    for _ in range(100):
        writer.clock.now += 1.0
        writer.stored.fit.current.phase.rounds += 1
        writer.save_if_due()
    spent = (writer.writes - writes) * writer.duration
    assert 0 < spent <= 0.05 * 100


def test_without_moves_or_a_minute_nothing_is_written(writer):
    writer.clock.now += 59.0
    writer.save_if_due()
    assert writer.writes == 1


@pytest.mark.usefixtures("short_chains")
def test_a_small_fit_is_written_once(tmp_path, monkeypatch):
    written, write = [], StoredFit.write
    monkeypatch.setattr(checkpoint, "ROUNDS_APART", 1e9)

    def counted(self, path, tensors):
        written.append(sweeps_done(self))
        write(self, path, tensors)

    monkeypatch.setattr(StoredFit, "write", counted)
    IRM(checkpoint=tmp_path / "fit", random_state=0, n_init=2).fit(data("bipartite"))
    assert written == [0]


def test_a_path_that_cannot_be_written_fails_before_the_first_sweep(tmp_path):
    records = []
    model = IRM(checkpoint=tmp_path / "no folder" / "fit", callback=records.append)
    with pytest.raises(WriteError, match="its folder does not exist"):
        model.fit(data("bipartite"))
    assert records == []


@pytest.mark.usefixtures("short_chains")
def test_a_disk_that_fills_up_later_does_not_end_the_fit(tmp_path, monkeypatch):
    X, path = data("bipartite"), tmp_path / "fit"
    uninterrupted, _ = total_sweeps(X)
    monkeypatch.setattr(checkpoint, "EVERY", 0.0)
    write = StoredFit.write

    def full(self, path, tensors):
        if sweeps_done(self) > 3:
            msg = f"{path} cannot be written: the disk is full."
            raise WriteError(msg)
        write(self, path, tensors)

    monkeypatch.setattr(StoredFit, "write", full)
    with pytest.warns(RuntimeWarning, match=r"the disk is full\. The fit goes on; the checkpoint"):
        model = IRM(checkpoint=path, random_state=1).fit(X)
    assert bits(model) == bits(uninterrupted)
    with pytest.warns(RuntimeWarning, match="the disk is full"), pytest.raises(StoppedError):
        IRM(checkpoint=path, random_state=1, callback=stop_at(9)).fit(X)
    assert sweeps_done(read(path)) == 3


def test_temporary_files_of_killed_processes_are_removed(tmp_path):
    path, other = tmp_path / "fit", tmp_path / "another"
    for target in (path, other):
        leftover = []

        def look(temporary, seen=leftover):
            seen.append(temporary)

        coblock.io.atomic.write_atomic(target, look)
        leftover[0].write_bytes(b"half")
        target.unlink()
    IRM(checkpoint=path, max_iter=3).fit(data("bipartite"))
    assert [left.read_bytes() for left in tmp_path.iterdir()] == [b"half"]  # of the other file


# Ctrl-C


def interrupted_at(number: int, times: int = 1):
    def callback(sweep):
        if sweep.sweep == number:
            for _ in range(times):
                os.kill(os.getpid(), signal.SIGINT)

    return callback


@POSIX
@pytest.mark.usefixtures("short_chains")
def test_control_c_leaves_a_checkpoint_and_prints_how_to_resume(tmp_path, capfd):
    X, out = data("undirected"), tmp_path / "my result"
    path = results.checkpoint_of(out)
    handler, callback = signal.getsignal(signal.SIGINT), interrupted_at(7)
    uninterrupted, _ = total_sweeps(X, relation="undirected")
    model = IRM("undirected", checkpoint=path, random_state=1, callback=callback)
    with pytest.raises(KeyboardInterrupt) as ended, results.interruptible(model):
        model.fit(X)
    assert "Stopping after this sweep" in capfd.readouterr().err
    assert f"To continue:  coblock resume '{path}'" in str(ended.value)
    assert (signal.getsignal(signal.SIGINT), model.callback) == (handler, callback)
    assert sweeps_done(read(path)) == 7
    ran = CliRunner().invoke(app, ["resume", str(path)])
    assert ran.exit_code == 0, ran.output
    assert bits(coblock.load(out / "model.safetensors")) == bits(uninterrupted)
    assert {file.name for file in out.iterdir()} == set(results.FILES) - {results.COLUMNS}
    assert list(tmp_path.iterdir()) == [out]


@POSIX
def test_control_c_twice_stops_at_once(tmp_path):
    path = tmp_path / "fit"
    model = IRM(checkpoint=path, random_state=1, callback=interrupted_at(5, times=2))
    hint = "To continue:  coblock resume"
    with pytest.raises(KeyboardInterrupt, match=hint), results.interruptible(model):
        model.fit(data("bipartite"))
    assert path.exists()


def test_resume_ends_with_the_right_codes(tmp_path):
    missing = CliRunner().invoke(app, ["resume", str(tmp_path / "none")])
    assert missing.exit_code == 2
    assert "There is no file" in missing.output
    (tmp_path / "text").write_text("hello", encoding="utf-8")
    foreign = CliRunner().invoke(app, ["resume", str(tmp_path / "text")])
    assert foreign.exit_code == 2
    assert "cannot be used as a checkpoint" in foreign.output.replace("\n", " ")
    stopped(tmp_path / "fit.checkpoint", data("bipartite"), 3, max_iter=5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ran = CliRunner().invoke(
            app, ["resume", str(tmp_path / "fit.checkpoint"), "--out", str(tmp_path / "there")]
        )
    assert ran.exit_code == 1
    assert (tmp_path / "there" / "model.safetensors").exists()


def test_resume_prints_json(tmp_path):
    stopped(tmp_path / "fit.checkpoint", data("bipartite"), 3, tol=1e-2)
    ran = CliRunner().invoke(app, ["resume", str(tmp_path / "fit.checkpoint"), "--json", "--quiet"])
    assert ran.exit_code == 0, ran.output
    assert json.loads(ran.stdout)["converged"]
    assert ran.stderr == ""


def test_resume_has_help_with_an_example():
    shown = CliRunner().invoke(app, ["resume", "--help"])
    assert shown.exit_code == 0
    assert "coblock resume result.checkpoint" in shown.output


# Real processes

KILLS = 25
LONG = {"random_state": 1, "tol": 0, "max_iter": 250, "n_init": 3, "batch_size": 8}
SERVER = """
import os, sys, warnings
import numpy as np
import coblock.io.checkpoint
from coblock import IRM

warnings.simplefilter("ignore")
coblock.io.checkpoint.EVERY = 0.0  # after every sweep: most kills come while a file is written
data, path, model = sys.argv[1:4]
X, parameters = np.load(data), eval(sys.argv[4])
IRM(**parameters | {"max_iter": 40, "n_init": 1}).fit(X)  # kernels are loaded once
print("ready", flush=True)
while sys.stdin.readline():
    child = os.fork()
    if child == 0:
        IRM(checkpoint=path, **parameters).fit(X).save(model)
        os._exit(0)
    print(child, flush=True)
    sys.stdin.readline()  # the process id stays reserved until the child is waited for
    print(os.waitpid(child, 0)[1], flush=True)
"""


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(Path(coblock.__file__).parent.parent)}


def still_usable(path: Path, done: int) -> int:
    """Return how many sweeps a killed process has left; never fewer than before."""
    if not path.exists():
        assert done == 0
        return 0
    left = sweeps_done(read(path))
    assert left >= done
    return left


@POSIX
def test_processes_that_are_killed_at_random_moments_end_with_the_same_bits(tmp_path, seed):
    """A server forks the processes, so that they start at once."""
    X, path, rng = data("bipartite"), tmp_path / "fit", np.random.default_rng(seed)
    np.save(tmp_path / "data.npy", X)
    uninterrupted = IRM(**LONG).fit(X)
    arguments = [str(tmp_path / "data.npy"), str(path), str(tmp_path / "model"), repr(LONG)]
    with subprocess.Popen(
        [sys.executable, "-c", SERVER, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment(),
    ) as server:
        assert server.stdout.readline() == "ready\n"

        def ask() -> int:
            server.stdin.write("\n")
            server.stdin.flush()
            return int(server.stdout.readline())

        def end() -> int:
            """Return how the process ended; a fit that did must have found the same bits."""
            status = ask()
            if status == 0:
                assert bits(coblock.load(tmp_path / "model")) == bits(uninterrupted)
                assert {file.name for file in tmp_path.iterdir()} == {"data.npy", "model"}
            return status

        kills, done, progress, longest = 0, 0, 0, 0.2
        while kills < KILLS or progress < 5:
            child = ask()
            time.sleep(float(rng.uniform(0.0, longest)))
            os.kill(child, signal.SIGKILL)
            if end() != signal.SIGKILL:  # the fit ended before the kill: start another one
                done = 0
                continue
            kills += 1
            left = still_usable(path, done)
            progress, longest = progress + (left > done), longest * (1.0 if left > done else 1.3)
            done = left
        ask()
        assert end() == 0
        server.stdin.close()


@POSIX
def test_a_command_that_is_interrupted_can_be_resumed(tmp_path):
    X, path = data("directed"), tmp_path / "fit.checkpoint"
    parameters = {"relation": "directed", "refine": False, "tol": 0, "max_iter": 3000}
    stopped(path, X, 2, **parameters)
    written = path.stat().st_mtime_ns
    command = [sys.executable, "-m", "coblock", "resume", str(path)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment()) as running:
        while path.stat().st_mtime_ns == written:  # written anew when the fit goes on
            assert running.poll() is None
            time.sleep(0.01)
        time.sleep(0.2)
        running.send_signal(signal.SIGINT)
        printed = running.stderr.read()
    assert running.returncode == 130, printed
    assert f"To continue:  coblock resume {path}" in printed
    with Unfinished.open(path) as unfinished:
        assert 2 < sweeps_done(unfinished.stored) < 3000
    assert bits(resume(path)) == bits(IRM(random_state=1, **parameters).fit(X))
