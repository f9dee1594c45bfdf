"""Log evidence of a hard partition: the yardstick for choosing between solutions (MODEL 10)."""

from dataclasses import dataclass

import numpy as np

from coblock.hyperparameters import block_newton, crp_concentration
from coblock.kernels import Indices
from coblock.kernels.hyperparameters import block_log_likelihood
from coblock.relation import Relation
from coblock.state import count_labels, crp_log_probability


@dataclass(frozen=True, slots=True)
class Evidence:
    """log p(X, z) at the hyperparameters that make it largest."""

    value: float
    a: float
    b: float
    alpha: tuple[float, ...]


def evidence(relation: Relation, labels: list[Indices]) -> Evidence:
    """Return the log evidence of labels 0 to K-1 per domain, each cluster having a member."""
    n, N = count_labels(relation, labels)
    once = np.ones(n.shape, dtype=bool)
    if relation.kind == "undirected":
        once = np.triu(once)
    n, N = n[once], N[once]
    mean = float(np.clip(relation.density, 1e-6, 1.0 - 1e-6))
    a, b = block_newton(n, N, mean, 1.0 - mean)
    value, alphas = block_log_likelihood(n, N, a, b), []
    for label in labels:
        m = np.bincount(label).astype(np.float64)
        alphas.append(crp_concentration(m.size, label.size))
        value += crp_log_probability(m, alphas[-1])
    return Evidence(value, a, b, tuple(alphas))
