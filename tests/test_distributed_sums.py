"""Sums over many parts, shards and chunks: the bits of one machine for any number of workers.

The workers are threads of this process, so that constants of the sizes can be lowered.
"""

import logging
from itertools import pairwise

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from scipy import sparse

pytest.importorskip("distributed")

from distributed import Client, LocalCluster

from coblock import IRM, read
from coblock.distributed import DaskEngine, collect, release
from coblock.distributed.replication import BatchDelta, StaleReplica, merge_deltas
from coblock.distributed.tasks import ShardLayout
from coblock.io.readers import ReadError
from coblock.model.sums import FAN_IN, PartialSums, chunks, tree_sum

pytestmark = pytest.mark.usefixtures("brief_searches_in_file")
SIZES = (330, 210)
PUBLIC = ("row_labels_", "column_labels_", "row_membership_", "block_links_", "log_evidence_")


@pytest.fixture(scope="module")
def client():
    options = {"processes": False, "n_workers": 11, "threads_per_worker": 1}
    options |= {"dashboard_address": None, "silence_logs": logging.CRITICAL}
    options |= {"memory_limit": 0}  # workers pause at a share of the memory of the whole process
    with LocalCluster(**options) as running, Client(running, set_as_default=False) as connected:
        yield connected


@pytest.fixture
def many_parts(monkeypatch):
    """Cut small batches into as many parts as large ones have."""
    monkeypatch.setattr("coblock.inference.engine.SMALLEST_PART", 2)
    monkeypatch.setattr("coblock.inference.engine.LARGE_PART", 3)
    monkeypatch.setattr("coblock.model.sums.SMALLEST_CHUNK", 30)


@pytest.fixture(scope="module")
def cells():
    rng = np.random.default_rng(0)
    density = rng.beta(0.3, 2.0, (4, 3)) * 0.4
    labels = [rng.integers(0, K, size) for K, size in zip((4, 3), SIZES, strict=True)]
    links = (rng.random(SIZES) < density[labels[0]][:, labels[1]]).astype(float)
    return sparse.csr_array(links)


@given(st.integers(1, 700), st.integers(1, 90), st.randoms(use_true_random=False))
def test_partial_sums_have_the_bits_of_the_tree(terms, shards, random):
    numbers = np.random.default_rng(terms).normal(size=(terms, 2))
    cuts = sorted(random.sample(range(1, terms), min(shards - 1, terms - 1)))
    held = np.split(np.arange(terms), cuts)
    parts = [PartialSums(terms, {(0, int(t)): (numbers[t],) for t in some}) for some in held]
    while len(parts) > 1:
        count = random.randint(2, 9)
        parts = [PartialSums.merge(parts[at : at + count]) for at in range(0, len(parts), count)]
    (total,) = PartialSums.merge(parts).total
    assert_array_equal(total, tree_sum(numbers))
    np.testing.assert_allclose(total, numbers.sum(axis=0), atol=1e-9)


def test_few_terms_are_added_one_after_another():
    numbers = [0.1, 1e16, -1e16, 0.3]
    assert tree_sum(numbers) == ((0.1 + 1e16) - 1e16) + 0.3
    assert tree_sum([0.1] * FAN_IN + [1e16, -1e16]) == sum([0.1] * FAN_IN), "the pair is a group"
    assert sum([0.1] * FAN_IN + [1e16, -1e16]) != sum([0.1] * FAN_IN), "the order matters"


def test_chunks_cover_all_objects():
    for objects in (1, 32_768, 32_769, 10**7, 10**9):
        found = chunks(objects)
        assert found[0].start == 0
        assert found[-1].stop == objects
        assert all(a.stop == b.start for a, b in pairwise(found))
        assert len(found) <= 256
    assert len(chunks(32_768)) == 1, "sums over few objects have one order"


@pytest.mark.parametrize(
    ("size", "batch"), [(1500, 94), (40_000, 10_000), (7, 7), (10**6, 250_000)]
)
@pytest.mark.parametrize("shards", [1, 3, 64])
def test_layouts_find_the_shard_and_the_position_of_every_object(size, batch, shards):
    layout = ShardLayout(size, batch, shards)
    shard, position = layout.find(np.arange(size, dtype=np.int32))
    for s in range(layout.shards):
        objects = layout.objects(s)
        assert (shard[objects] == s).all()
        assert_array_equal(position[objects], np.arange(objects.size))
    if size == 10**6:
        assert layout.shards == shards, "large data have parts for all workers"
    numbers = [n for s in range(layout.shards) for n in layout.parts(s, 0)]
    assert numbers == list(range(layout.count_parts(0)))


def test_a_stale_delta_makes_its_group_stale():
    delta = BatchDelta(1, 0, [], PartialSums(0, {}))
    assert isinstance(merge_deltas(delta, StaleReplica()), StaleReplica)
    assert merge_deltas(delta) is delta


def assert_same_bits(there, here):
    for name in PUBLIC:
        assert_array_equal(getattr(there, name), getattr(here, name), err_msg=name)
    for mine, its in zip(here.trace_, there.trace_, strict=True):
        assert {**mine, "seconds": 0} == {**its, "seconds": 0}


@pytest.mark.usefixtures("many_parts")
@pytest.mark.parametrize("shards", [3, 11])
@pytest.mark.parametrize("options", [{"refine": False, "burn_in": 2}, {}], ids=["soft", "default"])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_any_number_of_shards_gives_the_bits_of_one_machine(
    client, cells, tmp_path, shards, options
):
    for number, rows in enumerate(np.array_split(np.arange(cells.shape[0]), 2)):
        sparse.save_npz(tmp_path / f"{number}.npz", cells[rows])
    common = {"random_state": 0, "tol": 0, "max_iter": 4, "batch_size": (90, 70)} | options
    here = IRM(**common).fit(cells)
    there = IRM(**common, engine=DaskEngine(client, shards=shards)).fit(tmp_path)
    assert [layout.shards for layout in there.result_.relation.pool.layouts] == [shards] * 2
    release(there)
    assert_same_bits(there, here)


@pytest.fixture(scope="module")
def graph():
    """Return edges between named objects, some with themselves, repeated, or without a value."""
    rng = np.random.default_rng(1)
    group = rng.integers(0, 3, 150)
    density = rng.beta(0.3, 1.0, (3, 3)) * 0.4
    rows, columns = np.nonzero(rng.random((150, 150)) < density[group][:, group])
    order = rng.permutation(np.append(np.arange(rows.size), np.arange(40)))
    value = np.where(rng.random(order.size) < 0.05, None, 1.0).tolist()
    frame = pl.DataFrame({"from": rows[order], "to": columns[order]})
    return frame.cast(pl.String).with_columns(pl.Series("value", value, dtype=pl.Float64))


@pytest.mark.usefixtures("many_parts")
@pytest.mark.parametrize("kind", ["directed", "undirected"])
@pytest.mark.parametrize(
    "options",
    [{"refine": False, "burn_in": 2, "max_iter": 3}, {"init": 4}],
    ids=["soft", "search"],
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_one_domain_gives_the_bits_of_one_machine(client, graph, tmp_path, kind, options):
    graph.slice(0, graph.height // 2).write_csv(tmp_path / "a.csv")
    graph.slice(graph.height // 2).write_csv(tmp_path / "b.csv")
    relation = read(graph, value="value", relation=kind).relation
    common = {"random_state": 0, "tol": 0, "max_iter": 8, "batch_size": 40, "relation": kind}
    common |= options
    if "init" in options:  # labels of all objects that have an edge
        common["init"] = np.arange(relation.shape[0]) % options["init"]
    here = IRM(**common).fit(relation)
    model = IRM(**common, engine=DaskEngine(client, value="value", shards=5))
    with pytest.warns(UserWarning, match="links of objects with themselves are left out"):
        there = model.fit(tmp_path)
    found = there.result_.relation
    assert (found.n_links, found.n_unseen) == (relation.n_links, relation.n_unseen)
    assert (found.n_cells, found.row_names) == (relation.n_cells, relation.row_names)
    assert here.result_.n_clusters[0] > 1, "labels moved between clusters"
    assert_same_bits(there, here)
    collect(there)
    for mine, its in zip(relation.incidence[0], there.result_.relation.incidence[0], strict=True):
        for expected, array in zip(mine, its, strict=True):
            assert_array_equal(array, expected)


def test_matrices_of_one_domain_are_square(client, cells, tmp_path):
    sparse.save_npz(tmp_path / "0.npz", cells)
    with pytest.raises(ReadError, match="330 rows in all and 210 columns"):
        IRM(relation="directed", engine=DaskEngine(client)).fit(tmp_path)
