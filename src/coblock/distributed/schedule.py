"""The schedule of a fit on a cluster: the same batches and parts, visited by workers."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, groupby, pairwise
from typing import TypeAlias

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

Counts: TypeAlias = tuple[Blocks, Floats, Floats, float]  # blocks, m, m of the others, alpha


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
        self,
        state: State,
        d: int,
        objects: Indices,
        parts: list[slice],
        visits: Visits,
        step: float,
    ) -> tuple[list[batch.Outcome], Floats]:
        """Visit objects of domain ``d``; return the outcomes by part, and new memberships.

        While objects rest, a part of those who do not may lie in several shards. Then each goes
        on with the sums of the one before, as one machine does with those of the object before.
        """
        crew = self._crew()
        for side in (0, 1):
            crew.board.show_memberships(side, state.q[side])
        counts = (state.blocks(d), state.m[d], state.m[1 - d], state.priors.alpha[d])
        pieces = [self._pieces(d, objects, part) for part in parts]
        found = self._visited(d, objects, pieces, counts, step)
        together = [visited for of_part in found for visited in of_part]
        crew.board.add(d, objects, _joined([visited.rows for visited in together]))
        fresh = np.empty((objects.size, state.m[d].size))
        everywhere = [piece for of_part in pieces for piece in of_part]
        for piece, visited in zip(everywhere, together, strict=True):
            fresh[piece] = unpacked(visited.rows)
            _note(visits, d, objects[piece], visited)
        outcomes = [
            visits.outcome(d, fresh[part], of_part[-1].changes)
            for part, of_part in zip(parts, found, strict=True)
        ]
        return outcomes, fresh

    def _visited(
        self, d: int, objects: Indices, pieces: list[list[slice]], counts: Counts, step: float
    ) -> list[list[Visited]]:
        """Visit the pieces of all parts, the first of each part first; return what was found."""
        found: list[list[Visited]] = [[] for _ in pieces]
        for turn in range(max(map(len, pieces))):
            due = [(t, of_part[turn]) for t, of_part in enumerate(pieces) if turn < len(of_part)]
            messages, asked = [], []
            for s, mine in self._by_shard(d, objects, due):
                begun = [found[t][-1].changes if turn else None for t, _ in mine]
                errand = self._errand(d, s, objects, [piece for _, piece in mine], counts)
                messages.append((s, (errand, step, begun)))
                asked += [t for t, _ in mine]
            answers = self._crew().ask_informed("visit", tasks.visit, d, messages)
            for t, visited in zip(asked, chain.from_iterable(answers), strict=True):
                found[t].append(visited)
        return found

    def choose(
        self,
        partition: Partition,
        d: int,
        objects: Indices,
        uniform: Floats,
        visits: Visits,
        memberships: Floats,
    ) -> tuple[list[batch.Outcome], Indices]:
        """Visit the objects of whole batches; return what changes in all, and new labels.

        Where there is room in ``memberships``, it gets those given the other objects' labels.
        """
        crew = self._crew()
        for side in (0, 1):
            crew.board.show_labels(side, partition.labels[side], partition.m[side].size)
        blocks, wanted = partition.blocks(d), len(memberships) > 0
        counts = (blocks, partition.m[d], partition.m[1 - d], partition.alpha[d])
        messages, spans = [], []
        for s, b, span in self._segments(d, objects):
            chances = uniform[span] if (uniform[span] >= 0.0).any() else None
            messages.append((s, (Errand(b, [], *counts), chances, wanted)))
            spans.append(span)
        answers = crew.ask_informed("choose", tasks.choose, d, messages)
        fresh, change = np.empty(objects.size, dtype=np.int32), no_change(blocks.n.shape)
        for span, chosen in zip(spans, answers, strict=True):
            at = slice(span.start - objects[0], span.stop - objects[0])
            fresh[at] = chosen.labels
            visits.log_normaliser[d][span] = chosen.log_normaliser
            if wanted:
                memberships[at] = unpacked(chosen.rows)
                visits.entropy[d][span] = chosen.entropy
            for total, table in zip(change, chosen.changes, strict=True):
                np.add(total, table, out=total)
        return [visits.outcome(d, memberships, change)], fresh

    def _segments(self, d: int, objects: Indices) -> Iterator[tuple[int, int, slice]]:
        """Yield the shards, batches and neighbours that make up the objects of whole batches."""
        layout = self._crew().layouts[d]
        spans = [layout.spans(s) for s in range(layout.used)]
        for b in range(objects[0] // layout.batch, objects[-1] // layout.batch + 1):
            for s in range(layout.used):
                first, last = spans[s][b]
                if first < last:
                    yield s, b, slice(first, last)

    def _pieces(self, d: int, objects: Indices, part: slice) -> list[slice]:
        """Return a part, cut where the next object is in another shard."""
        holders = self._crew().layouts[d].home[0][objects[part]]
        borders = part.start + np.flatnonzero(np.diff(holders)) + 1
        at = [part.start, *borders.tolist(), part.start + holders.size]
        return [slice(*pair) for pair in pairwise(at)]

    def _by_shard(
        self, d: int, objects: Indices, pieces: list[tuple[int, slice]]
    ) -> Iterator[tuple[int, list[tuple[int, slice]]]]:
        """Yield the shards and the pieces that each holds, in order."""
        home = self._crew().layouts[d].home[0]
        for s, mine in groupby(pieces, key=lambda piece: int(home[objects[piece[1].start]])):
            yield s, list(mine)

    def _errand(
        self, d: int, s: int, objects: Indices, pieces: list[slice], counts: Counts
    ) -> Errand:
        """Return what a shard has to do for pieces of a batch."""
        layout = self._crew().layouts[d]
        b = int(objects[0]) // layout.batch
        first = np.int32(layout.spans(s)[b][0])
        return Errand(b, [shortened(objects[piece] - first) for piece in pieces], *counts)

    def _crew(self) -> Crew:
        assert self.crew is not None
        return self.crew


def _note(visits: Visits, d: int, objects: Indices, visited: Visited) -> None:
    """Keep what the visit of objects has left."""
    visits.log_normaliser[d][objects] = visited.log_normaliser
    visits.entropy[d][objects] = visited.entropy
    visits.moved[d][objects] = visited.moved


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
