"""Several relations over shared domains, indexed and checked (RELATIONS 1, 3)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coblock.kernels import Floats, Indices, Offsets
from coblock.kernels.tensors import Layout
from coblock.model.likelihoods import Likelihood, first_wrong
from coblock.model.likelihoods.degrees import PREFIX, DegreeCorrected
from coblock.model.relation import Domain


@dataclass(frozen=True)
class Table:
    """The cells of one relation.

    ``values`` belongs to the observed cells that are stored; ``unseen`` are further cells, only
    where cells that are not stored are observed zeros.
    """

    name: str
    places: tuple[str, ...]
    domains: tuple[int, ...]  # that fill the places
    likelihood: Likelihood
    cells: Indices  # (cells, arity)
    values: Floats  # (cells,) as numbers
    unseen: Indices  # (unseen cells, arity)
    filled: bool = True  # whether cells that are not stored are observed zeros
    symmetric: bool = False  # whether the first two places are interchangeable
    distinct: bool = False  # whether cells with an object twice are unseen
    exposures: tuple[Floats, ...] | None = None  # one array for each place

    @property
    def arity(self) -> int:
        """Number of places."""
        return len(self.places)

    @property
    def corrected(self) -> bool:
        """Whether members of a cluster may differ in degree."""
        return isinstance(self.likelihood, DegreeCorrected)

    @property
    def values_name(self) -> str:
        """Name of the likelihood of the values, without degree correction."""
        return self.likelihood.name.removeprefix(PREFIX)

    @cached_property
    def zero(self) -> Floats:
        """Statistics of an observed zero; 0 if cells that are not stored are unseen."""
        zero = self.likelihood.cell_statistics(np.zeros(1))[0]
        return zero if self.filled else np.zeros_like(zero)

    @cached_property
    def stored(self) -> tuple[Indices, Floats]:
        """Cells with statistics, those of a zero taken off: observed ones, then unseen ones."""
        statistics = self.likelihood.cell_statistics(self.values)
        if self.exposures is not None:
            statistics[:, 1] *= self.weight(self.cells)
        zero = self.zero[None, :] * self.weight(self.cells)[:, None]
        unseen = -self.zero[None, :] * self.weight(self.unseen)[:, None]
        cells = np.concatenate((self.cells, self.unseen)).astype(np.int32)
        return cells, np.concatenate((statistics - zero, unseen))

    def encode(self, values: Any) -> Floats:
        """Return values of further cells as numbers; an error names the relation and the row."""
        try:
            return self.likelihood.encode(values)
        except ValueError as error:
            row = first_wrong(self.likelihood, values)
            where = "" if row is None else f" It is in row {row + 1:,}."
            msg = f"Relation '{self.name}': {error}{where}"
            raise ValueError(msg) from None

    def weight(self, cells: Indices) -> Floats:
        """Return the exposure of cells, the product over their objects."""
        weight = np.ones(len(cells))
        for p, exposure in enumerate(self.exposures or ()):
            weight *= exposure[cells[:, p]]
        return weight

    @cached_property
    def constant(self) -> float:
        """The part of the log probability of the cells that no label changes."""
        constant = self.likelihood.constant(self.values)
        if self.exposures is not None:
            constant += float(self.values @ np.log(self.weight(self.cells)))
        return constant

    def n_observed(self, sizes: tuple[int, ...]) -> int:
        """Return the number of observed cells, given the sizes of all domains."""
        if not self.filled:
            return len(self.cells)
        total = 1
        earlier: dict[int, int] = {}
        for p, d in enumerate(self.domains):
            if self.symmetric and p == 1:
                total = total * (sizes[d] + (-1 if self.distinct else 1)) // 2
                continue
            total *= sizes[d] - (earlier.get(d, 0) if self.distinct else 0)
            earlier[d] = earlier.get(d, 0) + 1
        return total - len(self.unseen)

    def mean(self, sizes: tuple[int, ...]) -> float:
        """Return the mean value of the observed cells."""
        return float(self.values.sum()) / max(self.n_observed(sizes), 1)


@dataclass(frozen=True)
class Dataset:
    """Domains and relations of a model."""

    domain_names: tuple[str, ...]
    domains: tuple[Domain, ...]
    tables: tuple[Table, ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of objects of each domain."""
        return tuple(domain.size for domain in self.domains)

    @property
    def corrected(self) -> bool:
        """Whether any relation is degree-corrected."""
        return any(table.corrected for table in self.tables)

    def refuse_correction(self, method: str) -> None:
        """Refuse degree-corrected relations for a method that does not know them."""
        for table in self.tables:
            if table.corrected:
                msg = (
                    f"Relation '{table.name}' is degree-corrected, which {method} does not "
                    "support. Use the default search, or pass degree_corrected=False."
                )
                raise ValueError(msg)

    def table(self, name: str) -> Table:
        """Return a relation by its name."""
        for table in self.tables:
            if table.name == name:
                return table
        known = ", ".join(f"'{table.name}'" for table in self.tables)
        msg = f"There is no relation '{name}'. The relations are: {known}."
        raise ValueError(msg)

    def domain(self, name: str) -> int:
        """Return the number of a domain by its name."""
        if name in self.domain_names:
            return self.domain_names.index(name)
        known = ", ".join(f"'{each}'" for each in self.domain_names)
        msg = f"There is no domain '{name}'. The domains are: {known}."
        raise ValueError(msg)

    @cached_property
    def layout(self) -> Layout:
        """All relations as kernels read them."""
        tables, D = self.tables, len(self.domains)
        stored = [table.stored for table in tables]
        arity = [table.arity for table in tables]
        n_stats = [table.zero.size for table in tables]
        zero = np.zeros((len(tables), max(n_stats)))
        for r, table in enumerate(tables):
            zero[r, : n_stats[r]] = table.zero
        exposures = [each for table in tables for each in table.exposures or [None] * table.arity]
        sizes = [0 if each is None else each.size for each in exposures]
        first_exposure = np.where(sizes, offsets(sizes)[:-1], -1)
        degrees = [each for t in tables for each in place_degrees(t, self.sizes, t.values)]
        sizes = [each.size for each in degrees]
        first_degree = np.where(sizes, offsets(sizes)[:-1], -1)
        incidence, starts, cells = np.full((len(tables), D), -1), [], []
        position = entries = 0
        for r, table in enumerate(tables):
            for d in sorted(set(table.domains)):
                start, cell = _cells_by_object(stored[r][0], table.domains, d, self.sizes[d])
                incidence[r, d] = position
                starts.append(start + entries)
                cells.append(cell)
                position, entries = position + start.size, entries + cell.size
        return Layout(
            first_place=offsets(arity),
            domain=np.array([d for table in tables for d in table.domains], np.int32),
            n_stats=np.array(n_stats, np.int32),
            zero=zero,
            filled=np.array([table.filled for table in tables]),
            symmetric=np.array([table.symmetric for table in tables]),
            distinct=np.array([table.distinct for table in tables]),
            uniform=np.array([table.exposures is None for table in tables]),
            exposure=np.concatenate([np.zeros(0), *(e for e in exposures if e is not None)]),
            first_exposure=first_exposure.astype(np.int64),
            coordinate=np.concatenate([cells.ravel() for cells, _ in stored]).astype(np.int32),
            first_coordinate=offsets([cells.size for cells, _ in stored]),
            value=np.concatenate([statistics.ravel() for _, statistics in stored]),
            first_value=offsets([statistics.size for _, statistics in stored])[:-1],
            incidence=incidence.astype(np.int64),
            start=np.concatenate(starts).astype(np.int64),
            cell=np.concatenate(cells).astype(np.int32),
            first_object=offsets(self.sizes),
            degree=np.concatenate(degrees),
            first_degree=first_degree.astype(np.int64),
        )


def check_place_names(table: Table, places: Iterable[str]) -> None:
    """Refuse places that a relation does not have."""
    wrong = [place for place in places if place not in table.places]
    if wrong:
        msg = (
            f"Relation '{table.name}' has no place '{wrong[0]}'. Its places are: "
            f"{', '.join(table.places)}."
        )
        raise ValueError(msg)


def find_cells(
    data: Dataset, table: Table, places: Mapping[str, Any]
) -> tuple[Indices, tuple[int, ...]]:
    """Return cells by position, and the shape to which the objects at their places broadcast."""
    check_place_names(table, places)
    lost = [place for place in table.places if place not in places]
    if lost:
        msg = (
            f"Relation '{table.name}' has the place '{lost[0]}', which is not given. Its places "
            f"are: {', '.join(table.places)}."
        )
        raise ValueError(msg)
    at = [find_objects(data, table, p, places[place]) for p, place in enumerate(table.places)]
    try:
        at = list(np.broadcast_arrays(*at))
    except ValueError:
        shapes = ", ".join(f"{p} {a.shape}" for p, a in zip(table.places, at, strict=True))
        msg = (
            f"The objects at the places of relation '{table.name}' do not broadcast against each "
            f"other; their shapes are {shapes}. Give as many of each, or one."
        )
        raise ValueError(msg) from None
    cells = np.stack([each.ravel() for each in at], axis=1).astype(np.int32)
    if table.symmetric:
        cells[:, :2] = np.sort(cells[:, :2], axis=1)
    return cells, at[0].shape


def find_objects(data: Dataset, table: Table, p: int, given: Any) -> NDArray[np.int64]:
    """Return the positions of objects at a place that are given by name or by position.

    Whole numbers are names where objects are named by numbers, and positions elsewhere.
    """
    domain, place = data.domains[table.domains[p]], table.places[p]
    try:
        values = np.asarray(given)
    except ValueError:
        msg = (
            f"The objects at place '{place}' of relation '{table.name}' are lists of different "
            "lengths. Give one list, or an array."
        )
        raise ValueError(msg) from None
    numbered = any(name.isdecimal() for name in domain.names or ())
    if values.dtype.kind in "iu" and not numbered:
        wrong = (values < 0) | (values >= domain.size)
        if wrong.any():
            msg = (
                f"{wrong.sum():,} of {values.size:,} positions at place '{place}' of relation "
                f"'{table.name}' lie outside of 0 to {domain.size - 1:,}; the first is "
                f"{values[wrong].flat[0]}. Give positions of fitted objects."
            )
            raise ValueError(msg)
        return values.astype(np.int64)
    if domain.names is None and values.size:
        msg = (
            f"The objects at place '{place}' of relation '{table.name}' have no names. Give "
            "positions from 0."
        )
        raise ValueError(msg)
    values = np.asarray(given, dtype=object)  # NumPy's own text loses NUL at the end of a name
    index = {name: o for o, name in enumerate(domain.names or ())}
    names = [as_name(name) for name in values.ravel()]
    lost = [name for name in names if name not in index]
    if lost:
        msg = (
            f"{len(lost):,} of {values.size:,} names at place '{place}' of relation "
            f"'{table.name}' are unknown; the first is '{lost[0]}'. Give names of fitted objects."
        )
        raise ValueError(msg)
    return np.array([index[name] for name in names], np.int64).reshape(values.shape)


def as_name(name: object) -> str:
    """Return the name of an object as text; whole numbers of a float column lose their point."""
    return str(int(name) if isinstance(name, float) and name.is_integer() else name)


def place_degrees(table: Table, sizes: tuple[int, ...], counts: Floats) -> list[Floats]:
    """Return the sums of the counts of each object at each place, for degree correction.

    Symmetric places share the first entry; places without correction have an empty one.
    """
    if not table.corrected:
        return [np.zeros(0)] * table.arity
    found = [
        np.bincount(table.cells[:, p], counts, sizes[d]).astype(np.float64)
        for p, d in enumerate(table.domains)
    ]
    return [found[0] + found[1], np.zeros(0)] if table.symmetric else found


def offsets(sizes: Any) -> Offsets:
    """Return where parts of these sizes begin, and where the last one ends."""
    return np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)


def _cells_by_object(
    cells: Indices, domains: tuple[int, ...], d: int, size: int
) -> tuple[Offsets, Indices]:
    """Return the cells of each object of a domain, each cell once, compressed by object."""
    places = [p for p, domain in enumerate(domains) if domain == d]
    pairs = np.concatenate([cells[:, p].astype(np.int64) * len(cells) for p in places])
    pairs += np.tile(np.arange(len(cells)), len(places))
    pairs = np.unique(pairs) if len(places) > 1 else np.sort(pairs)
    objects, cell = np.divmod(pairs, max(len(cells), 1))
    return offsets(np.bincount(objects, minlength=size)), cell.astype(np.int32)
