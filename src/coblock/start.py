"""Where inference starts from."""

import numpy as np

from coblock.kernels import Floats, Indices
from coblock.relation import Relation

TRUNCATION = 20  # clusters to start with where the user names no number


def truncation(relation: Relation, max_clusters: int | tuple[int, int] | None) -> tuple[int, ...]:
    """Return the largest number of clusters of each domain, never more than its objects."""
    if max_clusters is None:
        max_clusters = TRUNCATION
    wanted = max_clusters if isinstance(max_clusters, tuple) else (max_clusters, max_clusters)
    return tuple(min(K, size) for K, size in zip(wanted, relation.sizes, strict=False))


def random_memberships(
    relation: Relation, clusters: tuple[int, ...], rng: np.random.Generator
) -> list[Floats]:
    """Return the paper's start: uniform weights for every object and cluster, normalised."""
    weights = [rng.random((size, K)) for size, K in zip(relation.sizes, clusters, strict=True)]
    return [weight / weight.sum(axis=1, keepdims=True) for weight in weights]


def most_probable(memberships: list[Floats]) -> list[Indices]:
    """Return the most probable cluster of each object, renumbered so that all are in use."""
    labels = [q.argmax(axis=1) for q in memberships]
    return [np.unique(label, return_inverse=True)[1].astype(np.int32) for label in labels]
