"""Which objects are updated together: one after another, or in batches.

Batches and the parts into which they are cut depend on the data and on ``batch_size`` alone, not
on the number of threads or workers, so neither do the bits of a result.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from coblock.kernels import Indices
from coblock.kernels.memberships import next_is_row

BATCHES = 16  # per sweep and domain, where the user gives no batch size
SEQUENTIAL_UP_TO = 1000  # objects in all; so few are updated one after another
PARTS, SMALLEST_PART = 8, 128  # parts of a batch, for threads; objects of a part


@dataclass(frozen=True, slots=True)
class Schedule:
    """Cuts a sweep into batches."""

    batch_size: int | tuple[int, int] | None = None  # None: chosen by the number of objects

    def is_sequential(self, sizes: tuple[int, ...]) -> bool:
        """Return whether objects are updated one after another."""
        return all(self.size_of(sizes, d) == 1 for d in range(len(sizes)))

    def size_of(self, sizes: tuple[int, ...], d: int) -> int:
        """Return how many objects of domain ``d`` are updated together."""
        if self.batch_size is not None:
            return self.batch_size if isinstance(self.batch_size, int) else self.batch_size[d]
        return 1 if sum(sizes) <= SEQUENTIAL_UP_TO else -(-sizes[d] // BATCHES)

    def coarser(self, sizes: tuple[int, ...], count: int) -> "Schedule":
        """Return a schedule with so many batches a domain, where the user gives no batch size."""
        if self.batch_size is not None or self.is_sequential(sizes):
            return self
        return replace(self, batch_size=(-(-sizes[0] // count), -(-sizes[-1] // count)))

    def batches(self, sizes: tuple[int, ...]) -> Iterator[tuple[int, Indices]]:
        """Yield domain and objects of each batch; rows and columns alternate in proportion."""
        size = [self.size_of(sizes, d) for d in range(len(sizes))]
        count = [-(-objects // s) for objects, s in zip(sizes, size, strict=True)]
        done = [0] * len(sizes)
        while done != count:
            d = 0 if len(sizes) == 1 or next_is_row(*done, *count) else 1
            first = done[d] * size[d]
            yield d, np.arange(first, min(first + size[d], sizes[d]), dtype=np.int32)
            done[d] += 1


def parts(objects: int) -> list[slice]:
    """Return the parts of a batch that threads share."""
    size = -(-objects // min(PARTS, max(objects // SMALLEST_PART, 1)))
    return [slice(start, start + size) for start in range(0, objects, size)]
