"""Several relations of any arity: kernels against enumeration, fits of planted data, bad input."""

import pickle
from copy import deepcopy
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn.metrics import adjusted_rand_score

import multi_reference as reference
from coblock import IRM, MultiIRM, Relation, load
from coblock.inference.multi_fit import MultiFit
from coblock.inference.settings import Settings
from coblock.io.model_file import ModelFileError
from coblock.io.tables import build_dataset
from coblock.kernels.tensors import add_up_cells
from coblock.model.dataset import Dataset, Table
from coblock.model.likelihoods.bernoulli import Bernoulli
from coblock.model.likelihoods.categorical import Categorical
from coblock.model.likelihoods.normal import Normal
from coblock.model.likelihoods.poisson import Poisson
from coblock.model.multi_partition import MultiPartition
from coblock.model.partition import numbered
from coblock.model.relation import Domain

LIKELIHOODS = {
    "bernoulli": Bernoulli(),
    "poisson": Poisson(),
    "categorical": Categorical(("a", "b", "c")),
    "normal": Normal(0.0, 1.0),
}


def draw_value(rng, name, *, filled):
    if name == "normal":
        return float(rng.normal())
    if name == "categorical":
        return float(rng.integers(int(filled), 3))
    if not filled:
        return float(rng.integers(0, 2))
    return 1.0 if name == "bernoulli" else float(1 + rng.poisson(1.0))


def draw_table(rng, sizes, name):
    """Return a random relation: any arity up to 4, places repeated, symmetric, cells unseen."""
    domains = tuple(rng.integers(0, len(sizes), rng.integers(1, 5)).tolist())
    others = [d for d in range(len(sizes)) if d != domains[0]]
    symmetric = len(domains) > 1 and rng.random() < 0.3
    if symmetric:
        rest = tuple(rng.choice(others, len(domains) - 2).tolist()) if others else ()
        domains = (domains[0], domains[0], *rest)
    filled = rng.random() < 0.6
    distinct = len(set(domains)) < len(domains) and rng.random() < 0.5
    exposed = name == "poisson" and not (distinct or symmetric) and rng.random() < 0.4
    cells, values, unseen = [], [], []
    for cell in product(*(range(sizes[d]) for d in domains)):
        repeats = len(set(zip(domains, cell, strict=True))) < len(cell)
        if (symmetric and cell[0] > cell[1]) or (distinct and repeats):
            continue
        u = rng.random()
        if symmetric and rng.random() < 0.5:
            cell = (cell[1], cell[0], *cell[2:])  # noqa: PLW2901 - either order is allowed
        if u < 0.35:
            cells.append(cell)
            values.append(draw_value(rng, name, filled=filled))
        elif u < 0.5 and filled:
            unseen.append(cell)
    return Table(
        name,
        tuple(f"p{p}" for p in range(len(domains))),
        domains,
        LIKELIHOODS[name],
        np.array(cells, np.int32).reshape(-1, len(domains)),
        np.array(values),
        np.array(unseen, np.int32).reshape(-1, len(domains)),
        bool(filled),
        bool(symmetric),
        bool(distinct),
        tuple(rng.gamma(2, 1, sizes[d]) + 0.1 for d in domains) if exposed else None,
    )


def draw_partition(seed):
    """Return labels of random relations with random hyperparameters."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(2, 5, rng.integers(1, 4)).tolist()
    names = rng.choice(list(LIKELIHOODS), rng.integers(1, 4))
    tables = [draw_table(rng, sizes, str(name)) for name in names]
    used = sorted({d for table in tables for d in table.domains})
    tables = [replace(t, domains=tuple(used.index(d) for d in t.domains)) for t in tables]
    domains = tuple(Domain(sizes[d]) for d in used)
    data = Dataset(tuple(f"d{d}" for d in used), domains, tuple(tables))
    labels = numbered([rng.integers(0, 3, n).astype(np.int32) for n in data.sizes])
    partition = MultiPartition.from_labels(data, labels, learn=False)
    priors = [rng.gamma(2, 1, prior.size) + 0.05 for prior in partition.priors]
    partition.set_hyperparameters(priors, (rng.gamma(2, 1, len(used)) + 0.1).tolist())
    return partition, rng


def reference_evidence(partition, labels):
    return reference.log_joint(partition.data, labels, partition.priors, partition.alpha)


@given(st.integers(0, 10**6))
@settings(max_examples=60, deadline=None)
def test_evidence_conditionals_and_merges_are_those_of_enumeration(seed):
    partition, rng = draw_partition(seed)
    before = reference_evidence(partition, partition.labels)
    assert partition.log_joint() == pytest.approx(before, abs=1e-8)
    for d in range(len(partition.data.domains)):
        K = partition.sizes[d].size
        q = partition.conditional(d)
        for i, c in enumerate(partition.labels[d].tolist()):
            joint = []
            for k in range(K):
                labels = [label.copy() for label in partition.labels]
                labels[d][i] = k
                joint.append(reference_evidence(partition, labels))
            alone = partition.sizes[d][c] == 1
            assert alone or q[i] == pytest.approx(stats_softmax(joint), abs=1e-8)
        pairs = np.array([(a, b) for a in range(K) for b in range(a + 1, K)], np.int32)
        for pair in pairs.reshape(-1, 1, 2):
            labels = [label.copy() for label in partition.labels]
            labels[d][labels[d] == pair[0, 1]] = pair[0, 0]
            gain = reference_evidence(partition, labels) - before
            assert partition.merge_gains(d, pair)[0] == pytest.approx(gain, abs=1e-7)
        if len(pairs):
            assert partition.merge_gains(d, pairs)[-1] == pytest.approx(gain, abs=1e-7)
    for d, size in enumerate(partition.data.sizes):
        partition.sweep(d, rng.permutation(size).astype(np.int32), rng.random(size))
        sums = all_sums(partition)
        add_up_cells(partition.data.layout, partition.state)
        for one, other in zip(sums, all_sums(partition), strict=True):
            assert one == pytest.approx(other, abs=1e-9)


def all_sums(partition):
    """Return the statistics of all blocks, those of empty clusters included."""
    rooms = [[partition._room(d) for d in table.domains] for table in partition.data.tables]
    return [
        partition.statistics_at(r, tuple(np.indices(room).reshape(len(room), -1)))
        for r, room in enumerate(rooms)
    ]


def stats_softmax(values):
    weights = np.exp(np.array(values) - max(values))
    return weights / weights.sum()


def test_the_comparison_with_enumeration_can_fail():
    """Negative control: unseen cells counted as zeros, and places of a pair taken as ordered."""
    apart = 0
    for seed in range(40):
        partition, _ = draw_partition(seed)
        before = partition.log_joint()
        tables = [replace(t, unseen=t.unseen[:0], symmetric=False) for t in partition.data.tables]
        wrong = replace(partition.data, tables=tuple(tables))
        value = reference.log_joint(wrong, partition.labels, partition.priors, partition.alpha)
        apart += abs(value - before) > 1e-3
    assert apart > 15


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_log_marginals_are_integrals(name):
    """The reference itself: a block's log marginal is the integral over its parameter."""
    from scipy.integrate import dblquad, quad

    rng = np.random.default_rng(3)
    x = {"bernoulli": [1, 0, 1, 1], "poisson": [0, 3, 1], "normal": rng.normal(size=3)}.get(name)
    if name == "categorical":  # two categories are a Bernoulli
        got = reference.log_marginal(name, (0.7, 1.3), [0, 1, 1], [1, 1, 1])
        assert got == pytest.approx(
            reference.log_marginal("bernoulli", (1.3, 0.7), [0, 1, 1], [1] * 3)
        )
        return
    if name == "bernoulli":
        a, b = 0.8, 1.7
        value = quad(lambda t: np.prod(stats.bernoulli.pmf(x, t)) * stats.beta.pdf(t, a, b), 0, 1)[
            0
        ]
        prior = (a, b)
    elif name == "poisson":
        prior = (1.5, 0.6)
        value = quad(
            lambda t: np.prod(stats.poisson.pmf(x, t)) * stats.gamma.pdf(t, 1.5, scale=1 / 0.6),
            0,
            60,
        )[0]
    else:
        prior = (0.2, 0.5, 2.0, 1.1)
        value = dblquad(
            lambda m, v: (
                np.prod(stats.norm.pdf(x, m, np.sqrt(v)))
                * stats.norm.pdf(m, 0.2, np.sqrt(v / 0.5))
                * stats.invgamma.pdf(v, 2.0, scale=1.1)
            ),
            0,
            60,
            -20,
            20,
        )[0]
    got = reference.log_marginal(name, prior, x, np.ones(len(x)))
    assert got == pytest.approx(np.log(value), abs=1e-4)


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_learnt_hyperparameters_are_a_maximum(name):
    rng = np.random.default_rng(5)
    likelihood = LIKELIHOODS[name]
    values = [draw_value(rng, name, filled=False) for _ in range(400)]
    cells = likelihood.cell_statistics(np.array(values)).reshape(20, 20, -1).sum(axis=1)
    statistics = tuple(np.ascontiguousarray(cells.T))
    learnt = likelihood.learn_prior(statistics, likelihood.initial_prior(0.4), "newton")
    best = likelihood.log_marginal(statistics, learnt)
    if name == "normal":
        best -= learnt[1].item() + learnt[2].item()
    for row, factor in product(range(len(learnt)), (0.97, 1.03)):
        other = learnt.copy()
        other[row] *= factor
        value = likelihood.log_marginal(statistics, other)
        if name == "normal":
            value -= other[1].item() + other[2].item()
        assert value <= best + 1e-3
    assert likelihood.learn_prior(statistics, learnt, "fixed") is learnt


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_predictive_probabilities_are_ratios_of_marginals(name):
    rng = np.random.default_rng(6)
    likelihood, prior = (
        LIKELIHOODS[name],
        rng.gamma(2, 1, LIKELIHOODS[name].initial_prior(0.5).size),
    )
    x = np.array([draw_value(rng, name, filled=False) for _ in range(6)])
    statistics = likelihood.cell_statistics(x[:5]).sum(axis=0)
    ones = [np.ones(n) for n in (5, 6)]
    ratio = reference.log_marginal(name, prior, x, ones[1])
    ratio -= reference.log_marginal(name, prior, x[:5], ones[0])
    columns = tuple(np.array([each]) for each in statistics)
    got = likelihood.log_predictive(x[5:], columns, prior.reshape(-1, 1))
    assert got[0] == pytest.approx(ratio, abs=1e-9)


def test_gibbs_frequencies_are_those_of_the_posterior():
    """A chi-square test of the sweeps against the enumerated posterior of one domain."""
    rng = np.random.default_rng(0)
    cells = np.array([(0, 1), (1, 0), (2, 3), (0, 0)], np.int32)
    table = Table(
        "r", ("a", "b"), (0, 0), Poisson(), cells, np.array([2.0, 1.0, 3.0, 1.0]), cells[:0]
    )
    data = Dataset(("d",), (Domain(4),), (table,))
    partition = MultiPartition.from_labels(data, [np.zeros(4, np.int32)], learn=False)
    partition.set_hyperparameters([np.array([0.5, 0.7])], [1.3])
    partitions = {}
    for labels in product(range(4), repeat=4):
        label = np.array(labels)
        key = tuple(
            np.unique(label, return_index=True)[1][np.unique(label, return_inverse=True)[1]]
        )
        partitions[key] = np.exp(reference_evidence(partition, [np.array(key)]))
    total, counts, sweeps = sum(partitions.values()), dict.fromkeys(partitions, 0), 6000
    for sweep in range(3 * sweeps):
        partition.sweep(0, rng.permutation(4).astype(np.int32), rng.random(4))
        partition.renumber()
        if sweep % 3 == 0:  # every third sweep is nearly independent
            label = partition.labels[0]
            first = np.unique(label, return_index=True)[1]
            counts[tuple(first[label].tolist())] += 1
    expected = np.array([sweeps * each / total for each in partitions.values()])
    observed = np.array(list(counts.values()))
    statistic = ((observed - expected) ** 2 / expected).sum()
    assert statistic < stats.chi2.ppf(1 - 1e-4, len(expected) - 1) * 1.3


def planted(name, seed, *, unseen=0.2):
    """Return a relation of 60 x 45 with 4 x 3 planted blocks, and the labels of its rows."""
    rng = np.random.default_rng(seed)
    z, w = rng.permutation(np.arange(60) % 4), rng.permutation(np.arange(45) % 3)
    shape = (60, 45)
    if name == "poisson":
        X = rng.poisson(np.array([[1, 4, 8], [6, 1, 3], [3, 9, 1], [9, 6, 6]])[z][:, w])
    elif name == "normal":
        X = rng.normal(np.array([[0, 2, 4], [3, 0, 1], [1, 4, 0], [4, 3, 3]])[z][:, w], 0.8)
    else:
        p = rng.dirichlet([0.4] * 3, (4, 3))
        X = np.array([[rng.choice(3, p=p[a, b]) for b in w] for a in z])
    kept = rng.random(shape) > unseen
    value = [str(v) for v in X[kept]] if name == "categorical" else X[kept].tolist()
    rows, columns = np.nonzero(kept)
    cells = list(zip(rows.tolist(), columns.tolist(), value, strict=True))
    relation = Relation(cells, ["row", "column"], value=2, likelihood=name, absent="unseen")
    return relation, z, w


@pytest.mark.parametrize("name", ["poisson", "categorical", "normal"])
@pytest.mark.usefixtures("short_chains")
def test_planted_numbers_of_clusters_are_found(name):
    for seed in range(2):
        relation, z, w = planted(name, seed)
        model = MultiIRM(random_state=seed).fit({"r": relation})
        for domain, truth in (("row", z), ("column", w)):
            found = model.domains_[domain]
            order = [int(name) for name in found.names]
            assert adjusted_rand_score(truth[order], found.labels) > 0.95
            assert found.n_clusters == truth.max() + 1


def test_one_binary_relation_is_fitted_as_by_irm():
    rng = np.random.default_rng(1)
    X = (rng.random((30, 24)) < np.kron([[0.7, 0.1], [0.2, 0.6]], np.ones((15, 12)))).astype(float)
    X[3, 4] = np.nan
    irm = IRM(random_state=2).fit(X)
    multi = MultiIRM(random_state=2).fit({"r": Relation(X, ["row", "column"])})
    assert multi.log_evidence_ == irm.log_evidence_
    assert np.array_equal(multi.domains_["row"].labels, irm.row_labels_)
    assert multi.relations_["r"].mean == pytest.approx(irm.block_probability_, abs=1e-12)
    assert multi.result_.partition.log_joint() == pytest.approx(irm.log_evidence_, abs=1e-8)


@pytest.mark.usefixtures("short_chains")
def test_two_relations_give_more_than_each_alone():
    """A weak relation and another weak one about the same objects: together they find them."""
    rng = np.random.default_rng(4)
    z = np.arange(80) % 2
    edges = [
        [
            (i, j)
            for i in range(80)
            for j in range(i)
            if rng.random() < (0.20 if z[i] == z[j] else 0.07)
        ]
        for _ in range(3)
    ]

    def agreement(chosen):
        relations = {
            f"r{t}": Relation(edges[t], {"a": "x", "b": "x"}, symmetric=True) for t in chosen
        }
        found = MultiIRM(random_state=0).fit(relations).domains_["x"]
        return adjusted_rand_score(z[[int(name) for name in found.names]], found.labels)

    assert agreement([0, 1, 2]) > max(agreement([0]), agreement([1])) + 0.02
    assert agreement([0, 1, 2]) > 0.8


@pytest.mark.usefixtures("short_chains")
def test_noise_does_not_change_a_clear_relation():
    relation, z, _ = planted("poisson", 7)
    rng = np.random.default_rng(0)
    noise = [(i, f"n{j}") for i in range(60) for j in range(20) if rng.random() < 0.3]
    model = MultiIRM(random_state=0).fit(
        {"clear": relation, "noise": Relation(noise, ["row", "other"])}
    )
    found = model.domains_["row"]
    assert adjusted_rand_score(z[[int(name) for name in found.names]], found.labels) == 1.0
    assert model.domains_["other"].n_clusters == 1


@pytest.mark.usefixtures("short_chains")
def test_the_order_of_objects_and_relations_does_not_matter():
    relation, _, _ = planted("normal", 2)
    rng = np.random.default_rng(0)
    cells = relation.read("r")
    rows = list(zip(*(each.tolist() for each in cells.objects), cells.values, strict=True))
    turned = [rows[t] for t in rng.permutation(len(rows))]
    other = Relation(
        [(b, a, v) for a, b, v in turned], ["column", "row"], value=2, likelihood="normal"
    )
    found = []
    for each in (relation, other):
        domain = MultiIRM(random_state=0).fit({"r": each}).domains_["row"]
        found.append(dict(zip(domain.names, domain.labels.tolist(), strict=True)))
    names = list(found[0])
    assert adjusted_rand_score(*([f[name] for name in names] for f in found)) == 1.0


def shop(seed=0):
    """Return relations of several likelihoods about users and items."""
    rng = np.random.default_rng(seed)
    z, w = np.arange(30) % 2, np.arange(20) % 2
    orders = [
        (f"u{i}", f"i{j}", int(rng.poisson(6 if z[i] == w[j] else 1)))
        for i in range(30)
        for j in range(20)
    ]
    answers = [(f"u{i}", f"q{k}", "yes" if z[i] else "no") for i in range(30) for k in range(4)]
    prices = [(f"i{j}", float(rng.normal(10 * w[j], 1))) for j in range(20)]
    knows = [
        (f"u{i}", f"u{j}")
        for i in range(30)
        for j in range(i)
        if rng.random() < (0.5 if z[i] == z[j] else 0.1)
    ]
    return {
        "bought": Relation(orders, ["user", "item"], value=2, likelihood="poisson"),
        "answers": Relation(answers, ["user", "question"], value=2, likelihood="categorical"),
        "price": Relation(prices, ["item"], value=1, likelihood="normal"),
        "knows": Relation(knows, {"who": "user", "whom": "user"}, symmetric=True),
    }


@pytest.fixture(scope="module")
def model():
    return MultiIRM(random_state=0).fit(shop())


def test_predictions_by_name(model):
    same, apart = model.predict("bought", user=["u0", "u1"], item="i0")
    assert same > 4
    assert apart < 2
    answers = model.predict("answers", user=["u0", "u1"], question=[["q0"], ["q1"]])
    assert answers.shape == (2, 2, 2)
    assert answers.sum(axis=-1) == pytest.approx(1.0)
    assert answers[0, 0, 0] > 0.9
    assert answers[0, 1, 0] < 0.1
    assert model.predict("price", item="i1") == pytest.approx(10.0, abs=1.0)
    assert model.predict("knows", who="u0", whom="u1") == model.predict(
        "knows", who="u1", whom="u0"
    )
    names = [name for name, _ in model.rank("knows", who="u0", n=5)]
    assert "u0" not in names
    assert all(int(name[1:]) % 2 == 0 for name in names)
    good = model.score("answers", {"user": ["u0"], "question": ["q1"]}, ["no"])
    assert good > -0.1 > model.score("answers", {"user": ["u0"], "question": ["q1"]}, ["yes"])
    assert "bought(user, item): poisson, 2 x 2 blocks" in model.summary()


def test_new_objects_are_assigned_by_the_relations_that_are_known(model):
    rows = [("new", f"i{j}", 6 if j % 2 else 1) for j in range(20)]
    relation = Relation(rows, ["user", "item"], value=2, likelihood="poisson")
    q = model.assign("user", {"bought": relation})["new"]
    domain = model.domains_["user"]
    assert q.argmax() == domain.labels[domain.names.index("u1")]
    price = Relation([("cheap", 0.2), ("dear", 9.7)], ["item"], value=1, likelihood="normal")
    found = model.assign("item", {"price": price})
    items = model.domains_["item"]
    assert found["cheap"].argmax() == items.labels[items.names.index("i0")]
    assert found["dear"].argmax() == items.labels[items.names.index("i1")]


def test_a_model_is_the_same_after_it_was_saved(model, tmp_path):
    path = tmp_path / "model.safetensors"
    model.save(path)
    read = load(path)
    assert read.get_params() == model.get_params()
    for name, domain in model.domains_.items():
        assert np.array_equal(read.domains_[name].labels, domain.labels)
        assert np.array_equal(read.domains_[name].membership, domain.membership)
    assert read.summary() == model.summary()
    assert read.predict("bought", user="u3", item="i4") == model.predict(
        "bought", user="u3", item="i4"
    )
    damaged = bytearray(path.read_bytes())
    damaged[-9] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(ModelFileError, match="damaged"):
        load(path)


def test_a_fitted_model_is_copied_and_pickled(model):
    expected = model.predict("bought", user=[0, 1], item=2)  # the model has derived values
    for copied in (deepcopy(model), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(copied.predict("bought", user=[0, 1], item=2), expected)
        assert copied.summary() == model.summary()


@pytest.mark.usefixtures("short_chains")
def test_parameters_may_be_numbers_of_numpy(tmp_path):
    limits = {"user": np.int64(2)}
    relation = Relation(np.eye(4), ["user", "item"], likelihood="poisson")
    path = tmp_path / "fit.checkpoint"
    how = {"max_clusters": limits, "max_iter": np.int64(900), "burn_in": np.int32(3)}
    fitted = MultiIRM(**how, random_state=np.int64(0), checkpoint=path).fit({"bought": relation})
    fitted.save(tmp_path / "model")
    assert load(tmp_path / "model").max_clusters == {"user": 2}


@pytest.mark.usefixtures("short_chains")
def test_the_same_seed_gives_the_same_bits():
    fits = [MultiIRM(random_state=1).fit(shop()) for _ in range(2)]
    assert fits[0].log_evidence_ == fits[1].log_evidence_
    for name in fits[0].domains_:
        first, second = (fit.domains_[name] for fit in fits)
        assert np.array_equal(first.membership, second.membership)


def test_cost_follows_the_stored_cells():
    """A relation of 1e13 cells with a thousand of them stored."""
    rng = np.random.default_rng(0)
    sizes = (10**5, 10**5, 10**3)
    cells = np.stack([rng.integers(0, n, 1000) for n in sizes], axis=1).astype(np.int32)
    table = Table("r", ("a", "b", "c"), (0, 1, 2), Bernoulli(), cells, np.ones(1000), cells[:0])
    data = Dataset(("a", "b", "c"), tuple(Domain(n) for n in sizes), (table,))
    partition = MultiPartition.from_labels(data, [np.zeros(n, np.int32) for n in sizes])
    assert np.isfinite(partition.log_joint())
    assert partition.tensor(0).sum() == pytest.approx(1e13)


@pytest.mark.usefixtures("short_chains")
def test_a_likelihood_of_ones_own():
    """Waiting times: exponential cells with a Gamma prior, in one class."""
    from own_likelihood import Exponential

    rng = np.random.default_rng(0)
    z, w = np.arange(40) % 2, np.arange(30) % 2
    X = rng.exponential(np.where(z[:, None] == w, 1.0, 8.0))
    model = MultiIRM(random_state=0).fit(
        {"wait": Relation(X, ["shop", "day"], likelihood=Exponential(), absent="unseen")}
    )
    assert adjusted_rand_score(z, model.domains_["shop"].labels) == 1.0
    assert model.predict("wait", shop=0, day=1) == pytest.approx(8.0, rel=0.2)


@pytest.mark.usefixtures("short_chains")
def test_names_that_end_in_nul_are_found():
    pairs = [(f"u{i}\0", f"v{j}") for i in range(4) for j in range(3) if (i + j) % 2]
    triples = [(*pair, "x") for pair in pairs]
    model = MultiIRM(random_state=0).fit({"likes": Relation(triples, ["user", "item", "why"])})
    found = model.predict("likes", user=["u0\0", "u1\0"], item=["v0", "v0"], why=["x", "x"])
    assert found.shape == (2,)


@pytest.mark.usefixtures("short_chains")
def test_limits_and_callbacks():
    fit = MultiIRM(max_clusters={"user": 1}, random_state=0, callback=lambda r: r.sweep == 3)
    fit.fit(shop())
    assert fit.n_iter_ == 3
    assert fit.domains_["user"].n_clusters == 1
    assert not fit.converged_
    relation, _, _ = planted("normal", 0)
    for limit in (2, 3):
        fit = MultiIRM(max_clusters=limit, random_state=0).fit({"r": relation})
        assert max(max(record["clusters"]) for record in fit.trace_) <= limit


def test_samples_are_drawn_where_labels_are_uncertain(model):
    relation, _, _ = planted("categorical", 3, unseen=0.8)
    fit = MultiFit(build_dataset({"r": relation}), 0, (None, None), Settings(max_iter=2000))
    fit.run()
    moved = [record.moved for record in fit.trace if record.phase == "posterior"]
    assert fit.result().samples
    assert np.mean(moved) > 0.01


@pytest.mark.usefixtures("short_chains")
def test_threads_do_not_change_the_bits(monkeypatch):
    """Batches, merges and chains are shared among threads; a domain is swept in batches."""
    monkeypatch.setattr("coblock.inference.multi_search.SEQUENTIAL_UP_TO", 20)
    monkeypatch.setattr("coblock.model.multi_threads.SMALLEST_PART", 4)
    rng = np.random.default_rng(0)
    z, w = np.arange(40) % 4, np.arange(30) % 3
    p = rng.beta(0.5, 0.5, (4, 4, 3))
    cells = np.argwhere(rng.random((40, 40, 30)) < 0.3 * p[z][:, z][:, :, w])
    relation = Relation([tuple(c) for c in cells.tolist()], {"a": "x", "b": "x", "c": "y"})
    fits = [MultiIRM(random_state=1, n_jobs=jobs).fit({"r": relation}) for jobs in (1, 3)]
    results = [fit.result_ for fit in fits]
    assert results[0].log_evidence == results[1].log_evidence
    for a, b in zip(results[0].labels, results[1].labels, strict=True):
        assert np.array_equal(a, b)
    for a, b in zip(results[0].memberships, results[1].memberships, strict=True):
        assert np.array_equal(a, b)
    assert len(results[0].samples) == len(results[1].samples) > 0
    for a, b in zip(results[0].samples, results[1].samples, strict=True):
        assert all(map(np.array_equal, a.labels + a.priors, b.labels + b.priors))
    assert fits[0].domains_["x"].n_clusters == 4, "batches find the planted clusters"


@given(st.integers(0, 10**6))
@settings(max_examples=20, deadline=None)
def test_batches_score_from_one_state(seed):
    """A batch gives each object its best label given all others, and counts stay exact."""
    partition, _ = draw_partition(seed)
    for d, size in enumerate(partition.data.sizes):
        if any(d in t.domains and t.domains.count(d) > 1 for t in partition.data.tables):
            continue  # blocks of the own cluster are approximate in a batch
        probability = partition.conditional(d)
        before, m = partition.labels[d].copy(), partition.sizes[d]
        partition.sweep(d, np.arange(size, dtype=np.int32), batch=size, limit=m.size)
        alone = m[before] == 1
        chosen = np.take_along_axis(probability, partition.labels[d][:, None], axis=1)[:, 0]
        assert chosen[~alone] == pytest.approx(probability.max(axis=1)[~alone], abs=1e-9)
        sums = all_sums(partition)
        add_up_cells(partition.data.layout, partition.state)
        for one, other in zip(sums, all_sums(partition), strict=True):
            assert one == pytest.approx(other, abs=1e-9)
        partition.renumber()


def test_chains_that_do_not_move_are_called_an_ensemble():
    """Certain labels: predictions average over rounds of the search, and the summary says so."""
    rng = np.random.default_rng(3)
    z = np.arange(36) % 3
    p = np.array([[0.9, 0.1, 0.5], [0.1, 0.9, 0.2], [0.5, 0.3, 0.05]])
    cells = np.argwhere(rng.random((36, 36, 12)) < p[z][:, z][:, :, None])
    relation = Relation([tuple(c) for c in cells.tolist()], {"a": "x", "b": "x", "c": "y"})
    model = MultiIRM(random_state=0).fit({"r": relation})
    assert model.result_.moved < 0.01
    assert 1 <= len(model.result_.samples) <= 24
    assert "ensemble" in model.summary()
    best = model.result_.samples[0]
    assert np.array_equal(best.labels[0], numbered(model.result_.labels)[0])
