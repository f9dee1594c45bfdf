"""Fuzz target: a checkpoint of any bytes is refused, or a fit continues from it."""

import random
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
from model_file import resign

from coblock import IRM
from coblock.loading import Unfinished

SWEEPS = 2  # for which an accepted checkpoint continues
FITS = (  # sweep at which it is stopped, parameters: every phase that a file can contain
    (1, {}),
    (5, {}),
    (170, {}),  # chains
    (70, {"batch_size": 3, "relation": "directed"}),  # averages in batches
    (2, {"refine": False, "inference": "acvb", "relation": "directed"}),
    (3, {"refine": False, "init": "random", "n_init": 2, "tol": 0.0, "max_iter": 2}),
    (2, {"inference": "gibbs", "relation": "undirected", "max_iter": 6}),
)


class StopError(Exception):
    """Ends a fit, with a checkpoint of that sweep."""


def seeds() -> list[bytes]:
    """Return checkpoints of small fits."""
    X = np.kron(np.eye(2), np.ones((3, 3))) - np.eye(6)
    X[0, 5] = 1.0
    found = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "fit.checkpoint"
        for sweep, parameters in FITS:
            model = IRM(random_state=0, checkpoint=path, callback=_stop(sweep), **parameters)
            try:
                model.fit(X)
            except StopError:
                found.append(path.read_bytes())
                path.unlink()
    assert len(found) == len(FITS), "a fit has ended before it could be stopped"
    return found


def read(path: Path, random_numbers: random.Random) -> None:
    """Continue from a file; three of four are forged or signed first, so that they are parsed."""
    resign(path, random_numbers)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        with Unfinished.open(path) as unfinished:
            unfinished.model.set_params(callback=_stop(SWEEPS), verbose=0)
            try:
                unfinished.fit(keep=True)
            except StopError:
                return


def _stop(number: int) -> Callable[[object], None]:
    """Return a callback that stops a fit after so many sweeps."""
    seen = 0

    def count(_sweep: object) -> None:
        nonlocal seen
        seen += 1
        if seen >= number:
            raise StopError

    return count
