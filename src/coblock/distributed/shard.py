"""A shard: the links and unseen cells of some objects of one domain, compressed by object."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coblock.distributed.layout import Layout
from coblock.io.readers.coding import States, compress
from coblock.kernels import Domain, Floats, Indices, Offsets, Place

Cells = tuple[Indices, Indices, States | None]  # objects by position, other ends, what they are


@dataclass(frozen=True)
class Shard:
    """What the objects of a shard are linked to; other ends are numbered as in the relation."""

    d: int  # domain
    number: int
    layout: Layout
    place: Place
    others: int  # objects of the other domain

    @cached_property
    def offsets(self) -> Offsets:
        """Where each batch begins among the objects of the shard."""
        return self.layout.offsets(self.number)

    def segment(self, b: int) -> Place:
        """Return the place of the shard's objects in batch ``b``, without a copy."""
        first, last = self.offsets[b : b + 2]
        place = self.place
        return place._replace(
            link_start=place.link_start[first : last + 1],
            unseen_start=place.unseen_start[first : last + 1],
        )

    def __setstate__(self, state: dict[str, Any]) -> None:
        place = Place(*(writable(array) for array in state["place"]))
        self.__dict__.update(state | {"place": place})

    def __sizeof__(self) -> int:
        return sum(array.nbytes for array in self.place)


def build(pieces: list[Cells], d: int, number: int, layout: Layout, others: int) -> Shard:
    """Put together what all files have of a shard; of a pair given twice the largest counts."""
    objects = np.concatenate([piece[0] for piece in pieces])
    ends = np.concatenate([piece[1] for piece in pieces])
    states = None
    if any(piece[2] is not None for piece in pieces):
        states = np.concatenate([_states(piece) for piece in pieces])
    size = int(layout.offsets(number)[-1])
    links, unseen, _ = compress(objects, ends, states, (size, others))
    arrays = (links.indptr, links.indices, unseen.indptr, unseen.indices)
    kinds = (np.int64, np.int32, np.int64, np.int32)
    place = Place(*(a.astype(kind) for a, kind in zip(arrays, kinds, strict=True)))
    return Shard(d, number, layout, place, others)


def _states(piece: Cells) -> States:
    from coblock.io.readers.coding import LINK

    return np.full(piece[0].size, LINK, np.int8) if piece[2] is None else piece[2]


def domain_of(
    place: Place, order: Indices, q: Floats, sure: Indices, m: Floats, alpha: float
) -> Domain:
    """Return objects of a bipartite relation as the kernels take them."""
    nothing = np.zeros(0)
    return Domain((place,), nothing, nothing, order, q, sure, m, alpha)


def writable(array: NDArray[Any]) -> NDArray[Any]:
    """Return an array that may be written to: what has travelled may not, to Numba another type."""
    return np.require(array, requirements="W")
