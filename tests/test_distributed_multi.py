"""Several relations on a cluster: the bits of one machine, also when a worker is killed."""

import os
import pickle
import signal
import threading
from contextlib import contextmanager

import numpy as np
import pytest
from sklearn.base import clone

pytest.importorskip("distributed")

import dask
from distributed import Client

from clusters import worker_processes
from coblock import MultiIRM, Relation, resume
from coblock.distributed import DaskEngine
from coblock.distributed.multi_engine import ShareScorer
from coblock.distributed.multi_shares import (
    BatchState,
    Frame,
    Share,
    add_zeros,
    list_share,
    score_share,
)
from coblock.inference import multi_search
from coblock.io.tables import build_dataset
from coblock.model.multi_batches import SCORER, Batch, ThreadScorer, use_scorer
from coblock.model.multi_partition import MultiPartition

PEOPLE, SWEEPS, BATCHES = 1100, 2, 25
SETTINGS = {"random_state": 4, "max_iter": SWEEPS, "max_clusters": 12, "tol": 0}


def make_relations(people=PEOPLE):
    """Return relations of all likelihoods; people fill one or two places, in any order."""
    rng = np.random.default_rng(0)
    z, w = rng.integers(0, 4, people), np.arange(24) % 3
    who = rng.integers(0, people, (8, 6 * people))
    thing = rng.integers(0, 24, (3, 6 * people))

    def distinct(*columns):
        cells = np.unique(np.stack(columns, axis=1), axis=0)
        return cells[rng.permutation(len(cells))]

    liked = rng.random(6 * people) < np.array([0.9, 0.5, 0.2, 0.1])[(z[who[0]] + w[thing[0]]) % 4]
    likes = distinct(who[0][liked], thing[0][liked])
    listed, named = set(map(tuple, likes.tolist())), set(likes[:, 0].tolist())
    unseen = distinct(who[1][:200], thing[1][:200]).tolist()
    unseen = [(i, j) for i, j in unseen if i in named and (i, j) not in listed]
    known = (who[2] != who[3]) & (rng.random(6 * people) < 0.1 + 0.6 * (z[who[2]] == z[who[3]]))
    pairs = distinct(*np.sort(np.stack((who[2], who[3]))[:, known], axis=0))
    bought = distinct(thing[2][:3000], who[4][:3000], rng.integers(0, 3, 3000))
    asked = distinct(who[5][:2500], who[6][:2500])
    paid = distinct(thing[1][:3000], who[7][:3000])
    words = np.array(["yes", "no", "maybe"])
    return {
        "likes": Relation(
            [(f"p{i}", f"t{j}") for i, j in likes],
            ["person", "thing"],
            unseen=[(f"p{i}", f"t{j}") for i, j in unseen],
        ),
        "knows": Relation(
            [(f"p{i}", f"p{j}") for i, j in pairs],
            {"one": "person", "other": "person"},
            symmetric=True,
        ),
        "bought": Relation(
            [(f"t{j}", f"p{i}", f"d{k}", 1 + (i + j) % 3) for j, i, k in bought],
            ["thing", "person", "day"],
            value=3,
            likelihood="poisson",
        ),
        "asked": Relation(
            [(f"p{i}", f"p{j}", words[(z[i] + 2 * z[j]) % 3]) for i, j in asked],
            {"from": "person", "to": "person"},
            value=2,
            likelihood="categorical",
        ),
        "paid": Relation(
            [(f"t{j}", f"p{i}", float(rng.normal(z[i] - w[j], 1.0))) for j, i in paid],
            ["thing", "person"],
            value=2,
            likelihood="normal",
        ),
    }


@pytest.fixture(scope="module")
def relations():
    return make_relations()


@pytest.fixture(scope="module")
def data(relations):
    return build_dataset(relations)


@pytest.fixture(scope="module")
def local(relations):
    """Return the model fitted on one machine."""
    return MultiIRM(**SETTINGS).fit(relations)


@contextmanager
def start(workers):
    """Start a cluster that does not copy shares to workers that are idle for a moment."""
    with (
        dask.config.set({"distributed.scheduler.work-stealing": False}),
        worker_processes(workers) as running,
    ):
        yield running


@pytest.fixture(scope="module")
def cluster():
    with start(2) as running:
        yield running


@pytest.fixture
def client(cluster):
    with Client(cluster, set_as_default=False) as connected:
        connected.wait_for_workers(2, timeout=60)
        yield connected


def assert_same(model, other):
    for name, domain in other.domains_.items():
        found = model.domains_[name]
        np.testing.assert_array_equal(found.labels, domain.labels, err_msg=name)
        np.testing.assert_array_equal(found.membership, domain.membership, err_msg=name)
        assert found.concentration == domain.concentration
    for name, relation in other.relations_.items():
        np.testing.assert_array_equal(
            model.relations_[name].hyperparameters, relation.hyperparameters
        )
    assert model.log_evidence_ == other.log_evidence_
    for here, there in zip(model.trace_, other.trace_, strict=True):
        assert {**here, "seconds": 0} == {**there, "seconds": 0}


def finished_tasks(client, name):
    """Return how many tasks of a name workers have finished."""

    def count(dask_scheduler):
        prefix = dask_scheduler.task_prefixes.get(f"coblock-{name}")
        return 0 if prefix is None else prefix.state_counts["memory"]

    return client.run_on_scheduler(count)


# The tasks of a batch, one after another in this process


def make_batch(data, *, d=0, drawn=True, clusters=None, seed=0):
    """Return a batch of objects of a domain with random labels."""
    rng = np.random.default_rng(seed)
    labels = [rng.integers(0, min(60, size), size) for size in data.sizes]  # many small blocks
    partition = MultiPartition.from_labels(data, labels)
    objects = rng.permutation(data.sizes[d])[:150].astype(np.int32)
    uniform = rng.random(150) if drawn else np.full(150, -1.0)
    used = int(partition.state.n_clusters[d])
    allowed = np.zeros(used + 1, np.bool_)
    allowed[list(range(used) if clusters is None else clusters)] = True
    table = (objects, uniform, allowed, clusters is None)
    return Batch(partition.layout, partition.state, partition.gains, d, *table)


def sent(message):
    """Return a message as it arrives on a worker: arrays are read-only."""
    buffers = []
    packed = pickle.dumps(message, protocol=5, buffer_callback=buffers.append)
    return pickle.loads(packed, buffers=[bytes(buffer.raw()) for buffer in buffers])


def shares_of(layout, d, number):
    size = int(layout.first_object[d + 1] - layout.first_object[d])
    bounds = np.linspace(0, size, number + 1).astype(int)
    return [sent(Share.of(layout, d, range(*bounds[s : s + 2]))) for s in range(number)]


def score_on_shares(data, batch, number, keep=slice(None)):
    """Return the labels of a batch that shares find, and the gains of zeros that they add up."""
    frame = sent(Frame.of(data.layout, tuple(table.likelihood for table in data.tables)))
    before = sent(np.roll(batch.state.label, 3))  # labels that were sent before
    state, shares = sent(BatchState.of(batch, before)), shares_of(data.layout, batch.d, number)
    common = (frame, before, state)
    listed = [list_share(share, *common) for share in shares][keep]
    parts = [slice(0, 2), slice(2, batch.clusters.size)]
    zeros = [add_zeros(part, *common, listed) for part in parts]
    label = np.full(batch.objects.size, -1, np.int32)
    for share in shares:
        own = (batch.objects >= share.first) & (batch.objects < share.first + share.count)
        table = (batch.objects[own] - np.int32(share.first), batch.uniform[own], zeros)
        label[own] = score_share(share, *common, *table)
    return label, np.concatenate([gain for _, *gains in zeros for gain in gains])


@pytest.mark.parametrize("number", [1, 3, 8])
@pytest.mark.parametrize("drawn", [True, False])
def test_shares_find_the_labels_that_threads_find(data, number, drawn):
    batch = make_batch(data, drawn=drawn)
    label, zeros = score_on_shares(data, batch, number)
    np.testing.assert_array_equal(label, ThreadScorer().new_labels(batch))
    np.testing.assert_array_equal(zeros, score_on_shares(data, batch, 1)[1])
    assert np.unique(label).size > 2


def test_shares_score_the_clusters_of_a_split(data):
    batch = make_batch(data, clusters=(1, 4))
    label, _ = score_on_shares(data, batch, 4)
    np.testing.assert_array_equal(label, ThreadScorer().new_labels(batch))
    assert set(label) == {1, 4}


def test_gains_of_zeros_need_all_shares_in_their_order(data):
    batch = make_batch(data)
    _, whole = score_on_shares(data, batch, 4)
    _, without_first = score_on_shares(data, batch, 4, keep=slice(1, None))
    assert not np.allclose(without_first, whole)
    _, reversed_order = score_on_shares(data, batch, 4, keep=slice(None, None, -1))
    np.testing.assert_allclose(reversed_order, whole)
    assert not np.array_equal(reversed_order, whole)


def test_a_share_has_the_cells_of_its_objects_alone(data):
    layout, shares = data.layout, shares_of(data.layout, 0, 4)
    rows = [layout.incidence[r, 0] + np.arange(PEOPLE) for r in range(len(data.tables))]
    own = sum(int((layout.start[row + 1] - layout.start[row]).sum()) for row in rows)
    assert sum(share.cells["cell"].size for share in shares) == own
    for share in shares:
        assert share.cells["start"].size == len(data.tables) * (share.count + 1)
        assert share.cells["coordinate"].size < 0.45 * layout.coordinate.size  # two of two places


def test_what_a_worker_has_computed_is_not_sent_on(data):
    batch = make_batch(data)
    frame = Frame.of(data.layout, tuple(table.likelihood for table in data.tables))
    before, state = batch.state.label.copy(), BatchState.of(batch, batch.state.label)
    size = len(pickle.dumps(state))
    assert state.state(frame, before) is state.state(frame, before)
    assert frame.gains is frame.gains
    assert len(pickle.dumps(state)) == size
    pickle.dumps(frame)


def test_another_scorer_is_used_within_its_context_only():
    class Other:
        def new_labels(self, batch):
            return batch.objects

    other, default = Other(), SCORER.get()
    with use_scorer(other):
        assert SCORER.get() is other
    assert SCORER.get() is default


# Fits on workers


def test_bits_are_those_of_one_machine(client, relations, local):
    before, held = finished_tasks(client, "score"), []

    def count_shares(record):
        keys = client.has_what().values()
        held.append([sum("coblock-share" in str(key) for key in each) for each in keys])

    engine = DaskEngine(client)
    model = MultiIRM(**SETTINGS, engine=engine, callback=count_shares).fit(relations)
    assert_same(model, local)
    assert len(held) == SWEEPS
    assert all(0 < shares < 8 for of_sweep in held for shares in of_sweep)  # no worker has all
    # every share has objects in nearly every batch of people
    assert finished_tasks(client, "score") - before > 0.9 * SWEEPS * BATCHES * 8
    assert finished_tasks(client, "share") >= 8


def test_one_worker_and_another_number_of_shares_give_the_same_bits(relations, local):
    with start(1) as running, Client(running, set_as_default=False) as client:
        address = client.scheduler.address
        model = MultiIRM(**SETTINGS, engine=DaskEngine(address, shards=2)).fit(relations)
        assert finished_tasks(client, "share") == 2
        held = client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks))
        assert held == 0  # all is released
    assert_same(model, local)


def test_another_seed_gives_other_bits(client, relations, local):
    other = {**SETTINGS, "random_state": 5, "max_iter": 1}
    model = MultiIRM(**other, engine=DaskEngine(client)).fit(relations)
    with pytest.raises(AssertionError):
        assert_same(model, local)


def test_a_killed_worker_does_not_change_the_bits(client, relations, local, monkeypatch):
    killed, batches, new_labels = [], [], ShareScorer.new_labels

    def kill(pid):
        os.kill(pid, signal.SIGKILL)
        killed.append(pid)

    def score(scorer, batch):
        if batch.d in scorer.shares:
            batches.append(batch)
        if len(batches) == BATCHES + 5 and not killed:  # while this batch is scored
            threading.Timer(0.02, kill, [max(client.run(os.getpid).values())]).start()
        return new_labels(scorer, batch)

    monkeypatch.setattr(ShareScorer, "new_labels", score)
    before = finished_tasks(client, "share")
    model = MultiIRM(**SETTINGS, engine=DaskEngine(client)).fit(relations)
    assert_same(model, local)
    assert len(killed) == 1
    assert finished_tasks(client, "share") - before > 8  # those of the worker were made again


def test_large_batches_of_splits_are_scored_on_workers(client, relations, monkeypatch):
    monkeypatch.setattr("coblock.distributed.multi_engine.LEAST_SPLIT", 30)
    settings = {**SETTINGS, "max_iter": 1, "max_clusters": 4}
    before = finished_tasks(client, "state")
    model = MultiIRM(**settings, engine=DaskEngine(client)).fit(relations)
    assert finished_tasks(client, "state") - before > BATCHES
    assert_same(model, MultiIRM(**settings).fit(relations))


def test_an_interrupted_fit_goes_on_without_a_cluster(client, relations, local, tmp_path):
    path = tmp_path / "fit.checkpoint"

    class StoppedError(Exception):
        pass

    def stop(record):
        raise StoppedError

    model = MultiIRM(**SETTINGS, engine=DaskEngine(client), checkpoint=path, callback=stop)
    with pytest.raises(StoppedError):
        model.fit(relations)
    assert_same(resume(path), local)


def test_what_a_cluster_cannot_do_is_refused(client, relations, monkeypatch):
    engine = DaskEngine(client)
    likes, bought = relations["likes"], relations["bought"]
    counts = [(f"p{i}", f"t{i % 7}", 1 + i % 3) for i in range(PEOPLE)]
    table = {"value": 2, "likelihood": "poisson"}
    weighted = Relation(
        counts, ["person", "thing"], exposure=[np.ones(PEOPLE), np.ones(24)], **table
    )
    corrected = Relation(counts, ["person", "thing"], degree_corrected=True, **table)
    monkeypatch.setattr(ShareScorer, "of", None)  # nothing is sent
    for given, settings, sentence in (
        (relations, {"inference": "gibbs"}, "inference='gibbs' is not possible on a cluster"),
        (relations, {"inference": "vb"}, "Use acvb0 or cvb0 with refine=True, or leave engine="),
        (relations, {"refine": False}, "inference='acvb0' with refine=False is not possible"),
        ({"likes": likes}, {}, r"fitted on a cluster by IRM\(engine=...\)"),
        ({"a": likes, "b": weighted}, {}, "Relation 'b' has exposures and zeros that are not"),
        ({"a": likes, "b": corrected}, {}, "Relation 'b' is degree-corrected"),
        (make_relations(600), {}, "No domain has more than 1,000 objects"),
        ({"b": bought}, {"engine": DaskEngine(client, row="a")}, "row=, column= and value= name"),
    ):
        with pytest.raises(ValueError, match=sentence):
            MultiIRM(**{"engine": engine, **settings}).fit(given)
    with pytest.raises(TypeError, match="engine must be a coblock"):
        MultiIRM(engine="tcp://127.0.0.1:1").fit(relations)


def test_the_estimator_can_be_cloned_and_its_domains_are_large(client, data):
    engine = DaskEngine(client)
    assert clone(MultiIRM(engine=engine)).engine is engine
    assert max(data.sizes) > multi_search.SEQUENTIAL_UP_TO
