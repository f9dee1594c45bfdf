"""Memory: what a fit takes beside its links, by row and by column, and its memberships."""

import subprocess
import sys
from pathlib import Path

import pytest

LIMIT = 2.5  # times what links and memberships take
SECONDS = 300  # for a process that takes a few on an idle machine

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

def fitted(X):
    return IRM(max_clusters=6, random_state=0, n_jobs=2).fit(X)

fitted(relation(1200, 900, 10_000))  # kernels are loaded now
X = relation(40_000, 3_000, 1_200_000)
gc.collect()
ctypes.CDLL(None).malloc_trim(0)  # what was freed would be used again unnoticed
Path("/proc/self/clear_refs").write_text("5")  # forgets the peak
before = memory("VmRSS")
HOG
model = fitted(X)
assert model.block_probability_.shape == (3, 3)
needed = 2 * 4 * X.nnz + model.row_membership_.nbytes + model.column_membership_.nbytes
print((memory("VmHWM") - before) / needed)
"""


def growth(hog: str) -> float:
    command = [sys.executable, "-W", "ignore", "-c", FIT.replace("HOG", hog)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    return float(done.stdout)


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="Linux counts memory there")
@pytest.mark.parametrize(
    ("hog", "within"), [("", True), ("kept = np.ones((X.nnz, 4))", False)], ids=["fit", "control"]
)
def test_a_fit_takes_little_beside_its_links_and_memberships(hog, within):
    assert (growth(hog) < LIMIT) is within
