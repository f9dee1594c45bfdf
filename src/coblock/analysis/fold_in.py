"""Clusters of new objects, given a fit of several relations (RELATIONS 12)."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coblock.io import refuse
from coblock.kernels import Floats, Indices
from coblock.model.dataset import Dataset, Table
from coblock.model.likelihoods import quoted
from coblock.model.multi_result import MultiResult, restore
from coblock.model.relation import Domain


def assign_new_objects(
    result: MultiResult, domain: str, relations: Mapping[str, Any]
) -> dict[str, Floats]:
    """Return the cluster probabilities of new objects of a domain, by name.

    ``relations`` are :class:`coblock.Relation` objects with cells of the new objects, by the
    names of fitted relations. Each new object is added alone, so that others do not change it.
    """
    data = result.data
    d = data.domain(domain)
    cells = {name: _new_cells(data, data.table(name), d, each) for name, each in relations.items()}
    names = list(dict.fromkeys(name for each in cells.values() for name in each))
    used = sorted({e for name in relations for e in data.table(name).domains})
    if d not in used:
        refuse(f"None of the relations that are given has a place of domain '{domain}'.")
    found = {}
    for name in names:
        tables = tuple(
            _add_cells(data.table(relation), used, d, data.sizes[d], new.get(name))
            for relation, new in cells.items()
        )
        domains = tuple(Domain(data.sizes[e] + (e == d)) for e in used)
        extended = Dataset(tuple(data.domain_names[e] for e in used), domains, tables)
        labels = [
            np.append(result.labels[e], np.int32(0)) if e == d else result.labels[e] for e in used
        ]
        priors = [result.priors[result.relation_number(relation)] for relation in relations]
        partition = restore(extended, labels, priors, [result.alpha[e] for e in used])
        partition.keep_counts(
            result.partition, [result.relation_number(relation) for relation in relations]
        )
        last = np.array([data.sizes[d]], np.int32)
        found[name] = partition.conditional(used.index(d), last)[0]
    return found


def _new_cells(
    data: Dataset, table: Table, d: int, relation: Any
) -> dict[str, tuple[Indices, Floats]]:
    """Return the cells of each new object with their values; the object is at -1."""
    if tuple(relation.places) != table.places:
        refuse(
            f"Relation '{table.name}' has the places {', '.join(table.places)}, but "
            f"{', '.join(relation.places)} are given."
        )
    columns, new = [], []  # positions, and names of the new objects or None
    for p, e in enumerate(table.domains):
        index = {name: o for o, name in enumerate(data.domains[e].names or ())}
        position = np.array([index.get(name, -1) for name in relation.objects[p].tolist()])
        position = position.astype(np.int64)
        if e != d and (position < 0).any():
            lost = relation.objects[p][position < 0]
            refuse(
                f"{lost.size:,} objects at place '{table.places[p]}' of relation '{table.name}' "
                f"are unknown; the first is {quoted(str(lost[0]))}."
            )
        columns.append(position)
        new.append(np.where(position < 0, relation.objects[p], None))
    values, cells = _values(table, relation), np.stack(columns, axis=1)
    found: dict[Any, list[int]] = {}
    for row in range(len(cells)):
        for name in {column[row] for column in new} - {None}:
            found.setdefault(name, []).append(row)
    strangers = {
        name: {c[row] for row in rows for c in new} - {None} for name, rows in found.items()
    }
    for name, others in strangers.items():
        if len(others) > 1:
            refuse(
                f"A cell of relation '{table.name}' has two new objects, {quoted(name)} among "
                "them. Give cells with one new object each."
            )
    return {name: (cells[rows].astype(np.int32), values[rows]) for name, rows in found.items()}


def _values(table: Table, relation: Any) -> Floats:
    """Return the values of new cells as the fitted likelihood encodes them."""
    if table.likelihood.name == "categorical":
        categories = relation.likelihood.categories
        return table.likelihood.encode([categories[int(v)] for v in relation.values])
    values: Floats = relation.values
    return values


def _add_cells(
    table: Table,
    used: list[int],
    d: int,
    position: int,
    new: tuple[Indices, Floats] | None,
) -> Table:
    """Return a relation with the cells of a new object, whose domains are those in use."""
    cells, values = table.cells, table.values
    if new is not None:
        added: NDArray[np.int32] = np.where(new[0] < 0, position, new[0]).astype(np.int32)
        if table.symmetric:
            added[:, :2] = np.sort(added[:, :2], axis=1)
        cells, values = np.concatenate((cells, added)), np.concatenate((values, new[1]))
    exposures = table.exposures
    if exposures is not None:
        exposures = tuple(
            np.append(each, 1.0) if e == d else each
            for e, each in zip(table.domains, exposures, strict=True)
        )
    domains = tuple(used.index(e) for e in table.domains)
    return replace(table, domains=domains, cells=cells, values=values, exposures=exposures)
