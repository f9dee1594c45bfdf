"""The result of a fit of several relations."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coblock.kernels import Floats, Indices
from coblock.model.dataset import Dataset, Table
from coblock.model.likelihoods import Statistics
from coblock.model.multi_degrees import Factors
from coblock.model.multi_partition import MultiPartition
from coblock.model.multi_state import MultiState

LEAST_MOVED = 0.01  # fraction of the labels; chains that move less are not averaged over
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
    def tensors(self) -> list[Floats]:
        """Statistics of the blocks of each relation, on the last axis; only used clusters."""
        used = [int(label.max()) + 1 for label in self.labels]
        return [
            tensor[tuple(slice(used[d]) for d in table.domains)]
            for tensor, table in zip(self.all_tensors, self.data.tables, strict=True)
        ]

    @cached_property
    def all_tensors(self) -> list[Floats]:
        """The same for all clusters of the memberships.

        Without samples they are expected statistics, except with degree correction.
        """
        if self.soft is None or self.samples or self.data.corrected:
            tensors = [self.partition.tensor(r) for r in range(len(self.data.tables))]
        else:
            state = MultiState(self.data, self.soft, list(self.priors), list(self.alpha))
            tensors = [state.tensor(r) for r in range(len(self.data.tables))]
        return list(map(full_tensor, self.data.tables, tensors))

    @cached_property
    def factors(self) -> dict[int, Factors]:
        """Factors of the objects of the degree-corrected relations."""
        return relation_factors(self.partition)

    @cached_property
    def sample_factors(self) -> list[dict[int, Factors]]:
        """The same for each sample."""
        if not self.data.corrected:
            return [{} for _ in self.samples]
        samples = ((sample.labels, sample.priors, sample.alpha) for sample in self.samples)
        return [relation_factors(restore(self.data, *sample)) for sample in samples]

    @cached_property
    def sample_tensors(self) -> list[list[Floats]]:
        """The same for each sample."""
        found = []
        for sample in self.samples:
            partition = restore(self.data, sample.labels, sample.priors, sample.alpha)
            tensors = [partition.tensor(r) for r in range(len(self.data.tables))]
            found.append(list(map(full_tensor, self.data.tables, tensors)))
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


def full_tensor(table: Table, tensor: Floats) -> Floats:
    """Return the statistics of all blocks; those of symmetric pairs stand at both places."""
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


def statistics_of(
    tensor: Floats, blocks: tuple[NDArray[Any], ...], cells: Indices, factors: Factors | None
) -> Statistics:
    """Return the statistics of the blocks of cells, one array for each statistic.

    With factors of the objects, the last one is their product for each cell.
    """
    found = tuple(np.moveaxis(tensor[blocks], -1, 0))
    return found if factors is None else (*found, factors.products(cells, blocks))


def predictive_mixture(
    result: MultiResult, r: int, cells: Indices
) -> Iterator[tuple[Floats, Statistics, Floats]]:
    """Yield components of the prediction of cells: weights, statistics and prior of each.

    They are the samples, or without samples the most probable clusters of the objects of a cell.
    """
    table = result.data.tables[r]
    if result.samples:
        weight = np.full(len(cells), 1.0 / len(result.samples))
        parts = zip(result.samples, result.sample_tensors, result.sample_factors, strict=True)
        for sample, tensors, factors in parts:
            at = tuple(sample.labels[d][cells[:, p]] for p, d in enumerate(table.domains))
            prior = sample.priors[r].reshape(-1, 1)
            yield weight, statistics_of(tensors[r], at, cells, factors.get(r)), prior
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
        yield weight, statistics_of(result.all_tensors[r], tuple(at), cells, factors), prior


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
