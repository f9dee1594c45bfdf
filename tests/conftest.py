"""Shared fixtures; every state of the kernels gets a compile cache of its own."""

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from time_limits import (  # noqa: F401 - hooks of pytest
    pytest_configure,
    pytest_runtest_protocol,
    pytest_runtest_teardown,
    pytest_sessionfinish,
)

ROOT = Path(__file__).parent.parent
POSIX_ONLY = [
    "test_cli.py",
    "test_commands.py",
    "test_distributed.py",
]  # terminals, limits, signals
collect_ignore = POSIX_ONLY if os.name != "posix" else []
# Files that take long, the longest first: of two workers, none is left with one of them at the end.
# The first two compile different kernels; files that compile the same ones are not neighbours.
LONGEST = (
    "multi", "checkpoint", "distributed", "estimator", "pages", "degrees", "distributed_labels",
    "regimes", "distributed_contract", "multi_inference", "recovery", "distributed_multi", "paper",
    "distributed_copies", "commands", "distributed_sums", "multi_cli", "memory", "multi_checkpoint",
    "kernels", "multi_degrees", "posterior", "report", "browser", "engine", "moves",
)  # fmt: skip


def _kernel_version() -> str:
    """Numba's cache does not see changes in functions that a cached kernel calls."""
    digest = hashlib.sha256()
    for path in sorted((ROOT / "src" / "coblock" / "kernels").glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


os.environ.setdefault("NUMBA_CACHE_DIR", str(ROOT / ".cache" / "numba" / _kernel_version()))
# Dask profiles and watches every process all the time, which takes more than many tests do.
os.environ.setdefault("DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED", "False")
os.environ.setdefault("DASK_DISTRIBUTED__ADMIN__SYSTEM_MONITOR__INTERVAL", "10s")
os.environ.setdefault("DASK_DISTRIBUTED__ADMIN__TICK__INTERVAL", "1s")

settings.register_profile(
    "coblock",
    deadline=None,  # the first example pays for compilation
    derandomize=True,  # the same examples on every run; COBLOCK_SEED=n tries others
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("coblock")


@pytest.fixture(scope="session")
def seed() -> int:
    """Seed of the statistical tests; another one can be asked for."""
    return int(os.environ.get("COBLOCK_SEED", "0"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the files that take longest first; ``--no-loadscope-reorder`` keeps the order."""
    rank = {f"test_{name}.py": place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: rank.get(item.path.name, len(rank)))


@contextmanager
def few_samples() -> Iterator[None]:
    """Let posterior chains end after a few samples, for tests that are not about their averages.

    By default, chains of small relations draw hundreds of samples, most of the time of their fits.
    """
    from coblock.inference import multi_posterior, posterior

    search = posterior.SEARCH
    few = replace(search, most_chained=search.least_samples, chain_burn_in=20, average_tol=1.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(posterior, "SEARCH", few)  # they count as converged
        patch.setattr(multi_posterior, "CHAINS", replace(multi_posterior.CHAINS, most_sweeps=100))
        yield


@pytest.fixture
def short_chains() -> Iterator[None]:
    """Fits of a test have few samples."""
    with few_samples():
        yield


@pytest.fixture(scope="module")
def short_chains_in_file() -> Iterator[None]:
    """Fits of all tests and fixtures of a file have few samples."""
    with few_samples():
        yield


@pytest.fixture(scope="module")
def brief_searches_in_file() -> Iterator[None]:
    """Fits of a file start from fewer clusters, and two failed perturbations end their searches.

    There are two kinds of perturbations. On a cluster, each task takes milliseconds.
    """
    from coblock.inference import fit, search

    brief = replace(search.SEARCH, most_failures=2, start_clusters=24)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "SEARCH", brief)
        patch.setattr(fit, "SEARCH", brief)
        yield
