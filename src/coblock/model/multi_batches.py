"""Batches of objects that are scored from one state, on threads or elsewhere."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from coblock.kernels import Floats, Indices
from coblock.kernels.tensor_sweeps import score_batch
from coblock.kernels.tensor_zeros import batch_zeros, stored_parts
from coblock.kernels.tensors import Flags, Layout, State, list_members
from coblock.model.multi_threads import map_threads, parts_of


@dataclass(frozen=True, slots=True)
class Batch:
    """Objects of one domain that are scored from one state, which stays as it is."""

    layout: Layout
    state: State
    gains: Any
    d: int
    objects: Indices
    uniform: Floats  # a random number for each object, or -1 for the best label
    allowed: Flags  # clusters that are scored
    opens: bool  # whether objects may open a cluster

    @property
    def clusters(self) -> Indices:
        """The clusters that are scored."""
        return np.flatnonzero(self.allowed).astype(np.int32)

    def empty_gains(self) -> tuple[Floats, Floats]:
        """Return the gains of zeros as if nothing were stored: of a new object, of a member."""
        return batch_zeros(self.layout, self.state, self.gains, self.d, self.allowed)


class Scorer(Protocol):
    """Scores batches; a label depends on the batch alone, so all scorers give the same bits."""

    def new_labels(self, batch: Batch) -> Indices:
        """Return the new label of each object of a batch."""
        ...


class ThreadScorer:
    """Scores batches in parts that the threads of this process share."""

    def new_labels(self, batch: Batch) -> Indices:
        """Return the new label of each object of a batch."""
        layout, state, gains, d = batch.layout, batch.state, batch.gains, batch.d
        (base, own), used = batch.empty_gains(), batch.clusters
        start, member = list_members(layout, state, d)
        stored = np.zeros((2, base.size))

        def add_stored(part: slice) -> None:
            stored_parts(layout, state, gains, d, used[part], start, member, *stored)

        map_threads(add_stored, parts_of(used.size))
        base, own = base + stored[0], own + stored[1]
        label = np.empty(batch.objects.size, np.int32)

        def score(part: slice) -> None:
            objects, uniform = batch.objects[part], batch.uniform[part]
            table = (objects, uniform, batch.allowed, batch.opens, base, own, label[part])
            score_batch(layout, state, gains, d, *table)

        map_threads(score, parts_of(batch.objects.size))
        return label


SCORER: ContextVar[Scorer] = ContextVar("scorer", default=ThreadScorer())  # noqa: B039 - no state


@contextmanager
def use_scorer(scorer: Scorer) -> Iterator[None]:
    """Score batches elsewhere than on the threads of this process; the bits stay the same."""
    token = SCORER.set(scorer)
    try:
        yield
    finally:
        SCORER.reset(token)
