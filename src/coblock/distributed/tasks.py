"""What workers do: the kernels of the local fit on one shard."""

from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from scipy import sparse

from coblock.batches import no_change
from coblock.distributed.compact import Rows, packed, spelled_out
from coblock.distributed.replica import Copy, Letter, Versions, surely_current
from coblock.distributed.shard import Shard, domain_of, writable
from coblock.kernels import BIPARTITE, Blocks, Domain, Floats, Indices, Place, batch, kernel
from coblock.kernels.blocks import add_outer, gather, label_sums
from coblock.kernels.shared import shared_tables

Anything = TypeVar("Anything")


@dataclass(frozen=True, slots=True)
class Errand:
    """Visit these objects of a batch, part by part, against these counts."""

    b: int  # batch
    parts: list[Indices | range]  # positions in the shard's segment of the batch
    blocks: Blocks  # as the domain sees them
    m: Floats
    m_other: Floats
    alpha: float

    def __setstate__(self, state: Any) -> None:
        b, parts, blocks, m, m_other, alpha = state
        arrived = (
            b,
            parts,
            Blocks(*(writable(table) for table in blocks)),
            writable(m),
            writable(m_other),
            alpha,
        )
        for name, value in zip(self.__slots__, arrived, strict=True):
            object.__setattr__(self, name, value)


@dataclass(frozen=True, slots=True)
class Visited:
    """What the visit of one part has found."""

    rows: Rows
    log_normaliser: Floats
    entropy: Floats
    moved: Floats
    m: Floats
    links: Floats
    unseen: Floats | None  # None: nothing has changed


def carry(what: Anything) -> Anything:
    """Bring something to the workers by a task, which can be done again if its worker is lost."""
    return what


def visit(shard: Shard, copies: list[Copy], errand: Errand) -> list[Visited]:
    """Renew memberships (CVB0)."""
    place, objects, other = _scene(shard, copies, errand)
    q, sure = copies[shard.d].memberships(objects), copies[shard.d].sure[objects]
    tables = shared_tables(BIPARTITE, errand.blocks, errand.m_other, 1)
    left = (np.zeros(objects.size), np.zeros(objects.size), np.zeros(objects.size))
    found = []
    for order in map(spelled_out, errand.parts):
        fresh = np.empty((order.size, errand.m.size))
        outcome = batch.Outcome(*left, fresh, *no_change(errand.blocks.n.shape))
        mine = domain_of(place, order, q, sure, errand.m, errand.alpha)
        batch.visit_all(BIPARTITE, mine, other, tables, outcome)
        unseen = outcome.unseen if outcome.unseen.any() else None
        per_object = (left[0][order], left[1][order], left[2][order])
        found.append(Visited(packed(fresh), *per_object, outcome.m, outcome.links, unseen))
    return found


def choose(
    shard: Shard, copies: list[Copy], errand: Errand, uniform: Floats | None
) -> tuple[Indices, Floats, Floats, Floats, Floats]:
    """Choose labels, or draw them; return them, log normalisers and the change of the counts.

    Counts of labels are whole numbers: their sum over the parts does not depend on its order.
    """
    place, objects, other = _scene(shard, copies, errand)
    chances = np.full(objects.size, -1.0) if uniform is None else writable(uniform)
    tables = shared_tables(BIPARTITE, errand.blocks, errand.m_other, 1)
    left = (np.zeros(objects.size), np.zeros(objects.size), np.zeros(objects.size))
    outcome = batch.Outcome(*left, np.empty((0, 0)), *no_change(errand.blocks.n.shape))
    labels = np.empty(objects.size, dtype=np.int32)
    none, sure = np.zeros((0, 0)), copies[shard.d].sure[objects]
    for order in map(spelled_out, errand.parts):
        mine = domain_of(place, order, none, sure, errand.m, errand.alpha)
        part = labels[order[0] : order[-1] + 1]
        batch.choose_all(BIPARTITE, mine, other, tables, chances, part, outcome)
    return labels, left[0], outcome.m, outcome.links, outcome.unseen


def _scene(shard: Shard, copies: list[Copy], errand: Errand) -> tuple[Place, Indices, Domain]:
    first, last = shard.layout.spans(shard.number)[errand.b]
    others, nobody = copies[1 - shard.d], np.zeros(0, np.int32)
    place = shard.segment(errand.b)
    other = domain_of(place, nobody, others.q, others.sure, errand.m_other, 1.0)
    return place, np.arange(first, last, dtype=np.int32), other


def count_cells(shard: Shard, copies: list[Copy]) -> tuple[Floats, Floats]:
    """Count links and unseen cells of the shard by the clusters of their ends."""
    mine, others = copies[shard.d], copies[1 - shard.d]
    labels = mine.sure[shard.layout.objects(shard.number)]
    links, unseen = (np.zeros((mine.clusters, others.clusters)) for _ in range(2))
    label_sums(shard.place.link_start, shard.place.link, labels, others.sure, links)
    label_sums(shard.place.unseen_start, shard.place.unseen, labels, others.sure, unseen)
    return links, unseen


def add_products(
    sums: tuple[Floats, Floats] | None,
    shard: Shard,
    run: str,
    letter: Letter,
    versions: Versions,
    b: int,
) -> tuple[Floats, Floats]:
    """Add q_ik q_jl over the cells of the shard in one batch to the sums of those before it."""
    copies = surely_current(run, letter, versions)
    mine, others = copies[shard.d], copies[1 - shard.d]
    first, last = shard.layout.spans(shard.number)[b]
    q = mine.memberships(np.arange(first, last, dtype=np.int32))
    place = shard.segment(b)
    shape = (mine.clusters, others.clusters)
    before = (np.zeros(shape), np.zeros(shape)) if sums is None else sums
    links, unseen = (table.copy() for table in before)
    ends = (others.q, others.sure)
    _go_on_with_sums(place.link_start, place.link, q, *ends, links)
    _go_on_with_sums(place.unseen_start, place.unseen, q, *ends, unseen)
    return links, unseen


@kernel
def _go_on_with_sums(
    start: np.ndarray,
    end: np.ndarray,
    q: Floats,
    q_other: Floats,
    sure_other: Indices,
    table: Floats,
) -> None:
    """Add to the table what ``outer_sums`` would, object after object."""
    ends = np.empty(table.shape[1])
    for i in range(q.shape[0]):
        if start[i] == start[i + 1]:
            continue
        ends[:] = 0.0
        gather(start, end, i, q_other, sure_other, ends)
        add_outer(table, q[i], ends)


def describe(shard: Shard) -> tuple[Indices, Indices]:
    """Return how many links and unseen cells each object of the shard has."""
    place = shard.place
    links, unseen = np.diff(place.link_start), np.diff(place.unseen_start)
    return links.astype(np.int32), unseen.astype(np.int32)


def expect_unseen(
    shard: Shard, rates: tuple[Floats, Floats], density: float
) -> tuple[sparse.csr_array, Floats]:
    """Return links and what is expected of unseen cells, and the sums of the objects.

    Rows are added up as SciPy adds up rows, columns as it adds up columns.
    """
    place, objects = shard.place, shard.layout.objects(shard.number)
    shape = (objects.size, rates[1 - shard.d].size)
    links = sparse.csr_array((np.ones(place.link.size), place.link, place.link_start), shape=shape)
    mine = np.repeat(rates[shard.d][objects], np.diff(place.unseen_start))
    expected = mine * rates[1 - shard.d][place.unseen]
    data = np.clip(expected / max(density, 1e-12), 0.0, 1.0)
    unseen = sparse.csr_array((data, place.unseen, place.unseen_start), shape=shape)
    filled = sparse.csr_array(links + unseen)
    sums = filled.sum(axis=1) if shard.d == 0 else filled @ np.ones(shape[1])
    return filled, np.asarray(sums)


def sums_of(filled: tuple[sparse.csr_array, Floats]) -> Floats:
    """Return the sums alone."""
    return filled[1]


def normalise(
    filled: tuple[sparse.csr_array, Floats], shard: Shard, scales: tuple[Floats, Floats]
) -> sparse.csr_array:
    """Return the cells divided by the root of the degrees of their ends, rows first."""
    matrix = filled[0].copy()
    objects = shard.layout.objects(shard.number)
    mine = np.repeat(scales[shard.d][objects], np.diff(matrix.indptr))
    others = scales[1 - shard.d][matrix.indices]
    first, second = (mine, others) if shard.d == 0 else (others, mine)
    matrix.data = (first * matrix.data) * second
    return matrix


def multiply(matrix: sparse.csr_array, operand: Floats) -> Floats:
    """Return the product with a dense matrix."""
    return np.asarray(matrix @ operand)
