"""Finished runs, one JSON file each, in a folder named by a digest of the code."""

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
from paper.experiments import Job, parameters

ROOT = Path(__file__).parents[2]
UNRELATED = {"datasets", "ui"}  # folders of coblock that do not affect results; a change in any
# other file invalidates earlier runs
PROTOCOL = ("internals.py", "protocol.py", "timing.py", "naive.py", "shapes.py")
METHODLESS = ("naive", "growth", "missing")  # parts that always run cvb0


@dataclass(frozen=True)
class Store:
    """A folder of finished runs; trials with fewer sweeps have another folder."""

    folder: Path
    sweeps: int | None = None

    @cached_property
    def state(self) -> str:
        """Digest of the code that determines the results."""
        source, here = Path(coblock.__file__).parent, Path(__file__).parent
        files = {path.relative_to(source): path for path in source.rglob("*.py")}
        used = [path for name, path in sorted(files.items()) if name.parts[0] not in UNRELATED]
        digest = hashlib.sha256()
        for path in (*used, *(here / name for name in PROTOCOL)):
            digest.update(path.name.encode() + path.read_bytes())
        return digest.hexdigest()[:12]

    def path(self, job: Job) -> Path:
        """Return the file of a run; its name contains a digest of the settings."""
        method = "cvb0" if job.part in METHODLESS else job.method
        settings = json.dumps(parameters(method, job.K), sort_keys=True)
        key = hashlib.sha256(settings.encode()).hexdigest()[:6]
        trial = "" if self.sweeps is None else f"-{self.sweeps}sweeps"
        return self.folder / f"{self.state}{trial}" / f"{job.key}-{key}.json"

    def get(self, job: Job) -> dict[str, Any] | None:
        """Return a finished run, or None."""
        path = self.path(job)
        return json.loads(path.read_text()) if path.exists() else None

    def is_done(self, job: Job, limit: float) -> bool:
        """Return whether a run is finished and a limit of so many seconds would not change it."""
        record = self.get(job)
        return record is not None and (not record.get("truncated") or record["limit"] >= limit)

    def put(self, job: Job, record: dict[str, Any]) -> None:
        """Write the file of a run."""
        write_atomically(self.path(job), json.dumps({"job": asdict(job), **record}).encode())


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
