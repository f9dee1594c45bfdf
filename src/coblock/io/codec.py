"""Objects of a fit as JSON with named arrays, and the checks of all that is read.

Only :data:`CLASSES` are made from a file, and their fields are set without a call of their
constructors: nothing in a file chooses code. All of a fit is checked, because kernels index with it
and do not check. A list with another number of domains than the relation raises a ValueError in a
strict ``zip``, which is a refusal too.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from itertools import chain
from math import isfinite
from types import NoneType, UnionType
from typing import Any, Literal, TypeAlias, Union, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from coblock.inference.degrees import DegreeAverage, DegreeSearch
from coblock.inference.fit import Start
from coblock.inference.gibbs import GibbsSampler
from coblock.inference.phase import Phase
from coblock.inference.posterior import PosteriorAverage, PosteriorChains
from coblock.inference.search import Search
from coblock.inference.settings import METHODS, SEARCH, Settings
from coblock.inference.variational import Variational
from coblock.io.container import Tensors, require, trace_from_table, trace_to_table
from coblock.kernels import Floats, Indices
from coblock.kernels.bernoulli import LARGEST, SMALLEST
from coblock.kernels.memberships import hard_labels
from coblock.model.blocks import Blocks
from coblock.model.degrees import DegreeChoice, DegreeModel, DegreePartition, places_of
from coblock.model.hyperparameters import Hyperparameters
from coblock.model.labels import Collected, StoredLabels, StoredMemberships
from coblock.model.partition import Partition
from coblock.model.result import Result, Sample, count_blocks
from coblock.model.state import SoftState
from coblock.model.trace import SweepRecord

Sizes: TypeAlias = Sequence[int]  # one for each domain

CLOSE = 1e-6  # error of sums by rounding, relative where they are above 1
MOST_STARTS = 100_000  # that a checkpoint may ask for
SHARED = ("relation", "settings", "initial", "rng", "engine")  # fields that are stored elsewhere
DEEPEST = 16  # objects inside one another; a fit needs 8
PHASES: dict[str, tuple[type, ...]] = {
    "search": (Search,),
    "degrees": (DegreeSearch,),
    "posterior": (PosteriorAverage, PosteriorChains, DegreeAverage),
    "gibbs": (GibbsSampler,),
    "variational": (Variational,),
}


def pack(value: Any, name: str, tensors: Tensors) -> Any:  # noqa: PLR0911 - one for each form
    """Return a value without :data:`SHARED` fields as JSON; arrays go to ``tensors`` by path."""
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, StoredLabels | StoredMemberships):
        value = np.asarray(value)
    elif isinstance(value, Collected):
        value = list(value)
    if isinstance(value, np.ndarray):  # in its order in memory: sums depend on it in the last bits
        by_column = value.flags.f_contiguous and not value.flags.c_contiguous
        tensors[name] = np.ascontiguousarray(value.T if by_column else value)
        return {"is": "array by column" if by_column else "array", "name": name}
    if isinstance(value, list | tuple):
        if value and all(isinstance(part, SweepRecord) for part in value):
            tensors[name] = trace_to_table(list(value))
            return {"is": "trace", "name": name}
        if value and isinstance(value, list) and all(isinstance(part, float) for part in value):
            tensors[name] = np.array(value, dtype=np.float64)
            return {"is": "floats", "name": name}
        parts = [pack(part, f"{name}.{number}", tensors) for number, part in enumerate(value)]
        return {"is": "tuple", "parts": parts} if isinstance(value, tuple) else parts
    assert type(value).__name__ in CLASSES, type(value)
    inside = {
        field.name: pack(getattr(value, field.name), f"{name}.{field.name}", tensors)
        for field in fields(value)
        if field.name not in SHARED
    }
    return {"is": type(value).__name__, "fields": inside}


def unpack(packed: Any, tensors: Tensors, shared: Mapping[str, Any], depth: int = 0) -> Any:
    """Return the value that was packed; refuse parts that do not fit together.

    A tensor is removed from ``tensors`` when it is used, so that no two arrays share memory.
    """
    require(depth < DEEPEST, "its parts are nested too deeply.")
    if isinstance(packed, list):
        return [unpack(part, tensors, shared, depth + 1) for part in packed]
    if not isinstance(packed, dict):
        return packed
    kind = packed["is"]
    if kind in ARRAYS:
        require(packed["name"] in tensors, "one of its tensors is missing, or named twice.")
        return ARRAYS[kind](tensors.pop(packed["name"]))
    if kind == "tuple":
        return tuple(unpack(part, tensors, shared, depth + 1) for part in packed["parts"])
    require(kind in CLASSES, f"it holds a {str(kind)[:40]!r}, which is not part of a fit.")
    known, inside = CLASSES[kind], packed["fields"]
    hints = get_type_hints(known)
    names = [field.name for field in fields(known)]
    same = set(names).difference(SHARED) == set(inside)
    require(same, f"its {kind} has other fields than this version's.")
    made: Any = object.__new__(known)
    for name in names:
        value = shared.get(name)
        if name not in SHARED:
            value = unpack(inside[name], tensors, shared, depth + 1)
            require(is_of_type(value, hints[name]), f"its {name} is of the wrong type.")
        object.__setattr__(made, name, value)
    if known in CHECKS:
        CHECKS[known](made)
    return made


def is_of_type(value: Any, hint: Any) -> bool:  # noqa: PLR0911 - one return for each form
    """Return whether a value agrees with a type annotation of one of :data:`CLASSES`."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin in {Union, UnionType}:
        return any(is_of_type(value, part) for part in parts)
    if origin is Literal:
        return value in parts
    if origin in {list, tuple}:
        if not isinstance(value, origin):
            return False
        any_length = origin is list or parts[-1] is ...
        kinds = parts[:1] * len(value) if any_length else parts
        return len(value) == len(kinds) and all(map(is_of_type, value, kinds))
    if origin is np.ndarray:
        return isinstance(value, np.ndarray) and value.dtype == get_args(parts[1])[0]
    if hint is Phase:
        return isinstance(value, tuple(chain.from_iterable(PHASES.values())))
    exact = hint in {bool, int, float, str, NoneType}
    finite = hint is not float or (type(value) is float and isfinite(value))
    return (type(value) is hint if exact else isinstance(value, hint)) and finite


# Checks of what was read


def check_memberships(q: Sequence[Floats], sizes: Sizes, clusters: Sizes | None = None) -> None:
    """Refuse memberships of the domains that are not probabilities, or in other clusters."""
    for d, (each, objects) in enumerate(zip(q, sizes, strict=True)):
        fits = each.ndim == 2 and len(each) == objects and each.shape[1] > 0
        fits = fits and (clusters is None or each.shape[1] == clusters[d])
        require(fits, f"it has memberships of shape {each.shape} for {objects:,} objects.")
        adds_up = (each >= 0.0).all() and (np.abs(each.sum(axis=1) - 1.0) < CLOSE).all()
        require(adds_up, "its memberships are not probabilities that add up to 1.")


def check_result(result: Result, counted: Blocks | None = None) -> None:
    """Refuse parts that do not fit each other; ``counted`` are the blocks, counted anew."""
    relation, q = result.relation, result.memberships
    check_memberships(q, relation.sizes)
    check_labels(result.labels, relation.sizes, tuple(each.shape[1] for each in q))
    for each, labels in zip(q, result.labels, strict=True):
        members = np.bincount(labels, minlength=each.shape[1])
        ordered = (members[1:] <= members[:-1]).all()
        require(ordered, "its clusters are not in the order of their sizes.")
    for each, sticks in zip(q, result.sticks or [], strict=result.sticks is not None):
        right = np.array_equal(np.sort(sticks), np.arange(each.shape[1]))
        require(right, "its sticks are not its clusters in another order.")
    _check_hyper(result.hyper, relation, (q[0].shape[1], q[-1].shape[1]))
    _check_samples(result.samples, relation)
    _check_choice(result.degrees, relation, result.n_clusters)
    counted = counted or count_blocks(relation, q, result.labels, sampled=bool(result.samples))
    _check_blocks(result.blocks, counted, CLOSE, "labels or memberships")


def _check_shape(array: Floats, shape: tuple[int, ...]) -> None:
    """Refuse an array of another shape; the type is that of an annotation."""
    require(array.shape == shape, f"one of its arrays does not have the shape {shape}.")


def _check_hyper(hyper: Hyperparameters, relation: Any, clusters: tuple[int, ...]) -> None:
    """Refuse hyperparameters that are not positive numbers in range."""
    shape = relation.likelihood.initial_prior(0.5).shape
    _check_shape(hyper.prior, (shape[0], *clusters) if hyper.per_block else shape)
    _check_shape(np.asarray(hyper.alpha), (len(relation.sizes),))
    values = np.concatenate(
        (hyper.alpha, hyper.prior.ravel(), hyper.hyperprior, hyper.block_hyperprior)
    )
    possible = ((values >= SMALLEST) & (values <= LARGEST)).all()
    require(possible, "one of its hyperparameters is not a positive number in range.")


def _check_blocks(blocks: Blocks, right: Blocks, tolerance: float, source: str) -> None:
    """Refuse blocks that are not those counted from labels or memberships."""
    pairs = list(zip(blocks.m, right.m, strict=True))
    names = ("links", "unseen", "self_pairs", "own", "n", "N")
    pairs += [(getattr(blocks, name), getattr(right, name)) for name in names]
    for table, counted in pairs:
        _check_shape(table, counted.shape)
        require(np.isfinite(table).all(), "one of its tables has entries that are not numbers.")
        close = (np.abs(table - counted) <= tolerance * np.maximum(counted, 1.0)).all()
        what = ("clusters", "sizes") if table.ndim == 1 else ("blocks", "links")
        require(close, f"its {what[0]} do not have the {what[1]} that their {source} give.")


def check_labels(labels: list[Indices], sizes: Sizes, clusters: Sizes, least: int = 0) -> None:
    """Refuse labels that are not one of ``least`` to the last cluster for each object."""
    for each, objects, K in zip(labels, sizes, clusters, strict=True):
        inside = each.shape == (objects,) and ((each >= least) & (each < K)).all()
        require(inside, "it has labels of clusters that do not exist.")


def _check_samples(samples: list[Sample], relation: Any) -> None:
    """Refuse samples of a chain whose labels have no block."""
    for sample in samples:
        p, labels = sample.probability, sample.labels
        square = not relation.repeated or p.shape[:1] == p.shape[1:]
        require(p.ndim == 2 and square, "its samples have another form.")
        check_labels(2 * labels if relation.repeated else labels, relation.shape, p.shape)
        require(((p >= 0.0) & (p <= 1.0)).all(), "its samples have impossible probabilities.")
        require(sample.chain >= 0, "its samples are of chains that do not exist.")
        if sample.hyper is not None:
            _check_hyper(sample.hyper, relation, p.shape)


def _check_choice(choice: DegreeChoice | None, relation: Any, clusters: Sizes) -> None:
    """Refuse degrees of other objects or blocks, and numbers that are out of range."""
    if choice is None:
        return
    numbers = (choice.plain_evidence, choice.corrected_evidence or 0.0)
    require(np.isfinite(numbers).all(), "the evidence of its degrees is not a number.")
    model = choice.model
    if model is None:
        return
    require(choice.corrected_evidence is not None, "the evidence of its degrees is missing.")
    places = 1 if relation.symmetric else 2
    shapes: list[tuple[int, ...]] = [(places,), (2,)]
    shapes += [(size,) for size in relation.shape[:places]]
    shapes += [(clusters[0], clusters[-1])] * 2
    arrays = (model.eta, model.prior, *model.degrees, model.counts, model.exposure)
    require(len(arrays) == len(shapes), "its degrees are of other places.")
    for array, shape in zip(arrays, shapes, strict=True):
        _check_shape(array, shape)
        require(((array >= 0.0) & (array < np.inf)).all(), "its degrees have impossible numbers.")
    positive = min(*model.eta.tolist(), *model.prior.tolist()) > 0.0
    require(positive, "the shapes of its degrees are not positive.")


def _check_degree_partition(partition: DegreePartition) -> None:
    relation, places = partition.relation, places_of(partition.relation)
    check_labels(partition.labels, relation.sizes, relation.sizes)
    full = all((np.bincount(label) > 0).all() for label in partition.labels)
    require(full, "one of its clusters is empty.")
    _check_shape(partition.prior, (2, 1, 1))
    _check_shape(partition.eta, (len(places),))
    _check_shape(partition.own_counts, relation.own_link.shape)
    same = (partition.own_counts > 0.0) == (relation.own_link > 0.0)
    require(same.all(), "it counts links of objects with themselves that it has not.")
    require(len(partition.alpha) == len(relation.sizes), "its concentrations do not fit.")
    scales = np.concatenate((partition.alpha, partition.prior.ravel(), partition.eta))
    in_range = ((scales >= SMALLEST) & (scales <= LARGEST)).all()
    require(in_range, "one of its hyperparameters is not a positive number in range.")
    for counts, factor, place in zip(partition.counts, partition.factors, places, strict=True):
        _check_shape(counts, place.link.shape)
        _check_shape(factor, (place.link_start.size - 1,))
        possible = ((counts >= 1.0) & (counts < np.inf)).all() and (factor > 0.0).all()
        require(possible and np.isfinite(factor).all(), "its links have impossible counts.")


def _check_degree_search(phase: DegreeSearch) -> None:
    counted = phase.climbs >= 0 and phase.number >= phase.climbs
    counted &= (phase.best is None) == (phase.best_evidence is None)
    require(counted, "its climbs are not those that it has counted.")
    _check_no_empty_cluster(phase.plain)
    _check_limit(phase.limits, len(phase.plain.labels))
    sizes = phase.plain.relation.sizes
    for labels in (*phase.modes, *phase.starts):
        check_labels(labels, sizes, sizes)


def _check_degree_average(phase: DegreeAverage) -> None:
    sizes = phase.partition.relation.sizes
    clusters = phase.partition.clusters[: len(sizes)]
    _check_averages(phase, sizes, clusters)
    if phase.sample is not None:
        check_labels(phase.sample, sizes, clusters)


def _check_partition(partition: Partition) -> None:
    relation, blocks = partition.relation, partition.blocks
    require(not partition.hyper.per_block, "its partition has a prior for each block.")
    _check_hyper(partition.hyper, relation, (1, 1))
    clusters = tuple(m.size for m in blocks.m)
    _check_shape(blocks.n, (clusters[0], clusters[-1]))  # before a table of this size is made
    check_labels(partition.labels, relation.sizes, clusters)
    _check_blocks(blocks, Blocks.from_labels(relation, partition.labels, clusters), 0.0, "labels")


def _check_state(state: SoftState) -> None:
    relation, clusters = state.relation, [m.size for m in state.m]
    check_memberships(state.q, relation.sizes, clusters)
    check_labels(state.hard, relation.sizes, clusters, least=-1)
    _check_hyper(state.hyper, relation, (clusters[0], clusters[-1]))
    counted = Blocks.from_memberships(relation, state.q, [hard_labels(q) for q in state.q])
    _check_blocks(state.blocks, counted, CLOSE, "memberships")


def _check_no_empty_cluster(*partitions: Partition) -> None:
    full = all((m > 0.0).all() for partition in partitions for m in partition.m)
    require(full, "one of its clusters is empty.")


def _check_search(phase: Search) -> None:
    counts = (phase.number, phase.rounds, phase.failures, phase.perturbations)
    require(min(*counts, phase.sweeps_since_moves) >= 0, "a counter of its search is below 0.")
    _check_limit(phase.limits, len(phase.partition.labels))
    most = 1 if phase.climbing else SEARCH.sampled_sweeps
    require(phase.sweeps_since_moves <= most, "the moves of its search are overdue.")
    require(phase.climbing or phase.best is not None, "its search lacks its best partition.")
    _check_no_empty_cluster(phase.partition, *([] if phase.best is None else [phase.best]))
    sizes = phase.partition.relation.sizes
    for labels in phase.modes:
        check_labels(labels, sizes, sizes)
    require(len(phase.modes) < SEARCH.chains, "its search has kept too many optima.")


def _check_posterior(phase: PosteriorAverage) -> None:
    partition = phase.partition
    _check_no_empty_cluster(partition)
    clusters = [m.size for m in partition.m]
    _check_averages(phase, partition.relation.sizes, clusters)
    same = phase.sample is None or [m.size for m in phase.sample.m] == clusters
    require(same, "its samples have other clusters than its partition.")


def _check_averages(phase: PosteriorAverage | DegreeAverage, sizes: Sizes, clusters: Sizes) -> None:
    """Refuse averages of other samples than those that were counted."""
    some = phase.samples > 0
    counted = phase.number >= 0 and 0 <= phase.samples <= phase.samples_wanted
    counted &= some == (phase.sample is not None) == (phase.sample_sum is not None)
    require(counted, "its samples are not those that it has counted.")
    require(not some or phase.mode_q is not None, "it has samples before its labels are stable.")
    for tables, count in ((phase.mode_q, 1), (phase.sample_sum, phase.samples)):
        if tables is not None:
            check_memberships([t / count for t in tables], sizes, clusters)


def _check_chains(phase: PosteriorChains) -> None:
    partition, kept, sizes = phase.partition, phase.samples, phase.partition.relation.sizes
    _check_no_empty_cluster(partition)
    _check_limit(phase.limits, len(partition.labels))
    _check_samples(kept, partition.relation)
    sweeps = phase.number * len(phase.chains)
    most = phase.samples_wanted + len(phase.chains) - 1  # all chains are sampled at a time
    counted = 0 < len(phase.chains) <= SEARCH.chains and len(kept) <= min(sweeps, most)
    counted &= bool(kept) == (phase.mean is not None)
    counted &= all(sample.chain < len(phase.chains) for sample in kept)
    require(counted, "its samples are not those that it has counted.")
    require(phase.change >= 0.0 and phase.moved >= 0.0, "the changes of its chains are below 0.")
    if phase.mean is not None:
        check_memberships(phase.mean, sizes, [m.size for m in partition.m])


def _check_gibbs(phase: GibbsSampler) -> None:
    partition, kept = phase.partition, max(phase.number - phase.max_iter // 2, 0)
    require(phase.number >= 0 and phase.max_iter > 0, "a counter of its chain is below 0.")
    _check_samples(phase.samples, partition.relation)
    for tally, m, size in zip(phase.tally, partition.m, partition.relation.sizes, strict=True):
        fits = tally.ndim == 2 and len(tally) == size and tally.shape[1] <= m.size
        require(fits, "it counts sweeps in clusters that do not exist.")
        counted = (tally >= 0.0).all() and (tally.sum(axis=1) == kept).all()
        require(counted, "its chain has not kept the sweeps that it has counted.")


def _check_variational(phase: Variational) -> None:
    counted = len(phase.changes) == phase.number
    counted &= phase.averaged >= 0 and (phase.averaged > 0) == (phase.mean is not None)
    require(counted, "its sweeps are not those that it has counted.")
    require(0.0 < phase.step <= 1.0 and phase.hyper_delay >= 0, "its steps are out of range.")
    since = 0 <= phase.step_since <= phase.number and phase.first_change >= 0.0
    require(since and phase.tol >= 0.0, "its steps began in a sweep that it has not made.")
    if phase.mean is not None:
        check_memberships(phase.mean, phase.state.relation.sizes, phase.state.blocks.clusters)


def _check_start(start: Start) -> None:
    phases, phase = start.settings.phases, start.phase
    fits = 0 <= start.position < len(phases) and isinstance(phase, PHASES[phases[start.position]])
    require(fits, "its phase is not one of its settings.")
    assert phase is not None
    corrected = phase.partition.clusters if isinstance(phase, DegreeAverage) else None
    taken = start.degrees is not None and start.degrees.model is not None
    require((corrected is not None) == taken, "the model of its phase is not the one taken.")
    _check_choice(start.degrees, start.relation, corrected or ())
    sweeps = len(start.trace)
    counted = phase.number <= sweeps if start.position else phase.number == sweeps
    require(counted, "its sweeps are not those that it has counted.")
    names = {name: name for name in ("averages", "burn_in", "exact_variance", "max_iter", "rule")}
    for name, setting in (names | {"method": "inference"}).items():
        same = getattr(phase, name, ...) in {..., getattr(start.settings, setting)}
        require(same, f"the {name} of its phase is not that of its settings.")


def _check_limit(limit: tuple[int, ...] | None, domains: int) -> None:
    fits = limit is None or (len(limit) == domains and min(limit) > 0)
    require(fits, "its limits on clusters or batches are not positive, one for each domain.")


def _check_settings(settings: Settings) -> None:
    wanted = f"it asks for {settings.n_init:,} starts; between 1 and {MOST_STARTS:,} are possible."
    require(1 <= settings.n_init <= MOST_STARTS, wanted)
    for pair in (settings.max_clusters, settings.batch_size):
        _check_limit((pair, pair) if isinstance(pair, int) else pair, 2)
    possible = settings.max_iter > 0 and settings.tol >= 0.0 and settings.n_jobs != 0
    possible &= settings.burn_in is None or settings.burn_in >= 0
    possible &= settings.inference in METHODS
    possible &= settings.init in {"spectral", "random", "given"}
    require(possible, "its settings are out of range.")


CHECKS: dict[type, Callable[[Any], None]] = {
    DegreeAverage: _check_degree_average,
    DegreePartition: _check_degree_partition,
    DegreeSearch: _check_degree_search,
    GibbsSampler: _check_gibbs,
    Partition: _check_partition,
    PosteriorAverage: _check_posterior,
    PosteriorChains: _check_chains,
    Result: check_result,
    Search: _check_search,
    Settings: _check_settings,
    SoftState: _check_state,
    Start: _check_start,
    Variational: _check_variational,
}
PARTS = (Blocks, DegreeChoice, DegreeModel, Hyperparameters, Sample)  # checked with their owner
CLASSES = {known.__name__: known for known in (*CHECKS, *PARTS)}
ARRAYS: dict[str, Callable[[NDArray[Any]], Any]] = {
    "array": lambda array: array,
    "array by column": lambda array: array.T,
    "floats": lambda array: array.tolist(),
    "trace": trace_from_table,
}
