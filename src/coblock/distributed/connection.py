"""The way to a cluster: connecting, checking, asking, and errors in one sentence."""

import platform
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from time import monotonic
from typing import Any
from weakref import WeakKeyDictionary

from distributed import Client, Future, KilledWorker, get_worker, wait
from distributed.client import FutureCancelledError
from distributed.comm.core import CommClosedError
from distributed.comm.core import connect as open_comm

from coblock.io.atomic import WriteError

PATIENCE = 60.0  # seconds without any worker before a fit gives up
KNOCK = 2.0  # seconds that a worker has to answer the client
LOOK_AROUND = 2.0  # seconds between two looks at a slow step
MATTER = (
    "coblock",
    "numba",
    "numpy",
    "scipy",
)  # for the bits, the same everywhere


class ClusterError(RuntimeError):
    """The cluster cannot be reached, does not fit, or was lost; the message says what to do."""


def connect(client: Client | str | None, timeout: float = 10.0) -> Client:
    """Return a client that is connected to workers that fit.

    Parameters
    ----------
    client : Client, address or None
        None takes the client that was made last.
    timeout : float
        Seconds to wait for the scheduler, and for a first worker.
    """
    if not isinstance(client, Client):
        client = _found(client, timeout)
    if client.status != "running":
        msg = f"The client is {client.status}, not connected to a scheduler. Make a new one."
        raise ClusterError(msg)
    try:
        client.wait_for_workers(1, timeout=timeout)
    except TimeoutError:
        msg = (
            f"The scheduler at {address_of(client)} has no workers, and got none in "
            f"{timeout:g} s. Start some with: dask worker {address_of(client)}"
        )
        raise ClusterError(msg) from None
    check_versions(client)
    return client


def _found(address: str | None, timeout: float) -> Client:
    if address is None:
        try:
            return Client.current()
        except ValueError:
            msg = (
                "There is no client. Pass client='tcp://host:8786', the address that dask "
                "scheduler tells, or a distributed.Client."
            )
            raise ClusterError(msg) from None
    try:
        return Client(address, timeout=timeout, set_as_default=False)
    except (OSError, ValueError, TypeError) as error:
        msg = (
            f"No scheduler answers at {address!r} ({type(error).__name__}). Start one with: dask "
            "scheduler, and pass the address that it tells, like tcp://host:8786."
        )
        raise ClusterError(msg) from None


def own_versions() -> dict[str, str]:
    """Return the versions that a fit depends on, of this process."""
    return {"python": platform.python_version()} | {name: version(name) for name in MATTER}


def check_versions(client: Client, here: dict[str, str] | None = None) -> None:
    """Refuse workers that have other versions: results would differ, or not arrive."""
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
            wrong = [name for name in here if versions.get(name) != here[name]]
            told = ", ".join(f"{name} {versions.get(name)} not {here[name]}" for name in wrong)
            msg = (
                f"Worker {address} has other versions than this machine: {told}. Install the same "
                "on all machines and start the workers again."
            )
            raise ClusterError(msg)


def ask(client: Client, futures: Sequence[Future], *, gather: bool = True) -> list[Any]:
    """Return the results of all tasks, or just wait; never for workers that do not come back."""
    with plain_errors(client), client.as_current():
        since: float | None = None
        while True:
            try:
                wait(list(futures), timeout=LOOK_AROUND)
                break
            except TimeoutError:
                if client.status != "running":  # tasks that were sent since then never end
                    raise CommClosedError from None
                there = client.scheduler_info(n_workers=1)["workers"]
                since = None if there else (since or monotonic())
                if since is not None and monotonic() - since > PATIENCE:
                    msg = (
                        f"All workers have been gone for {PATIENCE:.0f} s. Start workers with: "
                        f"dask worker {address_of(client)}, and fit again; a fit with a "
                        "checkpoint goes on where it was."
                    )
                    raise ClusterError(msg) from None
        return client.gather(list(futures), direct=_reaches_workers(client)) if gather else []


_reached: WeakKeyDictionary[Client, bool] = WeakKeyDictionary()


def _reaches_workers(client: Client) -> bool:
    """Say whether answers may come straight from the workers; else the scheduler hands them on."""
    if client not in _reached:
        workers = list(client.scheduler_info(n_workers=1)["workers"])
        _reached[client] = bool(workers) and client.sync(_knock, workers[0], client.connection_args)
    return _reached[client]


async def _knock(worker: str, options: dict[str, Any]) -> bool:
    """Try to open a connection to a worker."""
    try:
        comm = await open_comm(worker, timeout=KNOCK, **options)
    except OSError:
        return False
    await comm.close()
    return True


@contextmanager
def plain_errors(client: Client) -> Iterator[None]:
    """Say in a sentence what has happened to the cluster."""
    try:
        yield
    except KilledWorker as error:
        msg = (
            f"A task was given up after {error.allowed_failures + 1} workers died with it; the "
            "last logs say why (memory?). Give workers more memory, or more workers; for machines "
            "that are taken away often raise distributed.scheduler.allowed-failures."
        )
        raise ClusterError(msg) from None
    except (OSError, FutureCancelledError) as error:
        lost = isinstance(error, CommClosedError) or client.status != "running"
        if not lost or isinstance(error, WriteError):
            raise
        msg = (
            "The scheduler was lost. Start it and its workers again, and fit again; a fit with "
            "a checkpoint goes on where it was."
        )
        raise ClusterError(msg) from None


def this_worker() -> str:
    """Return the address of the worker that runs the task."""
    return str(get_worker().address)


def address_of(client: Client) -> str:
    """Return the address of the scheduler."""
    return str(client.scheduler_info(n_workers=0)["address"])
