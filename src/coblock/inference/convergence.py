"""The stop rule of soft sweeps, and the warning of a fit that has run out of sweeps (MODEL 9)."""

import inspect
import warnings

from sklearn.exceptions import ConvergenceWarning

from coblock.inference.settings import Settings
from coblock.model.multi_result import MultiRecord, MultiResult
from coblock.model.result import Result
from coblock.model.trace import SweepRecord

VB_MEMBERSHIPS = 1e3  # change of memberships over that of the bound, at which VB stops


def last_change(trace: list[SweepRecord] | list[MultiRecord], settings: Settings) -> float:
    """Return what the stop rule looks at: the change of memberships, or of VB's bound.

    A bound that is nearly at its optimum changes less than memberships do, so these count, too.
    """
    last = trace[-1]
    if settings.inference == "vb" and len(trace) > 1:
        relative = abs(last.bound - trace[-2].bound) / max(abs(last.bound), 1.0)
        return max(relative, last.change / VB_MEMBERSHIPS)
    return last.change


def warn_if_not_converged(result: Result | MultiResult, settings: Settings) -> None:
    """Warn if the fit ended because it had no sweeps left."""
    trace = result.trace
    if result.converged or len(trace) < settings.max_iter:
        return
    what = "bound" if settings.inference == "vb" else "memberships"
    change = last_change(trace, settings)
    why = f"the last change was {change:.2g}, tol is {settings.tol:g}"
    if change < settings.tol:
        why = "their average had just begun" if settings.averages else "one is too few"
    if trace[-1].moved is not None:  # hard labels: tol is not the rule of this phase
        why = "the search, or the sampling after it, was not finished"
    warnings.warn(
        f"The {what} had not converged after {len(trace):,} sweeps: {why}. Raise max_iter (now "
        f"{settings.max_iter:,}) or tol. The result so far is usable; look at trace_.",
        ConvergenceWarning,
        stacklevel=caller_level(),
    )


def caller_level() -> int:
    """Return the stack level, for a warning, of the first caller outside of coblock."""
    frame, level = inspect.currentframe(), 0
    while frame is not None and frame.f_globals.get("__name__", "").split(".")[0] == "coblock":
        frame, level = frame.f_back, level + 1
    return level
