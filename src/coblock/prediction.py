"""Link probabilities, held-out scores and the folding in of new rows (MODEL 13)."""

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from coblock.kernels import Blocks, Domain, Floats, Place
from coblock.kernels.memberships import sure_clusters
from coblock.kernels.prediction import fold_in_all
from coblock.relation import Relation
from coblock.result import Result

CHUNK = 1 << 16  # cells scored at a time
SMALLEST_PROBABILITY = 1e-300


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


def mean_log_probability(probability: Floats, values: NDArray[np.bool_]) -> float:
    """Return the mean log probability of observed cells."""
    of_value = np.where(values, probability, 1.0 - probability)
    return float(np.log(np.maximum(of_value, SMALLEST_PROBABILITY)).mean())


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
