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
        comes after the plain one.
        """
        if self.degree_corrected:
            return ("search", "degrees", "posterior")
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
        refine=checks.check_flag("refine", parameters["refine"]),
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
        n_jobs=checks.check_jobs(parameters["n_jobs"]),
    )


def read_multi_settings(parameters: Mapping[str, Any]) -> Settings:
    """Check the parameters of an estimator of several relations."""
    checks.check_choice("inference", parameters["inference"], METHODS)
    checks.check_choice("init", parameters["init"], ("spectral", "random"))
    burn_in = parameters["burn_in"]
    return Settings(
        inference=parameters["inference"],
        init=parameters["init"],
        refine=checks.check_flag("refine", parameters["refine"]),
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

    Gains are in nats, or relative to the evidence where this is said. The page docs/search.md,
    written by benchmarks/search_settings.py, shows the log evidence and the CPU time of default
    fits of two real relations with other values. benchmarks/degrees.py measures the constants of
    degree correction, benchmarks/quality.py those of the posterior average.
    """

    # Start
    start_clusters: int = 60  # clusters per domain of the spectral start
    start_factor: int = 4  # factor for their number if a start uses all of them
    few_start_clusters: int = 4  # clusters of a second spectral start; doubled while all are used
    weak_share: float = 0.9  # a start with few clusters is swept softly if it reaches this fraction
    # of the gain of the start with many. In planted communities it was at least 0.94 where soft
    # sweeps found more; in real relations, where they did not, it was 0.26 to 0.83
    start_draws: int = 40  # sweeps that draw labels in place of the soft ones, where a domain has
    # too many objects for tables of memberships; ten were too few for weak structure
    start_rounds: int = 2  # rounds of sweeps and merges before starts are compared
    truncation: int = 20  # clusters of the plain methods from a random start, as in the paper
    members_per_cluster: int = 3  # smallest mean number of objects in a cluster of a spectral
    # start,
    small_start: int = 4  # which has so many clusters at least, or one for each object: of a
    # domain in one cluster the others can tell nothing
    start_membership: float = 0.8  # membership of an object in the cluster of its start label; the
    # remainder is shared equally by the other clusters

    # Local search and perturbations
    round_gain: float = 1e-4  # relative gain of a round below which a local search ends
    sampled_sweeps: int = 3  # sweeps of a perturbation
    merged_share: float = 0.15  # fraction of the clusters that every second perturbation merges
    perturbation_gain: float = 2e-4  # relative gain below which a perturbation counts as a failure
    patience_objects: int = 8_000  # consecutive failures that end a search: this number divided by
    # the number of objects,
    fewest_failures: int = 2  # at least this number
    most_failures: int = 10  # and at most this number
    several_objects: int = 3_000  # the same number for the perturbations, and the starts, of
    # several relations
    perturbed_objects: int = 100_000  # largest number of perturbations times objects
    label_batches: int = 4  # batches of a label sweep, per domain
    screened_density: float = 0.2  # density up to which label sweeps screen the clusters
    room: int = 4  # empty clusters that a sequential sweep adds when it has opened the last one

    # Merges and splits
    least_gain: float = 1e-6  # smallest gain of a merge or split, nats
    merge_neighbours: int = 8  # nearest clusters that a cluster may be merged with
    few_merged: float = 0.02  # after merges of a smaller fraction no new pairs are looked for
    few_blocks: int = 16  # up to this number of blocks, splits are valued at learnt hyperparameters
    split_seeds: int = 5  # pairs of members around which a cluster is split
    split_passes: int = 10  # largest number of passes over the members of a cluster

    # Posterior average of a relation whose sweeps are in batches
    label_gain: float = 1e-5  # relative gain for which the published labels still change
    most_samples: int = 32  # largest number of sampled sweeps
    sampled_visits: int = 150_000  # largest number of sampled sweeps times objects
    fewest_samples: int = 12  # a relation that can afford fewer has no average
    average_tol: float = 0.02  # largest change of the averages by one sample after convergence

    # Gibbs chains of a relation whose sweeps are sequential
    chains: int = 3  # largest number of chains
    chain_burn_in: int = 60  # first sweeps of a chain, which are left out
    chain_tol: float = 0.002  # change of the averages by one sample at which chains end early
    cluster_proposals: int = 5  # splits or merges proposed per sweep and domain
    sweeps_per_sample: int = 4  # sweeps of a chain between two samples
    least_samples: int = 24  # smallest number of samples of all chains
    most_chained: int = 300  # largest number of samples of all chains
    chain_visits: int = 400_000  # largest number of sweeps of all chains times objects

    # Degree correction
    degree_margin: float = 3.0  # nats by which the corrected model must be better to be chosen
    dense: float = 0.2  # density above which "auto" takes the plain model without a comparison
    degree_vectors: int = 80  # largest number of singular vectors of the degree-normalised start
    degree_centres: float = 1.6  # clusters of that start per singular vector above the noise
    split_sweeps: int = 3  # sweeps over the members of a cluster that is split
    degree_gain: float = 0.5  # nats of a round below which a climb ends,
    degree_share: float = 1e-6  # or this fraction of the evidence, if that is more
    degree_reach: float = 5.0  # a climb ends if it is behind the best by more gains of its last
    # round than this

    def patience(self, objects: int) -> int:
        """Return how many perturbations without gain end the search of so many objects."""
        return min(max(self.patience_objects // objects, self.fewest_failures), self.most_failures)

    def most_perturbations(self, objects: int) -> int:
        """Return how many perturbations a search of so many objects has at most."""
        return self.perturbed_objects // objects

    def samples(self, objects: int) -> int:
        """Return how many sampled sweeps of so many objects are averaged; 0 if too few."""
        affordable = min(self.sampled_visits // objects, self.most_samples)
        return affordable if affordable >= self.fewest_samples else 0


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
