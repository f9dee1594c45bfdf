"""Checks of what was read from a file: kernels index with it and do not check."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coblock.inference.fit import Start
from coblock.inference.gibbs import GibbsSampler
from coblock.inference.posterior import PosteriorAverage
from coblock.inference.search import Search
from coblock.inference.settings import METHODS, SEARCH, Settings
from coblock.inference.variational import Variational
from coblock.io.container import require
from coblock.kernels import Floats
from coblock.kernels.bernoulli import LARGEST, SMALLEST
from coblock.kernels.memberships import hard_labels
from coblock.model.blocks import Blocks
from coblock.model.hyperparameters import Hyperparameters
from coblock.model.partition import Partition
from coblock.model.result import Result, Sample
from coblock.model.state import SoftState

CLOSE = 1e-6  # error of sums by rounding, relative where they are above 1
MOST_STARTS = 100_000  # that a checkpoint may ask for
PHASES: dict[str, type] = {
    "search": Search,
    "posterior": PosteriorAverage,
    "gibbs": GibbsSampler,
    "variational": Variational,
}


def check_array(array: Any, kind: type, shape: tuple[int, ...]) -> None:
    """Refuse an array of another type or shape."""
    fits = isinstance(array, np.ndarray) and array.dtype == kind and array.shape == shape
    require(fits, f"one of its arrays does not have the type and the shape {shape} that it needs.")


def check_domains(relation: Any, *lists: Sequence[Any]) -> None:
    """Refuse lists that do not have one entry for each domain."""
    fit = all(len(each) == len(relation.sizes) for each in lists)
    require(fit, "it does not have the domains of its relation.")


def check_memberships(q: Floats, objects: int, clusters: int | None = None) -> None:
    """Refuse memberships that are not probabilities."""
    fits = q.ndim == 2 and len(q) == objects and q.shape[1] > 0
    fits = fits and clusters in {None, q.shape[1]}
    require(fits, f"it has memberships of shape {q.shape} for {objects:,} objects.")
    possible = np.isfinite(q).all() and (q >= 0.0).all()
    adds_up = possible and (np.abs(q.sum(axis=1) - 1.0) < CLOSE).all()
    require(adds_up, "its memberships are not probabilities that add up to 1.")


def check_hyper(hyper: Hyperparameters, relation: Any, clusters: tuple[int, int]) -> None:
    """Refuse hyperparameters that are not positive numbers in range."""
    check_domains(relation, hyper.alpha)
    shape = relation.likelihood.initial_prior(0.5).shape
    check_array(hyper.prior, np.float64, (shape[0], *clusters) if hyper.per_block else shape)
    for values in (hyper.prior, hyper.alpha):
        possible = np.greater_equal(values, SMALLEST) & np.less_equal(values, LARGEST)
        require(np.all(possible), "one of its hyperparameters is not a positive number in range.")


def check_result(result: Result, counted: Blocks | None = None) -> None:
    """Refuse memberships, labels or blocks of a result that do not fit each other.

    ``counted`` are the blocks that the memberships give, where they are at hand.
    """
    relation, q = result.relation, result.memberships
    check_domains(relation, q, result.labels)
    for each, labels, size in zip(q, result.labels, relation.sizes, strict=True):
        check_memberships(each, size)
        check_array(labels, np.int32, (size,))
        require(np.array_equal(labels, each.argmax(axis=1)), "its labels are not the best ones.")
        members = np.bincount(labels, minlength=each.shape[1])
        ordered = members[-1] > 0 and (members[1:] <= members[:-1]).all()
        require(ordered, "its clusters are not in the order of their sizes, or one is empty.")
    clusters = (q[0].shape[1], q[-1].shape[1])
    check_hyper(result.hyper, relation, clusters)
    right = counted or count_blocks(relation, q)
    check_blocks(result.blocks, right, CLOSE, "memberships")
    _check_samples(result.samples, relation)


def count_blocks(relation: Any, q: list[Floats]) -> Blocks:
    """Return the blocks that memberships give."""
    return Blocks.from_memberships(relation, q, [hard_labels(each) for each in q])


def check_blocks(blocks: Blocks, right: Blocks, tolerance: float, source: str) -> None:
    """Refuse blocks that are not those counted from labels or memberships."""
    for m, size in zip(blocks.m, right.m, strict=True):
        check_array(m, np.float64, size.shape)
        close = (np.abs(m - size) <= tolerance * np.maximum(size, 1.0)).all()
        require(close, f"its clusters do not have the sizes that their {source} give.")
    for name in ("links", "unseen", "self_pairs", "own", "n", "N"):
        table, counted = getattr(blocks, name), getattr(right, name)
        check_array(table, np.float64, counted.shape)
        require(np.isfinite(table).all(), "one of its tables has entries that are not numbers.")
        close = (np.abs(table - counted) <= tolerance * np.maximum(counted, 1.0)).all()
        require(close, f"its blocks do not have the links that their {source} give.")


def check_start_memberships(initial: list[Floats] | None, relation: Any) -> None:
    """Refuse memberships to start from that do not fit the relation."""
    if initial is not None:
        check_domains(relation, initial)
        for q, size in zip(initial, relation.sizes, strict=True):
            check_memberships(q, size)


def _check_labels(labels: NDArray[Any], objects: int, least: int, clusters: int) -> None:
    check_array(labels, np.int32, (objects,))
    inside = ((labels >= least) & (labels < clusters)).all()
    require(inside, "it has labels of clusters that do not exist.")


def _check_partition(partition: Partition) -> None:
    relation, blocks = partition.relation, partition.blocks
    check_domains(relation, partition.labels, blocks.m)
    require(not partition.hyper.per_block, "its partition has a prior for each block.")
    check_hyper(partition.hyper, relation, (1, 1))
    sizes = tuple(m.size for m in blocks.m)
    check_array(blocks.n, np.float64, (sizes[0], sizes[-1]))  # before a table of this size is made
    for labels, objects, K in zip(partition.labels, relation.sizes, sizes, strict=True):
        _check_labels(labels, objects, 0, K)
    check_blocks(blocks, Blocks.from_labels(relation, partition.labels, sizes), 0.0, "labels")


def _check_state(state: SoftState) -> None:
    relation, blocks = state.relation, state.blocks
    check_domains(relation, state.q, state.hard, blocks.m)
    for q, hard, m, size in zip(state.q, state.hard, blocks.m, relation.sizes, strict=True):
        check_memberships(q, size, m.size)
        _check_labels(hard, size, -1, m.size)
    check_hyper(state.hyper, relation, (blocks.m[0].size, blocks.m[-1].size))
    check_blocks(blocks, count_blocks(relation, state.q), CLOSE, "memberships")


def _check_search(phase: Search) -> None:
    counts = (phase.number, phase.rounds, phase.failures, phase.perturbations)
    counted = min(*counts, phase.sweeps_since_moves) >= 0
    require(counted, "a counter of its search is below 0.")
    _check_limit(phase.limits, len(phase.partition.labels))
    most = 1 if phase.climbing else SEARCH.sampled_sweeps
    require(phase.sweeps_since_moves <= most, "the moves of its search are overdue.")
    require(phase.climbing or phase.best is not None, "its search lacks its best partition.")
    _check_no_empty_cluster(phase.partition, *([] if phase.best is None else [phase.best]))


def _check_no_empty_cluster(*partitions: Partition) -> None:
    full = all((m > 0.0).all() for partition in partitions for m in partition.m)
    require(full, "one of its clusters is empty.")


def _check_posterior(phase: PosteriorAverage) -> None:
    partition, some = phase.partition, phase.samples > 0
    sizes, clusters = partition.relation.sizes, [m.size for m in partition.m]
    _check_no_empty_cluster(partition)
    counted = phase.number >= 0 and 0 <= phase.samples <= phase.samples_wanted
    counted &= some == (phase.sample is not None) == (phase.sample_sum is not None)
    require(counted, "its samples are not those that it has counted.")
    require(not some or phase.mode_q is not None, "it has samples before its labels are stable.")
    for tables, count in ((phase.mode_q, 1), (phase.sample_sum, phase.samples)):
        if tables is not None:
            check_domains(partition.relation, tables)
            for table, size, K in zip(tables, sizes, clusters, strict=True):
                check_memberships(table / count, size, K)
    if phase.sample is not None:
        same = [m.size for m in phase.sample.m] == clusters
        require(same, "its samples have other clusters than its partition.")


def _check_gibbs(phase: GibbsSampler) -> None:
    partition, kept = phase.partition, max(phase.number - phase.max_iter // 2, 0)
    require(phase.number >= 0 and phase.max_iter > 0, "a counter of its chain is below 0.")
    _check_samples(phase.samples, partition.relation)
    check_domains(partition.relation, phase.tally)
    sizes = partition.relation.sizes
    for tally, m, size in zip(phase.tally, partition.m, sizes, strict=True):
        fits = tally.ndim == 2 and tally.shape[1] <= m.size
        require(fits, "it counts sweeps in clusters that do not exist.")
        check_array(tally, np.float64, (size, tally.shape[1]))
        counted = (tally >= 0.0).all() and (tally.sum(axis=1) == kept).all()
        require(counted, "its chain has not kept the sweeps that it has counted.")


def _check_variational(phase: Variational) -> None:
    counted = len(phase.changes) == phase.number
    counted &= phase.averaged >= 0 and (phase.averaged > 0) == (phase.mean is not None)
    require(counted, "its sweeps are not those that it has counted.")
    require(0.0 < phase.step <= 1.0 and phase.hyper_delay >= 0, "its steps are out of range.")
    if phase.mean is not None:
        check_domains(phase.state.relation, phase.mean)
        for mean, q in zip(phase.mean, phase.state.q, strict=True):
            check_memberships(mean, *q.shape)


def _check_start(start: Start) -> None:
    phases, phase = start.settings.phases, start.phase
    fits = 0 <= start.position < len(phases)
    fits = fits and isinstance(phase, PHASES[phases[start.position]])
    require(fits and phase is not None, "its phase is not one of its settings.")
    assert phase is not None
    first = start.position == 0
    counted = phase.number == len(start.trace) if first else phase.number <= len(start.trace)
    require(counted, "its sweeps are not those that it has counted.")
    for name in ("averages", "burn_in", "exact_variance", "max_iter", "rule"):
        same = getattr(phase, name, ...) in {..., getattr(start.settings, name)}
        require(same, f"the {name} of its phase is not that of its settings.")
    same = getattr(phase, "method", start.settings.inference) == start.settings.inference
    require(same, "the method of its phase is not that of its settings.")


def _check_limit(limit: tuple[int, ...] | None, domains: int) -> None:
    fits = limit is None or (len(limit) == domains and min(limit) > 0)
    require(fits, "its limits on clusters or batches are not positive, one for each domain.")


def _check_settings(settings: Settings) -> None:
    require(
        1 <= settings.n_init <= MOST_STARTS,
        f"it asks for {settings.n_init:,} starts; between 1 and {MOST_STARTS:,} are possible.",
    )
    for pair in (settings.max_clusters, settings.batch_size):
        _check_limit((pair, pair) if isinstance(pair, int) else pair, 2)
    possible = settings.max_iter > 0 and settings.tol >= 0.0 and settings.n_jobs != 0
    possible &= settings.burn_in is None or settings.burn_in >= 0
    possible &= settings.inference in METHODS
    possible &= settings.init in {"spectral", "random", "given"}
    require(possible, "its settings are out of range.")


def _check_samples(samples: list[Sample], relation: Any) -> None:
    """Refuse samples of a chain whose labels have no block."""
    for sample in samples:
        check_domains(relation, sample.labels)
        p = sample.probability
        places = 2 * sample.labels if relation.repeated else sample.labels
        square = not relation.repeated or p.shape[:1] == p.shape[1:]
        require(p.ndim == 2 and square, "its samples have another form.")
        for labels, size, K in zip(places, relation.shape, p.shape, strict=True):
            _check_labels(labels, size, 0, K)
        possible = np.isfinite(p).all() and (p >= 0.0).all() and (p <= 1.0).all()
        require(possible, "its samples have impossible probabilities.")


CHECKS: dict[type, Callable[[Any], None]] = {
    GibbsSampler: _check_gibbs,
    Partition: _check_partition,
    PosteriorAverage: _check_posterior,
    Result: check_result,
    Search: _check_search,
    Settings: _check_settings,
    SoftState: _check_state,
    Start: _check_start,
    Variational: _check_variational,
}
