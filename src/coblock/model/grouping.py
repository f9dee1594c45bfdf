"""Relations in which the objects without cells are one object (MODEL 16)."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from coblock.kernels import Incidence, Indices
from coblock.model.relation import BinaryRelation

LARGEST = 1000  # objects of a domain without cells that stay as they are: they cost little


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class GroupedRelation(BinaryRelation):
    """A relation whose last object in a domain stands for all that have no cells of their own.

    These objects are exchangeable and have the same scores, so one visit updates all of them. The
    sizes of clusters and the counts of blocks are those of the full relation.

    Attributes
    ----------
    full : BinaryRelation
        The relation with every object.
    objects : tuple of ndarray
        For each domain, the object here of each object of the full relation.
    """

    full: BinaryRelation
    objects: tuple[Indices, ...]

    @property
    def copies(self) -> tuple[float, ...]:
        """Objects of the full relation that the last object of each domain stands for."""
        pairs = zip(self.objects, self.sizes, strict=True)
        return tuple(float(objects.size - size + 1) for objects, size in pairs)

    @property
    def n_cells(self) -> int:
        """Number of observed cells of the full relation."""
        return self.full.n_cells


def group(relation: BinaryRelation) -> BinaryRelation:
    """Return a relation with one object for all without cells, itself where these are few."""
    empty = [empty_objects(relation, d) for d in range(len(relation.sizes))]
    empty = [alone if alone.sum() > LARGEST else np.zeros_like(alone) for alone in empty]
    if not any(alone.any() for alone in empty):
        return relation
    kept = [np.append(np.flatnonzero(~alone), np.flatnonzero(alone)[:1]) for alone in empty]
    objects = []
    for alone, some in zip(empty, kept, strict=True):
        place = np.full(alone.size, some.size - 1, dtype=np.int32)
        place[~alone] = np.arange(alone.size - alone.sum(), dtype=np.int32)
        objects.append(place)
    incidence = tuple(
        tuple(_without(cells, empty[d], objects[-1 - d]) for cells in places)
        for d, places in enumerate(relation.incidence)
    )
    own = [each[kept[0]] if each.size else each for each in (relation.own_link, relation.own_seen)]
    return GroupedRelation(
        kind=relation.kind,
        shape=(kept[0].size, kept[-1].size),
        incidence=incidence,
        own_link=own[0],
        own_seen=own[1],
        full=relation,
        objects=tuple(objects),
    )


def empty_objects(relation: BinaryRelation, d: int) -> NDArray[np.bool_]:
    """Return which objects of a domain have neither links nor unseen cells.

    Where the cells of objects with themselves are seen, they must all be the same.
    """
    empty = np.ones(relation.sizes[d], dtype=np.bool_)
    for cells in relation.incidence[d]:
        empty &= np.diff(cells.link_start) == 0
        empty &= np.diff(cells.unseen_start) == 0
    if relation.own_link.size:
        empty &= (relation.own_link == 0.0) & (relation.own_seen == relation.own_seen.max())
    return empty


def _without(cells: Incidence, empty: NDArray[np.bool_], objects: Indices) -> Incidence:
    """Return the cells of all objects that are not empty, and of one more if there are others."""
    starts = []
    for start in (cells.link_start, cells.unseen_start):
        ends = np.repeat(start[-1:], 2 if empty.any() else 1)
        starts.append(np.append(start[:-1][~empty], ends))
    return Incidence(starts[0], objects[cells.link], starts[1], objects[cells.unseen])
