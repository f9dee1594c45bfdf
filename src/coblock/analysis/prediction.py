"""Link probabilities, held-out scores and the folding in of new rows (MODEL 13)."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import softmax
from threadpoolctl import threadpool_limits

from coblock.kernels import Blocks, Domain, Floats, Indices, Offsets, Place
from coblock.kernels.memberships import sure_clusters
from coblock.kernels.prediction import fold_in_all
from coblock.model.relation import Relation
from coblock.model.result import Result

CHUNK = 1 << 16  # cells scored at a time
SMALLEST_PROBABILITY = 1e-300
BATCH_CELLS = 1 << 19  # cells ranked at a time
GROUP = 16  # of which the largest is looked at first
TIED = 1e-9  # probabilities whose ratio is nearer to 1 are equal


def link_probability(result: Result, rows: NDArray[np.int64], columns: NDArray[np.int64]) -> Floats:
    """Return P(x_ij = 1) for pairs of rows and columns, both 1-D."""
    out = np.empty(rows.size)
    for start in range(0, rows.size, CHUNK):
        part = slice(start, start + CHUNK)
        average = _over_samples if result.samples else _over_memberships
        out[part] = average(result, rows[part], columns[part])
    return out


def _over_memberships(
    result: Result, rows: NDArray[np.int64], columns: NDArray[np.int64]
) -> Floats:
    probability = result.block_probability
    q_row, q_col = result.memberships[0], result.memberships[-1]
    out = np.einsum("ik,ik->i", q_row[rows] @ probability, q_col[columns])
    if result.relation.one_domain:  # an object has one cluster at both ends of its own cell
        own = rows == columns
        out[own] = q_row[rows[own]] @ np.diag(probability)
    return out


def _over_samples(result: Result, rows: NDArray[np.int64], columns: NDArray[np.int64]) -> Floats:
    """Average over the kept samples of a Gibbs chain."""
    total = np.zeros(rows.size)
    for sample in result.samples:
        total += sample.probability[sample.labels[0][rows], sample.labels[-1][columns]]
    return total / len(result.samples)


def recommend(
    result: Result, rows: NDArray[np.int64], n: int, *, exclude_seen: bool
) -> tuple[NDArray[np.int64], Floats]:
    """Return the n most probable columns of each row, and their probabilities.

    Links are left out where ``exclude_seen``, the object itself always. Equal probabilities are
    ranked by position. Places without a candidate hold -1 and NaN. Memory does not grow with
    rows x columns: rows are ranked in batches.
    """
    columns = np.full((rows.size, n), -1, dtype=np.int64)
    probability = np.full((rows.size, n), np.nan)
    ranked = min(n, result.relation.shape[1])
    step = max(BATCH_CELLS // result.relation.shape[1], 1)
    with threadpool_limits(1):  # the same bits everywhere; batches are too small for more
        for start in range(0, rows.size, step):
            part = slice(start, start + step)
            score = _all_columns(result, rows[part])
            _exclude(score, result.relation, rows[part], seen=exclude_seen)
            columns[part, :ranked], probability[part, :ranked] = _best(score, ranked)
    nobody = probability < 0.0
    columns[nobody], probability[nobody] = -1, np.nan
    return columns, probability


def _all_columns(result: Result, rows: NDArray[np.int64]) -> Floats:
    """Return the link probabilities of some rows with every column."""
    if not result.samples:
        q_row, q_col = result.memberships[0], result.memberships[-1]
        return (q_row[rows] @ result.block_probability) @ q_col.T
    total = np.zeros((rows.size, result.relation.shape[1]))
    for sample in result.samples:
        total += sample.probability[sample.labels[0][rows]][:, sample.labels[-1]]
    return total / len(result.samples)


def _exclude(score: Floats, relation: Relation, rows: NDArray[np.int64], *, seen: bool) -> None:
    """Set to -1 what is not to be recommended."""
    if relation.one_domain:
        score[np.arange(rows.size), rows] = -1.0
    if not seen:
        return
    place = relation.places[0][0]
    first, last = place.link_start[rows], place.link_start[rows + 1]
    count = last - first
    line = np.repeat(np.arange(rows.size), count)
    within = np.arange(line.size) - np.repeat(np.cumsum(count) - count, count)
    score[line, place.link[np.repeat(first, count) + within]] = -1.0


def _best(score: Floats, n: int) -> tuple[NDArray[np.int64], Floats]:
    """Return positions and values of the n largest of each line, ties by position."""
    position = np.empty((len(score), n), dtype=np.int64)
    for i, (line, least) in enumerate(zip(score, _at_most_the_nth(score, n), strict=True)):
        near = np.flatnonzero(line >= least - TIED * abs(least))
        position[i] = near[_top(line[near], n)]
    value = np.take_along_axis(score, position, axis=1)
    order = _ranking(value)
    return np.take_along_axis(position, order, axis=1), np.take_along_axis(value, order, axis=1)


def _at_most_the_nth(score: Floats, n: int) -> Floats:
    """Return for each line a number that n of its entries reach: few others do.

    The n-th largest of the maxima of many groups is quick to find and nearly the n-th largest.
    """
    width = max(score.shape[1] // GROUP, min(n, score.shape[1]))
    grouped = score[:, : score.shape[1] // width * width].reshape(len(score), -1, width)
    largest = grouped.max(axis=1)
    return np.partition(largest, width - n, axis=1)[:, width - n]


def _top(value: Floats, n: int) -> NDArray[np.int64]:
    """Return where the n largest are, ascending; ties for the last places by position."""
    last = np.partition(value, value.size - n)[value.size - n]
    better = value > last + TIED * abs(last)
    tied = np.flatnonzero((value >= last - TIED * abs(last)) & ~better)
    better[tied[: n - np.count_nonzero(better)]] = True
    return np.flatnonzero(better)


def _ranking(value: Floats) -> NDArray[np.int64]:
    """Return the order of each line from the largest; ties stay as they stand."""
    order = np.argsort(-value, axis=1, kind="stable")
    falling = np.take_along_axis(value, order, axis=1)
    drops = falling[:, 1:] < falling[:, :-1] - TIED * np.abs(falling[:, :-1])
    group = np.concatenate((np.zeros((len(value), 1)), np.cumsum(drops, axis=1)), axis=1)
    return np.take_along_axis(order, np.lexsort((order, group), axis=1), axis=1)


def mean_log_probability(probability: Floats, values: NDArray[np.bool_]) -> float:
    """Return the mean log probability of observed cells."""
    of_value = np.where(values, probability, 1.0 - probability)
    return float(np.log(np.maximum(of_value, SMALLEST_PROBABILITY)).mean())


def align(new: Relation, columns: Sequence[str]) -> tuple[Relation, list[str]]:
    """Return new rows against the fitted columns, and the columns that no fitted one is called.

    Parameters
    ----------
    new : Relation
        Bipartite, with names; its columns stand in any order.
    columns : sequence of str
        Names of the fitted columns. Those that ``new`` lacks are observed zeros.
    """
    position = {name: at for at, name in enumerate(columns)}
    names = new.column_names or tuple(map(str, range(new.shape[1])))
    at = np.array([position.get(name, -1) for name in names], dtype=np.int64)
    place, shape = new.places[0][0], (new.shape[0], len(columns))
    patterns = (
        _renumbered(start, index, at, shape)
        for start, index in ((place.link_start, place.link), (place.unseen_start, place.unseen))
    )
    links, unseen = patterns
    aligned = Relation.from_patterns(
        links, unseen, row_names=new.row_names, column_names=tuple(columns)
    )
    return aligned, [name for name, known in zip(names, at >= 0, strict=True) if not known]


def _renumbered(
    start: Offsets, index: Indices, at: NDArray[np.int64], shape: tuple[int, int]
) -> sparse.csr_array:
    """Return stored cells with new numbers of their columns, without those of no number."""
    rows = np.repeat(np.arange(shape[0]), np.diff(start))
    known = at[index] >= 0
    cells = (rows[known], at[index[known]])
    moved = sparse.csr_array((np.ones(cells[0].size), cells), shape=shape)
    moved.sort_indices()
    return moved


def fold_in(result: Result, new: Relation) -> Floats:
    """Return memberships of new rows given the fitted columns and counts (MODEL 5, 13).

    ``new`` is a bipartite relation of new rows against the fitted columns. In a directed model
    a new row is known as a sender only; in an undirected one by its pairs with fitted objects.
    """
    priors = result.priors
    q_row, q_col = result.memberships[0], result.memberships[-1]
    places: tuple[Place, ...] = new.places[0]
    rows = Domain(
        places,
        new.self_link,
        new.self_seen,
        np.arange(new.shape[0], dtype=np.int32),
        np.zeros((new.shape[0], q_row.shape[1])),
        np.full(new.shape[0], -1, dtype=np.int32),
        q_row.sum(axis=0),
        priors.alpha[0],
    )
    blocks = Blocks(result.n, result.N, priors.a, priors.b)
    log_weight = fold_in_all(rows, q_col, sure_clusters(q_col), blocks)
    return np.asarray(softmax(log_weight, axis=1))
