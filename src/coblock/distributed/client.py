"""Connections to a cluster: checks, waiting for results, and errors in one sentence."""

import platform
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.metadata import version
from time import monotonic
from typing import Any
from weakref import WeakKeyDictionary

from distributed import Client, Future, KilledWorker, get_worker, wait
from distributed.client import FutureCancelledError, FuturesCancelledError
from distributed.comm.core import CommClosedError
from distributed.comm.core import connect as open_comm

NO_WORKER_TIMEOUT = 60.0  # seconds without any worker before a fit ends
CONNECT_TIMEOUT = 2.0  # seconds for a direct connection from the client to a worker
POLL_INTERVAL = 2.0  # seconds between two checks of the cluster while tasks run
PACKAGES = ("coblock", "numba", "numpy", "scipy")  # whose versions must agree for equal bits


class ClusterError(RuntimeError):
    """The cluster cannot be reached, is unsuitable, or was lost; the message says what to do."""


def connect(client: Client | str | None, timeout: float = 10.0) -> Client:
    """Return a client that is connected to workers with the same versions.

    None takes the client that was created last. ``timeout`` is in seconds, for the scheduler and
    for a first worker.
    """
    if not isinstance(client, Client):
        client = _open_client(client, timeout)
    if client.status != "running":
        msg = f"The client is {client.status}, not connected to a scheduler. Create a new one."
        raise ClusterError(msg)
    try:
        client.wait_for_workers(1, timeout=timeout)
    except TimeoutError:
        msg = (
            f"The scheduler at {address_of(client)} has no workers, and none joined in "
            f"{timeout:g} s. Start some with: dask worker {address_of(client)}"
        )
        raise ClusterError(msg) from None
    check_versions(client)
    return client


def _open_client(address: str | None, timeout: float) -> Client:
    if address is None:
        try:
            return Client.current()
        except ValueError:
            msg = (
                "There is no client. Pass client='tcp://host:8786', the address that dask "
                "scheduler prints, or a distributed.Client."
            )
            raise ClusterError(msg) from None
    try:
        return Client(address, timeout=timeout, set_as_default=False)
    except (OSError, ValueError, TypeError) as error:
        msg = (
            f"No scheduler answers at {address!r} ({type(error).__name__}). Start one with: dask "
            "scheduler, and pass the address that it prints, like tcp://host:8786."
        )
        raise ClusterError(msg) from None


def own_versions() -> dict[str, str]:
    """Return the versions of Python and of the packages in this process."""
    return {"python": platform.python_version()} | {name: version(name) for name in PACKAGES}


def check_versions(client: Client, here: dict[str, str] | None = None) -> None:
    """Refuse workers with other versions: results could differ, or could not be unpickled."""
    try:
        there = client.run(own_versions)
    except ModuleNotFoundError as error:
        msg = (
            f"A worker has no package {error.name!r}. Install the same packages on every worker: "
            "pip install 'coblock[cluster]'"
        )
        raise ClusterError(msg) from None
    here = own_versions() if here is None else here
    for address, versions in sorted(there.items()):
        if versions != here:
            pairs = ((name, versions.get(name), here[name]) for name in here)
            wrong = ", ".join(f"{name} {v} not {own}" for name, v, own in pairs if v != own)
            msg = (
                f"Worker {address} has other versions than this machine: {wrong}. "
                "Install the same on all machines and start the workers again."
            )
            raise ClusterError(msg)


def gather_results(client: Client, futures: Sequence[Future]) -> list[Any]:
    """Return the results of all tasks; raise an error if all workers stay away."""
    last_seen = monotonic()
    with plain_errors(client), client.as_current():
        while not all(future.done() for future in futures):
            with suppress(TimeoutError):
                wait(list(futures), timeout=POLL_INTERVAL)
                break
            if client.status != "running":  # tasks that were submitted since then never end
                raise CommClosedError
            if client.scheduler_info(n_workers=1)["workers"]:
                last_seen = monotonic()
            if monotonic() - last_seen > NO_WORKER_TIMEOUT:
                msg = (
                    f"There has been no worker for {NO_WORKER_TIMEOUT:.0f} s. Start workers with: "
                    f"dask worker {address_of(client)}, and fit again; a fit with a checkpoint "
                    "continues from it."
                )
                raise ClusterError(msg)
        return client.gather(list(futures), direct=_reaches_workers(client))


_reached: WeakKeyDictionary[Client, bool] = WeakKeyDictionary()


def _reaches_workers(client: Client) -> bool:
    """Return whether the client can connect to workers; else the scheduler forwards results."""
    if client not in _reached:
        workers = list(client.scheduler_info(n_workers=1)["workers"])
        options = client.connection_args
        _reached[client] = bool(workers) and client.sync(_can_connect, workers[0], options)
    return _reached[client]


async def _can_connect(worker: str, options: dict[str, Any]) -> bool:
    try:
        comm = await open_comm(worker, timeout=CONNECT_TIMEOUT, **options)
    except OSError:
        return False
    await comm.close()
    return True


@contextmanager
def plain_errors(client: Client) -> Iterator[None]:
    """Turn errors of Dask into one sentence about the cluster."""
    try:
        yield
    except KilledWorker as error:
        msg = (
            f"A task failed because {error.allowed_failures + 1} workers died while running it; "
            "their logs say why (memory?). Give the workers more memory, or start more of them; "
            "for machines that are often preempted raise distributed.scheduler.allowed-failures."
        )
        raise ClusterError(msg) from None
    except (OSError, FutureCancelledError, FuturesCancelledError) as error:
        if not isinstance(error, CommClosedError) and client.status == "running":
            raise
        msg = (
            "The scheduler was lost. Start it and its workers again, and fit again; a fit with "
            "a checkpoint continues from it."
        )
        raise ClusterError(msg) from None


def this_worker() -> str:
    """Return the address of the worker that runs the task."""
    return str(get_worker().address)


def address_of(client: Client) -> str:
    """Return the address of the scheduler."""
    return str(client.scheduler_info(n_workers=0)["address"])
