"""The result of a fit of several relations."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coblock.kernels import Floats, Indices
from coblock.model.dataset import Dataset
from coblock.model.likelihoods import Statistics
from coblock.model.multi_degrees import Factors
from coblock.model.multi_partition import MultiPartition
from coblock.model.multi_state import MultiState

LEAST_MOVED = 0.01  # fraction of the labels; chains that move less are not averaged over
MOST_BLOCKS = 2**27  # of a relation in one array: 2 GB of the statistics of 0/1 cells
MOST_LISTED = 2**20  # blocks of a relation; of more, only those that hold cells are listed
TOP = 4  # clusters of an object that predictions average over, given the labels of others
LEAST_SHARE = 1e-4  # memberships that are smaller for all objects are left out


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
    phase: str  # "search", "posterior", "variational" or "gibbs"
    log_evidence: float  # log joint of labels; of soft memberships, its lower bound
    clusters: tuple[int, ...]
    moved: float | None  # fraction of the labels that changed, in the domain where it is largest
    seconds: float
    change: float  # of memberships per object, averaged ones where a method averages; 2 moved
    leave_one_out: float | None = None  # sum of the log normalisers of soft memberships

    @property
    def bound(self) -> float:
        """The lower bound of the log evidence, which is the log joint of hard labels."""
        return self.log_evidence


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
    soft: list[Floats] | None = None  # memberships of a method that has its own

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields; compiled functions, which derived values have, are not pickled."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @cached_property
    def partition(self) -> MultiPartition:
        """The partition of the labels, with the statistics of its blocks."""
        return restore(self.data, self.labels, self.priors, self.alpha)

    @cached_property
    def memberships(self) -> list[Floats]:
        """Cluster probabilities of each object, without others given the labels of all others.

        Clusters that are no object's most probable one come last.
        """
        if self.soft is not None:
            return self.soft
        return [self.partition.conditional(d) for d in range(len(self.data.domains))]

    @cached_property
    def blocks(self) -> MultiPartition | MultiState:
        """What has the statistics of the blocks that predictions are from.

        Without samples they are expected statistics of the memberships, except with degree
        correction.
        """
        if self.soft is None or self.samples or self.data.corrected:
            return self.partition
        return MultiState(self.data, self.soft, list(self.priors), list(self.alpha))

    def tensor(self, r: int) -> Floats:
        """Return the statistics of all blocks of a relation, on the last axis; used clusters."""
        table = self.data.tables[r]
        shape = self.block_shape(r)
        if math.prod(shape) > MOST_BLOCKS:
            msg = (
                f"Relation '{table.name}' has {' x '.join(map(str, shape))} blocks, more than the "
                f"{MOST_BLOCKS:,} that fit into one array. Use predict for cells, or "
                "to_frame(relation=...) for the blocks that hold cells."
            )
            raise ValueError(msg)
        at = tuple(np.indices(shape).reshape(table.arity, -1))
        return self.blocks.statistics_at(r, at).reshape(*shape, -1)

    def block_shape(self, r: int) -> tuple[int, ...]:
        """Return the numbers of clusters at the places of a relation."""
        return tuple(int(self.labels[d].max()) + 1 for d in self.data.tables[r].domains)

    def listed_blocks(self, r: int) -> Indices:
        """Return the clusters of the blocks of a relation, (blocks, places).

        All of them, or those that hold cells where there are more than ``MOST_LISTED``.
        """
        shape = self.block_shape(r)
        if math.prod(shape) <= MOST_LISTED:
            return np.indices(shape, np.int32).reshape(len(shape), -1).T
        return self.partition.stored_blocks(r)

    @cached_property
    def factors(self) -> dict[int, Factors]:
        """Factors of the objects of the degree-corrected relations."""
        return relation_factors(self.partition)

    @cached_property
    def sample_factors(self) -> list[dict[int, Factors]]:
        """The same for each sample."""
        if not self.data.corrected:
            return [{} for _ in self.samples]
        return [relation_factors(partition) for partition in self.sample_partitions]

    @cached_property
    def sample_partitions(self) -> list[MultiPartition]:
        """The partitions of the samples."""
        found = []
        for sample in self.samples:
            found.append(restore(self.data, sample.labels, sample.priors, sample.alpha))
            found[-1].compact()
        return found

    @property
    def moved(self) -> float | None:
        """Fraction of the labels that a sweep of the chains changed; None without chains."""
        found = [record.moved for record in self.trace if record.phase in {"posterior", "gibbs"}]
        changed = [moved for moved in found if moved is not None]
        return float(np.mean(changed)) if changed else None

    @property
    def averages(self) -> str:
        """What predictions average over, in words."""
        if not self.samples:
            source = "the best partition" if self.soft is None else "the memberships"
            return f"Predictions are those of {source}: no samples were drawn."
        count, moved = len(self.samples), self.moved
        if moved is not None and moved < LEAST_MOVED:
            return (
                f"Predictions average over {count} partitions of the search with equal weights. "
                "They are an ensemble, not samples: chains from the best ones did not move."
            )
        rate = "" if moved is None else f" A sweep moved {100.0 * moved:.1f} % of the labels."
        return f"Predictions average over {count} sampled partitions.{rate}"

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


def relation_factors(partition: MultiPartition) -> dict[int, Factors]:
    """Return the factors of the objects of each degree-corrected relation."""
    found, degrees = {}, partition.degrees
    for r, table in enumerate(partition.data.tables):
        if table.corrected and degrees is not None:
            found[r] = Factors.of(partition.degree_blocks(r), degrees, r)
    return found


def rank_by_size(label: Indices) -> Indices:
    """Return labels numbered by the sizes of the clusters, the largest first."""
    order = np.argsort(-np.bincount(label), kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(order.size)
    return rank[label].astype(np.int32)


def statistics_of(
    blocks: MultiPartition | MultiState,
    r: int,
    clusters: tuple[NDArray[Any], ...],
    cells: Indices,
    factors: Factors | None,
) -> Statistics:
    """Return the statistics of the blocks of cells, one array for each statistic.

    With factors of the objects, the last one is their product for each cell.
    """
    found = tuple(np.ascontiguousarray(blocks.statistics_at(r, clusters).T))
    return found if factors is None else (*found, factors.products(cells, clusters))


def predictive_mixture(
    result: MultiResult, r: int, cells: Indices
) -> Iterator[tuple[Floats, Statistics, Floats]]:
    """Yield components of the prediction of cells: weights, statistics and prior of each.

    They are the samples, or without samples the most probable clusters of the objects of a cell.
    """
    table = result.data.tables[r]
    if result.samples:
        weight = np.full(len(cells), 1.0 / len(result.samples))
        parts = zip(result.samples, result.sample_partitions, result.sample_factors, strict=True)
        for sample, blocks, factors in parts:
            at = tuple(blocks.labels[d][cells[:, p]] for p, d in enumerate(table.domains))
            prior = sample.priors[r].reshape(-1, 1)
            yield weight, statistics_of(blocks, r, at, cells, factors.get(r)), prior
    else:
        yield from _soft_mixture(result, r, cells)


def _soft_mixture(
    result: MultiResult, r: int, cells: Indices
) -> Iterator[tuple[Floats, Statistics, Floats]]:
    """Yield the blocks of the most probable clusters of each object, with their weights."""
    table, prior = result.data.tables[r], result.priors[r].reshape(-1, 1)
    top = [
        _top_clusters(q, TOP if result.soft is None else q.shape[1])
        for q in (result.memberships[d] for d in table.domains)
    ]
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
        factors = result.factors.get(r)
        yield weight, statistics_of(result.blocks, r, tuple(at), cells, factors), prior


def _top_clusters(q: Floats, most: int) -> tuple[NDArray[np.intp], Floats]:
    """Return the most probable clusters of each object with their shares."""
    largest = np.sort(q, axis=1)[:, ::-1].max(axis=0)  # of the first, second, ... of all objects
    most = max(min(most, int((largest >= LEAST_SHARE).sum())), 1)
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
    table, total = result.data.tables[r], np.full(len(cells), -np.inf)
    likelihood, exposure = table.likelihood, table.weight(cells)
    for weight, s, prior in predictive_mixture(result, r, cells):
        known = (s, prior)
        if table.exposures is not None:  # a count of exposure e has the rate of a cell over e
            shape = np.broadcast_to(prior[0], exposure.shape)
            known = ((s[0], s[1] / exposure), np.stack((shape, prior[1] / exposure)))
        with np.errstate(divide="ignore"):
            part = np.log(weight) + likelihood.log_predictive(values, *known)
        total = np.logaddexp(total, part)
    return total


def block_means(result: MultiResult, r: int, clusters: Indices | None = None) -> Floats:
    """Return the predictive mean of blocks of a relation, (blocks, places), or of all of them."""
    table = result.data.tables[r]
    if clusters is None:
        statistics = np.moveaxis(result.tensor(r), -1, 0)
        prior = result.priors[r].reshape(-1, *[1] * table.arity)
    else:
        statistics = result.blocks.statistics_at(r, tuple(clusters.T)).T
        prior = result.priors[r].reshape(-1, 1)
    return table.likelihood.predictive_mean(tuple(statistics), prior)


@dataclass(frozen=True, slots=True)
class DomainResult:
    """The clusters of one domain."""

    names: tuple[str, ...] | None
    labels: Indices
    membership: Floats  # (objects, clusters); clusters without labels come last
    concentration: float
    n_clusters: int


@dataclass(frozen=True, slots=True)
class RelationResult:
    """The blocks of one relation; arrays have an axis for each place."""

    places: dict[str, str]
    likelihood: str
    hyperparameters: Floats
    log_evidence: float
    result: MultiResult
    number: int  # of the relation

    @property
    def mean(self) -> Floats:
        """Predictive mean of a cell of each block; categories are on a last axis."""
        return block_means(self.result, self.number)

    @property
    def statistics(self) -> Floats:
        """Sufficient statistics of each block, on a last axis."""
        return self.result.tensor(self.number)
