"""The result of a fit of several relations."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coblock.kernels import Floats, Indices
from coblock.model.dataset import Dataset, Table
from coblock.model.likelihoods import Statistics
from coblock.model.multi_partition import MultiPartition

LEAST_MOVED = 0.01  # fraction of the labels; chains that move less are not averaged over
TOP = 4  # clusters of an object that predictions without samples average over


@dataclass(frozen=True)
class MultiSample:
    """A sampled partition with its hyperparameters."""

    labels: list[Indices]
    priors: list[Floats]
    alpha: list[float]


@dataclass(frozen=True)
class MultiRecord:
    """Record of one sweep over the objects of all domains."""

    sweep: int
    phase: str  # "search" or "posterior"
    log_evidence: float
    clusters: tuple[int, ...]
    moved: float  # fraction of the labels that changed, in the domain where it is largest
    seconds: float


@dataclass(frozen=True)
class MultiResult:
    """Labels of all domains, hyperparameters, samples and trace; nothing changes it.

    Clusters are numbered by size, the largest first.
    """

    data: Dataset
    labels: list[Indices]
    priors: list[Floats]
    alpha: list[float]
    log_evidence: float
    samples: list[MultiSample]
    trace: list[MultiRecord]
    converged: bool

    @cached_property
    def partition(self) -> MultiPartition:
        """The partition of the labels, with the statistics of its blocks."""
        return restore(self.data, self.labels, self.priors, self.alpha)

    @cached_property
    def memberships(self) -> list[Floats]:
        """Cluster probabilities of each object given the labels of all others."""
        return [self.partition.conditional(d) for d in range(len(self.data.domains))]

    @cached_property
    def tensors(self) -> list[Floats]:
        """Statistics of the blocks of each relation, on the last axis."""
        return [full_tensor(table, self.partition, r) for r, table in enumerate(self.data.tables)]

    @cached_property
    def sample_tensors(self) -> list[list[Floats]]:
        """The same for each sample."""
        found = []
        for sample in self.samples:
            partition = restore(self.data, sample.labels, sample.priors, sample.alpha)
            found.append(
                [full_tensor(table, partition, r) for r, table in enumerate(self.data.tables)]
            )
        return found

    @property
    def moved(self) -> float:
        """Fraction of the labels that a sweep of the chains changed; 0 without chains."""
        found = [record.moved for record in self.trace if record.phase == "posterior"]
        return float(np.mean(found)) if found else 0.0

    @property
    def averages(self) -> str:
        """What predictions average over, in words."""
        count = len(self.samples)
        if not self.samples:
            return "Predictions are those of the best partition: no samples were drawn."
        if self.moved < LEAST_MOVED:
            return (
                f"Predictions average over {count} partitions of the search with equal weights. "
                "They are an ensemble, not samples: chains from the best ones did not move."
            )
        return (
            f"Predictions average over {count} sampled partitions. A sweep of the chains moved "
            f"{100.0 * self.moved:.1f} % of the labels."
        )

    def relation_number(self, name: str) -> int:
        """Return the position of a relation."""
        return self.data.tables.index(self.data.table(name))


def restore(
    data: Dataset, labels: list[Indices], priors: list[Floats], alpha: list[float]
) -> MultiPartition:
    """Return the partition of labels and hyperparameters."""
    partition = MultiPartition.from_labels(data, labels, learn=False)
    partition.set_hyperparameters(list(priors), list(alpha))
    return partition


def full_tensor(table: Table, partition: MultiPartition, r: int) -> Floats:
    """Return the statistics of all blocks; those of symmetric pairs stand at both places."""
    tensor = partition.tensor(r)
    if table.symmetric:
        turned = tensor.swapaxes(0, 1)
        K = np.arange(len(tensor))
        upper = K[:, None] <= K
        tensor = np.where(upper.reshape(*upper.shape, *[1] * (tensor.ndim - 2)), tensor, turned)
    return tensor


def rank_by_size(label: Indices) -> Indices:
    """Return labels numbered by the sizes of the clusters, the largest first."""
    order = np.argsort(-np.bincount(label), kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(order.size)
    return rank[label].astype(np.int32)


def statistics_of(tensor: Floats, blocks: tuple[NDArray[Any], ...]) -> Statistics:
    """Return the statistics of chosen blocks, one array for each statistic."""
    return tuple(np.moveaxis(tensor[blocks], -1, 0))


def predictive_mixture(
    result: MultiResult, r: int, cells: Indices
) -> list[tuple[Floats, Statistics, Floats]]:
    """Return components of the prediction of cells: weights, statistics and prior of each.

    They are the samples, or without samples the most probable clusters of the objects of a cell.
    """
    table = result.data.tables[r]
    if result.samples:
        weight = np.full(len(cells), 1.0 / len(result.samples))
        components = []
        for sample, tensors in zip(result.samples, result.sample_tensors, strict=True):
            at = (sample.labels[d][cells[:, p]] for p, d in enumerate(table.domains))
            prior = sample.priors[r].reshape(-1, 1)
            components.append((weight, statistics_of(tensors[r], tuple(at)), prior))
        return components
    return list(_soft_mixture(result, r, cells))


def _soft_mixture(
    result: MultiResult, r: int, cells: Indices
) -> list[tuple[Floats, Statistics, Floats]]:
    """Return the blocks of the most probable clusters of each object, with their weights."""
    table, prior = result.data.tables[r], result.priors[r].reshape(-1, 1)
    top = [_top_clusters(result.memberships[d]) for d in table.domains]
    components = []
    for choice in np.ndindex(*(clusters.shape[1] for clusters, _ in top)):
        weight, at = np.ones(len(cells)), []
        for p, t in enumerate(choice):
            clusters, share = top[p]
            at.append(clusters[cells[:, p], t])
            repeated = np.zeros(len(cells), bool)
            for e in range(p):
                if table.domains[e] == table.domains[p]:  # an object has one cluster in a cell
                    same = cells[:, e] == cells[:, p]
                    weight[same & (choice[e] != t)] = 0.0
                    repeated |= same
            weight *= np.where(repeated, 1.0, share[cells[:, p], t])
        components.append((weight, statistics_of(result.tensors[r], tuple(at)), prior))
    return components


def _top_clusters(q: Floats) -> tuple[NDArray[np.intp], Floats]:
    """Return the most probable clusters of each object with their shares."""
    most = min(TOP, q.shape[1])
    while most > 1 and np.sort(q, axis=1)[:, -most].max() < 1e-4:
        most -= 1
    order = np.argsort(-q, axis=1, kind="stable")[:, :most]
    share = np.take_along_axis(q, order, axis=1)
    return order, share / share.sum(axis=1, keepdims=True)


def predict_mean(result: MultiResult, r: int, cells: Indices) -> Floats:
    """Return the predictive mean of cells (RELATIONS 12); categories have a vector each."""
    likelihood, total = result.data.tables[r].likelihood, None
    for weight, statistics, prior in predictive_mixture(result, r, cells):
        mean = likelihood.predictive_mean(statistics, prior)
        part = mean * (weight if mean.ndim == 1 else weight[:, None])
        total = part if total is None else total + part
    assert total is not None
    exposure = result.data.tables[r].weight(cells)
    return total * (exposure if total.ndim == 1 else exposure[:, None])


def log_predictive(result: MultiResult, r: int, cells: Indices, values: Floats) -> Floats:
    """Return the log predictive probability of the values of cells."""
    likelihood, parts = result.data.tables[r].likelihood, []
    for weight, statistics, prior in predictive_mixture(result, r, cells):
        with np.errstate(divide="ignore"):
            parts.append(np.log(weight) + likelihood.log_predictive(values, statistics, prior))
    return np.logaddexp.reduce(parts, axis=0)


def relation_means(result: MultiResult) -> Mapping[str, Floats]:
    """Return the predictive mean of every block of each relation."""
    means = {}
    for r, table in enumerate(result.data.tables):
        tensor = result.tensors[r]
        prior = result.priors[r].reshape(-1, *[1] * table.arity)
        means[table.name] = table.likelihood.predictive_mean(
            tuple(np.moveaxis(tensor, -1, 0)), prior
        )
    return means
