"""Read damaged and random files, and check that the readers behave as documented.

    python fuzz/run.py --target readers --inputs 100000 [--seed 0] [--record]

A target has valid files and a function that reads one. Every input is a mutation of a valid file,
or random bytes. The function must return, or raise one of the documented errors of the target,
within the time limit. Anything else is a finding: it is printed, its input is kept, and the exit
code is 1.
"""

import argparse
import contextlib
import faulthandler
import os
import random
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from mutation import Mutator
from record import record
from targets import TARGETS, Target

SECONDS = 90  # time limit of one input; a kernel may be compiled for it on a slow machine
MOST_FINDINGS = 20


class TooSlowError(BaseException):
    """The time limit; not an Exception, so that no reader catches it."""


class Unchanged(random.Random):
    """Random numbers with which a target reads a file without changes."""

    def random(self) -> float:
        """Return 0, which selects no change."""
        return 0.0


def run(target: Target, inputs: int, seed: int, keep: Path, *, kept: bool = False) -> list[str]:
    """Return the findings, one sentence each; with ``kept`` the counts are recorded.

    Each input is written to a folder in ``keep`` before it is read, so that an input that crashes
    the process is found there. The unchanged samples are read first without a time limit, because
    that compiles the kernels.
    """
    findings: list[str] = []
    counts: Counter[str] = Counter()
    random_numbers = random.Random(seed)
    mutator = Mutator([sample.content for sample in target.samples], random_numbers)
    folder = keep / f"last-{target.name}-{seed}"
    folder.mkdir(parents=True, exist_ok=True)
    for sample in target.samples:
        path = folder / sample.name
        path.write_bytes(sample.content)
        with contextlib.suppress(Exception):  # errors are found below
            target.read(path, Unchanged(seed))
    with time_limit():
        for number in range(inputs):
            sample = random_numbers.choice(target.samples)
            content = mutator.mutate(sample.content)
            path = folder / sample.name
            path.write_bytes(content)
            outcome = read_input(target, path, random_numbers)
            counts[outcome.split(":")[0]] += 1
            if outcome not in {"read", "refused"}:
                findings.append(f"input {number} ({sample.name}): {outcome}")
                (keep / f"{number}-{sample.name}").write_bytes(path.read_bytes())  # as it was read
                if len(findings) >= MOST_FINDINGS:
                    break
    print(f"{target.name}: {counts.total():,} inputs, {dict(counts)}")
    if kept:
        figures = {name: counts[name] for name in ("read", "refused")}
        figures |= {"inputs": counts.total(), "findings": len(findings)}
        record("files", target.name, seed, figures)
    return findings


def read_input(target: Target, path: Path, random_numbers: random.Random) -> str:
    """Return ``"read"``, ``"refused"``, or a description of the wrong behaviour."""
    signal.alarm(SECONDS)
    try:
        target.read(path, random_numbers)
    except target.errors as error:
        return "refused" if str(error).strip() else f"silent: {type(error).__name__}"
    except TooSlowError as error:
        last = traceback.extract_tb(error.__traceback__)[-2]  # before the handler of the signal
        return f"hangs: no result in {SECONDS} s, {last.filename}, line {last.lineno}"
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        return f"{type(error).__name__}: {str(error)[:200]}"
    finally:
        signal.alarm(0)
    return "read"


@contextlib.contextmanager
def time_limit() -> Iterator[None]:
    """Let the alarm signal raise :class:`TooSlowError`."""

    def stop(*_: object) -> None:
        raise TooSlowError

    before = signal.signal(signal.SIGALRM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGALRM, before)


def main() -> int:
    """Run the chosen target, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", choices=sorted(TARGETS), help="default: all, one by one")
    parser.add_argument("--inputs", type=int, default=100_000, help="of each target")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--record", action="store_true", help="keep the outcome for the page")
    chosen = parser.parse_args()
    faulthandler.enable()
    os.environ["RUST_BACKTRACE"] = "0"
    keep = Path(__file__).parent / "found"
    findings = []
    for name in [chosen.target] if chosen.target else sorted(TARGETS):
        begin = time.monotonic()
        findings += run(TARGETS[name](), chosen.inputs, chosen.seed, keep, kept=chosen.record)
        print(f"{name}: {time.monotonic() - begin:.0f} s", flush=True)
    for finding in findings:
        print(finding)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
