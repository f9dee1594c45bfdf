"""Hypothesis strategies: small relations of all kinds, with memberships and hyperparameters."""

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st
from scipy import sparse

from coblock.model.hyperparameters import Hyperparameters
from coblock.model.partition import Partition
from coblock.model.relation import BinaryRelation
from coblock.model.state import SoftState

KINDS = ("bipartite", "directed", "undirected")


@dataclass(frozen=True)
class Case:
    """One relation: dense arrays for the reference, and the object that kernels read."""

    kind: str
    X: np.ndarray
    observed: np.ndarray
    q: list[np.ndarray]
    a: np.ndarray
    b: np.ndarray
    alpha: list[float]
    relation: BinaryRelation

    def state(self) -> SoftState:
        """Return a new state that shares no memory with the case."""
        prior = np.array([self.a, self.b])
        hyper = Hyperparameters(list(self.alpha), prior, per_block=True)
        return SoftState(self.relation, [q.copy() for q in self.q], hyper)

    def labels(self) -> list[np.ndarray]:
        """Return the most probable clusters, renumbered so that all of them are in use."""
        best = [q.argmax(axis=1) for q in self.q]
        return [np.unique(label, return_inverse=True)[1].astype(np.int32) for label in best]

    def partition(self, a: float, b: float) -> Partition:
        """Return the partition into the most probable clusters, with this shared prior."""
        prior = np.array([a, b]).reshape(2, 1, 1)
        return Partition(self.relation, self.labels(), Hyperparameters(list(self.alpha), prior))


def make_case(
    rng: np.random.Generator,
    kind: str,
    shape: tuple[int, int],
    clusters: tuple[int, int],
    links: float = 0.4,
    unseen: float = 0.3,
    self_links: bool = False,
    hard: float = 0.3,
) -> Case:
    """Draw a relation; one-domain kinds use only the first size and number of clusters."""
    if kind != "bipartite":
        shape, clusters = (shape[0], shape[0]), (clusters[0], clusters[0])
    X = (rng.random(shape) < links).astype(float)
    observed = (rng.random(shape) >= unseen).astype(float)
    if shape[0] > 1:
        observed[rng.integers(shape[0])] = 0.0 if rng.random() < 0.2 else observed[0]
    if kind == "undirected":
        X, observed = np.triu(X, 1), np.triu(observed, 1)
        X, observed = X + X.T, observed + observed.T
    if kind != "bipartite" and not (self_links and kind == "directed"):
        np.fill_diagonal(observed, 0.0)
    X *= observed
    hidden = sparse.csr_array(1.0 - observed)
    relation = BinaryRelation.build(X, unseen=hidden, kind=kind, self_links=self_links)
    sizes = shape if kind == "bipartite" else shape[:1]
    q = [_memberships(rng, size, K, hard) for size, K in zip(sizes, clusters, strict=False)]
    a, b = rng.gamma(2.0, 0.5, clusters) + 0.05, rng.gamma(2.0, 0.5, clusters) + 0.05
    if kind == "undirected":
        a, b = (a + a.T) / 2.0, (b + b.T) / 2.0
    alpha = list(rng.gamma(2.0, 0.5, len(q)) + 0.05)
    return Case(kind, X, observed, q, a, b, alpha, relation)


def _memberships(rng: np.random.Generator, size: int, K: int, hard: float) -> np.ndarray:
    """Draw memberships, a fraction of them hard."""
    q = rng.dirichlet(np.ones(K), size)
    is_hard = rng.random(size) < hard
    q[is_hard] = np.eye(K)[rng.integers(K, size=int(is_hard.sum()))]
    return q


@st.composite
def cases(draw: st.DrawFn, most_objects: int = 6, most_clusters: int = 3, kinds=KINDS) -> Case:
    """Draw relations; some have empty rows, only links, 1 x 1 cells, K = 1 or fully unseen rows."""
    sizes = st.integers(1, most_objects)
    clusters = st.integers(1, most_clusters)
    return make_case(
        np.random.default_rng(draw(st.integers(0, 2**32 - 1))),
        draw(st.sampled_from(kinds)),
        (draw(sizes), draw(sizes)),
        (draw(clusters), draw(clusters)),
        links=draw(st.sampled_from([0.0, 0.4, 1.0])),
        unseen=draw(st.sampled_from([0.0, 0.3, 1.0])),
        self_links=draw(st.booleans()),
        hard=draw(st.sampled_from([0.0, 0.5, 1.0])),
    )
