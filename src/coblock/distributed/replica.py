"""Copies of all memberships on every worker, renewed by what has changed since."""

from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from typing import Any, TypeAlias, cast

import numpy as np
from distributed import Worker, WorkerPlugin, get_worker

from coblock.distributed.compact import Rows, spelled_out, write_unsure
from coblock.kernels import Floats, Indices

PLUGIN = "coblock-memberships"
Versions: TypeAlias = tuple[int, int]


@dataclass(frozen=True, slots=True)
class News:
    """Memberships that have changed since version ``before``; all if ``objects`` is None."""

    before: int
    version: int
    objects: Indices | range | None
    rows: Rows


Letter: TypeAlias = list[list[News]]  # by domain


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
        everybody = range(self.sure.size)
        objects = spelled_out(everybody if news.objects is None else news.objects)
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

    def current(self, letter: Letter, versions: Versions) -> list[Copy] | None:
        """Return copies of these versions, or None if the letter does not lead there."""
        with self.lock:
            for d, news in enumerate(letter):
                if d not in self.copies or self.copies[d].version != versions[d]:
                    self._read(d, news)
            copies = [self.copies.get(d) for d in (0, 1)]
        found = [copy for copy in copies if copy is not None]
        return found if tuple(copy.version for copy in found) == versions else None

    def _read(self, d: int, letter: list[News]) -> None:
        for news in letter:
            copy = self.copies.get(d)
            if copy is not None and copy.version == news.version:
                continue
            if news.objects is None:
                self.copies[d] = Copy.of(news)
            elif copy is not None and copy.version == news.before:
                copy.learn(news)


def _replicas(run: str) -> Replicas:
    return cast("Replicas", get_worker().plugins[f"{PLUGIN}-{run}"])


def surely_current(run: str, letter: Letter, versions: Versions) -> list[Copy]:
    """Return copies of these versions from a letter that tells everything."""
    copies = _replicas(run).current(letter, versions)
    assert copies is not None
    return copies


@dataclass(frozen=True, slots=True)
class Answer:
    """What a task has found, and on which worker; nothing if the worker lacked news."""

    worker: str
    found: Any
    lacking: bool = False


def informed(
    shard: Any,
    run: str,
    letter: Letter,
    versions: Versions,
    function: Callable[..., Any],
    *rest: Any,
) -> Answer:
    """Run a function on a shard with the memberships of both domains, if the worker has them."""
    worker, copies = get_worker().address, _replicas(run).current(letter, versions)
    if copies is None:
        return Answer(worker, None, lacking=True)
    return Answer(worker, function(shard, copies, *rest))
