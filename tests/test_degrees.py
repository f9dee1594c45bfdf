"""Degree correction: evidence, bounds, conditionals and moves against their definitions."""

import re
from dataclasses import replace
from functools import cache
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.special import digamma, gammaln, roots_genlaguerre, roots_jacobi, softmax
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score

from coblock import IRM, MultiIRM, Relation, load, resume
from coblock.analysis.evaluation import sample_held_out, score, without_cells
from coblock.generate import planted
from coblock.inference.degrees import (
    DegreeAverage,
    DegreeSearch,
    empty_memberships,
    merge_degrees,
    normalised_labels,
    shuffle_ends,
    split_degrees,
    sweep_degrees,
)
from coblock.inference.settings import SEARCH, Settings
from coblock.io import model_file
from coblock.io.model_file import ModelFileError
from coblock.kernels.degrees import PLAIN, fill_values, merger_gain, sweep_objects
from coblock.kernels.poisson import gamma_derivatives, gamma_marginals
from coblock.model.degrees import POISSON, DegreePartition, places_of
from coblock.model.hyperparameters import crp_log_probability
from coblock.model.partition import Partition
from coblock.model.relation import BinaryRelation
from coblock.ui.cli.options import FitOptions

KINDS = ("bipartite", "directed", "own cells", "undirected")
seeds = st.integers(0, 2**32 - 1)
every_kind = pytest.mark.parametrize("kind", KINDS)


def random_partition(
    kind: str, seed: int, sizes=(7, 6), clusters=3, unseen=0.1, density=0.4
) -> DegreePartition:
    """Random links, unseen cells, labels, counts and hyperparameters."""
    rng = np.random.default_rng(seed)
    shape = sizes if kind == "bipartite" else (sizes[0], sizes[0])
    X, hidden = rng.random(shape) < density, rng.random(shape) < unseen
    if kind == "undirected":
        X, hidden = np.triu(X, 1), np.triu(hidden, 1)
    elif kind == "directed":
        np.fill_diagonal(X, 0)
    name = "directed" if kind == "own cells" else kind
    relation = BinaryRelation.build(
        sparse.csr_array((X & ~hidden).astype(float)),
        unseen=sparse.csr_array(hidden.astype(float)),
        kind=name,
        self_links=kind == "own cells",
    )
    labels = [rng.integers(clusters, size=size).astype(np.int32) for size in relation.sizes]
    partition = DegreePartition.from_labels(relation, labels)
    set_counts(partition, 1.0 + 0.5 * rng.random(shape))
    partition.prior = rng.gamma(2.0, 1.0, (2, 1, 1))
    partition.eta = rng.gamma(2.0, 1.0, partition.eta.size)
    partition.alpha = rng.gamma(2.0, 1.0, len(labels)).tolist()
    partition.factors = [rng.gamma(4.0, 0.2, each.size) for each in partition.factors]
    return partition


def set_counts(partition: DegreePartition, table: np.ndarray) -> None:
    """Give the links of a relation these counts; an undirected table is made symmetric."""
    relation = partition.relation
    table = np.triu(table) + np.triu(table, 1).T if relation.symmetric else table
    for p, place in enumerate(places_of(relation)):
        owner = np.repeat(np.arange(place.link_start.size - 1), np.diff(place.link_start))
        cell = (owner, place.link) if p == 0 else (place.link, owner)
        partition.counts[p] = np.ascontiguousarray(table[cell])
    if partition.own_counts.size:
        partition.own_counts = np.diag(table) * relation.own_link


def dense_counts(partition: DegreePartition) -> np.ndarray:
    """The counts as a matrix; an undirected one has both halves."""
    relation, X = partition.relation, np.zeros(partition.relation.shape)
    place = places_of(relation)[0]
    owner = np.repeat(np.arange(X.shape[0]), np.diff(place.link_start))
    X[owner, place.link] = partition.counts[0]
    if partition.own_counts.size:
        X[np.diag_indices(len(X))] = partition.own_counts
    return X


def dense_unseen(partition: DegreePartition) -> np.ndarray:
    """Exposures of the unseen cells as a matrix."""
    place, U = places_of(partition.relation)[0], np.zeros(partition.relation.shape)
    owner = np.repeat(np.arange(U.shape[0]), np.diff(place.unseen_start))
    first, last = partition.factors[0], partition.factors[-1]
    U[owner, place.unseen] = first[owner] * last[place.unseen]
    return U


def definition(partition: DegreePartition) -> float:
    """DEGREES D2 and D3, dense and slow."""
    relation, X, U = partition.relation, dense_counts(partition), dense_unseen(partition)
    (a, b), eta = partition.prior.ravel(), partition.eta
    z, w = partition.labels[0], partition.labels[-1]
    value = sum(
        map(crp_log_probability, map(partition.sizes, range(len(partition.alpha))), partition.alpha)
    )
    for k in range(z.max() + 1):
        for l in range(k if relation.symmetric else 0, w.max() + 1):
            block = np.ix_(z == k, w == l)
            n, u = X[block].sum(), U[block].sum()
            m, T = (z == k).sum(), float((z == k).sum() * (w == l).sum())
            if relation.symmetric and k == l:
                n, u, T = n / 2, u / 2, m**2 / 2 * eta[0] * (m - 1) / (m * eta[0] + 1)
            elif relation.repeated and k == l:
                T -= (1.0 - relation.own_seen[z == k]).sum()
            T = max(T - u, 0.0)
            value += a * np.log(b) - gammaln(a) + gammaln(a + n) - (a + n) * np.log(b + T)
    degrees = [X.sum(axis=1)] if relation.symmetric else [X.sum(axis=1), X.sum(axis=0)]
    for degree, shape, label in zip(degrees, eta, (z, w), strict=False):
        value += (gammaln(degree + shape) - gammaln(shape)).sum()
        for k in range(label.max() + 1):
            m, D = (label == k).sum(), degree[label == k].sum()
            value += D * np.log(m) + gammaln(m * shape) - gammaln(D + m * shape)
    return value + partition.constant


@every_kind
@settings(deadline=None, max_examples=25)
@given(seed=seeds)
def test_log_joint_equals_the_dense_definition(kind, seed):
    partition = random_partition(kind, seed)
    assert_allclose(partition.log_joint(), definition(partition), rtol=1e-10)


@every_kind
def test_comparison_with_the_definition_can_fail(kind):
    partition = random_partition(kind, 1)
    right = definition(partition)
    partition.counts[0] = partition.counts[0] + 0.1
    assert abs(partition.log_joint() - right) > 1e-3


# Evidence against numerical integration


def factor_nodes(eta: float, size: int = 60) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights of the factors of two objects in one cluster: 2 Dirichlet(eta, eta)."""
    x, weight = roots_jacobi(size, eta - 1.0, eta - 1.0)
    return np.stack((1.0 + x, 1.0 - x), axis=1), weight / weight.sum()


def rate_nodes(a: float, b: float, size: int = 60) -> tuple[np.ndarray, np.ndarray]:
    x, weight = roots_genlaguerre(size, a - 1.0)
    return x / b, weight / weight.sum()


def integrate(log_cells, eta: tuple[float, float], a: float, b: float) -> float:
    """Log of the mean of exp(log_cells(rates)) over the prior of one 2 x 2 block."""
    (phi, of_phi), (psi, of_psi) = factor_nodes(eta[0]), factor_nodes(eta[1])
    rate, of_rate = rate_nodes(a, b)
    mu = rate[:, None, None, None, None] * phi[:, None, :, None] * psi[None, :, None, :]
    mean = np.einsum("rpq,r,p,q->", np.exp(log_cells(mu)), of_rate, of_phi, of_psi)
    return float(np.log(mean))


def one_block(X: np.ndarray, kind: str, unseen=None) -> DegreePartition:
    """Return all objects of a 2 x 2 relation in one cluster, with hyperparameters."""
    own = kind == "own cells"
    links, name = sparse.csr_array((X > 0).astype(float)), "directed" if own else kind
    relation = BinaryRelation.build(links, unseen=unseen, kind=name, self_links=own)
    partition = DegreePartition.from_labels(relation, [np.zeros(2, np.int32)] * len(relation.sizes))
    partition.eta, partition.prior = np.array([1.3, 2.1]), np.array([1.7, 2.5]).reshape(2, 1, 1)
    return partition


def crp(partition: DegreePartition) -> float:
    return sum(
        crp_log_probability(partition.sizes(d), alpha) for d, alpha in enumerate(partition.alpha)
    )


@pytest.mark.parametrize("kind", ["bipartite", "own cells"])
def test_evidence_of_counts_equals_quadrature(kind):
    X = np.array([[3.0, 1.0], [0.0, 2.0]])
    partition = one_block(X, kind)
    set_counts(partition, X)

    def log_poisson(mu):
        return (X * np.log(mu) - mu - gammaln(X + 1.0)).sum(axis=(-1, -2))

    exact = integrate(log_poisson, (1.3, 2.1), 1.7, 2.5)
    found = partition.log_joint() - crp(partition) - gammaln(X + 1.0).sum()
    assert_allclose(found, exact, rtol=1e-9)
    partition.eta = partition.eta[::-1].copy()  # negative control: shapes of the wrong places
    assert abs(partition.log_joint() - crp(partition) - gammaln(X + 1.0).sum() - exact) > 1e-3


def test_evidence_of_an_undirected_relation_equals_quadrature():
    """The factors enter by their powers; the unseen diagonal by the prior mean of the exposure."""
    relation = BinaryRelation.build(np.array([[0.0, 1.0], [1.0, 0.0]]), kind="undirected")
    partition = DegreePartition.from_labels(relation, [np.zeros(2, np.int32)])
    a, b, eta = 1.7, 2.5, 1.3
    partition.eta, partition.prior = np.array([eta]), np.array([a, b]).reshape(2, 1, 1)
    phi, weight = factor_nodes(eta)
    product = phi[:, 0] * phi[:, 1]
    T = weight @ product
    rate, of_rate = rate_nodes(a, b)
    exact = np.log(weight @ product) + np.log(of_rate @ (rate * np.exp(-rate * T)))
    assert_allclose(partition.log_joint() - crp(partition), exact, rtol=1e-9)
    wrong = np.log(weight @ product) + np.log(of_rate @ (rate * np.exp(-rate)))
    assert abs(wrong - exact) > 1e-2


@pytest.mark.parametrize("kind", ["bipartite", "own cells"])
def test_bound_of_binary_data_is_between_poisson_and_exact(kind):
    X = np.array([[1.0, 1.0], [0.0, 1.0]])
    partition = one_block(X, kind)

    def log_binary(mu):
        return np.where(X > 0, np.log(-np.expm1(-mu)), -mu).sum(axis=(-1, -2))

    exact = integrate(log_binary, (1.3, 2.1), 1.7, 2.5) + crp(partition)
    poisson, bound = partition.log_joint(), partition.log_bound()
    assert poisson < bound < exact
    assert exact - bound < 0.5 * (exact - poisson)
    partition.refresh()
    assert poisson < partition.log_joint() <= bound + 1e-9
    partition.constant += 1.0  # negative control: a wrong constant is above
    assert partition.log_joint() > exact


def test_bound_with_unseen_cells_is_below_exact_and_plug_in_is_close():
    X, hidden = np.array([[1.0, 0.0], [0.0, 1.0]]), sparse.csr_array(np.array([[0.0, 1.0], [0, 0]]))
    partition = one_block(X, "bipartite", hidden)

    def log_seen(mu):
        cells = np.where(X > 0, np.log(-np.expm1(-mu)), -mu)
        return (cells * (hidden.toarray() == 0)).sum(axis=(-1, -2))

    def log_zero_filled(mu):
        return np.where(X > 0, np.log(-np.expm1(-mu)), -mu).sum(axis=(-1, -2))

    exact = integrate(log_seen, (1.3, 2.1), 1.7, 2.5) + crp(partition)
    zero_filled = integrate(log_zero_filled, (1.3, 2.1), 1.7, 2.5) + crp(partition)
    bound = partition.log_bound()
    assert bound < exact
    assert exact - bound < exact - zero_filled  # negative control: zeros in place of unseen
    partition.refresh()
    assert abs(partition.log_joint() - exact) < exact - zero_filled


def test_prior_mean_of_the_exposure_of_an_unseen_diagonal():
    rng, m, eta = np.random.default_rng(0), 3, 0.8
    phi = m * rng.dirichlet(np.full(m, eta), 400_000)
    pairs = 0.5 * (m**2 - (phi**2).sum(axis=1).mean())
    X = np.ones((m, m)) - np.eye(m)
    partition = DegreePartition.from_labels(
        BinaryRelation.build(X, kind="undirected"), [np.zeros(m, np.int32)]
    )
    partition.eta = np.array([eta])
    assert_allclose(partition.block_statistics()[1], pairs, rtol=5e-3)
    partition.eta = np.array([PLAIN])
    assert_allclose(partition.block_statistics()[1], m * (m - 1) / 2, rtol=1e-5)


# Labels


def plain_poisson(partition: DegreePartition) -> float:
    n, T = partition.block_statistics()
    once = np.triu(np.ones(n.shape, bool)) if partition.relation.symmetric else n >= 0
    return POISSON.log_marginal((n[once], T[once]), partition.prior) + crp(partition)


@every_kind
def test_large_shapes_give_the_plain_model(kind):
    partition = random_partition(kind, 3)
    partition.eta[:] = 0.99 * PLAIN
    near = partition.log_joint()
    partition.eta[:] = PLAIN
    assert_allclose(partition.log_joint(), plain_poisson(partition), rtol=1e-12)
    assert_allclose(near, partition.log_joint(), atol=2e-3)
    partition.eta[:] = 1.0
    assert abs(near - partition.log_joint()) > 0.1


def drawn_labels(partition: DegreePartition, d: int, i: int, uniform: float) -> int:
    """The label that the kernel draws for one object."""
    t, label = partition.tables(d, 1), partition.labels[d].copy()
    numbers, which = np.full(label.size, uniform), np.arange(t.m.size, dtype=np.int32)
    ends = (label, label if partition.relation.repeated else partition.labels[-1])
    how = (partition.alpha[d], True, numbers, np.empty((0, 0)))
    sweep_objects(t, partition.cells(d), *ends, np.array([i], np.int32), which, *how)
    return int(label[i])


@every_kind
def test_drawn_labels_have_the_conditional_probabilities(kind):
    partition, steps = random_partition(kind, 6), 400
    q = conditionals(partition, 0)
    i = int(np.argmin(q.max(axis=1)))  # the least certain one
    drawn = [drawn_labels(partition, 0, i, (step + 0.5) / steps) for step in range(steps)]
    share = np.bincount(drawn, minlength=q.shape[1]) / steps
    assert_allclose(share, q[i], atol=1.0 / steps)
    assert np.abs(share - q[i - 1]).max() > 0.02  # negative control: another object's


def conditionals(partition: DegreePartition, d: int) -> np.ndarray:
    """Probabilities of all labels of domain ``d``, with one empty cluster, by the kernel."""
    t = partition.tables(d, 1)
    q = np.zeros((partition.labels[d].size, t.m.size))
    which, objects = (np.arange(x, dtype=np.int32) for x in (t.m.size, len(q)))
    ends = (partition.labels[d], partition.labels[-1 - d])
    how = (partition.alpha[d], True, np.empty(0), q)
    sweep_objects(t, partition.cells(d), *ends, objects, which, *how)
    return q


def ratios(partition: DegreePartition, d: int, i: int, K: int) -> np.ndarray:
    """The same for one object by evaluating all joints."""
    values = []
    for k in range(K):
        trial = partition.copy()
        trial.labels[d][i] = k
        used = np.unique(trial.labels[d])
        trial.labels[d] = np.searchsorted(used, trial.labels[d]).astype(np.int32)
        values.append(definition(trial))
    return softmax(values)


@every_kind
@settings(deadline=None, max_examples=10)
@given(seed=seeds)
def test_conditional_is_the_ratio_of_joints(kind, seed):
    partition = random_partition(kind, seed)
    for d in range(len(partition.labels)):
        q = conditionals(partition, d)
        for i in range(len(q)):
            label, K = partition.labels[d], q.shape[1]
            alone = (label == label[i]).sum() == 1
            expected = ratios(partition, d, i, K - alone)
            assert_allclose(q[i, : K - alone], expected, rtol=1e-7, atol=1e-10)
            assert_allclose(q[i, K - alone :], 0.0)


@every_kind
def test_conditional_depends_on_degrees_and_unseen_cells(kind):
    """Negative control: both change the conditional by more than the tolerance above."""
    partition = random_partition(kind, 5, unseen=0.3)
    q = conditionals(partition, 0)
    for change in (
        {"eta": np.full_like(partition.eta, PLAIN)},
        {"factors": [0.0 * f for f in partition.factors]},
    ):
        assert np.abs(conditionals(replace(partition, **change), 0) - q).max() > 1e-3


@every_kind
@settings(deadline=None, max_examples=10)
@given(seed=seeds)
def test_gain_of_a_merge_is_the_difference_of_joints(kind, seed):
    partition = random_partition(kind, seed)
    for d, alpha in enumerate(partition.alpha):
        t = partition.tables(d)
        value = np.empty_like(t.n)
        fill_values(t, value)
        for k in range(t.m.size):
            for g in range(k):
                merged = partition.copy()
                merged.labels[d][merged.labels[d] == k] = g
                merged.labels[d] -= (merged.labels[d] > k).astype(np.int32)
                gain = definition(merged) - definition(partition)
                assert_allclose(merger_gain(t, value, alpha, k, g), gain, atol=1e-8)


def planted_graph(kind: str, seed: int, size=90, groups=3, inside=0.35, outside=0.03):
    """Communities whose members have different degrees."""
    rng = np.random.default_rng(seed)
    label = np.repeat(np.arange(groups), size // groups)
    weight = rng.gamma(2.0, 0.5, (2, size))
    if kind == "undirected":
        weight[1] = weight[0]
    mean = np.where(label[:, None] == label, inside, outside) * np.outer(*weight)
    X = rng.random((size, size)) < 1.0 - np.exp(-mean)
    if kind != "bipartite":
        X = np.triu(X, 1) if kind == "undirected" else X & ~np.eye(size, dtype=bool)
    return sparse.csr_array(X.astype(float)), label


@pytest.mark.parametrize("kind", ["bipartite", "directed", "undirected"])
def test_sweeps_merges_and_splits_never_lower_the_joint(kind):
    X, _ = planted_graph(kind, 0)
    rng = np.random.default_rng(1)
    unseen = sparse.csr_array((rng.random(X.shape) < 0.05) & (X.toarray() == 0)).astype(float)
    if kind == "undirected":
        unseen = sparse.triu(unseen).tocsr()
        unseen = unseen - unseen.multiply(X.T)
        unseen.eliminate_zeros()
    relation = BinaryRelation.build(X, unseen=sparse.csr_array(unseen), kind=kind)
    labels = [rng.integers(4, size=size).astype(np.int32) for size in relation.sizes]
    partition = DegreePartition.from_labels(relation, labels)
    for _ in range(3):
        partition.learn()
        partition.refresh()
        value = partition.log_joint()
        for move in (sweep_degrees, merge_degrees, lambda p: split_degrees(p, None)):
            before = [label.copy() for label in partition.labels]
            move(partition)
            fresh = definition(partition)
            assert fresh >= value - 1e-7
            if any(
                not np.array_equal(*pair) for pair in zip(before, partition.labels, strict=True)
            ):
                assert fresh > value
            value = fresh


@pytest.mark.parametrize("kind", ["bipartite", "directed", "undirected"])
def test_split_of_two_joined_communities(kind):
    X, label = planted_graph(kind, 2, groups=2)
    relation = BinaryRelation.build(X, kind=kind)
    labels = [np.zeros(size, np.int32) for size in relation.sizes]
    if kind == "bipartite":
        labels[1] = label.astype(np.int32)
    partition = DegreePartition.from_labels(relation, labels)
    before = definition(partition)
    split_degrees(partition, None)
    assert partition.clusters[0] == 2
    agree = (partition.labels[0] == label).mean()
    assert max(agree, 1 - agree) > 0.95
    assert definition(partition) > before + 10
    limited = DegreePartition.from_labels(relation, labels)
    split_degrees(limited, (1, 2))
    assert limited.clusters[0] == 1


def test_noise_is_not_split():
    rng = np.random.default_rng(0)
    relation = BinaryRelation.build(
        sparse.random_array((80, 80), density=0.1, rng=rng), kind="bipartite"
    )
    partition = DegreePartition.from_labels(relation, [np.zeros(80, np.int32)] * 2)
    partition.learn()
    split_degrees(partition, None)
    assert partition.clusters == (1, 1)


# Hyperparameters and start


@every_kind
def test_learning_finds_the_best_shape(kind):
    partition = random_partition(kind, 7, sizes=(40, 30))
    partition.learn()
    for p, degree in enumerate(partition.degrees()):
        best = partition._shape_value(p, degree, float(partition.eta[p]))
        grid = [partition._shape_value(p, degree, eta) for eta in np.geomspace(0.01, 2e4, 200)]
        assert best >= max(grid) - 1e-6 * abs(best)
        assert min(grid) < best - 1.0


def test_derivatives_of_the_prior_are_those_of_the_marginal():
    rng = np.random.default_rng(0)
    n, T, step = rng.gamma(0.5, 20.0, 50), 100.0 * rng.random(50), 1e-5

    def value(x, y):
        return gamma_marginals(n, T, 0.7 * np.exp(x), 30.0 * np.exp(y))

    gradient = [
        (value(step, 0) - value(-step, 0)) / (2 * step),
        (value(0, step) - value(0, -step)) / (2 * step),
    ]
    assert_allclose(gamma_derivatives(n, T, 0.7, 30.0)[:2], gradient, rtol=1e-5)
    learnt = POISSON.learn_prior((n, T), np.array([1.0, 1.0]).reshape(2, 1, 1), "newton")
    assert_allclose(gamma_derivatives(n, T, *learnt.ravel())[:2], 0.0, atol=1e-2)
    assert np.abs(gamma_derivatives(n, T, 1.0, 1.0)[:2]).max() > 1.0


def test_poisson_moments():
    prior = np.array([2.0, 3.0]).reshape(2, 1, 1)
    statistics = (np.array([[4.0]]), np.array([[5.0]]))
    assert POISSON.predictive_mean(statistics, prior).item() == 6.0 / 8.0
    log_rate, minus_rate = POISSON.expected_log(statistics, prior)
    assert_allclose(log_rate, digamma(6.0) - np.log(8.0))
    assert minus_rate.item() == -0.75


def test_shuffled_links_keep_degrees_and_start_finds_communities():
    X, label = planted_graph("directed", 4, size=300)
    relation = BinaryRelation.build(X, kind="directed")
    shuffled = shuffle_ends(relation, 0)
    assert (np.diff(shuffled.incidence[0][0].link_start) <= X.sum(axis=1)).all()
    assert shuffled.n_links > 0.8 * relation.n_links
    found = normalised_labels(relation, None, 0)[0]
    pure = sum(np.bincount(label[found == k]).max() for k in range(found.max() + 1))
    assert pure > 0.9 * label.size


# Fits


@cache
def fit_planted(kind: str, asked: bool | str) -> tuple[IRM, np.ndarray]:
    """Return a model that tests share and do not change."""
    X, label = planted_graph(kind, 0, size=150)
    return IRM(kind, random_state=0, degree_corrected=asked).fit(X), label


@pytest.mark.parametrize("kind", ["bipartite", "directed", "undirected"])
@pytest.mark.parametrize("asked", [True, "auto"])
def test_planted_communities_with_degrees_are_found(kind, asked):
    model, label = fit_planted(kind, asked)
    assert adjusted_rand_score(label, model.row_labels_) > 0.9
    choice = model.degrees_
    assert choice.model is not None
    assert choice.corrected_evidence > choice.plain_evidence
    assert model.log_evidence_ == choice.corrected_evidence
    assert (choice.model.eta < 20.0).all()
    assert model.converged_
    assert "degree-corrected model, shape" in model.summary()
    assert f"{choice.plain_evidence:,.1f}" in model.summary()


def test_averaged_memberships_predict_better_than_those_given_the_partition():
    """Communities that are hard to see; the published labels stay those of the best partition."""
    gains = []
    for kind, seed in product(("bipartite", "undirected"), range(3)):
        X, _ = planted_graph(kind, seed, size=180, inside=0.25, outside=0.05)
        relation = BinaryRelation.build(X, kind=kind)
        held = sample_held_out(relation, 0.1, np.random.default_rng(seed))
        left = without_cells(relation, held)
        averaged, given = (
            IRM(kind, inference=method, random_state=0, degree_corrected=True).fit(left)
            for method in ("acvb0", "cvb0")
        )
        assert averaged.log_evidence_ == given.log_evidence_
        assert_array_equal(averaged.row_labels_, given.row_labels_)
        moved = [record["moved"] for record in averaged.trace_][-SEARCH.most_samples :]
        assert min(moved) > 0.0
        assert_allclose(averaged.row_membership_.sum(axis=1), 1.0)
        gains.append(score(averaged, held).log_likelihood - score(given, held).log_likelihood)
    assert np.mean(gains) > 0.0005


def test_sampled_averages_are_those_of_the_conditionals():
    """The mean of two samples by the phase, and by the kernel's conditionals."""
    X, label = planted_graph("directed", 0, size=90, inside=0.16, outside=0.05)
    partition = DegreePartition.from_labels(
        BinaryRelation.build(X, kind="directed"), [label.astype(np.int32)]
    )
    partition.learn()
    phase = DegreeAverage(partition.copy(), np.random.default_rng(3))
    records = [record for _, record in zip(range(3), phase.sweeps(lambda: 0.0), strict=False)]
    assert [record.sweep for record in records] == [1, 2, 3]
    rng, trial = np.random.default_rng(3), partition.copy()
    mode, total = empty_memberships(partition), empty_memberships(partition)
    sweep_degrees(trial, probability=mode)
    for _ in range(2):
        sweep_degrees(trial, uniform=[rng.random(90)], probability=total)
    (found,) = phase.outcome().memberships
    assert_allclose(found, 0.5 * (mode[0] + 0.5 * total[0]), atol=1e-12)
    assert np.abs(found - mode[0]).max() > 0.01  # the samples matter
    assert_array_equal(phase.outcome().partition.labels[0], label)


@pytest.mark.usefixtures("short_chains")
def test_communities_without_degrees_are_plain():
    X = planted((120, 100), (3, 2), 0).X
    plain, auto = (IRM(random_state=0, degree_corrected=x).fit(X) for x in (False, "auto"))
    assert auto.degrees_.model is None
    assert auto.log_evidence_ == plain.log_evidence_
    assert_array_equal(auto.row_labels_, plain.row_labels_)
    assert_array_equal(auto.row_membership_, plain.row_membership_)
    assert plain.degrees_ is None
    assert "plain model" in auto.summary()
    assert "plain model" not in plain.summary()


@pytest.mark.usefixtures("short_chains")
def test_sparse_communities_without_degrees_have_large_shapes():
    rng = np.random.default_rng(0)
    label = np.repeat(np.arange(3), 60)
    mean = np.where(label[:, None] == label, 0.3, 0.03)
    X = sparse.csr_array((rng.random(mean.shape) < mean).astype(float))
    plain, auto = (IRM(random_state=0, degree_corrected=x).fit(X) for x in (False, "auto"))
    assert auto.degrees_.corrected_evidence is not None
    assert auto.degrees_.model is None
    assert_array_equal(auto.row_labels_, plain.row_labels_)
    forced = IRM(random_state=0, degree_corrected=True).fit(X)
    assert adjusted_rand_score(forced.row_labels_, plain.row_labels_) == 1.0
    assert (forced.degrees_.model.eta > 100.0).all()


def two_levels(seed: int, size: int = 600) -> tuple[sparse.csr_array, np.ndarray]:
    """Patterns of links with two levels of out-degrees each: degree blocks that are real."""
    rng = np.random.default_rng(seed)
    pattern, level = rng.integers(3, size=size), rng.integers(2, size=size)
    rate = np.where(np.eye(3, dtype=bool), 0.15, 0.02)[pattern][:, pattern]
    rate *= np.where(level == 1, 2.0, 0.5)[:, None]
    X = rng.random((size, size)) < rate
    np.fill_diagonal(X, 0)
    return sparse.csr_array(X.astype(float)), 2 * pattern + level


@pytest.mark.usefixtures("short_chains")
def test_second_climb_finds_blocks_that_differ_in_degree_only():
    X, label = two_levels(0)
    model = IRM("directed", random_state=0, degree_corrected="auto").fit(X)
    assert adjusted_rand_score(label, model.labels_) > 0.95
    relation = BinaryRelation.build(X, kind="directed")
    first = DegreePartition.from_labels(relation, [(label // 2).astype(np.int32)])
    first.learn()
    first.refresh()
    split_degrees(first, None)
    assert first.clusters[0] < 6  # negative control: with a small shape nothing splits by degree


@pytest.mark.parametrize("kind", ["bipartite", "directed", "undirected"])
def test_predicted_links_follow_degrees_and_survive_a_file(kind, tmp_path):
    model, _ = fit_planted(kind, True)
    X = planted_graph(kind, 0, size=150)[0].toarray()
    X = X + X.T if kind == "undirected" else X
    rows, columns = np.arange(150)[:, None], np.arange(150)
    probability = model.link_probability(rows, columns)
    seen = np.ones_like(X, bool) if kind == "bipartite" else ~np.eye(150, dtype=bool)
    assert_allclose(np.where(seen, probability, 0).sum(), X.sum(), rtol=0.05)
    degree = np.corrcoef(probability.sum(axis=1), X.sum(axis=1))[0, 1]
    plain = IRM(kind, random_state=0).fit(X).link_probability(rows, columns)
    assert degree > max(0.95, np.corrcoef(plain.sum(axis=1), X.sum(axis=1))[0, 1])
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert_array_equal(again.link_probability(rows, columns), probability)
    assert_array_equal(again.degrees_.model.eta, model.degrees_.model.eta)
    assert again.summary() == model.summary()
    top, value = again.recommend([0, 5], 3)
    assert_allclose(value, again.link_probability([[0], [5]], top))
    q = again.predict_membership(X)
    assert (q.argmax(axis=1) == model.row_labels_).mean() > 0.85


@pytest.mark.usefixtures("short_chains")
def test_fitted_choice_of_the_plain_model_survives_a_file(tmp_path):
    model = IRM(random_state=0, degree_corrected="auto").fit(planted((60, 50), (2, 2), 0).X)
    model.save(tmp_path / "model")
    assert load(tmp_path / "model").degrees_ == model.degrees_


@pytest.mark.usefixtures("short_chains")
def test_expected_degrees_of_rows_with_unseen_cells():
    """Most cells of a few rows are unseen; their factors are those of their observed rates."""
    rng = np.random.default_rng(0)
    weight = rng.gamma(3.0, 1.0 / 3.0, 200)
    X = rng.random((200, 150)) < 0.15 * weight[:, None]
    hidden = np.zeros(X.shape)
    hidden[:30, rng.permutation(150)[:110]] = 1.0
    train = sparse.csr_array(np.where(hidden, 0.0, X))
    model = IRM(random_state=0, degree_corrected=True).fit(train, unseen=sparse.csr_array(hidden))
    predicted = model.link_probability(*np.nonzero(hidden)).mean()
    assert_allclose(predicted, X[hidden == 1].mean(), rtol=0.15)
    zero_filled = IRM(random_state=0, degree_corrected=True).fit(train)  # negative control
    assert zero_filled.link_probability(*np.nonzero(hidden)).mean() < 0.6 * predicted


@pytest.mark.parametrize("asked", [True, "auto"])
@pytest.mark.parametrize("kind", ["bipartite", "directed"])
@pytest.mark.usefixtures("short_chains")
def test_resumed_fit_has_the_same_bits(asked, kind, tmp_path):
    X = planted_graph(kind, 1, size=120)[0]
    whole = IRM(kind, random_state=0, degree_corrected=asked).fit(X)
    cuts = {1, whole.n_iter_ - 2, *range(2, whole.n_iter_, 5)}
    for cut in sorted(cuts):

        def interrupt(record, cut=cut):
            if record.sweep == cut:
                raise KeyboardInterrupt

        path = tmp_path / f"fit{cut}"
        with pytest.raises(KeyboardInterrupt):
            IRM(
                kind, random_state=0, degree_corrected=asked, checkpoint=path, callback=interrupt
            ).fit(X)
        again = resume(path)
        assert again.log_evidence_ == whole.log_evidence_
        assert_array_equal(again.row_membership_, whole.row_membership_)
        assert_array_equal(again.degrees_.model.exposure, whole.degrees_.model.exposure)


@pytest.mark.usefixtures("short_chains")
def test_threads_do_not_change_the_bits():
    X = planted_graph("directed", 1, size=150)[0]
    one, two = (
        IRM("directed", random_state=0, degree_corrected="auto", n_jobs=n).fit(X) for n in (1, 2)
    )
    assert one.log_evidence_ == two.log_evidence_
    assert_array_equal(one.row_membership_, two.row_membership_)


def test_fit_that_is_cut_off_has_the_corrected_model_that_was_asked_for():
    X = planted_graph("directed", 1)[0]
    with pytest.warns(ConvergenceWarning, match="not finished"):
        model = IRM("directed", random_state=0, degree_corrected=True, max_iter=1).fit(X)
    assert model.degrees_.model is not None
    assert not model.converged_


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        ({"inference": "gibbs"}, "not with inference='gibbs'"),
        ({"inference": "acvb"}, "not with inference='acvb'"),
        ({"refine": False}, "not with refine=False"),
        ({"prior": "per-block"}, "not with prior='per-block'"),
        ({"hyperparameters": "fixed"}, "not with hyperparameters='fixed'"),
        ({"degree_corrected": "yes"}, "must be True, False or 'auto', but is 'yes'"),
        ({"degree_corrected": 1}, "must be True, False or 'auto', but is 1"),
    ],
)
def test_other_methods_are_refused_in_a_sentence(parameters, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        IRM(**{"degree_corrected": True} | parameters).fit(np.eye(4))


@pytest.mark.usefixtures("short_chains")
def test_limit_on_clusters_holds():
    X, _ = planted_graph("directed", 0, size=150)
    model = IRM("directed", random_state=0, degree_corrected=True, max_clusters=2).fit(X)
    assert model.result_.n_clusters == (2, 2)
    more, _ = fit_planted("directed", True)
    assert more.result_.n_clusters == (3, 3)


@pytest.mark.parametrize("kind", ["bipartite", "directed", "undirected"])
@pytest.mark.parametrize("value", [0.0, 1.0, np.nan])
@pytest.mark.parametrize("size", [1, 2, 5])
@pytest.mark.usefixtures("short_chains")
def test_relations_without_structure_have_one_cluster(kind, value, size):
    X = np.full((size, size), value)
    if kind != "bipartite":
        np.fill_diagonal(X, 0.0)
    for asked in (True, "auto"):
        model = IRM(kind, degree_corrected=asked, random_state=0).fit(X)
        assert model.result_.n_clusters == (1, 1)
        assert np.isfinite(model.log_evidence_)
        assert np.isfinite(model.link_probability(0, 0))


def test_a_cluster_refuses_degree_correction():
    engine = pytest.importorskip("coblock.distributed.engine")
    with pytest.raises(ValueError, match="Degree correction is not possible on a cluster"):
        engine._refuse_local_options(Settings(degree_corrected=True), "edges", None)
    engine._refuse_local_options(Settings(), "edges", None)


def test_the_bound_of_a_clique_of_hubs_is_a_probability():
    rng = np.random.default_rng(0)
    label, factor = np.arange(120) % 3, rng.gamma(1, 1, 120)
    rate = np.where(np.eye(3), 0.6, 0.03)[label][:, label] * factor[:, None] * factor
    X = np.triu(rng.random((120, 120)) < np.minimum(rate, 1.0), 1)
    listed = [(f"n{i}", f"n{j}") for i, j in np.argwhere(X)]
    relation = Relation(listed, {"a": "x", "b": "x"}, symmetric=True, degree_corrected="auto")
    model = MultiIRM(random_state=0).fit({"k": relation})
    assert -1850.0 < model.log_evidence_ < -1700.0
    assert max(record["log_evidence"] for record in model.trace_) < 0.0


def test_option_of_the_command_line():
    for text, asked in (("false", False), ("true", True), ("auto", "auto")):
        assert FitOptions(degree_corrected=text).estimator().degree_corrected == asked
    with pytest.raises(ValueError, match="must be True, False or 'auto', but is 'maybe'"):
        FitOptions(degree_corrected="maybe").estimator().fit(np.eye(3))


def test_report_says_what_was_taken(tmp_path):
    model, _ = fit_planted("directed", "auto")
    model.report(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "Degree-corrected model, shape" in page
    assert f"{model.degrees_.plain_evidence:,.1f}" in page


def test_forged_degrees_are_refused(tmp_path):
    model, _ = fit_planted("directed", True)
    choice = model.degrees_
    forged = [
        replace(choice.model, eta=-choice.model.eta),
        replace(choice.model, prior=np.full(2, np.nan)),
        replace(choice.model, degrees=[degree[:-1] for degree in choice.model.degrees]),
        replace(choice.model, counts=choice.model.counts[:1]),
    ]
    for wrong in forged:
        result = replace(model.result_, degrees=replace(choice, model=wrong))
        model_file.save(result, tmp_path / "model", model.get_params())
        with pytest.raises(ModelFileError):
            load(tmp_path / "model")
    model.save(tmp_path / "model")
    load(tmp_path / "model")


def test_a_climb_that_merges_in_every_round_ends(monkeypatch):
    """Sweeps may open clusters that merges close again, without end where cells are unseen."""
    X, _ = planted_graph("directed", 3, size=60)
    relation = BinaryRelation.build(X, kind="directed")
    plain = Partition.from_labels(relation, [np.zeros(60, np.int32)])
    monkeypatch.setattr("coblock.inference.degrees.merge_degrees", lambda partition: True)
    start = [np.arange(60, dtype=np.int32) % 4]
    search = DegreeSearch(plain, [], may_be_plain=False, limits=None, starts=[start])
    rounds = [record for record, _ in zip(search.sweeps(lambda: 0.0), range(60), strict=False)]
    assert search.finished
    assert len(rounds) < 60
