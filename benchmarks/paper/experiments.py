"""The experiments: relations, methods, and jobs in their order of importance."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from data import FOLDER, SYNTHETIC

from paper.shapes import SHAPES

CLUSTERS = (20, 40, 60)
THRESHOLDS = (1e-4, 1e-5)
GIBBS_SWEEPS = 3000  # as in the paper, which keeps the second half
MOST_SWEEPS = 5000  # of the deterministic methods; the paper states no limit
UNTRUNCATED = 0  # value of K that means max_clusters=None
SHARES_UNSEEN = (0.0, 0.01, 0.05, 0.1, 0.3)
GROWTH = (250, 500, 1000, 2000)  # rows, and columns, of relations with the same mean degree

TITLES = {
    "synth1": "Synth1",
    "synth2": "Synth2",
    "enron156_200106": "Enron Jun.",
    "enron156_200108": "Enron Aug.",
    "enron156_200110": "Enron Oct.",
    "enron156_200112": "Enron Dec.",
    "lastfm_userxuser": "Lastfm UserXUser",
    "lastfm_artistxtag": "Lastfm ArtistXTag",
    "ml1m": "MovieLens-1M",
    "gowalla": "Gowalla",
    "imdb50k": "IMDB 50k",
    **{name: shape.title for name, shape in SHAPES.items()},
}
SMALL = ("synth1", "synth2")
ENRON = tuple(name for name in TITLES if name.startswith("enron"))
LASTFM = (
    "lastfm_userxuser",
    "lastfm_artistxtag",
)  # same counts as in the paper
PROTOCOL = (*SMALL, *ENRON, *LASTFM)
FEWEST_RUNS = 5  # seeds of the full protocol,
MORE_RUNS = 20  # and of synthetic relations and Enron, whose scores vary most
LARGE = (*LASTFM, "ml1m", "gowalla", "imdb50k", *SHAPES)

PAPER_METHODS = {"gibbs": "Gibbs", "vb": "VB", "acvb": "ACVB", "acvb0": "ACVB0"}
DEFAULT = "default"
METHOD_TITLES = {**PAPER_METHODS, DEFAULT: "coblock"}
IN_BATCHES = "acvb0-batches"  # the paper updates one object at a time
_PLAIN: dict[str, Any] = {"init": "random", "refine": False, "batch_size": 1}
_PAPER: dict[str, Any] = {**_PLAIN, "prior": "per-block", "hyperparameters": "fixed-point"}
_PARAMETERS: dict[str, dict[str, Any]] = {
    "gibbs": {**_PLAIN, "inference": "gibbs"},
    "vb": {**_PAPER, "inference": "vb"},
    "acvb": {**_PAPER, "inference": "acvb", "variance": "paper"},
    "acvb0": {**_PAPER, "inference": "acvb0"},
    "cvb": {**_PAPER, "inference": "cvb", "variance": "paper"},
    "cvb0": {**_PAPER, "inference": "cvb0"},
    "acvb-exact": {**_PAPER, "inference": "acvb", "variance": "exact"},
    "acvb-shared": {**_PLAIN, "inference": "acvb", "variance": "paper"},
    "acvb-shared-exact": {**_PLAIN, "inference": "acvb", "variance": "exact"},
    "acvb0-shared": {**_PAPER, "inference": "acvb0", "prior": "shared"},
    "acvb0-newton": {**_PLAIN, "inference": "acvb0"},
    "acvb0-spectral": {**_PAPER, "inference": "acvb0", "init": "spectral"},
    "acvb0-zeros": {**_PAPER, "inference": "acvb0"},
    IN_BATCHES: {**_PAPER, "inference": "acvb0", "batch_size": "auto"},
}
STARTS = {  # starting (a, b) and concentration; otherwise a and b expect the density of links
    "acvb0-start1": ((0.1, 0.1), 1.0),
    "acvb0-start2": ((1.0, 1.0), 1.0),
    "acvb0-start3": ((1.0, 10.0), 1.0),
    "acvb0-start4": ((1.0, 1.0), 10.0),
}
for _name, (_prior, _alpha) in STARTS.items():
    _PARAMETERS[_name] = {**_PARAMETERS["acvb0"], "block_prior": _prior, "concentration": _alpha}
CURVES = (  # held-out likelihood over time, as in four figures of the paper
    ("enron156_200106", 40),
    ("lastfm_userxuser", 20),
    ("lastfm_artistxtag", 20),
    ("lastfm_artistxtag", 60),
)
PICTURES = ("synth2", "lastfm_userxuser")  # relations whose blocks are drawn
CONVERGENCE = ("cvb", "cvb0")  # methods whose bound and leave-one-out likelihood are drawn
_COMPARED = (*SMALL, "enron156_200110", *LASTFM)


@dataclass(frozen=True)
class Comparison:
    """Variants of one method, that of the paper first, and the relations to compare them on."""

    title: str
    variants: dict[str, str]
    relations: tuple[str, ...] = _COMPARED


COMPARISONS = {  # not in the paper
    "variance": Comparison(
        "Exact against paper variance (second order)",
        {
            "acvb": "the paper's variance and prior",
            "acvb-exact": "exact variance, the paper's prior",
            "acvb-shared": "the paper's variance, shared prior",
            "acvb-shared-exact": "exact variance, shared prior",
        },
        (*SMALL, "enron156_200110", "lastfm_userxuser"),
    ),
    "missing": Comparison(
        "Held-out cells unseen, or counted as zeros",
        {"acvb0": "unseen", "acvb0-zeros": "counted as zeros"},
    ),
    "start": Comparison(
        "Random against spectral start",
        {"acvb0": "random", "acvb0-spectral": "spectral"},
    ),
    "prior": Comparison(
        "Per-block against shared prior",
        {
            "acvb0": "per block, fixed point",
            "acvb0-shared": "shared, fixed point",
            "acvb0-newton": "shared, Newton",
        },
    ),
    "hyperparameters": Comparison(
        "Starting hyperparameters",
        {
            "acvb0": "of the density",
            **{
                name: f"a = {a:g}, b = {b:g}, alpha = {alpha:g}"
                for name, ((a, b), alpha) in STARTS.items()
            },
        },
        ("enron156_200110",),
    ),
}


@dataclass(frozen=True, order=True)
class Job:
    """One run; ``part`` is a key of ``runner.PARTS``."""

    part: str
    relation: str
    method: str
    K: int
    seed: int = 0

    @property
    def key(self) -> str:
        """Beginning of the name of its file."""
        return f"{self.part}-{self.relation}-{self.method}-K{self.K}-seed{self.seed}"


def parameters(method: str, K: int) -> dict[str, Any]:
    """Return the parameters of ``IRM`` without the seed."""
    if method == DEFAULT:
        return {}
    most = GIBBS_SWEEPS if method == "gibbs" else MOST_SWEEPS
    common = {"max_clusters": K, "tol": min(THRESHOLDS), "max_iter": most}
    return _PARAMETERS[method] | common


def describe_call(method: str, K: int) -> str:
    """Return the call of ``IRM`` of a method."""
    inside = [f"{name}={value!r}" for name, value in parameters(method, K).items()]
    return f"IRM({', '.join([*inside, 'random_state=seed'])})"


def is_available(relation: str) -> bool:
    """Return whether a relation is generated or in the data folder."""
    generated = relation in SYNTHETIC or relation in SHAPES or relation.startswith("growth")
    return generated or (FOLDER / f"{relation}.npz").exists()


def runs_of(relation: str, runs: int) -> int:
    """Return how many seeds a relation has."""
    small = relation in (*SMALL, *ENRON)
    return max(runs, MORE_RUNS) if small and runs >= FEWEST_RUNS else runs


def held_out(relation: str, method: str, K: int, seed: int = 0) -> Job:
    """Return a run of the paper's protocol; the default method has no K."""
    return Job("held-out", relation, method, UNTRUNCATED if method == DEFAULT else K, seed)


def plan(runs: int) -> list[Job]:
    """Return all jobs, each once, the most important first.

    After the required jobs, those of K = 20 come first, then 40 and 60, so that tables are complete
    one after another. Of each K, all first seeds come before all second seeds, and so on.
    """
    others = [*_main_jobs(runs), *_timing_jobs(), *_comparison_jobs(runs), *_remaining_jobs(runs)]
    others.sort(key=lambda job: (max(job.K, min(CLUSTERS)), job.seed))
    return list(dict.fromkeys([*_required_jobs(runs), *others]))


def _required_jobs(runs: int) -> Iterator[Job]:
    """Yield the jobs of the requirements: ACVB0 and the default on the relations of the paper."""
    for seed in range(runs):
        for method in ("acvb0", DEFAULT):
            yield from (held_out(relation, method, 20, seed) for relation in LASTFM)


def _main_jobs(runs: int) -> Iterator[Job]:
    """Yield all methods with K = 20, then the methods of the convergence figures."""
    for relation in SMALL:
        yield from _all_methods(relation, 20, runs)
    for relation in LASTFM:
        yield from _all_methods(relation, 20, 1)
    for relation in ENRON:
        yield from _all_methods(relation, 20, runs)
    for method in CONVERGENCE:
        for relation in SMALL:
            seeds = range(runs_of(relation, runs))
            yield from (held_out(relation, method, 20, seed) for seed in seeds)


def _timing_jobs() -> Iterator[Job]:
    """Yield naive and linear sweeps, unseen cells, and the large relations with K = 20."""
    for relation in LASTFM:
        yield Job("naive", relation, "both", 20)
    yield from (Job("growth", f"growth{size}", "both", 20) for size in GROWTH)
    for share in SHARES_UNSEEN:
        yield Job("missing", "lastfm_userxuser", f"unseen{share:g}", 20)
    yield from (Job("large", relation, IN_BATCHES, 20) for relation in LARGE)


def _comparison_jobs(runs: int) -> Iterator[Job]:
    """Yield the comparisons that are not in the paper, and one run of each K of the figures."""
    for seed in range(runs):
        for comparison in reversed(COMPARISONS.values()):
            for relation in comparison.relations:
                yield from (held_out(relation, name, 20, seed) for name in comparison.variants)
    for relation, K in (*CURVES, *((relation, 60) for relation in PICTURES)):
        yield from _all_methods(relation, K, 1)


def _remaining_jobs(runs: int) -> Iterator[Job]:
    """Yield the rest of the full protocol, the fast relations first."""
    for K in (40, 60):
        for relation in (*ENRON, *SMALL):
            yield from _all_methods(relation, K, runs)
    yield from (Job("large", relation, DEFAULT, UNTRUNCATED) for relation in LARGE)
    for K in (20, 60, 40):
        for relation in LASTFM:
            yield from _all_methods(relation, K, runs)
            yield Job("naive", relation, "both", K)
    for K in (40, 60):
        yield from (Job("large", relation, IN_BATCHES, K) for relation in LARGE)


def _all_methods(relation: str, K: int, runs: int) -> Iterator[Job]:
    for seed in range(runs_of(relation, runs)):
        yield from (held_out(relation, method, K, seed) for method in METHOD_TITLES)


def select_jobs(
    jobs: list[Job],
    relations: list[str] | None,
    clusters: list[int] | None,
    methods: list[str] | None,
    parts: list[str] | None,
) -> list[Job]:
    """Return the jobs with these properties; None selects all."""
    return [
        job
        for job in jobs
        if (relations is None or job.relation in relations)
        and (clusters is None or job.K in clusters or job.K == UNTRUNCATED)
        and (methods is None or job.method in methods)
        and (parts is None or job.part in parts)
    ]
