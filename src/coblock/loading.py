"""Fitted estimators from model files and from checkpoints."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from coblock.estimator import IRM
from coblock.io import checkpoint, model_file, multi_checkpoint
from coblock.io.atomic import hold
from coblock.io.checkpoint import CheckpointError, StoredFit
from coblock.io.container import convert_refusals, has_format, require
from coblock.io.model_file import PARAMETERS, ModelFileError
from coblock.io.multi_checkpoint import StoredMultiFit
from coblock.model.multi_result import MultiResult
from coblock.multi import MultiIRM


def load(path: str | Path) -> Any:
    """Return the fitted IRM or MultiIRM whose ``save`` has written a file; nothing in it is run.

    Raises
    ------
    ModelFileError
        With a sentence, where the file is not a model, damaged, or of a newer version.
    """
    stored = model_file.load(path)
    if isinstance(stored.result, MultiResult):
        several = MultiIRM(**stored.parameters)
        several._publish(stored.result)
        return several
    with convert_refusals(path, "a model", ModelFileError):
        model = _make_estimator(stored.parameters)
    model._publish(stored.result)
    _set_features(model, feature_names=stored.feature_names)
    return model


def resume(path: str | Path, *, callback: Any = None, keep: bool = False) -> Any:
    """Continue the fit of a checkpoint to its end; the bits are those of an uninterrupted fit.

    Parameters
    ----------
    path : str or Path
        A file that ``IRM(checkpoint=path)`` or ``MultiIRM(checkpoint=path)`` has written, with the
        data and all parameters.
    callback : callable, optional
        As of the estimator; it is not in the file.
    keep : bool
        Do not remove the checkpoint at the end.

    Raises
    ------
    CheckpointError
        With a sentence, where the file is not a checkpoint, damaged, or of another format.
    """
    with Unfinished.open(path) as unfinished:
        unfinished.model.set_params(callback=callback)
        unfinished.fit(keep=keep)
    return unfinished.model


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A fit from a checkpoint, with its model, whose callback can still be set."""

    model: Any  # IRM or MultiIRM
    stored: StoredFit | StoredMultiFit

    @classmethod
    @contextmanager
    def open(cls, path: str | Path) -> "Iterator[Unfinished]":
        """Lock and read a checkpoint; refuse one whose settings are not its parameters."""
        checkpoint.check_exists(path)
        with hold(path):
            several = has_format(path, multi_checkpoint.FORMAT)
            found = cls._read_several(path) if several else cls._read(path)
            found.model.set_params(checkpoint=path)
            yield found

    @classmethod
    def _read(cls, path: str | Path) -> "Unfinished":
        stored = checkpoint.read(path)
        settings = stored.fit.settings
        with convert_refusals(path, "a checkpoint", CheckpointError):
            model = _make_estimator(stored.parameters)
            asked = IRM(**(model.get_params() | {"init": "spectral"}))._settings()
            same = replace(asked, init=settings.init, n_jobs=settings.n_jobs) == settings
            require(same, "its settings are not its parameters.")
        return cls(model, stored)

    @classmethod
    def _read_several(cls, path: str | Path) -> "Unfinished":
        stored = multi_checkpoint.read(path)
        return cls(MultiIRM(**stored.parameters), stored)

    def fit(self, *, keep: bool) -> None:
        """Run the fit to its end; the checkpoint is removed unless it is to be kept."""
        self.model._continue(self.stored, keep=keep)
        if isinstance(self.stored, StoredFit):
            _set_features(self.model, feature_names=self.stored.feature_names)


def _make_estimator(parameters: Mapping[str, Any]) -> IRM:
    """Return an estimator; a file chooses no path, no function and no engine."""
    unknown = sorted(set(parameters) - set(PARAMETERS))
    found = f"it has {len(unknown)} parameters that this version of coblock does not know"
    require(not unknown, f"{found}; the first is {''.join(unknown[:1])[:40]!r}. Update coblock.")
    model_file.check_types(parameters, PARAMETERS)
    return IRM(**parameters)


def _set_features(model: IRM, *, feature_names: bool) -> None:
    """Set the attributes that scikit-learn sets from the input."""
    relation = model.result_.relation
    model.n_features_in_ = relation.shape[1]
    if feature_names:
        model.feature_names_in_ = np.array(relation.column_names, dtype=object)
