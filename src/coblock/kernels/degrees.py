"""Degree-corrected Poisson blocks: sweeps over hard labels and merges (DEGREES D2, D3, D5).

Tables seen from a domain have the clusters at the other end first, so that loops over the
clusters of an object vectorise. The two places of a directed relation have one table each: block
(k, l) is at ``[0, l, k]`` and at ``[1, k, l]``. An undirected block is at ``[0, l, k]`` and at
``[0, k, l]``. The block of a cluster with itself counts the cells of all places once (RELATIONS
6, 7) and is read at ``[0, k, k]``.
"""

import math
from typing import NamedTuple

import numpy as np

from coblock.kernels import Floats, Incidence, Indices, inlined, inner, kernel
from coblock.kernels.gibbs import crp_log_prior, draw
from coblock.kernels.poisson import gamma_marginal
from coblock.kernels.special import log, log_rising

PLAIN = 1e6  # shape of the degree law from which on all degree terms are left out (DEGREES D2)


class DegreeCells(NamedTuple):
    """The stored cells of the objects of one domain, with one entry for each of its places."""

    incidence: tuple[Incidence, ...]
    counts: tuple[Floats, ...]  # of the links, aligned with them
    factor: tuple[Floats, ...]  # estimated factors of the objects, for unseen cells,
    factor_other: tuple[Floats, ...]  # and of those at the other end
    degree: Floats  # (places, objects)
    own_count: Floats  # count of the link of an object with itself; directed relations only
    own_seen: Floats  # whether that cell is observed


class DegreeTables(NamedTuple):
    """Statistics of all blocks seen from a domain with K clusters; L are at the other end."""

    repeated: bool
    symmetric: bool
    a: float
    b: float
    eta: Floats  # (places,)
    m: Floats  # (K,)
    m_other: Floats  # (L,); the same memory as ``m`` where places are repeated
    n: Floats  # (places, L, K)  counts
    unseen: Floats  # (places, L, K)  exposure of the unseen cells
    own_seen: Floats  # (K,)  observed cells of members with themselves
    degree: Floats  # (places, K)  sums of degrees
    log_now: Floats  # (places, L, K)  ln(b + T)
    log_more: Floats  # (places, L, K)  the same with one more member in k
    no_link: Floats  # (K,)  gain of a member without stored cells


class ObjectCounts(NamedTuple):
    """The stored cells of one object by cluster at the other end, for each place."""

    counts: Floats  # (places, L)
    unseen: Floats  # (places, L)  exposure
    touched: Indices  # (places, L)  the clusters with stored cells,
    number: Indices  # (places,)  and how many there are
    is_touched: Indices  # (places, L)


@inlined
def exposure(t: DegreeTables, l: int, k: int, m: float, own: float, unseen: float) -> float:
    """Return T of a block for ``m`` members of cluster k (DEGREES D2, D3)."""
    if not t.repeated or l != k:
        total = m * t.m_other[l]
    elif t.symmetric:
        total = 0.5 * m * m * (t.eta[0] * (m - 1.0) / (m * t.eta[0] + 1.0))
    else:
        total = m * (m - 1.0) + own
    return max(total - unseen, 0.0)


@inlined
def degree_value(m: float, D: float, eta: float) -> float:
    """Return h(m, D) = D ln m + lnGamma(m eta) - lnGamma(D + m eta); 0 without members."""
    if m == 0.0 or eta >= PLAIN:
        return 0.0
    return D * log(m) - log_rising(m * eta, D)


@inlined
def degree_gain(m: float, D: float, d: float, eta: float) -> float:
    """Return h(m + 1, D + d) - h(m, D)."""
    if eta >= PLAIN:
        return 0.0
    if m == 0.0:
        return -log_rising(eta, d)
    rise = log_rising(m * eta, eta) - log_rising(D + m * eta, d + eta)
    return D * log((m + 1.0) / m) + d * log(m + 1.0) + rise


@inlined
def no_link_term(t: DegreeTables, p: int, l: int, k: int) -> float:
    """Return the gain of block (l, k) by one member of k without stored cells there."""
    return -(t.a + t.n[p, l, k]) * (t.log_more[p, l, k] - t.log_now[p, l, k])


@inlined
def set_logs(t: DegreeTables, p: int, l: int, k: int) -> None:
    """Update the logarithms of one block."""
    if t.repeated and l == k and p == 1:  # counted at place 0
        t.log_now[p, l, k], t.log_more[p, l, k] = 0.0, 0.0
        return
    own, unseen = t.own_seen[k], t.unseen[p, l, k]
    t.log_now[p, l, k] = log(t.b + exposure(t, l, k, t.m[k], own, unseen))
    t.log_more[p, l, k] = log(t.b + exposure(t, l, k, t.m[k] + 1.0, own, unseen))


@kernel
def fill_tables(t: DegreeTables) -> None:
    """Compute the logarithms and the gains without links from counts and sizes."""
    P, L, K = t.n.shape
    t.no_link[:] = 0.0
    for p in range(P):
        for l in range(L):
            for k in range(K):
                set_logs(t, p, l, k)
                t.no_link[k] += no_link_term(t, p, l, k)


@kernel
def fill_exposures(t: DegreeTables, out: Floats) -> None:
    """Write T of every block at the first place, of shape (L, K)."""
    for l in range(out.shape[0]):
        for k in range(out.shape[1]):
            out[l, k] = exposure(t, l, k, t.m[k], t.own_seen[k], t.unseen[0, l, k])


@kernel
def degree_values(m: Floats, D: Floats, eta: float) -> float:
    """Return the sum of h over clusters."""
    total = 0.0
    for k in range(m.size):
        total += degree_value(m[k], D[k], eta)
    return total


@kernel
def count_cells_by_block(
    cells: DegreeCells, label: Indices, label_other: Indices, n: Floats, unseen: Floats
) -> None:
    """Add counts and exposures of the cells of the first place to tables of shape (L, K)."""
    place, counts = cells.incidence[0], cells.counts[0]
    factor, factor_other = cells.factor[0], cells.factor_other[0]
    for i in range(label.size):
        for t in range(place.link_start[i], place.link_start[i + 1]):
            n[label_other[place.link[t]], label[i]] += counts[t]
        for t in range(place.unseen_start[i], place.unseen_start[i + 1]):
            j = place.unseen[t]
            unseen[label_other[j], label[i]] += factor[i] * factor_other[j]


@inner
def object_counts(places: int, L: int) -> ObjectCounts:
    """Return room for the cells of an object."""
    counts, unseen = np.zeros((places, L)), np.zeros((places, L))
    touched, number = np.zeros((places, L), np.int32), np.zeros(places, np.int32)
    return ObjectCounts(counts, unseen, touched, number, np.zeros((places, L), np.int32))


@inlined
def touch_cluster(found: ObjectCounts, p: int, l: int) -> None:
    """List a cluster with stored cells."""
    if found.is_touched[p, l] == 0:
        found.is_touched[p, l] = 1
        found.touched[p, found.number[p]] = l
        found.number[p] += 1


@inner
def gather_counts(cells: DegreeCells, label_other: Indices, i: int, found: ObjectCounts) -> None:
    """Add up the cells of object ``i`` by cluster at the other end."""
    for p in range(len(cells.incidence)):
        for s in range(found.number[p]):
            l = found.touched[p, s]
            found.counts[p, l], found.unseen[p, l], found.is_touched[p, l] = 0.0, 0.0, 0
        found.number[p] = 0
        place, counts, factor = cells.incidence[p], cells.counts[p], cells.factor_other[p]
        for t in range(place.link_start[i], place.link_start[i + 1]):
            l = label_other[place.link[t]]
            touch_cluster(found, p, l)
            found.counts[p, l] += counts[t]
        for t in range(place.unseen_start[i], place.unseen_start[i + 1]):
            l = label_other[place.unseen[t]]
            touch_cluster(found, p, l)
            found.unseen[p, l] += cells.factor[p][i] * factor[place.unseen[t]]


@inlined
def touched_gain(
    t: DegreeTables, p: int, l: int, k: int, count: float, unseen: float, own: float
) -> float:
    """Return the gain of a block by a member of k with stored cells, less that without any."""
    n = t.a + t.n[p, l, k]
    T = exposure(t, l, k, t.m[k] + 1.0, t.own_seen[k] + own, t.unseen[p, l, k] + unseen)
    return log_rising(n, count) - (n + count) * log(t.b + T) + n * t.log_more[p, l, k]


@inner
def add_touched_gains(
    t: DegreeTables, p: int, l: int, found: ObjectCounts, which: Indices, out: Floats
) -> None:
    """Add the gains of the blocks with cluster l at the other end, which is not the own one."""
    count, unseen = found.counts[p, l], found.unseen[p, l]
    if which.size == t.m.size and unseen == 0.0:
        n, log_more, kept = t.n[p, l], t.log_more[p, l], out[l] if t.repeated else 0.0
        for k in range(out.size):
            out[k] += log_rising(t.a + n[k], count) - count * log_more[k]
        if t.repeated:
            out[l] = kept
        return
    for w in range(which.size):
        if not t.repeated or which[w] != l:
            out[w] += touched_gain(t, p, l, which[w], count, unseen, 0.0)


@inner
def score_object(
    t: DegreeTables, cells: DegreeCells, i: int, found: ObjectCounts, which: Indices, out: Floats
) -> None:
    """Write the log likelihood of object ``i`` as a member of some clusters (DEGREES D5).

    The tables do not contain the object. All clusters, in their order, are the fast case.
    """
    P = len(cells.incidence)
    for w in range(which.size):
        k = which[w]
        out[w] = t.no_link[k]
        for p in range(P):
            out[w] += degree_gain(t.m[k], t.degree[p, k], cells.degree[p, i], t.eta[p])
    for p in range(P):
        for s in range(found.number[p]):
            add_touched_gains(t, p, found.touched[p, s], found, which, out)
    if not t.repeated:
        return
    for w in range(which.size):
        k, count, unseen = which[w], cells.own_count[i], 0.0
        for p in range(P):
            count, unseen = count + found.counts[p, k], unseen + found.unseen[p, k]
        if count + unseen + cells.own_seen[i] > 0.0:
            out[w] += touched_gain(t, 0, k, k, count, unseen, cells.own_seen[i])


@inlined
def add_to_block(t: DegreeTables, p: int, l: int, k: int, count: float, unseen: float) -> None:
    """Add a count and an exposure of unseen cells to a block, wherever it is stored."""
    P = t.n.shape[0]
    t.n[p, l, k] += count
    t.unseen[p, l, k] += unseen
    if t.repeated and (P == 2 or l != k):
        t.n[P - 1 - p, k, l] += count
        t.unseen[P - 1 - p, k, l] += unseen


@inner
def shift_object(
    t: DegreeTables, cells: DegreeCells, i: int, found: ObjectCounts, k: int, sign: float
) -> None:
    """Add object ``i`` to cluster k, or remove it; all tables follow in time linear in K + L."""
    P, L, K = t.n.shape
    if t.repeated:
        for p in range(P):
            for g in range(K):
                if g != k:
                    t.no_link[g] -= no_link_term(t, p, k, g)
    for p in range(P):
        for s in range(found.number[p]):
            l = found.touched[p, s]
            add_to_block(t, p, l, k, sign * found.counts[p, l], sign * found.unseen[p, l])
        t.degree[p, k] += sign * cells.degree[p, i]
    if t.repeated and not t.symmetric:
        add_to_block(t, 0, k, k, sign * cells.own_count[i], 0.0)
        t.own_seen[k] += sign * cells.own_seen[i]
    t.m[k] += sign
    t.no_link[k] = 0.0
    for p in range(P):
        for l in range(L):
            set_logs(t, p, l, k)
            t.no_link[k] += no_link_term(t, p, l, k)
        if t.repeated:
            for g in range(K):
                if g != k:
                    set_logs(t, p, k, g)
                    t.no_link[g] += no_link_term(t, p, k, g)


@kernel
def sweep_objects(
    t: DegreeTables,
    cells: DegreeCells,
    label: Indices,
    label_other: Indices,
    objects: Indices,
    which: Indices,
    alpha: float,
    open_clusters: bool,
    uniform: Floats,
    probability: Floats,
) -> float:
    """Update labels of objects, one after another; return the sum of the log normalisers.

    Each object gets the best of some labels, or one drawn by ``uniform``, a number for each object
    of the domain, unless that is empty. The probabilities of the labels are added to
    ``probability`` if it has rows; then labels that are not drawn do not change.
    """
    found, score = object_counts(len(cells.incidence), t.m_other.size), np.empty(which.size)
    prior, total = np.empty(t.m.size), 0.0
    for i in objects:
        old = label[i]
        gather_counts(cells, label_other, i, found)
        shift_object(t, cells, i, found, old, -1.0)
        score_object(t, cells, i, found, which, score)
        crp_log_prior(t.m, alpha, old, open_clusters, prior)
        best, highest = -1, -np.inf
        for w in range(which.size):
            score[w] += prior[which[w]]
            if score[w] > highest or (score[w] == highest and which[w] == old):
                best, highest = w, score[w]
        weight = 0.0
        for w in range(which.size):
            weight += math.exp(score[w] - highest)
        total += highest + math.log(weight)
        new = which[best]
        if probability.shape[0] > 0:
            for w in range(which.size):
                probability[i, which[w]] += math.exp(score[w] - highest) / weight
            new = old
        if uniform.size > 0:
            new = which[draw(score, uniform[i])]
        label[i] = new
        shift_object(t, cells, i, found, new, 1.0)
    return total


# Merges


@inlined
def block_value(t: DegreeTables, p: int, l: int, k: int) -> float:
    """Return the log marginal of a block; 0 where it is counted elsewhere."""
    if t.repeated and l == k and p == 1:
        return 0.0
    T = exposure(t, l, k, t.m[k], t.own_seen[k], t.unseen[p, l, k])
    return gamma_marginal(t.n[p, l, k], T, t.a, t.b)


@inlined
def inner_sum(t: DegreeTables, table: Floats, k: int, g: int) -> float:
    """Return the sum over the blocks between clusters k and g, which a merge makes one."""
    total = table[0, k, k] + table[0, g, g] + table[0, k, g]
    return total if t.symmetric else total + table[0, g, k]


@kernel
def merger_gain(t: DegreeTables, value: Floats, alpha: float, k: int, g: int) -> float:
    """Return the gain of merging two clusters with members (DEGREES D5, RELATIONS 9)."""
    P, L, _ = t.n.shape
    m = t.m[k] + t.m[g]
    gain = math.lgamma(m) - math.lgamma(t.m[k]) - math.lgamma(t.m[g]) - math.log(alpha)
    for p in range(P):
        before = degree_value(t.m[k], t.degree[p, k], t.eta[p])
        before += degree_value(t.m[g], t.degree[p, g], t.eta[p])
        gain += degree_value(m, t.degree[p, k] + t.degree[p, g], t.eta[p]) - before
        for l in range(L):
            if t.repeated and (l - k) * (l - g) == 0:  # inner blocks follow
                continue
            T = exposure(t, l, k, m, 0.0, t.unseen[p, l, k] + t.unseen[p, l, g])
            gain += gamma_marginal(t.n[p, l, k] + t.n[p, l, g], T, t.a, t.b)
            gain -= value[p, l, k] + value[p, l, g]
    if t.repeated:
        unseen = inner_sum(t, t.unseen, k, g)
        T = exposure(t, k, k, m, t.own_seen[k] + t.own_seen[g], unseen)
        gain += gamma_marginal(inner_sum(t, t.n, k, g), T, t.a, t.b) - inner_sum(t, value, k, g)
    return gain


@kernel
def fill_values(t: DegreeTables, value: Floats) -> None:
    """Write the log marginal of every block."""
    P, L, K = t.n.shape
    for p in range(P):
        for l in range(L):
            for k in range(K):
                value[p, l, k] = block_value(t, p, l, k)


@kernel
def merge_clusters(t: DegreeTables, value: Floats, k: int, g: int) -> None:
    """Merge cluster ``g`` into ``k``: counts, sizes and values follow, ``g`` is empty then."""
    P, L, _ = t.n.shape
    for table in (t.n, t.unseen):
        inner = inner_sum(t, table, k, g) if t.repeated else 0.0
        for p in range(P):
            table[p, :, k] += table[p, :, g]
            table[p, :, g] = 0.0
            if t.repeated:
                table[p, k] += table[p, g]
                table[p, g] = 0.0
                table[p, k, k] = inner
    for p in range(P):
        t.degree[p, k] += t.degree[p, g]
        t.degree[p, g] = 0.0
    t.own_seen[k], t.own_seen[g] = t.own_seen[k] + t.own_seen[g], 0.0
    t.m[k], t.m[g] = t.m[k] + t.m[g], 0.0
    for p in range(P):
        value[p, :, g] = 0.0
        if t.repeated:
            value[p, g] = 0.0
        for l in range(L):
            value[p, l, k] = block_value(t, p, l, k)
            if t.repeated:
                value[p, k, l] = block_value(t, p, k, l)


@kernel
def merge_while_gaining(t: DegreeTables, alpha: float, least: float) -> Indices:
    """Merge the pair with the largest gain while it exceeds ``least``; return the new labels.

    A gain that a merge since has changed is computed again before it counts. In two domains only
    those of the merged clusters change.
    """
    K, value, merged = t.m.size, np.empty_like(t.n), 0
    fill_values(t, value)
    label, changed = np.arange(K).astype(np.int32), np.zeros(K, np.int64)
    gains, valued = np.full((K, K), -np.inf), np.zeros((K, K), np.int64)
    for k in range(K):
        for g in range(k):
            gains[k, g] = merger_gain(t, value, alpha, k, g)
    while True:
        k, g = divmod(int(np.argmax(gains)), K)
        if not gains[k, g] > least:
            return label
        if t.m[k] == 0.0 or t.m[g] == 0.0:
            gains[k, g] = -np.inf
        elif valued[k, g] < (merged if t.repeated else max(changed[k], changed[g])):
            gains[k, g], valued[k, g] = merger_gain(t, value, alpha, k, g), merged
        else:
            merge_clusters(t, value, k, g)
            merged += 1
            label[label == g], changed[k] = k, merged
            for l in range(K):  # pairs of the merged cluster may gain more than they did
                if t.m[l] > 0.0 and l != k:
                    x, y = max(k, l), min(k, l)
                    gains[x, y], valued[x, y] = merger_gain(t, value, alpha, x, y), merged
