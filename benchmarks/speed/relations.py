"""Generated relations of the sizes that benchmarks need, with the truth that made them."""

from dataclasses import dataclass

import numpy as np
from scipy import sparse
from sklearn.metrics import adjusted_rand_score


@dataclass(frozen=True)
class Planted:
    """Links, true labels, and the best row ARI that the true parameters can reach."""

    X: sparse.csr_array
    rows: np.ndarray | None
    columns: np.ndarray | None
    best: float


def planted(
    shape: tuple[int, int],
    blocks: tuple[int, int],
    links: int,
    contrast: float,
    seed: int = 0,
    tail: float = 0.0,
) -> Planted:
    """Draw a relation whose block rates are log-normal with deviation ``contrast``.

    With ``tail`` above 0 the degrees are heavy-tailed: objects of a cluster have Pareto weights
    of this index. The best ARI is that of the most probable cluster of each row given the true
    columns and rates (without a tail).
    """
    rng = np.random.default_rng(seed)
    z = [rng.integers(K, size=size) for K, size in zip(blocks, shape, strict=True)]
    members = [
        [np.flatnonzero(label == k) for k in range(K)] for label, K in zip(z, blocks, strict=True)
    ]
    weights = [_weights(size, tail, rng) for size in shape]
    rate = np.exp(rng.normal(0.0, contrast, blocks))
    sizes = [np.bincount(label, minlength=K) for label, K in zip(z, blocks, strict=True)]
    rate *= links / (np.outer(*sizes) * rate).sum()
    rate = np.minimum(rate, 0.9)
    ends: list[list[np.ndarray]] = [[], []]
    for k in range(blocks[0]):
        for l in range(blocks[1]):
            count = rng.binomial(members[0][k].size * members[1][l].size, rate[k, l])
            for d, who in enumerate((members[0][k], members[1][l])):
                ends[d].append(_drawn(who, weights[d], count, rng))
    cells = (np.concatenate(ends[0]), np.concatenate(ends[1]))
    X = sparse.csr_array((np.ones(cells[0].size, dtype=np.float32), cells), shape=shape)
    X.data[:] = 1.0  # cells drawn twice count once
    return Planted(X, z[0], z[1], np.nan if tail else _best_ari(X, z, rate))


def _weights(size: int, tail: float, rng: np.random.Generator) -> np.ndarray | None:
    return None if tail == 0.0 else 1.0 + rng.pareto(tail, size)


def _drawn(
    who: np.ndarray, weight: np.ndarray | None, count: int, rng: np.random.Generator
) -> np.ndarray:
    """Draw ``count`` of the objects with replacement, by weight where there is one."""
    if weight is None:
        return who[rng.integers(who.size, size=count)]
    total = np.cumsum(weight[who])
    return who[np.searchsorted(total, rng.random(count) * total[-1])]


def _best_ari(X: sparse.csr_array, z: list[np.ndarray], rate: np.ndarray) -> float:
    members = sparse.csr_array((np.ones(z[1].size), (np.arange(z[1].size), z[1])))
    seen = np.bincount(z[1], minlength=rate.shape[1])
    score = (X @ members).toarray() @ np.log(rate / (1.0 - rate)).T
    score += np.log1p(-rate) @ seen
    return float(adjusted_rand_score(z[0], score.argmax(axis=1)))
