"""Labels and memberships of a fit on a cluster are not in the memory of the client."""

import gc
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from scipy import sparse

pytest.importorskip("distributed")

from distributed import Client, Future
from distributed.deploy.subprocess import SubprocessCluster

from clusters import worker_processes
from coblock import IRM
from coblock.distributed import DaskEngine, labels, memberships, relation, release
from coblock.distributed.labels import LabelWriter, ShardSides, SpooledLabels
from coblock.distributed.sparse import LabelChanges, SparseMemberships
from coblock.distributed.tasks import ShardLayout
from coblock.inference import fit, singular
from coblock.inference.draws import UniformDraws
from coblock.inference.fit import Start
from coblock.inference.settings import Settings
from coblock.inference.start import SpectralStart
from coblock.model.labels import Collected, count_labels, fraction_moved, map_labels, one_cluster
from coblock.model.partition import Partition, numbered

pytestmark = pytest.mark.usefixtures("brief_searches_in_file")
COMMON = {"random_state": 1, "batch_size": (500, 300), "max_iter": 12, "tol": 0}
START = tuple(np.random.default_rng(0).integers(0, 6, size) for size in (1800, 1200))
PUBLIC = ("row_labels_", "column_labels_", "row_membership_", "column_membership_", "block_links_")


@pytest.fixture(scope="module")
def client():
    with worker_processes(2) as cluster, Client(cluster, set_as_default=False) as connected:
        yield connected


@pytest.fixture(scope="module")
def cells():
    rng = np.random.default_rng(0)
    row, column = rng.integers(0, 3, 1800), rng.integers(0, 3, 1200)
    density = rng.beta(0.4, 2.0, (3, 3)) * 0.3
    return sparse.csr_array(rng.random((1800, 1200)) < density[row][:, column]).astype(float)


@pytest.fixture
def folder(cells, tmp_path):
    sparse.save_npz(tmp_path / "0.npz", cells[:1000])
    sparse.save_npz(tmp_path / "1.npz", cells[1000:])
    return tmp_path


@given(st.integers(0, 2**32), st.integers(1, 40), st.integers(1, 9), st.integers(1, 7))
@settings(max_examples=60, deadline=None)
def test_labels_in_files_are_those_of_arrays(seed, size, clusters, chunk):
    rng = np.random.default_rng(seed)
    array = rng.integers(0, clusters, size).astype(np.int32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(labels, "CHUNK", chunk)
        stored = SpooledLabels.from_array(array)
        target = rng.integers(0, clusters, clusters).astype(np.int32)
        for _ in range(2):
            assert_array_equal(np.asarray(stored), array)
            assert_array_equal(count_labels(stored, clusters), count_labels(array, clusters))
            moved = fraction_moved([stored], [map_labels(stored, target)])
            assert moved == fraction_moved([array], [map_labels(array, target)])
            assert_array_equal(np.asarray(one_cluster(stored)), one_cluster(array))
            k = rng.integers(0, size, 5)
            positions = np.array([np.flatnonzero(array == array[i]).searchsorted(i) for i in k])
            assert_array_equal(stored.find_members(array[k], positions), k)
            stored, array = map_labels(stored, target), map_labels(array, target)
            (stored,), (array,) = numbered([stored]), numbered([array])


def test_clusters_of_labels_in_files_are_split_and_counts_are_merged():
    layout, rng = ShardLayout(1000, 300, 3), np.random.default_rng(0)
    array = rng.integers(0, 3, 1000).astype(np.int32)
    side = rng.integers(0, 2, 1000).astype(np.int8)
    sides = ShardSides(layout, [side[layout.objects(s)] for s in range(layout.shards)])
    stored = SpooledLabels.from_array(array)
    divided = stored.split([(1, 3, sides), (2, 4, sides)])
    wanted = np.where((side == 1) & (array > 0), array + 2, array)
    assert_array_equal(np.asarray(divided), wanted)
    assert_array_equal(divided.count(5), np.bincount(wanted))
    merged = divided.map(np.array([0, 1, 0, 1, 0], np.int32))
    assert_array_equal(merged.map_from(divided), [0, 1, 0, 1, 0])
    assert divided.map_from(merged) is None, "one cluster would be split"
    assert merged.map_from(stored) is None, "they are in other files"


def test_a_sweep_that_starts_again_has_new_and_old_labels():
    array = np.arange(10, dtype=np.int32) % 3
    writer = LabelWriter(SpooledLabels.from_array(array), 3)
    writer.write(range(4), LabelChanges.between(array[:4], np.full(4, 2, np.int32), 3))
    assert_array_equal(np.asarray(writer.present()), [2, 2, 2, 2, *array[4:]])
    with pytest.raises(AssertionError):
        writer.finish(np.zeros(3))


@pytest.mark.parametrize(("size", "clusters"), [(0, 3), (1, 3), (1001, 3), (1001, 300)])
def test_changes_of_labels_give_the_new_ones(size, clusters):
    rng = np.random.default_rng(size)
    old, new = rng.integers(0, clusters, (2, size)).astype(np.int32)
    new[: size // 2] = old[: size // 2]
    changes = LabelChanges.between(old, new, clusters)
    assert changes.label.size == np.count_nonzero(old != new)
    assert changes.moved.nbytes == -(-size // 8)
    assert changes.label.itemsize == (1 if clusters < 128 else 2)
    changes.apply(old)
    assert_array_equal(old, new)


@pytest.mark.parametrize("odd", [False, True])
def test_random_numbers_are_drawn_in_parts(odd):
    ours, numpys = np.random.default_rng(3), np.random.default_rng(3)
    if odd:  # half of a step of the generator is left
        assert ours.integers(100, dtype=np.uint32) == numpys.integers(100, dtype=np.uint32)
    draws, wanted = UniformDraws.take(ours, 100), numpys.random(100)
    assert_array_equal(draws.draw(), wanted)
    assert_array_equal(draws.draw(17, 40), wanted[17:40])
    assert ours.integers(2**31) == numpys.integers(2**31)
    assert ours.bit_generator.state == numpys.bit_generator.state
    assert not np.array_equal(draws.draw(18, 41), wanted[17:40])


def test_parts_of_sparse_memberships_are_those_of_the_table():
    rng = np.random.default_rng(0)
    q = rng.dirichlet(np.full(5, 0.2), 40)
    q[::3] = np.eye(5)[rng.integers(0, 5, 14)]
    found = SparseMemberships.from_dense(q)
    parts = [found.rows(first, first + 8) for first in range(0, 40, 8)]
    assert_array_equal(parts[2].to_dense(), q[16:24])
    assert_array_equal(SparseMemberships.concatenate(parts).to_dense(), q)
    order = np.array([3, 0, 4, 1, 2], np.int32)
    assert_array_equal(found.reorder(order).to_dense(), q[:, order])


def assert_same(there, here):
    for name in PUBLIC:
        assert_array_equal(getattr(there, name), getattr(here, name), err_msg=name)


def one_domain(cells, kind, tmp_path):
    """Return cells of one domain as a local fit takes them, and a folder with their links."""
    cells = sparse.csr_array(cells[:1200])
    cells.setdiag(0)
    cells.eliminate_zeros()
    folder = tmp_path / kind
    folder.mkdir()
    sparse.save_npz(folder / "0.npz", cells)
    return (cells if kind == "directed" else cells.maximum(cells.T)), folder


@pytest.mark.parametrize("kind", ["bipartite", "directed", "undirected"])
def test_memberships_stay_on_the_cluster_until_they_are_asked_for(
    client, cells, folder, tmp_path, kind, monkeypatch
):
    monkeypatch.setattr(memberships, "MOST_COLLECTED", 0)
    monkeypatch.setattr(labels, "CHUNK", 500)
    monkeypatch.setattr(relation, "CHUNK", 500)  # labels are sent in pieces
    monkeypatch.setattr(relation, "MOST_NAMES", 0)
    options = COMMON | {"inference": "cvb0", "init": START}  # no samples
    if kind != "bipartite":
        cells, folder = one_domain(cells, kind, tmp_path)
        options |= {"relation": kind, "batch_size": 300, "init": START[1]}
    options |= {"max_iter": 300}
    there = IRM(**options, engine=DaskEngine(client)).fit(folder)
    here = IRM(**options).fit(cells)
    assert there.converged_
    assert here.converged_
    assert isinstance(there.result_.memberships, Collected)
    parts = there.result_.memberships._parts
    assert not any(isinstance(part, np.ndarray) for part in parts)
    assert_same(there, here)
    assert all(isinstance(part, np.ndarray) for part in parts)
    release(there)
    assert_same(there, here)


def test_a_search_that_is_cut_short_has_the_memberships_of_its_labels(client, cells, folder):
    options = COMMON | {"max_iter": 2, "init": START}
    there = IRM(**options, engine=DaskEngine(client)).fit(folder)
    assert isinstance(there.result_.memberships, Collected)
    here = IRM(**options).fit(cells)
    assert_same(there, here)


def test_memberships_are_released_to_the_client_before_it_closes(folder, client, monkeypatch):
    monkeypatch.setattr(memberships, "MOST_COLLECTED", 0)
    options = COMMON | {"inference": "cvb0", "max_iter": 300, "init": START}
    with Client(client.scheduler.address, set_as_default=False) as other:
        kept = IRM(**options, engine=DaskEngine(other)).fit(folder)
        lost = IRM(**options, engine=DaskEngine(other)).fit(folder)
        release(kept)
    assert kept.row_membership_.shape[0] == 1800
    with pytest.raises(RuntimeError, match=r"release\(model\)"):
        _ = lost.row_membership_


def test_names_stay_on_the_cluster_until_they_are_asked_for(client, tmp_path, monkeypatch):
    monkeypatch.setattr(relation, "MOST_NAMES", 0)
    rng = np.random.default_rng(0)
    lines = [f"r{a},c{b}" for a, b in rng.integers(0, (60, 50), (900, 2)).tolist()]
    (tmp_path / "edges.csv").write_text("\n".join(["row,column", *lines]))
    model = IRM(engine=DaskEngine(client), max_iter=2, init="random").fit(tmp_path)
    assert isinstance(model.result_.relation._names[0], Future)
    assert set(model.row_names_) == {line.split(",")[0] for line in lines}
    assert not isinstance(model.result_.relation._names[0], Future)


@pytest.fixture(scope="module")
def far_client():
    """Return the client of a scheduler in another process, whose memory is not counted."""
    options = {"scheduler_kwargs": {"dashboard": False}, "worker_kwargs": {"dashboard": False}}
    with (
        SubprocessCluster(host="127.0.0.1", n_workers=2, threads_per_worker=1, **options) as far,
        Client(far, set_as_default=False) as connected,
    ):
        connected.wait_for_workers(2, timeout=60)
        yield connected


def test_a_sweep_takes_less_memory_than_labels_would(far_client, tmp_path, monkeypatch):
    size, rng = 400_000, np.random.default_rng(0)
    ends = rng.integers(0, size, (2, 200_000))
    cells = sparse.csr_array((np.ones(200_000), tuple(ends)), shape=(size, size))
    sparse.save_npz(tmp_path / "0.npz", cells)
    monkeypatch.setattr(labels, "CHUNK", 1 << 14)
    monkeypatch.setattr(relation, "CHUNK", 1 << 14)
    engine = DaskEngine(far_client)
    start = [rng.integers(0, 5, size).astype(np.int32) for _ in (0, 1)]
    with engine.open(tmp_path, None, "bipartite", 0.0, Settings()) as opened:
        partition = Partition.from_labels(opened, engine.keep_labels(start))
        engine.sweep_labels(partition)  # compiles
        gc.collect()
        tracemalloc.start()
        try:
            draws = UniformDraws.take(np.random.default_rng(0), 2 * size)
            before = [label.copy() for label in partition.labels]
            engine.sweep_labels(partition, draws)
            assert fraction_moved(before, partition.labels) > 0.0
            engine.propose_splits(partition, 0, np.random.default_rng(0))
            peak = tracemalloc.get_traced_memory()[1]
            held = [np.asarray(label) for label in partition.labels]
            with_labels = tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()
    one_array = 4 * 2 * size
    assert peak < one_array, f"{peak:,} bytes"
    assert with_labels > one_array, "labels in memory would be noticed"
    assert held[0].size == size


@pytest.mark.parametrize("kind", ["bipartite", "directed", "undirected"])
def test_a_default_fit_with_several_tables_of_vectors_has_the_bits_of_one_machine(
    client, cells, folder, tmp_path, kind, monkeypatch
):
    options = COMMON | {"max_iter": 3}
    if kind != "bipartite":
        cells, folder = one_domain(cells, kind, tmp_path)
        options |= {"relation": kind, "batch_size": 300}
    monkeypatch.setattr(singular, "VECTOR_CHUNK", 350)
    monkeypatch.setattr(SpectralStart, "_cluster", counted := Counted(SpectralStart._cluster))
    monkeypatch.setattr(Start, "_sweep_softly", None)  # it would keep tables in the client
    search = replace(fit.SEARCH, weak_share=-1e9, start_draws=3)  # as if structure were weak
    monkeypatch.setattr(fit, "SEARCH", search)
    monkeypatch.setattr(Start, "_settle", settled := Counted(Start._settle))
    here = IRM(**options).fit(cells)
    there = IRM(**options, engine=DaskEngine(client)).fit(folder)
    assert_same(there, here)
    assert counted.tables == {-(-size // 350) for size in here.result_.relation.sizes}
    assert settled.tables == {len(here.result_.relation.sizes)}


class Counted:
    """A method that keeps how many tables, or labels, it was called with."""

    def __init__(self, method):
        self.method, self.tables = method, set()

    def __get__(self, start, _=None):
        def call(vectors, *arguments):
            tables = list(vectors)
            self.tables.add(len(tables))
            return self.method(start, tables, *arguments)

        return call


def test_a_spectral_start_takes_less_memory_than_labels_would(far_client, tmp_path, monkeypatch):
    size, rng = 300_000, np.random.default_rng(0)
    ends = rng.integers(0, size, (2, 400_000))
    cells = sparse.csr_array((np.ones(400_000), tuple(ends)), shape=(size, size))
    sparse.save_npz(tmp_path / "0.npz", cells)
    monkeypatch.setattr(singular, "VECTOR_CHUNK", 1 << 15)
    engine = DaskEngine(far_client)
    with engine.open(tmp_path, None, "bipartite", 0.0, Settings()) as opened:
        gc.collect()
        tracemalloc.start()
        try:
            found = (opened, engine.normalised_links(opened), 4, np.random.default_rng(0))
            spectral = SpectralStart.from_links(*found)
            start = spectral.labels((4, 4))
            peak = tracemalloc.get_traced_memory()[1]
            vectors = far_client.gather([table for (table,) in spectral.vectors[1]])
            with_vectors = tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()
    one_array = 4 * 2 * size
    assert peak < one_array, f"{peak:,} bytes"
    assert with_vectors > one_array, "vectors in memory would be noticed"
    assert sum(map(len, vectors)) == start[1].size == size
