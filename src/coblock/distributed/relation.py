"""A relation whose links live on a cluster."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from distributed import Future
from scipy import sparse

from coblock.distributed import tasks
from coblock.distributed.connection import ask
from coblock.distributed.crew import Crew
from coblock.distributed.shard import writable
from coblock.kernels import BIPARTITE, Floats, Indices, Place
from coblock.model.counts import Changes, Sums
from coblock.model.relation import Relation


@dataclass
class ClusterRelation:
    """What a fit asks of a bipartite :class:`coblock.Relation`, answered by workers."""

    shape: tuple[int, int]
    n_links: int
    n_unseen: int
    crew: Crew | None
    row_names: tuple[str, ...] | None = None
    column_names: tuple[str, ...] | None = None
    kind: str = "bipartite"
    code: int = BIPARTITE
    one_domain: bool = False
    fitting: bool = True
    self_link: Floats = field(default_factory=lambda: np.zeros(0))
    self_seen: Floats = field(default_factory=lambda: np.zeros(0))
    _counted: tuple[list[Indices], Floats, Floats] | None = field(default=None, repr=False)

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many objects each domain has."""
        return self.shape

    @property
    def n_cells(self) -> int:
        """How many cells are observed."""
        return self.shape[0] * self.shape[1] - self.n_unseen

    @property
    def density(self) -> float:
        """Links per observed cell, 0 where no cell is observed."""
        return self.n_links / self.n_cells if self.n_cells else 0.0

    @property
    def places(self) -> tuple[tuple[Place], tuple[Place]]:
        """Nothing, while a fit hands it on unread; after it links have to be brought here."""
        if not self.fitting:
            msg = (
                "The links of this model are on the cluster. Call collect() to bring them to this "
                "machine, if they fit."
            )
            raise RuntimeError(msg)
        start, end = np.zeros(1, np.int64), np.zeros(0, np.int32)
        nothing = Place(start, end, start, end)
        return (nothing,), (nothing,)

    def at_work(self) -> Crew:
        """Return the crew, which must still be there."""
        if self.crew is None:
            msg = "The links of this model are no longer on a cluster. Fit again."
            raise RuntimeError(msg)
        return self.crew

    def cells(self, labels: list[Indices], clusters: tuple[int, int]) -> tuple[Floats, Floats]:
        """Return how many links, and unseen cells, each block of a hard partition has."""
        tables = self._folded(labels, clusters)
        if tables is None:
            tables = self._count(self.at_work().board.labels(labels, clusters))
        self._counted = ([label.copy() for label in labels], *tables)
        return tables[0].copy(), tables[1].copy()

    def _folded(
        self, labels: list[Indices], clusters: tuple[int, int]
    ) -> tuple[Floats, Floats] | None:
        """Return the counts if clusters were merged or numbered anew since they were counted."""
        if self._counted is None:
            return None
        targets = [
            _targets(before, now) for before, now in zip(self._counted[0], labels, strict=True)
        ]
        if targets[0] is None or targets[1] is None:
            return None
        folded = []
        for table in self._counted[1:]:
            out = np.zeros(clusters)
            in_use = table[: targets[0].size, : targets[1].size]
            np.add.at(out, np.ix_(targets[0], targets[1]), in_use)
            folded.append(out)
        return folded[0], folded[1]

    def note(self, labels: list[Indices], sums: Sums) -> None:
        """Keep the counts of labels that were not asked for here."""
        tables = sums.links.copy(), sums.unseen.copy()
        self._counted = ([label.copy() for label in labels], *tables)

    def note_change(self, d: int, objects: Indices, labels: Indices, change: Changes) -> None:
        """Keep what new labels of some objects have changed."""
        assert self._counted is not None
        known, links, unseen = self._counted
        known[d][objects] = labels
        links += change[1].T if d == 0 else change[1]
        unseen += change[2].T if d == 0 else change[2]

    def _count(self, base: Future) -> tuple[Floats, Floats]:
        crew = self.at_work()
        messages = crew.everywhere(0, crew.run, base)
        tables = crew.ask("count", tasks.count_cells, 0, messages)
        links, unseen = (np.sum(table, axis=0) for table in zip(*tables, strict=True))
        return links, unseen

    def products(self, q: list[Floats], sure: list[Indices]) -> tuple[Floats, Floats]:
        """Return the sums over links, and over unseen cells, of q_ik q_jl.

        One machine adds them object after object. So do the shards: each goes on where the one
        before it has ended. Sums for labels are whole numbers and are made side by side.
        """
        crew = self.at_work()
        if all((labels >= 0).all() for labels in sure):
            return self._count(crew.board.labels(sure, (q[0].shape[1], q[1].shape[1])))
        base = crew.board.memberships(q)
        sums: Any = None
        layout = crew.layouts[0]
        for b in range(layout.batches):
            for s in range(layout.used):
                if layout.parts_of(s, b):
                    message = (sums, crew.shards[0][s], crew.run, base, b)
                    key = crew.key("products", 0)
                    sums = crew.client.submit(tasks.add_products, *message, key=key)
        links, unseen = ask(crew.client, [sums])[0]
        return writable(links), writable(unseen)

    def collect(self) -> Relation:
        """Return the relation with all its links on this machine."""
        crew = self.at_work()
        layout = crew.layouts[0]
        places = crew.ask("collect", _place, 0, crew.everywhere(0))
        order = np.argsort(np.concatenate([layout.objects(s) for s in range(layout.used)]))
        columns = self.shape[1]
        patterns = []
        for start, end in ((0, 1), (2, 3)):
            pieces = [
                sparse.csr_array(
                    (np.ones(p[end].size), p[end], p[start]), shape=(p[start].size - 1, columns)
                )
                for p in places
            ]
            patterns.append(sparse.csr_array(sparse.vstack(pieces, format="csr")[order]))
        return Relation.from_patterns(
            *patterns, row_names=self.row_names, column_names=self.column_names
        )

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"crew": None, "_counted": None}


def _targets(before: Indices, now: Indices) -> Indices | None:
    """Return where each cluster has gone, if none was parted."""
    target = np.zeros(int(before.max()) + 1, dtype=np.int32)
    target[before] = now
    return target if np.array_equal(target[before], now) else None


def _place(shard: Any) -> tuple[np.ndarray, ...]:
    return tuple(shard.place)
