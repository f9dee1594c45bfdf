"""Run measurements in two checkouts, in turn, and keep the finished ones."""

import hashlib
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from versions.jobs import Job
from versions.size import measure_size

BENCHMARKS = Path(__file__).parents[1]
SIDES = ("before", "after")
ONE_THREAD = dict.fromkeys(("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
Answers = dict[str, dict[str, dict[str, Any]]]  # key of a job -> side -> what was measured


class FailedRunError(Exception):
    """Raised with the last line of its message when a measurement fails."""


@dataclass(frozen=True)
class Checkout:
    """A folder with a version of coblock, measured with the interpreter of this process."""

    side: str
    folder: Path

    @property
    def source(self) -> Path:
        """Folder of the package."""
        return self.folder / "src" / "coblock"

    @cached_property
    def version(self) -> str:
        """The last commit that changed the source, and a digest of changes since then."""
        commit = self._git("log", "-1", "--format=%h")
        return f"{commit}+{digest(self.source)}" if self._git("status", "--porcelain") else commit

    def _git(self, *words: str) -> str:
        command = ["git", *words, "--", "src"]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=True)
        return done.stdout.strip()


@dataclass(frozen=True)
class Runs:
    """Measurements of two checkouts: a file of finished ones, and caches of compiled kernels."""

    folder: Path
    checkouts: tuple[Checkout, Checkout]
    data: Path

    @property
    def path(self) -> Path:
        """The file of finished measurements of this pair of versions."""
        return self.folder / f"{'-'.join(one.version for one in self.checkouts)}.jsonl"

    def finished(self) -> Answers:
        """Return the finished measurements."""
        found: Answers = {}
        if self.path.exists():
            for line in self.path.read_text().splitlines():
                record = json.loads(line)
                found.setdefault(Job(**record["job"]).key, {})[record["side"]] = record["answer"]
        return found

    def run(self, jobs: list[Job]) -> Iterator[tuple[Job, str, dict[str, Any] | None, str]]:
        """Yield what was measured, or None and the reason, for each job that is not finished.

        The checkouts take turns. The one that is measured first changes with every round.
        """
        finished, compiled = self.finished(), set()
        for job in jobs:
            for checkout in self.checkouts[:: -1 if job.round % 2 else 1]:
                if checkout.side in finished.get(job.key, {}):
                    continue
                try:
                    if checkout.side not in compiled and job.measure != "size":
                        self.measure(Job("compile", "small"), checkout)
                        compiled.add(checkout.side)
                    answer = self.measure(job, checkout)
                except FailedRunError as error:
                    yield job, checkout.side, None, str(error)
                    continue
                self._keep(job, checkout.side, answer)
                yield job, checkout.side, answer, ""

    def measure(self, job: Job, checkout: Checkout) -> dict[str, Any]:
        """Measure, twice if kernels were compiled during the first time."""
        if job.measure == "size":
            return measure_size(checkout.source)
        cache = self.folder / "numba" / f"{checkout.side}-{digest(checkout.source / 'kernels')}"
        before = file_times(cache)
        answer = self._measure_in_process(job, checkout, cache)
        if job.measure != "compile" and file_times(cache) != before:
            answer = self._measure_in_process(job, checkout, cache)
        load = os.getloadavg()[0]
        return answer | {"load": load, "machine": f"{platform.machine()}, {os.cpu_count()} cores"}

    def _measure_in_process(self, job: Job, checkout: Checkout, cache: Path) -> dict[str, Any]:
        path = os.pathsep.join(str(folder) for folder in (checkout.source.parent, BENCHMARKS))
        environment = os.environ | {
            "PYTHONPATH": path,
            "NUMBA_CACHE_DIR": str(cache),
            "DATA": str(self.data),
            **({} if job.measure == "identity" else ONE_THREAD),
        }
        words = [job.measure, job.relation, str(job.round)]
        command = [sys.executable, "-m", "versions.tasks", *words]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise FailedRunError((done.stderr.strip().splitlines() or ["no message"])[-1])
        answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        if Path(answer.pop("source")) != checkout.source:
            msg = f"another coblock than that of {checkout.side} was imported"
            raise FailedRunError(msg)
        return answer

    def _keep(self, job: Job, side: str, answer: dict[str, Any]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        with self.path.open("a") as file:
            file.write(json.dumps({"job": asdict(job), "side": side, "answer": answer}) + "\n")


def digest(folder: Path) -> str:
    """Return a digest of all Python files below a folder."""
    content = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        content.update(str(path.relative_to(folder)).encode() + path.read_bytes())
    return content.hexdigest()[:8]


def file_times(folder: Path) -> dict[Path, int]:
    """Return when each file below a folder was written."""
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}
