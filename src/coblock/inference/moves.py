"""Merges and splits of clusters, accepted on exact evidence (MODEL 10, 14)."""

import numpy as np

from coblock.inference.engine import Engine
from coblock.inference.settings import SEARCH
from coblock.kernels import Floats
from coblock.kernels.merge import current_values, merge_gains
from coblock.model.partition import Partition

SLICES = 4  # of all pairs of clusters, for threads,
SLICES_FROM = 500_000  # blocks times clusters; fewer are computed in one slice


def merge(partition: Partition, d: int, engine: Engine) -> int:
    """Merge pairs of clusters of domain ``d`` while the evidence rises; return how many.

    Pairs without a common cluster are merged together, best first. In two domains their gains
    add up. In one domain they change common blocks, so pairs are merged one by one.
    """
    merged, most = 0, 1 if partition.relation.repeated else None
    while True:
        pairs = best_pairs(partition, d, SEARCH.least_gain, most, engine)
        if not pairs:
            return merged
        apply_merges(partition, d, pairs)
        merged += len(pairs)


def merge_and_learn(partition: Partition, d: int, engine: Engine) -> int:
    """Merge nearest pairs while the evidence rises at the best hyperparameters for each.

    With few blocks the prior fits them so closely that no merge gains while it is held.
    """
    merged = 0
    while partition.m[d].size > 1:
        before, trial = partition.log_joint(), partition.copy()
        apply_merges(trial, d, best_pairs(trial, d, -np.inf, 1, engine))
        trial.learn()
        if trial.log_joint() <= before + SEARCH.least_gain:
            return merged
        partition.labels, partition.hyper, partition.blocks = (
            trial.labels,
            trial.hyper,
            trial.blocks,
        )
        merged += 1
    return merged


def merge_nearest(partition: Partition, d: int, share: float, engine: Engine) -> None:
    """Merge the pairs that lose least, or gain, until ``share`` of the clusters is gone."""
    wanted = round(share * partition.m[d].size)
    apply_merges(partition, d, best_pairs(partition, d, -np.inf, wanted, engine))


def best_pairs(
    partition: Partition, d: int, least: float, most: int | None, engine: Engine
) -> list[tuple[int, int]]:
    """Return disjoint pairs of clusters by descending gain of their merge, ``most`` of them."""
    gains = all_merge_gains(partition, d, engine)
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


def all_merge_gains(partition: Partition, d: int, engine: Engine) -> Floats:
    """Return the gains of merging clusters k < g of domain ``d``, minus infinity elsewhere."""
    relation, m, alpha = partition.relation, partition.m[d], partition.hyper.alpha[d]
    now = current_values(relation.repeated, relation.symmetric, partition.tables(d), m, alpha)
    gains = np.full((m.size, m.size), -np.inf)
    slices = SLICES if m.size * now.value.size > SLICES_FROM else 1
    engine.map(lambda first: merge_gains(now, m, alpha, first, slices, gains), range(slices))
    return gains


def apply_merges(partition: Partition, d: int, pairs: list[tuple[int, int]]) -> None:
    """Merge pairs of clusters."""
    target = np.arange(partition.m[d].size, dtype=np.int32)
    for k, g in pairs:
        target[g] = k
    partition.labels[d] = target[partition.labels[d]]
    partition.renumber()


def split(
    partition: Partition, d: int, rng: np.random.Generator, limit: int | None, engine: Engine
) -> int:
    """Split clusters of domain ``d`` in two where the evidence rises; return how many.

    In two domains the gains are exact and add up. In one domain a split is proposed with the
    rest of its own cluster held unsplit; splits that do not gain are merged back, and if the
    evidence has not risen then, the partition is restored.
    """
    K = partition.m[d].size
    proposed = enumerate(engine.propose_splits(partition, d, rng))
    splits = [(gain, k, side) for k, (gain, side) in proposed if gain > SEARCH.least_gain]
    splits = sorted(splits, key=lambda each: -each[0])[: None if limit is None else limit - K]
    if not splits:
        return 0
    before, old = partition.log_joint(), [label.copy() for label in partition.labels]
    label = partition.labels[d]
    for new, (_, k, side) in enumerate(splits, start=K):
        label[np.flatnonzero(label == k)[side == 1]] = new
    partition.renumber()
    if partition.relation.repeated:
        merge(partition, d, engine)
        if partition.log_joint() <= before:
            partition.labels = old
            partition.renumber()
            return 0
    return len(splits)
