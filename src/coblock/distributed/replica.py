"""What a worker remembers between tasks: memberships of everybody, and the counts they give."""

from dataclasses import dataclass
from threading import Lock
from typing import TypeAlias, cast

import numpy as np
from distributed import Worker, WorkerPlugin, get_worker
from numpy.typing import NDArray

from coblock.distributed.compact import Rows, spelled_out, write_unsure
from coblock.inference.schedule import take_in
from coblock.kernels import Blocks, Floats, Indices
from coblock.model.counts import Changes, Node, Sums, climb
from coblock.model.state import in_order

PLUGIN = "coblock-memberships"


@dataclass(frozen=True, slots=True)
class Base:
    """Memberships of everybody."""

    version: int
    rows: tuple[Rows, ...]  # by domain


@dataclass(frozen=True, slots=True)
class Opening:
    """The counts with which a course of turns begins; the memberships are told beside."""

    version: int
    links: Floats
    unseen: Floats
    m: tuple[Floats, Floats]


@dataclass(frozen=True, slots=True)
class Terms:
    """Hyperparameters of a sweep; tables where every block has its own prior."""

    alpha: tuple[float, float]
    a: float | Floats
    b: float | Floats
    step: float = 1.0


@dataclass(frozen=True, slots=True)
class Turned:
    """What a turn of one shard has found: new memberships, and what they change."""

    version: int
    d: int
    objects: Indices | range
    rows: Rows
    leaves: int  # of the tree in which changes are added
    changes: dict[Node, tuple[NDArray, NDArray, NDArray | None]]  # None: nothing has changed
    log_normaliser: Floats
    entropy: Floats | None = None
    moved: Floats | None = None
    beside: Rows | None = None  # memberships by which labels were chosen


@dataclass(frozen=True, slots=True)
class Lacking:
    """Instead of an answer: the worker does not remember what the turn goes on from."""


@dataclass(frozen=True, slots=True)
class Reordered:
    """Instead of a turn: the clusters of each domain are in another order from now on."""

    version: int
    order: tuple[Indices, ...]


Answer: TypeAlias = Turned | Lacking


def change_of(turn: list[Turned]) -> Changes:
    """Return what all shards have changed in a turn; the tree is the same for any shards."""
    nodes = {
        node: (m.astype(np.float64), links.astype(np.float64), _unseen(links, unseen))
        for turned in turn
        for node, (m, links, unseen) in turned.changes.items()
    }
    (change,) = climb(nodes, turn[0].leaves).values()
    return change


def _unseen(links: NDArray, unseen: NDArray | None) -> Floats:
    return np.zeros(links.shape) if unseen is None else unseen.astype(np.float64)


@dataclass(slots=True)
class Copy:
    """Memberships of one domain, as the kernels read those of others."""

    clusters: int
    sure: Indices
    q: Floats  # rows of sure objects are not to be read; pages never written cost no memory

    @classmethod
    def of(cls, rows: Rows) -> "Copy":
        """Return the copy that the memberships of everybody make."""
        copy = cls(rows.clusters, np.empty(rows.sure.size, np.int32), np.zeros((0, rows.clusters)))
        copy.learn(range(rows.sure.size), rows)
        return copy

    def learn(self, objects: Indices | range, rows: Rows) -> None:
        """Take in the memberships of some objects."""
        those = spelled_out(objects)
        self.sure[those] = rows.sure
        if rows.value.size:
            if not len(self.q):
                self.q = np.zeros((self.sure.size, self.clusters))
            write_unsure(rows, those, self.q)

    def reorder(self, order: Indices) -> None:
        """Put the clusters in another order."""
        unsure = np.flatnonzero(self.sure < 0)
        if unsure.size:
            self.q[unsure] = self.q[unsure][:, order]
        self.sure = in_order(self.sure, order)

    def memberships(self, objects: Indices) -> Floats:
        """Return the memberships of objects as a table."""
        sure = self.sure[objects]
        q = np.zeros((objects.size, self.clusters))
        decided = sure >= 0
        q[np.flatnonzero(decided), sure[decided]] = 1.0
        if not decided.all():
            q[~decided] = self.q[objects[~decided]]
        return q


@dataclass(slots=True)
class Standing:
    """Memberships and counts after some turn of a course."""

    opening: int
    version: int
    copies: list[Copy]
    sums: Sums
    m: list[Floats]

    @classmethod
    def of(cls, base: Base, opening: Opening) -> "Standing":
        """Return how things stand before the first turn."""
        copies = [Copy.of(rows) for rows in base.rows]
        links, unseen = opening.links.copy(), opening.unseen.copy()
        sums = Sums(links, unseen, np.zeros_like(links), np.zeros((2, links.shape[0])))
        m = [size.copy() for size in opening.m]
        return cls(opening.version, opening.version, copies, sums, m)

    def go_on(self, step: list[Turned | Reordered]) -> None:
        """Take the next step: what all shards have found in a turn, or another order."""
        if isinstance(step[0], Reordered):
            self.reorder(step[0].order)
        else:
            self.learn(cast("list[Turned]", step))

    def learn(self, turn: list[Turned]) -> None:
        """Take in what all shards have found in the next turn."""
        d = turn[0].d
        for turned in turn:
            self.copies[d].learn(turned.objects, turned.rows)
        take_in(self.sums, self.m, d, change_of(turn))
        self.version += 1

    def reorder(self, order: tuple[Indices, ...]) -> None:
        """Put the clusters in another order."""
        for copy, kept in zip(self.copies, order, strict=True):
            copy.reorder(kept)
        self.sums = self.sums.reordered(list(order))
        self.m = [m[kept] for m, kept in zip(self.m, order, strict=True)]
        self.version += 1

    def blocks(self, d: int, terms: Terms) -> Blocks:
        """Return the tables as domain ``d`` sees them."""
        n, N = self.sums.tables("bipartite", self.m)
        priors = (np.broadcast_to(prior, n.shape) for prior in (terms.a, terms.b))
        tables = (n, N, *priors)
        return Blocks(*(np.array(table if d == 0 else table.T, order="C") for table in tables))


class Replicas(WorkerPlugin):
    """What a worker remembers of one fit; it is there as long as the fit is."""

    def __init__(self, run: str) -> None:
        self.run = run
        self.name = f"{PLUGIN}-{run}"

    def setup(self, worker: Worker) -> None:
        """Begin with nothing."""
        self.lock = Lock()
        self.told: tuple[int, list[Copy]] | None = None
        self.standing: Standing | None = None

    def copies(self, base: Base) -> list[Copy]:
        """Return the memberships that were told."""
        with self.lock:
            if self.told is None or self.told[0] != base.version:
                self.told = base.version, [Copy.of(rows) for rows in base.rows]
            return self.told[1]

    def stand(
        self,
        version: int,
        base: Base | None,
        opening: Opening | None,
        before: list[list[Answer | Reordered]],
    ) -> Standing | None:
        """Return how things stand after turn ``version``, or None if nothing leads there.

        ``before`` are turns that this worker may not have heard of. A worker that is further
        ahead, because a lost answer is asked for again, does not go back.
        """
        with self.lock:
            if base is not None and opening is not None and not self._began_with(opening):
                self.told = None  # two copies of everybody would be one too many
                self.standing = Standing.of(base, opening)
            standing = self.standing
            for turn in before:
                known = [answer for answer in turn if not isinstance(answer, Lacking)]
                if standing is None or len(known) < len(turn):
                    return None
                if known[0].version == standing.version + 1:
                    standing.go_on(known)
            return standing if standing is not None and standing.version == version else None

    def _began_with(self, opening: Opening) -> bool:
        return self.standing is not None and self.standing.opening == opening.version


def replicas(run: str) -> Replicas:
    """Return what this worker remembers of a fit."""
    return cast("Replicas", get_worker().plugins[f"{PLUGIN}-{run}"])
