"""Score predictions of held-out cells by the protocol of the paper."""

import math
from dataclasses import astuple, dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import clone
from sklearn.metrics import average_precision_score, roc_auc_score

from coblock.analysis.prediction import mean_log_probability
from coblock.io import refuse
from coblock.kernels import Floats
from coblock.model.checks import Kind, check_number, check_whole_number
from coblock.model.relation import BinaryRelation

MAX_HELD = 5_000_000  # cells of a run; each costs the fit as much time as a link
MAX_DRAWN = 20_000_000  # random numbers in memory at a time

CellNumbers = NDArray[np.int64]  # row * columns + column, ascending


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Held-out cells with their true values, and the relation without them."""

    X: sparse.csr_array  # the links that are left
    unseen: sparse.csr_array  # stored cells are held out, or were unseen before
    rows: NDArray[np.int64]  # of the held-out cells
    columns: NDArray[np.int64]
    values: NDArray[np.bool_]  # whether each held-out cell is a link
    weights: Floats | None = None  # cells that each held-out cell represents; None: one each
    odds: float = 1.0  # of a link among the cells that are left, over those among all cells
    sampled: bool = False  # whether the held-out cells are a weighted sample


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


def hold_out(X: Any, share: float = 0.1, random_state: int | None = None) -> HeldOut:
    """Hold out ``share`` of all cells of a sparse binary matrix, drawn without replacement.

    Examples
    --------
    >>> from scipy import sparse
    >>> held = hold_out(sparse.eye_array(10, format="csr"), 0.2, random_state=0)
    >>> held.rows.size, held.X.nnz + int(held.values.sum())
    (20, 10)
    """
    check_number("share", share, largest=1.0)
    X = sparse.csr_array(X)
    if np.isnan(X.data).any():
        refuse(
            f"{np.isnan(X.data).sum():,} cells are NaN, that is, unseen. A cell without a known "
            "value cannot be held out. Pass the links without these cells."
        )
    cells = _Cells.of(BinaryRelation.build(sparse.csr_array(X > 0)))
    size = X.shape[0] * X.shape[1]
    rng = np.random.default_rng(random_state)
    chosen = np.sort(rng.choice(size, round(share * size), replace=False, shuffle=False))
    held = cells.hold_out(chosen, np.isin(chosen, cells.links, assume_unique=True))
    return replace(held, X=sparse.csr_array(X.multiply(held.X)))  # with the values of X


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


def sample_held_out(
    relation: BinaryRelation, share: float, rng: np.random.Generator, *, largest: int = MAX_HELD
) -> HeldOut:
    """Hold out a share of the observed cells, or a weighted sample of ``largest`` cells."""
    cells = _Cells.of(relation)
    count = round(share * cells.n_observed)
    if count in {0, cells.n_observed}:
        refuse(
            f"A share of {share:g} of {cells.n_observed:,} observed cells leaves no cell to score, "
            "or none to fit. Choose another share, or pass more data."
        )
    if count <= largest:
        chosen = cells.draw(count, rng)
        return cells.hold_out(chosen, np.isin(chosen, cells.links, assume_unique=True))
    links = cells.links.size
    zeros = cells.n_observed - links
    held_links = min(math.floor(share * links), largest // 2)  # the others are zeros
    held_zeros = min(math.floor(share * zeros), largest - held_links)
    chosen_links = _choose(cells.links, held_links, rng)
    only_zeros = replace(cells, unseen=_union(cells.unseen, cells.links))
    chosen = np.concatenate((chosen_links, only_zeros.draw(held_zeros, rng)))
    values = np.arange(chosen.size) < held_links
    per_link, per_zero = share * links / max(held_links, 1), share * zeros / max(held_zeros, 1)
    weights = np.where(values, per_link, per_zero)
    odds = (1.0 - held_links / max(links, 1)) / (1.0 - held_zeros / max(zeros, 1))
    return replace(cells.hold_out(chosen, values), weights=weights, odds=odds, sampled=True)


def without_cells(relation: BinaryRelation, held: HeldOut) -> BinaryRelation:
    """Return the relation with the held-out cells unseen."""
    left = BinaryRelation.from_patterns(held.X, held.unseen, kind=relation.kind)
    kept = ("row_names", "column_names", "own_link", "own_seen")
    return replace(left, **{name: getattr(relation, name) for name in kept})


@dataclass(frozen=True, slots=True)
class _Cells:
    """The links and the unseen cells of a relation as numbers; an undirected pair is one cell."""

    shape: tuple[int, int]
    kind: Kind
    links: CellNumbers
    unseen: CellNumbers

    @classmethod
    def of(cls, relation: BinaryRelation) -> "_Cells":
        rows = np.arange(relation.shape[0], dtype=np.int64)
        place, numbers = relation.incidence[0][0], []
        for start, index in ((place.link_start, place.link), (place.unseen_start, place.unseen)):
            row = np.repeat(rows, np.diff(start))
            once = row < index if relation.kind == "undirected" else slice(None)
            numbers.append(row[once] * relation.shape[1] + index[once])
        return cls(relation.shape, relation.kind, *numbers)

    @property
    def n_observed(self) -> int:
        """Number of cells that can be held out; those of an object with itself cannot."""
        rows, columns = self.shape
        cells = rows * columns if self.kind == "bipartite" else rows * (rows - 1)
        return cells // (2 if self.kind == "undirected" else 1) - self.unseen.size

    def draw(self, count: int, rng: np.random.Generator) -> CellNumbers:
        """Draw observed cells without replacement, with no array of the size of the relation."""
        size = self.shape[0] * self.shape[1]
        found = np.zeros(0, dtype=np.int64)
        while found.size < count:
            per_cell = size / (self.n_observed - found.size)  # expected draws per new cell
            tries = math.ceil(1.1 * (count - found.size) * per_cell) + 16
            drawn = _union(rng.integers(size, size=min(tries, MAX_DRAWN)))
            row, column = np.divmod(drawn, self.shape[1])
            possible = ~np.isin(drawn, self.unseen, assume_unique=True)
            if self.kind != "bipartite":
                possible &= row < column if self.kind == "undirected" else row != column
            found = _union(found, drawn[possible])
        return _choose(found, count, rng)

    def hold_out(self, chosen: CellNumbers, values: NDArray[np.bool_]) -> HeldOut:
        """Return the chosen cells and what is left; the chosen links and zeros each ascend."""
        return HeldOut(
            self._matrix(self.links[~np.isin(self.links, chosen[values], assume_unique=True)]),
            self._matrix(_union(self.unseen, chosen)),
            *np.divmod(chosen, self.shape[1]),
            values,
        )

    def _matrix(self, cells: CellNumbers) -> sparse.csr_array:
        """Return a sparse matrix of ones at the cells."""
        at = np.divmod(cells, self.shape[1])
        return sparse.csr_array((np.ones(cells.size, dtype=np.int8), at), shape=self.shape)


def _union(*parts: CellNumbers) -> CellNumbers:
    """Return the distinct cells of all parts, ascending, much faster than ``np.unique``."""
    cells = np.concatenate(parts)
    cells.sort(kind="stable" if len(parts) > 1 else None)  # merges sorted parts in linear time
    first = np.ones(cells.size, dtype=bool)
    np.not_equal(cells[1:], cells[:-1], out=first[1:])
    return cells[first]


def _choose(cells: CellNumbers, count: int, rng: np.random.Generator) -> CellNumbers:
    """Draw ``count`` of the cells without replacement; their order is kept."""
    fewer = min(count, cells.size - count)
    marked = np.zeros(cells.size, dtype=bool)
    marked[rng.choice(cells.size, fewer, replace=False, shuffle=False)] = True
    return cells[marked if fewer == count else ~marked]
