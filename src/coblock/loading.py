"""From a model file back to a fitted estimator."""

from pathlib import Path

import numpy as np

from coblock import model_file
from coblock.estimator import IRM
from coblock.stored import ModelFileError


def load(path: str | Path) -> IRM:
    """Return the fitted model that :meth:`IRM.save` has written; nothing in the file is run.

    Raises
    ------
    ModelFileError
        With a sentence, where the file is no model, damaged, or of a newer version.
    """
    stored = model_file.load(path)
    unknown = sorted(set(stored.parameters) - set(IRM().get_params()))
    if unknown:
        msg = (
            f"{path} cannot be used as a model: it has {len(unknown)} parameters that this version "
            f"of coblock does not know; the first is {unknown[0][:40]!r}. Update coblock."
        )
        raise ModelFileError(msg)
    model = IRM(**stored.parameters)
    model._publish(stored.result)
    model.n_features_in_ = stored.result.relation.shape[1]
    if stored.feature_names:
        model.feature_names_in_ = np.array(stored.result.relation.column_names, dtype=object)
    return model
