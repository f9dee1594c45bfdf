"""Kill fits at random moments, and start pairs of them at once.

    python fuzz/processes.py --kills 20 --pairs 10 [--seed 0] [--record]

After a kill, the result folder must be the complete old or the complete new one, and the same
command must end with the bits of a fit that was not interrupted. Of two fits with one folder, or
with one checkpoint, each must succeed or say which process is the other. The exit code is 1 if
that does not hold.
"""

import argparse
import hashlib
import os
import random
import signal
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
from record import record

import coblock.ui.report  # noqa: F401 - imported before the processes are forked
from coblock import IRM, load
from coblock.io.atomic import InUseError, complete_folder
from coblock.ui.cli import app
from coblock.ui.cli.results import FILES, MODEL

EXACT = ("rows.csv", "columns.csv", "blocks.csv")  # the other files contain times
PARAMETERS = {"random_state": 0, "tol": 0, "max_iter": 60, "refine": False, "init": "random"}
IN_USE, FAILED = 3, 4  # exit codes of a forked fit


def data(shape: tuple[int, int] = (60, 45)) -> np.ndarray:
    """Return a relation with five by four blocks."""
    rng = np.random.default_rng(0)
    rows, columns = rng.integers(0, 5, shape[0]), rng.integers(0, 4, shape[1])
    return (rng.random(shape) < rng.random((5, 4))[rows][:, columns]).astype(float)


def write_edges(path: Path) -> None:
    """Write the relation as edges."""
    lines = (f"r{i},c{j}\n" for i, j in zip(*data().nonzero(), strict=True))
    path.write_text("row,column\n" + "".join(lines), encoding="utf-8")


def run_command(folder: Path, seed: int) -> None:
    """Run ``coblock fit`` in this process; exit as the command does."""
    arguments = ["fit", str(folder / "edges.csv"), "--out", str(folder / "result"), "--force"]
    app([*arguments, "--seed", str(seed), "--quiet", "--n-init", "3"])


def run_checkpoint(folder: Path, seed: int) -> None:
    """Run a fit with a checkpoint in this process."""
    try:
        IRM(checkpoint=folder / "fit.checkpoint", **PARAMETERS | {"random_state": seed}).fit(data())
    except InUseError:
        sys.exit(IN_USE)


def start(run: Callable[[Path, int], None], folder: Path, seed: int, errors: Path) -> int:
    """Fork a process that runs a fit; its messages go to a file."""
    child = os.fork()
    if child:
        return child
    code = FAILED
    try:
        os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
        warnings.simplefilter("ignore")
        run(folder, seed)
        code = 0
    except SystemExit as ended:
        code = int(ended.code or 0)
    finally:
        os._exit(code)


def wait_for(child: int) -> int:
    """Return the exit code of a process, or minus the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def signature(folder: Path) -> str:
    """Return a checksum of a complete result; a sentence if it is not complete."""
    if not folder.exists():
        return "none"
    complete_folder(folder)
    there = {path.name for path in folder.iterdir() if not path.name.startswith(".coblock")}
    if there != set(FILES):
        return f"incomplete: {sorted(there)}"
    total = hashlib.blake2b(digest_size=16)
    for name in EXACT:
        total.update((folder / name).read_bytes())
    model = load(folder / MODEL)
    for array in (model.row_membership_, model.column_membership_, model.block_links_):
        total.update(array.tobytes())
    return total.hexdigest()


def check_kills(folder: Path, kills: int, numbers: random.Random) -> Counter[str]:
    """Kill fits until there were so many kills; return how often each outcome occurred."""
    result, errors, known = folder / "result", folder / "errors", {"none": "no folder"}
    longest = 0.0
    for seed in (0, 1):
        began = time.monotonic()
        assert wait_for(start(run_command, folder, seed, errors)) == 0, errors.read_text()
        longest = 1.1 * (time.monotonic() - began)
        known[signature(result)] = f"complete, seed {seed}"
    outcomes: Counter[str] = Counter()
    seed = 0
    while outcomes["killed"] < kills:
        child = start(run_command, folder, seed, errors)
        time.sleep(numbers.uniform(0.0, longest))
        os.kill(child, signal.SIGKILL)
        code, found = wait_for(child), signature(result)
        outcomes[known.get(found, f"WRONG {found}")] += 1
        if code == -signal.SIGKILL:
            outcomes["killed"] += 1
            continue
        right = code == 0 and known.get(found) == f"complete, seed {seed}"
        outcomes["ended with the same bits" if right else f"WRONG {errors.read_text()}"] += 1
        seed = 1 - seed
    if wait_for(start(run_command, folder, seed, errors)) != 0:
        outcomes[f"WRONG {errors.read_text()}"] += 1
    left = sorted(path.name for path in folder.iterdir())
    if left != ["edges.csv", "errors", "result"] or {p.name for p in result.iterdir()} != set(
        FILES
    ):
        outcomes[f"WRONG left over: {left}"] += 1
    return outcomes


def check_pairs(folder: Path, pairs: int, numbers: random.Random) -> Counter[str]:
    """Start pairs of fits at once; return how often each outcome occurred."""
    outcomes: Counter[str] = Counter()
    for number in range(pairs):
        run = (run_command, run_checkpoint)[number % 2]
        errors = [folder / "errors", folder / "errors-2"]
        children = [start(run, folder, 0, errors[0])]
        time.sleep(numbers.choice((0.0, 0.0, numbers.uniform(0.0, 0.5))))
        children.append(start(run, folder, 0, errors[1]))
        codes = [wait_for(child) for child in children]
        for code, path in zip(codes, errors, strict=True):
            told = code == IN_USE or (code == 2 and "is in use: " in path.read_text())
            right = "ended" if code == 0 else "was told of the other" if told else ""
            outcomes[right or f"WRONG {code} {path.read_text()[:200]}"] += 1
        if 0 not in codes:
            outcomes["WRONG neither ended"] += 1
        if signature(folder / "result").startswith("incomplete"):
            outcomes["WRONG incomplete folder"] += 1
    return outcomes


def main() -> int:
    """Run both checks and print the outcomes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--record", action="store_true", help="keep the outcome for the page")
    chosen = parser.parse_args()
    numbers = random.Random(chosen.seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        IRM(**PARAMETERS | {"max_iter": 3}).fit(data())  # kernels are compiled once
        IRM(random_state=0).fit(data())
    wrong = 0
    for check, count in ((check_kills, chosen.kills), (check_pairs, chosen.pairs)):
        with tempfile.TemporaryDirectory(prefix="coblock-fuzz-") as place:
            write_edges(Path(place) / "edges.csv")
            outcomes = check(Path(place), count, numbers)
        print(f"{check.__name__}: {dict(outcomes)}", flush=True)
        if chosen.record and count:
            name = check.__name__.removeprefix("check_")
            outcome = {"asked": count, "outcomes": dict(outcomes)}
            record("processes", name, chosen.seed, outcome)
        wrong += sum(times for name, times in outcomes.items() if name.startswith("WRONG"))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
