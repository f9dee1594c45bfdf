"""Relations, partitions and samples as tensors with entries of a header, and back.

The data of :class:`coblock.IRM` are one :class:`BinaryRelation`, stored as links and unseen cells
by row; cells by column follow from them. Those of :class:`coblock.MultiIRM` are a
:class:`Dataset`, stored as a list of cells for each relation. Everything that is used as an index
is checked when it is read.
"""

from dataclasses import replace
from typing import Any

import numpy as np
from scipy import sparse

from coblock.io.cells import LIKELIHOODS
from coblock.io.codec import check_memberships
from coblock.io.container import (
    Header,
    StoredTensors,
    Tensors,
    decode_names,
    encode_names,
    read_entry,
    require,
)
from coblock.io.tables import CORRECTED, degree_corrected
from coblock.kernels import Floats, Indices
from coblock.model.checks import KINDS
from coblock.model.dataset import Dataset, Table
from coblock.model.likelihoods import Likelihood
from coblock.model.likelihoods.categorical import Categorical
from coblock.model.likelihoods.degrees import PREFIX
from coblock.model.likelihoods.normal import Normal
from coblock.model.multi_partition import MultiPartition
from coblock.model.multi_result import MultiRecord, MultiResult, MultiSample
from coblock.model.relation import BinaryRelation, Domain

BINARY_ENTRIES = {"kind": str, "shape": list, "row_names": bool, "column_names": bool}
DATASET_ENTRIES = dict.fromkeys(("domains", "relations"), list)
DOMAIN_ENTRIES = {"name": str, "size": int, "named": bool}
RELATION_ENTRIES: dict[str, Any] = {
    **{"name": str, "places": list, "domains": list, "likelihood": str, "categories": list},
    **{"location": float, "scale": float},
    **dict.fromkeys(("filled", "symmetric", "distinct", "exposed"), bool),
}
MOST_ARITY = 16


# One binary relation


def relation_entries(relation: Any) -> dict[str, object]:
    """Return the entries of a header that describe a relation."""
    return {
        "kind": relation.kind,
        "shape": list(relation.shape),
        "row_names": relation.row_names is not None,
        "column_names": relation.column_names is not None,
    }


def check_relation_entries(header: Header) -> None:
    """Refuse a kind or shape that no relation has."""
    kind, shape = header["kind"], header["shape"]
    possible = len(shape) == 2 and all(type(size) is int and 0 < size < 2**31 for size in shape)
    require(possible, "its relation has an impossible shape.")
    require(kind in KINDS, f"its relation is of no known kind ({kind[:20]!r}).")
    square = kind == "bipartite" or shape[0] == shape[1]
    require(square, f"its relation is {kind}, but not square.")


def relation_to_tensors(relation: BinaryRelation) -> Tensors:
    """Return the arrays of a relation and its names."""
    tensors: Tensors = relation.incidence[0][0]._asdict() | {
        "self_link": relation.own_link,
        "self_seen": relation.own_seen,
    }
    for what, names in (("row", relation.row_names), ("column", relation.column_names)):
        if names is not None:
            tensors[f"{what}_names"], tensors[f"{what}_name_end"] = encode_names(names)
    return tensors


def relation_from_tensors(header: Header, tensors: Tensors) -> BinaryRelation:
    """Rebuild a relation and check that it has the arrays that were stored."""
    rows, columns = header["shape"]
    links, unseen = (_pattern(tensors, name, (rows, columns)) for name in ("link", "unseen"))
    diagonal = links.diagonal().any() or unseen.diagonal().any()
    alone = header["kind"] == "bipartite" or not diagonal
    require(alone, "objects are linked with themselves among its other links.")
    relation = BinaryRelation.build(links, unseen=unseen, kind=header["kind"])
    rebuilt = relation.incidence[0][0]._asdict()
    same = all(np.array_equal(array, tensors[name]) for name, array in rebuilt.items())
    require(same, "its links are not in order.")
    own = (rows if relation.repeated else 0,)
    own_link, own_seen = (nonnegative(tensors, name, own) for name in ("self_link", "self_seen"))
    possible = np.isin((own_link, own_seen), (0, 1)).all() and (own_link <= own_seen).all()
    possible &= relation.kind == "directed" or not own_seen.any()
    require(possible, "its links of objects with themselves are impossible.")
    row_names, column_names = (
        _read_axis_names(header, tensors, what) for what in ("row", "column")
    )
    relation = replace(relation, row_names=row_names, column_names=column_names)
    return replace(relation, own_link=own_link, own_seen=own_seen)


def _pattern(tensors: Tensors, name: str, shape: tuple[int, int]) -> sparse.csr_array:
    """Return links or unseen cells as a matrix; all indices are inside it."""
    start, index = tensors[f"{name}_start"], tensors[name]
    inside: Any = start.shape == (shape[0] + 1,) and index.ndim == 1
    inside = inside and start[0] == 0 and start[-1] == index.size
    inside = inside and (start[1:] >= start[:-1]).all()
    inside = inside and ((index >= 0) & (index < shape[1])).all()
    require(inside, f"its arrays {name}_start and {name} lead outside of the relation.")
    return sparse.csr_array((np.ones(index.size), index, start), shape=shape)


def _read_axis_names(header: Header, tensors: Tensors, what: str) -> tuple[str, ...] | None:
    """Return the names of rows or columns, if the file has them."""
    if not header[f"{what}_names"]:
        return None
    size = header["shape"][what == "column"]
    return decode_names(
        tensors[f"{what}_names"], tensors[f"{what}_name_end"], size, f"{what} names"
    )


def nonnegative(tensors: Tensors, name: str, shape: tuple[int, ...]) -> Floats:
    """Return an array; refuse another shape, and numbers that are not finite or below 0."""
    array = tensors[name]
    require(array.shape == shape, f"its {name} has shape {array.shape} where {shape} is right.")
    require(((array >= 0.0) & (array < np.inf)).all(), f"its {name} has impossible numbers.")
    return array


# Several relations


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


def data_entries(data: Dataset) -> Header:
    """Return the entries of the header about domains and relations."""
    return {
        "domains": [
            {"name": name, "size": domain.size, "named": domain.names is not None}
            for name, domain in zip(data.domain_names, data.domains, strict=True)
        ],
        "relations": [_relation_entry(table) for table in data.tables],
    }


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


def data_tensors(data: Dataset) -> Tensors:
    """Return names, cells, values and exposures as tensors."""
    tensors: Tensors = {}
    for d, domain in enumerate(data.domains):
        if domain.names is not None:
            tensors[f"names_{d}"], tensors[f"name_end_{d}"] = encode_names(domain.names)
    for r, table in enumerate(data.tables):
        tensors[f"cells_{r}"], tensors[f"unseen_{r}"] = table.cells, table.unseen
        tensors[f"values_{r}"] = table.values
        for p, exposure in enumerate(table.exposures or ()):
            tensors[f"exposure_{r}_{p}"] = exposure
    return tensors


def read_data(header: Header, tensors: StoredTensors) -> Dataset:
    """Return domains and relations."""
    entries = [read_entry(each, DOMAIN_ENTRIES) for each in header["domains"]]
    require(entries, "it has no domain.")
    require(all(each["size"] > 0 for each in entries), "a domain is empty.")
    sizes = [each["size"] for each in entries]
    domains = tuple(
        Domain(size, _read_domain_names(tensors, d, size) if entry["named"] else None)
        for d, (size, entry) in enumerate(zip(sizes, entries, strict=True))
    )
    tables = tuple(
        _read_table(tensors, r, read_entry(each, RELATION_ENTRIES), sizes)
        for r, each in enumerate(header["relations"])
    )
    require(tables, "it has no relation.")
    filled = {d for table in tables for d in table.domains}
    require(filled == set(range(len(sizes))), "a domain fills no place.")
    return Dataset(tuple(each["name"] for each in entries), domains, tables)


def _read_domain_names(tensors: StoredTensors, d: int, size: int) -> tuple[str, ...]:
    letters = tensors.take(f"names_{d}", (None,), np.uint8)
    ends = tensors.take(f"name_end_{d}", (size,), np.int64)
    names = decode_names(letters, ends, size, f"names of domain {d}")
    require(len(set(names)) == size, "names of a domain repeat.")
    return names


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


# Partitions, samples and traces of several relations


def partition_tensors(partition: MultiPartition | MultiResult, prefix: str = "") -> Tensors:
    """Return labels, hyperparameters of relations and concentrations as tensors."""
    labels = {
        f"{prefix}labels_{d}": np.asarray(label, np.int32)
        for d, label in enumerate(partition.labels)
    }
    priors = {f"{prefix}prior_{r}": prior for r, prior in enumerate(partition.priors)}
    return labels | priors | {f"{prefix}alpha": np.array(partition.alpha, np.float64)}


def sample_tensors(samples: list[MultiSample], prefix: str = "sample") -> Tensors:
    """Return labels and hyperparameters of all samples as tensors; none without samples."""
    if not samples:
        return {}
    tensors: Tensors = {f"{prefix}_alpha": np.array([s.alpha for s in samples])}
    for d in range(len(samples[0].labels)):
        tensors[f"{prefix}_labels_{d}"] = np.stack([s.labels[d] for s in samples])
    for r in range(len(samples[0].priors)):
        tensors[f"{prefix}_prior_{r}"] = np.stack([s.priors[r] for s in samples])
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


def _read_prior(prior: Floats, likelihood: Likelihood) -> Floats:
    rows = likelihood.initial_prior(0.5).size
    require(prior.size == rows, "the hyperparameters of a relation do not fit its likelihood.")
    require((prior[likelihood.n_real :] > 0).all(), "a hyperparameter is not positive.")
    return prior


def valid_labels(label: Indices) -> Indices:
    """Return labels from 0 on; every cluster has members."""
    require(label.min() == 0 and label.max() < label.size, "labels are out of range.")
    require(np.bincount(label).all(), "a cluster is empty.")
    return label


def read_memberships(tensors: StoredTensors, data: Dataset, prefix: str) -> list[Floats]:
    """Return memberships of all domains."""
    sizes = data.sizes
    q = [tensors.take(f"{prefix}{d}", (n, None), np.float64) for d, n in enumerate(sizes)]
    check_memberships(q, sizes)
    return q


def read_samples(
    count: int, tensors: StoredTensors, data: Dataset, prefix: str = "sample"
) -> list[MultiSample]:
    """Return the samples of a file."""
    if count == 0:
        return []
    require(count > 0, "its number of samples is negative.")
    labels = [
        tensors.take(f"{prefix}_labels_{d}", (count, n), np.int32) for d, n in enumerate(data.sizes)
    ]
    priors = [
        tensors.take(f"{prefix}_prior_{r}", (count, None), np.float64)
        for r in range(len(data.tables))
    ]
    alpha = tensors.take(f"{prefix}_alpha", (count, len(data.sizes)), np.float64)
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
