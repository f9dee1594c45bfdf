"""Partings of all clusters at once: members take sides where they are, and sides are counted.

Cells are counted in whole numbers, so sums over shards do not depend on their order, and the
partings are those of one machine.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias
from uuid import uuid4

import numpy as np
from distributed import Future
from numpy.typing import NDArray

from coblock.distributed.connection import ask
from coblock.distributed.course import SIDES
from coblock.distributed.crew import Crew
from coblock.distributed.replica import Base, replicas
from coblock.distributed.shard import Shard, domain_of, writable
from coblock.inference.moves import LEAST_GAIN, PASSES, Parting, draw_seeds
from coblock.kernels import Floats, Indices, partings
from coblock.kernels.partings import LEAST_RISE, Sides, no_sides
from coblock.model.partition import Partition

Whole: TypeAlias = NDArray[np.integer]
Prior: TypeAlias = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Profiles:
    """What the objects of a shard bring, in the order of their clusters.

    All members of cluster ``k`` are from ``start[k]`` to ``start[k + 1]``.
    """

    start: Whole
    position: Indices  # where the objects were
    brought: partings.Profiles
    cells: Floats  # (L,)  of each block that an object has

    def of(self, k: int) -> partings.Profiles:
        """Return the profiles of the members of a cluster, without a copy."""
        members = slice(self.start[k], self.start[k + 1] + 1)
        brought = self.brought
        return brought._replace(
            link_start=brought.link_start[members], unseen_start=brought.unseen_start[members]
        )


@dataclass(frozen=True, slots=True)
class Trials:
    """Partings of clusters around two members each: both sides of those that still gain.

    The answer of a shard counts its own members; those of all shards are added up.
    """

    which: Whole  # (W,)  of the T trials
    n: Whole  # (W, 2, L)  links of both sides
    N: Whole  # (W, 2, L)  non-links
    m: Whole  # (W, 2)  members
    best: Floats  # (T,)  largest gain so far,
    since: Whole  # (T,)  and the pass that found it

    @property
    def tables(self) -> tuple[Whole, Whole, Whole]:
        """What is counted of both sides."""
        return self.n, self.N, self.m

    def of(self, trials: Whole) -> tuple[Whole, ...]:
        """Return the tables of some of these trials, which ascend."""
        at = np.searchsorted(self.which, trials)
        return tuple(table[at] for table in self.tables)


def added(answers: list[Trials]) -> Trials:
    """Return the sides that all shards have counted together."""
    tables = zip(*(answer.tables for answer in answers), strict=True)
    n, N, m = (np.stack(table).sum(axis=0, dtype=np.int64) for table in tables)
    return replace(answers[0], n=n, N=N, m=m)


def judged(counted: Trials, number: int, prior: Prior) -> Trials:
    """Look at the sides taken in a pass; return the trials that gain by them."""
    best, since = counted.best.copy(), counted.since.copy()
    tables = [table.astype(float) for table in counted.tables]
    gaining = np.zeros(counted.which.size, dtype=bool)
    for at, t in enumerate(counted.which.tolist()):
        sides = Sides(*(table[at] for table in tables))
        gain = partings.parting_gain(sides, prior, partings.undivided_values(sides, prior))
        gaining[at] = gain > best[t] + LEAST_RISE
        if gaining[at]:
            best[t], since[t] = gain, number
    links, others, members = (table[gaining] for table in counted.tables)
    return Trials(counted.which[gaining], links, others, members, best, since)


@dataclass(frozen=True)
class Round:
    """Partings of all clusters of a domain: one graph, in which every pass goes on from the last.

    Workers judge for themselves, all alike, so that nobody waits for the client between passes.
    """

    crew: Crew
    d: int
    clusters: Whole  # (T,)  that are parted, by trial
    prior: Prior
    profiles: list[Future]
    opening: Future
    passes: list[list[Future]]  # by shard

    @classmethod
    def begin(
        cls, crew: Crew, partition: Partition, d: int, seeds: list[tuple[int, Indices]]
    ) -> "Round":
        """Send everything to the workers; ``seeds`` are clusters and two members of each."""
        name, shards = f"{SIDES[d]}-{uuid4().hex}", range(crew.layouts[d].used)
        base = crew.board.labels(partition.labels, tuple(m.size for m in partition.m))
        clusters = np.array([k for k, _ in seeds], np.int32)
        prior = (partition.a, partition.b)
        graph: dict[str, Any] = {}
        profiles = [f"coblock-profile-{name}-{s}" for s in shards]
        for s, key in enumerate(profiles):
            graph[key] = (profile, crew.shards[d][s], crew.run, base, partition.m[1 - d])
        shard, position = (
            home[np.concatenate([pair for _, pair in seeds])] for home in crew.layouts[d].home
        )
        brought = [(profiles_of, key, position[shard == s]) for s, key in enumerate(profiles)]
        opening = f"coblock-seed-{name}"
        graph[opening] = (open_round, brought, shard)
        before, passes = [opening], []
        for number in range(PASSES):
            keys = [f"coblock-side-{name}-{number}-{s}" for s in shards]
            for s, key in enumerate(keys):
                graph[key] = (count_sides, profiles[s], clusters, before, number, prior)
            before = keys
            passes.append(keys)
        wanted = [*profiles, opening, *(key for keys in passes for key in keys)]
        futures = iter(crew.client.get(graph, wanted, sync=False))
        held = [next(futures) for _ in profiles]
        first = next(futures)
        asked = [[next(futures) for _ in keys] for keys in passes]
        return cls(crew, d, clusters, prior, held, first, asked)

    def end(self) -> Trials:
        """Return what all passes have come to."""
        return judged(added(ask(self.crew.client, self.passes[-1])), PASSES, self.prior)

    def sides(self, trials: Whole, since: Whole) -> NDArray[np.int8]:
        """Return the sides of all objects in the best parting of some trials, else 0.

        They take them again, against the sides that have led there.
        """
        parts = []
        for number in np.unique(since).tolist():
            mine = trials[since == number]
            led_there = [self.opening] if number == 1 else self.passes[number - 2]
            parts.append((mine, *added(ask(self.crew.client, led_there)).of(mine)))
        which, *tables = (np.concatenate(part) for part in zip(*parts, strict=True))
        message = (self.clusters[which], *map(_small, tables))
        messages = self.crew.everywhere(self.d, message, self.prior)
        told = self.crew.ask("side", tell_sides, self.d, messages, self.profiles)
        return self.crew.whole(self.d, told)


def part_clusters(
    crew: Crew, partition: Partition, d: int, rng: np.random.Generator
) -> list[Parting]:
    """Return for every cluster the gain of the best parting found, and the members' sides."""
    by_label = np.argsort(partition.labels[d], kind="stable").astype(np.int32)
    members = np.split(by_label, np.cumsum(partition.m[d].astype(np.int64))[:-1])
    seeds = [
        (k, mine[pair])
        for k, mine in enumerate(members)
        if mine.size > 1
        for pair in draw_seeds(mine.size, rng)
    ]
    gains = np.full(len(members), -np.inf)
    side: NDArray[Any] = np.zeros(partition.labels[d].size, dtype=np.int8)
    if seeds:
        going = Round.begin(crew, partition, d, seeds)
        found = going.end()
        price, champions = float(np.log(partition.alpha[d])), np.zeros(len(members), np.int64)
        for t, k in enumerate(going.clusters.tolist()):  # of equal ones the first
            if found.best[t] + price > gains[k]:
                gains[k], champions[k] = found.best[t] + price, t
        accepted = np.sort(champions[gains > LEAST_GAIN])
        if accepted.size:
            side = going.sides(accepted, found.since[accepted])
    return [(float(gain), side[mine]) for gain, mine in zip(gains, members, strict=True)]


def profile(shard: Shard, run: str, base: Base, m_other: Floats) -> Profiles:
    """Note what all objects of a shard bring."""
    copies = replicas(run).copies(base)
    mine, others = copies[shard.d], copies[1 - shard.d]
    labels, cells = mine.sure[shard.layout.objects(shard.number)], writable(m_other)
    position = np.argsort(labels, kind="stable").astype(np.int32)
    domain = domain_of(shard.place, position, np.zeros((0, 0)), mine.sure, cells, 1.0)
    brought = partings.profiles(domain, position, others.sure, cells.size)
    start = np.concatenate(([0], np.cumsum(np.bincount(labels, minlength=mine.clusters))))
    return Profiles(start, position, brought, cells)


def profiles_of(profiles: Profiles, members: Indices) -> tuple[Floats, Floats]:
    """Return the links and non-links of some objects, each by itself."""
    at = np.empty_like(profiles.position)
    at[profiles.position] = np.arange(at.size, dtype=at.dtype)
    sides = no_sides(members.size, profiles.cells.size)
    each = np.arange(members.size)
    partings.count_sides(profiles.brought, at[members], each, profiles.cells, sides)
    return sides.n, sides.N


def open_round(brought: list[tuple[Floats, Floats]], shard: Indices) -> Trials:
    """Return trials with one member on each side; ``shard`` says who of them is from where."""
    count, others = shard.size // 2, brought[0][0].shape[1]
    n, N = (np.empty((shard.size, others), np.int64) for _ in range(2))
    for s, answer in enumerate(brought):
        n[shard == s], N[shard == s] = answer
    pairs = (count, 2, others)
    members, never = np.ones((count, 2), np.int64), np.full(count, -np.inf)
    which, no_pass = np.arange(count, dtype=np.int32), np.zeros(count, np.int8)
    return Trials(which, n.reshape(pairs), N.reshape(pairs), members, never, no_pass)


def count_sides(
    profiles: Profiles, clusters: Whole, before: list[Trials], number: int, prior: Prior
) -> Trials:
    """Let members of clusters take the sides that the pass before has left; count both sides."""
    now = judged(added(before), number, prior) if number else before[0]
    counts = [np.zeros(table.shape) for table in now.tables]
    for at, k in enumerate(clusters[now.which].tolist()):
        brought, side = profiles.of(k), _take_sides(profiles, k, now.tables, at, prior)
        everybody, counted = np.arange(side.size), Sides(*(table[at] for table in counts))
        partings.count_sides(brought, everybody, side, profiles.cells, counted)
    n, N, m = map(_small, counts)
    return replace(now, n=n, N=N, m=m)


def tell_sides(profiles: Profiles, wanted: tuple[Whole, ...], prior: Prior) -> NDArray[np.int8]:
    """Return the sides that members of clusters take, and 0 for everybody else."""
    clusters, *tables = wanted
    sides = np.zeros(profiles.position.size, dtype=np.int8)
    for t, k in enumerate(clusters.tolist()):
        members = profiles.position[profiles.start[k] : profiles.start[k + 1]]
        sides[members] = _take_sides(profiles, k, tables, t, prior)
    return sides


def _take_sides(
    profiles: Profiles, k: int, tables: Sequence[Whole], t: int, prior: Prior
) -> NDArray[np.int8]:
    """Return the side that each member of cluster ``k`` takes in trial ``t``."""
    sides = Sides(*(table[t].astype(float) for table in tables))
    return partings.take_sides(profiles.of(k), profiles.cells, sides, prior)


def _small(table: NDArray[Any]) -> Whole:
    """Return whole numbers as they travel."""
    small = table.max(initial=0.0) <= np.iinfo(np.int32).max
    return table.astype(np.int32 if small else np.int64)
