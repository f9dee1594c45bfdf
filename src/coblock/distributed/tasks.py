"""What workers do: the kernels of the local fit on one shard."""

from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import numpy as np

from coblock.batches import no_change
from coblock.distributed.compact import Rows, packed, spelled_out
from coblock.distributed.replica import Copy, Letter, Versions, surely_current
from coblock.distributed.shard import Shard, domain_of, writable
from coblock.kernels import BIPARTITE, Blocks, Domain, Floats, Indices, Place, batch, kernel
from coblock.kernels.blocks import add_outer, gather, label_sums
from coblock.kernels.spectral import Ends
from coblock.kernels.tables import shared_tables
from coblock.spectral import degrees_of, product_of

Anything = TypeVar("Anything")
Changes: TypeAlias = tuple[Floats, Floats, Floats]  # of sizes, links and unseen cells


@dataclass(frozen=True, slots=True)
class Errand:
    """Visit these objects of a batch, piece by piece, against these counts."""

    b: int  # batch
    pieces: list[Indices | range]  # positions in the shard's segment of the batch
    blocks: Blocks  # as the domain sees them
    m: Floats
    m_other: Floats
    alpha: float

    def __setstate__(self, state: Any) -> None:
        b, pieces, blocks, m, m_other, alpha = state
        arrived = (
            b,
            pieces,
            Blocks(*(writable(table) for table in blocks)),
            writable(m),
            writable(m_other),
            alpha,
        )
        for name, value in zip(self.__slots__, arrived, strict=True):
            object.__setattr__(self, name, value)


@dataclass(frozen=True, slots=True)
class Visited:
    """What the visit of one piece of a part has found; the changes are those of the part so far."""

    rows: Rows
    log_normaliser: Floats
    entropy: Floats
    moved: Floats
    m: Floats
    links: Floats
    unseen: Floats | None  # None: nothing has changed

    @property
    def changes(self) -> Changes:
        """The changes of sizes, links and unseen cells."""
        unseen = np.zeros_like(self.links) if self.unseen is None else self.unseen
        return self.m, self.links, unseen


@dataclass(frozen=True, slots=True)
class Chosen:
    """Labels of a shard's objects in one batch, and what they change."""

    labels: Indices
    log_normaliser: Floats
    changes: Changes
    entropy: Floats | None = None  # only where memberships are asked for
    rows: Rows | None = None


def carry(what: Anything) -> Anything:
    """Bring something to the workers by a task, which can be done again if its worker is lost."""
    return what


def visit(
    shard: Shard, copies: list[Copy], errand: Errand, step: float, begun: list[Changes | None]
) -> list[Visited]:
    """Renew memberships (CVB0); ``begun`` is what the part of a piece has changed before it."""
    place, objects, other = _scene(shard, copies, errand)
    q, sure = copies[shard.d].memberships(objects), copies[shard.d].sure[objects]
    tables = shared_tables(BIPARTITE, errand.blocks, errand.m_other, 1)
    left = (np.zeros(objects.size), np.zeros(objects.size), np.zeros(objects.size))
    found = []
    for order, before in zip(map(spelled_out, errand.pieces), begun, strict=True):
        fresh = np.empty((order.size, errand.m.size))
        changes = no_change(errand.blocks.n.shape)
        if before is not None:
            changes = (before[0].copy(), before[1].copy(), before[2].copy())
        outcome = batch.Outcome(*left, fresh, *changes)
        mine = domain_of(place, order, q, sure, errand.m, errand.alpha)
        batch.visit_all(BIPARTITE, mine, other, tables, step, outcome)
        unseen = outcome.unseen if outcome.unseen.any() else None
        per_object = (left[0][order], left[1][order], left[2][order])
        found.append(Visited(packed(fresh), *per_object, outcome.m, outcome.links, unseen))
    return found


def choose(
    shard: Shard,
    copies: list[Copy],
    errand: Errand,
    uniform: Floats | None,
    with_memberships: bool,
) -> Chosen:
    """Choose labels, or draw them, of all objects that the shard has in a batch.

    Counts of labels are whole numbers: their sum does not depend on its order.
    """
    place, objects, other = _scene(shard, copies, errand)
    chances = np.full(objects.size, -1.0) if uniform is None else writable(uniform)
    tables = shared_tables(BIPARTITE, errand.blocks, errand.m_other, 1)
    left = (np.zeros(objects.size), np.zeros(objects.size), np.zeros(objects.size))
    fresh = np.empty((objects.size, errand.m.size) if with_memberships else (0, 0))
    outcome = batch.Outcome(*left, fresh, *no_change(errand.blocks.n.shape))
    labels = np.empty(objects.size, dtype=np.int32)
    none, sure = np.zeros((0, 0)), copies[shard.d].sure[objects]
    everybody = np.arange(objects.size, dtype=np.int32)
    mine = domain_of(place, everybody, none, sure, errand.m, errand.alpha)
    batch.choose_all(BIPARTITE, mine, other, tables, chances, labels, outcome)
    changes = (outcome.m, outcome.links, outcome.unseen)
    if with_memberships:
        return Chosen(labels, left[0], changes, left[1], packed(fresh))
    return Chosen(labels, left[0], changes)


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


def degrees(shard: Shard, rate: Floats, rate_other: Floats, density: float) -> Floats:
    """Return the links of the shard's objects with what is expected of their unseen cells."""
    rates = (writable(rate)[_objects(shard)], writable(rate_other))
    return degrees_of(shard.place, *rates, density)


def multiply(shard: Shard, ends: tuple[Ends, Ends], density: float, block: Floats) -> Floats:
    """Return the product of the shard's normalised links and a dense block."""
    both = [Ends(*(writable(values) for values in one)) for one in ends]
    mine = Ends(*(values[_objects(shard)] for values in both[shard.d]))
    return product_of(shard.place, mine, both[1 - shard.d], density, writable(block))


def _objects(shard: Shard) -> Indices:
    return shard.layout.objects(shard.number)
