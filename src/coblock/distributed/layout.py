"""How objects are cut into batches, parts and shards, and the cells of one shard."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from coblock.distributed.replication import writable
from coblock.inference.schedule import parts
from coblock.io.readers.coding import LINK, States, compress_edges
from coblock.kernels import Incidence, Indices

Cells: TypeAlias = tuple[Indices, Indices, States | None]  # positions, other ends, states
DOMAINS = ("rows", "columns")


@dataclass(frozen=True)
class ShardLayout:
    """Objects of one domain in batches; a shard holds the same parts of every batch.

    The parts are those of the local engine. All shards are busy in every batch, and no part is
    divided between shards.
    """

    size: int  # objects
    batch: int  # objects updated together
    wanted: int  # shards; there are no more than a batch has parts

    @cached_property
    def most(self) -> int:
        """Largest possible number of shards: the parts of a whole batch."""
        return len(parts(min(self.batch, self.size)))

    @cached_property
    def shards(self) -> int:
        """Number of shards."""
        return min(self.wanted, self.most)

    @property
    def batches(self) -> int:
        """Batches of a sweep."""
        return -(-self.size // self.batch)

    def parts(self, shard: int, b: int) -> list[range]:
        """Return the objects of each part of batch ``b`` that a shard holds, in ascending order."""
        start, stop = b * self.batch, min((b + 1) * self.batch, self.size)
        return [
            range(start + part.start, min(start + part.stop, stop))
            for number, part in enumerate(parts(stop - start))
            if number * self.shards // self.most == shard
        ]

    def span(self, shard: int, b: int) -> tuple[int, int]:
        """Return the first object of a shard in batch ``b``, and the last one + 1."""
        held = self.parts(shard, b)
        return (held[0].start, held[-1].stop) if held else (0, 0)

    def objects(self, shard: int) -> Indices:
        """Return the objects of a shard, ascending."""
        spans = (self.span(shard, b) for b in range(self.batches))
        return np.concatenate([np.arange(*span, dtype=np.int32) for span in spans])

    @cached_property
    def home(self) -> tuple[NDArray[np.int32], Indices]:
        """The shard of every object, and its position in the shard."""
        shard, position = np.empty(self.size, np.int32), np.empty(self.size, np.int32)
        for s in range(self.shards):
            objects = self.objects(s)
            shard[objects], position[objects] = s, np.arange(objects.size, dtype=np.int32)
        return shard, position


@dataclass(frozen=True)
class Shard:
    """The cells of some objects of one domain; other ends are numbered as in the relation."""

    d: int
    number: int
    layout: ShardLayout
    incidence: Incidence

    @cached_property
    def objects(self) -> Indices:
        """The objects of the shard, ascending."""
        return self.layout.objects(self.number)

    def segment(self, b: int) -> Incidence:
        """Return the cells of the objects in batch ``b``, without a copy."""
        first, last = np.searchsorted(self.objects, self.layout.span(self.number, b))
        cells = self.incidence
        return cells._replace(
            link_start=cells.link_start[first : last + 1],
            unseen_start=cells.unseen_start[first : last + 1],
        )

    def __setstate__(self, state: dict[str, Any]) -> None:
        incidence = Incidence(*(writable(array) for array in state["incidence"]))
        self.__dict__.update(state | {"incidence": incidence})

    def __sizeof__(self) -> int:
        return sum(array.nbytes for array in self.incidence)


def build_shard(
    pieces: list[Cells], d: int, number: int, layout: ShardLayout, others: int
) -> Shard:
    """Return the shard of the pieces of all files; of a repeated pair the largest state counts."""
    objects, ends = (np.concatenate([piece[part] for piece in pieces]) for part in (0, 1))
    states = None
    if any(piece[2] is not None for piece in pieces):
        given = [np.full(p[0].size, LINK, np.int8) if p[2] is None else p[2] for p in pieces]
        states = np.concatenate(given)
    shape = (layout.objects(number).size, others)
    links, unseen, _ = compress_edges(objects, ends, states, shape)
    arrays = (links.indptr, links.indices, unseen.indptr, unseen.indices)
    kinds = (np.int64, np.int32, np.int64, np.int32)
    cells = Incidence(*(a.astype(kind) for a, kind in zip(arrays, kinds, strict=True)))
    return Shard(d, number, layout, cells)
