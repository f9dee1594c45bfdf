"""Fitted estimators from model files and from checkpoints."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from coblock.estimator import IRM
from coblock.inference.settings import Settings
from coblock.io import checkpoint, model_file
from coblock.io.checkpoint import CheckpointError, StoredFit
from coblock.io.model_file import ModelFileError
from coblock.model.trace import Callback


def load(path: str | Path) -> IRM:
    """Return the fitted model that :meth:`IRM.save` has written; nothing in the file is run.

    Raises
    ------
    ModelFileError
        With a sentence, where the file is not a model, damaged, or of a newer version.
    """
    stored = model_file.load(path)
    model = _make_estimator(stored.parameters, path, "a model", ModelFileError)
    model._publish(stored.result)
    _set_features(model, feature_names=stored.feature_names)
    return model


def resume(path: str | Path, *, callback: Callback | None = None, keep: bool = False) -> IRM:
    """Continue the fit of a checkpoint to its end; the bits are those of an uninterrupted fit.

    Parameters
    ----------
    path : str or Path
        A file that ``IRM(checkpoint=path)`` has written, with the data and all parameters.
    callback : callable, optional
        As of :class:`~coblock.IRM`; it is not in the file.
    keep : bool
        Do not remove the checkpoint at the end.

    Raises
    ------
    CheckpointError
        With a sentence, where the file is not a checkpoint, damaged, or of another format.
    """
    unfinished = Unfinished.read(path)
    unfinished.model.set_params(callback=callback)
    unfinished.fit()
    if not keep:
        Path(path).unlink(missing_ok=True)
    return unfinished.model


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A fit from a checkpoint, with its model, whose callback can still be set."""

    model: IRM
    stored: StoredFit

    @classmethod
    def read(cls, path: str | Path) -> "Unfinished":
        """Read a checkpoint; see :func:`resume`."""
        stored = checkpoint.read(path)
        model = _make_estimator(stored.parameters, path, "a checkpoint", CheckpointError)
        _check_settings(model, stored.fit.settings, path)
        return cls(model.set_params(checkpoint=path), stored)

    def fit(self) -> None:
        """Run the fit to its end; the checkpoint stays."""
        self.model._continue(self.stored)
        _set_features(self.model, feature_names=self.stored.feature_names)


def _make_estimator(
    parameters: Mapping[str, Any], path: str | Path, what: str, kind: type[ValueError]
) -> IRM:
    unknown = sorted(set(parameters) - set(IRM().get_params()))
    if unknown:
        msg = (
            f"{path} cannot be used as {what}: it has {len(unknown)} parameters that this version "
            f"of coblock does not know; the first is {unknown[0][:40]!r}. Update coblock."
        )
        raise kind(msg)
    return IRM(**parameters)


def _check_settings(model: IRM, settings: Settings, path: str | Path) -> None:
    """Refuse a checkpoint whose settings are not those that its parameters give."""
    try:
        asked = IRM(**(model.get_params() | {"init": "spectral"}))._settings()
    except (TypeError, ValueError) as error:
        msg = f"{path} cannot be used as a checkpoint: {error}"
        raise CheckpointError(msg) from error
    if replace(asked, init=settings.init, n_jobs=settings.n_jobs) != settings:
        msg = f"{path} cannot be used as a checkpoint: its settings are not its parameters."
        raise CheckpointError(msg)


def _set_features(model: IRM, *, feature_names: bool) -> None:
    """Set the attributes that scikit-learn sets from the input."""
    relation = model.result_.relation
    model.n_features_in_ = relation.shape[1]
    if feature_names:
        model.feature_names_in_ = np.array(relation.column_names, dtype=object)
