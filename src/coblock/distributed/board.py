"""What the workers have been told of the memberships, and what is news to them."""

from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import numpy as np
from distributed import Client, Future

from coblock.distributed import compact, tasks
from coblock.distributed.compact import Rows
from coblock.distributed.replica import News
from coblock.kernels import Floats, Indices

LONGEST_CHAIN = 48  # news before everything is told anew


@dataclass
class Board:
    """News of both domains; every task names the news it builds on.

    News are carried by tasks, so a worker that comes late fetches them from others, and what was
    lost with a worker is made again.
    """

    client: Client
    run: str
    chains: list[list[Future]] = field(default_factory=lambda: [[], []])
    sent: int = 0  # bytes of news, each counted once
    version: int = 0
    _labels: list[Indices | None] = field(default_factory=lambda: [None, None])
    _clusters: list[int] = field(default_factory=lambda: [0, 0])
    _shown: list[Any] = field(default_factory=lambda: [None, None])  # tables of memberships
    _weight: list[list[int]] = field(default_factory=lambda: [[], []])  # bytes by news

    def show_labels(self, d: int, labels: Indices, clusters: int) -> None:
        """Tell the labels of a domain, or how they differ from those that were told."""
        known, self._shown[d] = self._labels[d], None
        if known is None or self._clusters[d] != clusters:
            self._tell(d, None, compact.of_labels(labels, clusters))
        else:
            changed = np.flatnonzero(known != labels).astype(np.int32)
            if not changed.size:
                return
            if 5 * changed.size < labels.size:
                self._tell(d, changed, compact.of_labels(labels[changed], clusters))
            else:
                self._tell(d, None, compact.of_labels(labels, clusters))
        self._labels[d], self._clusters[d] = labels.copy(), clusters

    def show_memberships(self, d: int, q: Floats) -> None:
        """Tell the memberships of a domain, unless it is the table that was told."""
        if self._shown[d] is q:
            return
        self._labels[d], self._shown[d] = None, q
        self._tell(d, None, compact.packed(q))

    def add(self, d: int, objects: Indices, rows: Rows) -> None:
        """Tell what has changed in a table of memberships that was told."""
        weight = self._weight[d]
        if len(weight) >= LONGEST_CHAIN or sum(weight[1:]) > 2 * weight[0]:
            self._labels[d] = self._shown[d] = None  # told anew when next asked for
            return
        self._tell(d, objects, rows)

    def _tell(self, d: int, objects: Indices | None, rows: Rows) -> None:
        self.version += 1
        news = News(self.version, objects, rows)
        key = f"coblock-tell-{'rows' if d == 0 else 'columns'}-{uuid4().hex}"
        future = self.client.submit(tasks.carry, news, key=key)
        size = rows.nbytes + (0 if objects is None else objects.nbytes)
        self.sent += size
        if objects is None:
            self.chains[d], self._weight[d] = [future], [size]
        else:
            self.chains[d].append(future)
            self._weight[d].append(size)
