"""Results built from known labels without a fit, and malicious names."""

import numpy as np
from scipy import sparse

from coblock.model.hyperparameters import Hyperparameters
from coblock.model.relation import BinaryRelation
from coblock.model.result import Result, make_result
from coblock.model.trace import SweepRecord

NASTY = [
    "<img src=x onerror=\"document.title='run'\">",
    "</script><script>document.title='run'</script>",
    "<svg onload=document.title='run'>",
    "\"><b onmouseover=document.title='run'>",
    "' onfocus='document.title=1' autofocus='",
    "javascript:document.title='run'",
    "{{ 7 * 7 }}{% raw %}",
    "<!-- comment",
    "]]>&amp;&lt;",
    "two\nlines\r\nand\ttabs",
    "\u2028\u2029",
    "👩‍🚀 émile, 名前",
    "\u202egnitirw desrever",
    "\x00\x07",
    "x" * 5000,
    "",
]


def soft(labels: np.ndarray, sure: np.ndarray | float) -> np.ndarray:
    """Return memberships: ``sure`` in the cluster of the label, the rest equally in the others."""
    K = int(labels.max()) + 1
    sure = np.broadcast_to(sure, labels.shape)
    q = np.repeat(((1.0 - sure) / max(K - 1, 1))[:, None], K, axis=1)
    q[np.arange(labels.size), labels] = sure if K > 1 else 1.0
    return q


def trace_of(sweeps: int) -> list[SweepRecord]:
    return [
        SweepRecord(s, 0.5 / s**2, -120.0 - 1.0 / s, -100.0 - 30.0 / s, 4, 3, 0.25 * s)
        for s in range(1, sweeps + 1)
    ]


def result_of(
    relation: BinaryRelation,
    *labels: np.ndarray,
    sure: float = 0.9,
    sweeps: int = 12,
    converged=True,
) -> Result:
    """Return the result of a fit that has found these labels, one array per domain."""
    clusters = [int(label.max()) + 1 for label in (labels[0], labels[-1])]
    hyper = Hyperparameters.initial(
        relation.likelihood, relation.density, (clusters[0], clusters[1]), len(labels)
    )
    memberships = [soft(label, sure) for label in labels]
    return make_result(relation, memberships, hyper, trace_of(sweeps), converged=converged)


def small_result(row_names=None, column_names=None, **options) -> Result:
    """Return a result of 16 x 12 objects with 3 x 2 blocks and one unseen cell."""
    rows, columns = np.repeat([0, 1, 2], [7, 5, 4]), np.repeat([0, 1], [8, 4])
    X = np.array([[1, 0], [0, 1], [1, 1]])[rows][:, columns].astype(float)
    X[0, 0] = np.nan
    order = np.random.default_rng(1).permutation(16)  # so that rows are not sorted by cluster
    relation = BinaryRelation.build(X[order], row_names=row_names, column_names=column_names)
    return result_of(relation, rows[order], columns, **options)


def one_domain_result(kind: str, names=None, **options) -> Result:
    """Return a result of 14 objects in 3 clusters."""
    labels = np.repeat([0, 1, 2], [6, 5, 3])
    X = np.array([[1, 0, 1], [0, 1, 0], [0, 0, 1]])[labels][:, labels].astype(float)
    np.fill_diagonal(X, 0)
    relation = BinaryRelation.build(X, kind=kind, row_names=names, column_names=names)
    return result_of(relation, labels, **options)


def with_a_cluster_without_members(kind: str = "bipartite") -> Result:
    """Return a result in which one cluster of each domain is no object's most probable one."""
    made = small_result() if kind == "bipartite" else one_domain_result(kind)
    more = [np.column_stack((np.full(len(q), 0.1), 0.9 * q)) for q in made.memberships]
    hyper, trace = made.hyper, trace_of(12)
    return make_result(made.relation, more, hyper, trace, converged=True, sticks=True)


def large_result(links_per_row: int, shape: tuple[int, int], clusters: tuple[int, int]) -> Result:
    """Return a result of a sparse relation with the same number of links in every row.

    The links of a cluster are near each other. Names are random and cannot be compressed.
    """
    rng = np.random.default_rng(0)
    rows, columns = shape
    labels = [rng.permutation(np.arange(n) % K) for n, K in zip(shape, clusters, strict=True)]
    first = labels[0] * (columns // clusters[0]) + rng.integers(0, columns // 9, rows)
    near = (first[:, None] + 3 * np.arange(links_per_row)) % columns
    column = np.argsort(labels[1], kind="stable")[near]
    start = np.arange(rows + 1) * links_per_row
    X = sparse.csr_array((np.ones(column.size), column.ravel(), start), shape=shape)
    text = rng.bytes(8 * (rows + columns)).hex()
    names = [text[i : i + 16] for i in range(0, len(text), 16)]
    relation = BinaryRelation.build(X, row_names=names[:rows], column_names=names[rows:])
    return result_of(relation, *labels)
