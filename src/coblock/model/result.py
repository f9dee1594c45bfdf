"""The result of a fit; immutable."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from coblock.kernels import Floats, Indices
from coblock.model.blocks import Blocks
from coblock.model.hyperparameters import Hyperparameters
from coblock.model.partition import Partition
from coblock.model.state import SoftState, by_size, select_columns
from coblock.model.trace import SweepRecord

CHUNK = 512  # objects whose memberships are copied at a time to be reordered
TIE = 1e-9  # memberships that differ by less are equal


@dataclass(frozen=True, slots=True)
class Sample:
    """One kept state of a Gibbs chain: labels per domain and link probabilities of the blocks."""

    labels: list[Indices]
    probability: Floats  # (K1, K2)


@dataclass(frozen=True, slots=True)
class Result:
    """Memberships, labels and blocks; clusters by descending number of members, none empty."""

    relation: Any  # Relation, or one whose cells are on a cluster
    memberships: list[Floats]  # per domain (objects, K)
    labels: list[Indices]  # per domain (objects,)
    hyper: Hyperparameters
    blocks: Blocks
    log_evidence: float
    trace: list[SweepRecord]
    converged: bool
    samples: list[Sample] = field(default_factory=list)
    stability: float | None = None  # mean adjusted Rand index between the restarts

    @property
    def n(self) -> Floats:
        """Expected links of every block."""
        return self.blocks.n

    @property
    def N(self) -> Floats:  # noqa: N802 - the paper's name
        """Expected observed non-links of every block."""
        return self.blocks.N

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
    samples: list[Sample] | None = None,
) -> Result:
    """Return the result of a fit, with clusters numbered from the largest.

    Clusters that are not the most probable one of any object are dropped; their memberships go
    to the others in proportion. The memberships are reordered in place.
    """
    keep = []
    for d, q in enumerate(memberships):
        members = np.bincount(break_ties(q).argmax(axis=1), minlength=q.shape[1])
        keep.append(by_size(members)[: np.count_nonzero(members)])
        if keep[d].size < q.shape[1]:
            memberships[d] = select_columns(q, keep[d])
        else:
            for some in np.array_split(q, -(-len(q) // CHUNK)):
                some[:] = some[:, keep[d]]
    del q  # of the last domain, before the counts are made
    state = SoftState(relation, memberships, hyper.select(keep))
    labels = [q.argmax(axis=1).astype(np.int32) for q in state.q]
    log_evidence = Partition.from_labels(relation, labels).log_joint()
    fitted = (state.q, labels, state.hyper, state.blocks, log_evidence, trace, converged)
    return Result(relation, *fitted, samples or [])


def break_ties(q: Floats) -> Floats:
    """Change memberships in place so that ties do not depend on the order of the clusters."""
    label = q.argmax(axis=1)
    rows = np.arange(label.size)
    best = q[rows, label].copy()
    q[rows, label] = -1.0
    tied = best - q.max(axis=1) < TIE
    q[rows, label] = best
    q[rows[tied], label[tied]] += TIE
    return q
