"""Relations of the general model: tables as people have them, and the data set they give."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from coblock.io import refuse
from coblock.io.listing import as_objects, distinct_cells, is_missing, list_cells
from coblock.kernels import Floats, Indices
from coblock.model.checks import check_choice
from coblock.model.dataset import Dataset, Table
from coblock.model.likelihoods import Likelihood, quoted
from coblock.model.likelihoods.bernoulli import Bernoulli
from coblock.model.likelihoods.categorical import Categorical
from coblock.model.likelihoods.degrees import PREFIX, DegreeCorrected
from coblock.model.likelihoods.normal import Normal
from coblock.model.likelihoods.poisson import Poisson
from coblock.model.relation import BinaryRelation, Domain

LIKELIHOODS: dict[str, Likelihood] = {
    each.name: each for each in (Bernoulli(), Poisson(), Categorical(), Normal())
}
CORRECTED = tuple(PREFIX + name for name in ("bernoulli", "poisson"))
COUNTED = ("bernoulli", "poisson")  # cells that are not listed are zeros by default


class Relation:
    """A table about objects: places filled by domains, values, one likelihood.

    Parameters
    ----------
    data : data frame, array, sparse matrix, networkx graph, list of tuples or path
        A long frame has a column for each place. An n-way array has an axis for each place; NaN
        is unseen. Edges of a graph, and tuples, list the objects of one cell each.
    places : dict, or sequence of str
        The domain that fills each place. The keys are the columns of a frame. A sequence names
        domains that are also the names of the places.
    value : str, optional
        The column, edge attribute, or position in a tuple, that holds the values. Without it a
        cell that is listed is 1; for counts, the number of times that it is listed.
    likelihood : {"bernoulli", "poisson", "categorical", "normal"} or Likelihood
        The distribution of the values.
    unseen : frame, or tuple of arrays, optional
        Cells that are unseen, where cells that are not listed are zeros.
    absent : {"zero", "unseen"}, optional
        What cells that are not listed are. Default: "unseen" with a value, except for counts.
    symmetric : bool
        Whether the two places of one domain are interchangeable.
    diagonal : {"seen", "unseen"}, optional
        Whether cells with an object twice are data. Default: unseen if there are two places.
    exposure : dict or sequence of arrays, optional
        Counts only: a factor for each object at each place; a cell has the product.
    degree_corrected : bool or "auto"
        Whether members of a cluster may differ in degree: links or counts between two places.
        "auto" takes what has more evidence. It is for counts, and for a binary relation that is
        fitted alone.

    Examples
    --------
    >>> orders = [("ann", "tea", 2), ("bob", "tea", 1), ("ann", "milk", 5)]
    >>> Relation(orders, ["user", "item"], value=2, likelihood="poisson")
    Relation(user, item): 3 cells, poisson, others are zeros
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
        self.places = dict(places) if isinstance(places, Mapping) else _named_places(places)
        if isinstance(likelihood, str):
            check_choice("likelihood", likelihood, tuple(LIKELIHOODS))
            self.likelihood = LIKELIHOODS[likelihood]
        else:
            self.likelihood = likelihood
        for name, choice, options in (
            ("absent", absent, ("zero", "unseen")),
            ("diagonal", diagonal, ("seen", "unseen")),
        ):
            if choice is not None:
                check_choice(name, choice, options)
        listed = list_cells(data, list(self.places), value)
        self.objects, values, self.shape, self.graph_kind = listed
        self.symmetric = self.graph_kind == "undirected" if symmetric is None else symmetric
        counted = self.likelihood.name in COUNTED
        if absent is None:
            absent = "zero" if counted and (value is None or self._counts) else "unseen"
            if self.shape is not None:  # an array lists all of its cells
                absent = "zero" if counted else "unseen"
        self.filled = absent == "zero"
        self.diagonal = diagonal or ("unseen" if len(self.places) == 2 else "seen")
        self.missing: list[NDArray[Any]] = []  # cells without a value, by place
        self._read_values(values)
        self._read_unseen(unseen)
        self._order_symmetric_places()
        self.exposure = self._read_exposure(exposure)
        self.degree_corrected = self._check_degree_corrected(degree_corrected)

    def _check_degree_corrected(self, asked: bool | Literal["auto"]) -> bool | Literal["auto"]:
        """Return the choice, or say what degree correction needs."""
        if not (isinstance(asked, bool) or (isinstance(asked, str) and asked == "auto")):
            refuse(f"degree_corrected must be True, False or 'auto', but is {asked!r}.")
        needs = {
            f"two places, but there are {len(self.places)}": len(self.places) == 2,
            f"likelihood='bernoulli' or 'poisson', not '{self.likelihood.name}'": (
                self.likelihood.name in COUNTED
            ),
            "absent='zero': cells that are not listed are zeros": self.filled,
            "no exposure: factors of the objects are part of the model": self.exposure is None,
        }
        for need, holds in needs.items():
            if asked and not holds:
                refuse(
                    f"Degree correction needs {need}. Change it, or pass degree_corrected=False."
                )
        return asked

    @property
    def _counts(self) -> bool:
        return self.likelihood.name == "poisson"

    def __repr__(self) -> str:
        inside = ", ".join(
            place if place == domain else f"{place}: {domain}"
            for place, domain in self.places.items()
        )
        others = "zeros" if self.filled else "unseen"
        return (
            f"Relation({inside}): {len(self.values):,} cells, {self.likelihood.name}, "
            f"others are {others}"
        )

    def _read_values(self, values: Any) -> None:
        """Check the values, unite repeated cells, and leave zeros out where they are implied."""
        objects, first, inverse, times = distinct_cells(self.objects)
        if values is None:
            encoded = times.astype(np.float64) if self._counts else np.ones(len(times))
        else:
            values = np.asarray(values)
            missing = np.array([is_missing(each) for each in values.tolist()], dtype=bool)
            self.missing = [each[missing] for each in self.objects]
            kept = ~missing
            objects, first, inverse, _ = distinct_cells([each[kept] for each in self.objects])
            numbers = self._encode(values, kept)
            encoded = numbers[first]
            wrong = np.flatnonzero(numbers != encoded[inverse])
            if wrong.size:
                row = int(np.flatnonzero(kept)[wrong[0]])
                refuse(
                    f"{wrong.size:,} rows repeat a cell with another value; the first is "
                    f"{self._cell(row)} with {quoted(str(values[row]))} in row {row + 1:,}. Keep "
                    "one row for each cell, or add the values up."
                )
        if self.filled:
            nonzero = encoded != 0
            objects, encoded = [each[nonzero] for each in objects], encoded[nonzero]
        self.objects, self.values = objects, encoded

    def _encode(self, values: NDArray[Any], kept: NDArray[np.bool_]) -> Floats:
        """Return the values that are kept as numbers; say where the first wrong one is."""
        try:
            self.likelihood = self.likelihood.for_values(values[kept])
            return self.likelihood.encode(values[kept])
        except ValueError as error:
            for row in np.flatnonzero(kept).tolist():
                try:
                    self.likelihood.encode(values[row : row + 1])
                except ValueError:
                    number = f"row {row + 1:,}, " if self.shape is None else ""
                    msg = f"{error} It is in {number}cell {self._cell(row)}."
                    raise ValueError(msg) from None
            raise

    def _cell(self, row: int) -> str:
        """Return the objects of a cell in words."""
        return "(" + ", ".join(quoted(str(each[row])) for each in self.objects) + ")"

    def _read_unseen(self, unseen: Any) -> None:
        """Read the list of unseen cells; missing values are unseen, too."""
        listed = [np.zeros(0, dtype=each.dtype) for each in self.objects]
        if unseen is not None:
            if not self.filled:
                refuse(
                    "unseen is given, but cells that are not listed are unseen already. "
                    "Pass absent='zero' if they are zeros."
                )
            if isinstance(unseen, tuple):
                listed = [as_objects(each) for each in unseen]
            else:
                listed = list_cells(unseen, list(self.places), None)[0]
        for place, each, size in zip(self.places, listed, self.shape or (), strict=False):
            if any(not str(o).isdigit() or int(o) >= size for o in each):
                msg = f"unseen has objects at place '{place}' beyond 0 to {size - 1:,}. Drop them."
                raise ValueError(msg)
        if self.missing and self.filled:
            listed = [np.concatenate(pair) for pair in zip(listed, self.missing, strict=True)]
        self.unseen = distinct_cells(listed)[0] if len(listed[0]) else listed
        if not len(self.unseen[0]):
            return
        stored = set(zip(*(each.tolist() for each in self.objects), strict=True))
        both = [c for c in zip(*(u.tolist() for u in self.unseen), strict=True) if c in stored]
        if both:
            cell = ", ".join(quoted(str(each)) for each in both[0])
            refuse(
                f"{len(both):,} cells are listed with a value and as unseen; the first is "
                f"({cell}). Remove them from one of the two."
            )

    def _order_symmetric_places(self) -> None:
        """Move the two interchangeable places to the front."""
        if not self.symmetric:
            return
        names, domains = list(self.places), list(self.places.values())
        pairs = [d for d in set(domains) if domains.count(d) == 2]
        if len(pairs) != 1 or max(domains.count(d) for d in domains) > 2:
            refuse(
                "symmetric=True needs exactly two places of one domain, but the places are "
                f"{', '.join(f'{p}: {d}' for p, d in self.places.items())}."
            )
        front = [p for p, d in enumerate(domains) if d == pairs[0]]
        order = front + [p for p in range(len(domains)) if p not in front]
        self.places = {names[p]: domains[p] for p in order}
        self.objects = [self.objects[p] for p in order]
        self.unseen = [self.unseen[p] for p in order]
        if self.shape is not None:
            self.shape = tuple(self.shape[p] for p in order)

    def _read_exposure(self, exposure: Any) -> list[Floats | None] | None:
        """Check the exposures."""
        if exposure is None:
            return None
        if not self._counts:
            refuse("exposure is for counts. Pass likelihood='poisson'.")
        repeated = len(set(self.places.values())) < len(self.places)
        if self.symmetric or (repeated and self.diagonal == "unseen"):
            refuse(
                "exposure is not supported for symmetric relations, or where cells with an object "
                "twice are unseen. Pass diagonal='seen'."
            )
        if isinstance(exposure, Mapping):
            unknown = set(exposure) - set(self.places)
            if unknown:
                refuse(
                    f"exposure names the place {quoted(sorted(unknown)[0])}, which does not exist."
                )
            exposure = [exposure.get(place) for place in self.places]
        found: list[Floats | None] = []
        for place, each in zip(self.places, exposure, strict=True):
            weights = None if each is None else np.asarray(each, dtype=np.float64)
            if weights is not None and not (np.isfinite(weights).all() and (weights > 0).all()):
                refuse(f"The exposures of place '{place}' must be positive and finite.")
            found.append(weights)
        return found


def build_dataset(relations: Mapping[str, Relation]) -> Dataset:
    """Return the data set of several relations: objects of each domain, cells by position."""
    if not relations:
        refuse("There is no relation. Pass a dict of at least one.")
    domains = list(dict.fromkeys(d for each in relations.values() for d in each.places.values()))
    found = {domain: _find_objects(domain, relations) for domain in domains}
    tables = []
    for name, relation in relations.items():
        places = relation.places.items()
        index = [found[domain][1] for _, domain in places]
        cells = _positions(relation.objects, index)
        unseen = _positions(relation.unseen, index)
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
            exposures=_exposures(name, relation, [found[d][0].size for _, d in places]),
        )
        tables.append(_without_diagonal(table, check_pairs=relation.symmetric))
    return Dataset(tuple(domains), tuple(found[d][0] for d in domains), tuple(tables))


def _table_likelihood(relation: Relation) -> Likelihood:
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
        return next(iter(relations.values())).degree_corrected
    for name, relation in relations.items():
        if relation.degree_corrected == "auto" and relation.likelihood.name == "bernoulli":
            refuse(
                f"Relation '{name}': degree_corrected='auto' is for counts, and for a binary "
                "relation that is fitted alone. Pass True and False, and keep the fit with the "
                "larger log_evidence_."
            )
    return False


def is_binary(data: Dataset) -> bool:
    """Return whether the data are one binary relation of two places, which IRM fits."""
    if len(data.tables) != 1:
        return False
    table = data.tables[0]
    seen_pairs = table.symmetric and not table.distinct  # IRM leaves their diagonal out
    return table.arity == 2 and table.filled and table.values_name == "bernoulli" and not seen_pairs


def _named_places(places: Sequence[str]) -> dict[str, str]:
    named = {place: place for place in places}
    if len(named) < len(places):
        refuse(
            f"A domain fills several of the places {', '.join(places)}. Name the places: "
            "{'from': 'person', 'to': 'person'}."
        )
    return named


def _find_objects(domain: str, relations: Mapping[str, Relation]) -> tuple[Domain, Any]:
    """Return a domain, and the positions of its names or None."""
    names: dict[str, int] = {}
    sizes: dict[str, int] = {}
    named = None
    for name, relation in relations.items():
        for p, (place, filled_by) in enumerate(relation.places.items()):
            if filled_by != domain:
                continue
            if relation.shape is not None:
                sizes[f"place '{place}' of relation '{name}'"] = relation.shape[p]
                continue
            named = f"place '{place}' of relation '{name}'"
            for objects in (relation.objects[p], relation.unseen[p]):
                for each in objects.tolist():
                    names.setdefault(each, len(names))
    if named and sizes:
        refuse(
            f"Domain '{domain}' has names at {named}, but positions at {next(iter(sizes))}. "
            "Give names, or positions, in all relations."
        )
    if len(set(sizes.values())) > 1:
        found = ", ".join(f"{size:,} at {where}" for where, size in sizes.items())
        refuse(f"Domain '{domain}' has different numbers of objects: {found}. Name two domains.")
    size = next(iter(sizes.values())) if sizes else len(names)
    if size == 0:
        refuse(f"Domain '{domain}' has no objects: no relation lists a cell of it. Add some.")
    return Domain(size, tuple(names) if names else None), names or None


def _positions(objects: list[NDArray[Any]], index: list[Any]) -> Indices:
    columns = [
        each if names is None else np.array([names[o] for o in each.tolist()], np.int64)
        for each, names in zip(objects, index, strict=True)
    ]
    return np.column_stack(columns).astype(np.int32).reshape(-1, len(index))


def _exposures(name: str, relation: Relation, sizes: list[int]) -> tuple[Floats, ...] | None:
    """Return exposures of all places; 1 where none are given."""
    if relation.exposure is None:
        return None
    found = []
    for place, size, each in zip(relation.places, sizes, relation.exposure, strict=True):
        if each is not None and each.shape != (size,):
            refuse(
                f"Relation '{name}', place '{place}': {each.size:,} exposures for {size:,} objects."
            )
        found.append(np.ones(size) if each is None else each)
    return tuple(found)


def _without_diagonal(table: Table, *, check_pairs: bool) -> Table:
    """Leave out cells with an object twice if they are unseen; refuse pairs that contradict."""
    cells, values, unseen = table.cells, table.values, table.unseen
    if table.distinct:
        kept = [~_repeats(each, table.domains) for each in (cells, unseen)]
        cells, values, unseen = cells[kept[0]], values[kept[0]], unseen[kept[1]]
    if check_pairs and len(cells):
        _, first, inverse = np.unique(cells, axis=0, return_index=True, return_inverse=True)
        wrong = int((values[first][inverse.ravel()] != values).sum())
        if wrong:
            what = f"is symmetric, but {wrong:,} pairs have two different values. Keep one of them"
            refuse(f"Relation '{table.name}' {what}, or pass symmetric=False.")
        first.sort()
        cells, values = cells[first], values[first]
    if check_pairs and len(unseen):
        unseen = np.unique(unseen, axis=0)
    return replace(table, cells=cells, values=values, unseen=unseen)


def _repeats(cells: Indices, domains: tuple[int, ...]) -> NDArray[np.bool_]:
    """Return which cells have an object twice."""
    found = np.zeros(len(cells), dtype=bool)
    for p in range(len(domains)):
        for e in range(p):
            if domains[e] == domains[p]:
                found |= cells[:, e] == cells[:, p]
    return found
