"""Memory of a fit in addition to links, by row and by column, and memberships."""

import subprocess
import sys
from pathlib import Path

import pytest

LIMIT = 2.5  # growth of memory divided by the size of links and memberships
SECONDS = 300  # time limit of a process that takes a few seconds on an idle machine

FIT = """
import ctypes
import gc
import numpy as np
from pathlib import Path
from scipy import sparse
from coblock import IRM

def relation(rows, columns, links, seed=0):
    rng = np.random.default_rng(seed)
    label = [np.arange(size) % 3 for size in (rows, columns)]
    i, j = rng.integers(rows, size=3 * links), rng.integers(columns, size=3 * links)
    kept = (label[0][i] == label[1][j]) | (rng.random(i.size) < 0.1)
    X = sparse.csr_array((np.ones(kept.sum(), np.float32), (i[kept], j[kept])), (rows, columns))
    X.data[:] = 1.0
    return X

def memory(field):
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return 1024 * int(line.split()[1])

def fit(X):
    return IRM(max_clusters=6, random_state=0, n_jobs=2).fit(X)

fit(relation(1200, 900, 10_000))  # loads the kernels
X = relation(40_000, 3_000, 1_200_000)
gc.collect()
ctypes.CDLL(None).malloc_trim(0)  # otherwise the fit reuses freed memory, which is not measured
Path("/proc/self/clear_refs").write_text("5")  # resets the peak
before = memory("VmRSS")
ADDITIONAL
model = fit(X)
assert model.block_probability_.shape == (3, 3)
needed = 2 * 4 * X.nnz + model.row_membership_.nbytes + model.column_membership_.nbytes
print((memory("VmHWM") - before) / needed)
"""


def memory_growth(additional: str) -> float:
    """Return the growth of memory during a fit, divided by the size of links and memberships."""
    command = [sys.executable, "-W", "ignore", "-c", FIT.replace("ADDITIONAL", additional)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    return float(done.stdout)


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs /proc of Linux")
@pytest.mark.parametrize(
    ("additional", "within"),
    [("", True), ("kept = np.ones((X.nnz, 4))", False)],
    ids=["fit", "control"],
)
def test_memory_of_a_fit_is_that_of_links_and_memberships(additional, within):
    assert (memory_growth(additional) < LIMIT) is within
