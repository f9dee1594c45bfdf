"""Partings of all clusters at once: members take sides where they are, sides are counted here.

Profiles of members given labels are whole numbers, so sums over shards do not depend on their
order, and the partings are those of one machine.
"""

from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from coblock.distributed.crew import Crew
from coblock.distributed.replica import Base, replicas
from coblock.distributed.shard import Shard, domain_of, writable
from coblock.kernels import Floats, Indices, kernel
from coblock.kernels import moves as kernels
from coblock.moves import LEAST_GAIN, PASSES, Parting, draw_seeds
from coblock.partition import Partition

LEAST_RISE = 1e-9  # of the gain, for another pass
STEP = 4096  # objects whose profiles the kernel counts at a time, in floats
Whole: TypeAlias = NDArray[np.integer]
Prior: TypeAlias = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Profiles:
    """What the objects of a shard bring, by the clusters of the others; their own clusters' order.

    All members of cluster ``k`` are from ``start[k]`` to ``start[k + 1]``.
    """

    start: Whole
    position: Whole  # where the objects were
    n: Whole  # (objects, L)
    N: Whole

    def of(self, k: int) -> tuple[Whole, Whole]:
        """Return the links and non-links of the members of a cluster."""
        members = slice(self.start[k], self.start[k + 1])
        return self.n[members], self.N[members]


@dataclass(slots=True)
class Trials:
    """Partings of clusters around two members each, pass after pass."""

    k: Whole  # (T,)
    n: Floats  # (T, 2, L)  links of both sides now
    N: Floats  # (T, 2, L)  non-links
    m: Floats  # (T, 2)  members
    best: Floats  # (T,)  largest gain so far
    active: NDArray[np.bool_]  # (T,)

    @classmethod
    def around(cls, k: Whole, n: Floats, N: Floats) -> "Trials":
        """Begin with two members a trial, which bring these links and non-links."""
        pairs = (k.size, 2, n.shape[1])
        ones, never = np.ones((k.size, 2)), np.full(k.size, -np.inf)
        return cls(k, n.reshape(pairs), N.reshape(pairs), ones, never, np.ones(k.size, bool))

    def message(self, which: Whole) -> tuple[Whole, ...]:
        """Return clusters and sides of some trials as they travel."""
        return (self.k[which], *(_small(table[which]) for table in (self.n, self.N, self.m)))

    def judge(self, which: Whole, n: Floats, N: Floats, m: Floats, prior: Prior) -> list[int]:
        """Look at the sides that members have taken; return the trials that gain by them."""
        gaining = []
        for t, counts in zip(which.tolist(), zip(n, N, m, strict=True), strict=True):
            gain = kernels.parting_gain(*counts, *prior)
            self.active[t] = gain > self.best[t] + LEAST_RISE
            if self.active[t]:
                self.best[t] = gain
                gaining.append(t)
        return gaining


def part_clusters(
    crew: Crew, partition: Partition, d: int, rng: np.random.Generator
) -> list[Parting]:
    """Return for every cluster the gain of the best parting found, and the members' sides."""
    base = crew.board.labels(partition.labels, tuple(m.size for m in partition.m))
    messages = crew.everywhere(d, crew.run, base, partition.m[1 - d])
    profiles = crew.tell("profile", profile, d, messages)
    members, trials = _begin(crew, partition, d, rng, profiles)
    prior = (partition.a, partition.b)
    led_there = [table.copy() for table in (trials.n, trials.N, trials.m)]  # to the best sides
    for _ in range(PASSES):
        which = np.flatnonzero(trials.active)
        if not which.size:
            break
        messages = crew.everywhere(d, trials.message(which), prior)
        answers = crew.ask("side", count_sides, d, messages, profiles)
        n, N, m = (np.sum(tables, axis=0, dtype=float) for tables in zip(*answers, strict=True))
        gaining = trials.judge(which, n, N, m, prior)
        at = np.searchsorted(which, gaining)
        pairs = zip((trials.n, trials.N, trials.m), (n, N, m), led_there, strict=True)
        for now, counted, before in pairs:
            before[gaining], now[gaining] = now[gaining], counted[at]
    trials.n, trials.N, trials.m = led_there
    return _with_sides(crew, partition, d, profiles, members, trials)


def _begin(
    crew: Crew, partition: Partition, d: int, rng: np.random.Generator, profiles: list[Any]
) -> tuple[list[Indices], Trials]:
    """Draw the seeds of every cluster, as one machine does, and ask for what they bring."""
    by_label = np.argsort(partition.labels[d], kind="stable").astype(np.int32)
    members = np.split(by_label, np.cumsum(partition.m[d].astype(np.int64))[:-1])
    seeds = [
        (k, mine[pair])
        for k, mine in enumerate(members)
        if mine.size > 1
        for pair in draw_seeds(mine.size, rng)
    ]
    none = [np.zeros(0, np.int32)]
    objects = np.concatenate([*(pair for _, pair in seeds), *none])
    shard, position = (home[objects] for home in crew.layouts[d].home)
    n, N = (np.empty((objects.size, partition.m[1 - d].size)) for _ in range(2))
    holders = np.unique(shard).tolist()
    if holders:
        messages = [(s, (position[shard == s],)) for s in holders]
        answers = crew.ask("seed", profiles_of, d, messages, profiles)
        for s, answer in zip(holders, answers, strict=True):
            n[shard == s], N[shard == s] = answer
    return members, Trials.around(np.array([k for k, _ in seeds], np.int32), n, N)


def _with_sides(
    crew: Crew,
    partition: Partition,
    d: int,
    profiles: list[Any],
    members: list[Indices],
    trials: Trials,
) -> list[Parting]:
    """Ask for the members' sides where the best parting of a cluster gains."""
    price = float(np.log(partition.alpha[d]))
    gains, champions = np.full(len(members), -np.inf), np.zeros(len(members), np.int64)
    for t, k in enumerate(trials.k.tolist()):  # of equal ones the first
        if trials.best[t] + price > gains[k]:
            gains[k], champions[k] = trials.best[t] + price, t
    accepted = champions[gains > LEAST_GAIN]
    side: NDArray[Any] = np.zeros(partition.labels[d].size, dtype=np.int8)
    if accepted.size:
        messages = crew.everywhere(d, trials.message(accepted), (partition.a, partition.b))
        side = crew.whole(d, crew.ask("side", tell_sides, d, messages, profiles))
    return [(float(gain), side[mine]) for gain, mine in zip(gains, members, strict=True)]


def profile(shard: Shard, run: str, base: Base, m_other: Floats) -> Profiles:
    """Count what all objects of a shard bring."""
    copies = replicas(run).copies(base)
    mine, others = copies[shard.d], copies[1 - shard.d]
    labels = mine.sure[shard.layout.objects(shard.number)]
    position = np.argsort(labels, kind="stable").astype(np.int32)
    m_other = writable(m_other)
    n, N = (np.empty((labels.size, m_other.size), np.int32) for _ in range(2))
    domain = domain_of(shard.place, position, np.zeros((0, 0)), mine.sure, m_other, 1.0)
    for first in range(0, labels.size, STEP):
        part = slice(first, min(first + STEP, labels.size))
        floats = np.empty((2, part.stop - first, m_other.size))
        kernels.profiles(domain, position[part], others.sure, m_other, floats[0], floats[1])
        n[part], N[part] = floats
    start = np.concatenate(([0], np.cumsum(np.bincount(labels, minlength=mine.clusters))))
    return Profiles(start, position, n, N)


def profiles_of(profiles: Profiles, members: Indices) -> tuple[Floats, Floats]:
    """Return the profiles of some objects."""
    at = np.empty_like(profiles.position)
    at[profiles.position] = np.arange(at.size, dtype=at.dtype)
    return profiles.n[at[members]].astype(float), profiles.N[at[members]].astype(float)


def count_sides(
    profiles: Profiles, wanted: tuple[Whole, ...], prior: Prior
) -> tuple[Whole, Whole, Whole]:
    """Let the members of clusters take sides; return the counts of both sides, by trial."""
    clusters, sides = wanted[0], [table.astype(float) for table in wanted[1:]]
    n, N, m = (np.zeros_like(table) for table in sides)
    for t, k in enumerate(clusters.tolist()):
        brought = profiles.of(k)
        side = _take_sides(brought, sides, t, prior)
        _count(side, *brought, n[t], N[t], m[t])
    return _small(n), _small(N), _small(m)


def tell_sides(profiles: Profiles, wanted: tuple[Whole, ...], prior: Prior) -> NDArray[np.int8]:
    """Return the sides that members of clusters take, and 0 for everybody else."""
    clusters, told = wanted[0], [table.astype(float) for table in wanted[1:]]
    sides = np.zeros(profiles.position.size, dtype=np.int8)
    for t, k in enumerate(clusters.tolist()):
        members = profiles.position[profiles.start[k] : profiles.start[k + 1]]
        sides[members] = _take_sides(profiles.of(k), told, t, prior)
    return sides


def _take_sides(
    brought: tuple[Whole, Whole], sides: list[Floats], t: int, prior: Prior
) -> NDArray[Any]:
    """Return the side of each member in trial ``t``; the kernel takes whole numbers as floats."""
    n_plus, N_plus = cast("tuple[Floats, Floats]", brought)
    n, N, m = (table[t] for table in sides)
    return kernels.take_sides(n_plus, N_plus, n, N, m, prior)


def _small(table: NDArray[Any]) -> Whole:
    """Return whole numbers as they travel."""
    small = table.max(initial=0.0) <= np.iinfo(np.int32).max
    return table.astype(np.int32 if small else np.int64)


@kernel
def _count(side: np.ndarray, n_plus: Whole, N_plus: Whole, n: Floats, N: Floats, m: Floats) -> None:
    """Count members, links and non-links of both sides."""
    for i in range(side.size):
        s = side[i]
        m[s] += 1.0
        for l in range(n.shape[1]):
            n[s, l] += n_plus[i, l]
            N[s, l] += N_plus[i, l]
