"""The cells of one relation, read from what a person gives, and checked."""

from collections.abc import Mapping, Sized
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from coblock.io import refuse
from coblock.io.listing import (
    Listing,
    as_objects,
    as_values,
    cell_in_words,
    distinct_cells,
    find_missing,
    list_cells,
)
from coblock.kernels import Floats
from coblock.model.checks import check_choice
from coblock.model.dataset import as_name
from coblock.model.likelihoods import Likelihood, first_wrong, is_number, quoted
from coblock.model.likelihoods.bernoulli import Bernoulli
from coblock.model.likelihoods.categorical import Categorical
from coblock.model.likelihoods.normal import Normal
from coblock.model.likelihoods.poisson import Poisson

LIKELIHOODS: dict[str, Likelihood] = {
    each.name: each for each in (Bernoulli(), Poisson(), Categorical(), Normal())
}
MAX_POWER = 15  # of ten, in the exposure of a cell
COUNTED = ("bernoulli", "poisson")  # cells that are not listed are zeros by default


class Cells:
    """Observed and unseen cells of a relation, by the names of their objects or by position.

    The parameters are those of :class:`coblock.Relation`. What does not fit is refused.
    """

    def __init__(
        self,
        data: Any,
        places: Mapping[str, str],
        *,
        value: Any,
        likelihood: Any,
        unseen: Any,
        absent: Any,
        symmetric: Any,
        diagonal: Any,
        exposure: Any,
        degree_corrected: Any,
    ) -> None:
        self.places = dict(places)
        self.likelihood = _find_likelihood(likelihood)
        listed = list_cells(data, self.places, value)
        self._choose(listed, value, absent, symmetric, diagonal)
        self._read_values(listed)
        self._read_unseen(unseen)
        self._leave_out_zeros()
        self._order_symmetric_places()
        self.exposure = self._read_exposure(exposure)
        self.degree_corrected = self._check_degree_corrected(degree_corrected)

    def _choose(
        self, listed: Listing, value: Any, absent: Any, symmetric: Any, diagonal: Any
    ) -> None:
        """Check the choices, and fill in those that are not given."""
        for name, choice, options in (
            ("absent", absent, ("zero", "unseen")),
            ("diagonal", diagonal, ("seen", "unseen")),
        ):
            if choice is not None:
                check_choice(name, choice, options)
        if symmetric is not None and not isinstance(symmetric, bool | np.bool_):
            refuse(f"symmetric must be True or False, but is {symmetric!r}.")
        if listed.undirected and symmetric is False:
            refuse("The graph is undirected. Pass graph.to_directed(), or leave symmetric out.")
        if listed.values is None and self.likelihood.name in {"categorical", "normal"}:
            refuse(
                f"likelihood='{self.likelihood.name}' needs values. Name their column, edge "
                "attribute or position in a tuple as value."
            )
        self.shape = listed.shape
        self.symmetric = listed.undirected if symmetric is None else bool(symmetric)
        counted = self.likelihood.name in COUNTED
        if absent is None:
            absent = "zero" if counted and (value is None or self._counts) else "unseen"
        self.filled = absent == "zero"
        self.diagonal = diagonal or ("unseen" if len(self.places) == 2 else "seen")
        self.diagonal_chosen = diagonal is not None

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
        others = "zeros" if self.filled else "unseen"
        return f"{len(self.values):,} cells, {self.likelihood.name}, others are {others}"

    def _read_values(self, listed: Listing) -> None:
        """Check the values, and unite repeated cells; cells without a value are missing."""
        objects, values = listed.objects, listed.values
        self.listed = [  # all objects that are listed, whatever the values of their cells
            list(dict.fromkeys(each.tolist())) if self.shape is None else []
            for each in (listed.nodes or objects)
        ]
        self.missing: list[NDArray[Any]] = [each[:0] for each in objects]  # by place
        self.repeated = 0  # rows that give a count again
        if values is None:
            self.objects, _, _, times = distinct_cells(self._order_pairs(objects))
            self.values = times.astype(np.float64) if self._counts else np.ones(len(times))
            return
        values = as_values(values)
        missing = find_missing(values)
        self.missing = [each[missing] for each in objects]
        self._missing_rows = np.flatnonzero(missing)
        rows = np.flatnonzero(~missing)
        self.objects, first, inverse, _ = distinct_cells([each[rows] for each in objects])
        self.repeated = len(rows) - len(first) if self._counts else 0
        numbers = self._encode(values, rows, objects)
        self.values = numbers[first]
        wrong = rows[numbers != self.values[inverse]]
        if wrong.size:
            row = wrong[0]
            cell = cell_in_words(self.places, [each[row] for each in objects])
            refuse(
                f"{wrong.size:,} of {len(values):,} rows repeat a cell with another value; the "
                f"first is row {row + 1:,}, cell {cell}, with {quoted(str(values[row]))}. Keep one "
                "row for each cell, or add the values up."
            )

    def _order_pairs(self, objects: list[NDArray[Any]]) -> list[NDArray[Any]]:
        """Return listed cells with symmetric pairs in one order, so that both orders count."""
        pair = [p for p, d in enumerate(self.places.values()) if self._repeats(d)]
        if not (self.symmetric and self._counts and len(pair) == 2):
            return objects
        first, second = (objects[p] for p in pair)
        turned, ordered = first > second, list(objects)
        ordered[pair[0]] = np.where(turned, second, first)
        ordered[pair[1]] = np.where(turned, first, second)
        return ordered

    def _repeats(self, domain: str) -> bool:
        return list(self.places.values()).count(domain) > 1

    def _encode(
        self, values: NDArray[Any], rows: NDArray[np.intp], objects: list[NDArray[Any]]
    ) -> Floats:
        """Return the values of rows as numbers; say where the first wrong one is."""
        try:
            self.likelihood = self.likelihood.for_values(values[rows])
            return self.likelihood.encode(values[rows])
        except ValueError as error:
            wrong = first_wrong(self.likelihood, values[rows])
            if wrong is None:
                raise
            row = rows[wrong]
            number = f"row {row + 1:,}, " if self.shape is None else ""
            cell = cell_in_words(self.places, [each[row] for each in objects])
            msg = f"{error} It is in {number}cell {cell}."
            raise ValueError(msg) from None

    def _leave_out_zeros(self) -> None:
        """Leave zeros out where they are implied."""
        if self.filled:
            kept = self.values != 0
            self.objects, self.values = [each[kept] for each in self.objects], self.values[kept]

    def _read_unseen(self, unseen: Any) -> None:
        """Read the list of unseen cells; missing values are unseen, too."""
        listed = [each[:0] for each in self.objects]
        if unseen is not None:
            if not self.filled:
                refuse(
                    "unseen is given, but cells that are not listed are unseen already. "
                    "Pass absent='zero' if they are zeros."
                )
            listed = self._list_unseen(unseen)
        if self.filled:
            listed = [np.concatenate(pair) for pair in zip(listed, self.missing, strict=True)]
        self.unseen, first = listed, np.zeros(0, np.intp)
        if not len(listed[0]):
            return
        self.unseen, first, _, _ = distinct_cells(listed)
        stored = self.objects  # zeros of an array are not listed
        if self.shape is not None:
            stored = [each[self.values != 0] for each in stored]
        cells = set(zip(*(each.tolist() for each in stored), strict=True))
        hidden = list(zip(*(each.tolist() for each in self.unseen), strict=True))
        both = [u for u, cell in enumerate(hidden) if cell in cells]
        if both:
            row = self._row_in_words(int(first[both[0]]), len(listed[0]) - len(self.missing[0]))
            refuse(
                f"{len(both):,} of {len(hidden):,} unseen cells are listed with a value, too; the "
                f"first is {row}{cell_in_words(self.places, hidden[both[0]])}. Remove them from "
                "one of the two."
            )

    def _row_in_words(self, row: int, n_unseen: int) -> str:
        """Return where an unseen cell is listed: in ``unseen``, or without a value in the data."""
        if self.shape is not None:
            return ""
        if row < n_unseen:
            return f"row {row + 1:,} of unseen, "
        return f"row {self._missing_rows[row - n_unseen] + 1:,}, which has no value, "

    def _list_unseen(self, unseen: Any) -> list[NDArray[Any]]:
        """Return the objects of unseen cells by place: names, or positions in an array."""
        if isinstance(unseen, tuple):
            lengths = [np.size(each) for each in unseen]
            if len(lengths) != len(self.places) or len(set(lengths)) > 1:
                refuse(
                    f"unseen must have an array for each place, of one length, but their lengths "
                    f"are {lengths} and the places {', '.join(self.places)}. Pass a list of tuples "
                    "for cells one by one."
                )
            found = Listing([as_objects(*each) for each in zip(unseen, self.places, strict=True)])
        else:
            found = list_cells(unseen, self.places, None, "unseen")
        if found.shape not in {None, self.shape}:
            refuse(
                f"unseen is an array of shape {found.shape}, but the data are "
                f"{f'of shape {self.shape}' if self.shape else 'named'}. Pass cells of the data."
            )
        if isinstance(unseen, np.ndarray):  # all cells are listed, and those not 0 are unseen
            return [each[found.values.astype(bool)] for each in found.objects]
        if self.shape is None:
            return [each.astype(str).astype(object) for each in found.objects]
        positions = []
        for place, each, size in zip(self.places, found.objects, self.shape, strict=True):
            wrong = [o for o in each.tolist() if not str(o).isdecimal() or int(o) >= size]
            if wrong:
                refuse(
                    f"{len(wrong):,} of {len(each):,} unseen cells have an object at place "
                    f"'{place}' beyond 0 to {size - 1:,}; the first is {quoted(wrong[0])}. Give "
                    "positions in the array."
                )
            positions.append(each.astype(np.int64))
        return positions

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
        self.listed = [self.listed[p] for p in order]
        self.unseen = [self.unseen[p] for p in order]
        if self.shape is not None:
            self.shape = tuple(self.shape[p] for p in order)

    def _read_exposure(self, exposure: Any) -> list[Any] | None:
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
        elif not isinstance(exposure, Sized) or len(exposure) != len(self.places):
            sized = isinstance(exposure, Sized)
            found = f"has {len(exposure)} entries" if sized else f"is {exposure!r}"
            refuse(
                f"exposure {found} for {len(self.places)} places. Give an array, or None, for each."
            )
        pairs = zip(self.places, exposure, strict=True)
        factors = [None if each is None else _check_factors(place, each) for place, each in pairs]
        _check_range(factors)
        return factors


def _check_factors(place: str, given: Any) -> Any:
    """Return the exposures of a place as numbers, by name or by position."""
    if hasattr(given, "to_dict") and list(given.index) != list(range(len(given))):
        if not given.index.is_unique:  # of a Series
            refuse(f"Exposures of place '{place}' name an object twice. Give one for each object.")
        given = given.to_dict()
    named = isinstance(given, Mapping)
    factors = list(given.values()) if named else given
    if np.ndim(factors) != 1:
        refuse(
            f"Exposures of place '{place}' have {np.ndim(factors)} dimensions. Give one number for "
            "each object, or a dict from names to numbers."
        )
    factors = [float(x) if is_number(x) else np.nan for x in factors]
    names = [as_name(o) for o in given] if named else range(len(factors))
    wrong = [o for o, x in zip(names, factors, strict=True) if not 0.0 < x < np.inf]
    if wrong:
        refuse(
            f"{len(wrong):,} of {len(factors):,} exposures of place '{place}' are not positive and "
            f"finite numbers; the first is that of {quoted(wrong[0])}. Correct them, or leave them "
            "out."
        )
    return dict(zip(names, factors, strict=True)) if named else np.array(factors)


def _check_range(factors: list[Any]) -> None:
    """Refuse exposures of cells that are so large or so small that rates are not exact."""
    given = [list(each.values()) if isinstance(each, Mapping) else each for each in factors]
    logs = [np.log10(each) for each in given if each is not None and len(each)]
    smallest, largest = (sum(float(pick(each)) for each in logs) for pick in (np.min, np.max))
    if smallest < -MAX_POWER or largest > MAX_POWER:
        refuse(
            f"The exposures of cells, which are products, range from 1e{smallest:.0f} to "
            f"1e{largest:.0f}, and rates are exact from 1e-{MAX_POWER} to 1e{MAX_POWER}. Count "
            "them in another unit."
        )


def _find_likelihood(likelihood: Any) -> Likelihood:
    """Return a likelihood by name, or one that is given as an object."""
    if isinstance(likelihood, type) and hasattr(likelihood, "cell_statistics"):
        name = likelihood.__name__
        refuse(f"likelihood must be an object, but is the class {name}. Pass {name}().", TypeError)
    if isinstance(likelihood, str) or not hasattr(likelihood, "cell_statistics"):
        check_choice("likelihood", likelihood, tuple(LIKELIHOODS))
        return LIKELIHOODS[likelihood]
    found: Likelihood = likelihood
    return found
