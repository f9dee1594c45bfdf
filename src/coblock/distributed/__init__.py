"""The same fit on a Dask cluster; needs the packages of ``pip install 'coblock[cluster]'``."""

from typing import TYPE_CHECKING

try:
    import distributed as _distributed
except ModuleNotFoundError as error:
    msg = "A fit on a cluster needs dask and distributed: pip install 'coblock[cluster]'"
    raise ModuleNotFoundError(msg, name=error.name) from None

from coblock.distributed.connection import ClusterError
from coblock.distributed.estimator import DistributedIRM, fit_on_cluster

if TYPE_CHECKING:
    assert _distributed

__all__ = ["ClusterError", "DistributedIRM", "fit_on_cluster"]
