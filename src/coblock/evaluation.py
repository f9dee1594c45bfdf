"""The paper's protocol: hide a share of all cells, fit, score the hidden ones."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from coblock.checks import check_number


@dataclass(frozen=True, slots=True)
class HeldOut:
    """A relation without its held-out cells, those cells, and their true values."""

    X: sparse.csr_array  # links that are left
    unseen: sparse.csr_array  # stored cells are held out
    rows: NDArray[np.int64]
    columns: NDArray[np.int64]
    values: NDArray[np.bool_]


def hold_out(X: Any, share: float = 0.1, random_state: int | None = None) -> HeldOut:
    """Hide ``share`` of all cells of a sparse binary matrix, drawn without replacement.

    Examples
    --------
    >>> from scipy import sparse
    >>> held = hold_out(sparse.eye_array(10, format="csr"), 0.2, random_state=0)
    >>> held.rows.size, held.X.nnz + int(held.values.sum())
    (20, 10)
    """
    check_number("share", share, largest=1.0)
    X = sparse.csr_array(X)
    if np.isnan(X.data).any():
        msg = (
            f"{np.isnan(X.data).sum():,} cells are NaN, unseen already. Pass the links without "
            "them; what nobody knows cannot be held out."
        )
        raise ValueError(msg)
    rng = np.random.default_rng(random_state)
    cells = X.shape[0] * X.shape[1]
    chosen = np.sort(rng.choice(cells, round(share * cells), replace=False, shuffle=False))
    rows, columns = np.divmod(chosen, X.shape[1])
    ones = np.ones(chosen.size)
    unseen = sparse.csr_array((ones, (rows, columns)), shape=X.shape)
    hidden_links = X.multiply(unseen)
    left = sparse.csr_array(X - hidden_links)
    left.eliminate_zeros()
    values = np.asarray(X.tocsr()[rows, columns]).ravel() > 0 if rows.size else rows > 0
    return HeldOut(left, unseen, rows, columns, values)
