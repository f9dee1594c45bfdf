"""Tasks of the workers: kernels of the local fit, run on one shard."""

from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from coblock.distributed.layout import Shard
from coblock.distributed.replication import (
    NO_CELLS,
    NO_RELATION,
    BatchDelta,
    CountSnapshot,
    Delta,
    MembershipSnapshot,
    Replica,
    SparseMemberships,
    StaleReplica,
    compact_counts,
    domain_view,
    worker_state,
    writable,
)
from coblock.inference.engine import empty_batch_result
from coblock.inference.start import cell_counts, expected_degrees, link_product
from coblock.kernels import Floats, Incidence, Indices
from coblock.kernels.cvb0 import BatchResult, update_batch
from coblock.kernels.gather import add_outer_sums, relabel
from coblock.kernels.gibbs import label_batch
from coblock.kernels.score import score_tables
from coblock.kernels.spectral import LinkScales
from coblock.model.hyperparameters import Hyperparameters

Message = TypeVar("Message")
NO_TABLE = np.zeros((0, 0))
PER_OBJECT = ("log_normaliser", "entropy")  # of which the client needs the sums of each part


@dataclass(frozen=True, slots=True)
class BatchTask:
    """What a shard does with its objects of one batch."""

    b: int  # batch
    objects: range
    step: float | None = None  # of an update of memberships; None gives new labels
    uniform: Floats | None = None  # random numbers that draw labels; None takes the best ones
    probability: bool = False  # whether the probabilities of the labels are returned


def send(message: Message) -> Message:
    """Return a message as the result of a task, which Dask can compute again."""
    return message


def run_batch(
    shard: Shard,
    run: str,
    version: int,
    memberships: MembershipSnapshot | None,
    counts: CountSnapshot | None,
    entries: list[list[Delta]],
    hyper: Hyperparameters,
    task: BatchTask,
) -> BatchDelta | StaleReplica:
    """Update the objects of a batch against the replica at ``version`` of the log."""
    replica = worker_state(run).advance(version, memberships, counts, entries)
    if replica is None:
        return StaleReplica()
    if task.step is None:
        return give_labels(shard, replica, hyper, task)
    return update_memberships(shard, replica, hyper, task, task.step)


def update_memberships(
    shard: Shard, replica: Replica, hyper: Hyperparameters, task: BatchTask, step: float
) -> BatchDelta:
    """Update memberships by CVB0, in the parts into which the local engine cuts a batch."""
    d, first = shard.d, task.objects.start
    blocks, other = replica.blocks, replica.view(1 - d)
    q = replica.domains[d].dense(first, task.objects.stop)
    hard = replica.domains[d].hard[first : task.objects.stop]
    own = domain_view(shard.segment(task.b), q, hard, blocks.m[d], hyper.alpha[d])
    tables = score_tables(own, replica.tables(d, hyper), other.m)
    fresh, parts = np.empty_like(q), []
    for part in shard.layout.parts(shard.number, task.b):
        objects = np.arange(part.start - first, part.stop - first, dtype=np.int32)
        rows = fresh[part.start - first : part.stop - first]
        result = empty_batch_result(rows, other.m.size, bool(blocks.unseen.any()))
        update_batch(own, other, tables, objects, step, result)
        sums = {name: np.array([getattr(result, name).sum()]) for name in PER_OBJECT}
        parts.append(result._replace(fresh=NO_TABLE, **sums))
    memberships = SparseMemberships.from_dense(fresh)
    return BatchDelta(replica.version + 1, d, task.objects, memberships, parts)


def give_labels(
    shard: Shard, replica: Replica, hyper: Hyperparameters, task: BatchTask
) -> BatchDelta:
    """Give the objects of a batch new labels and count the changes, which are whole numbers."""
    d, blocks, incidence = shard.d, replica.blocks, shard.segment(task.b)
    label = replica.domains[d].hard[task.objects.start : task.objects.stop].copy()
    found = label_objects(incidence, label, replica, d, hyper, task)
    fresh, log_normaliser, probability = found
    K, L = blocks.m[d].size, blocks.m[1 - d].size
    m = np.bincount(fresh, minlength=K) - np.bincount(label, minlength=K)
    links, unseen = np.zeros((K, L)), np.zeros((K, L))
    own = domain_view(incidence, NO_TABLE, label, blocks.m[d], 1.0)
    moved = np.flatnonzero(fresh != label).astype(np.int32)
    relabel(own, moved, fresh[moved], label, replica.domains[1 - d].hard, links, unseen)
    counts = map(compact_counts, (m, links, unseen if blocks.unseen.any() else NO_TABLE))
    part = BatchResult(log_normaliser, np.empty(0), NO_TABLE, *counts)
    new = SparseMemberships.from_labels(fresh, K)
    chance = SparseMemberships.from_dense(probability) if task.probability else None
    return BatchDelta(replica.version + 1, d, task.objects, new, [part], chance)


def label_objects(
    cells: Incidence,
    label: Indices,
    replica: Replica,
    d: int,
    hyper: Hyperparameters,
    how: BatchTask,
) -> tuple[Indices, Floats, Floats]:
    """Return new labels of objects, their log normalisers and, if wanted, probabilities."""
    other, size = replica.view(1 - d), label.size
    own = domain_view(cells, NO_TABLE, label, replica.blocks.m[d], hyper.alpha[d])
    tables = score_tables(own, replica.tables(d, hyper), other.m)
    numbers = np.empty(0) if how.uniform is None else writable(how.uniform)
    fresh, log_normaliser = np.empty(size, np.int32), np.empty(size)
    sums = np.zeros((size, own.m.size) if how.probability else (0, 0))
    objects = np.arange(size, dtype=np.int32)
    label_batch(own, other, tables, objects, numbers, fresh, log_normaliser, sums)
    return fresh, log_normaliser, sums


def label_probabilities(
    shard: Shard,
    run: str,
    snapshot: MembershipSnapshot,
    counts: CountSnapshot,
    hyper: Hyperparameters,
) -> SparseMemberships:
    """Return p(z_i | all other labels) of all objects of a shard."""
    domains = worker_state(run).domains(snapshot)
    replica, label = Replica.from_snapshot(domains, counts), domains[shard.d].hard[shard.objects]
    how = BatchTask(0, range(0), probability=True)
    found = label_objects(shard.incidence, label, replica, shard.d, hyper, how)
    return SparseMemberships.from_dense(found[2])


def count_cells(shard: Shard, run: str, snapshot: MembershipSnapshot) -> tuple[Floats, Floats]:
    """Count links and unseen cells of a shard of rows by the clusters of their ends."""
    domains, cells = worker_state(run).domains(snapshot), shard.incidence
    relation = replace(NO_RELATION, incidence=((cells,), (NO_CELLS,)))
    labels = [domains[0].hard[shard.objects], domains[1].hard]
    return relation.count_cells(labels, (domains[0].clusters, domains[1].clusters))


def add_expected_cells(
    sums: tuple[Floats, Floats] | None, shard: Shard, run: str, snapshot: MembershipSnapshot, b: int
) -> tuple[Floats, Floats]:
    """Add q_ik q_jl over the cells of one batch of rows to the sums of those before it."""
    domains, cells = worker_state(run).domains(snapshot), shard.segment(b)
    own, other = domains[0], domains[1]
    q = own.dense(*shard.layout.span(shard.number, b))
    shape = (own.clusters, other.clusters)
    links, unseen = (np.zeros(shape) + (0.0 if sums is None else sums[t]) for t in (0, 1))
    add_outer_sums(cells.link_start, cells.link, q, other.q, other.hard, links)
    add_outer_sums(cells.unseen_start, cells.unseen, q, other.q, other.hard, unseen)
    return links, unseen


def count_by_object(shard: Shard) -> tuple[Indices, Indices]:
    """Return the numbers of links and of unseen cells of each object of a shard."""
    links, unseen = cell_counts(shard.incidence)
    return links.astype(np.int32), unseen.astype(np.int32)


def shard_degrees(shard: Shard, rate: Floats, rate_other: Floats, density: float) -> Floats:
    """Return the expected degrees of the objects of a shard."""
    own = writable(rate)[shard.objects]
    return expected_degrees(shard.incidence, own, writable(rate_other), density)


def shard_product(
    shard: Shard, scales: tuple[LinkScales, LinkScales], density: float, block: Floats
) -> Floats:
    """Return the product of the normalised links of a shard and a dense block."""
    both = [LinkScales(*(writable(values) for values in each)) for each in scales]
    own = LinkScales(*(values[shard.objects] for values in both[shard.d]))
    return link_product(shard.incidence, own, both[1 - shard.d], density, writable(block))
