"""Objects without cells are one object: its counts, scores and fits are those of all of them."""

import tracemalloc

import numpy as np
import pytest
from scipy import sparse

from coblock import IRM, resume
from coblock.inference.engine import LocalEngine, Schedule
from coblock.inference.fit import Fit
from coblock.inference.settings import Settings
from coblock.kernels.memberships import hard_labels
from coblock.model import grouping
from coblock.model.blocks import Blocks
from coblock.model.grouping import GroupedRelation, empty_objects, group
from coblock.model.partition import Partition
from coblock.model.relation import BinaryRelation
from coblock.model.state import SoftState

BATCHES = LocalEngine(Schedule(None, 0))


class StopError(Exception):
    """Ends a fit, with a checkpoint of that sweep."""


KINDS = ("bipartite", "directed", "undirected", "self-links")


def links(rows: int, columns: int, seed: int = 0) -> np.ndarray:
    """Return links between a few objects of many; 4 by 3 blocks, and unseen cells."""
    rng = np.random.default_rng(seed)
    X = np.zeros((rows, columns))
    some, others = rng.permutation(rows)[:24], rng.permutation(columns)[:18]
    blocks = rng.beta(0.4, 1.0, (4, 3))[rng.integers(0, 4, 24)][:, rng.integers(0, 3, 18)]
    X[np.ix_(some, others)] = rng.random((24, 18)) < blocks
    X[some[:2], others[:2]] = np.nan
    return X


def pair(
    kind: str, monkeypatch: pytest.MonkeyPatch, seed: int = 0
) -> tuple[BinaryRelation, BinaryRelation]:
    """Return a small relation, and the same with its empty objects grouped."""
    monkeypatch.setattr(grouping, "LARGEST", 3)
    X = links(60, 60 if kind != "bipartite" else 50, seed)
    chosen = "directed" if kind == "self-links" else kind
    full = BinaryRelation.build(X, kind=chosen, self_links=kind == "self-links")
    grouped = group(full)
    assert isinstance(grouped, GroupedRelation)
    assert sum(grouped.copies) > 20.0
    return full, grouped


def random_labels(relation: BinaryRelation, seed: int = 0) -> list[np.ndarray]:
    """Return labels of three clusters in each domain, all in use."""
    rng = np.random.default_rng(seed)
    labels = [rng.integers(0, 3, size).astype(np.int32) for size in relation.sizes]
    for label in labels:
        label[:3] = [0, 1, 2]
    return labels


def expanded(values: list[np.ndarray], grouped: GroupedRelation) -> list[np.ndarray]:
    """Return values of all objects of the full relation."""
    return [each[objects] for each, objects in zip(values, grouped.objects, strict=True)]


@pytest.mark.parametrize("kind", KINDS)
def test_counts_and_evidence_are_those_of_the_full_relation(kind, monkeypatch):
    full, grouped = pair(kind, monkeypatch)
    labels = random_labels(grouped)
    one = Partition.from_labels(grouped, [label.copy() for label in labels])
    other = Partition.from_labels(full, expanded(labels, grouped))
    for name in ("n", "N"):
        np.testing.assert_array_equal(getattr(one.blocks, name), getattr(other.blocks, name))
    assert one.hyper.alpha == other.hyper.alpha
    assert one.log_joint() == other.log_joint()
    assert one.log_posterior() == other.log_posterior()
    assert grouped.density == full.density


@pytest.mark.parametrize("kind", KINDS)
def test_soft_counts_are_those_of_the_full_relation(kind, monkeypatch):
    full, grouped = pair(kind, monkeypatch)
    rng = np.random.default_rng(1)
    q = [rng.dirichlet(np.ones(3), size) for size in grouped.sizes]
    tables = [
        Blocks.from_memberships(relation, each, [hard_labels(table) for table in each])
        for relation, each in ((grouped, q), (full, expanded(q, grouped)))
    ]
    for name in ("n", "N", "self_pairs"):
        one, other = (getattr(each, name) for each in tables)
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(tables[0].m[0], tables[1].m[0], rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_memberships_given_the_labels_are_those_of_the_full_relation(kind, monkeypatch):
    full, grouped = pair(kind, monkeypatch)
    labels = random_labels(grouped)
    one = Partition.from_labels(grouped, [label.copy() for label in labels])
    other = Partition.from_labels(full, expanded(labels, grouped))
    found = expanded(BATCHES.conditional_memberships(one), grouped)
    for mine, its in zip(found, BATCHES.conditional_memberships(other), strict=True):
        np.testing.assert_allclose(mine, its, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("drawn", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_sweep_keeps_counts_that_a_recount_gives(kind, drawn, monkeypatch):
    _, grouped = pair(kind, monkeypatch)
    partition = Partition.from_labels(grouped, random_labels(grouped))
    uniform = np.random.default_rng(0).random(sum(grouped.sizes)) if drawn else None
    for _ in range(3):
        BATCHES.sweep_labels(partition, uniform)
        counted = Blocks.from_labels(grouped, partition.labels, tuple(m.size for m in partition.m))
        for m, recounted in zip(partition.m, counted.m, strict=True):
            np.testing.assert_array_equal(m, recounted)
        np.testing.assert_array_equal(partition.blocks.N, counted.N)
    assert sum(m.sum() for m in partition.m) == sum(grouped.full.sizes)
    q = [np.random.default_rng(2).dirichlet(np.ones(3), size) for size in grouped.sizes]
    state = SoftState(grouped, q, partition.hyper)
    BATCHES.sweep_memberships(state)
    kept = state.m[0].copy()
    state.recount()
    np.testing.assert_allclose(kept, state.m[0], rtol=1e-9)


@pytest.mark.parametrize("kind", ["bipartite"])
@pytest.mark.parametrize("seed", range(5))
def test_split_gains_are_those_of_the_evidence(kind, seed, monkeypatch):
    _, grouped = pair(kind, monkeypatch, seed)
    partition = Partition.from_labels(grouped, random_labels(grouped, seed))
    evidence, some = partition.log_joint(), 0
    for d in (0, 1):
        for k, (gain, side) in enumerate(
            BATCHES.propose_splits(partition, d, np.random.default_rng(seed))
        ):
            if not np.isfinite(gain):
                continue
            trial = partition.copy()
            trial.labels[d][np.flatnonzero(trial.labels[d] == k)[side == 1]] = 3
            trial.renumber()
            assert trial.log_joint() - evidence == pytest.approx(gain, abs=1e-8)
            some += 1
    assert some > 2


def test_few_empty_objects_stay_as_they_are():
    X = sparse.random_array((900, 800), density=0.0005, rng=0)
    relation = BinaryRelation.build(X > 0)
    assert empty_objects(relation, 0).any()
    assert group(relation) is relation


@pytest.mark.parametrize("kind", ["bipartite", "directed", "undirected"])
def test_a_fit_has_at_least_the_evidence_of_one_without_groups(kind, monkeypatch):
    X = sparse.csr_array(np.nan_to_num(links(2_500, 2_500)))
    parameters = {"relation": kind, "random_state": 0}
    found = IRM(**parameters).fit(X)
    monkeypatch.setattr(grouping, "LARGEST", X.shape[0])
    other = IRM(**parameters).fit(X)
    assert found.log_evidence_ >= other.log_evidence_ - 1e-3 * abs(other.log_evidence_)
    assert found.row_membership_.shape == (2_500, found.row_labels_.max() + 1)
    again = Partition.from_labels(found.result_.relation, [z.copy() for z in found.result_.labels])
    assert found.log_evidence_ == again.log_joint()
    assert not isinstance(found.result_.relation, GroupedRelation)


def test_other_methods_and_schedules_do_not_group():
    relation = BinaryRelation.build(sparse.csr_array(np.nan_to_num(links(2_500, 1_500))))
    assert isinstance(Fit(relation, Settings(), 0).grouped(), GroupedRelation)
    for settings in (
        Settings(refine=False),
        Settings(inference="gibbs"),
        Settings(batch_size=1),
        Settings(degree_corrected="auto"),
    ):
        assert Fit(relation, settings, 0).grouped() is relation


def test_a_stopped_fit_goes_on_with_the_same_bits(tmp_path):
    X = sparse.csr_array(np.nan_to_num(links(1_500, 1_400)))
    whole = IRM(random_state=0).fit(X)
    path = tmp_path / "fit.checkpoint"

    def stop(sweep: object) -> None:
        if sweep.sweep == whole.n_iter_ - 2:
            raise StopError

    with pytest.raises(StopError):
        IRM(random_state=0, checkpoint=path, callback=stop).fit(X)
    model = resume(path)
    assert model.log_evidence_ == whole.log_evidence_
    np.testing.assert_array_equal(model.row_membership_, whole.row_membership_)


def test_memory_follows_the_links_and_not_the_objects():
    size, count = 200_000, 2_000
    rng = np.random.default_rng(0)
    cells = (np.ones(count), (rng.integers(0, size, count), rng.integers(0, size, count)))
    X = sparse.csr_array(cells, shape=(size, size)) > 0
    IRM(random_state=0).fit(X)  # compiles
    tracemalloc.start()
    try:
        model = IRM(random_state=0).fit(X)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    K = sum(q.shape[1] for q in model.result_.memberships)
    published = 8 * size * K
    assert peak < published + 120 * size, "bytes: memberships, offsets of four indices, labels"
    assert model.row_membership_.shape[0] == size
