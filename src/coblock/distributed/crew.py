"""The shards of a relation on a cluster, and how they are asked."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from uuid import uuid4

import numpy as np
from distributed import Client, Future

from coblock.distributed.board import Board
from coblock.distributed.connection import ask
from coblock.distributed.course import SIDES, Course
from coblock.distributed.layout import Layout
from coblock.distributed.replica import PLUGIN, Replicas

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
    course: Course = field(init=False)
    _last: list[Future] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Give every worker, and every one that joins, a place for memberships."""
        self.board, self.course = Board(self.client), Course(self.client, self.run)
        self.client.register_plugin(Replicas(self.run))

    def grow(self) -> None:
        """Make more shards if there are more threads now; workers that left are made up for."""
        now = threads(self.client)
        possible = [min(now, layout.parts) for layout in self.layouts]
        if self.respread is None or possible == [layout.used for layout in self.layouts]:
            return
        if sum(possible) > sum(layout.used for layout in self.layouts):
            self.layouts, self.shards = self.respread(now)
            self.course.break_off()

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
        self.board.forget()
        self.course.break_off()
        if self.client.status == "running":
            self.client.unregister_worker_plugin(f"{PLUGIN}-{self.run}")


def threads(client: Client) -> int:
    """Return how many tasks the workers run at the same time."""
    return max(sum(client.nthreads().values()), 1)
