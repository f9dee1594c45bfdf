"""Settings of a fit, and the constants that steer the search."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import NoneType
from typing import Any, Literal

from joblib import effective_n_jobs

from coblock.model import checks
from coblock.model.dataset import Dataset
from coblock.model.likelihoods import Rule

METHODS = ("acvb0", "acvb", "cvb0", "cvb", "vb", "gibbs")


@dataclass(frozen=True, slots=True)
class Settings:
    """How to fit; see :class:`coblock.IRM` for the meaning of each."""

    inference: str = "acvb0"
    degree_corrected: bool | Literal["auto"] = False
    max_clusters: int | tuple[int, int] | None = None
    init: str = "spectral"
    refine: bool = True
    shared_prior: bool = True
    exact_variance: bool = True
    rule: Rule = "newton"
    block_prior: tuple[float, float] | None = None
    concentration: tuple[float, float] | None = None
    hyperprior: tuple[float, float] | None = None
    block_hyperprior: tuple[float, float] | None = None
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
        method's own sweeps where it is not. With degree correction the search under that model
        comes after the plain one; memberships are averaged if the plain model is taken.
        """
        if self.degree_corrected:
            more = () if self.degree_corrected is True else ("posterior",)
            return ("search", "degrees", *more)
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
    if parameters["likelihood"] != "bernoulli":
        asked = f"likelihood={parameters['likelihood']!r}"
        msg = (
            f"IRM fits binary relations. For {asked} use MultiIRM, "
            f"as in MultiIRM().fit({{'data': Relation(X, ['row', 'column'], {asked})}})."
        )
        raise ValueError(msg)
    if not given_start:
        checks.check_choice("init", parameters["init"], ("spectral", "random"))
    if parameters["inference"] == "gibbs" and parameters["prior"] == "per-block":
        msg = "inference='gibbs' supports the shared prior only. Pass prior='shared'."
        raise ValueError(msg)
    _check_degree_corrected(parameters)
    burn_in, concentration = parameters["burn_in"], parameters["concentration"]
    if not isinstance(concentration, tuple | list | NoneType):
        concentration = (concentration, concentration)
    return Settings(
        inference=parameters["inference"],
        degree_corrected=parameters["degree_corrected"],
        max_clusters=checks.check_one_or_two("max_clusters", parameters["max_clusters"], None),
        init="given" if given_start else parameters["init"],
        refine=bool(parameters["refine"]),
        shared_prior=parameters["prior"] == "shared",
        exact_variance=parameters["variance"] == "exact",
        rule=parameters["hyperparameters"],
        block_prior=checks.check_positive_pair("block_prior", parameters["block_prior"]),
        concentration=checks.check_positive_pair("concentration", concentration),
        hyperprior=checks.check_positive_pair("hyperprior", parameters["hyperprior"]),
        block_hyperprior=checks.check_positive_pair(
            "block_hyperprior", parameters["block_hyperprior"]
        ),
        burn_in=None if burn_in is None else checks.check_whole_number("burn_in", burn_in, 0),
        tol=checks.check_number("tol", parameters["tol"]),
        max_iter=checks.check_whole_number("max_iter", parameters["max_iter"], 1),
        n_init=checks.check_whole_number("n_init", parameters["n_init"], 1),
        batch_size=checks.check_one_or_two("batch_size", parameters["batch_size"], "auto"),
        n_jobs=parameters["n_jobs"],
    )


def read_multi_settings(parameters: Mapping[str, Any]) -> Settings:
    """Check the parameters of an estimator of several relations."""
    checks.check_choice("inference", parameters["inference"], METHODS)
    checks.check_choice("init", parameters["init"], ("spectral", "random"))
    burn_in = parameters["burn_in"]
    return Settings(
        inference=parameters["inference"],
        init=parameters["init"],
        refine=bool(parameters["refine"]),
        burn_in=None if burn_in is None else checks.check_whole_number("burn_in", burn_in, 0),
        tol=checks.check_number("tol", parameters["tol"]),
        max_iter=checks.check_whole_number("max_iter", parameters["max_iter"], 1),
    )


def check_method(settings: Settings, data: Dataset) -> None:
    """Refuse a method that several relations, or the likelihood of one, do not have."""
    if settings.inference in {"acvb", "cvb"}:
        msg = (
            f"inference='{settings.inference}' is for one binary relation of two places, which "
            f"IRM fits. Use '{settings.inference}0'."
        )
        raise ValueError(msg)
    if "variational" in settings.phases:
        plain = "" if settings.refine else " with refine=False"
        data.refuse_correction(f"inference='{settings.inference}'{plain}")
    for table in data.tables:
        if settings.inference == "vb" and not hasattr(table.likelihood, "expected_log"):
            msg = (
                f"inference='vb' needs the derivative of the log marginal, and the likelihood of "
                f"relation '{table.name}' has no method expected_log. Add it, or use 'acvb0'."
            )
            raise ValueError(msg)


def _check_degree_corrected(parameters: Mapping[str, Any]) -> None:
    """Refuse an unknown choice, and what the search under the corrected model does not use."""
    asked = parameters["degree_corrected"]
    if not (isinstance(asked, bool) or (isinstance(asked, str) and asked == "auto")):
        msg = f"degree_corrected must be True, False or 'auto', but is {asked!r}."
        raise ValueError(msg)
    if not asked:
        return
    needed = {"inference": ("acvb0", "cvb0"), "refine": (True,), "prior": ("shared",)}
    needed |= {"hyperparameters": ("newton", "fixed-point")}
    for name, options in needed.items():
        if parameters[name] not in options:
            msg = (
                f"Degree correction is found by the default search, not with {name}="
                f"{parameters[name]!r}. Use {name}={options[0]!r}, or no degree correction."
            )
            raise ValueError(msg)


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """Constants of start, search and posterior averaging.

    Measurements with other values are on the page docs/search.md, written by
    benchmarks/search_settings.py: log evidence and CPU time of default fits of two real relations.
    """

    start_clusters: int = 60  # of the spectral start,
    start_factor: int = 4  # by which they are more where all of them are used
    few_start_clusters: int = 4  # of another spectral start, doubled while all are used
    weak_share: float = 0.5  # of the gain of many clusters that few must reach to be swept softly
    start_rounds: int = 2  # of sweeps and merges before starts are compared
    truncation: int = 20  # clusters of the plain methods from a random start, as in the paper
    members_per_cluster: int = 3  # objects per cluster of the spectral start, at least
    start_membership: float = 0.8  # of an object in its start cluster; the rest is spread evenly
    sampled_sweeps: int = 3  # sweeps of a perturbation
    merged_share: float = 0.15  # fraction of the clusters merged by every second perturbation
    merge_neighbours: int = 8  # clusters that each one may be merged with
    few_merged: float = 0.02  # fraction of the clusters; after fewer merges no new pairs are sought
    round_gain: float = 1e-4  # relative gain of evidence below which a local search has ended
    perturbation_gain: float = 2e-4  # the same for a perturbation
    patience_objects: int = 3_000  # divided by the objects of a relation: failures allowed,
    most_failures: int = 10  # from 1 up to so many perturbations without gain
    perturbed_objects: int = 100_000  # in all perturbations
    least_gain: float = 1e-6  # nats that a merge or split must gain
    few_blocks: int = 16  # up to so many, splits are valued at learnt hyperparameters
    split_seeds: int = 5  # pairs of members from which each cluster is split
    split_passes: int = 10  # over the members of a cluster, at most
    room: int = 4  # empty clusters added when a sequential sweep has used the last one
    label_gain: float = 1e-5  # relative gain of evidence for which posterior labels still change
    most_samples: int = 32  # sampled sweeps in the posterior average,
    sampled_visits: int = 150_000  # and objects in all of them: large relations vary less
    fewest_samples: int = 12  # in the posterior average; a relation with less budget has none
    average_tol: float = 0.02  # change of averages by one sample below which they have converged
    chain_tol: float = 0.002  # the same at which chains end before their budget is used
    chains: int = 3  # Gibbs chains of a relation that is swept sequentially, at most
    chain_burn_in: int = 60  # first sweeps of a chain, which are left out
    cluster_proposals: int = 5  # splits or merges proposed per sweep of a chain and domain
    sweeps_per_sample: int = 4  # of a chain
    least_samples: int = 24  # of all chains
    most_chained: int = 300  # samples of all chains,
    chain_visits: int = 400_000  # and objects in all of their sweeps
    screened_density: float = 0.2  # links per cell up to which label sweeps screen clusters
    label_batches: int = 4  # of a label sweep and domain
    degree_margin: float = 3.0  # nats by which the corrected model must be better to be chosen
    dense: float = 0.2  # links per cell above which the plain model is not compared with another
    degree_vectors: int = 80  # singular vectors of the degree-normalised start, at most
    degree_centres: float = 1.6  # clusters of that start per singular vector above the noise
    split_sweeps: int = 3  # over the members of a degree-corrected cluster that is split
    degree_gain: float = 0.5  # nats, and
    degree_share: float = 1e-6  # of the evidence, below which a round ends a climb
    degree_reach: float = 5.0  # gains of the last round by which a climb may be behind the best

    def patience(self, objects: int) -> int:
        """Return how many perturbations without gain end the search of so many objects."""
        return min(max(self.patience_objects // objects, 1), self.most_failures)

    def most_perturbations(self, objects: int) -> int:
        """Return how many perturbations a search of so many objects has at most."""
        return self.perturbed_objects // objects


SEARCH = SearchSettings()


@dataclass(frozen=True, slots=True)
class ChainSettings:
    """Constants of the chains of several relations."""

    chains: int = 4  # from the best local optima, at most
    first_sweeps: int = 10  # of each chain, after which the chains must have moved
    burn_in: int = 15  # first sweeps of each chain, which are left out
    most_sweeps: int = 280  # of all chains,
    visited_cells: int = 40_000_000  # and stored cells, unseen ones included, that objects visit in
    # all sweeps. umls with a tenth unseen has 290,000 per sweep of 0.6 CPU s: 140 sweeps

    def is_affordable(self, data: Dataset) -> bool:
        """Return whether the objects can be sampled often enough for an average."""
        sweeps = SEARCH.fewest_samples * SEARCH.sweeps_per_sample
        visits = sum(data.sizes) * sweeps <= SEARCH.chain_visits
        return visits and data.layout.cell.size * sweeps <= self.visited_cells

    def sweeps(self, data: Dataset) -> int:
        """Return how many sweeps all chains of a data set have together."""
        objects, cells = sum(data.sizes), max(data.layout.cell.size, 1)
        return min(SEARCH.chain_visits // objects, self.visited_cells // cells, self.most_sweeps)


CHAINS = ChainSettings()
