"""Cells of one object counted by cluster, and expected counts of all blocks (MODEL 3, 11)."""

import numpy as np

from coblock.kernels import (
    BlockTables,
    DomainView,
    Floats,
    Incidence,
    Indices,
    inlined,
    inner,
    kernel,
)
from coblock.kernels.bernoulli import log_beta_gain


@inlined
def links_of(cells: Incidence, i: int) -> Indices:
    """Return the objects at the other end of the links of object ``i``."""
    return cells.link[cells.link_start[i] : cells.link_start[i + 1]]


@inlined
def unseen_of(cells: Incidence, i: int) -> Indices:
    """Return the objects at the other end of the unseen cells of object ``i``."""
    return cells.unseen[cells.unseen_start[i] : cells.unseen_start[i + 1]]


@inner
def gather(ends: Indices, q: Floats, hard: Indices, total: Floats) -> None:
    """Add the memberships of the objects ``ends`` to ``total``."""
    for j in ends:
        if hard[j] >= 0:
            total[hard[j]] += 1.0
        else:
            for l in range(total.size):
                total[l] += q[j, l]


@kernel
def gather_all(
    domain: DomainView, other: DomainView, i: int, n_plus: Floats, N_plus: Floats
) -> None:
    """Write the links and observed non-links of object ``i`` at each of its places, by cluster.

    ``other.m`` must not contain object ``i`` where it is of the same domain. The time is linear
    in the object's links and unseen cells.
    """
    unseen = np.empty(other.m.size)
    for p in range(len(domain.incidence)):
        n_plus[p], unseen[:] = 0.0, 0.0  # eq:IRM_2dom_CVB_LinearTime_n
        gather(links_of(domain.incidence[p], i), other.q, other.hard, n_plus[p])
        gather(unseen_of(domain.incidence[p], i), other.q, other.hard, unseen)
        for l in range(unseen.size):  # eq:IRM_2dom_CVB_LinearTime_m, less the unseen cells
            N_plus[p, l] = max(other.m[l] - unseen[l] - n_plus[p, l], 0.0)


@kernel
def own_cell(domain: DomainView, i: int) -> tuple[float, float]:
    """Return link and observed non-link of object ``i`` with itself (directed relations)."""
    if domain.repeated and len(domain.incidence) == 2:
        return domain.own_link[i], domain.own_seen[i] - domain.own_link[i]
    return 0.0, 0.0


@inner
def add_outer(table: Floats, x: Floats, y: Floats) -> None:
    """Add x_k y_l to the table; most x are 0."""
    for k in range(x.size):
        if x[k] != 0.0:
            for l in range(y.size):
                table[k, l] += x[k] * y[l]


@kernel
def add_outer_sums(
    cells: Incidence, q: Floats, q_other: Floats, hard_other: Indices, links: Floats, unseen: Floats
) -> None:
    """Add q_ik q_jl over all links and unseen cells to tables (eq:IRM_2dom_CVB_n_N_kl_E)."""
    total = np.empty(q_other.shape[1])
    for i in range(q.shape[0]):
        for ends, table in ((links_of(cells, i), links), (unseen_of(cells, i), unseen)):
            if ends.size > 0:
                total[:] = 0.0
                gather(ends, q_other, hard_other, total)
                add_outer(table, q[i], total)


@kernel
def add_label_counts(
    cells: Incidence, label: Indices, label_other: Indices, links: Floats, unseen: Floats
) -> None:
    """Count links and unseen cells by the clusters of their ends: eq:IRM_2dom_Gibbs_n_N_kl_def."""
    for i in range(label.size):
        for j in links_of(cells, i):
            links[label[i], label_other[j]] += 1.0
        for j in unseen_of(cells, i):
            unseen[label[i], label_other[j]] += 1.0


@inner
def move_cells(ends: Indices, label_other: Indices, old: int, new: int, table: Floats) -> None:
    """Move the cells with the objects ``ends`` from row ``old`` to row ``new`` of the table."""
    for j in ends:
        table[old, label_other[j]] -= 1.0
        table[new, label_other[j]] += 1.0


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
    first, last = domain.incidence[0], domain.incidence[-1]
    for t in range(objects.size):
        i, old, new = objects[t], label[objects[t]], fresh[t]
        if new == old:
            continue
        move_cells(links_of(first, i), label_other, old, new, links)
        move_cells(unseen_of(first, i), label_other, old, new, unseen)
        if domain.repeated:
            move_cells(links_of(last, i), label_other, old, new, links.T)
            move_cells(unseen_of(last, i), label_other, old, new, unseen.T)
        label[i] = new


@kernel
def strided(blocks: BlockTables) -> BlockTables:
    """Return views of the block tables whose type is that of their transposed views.

    What both are passed to is compiled once.
    """
    n, N, a, b = blocks
    return BlockTables(n[::1, ::1], N[::1, ::1], a[::1, ::1], b[::1, ::1])


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
        total = 0.0
        for l in range(gain.size):
            total += gain[l]
        out[k] += total


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
