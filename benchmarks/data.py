"""Relations for benchmarks: generated ones, and real ones that may not be distributed."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy import sparse

from coblock.evaluation import hold_out
from coblock.generate import Drawn, synth1, synth2

FOLDER = Path(os.environ.get("DATA", Path(__file__).parents[2] / "shared" / "data"))
SHARE = 0.1  # fraction of all cells held out, as in the paper
SYNTHETIC: dict[str, Callable[[int], Drawn]] = {"synth1": synth1, "synth2": synth2}


@dataclass(frozen=True)
class Trial:
    """A relation without its held-out cells, and those cells with their values."""

    X: sparse.csr_array
    unseen: sparse.csr_array
    rows: np.ndarray
    columns: np.ndarray
    values: np.ndarray
    oracle: float = np.nan  # mean log probability of the cells under the true blocks

    @classmethod
    def draw(cls, name: str, seed: int) -> "Trial":
        """Hold out a tenth of the cells of a relation."""
        drawn = SYNTHETIC[name](seed) if name in SYNTHETIC else None
        held = hold_out(load(name) if drawn is None else drawn.X, SHARE, seed)
        cells = (held.rows, held.columns, held.values)
        oracle = np.nan if drawn is None else drawn.log_likelihood(*cells)
        return cls(held.X, held.unseen, *cells, oracle)

    @property
    def cells(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Rows, columns and values of the held-out cells."""
        return self.rows, self.columns, self.values


def whole_relation(name: str, seed: int) -> sparse.csr_array:
    """Return the relation of a trial with nothing held out."""
    return SYNTHETIC[name](seed).X if name in SYNTHETIC else load(name)


def load(name: str) -> sparse.csr_array:
    """Return a real relation from the data folder."""
    path = FOLDER / f"{name}.npz"
    if not path.exists():
        msg = f"{path} does not exist. Set DATA to the folder that contains the relations."
        raise FileNotFoundError(msg)
    return sparse.csr_array(sparse.load_npz(path))
