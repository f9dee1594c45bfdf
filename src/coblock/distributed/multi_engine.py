"""Fits of several relations on a Dask cluster: workers score the batches of large domains."""

import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

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

    A share is the result of a task, which Dask runs again if a worker is lost. Every batch is one
    graph: the shares list the blocks of the clusters, the gains of zeros are added up for some
    clusters at a time, and the shares score their objects of the batch. The client sends the
    statistics of the blocks and the labels that have changed.

    The client keeps all relations, and computes what takes little time or is sequential: starts,
    moves of objects, counts, hyperparameters, merges, splits of small clusters, domains of up to
    1,000 objects, and the chains of small data sets.
    """

    client: Client
    layout: Layout
    frame: Future
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
        scorer = cls(client, layout, send_message(client, frame, "frame"), {}, {})
        workers = sorted(client.nthreads())
        for d, size in enumerate(data.sizes):
            if size <= SEQUENTIAL_UP_TO:
                continue
            wanted = shares or min(max(size // SHARE_OBJECTS, FEWEST_SHARES), MOST_SHARES)
            length = -(-size // wanted)
            scorer.bounds[d] = np.arange(0, size, length, dtype=np.int32)
            scorer.shares[d] = []
            for number, first in enumerate(scorer.bounds[d].tolist()):
                share = Share.of(layout, d, range(first, min(first + length, size)))
                future = scorer._send_share(share, workers[number % len(workers)])
                scorer.shares[d].append(future)
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
        graph, keys = self._graph(batch, positions)
        with plain_errors(self.client), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Sending large graph")
            futures = self.client.get(graph, list(keys.values()), sync=False)
        self._last = futures  # those before are released after the submission
        label = np.empty(batch.objects.size, np.int32)
        for s, found in zip(keys, gather_results(self.client, futures), strict=True):
            label[positions[s]] = found
        return label

    def _graph(self, batch: Batch, positions: list[Any]) -> tuple[dict[str, Any], dict[int, str]]:
        """Return the tasks of a batch, and the keys of the labels of each share."""
        number, shares = uuid4().hex, self.shares[batch.d]
        before, sent = self._labels(batch)
        state, clusters = f"coblock-state-{number}", parts_of(batch.clusters.size)
        graph: dict[str, Any] = {state: (send, BatchState.of(batch, before))}
        common, listed = (self.frame, sent, state), []
        for s, share in enumerate(shares):
            listed.append(f"coblock-list-{number}-{s}")
            graph[listed[s]] = (list_share, share, *common)
        zeros = [f"coblock-zeros-{number}-{part.start}" for part in clusters]
        for key, part in zip(zeros, clusters, strict=True):
            graph[key] = (add_zeros, part, *common, listed)
        keys = {s: f"coblock-score-{number}-{s}" for s, at in enumerate(positions) if at.size}
        for s, key in keys.items():
            at, first = positions[s], self.bounds[batch.d][s]
            table = (batch.objects[at] - first, batch.uniform[at], zeros)
            graph[key] = (score_share, shares[s], *common, *table)
        return graph, keys

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

    def _send_share(self, share: Share, worker: str) -> Future:
        """Return a task whose result is a share; the scheduler keeps it for lost workers."""
        place = {"workers": [worker], "allow_other_workers": True}
        with plain_errors(self.client), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Sending large graph")
            return self.client.submit(send, share, key=task_key("share"), **place)


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
