"""The paper's protocol: hide a share of all cells, fit, score the hidden ones."""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import clone
from sklearn.metrics import average_precision_score, roc_auc_score

from coblock.analysis.prediction import SMALLEST_PROBABILITY
from coblock.kernels import Floats
from coblock.model.checks import check_number, check_whole_number
from coblock.model.relation import Relation

LARGEST = 5_000_000  # held-out cells of a run; each costs the fit as much as a link
MOST_DRAWN = 20_000_000  # numbers drawn at a time


@dataclass(frozen=True, slots=True)
class HeldOut:
    """A relation without its held-out cells, those cells, and their true values."""

    X: sparse.csr_array  # links that are left
    unseen: sparse.csr_array  # stored cells are held out
    rows: NDArray[np.int64]
    columns: NDArray[np.int64]
    values: NDArray[np.bool_]


def hold_out(X: Any, share: float = 0.1, random_state: int | None = None) -> HeldOut:
    """Hide ``share`` of all cells of a sparse binary matrix, drawn without replacement.

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
            f"{np.isnan(X.data).sum():,} cells are NaN, unseen already. Pass the links without "
            "them; what nobody knows cannot be held out."
        )
        raise ValueError(msg)
    rng = np.random.default_rng(random_state)
    cells = X.shape[0] * X.shape[1]
    chosen = np.sort(rng.choice(cells, round(share * cells), replace=False, shuffle=False))
    rows, columns = np.divmod(chosen, X.shape[1])
    ones = np.ones(chosen.size)
    unseen = sparse.csr_array((ones, (rows, columns)), shape=X.shape)
    hidden_links = X.multiply(unseen)
    left = sparse.csr_array(X - hidden_links)
    left.eliminate_zeros()
    values = np.asarray(X.tocsr()[rows, columns]).ravel() > 0 if rows.size else rows > 0
    return HeldOut(left, unseen, rows, columns, values)


@dataclass(frozen=True, slots=True)
class Scores:
    """How well held-out cells were predicted in one run.

    Attributes
    ----------
    log_likelihood : float
        Mean log probability per held-out cell.
    auc, average_precision : float
        How well links are ranked before the others; NaN where all held-out cells are links, or
        none is.
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
        Cells held out in a run.
    sampled : bool
        Whether only a sample of the zeros was held out.
    """

    runs: tuple[Scores, ...]
    mean: Scores
    deviation: Scores
    held_out: int
    sampled: bool


@dataclass(frozen=True, slots=True)
class Hidden:
    """A relation without some of its cells, those cells, and what each stands for.

    ``odds`` is what hiding has done to the odds of a link among the cells that are left.
    """

    relation: Relation
    rows: NDArray[np.int64]
    columns: NDArray[np.int64]
    values: NDArray[np.bool_]
    weights: Floats
    odds: float = 1.0
    sampled: bool = False


def evaluate(
    X: Any,
    model: Any,
    *,
    share: float = 0.1,
    runs: int = 5,
    seed: int = 0,
    largest: int = LARGEST,
) -> Evaluation:
    """Hold out a share of the observed cells, fit, score; several times, as the paper does.

    Where the share is more than ``largest`` cells, the same share of the links and a sample of
    the zeros are held out, ``largest`` cells in all. Weights make each sampled zero stand for as
    many zeros as the share has, so that all scores estimate those of the full protocol. The two
    differ in what the fit sees: in the full protocol the held-out zeros are unseen together with
    the links; in the sampled one nearly all zeros are seen, so that links look rarer than they
    are. The odds of the predicted links are corrected for this. The average precision is no mean
    over cells: from a sample of a few hundred zeros it comes out a little too high.

    Parameters
    ----------
    X : sparse matrix, array, data frame or Relation
        As for :meth:`IRM.fit`. Cells that are unseen, and those of objects with themselves, are
        not held out.
    model : IRM
        How to fit; it is not changed. Each run has a random state of its own.
    share : float
        Of the observed cells.
    runs : int
        Each holds out other cells.
    seed : int
        Same seed, same scores.
    largest : int
        Held-out cells of a run.

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
        hidden = hide(relation, share, rng, largest=largest)
        fresh = clone(model).set_params(random_state=int(rng.integers(2**31)))
        scores.append(score(fresh.fit(hidden.relation), hidden))
    table = np.array([[run.log_likelihood, run.auc, run.average_precision] for run in scores])
    deviation = table.std(axis=0, ddof=1) if runs > 1 else np.full(3, np.nan)
    return Evaluation(
        tuple(scores),
        Scores(*table.mean(axis=0).tolist()),
        Scores(*deviation.tolist()),
        hidden.rows.size,
        hidden.sampled,
    )


def score(model: Any, hidden: Hidden) -> Scores:
    """Return how well a model fitted to ``hidden.relation`` predicts the hidden cells."""
    probability = model.link_probability(hidden.rows, hidden.columns)
    probability = probability / (probability + (1.0 - probability) * hidden.odds)
    values, weights = hidden.values, hidden.weights
    of_value = np.where(values, probability, 1.0 - probability)
    log_likelihood = np.average(np.log(np.maximum(of_value, SMALLEST_PROBABILITY)), weights=weights)
    if values.all() or not values.any():
        return Scores(float(log_likelihood), math.nan, math.nan)
    return Scores(
        float(log_likelihood),
        float(roc_auc_score(values, probability, sample_weight=weights)),
        float(average_precision_score(values, probability, sample_weight=weights)),
    )


def hide(
    relation: Relation, share: float, rng: np.random.Generator, *, largest: int = LARGEST
) -> Hidden:
    """Hide a share of the observed cells, or a weighted sample of that share.

    A sample has the share's links, at most half of ``largest``, and as many zeros as there is
    room for.
    """
    cells = _Cells.of(relation)
    wanted = round(share * cells.observed)
    if wanted in {0, cells.observed}:
        msg = (
            f"A share of {share:g} of {cells.observed:,} observed cells leaves none to score, "
            "or none to fit. Choose another share, or give more data."
        )
        raise ValueError(msg)
    if wanted > largest:
        return _hide_sample(cells, share, rng, largest)
    chosen = cells.draw(wanted, rng)
    return cells.without(chosen, _contains(cells.links, chosen))


def _hide_sample(cells: "_Cells", share: float, rng: np.random.Generator, largest: int) -> Hidden:
    """Hide links and zeros apart; each hidden cell stands for its part of the share."""
    links = cells.links.size
    zeros = cells.observed - links
    held_links = min(math.floor(share * links), largest // 2)
    held_zeros = min(math.floor(share * zeros), largest - held_links)
    drawn_links = _drawn(cells.links, held_links, rng)
    chosen = np.concatenate((drawn_links, cells.draw(held_zeros, rng, zeros_only=True)))
    values = np.arange(chosen.size) < held_links
    weights = np.where(
        values, share * links / max(held_links, 1), share * zeros / max(held_zeros, 1)
    )
    odds = (1.0 - held_links / max(links, 1)) / (1.0 - held_zeros / max(zeros, 1))
    return replace(cells.without(chosen, values), weights=weights, odds=odds, sampled=True)


@dataclass(frozen=True, slots=True)
class _Cells:
    """The cells of a relation as numbers, row * columns + column; undirected pairs once."""

    relation: Relation
    links: NDArray[np.int64]  # ascending, as are all cells here
    unseen: NDArray[np.int64]

    @classmethod
    def of(cls, relation: Relation) -> "_Cells":
        place = relation.places[0][0]
        patterns = ((place.link_start, place.link), (place.unseen_start, place.unseen))
        return cls(relation, *(_numbers(relation, start, index) for start, index in patterns))

    @property
    def observed(self) -> int:
        """How many cells can be held out: none of objects with themselves."""
        rows, columns = self.relation.shape
        if self.relation.kind == "undirected":
            return rows * (rows - 1) // 2 - self.unseen.size
        return rows * (columns - self.relation.one_domain) - self.unseen.size

    def draw(
        self, count: int, rng: np.random.Generator, *, zeros_only: bool = False
    ) -> NDArray[np.int64]:
        """Draw observed cells without replacement.

        Numbers are drawn until enough different cells are met; which ones these are is as likely
        as any other set. Nothing of the size of all cells is made.
        """
        rows, columns = self.relation.shape
        available = self.observed - (self.links.size if zeros_only else 0)
        found = np.zeros(0, dtype=np.int64)
        while found.size < count:
            odds = rows * columns / (available - found.size)
            tries = math.ceil(1.1 * (count - found.size) * odds) + 16
            drawn = _union(rng.integers(rows * columns, size=min(tries, MOST_DRAWN)))
            drawn = drawn[self._can_be_held_out(drawn)]
            if zeros_only:
                drawn = drawn[~_contains(self.links, drawn)]
            found = _union(found, drawn)
        return _drawn(found, count, rng)

    def without(self, chosen: NDArray[np.int64], values: NDArray[np.bool_]) -> Hidden:
        """Return the relation with the chosen cells unseen; links and zeros ascend, each apart."""
        relation = self.relation
        left = Relation.from_patterns(
            _pattern(relation, self.links[~_contains(chosen[values], self.links)]),
            _pattern(relation, _union(self.unseen, chosen)),
            kind=relation.kind,
            row_names=relation.row_names,
            column_names=relation.column_names,
        )
        left = replace(left, self_link=relation.self_link, self_seen=relation.self_seen)
        rows, columns = np.divmod(chosen, relation.shape[1])
        return Hidden(left, rows, columns, values, np.ones(chosen.size))

    def _can_be_held_out(self, cells: NDArray[np.int64]) -> NDArray[np.bool_]:
        possible = ~_contains(self.unseen, cells)
        row, column = np.divmod(cells, self.relation.shape[1])
        if self.relation.kind == "undirected":
            return possible & (row < column)
        return possible & (row != column) if self.relation.one_domain else possible


def _numbers(relation: Relation, start: Any, index: Any) -> NDArray[np.int64]:
    """Return stored cells as ascending numbers."""
    rows = np.repeat(np.arange(relation.shape[0], dtype=np.int64), np.diff(start))
    once = rows < index if relation.kind == "undirected" else slice(None)
    return rows[once] * relation.shape[1] + index[once]


def _contains(sorted_cells: NDArray[np.int64], cells: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which cells are among the sorted ones."""
    if sorted_cells.size == 0:
        return np.zeros(cells.size, dtype=bool)
    at = np.minimum(np.searchsorted(sorted_cells, cells), sorted_cells.size - 1)
    return sorted_cells[at] == cells


def _union(*parts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the cells of all parts, each once, ascending.

    Sorted parts are merged in linear time; ``np.unique`` is many times slower for millions.
    """
    cells = np.concatenate(parts)
    cells.sort(kind="stable" if len(parts) > 1 else None)
    first = np.ones(cells.size, dtype=bool)
    np.not_equal(cells[1:], cells[:-1], out=first[1:])
    return cells[first]


def _drawn(cells: NDArray[np.int64], count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return ``count`` of the cells, in their order, drawn without replacement."""
    fewer = min(count, cells.size - count)
    marked = np.zeros(cells.size, dtype=bool)
    marked[rng.choice(cells.size, fewer, replace=False, shuffle=False)] = True
    return cells[marked if fewer == count else ~marked]


def _pattern(relation: Relation, cells: NDArray[np.int64]) -> sparse.csr_array:
    """Return ones at the cells."""
    rows, columns = relation.shape
    start = np.searchsorted(cells, np.arange(rows + 1) * columns)
    index = (cells % columns).astype(np.int32)
    ones = np.ones(cells.size, dtype=np.int8)
    return sparse.csr_array((ones, index, start), shape=relation.shape)
