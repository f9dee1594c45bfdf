"""Connections to a cluster: checks, messages, results of tasks, and errors in one sentence."""

import platform
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.metadata import version
from time import monotonic
from typing import Any, TypeVar
from uuid import uuid4
from weakref import WeakKeyDictionary

from distributed import Client, Future, KilledWorker, Scheduler, Security, futures_of, wait
from distributed.client import FutureCancelledError, FuturesCancelledError
from distributed.comm.core import CommClosedError
from distributed.comm.core import connect as open_comm

from coblock.io import refuse

NO_WORKER_TIMEOUT = 60.0  # seconds without any worker before a fit ends
CONNECT_TIMEOUT = 2.0  # seconds for a direct connection from the client to a worker
POLL_INTERVAL = 2.0  # seconds between two checks of the cluster while tasks run
PACKAGES = ("coblock", "numba", "numpy", "scipy")  # whose versions must agree for equal bits
Message = TypeVar("Message")


class ClusterError(RuntimeError):
    """The cluster cannot be reached, is unsuitable, or was lost; the message says what to do."""


def connect(
    client: Client | str | None, security: Security | None = None, timeout: float = 10.0
) -> Client:
    """Return a client that is connected to workers with the same versions.

    None takes the client that was created last. ``security`` are the certificates for an address.
    ``timeout`` is in seconds, for the scheduler and for a first worker. A client that is opened
    here is closed if it is refused.
    """
    try:
        client = Client.current() if client is None else client
        options: dict[str, Any] = {"timeout": timeout, "set_as_default": False}
        options["security"] = security
        found = client if isinstance(client, Client) else Client(client, **options)
    except (OSError, ValueError, TypeError) as error:
        msg = (
            f"No scheduler answers at {client!r} ({type(error).__name__}). Start one with: dask "
            "scheduler, and pass the address that it prints, like tcp://host:8786. A scheduler "
            "with TLS has an address like tls://host:8786 and needs certificates: security=."
        )
        if client is None:
            msg = (
                "There is no client. Pass client='tcp://host:8786', the address that dask "
                "scheduler prints, or a distributed.Client."
            )
        raise ClusterError(msg) from None
    try:
        check_cluster(found, timeout)
    except BaseException:
        if found is not client:
            found.close()
        raise
    return found


def check_cluster(client: Client, timeout: float) -> None:
    """Refuse a client without a scheduler, without workers, or with other versions there."""
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
            found = f"Worker {address} has other versions than this machine: {wrong}."
            advice = "Install the same on all machines and start the workers again."
            refuse(f"{found} {advice}", ClusterError)


def address_of(client: Client) -> str:
    """Return the address of the scheduler."""
    return str(client.scheduler_info(n_workers=0)["address"])


def task_key(name: str) -> str:
    """Return a new key; the dashboard shows the part before the number."""
    return f"coblock-{name}-{uuid4().hex}"


def send(message: Message) -> Message:
    """Return a message as the result of a task, which Dask can compute again."""
    return message


def send_message(client: Client, message: Any, name: str) -> Future:
    """Return a task whose result is a message; Dask recommends this for large arguments."""
    with plain_errors(client), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sending large graph")
        return client.submit(send, message, key=task_key(name))


def gather_results(client: Client, futures: Sequence[Any]) -> list[Any]:
    """Return the results of all tasks, nested as they are; raise an error if workers stay away."""
    flat, last_seen, known = futures_of(futures), monotonic(), None
    with plain_errors(client), client.as_current():
        while not all(future.done() for future in flat):
            with suppress(TimeoutError):
                wait(flat, timeout=POLL_INTERVAL)
                break
            if client.status != "running":  # tasks that were submitted since then never end
                raise CommClosedError
            workers = set(client.scheduler_info(n_workers=-1)["workers"])
            if workers:
                last_seen = monotonic()
            if workers and workers != known:
                known = workers
                client.run_on_scheduler(free_tasks)
            cause = client.run_on_scheduler(find_failure, [future.key for future in flat])
            error = None if cause is None else Future(cause, client).exception()
            if error is not None:
                raise error
            if monotonic() - last_seen > NO_WORKER_TIMEOUT:
                msg = (
                    f"There has been no worker for {NO_WORKER_TIMEOUT:.0f} s. Start workers with: "
                    f"dask worker {address_of(client)}, and fit again; a fit with a checkpoint "
                    "continues from it."
                )
                raise ClusterError(msg)
        failed = [future for future in flat if future.status == "error"]
        for error in filter(None, (future.exception() for future in failed)):
            raise error
        if failed:  # they depend on a failed task whose error Dask has dropped
            client.retry(failed)
            return gather_results(client, futures)
        if client not in _reached:
            workers, options = client.scheduler_info(n_workers=1)["workers"], client.connection_args
            _reached[client] = client.sync(_can_connect, list(workers), options)
        return client.gather(list(futures), direct=_reached[client])


def free_tasks(dask_scheduler: Scheduler) -> None:
    """Let tasks run anywhere whose preferred workers are gone.

    Dask does so when it first assigns them, but not where there was no worker at that time.
    """
    freed = [ts for ts in dask_scheduler.unrunnable if ts.loose_restrictions]
    for ts in freed:
        ts.worker_restrictions = set()
    if freed and dask_scheduler.workers:
        recommended: Any = {ts.key: "processing" for ts in freed}
        dask_scheduler.transitions(recommended, stimulus_id=task_key("free"))


def find_failure(keys: Sequence[Any], dask_scheduler: Scheduler) -> Any:
    """Return the failed task that waiting ones depend on, directly or not; None if there is none.

    Dask leaves tasks waiting that are to run again when one that they need has failed already.
    """
    found = [dask_scheduler.tasks[key] for key in keys if key in dask_scheduler.tasks]
    seen = set(found)
    while found:
        ts = found.pop()
        if ts.state == "erred" and ts.exception_blame is not None:
            return ts.exception_blame.key
        needed = (ts.waiting_on or set()) - seen if ts.state == "waiting" else set()
        seen |= needed
        found += needed
    return None


_reached: WeakKeyDictionary[Client, bool] = WeakKeyDictionary()


async def _can_connect(workers: list[str], options: dict[str, Any]) -> bool:
    """Return whether the client can connect to a worker; else the scheduler forwards results."""
    with suppress(OSError):
        for worker in workers:
            comm = await open_comm(worker, timeout=CONNECT_TIMEOUT, **options)
            await comm.close()
            return True
    return False


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
