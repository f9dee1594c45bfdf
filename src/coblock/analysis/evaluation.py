"""Score predictions of held-out cells by the protocol of the paper (RELATIONS 12)."""

import math
from collections.abc import Mapping
from dataclasses import astuple, dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln
from sklearn.base import clone
from sklearn.metrics import average_precision_score, roc_auc_score

from coblock.analysis.held_out import (
    MAX_HELD,
    HeldCells,
    HeldOut,
    hold_out,
    hold_out_cells,
    remove_held_out,
    sample_held_out,
    without_cells,
)
from coblock.analysis.prediction import mean_log_probability
from coblock.io.tables import Relation, build_dataset
from coblock.kernels import Floats, Indices
from coblock.model.checks import check_number, check_whole_number
from coblock.model.dataset import Dataset, Table
from coblock.model.multi_result import MultiResult, log_predictive, predict_mean
from coblock.model.relation import BinaryRelation

__all__ = ["Evaluation", "HeldOut", "Scores", "evaluate", "evaluate_several", "hold_out"]


@dataclass(frozen=True, slots=True)
class Scores:
    """Scores of one run: mean log probability per held-out cell, and quality of the ranking.

    ``auc`` and ``average_precision`` are NaN if all held-out cells are links, or none is.
    """

    log_likelihood: float
    auc: float
    average_precision: float


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Scores of all runs, their means and standard deviations; that of a single run is NaN.

    ``held_out`` is the number of cells held out in a run, and ``sampled`` says whether only a
    sample of the zeros was held out. ``baselines`` are the mean scores of two simple predictions
    for the same cells: ``density``, the share of links of all other cells, and ``degrees``, the
    product of the shares of the row and of the column over the density.
    """

    runs: tuple[Scores, ...]
    mean: Scores
    deviation: Scores
    held_out: int
    sampled: bool
    baselines: dict[str, Scores] = field(default_factory=dict)


def evaluate(
    X: Any,
    model: Any,
    *,
    share: float = 0.1,
    runs: int = 5,
    seed: int = 0,
    largest: int = MAX_HELD,
) -> Evaluation:
    """Hold out a share of the observed cells, fit the rest and score the held-out cells.

    ``X`` is as for :meth:`IRM.fit`. Unseen cells, and cells of an object with itself, are not held
    out. Each of the ``runs`` holds out other cells and fits a copy of the model with another random
    state. The same ``seed`` gives the same scores.

    If the share is more than ``largest`` cells, the same share of the links and a sample of the
    zeros are held out, ``largest`` cells in all. Sampled zeros have weights, so that all scores
    estimate those of the whole share. A fit that sees nearly all zeros but not the held-out links
    underestimates links; the odds of the predicted links are corrected for this. The average
    precision of a sample of a few hundred zeros is slightly too high.

    Examples
    --------
    >>> from coblock import IRM
    >>> from coblock.generate import planted
    >>> found = evaluate(planted((40, 30), (2, 2), 0).X, IRM(), runs=2)
    >>> found.held_out, found.sampled, len(found.runs)
    (120, False, 2)
    """
    relation = X
    if not isinstance(X, BinaryRelation):
        relation = BinaryRelation.build(X, kind=model.relation, binarize=model.binarize)
    scores, simple = [], []
    for rng in generators(share, runs, seed, largest):
        held = sample_held_out(relation, share, rng, largest=largest)
        estimator = clone(model).set_params(random_state=int(rng.integers(2**31)))
        left = without_cells(relation, held)
        simple.append(score_baselines(left, held))
        scores.append(score(estimator.fit(left), held))
    return summarize_runs(scores, simple, held.rows.size, sampled=held.sampled)


def evaluate_several(
    relations: Mapping[str, Relation],
    model: Any,
    *,
    share: float = 0.1,
    runs: int = 5,
    seed: int = 0,
    largest: int = MAX_HELD,
) -> dict[str, Evaluation]:
    """Hold out a share of the observed cells of each relation, fit the rest and score them.

    Zeros are held out, too, where cells that are not listed are zeros. Each of the ``runs`` holds
    out other cells and fits a copy of the :class:`coblock.MultiIRM` with another random state. The
    scores of each relation are those of :func:`evaluate`; only 0/1 relations
    have a ranking. The baselines are one block of all cells (for 0/1 data, the density), and for
    0/1 data and counts the degrees of the objects of a cell.

    If the share of a relation is more than ``largest`` cells, its listed cells and a sample of its
    zeros are held out, with weights, as by :func:`evaluate`.

    Examples
    --------
    >>> from coblock import MultiIRM, Relation
    >>> likes = [(i, j) for i in range(20) for j in range(16) if i % 2 == j % 2]
    >>> found = evaluate_several({"likes": Relation(likes, ["a", "b"])}, MultiIRM(), runs=2)
    >>> found["likes"].held_out, len(found["likes"].runs)
    (32, 2)
    """
    data = build_dataset(relations)
    scores: list[list[Scores]] = [[] for _ in data.tables]
    simple: list[list[dict[str, Scores]]] = [[] for _ in data.tables]
    held: list[HeldCells] = []
    for rng in generators(share, runs, seed, largest):
        held = [hold_out_cells(table, data.sizes, share, rng, largest) for table in data.tables]
        left = replace(data, tables=tuple(map(remove_held_out, data.tables, held)))
        estimator = clone(model).set_params(random_state=int(rng.integers(2**31)))
        result = estimator.fit(left).result_
        for r, cells in enumerate(held):
            scores[r].append(score_held_out(result, r, cells))
            simple[r].append(score_simple(left, r, cells))
    return {
        table.name: summarize_runs(
            scores[r], simple[r], len(held[r].cells), sampled=held[r].sampled
        )
        for r, table in enumerate(data.tables)
    }


def generators(share: float, runs: int, seed: int, largest: int) -> list[np.random.Generator]:
    """Check the settings of the protocol; return the random numbers of each run."""
    check_number("share", share, smallest=0.0, largest=1.0)
    check_whole_number("runs", runs, 1)
    check_whole_number("largest", largest, 2)
    spawned = np.random.SeedSequence(check_whole_number("seed", seed, 0)).spawn(runs)
    return [np.random.default_rng(sequence) for sequence in spawned]


def summarize_runs(
    scores: list[Scores], simple: list[dict[str, Scores]], held_out: int, *, sampled: bool
) -> Evaluation:
    """Return means and deviations over all runs, with the scores of simple predictions."""
    table = np.array([astuple(run) for run in scores])
    spread = table.std(axis=0, ddof=1) if len(table) > 1 else np.full(3, np.nan)
    mean, deviation = (Scores(*values.tolist()) for values in (table.mean(axis=0), spread))
    baselines = {
        name: Scores(*np.mean([astuple(run[name]) for run in simple], axis=0).tolist())
        for name in simple[0]
    }
    return Evaluation(tuple(scores), mean, deviation, held_out, sampled, baselines)


def score(model: Any, held: HeldOut) -> Scores:
    """Return the scores of the held-out cells under a model that was fitted without them."""
    probability = model.link_probability(held.rows, held.columns)
    return score_probabilities(probability, held.values, held.weights, held.odds)


def score_baselines(left: BinaryRelation, held: HeldOut) -> dict[str, Scores]:
    """Return the scores of the density and of the degrees of a relation without the cells."""
    density = (left.n_links + 0.5) / (left.n_cells + 1.0)
    shares = []
    for place, size in ((left.incidence[0][0], 1), (left.incidence[-1][-1], 0)):
        seen = left.shape[size] - left.repeated - np.diff(place.unseen_start)
        shares.append((np.diff(place.link_start) + density) / (seen + 1.0))
    product = shares[0][held.rows] * shares[1][held.columns] / density
    largest = 1.0 - 0.5 / (left.n_cells + 1.0)
    constant = np.full(held.rows.size, density)
    found = {"density": constant, "degrees": np.minimum(product, largest)}
    known = (held.values, held.weights, held.odds)
    return {name: score_probabilities(p, *known) for name, p in found.items()}


def score_probabilities(
    probability: Floats, values: NDArray[np.bool_], weights: Floats | None, odds: float
) -> Scores:
    """Return the scores of predicted probabilities of held-out cells; see :class:`HeldOut`."""
    probability = probability / (probability + (1.0 - probability) * odds)
    log_likelihood = mean_log_probability(probability, values, weights)
    if values.all() or not values.any():
        return Scores(log_likelihood, math.nan, math.nan)
    return Scores(
        log_likelihood,
        float(roc_auc_score(values, probability, sample_weight=weights)),
        float(average_precision_score(values, probability, sample_weight=weights)),
    )


# Several relations


def score_held_out(result: MultiResult, r: int, held: HeldCells) -> Scores:
    """Return the scores of held-out cells under a result that was fitted without them."""
    if result.data.tables[r].likelihood.name == "bernoulli":
        return _score_binary(predict_mean(result, r, held.cells), held)
    return _mean_score(log_predictive(result, r, held.cells, held.values), held)


def _score_binary(probability: Floats, held: HeldCells) -> Scores:
    return score_probabilities(probability, held.values > 0, held.weights, held.odds)


def _mean_score(log_probability: Floats, held: HeldCells) -> Scores:
    mean = float(np.average(log_probability, weights=held.weights))
    return Scores(mean, math.nan, math.nan)


def score_simple(data: Dataset, r: int, held: HeldCells) -> dict[str, Scores]:
    """Return the scores of predictions without clusters, from the cells that are left."""
    table, name = data.tables[r], data.tables[r].likelihood.name
    if name == "bernoulli":
        largest = 1.0 - 0.5 / (table.n_observed(data.sizes) + 1.0)
        mean, rate = _rates(table, data.sizes, held.cells)
        constant = np.full(len(held.cells), mean)
        found = {"density": constant, "degrees": np.minimum(rate, largest)}
        return {each: _score_binary(probability, held) for each, probability in found.items()}
    if table.exposures is not None:
        return {}
    likelihood, total = table.likelihood, table.stored[1].sum(axis=0)
    total = total + table.zero * (table.n_observed(data.sizes) + len(table.unseen))
    block = tuple(np.full(len(held.cells), each) for each in total)
    prior = likelihood.initial_prior(table.mean(data.sizes)).reshape(-1, 1)
    values = {"one block": likelihood.log_predictive(held.values, block, prior)}
    if name == "poisson":
        rate = _rates(table, data.sizes, held.cells)[1]
        values["degrees"] = held.values * np.log(rate) - rate - gammaln(held.values + 1.0)
    return {each: _mean_score(value, held) for each, value in values.items()}


def _rates(table: Table, sizes: tuple[int, ...], cells: Indices) -> tuple[float, Floats]:
    """Return the mean of all cells, and for some the product of the means of their objects.

    The product is divided by the mean of all cells so that the mean of all products is the same.
    """
    seen = table.n_observed(sizes)
    mean = (float(table.values.sum()) + 0.5) / (seen + 1.0)
    rate = np.full(len(cells), mean)
    for p, d in enumerate(table.domains):
        pair = table.symmetric and p < 2
        places = (0, 1) if pair else (p,)
        total, count = np.zeros((2, sizes[d]))
        for place in places:
            total += np.bincount(table.cells[:, place], table.values, sizes[d])
            listed = table.unseen if table.filled else table.cells
            count += np.bincount(listed[:, place], minlength=sizes[d])
        if table.filled:
            whole = (seen + len(table.unseen)) * (2.0 if pair else 1.0) / sizes[d]
            count = np.maximum(whole - count, 0.0)
        rate *= ((total + mean) / (count + 1.0))[cells[:, p]] / mean
    return mean, rate
