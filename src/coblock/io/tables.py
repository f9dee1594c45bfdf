"""Relations of the general model: tables as people have them, and the data set they give."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from coblock.io import refuse, shorten
from coblock.io.cells import Cells
from coblock.io.listing import cell_in_words, check_places
from coblock.kernels import Floats, Indices
from coblock.model.dataset import Dataset, Table
from coblock.model.likelihoods import Likelihood, quoted
from coblock.model.likelihoods.degrees import PREFIX, DegreeCorrected
from coblock.model.relation import BinaryRelation, Domain

CORRECTED = tuple(PREFIX + name for name in ("bernoulli", "poisson"))


class Relation:
    """A table about objects: places filled by domains, values, one likelihood.

    The data are read and checked when a model is fitted to them, once: the messages of a fit have
    the name of the relation.

    Parameters
    ----------
    data : data frame, array, sparse matrix, networkx graph, tuples (or an rdflib graph), or path
        A long frame has a column for each place. An n-way array has an axis for each place; NaN
        is unseen. Edges of a graph, and tuples, list the objects of one cell each. Nodes of an
        undirected graph over two domains have the attribute ``bipartite``, 0 or 1.
    places : dict, or sequence of str
        The domain that fills each place. The keys are the columns of a frame. A sequence names
        domains that are also the names of the places.
    value : str, optional
        The column, edge attribute, or position in a tuple, that holds the values. Without it a
        cell that is listed is 1; for counts, the number of times that it is listed, in either
        order if the places are interchangeable.
    likelihood : {"bernoulli", "poisson", "categorical", "normal"} or Likelihood
        The distribution of the values.
    unseen : frame, path, list of tuples, tuple of arrays, or array, optional
        Cells that are unseen, where cells that are not listed are zeros: rows of a frame or file,
        tuples, an array for each place, or an n-way array that is not 0 at them. An object that
        only unseen cells name is an object of its domain like others; a warning names the first.
    absent : {"zero", "unseen"}, optional
        What cells that are not listed are. Default: "unseen" with a value, except for counts.
        The zero of categories is the first one by name.
    symmetric : bool
        Whether the two places of one domain are interchangeable.
    diagonal : {"seen", "unseen"}, optional
        Whether cells with an object twice are data. Default: unseen if there are two places,
        with a warning if some are listed.
    exposure : dict or sequence of arrays, optional
        Counts only: a factor for each object at each place; a cell has the product. The factors
        of a place are an array by position, or a dict by name.
    degree_corrected : bool or "auto"
        Whether members of a cluster may differ in degree: links or counts between two places.
        "auto" takes what has more evidence. It is for counts, and for a binary relation that is
        fitted alone.

    Examples
    --------
    >>> orders = [("ann", "tea", 2), ("bob", "tea", 1), ("ann", "milk", 5)]
    >>> relation = Relation(orders, ["user", "item"], value=2, likelihood="poisson")
    >>> relation.read("bought")
    3 cells, poisson, others are zeros
    """

    build = staticmethod(BinaryRelation.build)
    from_patterns = staticmethod(BinaryRelation.from_patterns)

    def __init__(
        self,
        data: Any,
        places: Mapping[str, str] | Sequence[str],
        *,
        value: str | int | None = None,
        likelihood: str | Likelihood = "bernoulli",
        unseen: Any = None,
        absent: Literal["zero", "unseen"] | None = None,
        symmetric: bool | None = None,
        diagonal: Literal["seen", "unseen"] | None = None,
        exposure: Mapping[str, Floats] | Sequence[Floats] | None = None,
        degree_corrected: bool | Literal["auto"] = False,
    ) -> None:
        self.places = check_places(places)
        self._given = {
            "data": list(data) if isinstance(data, Iterator) else data,
            "value": value,
            "likelihood": likelihood,
            "unseen": list(unseen) if isinstance(unseen, Iterator) else unseen,
            "absent": absent,
            "symmetric": symmetric,
            "diagonal": diagonal,
            "exposure": exposure,
            "degree_corrected": degree_corrected,
        }
        self._cells: Cells | None = None

    def read(self, name: str) -> Cells:
        """Read and check the data, once; an error names the relation, and the file if there is one.

        The name is known where relations are put together, not where a relation is made.
        """
        if self._cells is None:
            self._cells = self._read(name, self._given)
        return self._cells

    def read_like(self, name: str, likelihood: Likelihood) -> Cells:
        """Read the data with a likelihood that was fitted: other categories are refused."""
        return self._read(name, {**self._given, "likelihood": likelihood})

    def _read(self, name: str, given: dict[str, Any]) -> Cells:
        data = given["data"]
        file = f", file {data}" if isinstance(data, str | Path) else ""
        try:
            return Cells(places=self.places, **given)
        except (TypeError, ValueError, OSError) as error:
            kinds = (TypeError, FileNotFoundError, OSError, ValueError)
            kind = next(each for each in kinds if isinstance(error, each))
            msg = shorten(f"Relation '{name}'{file}: {error}")
            raise kind(msg) from error

    def __repr__(self) -> str:
        pairs = self.places.items()
        places = ", ".join(p if p == domain else f"{p}: {domain}" for p, domain in pairs)
        cells = ", not read yet" if self._cells is None else f": {self._cells}"
        return f"Relation({places}){cells}"


def build_dataset(relations: Mapping[str, Relation]) -> Dataset:
    """Return the data set of several relations: objects of each domain, cells by position."""
    if not relations:
        refuse("There is no relation. Pass a dict of at least one.")
    read = {name: relation.read(name) for name, relation in relations.items()}
    domains = list(dict.fromkeys(d for each in read.values() for d in each.places.values()))
    found = {}
    for domain in domains:
        found[domain] = _find_domain(domain, read)
    tables = []
    for name, relation in read.items():
        places = relation.places.items()
        index = [found[domain][1] for _, domain in places]
        cells = _index_cells(relation.objects, index)
        unseen = _index_cells(relation.unseen, index)
        if relation.symmetric:
            for each in (cells, unseen):
                each[:, :2].sort(axis=1)
        numbers = tuple(domains.index(domain) for _, domain in places)
        table = Table(
            name=name,
            places=tuple(relation.places),
            domains=numbers,
            likelihood=_table_likelihood(relation),
            cells=cells,
            values=relation.values,
            unseen=unseen,
            filled=relation.filled,
            symmetric=relation.symmetric,
            distinct=relation.diagonal == "unseen" and len(set(numbers)) < len(numbers),
            exposures=_align_exposures(name, relation, [found[d][0] for _, d in places]),
        )
        filled_by = [found[d][0] for _, d in places]
        tables.append(check_cells(table, filled_by, warn=not relation.diagonal_chosen))
    data = Dataset(tuple(domains), tuple(found[d][0] for d in domains), tuple(tables))
    for d, domain in enumerate(domains):
        filled = [table for table in tables if d in table.domains]
        if not any(table.n_observed(data.sizes) for table in filled):
            names = ", ".join(f"'{table.name}'" for table in filled)
            refuse(
                f"Domain '{domain}' has {data.sizes[d]:,} objects, but no observed cell in the "
                f"relations {names}: all are unseen. Add values, or leave the relations out."
            )
    for table in tables:
        _warn_of_cells(table, read[table.name].repeated, data.sizes)
    return data


def _table_likelihood(relation: Cells) -> Likelihood:
    """Return the likelihood of the cells; a choice about counts is that of the shape, learnt."""
    asked = relation.degree_corrected
    if not asked or (asked == "auto" and relation.likelihood.name == "bernoulli"):
        return relation.likelihood
    return degree_corrected(relation.likelihood, symmetric=relation.symmetric)


def degree_corrected(likelihood: Likelihood, *, symmetric: bool) -> DegreeCorrected:
    """Return the degree-corrected likelihood of such values; symmetric places share a shape."""
    return DegreeCorrected(likelihood, 1 if symmetric else 2)


def check_degree_choice(
    data: Dataset, relations: Mapping[str, Relation] | Dataset
) -> bool | Literal["auto"]:
    """Return the degree correction of a relation that IRM fits; refuse other choices."""
    if isinstance(relations, Dataset):
        return data.corrected
    if is_binary(data):
        return relations[data.tables[0].name].read(data.tables[0].name).degree_corrected
    for name, described in relations.items():
        relation = described.read(name)
        if relation.degree_corrected == "auto" and relation.likelihood.name == "bernoulli":
            refuse(
                f"Relation '{name}': the automatic choice of degree correction is for counts, and "
                "for a binary relation that is fitted alone. Fit with the correction and without "
                "it, and keep the fit with the larger log evidence."
            )
    return False


def is_binary(data: Dataset) -> bool:
    """Return whether the data are one binary relation of two places, which IRM fits."""
    if len(data.tables) != 1:
        return False
    table = data.tables[0]
    seen_pairs = table.symmetric and not table.distinct  # IRM leaves their diagonal out
    return table.arity == 2 and table.filled and table.values_name == "bernoulli" and not seen_pairs


# Objects of the domains, and cells by position


def _find_domain(domain: str, relations: Mapping[str, Cells]) -> tuple[Domain, Any]:
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


def _index_cells(objects: list[NDArray[Any]], index: list[Any]) -> Indices:
    """Return cells by position; ``index`` has the positions of names, or None, for each place."""
    columns = [
        each if names is None else np.array([names[o] for o in each.tolist()], np.int64)
        for each, names in zip(objects, index, strict=True)
    ]
    return np.column_stack(columns).astype(np.int32).reshape(-1, len(index))


def _align_exposures(
    name: str, relation: Cells, domains: list[Domain]
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


def _warn_of_cells(table: Table, repeated: int, sizes: tuple[int, ...]) -> None:
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
