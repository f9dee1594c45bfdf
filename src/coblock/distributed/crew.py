"""The shards of a relation on a cluster, and how they are asked."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from uuid import uuid4

import numpy as np
from distributed import Client, Future

from coblock.distributed.board import Board
from coblock.distributed.connection import ask
from coblock.distributed.layout import Layout
from coblock.distributed.replica import PLUGIN, Replicas, informed

SIDES = ("rows", "columns")
Layouts: TypeAlias = tuple[Layout, Layout]
Futures: TypeAlias = tuple[list[Future], list[Future]]


@dataclass
class Crew:
    """Shards by row and by column, each the result of a task, and what workers know of the rest."""

    client: Client
    layouts: Layouts
    shards: Futures
    respread: Callable[[int], tuple[Layouts, Futures]] | None = None  # other shards of the data
    run: str = field(default_factory=lambda: uuid4().hex)
    board: Board = field(init=False)
    whereabouts: dict[tuple[int, int], str] = field(default_factory=dict)  # of shards, last time

    _last: list[Future] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Give every worker, and every one that joins, a place for memberships."""
        self.board = Board(self.client, self.run)
        self.client.register_plugin(Replicas(self.run))

    def grow(self) -> None:
        """Make more shards if there are more threads now; workers that left are made up for."""
        now = threads(self.client)
        possible = [min(now, layout.parts) for layout in self.layouts]
        if self.respread is None or possible == [layout.used for layout in self.layouts]:
            return
        if sum(possible) > sum(layout.used for layout in self.layouts):
            self.layouts, self.shards = self.respread(now)
            self.whereabouts.clear()

    def ask(
        self,
        what: str,
        function: Callable[..., Any],
        d: int,
        messages: Iterable[tuple[int, tuple[Any, ...]]],
        shards: list[Future] | None = None,
    ) -> list[Any]:
        """Run a task on shards of domain ``d``; return the answers in the order of the messages.

        Each message is the number of a shard and what the function takes after it.
        """
        futures = self.tell(what, function, d, messages, shards)
        self._last = futures  # those before are let go now: what is sent first travels first
        return ask(self.client, futures)

    def tell(
        self,
        what: str,
        function: Callable[..., Any],
        d: int,
        messages: Iterable[tuple[int, tuple[Any, ...]]],
        shards: list[Future] | None = None,
    ) -> list[Future]:
        """Run a task on shards and leave the results where they are."""
        targets = self.shards[d] if shards is None else shards
        numbers, contents = zip(*messages, strict=True)
        return self.client.map(
            function,
            [targets[s] for s in numbers],
            *zip(*contents, strict=True),
            key=[self.key(what, d) for _ in numbers],
        )

    def ask_informed(
        self,
        what: str,
        function: Callable[..., Any],
        d: int,
        messages: Iterable[tuple[int, tuple[Any, ...]]],
    ) -> list[Any]:
        """Run a task that takes the memberships of both domains, and send them where they lack."""
        pending = dict(enumerate(messages))
        found: dict[int, Any] = {}
        while pending:
            letters = [
                (s, (self.run, self._letter(d, s), self.board.versions, function, *message))
                for s, message in pending.values()
            ]
            answers = self.ask(what, informed, d, letters)
            for t, answer in zip(list(pending), answers, strict=True):
                s = pending[t][0]
                self.whereabouts[d, s] = answer.worker
                if answer.lacking:
                    self.board.known.pop(answer.worker, None)
                else:
                    self.board.known[answer.worker] = self.board.versions
                    found[t] = answer.found
                    del pending[t]
        return [found[t] for t in sorted(found)]

    def _letter(self, d: int, s: int) -> Any:
        return self.board.letter(self.whereabouts.get((d, s)))

    def key(self, what: str, d: int) -> str:
        """Return a name of a task that can be read on the dashboard."""
        return f"coblock-{what}-{SIDES[d]}-{uuid4().hex}"

    def everywhere(self, d: int, *message: Any) -> list[tuple[int, tuple[Any, ...]]]:
        """Return the same message for all shards of a domain."""
        return [(s, message) for s in range(self.layouts[d].used)]

    def whole(self, d: int, answers: list[np.ndarray]) -> np.ndarray:
        """Return one array for all objects from those of the shards."""
        layout = self.layouts[d]
        out = np.empty((layout.size, *answers[0].shape[1:]), answers[0].dtype)
        for s, answer in enumerate(answers):
            out[layout.objects(s)] = answer
        return out

    def close(self) -> None:
        """Let go of everything on the cluster."""
        for futures in self.shards:
            futures.clear()
        for log in self.board.log:
            log.clear()
        if self.client.status == "running":
            self.client.unregister_worker_plugin(f"{PLUGIN}-{self.run}")


def threads(client: Client) -> int:
    """Return how many tasks the workers run at the same time."""
    return max(sum(client.nthreads().values()), 1)
