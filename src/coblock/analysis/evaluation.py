"""Score predictions of held-out cells by the protocol of the paper."""

import math
from dataclasses import astuple, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import clone
from sklearn.metrics import average_precision_score, roc_auc_score

from coblock.analysis.prediction import mean_log_probability
from coblock.kernels import Floats
from coblock.model.checks import check_number, check_whole_number
from coblock.model.relation import Relation

MAX_HELD_OUT = 5_000_000  # cells of a run; each costs the fit as much time as a link
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
    """Scores of the held-out cells of one run.

    Attributes
    ----------
    log_likelihood : float
        Mean log probability per held-out cell.
    auc, average_precision : float
        Quality of the ranking of links before other cells; NaN if all held-out cells are links,
        or none is.
    """

    log_likelihood: float
    auc: float
    average_precision: float


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Scores of all runs, their means and standard deviations.

    Attributes
    ----------
    runs : tuple of Scores
        One for each run.
    mean, deviation : Scores
        Over the runs; the deviation of a single run is NaN.
    held_out : int
        Number of cells held out in a run.
    sampled : bool
        Whether only a sample of the zeros was held out.
    """

    runs: tuple[Scores, ...]
    mean: Scores
    deviation: Scores
    held_out: int
    sampled: bool


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
        msg = (
            f"{np.isnan(X.data).sum():,} cells are NaN, that is, unseen. A cell without a known "
            "value cannot be held out. Pass the links without these cells."
        )
        raise ValueError(msg)
    cells = _Cells.of(Relation.build(X))
    size = X.shape[0] * X.shape[1]
    rng = np.random.default_rng(random_state)
    chosen = np.sort(rng.choice(size, round(share * size), replace=False, shuffle=False))
    held = cells.hold_out(chosen, _is_in(chosen, cells.links))
    return replace(held, X=sparse.csr_array(X.multiply(held.X)))  # with the values of X


def evaluate(
    X: Any,
    model: Any,
    *,
    share: float = 0.1,
    runs: int = 5,
    seed: int = 0,
    largest: int = MAX_HELD_OUT,
) -> Evaluation:
    """Hold out a share of the observed cells, fit the rest and score the held-out cells.

    If the share is more than ``largest`` cells, the same share of the links and a sample of the
    zeros are held out, ``largest`` cells in all. Sampled zeros have weights, so that all scores
    estimate those of the whole share. A fit that sees nearly all zeros but not the held-out links
    underestimates links; the odds of the predicted links are corrected for this. The average
    precision of a sample of a few hundred zeros is slightly too high.

    Parameters
    ----------
    X : sparse matrix, array, data frame or Relation
        As for :meth:`IRM.fit`. Unseen cells, and cells of an object with itself, are not held out.
    model : IRM
        Estimator to fit; it is not changed. Each run has its own random state.
    share : float
        Share of the observed cells that is held out.
    runs : int
        Number of fits; each holds out other cells.
    seed : int
        The same seed gives the same scores.
    largest : int
        Largest number of cells to hold out in a run.

    Examples
    --------
    >>> from coblock import IRM
    >>> from coblock.generate import planted
    >>> found = evaluate(planted((40, 30), (2, 2), 0).X, IRM(), runs=2)
    >>> found.held_out, found.sampled, len(found.runs)
    (120, False, 2)
    """
    check_number("share", share, smallest=0.0, largest=1.0)
    check_whole_number("runs", runs, 1)
    check_whole_number("largest", largest, 2)
    relation = X
    if not isinstance(X, Relation):
        relation = Relation.build(X, kind=model.relation, binarize=model.binarize)
    scores = []
    for sequence in np.random.SeedSequence(check_whole_number("seed", seed, 0)).spawn(runs):
        rng = np.random.default_rng(sequence)
        held = sample_held_out(relation, share, rng, largest=largest)
        estimator = clone(model).set_params(random_state=int(rng.integers(2**31)))
        scores.append(score(estimator.fit(without_cells(relation, held)), held))
    table = np.array([astuple(run) for run in scores])
    deviation = table.std(axis=0, ddof=1) if runs > 1 else np.full(3, np.nan)
    return Evaluation(
        tuple(scores),
        Scores(*table.mean(axis=0).tolist()),
        Scores(*deviation.tolist()),
        held.rows.size,
        held.sampled,
    )


def score(model: Any, held: HeldOut) -> Scores:
    """Return the scores of the held-out cells under a model that was fitted without them."""
    probability = model.link_probability(held.rows, held.columns)
    probability = probability / (probability + (1.0 - probability) * held.odds)
    values, weights = held.values, held.weights
    log_likelihood = mean_log_probability(probability, values, weights)
    if values.all() or not values.any():
        return Scores(log_likelihood, math.nan, math.nan)
    return Scores(
        log_likelihood,
        float(roc_auc_score(values, probability, sample_weight=weights)),
        float(average_precision_score(values, probability, sample_weight=weights)),
    )


def sample_held_out(
    relation: Relation, share: float, rng: np.random.Generator, *, largest: int = MAX_HELD_OUT
) -> HeldOut:
    """Hold out a share of the observed cells, or a weighted sample of ``largest`` cells.

    A sample has the same share of the links, at most ``largest // 2`` of them, and zeros.
    """
    cells = _Cells.of(relation)
    count = round(share * cells.n_observed)
    if count in {0, cells.n_observed}:
        msg = (
            f"A share of {share:g} of {cells.n_observed:,} observed cells leaves no cell to score, "
            "or none to fit. Choose another share, or pass more data."
        )
        raise ValueError(msg)
    if count <= largest:
        chosen = cells.draw(count, rng)
        return cells.hold_out(chosen, _is_in(chosen, cells.links))
    links = cells.links.size
    zeros = cells.n_observed - links
    held_links = min(math.floor(share * links), largest // 2)
    held_zeros = min(math.floor(share * zeros), largest - held_links)
    chosen_links = _choose(cells.links, held_links, rng)
    only_zeros = replace(cells, unseen=_union(cells.unseen, cells.links))
    chosen = np.concatenate((chosen_links, only_zeros.draw(held_zeros, rng)))
    values = np.arange(chosen.size) < held_links
    weights = np.where(
        values, share * links / max(held_links, 1), share * zeros / max(held_zeros, 1)
    )
    odds = (1.0 - held_links / max(links, 1)) / (1.0 - held_zeros / max(zeros, 1))
    return replace(cells.hold_out(chosen, values), weights=weights, odds=odds, sampled=True)


def without_cells(relation: Relation, held: HeldOut) -> Relation:
    """Return the relation with the held-out cells unseen."""
    left = Relation.from_patterns(
        held.X,
        held.unseen,
        kind=relation.kind,
        row_names=relation.row_names,
        column_names=relation.column_names,
    )
    return replace(left, own_link=relation.own_link, own_seen=relation.own_seen)


@dataclass(frozen=True, slots=True)
class _Cells:
    """The links and the unseen cells of a relation as numbers; an undirected pair is one cell."""

    shape: tuple[int, int]
    kind: str
    links: CellNumbers
    unseen: CellNumbers

    @classmethod
    def of(cls, relation: Relation) -> "_Cells":
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
        if self.kind == "undirected":
            return rows * (rows - 1) // 2 - self.unseen.size
        return rows * (columns - (self.kind == "directed")) - self.unseen.size

    def draw(self, count: int, rng: np.random.Generator) -> CellNumbers:
        """Draw observed cells without replacement; all sets of ``count`` cells are equally likely.

        Numbers are drawn until enough distinct cells are found, so that no array has the size of
        the relation.
        """
        size = self.shape[0] * self.shape[1]
        found = np.zeros(0, dtype=np.int64)
        while found.size < count:
            per_cell = size / (self.n_observed - found.size)  # expected draws per new cell
            tries = math.ceil(1.1 * (count - found.size) * per_cell) + 16
            drawn = _union(rng.integers(size, size=min(tries, MAX_DRAWN)))
            found = _union(found, drawn[self._can_be_held_out(drawn)])
        return _choose(found, count, rng)

    def hold_out(self, chosen: CellNumbers, values: NDArray[np.bool_]) -> HeldOut:
        """Return the chosen cells and what is left; the chosen links and zeros each ascend."""
        return HeldOut(
            self._matrix(self.links[~_is_in(self.links, chosen[values])]),
            self._matrix(_union(self.unseen, chosen)),
            *np.divmod(chosen, self.shape[1]),
            values,
        )

    def _can_be_held_out(self, cells: CellNumbers) -> NDArray[np.bool_]:
        possible = ~_is_in(cells, self.unseen)
        row, column = np.divmod(cells, self.shape[1])
        if self.kind == "undirected":
            return possible & (row < column)
        return possible & (row != column) if self.kind == "directed" else possible

    def _matrix(self, cells: CellNumbers) -> sparse.csr_array:
        """Return a sparse matrix of ones at the cells."""
        rows, columns = self.shape
        start = np.searchsorted(cells, np.arange(rows + 1) * columns)
        index = (cells % columns).astype(np.int32)
        ones = np.ones(cells.size, dtype=np.int8)
        return sparse.csr_array((ones, index, start), shape=self.shape)


def _is_in(cells: CellNumbers, ascending: CellNumbers) -> NDArray[np.bool_]:
    """Return which cells are among the ascending ones."""
    if ascending.size == 0:
        return np.zeros(cells.size, dtype=bool)
    at = np.minimum(np.searchsorted(ascending, cells), ascending.size - 1)
    return ascending[at] == cells


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
