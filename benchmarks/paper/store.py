"""Finished runs, one JSON file each, under the state of the code that made them."""

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
FACES = {"cli.py", "terminal.py", "summary.py", "datasets.py"}  # they change no result;
# a change in any other file of the package makes earlier runs void
PROTOCOL = ("protocol.py", "timing.py", "naive.py", "shapes.py")
METHODLESS = ("naive", "growth", "missing")


@dataclass(frozen=True)
class Store:
    """A folder of finished runs; those of a trial with fewer sweeps are kept apart."""

    folder: Path
    sweeps: int | None = None

    @cached_property
    def state(self) -> str:
        """Digest of the code that runs."""
        source, here = Path(coblock.__file__).parent, Path(__file__).parent
        digest = hashlib.sha256()
        engine = [path for path in sorted(source.rglob("*.py")) if path.name not in FACES]
        for path in (*engine, *(here / name for name in PROTOCOL)):
            digest.update(path.name.encode() + path.read_bytes())
        return digest.hexdigest()[:12]

    def path(self, job: Job) -> Path:
        """Return where a run is, or would be; its settings are in the name too."""
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
        """Say whether a run is there that more time would not change."""
        record = self.get(job)
        return record is not None and (not record.get("truncated") or record["limit"] >= limit)

    def put(self, job: Job, record: dict[str, Any]) -> None:
        """Keep a run, whole or not at all."""
        write_whole(self.path(job), json.dumps({"job": asdict(job), **record}).encode())


def write_whole(path: Path, content: bytes) -> None:
    """Write a file, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    Path(file.name).chmod(0o644)
    Path(file.name).replace(path)


def commit() -> str:
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
