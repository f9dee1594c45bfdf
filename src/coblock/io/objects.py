"""Objects of the domains of several relations, and cells by position."""

import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coblock.io import refuse, shorten
from coblock.io.listing import cell_in_words
from coblock.kernels import Floats, Indices
from coblock.model.dataset import Table
from coblock.model.likelihoods import quoted
from coblock.model.relation import Domain

if TYPE_CHECKING:
    from coblock.io.cells import Cells


def find_domain(domain: str, relations: "Mapping[str, Cells]") -> tuple[Domain, Any]:
    """Return a domain, and the positions of its names or None."""
    names: dict[str, int] = {}
    sizes: dict[str, int] = {}
    unseen: dict[str, str] = {}  # where names of unseen cells are
    named, wheres = None, []
    for name, relation in relations.items():
        for p, (place, filled_by) in enumerate(relation.places.items()):
            if filled_by != domain:
                continue
            where = f"place '{place}' of relation '{name}'"
            wheres.append(where)
            if relation.shape is not None:
                sizes[where] = relation.shape[p]
                continue
            named = where
            for each in relation.listed[p]:
                names.setdefault(each, len(names))
            unseen.update(dict.fromkeys(relation.unseen[p].tolist(), where))
    if named and sizes:
        refuse(
            f"Domain '{domain}' has names at {named}, but positions at {next(iter(sizes))}. "
            "Give names, or positions, in all relations."
        )
    if len(set(sizes.values())) > 1:
        found = ", ".join(f"{size:,} at {where}" for where, size in sizes.items())
        refuse(f"Domain '{domain}' has different numbers of objects: {found}. Name two domains.")
    _add_unseen(domain, names, unseen)
    size = next(iter(sizes.values())) if sizes else len(names)
    if size == 0:
        refuse(
            f"Domain '{domain}' has no objects: there is no cell at {', '.join(wheres)}. Add "
            "cells, or leave the relation out."
        )
    return Domain(size, tuple(names) if names else None), names or None


def _add_unseen(domain: str, names: dict[str, int], unseen: dict[str, str]) -> None:
    """Add objects that only unseen cells name, with a warning: they may be misspelt."""
    new = [name for name in unseen if name not in names]
    if not new:
        return
    warnings.warn(
        shorten(
            f"{len(new):,} objects of domain '{domain}' are named only by unseen cells; the first "
            f"is {quoted(new[0])} at {unseen[new[0]]}. They are clustered by their other cells, "
            "which are zeros. Correct the names if they are misspelt."
        ),
        stacklevel=6,  # the caller of fit
    )
    for name in new:
        names[name] = len(names)


def index_cells(objects: list[NDArray[Any]], index: list[Any]) -> Indices:
    """Return cells by position; ``index`` has the positions of names, or None, for each place."""
    columns = [
        each if names is None else np.array([names[o] for o in each.tolist()], np.int64)
        for each, names in zip(objects, index, strict=True)
    ]
    return np.column_stack(columns).astype(np.int32).reshape(-1, len(index))


def align_exposures(
    name: str, relation: "Cells", domains: list[Domain]
) -> tuple[Floats, ...] | None:
    """Return exposures of all places; 1 where none are given."""
    if relation.exposure is None:
        return None
    found = []
    for place, domain, each in zip(relation.places, domains, relation.exposure, strict=True):
        given = each
        where = f"Relation '{name}', place '{place}':"
        if isinstance(each, Mapping):
            lost = [o for o in domain.names or () if o not in each]
            if lost or domain.names is None:
                what = f"that of {quoted(lost[0])} is missing" if lost else "objects have no names"
                refuse(f"{where} {what} in exposure. Give a factor for each object.")
            given = np.array([each[o] for o in domain.names])
        if given is not None and given.shape != (domain.size,):
            refuse(
                f"{where} {given.size:,} exposures for {domain.size:,} objects. Give one for each, "
                "or a dict from names to factors."
            )
        found.append(np.ones(domain.size) if given is None else given)
    return tuple(found)


def check_cells(table: Table, domains: list[Domain], *, warn: bool) -> Table:
    """Leave out cells with an object twice if they are unseen; refuse pairs that contradict."""
    cells, values, unseen = table.cells, table.values, table.unseen
    if table.distinct:
        kept = [~_repeats(each, table.domains) for each in (cells, unseen)]
        left_out = int((~kept[0]).sum())
        if warn and left_out:
            warnings.warn(
                f"{left_out:,} of {len(cells):,} cells of relation '{table.name}' have an object "
                "twice and are left out: they are unseen by default. Pass diagonal='seen' to use "
                "them, or diagonal='unseen' if they are no data.",
                stacklevel=5,  # the caller of fit
            )
        cells, values, unseen = cells[kept[0]], values[kept[0]], unseen[kept[1]]
    if not table.symmetric or not len(cells) + len(unseen):
        return replace(table, cells=cells, values=values, unseen=unseen)
    _, first, pair = np.unique(
        np.concatenate((cells, unseen)), axis=0, return_index=True, return_inverse=True
    )
    first_row = first[pair.ravel()]
    rows, listed = first_row[: len(cells)], first_row[len(cells) :] < len(cells)
    for wrong, what in (
        (cells[values[rows] != values], "pairs have two different values"),
        (unseen[listed], "unseen pairs are listed with a value, too"),
    ):
        if len(wrong):
            pairs = zip(domains, wrong[0].tolist(), strict=True)
            names = [domain.names[o] if domain.names else o for domain, o in pairs]
            refuse(
                f"Relation '{table.name}' is symmetric, but {len(wrong):,} {what}; the first is "
                f"{cell_in_words(table.places, names)}. Keep one of them, or pass symmetric=False."
            )
    kept_rows = np.flatnonzero(rows == np.arange(len(cells)))
    return replace(
        table, cells=cells[kept_rows], values=values[kept_rows], unseen=np.unique(unseen, axis=0)
    )


def warn_of_cells(table: Table, repeated: int, sizes: tuple[int, ...]) -> None:
    """Warn of counts that are listed again, and of a relation without observed cells."""
    found = []
    if repeated:
        found.append(
            f"{repeated:,} rows of relation '{table.name}' give the count of a cell again, and are "
            "left out. Add the counts of each cell up if they are parts of a sum."
        )
    if not table.n_observed(sizes):
        found.append(
            f"Relation '{table.name}' has no observed cell: all are unseen. Add values, or leave "
            "it out."
        )
    for each in found:
        warnings.warn(each, stacklevel=5)  # the caller of fit


def _repeats(cells: Indices, domains: tuple[int, ...]) -> NDArray[np.bool_]:
    """Return which cells have an object twice."""
    found = np.zeros(len(cells), dtype=bool)
    for p in range(len(domains)):
        for e in range(p):
            if domains[e] == domains[p]:
                found |= cells[:, e] == cells[:, p]
    return found
