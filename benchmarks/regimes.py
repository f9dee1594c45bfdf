"""Default fits of noise and of weak structure, for docs/quality.md."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import process_time

import numpy as np

from coblock import IRM
from coblock.inference.engine import LocalEngine
from coblock.model.partition import Partition
from coblock.model.relation import BinaryRelation

NOISE = [  # kind, shape, density
    ("bipartite", (60, 40), 0.2),
    ("bipartite", (100, 60), 0.3),
    ("bipartite", (200, 120), 0.1),
    ("bipartite", (300, 20), 0.3),
    ("bipartite", (500, 300), 0.05),
    ("bipartite", (500, 300), 0.2),
    ("bipartite", (500, 300), 0.5),
    ("bipartite", (1500, 900), 0.02),
    ("bipartite", (2000, 1200), 0.05),
    ("directed", (80, 80), 0.1),
    ("directed", (150, 150), 0.1),
    ("directed", (150, 150), 0.4),
    ("directed", (500, 500), 0.03),
    ("undirected", (100, 100), 0.1),
    ("undirected", (300, 300), 0.05),
    ("undirected", (1000, 1000), 0.016),
]

Drawn = tuple[np.ndarray, list[np.ndarray]]  # links, and the labels of each domain


@dataclass(frozen=True)
class Regime:
    """Relations with planted clusters that are hard to find."""

    name: str
    kind: str
    draw: Callable[[np.random.Generator], Drawn]


def noise(draws: int, _: list[str]) -> Iterator[str]:
    """Count the fits of relations of one density that have one block."""
    yield "| relation | density | one block | of | largest number of blocks | CPU seconds |"
    yield "|---|---|---|---|---|---|"
    found = 0
    for kind, shape, density in NOISE:
        blocks, began = [], process_time()
        for seed in range(draws):
            X = draw_links(kind, np.full(shape, density), np.random.default_rng((seed, *shape)))
            blocks.append(IRM(relation=kind, random_state=seed).fit(X).block_probability_.size)
        single = blocks.count(1)
        found += single
        seconds = (process_time() - began) / draws
        size = f"{shape[0]:,} x {shape[1]:,}"
        yield f"| {kind}, {size} | {density} | {single} | {draws} | {max(blocks)} | {seconds:.1f} |"
    yield f"| all | | {found} | {draws * len(NOISE)} | | |"


def weak(draws: int, _: list[str]) -> Iterator[str]:
    """Compare the evidence of fits with that of the truth, as it is and after greedy sweeps."""
    yield (
        "| relation | at least the truth | at least the polished truth less 2 nats | less 0.1 % | "
        "of | smallest difference to the polished truth, nats | CPU seconds |"
    )
    yield "|---|---|---|---|---|---|---|"
    for regime in REGIMES:
        truths, gaps, limits, began = 0, [], [], process_time()
        for seed in range(draws):
            X, labels = regime.draw(np.random.default_rng(seed))
            value = IRM(relation=regime.kind, random_state=seed).fit(X).log_evidence_
            truth = partition_of(X, regime.kind, labels)
            truths += value >= truth.log_joint() - 1e-6
            gaps.append(value - polish(truth))
            limits.append(-0.001 * abs(value))
        near = sum(gap >= -2.0 for gap in gaps)
        close = sum(gap >= limit for gap, limit in zip(gaps, limits, strict=True))
        seconds = (process_time() - began) / draws
        numbers = f"{truths} | {near} | {close} | {draws} | {min(gaps):+.1f} | {seconds:.1f}"
        yield f"| {regime.name} | {numbers} |"


def partition_of(X: np.ndarray, kind: str, labels: list[np.ndarray]) -> Partition:
    """Return the partition of labels at its best hyperparameters."""
    return Partition.from_labels(BinaryRelation.build(X, kind=kind), [z.copy() for z in labels])


def polish(partition: Partition) -> float:
    """Return the evidence after sweeps of best labels for as long as it rises."""
    value, previous = partition.log_joint(), -np.inf
    while value > previous + 1e-6:
        LocalEngine().sweep_labels(partition)
        partition.renumber()
        partition.learn()
        previous, value = value, partition.log_joint()
    return max(value, previous)


def draw_links(kind: str, theta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return links with these probabilities; no object is linked to itself in one domain."""
    X = (rng.random(theta.shape) < theta).astype(float)
    if kind == "undirected":
        X = np.triu(X, 1) + np.triu(X, 1).T
    if kind == "directed":
        np.fill_diagonal(X, 0.0)
    return X


def communities(
    objects: int, clusters: int, degree: float, snr: float
) -> Callable[[np.random.Generator], Drawn]:
    """Return a draw of equal communities with this signal-to-noise ratio.

    (c_in - c_out)^2 / (k (c_in + (k - 1) c_out)) for k communities; the threshold is 1.
    """

    def draw(rng: np.random.Generator) -> Drawn:
        gap = clusters * np.sqrt(snr * degree)
        label = np.repeat(np.arange(clusters), objects // clusters).astype(np.int32)
        theta = (degree - gap / clusters + gap * (label[:, None] == label)) / objects
        return draw_links("undirected", theta, rng), [label]

    return draw


def bipartite(rng: np.random.Generator) -> Drawn:
    """Return 4 x 4 blocks of two densities that differ by a factor of 7, 16 links an object."""
    label = np.repeat(np.arange(4), 250).astype(np.int32)
    theta = 0.016 * (1.0 + 0.75 * rng.choice([-1, 1], size=(4, 4)))
    return draw_links("bipartite", theta[np.ix_(label, label)], rng), [label, label]


def nested(rng: np.random.Generator) -> Drawn:
    """Return two groups of four clusters; links are likelier in a group, and in a cluster more."""
    label = np.repeat(np.arange(8), 120).astype(np.int32)
    near, same = label[:, None] // 4 == label // 4, label[:, None] == label
    rate = np.where(same, 8.0, np.where(near, 1.6, 0.5))
    return draw_links("undirected", 20.0 / 960 * rate / rate.mean(), rng), [label]


REGIMES = [
    Regime(
        "undirected, 4 communities, degree 16, SNR 2.6, n = 1,200",
        "undirected",
        communities(1200, 4, 16.0, 2.6),
    ),
    Regime(
        "undirected, 2 communities, degree 10, SNR 2.5, n = 1,000",
        "undirected",
        communities(1000, 2, 10.0, 2.5),
    ),
    Regime(
        "undirected, 40 communities, degree 20, SNR 6, n = 1,200",
        "undirected",
        communities(1200, 40, 20.0, 6.0),
    ),
    Regime("bipartite, 1,000 x 1,000, 4 x 4 weak blocks", "bipartite", bipartite),
    Regime("undirected, 2 x 4 nested clusters, n = 960", "undirected", nested),
]
