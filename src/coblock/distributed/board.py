"""What the workers have been told of the memberships, and what is news to them."""

import warnings
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import numpy as np
from distributed import Client, Future

from coblock.distributed import compact, tasks
from coblock.distributed.compact import Rows
from coblock.distributed.replica import News, Versions
from coblock.kernels import Floats, Indices

LONGEST_LOG = 64  # news of a domain before everything is told anew
LARGE = 1 << 20  # bytes; larger news go to one worker, and from there to the others


@dataclass(frozen=True, slots=True)
class Entry:
    """News as they travel: within the message, or as a task that carries them."""

    version: int
    news: News | Future
    size: int
    complete: bool


@dataclass
class Board:
    """The news of both domains, and which of them each worker has had.

    A message to a worker brings what it lacks. One that comes late, or has started anew, lacks
    everything; it says so and is told everything.
    """

    client: Client
    run: str
    told: int = 0  # bytes of messages
    version: int = 0
    known: dict[str, Versions] = field(default_factory=dict)  # by worker
    log: list[list[Entry]] = field(default_factory=lambda: [[], []])
    _labels: list[Indices | None] = field(default_factory=lambda: [None, None])
    _clusters: list[int] = field(default_factory=lambda: [0, 0])
    _shown: list[Any] = field(default_factory=lambda: [None, None])  # tables of memberships

    @property
    def versions(self) -> Versions:
        """The last news of both domains."""
        return self.log[0][-1].version, self.log[1][-1].version

    def show_labels(self, d: int, labels: Indices, clusters: int) -> None:
        """Tell the labels of a domain, or how they differ from those that were told."""
        known, self._shown[d] = self._labels[d], None
        changed = None
        if known is not None and self._clusters[d] == clusters:
            changed = np.flatnonzero(known != labels).astype(np.int32)
            if not changed.size:
                return
        self._labels[d], self._clusters[d] = labels.copy(), clusters
        if changed is not None and 5 * changed.size < labels.size and not self._is_long(d):
            self._tell(d, changed, compact.of_labels(labels[changed], clusters))
        else:
            self._tell(d, None, compact.of_labels(labels, clusters))

    def show_memberships(self, d: int, q: Floats) -> None:
        """Tell the memberships of a domain, unless it is the table that was told."""
        if self._shown[d] is q:
            return
        self._labels[d], self._shown[d] = None, q
        self._tell(d, None, compact.packed(q))

    def add(self, d: int, objects: Indices, rows: Rows) -> None:
        """Tell what has changed in a table of memberships that was told."""
        if self._is_long(d):
            self._shown[d] = None  # everything is told when next asked for
        else:
            self._tell(d, objects, rows)

    def letter(self, worker: str | None) -> list[list[News | Future]]:
        """Return the news of both domains that a worker lacks; an unknown one lacks everything."""
        known = self.known.get(worker or "", (0, 0))
        letter = []
        for d in (0, 1):
            versions = [entry.version for entry in self.log[d]]
            first = versions.index(known[d]) + 1 if known[d] in versions else 0
            self.told += sum(entry.size for entry in self.log[d][first:])
            letter.append([entry.news for entry in self.log[d][first:]])
        return letter

    def _is_long(self, d: int) -> bool:
        sizes = [entry.size for entry in self.log[d]]
        return len(sizes) >= LONGEST_LOG or sum(sizes[1:]) > 2 * sizes[0]

    def _tell(self, d: int, objects: Indices | None, rows: Rows) -> None:
        before = 0 if objects is None else self.log[d][-1].version
        self.version += 1
        told = None if objects is None else compact.shortened(objects)
        news: News | Future = News(before, self.version, told, rows)
        size = rows.nbytes + (told.nbytes if isinstance(told, np.ndarray) else 0)
        if size > LARGE:
            key = f"coblock-tell-{'rows' if d == 0 else 'columns'}-{uuid4().hex}"
            news = carried(self.client, news, key)
        entry = Entry(self.version, news, size, objects is None)
        self.log[d] = [entry] if objects is None else [*self.log[d], entry]


def carried(client: Client, what: Any, key: str) -> Future:
    """Bring something to the workers by a task; Dask's advice for large graphs is to do that."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sending large graph")
        return client.submit(tasks.carry, what, key=key)
