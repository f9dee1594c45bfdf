"""Checkpoints: a fit that is under way as a file, from which it goes on to the same bits.

Format 1
--------
A safetensors file whose metadata hold one text, ``coblock``: a JSON object with ``format``
("coblock-checkpoint"), ``version`` (1), the entries that :meth:`Checkpoint.write` writes, and
``digest``. The tensors are the relation, as a model file has it, and all arrays of the run. The
data are in the file, so it is all that is needed to go on. A later format need not read this one:
a checkpoint lives as long as its fit.

A fit that is killed loses what it did since the last checkpoint: a minute, or the sweep or the
round of moves under way where that takes longer. One whose callback raises loses nothing.
"""

import json
import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field, fields, replace
from importlib.metadata import version
from os import PathLike
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np

from coblock.inference.fit import Callback, FitRun, Settings, best_of
from coblock.inference.posterior import ConditionalRun
from coblock.inference.schedule import Schedule
from coblock.inference.search import SearchRun
from coblock.inference.variational import VariationalRun
from coblock.io.atomic import WriteError, remove_leftovers, write_whole
from coblock.io.model_file import digest, plain_parameters, read_parameters, read_whole
from coblock.io.result_codec import ModelFileError, Tensors, relation_of, relation_tensors, require
from coblock.io.state_codec import Shared, pack, unpack
from coblock.kernels import Floats
from coblock.model.checks import KINDS
from coblock.model.relation import Relation
from coblock.model.result import Result
from coblock.model.trace import Sweep

KEY, FORMAT, VERSION = "coblock", "coblock-checkpoint", 1
EVERY = 60.0  # seconds between two checkpoints at most, where a sweep is not longer
ROUNDS_APART = 1.0  # seconds between two checkpoints at least, however fast the rounds of moves
WORTH = 20.0  # a round's checkpoint waits until so many times the cost of the last has gone by
ENTRIES: dict[str, type] = {
    "kind": str,
    "shape": list,
    "row_names": bool,
    "column_names": bool,
    "feature_names": bool,
    "parameters": dict,
    "written_by": str,
    "seed": int,
    "rng": dict,
    "run": dict,
    "ended": list,
}
TYPES = {"<f8": "F64", "<i8": "I64", "<i4": "I32", "|u1": "U8"}
PARAMETERS = {"shared_prior": "prior", "exact_variance": "variance", "rule": "hyperparameters"}


class CheckpointError(ValueError):
    """The file is not a checkpoint that this fit, or this version of coblock, can go on from."""


@dataclass(slots=True)
class Checkpoint:
    """A fit that can be put away between any two sweeps.

    Starts run one after another, each on all threads; the result is the same.

    Attributes
    ----------
    seed : int
        Of the random numbers of all starts.
    run : FitRun
        The start that is under way.
    ended : list of Result
        What the starts before it have found.
    parameters : dict
        Of the estimator, as model files keep them.
    feature_names : bool
        Whether scikit-learn took the names of the columns from a data frame.
    """

    seed: int
    run: FitRun
    ended: list[Result] = field(default_factory=list)
    parameters: dict[str, Any] = field(default_factory=dict)
    feature_names: bool = False

    @classmethod
    def begin(
        cls,
        relation: Relation,
        settings: Settings,
        seed: int,
        initial: list[Floats] | None,
        parameters: Mapping[str, object],
    ) -> "Checkpoint":
        """Return a fit that has not begun."""
        run = FitRun(relation, settings, _starts(seed, settings)[0], initial)
        return cls(seed, run, [], plain_parameters(parameters))

    def result(
        self,
        path: str | PathLike[str],
        callback: Callback | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> Result:
        """Follow the fit to its end; on the way it is written to ``path`` again and again.

        The file stays. Where the callback raises, the checkpoint of that very sweep is written.
        """
        settings, keeper = self.run.settings, Keeper(self, Path(path), clock)
        remove_leftovers(Path(path))
        keeper.save()
        threads = replace(settings, n_init=1).threads[1]
        with ThreadPoolExecutor(threads) if threads > 1 else nullcontext() as pool:
            schedule = Schedule(settings.batch_size, pool)
            for rng in _starts(self.seed, settings)[len(self.ended) + 1 :]:
                self.ended.append(self._end_of_run(schedule, keeper, callback))
                self.run = FitRun(self.run.relation, settings, rng, self.run.initial)
                keeper.look()
            return best_of([*self.ended, self._end_of_run(schedule, keeper, callback)], settings)

    def _end_of_run(
        self, schedule: Schedule, keeper: "Keeper", callback: Callback | None
    ) -> Result:
        """Return what the start under way has found in the end."""
        for part in (self.run, self.run.search, self.run.run):
            if isinstance(part, FitRun | SearchRun | ConditionalRun | VariationalRun):
                part.schedule = schedule
        return self.run.result(keeper.beside(callback))

    def differences(self, other: "Checkpoint", *, any_seed: bool) -> list[str]:
        """Return what sets another fit apart: the data, or names of parameters."""
        mine, its = self.run.settings, other.run.settings
        found = [
            PARAMETERS.get(each.name, each.name)
            for each in fields(Settings)
            if each.name != "n_jobs" and getattr(mine, each.name) != getattr(its, each.name)
        ]
        if not _same_relation(self.run.relation, other.run.relation):
            return ["data", *found]
        if not _same_arrays(self.run.initial, other.run.initial) and "init" not in found:
            found.append("init")
        if not any_seed and self.seed != other.seed:
            found.append("random_state")
        return found

    def write(self, path: Path, data: Tensors) -> None:
        """Write everything, whole or not at all; ``data`` are the arrays of the relation."""
        relation, tensors = self.run.relation, dict(data)
        header: dict[str, Any] = {
            "format": FORMAT,
            "version": VERSION,
            "kind": relation.kind,
            "shape": list(relation.shape),
            "row_names": relation.row_names is not None,
            "column_names": relation.column_names is not None,
            "feature_names": self.feature_names,
            "parameters": self.parameters,
            "written_by": version("coblock"),
            "seed": self.seed,
            "rng": self.run.rng.bit_generator.state,
            "run": pack(self.run, "run", tensors),
            "ended": pack(self.ended, "ended", tensors),
        }
        header["digest"] = digest(header, tensors)
        metadata = {KEY: json.dumps(header, allow_nan=False)}
        write_whole(path, lambda temporary: write_tensors(temporary, tensors, metadata))


@dataclass(slots=True)
class Keeper:
    """Writes a fit to its file when it is time: every minute, and after rounds of moves."""

    checkpoint: Checkpoint
    path: Path
    clock: Callable[[], float] = monotonic
    data: Tensors = field(init=False)  # they do not change, so they are made once
    written: float | None = field(init=False, default=None)  # when that was
    cost: float = field(init=False, default=0.0)  # how long it took
    moves: tuple[int, int] = field(init=False, default=(0, 0))  # rounds that are in the file

    def __post_init__(self) -> None:
        """Make the arrays of the data."""
        self.data = relation_tensors(self.checkpoint.run.relation)

    def beside(self, callback: Callback | None) -> Callback:
        """Return a callback that does what the given one does, and writes when it is time."""

        def keep(sweep: Sweep) -> object:
            try:
                answer = None if callback is None else callback(sweep)
            except BaseException:
                self.save()
                raise
            if answer is not True:
                self.look()
            return answer

        return keep

    def look(self) -> None:
        """Write if it is time."""
        assert self.written is not None
        passed = self.clock() - self.written
        moved = self._moves() != self.moves and passed >= max(ROUNDS_APART, WORTH * self.cost)
        if moved or passed >= EVERY:
            self.save()

    def save(self) -> None:
        """Write now. Only a first failure ends the fit; later ones leave the earlier file."""
        began = self.clock()
        try:
            self.checkpoint.write(self.path, self.data)
        except WriteError as error:
            if self.written is None:
                raise
            msg = f"{error} The fit goes on; the checkpoint before stays in place."
            warnings.warn(msg, RuntimeWarning, stacklevel=2)
        self.written = self.clock()
        self.cost, self.moves = self.written - began, self._moves()

    def _moves(self) -> tuple[int, int]:
        """Return how many starts have ended, and the rounds of moves of the one under way."""
        search = self.checkpoint.run.search
        return len(self.checkpoint.ended), 0 if search is None else search.rounds


def write_tensors(path: Path, tensors: Tensors, metadata: dict[str, str]) -> None:
    """Write a safetensors file without a copy of any array.

    The library's own function makes one, and when it is killed it leaves a file that nobody can
    tell is ours.
    """
    header: dict[str, object] = {"__metadata__": metadata}
    arrays = dict(sorted(tensors.items(), key=lambda item: (-item[1].itemsize, item[0])))
    end = 0
    for name, array in arrays.items():
        offsets = [end, end := end + array.nbytes]
        shape, kind = list(array.shape), TYPES[array.dtype.str]
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": offsets}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # so that the arrays are aligned
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for array in arrays.values():
            file.write(np.ascontiguousarray(array).data)


def open_or_begin(path: object, wanted: Checkpoint, *, any_seed: bool) -> Checkpoint:
    """Return the fit that ``path`` holds, if it is the wanted one, or the wanted one.

    Raises
    ------
    CheckpointError
        If the file is the checkpoint of another fit, or none that can be used.
    """
    if not isinstance(path, str | PathLike):
        msg = f"checkpoint must be a path or None, but is {path!r} ({type(path).__name__})."
        raise TypeError(msg)
    if not Path(path).exists():
        return wanted
    found = read(path)
    different = found.differences(wanted, any_seed=any_seed)
    if different:
        msg = (
            f"{path} is the checkpoint of another fit: it differs in {', '.join(different)}. Name "
            "another file, or delete this one to begin anew."
        )
        raise CheckpointError(msg)
    found.run.settings = replace(found.run.settings, n_jobs=wanted.run.settings.n_jobs)
    return found


def read(path: str | PathLike[str]) -> Checkpoint:
    """Read a checkpoint; nothing in it is run.

    Raises
    ------
    CheckpointError
        With a sentence, where the file is foreign, damaged, cut short, inconsistent, or written
        by a version with another format.
    """
    if not Path(path).exists():
        msg = f"There is no file {path}. Checkpoints are removed when their fit has ended."
        raise FileNotFoundError(msg)
    try:
        header, tensors = read_whole(Path(path), _header, "Begin the fit anew.")
        found = _checkpoint_of(header, tensors)
    except ModelFileError as error:
        msg = f"{path} cannot be used as a checkpoint: {error}"
        raise CheckpointError(msg) from error
    if header["written_by"] != version("coblock"):
        warnings.warn(
            f"{path} was written by coblock {header['written_by'][:20]}, this is "
            f"{version('coblock')}: the last bits of the result may differ from an unbroken fit.",
            UserWarning,
            stacklevel=2,
        )
    return found


def _header(text: str | None, _file: object) -> dict[str, Any]:
    """Return the header of a checkpoint of this format; every entry has its type."""
    try:
        header = json.loads(text or "null")
    except (ValueError, RecursionError) as error:
        msg = "its header is not JSON: the file is damaged."
        raise ModelFileError(msg) from error
    require(isinstance(header, dict) and "format" in header, "it was not written by coblock.")
    require(header["format"] == FORMAT, f"it is a {str(header['format'])[:40]} file.")
    require(
        header.get("version") == VERSION,
        f"it has format {str(header.get('version'))[:20]}, but this coblock knows {VERSION} only. "
        "Go on with the version that wrote it, or begin the fit anew.",
    )
    wrong = [name for name, kind in ENTRIES.items() if not isinstance(header.get(name), kind)]
    require(not wrong, f"its header lacks {', '.join(wrong)}, or has them in another form.")
    sizes = [size for size in header["shape"] if type(size) is int and 0 < size < 2**31]
    square = header["kind"] == "bipartite" or len(set(sizes)) == 1
    require(0 <= header["seed"] < 2**63, "its seed is out of range.")
    fits = len(header["shape"]) == len(sizes) == 2 and header["kind"] in KINDS and square
    require(fits, "its relation has an impossible kind or shape.")
    return header


def _checkpoint_of(header: dict[str, Any], tensors: Tensors) -> Checkpoint:
    """Return the fit; refuse one whose parts do not fit each other."""
    try:
        relation = relation_of(header, tensors)
        rng = np.random.default_rng(0)
        rng.bit_generator.state = header["rng"]
        shared = Shared(relation, Schedule(), rng)
        rest = {name: array for name, array in tensors.items() if "." in name}
        run = unpack(header["run"], rest, shared)
        ended = unpack(header["ended"], rest, shared)
        fits = isinstance(run, FitRun) and all(isinstance(result, Result) for result in ended)
        require(fits and len(ended) < run.settings.n_init, "it has other starts than it should.")
        require(not rest, f"it has {len(rest)} tensors that belong nowhere.")
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        if isinstance(error, ModelFileError):
            raise
        msg = f"its parts do not fit together ({error})."
        raise ModelFileError(msg) from error
    parameters = read_parameters(header["parameters"])
    return Checkpoint(header["seed"], run, ended, parameters, header["feature_names"])


def _starts(seed: int, settings: Settings) -> list[np.random.Generator]:
    """Return the random numbers of each start, as :func:`coblock.inference.fit.fit` makes them."""
    return np.random.default_rng(seed).spawn(settings.n_init)


def _same_relation(one: Relation, other: Relation) -> bool:
    if (one.kind, one.shape) != (other.kind, other.shape):
        return False
    if (one.row_names, one.column_names) != (other.row_names, other.column_names):
        return False
    mine, its = ([*each.places[0][0], each.self_link, each.self_seen] for each in (one, other))
    return _same_arrays(mine, its)


def _same_arrays(one: list[Any] | None, other: list[Any] | None) -> bool:
    if one is None or other is None:
        return one is other
    return len(one) == len(other) and all(map(np.array_equal, one, other))
