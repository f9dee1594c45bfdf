"""Sweeps in batches: objects scored against the same counts, spread over threads.

The parts into which a batch is cut, and the order in which their sums are added, do not depend
on the number of threads; neither, therefore, does a single bit of the result.
"""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TypeAlias, TypeVar

import numpy as np

from coblock.inference import moves
from coblock.kernels import Blocks, Domain, Floats, Indices, batch
from coblock.kernels.memberships import next_is_row
from coblock.kernels.tables import shared_tables
from coblock.model.counts import Changes, Sums, climb, own_cells
from coblock.model.partition import Partition
from coblock.model.state import State

BATCHES = 16  # per sweep and domain, where the user names no size
SEQUENTIAL_UP_TO = 1000  # objects in all; so few are best taken one after another
PARTS, SMALLEST_PART = 8, 128  # of a batch, for the threads
CALM = 1e-5  # memberships that move less may rest, as may those
CALM_BESIDE = 0.2  # that move less than this share of the average,
LONGEST_REST = 7  # for so many sweeps at most

Part = TypeVar("Part")
Answer = TypeVar("Answer")
Turn: TypeAlias = tuple[int, Indices, list[slice]]  # domain, objects visited together, their parts


@dataclass(frozen=True, slots=True)
class Schedule:
    """Which objects are visited together, and by whom."""

    batch_size: int | tuple[int, int] | None = None  # None: chosen by the number of objects
    threads: Executor | None = None

    def is_sequential(self, sizes: tuple[int, ...]) -> bool:
        """Say whether objects are visited one after another."""
        return all(self.size_of(sizes, d) == 1 for d in range(len(sizes)))

    def size_of(self, sizes: tuple[int, ...], d: int) -> int:
        """Return how many objects of domain ``d`` are visited together."""
        if self.batch_size is not None:
            return self.batch_size if isinstance(self.batch_size, int) else self.batch_size[d]
        return 1 if sum(sizes) <= SEQUENTIAL_UP_TO else -(-sizes[d] // BATCHES)

    def in_batches(self, sizes: tuple[int, ...]) -> "Schedule":
        """Return a schedule that visits several objects together, however few there are."""
        if not self.is_sequential(sizes):
            return self
        return replace(self, batch_size=-(-max(sizes) // BATCHES))

    def coarser(self, sizes: tuple[int, ...], count: int) -> "Schedule":
        """Return a schedule with so many batches a domain, where the user names no size.

        Few objects still have as many batches as in any sweep.
        """
        if self.batch_size is not None or self.is_sequential(sizes):
            return self.in_batches(sizes)
        return replace(self, batch_size=(-(-sizes[0] // count), -(-sizes[-1] // count)))

    @property
    def borders_stay(self) -> bool:
        """Whether an object is in the same batch and part in every sweep, who ever rests."""
        return self.batch_size is not None

    def turns(
        self, sizes: tuple[int, ...], present: tuple[int, ...] | None = None
    ) -> Iterator[tuple[int, slice]]:
        """Yield the domain and the objects of each batch; rows and columns take turns.

        They are taken from those ``present``, if those are fewer.
        """
        size = [self.size_of(sizes, d) for d in range(len(sizes))]
        count = [-(-objects // s) for objects, s in zip(present or sizes, size, strict=True)]
        done = [0] * len(sizes)
        while done != count:
            d = 0 if len(sizes) == 1 or next_is_row(*done, *count) else 1
            yield d, slice(done[d] * size[d], (done[d] + 1) * size[d])
            done[d] += 1

    def visits_of(self, sizes: tuple[int, ...], due: list[Indices]) -> list[Turn]:
        """Return who of those that are due is visited together: batches of the same size."""
        if not self.borders_stay:
            turns = self.turns(sizes, tuple(objects.size for objects in due))
            batches = [(d, due[d][which]) for d, which in turns]
            return [(d, objects, cut(objects.size)) for d, objects in batches]
        found = []
        for d, objects in self.turns(sizes):
            first, last, _ = objects.indices(sizes[d])
            chosen = due[d][slice(*np.searchsorted(due[d], (first, last)))]
            borders = [*(first + part.start for part in cut(last - first)), last]
            parts = [slice(*pair) for pair in pairwise(np.searchsorted(chosen, borders).tolist())]
            found.append((d, chosen, parts))
        return [turn for turn in found if turn[1].size]

    def map(self, function: Callable[[Part], Answer], parts: Iterable[Part]) -> list[Answer]:
        """Return the answers for all parts, in their order."""
        parts = list(parts)
        if self.threads is None or len(parts) == 1:
            return [function(part) for part in parts]
        return list(self.threads.map(function, parts))

    def part_clusters(
        self, partition: Partition, d: int, rng: np.random.Generator
    ) -> list[moves.Parting]:
        """Return for every cluster of domain ``d`` the best parting found."""
        return moves.part_clusters(partition, d, rng, self.map)

    def expect_visits(self, state: State, turns: list[Turn], step: float) -> None:
        """Hear of all visits of a sweep before the first; here nothing is done ahead."""

    def hear_of_order(self, before: State, after: State, order: list[Indices]) -> None:
        """Hear that a state has become another one, with its clusters in this order."""

    def expect_choices(
        self, partition: Partition, turns: list[tuple[int, slice]], uniform: Floats, *, soft: bool
    ) -> None:
        """Hear of all choices of a sweep before the first; here nothing is done ahead.

        ``soft`` says whether memberships are wanted, too.
        """

    def renew(
        self,
        state: State,
        d: int,
        objects: Indices,
        parts: list[slice],
        visits: "Visits",
        step: float,
    ) -> tuple[list[batch.Outcome], Floats]:
        """Visit objects of domain ``d``; return the outcomes by part, and new memberships."""
        code, domain, other = state.relation.code, state.domain(d), state.domain(-1 - d)
        blocks = state.blocks(d)
        tables = shared_tables(code, blocks, other.m, len(domain.places))
        fresh = np.empty((objects.size, domain.m.size))

        def visit(part: slice) -> batch.Outcome:
            outcome = visits.outcome(d, fresh[part], no_change(blocks, domain))
            chosen = domain._replace(order=objects[part])
            batch.visit_all(code, chosen, other, tables, step, outcome)
            return outcome

        return self.map(visit, parts), fresh

    def choose(
        self,
        partition: Partition,
        d: int,
        objects: Indices,
        uniform: Floats,
        visits: "Visits",
        memberships: Floats,
    ) -> tuple[list[batch.Outcome], Indices]:
        """Visit objects of domain ``d``; return what changes, by part, and new labels.

        Where there is room in ``memberships``, those given the other objects' labels are added.
        """
        relation = partition.relation
        code, domain, other = relation.code, partition.domain(d), partition.domain(-1 - d)
        blocks = partition.blocks(d)
        tables = shared_tables(code, blocks, other.m, len(domain.places), decided=True)
        fresh = np.empty(objects.size, dtype=np.int32)

        def choose(part: slice) -> batch.Outcome:
            outcome = visits.outcome(d, memberships[part], no_change(blocks, domain))
            chosen = domain._replace(order=objects[part])
            batch.choose_all(code, chosen, other, tables, uniform, fresh[part], outcome)
            return outcome

        return self.map(choose, cut(objects.size)), fresh


@dataclass(slots=True)
class Visits:
    """What the last visit of every object has left, and when it is due again."""

    log_normaliser: list[Floats]
    entropy: list[Floats]
    moved: list[Floats]
    rest: list[Indices]  # sweeps between visits
    due: list[Indices]  # sweeps until the next one
    complete: bool = False  # whether the last sweep visited everybody

    @classmethod
    def none(cls, sizes: tuple[int, ...]) -> "Visits":
        """Return the visits before the first sweep: everybody is due."""

        def zeros(kind: type) -> list[np.ndarray]:
            return [np.zeros(size, dtype=kind) for size in sizes]

        return cls(zeros(float), zeros(float), zeros(float), zeros(np.int32), zeros(np.int32))

    def outcome(self, d: int, fresh: Floats, changes: Changes) -> batch.Outcome:
        """Return where visits of domain ``d`` leave what they find."""
        left = (self.log_normaliser[d], self.entropy[d], self.moved[d])
        return batch.Outcome(*left, fresh, *changes)

    def of_sweep(self, d: int, everybody: bool) -> Indices:
        """Return who of domain ``d`` is visited."""
        due = np.ones(self.due[d].size, dtype=bool) if everybody else self.due[d] <= 0
        return np.flatnonzero(due).astype(np.int32)

    def end_sweep(self, d: int, visited: Indices, change: float) -> None:
        """Let objects that hardly moved, by themselves or beside the others, rest longer each time.

        ``change`` is how far objects have moved on average.
        """
        rest, due = self.rest[d], self.due[d]
        calm = self.moved[d][visited] < max(CALM, CALM_BESIDE * change)
        rest[visited] = np.where(calm, np.minimum(2 * rest[visited] + 1, LONGEST_REST), 0)
        due -= 1
        due[visited] = rest[visited]


def sweep_memberships(
    state: State,
    visits: Visits,
    schedule: Schedule,
    *,
    everybody: bool = True,
    step: float = 1.0,
) -> tuple[float, float, float]:
    """Renew memberships by CVB0; return leave-one-out, entropy and mean change per object.

    ``step`` is the fraction of the way that memberships go.
    """
    sizes = state.relation.sizes
    due = [visits.of_sweep(d, everybody) for d in range(len(sizes))]
    turns = schedule.visits_of(sizes, due)
    schedule.expect_visits(state, turns, step)
    for d, chosen, parts in turns:
        _renew_batch(state, d, chosen, parts, visits, schedule, step)
    changes = []
    for d, size in enumerate(sizes):
        changes.append(float(visits.moved[d][due[d]].sum()) / size)
        visits.end_sweep(d, due[d], changes[-1])
    visits.complete = sum(objects.size for objects in due) == sum(sizes)
    leave_one_out = sum(float(x.sum()) for x in visits.log_normaliser)
    return leave_one_out, sum(float(x.sum()) for x in visits.entropy), max(changes)


def _renew_batch(
    state: State,
    d: int,
    objects: Indices,
    parts: list[slice],
    visits: Visits,
    schedule: Schedule,
    step: float,
) -> None:
    """Renew the memberships of objects of one domain against the same counts."""
    outcomes, fresh = schedule.renew(state, d, objects, parts, visits, step)
    domain, shape = state.domain(d), state.blocks(d).n.shape

    def look_around(part: slice) -> Floats:
        sums = np.zeros((3, *shape))
        chosen = domain._replace(order=objects[part])
        batch.sums_of_neighbours(chosen, visits.moved[d], fresh[part], sums)
        return sums

    batch.put_back(domain._replace(order=objects), fresh)
    neighbours = schedule.map(look_around, parts) if state.relation.one_domain else []
    absorb(state.sums, state.m, d, outcomes, neighbours)
    if state.relation.kind == "directed":
        state.sums.own += own_cells(state.relation)[:, objects] @ (state.q[0][objects] - fresh)
    state.derive_tables()


def conditional_memberships(partition: Partition, schedule: Schedule) -> list[Floats]:
    """Return p(z_i | all other labels) of every object, by domain.

    eq:IRM_2dom_Gibbs_z_1i_posterior without the new cluster; nobody moves.
    """
    visits, found = Visits.none(partition.relation.sizes), []
    for d, size in enumerate(partition.relation.sizes):
        best = np.full(size, -1.0)
        q = np.zeros((size, partition.m[d].size))
        schedule.choose(partition, d, np.arange(size, dtype=np.int32), best, visits, q)
        found.append(q)
    return found


def choose_labels(
    partition: Partition,
    uniform: Floats,
    schedule: Schedule,
    total: list[Floats] | None = None,
) -> float:
    """Draw or choose all labels of a partition in batches; return the log normalisers' sum.

    Clusters keep their numbers, also where one is left empty. The probabilities by which labels
    are drawn are added to ``total``, if that is given.
    """
    sizes = partition.relation.sizes
    visits, turns = Visits.none(sizes), list(schedule.turns(sizes))
    schedule.expect_choices(partition, turns, uniform, soft=total is not None)
    nothing = np.empty((0, 0))
    for d, objects in turns:
        first, last, _ = objects.indices(sizes[d])
        chosen, mine = np.arange(first, last, dtype=np.int32), uniform[sum(sizes[:d]) :]
        q = nothing if total is None else total[d][objects]
        _choose_batch(partition, d, chosen, mine, visits, schedule, q)
    return sum(float(x.sum()) for x in visits.log_normaliser)


def _choose_batch(
    partition: Partition,
    d: int,
    objects: Indices,
    uniform: Floats,
    visits: Visits,
    schedule: Schedule,
    memberships: Floats,
) -> None:
    """Give objects of one domain new labels, all against the same counts."""
    outcomes, chosen = schedule.choose(partition, d, objects, uniform, visits, memberships)
    partition.labels[d][objects] = chosen
    if partition.relation.one_domain:
        partition.count(partition.m[0].size)
        return
    absorb(partition.sums, partition.m, d, outcomes, [])
    partition.derive_tables()


def cut(objects: int) -> list[slice]:
    """Return the parts of a batch that threads share."""
    size = -(-objects // min(PARTS, max(objects // SMALLEST_PART, 1)))
    return [slice(start, start + size) for start in range(0, objects, size)]


def absorb(
    sums: Sums, m: list[Floats], d: int, outcomes: list[batch.Outcome], neighbours: list[Floats]
) -> None:
    """Add what the parts of a batch have changed, in a tree."""
    leaves = {(0, i): (part.m, part.links, part.unseen) for i, part in enumerate(outcomes)}
    (change,) = climb(leaves, len(leaves)).values()
    take_in(sums, m, d, change)
    for links, unseen, together in neighbours:
        sums.links += links.T
        sums.unseen += unseen.T
        sums.together += together


def take_in(sums: Sums, m: list[Floats], d: int, change: Changes) -> None:
    """Add what a batch of domain ``d`` has changed in all."""
    m[d] += change[0]
    sums.links += change[1].T if d == 0 else change[1]
    if change[2].size:
        sums.unseen += change[2].T if d == 0 else change[2]
    np.maximum(m[d], 0.0, out=m[d])


def no_change(blocks: Blocks, domain: Domain) -> Changes:
    """Return changes of sizes, links and unseen cells, if there are such, that are all zero."""
    K, L = blocks.n.shape
    some_unseen = domain.places[0].unseen.size > 0
    return np.zeros(K), np.zeros((L, K)), np.zeros((L, K) if some_unseen else (0, 0))
