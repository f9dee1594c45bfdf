"""Hypothesis: small relations of all kinds with memberships and priors, hard cases included."""

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st
from scipy import sparse

from coblock.model.hyperparameters import Priors
from coblock.model.relation import Relation
from coblock.model.state import State

KINDS = ("bipartite", "directed", "undirected")


@dataclass(frozen=True)
class Case:
    """One relation, dense for the reference and built for the kernels."""

    kind: str
    X: np.ndarray
    observed: np.ndarray
    q: list[np.ndarray]
    a: np.ndarray
    b: np.ndarray
    alpha: list[float]
    relation: Relation

    def state(self) -> State:
        """A fresh state that shares no memory with the case."""
        priors = Priors(list(self.alpha), self.a.copy(), self.b.copy(), shared=False)
        return State(self.relation, [q.copy() for q in self.q], priors)


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
    """Draw a relation; one-domain kinds use the first size and number of clusters only."""
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
    relation = Relation.build(X, unseen=hidden, kind=kind, self_links=self_links)
    sizes = shape if kind == "bipartite" else shape[:1]
    q = [_memberships(rng, size, K, hard) for size, K in zip(sizes, clusters, strict=False)]
    a, b = rng.gamma(2.0, 0.5, clusters) + 0.05, rng.gamma(2.0, 0.5, clusters) + 0.05
    if kind == "undirected":
        a, b = (a + a.T) / 2.0, (b + b.T) / 2.0
    alpha = list(rng.gamma(2.0, 0.5, len(q)) + 0.05)
    return Case(kind, X, observed, q, a, b, alpha, relation)


def _memberships(rng: np.random.Generator, size: int, K: int, hard: float) -> np.ndarray:
    """Soft memberships, a share of them decided."""
    q = rng.dirichlet(np.ones(K), size)
    decided = rng.random(size) < hard
    q[decided] = np.eye(K)[rng.integers(K, size=int(decided.sum()))]
    return q


@st.composite
def cases(draw: st.DrawFn, most_objects: int = 6, most_clusters: int = 3, kinds=KINDS) -> Case:
    """Relations with empty rows, all ones, 1 x 1, K = 1, rows that are wholly unseen."""
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
