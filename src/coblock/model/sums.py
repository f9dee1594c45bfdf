"""Sums in a tree whose shape depends on the data alone, so that all engines give the same bits."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from coblock.kernels import Floats, Incidence, Indices
from coblock.kernels.gather import add_outer_sums
from coblock.kernels.memberships import column_sums

FAN_IN = 8  # terms that are added one after another
SMALLEST_CHUNK, MOST_CHUNKS = 32_768, 256  # objects whose cells are added one after another


def tree_sum(terms: Iterable[Any]) -> Any:
    """Return the sum of numbers or arrays: of each eight, then of each eight of these sums."""
    sums = list(terms)
    while len(sums) > 1:
        sums = [reduce(add, sums[at : at + FAN_IN]) for at in range(0, len(sums), FAN_IN)]
    return sums[0]


def chunks(objects: int) -> list[range]:
    """Return the objects whose cells are added one after another; the sums are terms of a tree."""
    size = max(SMALLEST_CHUNK, -(-objects // MOST_CHUNKS))
    return [range(at, min(at + size, objects)) for at in range(0, objects, size)]


def segment(cells: Incidence, first: int, stop: int) -> Incidence:
    """Return the cells of consecutive objects, without a copy."""
    rows, (start, link, unseen_start, unseen) = slice(first, stop + 1), cells
    return Incidence(start[rows], link, unseen_start[rows], unseen)


def sum_memberships(q: Floats, *, pairs: bool) -> tuple[Floats, Floats]:
    """Return sum_i q_ik, and sum_i q_ik q_il if ``pairs`` is true, added in chunks."""
    sums = [sum_chunk(q[some.start : some.stop], pairs=pairs) for some in chunks(len(q))]
    sizes, products = (tree_sum(terms) for terms in zip(*sums, strict=True))
    return sizes, products


def sum_chunk(q: Floats, *, pairs: bool) -> tuple[Floats, Floats]:
    """Return the sums over consecutive objects that are a term of :func:`sum_memberships`."""
    return column_sums(q), q.T @ q if pairs else np.zeros((0, 0))


def sum_expected_cells(
    cells: Incidence, q: Floats, q_other: Floats, hard_other: Indices
) -> tuple[Floats, Floats]:
    """Return the sums over links and over unseen cells of q_ik q_jl, added in chunks."""
    sums = []
    for some in chunks(len(q)):
        tables = np.zeros((2, q.shape[1], q_other.shape[1]))
        own, rows = q[some.start : some.stop], segment(cells, some.start, some.stop)
        add_outer_sums(rows, own, q_other, hard_other, tables[0], tables[1])
        sums.append(tables)
    links, unseen = tree_sum(sums)
    return links, unseen


@dataclass(frozen=True, slots=True)
class PartialSums:
    """Sums of some terms of :func:`tree_sum`: a node of the tree where all its terms are known."""

    terms: int  # of the whole sum
    nodes: dict[tuple[int, int], tuple[Any, ...]]  # by level and number; arrays or numbers each

    @classmethod
    def merge(cls, parts: Sequence["PartialSums"]) -> "PartialSums":
        """Return the sums of the terms of all parts, which have none in common."""
        nodes = {key: node for part in parts for key, node in part.nodes.items()}
        level, width = 0, parts[0].terms
        while width > 1:
            for number, first in enumerate(range(0, width, FAN_IN)):
                keys = [(level, at) for at in range(first, min(first + FAN_IN, width))]
                if all(key in nodes for key in keys):
                    terms = zip(*map(nodes.pop, keys), strict=True)
                    nodes[level + 1, number] = tuple(reduce(add, each) for each in terms)
            level, width = level + 1, -(-width // FAN_IN)
        return cls(parts[0].terms, nodes)

    @property
    def total(self) -> tuple[Any, ...]:
        """The sum of all terms."""
        (node,) = self.nodes.values()
        return node
