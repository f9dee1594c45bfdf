"""The result of a fit; immutable."""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coblock.kernels import Floats, Indices
from coblock.kernels.memberships import hard_labels
from coblock.model.blocks import Blocks
from coblock.model.degrees import DegreeChoice
from coblock.model.hyperparameters import Hyperparameters
from coblock.model.labels import StoredMemberships, collected, count_labels, map_labels
from coblock.model.partition import Partition
from coblock.model.state import by_size
from coblock.model.trace import SweepRecord

CHUNK = 512  # objects whose memberships are copied at a time to be reordered


@dataclass(frozen=True, slots=True)
class Sample:
    """One kept state of a Gibbs chain: labels per domain and link probabilities of the blocks.

    Model files do not have its hyperparameters, as the probabilities follow from them.
    """

    labels: list[Indices]
    probability: Floats  # (K1, K2)
    chain: int = 0
    hyper: Hyperparameters | None = None

    @classmethod
    def of(cls, partition: Partition, chain: int = 0) -> "Sample":
        """Return the present state of a chain."""
        statistics = (partition.blocks.n, partition.blocks.N)
        likelihood, prior = partition.relation.likelihood, partition.hyper.prior
        probability = likelihood.predictive_mean(statistics, prior)
        labels = [label.copy() for label in partition.labels]
        return cls(labels, probability, chain, partition.hyper.copy())


@dataclass(frozen=True, slots=True)
class Result:
    """Memberships, labels and blocks.

    Labels are those of the best partition found, or the most probable ones of a plain method.
    Blocks are counted from the labels if there are samples, else from the memberships.
    Under a degree-corrected model the blocks are described without it, and ``degrees`` has it.
    Memberships and blocks have all clusters of the approximation. Those with members, which
    labels name, come first; the others are no object's most probable cluster.
    """

    relation: Any  # Relation, or one whose cells are on a cluster
    memberships: list[Floats]  # per domain (objects, K); on a cluster collected when asked for
    labels: list[Indices]  # per domain (objects,)
    hyper: Hyperparameters
    blocks: Blocks
    log_evidence: float
    trace: list[SweepRecord]
    converged: bool
    samples: list[Sample] = field(default_factory=list)
    stability: float | None = None  # mean adjusted Rand index between the restarts
    sticks: list[Indices] | None = None  # clusters in the order of their sticks; None: CRP prior
    degrees: DegreeChoice | None = None  # where degree correction was asked for

    @property
    def n(self) -> Floats:
        """Expected links of every block."""
        return self.blocks.n

    @property
    def N(self) -> Floats:  # noqa: N802 - the paper's name
        """Expected observed non-links of every block."""
        return self.blocks.N

    @property
    def n_clusters(self) -> tuple[int, int]:
        """Numbers of row and column clusters with members."""
        return int(self.labels[0].max()) + 1, int(self.labels[-1].max()) + 1

    @property
    def with_members(self) -> tuple[slice, slice]:
        """Where the clusters with members are in the tables of blocks."""
        K1, K2 = self.n_clusters
        return np.s_[:K1, :K2]

    @property
    def block_probability(self) -> Floats:
        """Posterior mean link probability of every block (MODEL 13)."""
        statistics = (self.blocks.n, self.blocks.N)
        return self.relation.likelihood.predictive_mean(statistics, self.hyper.prior)


def make_result(
    relation: Any,
    memberships: list[Floats],
    hyper: Hyperparameters,
    trace: list[SweepRecord],
    *,
    converged: bool,
    labels: list[Indices] | None = None,
    samples: list[Sample] | None = None,
    degrees: DegreeChoice | None = None,
    sticks: bool = False,
) -> Result:
    """Return the result of a fit, with clusters in descending order of members.

    The memberships are reordered in place; no probability changes. Without labels every object
    has its most probable cluster. ``sticks`` says that the prior is stick-breaking in the order
    of the memberships given.
    """
    if labels is None:
        labels = [q.argmax(axis=1).astype(np.int32) for q in memberships]
    orders = []
    for d, label in enumerate(labels):
        q = memberships[d]
        orders.append(by_size(count_labels(label, q.shape[1])))
        if isinstance(q, StoredMemberships):
            memberships[d] = q.reorder(orders[-1])
            continue
        for some in np.array_split(q, -(-len(q) // CHUNK)):
            some[:] = some[:, orders[-1]]
    del q  # of the last domain, before the counts are made
    ranks = [np.argsort(order).astype(np.int32) for order in orders]
    labels = list(map(map_labels, labels, ranks))
    hyper, samples = hyper.select(orders), samples or []
    blocks = count_blocks(relation, memberships, labels, sampled=bool(samples))
    log_evidence = Partition.from_labels(relation, [z.copy() for z in labels]).log_joint()
    if degrees is not None and degrees.model is not None:
        assert degrees.corrected_evidence is not None
        log_evidence = degrees.corrected_evidence
        degrees = replace(degrees, model=degrees.model.reorder(orders))
    fitted = (
        collected(memberships),
        collected(labels),
        hyper,
        blocks,
        log_evidence,
        trace,
        converged,
    )
    order = ranks if sticks else None
    return Result(relation, *fitted, samples, sticks=order, degrees=degrees)


def count_blocks(
    relation: Any, memberships: list[Floats], labels: list[Indices], *, sampled: bool
) -> Blocks:
    """Return the blocks of a result: of its labels if it has samples, else of its memberships.

    Predictions of a result with samples average over these.
    """
    if isinstance(memberships[0], StoredMemberships):
        return relation.count_memberships(memberships)
    if sampled:
        return Blocks.from_labels(relation, labels, tuple(q.shape[1] for q in memberships))
    return Blocks.from_memberships(relation, memberships, [hard_labels(q) for q in memberships])


def count_shared(label: Indices, other: Indices) -> NDArray[np.int64]:
    """Return how many objects each cluster of a partition shares with each of another."""
    shape = int(label.max()) + 1, int(other.max()) + 1
    pairs = label.astype(np.int64) * shape[1] + other
    return np.bincount(pairs, minlength=shape[0] * shape[1]).reshape(shape)


def match_memberships(label: Indices, published: Indices) -> Floats:
    """Return, for each object, how its cluster in a sample divides into published clusters."""
    shared = count_shared(label, published)
    return np.asarray((shared / np.maximum(shared.sum(axis=1, keepdims=True), 1))[label])


def fraction_apart(label: Indices, other: Indices) -> float:
    """Return the fraction of pairs that are together in one partition only: 1 less Rand's index."""
    shared = count_shared(label, other)
    together = sum(int((sizes**2).sum()) for sizes in (shared.sum(axis=1), shared.sum(axis=0)))
    ordered_pairs = label.size * (label.size - 1)
    return (together - 2 * int((shared**2).sum())) / max(ordered_pairs, 1)
