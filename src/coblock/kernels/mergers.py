"""Merging clusters of a hard partition, valued by exact evidence (MODEL 10)."""

import math
from typing import NamedTuple

import numpy as np

from coblock.kernels import BIPARTITE, DIRECTED, UNDIRECTED, Blocks, Floats, kernel
from coblock.kernels.special import log_beta_gain, log_beta_values
from coblock.kernels.strands import total_of
from coblock.kernels.tables import filled_up


class Apart(NamedTuple):
    """Clusters as they are."""

    blocks: Blocks
    value: Floats  # (K, L)  what each block adds to the log evidence
    size: Floats  # (K,)  what the size of each cluster does


@kernel
def block_value(a: float, b: float, n: float, N: float) -> float:
    """Return lnB(a + n, b + N) - lnB(a, b): what one block adds to the log evidence."""
    return log_beta_gain(a, b, n, N)


@kernel
def size_value(m: float, alpha: float) -> float:
    """Return what a cluster of ``m`` members adds to log CRP(z | alpha), constants aside."""
    return math.log(alpha) + math.lgamma(m)


@kernel
def inner_value(kind: int, blocks: Blocks, k: int, g: int) -> float:
    """Return the gain of joining the four blocks between clusters k and g of one domain."""
    n, N, a, b = blocks.n, blocks.N, blocks.a[0, 0], blocks.b[0, 0]
    n_all, N_all = n[k, k] + n[g, g] + n[k, g], N[k, k] + N[g, g] + N[k, g]
    before = block_value(a, b, n[k, k], N[k, k]) + block_value(a, b, n[g, g], N[g, g])
    before += block_value(a, b, n[k, g], N[k, g])
    if kind != UNDIRECTED:
        n_all, N_all = n_all + n[g, k], N_all + N[g, k]
        before += block_value(a, b, n[g, k], N[g, k])
    return block_value(a, b, n_all, N_all) - before


@kernel
def joined_values(blocks: Blocks, k: int, g: int, out: Floats) -> None:
    """Write the values of the blocks that clusters k and g would have as one."""
    n, N, a, b = blocks.n, blocks.N, blocks.a[0, 0], blocks.b[0, 0]
    for l in range(out.size):
        out[l] = log_beta_gain(a, b, n[k, l] + n[g, l], N[k, l] + N[g, l])


@kernel
def merge_gain(kind: int, blocks: Blocks, value: Floats, k: int, g: int, joint: Floats) -> float:
    """Return the change of the blocks' log evidence if clusters k and g become one.

    Only rows k and g of the tables matter (and, in one domain, their columns). ``value`` holds
    the values of the blocks as they are, ``joint`` is room; the hyperparameters stay.
    """
    gain = 0.0
    joined_values(blocks, k, g, joint)
    for l in range(joint.size):
        joint[l] -= value[k, l] + value[g, l]
    if kind == DIRECTED:
        K, received = value.shape[0], np.empty(value.shape[0])
        n, N = blocks.n[:, k] + blocks.n[:, g], blocks.N[:, k] + blocks.N[:, g]
        log_beta_values(n, N, blocks.a[0, 0], blocks.b[0, 0], received)
        joint[:K] += received - value[:, k] - value[:, g]
    if kind != BIPARTITE:
        joint[k], joint[g] = 0.0, 0.0
        gain = inner_value(kind, blocks, k, g)
    return gain + total_of(joint)


@kernel
def apart(blocks: Blocks, m: Floats, alpha: float) -> Apart:
    """Return what clusters are worth as they are; their blocks are filled up to whole registers."""
    K, L = blocks.n.shape
    width = filled_up(L)
    n, N, value = np.zeros((3, K, width))
    size = np.zeros(K)
    n[:, :L], N[:, :L] = blocks.n, blocks.N
    for k in range(K):
        log_beta_values(n[k], N[k], blocks.a[0, 0], blocks.b[0, 0], value[k])
        size[k] = size_value(m[k], alpha) if m[k] > 0.0 else 0.0
    return Apart(Blocks(n, N, blocks.a, blocks.b), value, size)


@kernel
def merge_gains(
    kind: int, now: Apart, m: Floats, alpha: float, first: int, stride: int, out: Floats
) -> None:
    """Write the gains of all pairs k < g of clusters in use, of every so manieth k from the first.

    What all of these together do not write is not a pair.
    """
    joint = np.empty(now.value.shape[1])
    for k in range(first, m.size, stride):
        for g in range(k + 1, m.size):
            if m[k] > 0.0 and m[g] > 0.0:
                sizes = size_value(m[k] + m[g], alpha) - now.size[k] - now.size[g]
                out[k, g] = sizes + merge_gain(kind, now.blocks, now.value, k, g, joint)
