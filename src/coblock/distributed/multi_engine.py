"""Fits of several relations on a Dask cluster: workers score the batches of large domains."""

import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from distributed import Client, Future, Security

from coblock.distributed.client import (
    connect,
    gather_results,
    plain_errors,
    send,
    send_message,
    task_key,
)
from coblock.distributed.multi_shares import (
    BatchState,
    Frame,
    Share,
    add_zeros,
    list_share,
    score_share,
)
from coblock.inference.multi_search import SEQUENTIAL_UP_TO
from coblock.inference.settings import Settings
from coblock.io import refuse
from coblock.kernels import Indices
from coblock.kernels.tensors import Layout
from coblock.model.dataset import Dataset
from coblock.model.multi_batches import Batch, ThreadScorer
from coblock.model.multi_threads import parts_of

FEWEST_SHARES, MOST_SHARES = 8, 64  # of a domain;
SHARE_OBJECTS = 4096  # objects of a share, in between
LEAST_SPLIT = 1000  # objects of a batch of a split, from which on workers score it
MOST_CHANGED = 0.125  # share of the labels that are sent as changes; beyond, all are sent anew
METHODS = ("acvb0", "cvb0")


@dataclass(eq=False)
class ShareScorer:
    """Scores batches of large domains on workers, each of which holds shares of the objects.

    A share is the result of a task, which Dask runs again if a worker is lost. Every batch has
    three rounds of tasks: the shares list the blocks of the clusters, the gains of zeros are added
    up for some clusters at a time, and the shares score their objects of the batch. The client
    sends the statistics of the blocks and the labels that have changed.

    The client keeps all relations, and computes what takes little time or is sequential: starts,
    moves of objects, counts, hyperparameters, merges, splits of small clusters, domains of up to
    1,000 objects, the chains of small data sets, and the memberships at the end.
    """

    client: Client
    layout: Layout
    frame: Future
    workers: list[str]  # addresses at the start of the fit
    bounds: dict[int, Indices]  # first object of each share, of each large domain
    shares: dict[int, list[Future]]
    _before: tuple[Indices, Future] | None = None  # labels that were sent as a whole
    _last: list[Future] = field(default_factory=list)
    _threads: ThreadScorer = field(default_factory=ThreadScorer)

    @classmethod
    def of(cls, client: Client, data: Dataset, shares: int | None) -> "ShareScorer":
        """Send each share of the cells to a worker."""
        layout = data.layout
        frame = Frame.of(layout, tuple(table.likelihood for table in data.tables))
        workers = sorted(client.nthreads())
        scorer = cls(client, layout, send_message(client, frame, "frame"), workers, {}, {})
        for d, size in enumerate(data.sizes):
            if size <= SEQUENTIAL_UP_TO:
                continue
            wanted = shares or min(max(size // SHARE_OBJECTS, FEWEST_SHARES), MOST_SHARES)
            length = -(-size // wanted)
            scorer.bounds[d] = np.arange(0, size, length, dtype=np.int32)
            scorer.shares[d] = []
            for number, first in enumerate(scorer.bounds[d].tolist()):
                share = Share.of(layout, d, range(first, min(first + length, size)))
                scorer.shares[d].append(scorer._submit("share", number, send, share))
        return scorer

    def new_labels(self, batch: Batch) -> Indices:
        """Return the new label of each object of a batch."""
        used = int(batch.state.n_clusters[batch.d])
        small = batch.objects.size < LEAST_SPLIT and not batch.allowed[:used].all()
        if batch.d not in self.shares or small:
            return self._threads.new_labels(batch)
        assert batch.layout is self.layout  # no counts of degree-corrected relations
        holder = np.searchsorted(self.bounds[batch.d], batch.objects, side="right") - 1
        positions = [np.flatnonzero(holder == s) for s in range(len(self.shares[batch.d]))]
        found = self._submit_batch(batch, positions)
        self._last = list(found.values())  # those before are released after the submission
        label = np.empty(batch.objects.size, np.int32)
        for s, new in zip(found, gather_results(self.client, self._last), strict=True):
            label[positions[s]] = new
        return label

    def _submit_batch(self, batch: Batch, positions: list[Any]) -> dict[int, Future]:
        """Submit the tasks of a batch; return those of the labels, by share."""
        shares, clusters = self.shares[batch.d], parts_of(batch.clusters.size)
        before, sent = self._labels(batch)
        state = send_message(self.client, BatchState.of(batch, before), "state")
        common, found = (self.frame, sent, state), {}
        listed = [
            self._submit("list", s, list_share, share, *common) for s, share in enumerate(shares)
        ]
        zeros = [
            self._submit("zeros", number, add_zeros, part, *common, listed)
            for number, part in enumerate(clusters)
        ]
        for s, at in enumerate(positions):
            if at.size:
                objects = batch.objects[at] - self.bounds[batch.d][s]
                table = (shares[s], *common, objects, batch.uniform[at], zeros)
                found[s] = self._submit("score", s, score_share, *table)
        return found

    def _submit(self, name: str, number: int, task: Any, *arguments: Any) -> Future:
        """Submit a task to the worker of the shares of this number; to any, if it is lost."""
        place = {"workers": [self.workers[number % len(self.workers)]], "allow_other_workers": True}
        with plain_errors(self.client), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Sending large graph")
            return self.client.submit(task, *arguments, key=task_key(name), **place)

    def _labels(self, batch: Batch) -> tuple[Indices, Future]:
        """Return labels that were sent before; they are sent anew if many have changed."""
        label, before = batch.state.label, self._before
        if before is None or np.mean(label != before[0]) > MOST_CHANGED:
            copy = label.copy()
            before = self._before = copy, send_message(self.client, copy, "labels")
        return before

    def release(self) -> None:
        """Free the memory of the workers."""
        self.shares, self._before = {}, None
        self._last.clear()


@contextmanager
def open_shares(
    client: Client | str | None,
    security: Security | None,
    shares: int | None,
    data: Dataset,
    settings: Settings,
) -> Iterator[ShareScorer]:
    """Send the cells of several relations to workers, and release them at the end."""
    refuse_local_settings(data, settings)
    connected, owned = connect(client, security), isinstance(client, str)
    with ExitStack() as opened:
        if owned:
            opened.callback(connected.close)
        scorer = ShareScorer.of(connected, data, shares)
        opened.callback(scorer.release)
        yield scorer


def refuse_local_settings(data: Dataset, settings: Settings) -> None:
    """Refuse what a cluster cannot do, with what can be done instead."""
    here = "or leave engine= out."
    if max(data.sizes) <= SEQUENTIAL_UP_TO:
        refuse(
            f"No domain has more than {SEQUENTIAL_UP_TO:,} objects, so there is nothing to share "
            "between workers. Leave engine= out."
        )
    if settings.inference not in METHODS or not settings.refine:
        plain = "" if settings.refine else " with refine=False"
        refuse(
            f"inference='{settings.inference}'{plain} is not possible on a cluster for several "
            f"relations. Use {' or '.join(METHODS)} with refine=True, {here}"
        )
    for table in data.tables:
        if table.corrected:
            refuse(
                f"Relation '{table.name}' is degree-corrected, which is not possible on a cluster "
                f"yet. Pass degree_corrected=False, {here}"
            )
        if table.filled and table.exposures is not None:
            refuse(
                f"Relation '{table.name}' has exposures and zeros that are not listed, which is "
                f"not possible on a cluster. Pass absent='unseen' with all zeros listed, {here}"
            )
