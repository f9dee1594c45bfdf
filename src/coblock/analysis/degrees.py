"""Predictions of a degree-corrected fit, and what it says of itself (DEGREES D7)."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, softmax

from coblock.kernels import Floats
from coblock.kernels.degrees import PLAIN
from coblock.model.degrees import DegreeModel, cluster_sums, domain_of_place
from coblock.model.relation import BinaryRelation
from coblock.model.result import Result

Positions = NDArray[np.int64]
CHUNK = 1 << 20  # blocks of new rows that are valued at a time, to bound memory


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
    for part in np.array_split(rows, max(rows.size * K * L // CHUNK, 1)):
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
