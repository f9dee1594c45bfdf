"""The schedule of a fit on a cluster: the same batches and parts, visited by workers."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias, cast

import numpy as np
from distributed import Future

from coblock.distributed import tasks
from coblock.distributed.compact import shortened, unpacked
from coblock.distributed.course import Turn
from coblock.distributed.crew import Crew
from coblock.distributed.parting import part_clusters
from coblock.distributed.relation import ClusterRelation
from coblock.distributed.replica import Opening, Terms, change_of
from coblock.distributed.tasks import Counts, Errand
from coblock.inference import moves
from coblock.inference import schedule as batches
from coblock.inference.schedule import Schedule, Visits
from coblock.kernels import Floats, Indices, batch
from coblock.model.partition import Partition
from coblock.model.state import State

BATCHES = 4  # per sweep and domain: a quarter of those on one machine, a turn costs more here
BatchSize: TypeAlias = int | tuple[int, int] | None  # None: chosen by the number of objects


def batch_size(wanted: BatchSize, d: int, objects: int) -> int:
    """Return how many objects of domain ``d`` are visited together on a cluster."""
    if wanted is None:
        return -(-objects // BATCHES)
    return min(wanted if isinstance(wanted, int) else wanted[d], objects)


@dataclass(frozen=True, slots=True)
class ClusterSchedule(Schedule):
    """Visits batches on a cluster; the outcomes are those of the local schedule, to the bit.

    All turns of a sweep are sent at once. While workers go on, their answers are taken here.
    """

    crew: Crew | None = None

    def size_of(self, sizes: tuple[int, ...], d: int) -> int:
        """Return how many objects of domain ``d`` are visited together."""
        return batch_size(self.batch_size, d, sizes[d])

    def is_sequential(self, sizes: tuple[int, ...]) -> bool:
        """Say that objects are never visited one after another."""
        return False

    @property
    def borders_stay(self) -> bool:
        """Whether an object is in the same batch and part in every sweep: shards hold the parts."""
        return True

    def turns(
        self, sizes: tuple[int, ...], present: tuple[int, ...] | None = None
    ) -> Iterator[tuple[int, slice]]:
        """Yield the domain and the objects of each batch; workers that joined get shards first."""
        self._crew().grow()
        yield from Schedule.turns(self, sizes, present)

    def part_clusters(
        self, partition: Partition, d: int, rng: np.random.Generator
    ) -> list[moves.Parting]:
        """Return for every cluster of domain ``d`` the best parting found."""
        return part_clusters(self._crew(), partition, d, rng)

    def expect_visits(self, state: State, turns: list[batches.Turn], step: float) -> None:
        """Send all visits of a sweep to the workers."""
        crew, priors = self._crew(), state.priors
        if not turns:
            return
        crew.course.follow(state)
        planned = [self._visits(d, objects) for d, objects, _ in turns]
        shared = priors.shared
        a, b = (float(p.flat[0]) if shared else p for p in (priors.a, priors.b))
        terms = Terms((priors.alpha[0], priors.alpha[1]), a, b, step)
        crew.course.post(planned, terms, crew.shards, lambda: self._tell_state(state))

    def hear_of_order(self, before: State, after: State, order: list[Indices]) -> None:
        """Let workers put their clusters in this order, too, rather than tell them everything."""
        self._crew().course.reorder(before, after, order)

    def expect_choices(
        self, partition: Partition, turns: list[tuple[int, slice]], uniform: Floats, *, soft: bool
    ) -> None:
        """Send all choices of a sweep to the workers."""
        crew, relation = self._crew(), cast("ClusterRelation", partition.relation)
        crew.course.follow(None)
        relation.note(partition.labels, partition.sums)
        chances = np.split(uniform, [partition.labels[0].size])
        planned = [self._choices(d, objects, chances[d], soft) for d, objects in turns]
        terms = Terms((partition.alpha[0], partition.alpha[1]), partition.a, partition.b)
        crew.course.post(planned, terms, crew.shards, lambda: self._tell_partition(partition))

    def renew(
        self,
        state: State,
        d: int,
        objects: Indices,
        parts: list[slice],
        visits: Visits,
        step: float,
    ) -> tuple[list[batch.Outcome], Floats]:
        """Take what the visits of the next turn have found; return the change in all."""
        answers = self._crew().course.take(lambda: self._tell_state(state))
        fresh = np.concatenate([unpacked(answer.rows) for answer in answers])
        for name in ("log_normaliser", "entropy", "moved"):
            found = np.concatenate([getattr(answer, name) for answer in answers])
            getattr(visits, name)[d][objects] = found
        return [visits.outcome(d, fresh, change_of(answers))], fresh

    def choose(
        self,
        partition: Partition,
        d: int,
        objects: Indices,
        uniform: Floats,
        visits: Visits,
        memberships: Floats,
    ) -> tuple[list[batch.Outcome], Indices]:
        """Take what was chosen in the next turn; return the change in all, and new labels.

        Where there is room in ``memberships``, those given the other objects' labels are added.
        """
        course = self._crew().course
        if not course.is_under_way:
            return self._choose_all(partition, d, visits, memberships)
        answers = course.take(lambda: self._tell_partition(partition))
        if len(memberships):
            beside = [unpacked(answer.beside) for answer in answers if answer.beside is not None]
            memberships += np.concatenate(beside)
        fresh = np.concatenate([answer.rows.sure for answer in answers]).astype(np.int32)
        found = np.concatenate([answer.log_normaliser for answer in answers])
        visits.log_normaliser[d][objects] = found
        change = change_of(answers)
        cast("ClusterRelation", partition.relation).note_change(d, objects, fresh, change)
        return [visits.outcome(d, memberships, change)], fresh

    def _choose_all(
        self, partition: Partition, d: int, visits: Visits, memberships: Floats
    ) -> tuple[list[batch.Outcome], Indices]:
        """Ask for everybody's best label and memberships; nobody moves."""
        crew, blocks = self._crew(), partition.blocks(d)
        base = self._told_labels(partition)
        counts = Counts(blocks, partition.m[d], partition.m[1 - d], partition.alpha[d])
        messages = crew.everywhere(d, crew.run, base, counts)
        fresh = np.empty(len(memberships), dtype=np.int32)
        for s, chosen in enumerate(crew.ask("choose", tasks.choose_all, d, messages)):
            mine = crew.layouts[d].objects(s)
            fresh[mine] = chosen.labels
            memberships[mine] += unpacked(chosen.rows)
            visits.log_normaliser[d][mine] = chosen.log_normaliser
            visits.entropy[d][mine] = chosen.entropy
        return [], fresh

    def _visits(self, d: int, objects: Indices) -> Turn:
        """Return what the shards do to visit objects of one batch."""
        layout = self._crew().layouts[d]
        b, errands = int(objects[0]) // layout.batch, []
        for s in range(layout.used):
            first, last = np.searchsorted(objects, layout.span(s, b))
            if first < last:
                errands.append((s, Errand(b, shortened(objects[first:last]), soft=True)))
        return Turn("visit", d, errands)

    def _choices(self, d: int, objects: slice, uniform: Floats, soft: bool) -> Turn:
        """Return what the shards do to give the objects of a batch labels."""
        layout = self._crew().layouts[d]
        b, errands = objects.start // layout.batch, []
        for s in range(layout.used_in(b)):
            span = slice(*layout.span(s, b))
            chances = uniform[span] if (uniform[span] >= 0.0).any() else None
            mine = range(span.start, span.stop)
            errands.append((s, Errand(b, mine, soft=False, uniform=chances, beside=soft)))
        return Turn("choose", d, errands)

    def _tell_state(self, state: State) -> tuple[Future, Opening]:
        """Tell memberships and counts as they stand."""
        board = self._crew().board
        base = board.memberships(state.q)
        board.forget()  # they are about to change in their place
        return base, Opening(0, state.sums.links, state.sums.unseen, (state.m[0], state.m[1]))

    def _tell_partition(self, partition: Partition) -> tuple[Future, Opening]:
        """Tell labels and counts as they stand."""
        sums, m = partition.sums, (partition.m[0], partition.m[1])
        return self._told_labels(partition), Opening(0, sums.links, sums.unseen, m)

    def _told_labels(self, partition: Partition) -> Future:
        clusters = tuple(m.size for m in partition.m)
        return self._crew().board.labels(partition.labels, clusters)

    def _crew(self) -> Crew:
        assert self.crew is not None
        return self.crew
