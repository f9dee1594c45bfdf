"""Merging and splitting clusters of a hard partition, valued by exact evidence (MODEL 10)."""

import math

import numpy as np

from coblock.kernels import BIPARTITE, DIRECTED, UNDIRECTED, Blocks, Domain, Floats, Indices, kernel
from coblock.kernels.gibbs import count_place
from coblock.kernels.special import log_beta_gain, log_beta_values
from coblock.kernels.strands import total_of
from coblock.kernels.tables import filled_up


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
    apart = block_value(a, b, n[k, k], N[k, k]) + block_value(a, b, n[g, g], N[g, g])
    apart += block_value(a, b, n[k, g], N[k, g])
    if kind != UNDIRECTED:
        n_all, N_all = n_all + n[g, k], N_all + N[g, k]
        apart += block_value(a, b, n[g, k], N[g, k])
    return block_value(a, b, n_all, N_all) - apart


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
def merge_gains(kind: int, blocks: Blocks, m: Floats, alpha: float) -> Floats:
    """Return the gains of all pairs k < g of clusters in use; minus infinity elsewhere."""
    K, L = blocks.n.shape
    n, N, value = (
        np.zeros((K, filled_up(L))),
        np.zeros((K, filled_up(L))),
        np.zeros((K, filled_up(L))),
    )
    n[:, :L], N[:, :L] = blocks.n, blocks.N
    filled, size, joint = Blocks(n, N, blocks.a, blocks.b), np.zeros(K), np.empty(filled_up(L))
    for k in range(K):
        log_beta_values(n[k], N[k], blocks.a[0, 0], blocks.b[0, 0], value[k])
        size[k] = size_value(m[k], alpha) if m[k] > 0.0 else 0.0
    out = np.full((K, K), -np.inf)
    for k in range(K):
        for g in range(k + 1, K):
            if m[k] > 0.0 and m[g] > 0.0:
                sizes = size_value(m[k] + m[g], alpha) - size[k] - size[g]
                out[k, g] = sizes + merge_gain(kind, filled, value, k, g, joint)
    return out


@kernel
def parting_gain(n: Floats, N: Floats, m: Floats, a: float, b: float) -> float:
    """Return the gain of two sides with these counts (2, blocks) over the undivided cluster.

    Without the price of one more cluster; minus infinity where a side is empty.
    """
    if m[0] == 0.0 or m[1] == 0.0:
        return -np.inf
    sizes = math.lgamma(m[0]) + math.lgamma(m[1]) - math.lgamma(m[0] + m[1])
    value, gain = np.empty(n.shape[1]), np.empty(n.shape[1])
    log_beta_values(n[0], N[0], a, b, gain)
    log_beta_values(n[1], N[1], a, b, value)
    gain += value
    log_beta_values(n[0] + n[1], N[0] + N[1], a, b, value)
    return sizes + (gain - value).sum()


@kernel
def take_sides(
    n_plus: Floats, N_plus: Floats, n: Floats, N: Floats, m: Floats, prior: tuple[float, float]
) -> np.ndarray:
    """Return the side (0 or 1) that makes each member's cells more probable, counts held."""
    a, b = prior
    link, nonlink = np.empty(n.shape[1]), np.empty(n.shape[1])
    for l in range(n.shape[1]):
        whole = math.log((a + b + n[0, l] + N[0, l]) / (a + b + n[1, l] + N[1, l]))
        link[l] = math.log((a + n[1, l]) / (a + n[0, l])) + whole
        nonlink[l] = math.log((b + N[1, l]) / (b + N[0, l])) + whole
    start = math.log((m[1] + 1.0) / (m[0] + 1.0))
    side = np.empty(n_plus.shape[0], dtype=np.int64)
    for i in range(side.size):
        score = start
        for l in range(n.shape[1]):
            score += n_plus[i, l] * link[l] + N_plus[i, l] * nonlink[l]
        side[i] = 1 if score > 0.0 else 0
    return side


@kernel
def part_in_two(
    n_plus: Floats, N_plus: Floats, prior: tuple[float, float], seeds: np.ndarray, passes: int
) -> tuple[float, np.ndarray]:
    """Part the members of a cluster around two of them; return the gain and the sides.

    ``n_plus`` and ``N_plus`` (members, blocks) are what each member brings. All members take
    sides at once and the sides are counted anew, until that gains nothing. The gain is exact.
    """
    size, L = n_plus.shape
    n, N, m = n_plus[seeds].copy(), N_plus[seeds].copy(), np.ones(2)
    best, best_side = -np.inf, np.zeros(size, dtype=np.int64)
    for _ in range(passes):
        side = take_sides(n_plus, N_plus, n, N, m, prior)
        n[:], N[:], m[:] = 0.0, 0.0, 0.0
        for i in range(size):
            s = side[i]
            m[s] += 1.0
            for l in range(L):
                n[s, l] += n_plus[i, l]
                N[s, l] += N_plus[i, l]
        gain = parting_gain(n, N, m, prior[0], prior[1])
        if not gain > best + 1e-9:
            break
        best, best_side = gain, side
    return best, best_side


@kernel
def profiles(
    domain: Domain,
    members: np.ndarray,
    label_other: Indices,
    m_other: Floats,
    n_plus: Floats,
    N_plus: Floats,
) -> None:
    """Write what each member of a cluster brings, its places one after another (members, P L).

    In one domain ``m_other`` must leave one member of the cluster out: nobody is their own
    neighbour.
    """
    L = m_other.size
    for t in range(members.size):
        for p in range(len(domain.places)):
            part = slice(p * L, (p + 1) * L)
            count_place(
                domain.places[p], members[t], label_other, m_other, n_plus[t, part], N_plus[t, part]
            )


@kernel
def best_parting(
    n_plus: Floats, N_plus: Floats, prior: tuple[float, float], seeds: np.ndarray, passes: int
) -> tuple[float, np.ndarray]:
    """Return the best of the partings around the pairs of members ``seeds``."""
    best, best_side = part_in_two(n_plus, N_plus, prior, seeds[0], passes)
    for t in range(1, seeds.shape[0]):
        gain, side = part_in_two(n_plus, N_plus, prior, seeds[t], passes)
        if gain > best:
            best, best_side = gain, side
    return best, best_side
