"""The log evidence of hard labels, independent of coblock's own code (MODEL 10)."""

import numpy as np
from scipy import sparse
from scipy.optimize import minimize, minimize_scalar
from scipy.special import betaln, digamma, gammaln

LOG_BOUNDS = (np.log(1e-8), np.log(1e8))  # of every hyperparameter, as in coblock


def log_evidence(X: sparse.csr_array, row_labels: np.ndarray, column_labels: np.ndarray) -> float:
    """Return log p(X, z) of a bipartite relation without unseen cells.

    The hyperparameters a, b and both concentrations are set to the values that maximise it.
    """
    labels = [np.unique(z, return_inverse=True)[1] for z in (row_labels, column_labels)]
    sizes = [np.bincount(z) for z in labels]
    coo = X.tocoo()
    block = labels[0][coo.row] * sizes[1].size + labels[1][coo.col]
    links = np.bincount(block, minlength=sizes[0].size * sizes[1].size)
    return _block_term(links, np.outer(*sizes).ravel() - links) + sum(map(_crp_term, sizes))


def _block_term(n: np.ndarray, N: np.ndarray) -> float:
    """Return the largest log probability of the links given the labels over a and b."""

    def loss(log_ab: np.ndarray) -> tuple[float, np.ndarray]:
        a, b = np.exp(log_ab)
        both = digamma(a + b + n + N) - digamma(a + b)
        slope = [
            x * (digamma(x + count) - digamma(x) - both).sum() for x, count in ((a, n), (b, N))
        ]
        return -(betaln(a + n, b + N) - betaln(a, b)).sum(), -np.array(slope)

    density = np.clip(n.sum() / max((n + N).sum(), 1), 1e-6, 1 - 1e-6)
    start = np.log([density, 1.0 - density])
    options = {"ftol": 1e-15, "gtol": 1e-8}
    found = minimize(loss, start, jac=True, bounds=[LOG_BOUNDS] * 2, options=options)
    return -float(found.fun)


def _crp_term(m: np.ndarray) -> float:
    """Return the largest log probability of cluster sizes under the CRP over its concentration."""

    def loss(log_alpha: float) -> float:
        alpha = np.exp(log_alpha)
        return -(m.size * log_alpha + gammaln(alpha) - gammaln(alpha + m.sum()))

    found = minimize_scalar(loss, bounds=LOG_BOUNDS, method="bounded", options={"xatol": 1e-9})
    return float(gammaln(m).sum() - found.fun)
