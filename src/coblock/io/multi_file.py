"""Model files of several relations, in a :mod:`coblock.io.container`.

The header describes domains, relations and parameters; the tensors hold names, cells, labels,
hyperparameters, samples and trace. Everything that is used as an index is checked when it is read.
"""

import json
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from coblock.io import container
from coblock.io.container import Format, Header, Tensors, require
from coblock.io.model_file import ModelFileError
from coblock.io.tables import CORRECTED, LIKELIHOODS, degree_corrected
from coblock.kernels import Floats, Indices
from coblock.model.dataset import Dataset, Table
from coblock.model.likelihoods import Likelihood
from coblock.model.likelihoods.categorical import Categorical
from coblock.model.likelihoods.degrees import PREFIX
from coblock.model.likelihoods.normal import Normal
from coblock.model.multi_result import MultiRecord, MultiResult, MultiSample
from coblock.model.relation import Domain

FORMAT = Format(
    "coblock-multi-model",
    1,
    {
        **dict.fromkeys(("domains", "relations", "phases"), list),
        **{"parameters": dict, "log_evidence": float, "converged": bool, "samples": int},
    },
    known="formats up to 1",
    other_version="Update coblock.",
    damaged="Use a copy.",
)
PARAMETERS: dict[str, Any] = {
    "max_clusters": int | dict | None,
    "max_iter": int,
    "random_state": int | None,
}
METHOD_PARAMETERS: dict[str, Any] = {  # files of earlier versions have none of them
    "inference": str,
    "init": str,
    "refine": bool,
    "burn_in": int | None,
    "tol": float | int,
}
RELATION_ENTRIES: dict[str, Any] = {
    **{"name": str, "places": list, "domains": list, "likelihood": str, "categories": list},
    **{"location": float, "scale": float},
    **dict.fromkeys(("filled", "symmetric", "distinct", "exposed"), bool),
}
MOST_ARITY = 16


def save_result(result: MultiResult, path: str | Path, parameters: Mapping[str, object]) -> None:
    """Write a result, completely or not at all."""
    data = result.data
    check_likelihoods(data, "Pickle the model instead.")
    tensors = data_tensors(data) | sample_tensors(result.samples)
    tensors["alpha"] = np.array(result.alpha)
    for d, label in enumerate(result.labels):
        tensors[f"labels_{d}"] = label.astype(np.int32)
    for r, prior in enumerate(result.priors):
        tensors[f"prior_{r}"] = prior
    tensors |= trace_tensors(result.trace, len(data.domains))
    for d, q in enumerate(result.soft or ()):
        tensors[f"membership_{d}"] = q
    entries = data_entries(data) | {
        "phases": [record.phase for record in result.trace],
        "parameters": dict(parameters),
        "log_evidence": float(result.log_evidence),
        "converged": bool(result.converged),
        "samples": len(result.samples),
    }
    plain = {name: np.ascontiguousarray(array) for name, array in tensors.items()}
    container.write_container(path, FORMAT, entries, plain)


def check_likelihoods(data: Dataset, advice: str) -> None:
    """Refuse relations with a likelihood of the user's."""
    known = (*LIKELIHOODS, *CORRECTED)
    own = [table.name for table in data.tables if table.likelihood.name not in known]
    if own:
        msg = (
            f"The likelihood of relation '{own[0]}' is not one of coblock's, and a file of coblock "
            f"holds no code. {advice}"
        )
        raise ValueError(msg)


def data_tensors(data: Dataset) -> Tensors:
    """Return names, cells, values and exposures as tensors."""
    tensors: Tensors = {}
    for d, domain in enumerate(data.domains):
        if domain.names is not None:
            encoded = [name.encode("utf-8", "surrogatepass") for name in domain.names]
            tensors[f"names_{d}"] = np.frombuffer(b"".join(encoded), np.uint8)
            tensors[f"name_end_{d}"] = np.cumsum([len(each) for each in encoded]).astype(np.int64)
    for r, table in enumerate(data.tables):
        tensors[f"cells_{r}"], tensors[f"unseen_{r}"] = table.cells, table.unseen
        tensors[f"values_{r}"] = table.values
        for p, exposure in enumerate(table.exposures or ()):
            tensors[f"exposure_{r}_{p}"] = exposure
    return tensors


def data_entries(data: Dataset) -> Header:
    """Return the entries of the header about domains and relations."""
    return {
        "domains": [
            {"name": name, "size": domain.size, "named": domain.names is not None}
            for name, domain in zip(data.domain_names, data.domains, strict=True)
        ],
        "relations": [_relation_entry(table) for table in data.tables],
    }


def sample_tensors(samples: list[MultiSample]) -> Tensors:
    """Return labels and hyperparameters of all samples as tensors; none without samples."""
    if not samples:
        return {}
    tensors: Tensors = {"sample_alpha": np.array([s.alpha for s in samples])}
    for d in range(len(samples[0].labels)):
        tensors[f"sample_labels_{d}"] = np.stack([s.labels[d] for s in samples])
    for r in range(len(samples[0].priors)):
        tensors[f"sample_prior_{r}"] = np.stack([s.priors[r] for s in samples])
    return tensors


def trace_tensors(trace: list[MultiRecord], n_domains: int) -> Tensors:
    """Return the records of all sweeps, without their phases, as tables.

    The second one has what only the records of soft memberships hold.
    """
    rows = [
        [record.sweep, record.log_evidence, record.moved or 0.0, record.seconds, *record.clusters]
        for record in trace
    ]
    soft = [[r.change, r.leave_one_out] for r in trace if r.leave_one_out is not None]
    tensors = {"trace": np.array(rows, np.float64).reshape(len(rows), 4 + n_domains)}
    return tensors | ({"soft_trace": np.array(soft, np.float64)} if soft else {})


def has_format(path: str | PathLike[str], form: Format) -> bool:
    """Return whether a file says that it has this format."""
    try:
        if not Path(path).is_file():  # a pipe is not waited for
            return False
        with safe_open(path, framework="numpy") as file:
            header = json.loads((file.metadata() or {}).get(container.KEY, "null"))
    except (OSError, ValueError, RecursionError, SafetensorError):
        return False
    return isinstance(header, dict) and header.get("format") == form.name


def load_result(path: str | Path) -> tuple[MultiResult, dict[str, Any]]:
    """Return the result and the parameters of a file; nothing in it is run."""
    with container.convert_refusals(path, "a model", ModelFileError):
        header, tensors = container.read_container(Path(path), FORMAT)
        check_parameters(header["parameters"])
        return _read_result(header, StoredTensors(tensors)), header["parameters"]


def check_parameters(parameters: Header) -> None:
    """Refuse parameters that are not those of a MultiIRM."""
    kinds = PARAMETERS | METHOD_PARAMETERS
    fits = set(parameters) in (set(PARAMETERS), set(kinds))
    require(fits, "its parameters are not those of a model.")
    for name, value in parameters.items():
        require(isinstance(value, kinds[name]), f"its parameter {name} has another type.")


class StoredTensors:
    """Tensors of a file; each has the shape and the type that is asked for, and is read once."""

    def __init__(self, tensors: Tensors) -> None:
        self.tensors = tensors
        self.used: set[str] = set()

    def require_all_used(self) -> None:
        """Refuse tensors that belong nowhere."""
        left = sorted(set(self.tensors) - self.used)
        require(not left, f"it has {len(left)} tensors too many: {left[:3]!r:.100}.")

    def take(self, name: str, shape: tuple[int | None, ...], kind: type) -> Any:
        """Return a tensor of this shape, None being any size, and this type."""
        require(name in self.tensors, f"its tensor {name} is missing.")
        array = self.tensors[name]
        fits = array.ndim == len(shape) and array.dtype == kind
        pairs = zip(array.shape, shape, strict=False)
        fits = fits and all(want is None or have == want for have, want in pairs)
        require(fits, f"its tensor {name} has the wrong shape or type.")
        require(name not in self.used, f"its tensor {name} is used twice.")
        require(kind != np.float64 or np.isfinite(array).all(), f"{name} has numbers not finite.")
        self.used.add(name)
        return array.copy()


def _read_result(header: Header, tensors: StoredTensors) -> MultiResult:
    """Return the result, checked."""
    data = read_data(header, tensors)
    labels, priors, alpha = read_partition(tensors, data)
    samples = read_samples(header["samples"], tensors, data)
    records = read_trace(header["phases"], tensors, data)
    soft = None
    if "membership_0" in tensors.tensors:
        soft = read_memberships(tensors, data, "membership_", labels)
    tensors.require_all_used()
    evidence = header["log_evidence"]
    require(np.isfinite(evidence), "its evidence is not a number.")
    found = (labels, priors, alpha, evidence, samples, records, header["converged"], soft)
    return MultiResult(data, *found)


def read_data(header: Header, tensors: StoredTensors) -> Dataset:
    """Return domains and relations."""
    names = [
        read_entry(each, {"name": str, "size": int, "named": bool}) for each in header["domains"]
    ]
    require(names, "it has no domain.")
    require(all(each["size"] > 0 for each in names), "a domain is empty.")
    sizes = [each["size"] for each in names]
    domains = tuple(
        Domain(each["size"], _read_names(tensors, d, each["size"]) if each["named"] else None)
        for d, each in enumerate(names)
    )
    tables = tuple(
        _read_table(tensors, r, read_entry(each, RELATION_ENTRIES), sizes)
        for r, each in enumerate(header["relations"])
    )
    require(tables, "it has no relation.")
    filled = {d for table in tables for d in table.domains}
    require(filled == set(range(len(sizes))), "a domain fills no place.")
    return Dataset(tuple(each["name"] for each in names), domains, tables)


def read_partition(
    tensors: StoredTensors, data: Dataset, prefix: str = ""
) -> tuple[list[Indices], list[Floats], list[float]]:
    """Return labels, hyperparameters of relations and concentrations."""
    labels = [
        valid_labels(tensors.take(f"{prefix}labels_{d}", (n,), np.int32))
        for d, n in enumerate(data.sizes)
    ]
    return labels, *read_hyperparameters(tensors, data, prefix)


def read_hyperparameters(
    tensors: StoredTensors, data: Dataset, prefix: str
) -> tuple[list[Floats], list[float]]:
    """Return hyperparameters of relations and concentrations."""
    priors = [
        _read_prior(tensors.take(f"{prefix}prior_{r}", (None,), np.float64), table.likelihood)
        for r, table in enumerate(data.tables)
    ]
    alpha = tensors.take(f"{prefix}alpha", (len(data.sizes),), np.float64)
    require((alpha > 0).all(), "a concentration is not positive.")
    return priors, alpha.tolist()


def read_trace(phases: list[Any], tensors: StoredTensors, data: Dataset) -> list[MultiRecord]:
    """Return the records of all sweeps."""
    trace = tensors.take("trace", (len(phases), 4 + len(data.sizes)), np.float64).tolist()
    n_soft = sum(phase == "variational" for phase in phases)
    soft = tensors.take("soft_trace", (n_soft, 2), np.float64).tolist() if n_soft else []
    records = []
    for (sweep, value, moved, seconds, *clusters), phase in zip(trace, phases, strict=True):
        numbers = (tuple(map(int, clusters)), moved, seconds, 2.0 * moved, None)
        if phase == "variational":
            numbers = (numbers[0], None, seconds, *soft.pop(0))
        records.append(MultiRecord(int(sweep), str(phase), value, *numbers))
    return records


def read_memberships(
    tensors: StoredTensors, data: Dataset, prefix: str, labels: list[Indices] | None = None
) -> list[Floats]:
    """Return memberships of all domains; there is a cluster for each label."""
    found = []
    for d, size in enumerate(data.sizes):
        q = tensors.take(f"{prefix}{d}", (size, None), np.float64)
        clusters = 1 if labels is None else int(labels[d].max()) + 1
        fits = q.shape[1] >= clusters and (q >= 0.0).all()
        require(fits and np.allclose(q.sum(axis=1), 1.0), "its memberships are not probabilities.")
        found.append(q)
    return found


def read_samples(count: int, tensors: StoredTensors, data: Dataset) -> list[MultiSample]:
    """Return the samples of a file."""
    if count == 0:
        return []
    require(count > 0, "its number of samples is negative.")
    labels = [
        tensors.take(f"sample_labels_{d}", (count, n), np.int32) for d, n in enumerate(data.sizes)
    ]
    priors = [
        tensors.take(f"sample_prior_{r}", (count, None), np.float64)
        for r in range(len(data.tables))
    ]
    alpha = tensors.take("sample_alpha", (count, len(data.sizes)), np.float64)
    require((alpha > 0).all(), "a concentration is not positive.")
    return [
        MultiSample(
            [valid_labels(each[t]) for each in labels],
            [
                _read_prior(each[t], table.likelihood)
                for each, table in zip(priors, data.tables, strict=True)
            ],
            alpha[t].tolist(),
        )
        for t in range(count)
    ]


def _read_table(tensors: StoredTensors, r: int, entry: Header, sizes: list[int]) -> Table:
    domains, places = entry["domains"], entry["places"]
    require(0 < len(domains) <= MOST_ARITY, "a relation has too many places, or none.")
    require(len(set(places)) == len(places) == len(domains), "places and domains do not fit.")
    require(all(isinstance(p, str) for p in places), "a place has no name.")
    require(all(type(d) is int and 0 <= d < len(sizes) for d in domains), "a domain is unknown.")
    symmetric = entry["symmetric"]
    require(not symmetric or (len(domains) > 1 and domains[0] == domains[1]), "no pair of places.")
    cells, unseen = (
        _read_cells(tensors, f"{what}_{r}", domains, sizes) for what in ("cells", "unseen")
    )
    values = tensors.take(f"values_{r}", (len(cells),), np.float64)
    likelihood = _read_likelihood(entry)
    likelihood.encode(
        np.array(likelihood.categories, dtype=object)[values.astype(np.int64)]
        if isinstance(likelihood, Categorical)
        else values
    )
    exposures = None
    if entry["exposed"]:
        exposures = tuple(
            tensors.take(f"exposure_{r}_{p}", (sizes[d],), np.float64)
            for p, d in enumerate(domains)
        )
        require(all((each > 0).all() for each in exposures), "an exposure is not positive.")
    flags = {name: entry[name] for name in ("filled", "symmetric", "distinct")}
    require(entry["filled"] or not len(unseen), "unseen cells of a relation without zeros.")
    return Table(
        name=entry["name"],
        places=tuple(places),
        domains=tuple(domains),
        likelihood=likelihood,
        cells=cells,
        values=values,
        unseen=unseen,
        exposures=exposures,
        **flags,
    )


def _read_cells(tensors: StoredTensors, name: str, domains: list[int], sizes: list[int]) -> Indices:
    cells: Indices = tensors.take(name, (None, len(domains)), np.int32)
    for p, d in enumerate(domains):
        inside = (cells[:, p] >= 0) & (cells[:, p] < sizes[d])
        require(inside.all(), f"{name} has objects that do not exist.")
    return cells


def valid_labels(label: Indices) -> Indices:
    """Return labels from 0 on; every cluster has members."""
    require(label.min() == 0 and label.max() < label.size, "labels are out of range.")
    require(np.bincount(label).all(), "a cluster is empty.")
    return label


def _read_prior(prior: Floats, likelihood: Likelihood) -> Floats:
    rows = likelihood.initial_prior(0.5).size
    require(prior.size == rows, "the hyperparameters of a relation do not fit its likelihood.")
    require((prior[likelihood.n_real :] > 0).all(), "a hyperparameter is not positive.")
    return prior


def _read_names(tensors: StoredTensors, d: int, size: int) -> tuple[str, ...]:
    text = tensors.take(f"names_{d}", (None,), np.uint8).tobytes()
    ends = tensors.take(f"name_end_{d}", (size,), np.int64)
    starts = np.concatenate(([0], ends[:-1]))
    fits = (ends >= starts).all() and ends[-1] == len(text)
    require(fits, "the names of a domain do not fit.")
    pairs = zip(starts.tolist(), ends.tolist(), strict=True)
    names = tuple(text[a:b].decode("utf-8", "surrogatepass") for a, b in pairs)
    require(len(set(names)) == size, "names of a domain repeat.")
    return names


def _read_likelihood(entry: Header) -> Likelihood:
    if entry["likelihood"] in CORRECTED:
        fits = len(entry["domains"]) == 2 and entry["filled"] and not entry["exposed"]
        require(fits, "a relation does not fit its degree correction.")
        base = LIKELIHOODS[entry["likelihood"].removeprefix(PREFIX)]
        return degree_corrected(base, symmetric=entry["symmetric"])
    require(entry["likelihood"] in LIKELIHOODS, "its likelihood is unknown.")
    if entry["likelihood"] == "categorical":
        categories = entry["categories"]
        require(categories and all(isinstance(c, str) for c in categories), "no categories.")
        return Categorical(tuple(categories))
    if entry["likelihood"] == "normal":
        require(np.isfinite(entry["location"]) and entry["scale"] > 0, "the scale is not positive.")
        return Normal(entry["location"], entry["scale"])
    return LIKELIHOODS[entry["likelihood"]]


def _relation_entry(table: Table) -> Header:
    likelihood = table.likelihood
    return {
        "name": table.name,
        "places": list(table.places),
        "domains": [int(d) for d in table.domains],
        "likelihood": likelihood.name,
        "categories": list(getattr(likelihood, "categories", ())),
        "location": float(getattr(likelihood, "location", 0.0)),
        "scale": float(getattr(likelihood, "scale", 1.0)),
        "filled": table.filled,
        "symmetric": table.symmetric,
        "distinct": table.distinct,
        "exposed": table.exposures is not None,
    }


def read_entry(value: object, kinds: Mapping[str, Any]) -> Header:
    """Return an entry of a header that has these keys with values of these types."""
    require(isinstance(value, dict) and set(value) == set(kinds), "an entry has other keys.")
    assert isinstance(value, dict)
    for name, kind in kinds.items():
        require(isinstance(value[name], kind), f"the entry {name} has another type.")
    return value
