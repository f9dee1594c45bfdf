"""Estimators whose relation is on a cluster."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from distributed import Client
from sklearn.utils.validation import check_is_fitted

from coblock.distributed.client import connect
from coblock.distributed.engine import DaskEngine
from coblock.distributed.relation import ShardedRelation
from coblock.estimator import IRM


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
        engine: DaskEngine | None = None,
        **parameters: Any,
    ) -> None:
        engine = engine or DaskEngine(client, row, column, value, shards)
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
        model.result_ = replace(model.result_, relation=relation.collect())
        relation.release()


def release(model: IRM) -> None:
    """Free the memory that a fitted model uses on the workers; the model stays usable."""
    check_is_fitted(model)
    if isinstance(model.result_.relation, ShardedRelation):
        model.result_.relation.release()


def fit_on_cluster(edges: str | Path, scheduler: str, **parameters: Any) -> DistributedIRM:
    """Fit the edges of a folder, which has the same path on every worker, on a cluster.

    ``scheduler`` is an address like ``tcp://host:8786``; for ``parameters`` see
    :class:`DistributedIRM`. The links stay on the cluster; see :func:`collect`.
    """
    return DistributedIRM(connect(scheduler), **parameters).fit(edges)
