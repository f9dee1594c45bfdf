"""Ends a process in which a test or the teardown after it waits for ever.

pytest-timeout raises an exception in a test that takes too long. Nothing limits what follows it:
the teardown of fixtures, or a ``with`` that waits for a thread or a process. Nor can an exception
be raised in compiled code. Here the process ends with the stacks of its threads; pytest-xdist then
reports the test as failed, and the run ends.
"""

import faulthandler
import os
from collections.abc import Iterator

import pytest

TEST = 400.0  # seconds; more than the timeout of pytest.ini_options
TEARDOWN = 120.0  # seconds of the fixtures; clusters take a few
EXIT = 60.0  # seconds to end the run
STDERR = pytest.StashKey[int]()


def pytest_configure(config: pytest.Config) -> None:
    """Keep standard error, which is redirected while a test runs."""
    config.stash[STDERR] = os.dup(2)


def end_after(seconds: float, config: pytest.Config) -> None:
    """End the process after so many seconds; the last call of it counts."""
    faulthandler.dump_traceback_later(seconds, exit=True, file=config.stash[STDERR])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Limit a test with its fixtures."""
    end_after(TEST, item.config)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """Limit the teardown: a failure has ended all other limits."""
    end_after(TEARDOWN, item.config)
    return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> Iterator[None]:
    """Limit the end of the run and the exit of the process.

    A worker of pytest-xdist waits for the other ones; xdist ends it.
    """
    if not hasattr(session.config, "workerinput"):
        end_after(EXIT, session.config)
    return (yield)
