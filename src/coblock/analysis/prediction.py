"""What a fit says of pairs: links, shared clusters; and the clusters of new rows (MODEL 13)."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import gammaln, logsumexp, softmax
from threadpoolctl import threadpool_limits

from coblock.kernels import BlockTables, Floats
from coblock.kernels.cvb0 import fold_in_all
from coblock.kernels.degrees import PLAIN
from coblock.kernels.memberships import column_sums, hard_labels, stick_log_prior
from coblock.model.degrees import DegreeModel, cluster_sums, domain_of_place
from coblock.model.relation import BinaryRelation, column_shares
from coblock.model.result import Result, match_memberships

CHUNK = 1 << 16  # pairs that are predicted at a time, to bound memory
BLOCK_CHUNK = 1 << 20  # blocks of new rows that are valued at a time, to bound memory
SMALLEST_PROBABILITY = 1e-300  # keeps logarithms finite
BATCH_CELLS = 1 << 19  # cells that are ranked at a time, to bound memory
TIED = 1e-9  # relative difference below which probabilities are equal

Positions = NDArray[np.int64]
Ranking = tuple[Positions, Floats]  # the best columns of each row, and their link probabilities


def link_probability(result: Result, rows: Positions, columns: Positions) -> Floats:
    """Return P(x_ij = 1) for pairs of rows and columns, both 1-D."""
    out = np.empty(rows.size)
    for start in range(0, rows.size, CHUNK):
        part = slice(start, start + CHUNK)
        out[part] = _pair_probability(result, rows[part], columns[part])
    return out


def _pair_probability(result: Result, rows: Positions, columns: Positions) -> Any:
    if (model := degree_model(result)) is not None:
        return corrected_probability(result, model, rows, columns)
    samples, probability = result.samples, result.block_probability
    if samples:  # the mean over the kept samples of a Gibbs chain
        found = (s.probability[s.labels[0][rows], s.labels[-1][columns]] for s in samples)
        return sum(found) / len(samples)
    q_row, q_col = result.memberships[0], result.memberships[-1]
    out = np.einsum("ik,ik->i", q_row[rows] @ probability, q_col[columns])
    if result.relation.repeated:  # in its own cell an object has the same cluster twice
        own = rows == columns
        out[own] = q_row[rows[own]] @ np.diag(probability)
    return out


def recommend(result: Result, rows: Positions, n: int, *, exclude_seen: bool) -> Ranking:
    """Rank the columns of each row as :meth:`coblock.IRM.recommend` does, in batches of rows."""
    columns = np.full((rows.size, n), -1, dtype=np.int64)
    probability = np.full((rows.size, n), np.nan)
    ranked = min(n, result.relation.shape[1])
    order = _order_of_ties(result.relation)
    step = max(BATCH_CELLS // result.relation.shape[1], 1)
    with threadpool_limits(1):  # for the same bits on all machines; batches are small
        for start in range(0, rows.size, step):
            part = slice(start, start + step)
            score = _score_columns(result, rows[part], exclude_seen=exclude_seen)
            best, probability[part, :ranked] = _best(score[:, order], ranked)
            columns[part, :ranked] = order[best]
    excluded = probability < 0.0
    columns[excluded], probability[excluded] = -1, np.nan
    return columns, probability


def _order_of_ties(relation: BinaryRelation) -> Positions:
    """Return all columns in the order of equal probabilities: by lift, and then by name."""
    names = relation.column_names or (relation.row_names if relation.repeated else None)
    position = np.arange(relation.shape[1]) if names is None else np.array(names)
    return np.lexsort((position, column_shares(relation)))


def _score_columns(result: Result, rows: Positions, *, exclude_seen: bool) -> Any:
    """Return the link probabilities of some rows with every column; -1 for excluded columns."""
    samples, q_row, q_col = result.samples, result.memberships[0], result.memberships[-1]
    score: Any
    if (model := degree_model(result)) is not None:
        score = corrected_table(result, model, rows)
    elif samples:
        found = (s.probability[s.labels[0][rows]][:, s.labels[-1]] for s in samples)
        score = sum(found) / len(samples)
    else:
        score = (q_row[rows] @ result.block_probability) @ q_col.T
    if result.relation.repeated:
        score[np.arange(rows.size), rows] = -1.0
    if exclude_seen:
        place = result.relation.incidence[0][0]
        for line, row in zip(score, rows, strict=True):
            line[place.link[place.link_start[row] : place.link_start[row + 1]]] = -1.0
    return score


def _best(score: Floats, n: int) -> Ranking:
    """Return positions and values of the n largest of each line, descending, ties by position."""
    last, position = score.shape[1] - n, np.empty((len(score), n), dtype=np.int64)
    for i, (line, least) in enumerate(zip(score, np.partition(score, last)[:, last], strict=True)):
        better = line > least + TIED * abs(least)
        tied = np.flatnonzero((line >= least - TIED * abs(least)) & ~better)
        better[tied[: n - np.count_nonzero(better)]] = True
        position[i] = np.flatnonzero(better)
    value = np.take_along_axis(score, position, axis=1)
    order = np.argsort(-value, axis=1, kind="stable")
    falling = np.take_along_axis(value, order, axis=1)
    drops = falling[:, 1:] < falling[:, :-1] - TIED * np.abs(falling[:, :-1])
    group = np.concatenate((np.zeros((len(value), 1)), np.cumsum(drops, axis=1)), axis=1)
    order = np.take_along_axis(order, np.lexsort((order, group), axis=1), axis=1)
    return np.take_along_axis(position, order, axis=1), np.take_along_axis(value, order, axis=1)


def mean_log_probability(
    probability: Floats, values: NDArray[np.bool_], weights: Floats | None = None
) -> float:
    """Return the mean log probability of observed cells, weighted if weights are given."""
    of_value = np.maximum(np.where(values, probability, 1.0 - probability), SMALLEST_PROBABILITY)
    return float(np.average(np.log(of_value), weights=weights))


def align(new: BinaryRelation, columns: Sequence[str]) -> tuple[BinaryRelation, list[str]]:
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
    found = BinaryRelation.from_patterns(
        *patterns, row_names=new.row_names, column_names=tuple(columns)
    )
    return found, [name for name in names if name not in position]


def fold_in(result: Result, new: BinaryRelation) -> Floats:
    """Return the memberships of new rows, given the fitted columns and counts (MODEL 5, 13).

    ``new`` has the new rows and the fitted columns. In a directed model its links go to the latter.
    The prior is that of the fit, given that a new row is in a fitted cluster (MODEL 4,
    eq:IRM_2dom_Gibbs_z_1_1).
    """
    if (model := degree_model(result)) is not None:
        return fold_in_degrees(result, model, new)
    return np.asarray(softmax(_score_rows(result, new)[0], axis=1))


def log_probability_of_rows(result: Result, new: BinaryRelation) -> Floats:
    """Return the log probability of all observed cells of each new row, given the fit (MODEL 13).

    It is that of the row in each fitted cluster, averaged with the prior of :func:`fold_in`.
    """
    if degree_model(result) is not None:
        msg = "New rows of a degree-corrected fit have no score. Use score_links for fitted ones."
        raise ValueError(msg)
    score, log_prior = _score_rows(result, new)
    return np.asarray(logsumexp(score, axis=1) - logsumexp(log_prior))


def _score_rows(result: Result, new: BinaryRelation) -> tuple[Floats, Floats]:
    """Return log prior plus log likelihood of each cluster for each new row, and the log prior."""
    q_col, m, alpha = result.memberships[-1], result.blocks.m[0], result.hyper.alpha[0]
    if result.samples:  # the blocks are those of the labels
        q_col = np.eye(q_col.shape[1])[result.labels[-1]]
    log_prior = np.log(np.maximum(m, SMALLEST_PROBABILITY))
    if result.sticks is not None:
        order = result.sticks[0]
        stick_log_prior(m[order], alpha, log_prior)
        log_prior = log_prior[np.argsort(order)]
    rows = new.view(0, np.zeros((0, 0)), np.zeros(0, dtype=np.int32), m, alpha)
    columns = new.view(1, q_col, hard_labels(q_col), column_sums(q_col), 1.0)
    tables = BlockTables(result.n, result.N, *result.hyper.tables(result.blocks.clusters))
    return fold_in_all(rows, columns, tables, log_prior), log_prior


def most_probable_label(result: Result, q: Floats) -> NDArray[np.int32]:
    """Return the most probable cluster of new rows, among those with members."""
    return q[:, : result.n_clusters[0]].argmax(axis=1).astype(np.int32)


def describe_samples(result: Result) -> list[str]:
    """Return one line about the samples, or about memberships without any; none for soft sweeps."""
    samples, sweeps = result.samples, result.trace
    if samples:
        ranges = [f"{min(numbers)} to {max(numbers)}" for numbers in cluster_numbers(result)]
        line = f"averaged over {len(samples):,} sampled partitions of {' x '.join(ranges)} clusters"
        apart = chain_disagreement(result)
        return [line if apart is None else f"{line}; chains disagree by {apart:.2f}"]
    if not sweeps or sweeps[-1].moved is None:
        return []
    return ["memberships are around the partition found; no other numbers of clusters were sampled"]


def same_cluster_probability(result: Result, d: int, first: Positions, second: Positions) -> Floats:
    """Return the probability that two objects of domain ``d`` share a cluster, for each pair.

    It is the fraction of the samples in which they do. Without samples the two memberships are
    taken as independent.
    """
    if result.samples:
        labels = (sample.labels[d] for sample in result.samples)
        shared = sum((label[first] == label[second]).astype(float) for label in labels)
        return np.asarray(shared / len(result.samples))
    q = result.memberships[d]
    return np.where(first == second, 1.0, np.einsum("ik,ik->i", q[first], q[second]))


def cluster_numbers(result: Result) -> list[dict[int, float]]:
    """Return, for each domain, the probability of each number of clusters."""
    found = []
    for d, label in enumerate(result.labels):
        labels = [sample.labels[d] for sample in result.samples] or [label]
        numbers, counts = np.unique([np.unique(each).size for each in labels], return_counts=True)
        shares = counts / len(labels)
        found.append(dict(zip(numbers.tolist(), shares.tolist(), strict=True)))
    return found


def chain_disagreement(result: Result) -> float | None:
    """Return how far chains from several optima disagree, or None if there is only one.

    It is the mean over chains and objects of the total variation distance between the memberships
    that the samples of one chain give and those of all: 0 if they agree, 1 if they share nothing.
    """
    chains = sorted({sample.chain for sample in result.samples})
    if len(chains) < 2:
        return None
    distances = []
    for d, label in enumerate(result.labels):
        means = []
        for chain in chains:
            labels = [sample.labels[d] for sample in result.samples if sample.chain == chain]
            matched = sum(match_memberships(each, label) for each in labels)
            means.append(np.asarray(matched) / len(labels))
        gaps = np.abs(np.array(means) - np.mean(means, axis=0))
        distances.append(0.5 * gaps.sum(axis=2).mean())
    return float(np.mean(distances))


# Degree-corrected fits (DEGREES D7)


def degree_model(result: Result) -> DegreeModel | None:
    """Return the degree-corrected model of a result; None if it is of the plain model."""
    return None if result.degrees is None else result.degrees.model


def member_factors(result: Result, model: DegreeModel, p: int, objects: Positions) -> Floats:
    """Return the expected factor of each object as a member of each cluster, at one place."""
    d = domain_of_place(result.relation, p)
    label, degree, eta = result.labels[d], model.degrees[p], model.eta[p]
    K = result.memberships[d].shape[1]
    if eta >= PLAIN:
        return np.ones((objects.size, K))
    m, D = np.bincount(label, minlength=K), cluster_sums(label, degree, K)
    joins = label[objects, None] != np.arange(K)
    size, own = m + joins, degree[objects, None]
    return np.asarray(size * (own + eta) / (D + joins * own + size * eta))


def corrected_probability(
    result: Result, model: DegreeModel, rows: Positions, columns: Positions
) -> Floats:
    """Return 1 - exp(-rate) for pairs of rows and columns."""
    first = member_factors(result, model, 0, rows) * result.memberships[0][rows]
    of_columns = member_factors(result, model, len(model.degrees) - 1, columns)
    last = of_columns * result.memberships[-1][columns]
    rate = np.einsum("ik,ik->i", first @ model.rate, last)
    if result.relation.repeated:  # in its own cell an object has the same cluster twice
        own = rows == columns
        rate[own] = (first[own] * of_columns[own]) @ np.diag(model.rate)
    return -np.expm1(-rate)


def corrected_table(result: Result, model: DegreeModel, rows: Positions) -> Floats:
    """Return 1 - exp(-rate) for some rows and all columns."""
    columns = np.arange(result.relation.shape[1])
    first = member_factors(result, model, 0, rows) * result.memberships[0][rows]
    last = member_factors(result, model, len(model.degrees) - 1, columns) * result.memberships[-1]
    return np.asarray(-np.expm1(-(first @ model.rate) @ last.T))


def fold_in_degrees(result: Result, model: DegreeModel, new: BinaryRelation) -> Floats:
    """Return the memberships of new rows, given the fitted columns (DEGREES D5, D7).

    New rows of a directed relation are known as senders only. An unseen cell has the exposure of
    its column.
    """
    label, K = result.labels[-1], result.memberships[0].shape[1]
    L, columns = result.memberships[-1].shape[1], np.arange(label.size)
    m, m_other = (np.bincount(z, minlength=k) for z, k in ((result.labels[0], K), (label, L)))
    factor = member_factors(result, model, len(model.degrees) - 1, columns)[columns, label]
    place, rows = new.incidence[0][0], np.arange(new.shape[0])
    counts, unseen = np.zeros((2, rows.size, L))
    np.add.at(counts, (np.repeat(rows, np.diff(place.link_start)), label[place.link]), 1.0)
    cells = (np.repeat(rows, np.diff(place.unseen_start)), label[place.unseen])
    np.add.at(unseen, cells, factor[place.unseen])
    out = np.empty((rows.size, K))
    for part in np.array_split(rows, max(rows.size * K * L // BLOCK_CHUNK, 1)):
        out[part] = _row_scores(model, counts[part], np.maximum(m_other - unseen[part], 0.0))
    D = cluster_sums(result.labels[0], model.degrees[0], K)
    out += np.log(np.maximum(m, np.finfo(np.float64).tiny))
    out += _degree_gains(m, D, counts.sum(axis=1), float(model.eta[0]))
    return np.asarray(softmax(out, axis=1))


def _row_scores(model: DegreeModel, counts: Floats, exposure: Floats) -> Floats:
    """Return the gains of all blocks by new rows, (rows, K)."""
    a, b = model.prior
    n, T = a + model.counts[None], b + model.exposure[None]
    o, more = counts[:, None], T + exposure[:, None]
    gains = gammaln(n + o) - gammaln(n) - (n + o) * np.log(more) + n * np.log(T)
    return np.asarray(gains.sum(axis=2))


def _degree_gains(m: Any, D: Floats, degree: Floats, eta: float) -> Floats:
    """Return h(m + 1, D + d) - h(m, D) of new rows for all clusters."""
    if eta >= PLAIN:
        return np.zeros((degree.size, m.size))
    size, total = m + 1.0, D + degree[:, None]
    before = D * np.log(np.maximum(m, 1.0)) + gammaln(np.maximum(m, 1e-8) * eta)
    before -= gammaln(D + np.maximum(m, 1e-8) * eta)
    after = total * np.log(size) + gammaln(size * eta) - gammaln(total + size * eta)
    return np.asarray(after - np.where(m > 0, before, 0.0))


def describe_degrees(result: Result) -> list[str]:
    """Return one line about the model that was taken, if degree correction was asked for."""
    choice = result.degrees
    if choice is None:
        return []
    plain = f"log evidence {choice.plain_evidence:,.1f}"
    if choice.corrected_evidence is None:
        return [f"plain model: the relation is too dense for degree correction ({plain})"]
    corrected = f"{choice.corrected_evidence:,.1f}"
    if choice.model is None:
        return [f"plain model: {plain}, with degree correction {corrected}"]
    shapes = ", ".join("none" if eta >= PLAIN else f"{eta:.3g}" for eta in choice.model.eta)
    both = f"log evidence {corrected}, without {choice.plain_evidence:,.1f}"
    return [f"degree-corrected model, shape {shapes}: {both}"]
