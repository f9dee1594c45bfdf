"""Merges and splits of clusters, accepted on exact evidence (MODEL 10, 14)."""

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from coblock.kernels import Floats, Indices, mergers, partings
from coblock.model.partition import Partition

Parting: TypeAlias = tuple[float, Indices]
PartAll: TypeAlias = Callable[[Partition, int, np.random.Generator], list[Parting]]
Spread: TypeAlias = Callable[[Callable[[int], Any], Iterable[int]], Iterable[Any]]

LEAST_GAIN = 1e-6  # nats; below it a move is not worth its name
SEED_PAIRS = 5  # starts of each parting
PASSES = 10  # over the members of a cluster that is parted
PARTS = 4  # of all pairs of clusters, for the threads,
WORTH_SHARING = 500_000  # from so many blocks on, twice those that are valued


def merge(partition: Partition, d: int, spread: Spread = map) -> int:
    """Merge pairs of clusters of domain ``d`` while the evidence rises; return how many.

    Pairs that have no cluster in common are merged together, best first. In two domains their
    gains add up; in one they touch common blocks, so pairs are merged one by one. ``spread`` is
    map, or what does the same on several threads.
    """
    merged, most = 0, 1 if partition.relation.one_domain else None
    while True:
        pairs = _best_pairs(partition, d, LEAST_GAIN, most, spread)
        if not pairs:
            return merged
        _join(partition, d, pairs)
        merged += len(pairs)


def merge_and_learn(partition: Partition, d: int, spread: Spread = map) -> int:
    """Merge nearest pairs while the evidence at its best hyperparameters rises.

    With few blocks the prior fits them so closely that no merger gains while it is held.
    """
    merged = 0
    while partition.m[d].size > 1:
        before, trial = partition.log_joint(), partition.copy()
        _join(trial, d, _best_pairs(trial, d, -np.inf, 1, spread))
        trial.learn()
        if trial.log_joint() <= before + LEAST_GAIN:
            return merged
        partition.adopt(trial)
        merged += 1
    return merged


def merge_nearest(partition: Partition, d: int, share: float, spread: Spread = map) -> None:
    """Merge the pairs that lose least, or gain, until ``share`` of the clusters is gone."""
    wanted = round(share * partition.m[d].size)
    _join(partition, d, _best_pairs(partition, d, -np.inf, wanted, spread))


def _best_pairs(
    partition: Partition, d: int, least: float, most: int | None, spread: Spread
) -> list[tuple[int, int]]:
    """Return disjoint pairs of clusters by descending gain of their merger, ``most`` of them."""
    gains = merge_gains(partition, d, spread)
    chosen: list[tuple[int, int]] = []
    used = np.zeros(gains.shape[0], dtype=bool)
    candidates = np.flatnonzero(np.isfinite(gains) & (gains > least))
    for at in candidates[np.argsort(-gains.flat[candidates], kind="stable")]:
        if len(chosen) == most:
            break
        k, g = divmod(int(at), gains.shape[1])
        if not used[k] and not used[g]:
            chosen.append((k, g))
            used[[k, g]] = True
    return chosen


def merge_gains(partition: Partition, d: int, spread: Spread = map) -> Floats:
    """Return the gains of merging clusters k < g of domain ``d``, minus infinity elsewhere."""
    code, m, alpha = partition.relation.code, partition.m[d], partition.alpha[d]
    now = mergers.apart(partition.blocks(d), m, alpha)
    gains = np.full((m.size, m.size), -np.inf)
    parts = PARTS if m.size * now.value.size > WORTH_SHARING else 1

    def fill(first: int) -> None:
        mergers.merge_gains(code, now, m, alpha, first, parts, gains)

    list(spread(fill, range(parts)))
    return gains


def _join(partition: Partition, d: int, pairs: list[tuple[int, int]]) -> None:
    target = np.arange(partition.m[d].size, dtype=np.int32)
    for k, g in pairs:
        target[g] = k
    partition.labels[d] = target[partition.labels[d]]
    partition.recount()


def split(
    partition: Partition,
    d: int,
    rng: np.random.Generator,
    most: int | None,
    part_all: PartAll | None = None,
) -> int:
    """Part clusters of domain ``d`` in two where the evidence rises; return how many.

    In two domains the gains are exact and add up. In one domain a parting is proposed with the
    rest of its own cluster held undivided; what does not hold up is merged back, and if the
    evidence has not risen then, nothing has happened.
    """
    K = partition.m[d].size
    room = None if most is None else most - K
    proposed = (part_all or part_clusters)(partition, d, rng)
    partings = [(gain, k, side) for k, (gain, side) in enumerate(proposed) if gain > LEAST_GAIN]
    partings = sorted(partings, key=lambda p: -p[0])[:room]
    if not partings:
        return 0
    before, old = partition.log_joint(), [label.copy() for label in partition.labels]
    label = partition.labels[d]
    for new, (_, k, side) in enumerate(partings, start=K):
        label[np.flatnonzero(label == k)[side == 1]] = new
    partition.recount()
    if partition.relation.one_domain:
        merge(partition, d)
        if partition.log_joint() <= before:
            partition.labels = old
            partition.recount()
            return 0
    return len(partings)


def part_clusters(
    partition: Partition, d: int, rng: np.random.Generator, spread: Spread = map
) -> list[Parting]:
    """Return for every cluster the gain of the best parting found, and the members' sides.

    ``spread`` is map, or what does the same on several threads.
    """
    label, m = partition.labels[d], partition.m[d].astype(int)
    by_cluster = np.split(np.argsort(label, kind="stable").astype(np.int32), np.cumsum(m)[:-1])
    seeds = [draw_seeds(members.size, rng) for members in by_cluster]
    domain, price = partition.domain(d), float(np.log(partition.alpha[d]))
    label_other, clusters = partition.labels[-1 - d], partition.m[-1 - d].size

    def part(k: int) -> Parting:
        members = by_cluster[k]
        if members.size < 2:
            return -np.inf, members
        brought = partings.profiles(domain, members, label_other, clusters)
        cells, prior = cells_of(partition, d, k), (partition.a, partition.b)
        gain, side = partings.best_parting(brought, cells, prior, seeds[k], PASSES)
        return gain + price, side

    return list(spread(part, range(m.size)))


def draw_seeds(members: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return the pairs of members around which a cluster is parted; none of a single one."""
    if members < 2:
        return np.empty((0, 2), dtype=np.int64)
    first, second = rng.integers([members, members - 1], size=(SEED_PAIRS, 2)).T
    return np.stack((first, second + (second >= first)), axis=1)


def cells_of(partition: Partition, d: int, k: int) -> Floats:
    """Return how many cells of each block a member of cluster ``k`` has, unseen ones included."""
    cells = partition.m[-1 - d].copy()
    if partition.relation.one_domain:
        cells[k] -= 1.0  # nobody is their own neighbour
    return np.tile(cells, len(partition.relation.places[d]))
