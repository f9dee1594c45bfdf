"""Gains of merging clusters of a hard partition, by exact evidence (MODEL 10, RELATIONS 9)."""

import math
from typing import NamedTuple

import numpy as np

from coblock.kernels import BlockTables, Floats, kernel
from coblock.kernels.bernoulli import block_values, log_beta_gain
from coblock.kernels.reductions import unrolled_sum
from coblock.kernels.score import padded


class CurrentValues(NamedTuple):
    """Contributions of clusters and blocks to the log evidence before a merge."""

    repeated: bool  # whether the other end of a cell is in the same domain
    symmetric: bool  # whether block {k, l} stands at (k, l) and at (l, k)
    blocks: BlockTables  # padded to whole vector registers; the prior is shared
    value: Floats  # (K, L)  of each block
    size: Floats  # (K,)  of the size of each cluster


@kernel
def size_value(m: float, alpha: float) -> float:
    """Return the contribution of a cluster of ``m`` members to log CRP(z | alpha)."""
    return math.log(alpha) + math.lgamma(m)


@kernel
def current_values(
    repeated: bool, symmetric: bool, blocks: BlockTables, m: Floats, alpha: float
) -> CurrentValues:
    """Return the contributions of all clusters and blocks."""
    K, L = blocks.n.shape
    n, N, value = np.zeros((3, K, padded(L)))
    size = np.zeros(K)
    n[:, :L], N[:, :L] = blocks.n, blocks.N
    for k in range(K):
        block_values(n[k], N[k], blocks.a[0, 0], blocks.b[0, 0], value[k])
        size[k] = size_value(m[k], alpha) if m[k] > 0.0 else 0.0
    tables = BlockTables(n, N, blocks.a, blocks.b)
    return CurrentValues(repeated, symmetric, tables, value, size)


@kernel
def inner_gain(now: CurrentValues, k: int, g: int) -> float:
    """Return the gain of merging the blocks between clusters k and g of one domain."""
    n, N, a, b = now.blocks.n, now.blocks.N, now.blocks.a[0, 0], now.blocks.b[0, 0]
    n_all, N_all = n[k, k] + n[g, g] + n[k, g], N[k, k] + N[g, g] + N[k, g]
    before = now.value[k, k] + now.value[g, g] + now.value[k, g]
    if not now.symmetric:
        n_all, N_all = n_all + n[g, k], N_all + N[g, k]
        before += now.value[g, k]
    return log_beta_gain(a, b, n_all, N_all) - before


@kernel
def merge_gain(now: CurrentValues, k: int, g: int, joint: Floats) -> float:
    """Return the change of the blocks' log evidence if clusters k and g become one.

    Only rows k and g of the tables matter and, with repeated places, columns k and g. The
    hyperparameters are held. ``joint`` is scratch space for one row.
    """
    n, N, a, b = now.blocks.n, now.blocks.N, now.blocks.a[0, 0], now.blocks.b[0, 0]
    for l in range(joint.size):
        value = log_beta_gain(a, b, n[k, l] + n[g, l], N[k, l] + N[g, l])
        joint[l] = value - now.value[k, l] - now.value[g, l]
    if now.repeated and not now.symmetric:
        K = now.value.shape[0]
        received = np.empty(K)
        block_values(n[:, k] + n[:, g], N[:, k] + N[:, g], a, b, received)
        joint[:K] += received - now.value[:, k] - now.value[:, g]
    if not now.repeated:
        return unrolled_sum(joint)
    joint[k], joint[g] = 0.0, 0.0
    return inner_gain(now, k, g) + unrolled_sum(joint)


@kernel
def merge_gains(
    now: CurrentValues, m: Floats, alpha: float, first: int, stride: int, out: Floats
) -> None:
    """Write the gains of pairs k < g of nonempty clusters for k = first, first + stride, ...

    Other entries are left untouched.
    """
    joint = np.empty(now.value.shape[1])
    for k in range(first, m.size, stride):
        for g in range(k + 1, m.size):
            if m[k] > 0.0 and m[g] > 0.0:
                sizes = size_value(m[k] + m[g], alpha) - now.size[k] - now.size[g]
                out[k, g] = sizes + merge_gain(now, k, g, joint)
