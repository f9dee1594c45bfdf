"""Which objects of a domain stand together: batches, their parts, and the shards that hold them."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from coblock.inference.schedule import cut
from coblock.kernels import Indices, Offsets

Span = tuple[int, int]


@dataclass(frozen=True)
class Layout:
    """Objects of one domain in batches; a shard holds the same parts of every batch.

    The parts are those of the local schedule, so a batch keeps all shards busy, and every part
    is in one of them.
    """

    size: int  # objects
    batch: int  # objects visited together
    shards: int  # wanted; never more than a batch has parts

    @cached_property
    def parts(self) -> int:
        """Parts of a whole batch."""
        return len(cut(min(self.batch, self.size)))

    @cached_property
    def used(self) -> int:
        """Shards there are."""
        return min(self.shards, self.parts)

    @property
    def batches(self) -> int:
        """Batches of a sweep."""
        return -(-self.size // self.batch)

    def parts_of(self, shard: int, b: int) -> dict[int, Span]:
        """Return first and last + 1 of the parts of batch ``b`` in a shard; all are neighbours."""
        start, stop = self._batch(b)
        return {
            number: (start + part.start, min(start + part.stop, stop))
            for number, part in enumerate(cut(stop - start))
            if self._holder(number) == shard
        }

    def leaves(self, b: int) -> int:
        """Return into how many parts batch ``b`` is cut."""
        start, stop = self._batch(b)
        return len(cut(stop - start))

    def used_in(self, b: int) -> int:
        """Return how many shards have parts of batch ``b``; those are the first."""
        return self._holder(self.leaves(b) - 1) + 1

    def _batch(self, b: int) -> Span:
        return b * self.batch, min((b + 1) * self.batch, self.size)

    def _holder(self, part: int) -> int:
        return part * self.used // self.parts

    def span(self, shard: int, b: int) -> Span:
        """Return first and last + 1 of the shard's objects in batch ``b``."""
        parts = list(self.parts_of(shard, b).values())
        return (parts[0][0], parts[-1][1]) if parts else (0, 0)

    def spans(self, shard: int) -> list[Span]:
        """Return first and last + 1 of the shard's objects in each batch."""
        return [self.span(shard, b) for b in range(self.batches)]

    def objects(self, shard: int) -> Indices:
        """Return the objects of a shard, ascending."""
        pieces = [np.arange(*span, dtype=np.int32) for span in self.spans(shard)]
        return np.concatenate(pieces)

    @cached_property
    def home(self) -> tuple[NDArray[np.int32], Indices]:
        """The shard of every object, and its position in the shard."""
        shard, position = np.empty(self.size, np.int32), np.empty(self.size, np.int32)
        for s in range(self.used):
            mine = self.objects(s)
            shard[mine], position[mine] = s, np.arange(mine.size, dtype=np.int32)
        return shard, position

    def offsets(self, shard: int) -> Offsets:
        """Return where each batch begins among the objects of a shard."""
        lengths = [last - first for first, last in self.spans(shard)]
        return np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
