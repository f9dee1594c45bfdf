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
