"""Objects of a fit as plain JSON with named arrays, and back; what comes back is checked.

All fields of an object are packed, so that a field that is added is packed, too. Only the classes
that are named here come back, and they are filled, not called: nothing in a file chooses code.
"""

from collections.abc import Callable, Mapping
from dataclasses import fields
from math import isfinite
from types import NoneType, UnionType
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from coblock.inference.fit import FitRun, Settings
from coblock.inference.gibbs import GibbsRun
from coblock.inference.posterior import MOST_SAMPLES, ConditionalRun
from coblock.inference.schedule import Schedule, Visits
from coblock.inference.search import SHAKES, SWEEPS_A_ROUND, SearchRun
from coblock.inference.variational import METHODS, VariationalRun
from coblock.io.result_codec import CLOSE, Tensors, require, trace_of, trace_table
from coblock.kernels.hyperparameters import LARGEST, SMALLEST
from coblock.model.counts import Sums
from coblock.model.hyperparameters import Priors
from coblock.model.partition import Partition
from coblock.model.relation import Relation
from coblock.model.result import Result, Sample
from coblock.model.state import State
from coblock.model.trace import Sweep

CLASSES: dict[str, type] = {
    known.__name__: known
    for known in (
        ConditionalRun,
        FitRun,
        GibbsRun,
        Partition,
        Priors,
        Result,
        Sample,
        SearchRun,
        Settings,
        State,
        Sums,
        VariationalRun,
        Visits,
    )
}
DEEPEST = 16  # objects inside one another; a fit needs 8
MOST_STARTS = 100_000  # that a checkpoint may ask for
TENSORS: dict[str, Callable[[NDArray[Any]], Any]] = {
    "array": lambda array: array,
    "array by column": lambda array: array.T,
    "floats": lambda array: array.tolist(),
    "trace": trace_of,
}


class Shared(NamedTuple):
    """What the objects of a fit have in common; it is stored once, elsewhere."""

    relation: Relation
    schedule: Schedule
    rng: np.random.Generator


SHARED_KINDS: Mapping[str, type] = Shared.__annotations__


def pack(value: Any, name: str, tensors: Tensors, shared: Mapping[str, type] = SHARED_KINDS) -> Any:
    """Return a value as JSON can say it; its arrays go to ``tensors``, named after their way.

    What is of a ``shared`` kind is named only, as the field of :class:`Shared` that it is.
    """
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return _pack_array(value, name, tensors)
    if isinstance(value, list | tuple):
        return _pack_list(value, name, tensors, shared)
    for common, kind in shared.items():
        if isinstance(value, kind):
            return {"is": "shared", "which": common}
    assert type(value).__name__ in CLASSES, type(value)
    inside = {
        field.name: pack(getattr(value, field.name), f"{name}.{field.name}", tensors, shared)
        for field in fields(value)
    }
    return {"is": type(value).__name__, "fields": inside}


def _pack_array(array: NDArray[Any], name: str, tensors: Tensors) -> dict[str, str]:
    """Keep an array with its order in memory: sums of it depend on that, in their last bits."""
    by_column = array.flags.f_contiguous and not array.flags.c_contiguous
    tensors[name] = np.ascontiguousarray(array.T if by_column else array)
    return {"is": "array by column" if by_column else "array", "name": name}


def _pack_list(values: Any, name: str, tensors: Tensors, shared: Mapping[str, type]) -> Any:
    if values and all(isinstance(value, Sweep) for value in values):
        tensors[name] = trace_table(values)
        return {"is": "trace", "name": name}
    if values and all(isinstance(value, float) for value in values):
        tensors[name] = np.array(values, dtype=np.float64)
        return {"is": "floats", "name": name}
    parts = [
        pack(value, f"{name}.{number}", tensors, shared) for number, value in enumerate(values)
    ]
    return {"is": "tuple", "parts": parts} if isinstance(values, tuple) else parts


def unpack(packed: Any, tensors: Tensors, shared: Shared, depth: int = 0) -> Any:
    """Return the value that was packed; refuse what does not fit together.

    A tensor is removed from ``tensors`` when it is used, so that no two arrays share memory.
    """
    require(depth < DEEPEST, "its parts lie too deep inside one another.")
    if isinstance(packed, list):
        return [unpack(part, tensors, shared, depth + 1) for part in packed]
    if not isinstance(packed, dict):
        return packed
    kind = packed["is"]
    if kind in TENSORS:
        require(packed["name"] in tensors, "one of its tensors is missing, or named twice.")
        return TENSORS[kind](tensors.pop(packed["name"]))
    if kind == "tuple":
        return tuple(unpack(part, tensors, shared, depth + 1) for part in packed["parts"])
    if kind == "shared":
        return shared._asdict()[packed["which"]]
    require(kind in CLASSES, f"it holds a {str(kind)[:40]!r}, which is nothing that a fit has.")
    return _filled(CLASSES[kind], packed["fields"], tensors, shared, depth)


def _filled(
    kind: type, packed: dict[str, Any], tensors: Tensors, shared: Shared, depth: int
) -> Any:
    """Return an object with these fields; it is not counted or put in order anew."""
    names = {field.name for field in fields(kind)}
    require(names == set(packed), f"its {kind.__name__} has other fields than this version's.")
    value: Any = object.__new__(kind)
    hints = get_type_hints(kind)
    for name, part in packed.items():
        inside = unpack(part, tensors, shared, depth + 1)
        common = part == {"is": "shared", "which": name}
        fits = common or is_of_type(inside, hints[name])
        require(fits, f"its {name} is of the wrong type.")
        object.__setattr__(value, name, inside)
    if kind in CHECKS:
        CHECKS[kind](value)
    return value


def is_of_type(value: Any, hint: Any) -> bool:  # noqa: PLR0911 - one return for each form
    """Return whether a value agrees with a type annotation of one of :data:`CLASSES`."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin in {Union, UnionType}:
        return any(is_of_type(value, part) for part in parts)
    if origin is Literal:
        return value in parts
    if origin is list:
        return isinstance(value, list) and all(is_of_type(item, parts[0]) for item in value)
    if origin is tuple:
        if not isinstance(value, tuple):
            return False
        kinds = parts[:1] * len(value) if parts[-1] is ... else parts
        return len(value) == len(kinds) and all(map(is_of_type, value, kinds))
    if origin is np.ndarray:
        return isinstance(value, np.ndarray) and value.dtype == get_args(parts[1])[0]
    exact = hint in {bool, int, float, str, NoneType}
    finite = hint is not float or (type(value) is float and isfinite(value))
    return (type(value) is hint if exact else isinstance(value, hint)) and finite


# What kernels trust


def _check_array(array: NDArray[Any], kind: type, shape: tuple[int, ...]) -> None:
    fits = isinstance(array, np.ndarray) and array.dtype == kind and array.shape == shape
    require(fits, f"one of its arrays does not have the type and the shape {shape} that it needs.")


def _check_labels(label: NDArray[Any], objects: int, least: int, clusters: int) -> None:
    _check_array(label, np.int32, (objects,))
    inside = ((label >= least) & (label < clusters)).all()
    require(inside, "it has labels of clusters that do not exist.")


def _check_domains(relation: Relation, *parts: list[Any]) -> None:
    fit = all(isinstance(part, list) and len(part) == len(relation.sizes) for part in parts)
    require(fit, f"it does not have the domains of a {relation.kind} relation.")


def _check_tables(m: list[Any], *tables: NDArray[Any]) -> tuple[int, int]:
    """Refuse tables that are not of the size of the clusters, or not numbers."""
    for sizes in m:
        _check_array(sizes, np.float64, (sizes.size,))
    clusters = (m[0].size, m[-1].size)
    for table in tables:
        _check_array(table, np.float64, clusters)
        require(np.isfinite(table).all(), "one of its tables has entries that are not numbers.")
    return clusters


def _check_positive(*numbers: float | list[float] | NDArray[Any]) -> None:
    for number in numbers:
        possible = np.greater_equal(number, SMALLEST) & np.less_equal(number, LARGEST)
        require(np.all(possible), "one of its hyperparameters is not a positive number in range.")


def _check_partition(partition: Partition) -> None:
    relation, m = partition.relation, partition.m
    _check_domains(relation, partition.labels, m, partition.alpha)
    _check_positive(partition.a, partition.b, partition.alpha)
    clusters = _check_tables(m, partition.n, partition.N)
    for label, sizes, objects in zip(partition.labels, m, relation.sizes, strict=True):
        _check_labels(label, objects, 0, sizes.size)
        fits = np.array_equal(np.bincount(label, minlength=sizes.size), sizes)
        require(fits, "its clusters do not have the sizes that their labels say.")
    n, N = Sums.of_labels(relation, partition.labels, clusters).tables(relation.kind, m)
    fits = np.array_equal(n, partition.n) and np.array_equal(N, partition.N)
    require(fits, "its blocks do not have the links that their labels say.")


def _check_sums(partition: Partition | None) -> None:
    """Refuse sums that are not those of the labels; Gibbs does not keep them up to date."""
    if partition is None:
        return
    clusters = (partition.m[0].size, partition.m[-1].size)
    right = Sums.of_labels(partition.relation, partition.labels, clusters)
    for field in fields(Sums):
        fits = np.array_equal(getattr(partition.sums, field.name), getattr(right, field.name))
        require(fits, "its blocks do not have the links that their labels say.")


def _check_state(state: State) -> None:
    relation, sums, priors = state.relation, state.sums, state.priors
    _check_domains(relation, state.q, state.sure, state.m, priors.alpha)
    tables = (state.n, state.N, priors.a, priors.b, sums.links, sums.unseen, sums.together)
    clusters = _check_tables(state.m, *tables)
    _check_positive(priors.a, priors.b, priors.alpha)
    _check_array(sums.own, np.float64, (2, clusters[0]))
    for q, sure, m, size in zip(state.q, state.sure, state.m, relation.sizes, strict=True):
        _check_array(q, np.float64, (size, m.size))
        possible = np.isfinite(q).all() and (q >= 0.0).all() and (q <= 1.0).all()
        require(possible, "its memberships are not probabilities.")
        fits = (np.abs(q.sum(axis=0) - m) <= CLOSE * size).all()
        require(fits, "its clusters do not have the sizes that their memberships say.")
        _check_labels(sure, size, -1, m.size)


def _check_variational(run: VariationalRun) -> None:
    visits, sizes = run.visits, run.state.relation.sizes
    parts: dict[type, tuple[list[Any], ...]] = {
        np.float64: (visits.log_normaliser, visits.entropy, visits.moved),
        np.int32: (visits.rest, visits.due),
    }
    for kind, arrays in parts.items():
        _check_domains(run.state.relation, *arrays)
        for array in arrays:
            for part, size in zip(array, sizes, strict=True):
                _check_array(part, kind, (size,))
    counted = len(run.changes) == run.number and run.averaged >= (run.mean is not None)
    require(counted and run.step > 0.0, "its sweeps are not those that it has counted.")
    if run.mean is not None:
        _check_domains(run.state.relation, run.mean)
        for bar, q in zip(run.mean, run.state.q, strict=True):
            _check_array(bar, np.float64, q.shape)


def _check_conditional(run: ConditionalRun) -> None:
    relation, m = run.partition.relation, run.partition.m
    _check_domains(relation, run.q or m)
    for q, size, of_cluster in zip(run.q, relation.sizes, m, strict=False):
        _check_array(q, np.float64, (size, of_cluster.size))
    _check_sums(run.partition)
    _check_sums(run.chain)
    counted = 0 <= run.samples <= MOST_SAMPLES and (run.chain is not None) == (run.samples > 0)
    require(counted, "its samples are not those that it has counted.")
    if run.chain is not None:
        same = all(c.size == z.size for c, z in zip(run.chain.m, m, strict=True))
        require(same and run.settled, "its samples are of other clusters.")


def _check_search(run: SearchRun) -> None:
    counts = (run.number, run.step, run.rounds, run.failures, run.loosenings)
    require(min(counts) >= 0, "its search counts below 0.")
    _check_limit(run.most_clusters, len(run.partition.labels))
    _check_sums(run.partition)
    _check_sums(run.best)
    longest = SWEEPS_A_ROUND if run.climbing else SHAKES
    require(run.step <= longest, "its search is past its moves.")
    require(run.climbing or run.best is not None, "its search lacks its best partition.")


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
    possible &= settings.inference in {*METHODS, "gibbs"}
    possible &= settings.init in {"spectral", "random", "given"}
    require(possible, "its settings are out of range.")


def _check_gibbs(run: GibbsRun) -> None:
    require(run.number >= 0 and run.max_iter > 0, "its chain counts below 0.")
    _check_samples(run.samples, run.partition.relation)
    _check_domains(run.partition.relation, run._tally)
    for tally, m, size in zip(
        run._tally, run.partition.m, run.partition.relation.sizes, strict=True
    ):
        _check_array(tally, np.float64, (size, tally.shape[1]))
        require(tally.shape[1] <= m.size, "it counts clusters that do not exist.")


def _check_result(result: Result) -> None:
    relation = result.relation
    _check_domains(relation, result.labels, result.memberships)
    m = [q.sum(axis=0) for q in result.memberships]
    _check_tables(m, result.n, result.N, result.priors.a, result.priors.b)
    for q, label, size in zip(result.memberships, result.labels, relation.sizes, strict=True):
        _check_array(q, np.float64, (size, q.shape[1]))
        _check_labels(label, size, 0, q.shape[1])
    _check_samples(result.samples, relation)
    _check_positive(result.priors.a, result.priors.b, result.priors.alpha)


def _check_sample(sample: Sample) -> None:
    shape = sample.probability.shape
    require(len(shape) == 2 and len(sample.labels) in {1, 2}, "its samples have another form.")
    for label, clusters in zip(sample.labels, shape, strict=False):
        _check_labels(label, label.size, 0, clusters)


def _check_samples(samples: list[Sample], relation: Relation) -> None:
    for sample in samples:
        sizes = tuple(label.size for label in sample.labels)
        require(sizes == relation.sizes, "its samples are of other objects.")


def _check_fit(run: FitRun) -> None:
    if run.initial is not None:
        _check_domains(run.relation, run.initial)
        for q, size in zip(run.initial, run.relation.sizes, strict=True):
            require(q.ndim == 2 and q.shape[1] > 0, "its start has no clusters.")
            _check_array(q, np.float64, (size, q.shape[1]))
            require(np.isfinite(q).all(), "its start has entries that are not numbers.")


CHECKS: dict[type, Callable[[Any], None]] = {
    ConditionalRun: _check_conditional,
    FitRun: _check_fit,
    GibbsRun: _check_gibbs,
    Partition: _check_partition,
    Result: _check_result,
    Sample: _check_sample,
    SearchRun: _check_search,
    Settings: _check_settings,
    State: _check_state,
    VariationalRun: _check_variational,
}
