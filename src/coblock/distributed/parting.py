"""Partings of all clusters at once: members take sides where they are, sides are counted here.

Profiles of members given labels are whole numbers, so sums over shards do not depend on their
order, and the partings are those of one machine.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coblock.distributed.board import carried
from coblock.distributed.crew import Crew
from coblock.distributed.replica import Letter, Versions, surely_current
from coblock.distributed.shard import Shard, domain_of, writable
from coblock.kernels import Floats, Indices, kernel
from coblock.kernels import moves as kernels
from coblock.moves import LEAST_GAIN, PASSES, Parting, draw_seeds
from coblock.partition import Partition

LEAST_RISE = 1e-9  # of the gain, for another pass
Sides = tuple[Floats, Floats, Floats]  # links n (2, L), non-links N (2, L), members m (2,)


@dataclass(frozen=True, slots=True)
class Profiles:
    """What the objects of a shard bring, by the clusters of the others, and their own labels."""

    labels: Indices
    n: NDArray[np.integer]  # (objects, L)
    N: NDArray[np.integer]

    def of(self, members: NDArray[np.integer]) -> tuple[Floats, Floats]:
        """Return the links and non-links of some of them."""
        return self.n[members].astype(np.float64), self.N[members].astype(np.float64)


@dataclass(slots=True)
class Trial:
    """A parting of cluster ``k`` around two members, pass after pass."""

    k: int
    now: Sides
    best: float = -np.inf
    led_there: Sides | None = None  # counts by which members took the best sides
    active: bool = True

    def judge(self, counted: Sides, prior: tuple[float, float]) -> None:
        """Look at the sides that members have taken."""
        gain = kernels.parting_gain(*counted, *prior)
        if gain > self.best + LEAST_RISE:
            self.best, self.led_there = gain, self.now
            self.now = counted
        else:
            self.active = False


def part_clusters(
    crew: Crew, partition: Partition, d: int, rng: np.random.Generator
) -> list[Parting]:
    """Return for every cluster the gain of the best parting found, and the members' sides."""
    for side in (0, 1):
        crew.board.show_labels(side, partition.labels[side], partition.m[side].size)
    letter = carried(crew.client, crew.board.letter(None), crew.key("tell", d))
    messages = crew.everywhere(d, crew.run, letter, crew.board.versions, partition.m[1 - d])
    profiles = crew.tell("profile", profile, d, messages)
    members, trials = _trials(crew, partition, d, rng, profiles)
    prior = (partition.a, partition.b)
    for _ in range(PASSES):
        active = [trial for trial in trials if trial.active]
        if not active:
            break
        wanted = [(trial.k, trial.now) for trial in active]
        messages = crew.everywhere(d, wanted, prior)
        answers = crew.ask("side", count_sides, d, messages, profiles)
        for trial, counts in zip(active, zip(*answers, strict=True), strict=True):
            n, N, m = (np.sum(tables, axis=0) for tables in zip(*counts, strict=True))
            trial.judge((n, N, m), prior)
    best = _best_by_cluster(trials, partition.m[d].size)
    return _with_sides(crew, partition, d, profiles, members, best)


def _trials(
    crew: Crew, partition: Partition, d: int, rng: np.random.Generator, profiles: list[Any]
) -> tuple[list[Indices], list[Trial]]:
    """Draw the seeds of every cluster, as one machine does, and ask for what they bring."""
    by_label = np.argsort(partition.labels[d], kind="stable").astype(np.int32)
    borders = np.cumsum(partition.m[d].astype(np.int64))[:-1]
    members = np.split(by_label, borders)
    seeds = [
        (k, mine[pair])
        for k, mine in enumerate(members)
        if mine.size > 1
        for pair in draw_seeds(mine.size, rng)
    ]
    if not seeds:
        return members, []
    objects = np.concatenate([pair for _, pair in seeds])
    shard, position = (home[objects] for home in crew.layouts[d].home)
    L = partition.m[1 - d].size
    n, N = np.empty((objects.size, L)), np.empty((objects.size, L))
    holders = np.unique(shard).tolist()
    messages = [(s, (position[shard == s],)) for s in holders]
    answers = crew.ask("seed", profiles_of, d, messages, profiles)
    for s, answer in zip(holders, answers, strict=True):
        n[shard == s], N[shard == s] = answer
    trials = [
        Trial(k, (n[2 * t : 2 * t + 2], N[2 * t : 2 * t + 2], np.ones(2)))
        for t, (k, _) in enumerate(seeds)
    ]
    return members, trials


def _best_by_cluster(trials: list[Trial], clusters: int) -> list[Trial | None]:
    best: list[Trial | None] = [None] * clusters
    for trial in trials:
        champion = best[trial.k]
        if champion is None or trial.best > champion.best:
            best[trial.k] = trial
    return best


def _with_sides(
    crew: Crew,
    partition: Partition,
    d: int,
    profiles: list[Any],
    members: list[Indices],
    best: list[Trial | None],
) -> list[Parting]:
    """Ask for the members' sides where a parting gains."""
    price = float(np.log(partition.alpha[d]))
    gains = [-np.inf if trial is None else trial.best + price for trial in best]
    accepted = [
        trial for trial, gain in zip(best, gains, strict=True) if trial and gain > LEAST_GAIN
    ]
    side: NDArray[Any] = np.zeros(partition.labels[d].size, dtype=np.int8)
    if accepted:
        wanted = [(trial.k, trial.led_there) for trial in accepted]
        messages = crew.everywhere(d, wanted, (partition.a, partition.b))
        side = crew.whole(d, crew.ask("side", tell_sides, d, messages, profiles))
    return [(gain, side[mine]) for gain, mine in zip(gains, members, strict=True)]


def profile(
    shard: Shard, run: str, letter: Letter, versions: Versions, m_other: Floats
) -> Profiles:
    """Count what all objects of a shard bring."""
    copies = surely_current(run, letter, versions)
    mine, others = copies[shard.d], copies[1 - shard.d]
    objects = shard.layout.objects(shard.number)
    m_other = writable(m_other)
    n, N = (np.empty((objects.size, m_other.size), np.int32) for _ in range(2))
    everybody, none = np.arange(objects.size, dtype=np.int32), np.zeros((0, 0))
    domain = domain_of(shard.place, everybody, none, mine.sure, m_other, 1.0)
    step = 4096  # the kernel counts in floats
    for first in range(0, objects.size, step):
        part = everybody[first : first + step]
        floats = np.empty((2, part.size, m_other.size))
        kernels.profiles(domain, part, others.sure, m_other, floats[0], floats[1])
        n[part], N[part] = floats
    return Profiles(mine.sure[objects], n, N)


def profiles_of(profiles: Profiles, members: Indices) -> tuple[Floats, Floats]:
    """Return the profiles of some objects."""
    return profiles.of(members)


def count_sides(
    profiles: Profiles, wanted: list[tuple[int, Sides]], prior: tuple[float, float]
) -> list[Sides]:
    """Let the members of clusters take sides; return the counts of both sides."""
    answers, last, n_plus, N_plus = [], -1, np.empty((0, 0)), np.empty((0, 0))
    for k, told in wanted:
        n, N, m = (writable(table) for table in told)
        if k != last:
            last = k
            n_plus, N_plus = profiles.of(np.flatnonzero(profiles.labels == k))
        side = kernels.take_sides(n_plus, N_plus, n, N, m, prior)
        counted = (np.zeros(n.shape), np.zeros(n.shape), np.zeros(2))
        _count(side, n_plus, N_plus, *counted)
        answers.append(counted)
    return answers


def tell_sides(
    profiles: Profiles, wanted: list[tuple[int, Sides]], prior: tuple[float, float]
) -> NDArray[np.int8]:
    """Return the sides that members of clusters take, and 0 for everybody else."""
    sides = np.zeros(profiles.labels.size, dtype=np.int8)
    for k, counts in wanted:
        members = np.flatnonzero(profiles.labels == k)
        n, N, m = (writable(table) for table in counts)
        sides[members] = kernels.take_sides(*profiles.of(members), n, N, m, prior)
    return sides


@kernel
def _count(
    side: np.ndarray, n_plus: Floats, N_plus: Floats, n: Floats, N: Floats, m: Floats
) -> None:
    """Count members, links and non-links of both sides."""
    for i in range(side.size):
        s = side[i]
        m[s] += 1.0
        for l in range(n.shape[1]):
            n[s, l] += n_plus[i, l]
            N[s, l] += N_plus[i, l]
