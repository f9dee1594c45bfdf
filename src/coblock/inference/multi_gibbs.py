"""Collapsed Gibbs sampling of several relations (RELATIONS 10)."""

import numpy as np

from coblock.inference.gibbs import (
    MOST_SAMPLES,
    sample_concentration,
    sample_prior,
    slice_sample,
)
from coblock.inference.multi_search import most_clusters
from coblock.kernels import Floats, Indices
from coblock.kernels.degrees import PLAIN
from coblock.model.dataset import Dataset
from coblock.model.degrees import SHAPE_BOUNDS
from coblock.model.likelihoods.degrees import POISSON
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


def draw_shapes(partition: MultiPartition, r: int, rng: np.random.Generator) -> Floats:
    """Draw the shapes of the degree laws of a relation; the logarithm has a uniform prior.

    Infinite ones stay.
    """
    blocks, shapes = partition.degree_blocks(r), partition.priors[r][2:].copy()
    for p, degree in enumerate(partition.place_degrees(r)):
        if shapes[p] < PLAIN:

            def log_density(x: float, p: int = p, degree: Floats = degree) -> float:
                if not SHAPE_BOUNDS[0] <= x <= SHAPE_BOUNDS[1]:
                    return -np.inf
                return blocks.shape_value(p, degree, float(np.exp(x)))

            shapes[p] = np.exp(slice_sample(log_density, float(np.log(shapes[p])), rng))
    return shapes


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
        (statistics, count), prior = partition.used_statistics(r), partition.priors[r]
        likelihood, rows, shapes = table.likelihood, prior.reshape(-1, 1, 1), prior[:0]
        if table.corrected:
            likelihood, rows, shapes = POISSON, rows[:2], draw_shapes(partition, r, rng)
        drawn = sample_prior(likelihood, statistics, rows, PRIOR_HYPERPRIOR, rng, count)
        priors.append(np.concatenate((drawn.ravel(), shapes)))
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
