"""Checkpoints of fits of several relations, from which they continue to the same bits.

A checkpoint is a :mod:`coblock.io.container` with the data, the labels and hyperparameters of the
partitions that a fit has in hand, its counters, samples, trace, and the state of its generator.
Statistics of blocks are counted anew: between two sweeps they depend on the labels only.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import version
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from coblock.inference.multi_fit import MultiFit
from coblock.inference.multi_posterior import MultiChains
from coblock.inference.multi_search import Mode, MultiSearch
from coblock.inference.multi_variational import MultiVariational, make_variational
from coblock.inference.settings import Settings, read_multi_settings
from coblock.io import checkpoint, container, model_file, stored_data
from coblock.io.container import Header, StoredTensors, Tensors, read_entry, require
from coblock.io.stored_data import partition_tensors
from coblock.model.dataset import Dataset
from coblock.model.multi_result import restore
from coblock.model.multi_state import MultiState

COUNTERS = ("sampled", "perturbations", "failures")  # of the search
SEARCH_ENTRIES: dict[str, Any] = {
    **dict.fromkeys(("starts", "modes", *COUNTERS), int),
    **dict.fromkeys(("climbing", "has_best", "shapes_learnt"), bool),
    **{"last": float | None},
}
SOFT_ENTRIES: dict[str, Any] = {
    **dict.fromkeys(("number", "averaged", "hyper_delay", "step_since"), int),
    **dict.fromkeys(("order_frozen", "averaging"), bool),
    **{"first_change": float},
}
FORMAT = checkpoint.FORMAT._replace(
    name="coblock-multi-checkpoint",
    entries={
        **stored_data.DATASET_ENTRIES,
        **dict.fromkeys(("phases", "limits"), list),
        **dict.fromkeys(("parameters", "rng"), dict),
        **dict.fromkeys(("seed", "max_iter", "samples", "chains"), int),
        **dict.fromkeys(("search", "soft"), dict | None),
        "written_by": str,
    },
)


@dataclass(slots=True)
class StoredMultiFit:
    """A fit of several relations that can be written between any two sweeps."""

    fit: MultiFit
    parameters: Mapping[str, Any]  # of the estimator

    @property
    def rounds(self) -> tuple[int, int]:
        """How many local optima the search has found, and its perturbations."""
        search = self.fit.search
        return (0, 0) if search is None else (len(search.modes), search.perturbations)

    def data_tensors(self) -> Tensors:
        """Return the tensors of the relations; refuse likelihoods that no file can hold."""
        stored_data.check_likelihoods(self.fit.data, "Fit without a checkpoint.")
        return stored_data.data_tensors(self.fit.data)

    def write(self, path: Path, data: Tensors) -> None:
        """Write everything, completely or not at all; ``data`` are the tensors of the relations."""
        fit, tensors = self.fit, dict(data)
        search, soft = fit.search, fit.soft
        tensors |= stored_data.trace_tensors(fit.trace, len(fit.data.domains))
        partitions = [] if fit.chain is None else [fit.chain]
        samples = fit.samples
        if fit.chains is not None:
            partitions, samples = fit.chains.chains, fit.chains.samples
            tensors["chain_moved"] = np.array(fit.chains.moved, np.float64)
        tensors |= stored_data.sample_tensors(samples)
        for t, partition in enumerate(partitions):
            tensors |= partition_tensors(partition, f"chain_{t}_")
        if search is not None:
            tensors |= _search_tensors(search)
        if soft is not None:
            tensors |= _soft_tensors(soft)
        entries = stored_data.data_entries(fit.data) | {
            "phases": [record.phase for record in fit.trace],
            "limits": list(fit.limits),
            "parameters": model_file.plain_parameters(self.parameters),
            "rng": fit.rng.bit_generator.state,
            "seed": fit.seed,
            "max_iter": fit.settings.max_iter,
            "samples": len(samples),
            "chains": len(partitions),
            "search": None if search is None else _search_entries(search),
            "soft": None if soft is None else {name: getattr(soft, name) for name in SOFT_ENTRIES},
            "written_by": version("coblock"),
        }
        container.write_container(path, FORMAT, entries, tensors)


def _search_tensors(search: MultiSearch) -> Tensors:
    tensors = partition_tensors(search.partition)
    if search.best is not None:
        tensors |= partition_tensors(search.best, "best_")
    for t, start in enumerate(search.starts):
        tensors |= {f"start_{t}_labels_{d}": label for d, label in enumerate(start)}
    tensors |= stored_data.sample_tensors([mode.sample for mode in search.modes], "mode")
    table = [(mode.evidence, mode.ended) for mode in search.modes]
    return tensors | {"mode_evidence": np.array(table, np.float64).reshape(-1, 2)}


def _search_entries(search: MultiSearch) -> Header:
    return {
        "starts": len(search.starts),
        "modes": len(search.modes),
        **{name: int(getattr(search, name)) for name in COUNTERS},
        "climbing": search.climbing,
        "shapes_learnt": search.partition.shapes_learnt,
        "has_best": search.best is not None,
        "last": float(search.last) if np.isfinite(search.last) else None,
    }


def _soft_tensors(soft: MultiVariational) -> Tensors:
    state = soft.state
    tensors: Tensors = {f"soft_membership_{d}": q for d, q in enumerate(state.q)}
    tensors |= {f"soft_mean_{d}": q for d, q in enumerate(soft.mean or ())}
    tensors |= {f"soft_prior_{r}": prior for r, prior in enumerate(state.priors)}
    numbers = {"soft_alpha": state.alpha, "soft_changes": soft.changes}
    return tensors | {name: np.array(value, np.float64) for name, value in numbers.items()}


def read(path: str | PathLike[str]) -> StoredMultiFit:
    """Return the fit of a checkpoint and the parameters of its estimator; all of it is checked."""
    return checkpoint.read_checkpoint(path, FORMAT, _read_stored)


def _read_stored(header: Header, stored: Tensors) -> StoredMultiFit:
    tensors = StoredTensors(stored)
    data = stored_data.read_data(header, tensors)
    model_file.check_multi_parameters(header["parameters"])
    require("inference" in header["parameters"], "its parameters are not those of a model.")
    fit = _read_fit(header, tensors, data)
    tensors.require_all_used()
    return StoredMultiFit(fit, header["parameters"])


def _read_fit(header: Header, tensors: StoredTensors, data: Dataset) -> MultiFit:
    limits, domains = header["limits"], range(len(data.sizes))
    fits = len(limits) == len(domains)
    fits &= all(each is None or (type(each) is int and each > 0) for each in limits)
    require(fits, "its limits do not fit.")
    numbers = [header[name] for name in ("seed", "samples", "chains")]
    require(min(numbers) >= 0 and header["max_iter"] > 0, "a number in it is negative.")
    rng = np.random.default_rng(0)
    rng.bit_generator.state = header["rng"]
    fit: MultiFit = object.__new__(MultiFit)  # __post_init__ would compute the starts
    fit.data, fit.seed, fit.limits, fit.rng = data, header["seed"], tuple(limits), rng
    asked = read_multi_settings(header["parameters"])
    fit.settings = replace(asked, max_iter=header["max_iter"])
    fit.search = fit.soft = fit.chain = fit.chains = None
    fit.samples = []
    if header["search"] is not None:
        fit.search = _read_search(header["search"], tensors, fit)
    _read_chains(header, tensors, fit)
    if header["soft"] is not None:
        fit.soft = _read_soft(header["soft"], tensors, fit)
    fit.trace = stored_data.read_trace(header["phases"], tensors, data)
    _check_phases(fit)
    return fit


def _check_phases(fit: MultiFit) -> None:
    """Refuse parts of a fit that its settings do not have."""
    phases = fit.settings.phases
    fits = {record.phase for record in fit.trace} <= set(phases)
    fits &= ("search" in phases) == (fit.search is not None)
    searching = fit.search is not None and not fit.search.finished
    fits &= fit.chain is None or phases[-1] == "gibbs"
    fits &= fit.chains is None or (phases[-1] == "posterior" and not searching)
    fits &= fit.soft is None or (phases[-1] == "variational" and not searching)
    fits &= fit.search is not None or fit.chain is not None or fit.soft is not None
    require(fits, "its phases do not fit.")


def _read_search(header: Header, tensors: StoredTensors, fit: MultiFit) -> MultiSearch:
    data, entry = fit.data, read_entry(header, SEARCH_ENTRIES)
    require(
        min(entry[name] for name in ("starts", "modes", *COUNTERS)) >= 0, "a number is negative."
    )
    starts = [
        [
            stored_data.valid_labels(tensors.take(f"start_{t}_labels_{d}", (n,), np.int32))
            for d, n in enumerate(data.sizes)
        ]
        for t in range(entry["starts"])
    ]
    best = None
    if entry["has_best"]:
        best = restore(data, *stored_data.read_partition(tensors, data, "best_"))
    partition = restore(data, *stored_data.read_partition(tensors, data))
    partition.shapes_learnt = entry["shapes_learnt"]
    return MultiSearch(
        partition=partition,
        rng=fit.rng,
        limits=fit.limits,
        starts=starts,
        climbing=entry["climbing"],
        **{name: entry[name] for name in COUNTERS},
        last=-np.inf if entry["last"] is None else entry["last"],
        best=best,
        modes=_read_modes(entry["modes"], tensors, data),
    )


def _read_modes(count: int, tensors: StoredTensors, data: Dataset) -> list[Mode]:
    samples = stored_data.read_samples(count, tensors, data, "mode")
    table = tensors.take("mode_evidence", (count, 2), np.float64).tolist()
    rows = zip(samples, table, strict=True)
    return [Mode(sample, evidence, bool(ended)) for sample, (evidence, ended) in rows]


def _read_soft(header: Header, tensors: StoredTensors, fit: MultiFit) -> MultiVariational:
    entry = read_entry(header, SOFT_ENTRIES)
    q = stored_data.read_memberships(tensors, fit.data, "soft_membership_")
    state = MultiState(fit.data, q, *stored_data.read_hyperparameters(tensors, fit.data, "soft_"))
    soft = make_variational(state, fit.settings, number=entry["number"])
    counts = [entry[name] for name in ("number", "averaged", "hyper_delay", "step_since")]
    require(min(counts) >= 0 and entry["first_change"] >= 0.0, "a number in it is negative.")
    for name, value in entry.items():
        setattr(soft, name, value)
    if soft.averaged:
        soft.mean = stored_data.read_memberships(tensors, fit.data, "soft_mean_")
        pairs = zip(soft.mean, q, strict=True)
        require(all(a.shape == b.shape for a, b in pairs), "its averages do not fit.")
    soft.changes = tensors.take("soft_changes", (soft.number,), np.float64).tolist()
    return soft


def _read_chains(header: Header, tensors: StoredTensors, fit: MultiFit) -> None:
    """Read the chain of Gibbs sampling, or those around the partition found."""
    samples = stored_data.read_samples(header["samples"], tensors, fit.data)
    chains = [
        restore(fit.data, *stored_data.read_partition(tensors, fit.data, f"chain_{t}_"))
        for t in range(header["chains"])
    ]
    if fit.search is not None and chains:
        moved = tensors.take("chain_moved", (None,), np.float64).tolist()
        fit.chains = MultiChains(fit.seed, fit.limits, fit.search.modes, chains, moved, samples)
        return
    require(len(chains) <= 1 and bool(chains) >= bool(samples), "its chains do not fit.")
    fit.chain, fit.samples = chains[0] if chains else None, samples


@contextmanager
def open_checkpoint(
    path: object,
    data: Dataset,
    seed: int | None,
    limits: tuple[int | None, ...],
    settings: Settings,
) -> Iterator[MultiFit | None]:
    """Lock a file; yield the fit in it, refused if it is another one, or None without a file."""
    names = ("inference", "init", "refine", "burn_in", "tol")

    def differences(found: StoredMultiFit) -> list[str]:
        fit = found.fit
        different = [] if _digest(fit.data) == _digest(data) else ["data"]
        if fit.limits != limits:
            different.append("max_clusters")
        different += [x for x in names if getattr(fit.settings, x) != getattr(settings, x)]
        if seed is not None and fit.seed != seed:
            different.append("random_state")
        return different

    with checkpoint.lock_and_read(path, read, differences) as found:
        if found is None:
            yield None
            return
        found.fit.settings = settings
        yield found.fit


def _digest(data: Dataset) -> str:
    return container.digest(stored_data.data_entries(data), stored_data.data_tensors(data))
