"""Default fits of noise give one block, those of weak structure the evidence of the truth."""

import numpy as np
import pytest
from regimes import draw_links
from scipy.optimize import minimize
from scipy.special import betaln, gammaln
from sklearn.metrics import adjusted_rand_score

from coblock import IRM
from coblock.generate import planted
from coblock.inference.engine import LocalEngine
from coblock.model.partition import Partition
from coblock.model.relation import BinaryRelation

SHAPES = [
    ("bipartite", (60, 40), 0.2),
    ("bipartite", (300, 20), 0.3),
    ("bipartite", (500, 300), 0.05),
    ("bipartite", (1500, 900), 0.02),
    ("directed", (150, 150), 0.1),
    ("directed", (150, 150), 0.4),
    ("undirected", (100, 100), 0.1),
    ("undirected", (1000, 1000), 0.016),
]


def communities(objects: int, clusters: int, degree: float, snr: float, rng):
    """Return an undirected relation with assortative clusters of equal size, and their labels.

    ``snr`` is (c_in - c_out)^2 / (k (c_in + (k - 1) c_out)); above 1 the clusters can be found.
    """
    gap = clusters * np.sqrt(snr * degree)
    label = np.repeat(np.arange(clusters), objects // clusters).astype(np.int32)
    outside = degree - gap / clusters
    theta = (outside + gap * (label[:, None] == label)) / objects
    return draw_links("undirected", theta, rng), label


def evidence(X, kind: str, labels: list[np.ndarray], *, polished: bool = False) -> float:
    """Return the log evidence of labels, after greedy sweeps if they are polished."""
    partition = Partition.from_labels(
        BinaryRelation.build(X, kind=kind), [z.copy() for z in labels]
    )
    value, previous = partition.log_joint(), -np.inf
    while polished and value > previous + 1e-6:
        LocalEngine().sweep_labels(partition)
        partition.renumber()
        partition.learn()
        previous, value = value, partition.log_joint()
    return max(value, previous)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(("kind", "shape", "density"), SHAPES)
def test_noise_has_one_block(kind, shape, density, seed):
    rng = np.random.default_rng((seed, *shape))
    X = draw_links(kind, np.full(shape, density), rng)
    model = IRM(relation=kind, random_state=seed).fit(X)
    assert model.block_probability_.shape == (1, 1)
    assert model.converged_


@pytest.mark.parametrize("kind", ["bipartite", "directed", "undirected"])
@pytest.mark.usefixtures("short_chains")
def test_two_blocks_in_place_of_noise_are_found(kind):
    """Negative control: a fit that always gives one block fails."""
    label = np.arange(150) % 2
    theta = np.where(label[:, None] == label, 0.3, 0.1)
    X = draw_links(kind, theta, np.random.default_rng(0))
    model = IRM(relation=kind, random_state=0).fit(X)
    assert model.block_probability_.shape == (2, 2)
    assert adjusted_rand_score(label, model.row_labels_) > 0.9


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.usefixtures("short_chains")
def test_four_weak_communities_reach_the_evidence_of_the_truth(seed):
    X, label = communities(1200, 4, 16.0, 2.6, np.random.default_rng(seed))
    model = IRM(relation="undirected", random_state=seed).fit(X)
    assert model.log_evidence_ >= evidence(X, "undirected", [label])
    one = evidence(X, "undirected", [np.zeros_like(label)])
    assert model.log_evidence_ > one + 100.0  # negative control: one cluster is far below


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.usefixtures("short_chains")
def test_two_weak_communities_reach_the_evidence_of_the_polished_truth(seed):
    X, label = communities(1000, 2, 10.0, 2.5, np.random.default_rng(seed))
    model = IRM(relation="undirected", random_state=seed).fit(X)
    truth = evidence(X, "undirected", [label], polished=True)
    assert model.log_evidence_ >= truth - 2.0
    shuffled = np.random.default_rng(seed).permutation(label)
    assert evidence(X, "undirected", [shuffled]) < truth - 2.0  # negative control


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.usefixtures("short_chains")
def test_weak_blocks_of_two_domains_reach_the_evidence_of_the_polished_truth(seed):
    rng = np.random.default_rng(seed)
    label = np.repeat(np.arange(4), 250).astype(np.int32)
    theta = 0.016 * (1.0 + 0.75 * rng.choice([-1, 1], size=(4, 4)))
    X = draw_links("bipartite", theta[np.ix_(label, label)], rng)
    truth = evidence(X, "bipartite", [label, label], polished=True)
    assert IRM(random_state=seed).fit(X).log_evidence_ >= truth - 0.001 * abs(truth)
    one = evidence(X, "bipartite", [np.zeros_like(label)] * 2)
    assert one < truth - 0.001 * abs(truth)  # negative control


@pytest.mark.usefixtures("short_chains")
def test_nested_weak_clusters_are_found():
    label = np.repeat(np.arange(8), 120).astype(np.int32)
    near, same = label[:, None] // 4 == label // 4, label[:, None] == label
    rate = np.where(same, 8.0, np.where(near, 1.6, 0.5))
    X = draw_links("undirected", 20.0 / 960 * rate / rate.mean(), np.random.default_rng(1))
    model = IRM(relation="undirected", random_state=1).fit(X)
    truth = evidence(X, "undirected", [label], polished=True)
    assert model.log_evidence_ >= truth - 0.001 * abs(truth)
    halves = evidence(X, "undirected", [(label // 4).astype(np.int32)], polished=True)
    assert halves < truth - 0.001 * abs(truth)  # negative control: the upper level alone


@pytest.mark.usefixtures("short_chains")
def test_start_from_one_cluster_reaches_the_evidence_of_the_default():
    drawn = planted((200, 150), (4, 3), 5)
    zeros = tuple(np.zeros(size, dtype=int) for size in (200, 150))
    model = IRM(init=zeros, random_state=0).fit(drawn.X)
    default = IRM(random_state=0).fit(drawn.X)
    assert model.log_evidence_ >= default.log_evidence_ - 0.01


def log_joint(X: np.ndarray, labels: list[np.ndarray], hyper: np.ndarray) -> float:
    """Return log p(X, z) from its definition; ``hyper`` has the logs of a, b and both alphas."""
    a, b, *alpha = np.exp(np.clip(hyper, -15.0, 15.0))
    hot = [np.eye(z.max() + 1)[z] for z in labels]
    n, N = hot[0].T @ X @ hot[1], hot[0].T @ (1.0 - X) @ hot[1]
    total = (betaln(a + n, b + N) - betaln(a, b)).sum()
    for z, concentration in zip(hot, alpha, strict=True):
        m = z.sum(axis=0)
        used = m[m > 0]
        total += used.size * np.log(concentration) + gammaln(used).sum()
        total += gammaln(concentration) - gammaln(concentration + m.sum())
    return float(total)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.usefixtures("short_chains")
def test_default_ends_at_a_local_optimum_with_the_evidence_of_an_independent_optimum(seed):
    """No object gains by another cluster; the evidence is that of a general optimiser."""
    drawn = planted((40, 30), (3, 3), seed)
    X = np.asarray(drawn.X.todense() if hasattr(drawn.X, "todense") else drawn.X, dtype=float)
    model = IRM(random_state=seed).fit(X)
    labels = [model.row_labels_.copy(), model.column_labels_.copy()]
    best = minimize(
        lambda x: -log_joint(X, labels, x),
        np.zeros(4),
        method="Nelder-Mead",
        options={"maxiter": 4000, "xatol": 1e-6, "fatol": 1e-9},
    )
    assert model.log_evidence_ == pytest.approx(-best.fun, abs=1e-3)
    gains = []
    for label in labels:
        for i in range(label.size):
            old = label[i]
            for k in range(label.max() + 2):
                label[i] = k
                gains.append(log_joint(X, labels, best.x) + best.fun)
            label[i] = old
    assert max(gains) < 1e-4 * abs(best.fun), "the least relative gain of a round of the search"
    assert min(gains) < -1.0
    labels[0][:5] = (labels[0][:5] + 1) % (labels[0].max() + 1)
    assert log_joint(X, labels, best.x) < -best.fun - 5.0  # negative control: five moved rows


@pytest.mark.parametrize("seed", range(3))
def test_evidence_is_that_of_the_published_labels_and_of_the_search(seed):
    """Weak blocks: the most probable labels of an average would have less evidence."""
    X, _ = communities(300, 3, 8.0, 2.0, np.random.default_rng(seed))
    model = IRM(relation="undirected", random_state=seed).fit(X)
    assert model.log_evidence_ == pytest.approx(
        evidence(X, "undirected", [model.row_labels_.astype(np.int32)]), abs=1e-6
    )
    best = max(sweep["bound"] for sweep in model.trace_)
    assert model.log_evidence_ >= best - 1e-6


@pytest.mark.parametrize("method", ["cvb0", "acvb0"])
@pytest.mark.usefixtures("short_chains")
def test_fixed_hyperparameters_hold_in_the_search(method):
    label = np.arange(60) % 3
    X = draw_links(
        "bipartite", np.where(label[:, None] == label, 0.5, 0.1), np.random.default_rng(5)
    )
    options = {"hyperparameters": "fixed", "inference": method, "random_state": 0}
    model = IRM(**options).fit(X)
    assert model.result_.hyper.alpha == [1.0, 1.0]
    assert model.result_.hyper.prior.sum() == pytest.approx(1.0)
    assert adjusted_rand_score(label, model.row_labels_) > 0.9


def test_averaging_takes_no_more_sweeps_than_the_method_without_it():
    """Averaging that begins while memberships still move would remember it for long."""
    label = np.arange(156) % 5
    theta = np.where(label[:, None] == label, 0.2, 0.03)
    drawn = draw_links("directed", theta, np.random.default_rng(6))
    options = {"refine": False, "init": "random", "max_clusters": 20, "max_iter": 3000}
    plain = IRM(inference="cvb0", random_state=0, **options).fit(drawn)
    averaged = IRM(inference="acvb0", random_state=0, **options).fit(drawn)
    assert plain.converged_
    assert averaged.converged_
    assert averaged.n_iter_ <= 1.2 * plain.n_iter_ + 5
