"""Methods of inference for several relations: fits, files, samples, permutations."""

from itertools import product

import numpy as np
import pytest
from scipy import stats
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score

import multi_reference as reference
from coblock import IRM, MultiIRM, Relation, load, resume
from coblock.inference.multi_gibbs import draw_labels
from coblock.inference.multi_posterior import MultiChains
from coblock.inference.multi_search import try_split
from coblock.inference.multi_variational import interleave, start_clusters
from coblock.io.tables import build_dataset
from coblock.model.dataset import Dataset, Table
from coblock.model.likelihoods.bernoulli import Bernoulli
from coblock.model.multi_partition import MultiPartition
from coblock.model.multi_state import MultiState
from coblock.model.relation import Domain
from own_likelihood import Exponential
from test_multi import LIKELIHOODS, draw_value, planted, shop
from test_multi_checkpoint import StoppedError, relations, same_bits, stop_at

PLAIN = [("acvb0", "spectral"), ("cvb0", "random"), ("vb", "random"), ("gibbs", "random")]


@pytest.fixture(scope="module", params=PLAIN, ids="-".join)
def model(request):
    inference, init = request.param
    return MultiIRM(inference=inference, init=init, refine=False, random_state=0, max_iter=200).fit(
        shop()
    )


def test_plain_methods_find_the_clusters(model):
    gibbs = model.inference == "gibbs"
    assert [model.domains_[name].n_clusters for name in ("user", "item", "question")] == [2, 2, 1]
    assert model.converged_ == (not gibbs)
    assert {record["phase"] for record in model.trace_} == {"gibbs" if gibbs else "variational"}
    if not gibbs:
        assert model.trace_[-1]["change"] < 1e-2
        assert all(record["moved"] is None for record in model.trace_)
    same, apart = model.predict("bought", user=["u0", "u1"], item="i0")
    assert same > 4
    assert apart < 2
    assert model.relations_["bought"].mean.shape == (2, 2)
    for domain in model.domains_.values():
        assert domain.membership.sum(axis=1) == pytest.approx(1.0)
        assert np.mean(domain.membership.argmax(axis=1) == domain.labels) > 0.9


def test_results_of_plain_methods_are_used_as_others(model, tmp_path):
    path = tmp_path / "model.safetensors"
    model.save(path)
    read = load(path)
    assert read.get_params() == model.get_params()
    assert read.trace_ == model.trace_
    assert read.summary() == model.summary()
    for name, domain in model.domains_.items():
        assert np.array_equal(read.domains_[name].membership, domain.membership)
    cells = {"user": ["u3", "u4"], "item": "i4"}
    assert np.array_equal(read.predict("bought", **cells), model.predict("bought", **cells))
    model.report(tmp_path / "report.html")
    assert model.to_frame(relation="bought").height == 4
    assert model.to_frame(domain="user").height == 30
    model.plot_blocks("bought")
    rows = [("new", f"i{j}", 6 if j % 2 else 1) for j in range(20)]
    new = Relation(rows, ["user", "item"], value=2, likelihood="poisson")
    q = model.assign("user", {"bought": new})["new"]
    users = model.domains_["user"]
    assert q.argmax() == users.labels[users.names.index("u1")]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("method", ["acvb0", "cvb0", "vb", "gibbs", "acvb", "cvb"])
@pytest.mark.parametrize("refine", [True, False])
def test_one_binary_relation_is_fitted_as_by_irm(method, refine):
    rng = np.random.default_rng(1)
    X = (rng.random((24, 18)) < np.kron([[0.7, 0.1], [0.2, 0.6]], np.ones((12, 9)))).astype(float)
    X[3, 4] = np.nan
    same = {"inference": method, "refine": refine, "max_iter": 30, "random_state": 2, "tol": 1e-3}
    irm = IRM(**same).fit(X)
    multi = MultiIRM(**same).fit({"r": Relation(X, ["row", "column"])})
    assert multi.log_evidence_ == irm.log_evidence_
    assert multi.converged_ == irm.converged_
    assert np.array_equal(multi.domains_["row"].labels, irm.row_labels_)
    assert np.array_equal(multi.domains_["row"].membership, irm.row_membership_)
    assert np.array_equal(multi.domains_["column"].membership, irm.column_membership_)
    assert multi.domains_["row"].concentration == irm.concentration_[0]
    K = multi.relations_["r"].mean.shape
    mean = irm.block_probability_[: K[0], : K[1]]
    assert multi.relations_["r"].mean == pytest.approx(mean, abs=1e-10)
    assert [r["change"] for r in multi.trace_] == [r["change"] for r in irm.trace_]
    rows, columns = (each.ravel() for each in np.indices(X.shape))
    predicted = multi.predict("r", row=rows, column=columns)
    assert predicted == pytest.approx(irm.link_probability(rows, columns), abs=1e-10)


def test_methods_that_do_not_exist_are_refused_in_a_sentence():
    for method in ("acvb", "cvb"):
        with pytest.raises(ValueError, match="one binary relation of two places, which IRM fits"):
            MultiIRM(inference=method).fit(shop())
    with pytest.raises(ValueError, match="inference"):
        MultiIRM(inference="em").fit(shop())
    with pytest.raises(ValueError, match="init"):
        MultiIRM(init="best").fit(shop())

    class Other:
        """A likelihood without the derivative of its log marginal."""

        def for_values(self, values):
            return self

        def __getattr__(self, name):
            if name == "expected_log":
                raise AttributeError(name)
            return getattr(Exponential(), name)

    wait = Relation(np.ones((4, 3)), ["a", "b"], likelihood=Other(), absent="unseen")
    with pytest.raises(ValueError, match="relation 'wait' has no method expected_log"):
        MultiIRM(inference="vb").fit({"wait": wait})


@pytest.mark.parametrize("method", ["cvb0", "acvb0", "vb"])
def test_a_likelihood_of_ones_own(method):
    rng = np.random.default_rng(0)
    z, w = np.arange(40) % 2, np.arange(30) % 2
    X = rng.exponential(np.where(z[:, None] == w, 1.0, 8.0))
    wait = Relation(X, ["shop", "day"], likelihood=Exponential(), absent="unseen")
    fit = MultiIRM(inference=method, refine=False, random_state=0, max_clusters=6)
    fit.fit({"wait": wait})
    assert adjusted_rand_score(z, fit.domains_["shop"].labels) > 0.9
    assert fit.predict("wait", shop=0, day=1) == pytest.approx(8.0, rel=0.2)


def test_burn_in_averaging_and_tolerance():
    """Averaging starts after the burn-in; one more sweep changes an average of s by 2/s at most."""
    relation, _, _ = planted("poisson", 0, unseen=0.6)
    fit = MultiIRM(inference="acvb0", refine=False, init="random", burn_in=5, tol=0, max_iter=30)
    trace = fit.set_params(random_state=0).fit({"r": relation}).trace_
    averaged = [record["change"] for record in trace[6:]]
    assert all(change <= 2.0 / (s + 2) + 1e-12 for s, change in enumerate(averaged))
    assert len(trace) == 30
    assert not fit.converged_
    fit.set_params(tol=1e-9, max_iter=3)
    with pytest.warns(ConvergenceWarning, match="memberships had not converged after 3 sweeps"):
        fit.fit({"r": relation})


def test_vb_follows_the_search_and_its_bound_rises():
    fit = MultiIRM(inference="vb", random_state=0).fit(relations())
    phases = [record["phase"] for record in fit.trace_]
    assert set(phases) == {"search", "variational"}
    first = phases.index("variational")
    bounds = [record["log_evidence"] for record in fit.trace_[first:]]
    assert fit.converged_
    assert np.diff(bounds).min(initial=0.0) > -1e-2  # Normal hyperparameters have a hyperprior


@pytest.mark.parametrize("how", [("acvb0", False), ("vb", True), ("gibbs", False)])
def test_a_resumed_fit_has_the_bits_of_an_uninterrupted_one(how, tmp_path):
    same = {"inference": how[0], "refine": how[1], "random_state": 3, "max_iter": 40, "tol": 0.0}
    whole = MultiIRM(**same).fit(relations())
    for sweep in (1, 25, 39):
        path = tmp_path / f"{sweep}.checkpoint"
        fit = MultiIRM(**same, checkpoint=path, callback=stop_at(sweep))
        with pytest.raises(StoppedError):
            fit.fit(relations())
        found = resume(path)
        same_bits(found, whole)
        for a, b in zip(found.domains_.values(), whole.domains_.values(), strict=True):
            assert np.array_equal(a.membership, b.membership)
    with pytest.raises(StoppedError):
        fit.fit(relations())
    with pytest.raises(ValueError, match="differs in burn_in"):
        fit.set_params(burn_in=4).fit(relations())


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_gibbs_frequencies_are_those_of_the_posterior(name):
    """A chi-square test of draws against the enumerated posterior of four objects."""
    rng = np.random.default_rng(1)
    cells = np.array(list(product(range(4), repeat=2)), np.int32)[rng.random(16) < 0.5]
    values = np.array([draw_value(rng, name, filled=True) for _ in cells])
    table = Table("r", ("a", "b"), (0, 0), LIKELIHOODS[name], cells, values, cells[:0])
    data = Dataset(("d",), (Domain(4),), (table,))
    partition = MultiPartition.from_labels(data, [np.zeros(4, np.int32)], learn=False)
    prior = rng.gamma(2, 1, partition.priors[0].size) + 0.3
    partition.set_hyperparameters([prior], [1.3])
    weights = {}
    for labels in product(range(4), repeat=4):
        key = first_members(np.array(labels))
        weights[key] = np.exp(reference.log_joint(data, [np.array(key)], [prior], [1.3]))
    sweeps, counts = 2500, dict.fromkeys(weights, 0)
    for sweep in range(3 * sweeps):
        draw_labels(partition, rng)
        if sweep % 3 == 0:  # every third sweep is nearly independent
            counts[first_members(partition.labels[0])] += 1
    expected = np.array(list(weights.values())) * sweeps / sum(weights.values())
    observed = np.array(list(counts.values()))
    large = expected > 5
    pairs = zip((observed, expected), ([], []), strict=True)
    (seen, wanted) = (np.append(each[large], each[~large].sum()) for each, _ in pairs)
    statistic = ((seen - wanted) ** 2 / np.maximum(wanted, 1e-9)).sum()
    assert statistic < stats.chi2.ppf(1 - 1e-4, large.sum()) * 1.3
    wrong = ((seen - wanted[::-1]) ** 2 / np.maximum(wanted[::-1], 1e-9)).sum()
    assert wrong > 10 * statistic  # negative control


def first_members(label):
    """Return, for each object, the first object of its cluster."""
    first = np.unique(label, return_index=True)[1]
    return tuple(first[np.unique(label, return_inverse=True)[1]].tolist())


@pytest.mark.parametrize(
    "how", [("acvb0", True), ("acvb0", False), ("vb", False), ("gibbs", False)]
)
def test_permutations_permute_the_result(how):
    """Relations, domains, objects, cells and places in another order."""
    inference, refine = how
    rng = np.random.default_rng(0)
    given, turned = shop(), {}
    for name in ("price", "knows", "answers", "bought"):
        relation = given[name].read(name)
        columns = [each.tolist() for each in relation.objects]
        if name != "knows":
            known = getattr(relation.likelihood, "categories", None)
            columns.append([known[int(x)] if known else x for x in relation.values])
        rows = list(zip(*columns, strict=True))
        rows = [rows[t] for t in rng.permutation(len(rows))]
        options = {"likelihood": relation.likelihood, "symmetric": relation.symmetric}
        places = dict(relation.places)
        if len(places) == 2:
            rows = [(row[1], row[0], *row[2:]) for row in rows]
            places = dict(reversed(places.items()))
        value = None if name == "knows" else len(places)
        turned[name] = Relation(rows, places, value=value, **options)
    same = {"inference": inference, "refine": refine, "max_iter": 150, "random_state": 0}
    if not refine:
        same |= {"init": "random", "max_clusters": 5}
    fits = [MultiIRM(**same).fit(each) for each in (given, turned)]
    assert list(fits[0].domains_) != list(fits[1].domains_)
    for name, domain in fits[0].domains_.items():
        other = fits[1].domains_[name]
        at = [other.names.index(each) for each in domain.names]
        assert adjusted_rand_score(domain.labels, other.labels[at]) == 1.0
    assert fits[0].log_evidence_ == pytest.approx(fits[1].log_evidence_, abs=1e-3)
    cells = {"user": ["u0", "u1"], "item": ["i3", "i3"]}
    means = [fit.predict("bought", **cells) for fit in fits]
    assert means[0] == pytest.approx(means[1], rel=0.02)


def test_cost_follows_the_stored_cells():
    """A relation of 1e13 cells with a thousand of them stored."""
    rng = np.random.default_rng(0)
    sizes = (10**5, 10**5, 10**3)
    cells = np.stack([rng.integers(0, n, 1000) for n in sizes], axis=1).astype(np.int32)
    table = Table("r", ("a", "b", "c"), (0, 1, 2), Bernoulli(), cells, np.ones(1000), cells[:0])
    data = Dataset(("a", "b", "c"), tuple(Domain(n) for n in sizes), (table,))
    state = MultiState.initial(data, [rng.dirichlet(np.ones(2), n) for n in sizes])
    assert state.tensor(0).sum() == pytest.approx(1e13)
    found = state.sweep(*interleave((10, 10, 10)))
    assert np.isfinite(found).all()
    assert state.tensor(0)[..., 0].sum() == pytest.approx(1000)


def test_starts_keep_tables_small():
    none = np.zeros((0, 3), np.int32)
    table = Table("r", ("a", "b", "c"), (0, 1, 2), Bernoulli(), none, np.zeros(0), none)
    data = Dataset(("a", "b", "c"), (Domain(200),) * 3, (table,))
    assert np.prod(start_clusters(data, (None, None, None), 100)) <= 2**18
    assert start_clusters(data, (90, None, None), 100)[0] == 90
    assert start_clusters(data, (None, 7, 500), 60)[1:] == (7, 200)
    domains, objects = interleave((2, 4))
    assert domains.tolist() == [1, 0, 1, 1, 0, 1]
    assert objects.tolist() == [0, 0, 1, 2, 1, 3]


def test_chains_without_a_local_optimum_among_the_modes_start_from_the_best_partition():
    data = build_dataset(shop())
    labels = [np.zeros(size, np.int32) for size in data.sizes]
    best = MultiPartition.from_labels(data, labels)
    chains = MultiChains.from_modes(best, [], 0, (None,) * len(labels))
    assert len(chains.chains) == 1
    assert chains.chains[0].log_joint() == pytest.approx(best.log_joint())


@pytest.mark.parametrize("least", [0.5, -np.inf])
def test_a_cluster_is_split_into_its_halves(least):
    rng = np.random.default_rng(0)
    X = (rng.random((40, 20)) < np.kron([[0.8, 0.1], [0.1, 0.8]], np.ones((20, 10)))).astype(int)
    data = build_dataset({"r": Relation(X, ["a", "b"]), "s": Relation(X[:, 0], ["a"])})
    labels = [np.zeros(40, np.int32), np.repeat([0, 1], 10).astype(np.int32)]
    partition = MultiPartition.from_labels(data, labels, learn=False)
    before = partition.log_joint()
    members = rng.permutation(40).astype(np.int32)
    assert try_split(partition, 0, 0, members, least)
    assert adjusted_rand_score(np.repeat([0, 1], 20), partition.labels[0]) > 0.9
    assert partition.log_joint() > before + 10.0
    assert not try_split(partition, 0, int(partition.labels[0][0]), members[members < 20], 0.5)
    counted = MultiPartition.from_labels(data, partition.labels, learn=False)
    assert counted.log_joint() == pytest.approx(partition.log_joint())


@pytest.mark.parametrize("clusters", [2, 8])
def test_a_domain_of_two_objects_beside_large_ones_is_split(clusters):
    rng = np.random.default_rng(0)
    z, w = np.arange(80) % clusters, np.arange(64) % clusters
    X = rng.random((80, 64)) < rng.beta(0.5, 0.5, (clusters, clusters))[z][:, w]
    bought = [(f"u{i}", f"i{j}") for i, j in np.argwhere(X)]
    tagged = [(f"i{j}", ("tea", "jazz")[w[j] % 2]) for j in range(64)]
    relations = {"bought": Relation(bought, ["user", "item"])}
    relations["tagged"] = Relation(tagged, ["item", "tag"])
    model = MultiIRM(inference="cvb0", random_state=0).fit(relations)
    assert {name: found.n_clusters for name, found in model.domains_.items()} == {
        "user": clusters,
        "item": clusters,
        "tag": 2,
    }
