"""Relations for benchmarks: generated ones, and real ones that are not ours to ship."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy import sparse

from coblock.analysis.evaluation import HeldOut, hold_out
from coblock.generate import Drawn, synth1, synth2

FOLDER = Path(os.environ.get("DATA", Path(__file__).parents[2] / "shared" / "data"))
SYNTHETIC: dict[str, Callable[[int], Drawn]] = {"synth1": synth1, "synth2": synth2}


@dataclass(frozen=True)
class Trial:
    """A relation with a tenth of its cells held out, and the oracle's score where it is known."""

    held: HeldOut
    oracle: float

    @classmethod
    def draw(cls, name: str, seed: int) -> "Trial":
        """Return the trial of this name and seed."""
        if name in SYNTHETIC:
            drawn = SYNTHETIC[name](seed)
            held = hold_out(drawn.X, 0.1, seed)
            return cls(held, drawn.log_likelihood(held.rows, held.columns, held.values))
        return cls(hold_out(load(name), 0.1, seed), np.nan)

    @staticmethod
    def whole(name: str, seed: int) -> sparse.csr_array:
        """Return the same relation with nothing held out."""
        return SYNTHETIC[name](seed).X if name in SYNTHETIC else load(name)


def load(name: str) -> sparse.csr_array:
    """Return a real relation from the folder of the data."""
    path = FOLDER / f"{name}.npz"
    if not path.exists():
        msg = f"There is no {path}. Say DATA=folder where the relations are."
        raise FileNotFoundError(msg)
    return sparse.csr_array(sparse.load_npz(path))
