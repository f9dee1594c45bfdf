"""A fit on a cluster, for the command line."""

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from coblock.ui.cli.options import Layout

if TYPE_CHECKING:
    from coblock.estimator import IRM

READ_BY_WORKERS = ("row", "column", "value", "binarize")
NOT_THERE = ("checkpoint", "n_jobs", "relation", "variance", "verbose")  # parameters set otherwise


def fit_remotely(
    model: "IRM", edges: Path, scheduler: str, layout: Layout, checkpoint: Path
) -> None:
    """Fit a model on the cluster of a scheduler, and bring its links here.

    A single start has a checkpoint: the same command goes on from it. ``edges`` must be seen by
    every worker under the same name.

    Raises
    ------
    ConnectionError
        The cluster cannot be reached, does not fit, or was lost.
    ValueError
        An option is for one machine only.
    """
    from coblock.distributed import ClusterError, fit_on_cluster

    _refuse_what_is_local(model, layout)
    given = {name: value for name, value in model.get_params().items() if name not in NOT_THERE}
    given |= {name: getattr(layout, name) for name in READ_BY_WORKERS}
    kept = checkpoint if model.n_init == 1 else None
    try:
        found = fit_on_cluster(
            edges.resolve(), scheduler, relation=model.relation, checkpoint=kept, **given
        ).collect()
    except ClusterError as error:
        raise ConnectionError(str(error)) from error
    except KeyboardInterrupt:
        if kept is None or not kept.exists():
            raise
        msg = "Interrupted. The same command goes on."
        raise KeyboardInterrupt(msg) from None
    model.n_features_in_ = found.n_features_in_
    model._publish(found.result_)


def _refuse_what_is_local(model: "IRM", layout: Layout) -> None:
    """Refuse options that the workers of a cluster do not know."""
    default = Layout()
    changed = [
        f"--{field.name}"
        for field in fields(Layout)
        if field.name not in READ_BY_WORKERS
        and getattr(layout, field.name) != getattr(default, field.name)
    ]
    if model.n_jobs != 1:
        changed.append("--jobs")
    if changed:
        msg = (
            f"{', '.join(changed)} cannot be used with --scheduler: workers find out how files "
            "look and have threads of their own. Leave it out; unseen pairs are edges with a blank "
            "--value."
        )
        raise ValueError(msg)
