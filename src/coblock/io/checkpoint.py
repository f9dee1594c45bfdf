"""Checkpoints: a fit under way in a file, from which it continues to the same bits.

Format 2 is a :mod:`coblock.io.container` with the header entries of :data:`FORMAT`. The tensors
are those of the relation, as in a model file, and all arrays of the fit. So the file is enough to
continue, unless the cells are on a cluster: then it has the ``identity`` of the data instead. A
later format need not read this one, because a checkpoint is removed when its fit has ended.

The fit is stored as JSON with named arrays. Only :data:`CLASSES` are made from it, and their fields
are set without a call of their constructors: nothing in a file chooses code.
"""

import json
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from importlib.metadata import version
from itertools import chain
from math import isfinite
from os import PathLike
from pathlib import Path
from time import monotonic
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from coblock.inference.engine import Engine, LocalEngine, Schedule
from coblock.inference.fit import Fit, Start
from coblock.inference.phase import Phase
from coblock.inference.search import Search
from coblock.inference.settings import Settings
from coblock.io import container, model_file, refuse
from coblock.io.atomic import WriteError, hold, remove_leftovers
from coblock.io.container import CHECKS, PHASES, Header, Tensors, digest, require
from coblock.model.blocks import Blocks
from coblock.model.degrees import DegreeChoice, DegreeModel
from coblock.model.hyperparameters import Hyperparameters
from coblock.model.result import Result, Sample
from coblock.model.trace import Callback, SweepRecord

EVERY = 60.0  # seconds between two checkpoints at most, where a sweep is not longer
ROUNDS_APART = 1.0  # seconds between two checkpoints at least, however fast the rounds of moves
WORTH = 20.0  # a checkpoint after a round waits for this multiple of the cost of the last one
FORMAT = container.Format(
    "coblock-checkpoint",
    2,
    {
        **model_file.RELATION_ENTRIES,
        **{"identity": dict | None, "feature_names": bool, "parameters": dict, "written_by": str},
        **{"seed": int, "rng": dict | None, "settings": dict, "initial": list | None},
        **{"ended": list, "current": dict | None},
    },
    known="2 only",
    other_version="Go on with the version that wrote it, or begin the fit anew.",
    damaged="Begin the fit anew.",
)
PARAMETERS = {"shared_prior": "prior", "exact_variance": "variance", "rule": "hyperparameters"}
SHARED = ("relation", "settings", "initial", "rng", "engine")  # fields that are stored elsewhere
DEEPEST = 16  # objects inside one another; a fit needs 8
PARTS = (Blocks, DegreeChoice, DegreeModel, Hyperparameters, Sample)  # checked with their owner
CLASSES = {known.__name__: known for known in (*CHECKS, *PARTS)}
ARRAYS: dict[str, Callable[[NDArray[Any]], Any]] = {
    "array": lambda array: array,
    "array by column": lambda array: array.T,
    "floats": lambda array: array.tolist(),
    "trace": model_file.trace_from_table,
}


class CheckpointError(ValueError):
    """The file is not a checkpoint from which this fit, or this version, can continue."""


@dataclass(slots=True)
class StoredFit:
    """A fit that can be written between any two sweeps; starts run one after another."""

    fit: Fit
    parameters: Mapping[str, object]  # of the estimator
    feature_names: bool = False  # whether scikit-learn took the names of the columns from a frame

    def run(
        self, path: str | Path, callback: Callback | None = None, *, engine: Engine | None = None
    ) -> Result:
        """Run the fit to its end and write checkpoints to ``path``; the last one stays."""
        remove_leftovers(Path(path))
        writer = CheckpointWriter(self, Path(path), callback=callback)
        writer.save()
        return self.fit.run(writer, engine=engine, one_by_one=True)

    def differences(self, other: "StoredFit", *, any_seed: bool) -> list[str]:
        """Return how another fit differs: in the data, or the names of parameters."""
        mine, its = self.fit, other.fit
        names = [each.name for each in fields(Settings) if each.name != "n_jobs"]
        different = (x for x in names if getattr(mine.settings, x) != getattr(its.settings, x))
        found = [PARAMETERS.get(name, name) for name in different]
        if _digest(mine.relation) != _digest(its.relation):
            return ["data", *found]
        starts = mine.initial or [], its.initial or []
        same = len(starts[0]) == len(starts[1]) and all(map(np.array_equal, *starts))
        if not same and "init" not in found:
            found.append("init")
        if not any_seed and mine.seed != its.seed:
            found.append("random_state")
        return found

    def write(self, path: Path, data: Tensors) -> None:
        """Write everything, completely or not at all; ``data`` are the tensors of the relation."""
        fit, tensors = self.fit, dict(data)
        entries = model_file.relation_entries(fit.relation) | {
            "identity": _identity(fit.relation),
            "feature_names": self.feature_names,
            "parameters": model_file.plain_parameters(self.parameters),
            "written_by": version("coblock"),
            "seed": fit.seed,
            "rng": None if fit.current is None else fit.current.rng.bit_generator.state,
        }
        for name in ("settings", "initial", "ended", "current"):
            entries[name] = pack(getattr(fit, name), name, tensors)
        container.write_container(path, FORMAT, entries, tensors)


@dataclass(slots=True)
class CheckpointWriter:
    """A callback that calls another one and writes a fit to its file if that is due."""

    stored: StoredFit
    path: Path
    clock: Callable[[], float] = monotonic
    callback: Callback | None = None
    data: Tensors = field(init=False)  # of the relation; made once, because they do not change
    written: float | None = field(init=False, default=None)  # time of the last checkpoint
    cost: float = field(init=False, default=0.0)  # seconds that it took
    rounds: tuple[int, int] = field(init=False, default=(0, 0))  # that it contains

    def __post_init__(self) -> None:
        """Make the tensors of the relation."""
        relation = self.stored.fit.relation
        self.data = {} if _identity(relation) else model_file.relation_to_tensors(relation)

    def __call__(self, record: SweepRecord) -> object:
        """Call the callback; write if that is due, or if the callback raises."""
        try:
            answer = None if self.callback is None else self.callback(record)
        except BaseException:
            self.save()
            raise
        if answer is not True:
            self.save_if_due()
        return answer

    def save_if_due(self) -> None:
        """Write if a minute has passed, or a round of moves was made and writing is cheap."""
        assert self.written is not None
        passed = self.clock() - self.written
        moved = self._count_rounds() != self.rounds
        if passed >= EVERY or (moved and passed >= max(ROUNDS_APART, WORTH * self.cost)):
            self.save()

    def save(self) -> None:
        """Write now. A first failure ends the fit; later ones leave the earlier file and warn."""
        began = self.clock()
        try:
            self.stored.write(self.path, self.data)
        except WriteError as error:
            if self.written is None:
                raise
            msg = f"{error} The fit goes on; the checkpoint before stays in place."
            warnings.warn(msg, RuntimeWarning, stacklevel=2)
        self.written = self.clock()
        self.cost, self.rounds = self.written - began, self._count_rounds()

    def _count_rounds(self) -> tuple[int, int]:
        """Return how many starts have ended, and the rounds of moves of the current one."""
        current = self.stored.fit.current
        phase = None if current is None else current.phase
        return len(self.stored.fit.ended), phase.rounds if isinstance(phase, Search) else 0


@contextmanager
def open_or_begin(path: object, wanted: StoredFit, *, any_seed: bool) -> Iterator[StoredFit]:
    """Lock a file and yield the fit in it, a CheckpointError if it is another one; else wanted."""
    if not isinstance(path, str | PathLike):
        msg = f"checkpoint must be a path or None, but is {path!r} ({type(path).__name__})."
        raise TypeError(msg)
    with hold(Path(path)):
        if Path(path).exists():
            found = read(path, wanted.fit.relation)
            different = found.differences(wanted, any_seed=any_seed)
            if different:
                _refuse_another_fit(path, different)
            fit = found.fit
            fit.settings = replace(fit.settings, n_jobs=wanted.fit.settings.n_jobs)
            if fit.current is not None:
                fit.current.settings = fit.settings
            wanted = found
        yield wanted


def read(path: str | PathLike[str], relation: Any = None) -> StoredFit:
    """Read a checkpoint; nothing in it is run, and any other file is a CheckpointError.

    ``relation`` is used if the cells are not in the file, because they are on a cluster.
    """
    check_exists(path)
    with container.convert_refusals(path, "a checkpoint", CheckpointError):
        header, tensors = container.read_container(Path(path), FORMAT)
        require(0 <= header["seed"] < 2**63, "its seed is out of range.")
        model_file.check_relation_entries(header)
        if header["identity"] is not None:
            there = relation is not None
            require(there, "its data are on a cluster. Fit them again with this checkpoint.")
            if header["identity"] != _identity(relation):
                _refuse_another_fit(path, ["data"])
        found = _unpack_fit(header, tensors, relation)
    if header["written_by"] != version("coblock"):
        versions = f"coblock {header['written_by'][:20]}, this is {version('coblock')}"
        differ = "the last bits of the result may differ from those of an uninterrupted fit."
        warnings.warn(f"{path} was written by {versions}: {differ}", UserWarning, stacklevel=2)
    return found


def check_exists(path: str | PathLike[str]) -> None:
    """Refuse a path without a file."""
    if not Path(path).exists():
        msg = f"There is no file {path}. Checkpoints are removed when their fit has ended."
        raise FileNotFoundError(msg)


def _unpack_fit(header: Header, tensors: Tensors, relation: Any) -> StoredFit:
    """Return the fit; refuse one whose parts do not fit each other."""
    rest = dict(tensors)
    if header["identity"] is None:
        relation = model_file.relation_from_tensors(header, tensors)
        for name in model_file.relation_to_tensors(relation):
            del rest[name]
    settings = unpack(header["settings"], rest, {})
    require(isinstance(settings, Settings), "its settings are of the wrong type.")
    initial = unpack(header["initial"], rest, {})
    require(is_of_type(initial, Fit.__annotations__["initial"]), "its start is not one.")
    if initial is not None:
        container.check_memberships(initial, relation.sizes)
    rng = np.random.default_rng(0)
    if header["rng"] is not None:
        rng.bit_generator.state = header["rng"]
    one_by_one = LocalEngine(Schedule(1))  # of a Gibbs chain; Fit.run sets that of other phases
    shared = dict(zip(SHARED, (relation, settings, initial, rng, one_by_one), strict=True))
    ended = unpack(header["ended"], rest, shared)
    fit = Fit(relation, settings, header["seed"], initial, ended)
    current = unpack(header["current"], rest, shared | {"relation": fit.grouped()})
    fits = is_of_type(ended, list[Result]) and isinstance(current, Start | None)
    require(fits and len(ended) < settings.n_init, "it has other starts than it should.")
    require(not rest, f"it has {len(rest)} tensors that belong nowhere.")
    fit.current = current
    parameters = model_file.read_parameters(header["parameters"])
    return StoredFit(fit, parameters, header["feature_names"])


def _refuse_another_fit(path: object, different: list[str]) -> None:
    found = f"{path} is the checkpoint of another fit: it differs in {', '.join(different)}."
    refuse(f"{found} Name another file, or delete this one to begin anew.", CheckpointError)


def _identity(relation: Any) -> Any:
    """Return what identifies data whose cells are not in memory, as JSON gives it back."""
    known = relation.identity() if hasattr(relation, "identity") else None
    return json.loads(json.dumps(known))


def _digest(relation: Any) -> Any:
    """Return what distinguishes the data of a relation from others."""
    entries = model_file.relation_entries(relation)
    return _identity(relation) or digest(entries, model_file.relation_to_tensors(relation))


# Objects of a fit as JSON with named arrays


def pack(value: Any, name: str, tensors: Tensors) -> Any:  # noqa: PLR0911 - one for each form
    """Return a value without :data:`SHARED` fields as JSON; arrays go to ``tensors`` by path."""
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):  # in its order in memory: sums depend on it in the last bits
        by_column = value.flags.f_contiguous and not value.flags.c_contiguous
        tensors[name] = np.ascontiguousarray(value.T if by_column else value)
        return {"is": "array by column" if by_column else "array", "name": name}
    if isinstance(value, list | tuple):
        if value and all(isinstance(part, SweepRecord) for part in value):
            tensors[name] = model_file.trace_to_table(list(value))
            return {"is": "trace", "name": name}
        if value and isinstance(value, list) and all(isinstance(part, float) for part in value):
            tensors[name] = np.array(value, dtype=np.float64)
            return {"is": "floats", "name": name}
        parts = [pack(part, f"{name}.{number}", tensors) for number, part in enumerate(value)]
        return {"is": "tuple", "parts": parts} if isinstance(value, tuple) else parts
    assert type(value).__name__ in CLASSES, type(value)
    inside = {
        field.name: pack(getattr(value, field.name), f"{name}.{field.name}", tensors)
        for field in fields(value)
        if field.name not in SHARED
    }
    return {"is": type(value).__name__, "fields": inside}


def unpack(packed: Any, tensors: Tensors, shared: Mapping[str, Any], depth: int = 0) -> Any:
    """Return the value that was packed; refuse parts that do not fit together.

    A tensor is removed from ``tensors`` when it is used, so that no two arrays share memory.
    """
    require(depth < DEEPEST, "its parts are nested too deeply.")
    if isinstance(packed, list):
        return [unpack(part, tensors, shared, depth + 1) for part in packed]
    if not isinstance(packed, dict):
        return packed
    kind = packed["is"]
    if kind in ARRAYS:
        require(packed["name"] in tensors, "one of its tensors is missing, or named twice.")
        return ARRAYS[kind](tensors.pop(packed["name"]))
    if kind == "tuple":
        return tuple(unpack(part, tensors, shared, depth + 1) for part in packed["parts"])
    require(kind in CLASSES, f"it holds a {str(kind)[:40]!r}, which is not part of a fit.")
    known, inside = CLASSES[kind], packed["fields"]
    hints = get_type_hints(known)
    names = [field.name for field in fields(known)]
    same = set(names).difference(SHARED) == set(inside)
    require(same, f"its {kind} has other fields than this version's.")
    made: Any = object.__new__(known)
    for name in names:
        value = shared.get(name)
        if name not in SHARED:
            value = unpack(inside[name], tensors, shared, depth + 1)
            require(is_of_type(value, hints[name]), f"its {name} is of the wrong type.")
        object.__setattr__(made, name, value)
    if known in CHECKS:
        CHECKS[known](made)
    return made


def is_of_type(value: Any, hint: Any) -> bool:  # noqa: PLR0911 - one return for each form
    """Return whether a value agrees with a type annotation of one of :data:`CLASSES`."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin in {Union, UnionType}:
        return any(is_of_type(value, part) for part in parts)
    if origin is Literal:
        return value in parts
    if origin in {list, tuple}:
        if not isinstance(value, origin):
            return False
        any_length = origin is list or parts[-1] is ...
        kinds = parts[:1] * len(value) if any_length else parts
        return len(value) == len(kinds) and all(map(is_of_type, value, kinds))
    if origin is np.ndarray:
        return isinstance(value, np.ndarray) and value.dtype == get_args(parts[1])[0]
    if hint is Phase:
        return isinstance(value, tuple(chain.from_iterable(PHASES.values())))
    exact = hint in {bool, int, float, str, NoneType}
    finite = hint is not float or (type(value) is float and isfinite(value))
    return (type(value) is hint if exact else isinstance(value, hint)) and finite
