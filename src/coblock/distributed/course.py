"""A sweep as one graph: every turn of a shard goes on from what the turns before it have left."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, TypeAlias
from uuid import uuid4

from distributed import Client, Future

from coblock.distributed import tasks
from coblock.distributed.connection import ask
from coblock.distributed.replica import Answer, Opening, Reordered, Terms, Turned
from coblock.distributed.tasks import Errand
from coblock.kernels import Indices

SIDES = ("rows", "columns")
LONGEST = 400  # turns that somebody may not have heard of before everything is told anew
GATHERINGS = 4  # of answers, in a sweep
Tell: TypeAlias = Callable[[], tuple[Future, Opening]]  # memberships and counts as they stand


@dataclass(frozen=True, slots=True)
class Turn:
    """What shards of one domain do against the same counts."""

    what: str
    d: int
    errands: list[tuple[int, Errand]]  # by shard


@dataclass
class Course:
    """Turns that are on their way, and what workers have heard of those before.

    Workers remember memberships and counts. A turn brings what its shard has not heard of since
    its last one, from worker to worker. If a worker was lost, somebody lacks something; then
    the turns that are left begin anew from what the client knows.
    """

    client: Client
    run: str
    version: int = 0
    _subject: object = None  # whose memberships workers remember
    _opening: tuple[Future, Opening] | None = None
    _done: list[tuple[int, list[Any]]] = field(default_factory=list)  # versions and their answers
    _heard: dict[tuple[int, int], int] = field(default_factory=dict)  # last version, by shard
    _turns: deque[Turn] = field(default_factory=deque)
    _posted: deque[list[Future]] = field(default_factory=deque)
    _gathered: deque[list[Answer]] = field(default_factory=deque)
    _together: int = 1  # turns whose answers are gathered at once, at least
    _terms: Terms | None = None
    _shards: tuple[list[Future], list[Future]] = ([], [])

    @property
    def is_under_way(self) -> bool:
        """Whether there are turns whose answers nobody has taken."""
        return bool(self._turns)

    def follow(self, subject: object) -> None:
        """Begin anew, unless it is the same subject that workers remember."""
        if subject is None or self._subject is not subject:
            self.break_off()
        self._subject = subject

    def reorder(self, before: object, after: object, order: list[Indices]) -> None:
        """Go on with another subject: the one before with its clusters in this order."""
        if self._subject is before and self._opening is not None and not self._turns:
            self.version += 1
            self._done.append((self.version, [Reordered(self.version, tuple(order))]))
            self._subject = after

    def break_off(self) -> None:
        """Forget what workers remember: the next turns begin anew."""
        self._opening = None
        self._done.clear()
        self._heard.clear()
        for queue in (self._turns, self._posted, self._gathered):
            queue.clear()

    def post(
        self,
        turns: list[Turn],
        terms: Terms,
        shards: tuple[list[Future], list[Future]],
        tell: Tell,
    ) -> None:
        """Send all turns of a sweep to the workers; ``tell`` says how things stand."""
        if self._turns or len(self._done) > LONGEST:
            self.break_off()
        if self._opening is None:
            self.version += 1
            future, opening = tell()
            self._opening = future, _kept(opening, self.version)
        self._turns, self._terms, self._shards = deque(turns), terms, shards
        graph: dict[str, Any] = {}
        sweep = uuid4().hex
        told = f"coblock-tell-terms-{sweep}"
        graph[told] = (tasks.carry, terms)
        keys = [self._add(graph, turn, told, sweep) for turn in turns]
        futures = iter(self.client.get(graph, [key for some in keys for key in some], sync=False))
        self._posted = deque([next(futures) for _ in some] for some in keys)
        self._together = -(-len(turns) // GATHERINGS)
        self._done = [*self._done[: -len(turns)], *self._with_futures(len(turns))]
        self._let_go()

    def take(self, tell: Tell) -> list[Turned]:
        """Return the answers of the next turn; if somebody lacked something, begin anew there."""
        while True:
            if not self._gathered:
                self._gather()
            answers = self._gathered.popleft()
            turned = [answer for answer in answers if isinstance(answer, Turned)]
            if len(turned) == len(answers):
                self._turns.popleft()
                return turned
            turns, terms = list(self._turns), self._terms
            assert terms is not None
            self.break_off()
            self.post(turns, terms, self._shards, tell)

    def _add(self, graph: dict[str, Any], turn: Turn, terms: str, sweep: str) -> list[str]:
        """Add the tasks of a turn to the graph."""
        assert self._opening is not None
        keys = []
        for s, errand in turn.errands:
            heard = self._heard.get((turn.d, s))
            base, opening = self._opening if heard is None else (None, None)
            before = [answers for version, answers in self._done if version > (heard or 0)]
            key = f"coblock-{turn.what}-{SIDES[turn.d]}-{sweep}-{self.version + 1}-{s}"
            shard = self._shards[turn.d][s]
            graph[key] = (tasks.turn, shard, self.run, self.version, base, opening, before)
            graph[key] += (terms, errand)
            self._heard[turn.d, s] = self.version
            keys.append(key)
        self.version += 1
        self._done.append((self.version, keys))
        return keys

    def _with_futures(self, turns: int) -> list[tuple[int, list[Any]]]:
        """Return the last turns with futures in the place of keys."""
        first = self.version - turns + 1
        return [(first + t, futures) for t, futures in enumerate(self._posted)]

    def _let_go(self) -> None:
        """Let go of answers that every shard has heard of."""
        shards = [(d, s) for d in (0, 1) for s in range(len(self._shards[d]))]
        oldest = min(self._heard.get(shard, 0) for shard in shards)
        self._done = [(version, answers) for version, answers in self._done if version > oldest]

    def _gather(self) -> None:
        """Wait for the next turns, and gather with them those that are done."""
        wanted = list(self._posted)[: self._together]
        ask(self.client, [future for some in wanted for future in some], gather=False)
        ready = list(takewhile(lambda some: all(f.done() for f in some), self._posted))
        answers = iter(ask(self.client, [future for some in ready for future in some]))
        for some in ready:
            self._posted.popleft()
            self._gathered.append([next(answers) for _ in some])


def _kept(opening: Opening, version: int) -> Opening:
    """Return counts that do not change with those of the client."""
    m = (opening.m[0].copy(), opening.m[1].copy())
    return Opening(version, opening.links.copy(), opening.unseen.copy(), m)
