"""Held-out scores of several relations: which cells are drawn, and what is scored."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

import multi_reference as reference
from coblock import MultiIRM, Relation
from coblock.analysis.evaluation import score_simple
from coblock.analysis.held_out import hold_out_cells, number_cells, remove_held_out
from coblock.evaluation import evaluate_several
from test_multi import LIKELIHOODS, draw_table, shop


def seen_cells(table, sizes):
    return dict(reference.observed_cells(table, sizes))


def key_of(table, cell):
    cell = tuple(cell)
    return (min(cell[:2]), max(cell[:2]), *cell[2:]) if table.symmetric else cell


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_held_out_cells_are_observed_ones_and_then_unseen(name):
    for seed in range(12):
        rng = np.random.default_rng(seed)
        sizes = (4, 5)
        table = draw_table(rng, list(sizes), name)
        before = seen_cells(table, sizes)
        if round(0.3 * len(before)) in {0, len(before)}:
            continue
        held = hold_out_cells(table, sizes, 0.3, rng, 10**6)
        assert len(held.cells) == round(0.3 * len(before)) == round(0.3 * table.n_observed(sizes))
        after = seen_cells(remove_held_out(table, held), sizes)
        keys = [key_of(table, cell) for cell in held.cells.tolist()]
        assert len(set(keys)) == len(keys)
        for key, value in zip(keys, held.values, strict=True):
            assert before.pop(key) == value
        assert before == after


def test_all_observed_cells_are_held_out_equally_often():
    rng = np.random.default_rng(0)
    table = draw_table(np.random.default_rng(5), [4, 5], "bernoulli")
    table = replace(table, filled=True)
    cells = list(seen_cells(table, (4, 5)))
    counts = dict.fromkeys(cells, 0)
    for _ in range(400):
        for cell in hold_out_cells(table, (4, 5), 0.3, rng, 10**6).cells.tolist():
            counts[key_of(table, cell)] += 1
    expected = sum(counts.values()) / len(cells)
    statistic = sum((count - expected) ** 2 / expected for count in counts.values())
    assert statistic < stats.chi2.ppf(1 - 1e-4, len(cells))


def test_a_large_share_is_sampled_with_weights():
    rng = np.random.default_rng(0)
    data = reference_data(rng, (60, 50))
    table = data.tables[0]
    held = hold_out_cells(table, data.sizes, 0.2, rng, 100)
    assert held.sampled
    assert len(held.cells) == 100
    assert held.weights.sum() == pytest.approx(0.2 * 3000)
    links = held.values > 0
    assert held.weights[links].sum() == pytest.approx(0.2 * len(table.cells))
    numbers = number_cells(table, data.sizes, held.cells)
    assert np.unique(numbers).size == 100
    known = number_cells(table, data.sizes, table.cells)
    assert np.array_equal(np.isin(numbers, known), links)


def reference_data(rng, shape):
    from coblock.io.tables import build_dataset

    X = (rng.random(shape) < 0.1).astype(float)
    return build_dataset({"r": Relation(X, ["a", "b"])})


def test_nothing_of_the_size_of_a_relation_is_made():
    from coblock.model.dataset import Table
    from coblock.model.likelihoods.bernoulli import Bernoulli

    rng = np.random.default_rng(0)
    sizes = (10**5, 10**5, 10**3)
    cells = np.stack([rng.integers(0, n, 1000) for n in sizes], axis=1).astype(np.int32)
    cells = np.unique(cells, axis=0)
    table = Table("r", ("a", "b", "c"), (0, 1, 2), Bernoulli(), cells, np.ones(1000), cells[:0])
    held = hold_out_cells(table, sizes, 0.1, rng, 2000)
    assert held.values.sum() == 100
    assert held.weights.sum() == pytest.approx(1e12)
    huge = replace(table, places=("a", "b", "c", "d"), domains=(0, 0, 1, 1))
    with pytest.raises(ValueError, match="can be numbered to hold out"):
        number_cells(huge, sizes, np.zeros((1, 4), np.int32))


def test_baselines_use_the_means_of_objects():
    """One block has the mean of the others; degrees multiply the means of the objects."""
    rng = np.random.default_rng(1)
    X = (rng.random((40, 30)) < np.outer(np.linspace(0.2, 1, 40), np.linspace(0.2, 1, 30))) * 1.0
    from coblock.io.tables import build_dataset

    data = build_dataset({"r": Relation(X, ["a", "b"])})
    held = hold_out_cells(data.tables[0], data.sizes, 0.2, rng, 10**6)
    left = replace(data, tables=(remove_held_out(data.tables[0], held),))
    found = score_simple(left, 0, held)
    assert found["density"].auc == 0.5
    assert found["degrees"].auc > 0.7
    assert found["degrees"].log_likelihood > found["density"].log_likelihood
    p = left.tables[0].values.sum() / left.tables[0].n_observed(data.sizes)
    constant = np.log(np.where(held.values > 0, p, 1 - p)).mean()
    assert found["density"].log_likelihood == pytest.approx(constant, abs=1e-3)


@pytest.mark.usefixtures("short_chains")
def test_scores_of_all_relations():
    found = evaluate_several(shop(), MultiIRM(), runs=2, seed=3)
    again = evaluate_several(shop(), MultiIRM(), runs=2, seed=3)
    assert list(found) == list(shop())
    for name, each in found.items():
        assert each.mean.log_likelihood == again[name].mean.log_likelihood
        best = max(score.log_likelihood for score in each.baselines.values())
        assert each.mean.log_likelihood > best
    assert found["bought"].held_out == 60
    assert found["knows"].held_out == round(0.1 * 30 * 29 / 2)
    assert found["knows"].mean.auc > 0.6
    assert np.isnan(found["price"].mean.auc)
    with pytest.raises(ValueError, match="observed cells of relation 'price' leaves no cell"):
        evaluate_several(shop(), MultiIRM(), share=0.01)


def test_held_out_counts_have_their_exposures():
    rng = np.random.default_rng(0)
    weight = np.concatenate((np.full(10, 1.0), np.full(10, 20.0)))
    X = rng.poisson(np.outer(weight, np.ones(15)))
    relation = Relation(X, ["a", "b"], likelihood="poisson", exposure=[weight, None])
    model = MultiIRM(random_state=0, inference="cvb0").fit({"r": relation})
    cells = {"a": [0, 19], "b": [0, 0]}
    (n, T), (a, b) = model.relations_["r"].statistics[0, 0], model.relations_["r"].hyperparameters
    assert model.relations_["r"].mean.shape == (1, 1)
    exact = [
        stats.nbinom.logpmf(x, a + n, (b + T) / (b + T + e)) for x, e in ((2, 1.0), (17, 20.0))
    ]
    assert model.score("r", cells, [2, 17]) == pytest.approx(np.mean(exact), abs=1e-6)
