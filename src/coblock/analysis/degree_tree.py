"""Merges of the clusters of a degree-corrected result, valued by its own evidence (DEGREES D5)."""

from typing import Any

import numpy as np

from coblock.kernels import Indices
from coblock.kernels.degrees import DegreeTables, fill_values, merge_clusters, merger_gain
from coblock.model.degrees import DegreePartition

ROUNDS = 3  # of hyperparameters and counts, which depend on each other


def degree_partition(relation: Any, labels: list[Indices]) -> DegreePartition:
    """Return the degree-corrected partition of these labels, hyperparameters at their best."""
    partition = DegreePartition.from_labels(relation, labels)
    for _ in range(ROUNDS):
        partition.learn()
        partition.refresh()
    return partition


def degree_merges(relation: Any, labels: list[Indices]) -> list[tuple[int, int, int, float]]:
    """Return the merges down to one cluster per domain: domain, both clusters, loss.

    Hyperparameters are held. Of two domains each is merged at the clusters of the other, and the
    domain that loses less goes first.
    """
    partition = degree_partition(relation, labels)
    left = [_merge_domain(partition.tables(d), alpha) for d, alpha in enumerate(partition.alpha)]
    found = []
    while any(left):
        d = min((d for d, steps in enumerate(left) if steps), key=lambda d: left[d][0][2])
        found.append((d, *left[d].pop(0)))
    return found


def _merge_domain(tables: DegreeTables, alpha: float) -> list[tuple[int, int, float]]:
    """Return the merges of one domain, best first; gains that a merge has changed are renewed."""
    K, value = tables.m.size, np.empty_like(tables.n)
    fill_values(tables, value)
    gains, valued = np.full((K, K), -np.inf), np.zeros((K, K), dtype=np.int64)
    for k in range(K):
        for g in range(k + 1, K):
            gains[k, g] = merger_gain(tables, value, alpha, k, g)
    name = np.arange(K)
    steps: list[tuple[int, int, float]] = []
    while len(steps) < K - 1:
        k, g = divmod(int(gains.argmax()), K)
        if valued[k, g] < len(steps):
            gains[k, g], valued[k, g] = merger_gain(tables, value, alpha, k, g), len(steps)
            continue
        one, other = sorted((int(name[k]), int(name[g])))
        steps.append((one, other, -float(gains[k, g])))
        merge_clusters(tables, value, k, g)
        name[k] = one
        gains[g], gains[:, g] = -np.inf, -np.inf
        for l in np.flatnonzero(tables.m > 0.0):  # these may gain more than they did
            if l != k:
                x, y = min(k, int(l)), max(k, int(l))
                gains[x, y], valued[x, y] = merger_gain(tables, value, alpha, x, y), len(steps)
    return steps
