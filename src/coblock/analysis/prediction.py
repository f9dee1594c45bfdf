"""Predict links between fitted objects, and the clusters of new rows (MODEL 13)."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import softmax
from threadpoolctl import threadpool_limits

from coblock.kernels import BlockTables, Floats
from coblock.kernels.memberships import column_sums, hard_labels
from coblock.kernels.prediction import fold_in_all
from coblock.model.relation import Relation
from coblock.model.result import Result

CHUNK = 1 << 16  # pairs that are predicted at a time, to bound memory
SMALLEST_PROBABILITY = 1e-300  # keeps logarithms finite
BATCH_CELLS = 1 << 19  # cells that are ranked at a time, to bound memory
GROUP = 16  # columns per maximum in the search for a threshold
TIED = 1e-9  # relative difference below which probabilities are equal

Positions = NDArray[np.int64]


def link_probability(result: Result, rows: Positions, columns: Positions) -> Floats:
    """Return P(x_ij = 1) for pairs of rows and columns, both 1-D."""
    predict = _from_samples if result.samples else _from_memberships
    out = np.empty(rows.size)
    for start in range(0, rows.size, CHUNK):
        part = slice(start, start + CHUNK)
        out[part] = predict(result, rows[part], columns[part])
    return out


def _from_memberships(result: Result, rows: Positions, columns: Positions) -> Floats:
    probability = result.block_probability
    q_row, q_col = result.memberships[0], result.memberships[-1]
    out = np.einsum("ik,ik->i", q_row[rows] @ probability, q_col[columns])
    if result.relation.repeated:  # in its own cell an object has the same cluster twice
        own = rows == columns
        out[own] = q_row[rows[own]] @ np.diag(probability)
    return out


def _from_samples(result: Result, rows: Positions, columns: Positions) -> Floats:
    """Return the mean over the kept samples of a Gibbs chain."""
    total = np.zeros(rows.size)
    for sample in result.samples:
        total += sample.probability[sample.labels[0][rows], sample.labels[-1][columns]]
    return total / len(result.samples)


def recommend(
    result: Result, rows: Positions, n: int, *, exclude_seen: bool
) -> tuple[Positions, Floats]:
    """Return the n most probable columns of each row, and their probabilities.

    The object itself is never returned, and links are not if ``exclude_seen``. Equal probabilities
    are ranked by position. If there are fewer than n candidates, the rest is -1 and NaN. Rows are
    ranked in batches, so memory does not grow with rows x columns.
    """
    columns = np.full((rows.size, n), -1, dtype=np.int64)
    probability = np.full((rows.size, n), np.nan)
    ranked = min(n, result.relation.shape[1])
    step = max(BATCH_CELLS // result.relation.shape[1], 1)
    with threadpool_limits(1):  # for the same bits on all machines; batches are small
        for start in range(0, rows.size, step):
            part = slice(start, start + step)
            score = _score_columns(result, rows[part])
            _exclude(score, result.relation, rows[part], links=exclude_seen)
            columns[part, :ranked], probability[part, :ranked] = _best(score, ranked)
    excluded = probability < 0.0
    columns[excluded], probability[excluded] = -1, np.nan
    return columns, probability


def _score_columns(result: Result, rows: Positions) -> Floats:
    """Return the link probabilities of some rows with every column."""
    if not result.samples:
        q_row, q_col = result.memberships[0], result.memberships[-1]
        return (q_row[rows] @ result.block_probability) @ q_col.T
    total = np.zeros((rows.size, result.relation.shape[1]))
    for sample in result.samples:
        total += sample.probability[sample.labels[0][rows]][:, sample.labels[-1]]
    return total / len(result.samples)


def _exclude(score: Floats, relation: Relation, rows: Positions, *, links: bool) -> None:
    """Set the scores of the object itself, and of its links, to -1."""
    if relation.repeated:
        score[np.arange(rows.size), rows] = -1.0
    if links:
        place = relation.incidence[0][0]
        for line, row in zip(score, rows, strict=True):
            line[place.link[place.link_start[row] : place.link_start[row + 1]]] = -1.0


def _best(score: Floats, n: int) -> tuple[Positions, Floats]:
    """Return positions and values of the n largest of each line, ties by position."""
    position = np.empty((len(score), n), dtype=np.int64)
    for i, (line, bound) in enumerate(zip(score, _bound_of_nth(score, n), strict=True)):
        candidates = np.flatnonzero(line >= bound - TIED * abs(bound))
        position[i] = candidates[_top(line[candidates], n)]
    value = np.take_along_axis(score, position, axis=1)
    order = _ranking(value)
    return np.take_along_axis(position, order, axis=1), np.take_along_axis(value, order, axis=1)


def _bound_of_nth(score: Floats, n: int) -> Floats:
    """Return a lower bound of the n-th largest entry of each line that few other entries reach.

    It is the n-th largest of the maxima of groups of entries, which is cheap to find.
    """
    width = max(score.shape[1] // GROUP, min(n, score.shape[1]))
    grouped = score[:, : score.shape[1] // width * width].reshape(len(score), -1, width)
    largest = grouped.max(axis=1)
    return np.partition(largest, width - n, axis=1)[:, width - n]


def _top(value: Floats, n: int) -> Positions:
    """Return the ascending positions of the n largest; ties for the last places by position."""
    nth = np.partition(value, value.size - n)[value.size - n]
    better = value > nth + TIED * abs(nth)
    tied = np.flatnonzero((value >= nth - TIED * abs(nth)) & ~better)
    better[tied[: n - np.count_nonzero(better)]] = True
    return np.flatnonzero(better)


def _ranking(value: Floats) -> Positions:
    """Return the descending order of each line; ties keep their order."""
    order = np.argsort(-value, axis=1, kind="stable")
    falling = np.take_along_axis(value, order, axis=1)
    drops = falling[:, 1:] < falling[:, :-1] - TIED * np.abs(falling[:, :-1])
    group = np.concatenate((np.zeros((len(value), 1)), np.cumsum(drops, axis=1)), axis=1)
    return np.take_along_axis(order, np.lexsort((order, group), axis=1), axis=1)


def mean_log_probability(
    probability: Floats, values: NDArray[np.bool_], weights: Floats | None = None
) -> float:
    """Return the mean log probability of observed cells, weighted if weights are given."""
    of_value = np.maximum(np.where(values, probability, 1.0 - probability), SMALLEST_PROBABILITY)
    return float(np.average(np.log(of_value), weights=weights))


def align(new: Relation, columns: Sequence[str]) -> tuple[Relation, list[str]]:
    """Match the columns of new rows, a bipartite relation, to the fitted columns by name.

    Fitted columns that ``new`` does not have are observed zeros. Columns of ``new`` that were not
    fitted are left out, and returned as the second value.
    """
    position = {name: at for at, name in enumerate(columns)}
    names = new.column_names or tuple(map(str, range(new.shape[1])))
    at = np.array([position.get(name, -1) for name in names], dtype=np.int64)
    place, rows = new.incidence[0][0], np.arange(new.shape[0])
    patterns = []
    for start, index in ((place.link_start, place.link), (place.unseen_start, place.unseen)):
        known = at[index] >= 0
        cells = np.repeat(rows, np.diff(start))[known], at[index[known]]
        ones = np.ones(cells[0].size)
        patterns.append(sparse.csr_array((ones, cells), shape=(new.shape[0], len(columns))))
        patterns[-1].sort_indices()
    aligned = Relation.from_patterns(
        *patterns, row_names=new.row_names, column_names=tuple(columns)
    )
    return aligned, [name for name in names if name not in position]


def fold_in(result: Result, new: Relation) -> Floats:
    """Return the memberships of new rows, given the fitted columns and counts (MODEL 5, 13).

    ``new`` is a bipartite relation of new rows and the fitted columns. In a directed model its
    links go from the new objects to fitted ones; in an undirected model they are pairs of both.
    """
    q_row, q_col = result.memberships[0], result.memberships[-1]
    soft, unknown = np.zeros((0, 0)), np.zeros(0, dtype=np.int32)
    rows = new.view(0, soft, unknown, q_row.sum(axis=0), result.hyper.alpha[0])
    columns = new.view(1, q_col, hard_labels(q_col), column_sums(q_col), 1.0)
    tables = BlockTables(result.n, result.N, *result.hyper.tables(result.blocks.clusters))
    return np.asarray(softmax(fold_in_all(rows, columns, tables), axis=1))
