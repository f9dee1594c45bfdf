"""The state of the code behind a run: runs of another state are not mixed with it.

A change of the code matters to a run if it changes the result. For the methods that start from
random memberships and update one object after another, this is tested: the state is a digest of the
result of a short fit. The other methods take different paths for different sizes; their state is a
digest of all files that may determine a result.
"""

import hashlib
import json
import warnings
from functools import cache
from pathlib import Path
from typing import Any

from sklearn.exceptions import ConvergenceWarning

import coblock
from paper.experiments import held_out, parameters
from paper.protocol import Limits, fit_held_out

RELATION, CLUSTERS, SWEEPS, SECONDS = "synth1", 6, 200, 3600.0  # of the short fit
DIGITS = 6  # significant ones that are compared
FITTING = ("inference", "kernels", "model")  # folders of coblock that affect results,
OTHER_MODELS = ("multi_", "tensor", "degree", "dataset", "poisson", "categorical", "normal")  # but
PREDICTION = "analysis/prediction.py"
PROTOCOL = ("internals.py", "protocol.py", "timing.py", "naive.py", "shapes.py")


def state_of(method: str) -> str:
    """Return the state of the code for a method."""
    settings = parameters(method, CLUSTERS)
    one_by_one = settings.get("init") == "random" and settings.get("batch_size") == 1
    return digest_of_result(method) if one_by_one else digest_of_files()


@cache
def digest_of_result(method: str) -> str:
    """Return a digest of the result of a short fit."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        record = fit_held_out(held_out(RELATION, method, CLUSTERS), Limits(SECONDS, SWEEPS))
    return _digest(json.dumps(round_numbers(_without_times(record))).encode())


@cache
def digest_of_files() -> str:
    """Return a digest of the files that may determine the result of a fit."""
    source, here = Path(coblock.__file__).parent, Path(__file__).parent
    files = sorted(path for name in FITTING for path in (source / name).rglob("*.py"))
    used = [path for path in files if not path.name.startswith(OTHER_MODELS)]
    every = (*used, source / PREDICTION, *(here / name for name in PROTOCOL))
    return _digest(b"".join(path.name.encode() + path.read_bytes() for path in every))


def round_numbers(value: Any) -> Any:
    """Return nested lists and dictionaries with all numbers rounded to some digits."""
    if isinstance(value, dict):
        return {name: round_numbers(part) for name, part in value.items()}
    if isinstance(value, list):
        return [round_numbers(part) for part in value]
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def _without_times(record: dict[str, Any]) -> dict[str, Any]:
    """Return the parts of a record that do not depend on the machine."""
    kept = {name: value for name, value in record.items() if name != "cpu"}
    kept["passed"] = {name: at["sweep"] for name, at in record["passed"].items()}
    kept["curve"] = [score for _, score in record["curve"]]
    return kept


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:12]
