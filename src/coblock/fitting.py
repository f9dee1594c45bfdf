"""From a relation to a result: start, sweeps, stop rule, restarts."""

import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from joblib import Parallel, delayed
from sklearn.exceptions import ConvergenceWarning

from coblock.hyperparameters import FIRST_UPDATE, Priors, Rule
from coblock.inference.gibbs import GibbsRun
from coblock.inference.report import Sweep
from coblock.inference.variational import VariationalRun
from coblock.kernels import Floats
from coblock.relation import Relation
from coblock.result import Result, conclude
from coblock.start import most_probable, random_memberships, truncation
from coblock.state import State

Callback = Callable[[Sweep], object]


@dataclass(frozen=True, slots=True)
class Settings:
    """How to fit; see :class:`coblock.IRM` for what each means."""

    inference: str = "acvb0"
    max_clusters: int | tuple[int, int] | None = None
    shared_prior: bool = True
    exact_variance: bool = True
    rule: Rule = "newton"
    burn_in: int | None = None
    tol: float = 1e-5
    max_iter: int = 500
    n_init: int = 1
    n_jobs: int | None = None


def fit(
    relation: Relation,
    settings: Settings,
    rng: np.random.Generator,
    *,
    initial: list[Floats] | None = None,
    callback: Callback | None = None,
) -> Result:
    """Fit ``n_init`` times and return the result with the largest log evidence."""
    seeds = rng.spawn(settings.n_init)
    results = Parallel(n_jobs=settings.n_jobs, prefer="threads")(
        delayed(fit_once)(relation, settings, seed, initial, callback) for seed in seeds
    )
    best = max(results, key=lambda result: result.log_evidence)
    if not best.converged and settings.inference != "gibbs" and settings.tol > 0:
        _warn_of_no_convergence(best.trace[-1], settings)
    return best


def fit_once(
    relation: Relation,
    settings: Settings,
    rng: np.random.Generator,
    initial: list[Floats] | None = None,
    callback: Callback | None = None,
) -> Result:
    """Fit from one start."""
    memberships = initial
    if memberships is None:
        clusters = truncation(relation, settings.max_clusters)
        memberships = random_memberships(relation, clusters, rng)
    tables = (memberships[0].shape[1], memberships[-1].shape[1])
    priors = Priors.start(tables, len(memberships), relation.density, settings.shared_prior)
    run: GibbsRun | VariationalRun
    if settings.inference == "gibbs":
        labels = most_probable(memberships)
        run = GibbsRun(relation, labels, priors, rng, settings.max_iter, settings.rule)
    else:
        run = VariationalRun(
            State(relation, memberships, priors),
            settings.inference,
            settings.exact_variance,
            settings.rule,
            settings.burn_in,
            wait=FIRST_UPDATE if initial is None else 1,
        )
    trace, converged = follow(run.sweeps(), settings, lambda: _averaging(run), callback)
    return conclude(
        relation,
        run.memberships,
        run.priors if isinstance(run, GibbsRun) else run.state.priors,
        trace,
        converged=converged,
        samples=run.samples if isinstance(run, GibbsRun) else None,
    )


def follow(
    sweeps: Iterable[Sweep],
    settings: Settings,
    averaging: Callable[[], bool],
    callback: Callback | None = None,
) -> tuple[list[Sweep], bool]:
    """Consume sweeps until they converge, ``max_iter`` is reached or the callback says True."""
    trace: list[Sweep] = []
    for sweep in sweeps:
        trace.append(sweep)
        asked_to_stop = callback is not None and callback(sweep) is True
        converged = has_converged(trace, settings, averaging=averaging())
        if converged or asked_to_stop or len(trace) >= settings.max_iter:
            return trace, converged
    return trace, False


def has_converged(trace: list[Sweep], settings: Settings, *, averaging: bool) -> bool:
    """Say whether the change fell below tol: of the average, of q, or of the bound (MODEL 9)."""
    last = trace[-1]
    if settings.inference == "vb":
        return len(trace) > 1 and abs(last.bound - trace[-2].bound) < settings.tol * abs(last.bound)
    if settings.inference == "gibbs":
        return False
    return last.change < settings.tol and (averaging or not settings.inference.startswith("a"))


def _averaging(run: GibbsRun | VariationalRun) -> bool:
    return isinstance(run, VariationalRun) and run.averaged > 1


def _warn_of_no_convergence(last: Sweep, settings: Settings) -> None:
    what = "bound" if settings.inference == "vb" else "memberships"
    warnings.warn(
        f"The {what} had not converged after {last.sweep:,} sweeps: the last change was "
        f"{last.change:.2g}, tol is {settings.tol:g}. Raise max_iter (now {settings.max_iter:,}) "
        "or tol; the result so far is usable, look at trace_.",
        ConvergenceWarning,
        stacklevel=4,
    )
