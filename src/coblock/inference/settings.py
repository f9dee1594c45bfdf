"""Settings of a fit, and the constants that steer the search."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from joblib import effective_n_jobs

from coblock.model import checks
from coblock.model.likelihoods import Rule

METHODS = ("acvb0", "acvb", "cvb0", "cvb", "vb", "gibbs")


@dataclass(frozen=True, slots=True)
class Settings:
    """How to fit; see :class:`coblock.IRM` for the meaning of each."""

    inference: str = "acvb0"
    max_clusters: int | tuple[int, int] | None = None
    init: str = "spectral"
    refine: bool = True
    shared_prior: bool = True
    exact_variance: bool = True
    rule: Rule = "newton"
    burn_in: int | None = None
    tol: float = 1e-5
    max_iter: int = 1000
    n_init: int = 1
    batch_size: int | tuple[int, int] | None = None
    n_jobs: int | None = None

    @property
    def threads(self) -> tuple[int, int]:
        """Starts that run at the same time, and threads for the sweeps of each."""
        jobs = effective_n_jobs(self.n_jobs)
        starts = min(jobs, self.n_init)
        return starts, jobs // starts

    @property
    def averages(self) -> bool:
        """Whether the method averages memberships over sweeps."""
        return self.inference.startswith("a")

    @property
    def phases(self) -> tuple[str, ...]:
        """Names of the phases of a fit, in their order.

        Gibbs samples from the start. The plain methods (``refine=False``) sweep from the start.
        Otherwise a search comes first. It is followed by posterior averaging around the
        partition found where the method is of order zero with a shared prior, and by the
        method's own sweeps where it is not.
        """
        if self.inference == "gibbs":
            return ("gibbs",)
        if not self.refine:
            return ("variational",)
        if self.inference in {"acvb0", "cvb0"} and self.shared_prior:
            return ("search", "posterior")
        return ("search", "variational")


def read_settings(parameters: Mapping[str, Any], *, given_start: bool) -> Settings:
    """Check the parameters of an estimator; a start may be given as labels or as a model."""
    choices = {
        "relation": checks.KINDS,
        "inference": METHODS,
        "prior": ("shared", "per-block"),
        "variance": ("exact", "paper"),
        "hyperparameters": ("newton", "fixed-point", "fixed"),
    }
    for name, options in choices.items():
        checks.check_choice(name, parameters[name], options)
    if not given_start:
        checks.check_choice("init", parameters["init"], ("spectral", "random"))
    if parameters["inference"] == "gibbs" and parameters["prior"] == "per-block":
        msg = "inference='gibbs' supports the shared prior only. Pass prior='shared'."
        raise ValueError(msg)
    burn_in = parameters["burn_in"]
    return Settings(
        inference=parameters["inference"],
        max_clusters=checks.check_clusters(parameters["max_clusters"]),
        init="given" if given_start else parameters["init"],
        refine=bool(parameters["refine"]),
        shared_prior=parameters["prior"] == "shared",
        exact_variance=parameters["variance"] == "exact",
        rule=parameters["hyperparameters"],
        burn_in=None if burn_in is None else checks.check_whole_number("burn_in", burn_in, 0),
        tol=checks.check_number("tol", parameters["tol"]),
        max_iter=checks.check_whole_number("max_iter", parameters["max_iter"], 1),
        n_init=checks.check_whole_number("n_init", parameters["n_init"], 1),
        batch_size=checks.check_batch_size(parameters["batch_size"]),
        n_jobs=parameters["n_jobs"],
    )


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """Constants of start, search and posterior averaging.

    Measurements with other values are on the page docs/search.md, written by
    benchmarks/search_settings.py: log evidence and CPU time of default fits of two real relations.
    """

    start_clusters: int = 40  # of the spectral start; 80 gain evidence at 1.5 times the time
    truncation: int = 20  # clusters of the plain methods from a random start, as in the paper
    members_per_cluster: int = 3  # objects per cluster of the spectral start, at least
    start_membership: float = 0.8  # of an object in its start cluster; the rest is spread evenly
    sampled_sweeps: int = 3  # sweeps of a perturbation
    merged_share: float = 0.15  # fraction of the clusters merged by every second perturbation
    round_gain: float = 2e-4  # relative gain of evidence below which a local search has ended
    perturbation_gain: float = 2e-4  # the same for a perturbation
    patience_objects: int = 3_000  # divided by the objects of a relation: failures allowed,
    most_failures: int = 3  # from 1 up to so many perturbations without gain
    least_gain: float = 1e-6  # nats that a merge or split must gain
    split_seeds: int = 5  # pairs of members from which each cluster is split
    split_passes: int = 10  # over the members of a cluster, at most
    room: int = 4  # empty clusters added when a sequential sweep has used the last one
    label_gain: float = 1e-6  # relative gain of evidence for which posterior labels still change
    most_samples: int = 32  # sampled sweeps in the posterior average,
    sampled_visits: int = 150_000  # and objects in all of them: large relations vary less
    sample_batches: int = 4  # of a sampled sweep and domain: labels change little there

    def patience(self, objects: int) -> int:
        """Return how many perturbations without gain end the search of so many objects."""
        return min(max(self.patience_objects // objects, 1), self.most_failures)


SEARCH = SearchSettings()
