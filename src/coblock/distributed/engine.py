"""The Dask engine: sweeps and moves of a fit run by the workers of a cluster."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from distributed import Client, Future

from coblock.distributed import tasks
from coblock.distributed.client import address_of, connect, plain_errors
from coblock.distributed.delta_log import BatchStep
from coblock.distributed.loader import load_shards
from coblock.distributed.relation import ShardedLinks, ShardedRelation, as_sharded
from coblock.distributed.replication import CountSnapshot, total_delta
from coblock.distributed.shards import ShardPool
from coblock.distributed.split import split_clusters
from coblock.distributed.tasks import BatchTask
from coblock.inference.engine import Answer, Item, SoftSweep, Split, apply_batch
from coblock.inference.schedule import Schedule
from coblock.inference.settings import Settings
from coblock.inference.start import Products
from coblock.io.readers import Reader
from coblock.io.readers.edges import Columns
from coblock.io.readers.text import TextLayout
from coblock.kernels import Floats
from coblock.model.partition import Partition
from coblock.model.state import SoftState

METHODS = ("acvb0", "cvb0")  # that update objects in batches


@dataclass(eq=False)
class DaskEngine:
    """Runs the fits of :class:`coblock.IRM` on a Dask cluster.

    The bits are those of one machine with the same batch sizes and processors of the same kind,
    for any number of workers. Cells stay on the workers; memberships and names are kept here.
    ``IRM.fit`` takes a folder of Parquet, CSV or npz files (or one file) with the same path on
    every worker. Names are numbered by first appearance, in the order of the file names. Only
    bipartite relations, ``inference="acvb0"`` or ``"cvb0"``, and batches of at least 2 objects;
    ``batch_size="auto"`` gives 4 batches of rows and of columns a sweep (16 on one machine).

    Parameters
    ----------
    client : distributed.Client, str or None
        A client, the address of a scheduler, or None for the client that was created last.
    row, column, value : str or None
        Columns of the edge files; by default the first two, and every edge is a link. An edge
        with a blank value is an unseen cell.
    shards : int or None
        Number of shards of the rows and of the columns. None: the number of threads, and more
        when workers join. The result does not depend on it.

    Examples
    --------
    >>> from coblock import IRM
    >>> from coblock.distributed import DaskEngine
    >>> model = IRM(engine=DaskEngine("tcp://host:8786"))  # doctest: +SKIP
    >>> model.fit("edges/")  # doctest: +SKIP
    """

    client: Client | str | None = None
    row: str | None = None
    column: str | None = None
    value: str | None = None
    shards: int | None = None
    schedule: Schedule = field(default_factory=Schedule, init=False, repr=False)

    def open(
        self, X: Any, unseen: Any, kind: str, binarize: float | None, settings: Settings
    ) -> ShardedRelation:
        """Load the edges of a folder on the workers and set the schedule for them."""
        _refuse_local_options(kind, settings, X, unseen)
        client = connect(self.client)
        reader = Reader(kind, Columns(self.row, self.column, self.value), binarize, TextLayout())
        with plain_errors(client):
            relation = load_shards(client, X, reader, settings.batch_size, self.shards)
        rows, columns = relation.pool.layouts
        self.schedule = Schedule((rows.batch, columns.batch))
        return relation

    def __sklearn_clone__(self) -> "DaskEngine":
        """Return the same engine: there is one connection."""
        return self

    def __getstate__(self) -> dict[str, Any]:
        """Return what is pickled: the address of the scheduler instead of a client."""
        client = self.client
        return vars(self) | {"client": address_of(client) if isinstance(client, Client) else client}

    def map(self, function: Callable[[Item], Answer], items: Iterable[Item]) -> list[Answer]:
        """Return the results for all items, computed in this process."""
        return [function(item) for item in items]

    def normalised_links(self, relation: Any) -> Products:
        """Return the normalised links; workers compute the products."""
        return ShardedLinks.from_relation(relation)

    def sweep_labels(
        self,
        partition: Partition,
        uniform: Floats | None = None,
        *,
        limits: tuple[int, ...] | None = None,
        open_clusters: bool = False,
        probability: list[Floats] | None = None,
        coarse: bool = False,
    ) -> float:
        """Give every object a new label; see :class:`coblock.inference.engine.Engine`."""
        relation, total = as_sharded(partition.relation), 0.0
        pool = relation.pool
        pool.grow()
        pool.log.reset()
        numbers = None if uniform is None else np.split(uniform, [relation.sizes[0]])

        def label(d: int, b: int, objects: range) -> BatchTask:
            drawn = None if numbers is None else numbers[d][objects.start : objects.stop]
            return BatchTask(b, objects, uniform=drawn, probability=probability is not None)

        def snapshot() -> tuple[Future, CountSnapshot]:
            return _send_labels(pool, partition), CountSnapshot.from_blocks(partition.blocks)

        steps = self._steps("label", pool, label)
        for step, deltas in pool.log.run(steps, partition.hyper, pool.shards, snapshot):
            d, objects = step.d, step.objects
            partition.labels[d][objects] = np.concatenate([x.memberships.hard for x in deltas])
            partition.blocks.apply_delta(d, *total_delta(deltas))
            log_normaliser = [part.log_normaliser for delta in deltas for part in delta.parts]
            total += float(np.concatenate(log_normaliser).sum())
            if probability is not None:
                added = [x.probability.to_dense() for x in deltas if x.probability is not None]
                probability[d][objects] += np.concatenate(added)
        relation.remember_counts(partition.labels, partition.blocks.links, partition.blocks.unseen)
        return total

    def sweep_memberships(self, state: SoftState, step: float = 1.0) -> SoftSweep:
        """Update all memberships by CVB0; see :class:`coblock.inference.engine.Engine`."""
        pool, sizes = as_sharded(state.relation).pool, state.relation.sizes
        pool.grow()
        pool.log.continue_from(state.q, state.blocks)
        leave_one_out, entropy, moved = 0.0, 0.0, [0.0] * len(sizes)

        def update(_: int, b: int, objects: range) -> BatchTask:
            return BatchTask(b, objects, step)

        def snapshot() -> tuple[Future, CountSnapshot]:
            counts = CountSnapshot.from_blocks(state.blocks)
            return pool.send_memberships(state.q), counts

        steps = self._steps("update", pool, update)
        for batch, deltas in pool.log.run(steps, state.hyper, pool.shards, snapshot):
            d, objects = batch.d, batch.objects
            results = [part for delta in deltas for part in delta.parts]
            fresh = np.concatenate([delta.memberships.to_dense() for delta in deltas])
            leave_one_out += sum(float(part.log_normaliser.sum()) for part in results)
            entropy += sum(float(part.entropy.sum()) for part in results)
            moved[d] += float(np.abs(fresh - state.q[d][objects]).sum())
            apply_batch(state, d, objects, fresh, results)
        pool.log.mark_replicated(state.q, state.blocks)
        change = max(total / size for total, size in zip(moved, sizes, strict=True))
        return SoftSweep(leave_one_out, entropy, change)

    def conditional_memberships(self, partition: Partition) -> list[Floats]:
        """Return p(z_i | all other labels) of every object, by domain."""
        pool, found = as_sharded(partition.relation).pool, []
        counts = CountSnapshot.from_blocks(partition.blocks)
        message = (pool.run_id, _send_labels(pool, partition), counts, partition.hyper.copy())
        for d in (0, 1):
            results = pool.map("condition", tasks.label_probabilities, pool.shards[d], *message)
            found.append(pool.join(d, [result.to_dense() for result in results]))
        return found

    def propose_splits(self, partition: Partition, d: int, rng: np.random.Generator) -> list[Split]:
        """Return the best split found of every cluster of domain ``d``."""
        pool = as_sharded(partition.relation).pool
        return split_clusters(pool, partition, d, rng, _send_labels(pool, partition))

    def _steps(
        self, name: str, pool: ShardPool, task: Callable[[int, int, range], BatchTask]
    ) -> list[BatchStep]:
        """Return the batches of a sweep, with the task of each shard."""
        steps, sizes = [], tuple(layout.size for layout in pool.layouts)
        for d, objects in self.schedule.batches(sizes):
            layout = pool.layouts[d]
            b = int(objects[0]) // layout.batch
            held = [(s, range(*layout.span(s, b))) for s in range(layout.shards)]
            shards = [(s, task(d, b, some)) for s, some in held if some]
            steps.append(BatchStep(name, d, objects, shards))
        return steps


def _send_labels(pool: ShardPool, partition: Partition) -> Future:
    return pool.send_labels(partition.labels, tuple(m.size for m in partition.m))


def _refuse_local_options(relation: str, settings: Settings, X: Any, unseen: Any) -> None:
    """Refuse what a cluster cannot do, with what can be done instead."""
    msg, sizes = None, settings.batch_size
    if relation != "bipartite":
        msg = (
            f"relation={relation!r} cannot be fitted on a cluster yet, only 'bipartite'. Use "
            "coblock.IRM on one machine."
        )
    elif settings.inference not in METHODS:
        msg = (
            f"inference={settings.inference!r} updates objects one after another, which a cluster "
            f"cannot. Use one of {', '.join(METHODS)}, or coblock.IRM on one machine."
        )
    elif sizes == 1 or (isinstance(sizes, tuple) and 1 in sizes):
        msg = "batch_size=1 leaves nothing to share between workers. Pass 'auto', or at least 2."
    elif unseen is not None:
        msg = (
            "unseen= is not possible here. Unseen pairs are edges with a blank value: pass value=."
        )
    elif not isinstance(X, str | Path):
        msg = (
            f"X must be a folder of Parquet, CSV or npz files that the workers see, not "
            f"{type(X).__name__}. For data in memory use coblock.IRM."
        )
        raise TypeError(msg)
    if msg is not None:
        raise ValueError(msg)
