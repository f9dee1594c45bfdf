"""Collapsed Gibbs sampling of several relations (RELATIONS 10)."""

import numpy as np

from coblock.inference.gibbs import MOST_SAMPLES, sample_concentration, sample_prior
from coblock.inference.multi_search import most_clusters
from coblock.kernels import Floats, Indices
from coblock.model.dataset import Dataset
from coblock.model.multi_partition import MultiPartition
from coblock.model.multi_result import MultiRecord, MultiResult, MultiSample, rank_by_size
from coblock.model.result import match_memberships

HYPERPRIOR = (1.0, 1.0)  # of concentrations in the posterior,
PRIOR_HYPERPRIOR = (1.0, 0.1)  # and of the hyperparameters of relations: Gamma, shape and rate


def draw_labels(partition: MultiPartition, rng: np.random.Generator) -> float:
    """Draw the labels of all objects given the others; return the fraction that changed.

    The number of clusters is limited only by the tables of blocks.
    """
    moved = 0.0
    for d, size in enumerate(partition.data.sizes):
        before = partition.labels[d].copy()
        order = rng.permutation(size).astype(np.int32)
        limit = most_clusters(partition, d, None)
        partition.sweep(d, order, rng.random(size), limit=None if limit >= size else limit)
        moved = max(moved, float((partition.labels[d] != before).mean()))
        partition.renumber()
    return moved


def draw_hyperparameters(partition: MultiPartition, rng: np.random.Generator) -> None:
    """Draw concentrations and the hyperparameters of all relations given the labels."""
    alpha = [
        sample_concentration(alpha, m.size, size, rng, HYPERPRIOR)
        for alpha, m, size in zip(
            partition.alpha, partition.sizes, partition.data.sizes, strict=True
        )
    ]
    priors = []
    for r, table in enumerate(partition.data.tables):
        statistics, prior = partition.used_statistics(r), partition.priors[r].reshape(-1, 1, 1)
        drawn = sample_prior(table.likelihood, statistics, prior, PRIOR_HYPERPRIOR, rng)
        priors.append(drawn.ravel())
    partition.set_hyperparameters(priors, alpha)


def take_sample(partition: MultiPartition) -> MultiSample:
    """Return the present state of a chain."""
    labels = [label.copy() for label in partition.labels]
    return MultiSample(labels, partition.priors, partition.alpha)


def is_kept(sweep: int, max_iter: int) -> bool:
    """Return whether a sweep is kept: of the second half, evenly spaced ones."""
    first = max_iter // 2
    every = max((max_iter - first) // MOST_SAMPLES, 1)
    return sweep > first and (sweep - first) % every == 0


def gibbs_result(
    data: Dataset,
    chain: MultiPartition,
    samples: list[MultiSample],
    trace: list[MultiRecord],
    max_iter: int,
) -> MultiResult:
    """Return the most probable of the samples, with memberships averaged over all of them.

    The clusters of each sample are matched with those of this one by their members. A chain that
    has kept none yet has its present labels.
    """
    best = take_sample(chain)
    if samples:
        kept = [record.log_evidence for record in trace if is_kept(record.sweep, max_iter)]
        best = samples[int(np.argmax(kept[: len(samples)]))]
    labels = [rank_by_size(label) for label in best.labels]
    return MultiResult(
        data=data,
        labels=labels,
        priors=best.priors,
        alpha=best.alpha,
        log_evidence=MultiPartition.from_labels(data, labels).log_joint(),
        samples=samples,
        trace=trace,
        converged=False,
        soft=_average_memberships(labels, samples) if samples else None,
    )


def _average_memberships(labels: list[Indices], samples: list[MultiSample]) -> list[Floats]:
    """Return how often each object was in each cluster."""
    return [
        np.mean([match_memberships(sample.labels[d], label) for sample in samples], axis=0)
        for d, label in enumerate(labels)
    ]
