"""Merges and splits of clusters, accepted on exact evidence (MODEL 10, 14)."""

import numpy as np

from coblock.inference.engine import Engine, parts
from coblock.inference.settings import SEARCH
from coblock.inference.start import thread_pools
from coblock.kernels import Indices
from coblock.kernels.moves import current_values, merge_gains, merge_pairs
from coblock.model.labels import one_cluster, split_labels
from coblock.model.partition import Partition


def merge(partition: Partition, d: int, engine: Engine) -> int:
    """Merge pairs of clusters of domain ``d`` while the evidence rises; return how many.

    New pairs are looked for while more than a few clusters are merged.
    """
    merged = 0
    while True:
        K = partition.m[d].size
        merge_nearest(partition, d, SEARCH.least_gain, K, engine)
        merged += K - partition.m[d].size
        if K - partition.m[d].size <= SEARCH.few_merged * K:
            return merged


def merge_nearest(
    partition: Partition, d: int, least: float, most: int, engine: Engine, *, disjoint: bool = False
) -> None:
    """Merge pairs of near clusters, best first, while they gain more than ``least`` nats."""
    relation, m, alpha = partition.relation, partition.m[d].copy(), partition.hyper.alpha[d]
    pairs = nearest_pairs(partition, d)
    if not pairs.size:
        return
    now = current_values(relation.repeated, relation.symmetric, partition.tables(d), m, alpha)
    gains = np.empty(len(pairs))
    engine.map(lambda part: merge_gains(now, m, alpha, pairs[part], gains[part]), parts(gains.size))
    label = merge_pairs(now, m, alpha, pairs, gains, least, most, disjoint)
    partition.merge_clusters(d, label)


def nearest_pairs(partition: Partition, d: int) -> Indices:
    """Return each cluster with those whose merge would add least to Ward's sum of squares.

    A cluster is the vector of its link probabilities, whose variance the arcsine of the root
    makes equal (MODEL 15). One thread is used, so that the bits do not depend on their number.
    """
    (n, N, a, b), m, K = partition.tables(d), partition.m[d], partition.m[d].size
    angle = np.arcsin(np.sqrt((n + a) / (n + N + a + b))).astype(np.float32)
    vectors = angle * np.sqrt(partition.m[-1 - d], dtype=np.float32)
    if partition.relation.repeated and not partition.relation.symmetric:
        vectors = np.hstack((vectors, angle.T * np.sqrt(m, dtype=np.float32)))
    with thread_pools().limit(limits=1):
        distance = vectors @ vectors.T
    square, rate = np.diag(distance).copy(), (1.0 / m).astype(np.float32)
    distance *= -2.0
    distance += square[:, None] + square
    distance /= rate[:, None] + rate
    np.fill_diagonal(distance, np.inf)
    count = min(SEARCH.merge_neighbours, K - 1)
    near = distance.argpartition(count - 1, axis=1)[:, :count].ravel() if count else m[:0]
    far = np.repeat(np.arange(K), count)
    pairs = np.unique(np.minimum(near, far) * K + np.maximum(near, far))
    return np.stack(np.divmod(pairs, K), axis=1).astype(np.int32)


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
    before = partition.copy() if partition.relation.repeated else None
    chosen = [(k, new, side) for new, (_, k, side) in enumerate(splits, start=K)]
    partition.labels[d] = split_labels(partition.labels[d], chosen)
    partition.renumber()
    if before is not None:
        merge(partition, d, engine)
        if partition.log_joint() <= before.log_joint():
            partition.adopt(before)
            return 0
    return len(splits)


def split_and_learn(
    partition: Partition,
    d: int,
    rng: np.random.Generator,
    limit: int | None,
    engine: Engine,
) -> int:
    """Split one cluster at a time while the evidence rises at the best hyperparameters for it.

    The learnt prior of few blocks is close to their densities: under it no split gains. Splits
    are proposed under a weak prior instead.
    """
    done = 0
    while limit is None or partition.m[d].size < limit:
        trial = partition.copy()
        trial.hyper = partition.start_hyper()
        proposed = engine.propose_splits(trial, d, rng)
        k = max(range(len(proposed)), key=lambda k: proposed[k][0])
        gain, side = proposed[k]
        if not np.isfinite(gain):
            return done
        trial.labels[d] = split_labels(trial.labels[d], [(k, len(proposed), side)])
        trial.renumber()
        trial.learn()
        if trial.log_joint() <= partition.log_joint() + SEARCH.least_gain:
            return done
        partition.adopt(trial)
        done += 1
    return done


def collapse(partition: Partition) -> bool:
    """Put all objects of one domain, or of all, in one cluster if that is more probable.

    Pairwise merges may all lose where one cluster wins: blocks found in noise end there.
    """
    labels, domains = partition.labels, len(partition.labels)
    trials = [
        Partition.from_labels(
            partition.relation,
            [one_cluster(label) if d in one else label.copy() for d, label in enumerate(labels)],
            partition.start_hyper(),
            fixed=partition.fixed,
        )
        for one in ({0, 1}, {0}, {1})[: 3 if domains == 2 else 1]
    ]
    best = max(trials, key=Partition.log_posterior)
    if best.log_posterior() <= partition.log_posterior():
        return False
    partition.adopt(best)
    return True
