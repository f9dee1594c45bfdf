"""Score predictions of held-out cells of several relations (RELATIONS 12)."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln
from sklearn.base import clone

from coblock.analysis.evaluation import (
    MAX_HELD,
    Evaluation,
    Scores,
    generators,
    score_probabilities,
    summarize_runs,
)
from coblock.io import refuse
from coblock.io.tables import Relation, build_dataset
from coblock.kernels import Floats, Indices
from coblock.model.dataset import Dataset, Table
from coblock.model.multi_result import MultiResult, log_predictive, predict_mean

CellNumbers = NDArray[np.int64]
MOST_CELLS = 2**62  # of a relation; their numbers are held in 64 bits


@dataclass(frozen=True, slots=True)
class HeldCells:
    """Held-out cells of one relation with their values."""

    cells: Indices  # (cells, arity)
    values: Floats
    weights: Floats | None = None  # cells that each held-out cell represents; None: one each
    odds: float = 1.0  # of a stored cell among those that are left, over those among all cells
    sampled: bool = False  # whether the held-out cells are a weighted sample


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
    scores of each relation are those of :func:`coblock.evaluation.evaluate`; only 0/1 relations
    have a ranking. The baselines are one block of all cells (for 0/1 data, the density), and for
    0/1 data and counts the degrees of the objects of a cell.

    If the share of a relation is more than ``largest`` cells, its listed cells and a sample of its
    zeros are held out, with weights, as by :func:`coblock.evaluation.evaluate`.

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


def hold_out_cells(
    table: Table, sizes: tuple[int, ...], share: float, rng: np.random.Generator, largest: int
) -> HeldCells:
    """Draw a share of the observed cells, or a weighted sample of ``largest`` cells."""
    observed, listed = table.n_observed(sizes), len(table.cells)
    count = round(share * observed)
    if count in {0, observed}:
        refuse(
            f"A share of {share:g} of the {observed:,} observed cells of relation '{table.name}' "
            "leaves no cell to score, or none to fit. Choose another share, or pass more data."
        )
    if not table.filled:
        chosen = np.sort(rng.choice(listed, min(count, largest), replace=False))
        return HeldCells(table.cells[chosen], table.values[chosen])
    if count <= largest:
        numbers = draw_numbers(table, sizes, count, table.unseen, rng)
        return _with_values(table, sizes, numbers)
    zeros = observed - listed
    held_listed = min(math.floor(share * listed), largest // 2)
    held_zeros = min(math.floor(share * zeros), largest - held_listed)
    chosen = np.sort(rng.choice(listed, held_listed, replace=False))
    stored = np.concatenate((table.cells, table.unseen))
    numbers = draw_numbers(table, sizes, held_zeros, stored, rng)
    shape = [sizes[d] for d in table.domains]
    cells = np.stack(np.unravel_index(numbers, shape), axis=1).astype(np.int32)
    weights = np.repeat(
        (share * listed / max(held_listed, 1), share * zeros / max(held_zeros, 1)),
        (held_listed, held_zeros),
    )
    return HeldCells(
        np.concatenate((table.cells[chosen], cells)),
        np.concatenate((table.values[chosen], np.zeros(held_zeros))),
        weights,
        (1.0 - held_listed / max(listed, 1)) / (1.0 - held_zeros / max(zeros, 1)),
        sampled=True,
    )


def _with_values(table: Table, sizes: tuple[int, ...], numbers: CellNumbers) -> HeldCells:
    """Return numbered cells with their values; those that are not listed are zeros."""
    known = number_cells(table, sizes, table.cells)
    order = np.argsort(known, kind="stable")
    at = np.minimum(np.searchsorted(known, numbers, sorter=order), max(known.size - 1, 0))
    values = np.zeros(numbers.size)
    if known.size:
        listed = known[order[at]] == numbers
        values[listed] = table.values[order[at[listed]]]
    shape = [sizes[d] for d in table.domains]
    return HeldCells(np.stack(np.unravel_index(numbers, shape), axis=1).astype(np.int32), values)


def draw_numbers(
    table: Table,
    sizes: tuple[int, ...],
    count: int,
    excluded: Indices,
    rng: np.random.Generator,
) -> CellNumbers:
    """Draw cells without replacement; nothing of the size of the relation is made.

    Cells that the relation does not have, and those that are excluded, are not drawn.
    """
    shape = [sizes[d] for d in table.domains]
    size, skipped = math.prod(shape), np.sort(number_cells(table, sizes, excluded))
    possible = table.n_observed(sizes) + len(table.unseen) - len(excluded)
    found = np.zeros(0, np.int64)
    while found.size < count:
        tries = 1.1 * (count - found.size) * (size / (possible - found.size)) + 16
        drawn = np.unique(rng.integers(size, size=min(math.ceil(tries), 4 * MAX_HELD)))
        drawn = drawn[~np.isin(drawn, skipped, assume_unique=True)]
        at = np.unravel_index(drawn, shape)
        wanted = at[0] <= at[1] if table.symmetric else np.ones(drawn.size, bool)
        for p, d in enumerate(table.domains):
            for e in range(p):
                if table.distinct and table.domains[e] == d:
                    wanted &= at[e] != at[p]
        found = np.union1d(found, drawn[wanted])
    return np.sort(rng.choice(found, count, replace=False))


def number_cells(table: Table, sizes: tuple[int, ...], cells: Indices) -> CellNumbers:
    """Return the numbers of cells among all tuples of objects; symmetric pairs are in order."""
    shape = [sizes[d] for d in table.domains]
    if math.prod(shape) > MOST_CELLS:
        refuse(
            f"Relation '{table.name}' has {math.prod(shape):.1e} cells, and at most "
            f"{MOST_CELLS:.1e} can be numbered to hold out some. List the observed cells, with "
            "absent='unseen'."
        )
    ordered = cells.astype(np.int64)
    if table.symmetric:
        ordered[:, :2] = np.sort(ordered[:, :2], axis=1)
    return np.ravel_multi_index(tuple(ordered.T), shape).astype(np.int64)


def remove_held_out(table: Table, held: HeldCells) -> Table:
    """Return a relation in which the held-out cells are unseen."""
    keys = [each.astype(np.int64) for each in (table.cells, held.cells)]
    if table.symmetric:
        keys = [np.column_stack((np.sort(each[:, :2], axis=1), each[:, 2:])) for each in keys]
    _, number = np.unique(np.concatenate(keys), axis=0, return_inverse=True)
    kept = ~np.isin(number.ravel()[: len(table.cells)], number.ravel()[len(table.cells) :])
    unseen = table.unseen
    if table.filled:
        unseen = np.concatenate((unseen, held.cells)).astype(np.int32)
    return replace(table, cells=table.cells[kept], values=table.values[kept], unseen=unseen)
