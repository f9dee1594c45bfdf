"""Finished runs: one JSON file each while they are made, and one tracked file of all of them.

The tracked file has a line for each run. All runs of a method are of one state of the code (see
``fingerprint``). The page is made from it.
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

from paper.experiments import CONVERGENCE, Job, parameters
from paper.fingerprint import round_numbers, state_of

ROOT = Path(__file__).parents[2]
METHODLESS = ("naive", "growth", "missing")  # parts that always run cvb0
PER_SWEEP = ("bound", "leave_one_out")  # kept of the methods whose convergence is drawn


@dataclass(frozen=True)
class Store:
    """Finished runs: a folder of those being made, and the tracked file of all of them.

    Trials with fewer sweeps have another folder and are not in the tracked file.
    """

    folder: Path
    sweeps: int | None = None
    results: Path | None = None  # the tracked file
    replace: bool = False  # whether runs of an earlier state of the code are left out

    @cached_property
    def tracked(self) -> dict[str, dict[str, Any]]:
        """Runs of the tracked file by their keys."""
        if self.results is None or self.sweeps is not None or not self.results.exists():
            return {}
        lines = map(json.loads, self.results.read_text().splitlines())
        runs = {run["key"]: run for run in lines}
        return {key: run for key, run in runs.items() if not (self.replace and is_outdated(run))}

    def outdated(self, jobs: list[Job]) -> list[Job]:
        """Return tracked jobs of the same methods that are of an earlier state of the code."""
        methods = {fitted_method(job) for job in jobs}
        tracked = [(Job(**run["job"]), run) for run in self.tracked.values()]
        return [job for job, run in tracked if fitted_method(job) in methods and is_outdated(run)]

    def key(self, job: Job) -> str:
        """Return the name of a run, which ends in a digest of the settings."""
        settings = json.dumps(parameters(fitted_method(job), job.K), sort_keys=True)
        return f"{job.key}-{hashlib.sha256(settings.encode()).hexdigest()[:6]}"

    @property
    def runs(self) -> Path:
        """Folder of the runs that are being made."""
        return self.folder if self.sweeps is None else self.folder / f"{self.sweeps} sweeps"

    def path(self, job: Job) -> Path:
        """Return the file of a run that is being made."""
        return self.runs / f"{self.key(job)}.json"

    def get(self, job: Job) -> dict[str, Any] | None:
        """Return a finished run, or None."""
        path = self.path(job)
        if path.exists() and not is_outdated(run := json.loads(path.read_text())):
            return run
        return self.tracked.get(self.key(job))

    def track(self) -> None:
        """Add the finished runs of the present state of the code to the tracked file."""
        if self.results is None or self.sweeps is not None:
            return
        runs = {path.stem: json.loads(path.read_text()) for path in self.runs.glob("*.json")}
        made = {key: compact(run) for key, run in runs.items() if not is_outdated(run)}
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
        state = state_of(fitted_method(job))
        content = {"job": asdict(job), "state": state, **record}
        write_atomically(self.path(job), json.dumps(content).encode())


def fitted_method(job: Job) -> str:
    """Return the method whose fits a job runs."""
    return "cvb0" if job.part in METHODLESS else job.method


def is_outdated(run: dict[str, Any]) -> bool:
    """Return whether a run was made with an earlier state of the code."""
    return run["state"] != state_of(fitted_method(Job(**run["job"])))


def compact(run: dict[str, Any]) -> dict[str, Any]:
    """Return a run with rounded numbers, and without those of sweeps that no figure shows.

    Numbers of sweeps are not rounded: the page says how often the bound rose.
    """
    drawn = run["job"]["method"] in CONVERGENCE
    per_sweep = {name: run[name] for name in PER_SWEEP if drawn and name in run}
    others = {name: value for name, value in run.items() if name not in PER_SWEEP}
    return round_numbers(others) | per_sweep


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
