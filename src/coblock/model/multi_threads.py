"""Threads that share the work of a fit of several relations; the bits stay the same."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

from joblib import effective_n_jobs

PARTS, SMALLEST_PART = 8, 32  # parts of a batch, for threads; objects of a part

Item = TypeVar("Item")
Answer = TypeVar("Answer")
THREADS: ContextVar[Executor | None] = ContextVar("threads", default=None)


@contextmanager
def use_threads(n_jobs: int | None) -> Iterator[None]:
    """Share batches, merges and chains among so many threads; the bits stay the same."""
    jobs = effective_n_jobs(n_jobs)
    if jobs == 1:
        yield
        return
    with ThreadPoolExecutor(jobs) as threads:
        token = THREADS.set(threads)
        try:
            yield
        finally:
            THREADS.reset(token)


def map_threads(function: Callable[[Item], Answer], items: Sequence[Item]) -> list[Answer]:
    """Return the results for all items, in their order; threads share them if there are some."""
    threads = THREADS.get()
    if threads is None or len(items) == 1:
        return [function(item) for item in items]
    return list(threads.map(function, items))


def parts_of(items: int, smallest: int | None = None) -> list[slice]:
    """Return the parts of a batch that threads share; they do not depend on their number."""
    size = max(-(-items // PARTS), smallest or SMALLEST_PART)
    return [slice(begin, begin + size) for begin in range(0, items, size)]
