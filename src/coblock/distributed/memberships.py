"""Memberships at the end of a fit, which stay with the shards until they are asked for."""

from typing import TYPE_CHECKING, Any

import numpy as np
from distributed import Future

from coblock.distributed import tasks
from coblock.distributed.client import gather_results, plain_errors, task_key
from coblock.distributed.tasks import ShardLayout
from coblock.io import refuse
from coblock.kernels import Floats, Indices
from coblock.model.blocks import Blocks
from coblock.model.labels import HardMemberships, StoredMemberships
from coblock.model.sums import chunks

if TYPE_CHECKING:
    from coblock.distributed.relation import ShardedRelation, ShardPool

MOST_COLLECTED = 2**26  # bytes of all memberships that are collected on the client at once


class ShardMemberships(StoredMemberships):
    """Memberships of one domain, a task for each shard; Dask computes lost ones again."""

    def __init__(
        self, pool: "ShardPool", layout: ShardLayout, pieces: list[Future], order: Indices
    ) -> None:
        self.pool, self.layout, self.pieces, self.order = pool, layout, pieces, order
        self.shape = (layout.size, order.size)

    def reorder(self, order: Indices) -> "ShardMemberships":
        """Return the memberships with the clusters in another order."""
        return ShardMemberships(self.pool, self.layout, self.pieces, self.order[order])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Floats:
        """Return the table of all memberships."""
        if self.pool.client.status != "running":
            advice = "Call release(model) after the fit, before the client is closed."
            refuse(f"The memberships of this model were on the cluster. {advice}", RuntimeError)
        table = np.empty(self.shape)
        for s, piece in enumerate(self.pieces):
            (found,) = gather_results(self.pool.client, [piece])
            for shard, at, span in self.layout.positions():
                if shard == s:
                    rows = found.rows(at, at + len(span)).to_dense()
                    table[span.start : span.stop] = rows[:, self.order]
        return table


def count_memberships(relation: "ShardedRelation", memberships: list[StoredMemberships]) -> Blocks:
    """Return the blocks of memberships that are stored on the cluster, or of stored labels.

    The sums have the chunks and the tree of those on one machine.
    """
    pool, repeated = relation.pool, relation.repeated
    clusters = tuple(q.shape[1] for q in memberships)
    hard = [q.labels for q in memberships if isinstance(q, HardMemberships)]
    if hard:
        return Blocks.from_labels(relation, hard, clusters)  # type: ignore[arg-type]
    found: Any = memberships
    totals = [_sum_domain(pool, q, pairs=repeated) for q in found]
    orders, pieces = [q.order for q in found], [q.pieces for q in found]
    layouts = [q.layout for q in found]
    with plain_errors(pool.client):
        snapshot = pool.client.submit(
            tasks.join_memberships, layouts, orders, pieces, key=task_key("snapshot")
        )
    links, unseen = relation.sum_expected(snapshot)
    sums = gather_results(pool.client, totals)
    m = [np.array(sizes) for sizes, _ in sums]
    self_pairs = np.array(sums[0][1]) if repeated else np.zeros(links.shape)
    return Blocks(relation, m, links, unseen, self_pairs, np.zeros((2, clusters[0])))


def _sum_domain(pool: "ShardPool", q: ShardMemberships, *, pairs: bool) -> Future:
    """Return the task whose result is the sum of the memberships of a domain."""
    spans, terms = list(q.layout.positions()), []
    with plain_errors(pool.client):
        for chunk in chunks(q.layout.size):
            rows = []
            for s, at, span in spans:
                first, stop = max(span.start, chunk.start), min(span.stop, chunk.stop)
                if first < stop:
                    there = (at + first - span.start, at + stop - span.start)
                    message = (q.pieces[s], q.order, *there)
                    key = task_key("rows")
                    rows.append(pool.client.submit(tasks.take_rows, *message, key=key))
            terms.append(pool.client.submit(tasks.sum_rows, rows, pairs, key=task_key("sum")))
    return pool.add_in_tree(terms)
