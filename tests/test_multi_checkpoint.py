"""Test that interrupted fits of several relations continue to the bits of uninterrupted ones."""

import os

import numpy as np
import pytest
from safetensors.numpy import load_file

from coblock import MultiIRM, Relation, resume
from coblock.io import model_file, multi_checkpoint
from coblock.io.checkpoint import CheckpointError
from coblock.io.container import has_format

pytestmark = pytest.mark.usefixtures("short_chains_in_file")


def relations(seed=0):
    """Return real values, counts and pairs about the same objects, with weak clusters."""
    rng = np.random.default_rng(seed)
    z = np.arange(24) % 3
    values = [
        (f"a{i}", f"b{j}", float(rng.normal(1.2 * (z[i] == j % 3), 1.0)))
        for i in range(24)
        for j in range(9)
    ]
    pairs = [
        (f"a{i}", f"a{j}")
        for i in range(24)
        for j in range(i)
        if rng.random() < (0.4 if z[i] == z[j] else 0.15)
    ]
    counts = [(f"a{i}", int(rng.poisson(2 + 3 * z[i]))) for i in range(24)]
    return {
        "values": Relation(values, ["a", "b"], value=2, likelihood="normal"),
        "pairs": Relation(pairs, {"x": "a", "y": "a"}, symmetric=True),
        "counts": Relation(counts, ["a"], value=1, likelihood="poisson"),
    }


class StoppedError(Exception):
    pass


def stop_at(sweep):
    def callback(record):
        if record.sweep == sweep:
            raise StoppedError

    return callback


@pytest.fixture(scope="module")
def whole(short_chains_in_file):
    return MultiIRM(random_state=1, max_clusters={"a": 9}).fit(relations())


def interrupt(path, sweep, seed=1):
    model = MultiIRM(random_state=seed, max_clusters={"a": 9}, checkpoint=path)
    model.set_params(callback=stop_at(sweep))
    with pytest.raises(StoppedError):
        model.fit(relations())
    assert path.exists()
    return model


def same_bits(first, second):
    results = first.result_, second.result_
    for a, b in zip(results[0].labels, results[1].labels, strict=True):
        assert np.array_equal(a, b)
    for a, b in zip(results[0].priors, results[1].priors, strict=True):
        assert np.array_equal(a, b)
    assert results[0].alpha == results[1].alpha
    assert results[0].log_evidence == results[1].log_evidence
    assert len(results[0].samples) == len(results[1].samples)
    for a, b in zip(results[0].samples, results[1].samples, strict=True):
        assert all(map(np.array_equal, a.labels, b.labels))
        assert all(map(np.array_equal, a.priors, b.priors))
        assert a.alpha == b.alpha
    traces = [
        [(r.sweep, r.phase, r.log_evidence, r.clusters, r.moved) for r in found.trace]
        for found in results
    ]
    assert traces[0] == traces[1]


def sweeps_to_stop_at(whole):
    """Return sweeps of all phases: climbs from starts, perturbations, and the chain."""
    searched = sum(record.phase == "search" for record in whole.result_.trace)
    return [1, 2, 3, searched // 2, searched - 1, searched, searched + 1, whole.n_iter_ - 1]


def test_a_resumed_fit_has_the_bits_of_an_uninterrupted_one(whole, tmp_path):
    assert whole.n_iter_ > 20
    for sweep in sweeps_to_stop_at(whole):
        path = tmp_path / f"fit{sweep}.checkpoint"
        interrupt(path, sweep)
        found = resume(path)
        assert not path.exists()
        same_bits(found, whole)
        assert found.max_clusters == {"a": 9}


def test_the_same_fit_goes_on_from_its_checkpoint(whole, tmp_path):
    path = tmp_path / "fit.checkpoint"
    model = interrupt(path, 4)
    seen = []
    model.set_params(callback=seen.append).fit(relations())
    same_bits(model, whole)
    assert seen[0].sweep == 5
    assert not path.exists()


def test_another_fit_is_refused(tmp_path):
    path = tmp_path / "fit.checkpoint"
    model = interrupt(path, 2)
    model.set_params(callback=None)
    with pytest.raises(CheckpointError, match="differs in data"):
        model.fit(relations(seed=5))
    with pytest.raises(CheckpointError, match="differs in max_clusters, random_state"):
        model.set_params(max_clusters=4, random_state=7).fit(relations())
    assert path.exists()
    with pytest.raises(TypeError, match="checkpoint must be a path"):
        MultiIRM(checkpoint=3).fit(relations())


def test_wrong_files_are_refused(tmp_path):
    path = tmp_path / "fit.checkpoint"
    interrupt(path, 3)
    content = path.read_bytes()
    damaged = bytearray(content)
    damaged[-5] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(CheckpointError, match="damaged"):
        resume(path)
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(CheckpointError):
        resume(path)
    path.write_bytes(content)
    assert resume(path, keep=True).converged_
    assert path.exists()
    with pytest.raises(FileNotFoundError, match="There is no file"):
        resume(tmp_path / "none")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda h, t: t.update(labels_0=t["labels_0"] + 1), "labels"),
        (lambda h, t: t.update(best_labels_0=t["labels_0"][:-1]), "shape"),
        (lambda h, t: t.update(other=t["labels_0"]), "too many"),
        (lambda h, t: t.pop("start_0_labels_1"), "missing"),
        (lambda h, t: t.update(prior_2=-t["prior_2"]), "not positive"),
        (lambda h, t: t.update(cells_0=t["cells_0"] + 100), "do not exist"),
        (lambda h, t: h["search"].update(failures=-1), "negative"),
        (lambda h, t: h.update(limits=[1]), "limits"),
        (lambda h, t: h.update(rng={"bit_generator": "MT19937"}), "fit together"),
        (lambda h, t: h.update(phases=["dance"] * len(h["phases"])), "phases"),
        (lambda h, t: h["parameters"].update(callback=1), "parameters"),
        (lambda h, t: h["search"].pop("climbing"), "keys"),
    ],
)
def test_forged_checkpoints_are_refused(tmp_path, change, reason):
    """Files whose digests are right are checked, too."""
    from coblock.io import container
    from coblock.io.multi_checkpoint import FORMAT

    path = tmp_path / "fit.checkpoint"
    interrupt(path, FIRST_WITH_BEST)
    header, tensors = container.read_container(path, FORMAT)
    assert set(tensors) == set(load_file(path))
    assert header["search"]["has_best"]
    assert header["search"]["starts"] > 0
    change(header, tensors)
    entries = {k: v for k, v in header.items() if k not in {"format", "version", "digest"}}
    container.write_container(path, FORMAT, entries, tensors)
    with pytest.raises(CheckpointError, match=reason):
        resume(path)


FIRST_WITH_BEST = 6  # sweeps after which one start has ended


def test_a_binary_relation_is_checkpointed_as_irm(tmp_path):
    X = np.kron(np.eye(2), np.ones((9, 8)))
    path = tmp_path / "fit.checkpoint"
    model = MultiIRM(random_state=0, checkpoint=path, callback=stop_at(1))
    with pytest.raises(StoppedError):
        model.fit({"r": Relation(X, ["a", "b"])})
    assert path.exists()
    seen = []
    model.set_params(callback=seen.append).fit({"r": Relation(X, ["a", "b"])})
    assert model.domains_["a"].n_clusters == 2
    assert seen == model.result_.trace[1:]
    assert not path.exists()


def test_a_likelihood_of_ones_own_cannot_be_checkpointed(tmp_path):
    from own_likelihood import Exponential

    wait = Relation(np.ones((4, 3)), ["a", "b"], likelihood=Exponential(), absent="unseen")
    with pytest.raises(ValueError, match="Fit without a checkpoint"):
        MultiIRM(random_state=0, checkpoint=tmp_path / "c").fit({"wait": wait})


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
def test_a_pipe_is_neither_a_model_nor_a_checkpoint(tmp_path):
    """Opening a pipe without a writer would never return."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for form in (model_file.MULTI_FORMAT, multi_checkpoint.FORMAT):
        assert not has_format(pipe, form)
