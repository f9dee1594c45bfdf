"""The Dask engine: sweeps and moves of a fit run by the workers of a cluster."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, cast

import numpy as np
from distributed import Client, Future, Security
from sklearn.utils.validation import check_is_fitted

from coblock.distributed import memberships, tasks
from coblock.distributed.client import address_of, connect, plain_errors
from coblock.distributed.labels import LabelWriter, ShardSides, keep_labels
from coblock.distributed.loader import load_shards
from coblock.distributed.memberships import ShardMemberships
from coblock.distributed.multi_engine import ShareScorer, open_shares
from coblock.distributed.relation import ShardedRelation, ShardPool
from coblock.distributed.replication import (
    Batch,
    BatchDelta,
    Update,
    compact_counts,
    detach,
    match_soft_memberships,
)
from coblock.distributed.singular import ShardedLinks
from coblock.distributed.tasks import Prior, Tables
from coblock.estimator import IRM
from coblock.inference import engine as local
from coblock.inference.draws import UniformDraws
from coblock.inference.engine import Answer, Item, Schedule, SoftSweep, Split
from coblock.inference.settings import SEARCH, Settings
from coblock.inference.singular import Products
from coblock.io import refuse
from coblock.io.readers.reader import Columns, Reader, TextLayout
from coblock.kernels import Floats, Indices, moves
from coblock.kernels.cvb0 import BatchResult
from coblock.kernels.moves import SideCounts
from coblock.model.checks import Kind
from coblock.model.dataset import Dataset
from coblock.model.partition import Partition
from coblock.model.relation import RelationData
from coblock.model.state import SoftState

METHODS = ("acvb0", "cvb0")  # that update objects in batches


@dataclass(eq=False)
class DaskEngine:
    """Runs the fits of :class:`coblock.IRM` and :class:`coblock.MultiIRM` on a Dask cluster.

    The bits are those of one machine with the same batch sizes and processors of the same kind,
    for any number of workers. Cells, large tables of memberships and many names stay on the
    workers; labels are in a temporary file here.
    ``IRM.fit`` takes a folder of Parquet, CSV or npz files (or one file) with the same path on
    every worker. Names are numbered by first appearance, in the order of the file names; in one
    domain those of all rows come before those of all columns, and edges of an object with itself
    are left out. Only ``inference="acvb0"`` or ``"cvb0"``, and batches of at least 2 objects;
    ``batch_size="auto"`` gives 4 batches of each domain a sweep. Several relations are given to
    :class:`coblock.MultiIRM` in memory, which sends shares of the cells to the workers.

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
    security : distributed.Security or None
        Certificates for the address of a scheduler with TLS, like ``tls://host:8786``. None: those
        of Dask's configuration, if it has any.

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
    security: Security | None = None
    schedule: Schedule = field(default_factory=Schedule, init=False, repr=False)

    def open(
        self, X: Any, unseen: Any, kind: Kind, binarize: float | None, settings: Settings
    ) -> ShardedRelation:
        """Load the edges of a folder on the workers and set the schedule for them."""
        _refuse_local_options(settings, X, unseen)
        client, owned = connect(self.client, self.security), isinstance(self.client, str)
        reader = Reader(kind, Columns(self.row, self.column, self.value), binarize, TextLayout())
        with ExitStack() as opened, plain_errors(client):
            if owned:
                opened.callback(client.close)
            relation = load_shards(client, X, reader, settings.batch_size, self.shards, owned)
            opened.pop_all()
        layouts = relation.pool.layouts
        self.schedule = Schedule((layouts[0].batch, layouts[-1].batch))
        return relation

    def share_relations(
        self, data: Dataset, settings: Settings
    ) -> AbstractContextManager[ShareScorer]:
        """Send the cells of several relations to the workers, which score batches of objects."""
        if self.row or self.column or self.value:
            refuse(
                "row=, column= and value= name columns of edge files, but several relations are "
                "given in memory. Leave them out."
            )
        return open_shares(self.client, self.security, self.shards, data, settings)

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
        """Return the normalised links; workers compute all that is made from them."""
        return ShardedLinks.from_relation(relation)

    def sweep_labels(
        self,
        partition: Partition,
        uniform: Floats | UniformDraws | None = None,
        *,
        limits: tuple[int, ...] | None = None,
        open_clusters: bool = False,
        probability: list[Floats] | None = None,
    ) -> float:
        """Give every object a new label; see :class:`coblock.inference.engine.Engine`."""
        relation, total = _sharded(partition.relation), 0.0
        pool, labels = relation.pool, keep_labels(partition.labels)
        clusters = tuple(m.size for m in partition.m)
        writers = list(map(LabelWriter, labels, clusters))

        def send() -> Future:
            present = [w.present() if w.done else w.before for w in writers]
            return pool.send_labels(present, clusters)

        pool.grow()
        pool.log.continue_from(labels, lambda old, new: new.map_from(old))
        assert uniform is None or isinstance(uniform, UniformDraws)
        update = partial(tasks.give_labels, probability=probability is not None)
        batches = self._batches(pool, update, uniform, count=relation.repeated)
        sweep = ("label", batches, partition.hyper, partition.blocks)
        for objects, delta in pool.log.run(pool.shards, send, *sweep):
            for some, changes in delta.labels:
                writers[delta.d].write(some, changes)
            partition.blocks.apply_delta(delta.d, *delta.changes)
            total += delta.sums.total[0]
            if probability is not None:
                added = [chance.to_dense() for chance in delta.probability]
                probability[delta.d][objects.start : objects.stop] += np.concatenate(added)
        new = [w.finish(m) for w, m in zip(writers, partition.m, strict=True)]
        partition.labels = cast(list[Indices], new)
        pool.log.mark_replicated(new)
        relation.remember_counts(partition.labels, partition.blocks.links, partition.blocks.unseen)
        return total

    def sweep_memberships(self, state: SoftState, step: float = 1.0) -> SoftSweep:
        """Update all memberships by CVB0; see :class:`coblock.inference.engine.Engine`."""
        pool, sizes = _sharded(state.relation).pool, state.relation.sizes
        pool.grow()
        pool.log.continue_from(list(zip(state.q, state.m, strict=True)), match_soft_memberships)
        leave_one_out, entropy, moved = 0.0, 0.0, [0.0] * len(sizes)
        batches = self._batches(pool, partial(tasks.update_memberships, step=step))
        # in one domain a batch changes both ends of its cells, and all counts are made again
        graphs = [[batch] for batch in batches] if state.relation.repeated else [batches]

        def send() -> Future:
            return pool.send_memberships(state.q)

        def run(some: list[Batch]) -> Iterator[tuple[range, BatchDelta]]:
            yield from pool.log.run(pool.shards, send, "update", some, state.hyper, state.blocks)

        for span, delta in chain.from_iterable(map(run, graphs)):
            objects = np.arange(span.start, span.stop, dtype=np.int32)
            d, fresh = delta.d, np.concatenate([q.to_dense() for _, q in delta.memberships])
            totals = delta.sums.total
            leave_one_out, entropy = leave_one_out + totals[0], entropy + totals[1]
            moved[d] += float(np.abs(fresh - state.q[d][objects]).sum())
            whole = BatchResult(local.NO_NUMBERS, local.NO_NUMBERS, fresh, *totals[2:])
            local.apply_batch(state, d, objects, fresh, [whole])
        pool.log.mark_replicated([(q, m.copy()) for q, m in zip(state.q, state.m, strict=True)])
        change = max(total / size for total, size in zip(moved, sizes, strict=True))
        return SoftSweep(leave_one_out, entropy, change)

    def _batches(
        self,
        pool: ShardPool,
        update: Update,
        uniform: UniformDraws | None = None,
        *,
        count: bool = False,
    ) -> list[Batch]:
        """Return the batches of a sweep, with the update of each shard and its random numbers.

        ``count``: the changes are counted in a second round, when all labels are known.
        """
        batches: list[Batch] = []
        for d, objects in self.schedule.spans(tuple(layout.size for layout in pool.layouts)):
            layout, b = pool.layouts[d], objects.start // pool.layouts[d].batch
            before = 0 if d == 0 else pool.layouts[0].size  # numbers of the first domain
            updates: dict[int, Update] = {}
            for s in range(layout.shards):
                held = layout.span(s, b)
                numbers = range(before + held.start, before + held.stop)
                drawn = {"uniform": (uniform, numbers)} if uniform else {}
                if held:
                    updates[s] = partial(update, b=b, **drawn)
            rounds = [updates]
            if count:
                rounds.append(dict.fromkeys(updates, partial(tasks.count_batch, b=b)))
            batches.append((d, objects, rounds))
        return batches

    def keep_labels(self, labels: list[Any]) -> list[Any]:
        """Return labels in temporary files of this process."""
        return keep_labels(labels)

    def conditional_memberships(self, partition: Partition) -> list[Any]:
        """Return p(z_i | all other labels) of every object, by domain.

        Many memberships stay with the shards until they are asked for.
        """
        pool, found = _sharded(partition.relation).pool, list[Any]()
        message = (_send_labels(pool, partition), detach(partition.blocks), partition.hyper.copy())
        for d, layout in enumerate(pool.layouts):
            pieces = pool.submit("condition", tasks.label_probabilities, pool.shards[d], *message)
            order = np.arange(partition.m[d].size, dtype=np.int32)
            found.append(ShardMemberships(pool, layout, pieces, order))
        few = 8 * sum(q.shape[0] * q.shape[1] for q in found) <= memberships.MOST_COLLECTED
        return list(map(np.asarray, found)) if few else found

    def propose_splits(self, partition: Partition, d: int, rng: np.random.Generator) -> list[Split]:
        """Return the best split found of every cluster: its gain, and the side of each member.

        Shards count in whole numbers, so the order of the sums over shards does not matter.
        """
        pool, prior = _sharded(partition.relation).pool, local.shared_prior(partition)
        labels = partition.labels = keep_labels(partition.labels)
        cells, sizes = partition.m[-1 - d].copy(), partition.m[d].astype(np.int64)
        drawn = local.draw_seeds(sizes, rng)
        several = np.flatnonzero(sizes > 1).astype(np.int32)
        clusters = np.repeat(several, drawn.shape[1])
        gains, sides = np.full(sizes.size, -np.inf), None
        if clusters.size:
            message = (pool.shards[d], _send_labels(pool, partition), cells)
            profiles = pool.submit("profile", tasks.shard_profiles, *message)
            pairs = labels[d].find_members(np.repeat(clusters, 2), drawn[several].ravel())
            gain, tables = _run_trials(pool, d, profiles, clusters, pairs, prior)
            best = np.zeros(sizes.size, np.int64)
            for t, k in enumerate(clusters.tolist()):  # the first of equal ones
                if gain[t] > gains[k]:
                    gains[k], best[k] = gain[t], t
            gains += float(np.log(partition.hyper.alpha[d]))
            wanted = gains > SEARCH.least_gain
            wanted[np.argmax(gains)] = True  # may be tried although it does not gain
            accepted = best[wanted]
            counts = [compact_counts(table[accepted]) for table in tables]
            trials = (profiles, clusters[accepted], counts, prior)
            sides = ShardSides(pool.layouts[d], pool.map("split", tasks.find_sides, *trials))
        return [(float(gain), sides) for gain in gains]


def _run_trials(
    pool: ShardPool, d: int, profiles: list[Future], clusters: Indices, seeds: Indices, prior: Prior
) -> tuple[Floats, Tables]:
    """Split clusters around two members; return the gains and the counts that give the sides."""

    def count(name: str, function: Callable[..., Tables], *message: Any) -> Tables:
        results = zip(*pool.map(name, function, profiles, *message), strict=True)
        return [np.stack(tables).sum(0, dtype=np.int64) for tables in results]

    where = (*pool.layouts[d].find(seeds), np.repeat(clusters, 2))
    counted = count("seed", tasks.count_seeds, *where)
    shape, active = (clusters.size, 2, -1), np.arange(clusters.size)
    tables: Tables = [*(table.reshape(shape) for table in counted), np.ones(shape[:2], np.int64)]
    before = [table.copy() for table in tables]
    for _ in range(SEARCH.split_passes):
        message = (clusters[active], [compact_counts(table[active]) for table in tables], prior)
        counted = count("side", tasks.assign_and_count, *message)
        pairs = list(zip(before, tables, counted, strict=True))
        same = [(table[active] == new).reshape(active.size, -1).all(1) for _, table, new in pairs]
        for old, table, new in pairs:
            old[active], table[active] = table[active], new
        active = active[~np.all(same, axis=0)]
        if active.size == 0:
            break
    sides = [SideCounts(*(t.astype(float) for t in row)) for row in zip(*tables, strict=True)]
    gain = np.array([moves.split_gain(s, prior, moves.unsplit_values(s, prior)) for s in sides])
    return gain, before


def _sharded(relation: RelationData) -> ShardedRelation:
    assert isinstance(relation, ShardedRelation)  # an engine opens the relations it works on
    return relation


def _send_labels(pool: ShardPool, partition: Partition) -> Future:
    return pool.send_labels(partition.labels, tuple(m.size for m in partition.m))


def _refuse_local_options(settings: Settings, X: Any, unseen: Any) -> None:
    """Refuse what a cluster cannot do, with what can be done instead."""
    sizes, here = settings.batch_size, "coblock.IRM on one machine."
    if settings.degree_corrected:
        refuse(f"Degree correction is not possible on a cluster yet. Use {here}")
    if settings.inference not in METHODS:
        refuse(
            f"inference={settings.inference!r} updates objects one after another, which a cluster "
            f"cannot. Use one of {', '.join(METHODS)}, or {here}"
        )
    if sizes == 1 or (isinstance(sizes, tuple) and 1 in sizes):
        refuse("batch_size=1 leaves nothing to share between workers. Pass 'auto', or at least 2.")
    if unseen is not None:
        other = "Unseen pairs are edges with a blank value: pass value=."
        refuse(f"unseen= is not possible here. {other}")
    if not isinstance(X, str | Path):
        wanted = "X must be a folder of Parquet, CSV or npz files that the workers see"
        given = f"{type(X).__name__}. For data in memory use coblock.IRM."
        refuse(f"{wanted}, not {given}", TypeError)


class DistributedIRM(IRM):
    """:class:`coblock.IRM` with a :class:`DaskEngine`, made from the parameters of both.

    ``engine``, if it is given, replaces the parameters of the engine.

    Examples
    --------
    >>> from coblock.distributed import DistributedIRM
    >>> model = DistributedIRM("tcp://host:8786").fit("edges/")  # doctest: +SKIP
    """

    def __init__(
        self,
        client: Client | str | None = None,
        *,
        row: str | None = None,
        column: str | None = None,
        value: str | None = None,
        shards: int | None = None,
        security: Security | None = None,
        engine: DaskEngine | None = None,
        **parameters: Any,
    ) -> None:
        engine = engine or DaskEngine(client, row, column, value, shards, security)
        super().__init__(engine=engine, **parameters)

    @classmethod
    def _get_param_names(cls) -> list[str]:
        return list(IRM._get_param_names())

    @property
    def client(self) -> Client | str | None:
        """The client of the engine, or the address of its scheduler."""
        return self.engine.client

    def collect(self) -> "DistributedIRM":
        """Bring the links to this machine; see :func:`collect`."""
        collect(self)
        return self

    def release(self) -> None:
        """Free the memory of the workers; see :func:`release`."""
        release(self)


def collect(model: IRM) -> None:
    """Bring the links of a fitted model to this machine, which needs the memory for them.

    ``IRM.save`` and ``IRM.recommend`` need the links. The memory of the workers is freed.
    """
    check_is_fitted(model)
    relation = model.result_.relation
    if isinstance(relation, ShardedRelation):
        _collect_objects(model)
        model.result_ = replace(model.result_, relation=relation.collect())
        relation.release()


def release(model: IRM) -> None:
    """Free the memory that a fitted model uses on the workers; the model stays usable."""
    check_is_fitted(model)
    if isinstance(model.result_.relation, ShardedRelation):
        _collect_objects(model)
        model.result_.relation.release()


def _collect_objects(model: IRM) -> None:
    """Bring labels, memberships and names to this process, before the workers release them."""
    result = model.result_
    for arrays in (result.labels, result.memberships, result.relation.row_names):
        list(arrays or ())


def fit_on_cluster(edges: str | Path, scheduler: str, **parameters: Any) -> DistributedIRM:
    """Fit the edges of a folder, which has the same path on every worker, on a cluster.

    ``scheduler`` is an address like ``tcp://host:8786``; for ``parameters`` see
    :class:`DistributedIRM`. The links stay on the cluster; see :func:`collect`.
    """
    return DistributedIRM(scheduler, **parameters).fit(edges)
