"""Finished runs: one JSON file each while they are made, and one tracked file of all of them.

The tracked file has a line for each run and is of one state of the code, a digest of the files that
determine the results. The page is made from it.
"""

import hashlib
import json
import os
import subprocess
import tempfile
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import coblock
from paper.experiments import CONVERGENCE, Job, parameters

ROOT = Path(__file__).parents[2]
FITTING = ("inference", "kernels", "model")  # folders of coblock that affect results: a change in
# any of their files invalidates earlier runs, but for those of other models
OTHER_MODELS = ("multi_", "tensor", "degree", "dataset", "poisson", "categorical", "normal")
PREDICTION = "analysis/prediction.py"
PROTOCOL = ("internals.py", "protocol.py", "timing.py", "naive.py", "shapes.py")
METHODLESS = ("naive", "growth", "missing")  # parts that always run cvb0
DIGITS = 6  # significant ones that are kept of a number
PER_SWEEP = ("bound", "leave_one_out")  # kept of the methods whose convergence is drawn


@dataclass(frozen=True)
class Store:
    """Finished runs: a folder of those being made, and the tracked file of all of them.

    Trials with fewer sweeps have another folder and are not in the tracked file.
    """

    folder: Path
    sweeps: int | None = None
    results: Path | None = None  # the tracked file
    replace: bool = False  # whether runs of another state of the code are left out

    @cached_property
    def state(self) -> str:
        """Digest of the code that determines the results."""
        source, here = Path(coblock.__file__).parent, Path(__file__).parent
        files = sorted(path for name in FITTING for path in (source / name).rglob("*.py"))
        used = [path for path in files if not path.name.startswith(OTHER_MODELS)]
        digest = hashlib.sha256()
        for path in (*used, source / PREDICTION, *(here / name for name in PROTOCOL)):
            digest.update(path.name.encode() + path.read_bytes())
        return digest.hexdigest()[:12]

    @cached_property
    def tracked(self) -> dict[str, dict[str, Any]]:
        """Runs of the tracked file by their keys."""
        if self.results is None or self.sweeps is not None or not self.results.exists():
            return {}
        lines = map(json.loads, self.results.read_text().splitlines())
        runs = {run["key"]: run for run in lines}
        other = {run["state"] for run in runs.values()} - {self.state}
        return {} if other and self.replace else runs

    @property
    def measured_state(self) -> str:
        """State of the code behind the runs of the tracked file, or this one without runs."""
        return next((run["state"] for run in self.tracked.values()), self.state)

    def key(self, job: Job) -> str:
        """Return the name of a run, which ends in a digest of the settings."""
        method = "cvb0" if job.part in METHODLESS else job.method
        settings = json.dumps(parameters(method, job.K), sort_keys=True)
        return f"{job.key}-{hashlib.sha256(settings.encode()).hexdigest()[:6]}"

    @property
    def runs(self) -> Path:
        """Folder of the runs of this state of the code."""
        trial = "" if self.sweeps is None else f"-{self.sweeps}sweeps"
        return self.folder / f"{self.state}{trial}"

    def path(self, job: Job) -> Path:
        """Return the file of a run that is being made."""
        return self.runs / f"{self.key(job)}.json"

    def get(self, job: Job) -> dict[str, Any] | None:
        """Return a finished run, or None."""
        path = self.path(job)
        return json.loads(path.read_text()) if path.exists() else self.tracked.get(self.key(job))

    def track(self) -> None:
        """Add the finished runs of this state to the tracked file."""
        if self.results is None or self.sweeps is not None:
            return
        made = {
            path.stem: compact(json.loads(path.read_text())) | {"state": self.state}
            for path in self.runs.glob("*.json")
        }
        if not made:
            return
        all_runs = self.tracked | made
        lines = [json.dumps({"key": key, **all_runs[key]}) for key in sorted(all_runs)]
        write_atomically(self.results, ("\n".join(lines) + "\n").encode())

    def is_done(self, job: Job, limit: float) -> bool:
        """Return whether a run is finished and a limit of so many seconds would not change it."""
        record = self.get(job)
        return record is not None and (not record.get("truncated") or record["limit"] >= limit)

    def put(self, job: Job, record: dict[str, Any]) -> None:
        """Write the file of a run."""
        write_atomically(self.path(job), json.dumps({"job": asdict(job), **record}).encode())


def compact(run: dict[str, Any]) -> dict[str, Any]:
    """Return a run with rounded numbers, and without those of sweeps that no figure shows."""
    drawn = run["job"]["method"] in CONVERGENCE
    return {name: _rounded(value) for name, value in run.items() if drawn or name not in PER_SWEEP}


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _rounded(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_rounded(part) for part in value]
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file completely or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    Path(file.name).chmod(0o644)
    Path(file.name).replace(path)


def current_commit() -> str:
    """Return the commit that is checked out, and whether tracked files differ from it."""
    try:
        name = _git("rev-parse", "--short", "HEAD")
        changed = _git("status", "--porcelain", "--untracked-files=no", "--", "src", "benchmarks")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return f"{name} with changes" if changed else name


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()
