"""Checkpoints: a fit under way in a file, from which it continues to the same bits.

:class:`CheckpointWriter` writes the checkpoints of all fits. Those of an IRM are
:class:`StoredFit`, those of a MultiIRM :class:`coblock.io.multi_checkpoint.StoredMultiFit`.

Format 2 of an IRM is a :mod:`coblock.io.container` with the header entries of :data:`FORMAT`. The
tensors are those of the relation, as in a model file, and all arrays of the fit, packed by
:mod:`coblock.io.codec`. So the file is enough to continue, unless the cells are on a cluster: then
it has the ``identity`` of the data instead. A later format need not read this one, because a
checkpoint is removed when its fit has ended.
"""

import json
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from importlib.metadata import version
from os import PathLike
from pathlib import Path
from time import monotonic
from typing import Any, Protocol, TypeVar

import numpy as np

from coblock.inference.engine import Engine, LocalEngine, Schedule
from coblock.inference.fit import Fit, Start
from coblock.inference.search import Search
from coblock.inference.settings import Settings
from coblock.io import container, model_file, refuse, stored_data
from coblock.io.atomic import WriteError, hold
from coblock.io.codec import SHARED, check_memberships, is_of_type, pack, unpack
from coblock.io.container import Format, Header, Tensors, digest, require
from coblock.model.result import Result
from coblock.model.trace import Callback

Stored = TypeVar("Stored")
EVERY = 60.0  # seconds between two checkpoints at most, where a sweep is not longer
ROUNDS_APART = 1.0  # seconds between two checkpoints at least, however fast the rounds of moves
WORTH = 20.0  # a checkpoint after a round waits for this multiple of the cost of the last one
FORMAT = Format(
    "coblock-checkpoint",
    2,
    {
        **stored_data.BINARY_ENTRIES,
        **{"identity": dict | None, "feature_names": bool, "parameters": dict, "written_by": str},
        **{"seed": int, "rng": dict | None, "settings": dict, "initial": list | None},
        **{"ended": list, "current": dict | None},
    },
    known="2 only",
    other_version="Go on with the version that wrote it, or begin the fit anew.",
    damaged="Begin the fit anew.",
)
PARAMETERS = {"shared_prior": "prior", "exact_variance": "variance", "rule": "hyperparameters"}


class CheckpointError(ValueError):
    """The file is not a checkpoint from which this fit, or this version, can continue."""


class FitUnderWay(Protocol):
    """A fit that can be written between any two sweeps."""

    @property
    def rounds(self) -> tuple[int, int]:
        """Numbers that increase where much work was done, so that it is worth a checkpoint."""
        ...

    def data_tensors(self) -> Tensors:
        """Return the tensors of the data, which do not change during the fit."""
        ...

    def write(self, path: Path, data: Tensors) -> None:
        """Write everything, completely or not at all; ``data`` are the tensors of the data."""
        ...


@dataclass(slots=True)
class CheckpointWriter:
    """A callback that calls another one and writes a fit to its file if that is due."""

    stored: FitUnderWay
    path: Path
    clock: Callable[[], float] = monotonic
    callback: Callable[[Any], object] | None = None
    data: Tensors = field(init=False)  # of the relations; made once, because they do not change
    written: float | None = field(init=False, default=None)  # time of the last checkpoint
    cost: float = field(init=False, default=0.0)  # seconds that it took
    rounds: tuple[int, int] = field(init=False, default=(0, 0))  # that it contains

    def __post_init__(self) -> None:
        """Make the tensors of the data."""
        self.data = self.stored.data_tensors()

    def __call__(self, record: Any) -> object:
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
        moved = self.stored.rounds != self.rounds
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
        self.cost, self.rounds = self.written - began, self.stored.rounds


@contextmanager
def lock_and_read(
    path: object, read_file: Callable[[Path], Stored], differences: Callable[[Stored], list[str]]
) -> Iterator[Stored | None]:
    """Lock a file; yield the fit in it, or None without a file; refuse a fit with differences."""
    if not isinstance(path, str | PathLike):
        msg = f"checkpoint must be a path or None, but is {path!r} ({type(path).__name__})."
        raise TypeError(msg)
    with hold(Path(path)):
        if not Path(path).exists():
            yield None
            return
        found = read_file(Path(path))
        different = differences(found)
        if different:
            _refuse_another_fit(path, different)
        yield found


def read_checkpoint(
    path: str | PathLike[str], form: Format, make: Callable[[Header, Tensors], Stored]
) -> Stored:
    """Make a fit from a file of this format; any other file is a CheckpointError."""
    check_exists(path)
    with container.convert_refusals(path, "a checkpoint", CheckpointError):
        header, tensors = container.read_container(Path(path), form)
        found = make(header, tensors)
    if header["written_by"] != version("coblock"):
        versions = f"coblock {header['written_by'][:20]}, this is {version('coblock')}"
        differ = "the last bits of the result may differ from those of an uninterrupted fit."
        warnings.warn(f"{path} was written by {versions}: {differ}", UserWarning, stacklevel=3)
    return found


def check_exists(path: str | PathLike[str]) -> None:
    """Refuse a path without a file."""
    if not Path(path).exists():
        msg = f"There is no file {path}. Checkpoints are removed when their fit has ended."
        raise FileNotFoundError(msg)


def _refuse_another_fit(path: object, different: list[str]) -> None:
    found = f"{path} is the checkpoint of another fit: it differs in {', '.join(different)}."
    refuse(f"{found} Name another file, or delete this one to begin anew.", CheckpointError)


# Fits of one binary relation


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

    @property
    def rounds(self) -> tuple[int, int]:
        """How many starts have ended, and the rounds of moves of the current one."""
        phase = None if self.fit.current is None else self.fit.current.phase
        return len(self.fit.ended), phase.rounds if isinstance(phase, Search) else 0

    def data_tensors(self) -> Tensors:
        """Return the tensors of the relation; none if its cells are on a cluster."""
        relation = self.fit.relation
        return {} if _identity(relation) else stored_data.relation_to_tensors(relation)

    def write(self, path: Path, data: Tensors) -> None:
        """Write everything, completely or not at all; ``data`` are the tensors of the relation."""
        fit, tensors = self.fit, dict(data)
        entries = stored_data.relation_entries(fit.relation) | {
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


@contextmanager
def open_or_begin(path: object, wanted: StoredFit, *, any_seed: bool) -> Iterator[StoredFit]:
    """Lock a file and yield the fit in it, a CheckpointError if it is another one; else wanted."""
    with lock_and_read(
        path,
        lambda known: read(known, wanted.fit.relation),
        lambda found: found.differences(wanted, any_seed=any_seed),
    ) as found:
        if found is None:
            yield wanted
            return
        fit = found.fit
        fit.settings = replace(fit.settings, n_jobs=wanted.fit.settings.n_jobs)
        if fit.current is not None:
            fit.current.settings = fit.settings
        yield found


def read(path: str | PathLike[str], relation: Any = None) -> StoredFit:
    """Read a checkpoint; nothing in it is run, and any other file is a CheckpointError.

    ``relation`` is used if the cells are not in the file, because they are on a cluster.
    """

    def make(header: Header, tensors: Tensors) -> StoredFit:
        require(0 <= header["seed"] < 2**63, "its seed is out of range.")
        stored_data.check_relation_entries(header)
        if header["identity"] is not None:
            there = relation is not None
            require(there, "its data are on a cluster. Fit them again with this checkpoint.")
            if header["identity"] != _identity(relation):
                _refuse_another_fit(path, ["data"])
        return _unpack_fit(header, tensors, relation)

    return read_checkpoint(path, FORMAT, make)


def _unpack_fit(header: Header, tensors: Tensors, relation: Any) -> StoredFit:
    """Return the fit; refuse one whose parts do not fit each other."""
    rest = dict(tensors)
    if header["identity"] is None:
        relation = stored_data.relation_from_tensors(header, tensors)
        for name in stored_data.relation_to_tensors(relation):
            del rest[name]
    settings = unpack(header["settings"], rest, {})
    require(isinstance(settings, Settings), "its settings are of the wrong type.")
    initial = unpack(header["initial"], rest, {})
    require(is_of_type(initial, Fit.__annotations__["initial"]), "its start is not one.")
    if initial is not None:
        check_memberships(initial, relation.sizes)
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


def _identity(relation: Any) -> Any:
    """Return what identifies data whose cells are not in memory, as JSON gives it back."""
    known = relation.identity() if hasattr(relation, "identity") else None
    return json.loads(json.dumps(known))


def _digest(relation: Any) -> Any:
    """Return what distinguishes the data of a relation from others."""
    entries = stored_data.relation_entries(relation)
    return _identity(relation) or digest(entries, stored_data.relation_to_tensors(relation))
