"""What workers do: the kernels of the local fit on one shard."""

from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from coblock.distributed.compact import Rows, of_labels, packed, shortened, spelled_out
from coblock.distributed.replica import (
    Answer,
    Base,
    Copy,
    Lacking,
    Opening,
    Reordered,
    Standing,
    Terms,
    Turned,
    replicas,
)
from coblock.distributed.shard import Shard, domain_of, writable
from coblock.inference.schedule import no_change
from coblock.inference.spectral import degrees_of, product_of
from coblock.kernels import BIPARTITE, Blocks, Domain, Floats, Indices, Place, batch
from coblock.kernels.blocks import add_outer_sums, label_sums
from coblock.kernels.spectral import Ends
from coblock.kernels.tables import shared_tables
from coblock.model.counts import Changes, climb

Anything = TypeVar("Anything")


@dataclass(frozen=True, slots=True)
class Errand:
    """Visit these objects of a batch, or give all that the shard has of it labels."""

    b: int  # batch
    objects: Indices | range
    soft: bool
    uniform: Floats | None = None  # None: the best labels
    beside: bool = False  # whether memberships are wanted beside the labels


@dataclass(frozen=True, slots=True)
class Counts:
    """What all objects of a domain are scored against."""

    blocks: Blocks  # as the domain sees them
    m: Floats
    m_other: Floats
    alpha: float

    def __setstate__(self, state: Any) -> None:
        blocks, m, m_other, alpha = state
        arrived = (Blocks(*map(writable, blocks)), writable(m), writable(m_other), alpha)
        for name, value in zip(self.__slots__, arrived, strict=True):
            object.__setattr__(self, name, value)


@dataclass(frozen=True, slots=True)
class Chosen:
    """Labels of a shard's objects, and how sure they are of them."""

    labels: Indices
    log_normaliser: Floats
    entropy: Floats
    rows: Rows


def carry(what: Anything) -> Anything:
    """Bring something to the workers by a task, which can be done again if its worker is lost."""
    return what


def turn(
    shard: Shard,
    run: str,
    version: int,
    base: Base | None,
    opening: Opening | None,
    before: list[list[Answer | Reordered]],
    terms: Terms,
    errand: Errand,
) -> Answer:
    """Do an errand on a shard as things stand after turn ``version``."""
    standing = replicas(run).stand(version, base, opening, before)
    if standing is None:
        return Lacking()
    do = visit if errand.soft else label
    return do(shard, standing, terms, errand)


def _counts(standing: Standing, d: int, terms: Terms) -> Counts:
    return Counts(standing.blocks(d, terms), standing.m[d], standing.m[1 - d], terms.alpha[d])


def visit(shard: Shard, standing: Standing, terms: Terms, errand: Errand) -> Turned:
    """Renew memberships (CVB0), part by part as one machine does."""
    d, layout = shard.d, shard.layout
    first, last = layout.span(shard.number, errand.b)
    chosen, span = spelled_out(errand.objects), np.arange(first, last, dtype=np.int32)
    counts = _counts(standing, d, terms)
    mine, others = standing.copies[d], standing.copies[1 - d]
    place = shard.segment(errand.b)
    other = _seen(place, others, counts)
    q, sure = mine.memberships(span), mine.sure[span]
    tables = shared_tables(BIPARTITE, counts.blocks, counts.m_other, 1)
    left = (np.zeros(span.size), np.zeros(span.size), np.zeros(span.size))
    fresh, leaves = np.empty((chosen.size, counts.m.size)), {}
    for number, (start, stop) in layout.parts_of(shard.number, errand.b).items():
        part = slice(*np.searchsorted(chosen, (start, stop)))
        domain = domain_of(place, chosen[part] - np.int32(first), q, sure, counts.m, counts.alpha)
        outcome = batch.Outcome(*left, fresh[part], *no_change(counts.blocks, domain))
        batch.visit_all(BIPARTITE, domain, other, tables, terms.step, outcome)
        leaves[0, number] = (outcome.m, outcome.links, outcome.unseen)
    width = layout.leaves(errand.b)
    added = climb(leaves, width, complete=False)
    changes = {node: _without_zeros(change) for node, change in added.items()}
    found = (shortened(chosen), packed(fresh), width, changes)
    log_normaliser, entropy, moved = (of_all[chosen - first] for of_all in left)
    return Turned(standing.version + 1, d, *found, log_normaliser, entropy, moved)


def _without_zeros(change: Changes) -> tuple[Floats, Floats, Floats | None]:
    return change[0], change[1], change[2] if change[2].any() else None


def label(shard: Shard, standing: Standing, terms: Terms, errand: Errand) -> Turned:
    """Choose labels, or draw them, of all objects that the shard has in a batch.

    Counts of labels are whole numbers: their sum does not depend on its order.
    """
    d, layout = shard.d, shard.layout
    first, last = layout.span(shard.number, errand.b)
    counts = _counts(standing, d, terms)
    labels, outcome = _choose(
        shard.segment(errand.b),
        standing.copies[d].sure[first:last],
        standing.copies[1 - d],
        counts,
        errand.uniform,
        soft=errand.beside,
    )
    m, links = _whole(outcome.m), _whole(outcome.links)
    unseen = _whole(outcome.unseen) if outcome.unseen.any() else None
    return Turned(
        standing.version + 1,
        d,
        range(first, last),
        of_labels(labels, counts.m.size),
        layout.used_in(errand.b),
        {(0, shard.number): (m, links, unseen)},
        outcome.log_normaliser,
        beside=packed(outcome.fresh) if errand.beside else None,
    )


def _whole(table: Floats) -> NDArray:
    """Return whole numbers in half the bytes, if they are small enough."""
    small = np.abs(table).max(initial=0.0) <= np.iinfo(np.int32).max
    return table.astype(np.int32) if small else table


def choose_all(shard: Shard, run: str, base: Base, counts: Counts) -> Chosen:
    """Return the best labels of all objects of a shard, and memberships; nobody moves."""
    copies = replicas(run).copies(base)
    sure = copies[shard.d].sure[shard.layout.objects(shard.number)]
    labels, outcome = _choose(shard.place, sure, copies[1 - shard.d], counts, None, soft=True)
    return Chosen(labels, outcome.log_normaliser, outcome.entropy, packed(outcome.fresh))


def _choose(
    place: Place,
    sure: Indices,
    others: Copy,
    counts: Counts,
    uniform: Floats | None,
    *,
    soft: bool = False,
) -> tuple[Indices, batch.Outcome]:
    """Give the objects of a place labels."""
    size = sure.size
    chances = np.full(size, -1.0) if uniform is None else writable(uniform)
    tables = shared_tables(BIPARTITE, counts.blocks, counts.m_other, 1, decided=True)
    fresh = np.zeros((size, counts.m.size) if soft else (0, 0))
    left = (np.zeros(size), np.zeros(size), np.zeros(size))
    labels, none = np.empty(size, dtype=np.int32), np.zeros((0, 0))
    everybody = np.arange(size, dtype=np.int32)
    other = _seen(place, others, counts)
    mine = domain_of(place, everybody, none, sure, counts.m, counts.alpha)
    outcome = batch.Outcome(*left, fresh, *no_change(counts.blocks, mine))
    batch.choose_all(BIPARTITE, mine, other, tables, chances, labels, outcome)
    return labels, outcome


def _seen(place: Place, others: Copy, counts: Counts) -> Domain:
    """Return the other domain as it is seen from a place."""
    nobody = np.zeros(0, np.int32)
    return domain_of(place, nobody, others.q, others.sure, counts.m_other, 1.0)


def count_cells(shard: Shard, run: str, base: Base) -> tuple[Floats, Floats]:
    """Count links and unseen cells of the shard by the clusters of their ends."""
    copies = replicas(run).copies(base)
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
    base: Base,
    b: int,
) -> tuple[Floats, Floats]:
    """Add q_ik q_jl over the cells of the shard in one batch to the sums of those before it."""
    copies = replicas(run).copies(base)
    mine, others = copies[shard.d], copies[1 - shard.d]
    first, last = shard.layout.span(shard.number, b)
    q = mine.memberships(np.arange(first, last, dtype=np.int32))
    place = shard.segment(b)
    shape = (mine.clusters, others.clusters)
    before = (np.zeros(shape), np.zeros(shape)) if sums is None else sums
    links, unseen = (table.copy() for table in before)
    ends = (others.q, others.sure)
    add_outer_sums(place.link_start, place.link, q, *ends, links)
    add_outer_sums(place.unseen_start, place.unseen, q, *ends, unseen)
    return links, unseen


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
