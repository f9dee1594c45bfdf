"""Clusters of new objects, given a fit of several relations (RELATIONS 12)."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from coblock.io import refuse
from coblock.io.cells import Cells
from coblock.io.listing import cell_in_words
from coblock.io.tables import Relation, check_cells
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
            _add_cells(data.table(relation), used, d, new.get(name))
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
    """Cells of a new object, which is the last one, with their values, and unseen cells."""

    cells: Indices
    values: Floats
    unseen: Indices
    factors: tuple[float, ...]  # the exposure of the object at each place


def _check_like_fitted(data: Dataset, table: Table, relation: Cells) -> None:
    """Refuse a relation of new objects that is not described as the fitted one."""
    if tuple(relation.places) != table.places or relation.likelihood.name != table.values_name:
        refuse(
            f"Relation '{table.name}' was fitted with the places {', '.join(table.places)} and "
            f"likelihood='{table.values_name}', but {', '.join(relation.places)} and "
            f"'{relation.likelihood.name}' are given. Give the same."
        )
    absent = {True: "zero", False: "unseen"}
    domains = [data.domain_names[e] for e in table.domains]
    for what, fitted, given in (
        ("the domains", ", ".join(domains), ", ".join(relation.places.values())),
        ("symmetric", table.symmetric, relation.symmetric),
        ("absent", absent[table.filled], absent[relation.filled]),
    ):
        if fitted != given:
            refuse(
                f"Relation '{table.name}' was fitted with {what} {fitted}, but {given} is given. "
                "Give the same."
            )
    if relation.exposure is not None and table.exposures is None:
        refuse(f"Relation '{table.name}' was fitted without exposure. Leave it out.")


def _new_cells(data: Dataset, table: Table, d: int, given: Relation) -> dict[Any, NewCells]:
    """Return the cells of each new object."""
    relation = given.read(table.name)
    _check_like_fitted(data, table, relation)
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
    found = {}
    for name, (listed, hidden) in rows.items():
        domains = [
            _with_new(data.domains[e], name) if e == d else data.domains[e] for e in table.domains
        ]
        part = replace(
            table,
            cells=_placed(cells[listed], table, data.sizes[d]),
            values=values[listed],
            unseen=_placed(unseen[hidden], table, data.sizes[d]),
        )
        part = check_cells(part, domains, warn=False)
        factors = _factors_of(table, d, relation, name)
        found[name] = NewCells(part.cells, part.values, part.unseen, factors)
    return found


def _with_new(domain: Domain, name: Any) -> Domain:
    """Return a domain with a new object at its end."""
    names = None if domain.names is None else (*domain.names, str(name))
    return Domain(domain.size + 1, names)


def _placed(cells: Indices, table: Table, position: int) -> Indices:
    """Return cells with the position of the new object, which was -1."""
    placed = np.where(cells < 0, position, cells).astype(np.int32)
    if table.symmetric:
        placed[:, :2] = np.sort(placed[:, :2], axis=1)
    return placed


def _factors_of(table: Table, d: int, relation: Cells, name: Any) -> tuple[float, ...]:
    """Return the exposure of a new object at each place; 1 if none is given."""
    factors = [1.0] * table.arity
    for p, each in enumerate(relation.exposure or ()):
        if each is None or table.domains[p] != d:  # fitted objects keep theirs
            continue
        by_name = isinstance(each, Mapping)
        known = name in each if by_name else relation.shape is not None and name < len(each)
        if not known:
            refuse(
                f"Relation '{table.name}', place '{table.places[p]}': the exposure of the new "
                f"object {quoted(str(name))} is not given. Give a dict from names to factors."
            )
        factors[p] = float(each[name])
    return tuple(factors)


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
            cell = cell_in_words(table.places, [each[unknown[0]] for each in objects])
            refuse(
                f"{unknown.size:,} of {len(names):,} cells have an unknown object at {where}; the "
                f"first is {cell}. Give names of fitted objects."
            )
        for row in unknown.tolist():
            if new[row] not in {None, names[row]}:
                refuse(
                    f"A cell of relation '{table.name}' has two new objects, "
                    f"{quoted(str(names[row]))} among them. Give cells with one new object each."
                )
            new[row] = names[row]
    return cells, new


def _add_cells(table: Table, used: list[int], d: int, new: NewCells | None) -> Table:
    """Return a relation with the cells of a new object, whose domains are those in use."""
    cells, values, unseen = table.cells, table.values, table.unseen
    if new is not None:
        cells, unseen = np.concatenate((cells, new.cells)), np.concatenate((unseen, new.unseen))
        values = np.concatenate((values, new.values))
    exposures = table.exposures
    if exposures is not None:
        factors = (1.0,) * table.arity if new is None else new.factors
        exposures = tuple(
            np.append(each, factor) if e == d else each
            for e, each, factor in zip(table.domains, exposures, factors, strict=True)
        )
    domains = tuple(used.index(e) for e in table.domains)
    table = replace(table, domains=domains, exposures=exposures)
    return replace(table, cells=cells, values=values, unseen=unseen)
