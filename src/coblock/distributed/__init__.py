"""Fits on a Dask cluster; needs the packages of ``pip install 'coblock[cluster]'``.

:class:`DaskEngine` runs the sweeps and moves of an ordinary fit on shards of the relation.
Everything that depends on Dask belongs in this folder; mathematics does not.
"""

try:
    import distributed as _distributed  # noqa: F401
except ModuleNotFoundError as error:
    msg = "A fit on a cluster needs dask and distributed: pip install 'coblock[cluster]'"
    raise ModuleNotFoundError(msg, name=error.name) from None

from coblock.distributed.client import ClusterError
from coblock.distributed.engine import DaskEngine, DistributedIRM, collect, fit_on_cluster, release

__all__ = ["ClusterError", "DaskEngine", "DistributedIRM", "collect", "fit_on_cluster", "release"]
