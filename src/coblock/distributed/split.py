"""Splits of all clusters of a domain at once: shards assign their members to sides and count them.

Cells are counted in whole numbers, so sums over shards do not depend on their order, and the
splits are those of one machine.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from distributed import Future
from numpy.typing import NDArray

from coblock.distributed.layout import Shard
from coblock.distributed.replication import (
    MembershipSnapshot,
    compact_counts,
    domain_view,
    worker_state,
    writable,
)
from coblock.distributed.shards import ShardPool
from coblock.inference.engine import Split, draw_seeds, shared_prior
from coblock.inference.settings import SEARCH
from coblock.kernels import Floats, Indices, split
from coblock.kernels.split import Profiles, SideCounts
from coblock.model.partition import Partition

Tables: TypeAlias = Sequence[NDArray[Any]]  # n, N (trials, 2, L) and m (trials, 2) of both sides
Prior: TypeAlias = tuple[float, float]


@dataclass(frozen=True, slots=True)
class ShardProfiles:
    """Profiles of the objects of a shard, sorted by cluster.

    Members of cluster ``k`` are from ``start[k]`` to ``start[k + 1] - 1``.
    """

    shard: int
    start: NDArray[np.int64]
    position: Indices  # of the objects in the shard
    profiles: Profiles
    cells: Floats  # (L,)  cells of an object in each block

    def members(self, k: int) -> Profiles:
        """Return the profiles of the members of a cluster, without a copy."""
        rows, found = slice(self.start[k], self.start[k + 1] + 1), self.profiles
        return Profiles(found.link_start[rows], found.link, found.unseen_start[rows], found.unseen)

    def sides(self, k: int, tables: Tables, t: int, prior: Prior) -> NDArray[np.int8]:
        """Return the side of each member of cluster ``k``, given the counts of trial ``t``."""
        counts = SideCounts(*(table[t].astype(float) for table in tables))
        return split.assign_sides(self.members(k), self.cells, counts, prior)


def split_clusters(
    pool: ShardPool, partition: Partition, d: int, rng: np.random.Generator, snapshot: Future
) -> list[Split]:
    """Return the best split found of every cluster: its gain, and the side of each member.

    Sides are computed only for splits that gain.
    """
    label, prior = partition.labels[d], shared_prior(partition)
    by_label = np.argsort(label, kind="stable").astype(np.int32)
    members = np.split(by_label, np.cumsum(partition.m[d].astype(np.int64))[:-1])
    trials = [
        (k, some[pair]) for k, some in enumerate(members) for pair in draw_seeds(some.size, rng)
    ]
    gains, side = np.full(len(members), -np.inf), np.zeros(label.size, np.int8)
    if trials:
        cells = partition.m[1 - d].copy()
        profiles = pool.submit(
            "profile", shard_profiles, pool.shards[d], pool.run_id, snapshot, cells
        )
        clusters = np.array([k for k, _ in trials], np.int32)
        seeds = np.concatenate([pair for _, pair in trials])
        gain, tables = run_trials(pool, d, profiles, clusters, seeds, prior)
        best = np.zeros(len(members), np.int64)
        for t, k in enumerate(clusters.tolist()):  # the first of equal ones
            if gain[t] > gains[k]:
                gains[k], best[k] = gain[t], t
        gains += float(np.log(partition.hyper.alpha[d]))
        accepted = best[gains > SEARCH.least_gain]
        wanted = [compact_counts(table[accepted]) for table in tables]
        message = (profiles, clusters[accepted], wanted, prior)
        if accepted.size:
            side = pool.join(d, pool.map("split", find_sides, *message))
    return [(float(gain), side[some]) for gain, some in zip(gains, members, strict=True)]


def run_trials(
    pool: ShardPool,
    d: int,
    profiles: list[Future],
    clusters: Indices,
    seeds: Indices,
    prior: Prior,
) -> tuple[Floats, Tables]:
    """Split clusters around two members each, pass after pass until none gains.

    Returns the gain of each trial, and the counts from which its best sides were assigned.
    """

    def count(name: str, function: Callable[..., Tables], *message: Any) -> Tables:
        results = zip(*pool.map(name, function, profiles, *message), strict=True)
        return [np.stack(tables).sum(0, dtype=np.int64) for tables in results]

    home = tuple(where[seeds] for where in pool.layouts[d].home)
    counted = count("seed", count_seeds, *home)
    shape, active = (clusters.size, 2, -1), np.arange(clusters.size)
    tables: Tables = [*(table.reshape(shape) for table in counted), np.ones(shape[:2], np.int64)]
    best, best_tables = np.full(clusters.size, -np.inf), [table.copy() for table in tables]
    for _ in range(SEARCH.split_passes):
        message = (clusters[active], [compact_counts(table) for table in tables], prior)
        counted = count("side", assign_and_count, *message)
        sides = [SideCounts(*(t.astype(float) for t in row)) for row in zip(*counted, strict=True)]
        unsplit = (split.unsplit_values(counts, prior) for counts in sides)
        gain = np.array(
            [split.split_gain(s, prior, u) for s, u in zip(sides, unsplit, strict=True)]
        )
        gaining = gain > best[active] + split.LEAST_GAIN
        active = active[gaining]
        if active.size == 0:
            break
        best[active] = gain[gaining]
        for kept, table in zip(best_tables, tables, strict=True):
            kept[active] = table[gaining]
        tables = [table[gaining] for table in counted]
    return best, best_tables


def shard_profiles(
    shard: Shard, run: str, snapshot: MembershipSnapshot, cells: Floats
) -> ShardProfiles:
    """Return the profiles of all objects of a shard."""
    domains = worker_state(run).domains(snapshot)
    own, other, cells = domains[shard.d], domains[1 - shard.d], writable(cells)
    label = own.hard[shard.objects]
    position = np.argsort(label, kind="stable").astype(np.int32)
    domain = domain_view(shard.incidence, np.zeros((0, 0)), label, cells, 1.0)
    profiles = split.member_profiles(domain, position, other.hard, cells.size)
    start = np.concatenate(([0], np.cumsum(np.bincount(label, minlength=own.clusters))))
    return ShardProfiles(shard.number, start, position, profiles, cells)


def count_seeds(shard: ShardProfiles, home: Indices, position: Indices) -> Tables:
    """Return the links and the observed non-links of each seed, 0 for those of other shards.

    The seeds are given by their shard and their position in it.
    """
    at = np.empty(shard.position.size, np.int64)
    at[shard.position] = np.arange(at.size)
    mine: NDArray[Any] = np.flatnonzero(home == shard.shard)
    counts = split.zero_counts(home.size, shard.cells.size)
    split.count_sides(shard.profiles, at[position[mine]], mine, shard.cells, counts)
    return compact_counts(counts.n), compact_counts(counts.N)


def assign_and_count(
    shard: ShardProfiles, clusters: Indices, tables: Tables, prior: Prior
) -> Tables:
    """Assign the members of clusters to sides by the counts of all shards; count both sides."""
    counted = [np.zeros(table.shape) for table in tables]
    for t, k in enumerate(clusters.tolist()):
        side = shard.sides(k, tables, t, prior)
        counts = SideCounts(*(table[t] for table in counted))
        split.count_sides(shard.members(k), np.arange(side.size), side, shard.cells, counts)
    return [compact_counts(table) for table in counted]


def find_sides(
    shard: ShardProfiles, clusters: Indices, tables: Tables, prior: Prior
) -> NDArray[np.int8]:
    """Return the sides of the members of some clusters, 0 for all other objects of a shard."""
    sides = np.zeros(shard.position.size, dtype=np.int8)
    for t, k in enumerate(clusters.tolist()):
        members = shard.position[shard.start[k] : shard.start[k + 1]]
        sides[members] = shard.sides(k, tables, t, prior)
    return sides
