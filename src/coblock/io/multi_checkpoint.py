"""Checkpoints of fits of several relations, from which they continue to the same bits.

A checkpoint is a :mod:`coblock.io.container` with the data, the labels and hyperparameters of the
partitions that a fit has in hand, its counters, samples, trace, and the state of its generator.
Statistics of blocks are counted anew: between two sweeps they depend on the labels only.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from os import PathLike
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np

from coblock.inference.multi_fit import MultiFit
from coblock.inference.multi_posterior import MultiChains
from coblock.inference.multi_search import Mode, MultiSearch
from coblock.io import container, multi_file, refuse
from coblock.io.atomic import WriteError, hold, remove_leftovers
from coblock.io.checkpoint import EVERY, CheckpointError, check_exists
from coblock.io.container import Format, Header, Tensors, require
from coblock.io.multi_file import StoredTensors
from coblock.model.dataset import Dataset
from coblock.model.multi_partition import MultiPartition
from coblock.model.multi_result import MultiRecord, restore

COUNTED = ("starts", "modes", "chains", "samples")  # what tensors are there for
COUNTERS = ("sampled", "perturbations", "failures")  # of the search
FORMAT = Format(
    "coblock-multi-checkpoint",
    2,
    {
        **dict.fromkeys(("domains", "relations", "phases", "limits"), list),
        **dict.fromkeys(("parameters", "rng"), dict),
        **dict.fromkeys(("seed", "max_iter", *COUNTED, *COUNTERS), int),
        **dict.fromkeys(("climbing", "has_best"), bool),
        **{"last": float | None, "written_by": str},
    },
    known="2 only",
    other_version="Go on with the version that wrote it, or begin the fit anew.",
    damaged="Begin the fit anew.",
)


@dataclass(slots=True)
class MultiCheckpoint:
    """A callback that calls another one, and writes the fit to its file if that is due."""

    fit: MultiFit
    path: Path
    parameters: Mapping[str, object]  # of the estimator
    callback: Callable[[MultiRecord], object] | None = None
    clock: Callable[[], float] = monotonic
    data: Tensors = field(init=False)  # of the relations; made once, because they do not change
    written: float | None = field(init=False, default=None)  # time of the last checkpoint

    def __post_init__(self) -> None:
        """Make the tensors of the data."""
        multi_file.check_likelihoods(self.fit.data, "Fit without a checkpoint.")
        self.data = multi_file.data_tensors(self.fit.data)

    def __call__(self, record: MultiRecord) -> object:
        """Call the callback; write if a minute has passed, or if the callback raises."""
        try:
            answer = None if self.callback is None else self.callback(record)
        except BaseException:
            self.save()
            raise
        if self.written is None or self.clock() - self.written >= EVERY:
            self.save()
        return answer

    def save(self) -> None:
        """Write now. A first failure ends the fit; later ones leave the earlier file and warn."""
        try:
            write(self.fit, self.path, self.parameters, self.data)
        except WriteError as error:
            if self.written is None:
                raise
            msg = f"{error} The fit goes on; the checkpoint before stays in place."
            warnings.warn(msg, RuntimeWarning, stacklevel=2)
        self.written = self.clock()


def write(fit: MultiFit, path: Path, parameters: Mapping[str, object], data: Tensors) -> None:
    """Write a fit between two sweeps, completely or not at all."""
    search, tensors = fit.search, dict(data)
    chains = MultiChains(fit.seed, fit.limits, [], []) if fit.chains is None else fit.chains
    tensors |= multi_file.sample_tensors(chains.samples)
    tensors |= multi_file.sample_tensors([mode.sample for mode in search.modes], "mode")
    table = [(mode.evidence, mode.ended) for mode in search.modes]
    tensors["mode_evidence"] = np.array(table, np.float64).reshape(-1, 2)
    tensors["chain_moved"] = np.array(chains.moved, np.float64)
    tensors["trace"] = multi_file.trace_tensor(fit.trace, len(fit.data.domains))
    partitions = {"": search.partition, "best_": search.best}
    partitions |= {f"chain_{t}_": each for t, each in enumerate(chains.chains)}
    for prefix, partition in partitions.items():
        if partition is not None:
            tensors |= _partition_tensors(partition, prefix)
    for t, start in enumerate(search.starts):
        tensors |= {f"start_{t}_labels_{d}": label for d, label in enumerate(start)}
    entries = multi_file.data_entries(fit.data) | {
        "phases": [record.phase for record in fit.trace],
        "limits": list(fit.limits),
        "parameters": dict(parameters),
        "rng": fit.rng.bit_generator.state,
        "seed": fit.seed,
        "max_iter": fit.max_iter,
        "samples": len(chains.samples),
        "starts": len(search.starts),
        "modes": len(search.modes),
        "chains": len(chains.chains),
        **{name: int(getattr(search, name)) for name in COUNTERS},
        "climbing": search.climbing,
        "has_best": search.best is not None,
        "last": float(search.last) if np.isfinite(search.last) else None,
        "written_by": version("coblock"),
    }
    plain = {name: np.ascontiguousarray(array) for name, array in tensors.items()}
    container.write_container(path, FORMAT, entries, plain)


def _partition_tensors(partition: MultiPartition, prefix: str) -> Tensors:
    labels = {f"{prefix}labels_{d}": label for d, label in enumerate(partition.labels)}
    priors = {f"{prefix}prior_{r}": prior for r, prior in enumerate(partition.priors)}
    return labels | priors | {f"{prefix}alpha": np.array(partition.alpha, np.float64)}


def read(path: str | PathLike[str]) -> tuple[MultiFit, dict[str, Any]]:
    """Return the fit of a checkpoint and the parameters of its estimator; all of it is checked."""
    check_exists(path)
    with container.convert_refusals(path, "a checkpoint", CheckpointError):
        header, stored = container.read_container(Path(path), FORMAT)
        tensors = StoredTensors(stored)
        data = multi_file.read_data(header, tensors)
        multi_file.check_parameters(header["parameters"])
        fit = _read_fit(header, tensors, data)
        tensors.require_all_used()
    if header["written_by"] != version("coblock"):
        versions = f"coblock {header['written_by'][:20]}, this is {version('coblock')}"
        differ = "the last bits of the result may differ from those of an uninterrupted fit."
        warnings.warn(f"{path} was written by {versions}: {differ}", UserWarning, stacklevel=2)
    return fit, header["parameters"]


def _read_fit(header: Header, tensors: StoredTensors, data: Dataset) -> MultiFit:
    limits, domains = header["limits"], range(len(data.sizes))
    fits = len(limits) == len(domains)
    fits &= all(each is None or (type(each) is int and each > 0) for each in limits)
    require(fits, "its limits do not fit.")
    numbers = [header[name] for name in ("seed", *COUNTED, *COUNTERS)]
    require(min(numbers) >= 0 and header["max_iter"] > 0, "a number in it is negative.")
    rng = np.random.default_rng(0)
    rng.bit_generator.state = header["rng"]
    starts = [
        [
            multi_file.valid_labels(tensors.take(f"start_{t}_labels_{d}", (n,), np.int32))
            for d, n in enumerate(data.sizes)
        ]
        for t in range(header["starts"])
    ]
    found = {
        prefix: restore(data, *multi_file.read_partition(tensors, data, prefix)) if there else None
        for prefix, there in (
            ("", True),
            ("best_", header["has_best"]),
            *((f"chain_{t}_", True) for t in range(header["chains"])),
        )
    }
    assert found[""] is not None
    search = MultiSearch(
        partition=found[""],
        rng=rng,
        limits=tuple(limits),
        starts=starts,
        climbing=header["climbing"],
        **{name: header[name] for name in COUNTERS},
        last=-np.inf if header["last"] is None else header["last"],
        best=found["best_"],
        modes=_read_modes(header["modes"], tensors, data),
    )
    fit: MultiFit = object.__new__(MultiFit)  # __post_init__ would compute the starts
    fit.data, fit.seed, fit.limits = data, header["seed"], tuple(limits)
    fit.max_iter, fit.rng, fit.search = header["max_iter"], rng, search
    fit.chains = _read_chains(header, tensors, fit, found)
    fit.trace = multi_file.read_trace(header["phases"], tensors, data)
    known = {record.phase for record in fit.trace} <= {"search", "posterior"}
    require(known and (fit.chains is None or search.finished), "its phases do not fit.")
    return fit


def _read_modes(count: int, tensors: StoredTensors, data: Dataset) -> list[Mode]:
    samples = multi_file.read_samples(count, tensors, data, "mode")
    table = tensors.take("mode_evidence", (count, 2), np.float64).tolist()
    rows = zip(samples, table, strict=True)
    return [Mode(sample, evidence, bool(ended)) for sample, (evidence, ended) in rows]


def _read_chains(
    header: Header,
    tensors: StoredTensors,
    fit: MultiFit,
    found: Mapping[str, MultiPartition | None],
) -> MultiChains | None:
    moved = tensors.take("chain_moved", (None,), np.float64).tolist()
    samples = multi_file.read_samples(header["samples"], tensors, fit.data)
    partitions = [found[f"chain_{t}_"] for t in range(header["chains"])]
    chains = [each for each in partitions if each is not None]
    require(bool(chains) or not (samples or moved), "its chains do not fit.")
    if not chains:
        return None
    return MultiChains(fit.seed, fit.limits, fit.search.modes, chains, moved, samples)


@contextmanager
def open_checkpoint(
    path: object,
    data: Dataset,
    seed: int | None,
    limits: tuple[int | None, ...],
    max_iter: int,
) -> Iterator[MultiFit | None]:
    """Lock a file; yield the fit in it, refused if it is another one, or None without a file."""
    if not isinstance(path, str | PathLike):
        msg = f"checkpoint must be a path or None, but is {path!r} ({type(path).__name__})."
        raise TypeError(msg)
    with hold(Path(path)):
        remove_leftovers(Path(path))
        if not Path(path).exists():
            yield None
            return
        fit, _ = read(path)
        different = [] if _digest(fit.data) == _digest(data) else ["data"]
        if fit.limits != limits:
            different.append("max_clusters")
        if seed is not None and fit.seed != seed:
            different.append("random_state")
        if different:
            differs = f"{path} is the checkpoint of another fit: it differs in"
            advice = "Name another file, or delete this one to begin anew."
            refuse(f"{differs} {', '.join(different)}. {advice}", CheckpointError)
        fit.max_iter = max_iter
        yield fit


def _digest(data: Dataset) -> str:
    plain = {k: np.ascontiguousarray(a) for k, a in multi_file.data_tensors(data).items()}
    return container.digest(multi_file.data_entries(data), plain)
