"""The memberships of everybody as the workers are told them, whole, by a task."""

import warnings
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import numpy as np
from distributed import Client, Future

from coblock.distributed import compact, tasks
from coblock.distributed.replica import Base
from coblock.kernels import Floats, Indices


@dataclass
class Board:
    """What was told last: labels, or memberships; it is not told again while it is the same."""

    client: Client
    version: int = 0
    _told: Future | None = None
    _labels: tuple[list[Indices], tuple[int, ...]] | None = None
    _memberships: list[Floats] = field(default_factory=list)

    def labels(self, labels: list[Indices], clusters: tuple[int, ...]) -> Future:
        """Return the task that has these labels."""
        known = self._labels
        if known is None or known[1] != clusters or not all(map(np.array_equal, known[0], labels)):
            self.forget()
            self._labels = [label.copy() for label in labels], clusters
            self._told = self._tell(map(compact.of_labels, labels, clusters))
        assert self._told is not None
        return self._told

    def memberships(self, q: list[Floats]) -> Future:
        """Return the task that has these memberships."""
        if not self._memberships or any(
            old is not new for old, new in zip(self._memberships, q, strict=True)
        ):
            self.forget()
            self._memberships = list(q)
            self._told = self._tell(map(compact.packed, q))
        assert self._told is not None
        return self._told

    def forget(self) -> None:
        """Tell anew next time: memberships are about to change in their place."""
        self._told, self._labels, self._memberships = None, None, []

    def _tell(self, rows: Any) -> Future:
        self.version += 1
        key = f"coblock-tell-memberships-{uuid4().hex}"
        return carried(self.client, Base(self.version, tuple(rows)), key)


def carried(client: Client, what: Any, key: str) -> Future:
    """Bring something to the workers by a task; Dask's advice for large graphs is to do that."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sending large graph")
        return client.submit(tasks.carry, what, key=key)
