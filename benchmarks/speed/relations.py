"""Relations for the speed benchmarks; generated ones have known labels.

python -m speed.relations SOURCE drawn.npz
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from data import load
from scipy import sparse
from sklearn.metrics import adjusted_rand_score

ROWS_AT_A_TIME = 50_000
SIDES = ("left", "right")  # of NumPy's search
SHARE_INSIDE = 0.9  # of the links of an object, those to its own cluster
TRIAL = "SPEED_TRIAL"  # environment variable: every relation is replaced by a small one


@dataclass(frozen=True)
class Planted:
    """Links, true labels, and the row ARI of the best assignment given the true parameters."""

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

    With ``tail`` above 0, objects have Pareto weights of this index, so degrees are heavy-tailed.
    Without a tail, the best ARI is that of the most probable cluster of each row given the true
    column labels and rates.
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
            for d, objects in enumerate((members[0][k], members[1][l])):
                ends[d].append(_draw_objects(objects, weights[d], count, rng))
    cells = (np.concatenate(ends[0]), np.concatenate(ends[1]))
    X = sparse.csr_array((np.ones(cells[0].size, dtype=np.float32), cells), shape=shape)
    X.data[:] = 1.0  # cells drawn twice are one link
    return Planted(X, z[0], z[1], np.nan if tail else _best_ari(X, z, rate))


def planted_by_rows(
    shape: tuple[int, int], blocks: tuple[int, int], links: int, contrast: float, seed: int = 0
) -> Planted:
    """Draw the same without a tail, some rows at a time: no more memory than the links and labels.

    The best ARI is not computed.
    """
    rng = np.random.default_rng(seed)
    z = [rng.integers(K, size=size, dtype=np.int32) for K, size in zip(blocks, shape, strict=True)]
    order = np.argsort(z[1], kind="stable").astype(np.int32)  # columns by cluster
    size = np.bincount(z[1], minlength=blocks[1])
    start = np.cumsum(size) - size
    rate = np.exp(rng.normal(0.0, contrast, blocks))
    rate *= links / (np.outer(np.bincount(z[0], minlength=blocks[0]), size) * rate).sum()
    indices, indptr = np.empty(int(1.01 * links), np.int32), np.zeros(shape[0] + 1, np.int64)
    end = 0
    for first in range(0, shape[0], ROWS_AT_A_TIME):
        some = z[0][first : first + ROWS_AT_A_TIME]
        counts = rng.poisson(rate[some] * size)  # (rows, column clusters)
        row, cluster = np.divmod(np.repeat(np.arange(counts.size), counts.ravel()), blocks[1])
        column = order[start[cluster] + rng.integers(size[cluster])]
        X = sparse.csr_array(
            (np.ones(row.size, np.int8), (row, column)), shape=(some.size, shape[1])
        )
        X.sum_duplicates()
        indices[end : end + X.nnz] = X.indices
        indptr[first + 1 : first + some.size + 1] = end + X.indptr[1:]
        end += X.nnz
    X = sparse.csr_array((np.ones(end, np.int8), indices[:end], indptr), shape=shape)
    return Planted(X, z[0], z[1], np.nan)


def _weights(size: int, tail: float, rng: np.random.Generator) -> np.ndarray | None:
    return None if tail == 0.0 else 1.0 + rng.pareto(tail, size)


def _draw_objects(
    objects: np.ndarray, weight: np.ndarray | None, count: int, rng: np.random.Generator
) -> np.ndarray:
    """Draw objects with replacement, in proportion to their weights if there are any."""
    if weight is None:
        return objects[rng.integers(objects.size, size=count)]
    total = np.cumsum(weight[objects])
    return objects[np.searchsorted(total, rng.random(count) * total[-1])]


def _best_ari(X: sparse.csr_array, z: list[np.ndarray], rate: np.ndarray) -> float:
    members = sparse.csr_array((np.ones(z[1].size), (np.arange(z[1].size), z[1])))
    seen = np.bincount(z[1], minlength=rate.shape[1])
    score = (X @ members).toarray() @ np.log(rate / (1.0 - rate)).T
    score += np.log1p(-rate) @ seen
    return float(adjusted_rand_score(z[0], score.argmax(axis=1)))


def assortative(size: int, clusters: int, links: int, seed: int = 0) -> sparse.csr_array:
    """Draw as many rows as columns, with so many links each, nine in ten of them inside."""
    rng = np.random.default_rng(seed)
    row = np.repeat(np.arange(size), links)
    inside = rng.random(row.size) < SHARE_INSIDE
    column = rng.integers(size // clusters, size=row.size) * clusters + row % clusters
    column = np.where(inside, column, rng.integers(size, size=row.size))
    X = sparse.csr_array((np.ones(row.size), (row, column)), shape=(size, size))
    X.data[:] = 1.0  # cells drawn twice are one link
    return X


def gamma_degrees(shape: tuple[int, int], rng: np.random.Generator) -> np.ndarray:
    """Draw expected degrees from the law that degree correction assumes."""
    return rng.gamma(3.0, size=shape)


def power_law_degrees(shape: tuple[int, int], rng: np.random.Generator) -> np.ndarray:
    """Draw expected degrees from a power law of exponent 2.5 between 1 and 10."""
    return (1.0 - rng.random(shape) * (1.0 - 10.0**-1.5)) ** (-1.0 / 1.5)


def corrected(
    size: int, clusters: int, links: int, degrees: Callable[..., np.ndarray], seed: int = 0
) -> Planted:
    """Draw a directed graph of clusters whose members differ in links out and in links in."""
    rng = np.random.default_rng(seed)
    z = np.sort(rng.integers(clusters, size=size, dtype=np.int32))
    weights = degrees((2, size), rng)
    out, into = np.cumsum(np.hstack((np.zeros((2, 1)), weights)), axis=1)
    first, stop = (into[np.searchsorted(z, np.arange(clusters), side)] for side in SIDES)
    ends: list[list[np.ndarray]] = [[], []]
    for count in np.full(24, links // 24):
        source = np.searchsorted(out, rng.random(count) * out[-1], "right") - 1
        inside = rng.random(count) < SHARE_INSIDE
        low = np.where(inside, first[z[source]], 0.0)
        high = np.where(inside, stop[z[source]], into[-1])
        target = np.searchsorted(into, low + rng.random(count) * (high - low), "right") - 1
        for end, objects in zip(ends, (source, target), strict=True):
            end.append(np.minimum(objects, size - 1).astype(np.int32))
    renamed = rng.permutation(size).astype(np.int32)
    row, column = (renamed[np.concatenate(end)] for end in ends)
    kept = row != column
    cells = (np.ones(kept.sum(), np.int8), (row[kept], column[kept]))
    X = sparse.csr_array(cells, shape=(size, size))
    X.data[:] = 1  # cells drawn twice are one link
    labels = np.empty_like(z)
    labels[renamed] = z
    return Planted(X, labels, labels, np.nan)


GENERATED: dict[str, Callable[[], Planted]] = {
    "20,000 x 5,000": lambda: planted((20_000, 5_000), (12, 10), 800_000, 1.05),
    "200,000 x 20,000": lambda: planted((200_000, 20_000), (20, 15), 5_000_000, 1.04),
    "1 M links": lambda: planted_by_rows((40_000, 4_000), (30, 30), 1_000_000, 1.0),
    "10 M links": lambda: planted_by_rows((400_000, 40_000), (30, 30), 10_000_000, 1.0),
    "100 M links": lambda: planted_by_rows((4_000_000, 400_000), (30, 30), 100_000_000, 1.0),
    "1 M nodes": lambda: corrected(1_000_000, 125, 24_000_000, gamma_degrees),
    "20,000 nodes": lambda: corrected(20_000, 3, 480_000, power_law_degrees),
    "netflix": lambda: planted((480_189, 17_770), (30, 20), 25_500_000, 1.0, tail=1.5),
}


def small() -> Planted:
    """Return a relation that is fitted quickly, to load kernels and for trials."""
    return planted((1500, 900), (4, 4), 20_000, 1.0)


def relation(source: str) -> Planted:
    """Return a generated relation, or a real one without labels.

    Another process draws generated relations, so that this memory is not measured.
    """
    if source not in GENERATED and TRIAL not in os.environ:
        return Planted(load(source), None, None, np.nan)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "drawn.npz"
        subprocess.run([sys.executable, "-m", "speed.relations", source, str(path)], check=True)
        with np.load(path) as kept:
            cells = (kept["indices"], kept["indptr"])
            X = sparse.csr_array((np.ones(cells[0].size, np.int8), *cells), tuple(kept["shape"]))
            return Planted(X, kept["rows"], kept["columns"], float(kept["best"]))


def draw(source: str, path: str) -> None:
    """Draw a relation and write it to a file."""
    drawn = small() if TRIAL in os.environ else GENERATED[source]()
    X = drawn.X
    parts = {part: getattr(X, part).astype(np.int32, copy=False) for part in ("indices", "indptr")}
    np.savez(path, shape=X.shape, rows=drawn.rows, columns=drawn.columns, best=drawn.best, **parts)


if __name__ == "__main__":
    draw(*sys.argv[1:])
