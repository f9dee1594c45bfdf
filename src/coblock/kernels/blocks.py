"""What one object brings to the blocks: gathering it, taking it out, scoring it."""

import numpy as np

from coblock.kernels import BIPARTITE, DIRECTED, Blocks, Domain, Floats, Indices, Place, kernel
from coblock.kernels.special import log_beta_gain


@kernel
def gather(
    start: np.ndarray, end: np.ndarray, i: int, q: Floats, sure: Indices, total: Floats
) -> None:
    """Add to ``total`` the memberships of all ends of object ``i``; decided ones are quick."""
    for at in range(start[i], start[i + 1]):
        j = end[at]
        if sure[j] >= 0:
            total[sure[j]] += 1.0
        else:
            for l in range(total.size):
                total[l] += q[j, l]


@kernel
def outer_sums(
    start: np.ndarray, end: np.ndarray, q: Floats, q_other: Floats, sure_other: Indices
) -> Floats:
    """Return sum over cells (i, j) of q_ik q_jl (eq:IRM_2dom_CVB_n_N_kl_E)."""
    table = np.zeros((q.shape[1], q_other.shape[1]))
    add_outer_sums(start, end, q, q_other, sure_other, table)
    return table


@kernel
def add_outer_sums(
    start: np.ndarray,
    end: np.ndarray,
    q: Floats,
    q_other: Floats,
    sure_other: Indices,
    table: Floats,
) -> None:
    """Add q_ik q_jl over all cells (i, j) to the table, object after object."""
    ends = np.empty(table.shape[1])
    for i in range(q.shape[0]):
        if start[i] == start[i + 1]:
            continue
        ends[:] = 0.0
        gather(start, end, i, q_other, sure_other, ends)
        add_outer(table, q[i], ends)


@kernel
def add_outer(table: Floats, x: Floats, y: Floats) -> None:
    """Add x_k y_l to the table; most x are 0."""
    for k in range(x.size):
        if x[k] != 0.0:
            for l in range(y.size):
                table[k, l] += x[k] * y[l]


@kernel
def gather_place(
    place: Place,
    i: int,
    q_other: Floats,
    sure_other: Indices,
    m_other: Floats,
    n_plus: Floats,
    N_plus: Floats,
) -> None:
    """Write what object ``i`` brings at one place, in time linear in its links and unseen cells.

    ``m_other`` must leave object ``i`` out where it is of the same domain.
    """
    n_plus[:] = 0.0  # eq:IRM_2dom_CVB_LinearTime_n
    gather(place.link_start, place.link, i, q_other, sure_other, n_plus)
    unseen = np.zeros_like(n_plus)
    gather(place.unseen_start, place.unseen, i, q_other, sure_other, unseen)
    for l in range(n_plus.size):  # eq:IRM_2dom_CVB_LinearTime_m, less the unseen cells
        N_plus[l] = max(m_other[l] - unseen[l] - n_plus[l], 0.0)


@kernel
def gather_all(domain: Domain, other: Domain, i: int, n_plus: Floats, N_plus: Floats) -> None:
    """Write what object ``i`` brings at all of its places."""
    for p in range(len(domain.places)):
        place = domain.places[p]
        gather_place(place, i, other.q, other.sure, other.m, n_plus[p], N_plus[p])


@kernel
def own_cell(kind: int, domain: Domain, i: int) -> tuple[float, float]:
    """Return the link and the non-link that object ``i`` has with itself."""
    if kind == DIRECTED:
        return domain.self_link[i], domain.self_seen[i] - domain.self_link[i]
    return 0.0, 0.0


@kernel
def shift(
    kind: int, table: Floats, weight: float, q_i: Floats, plus: Floats, self_plus: float
) -> None:
    """Add ``weight`` times what an object with memberships ``q_i`` brings to a block table.

    eq:IRM_2dom_CVB_n_1kl_approx and eq:IRM_2dom_CVB_N_1kl_approx; in one domain the object
    stands at both ends of its cells (MODEL 11), and an undirected table holds block {k, l} at
    (k, l) and at (l, k).
    """
    for k in range(q_i.size):
        for l in range(plus.shape[1]):
            change = q_i[k] * plus[0, l]
            if kind == DIRECTED:
                change += q_i[l] * plus[1, k]
                if k == l:
                    change += q_i[k] * self_plus
            elif kind != BIPARTITE and k != l:
                change += q_i[l] * plus[0, k]
            table[k, l] = max(table[k, l] + weight * change, 0.0)


@kernel
def add_gains(blocks: Blocks, n_plus: Floats, N_plus: Floats, out: Floats) -> None:
    """Add the log likelihood of one place, eq:IRM_2dom_CVB_z_1_likelihood, to ``out``."""
    n, N, a, b = blocks
    gain = np.empty(n_plus.size)
    for k in range(out.size):
        for l in range(n_plus.size):
            n_rest, N_rest = a[k, l] + n[k, l], b[k, l] + N[k, l]
            gain[l] = log_beta_gain(n_rest, N_rest, n_plus[l], N_plus[l])
        out[k] += gain.sum()


@kernel
def transposed(blocks: Blocks) -> Blocks:
    """Return the block tables as the domain at the other end sees them."""
    return Blocks(blocks.n.T, blocks.N.T, blocks.a.T, blocks.b.T)


@kernel
def add_likelihood(
    kind: int,
    blocks: Blocks,
    n_plus: Floats,
    N_plus: Floats,
    own: tuple[float, float],
    out: Floats,
) -> None:
    """Add log p(cells of the object | z_i = k, all other cells) to ``out``.

    ``blocks`` are counts without the object. In a directed relation block (k, k) gains the
    object's cells of both places and its own cell together: the log beta function is not
    linear, so its two separate gains are replaced by the joint one (MODEL 11).
    """
    add_gains(blocks, n_plus[0], N_plus[0], out)
    if kind == DIRECTED:
        add_gains(transposed(blocks), n_plus[1], N_plus[1], out)
        for k in range(out.size):
            n_rest = blocks.a[k, k] + blocks.n[k, k]
            N_rest = blocks.b[k, k] + blocks.N[k, k]
            n_both = n_plus[0, k] + n_plus[1, k] + own[0]
            N_both = N_plus[0, k] + N_plus[1, k] + own[1]
            out[k] += log_beta_gain(n_rest, N_rest, n_both, N_both)
            out[k] -= log_beta_gain(n_rest, N_rest, n_plus[0, k], N_plus[0, k])
            out[k] -= log_beta_gain(n_rest, N_rest, n_plus[1, k], N_plus[1, k])


@kernel
def label_sums(
    start: np.ndarray, end: np.ndarray, label: np.ndarray, label_other: np.ndarray, table: Floats
) -> None:
    """Count cells by the clusters of their two ends: ``outer_sums`` for hard labels."""
    for i in range(label.size):
        for at in range(start[i], start[i + 1]):
            table[label[i], label_other[end[at]]] += 1.0
