"""Hard labels of all domains, with the statistics of all blocks (RELATIONS 3, 5)."""

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, softmax

from coblock.kernels import Floats, Indices, gain_list
from coblock.kernels.degrees import PLAIN
from coblock.kernels.tensor_classes import (
    find_classes,
    relation_statistics,
    stored_statistics,
    sum_of_marginals,
)
from coblock.kernels.tensor_moves import add_merge_gains
from coblock.kernels.tensor_sweeps import apply_moves, score_domain, update_labels
from coblock.kernels.tensor_zeros import all_zeros
from coblock.kernels.tensors import (
    SCATTER,
    Layout,
    State,
    add_up_cells,
    block_statistics,
    count_stored_blocks,
    list_members,
    table_size,
)
from coblock.model.dataset import Dataset, offsets
from coblock.model.hyperparameters import crp_concentration, crp_log_probability
from coblock.model.likelihoods import Statistics
from coblock.model.multi_batches import SCORER, Batch
from coblock.model.multi_degrees import (
    DegreeBlocks,
    DegreeLayout,
    cluster_terms,
    extended_counts,
    shape_count,
)
from coblock.model.multi_threads import map_threads, parts_of
from coblock.model.partition import numbered

SPARE_ROWS = 2  # blocks per stored cell that tables have room for, at least
SPARE = 0.15  # share of empty clusters that sweeps may open before the tables are enlarged


@dataclass(slots=True)
class MultiPartition:
    """Labels of each domain, the statistics of the blocks they give, and hyperparameters.

    The labels of all domains are one array, ``state.label``. Tables have room for empty clusters.
    """

    data: Dataset
    priors: list[Floats]  # of each relation, (rows,)
    alpha: list[float]  # of each domain
    shapes_learnt: bool = True  # or the shapes of degree laws are infinite, as in the plain model
    degrees: DegreeLayout | None = None  # where relations are degree-corrected
    state: State = field(init=False)
    gains: object = field(init=False)

    @classmethod
    def from_labels(
        cls, data: Dataset, labels: list[Indices], *, learn: bool = True, shapes: bool = True
    ) -> "MultiPartition":
        """Return the partition of these labels with learnt, or with weak, hyperparameters.

        Without ``shapes``, degree-corrected relations are plain.
        """
        priors = [
            table.likelihood.initial_prior(table.mean(data.sizes)).ravel() for table in data.tables
        ]
        alpha = [1.0] * len(data.domains)
        partition = cls(data, priors, alpha, shapes_learnt=shapes or not data.corrected)
        if data.corrected:
            partition.degrees = DegreeLayout.of(data)
            for table, prior in zip(data.tables, priors, strict=True):
                if table.corrected and not shapes:
                    prior[2:] = PLAIN
        partition.gains = gain_list(table.likelihood.gain for table in data.tables)
        partition.set_labels(labels)
        if learn:
            partition.learn()
        return partition

    @property
    def layout(self) -> Layout:
        """All relations as kernels read them; with the counts of degree-corrected ones."""
        return self.data.layout if self.degrees is None else self.degrees.layout

    @property
    def labels(self) -> list[Indices]:
        """Labels of each domain; they share memory with the state."""
        first = self.data.layout.first_object
        return [self.state.label[first[d] : first[d + 1]] for d in range(len(first) - 1)]

    @property
    def sizes(self) -> list[Floats]:
        """Sizes of the clusters in use of each domain."""
        return [m[m > 0] for m in self.state.m]

    def set_labels(self, labels: list[Indices]) -> None:
        """Set labels: number the clusters from 0, make room for new ones, and count all blocks."""
        labels = numbered(labels)
        layout = self.layout
        used = [int(label.max(initial=-1)) + 1 for label in labels]
        room = [K + 2 + int(SPARE * K) for K in used]
        shapes = [[room[d] for d in table.domains] for table in self.data.tables]
        stride = [math.prod(shape[p + 1 :]) for shape in shapes for p in range(len(shape))]
        blocks = [math.prod(shape) for shape in shapes]
        entries = [SPARE_ROWS * len(table.stored[0]) for table in self.data.tables]
        prior = np.zeros((len(self.priors), max(len(each) for each in self.priors)))
        for r, each in enumerate(self.priors):
            prior[r, : each.size] = each
        self.state = State(
            label=np.concatenate(labels).astype(np.int32),
            n_clusters=np.array([K + 1 for K in used], np.int32),
            m=np.zeros((len(room), max(room))),
            size=np.zeros((len(stride), max(room))),
            stride=np.array(stride, np.int64),
            n_blocks=np.array(blocks, np.int64),
            **make_tables(entries, blocks, layout.n_stats),
            prior=prior,
            alpha=np.array(self.alpha),
            degree=np.zeros((len(stride), max(room))),
        )
        add_up_cells(layout, self.state)

    def renumber(self) -> None:
        """Drop empty clusters and count all blocks anew."""
        self.set_labels(self.labels)

    def copy(self) -> "MultiPartition":
        """Return a partition that shares no state with this one."""
        priors = [prior.copy() for prior in self.priors]
        degrees = None if self.degrees is None else self.degrees.copy()
        other = MultiPartition(self.data, priors, list(self.alpha), self.shapes_learnt, degrees)
        other.gains = self.gains
        other.state = State._make(array.copy() for array in self.state)
        return other

    def adopt(self, other: "MultiPartition") -> None:
        """Take over labels, hyperparameters and counts."""
        self.priors, self.alpha = other.priors, other.alpha
        self.state = other.state
        self.degrees, self.shapes_learnt = other.degrees, other.shapes_learnt

    def tensor(self, r: int) -> Floats:
        """Return the statistics of relation ``r``: one axis for each place, one for statistics."""
        shape = [self.sizes[d].size for d in self.data.tables[r].domains]
        at = np.indices(shape).reshape(len(shape), -1)
        return self.statistics_at(r, tuple(at)).reshape(*shape, -1)

    def statistics_at(self, r: int, clusters: tuple[NDArray[Any], ...]) -> Floats:
        """Return the statistics of the blocks of clusters at each place, (blocks, statistics).

        Those of symmetric pairs do not depend on their order.
        """
        table, layout = self.data.tables[r], self.layout
        stride = self.state.stride[layout.first_place[r] : layout.first_place[r + 1]]
        if table.symmetric:
            low, high = np.minimum(*clusters[:2]), np.maximum(*clusters[:2])
            clusters = (low, high, *clusters[2:])
        blocks = np.zeros(len(clusters[0]), np.int64)
        for p, k in enumerate(clusters):
            blocks += k * stride[p]
        out = np.empty((blocks.size, table.zero.size))
        block_statistics(layout, self.state, r, blocks, out)
        return out

    def stored_blocks(self, r: int) -> Indices:
        """Return the clusters of the blocks of relation ``r`` that hold cells, in order."""
        index, _, _ = stored_statistics(self.layout, self.state, r)
        return index[np.lexsort(index.T[::-1])]

    def compact(self) -> None:
        """Keep no room for further blocks: labels must not change any more."""
        layout, state = self.layout, self.state
        numbers = range(len(self.data.tables))
        entries = [count_stored_blocks(layout, state, r) for r in numbers]
        self.state = state._replace(**make_tables(entries, state.n_blocks.tolist(), layout.n_stats))
        add_up_cells(layout, self.state)

    def learn(self) -> None:
        """Set the hyperparameters to those under which the partition is most probable."""
        priors = []
        for r, table in enumerate(self.data.tables):
            prior = self.priors[r].reshape(-1, 1, 1)
            statistics, count = self.used_statistics(r)
            learnt = table.likelihood.learn_prior(statistics, prior, "newton", count)
            priors.append(learnt.ravel())
            for p, degree in enumerate(self.place_degrees(r) if self.shapes_learnt else []):
                priors[r][2 + p] = self.degree_blocks(r).learn_shape(p, degree)
        alpha = [
            crp_concentration(m.size, size, alpha)
            for m, size, alpha in zip(self.sizes, self.data.sizes, self.alpha, strict=True)
        ]
        self.set_hyperparameters(priors, alpha)

    def set_hyperparameters(self, priors: list[Floats], alpha: list[float]) -> None:
        """Take over hyperparameters; counts of degree-corrected relations follow."""
        self.priors, self.alpha = priors, alpha
        for r, prior in enumerate(priors):
            self.state.prior[r, : prior.size] = prior
        self.state.alpha[:] = alpha
        if self.degrees is not None:
            for r, table in enumerate(self.data.tables):
                if table.corrected:
                    counts, exposure, constant = self.degree_blocks(r).impute()
                    self.degrees.set_counts(r, table, self.data.sizes, counts, exposure)
                    self.degrees.constants[r] = constant
            add_up_cells(self.layout, self.state)

    def degree_blocks(self, r: int) -> DegreeBlocks:
        """Return the labels and hyperparameters of a degree-corrected relation."""
        table, labels = self.data.tables[r], numbered(self.labels)
        return DegreeBlocks(
            table, self.data.sizes, [labels[d] for d in table.domains], self.priors[r]
        )

    def keep_counts(self, fitted: "MultiPartition", numbers: list[int]) -> None:
        """Take the counts of degree-corrected relations over, before cells were added (D7).

        ``numbers`` are the relations of the fitted partition that these extend.
        """
        if self.degrees is None or fitted.degrees is None:
            return
        for r, number in enumerate(numbers):
            table, before = self.data.tables[r], fitted.data.tables[number]
            if table.corrected:
                counts = extended_counts(table, fitted.degrees, number, before)
                self.degrees.set_counts(r, table, self.data.sizes, *counts)
        add_up_cells(self.layout, self.state)

    def place_degrees(self, r: int) -> list[Floats]:
        """Return the degrees at each place with a degree law; none without correction."""
        table = self.data.tables[r]
        if self.degrees is None or not table.corrected:
            return []
        return self.degrees.degrees(r, table, self.data.sizes)

    def used_statistics(self, r: int) -> tuple[Statistics, Floats]:
        """Return the statistics of blocks of relation ``r``, and how often each counts.

        Blocks without stored cells are taken together, and stored ones out of them (RELATIONS 17).
        """
        statistics, count = relation_statistics(self.layout, self.state, r)
        used = statistics.any(axis=1)
        return tuple(np.ascontiguousarray(statistics[used].T)), count[used]

    def relation_evidence(self, r: int) -> float:
        """Return the log marginal likelihood of relation ``r``."""
        statistics, count = relation_statistics(self.layout, self.state, r)
        value = sum_of_marginals(statistics, count, self.gains, r, self.state.prior[r])
        if self.degrees is not None and self.data.tables[r].corrected:
            value += self.degree_blocks(r).degree_terms(self.place_degrees(r))
            value += self.degrees.constants[r]
        return value + self.data.tables[r].constant

    def relation_bound(self, r: int) -> float:
        """Return the same; unseen cells of a degree-corrected relation are imputed (D3)."""
        corrected = self.data.tables[r].corrected
        return self.degree_blocks(r).log_bound() if corrected else self.relation_evidence(r)

    def log_joint(self) -> float:
        """Return log p(X, z) at these hyperparameters (RELATIONS 5)."""
        tables = range(len(self.data.tables))
        return self._log_prior() + sum(self.relation_evidence(r) for r in tables)

    def log_bound(self) -> float:
        """Return log p(X, z), of degree-corrected binary relations its lower bound (D3, D4)."""
        tables = range(len(self.data.tables))
        return self._log_prior() + sum(self.relation_bound(r) for r in tables)

    def _log_prior(self) -> float:
        pairs = zip(self.sizes, self.alpha, strict=True)
        return sum(crp_log_probability(m, alpha) for m, alpha in pairs)

    def log_posterior(self) -> float:
        """Return log p(X, z, alpha) at the most probable concentrations under Gamma(1, 1).

        It compares partitions of very different numbers of clusters: without a hyperprior a
        cluster for each object is free.
        """
        value = sum(self.relation_evidence(r) for r in range(len(self.data.tables)))
        for m, size in zip(self.sizes, self.data.sizes, strict=True):
            alpha = crp_concentration(m.size, size, hyperprior=(1.0, 1.0))
            value += crp_log_probability(m, alpha) - alpha
        return value

    def sweep(
        self,
        d: int,
        objects: Indices,
        uniform: Floats | None = None,
        *,
        clusters: tuple[int, ...] | None = None,
        limit: int | None = None,
        batch: int = 1,
    ) -> None:
        """Update the labels of objects, to the best ones or to draws.

        Only the given clusters are scored, or all and a new one. Objects are moved one after
        another, or ``batch`` of them together. Empty clusters stay until :meth:`renumber`.
        """
        uniform = np.full(objects.size, -1.0) if uniform is None else uniform
        done = 0
        while done < objects.size:
            state, room = self.state, self._room(d)
            opens = clusters is None and (limit is None or self.sizes[d].size < limit)
            if opens and limit is not None:
                room = min(room, limit)  # the sweep returns when the last one is opened
            allowed = np.zeros(room, np.bool_)
            allowed[: state.n_clusters[d]] = clusters is None
            if clusters is not None:
                allowed[list(clusters)] = True
            if batch > 1:
                part = slice(done, done + batch)
                table = (objects[part], uniform[part], allowed, opens)
                some = Batch(self.layout, state, self.gains, d, *table)
                label = SCORER.get().new_labels(some)
                apply_moves(self.layout, state, d, some.objects, label, allowed.size)
                done += batch
            else:
                table = (objects[done:], uniform[done:], allowed, opens)
                done += update_labels(self.layout, state, self.gains, d, *table)
            if done < objects.size and state.m[d, state.n_clusters[d] - 1] > 0.0 and opens:
                self.renumber()

    def move(self, d: int, objects: Indices, cluster: int) -> None:
        """Put objects into a cluster; of several, none must be the first one in it."""
        label = np.full(objects.size, cluster, np.int32)
        apply_moves(self.layout, self.state, d, objects, label, self._room(d))

    def conditional(self, d: int, objects: Indices | None = None) -> Floats:
        """Return the cluster probabilities of objects given the labels of all others.

        An object alone in its cluster has that one. New clusters are left out.
        """
        K = self.sizes[d].size
        allowed = np.zeros(self._room(d), np.bool_)
        allowed[:K] = True
        objects = np.arange(self.data.sizes[d], dtype=np.int32) if objects is None else objects
        order = np.argsort(self.labels[d][objects], kind="stable")
        score, layout, state = np.empty((objects.size, K)), self.layout, self.state
        zeros = all_zeros(layout, state, self.gains, d, allowed)

        def write(part: slice) -> None:
            found = np.empty((order[part].size, K))
            chosen = objects[order[part]]
            score_domain(layout, state, self.gains, d, chosen, allowed, *zeros, found)
            score[order[part]] = found

        map_threads(write, parts_of(objects.size))
        return softmax(score, axis=1)

    def merge_gains(self, d: int, pairs: Indices) -> Floats:
        """Return the gain in evidence of merging each pair of clusters of domain ``d``."""
        layout, state = self.layout, self.state
        m, alpha = state.m[d], self.alpha[d]
        one, other = m[pairs[:, 0]], m[pairs[:, 1]]
        gains = gammaln(one + other) - gammaln(one) - gammaln(other) - np.log(alpha)
        classes, members = find_classes(layout, state), list_members(layout, state, d)

        def add(part: slice) -> None:
            table = (classes, d, pairs[part], *members, gains[part])
            add_merge_gains(layout, state, self.gains, *table)

        map_threads(add, parts_of(len(pairs), 16))
        for r in range(len(self.data.tables)):
            gains += self._degree_merge_gains(r, d, pairs)
        return gains

    def _degree_merge_gains(self, r: int, d: int, pairs: Indices) -> Floats:
        """Return what the degree terms of a relation gain by merging each pair (DEGREES D5)."""
        table, gains = self.data.tables[r], np.zeros(len(pairs))
        for p in range(shape_count(table) if table.corrected else 0):
            if table.domains[p] != d:
                continue
            m, D = self.state.m[d], self.state.degree[self.layout.first_place[r] + p]
            eta, (k, g) = float(self.priors[r][2 + p]), pairs.T
            gains += cluster_terms(m[k] + m[g], D[k] + D[g], eta)
            gains -= cluster_terms(m[k], D[k], eta) + cluster_terms(m[g], D[g], eta)
        return gains

    def _room(self, d: int) -> int:
        """Return the number of clusters that the tables have room for."""
        layout, state = self.data.layout, self.state
        r = int(np.argmax(layout.incidence[:, d] >= 0))
        q = int(layout.first_place[r])
        whole = int(state.n_blocks[r])
        while layout.domain[q] != d:
            whole = int(state.stride[q])
            q += 1
        return whole // int(state.stride[q])


def make_tables(entries: list[int], blocks: list[int], n_stats: Indices) -> dict[str, Any]:
    """Return empty tables for so many of the blocks of each relation.

    Tables are at most half full, or have a row for each block, whichever takes fewer rows.
    """
    rows = [table_size(n) + 1 for n in entries]
    factor = [SCATTER] * len(rows)
    for r, n in enumerate(blocks):
        if n < rows[r]:
            rows[r], factor[r] = 2 ** max((n - 1).bit_length(), 0) + 1, 1
    sizes = np.array(rows, np.int64) * n_stats
    return {
        "n_rows": np.zeros(len(rows), np.int64),
        "first_row": offsets(rows),
        "factor": np.array(factor, np.int64),
        "key": np.full(sum(rows), -1, np.int64),
        "first_stat": offsets(sizes)[:-1],
        "s": np.zeros(int(sizes.sum())),
    }
