"""From a model file, or from a checkpoint, back to a fitted estimator."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from coblock.estimator import IRM
from coblock.inference.fit import Callback, Settings
from coblock.io import checkpoint, model_file
from coblock.io.checkpoint import Checkpoint, CheckpointError
from coblock.io.result_codec import ModelFileError


def load(path: str | Path) -> IRM:
    """Return the fitted model that :meth:`IRM.save` has written; nothing in the file is run.

    Raises
    ------
    ModelFileError
        With a sentence, where the file is no model, damaged, or of a newer version.
    """
    stored = model_file.load(path)
    model = _estimator(stored.parameters, path, "a model", ModelFileError)
    model._publish(stored.result)
    _complete(model, feature_names=stored.feature_names)
    return model


def resume(path: str | Path, *, callback: Callback | None = None, keep: bool = False) -> IRM:
    """Go on with the fit of a checkpoint to its end; the result has the bits of an unbroken fit.

    Parameters
    ----------
    path : str or Path
        What ``IRM(checkpoint=path)`` has written. The data and all parameters are in the file.
    callback : callable, optional
        As of :class:`~coblock.IRM`; the file holds none.
    keep : bool
        Leave the checkpoint where it is, to be removed when the result is safe.

    Raises
    ------
    CheckpointError
        With a sentence, where the file is no checkpoint, damaged, or of another format.
    """
    unfinished = Unfinished.read(path)
    unfinished.model.set_params(callback=callback)
    unfinished.fit()
    if not keep:
        Path(path).unlink(missing_ok=True)
    return unfinished.model


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A fit that a checkpoint holds, with its model, which can still be given a callback."""

    model: IRM
    under_way: Checkpoint

    @classmethod
    def read(cls, path: str | Path) -> "Unfinished":
        """Read a checkpoint; see :func:`resume`."""
        under_way = checkpoint.read(path)
        model = _estimator(under_way.parameters, path, "a checkpoint", CheckpointError)
        _check_settings(model, under_way.run.settings, path)
        return cls(model.set_params(checkpoint=path), under_way)

    def fit(self) -> None:
        """Go on to the end; the checkpoint stays."""
        self.model._go_on(self.under_way)
        _complete(self.model, feature_names=self.under_way.feature_names)


def _estimator(
    parameters: dict[str, Any], path: str | Path, what: str, kind: type[ValueError]
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


def _complete(model: IRM, *, feature_names: bool) -> None:
    """Set what scikit-learn knows of the input."""
    relation = model.result_.relation
    model.n_features_in_ = relation.shape[1]
    if feature_names:
        model.feature_names_in_ = np.array(relation.column_names, dtype=object)
