"""Slow definitions of the general relational model, from enumeration of all cells (RELATIONS)."""

from itertools import product
from math import lgamma, log, pi

import numpy as np


def log_marginal(name, prior, values, exposures):
    """Return the log marginal probability of the values of one block."""
    x, e = np.asarray(values, float), np.asarray(exposures, float)
    if not x.size:
        return 0.0
    if name == "bernoulli":
        a, b = prior
        n, N = x.sum(), (1 - x).sum()
        return _log_beta(a + n, b + N) - _log_beta(a, b)
    if name == "poisson":
        a, b = prior
        n, T = x.sum(), e.sum()
        constant = sum(k * log(w) - lgamma(k + 1) for k, w in zip(x, e, strict=True))
        return a * log(b) - lgamma(a) + lgamma(a + n) - (a + n) * log(b + T) + constant
    if name == "categorical":
        total, value = sum(prior), 0.0
        for v, g in enumerate(prior):
            value += lgamma(g + (x == v).sum()) - lgamma(g)
        return value + lgamma(total) - lgamma(total + x.size)
    mu, kappa, a, b = prior
    T = x.size
    kappa_T, a_T = kappa + T, a + T / 2
    b_T = b + ((x - x.mean()) ** 2).sum() / 2 + kappa * T * (x.mean() - mu) ** 2 / (2 * kappa_T)
    value = lgamma(a_T) - lgamma(a) + a * log(b) - a_T * log(b_T)
    return value + 0.5 * log(kappa / kappa_T) - T / 2 * log(2 * pi)


def _log_beta(a, b):
    return lgamma(a) + lgamma(b) - lgamma(a + b)


def observed_cells(table, sizes):
    """Yield all observed cells with their values, each symmetric pair once."""
    values = {tuple(c): v for c, v in zip(table.cells.tolist(), table.values, strict=True)}
    unseen = {tuple(c) for c in table.unseen.tolist()}
    if table.symmetric:
        values = {_ordered(cell): v for cell, v in values.items()}
        unseen = {_ordered(cell) for cell in unseen}
    for cell in product(*(range(sizes[d]) for d in table.domains)):
        if table.symmetric and cell[0] > cell[1]:
            continue
        pairs = zip(table.domains, cell, strict=True)
        if table.filled and table.distinct and len(set(pairs)) < len(cell):
            continue
        if cell in unseen or (cell not in values and not table.filled):
            continue
        yield cell, values.get(cell, 0.0)


def _ordered(cell):
    return (min(cell[:2]), max(cell[:2]), *cell[2:])


def relation_evidence(table, sizes, labels, prior):
    """Return the log marginal likelihood of a relation, without the scale of real values."""
    blocks = {}
    for cell, value in observed_cells(table, sizes):
        block = tuple(int(labels[d][o]) for d, o in zip(table.domains, cell, strict=True))
        block = _ordered(block) if table.symmetric else block
        weight = np.prod([e[o] for e, o in zip(table.exposures or (), cell, strict=False)])
        blocks.setdefault(block, []).append((value, weight))
    name = table.likelihood.name
    return sum(log_marginal(name, prior, *zip(*cells, strict=True)) for cells in blocks.values())


def crp(label, alpha):
    """Return the log probability of a partition under the Chinese restaurant process."""
    value, counts = 0.0, {}
    for i, k in enumerate(label.tolist()):
        value += log((counts.get(k, 0) or alpha) / (i + alpha))
        counts[k] = counts.get(k, 0) + 1
    return value


def log_joint(data, labels, priors, alphas):
    """Return log p(X, z)."""
    value = sum(crp(label, alpha) for label, alpha in zip(labels, alphas, strict=True))
    for table, prior in zip(data.tables, priors, strict=True):
        value += relation_evidence(table, data.sizes, labels, prior)
    return value


def marginal_of_statistics(name, prior, s):
    """Return the log marginal f of real-valued statistics of a block (RELATIONS 4)."""
    if name == "bernoulli":
        return _log_beta(prior[0] + s[0], prior[1] + s[1]) - _log_beta(*prior)
    if name == "poisson":
        (a, b), (n, T) = prior, s
        return a * log(b) - lgamma(a) + lgamma(a + n) - (a + n) * log(b + T)
    if name == "exponential":
        (a, b), (n, x) = prior, s
        return a * log(b) - lgamma(a) + lgamma(a + n) - (a + n) * log(b + x)
    if name == "categorical":
        rises = sum(lgamma(g + n) - lgamma(g) for g, n in zip(prior, s, strict=True))
        return rises + lgamma(sum(prior)) - lgamma(sum(prior) + sum(s))
    (mu, kappa, a, b), (T, S, Q) = prior, s
    spread = b
    if T > 1e-12:
        spread += (Q - S * S / T) / 2 + kappa * T * (S / T - mu) ** 2 / (2 * (kappa + T))
    value = lgamma(a + T / 2) - lgamma(a) + a * log(b) - (a + T / 2) * log(spread)
    return value + 0.5 * log(kappa / (kappa + T)) - T / 2 * log(2 * pi)


def cell_statistics(table, cell, value):
    """Return the statistics of one observed cell."""
    name = table.likelihood.name
    if name == "bernoulli":
        return np.array([value, 1.0 - value])
    if name == "poisson":
        weight = np.prod([e[o] for e, o in zip(table.exposures or (), cell, strict=False)])
        return np.array([value, weight])
    if name == "exponential":
        return np.array([1.0, value])
    if name == "categorical":
        return np.eye(len(table.likelihood.categories))[int(value)]
    return np.array([1.0, value, value * value])


def expected_statistics(table, sizes, q, wanted=lambda objects: True):
    """Return E[s_b] of all blocks by enumeration of cells and clusters (RELATIONS 8).

    Only cells whose set of (domain, object) pairs is wanted are added up.
    """
    blocks = {}
    for cell, value in observed_cells(table, sizes):
        objects = sorted(set(zip(table.domains, cell, strict=True)))
        if not wanted(objects):
            continue
        t = cell_statistics(table, cell, value)
        for clusters in product(*(range(q[d].shape[1]) for d, _ in objects)):
            chosen = dict(zip(objects, clusters, strict=True))
            weight = np.prod([q[d][o, k] for (d, o), k in chosen.items()])
            block = tuple(chosen[pair] for pair in zip(table.domains, cell, strict=True))
            block = _ordered(block) if table.symmetric else block
            blocks[block] = blocks.get(block, 0.0) + weight * t
    return blocks


def stick_prior(m, alpha):
    """Return log p(z_i = k | others) under truncated sticks, m being the others (MODEL 4)."""
    prior, left = [], 0.0
    for k in range(len(m)):
        M = sum(m[k + 1 :])
        own = log((m[k] + 1) / (m[k] + M + alpha + 1)) if k < len(m) - 1 else 0.0
        prior.append(left + own)
        left += log((M + alpha) / (m[k] + M + alpha + 1))
    return np.array(prior)


def cvb0_scores(data, q, priors, alphas, d, i):
    """Return the log of the CVB0 update of an object, up to a constant (RELATIONS 8)."""
    others = q[d].sum(axis=0) - q[d][i]
    score = stick_prior(others, alphas[d])
    for table, prior in zip(data.tables, priors, strict=True):
        name = table.likelihood.name
        rest = expected_statistics(table, data.sizes, q, lambda objects: (d, i) not in objects)
        for k in range(score.size):
            given = [each.copy() for each in q]
            given[d][i] = np.eye(score.size)[k]
            plus = expected_statistics(table, data.sizes, given, lambda objects: (d, i) in objects)
            for block, gain in plus.items():
                before = rest.get(block, np.zeros(gain.size))
                score[k] += marginal_of_statistics(name, prior, before + gain)
                score[k] -= marginal_of_statistics(name, prior, before)
    return score


def collapsed_value(data, q, priors, alphas):
    """Return the bound of VB without the entropy and without constants (RELATIONS 11)."""
    value = 0.0
    for m, alpha in zip((each.sum(axis=0) for each in q), alphas, strict=True):
        for k in range(len(m) - 1):
            value += _log_beta(1 + m[k], alpha + sum(m[k + 1 :])) - _log_beta(1, alpha)
    for table, prior in zip(data.tables, priors, strict=True):
        for s in expected_statistics(table, data.sizes, q).values():
            value += marginal_of_statistics(table.likelihood.name, prior, s)
    return value
