"""The spectral start on a cluster: links, vectors and k-means are tasks; the client gets labels."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from distributed import Future
from numpy.typing import NDArray

from coblock.distributed.client import gather_results, plain_errors, task_key
from coblock.distributed.labels import LabelFile, SpooledLabels
from coblock.distributed.relation import ShardedRelation, ShardPool
from coblock.distributed.replication import writable
from coblock.distributed.tasks import Shard, ShardLayout, join_shards
from coblock.inference.singular import (
    LEAST_DENSITY,
    cell_counts,
    degree_scales,
    expected_degrees,
    link_product,
    link_rates,
    number_type,
)
from coblock.inference.start import thread_pools
from coblock.kernels import Floats
from coblock.kernels.spectral import LinkScales


@dataclass(frozen=True, slots=True)
class ShardedLinks:
    """The normalised links of a sharded relation; everything made from them is a task."""

    shape: tuple[int, int]
    pool: ShardPool
    scales: tuple[Future, Future]  # of rows and of columns
    density: float

    @classmethod
    def from_relation(cls, relation: ShardedRelation) -> "ShardedLinks":
        """Return the normalised links of a relation."""
        pool, density = relation.pool, max(relation.density, LEAST_DENSITY)
        kind, shape = number_type(relation.shape), relation.shape
        layouts, shards = (pool.layouts[0], pool.layouts[-1]), (pool.shards[0], pool.shards[-1])
        rates, scales = [], []
        for d in (0, 1):
            pieces = pool.submit("rate", shard_rates, shards[d], -d, shape[1 - d], kind)
            rates.append(_call(pool, "rate", join_shards, layouts[d], pieces))
        for d in (0, 1):
            message = (-d, rates[d], rates[1 - d], density)
            pieces = pool.submit("degree", shard_degrees, shards[d], *message)
            scales.append(_call(pool, "scale", join_scales, layouts[d], pieces, rates[d], kind))
        return cls(shape, pool, (scales[0], scales[1]), density)

    def call(self, function: Callable[..., Any], *arguments: Any) -> Future:
        """Return the task that has the result of a function."""
        return _call(self.pool, "start", function, *arguments)

    def product(self, d: int, block: Any) -> Future:
        """Return the task that has the product with ``block``, transposed where ``d`` is 1."""
        pool = self.pool
        message = (-d, self.scales[d], self.scales[1 - d], self.density, block)
        pieces = pool.submit("multiply", shard_product, pool.shards[-d], *message)
        return self.call(join_shards, pool.layouts[-d], pieces)

    def join_labels(self, size: int, clusters: int, tables: list[Any]) -> SpooledLabels:
        """Return the labels of all objects in a file; one table is in memory at a time."""
        file, first = LabelFile.create(size, clusters), 0
        sizes = np.zeros(clusters, np.int64)
        for table in tables:
            (labels,) = gather_results(self.pool.client, [table])
            file.write(range(first, first + labels.size), labels)
            sizes += np.bincount(labels, minlength=clusters)
            first += labels.size
        return SpooledLabels(file, sizes)


def _call(pool: ShardPool, name: str, function: Callable[..., Any], *arguments: Any) -> Future:
    """Return the task that has the result of a function."""
    with plain_errors(pool.client):
        return pool.client.submit(run_alone, function, *arguments, key=task_key(name))


def run_alone(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return the result of a function whose linear algebra uses one thread."""
    with thread_pools().limit(limits=1):
        return function(*arguments)


def join_scales(
    layout: ShardLayout, degrees: list[Floats], rate: NDArray[Any], kind: type[Any]
) -> LinkScales:
    """Return the factors of the cells of all objects from the degrees of those of each shard."""
    return LinkScales(degree_scales(join_shards(layout, degrees)).astype(kind), rate)


def shard_rates(shard: Shard, place: int, others: int, kind: type[Any]) -> NDArray[Any]:
    """Return the links per observed cell of the objects of a shard at a place."""
    return link_rates(*cell_counts(shard.places[place]), others, kind)


def shard_degrees(
    shard: Shard, place: int, rate: Floats, rate_other: Floats, density: float
) -> Floats:
    """Return the expected degrees of the objects of a shard at a place."""
    own = writable(rate)[shard.objects]
    return expected_degrees(shard.places[place], own, writable(rate_other), density)


def shard_product(
    shard: Shard, place: int, own: LinkScales, others: LinkScales, density: float, block: Floats
) -> Floats:
    """Return the product of the normalised links of a shard and a dense block.

    The scales are those of the objects at this place, and of the other ends.
    """
    mine = LinkScales(*(writable(values)[shard.objects] for values in own))
    rest = LinkScales(*map(writable, others))
    return link_product(shard.places[place], mine, rest, density, writable(block))
