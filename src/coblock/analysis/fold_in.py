"""Clusters of new objects, given a fit of several relations (RELATIONS 12)."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from coblock.io import refuse
from coblock.io.cells import Cells
from coblock.io.tables import Relation
from coblock.kernels import Floats, Indices
from coblock.model.dataset import Dataset, Table
from coblock.model.likelihoods import quoted
from coblock.model.multi_result import MultiResult, restore
from coblock.model.relation import Domain


def assign_new_objects(
    result: MultiResult, domain: str, relations: Mapping[str, Relation]
) -> dict[Any, Floats]:
    """Return the cluster probabilities of new objects of a domain, by name.

    ``relations`` have cells of the new objects, by the names of fitted relations. Each new object
    is added alone, so that others do not change it.
    """
    data = result.data
    d = data.domain(domain)
    cells = {name: _new_cells(data, data.table(name), d, each) for name, each in relations.items()}
    names = list(dict.fromkeys(name for each in cells.values() for name in each))
    used = sorted({e for name in relations for e in data.table(name).domains})
    if d not in used or not names:
        what = f"place of domain '{domain}'" if d not in used else f"new object of '{domain}'"
        refuse(f"None of the relations that are given has a {what}. List cells of new objects.")
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


class NewCells(NamedTuple):
    """Cells of a new object, which is at -1, with their values, and unseen cells."""

    cells: Indices
    values: Floats
    unseen: Indices


def _new_cells(data: Dataset, table: Table, d: int, given: Relation) -> dict[Any, NewCells]:
    """Return the cells of each new object."""
    relation = given.read(table.name)
    if tuple(relation.places) != table.places or relation.likelihood.name != table.values_name:
        refuse(
            f"Relation '{table.name}' was fitted with the places {', '.join(table.places)} and "
            f"likelihood='{table.values_name}', but {', '.join(relation.places)} and "
            f"'{relation.likelihood.name}' are given. Give the same."
        )
    if table.values_name == "categorical":
        relation = given.read_like(table.name, table.likelihood)
    own = [p for p, e in enumerate(table.domains) if e == d]
    if relation.shape is not None and len(own) > 1:
        refuse(
            f"Relation '{table.name}' has domain '{data.domain_names[d]}' at several places, where "
            "an array does not say which objects are new. List the cells as tuples."
        )
    cells, new = _locate(data, table, d, relation, relation.objects)
    unseen, new_unseen = _locate(data, table, d, relation, relation.unseen)
    values = relation.values
    if relation.shape is None:
        known = set(data.domains[d].names or map(str, range(data.sizes[d])))
        names = dict.fromkeys(o for p in own for o in relation.listed[p] if o not in known)
    else:
        names = dict.fromkeys(range(relation.shape[own[0]]) if own else ())
    rows: dict[Any, tuple[list[int], list[int]]] = {name: ([], []) for name in names}
    for number, column in enumerate((new, new_unseen)):
        for row, name in enumerate(column):
            if name is not None:
                rows.setdefault(name, ([], []))[number].append(row)
    return {
        name: NewCells(cells[listed], values[listed], unseen[hidden])
        for name, (listed, hidden) in rows.items()
    }


def _locate(
    data: Dataset, table: Table, d: int, relation: Cells, objects: list[NDArray[Any]]
) -> tuple[Indices, list[Any]]:
    """Return cells by position, -1 for a new object, and the name of the new object or None."""
    cells = np.full((len(objects[0]), table.arity), -1, np.int32)
    new: list[Any] = [None] * len(cells)
    for p, e in enumerate(table.domains):
        index: dict[Any, int] = {}
        if relation.shape is None:
            fitted = data.domains[e].names or map(str, range(data.sizes[e]))
            index = {name: o for o, name in enumerate(fitted)}
        elif e != d:
            index = {o: o for o in range(data.sizes[e])}
        where = f"place '{table.places[p]}' of relation '{table.name}'"
        if relation.shape is not None and e != d and relation.shape[p] != data.sizes[e]:
            refuse(
                f"{where} has {relation.shape[p]:,} objects, but {data.sizes[e]:,} are fitted. "
                "Give an array with as many."
            )
        names = objects[p].tolist()
        cells[:, p] = [index.get(name, -1) for name in names]
        unknown = np.flatnonzero(cells[:, p] < 0)
        if e != d and unknown.size:
            refuse(
                f"{unknown.size:,} objects at {where} are unknown; the first is "
                f"{quoted(str(names[unknown[0]]))}. Give names of fitted objects."
            )
        for row in unknown.tolist():
            if new[row] not in {None, names[row]}:
                refuse(
                    f"A cell of relation '{table.name}' has two new objects, "
                    f"{quoted(str(names[row]))} among them. Give cells with one new object each."
                )
            new[row] = names[row]
    return cells, new


def _add_cells(
    table: Table,
    used: list[int],
    d: int,
    position: int,
    new: NewCells | None,
) -> Table:
    """Return a relation with the cells of a new object, whose domains are those in use."""
    cells, values, unseen = table.cells, table.values, table.unseen
    if new is not None:
        added: list[NDArray[np.int32]] = []
        for each in (new.cells, new.unseen):
            placed = np.where(each < 0, position, each).astype(np.int32)
            if table.symmetric:
                placed[:, :2] = np.sort(placed[:, :2], axis=1)
            added.append(placed)
        cells, unseen = np.concatenate((cells, added[0])), np.concatenate((unseen, added[1]))
        values = np.concatenate((values, new.values))
    exposures = table.exposures
    if exposures is not None:
        exposures = tuple(
            np.append(each, 1.0) if e == d else each
            for e, each in zip(table.domains, exposures, strict=True)
        )
    domains = tuple(used.index(e) for e in table.domains)
    table = replace(table, domains=domains, exposures=exposures)
    return replace(table, cells=cells, values=values, unseen=unseen)
