"""Degree-corrected relations beside others: kernels against the definition, fits, files."""

import re
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse, stats
from scipy.special import gammaln, softmax
from sklearn.metrics import adjusted_rand_score

import multi_reference as reference
from coblock import IRM, MultiIRM, Relation, load
from coblock.inference.multi_fit import MultiFit
from coblock.inference.multi_gibbs import draw_hyperparameters
from coblock.inference.settings import read_multi_settings
from coblock.io.checkpoint import CheckpointWriter
from coblock.io.multi_checkpoint import StoredMultiFit
from coblock.io.multi_checkpoint import read as read_checkpoint
from coblock.io.relation_files import parse_relations
from coblock.io.tables import build_dataset
from coblock.kernels.degrees import PLAIN
from coblock.kernels.tensors import add_up_cells
from coblock.model import degrees, multi_degrees
from coblock.model.dataset import Dataset, Table
from coblock.model.degrees import DegreePartition
from coblock.model.likelihoods.bernoulli import Bernoulli
from coblock.model.likelihoods.degrees import DegreeCorrected
from coblock.model.likelihoods.normal import Normal
from coblock.model.likelihoods.poisson import Poisson
from coblock.model.multi_partition import MultiPartition
from coblock.model.multi_result import restore
from coblock.model.partition import numbered
from coblock.model.relation import BinaryRelation, Domain
from test_multi import all_sums

KINDS = ("bipartite", "directed", "directed, own cells", "symmetric", "symmetric, own cells")
every_kind = pytest.mark.parametrize("kind", KINDS)
seeds = st.integers(0, 10**6)


def corrected_table(rng, kind, sizes, base, unseen=0.15):
    """Return a random degree-corrected relation of the first domain."""
    domains = (0, 1) if kind == "bipartite" else (0, 0)
    symmetric, distinct = kind.startswith("symmetric"), kind in {"directed", "symmetric"}
    cells, values, hidden = [], [], []
    for cell in product(*(range(sizes[d]) for d in domains)):
        if (symmetric and cell[0] > cell[1]) or (distinct and cell[0] == cell[1]):
            continue
        u = rng.random()
        if u < 0.4:
            cells.append(cell)
            values.append(1.0 if base.name == "bernoulli" else 1.0 + rng.poisson(1.0))
        elif u < 0.4 + unseen:
            hidden.append(cell)
    likelihood = DegreeCorrected(base, 1 if symmetric else 2)
    arrays = (np.array(each, np.int32).reshape(-1, 2) for each in (cells, hidden))
    stored, unseen_cells = arrays
    flags = {"symmetric": symmetric, "distinct": distinct}
    places = ("from", "to")
    return Table("r", places, domains, likelihood, stored, np.array(values), unseen_cells, **flags)


def beside(rng, sizes):
    """Return a relation of real values that shares the first domain."""
    cells = np.array(list(product(range(sizes[0]), range(sizes[1]))), np.int32)
    cells = cells[rng.random(len(cells)) < 0.6]
    values = rng.normal(size=len(cells))
    return Table("s", ("a", "b"), (0, 1), Normal(0.0, 1.0), cells, values, cells[:0], filled=False)


def draw_partition(kind, seed, base=None, unseen=0.15):
    """Return random labels of a degree-corrected relation and another one."""
    rng = np.random.default_rng(seed)
    base = base or (Bernoulli(), Poisson())[rng.integers(2)]
    sizes = rng.integers(3, 6, 2).tolist()
    tables = (corrected_table(rng, kind, sizes, base, unseen), beside(rng, sizes))
    data = Dataset(("x", "y"), tuple(Domain(n) for n in sizes), tables)
    labels = numbered([rng.integers(0, 3, n).astype(np.int32) for n in sizes])
    partition = MultiPartition.from_labels(data, labels, learn=False)
    priors = [rng.gamma(2, 1, prior.size) + 0.05 for prior in partition.priors]
    partition.set_hyperparameters(priors, (rng.gamma(2, 1, 2) + 0.1).tolist())
    return partition, rng


def corrected_evidence(partition, labels, r=0):
    """DEGREES D2 and D3 for the counts and exposures of a partition, dense and slow."""
    table, sizes = partition.data.tables[r], partition.data.sizes
    values = partition.degrees.values(r, table)
    X, U = np.zeros((2, sizes[table.domains[0]], sizes[table.domains[1]]))
    X[tuple(table.cells.T)] = values[: len(table.cells), 0]
    U[tuple(table.unseen.T)] = -values[len(table.cells) :, 1]
    a, b, *eta = partition.priors[r]
    z, w = (labels[d] for d in table.domains)
    value = partition.degrees.constants[r] + table.constant
    for k in np.unique(z):
        for l in np.unique(w):
            if table.symmetric and l < k:
                continue
            rows, columns = np.flatnonzero(z == k), np.flatnonzero(w == l)
            n, u, T = X[np.ix_(rows, columns)].sum(), U[np.ix_(rows, columns)].sum(), 0.0
            m = rows.size
            T = float(m * columns.size)
            if table.symmetric and k != l:
                n += X[np.ix_(columns, rows)].sum()
                u += U[np.ix_(columns, rows)].sum()
            elif k == l and table.symmetric:
                T = m**2 / 2
                if table.distinct:
                    T *= eta[0] * (m - 1) / (m * eta[0] + 1)
            elif k == l and table.distinct:
                T -= m
            T = max(T - u, 0.0)
            value += a * np.log(b) - gammaln(a) + gammaln(a + n) - (a + n) * np.log(b + T)
    degrees = [X.sum(axis=1), X.sum(axis=0)]
    if table.symmetric:
        degrees = [degrees[0] + degrees[1]]
    for degree, shape, label in zip(degrees, eta, (z, w), strict=False):
        value += (gammaln(degree + shape) - gammaln(shape)).sum()
        for k in np.unique(label):
            m, D = (label == k).sum(), degree[label == k].sum()
            value += D * np.log(m) + gammaln(m * shape) - gammaln(D + m * shape)
    return value


def definition(partition, labels):
    other = partition.data.tables[1]
    value = corrected_evidence(partition, labels)
    value += reference.relation_evidence(other, partition.data.sizes, labels, partition.priors[1])
    pairs = zip(labels, partition.alpha, strict=True)
    return value + sum(reference.crp(label, alpha) for label, alpha in pairs)


@every_kind
@given(seed=seeds)
@settings(max_examples=15, deadline=None)
def test_evidence_conditionals_and_merges_are_those_of_the_definition(kind, seed):
    partition, rng = draw_partition(kind, seed)
    before = definition(partition, partition.labels)
    assert partition.log_joint() == pytest.approx(before, abs=1e-8)
    for d in range(2):
        K, q = partition.sizes[d].size, partition.conditional(d)
        for i, c in enumerate(partition.labels[d].tolist()):
            joint = []
            for k in range(K):
                labels = [label.copy() for label in partition.labels]
                labels[d][i] = k
                joint.append(definition(partition, labels))
            alone = partition.sizes[d][c] == 1
            assert alone or q[i] == pytest.approx(softmax(joint), abs=1e-8)
        pairs = np.array([(a, b) for a in range(K) for b in range(a + 1, K)], np.int32)
        for pair in pairs.reshape(-1, 1, 2):
            labels = [label.copy() for label in partition.labels]
            labels[d][labels[d] == pair[0, 1]] = pair[0, 0]
            gain = definition(partition, labels) - before
            assert partition.merge_gains(d, pair)[0] == pytest.approx(gain, abs=1e-7)
    for d, size in enumerate(partition.data.sizes):
        partition.sweep(d, rng.permutation(size).astype(np.int32), rng.random(size))
        before = [*all_sums(partition), partition.state.degree.copy()]
        add_up_cells(partition.layout, partition.state)
        for old, new in zip(before, (*all_sums(partition), partition.state.degree), strict=True):
            assert old == pytest.approx(new, abs=1e-9)


@every_kind
def test_the_comparison_with_the_definition_can_fail(kind):
    """Negative control: shapes, degrees and exposures change evidence, conditional and merges."""
    partition, _ = draw_partition(kind, 3, Bernoulli(), 0.3)
    found = (partition.log_joint(), partition.conditional(0))
    value = definition(partition, partition.labels)
    for what in ("degree", "value"):
        layout = partition.layout
        kept = getattr(layout, what).copy()
        getattr(layout, what)[:] *= 1.3
        add_up_cells(layout, partition.state)
        assert abs(partition.log_joint() - value) > 1e-3
        assert np.abs(partition.conditional(0) - found[1]).max() > 1e-4
        getattr(layout, what)[:] = kept
        add_up_cells(layout, partition.state)
    partition.state.prior[0, 2:] = PLAIN
    assert np.abs(partition.conditional(0) - found[1]).max() > 1e-4


@pytest.mark.parametrize(("kind", "name"), [("bipartite", "bipartite"), ("directed", "directed")])
@pytest.mark.parametrize("unseen", [0.0, 0.15])
def test_counts_and_bounds_are_those_of_the_model_of_one_relation(kind, name, unseen, monkeypatch):
    """The same labels and hyperparameters in both implementations of the bound, converged."""
    monkeypatch.setattr(multi_degrees, "ROUNDS", 60)
    monkeypatch.setattr(degrees, "BOUND_ROUNDS", 60)
    partition, _ = draw_partition(kind, 11, Bernoulli(), unseen)
    table, sizes = partition.data.tables[0], partition.data.sizes
    shape = (sizes[table.domains[0]], sizes[table.domains[1]])
    links, hidden = (
        sparse.csr_array((np.ones(len(each)), tuple(each.T)), shape=shape)
        for each in (table.cells, table.unseen)
    )
    relation = BinaryRelation.build(links, unseen=hidden, kind=name)
    labels = [partition.labels[d].copy() for d in sorted(set(table.domains))]
    one = DegreePartition.from_labels(relation, labels)
    one.alpha = [partition.alpha[d] for d in sorted(set(table.domains))]
    one.prior, one.eta = partition.priors[0][:2].reshape(2, 1, 1), partition.priors[0][2:].copy()
    for _ in range(30):
        one.refresh()
    pairs = zip(labels, one.alpha, strict=True)
    crp = sum(reference.crp(label, alpha) for label, alpha in pairs)
    assert partition.relation_evidence(0) == pytest.approx(one.log_joint() - crp, abs=1e-6)
    assert partition.relation_bound(0) == pytest.approx(one.log_bound() - crp, abs=1e-6)
    counts = partition.degrees.values(0, table)[: len(table.cells), 0]
    place = relation.incidence[0][0]
    dense = np.zeros(shape)
    dense[np.repeat(np.arange(shape[0]), np.diff(place.link_start)), place.link] = one.counts[0]
    assert counts == pytest.approx(dense[tuple(table.cells.T)], rel=1e-5)
    assert counts.max() > 1.05  # negative control: counts of 1 would not pass


@every_kind
def test_bound_of_counts_without_unseen_cells_is_the_evidence(kind):
    partition, _ = draw_partition(kind, 5, Poisson(), 0.0)
    assert partition.relation_bound(0) == pytest.approx(partition.relation_evidence(0), abs=1e-9)
    partition, _ = draw_partition(kind, 5, Bernoulli(), 0.0)
    bound, plain = partition.relation_bound(0), restore_with_unit_counts(partition)
    assert plain < partition.relation_evidence(0) <= bound + 1e-9


def restore_with_unit_counts(partition):
    """Return the Poisson evidence: links as the count 1."""
    other = MultiPartition.from_labels(partition.data, partition.labels, learn=False)
    other.priors, table = partition.priors, partition.data.tables[0]
    other.state.prior[:] = partition.state.prior
    own = (table.cells[:, 0] == table.cells[:, 1]) & table.symmetric
    return other.relation_evidence(0) - np.log(2.0) * own.sum()


@every_kind
def test_learnt_shapes_are_a_maximum(kind):
    partition, _ = draw_partition(kind, 21, Poisson())
    partition.learn()
    best = partition.relation_evidence(0)
    blocks, degrees = partition.degree_blocks(0), partition.place_degrees(0)
    for p, degree in enumerate(degrees):
        eta = partition.priors[0][2 + p]
        value = blocks.shape_value(p, degree, eta)
        for factor in (0.5, 2.0):
            assert blocks.shape_value(p, degree, eta * factor) <= value + 1e-6
    assert np.isfinite(best)


@every_kind
def test_prediction_is_the_definition(kind):
    """DEGREES D7 with all cells seen: rate of the block times the factors of both objects."""
    partition, _ = draw_partition(kind, 8, Poisson(), 0.0)
    table, sizes = partition.data.tables[0], partition.data.sizes
    fit = fitted(partition)
    X = np.zeros((sizes[table.domains[0]], sizes[table.domains[1]]))
    X[tuple(table.cells.T)] = table.values
    X = X + X.T if table.symmetric else X
    a, b, *eta = partition.priors[0]
    labels = [partition.labels[d] for d in table.domains]
    n, T = np.moveaxis(fit.tensor(0), -1, 0)
    factor = []
    for axis in (1, 0):
        degree, label = X.sum(axis=axis), labels[1 - axis]
        shape = eta[0] if table.symmetric else eta[1 - axis]
        m, D = np.bincount(label), np.bincount(label, degree)
        factor.append(m[label] * (degree + shape) / (D + m * shape)[label])
    cells = np.array([(0, 1), (1, 2), (2, 2)], np.int32)
    for cell in cells:
        i, j = cell
        k, l = labels[0][i], labels[1][j]
        rate = (a + n[k, l]) / (b + T[k, l]) * factor[0][i] * factor[1][j]
        if table.symmetric and i == j:
            rate /= 2
        components = fit.factors[0].products(cell[None], (np.array([k]), np.array([l])))
        mean = table.likelihood.predictive_mean(
            (n[[k], [l]], T[[k], [l]], components), partition.priors[0].reshape(-1, 1)
        )
        assert mean[0] == pytest.approx(rate, rel=1e-9)
        binary = DegreeCorrected(Bernoulli()).predictive_mean(
            (n[[k], [l]], T[[k], [l]], components), partition.priors[0].reshape(-1, 1)
        )
        assert binary[0] == pytest.approx(1.0 - np.exp(-rate), rel=1e-9)
        assert rate != pytest.approx((a + n[k, l]) / (b + T[k, l]), rel=1e-3)


def fitted(partition):
    """Return a result with the labels and hyperparameters of a partition."""
    from coblock.model.multi_result import MultiResult

    labels = [label.copy() for label in partition.labels]
    parts = (partition.priors, partition.alpha, partition.log_bound(), [], [], True)
    return MultiResult(partition.data, labels, *parts)


def test_log_predictive_of_counts_is_a_distribution():
    likelihood, values = DegreeCorrected(Poisson()), np.arange(400.0)
    statistics = tuple(np.full(values.size, x) for x in (3.0, 2.5, 1.7))
    prior = np.array([0.8, 1.2, 1.0, 2.0]).reshape(-1, 1)
    p = np.exp(likelihood.log_predictive(values, statistics, prior))
    assert p.sum() == pytest.approx(1.0, abs=1e-9)
    mean = likelihood.predictive_mean(statistics, prior)[0]
    assert (p * values).sum() == pytest.approx(mean, rel=1e-6)
    plain = Poisson().log_predictive(values, statistics[:2], prior[:2])
    assert likelihood.log_predictive(values, statistics[:2], prior) == pytest.approx(plain)


def test_gibbs_frequencies_are_those_of_the_posterior():
    """A chi-square test of sweeps over degree-corrected counts against enumeration."""
    rng = np.random.default_rng(0)
    cells = np.array([(0, 1), (1, 0), (2, 3), (0, 2)], np.int32)
    likelihood = DegreeCorrected(Poisson())
    values = np.array([4.0, 1.0, 3.0, 5.0])
    table = Table("r", ("a", "b"), (0, 0), likelihood, cells, values, cells[:0], distinct=True)
    data = Dataset(("d",), (Domain(4),), (table,))
    partition = MultiPartition.from_labels(data, [np.zeros(4, np.int32)], learn=False)
    partition.set_hyperparameters([np.array([0.5, 0.7, 0.6, 1.9])], [1.3])
    weight = {}
    for labels in product(range(4), repeat=4):
        key = first_members(np.array(labels))
        value = corrected_evidence(partition, [np.array(key)]) + reference.crp(np.array(key), 1.3)
        weight[key] = np.exp(value)
    counts, sweeps = dict.fromkeys(weight, 0), 3000
    for sweep in range(3 * sweeps):
        partition.sweep(0, rng.permutation(4).astype(np.int32), rng.random(4))
        partition.renumber()
        if sweep % 3 == 0:
            counts[first_members(partition.labels[0])] += 1
    expected = np.array([sweeps * each / sum(weight.values()) for each in weight.values()])
    statistic = ((np.array(list(counts.values())) - expected) ** 2 / expected).sum()
    assert statistic < stats.chi2.ppf(1 - 1e-4, len(expected) - 1) * 1.3


def first_members(label):
    _, first, inverse = np.unique(label, return_index=True, return_inverse=True)
    return tuple(first[inverse].tolist())


def test_drawn_shapes_stay_in_bounds_and_infinite_ones_stay():
    partition, rng = draw_partition("bipartite", 2, Poisson())
    partition.priors[0][3] = PLAIN
    partition.set_hyperparameters(partition.priors, partition.alpha)
    drawn = set()
    for _ in range(20):
        draw_hyperparameters(partition, rng)
        assert np.exp(-5.0) <= partition.priors[0][2] <= np.exp(10.0)
        assert partition.priors[0][3] == PLAIN
        drawn.add(float(partition.priors[0][2]))
    assert len(drawn) > 10


# Fits


def planted(seed, *, counts, size=90):
    """Return links or counts between members of 3 groups with different degrees, and features."""
    rng = np.random.default_rng(seed)
    group = np.repeat([0, 1, 2], size // 3)
    factor = rng.gamma(1.5, 1 / 1.5, (2, size))
    rate = np.where(group[:, None] == group, 0.5, 0.08) * np.outer(*factor)
    X = rng.poisson(rate)
    X = X if counts else np.minimum(X, 1)
    np.fill_diagonal(X, 0)
    edges = [(f"o{i}", f"o{j}", int(X[i, j])) for i, j in np.argwhere(X)]
    traits = [
        (f"o{i}", f"t{t}")
        for i in range(size)
        for t in range(6)
        if rng.random() < (0.5 if t % 3 == group[i] else 0.3)
    ]
    return edges, traits, group


def relations_of(edges, traits, *, counts, corrected):
    likelihood = "poisson" if counts else "bernoulli"
    places = {"from": "person", "to": "person"}
    options = {"likelihood": likelihood, "absent": "zero", "degree_corrected": corrected}
    return {
        "knows": Relation(edges, places, value=2, **options),
        "has": Relation(traits, ["person", "trait"]),
    }


@pytest.mark.parametrize("counts", [True, False])
@pytest.mark.usefixtures("short_chains")
def test_groups_with_different_degrees_are_found(counts, tmp_path):
    edges, traits, group = planted(0, counts=counts)
    found = {}
    for corrected in (False, True):
        relations = relations_of(edges, traits, counts=counts, corrected=corrected)
        model = found[corrected] = MultiIRM(random_state=0).fit(relations)
    person = found[True].domains_["person"]
    truth = group[[int(name[1:]) for name in person.names]]
    assert adjusted_rand_score(truth, person.labels) > 0.9
    assert found[False].domains_["person"].n_clusters > person.n_clusters
    assert found[True].log_evidence_ > found[False].log_evidence_ + 20.0
    line = next(line for line in model.summary().splitlines() if line.startswith("knows: "))
    corrected, plain = re.findall(r"-[\d,.]+\d", line)
    assert line.startswith("knows: degree-corrected model, shape ")
    assert float(corrected.replace(",", "")) > float(plain.replace(",", "")) + 20.0
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert np.array_equal(again.domains_["person"].labels, person.labels)
    cells = {"from": person.names[:9], "to": person.names[9:18]}
    assert np.array_equal(again.predict("knows", **cells), model.predict("knows", **cells))
    degree = np.zeros(len(truth))
    for sender, _, value in edges:
        degree[person.names.index(sender)] += value
    often, seldom = int(np.argmax(degree)), int(np.argmin(degree))
    pair = {"from": [person.names[often], person.names[seldom]], "to": person.names[5]}
    high, low = model.predict("knows", **pair)
    assert high > low
    assert model.rank("knows", 3, to=person.names[5])[0][1] >= high
    model.report(tmp_path / "report.html")
    assert "egree-corrected" in (tmp_path / "report.html").read_text()


@pytest.mark.usefixtures("short_chains")
def test_new_objects_are_assigned_by_links_and_degrees():
    edges, traits, group = planted(1, counts=False)
    model = MultiIRM(random_state=0).fit(relations_of(edges, traits, counts=False, corrected=True))
    person = model.domains_["person"]
    inside = [name for name in person.names if group[int(name[1:])] == 1]
    new = [("new", name, 1) for name in inside[:12]] + [(name, "new", 1) for name in inside[12:20]]
    places = {"from": "person", "to": "person"}
    options = {"value": 2, "absent": "zero", "degree_corrected": True}
    found = model.assign("person", {"knows": Relation(new, places, **options)})
    best = int(found["new"].argmax())
    members = [name for name, k in zip(person.names, person.labels, strict=True) if k == best]
    assert found["new"].sum() == pytest.approx(1.0)
    assert np.mean([group[int(name[1:])] == 1 for name in members]) > 0.9
    result, extended = model.result_, len(person.names)
    assert result.data.sizes[0] == extended  # the fit is not changed


@pytest.mark.parametrize("corrected", [True, "auto"])
@pytest.mark.usefixtures("short_chains")
def test_one_binary_relation_is_fitted_as_by_irm(corrected):
    edges, _, _ = planted(2, counts=False)
    options = {"value": 2, "absent": "zero", "degree_corrected": corrected}
    relation = Relation(edges, {"from": "person", "to": "person"}, **options)
    order = build_dataset({"knows": relation}).domains[0].names
    index = {name: at for at, name in enumerate(order)}
    X = np.zeros((len(order), len(order)))
    for i, j, _ in edges:
        X[index[i], index[j]] = 1.0
    irm = IRM("directed", degree_corrected=corrected, random_state=3).fit(X)
    model = MultiIRM(random_state=3).fit({"knows": relation})
    assert irm.degrees_.model is not None
    assert model.log_evidence_ == irm.log_evidence_
    assert np.array_equal(model.domains_["person"].labels, irm.labels_)
    priors = model.relations_["knows"].hyperparameters
    assert np.array_equal(priors[2:], irm.degrees_.model.eta)
    probability = irm.link_probability(np.arange(20), np.arange(20, 40))
    found = model.predict("knows", **{"from": order[:20], "to": order[20:40]})
    assert found == pytest.approx(probability, abs=0.004)  # mixtures of rates, of probabilities


@pytest.mark.usefixtures("short_chains")
def test_auto_takes_the_plain_model_where_degrees_do_not_differ():
    rng = np.random.default_rng(0)
    group = np.arange(40) % 2
    links = rng.random((40, 40)) < np.where(group[:, None] == group, 0.3, 0.05)
    relation = Relation(links.astype(float), ["row", "column"], degree_corrected="auto")
    model = MultiIRM(random_state=0).fit({"r": relation})
    assert model.relations_["r"].likelihood == "bernoulli"
    plain = MultiIRM(random_state=0).fit({"r": Relation(links.astype(float), ["row", "column"])})
    assert np.array_equal(model.domains_["row"].labels, plain.domains_["row"].labels)
    counts = [(i, j, 1) for i, j in np.argwhere(links)]
    options = {"value": 2, "likelihood": "poisson", "degree_corrected": "auto"}
    found = MultiIRM(random_state=0).fit({"r": Relation(counts, ["row", "column"], **options)})
    assert found.relations_["r"].hyperparameters[2:].min() > 10.0


@pytest.mark.usefixtures("short_chains")
def test_an_interrupted_fit_continues_to_the_same_bits(tmp_path):
    edges, traits, _ = planted(3, counts=False, size=30)
    relations = relations_of(edges, traits, counts=False, corrected=True)
    data = build_dataset(relations)
    model = MultiIRM(max_iter=40, random_state=5)
    settings = read_multi_settings(model.get_params(deep=False))
    whole = MultiFit(data, 5, (None, None), settings)
    whole.run()
    for stop in (1, 4, 9, 20):
        fit = MultiFit(data, 5, (None, None), settings)
        fit.run(lambda record, stop=stop: record.sweep == stop)
        stored = StoredMultiFit(fit, model._stored_parameters())
        CheckpointWriter(stored, tmp_path / "fit").save()
        again = read_checkpoint(tmp_path / "fit").fit
        again.run()
        assert [r.log_evidence for r in again.trace] == [r.log_evidence for r in whole.trace]
        for one, other in zip(again.result().labels, whole.result().labels, strict=True):
            assert np.array_equal(one, other)


def test_restored_partitions_have_the_same_counts():
    partition, _ = draw_partition("directed", 4, Bernoulli())
    partition.learn()
    again = restore(partition.data, partition.labels, partition.priors, partition.alpha)
    assert np.array_equal(again.layout.value, partition.layout.value)
    assert again.log_joint() == partition.log_joint()


# Bad input


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"degree_corrected": "yes", "likelihood": "poisson", "value": 2},
            "must be True, False or 'auto'",
        ),
        ({"likelihood": "normal", "value": 2}, "likelihood='bernoulli' or 'poisson'"),
        ({"likelihood": "poisson", "value": 2, "absent": "unseen"}, "absent='zero'"),
        ({"likelihood": "poisson", "value": 2, "exposure": {"a": np.ones(2)}}, "no exposure"),
    ],
)
def test_degree_correction_is_refused_in_a_sentence(options, message):
    cells = [("x", "u", 1), ("y", "v", 2)]
    with pytest.raises(ValueError, match=message):
        Relation(cells, ["a", "b"], **({"degree_corrected": True} | options)).read("r")


def test_methods_without_degree_correction_refuse_it():
    partition, _ = draw_partition("bipartite", 0)
    with pytest.raises(ValueError, match=r"Relation 'r' is degree-corrected, which CVB0 does not"):
        partition.data.refuse_correction("CVB0")
    plain = replace(partition.data, tables=partition.data.tables[1:])
    plain.refuse_correction("CVB0")


@pytest.mark.parametrize("options", [{"inference": "vb"}, {"refine": False}])
def test_soft_methods_refuse_degree_correction(options):
    edges, traits, _ = planted(3, counts=True, size=30)
    relations = relations_of(edges, traits, counts=True, corrected=True)
    with pytest.raises(ValueError, match="'knows' is degree-corrected, which inference="):
        MultiIRM(**options).fit(relations)


@pytest.mark.parametrize(("text", "value"), [("true", True), ("false", False), ("auto", "auto")])
def test_degree_correction_is_a_key_of_a_relation_on_the_command_line(text, value):
    relation = f"knows(who:user,whom:user)=k.csv;degree_corrected={text}"
    assert parse_relations([relation])["knows"]["degree_corrected"] == value


def test_other_arities_and_auto_beside_others_are_refused():
    with pytest.raises(ValueError, match="two places, but there are 3"):
        Relation([("x", "u", "p")], ["a", "b", "c"], degree_corrected=True).read("r")
    relations = {
        "r": Relation([("x", "u"), ("y", "v")], ["a", "b"], degree_corrected="auto"),
        "s": Relation([("x",)], ["a"]),
    }
    with pytest.raises(ValueError, match="Fit with the correction and without it"):
        MultiIRM().fit(relations)


@pytest.mark.usefixtures("short_chains")
def test_a_forged_file_is_refused(tmp_path):
    edges, traits, _ = planted(3, counts=True, size=30)
    relations = relations_of(edges, traits, counts=True, corrected=True)
    model = MultiIRM(random_state=0, max_iter=3).fit(relations)
    table = model.result_.data.tables[0]
    wrong = replace(table, filled=False, unseen=table.unseen[:0])
    data = replace(model.result_.data, tables=(wrong, model.result_.data.tables[1]))
    model.result_ = replace(model.result_, data=data)
    model.save(tmp_path / "model")
    with pytest.raises(ValueError, match="degree correction"):
        load(tmp_path / "model")
