"""The schedule of a fit on a cluster: the same batches and parts, visited by workers."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from coblock import moves
from coblock.batches import BATCHES, Schedule, Visits, no_change
from coblock.distributed import tasks
from coblock.distributed.compact import Rows, shortened, unpacked
from coblock.distributed.crew import Crew
from coblock.distributed.parting import part_clusters
from coblock.distributed.tasks import Errand, Visited
from coblock.kernels import Blocks, Floats, Indices, batch
from coblock.partition import Partition
from coblock.state import State


def batch_size(wanted: int | None, objects: int) -> int:
    """Return how many objects of a domain are visited together on a cluster."""
    return min(-(-objects // BATCHES) if wanted is None else wanted, objects)


@dataclass(frozen=True, slots=True)
class ClusterSchedule(Schedule):
    """Visits batches on a cluster; the outcomes are those of the local schedule, to the bit."""

    crew: Crew | None = None

    def size_of(self, sizes: tuple[int, ...], d: int) -> int:
        """Return how many objects of domain ``d`` are visited together."""
        return batch_size(self.batch_size, sizes[d])

    def is_sequential(self, sizes: tuple[int, ...]) -> bool:
        """Say that objects are never visited one after another."""
        return False

    def turns(self, sizes: tuple[int, ...]) -> Iterator[tuple[int, slice]]:
        """Yield the domain and the objects of each batch; workers that joined get shards first."""
        self._crew().grow()
        yield from Schedule.turns(self, sizes)

    def part_clusters(
        self, partition: Partition, d: int, rng: np.random.Generator
    ) -> list[moves.Parting]:
        """Return for every cluster of domain ``d`` the best parting found."""
        return part_clusters(self._crew(), partition, d, rng)

    def renew(
        self, state: State, d: int, objects: Indices, parts: list[slice], visits: Visits
    ) -> tuple[list[batch.Outcome], Floats]:
        """Visit objects of domain ``d``; return the outcomes by part, and new memberships."""
        crew = self._crew()
        for side in (0, 1):
            crew.board.show_memberships(side, state.q[side])
        counts = (state.blocks(d), state.m[d], state.m[1 - d], state.priors.alpha[d])
        errands = self._errands(d, objects, parts, counts)
        messages = [(s, (errand,)) for s, errand in errands]
        answers = crew.ask_informed("visit", tasks.visit, d, messages)
        found = [visited for answer in answers for visited in answer]
        crew.board.add(d, objects, _joined([visited.rows for visited in found]))
        fresh = np.empty((objects.size, state.m[d].size))
        outcomes = []
        for part, visited in zip(parts, found, strict=True):
            fresh[part] = unpacked(visited.rows)
            outcomes.append(_outcome(visits, d, objects[part], visited, fresh[part]))
        return outcomes, fresh

    def choose(
        self,
        partition: Partition,
        d: int,
        objects: Indices,
        parts: list[slice],
        uniform: Floats,
        visits: Visits,
    ) -> tuple[list[batch.Outcome], Indices]:
        """Visit objects of domain ``d``; return the outcome of all parts, and new labels."""
        crew = self._crew()
        for side in (0, 1):
            crew.board.show_labels(side, partition.labels[side], partition.m[side].size)
        blocks = partition.blocks(d)
        counts = (blocks, partition.m[d], partition.m[1 - d], partition.alpha[d])
        messages, spans = [], []
        for s, errand in self._errands(d, objects, parts, counts):
            span = slice(*crew.layouts[d].spans(s)[errand.b])
            chances = uniform[span] if (uniform[span] >= 0.0).any() else None
            messages.append((s, (errand, chances)))
            spans.append(span)
        answers = crew.ask_informed("choose", tasks.choose, d, messages)
        fresh, change = np.empty(objects.size, dtype=np.int32), no_change(blocks.n.shape)
        for span, (labels, log_normaliser, *changes) in zip(spans, answers, strict=True):
            fresh[span.start - objects[0] : span.stop - objects[0]] = labels
            visits.log_normaliser[d][span] = log_normaliser
            for total, table in zip(change, changes, strict=True):
                np.add(total, table, out=total)
        left = (visits.log_normaliser[d], visits.entropy[d], visits.moved[d])
        return [batch.Outcome(*left, np.empty((0, 0)), *change)], fresh

    def _errands(
        self,
        d: int,
        objects: Indices,
        parts: list[slice],
        counts: tuple[Blocks, Floats, Floats, float],
    ) -> Iterator[tuple[int, Errand]]:
        """Yield the shards that hold the objects of a batch and what each has to do, in order."""
        crew = self._crew()
        layout = crew.layouts[d]
        b = int(objects[0]) // layout.batch
        holders = layout.home[0][[objects[part.start] for part in parts]]
        for s in np.unique(holders).tolist():
            first, _ = layout.spans(s)[b]
            mine = [
                shortened(objects[parts[t]] - np.int32(first)) for t in np.flatnonzero(holders == s)
            ]
            yield s, Errand(b, mine, *counts)

    def _crew(self) -> Crew:
        assert self.crew is not None
        return self.crew


def _outcome(
    visits: Visits, d: int, objects: Indices, visited: Visited, fresh: Floats
) -> batch.Outcome:
    visits.log_normaliser[d][objects] = visited.log_normaliser
    visits.entropy[d][objects] = visited.entropy
    visits.moved[d][objects] = visited.moved
    left = (visits.log_normaliser[d], visits.entropy[d], visits.moved[d])
    unseen = np.zeros_like(visited.links) if visited.unseen is None else visited.unseen
    return batch.Outcome(*left, fresh, visited.m, visited.links, unseen)


def _joined(pieces: list[Rows]) -> Rows:
    """Return the memberships of several parts as those of one."""
    counts = np.concatenate([np.diff(rows.start) for rows in pieces])
    return Rows(
        pieces[0].clusters,
        np.concatenate([rows.sure for rows in pieces]),
        np.concatenate(([0], np.cumsum(counts))).astype(np.int32),
        np.concatenate([rows.cluster for rows in pieces]),
        np.concatenate([rows.value for rows in pieces]),
    )
