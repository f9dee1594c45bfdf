"""Hard labels of all domains, with the statistics of all blocks (RELATIONS 3, 5)."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.special import gammaln, softmax

from coblock.kernels import Floats, Indices, gain_list
from coblock.kernels.degrees import PLAIN
from coblock.kernels.tensor_cells import Scratch
from coblock.kernels.tensor_moves import add_merge_gains
from coblock.kernels.tensor_sweeps import score_domain, update_labels
from coblock.kernels.tensors import Layout, State, add_up_cells, block_evidence, block_statistics
from coblock.model.dataset import Dataset, offsets
from coblock.model.hyperparameters import crp_concentration, crp_log_probability
from coblock.model.likelihoods import Statistics
from coblock.model.multi_degrees import (
    DegreeBlocks,
    DegreeLayout,
    cluster_terms,
    extended_counts,
    shape_count,
)
from coblock.model.partition import numbered

NO_SCRATCH: Any = None  # before the first labels are set
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
    scratch: Scratch = field(init=False, default=NO_SCRATCH)

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
        blocks = [int(np.prod(shape)) for shape in shapes]
        stride = [int(np.prod(shape[p + 1 :])) for shape in shapes for p in range(len(shape))]
        n_stats = layout.n_stats.tolist()
        prior = np.zeros((len(self.priors), max(len(each) for each in self.priors)))
        for r, each in enumerate(self.priors):
            prior[r, : each.size] = each
        self.state = State(
            label=np.concatenate(labels).astype(np.int32),
            n_clusters=np.array([K + 1 for K in used], np.int32),
            m=np.zeros((len(room), max(room))),
            size=np.zeros((len(stride), max(room))),
            stride=np.array(stride, np.int64),
            first=offsets(blocks),
            first_stat=offsets([b * S for b, S in zip(blocks, n_stats, strict=True)])[:-1],
            s=np.zeros(sum(b * S for b, S in zip(blocks, n_stats, strict=True))),
            prior=prior,
            alpha=np.array(self.alpha),
            degree=np.zeros((len(stride), max(room))),
        )
        add_up_cells(layout, self.state)
        if self.scratch is NO_SCRATCH or self.scratch.block_slot.size < max(blocks):
            self.scratch = self._make_scratch(blocks)

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
        other.scratch = self.scratch
        return other

    def adopt(self, other: "MultiPartition") -> None:
        """Take over labels, hyperparameters and counts."""
        self.priors, self.alpha = other.priors, other.alpha
        self.state, self.scratch = other.state, other.scratch
        self.degrees, self.shapes_learnt = other.degrees, other.shapes_learnt

    def tensor(self, r: int, *, room: bool = False) -> Floats:
        """Return the statistics of relation ``r``: one axis for each place, one for statistics.

        Empty clusters are left out, unless the whole ``room`` of the tables is asked for.
        """
        table, state = self.data.tables[r], self.state
        shape = [self._room(d) for d in table.domains]
        out = np.empty((int(np.prod(shape)), table.zero.size))
        block_statistics(self.layout, state, r, out)
        if room:
            return out
        used = tuple(slice(self.sizes[d].size) for d in table.domains)
        return out.reshape(*shape, -1)[used].copy()

    def learn(self) -> None:
        """Set the hyperparameters to those under which the partition is most probable."""
        priors = []
        for r, table in enumerate(self.data.tables):
            prior = self.priors[r].reshape(-1, 1, 1)
            learnt = table.likelihood.learn_prior(self.used_statistics(r), prior, "newton")
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

    def used_statistics(self, r: int) -> Statistics:
        """Return the statistics of the blocks of relation ``r`` that hold observed cells."""
        cells = self.tensor(r, room=True)
        return tuple(np.ascontiguousarray(cells[cells.any(axis=1)].T))

    def relation_evidence(self, r: int) -> float:
        """Return the log marginal likelihood of relation ``r``."""
        value = float(self.values(r)[1].sum()) + self.data.tables[r].constant
        if self.degrees is not None and self.data.tables[r].corrected:
            value += self.degree_blocks(r).degree_terms(self.place_degrees(r))
            value += self.degrees.constants[r]
        return value

    def relation_bound(self, r: int) -> float:
        """Return the same; unseen cells of a degree-corrected relation are imputed (D3)."""
        corrected = self.data.tables[r].corrected
        return self.degree_blocks(r).log_bound() if corrected else self.relation_evidence(r)

    def values(self, r: int) -> tuple[Floats, Floats]:
        """Return the statistics and the log marginal of each block of relation ``r``."""
        cells = self.tensor(r, room=True)
        values = np.empty(len(cells))
        block_evidence(cells, self.gains, r, self.state.prior[r], values)
        return cells, values

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
        stale: int = 0,
    ) -> None:
        """Update the labels of objects one after another, to the best ones or to draws.

        Only the given clusters are scored, or all and a new one. Scores are exact, or those of
        zeros are renewed after each ``stale`` moves. Empty clusters stay until :meth:`renumber`.
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
            done += update_labels(
                self.layout,
                state,
                self.gains,
                d,
                objects[done:],
                uniform[done:],
                allowed,
                opens,
                stale,
                self.scratch,
            )
            if done < objects.size:
                self.renumber()

    def conditional(self, d: int, objects: Indices | None = None) -> Floats:
        """Return the cluster probabilities of objects given the labels of all others.

        An object alone in its cluster has that one. New clusters are left out.
        """
        K = self.sizes[d].size
        allowed = np.zeros(self._room(d), np.bool_)
        allowed[:K] = True
        objects = np.arange(self.data.sizes[d], dtype=np.int32) if objects is None else objects
        score, layout = np.empty((objects.size, K)), self.layout
        score_domain(layout, self.state, self.gains, d, objects, allowed, self.scratch, score)
        return softmax(score, axis=1)

    def merge_gains(self, d: int, pairs: Indices) -> Floats:
        """Return the gain in evidence of merging each pair of clusters of domain ``d``."""
        layout, state = self.layout, self.state
        m, alpha = state.m[d], self.alpha[d]
        one, other = m[pairs[:, 0]], m[pairs[:, 1]]
        gains = gammaln(one + other) - gammaln(one) - gammaln(other) - np.log(alpha)
        for r in range(len(self.data.tables)):
            if layout.incidence[r, d] < 0:
                continue
            cells, values = (np.empty((0, 0)), np.empty(0)) if len(pairs) == 1 else self.values(r)
            tables = (cells, values, self.scratch.old_slice)
            add_merge_gains(layout, state, self.gains, r, d, pairs, *tables, gains)
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
        whole = int(state.first[r + 1] - state.first[r])
        while layout.domain[q] != d:
            whole = int(state.stride[q])
            q += 1
        return whole // int(state.stride[q])

    def _make_scratch(self, blocks: list[int]) -> Scratch:
        """Return arrays for the cells of one object."""
        layout = self.data.layout
        most = int(np.diff(layout.start).max(initial=0)) + 1
        S, n_blocks = int(layout.n_stats.max()), max(blocks)
        masks = 1 << max(table.arity for table in self.data.tables)
        return Scratch(
            group_slot=np.full(masks * n_blocks, -1, np.int32),
            group_key=np.empty(most, np.int64),
            group_rest=np.empty(most, np.int64),
            group_shift=np.empty(most, np.int64),
            group_other=np.empty(most, np.int32),
            group_value=np.empty((most, S)),
            block_slot=np.full(n_blocks, -1, np.int32),
            block=np.empty(most, np.int32),
            block_value=np.empty((most, S)),
            own=np.empty(most, np.int32),
            own_value=np.empty((most, S)),
            own_before=np.empty((most, S)),
            old_slice=np.empty(n_blocks, np.int32),
            new_slice=np.empty(n_blocks, np.int32),
            weight=np.ones(max(table.arity for table in self.data.tables)),
        )
