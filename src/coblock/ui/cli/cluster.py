"""Fits on a cluster, from the command line."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from coblock.ui.cli.options import ReadOptions

if TYPE_CHECKING:
    from coblock.estimator import IRM

ENGINE_OPTIONS = ("row", "column", "value")  # of ReadOptions, which the engine takes


def fit_on_scheduler(
    model: "IRM", edges: Path, scheduler: str, read_options: ReadOptions, checkpoint: Path
) -> None:
    """Fit a model on the workers of a scheduler, which see ``edges`` at the same path.

    The same command continues an interrupted fit from its checkpoint. Errors of the cluster are
    ConnectionErrors; options for local fits are refused with a ValueError.
    """
    from coblock.distributed import ClusterError, fit_on_cluster

    given, default = asdict(read_options), asdict(ReadOptions())
    allowed = (*ENGINE_OPTIONS, "binarize")
    local = [name for name in given if name not in allowed and given[name] != default[name]]
    if model.n_jobs != 1:
        local.append("jobs")
    if local:
        msg = (
            f"{', '.join(f'--{name}' for name in local)} cannot be used with --scheduler: the "
            "workers detect the layout of a file and have their own threads. Leave it out; unseen "
            "pairs are edges with a blank --value."
        )
        raise ValueError(msg)
    parameters = model.get_params(deep=False)
    parameters |= {"binarize": given["binarize"], "checkpoint": checkpoint}
    parameters |= {name: given[name] for name in ENGINE_OPTIONS}
    try:
        fitted = fit_on_cluster(edges.resolve(), scheduler, **parameters).collect()
    except ClusterError as error:
        raise ConnectionError(str(error)) from error
    except KeyboardInterrupt:
        if not checkpoint.exists():
            raise
        msg = "Interrupted. The same command continues the fit."
        raise KeyboardInterrupt(msg) from None
    model.n_features_in_ = fitted.n_features_in_
    model._publish(fitted.result_)
