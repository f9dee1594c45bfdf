"""Clusters of worker processes that start at once."""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import dask
from distributed import LocalCluster
from distributed.utils import get_mp_context

FORKED = {"distributed.worker.multiprocessing-method": "forkserver"}


@contextmanager
def worker_processes(number: int) -> Iterator[LocalCluster]:
    """Start so many workers with a thread each, and others where they are lost.

    Importing coblock takes two seconds. So workers are forked, where that is safe, from a process
    without threads that has done it.
    """
    with dask.config.set(FORKED if sys.platform == "linux" else {}):
        if sys.platform == "linux":
            get_mp_context().set_forkserver_preload(["coblock.distributed.engine"])
        with LocalCluster(
            n_workers=number,
            threads_per_worker=1,
            processes=True,
            dashboard_address=":0",
            silence_logs=logging.CRITICAL,
        ) as running:
            yield running
