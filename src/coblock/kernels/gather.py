"""Cells of one object counted by cluster, and expected counts of all blocks (MODEL 3, 11)."""

import numpy as np

from coblock.kernels import BlockTables, DomainView, Floats, Incidence, Indices, Offsets, kernel
from coblock.kernels.bernoulli import log_beta_gain


@kernel
def gather(start: Offsets, end: Indices, i: int, q: Floats, hard: Indices, total: Floats) -> None:
    """Add to ``total`` the memberships of all objects that object ``i`` has a cell with."""
    for at in range(start[i], start[i + 1]):
        j = end[at]
        if hard[j] >= 0:
            total[hard[j]] += 1.0
        else:
            for l in range(total.size):
                total[l] += q[j, l]


@kernel
def gather_place(
    incidence: Incidence, i: int, other: DomainView, n_plus: Floats, N_plus: Floats
) -> None:
    """Write the links and observed non-links of object ``i`` at one place, by cluster.

    ``other.m`` must not contain object ``i`` where it is of the same domain. The time is linear
    in the object's links and unseen cells.
    """
    n_plus[:] = 0.0  # eq:IRM_2dom_CVB_LinearTime_n
    gather(incidence.link_start, incidence.link, i, other.q, other.hard, n_plus)
    unseen = np.zeros_like(n_plus)
    gather(incidence.unseen_start, incidence.unseen, i, other.q, other.hard, unseen)
    for l in range(n_plus.size):  # eq:IRM_2dom_CVB_LinearTime_m, less the unseen cells
        N_plus[l] = max(other.m[l] - unseen[l] - n_plus[l], 0.0)


@kernel
def gather_all(
    domain: DomainView, other: DomainView, i: int, n_plus: Floats, N_plus: Floats
) -> None:
    """Write the links and observed non-links of object ``i`` at all of its places."""
    for p in range(len(domain.incidence)):
        gather_place(domain.incidence[p], i, other, n_plus[p], N_plus[p])


@kernel
def own_cell(domain: DomainView, i: int) -> tuple[float, float]:
    """Return link and observed non-link of object ``i`` with itself (directed relations)."""
    if domain.repeated and len(domain.incidence) == 2:
        return domain.own_link[i], domain.own_seen[i] - domain.own_link[i]
    return 0.0, 0.0


@kernel
def add_outer(table: Floats, x: Floats, y: Floats) -> None:
    """Add x_k y_l to the table; most x are 0."""
    for k in range(x.size):
        if x[k] != 0.0:
            for l in range(y.size):
                table[k, l] += x[k] * y[l]


@kernel
def add_outer_sums(
    start: Offsets, end: Indices, q: Floats, q_other: Floats, hard_other: Indices, table: Floats
) -> None:
    """Add q_ik q_jl over all cells (i, j) to the table (eq:IRM_2dom_CVB_n_N_kl_E)."""
    ends = np.empty(table.shape[1])
    for i in range(q.shape[0]):
        if start[i] < start[i + 1]:
            ends[:] = 0.0
            gather(start, end, i, q_other, hard_other, ends)
            add_outer(table, q[i], ends)


@kernel
def add_label_counts(
    start: Offsets, end: Indices, label: Indices, label_other: Indices, table: Floats
) -> None:
    """Add the number of cells (i, j) by the clusters of i and j: eq:IRM_2dom_Gibbs_n_N_kl_def."""
    for i in range(label.size):
        for at in range(start[i], start[i + 1]):
            table[label[i], label_other[end[at]]] += 1.0


@kernel
def move_cells(
    start: Offsets, end: Indices, i: int, label_other: Indices, old: int, new: int, table: Floats
) -> None:
    """Move the cells of object ``i`` from row ``old`` to row ``new`` of the table."""
    for at in range(start[i], start[i + 1]):
        l = label_other[end[at]]
        table[old, l] -= 1.0
        table[new, l] += 1.0


@kernel
def relabel(
    domain: DomainView,
    objects: Indices,
    fresh: Indices,
    label: Indices,
    label_other: Indices,
    links: Floats,
    unseen: Floats,
) -> None:
    """Give objects new labels one after another and keep the counts of cells up to date.

    ``links`` and ``unseen`` count cells by the clusters of their two ends, the clusters of this
    domain first. For repeated places ``label_other`` is ``label``, and cells of the second place
    are counted in the transposed table. All counts are whole numbers, so they are exact.
    """
    for t in range(objects.size):
        i, old, new = objects[t], label[objects[t]], fresh[t]
        if new == old:
            continue
        incidence = domain.incidence[0]
        move_cells(incidence.link_start, incidence.link, i, label_other, old, new, links)
        move_cells(incidence.unseen_start, incidence.unseen, i, label_other, old, new, unseen)
        if domain.repeated:
            incidence = domain.incidence[len(domain.incidence) - 1]
            start, end = incidence.link_start, incidence.link
            move_cells(start, end, i, label_other, old, new, links.T)
            start, end = incidence.unseen_start, incidence.unseen
            move_cells(start, end, i, label_other, old, new, unseen.T)
        label[i] = new


@kernel
def transposed(blocks: BlockTables) -> BlockTables:
    """Return the block tables seen from the other end."""
    return BlockTables(blocks.n.T, blocks.N.T, blocks.a.T, blocks.b.T)


@kernel
def shift(
    domain: DomainView, table: Floats, weight: float, q_i: Floats, plus: Floats, own: float
) -> None:
    """Add ``weight`` times the cells of an object with memberships ``q_i`` to a block table.

    eq:IRM_2dom_CVB_n_1kl_approx and eq:IRM_2dom_CVB_N_1kl_approx. With repeated places the object
    stands at both ends of its cells (MODEL 11), and an undirected table holds block {k, l} at
    (k, l) and at (l, k). Counts that rounding leaves below 0 are set to 0.
    """
    directed = len(domain.incidence) == 2
    for k in range(q_i.size):
        for l in range(plus.shape[1]):
            change = q_i[k] * plus[0, l]
            if domain.repeated:
                if directed:
                    change += q_i[l] * plus[1, k]
                    if k == l:
                        change += q_i[k] * own
                elif k != l:
                    change += q_i[l] * plus[0, k]
            table[k, l] = max(table[k, l] + weight * change, 0.0)


@kernel
def add_gains(blocks: BlockTables, n_plus: Floats, N_plus: Floats, out: Floats) -> None:
    """Add the log likelihood of the cells of one place, eq:IRM_2dom_CVB_z_1_likelihood."""
    n, N, a, b = blocks
    gain = np.empty(n_plus.size)
    for k in range(out.size):
        for l in range(n_plus.size):
            n_rest, N_rest = a[k, l] + n[k, l], b[k, l] + N[k, l]
            gain[l] = log_beta_gain(n_rest, N_rest, n_plus[l], N_plus[l])
        out[k] += gain.sum()


@kernel
def add_log_likelihood(
    domain: DomainView,
    blocks: BlockTables,
    n_plus: Floats,
    N_plus: Floats,
    own: tuple[float, float],
    out: Floats,
) -> None:
    """Add log p(cells of the object | z_i = k, all other cells) to ``out``.

    ``blocks`` are counts without the object. In a directed relation block (k, k) gains the
    object's cells of both places and its own cell together. The log beta function is not linear,
    so the two separate gains are replaced by the joint one (RELATIONS 6).
    """
    add_gains(blocks, n_plus[0], N_plus[0], out)
    if domain.repeated and n_plus.shape[0] == 2:
        add_gains(transposed(blocks), n_plus[1], N_plus[1], out)
        for k in range(out.size):
            n_rest = blocks.a[k, k] + blocks.n[k, k]
            N_rest = blocks.b[k, k] + blocks.N[k, k]
            n_both = n_plus[0, k] + n_plus[1, k] + own[0]
            N_both = N_plus[0, k] + N_plus[1, k] + own[1]
            out[k] += log_beta_gain(n_rest, N_rest, n_both, N_both)
            out[k] -= log_beta_gain(n_rest, N_rest, n_plus[0, k], N_plus[0, k])
            out[k] -= log_beta_gain(n_rest, N_rest, n_plus[1, k], N_plus[1, k])
