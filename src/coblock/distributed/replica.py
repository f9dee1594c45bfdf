"""Copies of all memberships on every worker, renewed by what has changed since."""

from dataclasses import dataclass
from threading import Lock

import numpy as np
from distributed import Worker, WorkerPlugin, get_worker
from numpy.typing import NDArray

from coblock.distributed.compact import Rows, write_unsure
from coblock.kernels import Floats, Indices

PLUGIN = "coblock-memberships"


@dataclass(frozen=True, slots=True)
class News:
    """Memberships that have changed, or all of them where ``objects`` is None."""

    version: int
    objects: NDArray[np.int32] | None
    rows: Rows


@dataclass(slots=True)
class Copy:
    """Memberships of one domain, as the kernels read those of others."""

    version: int
    clusters: int
    sure: Indices
    q: Floats  # rows of sure objects are not to be read; pages never written cost no memory

    @classmethod
    def of(cls, news: News) -> "Copy":
        """Return the copy that news about everybody make."""
        clusters, objects = news.rows.clusters, news.rows.sure.size
        copy = cls(news.version, clusters, np.empty(objects, np.int32), np.zeros((0, clusters)))
        copy.learn(news)
        return copy

    def learn(self, news: News) -> None:
        """Take the news in."""
        everybody = np.arange(self.sure.size, dtype=np.int32)
        objects = everybody if news.objects is None else news.objects
        self.sure[objects] = news.rows.sure
        if news.rows.value.size:
            if not len(self.q):
                self.q = np.zeros((self.sure.size, self.clusters))
            write_unsure(news.rows, objects, self.q)
        self.version = news.version

    def memberships(self, objects: Indices) -> Floats:
        """Return the memberships of objects as a table."""
        sure = self.sure[objects]
        q = np.zeros((objects.size, self.clusters))
        decided = sure >= 0
        q[np.flatnonzero(decided), sure[decided]] = 1.0
        if not decided.all():
            q[~decided] = self.q[objects[~decided]]
        return q


class Replicas(WorkerPlugin):
    """What a worker knows of the memberships in one fit; it is there as long as the fit is."""

    def __init__(self, run: str) -> None:
        self.run = run
        self.name = f"{PLUGIN}-{run}"
        self.copies: dict[int, Copy] = {}

    def setup(self, worker: Worker) -> None:
        """Begin with nothing."""
        self.copies, self.lock = {}, Lock()

    def current(self, chains: list[list[News]]) -> list[Copy]:
        """Return copies that have all the news of both domains, and nothing else."""
        with self.lock:
            return [self._current(d, chain) for d, chain in enumerate(chains)]

    def _current(self, d: int, chain: list[News]) -> Copy:
        versions = [news.version for news in chain]
        copy = self.copies.get(d)
        if copy is None or copy.version not in versions:
            copy = Copy.of(chain[0])
        for news in chain[versions.index(copy.version) + 1 :]:
            copy.learn(news)
        self.copies[d] = copy
        return copy


def current(run: str, chains: list[list[News]]) -> list[Copy]:
    """Return the memberships of both domains on the worker that asks."""
    return get_worker().plugins[f"{PLUGIN}-{run}"].current(chains)
