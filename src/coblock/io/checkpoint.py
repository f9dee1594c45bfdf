"""Checkpoints: a fit under way in a file, from which it continues to the same bits.

Format 2 is a :mod:`coblock.io.container` with the header entries of :data:`FORMAT`. The tensors
are those of the relation, as in a model file, and all arrays of the fit. So the file is enough to
continue, unless the cells are on a cluster: then it has the ``identity`` of the data instead. A
later format need not read this one, because a checkpoint is removed when its fit has ended.

A fit that is killed loses what it did since the last checkpoint: a minute, or the sweep or the
round of moves under way where that takes longer. A fit whose callback raises loses nothing.
"""

import json
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from importlib.metadata import version
from os import PathLike
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np

from coblock.inference.engine import Engine, LocalEngine
from coblock.inference.fit import Fit, Start
from coblock.inference.schedule import Schedule
from coblock.inference.search import Search
from coblock.inference.settings import Settings
from coblock.io import codec, container
from coblock.io.atomic import WriteError, remove_leftovers
from coblock.io.codec import pack, unpack
from coblock.io.codec_checks import check_start_memberships
from coblock.io.container import Format, Header, InvalidFileError, Tensors, require
from coblock.io.model_file import plain_parameters, read_parameters
from coblock.model.result import Result
from coblock.model.trace import Callback, SweepRecord

EVERY = 60.0  # seconds between two checkpoints at most, where a sweep is not longer
ROUNDS_APART = 1.0  # seconds between two checkpoints at least, however fast the rounds of moves
WORTH = 20.0  # a checkpoint after a round waits for this multiple of the cost of the last one
FORMAT = Format(
    "coblock-checkpoint",
    2,
    {
        **codec.RELATION_ENTRIES,
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


@dataclass(slots=True)
class StoredFit:
    """A fit that can be written to a file between any two sweeps.

    Starts run one after another, each on all threads; the result is the same.
    """

    fit: Fit
    parameters: Mapping[str, object]  # of the estimator
    feature_names: bool = False  # whether scikit-learn took the names of the columns from a frame

    def run(
        self,
        path: str | PathLike[str],
        callback: Callback | None = None,
        *,
        engine: Engine | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> Result:
        """Run the fit to its end and write checkpoints to ``path``; the last one stays.

        If the callback raises, the checkpoint of that sweep is written.
        """
        remove_leftovers(Path(path))
        writer = CheckpointWriter(self, Path(path), clock)
        writer.save()
        return self.fit.run(writer.wrap(callback), engine=engine, one_by_one=True)

    def differences(self, other: "StoredFit", *, any_seed: bool) -> list[str]:
        """Return how another fit differs: in the data, or the names of parameters."""
        mine, its = self.fit, other.fit
        found = [
            PARAMETERS.get(each.name, each.name)
            for each in fields(Settings)
            if each.name != "n_jobs"
            and getattr(mine.settings, each.name) != getattr(its.settings, each.name)
        ]
        if not _same_relation(mine.relation, its.relation):
            return ["data", *found]
        if not _same_arrays(mine.initial, its.initial) and "init" not in found:
            found.append("init")
        if not any_seed and mine.seed != its.seed:
            found.append("random_state")
        return found

    def write(self, path: Path, data: Tensors) -> None:
        """Write everything, completely or not at all; ``data`` are the tensors of the relation."""
        fit, tensors = self.fit, dict(data)
        start = fit.current
        entries = codec.relation_entries(fit.relation) | {
            "identity": _identity(fit.relation),
            "feature_names": self.feature_names,
            "parameters": plain_parameters(self.parameters),
            "written_by": version("coblock"),
            "seed": fit.seed,
            "rng": None if start is None else start.rng.bit_generator.state,
            "settings": pack(fit.settings, "settings", tensors),
            "initial": pack(fit.initial, "initial", tensors),
            "ended": pack(fit.ended, "ended", tensors),
            "current": pack(start, "current", tensors),
        }
        container.write_container(path, FORMAT, entries, tensors)


@dataclass(slots=True)
class CheckpointWriter:
    """Writes a fit to its file every minute and after rounds of moves."""

    stored: StoredFit
    path: Path
    clock: Callable[[], float] = monotonic
    data: Tensors = field(init=False)  # of the relation; made once, because they do not change
    written: float | None = field(init=False, default=None)  # time of the last checkpoint
    cost: float = field(init=False, default=0.0)  # seconds that it took
    rounds: tuple[int, int] = field(init=False, default=(0, 0))  # that it contains

    def __post_init__(self) -> None:
        """Make the tensors of the relation."""
        relation = self.stored.fit.relation
        local = _identity(relation) is None
        self.data = codec.relation_to_tensors(relation) if local else {}

    def wrap(self, callback: Callback | None) -> Callback:
        """Return a callback that calls the given one, and writes a checkpoint if one is due."""

        def call_and_write(record: SweepRecord) -> object:
            try:
                answer = None if callback is None else callback(record)
            except BaseException:
                self.save()
                raise
            if answer is not True:
                self.save_if_due()
            return answer

        return call_and_write

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


def open_or_begin(path: object, wanted: StoredFit, *, any_seed: bool) -> StoredFit:
    """Return the fit in the file ``path`` if it is the wanted one; without a file, the wanted one.

    Raises
    ------
    CheckpointError
        If the file is the checkpoint of another fit, or cannot be used.
    """
    if not isinstance(path, str | PathLike):
        msg = f"checkpoint must be a path or None, but is {path!r} ({type(path).__name__})."
        raise TypeError(msg)
    if not Path(path).exists():
        return wanted
    found = read(path, wanted.fit.relation)
    different = found.differences(wanted, any_seed=any_seed)
    if different:
        raise _another_fit(path, different)
    fit = found.fit
    fit.settings = replace(fit.settings, n_jobs=wanted.fit.settings.n_jobs)
    if fit.current is not None:
        fit.current.settings = fit.settings
    return found


def read(path: str | PathLike[str], relation: Any = None) -> StoredFit:
    """Read a checkpoint; nothing in it is run.

    ``relation`` is used if the cells are not in the file, because they are on a cluster.

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
        header, tensors = container.read_container(Path(path), FORMAT, _check_header)
        if header["identity"] is not None:
            there = relation is not None
            require(there, "its data are on a cluster. Fit them again with this checkpoint.")
            if header["identity"] != _identity(relation):
                raise _another_fit(path, ["data"])
        found = _unpack_fit(header, tensors, relation)
    except InvalidFileError as error:
        msg = f"{path} cannot be used as a checkpoint: {error}"
        raise CheckpointError(msg) from error
    if header["written_by"] != version("coblock"):
        warnings.warn(
            f"{path} was written by coblock {header['written_by'][:20]}, this is "
            f"{version('coblock')}: the last bits of the result may differ from those of an "
            "uninterrupted fit.",
            UserWarning,
            stacklevel=2,
        )
    return found


def _check_header(header: Header, _types: dict[str, str]) -> None:
    codec.check_relation_entries(header)
    read_parameters(header["parameters"])
    require(0 <= header["seed"] < 2**63, "its seed is out of range.")


def _unpack_fit(header: Header, tensors: Tensors, relation: Any) -> StoredFit:
    """Return the fit; refuse one whose parts do not fit each other."""
    try:
        if header["identity"] is None:
            relation = codec.relation_from_tensors(header, tensors)
        used = {} if header["identity"] is not None else codec.relation_to_tensors(relation)
        rest = {name: array for name, array in tensors.items() if name not in used}
        settings = unpack(header["settings"], rest, {})
        require(isinstance(settings, Settings), "its settings are of the wrong type.")
        initial = unpack(header["initial"], rest, {})
        require(codec.is_of_type(initial, Fit.__annotations__["initial"]), "its start is not one.")
        check_start_memberships(initial, relation)
        rng = np.random.default_rng(0)
        if header["rng"] is not None:
            rng.bit_generator.state = header["rng"]
        one_by_one = LocalEngine(Schedule(1))  # of a Gibbs chain; Fit.run sets that of other phases
        shared = {"relation": relation, "settings": settings, "initial": initial, "rng": rng}
        shared |= {"engine": one_by_one}
        ended = unpack(header["ended"], rest, shared)
        current = unpack(header["current"], rest, shared)
        fits = codec.is_of_type(ended, list[Result]) and isinstance(current, Start | None)
        require(fits and len(ended) < settings.n_init, "it has other starts than it should.")
        require(not rest, f"it has {len(rest)} tensors that belong nowhere.")
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        if isinstance(error, InvalidFileError):
            raise
        msg = f"its parts do not fit together ({error})."
        raise InvalidFileError(msg) from error
    fit = Fit(relation, settings, header["seed"], initial, ended, current)
    return StoredFit(fit, read_parameters(header["parameters"]), header["feature_names"])


def _another_fit(path: object, different: list[str]) -> CheckpointError:
    return CheckpointError(
        f"{path} is the checkpoint of another fit: it differs in {', '.join(different)}. Name "
        "another file, or delete this one to begin anew."
    )


def _identity(relation: Any) -> Any:
    """Return what identifies data whose cells are not in memory, as JSON gives it back."""
    if not hasattr(relation, "identity"):
        return None
    return json.loads(json.dumps(relation.identity()))


def _same_relation(one: Any, other: Any) -> bool:
    """Return whether two relations have the same cells and names, or the same identity."""
    if _identity(one) is not None or _identity(other) is not None:
        return bool(_identity(one) == _identity(other))
    same = codec.relation_entries(one) == codec.relation_entries(other)
    tensors = [list(codec.relation_to_tensors(each).values()) for each in (one, other)]
    return same and _same_arrays(*tensors)


def _same_arrays(one: list[Any] | None, other: list[Any] | None) -> bool:
    if one is None or other is None:
        return one is other
    return len(one) == len(other) and all(map(np.array_equal, one, other))
