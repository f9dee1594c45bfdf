"""Relations drawn from the model, with the truth they were drawn from (MODEL 2)."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import sparse

from coblock.io import refuse
from coblock.kernels import Floats, Indices
from coblock.model.checks import check_choice, check_number, check_whole_number

__all__ = ["Drawn", "generate", "planted", "synth1", "synth2"]

# Beta prior of the link probabilities, with the density (38 %) and the mean entropy of a cell
# (0.32 nats) of the paper's synthetic relations.
LINK_PRIOR = (0.3, 0.5)


@dataclass(frozen=True, slots=True)
class Drawn:
    """A drawn relation: links, true labels of rows and columns, true link probabilities."""

    X: sparse.csr_array
    row_labels: Indices
    column_labels: Indices
    probability: Floats  # of each block, (K1, K2)

    def log_likelihood(self, rows: np.ndarray, columns: np.ndarray, values: np.ndarray) -> float:
        """Return the mean log probability of cells under the truth: the best possible score."""
        p = self.probability[self.row_labels[rows], self.column_labels[columns]]
        return float(np.log(np.where(np.asarray(values) > 0, p, 1.0 - p)).mean())


def draw_crp(size: int, alpha: float, rng: np.random.Generator) -> Indices:
    """Return labels drawn from the Chinese restaurant process (eq:CRP_def)."""
    labels, sizes = np.zeros(size, dtype=np.int32), [1.0]
    for i in range(1, size):
        weights = np.append(sizes, alpha)
        labels[i] = rng.choice(weights.size, p=weights / weights.sum())
        if labels[i] == len(sizes):
            sizes.append(0.0)
        sizes[labels[i]] += 1.0
    return labels


def draw_sticks(size: int, alpha: float, clusters: int, rng: np.random.Generator) -> Indices:
    """Return labels drawn from truncated stick-breaking (eq:stick_v_k_def, eq:stick_pi_k_def)."""
    v = np.append(rng.beta(1.0, alpha, clusters - 1), 1.0)
    weights = v * np.append(1.0, np.cumprod(1.0 - v[:-1]))
    return rng.choice(clusters, size, p=weights / weights.sum()).astype(np.int32)


def draw_clusters(size: int, clusters: int, rng: np.random.Generator) -> Indices:
    """Return labels of exactly this many clusters, none of them tiny.

    Half of the objects are shared equally; the others by a uniform draw from the simplex.
    """
    equal = np.repeat(np.arange(clusters), max(size // (2 * clusters), 1))[:size]
    rest = rng.choice(clusters, size - equal.size, p=rng.dirichlet(np.ones(clusters)))
    return rng.permutation(np.concatenate([equal, rest])).astype(np.int32)


def draw_relation(
    row_labels: Indices,
    column_labels: Indices,
    rng: np.random.Generator,
    link_prior: tuple[float, float] = LINK_PRIOR,
) -> Drawn:
    """Draw link probabilities of the blocks, and then links row by row."""
    shape = (int(row_labels.max()) + 1, int(column_labels.max()) + 1)
    probability, columns = rng.beta(*link_prior, size=shape), column_labels.size
    of_row = probability[:, column_labels]
    rows = [np.flatnonzero(rng.random(columns) < of_row[k]) for k in row_labels]
    start, index = np.append(0, np.cumsum([row.size for row in rows])), np.concatenate(rows)
    X = sparse.csr_array((np.ones(index.size), index, start), shape=(row_labels.size, columns))
    return Drawn(X, row_labels, column_labels, probability)


def generate(
    rows: int,
    columns: int,
    *,
    alpha: float = 1.0,
    link_prior: tuple[float, float] = LINK_PRIOR,
    process: Literal["crp", "sticks"] = "crp",
    max_clusters: int = 50,
    random_state: int | None = None,
) -> Drawn:
    """Draw a bipartite relation from the model.

    Parameters
    ----------
    rows, columns : int
        Numbers of objects.
    alpha : float
        Concentration of both domains.
    link_prior : tuple of float
        (a, b) of the Beta distribution of the link probabilities.
    process : {"crp", "sticks"}
        Chinese restaurant process, or stick-breaking truncated at ``max_clusters``. Labels are
        renumbered without empty clusters.
    random_state : int, optional
        The same seed gives the same relation.

    Examples
    --------
    >>> drawn = generate(30, 20, random_state=0)
    >>> drawn.X.shape, drawn.row_labels.size, drawn.column_labels.size
    ((30, 20), 30, 20)
    """
    check_whole_number("rows", rows, 1)
    check_whole_number("columns", columns, 1)
    check_whole_number("max_clusters", max_clusters, 1)
    check_number("alpha", alpha, smallest=1e-8)
    for value in link_prior:
        check_number("link_prior", value, smallest=1e-8)
    check_choice("process", process, ("crp", "sticks"))
    rng = np.random.default_rng(random_state)
    labels = []
    for size in (rows, columns):
        crp = process == "crp"
        label = draw_crp(size, alpha, rng) if crp else draw_sticks(size, alpha, max_clusters, rng)
        labels.append(np.unique(label, return_inverse=True)[1].astype(np.int32))
    return draw_relation(labels[0], labels[1], rng, link_prior)


def synth1(random_state: int | None = None) -> Drawn:
    """Draw the paper's first synthetic relation: 100 x 200, 4 x 5 clusters."""
    return planted((100, 200), (4, 5), random_state)


def synth2(random_state: int | None = None) -> Drawn:
    """Draw the paper's second synthetic relation: 1000 x 1500, 7 x 6 clusters."""
    return planted((1000, 1500), (7, 6), random_state)


def planted(
    shape: tuple[int, int], clusters: tuple[int, int], random_state: int | None = None
) -> Drawn:
    """Draw a relation with exactly these numbers of clusters."""
    rng, labels = np.random.default_rng(random_state), []
    for size, K in zip(shape, clusters, strict=True):
        check_whole_number("clusters", K, 1)
        if size < K:
            refuse(f"{size:,} objects cannot fill {K:,} clusters. Use fewer clusters.")
        labels.append(draw_clusters(size, K, rng))
    return draw_relation(labels[0], labels[1], rng)
