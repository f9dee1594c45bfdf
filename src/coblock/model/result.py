"""What a fit has found; frozen."""

from dataclasses import dataclass

import numpy as np

from coblock.kernels import Floats, Indices
from coblock.model.hyperparameters import Priors
from coblock.model.partition import Partition
from coblock.model.relation import Relation
from coblock.model.state import State, by_size, chosen_columns
from coblock.model.trace import Sweep

AT_ONCE = 512  # objects whose memberships are copied to be put in order
TIE = 1e-9  # two memberships that differ by less are equal


@dataclass(frozen=True, slots=True)
class Sample:
    """One kept state of the chain: labels per domain and the blocks' link probabilities."""

    labels: list[Indices]
    probability: Floats  # (K1, K2)


@dataclass(frozen=True, slots=True)
class Result:
    """Memberships, labels and blocks; clusters by descending number of members, none empty."""

    relation: Relation
    memberships: list[Floats]  # per domain (objects, K)
    labels: list[Indices]  # per domain (objects,)
    priors: Priors
    n: Floats  # (K1, K2) expected links
    N: Floats  # (K1, K2) expected observed non-links
    log_evidence: float
    trace: list[Sweep]
    converged: bool
    samples: list[Sample]
    stability: float | None = None  # mean adjusted Rand index between the restarts

    @property
    def block_probability(self) -> Floats:
        """Posterior mean link probability of every block (MODEL 13)."""
        a, b = self.priors.a, self.priors.b
        return (a + self.n) / (a + b + self.n + self.N)


def conclude(
    relation: Relation,
    memberships: list[Floats],
    priors: Priors,
    trace: list[Sweep],
    *,
    converged: bool,
    samples: list[Sample] | None = None,
) -> Result:
    """Return the result of a run, its clusters numbered from the largest.

    Clusters that are nobody's most probable one are left out; what memberships they had goes to
    the others in proportion. The memberships are taken over, and put in order where they are.
    """
    keep = []
    for d, q in enumerate(memberships):
        members = np.bincount(without_ties(q).argmax(axis=1), minlength=q.shape[1])
        keep.append(by_size(members)[: np.count_nonzero(members)])
        if keep[d].size < q.shape[1]:
            memberships[d] = chosen_columns(q, keep[d])
        else:
            reorder(q, keep[d])
    del q  # of the last domain, before the counts are made
    state = State(relation, memberships, priors.selected(keep))
    labels = [q.argmax(axis=1).astype(np.int32) for q in state.q]
    return Result(
        relation,
        state.q,
        labels,
        state.priors,
        state.n,
        state.N,
        Partition.start(relation, labels).log_joint(),
        trace,
        converged,
        samples or [],
    )


def reorder(q: Floats, order: Indices) -> None:
    """Put the clusters of memberships in another order, in their place."""
    for some in np.array_split(q, -(-len(q) // AT_ONCE)):
        some[:] = some[:, order]


def without_ties(q: Floats) -> Floats:
    """Return the memberships, so changed that no tie depends on the clusters' order."""
    label = q.argmax(axis=1)
    rows = np.arange(label.size)
    best = q[rows, label].copy()
    q[rows, label] = -1.0
    tied = best - q.max(axis=1) < TIE
    q[rows, label] = best
    q[rows[tied], label[tied]] += TIE
    return q
