"""Edges as arrays: names become indices, values become states, pairs become sparse patterns."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from coblock.io.readers.edges import BLANK, NO, YES, Locate
from coblock.io.readers.errors import ReadError, convert_errors
from coblock.kernels import Indices, Offsets, kernel
from coblock.model.relation import select_cells

if TYPE_CHECKING:
    import polars as pl

Hashes: TypeAlias = NDArray[np.uint64]
States: TypeAlias = NDArray[np.int8]

UNSEEN, NO_LINK, LINK = 0, 1, 2  # states of a cell
_FIRST_SLOTS = 1 << 12  # size of the first hash table; a power of two
_BATCH = 1 << 16  # names hashed together; their hashes fit into the cache
_UPPER, _LOWER = np.uint64(0xFFFFFFFF00000000), np.uint64(0xFFFFFFFF)


@dataclass(frozen=True, slots=True)
class IndexedEdges:
    """Edges, or the stored cells of a matrix, by index."""

    rows: Indices
    columns: Indices
    states: States | None  # None: all are links
    row_names: tuple[str, ...]
    column_names: tuple[str, ...]
    both_halves: bool = False  # a matrix may store both cells of an undirected pair
    notes: tuple[str, ...] = ()

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and columns."""
        return len(self.row_names), len(self.column_names)


def number_names(series: Sequence["pl.Series"]) -> tuple[list[Indices], tuple[str, ...]]:
    """Return the indices of the names of each series, and the names by first appearance.

    Names are distinguished by 96 bits of two hashes, which is several times as fast as comparing
    strings. The probability that any two of ten million names are confused is below 1e-14.
    """
    import polars as pl

    names = pl.concat(series)
    codes, first = np.empty(len(names), np.int32), np.empty(len(names), np.int64)
    table, known, done = np.zeros((_FIRST_SLOTS, 2), np.uint64), 0, 0
    for chunk in names.get_chunks():
        for batch in chunk.to_frame().iter_slices(_BATCH):
            low, high = (batch.to_series().hash(seed).to_numpy() for seed in (0, 1))
            table, known = _number_hashes(low, high, table, known, done, codes, first)
            done += low.size
    ends = np.cumsum([len(part) for part in series])
    return np.split(codes, ends[:-1]), tuple(names.gather(first[:known]).to_list())


@kernel
def _number_hashes(
    low: Hashes,
    high: Hashes,
    table: Hashes,
    known: int,
    done: int,
    codes: Indices,
    first: Offsets,
) -> tuple[Hashes, int]:
    """Write the numbers of hashes from position ``done`` on, and where each occurs first.

    The table uses open addressing. A slot holds the low hash, and 32 bits of the high hash beside
    the number + 1; it is free if its second half is 0. The table, which may have grown, and the
    count of numbers are returned.
    """
    for k in range(low.size):
        if 2 * known >= table.shape[0]:
            larger = np.zeros((4 * table.shape[0], 2), np.uint64)
            for old in range(table.shape[0]):
                if table[old, 1] != 0:
                    larger[_find_slot(larger, table[old, 0], table[old, 1])] = table[old]
            table = larger
        slot = _find_slot(table, low[k], high[k])
        if table[slot, 1] == 0:
            first[known] = done + k
            known += 1
            table[slot, 0], table[slot, 1] = low[k], (high[k] & _UPPER) | np.uint64(known)
        codes[done + k] = np.int32(table[slot, 1] & _LOWER) - 1
    return table, known


@kernel
def _find_slot(table: Hashes, low: np.uint64, high: np.uint64) -> int:
    """Return the slot of a pair of hashes, or the free slot where it belongs."""
    slot = np.int64(low & np.uint64(table.shape[0] - 1))
    while table[slot, 1] != 0 and (
        table[slot, 0] != low or (table[slot, 1] & _UPPER) != (high & _UPPER)
    ):
        slot = (slot + 1) & (table.shape[0] - 1)
    return int(slot)


def cell_states(values: "pl.Series", binarize: float | None, locate: Locate) -> States:
    """Return the state of the cell of each value.

    Numbers above ``binarize``, yes, y and true are links. Other numbers, no, n and false are cells
    without a link. Blank, null, NA and NaN are unseen. With ``binarize=None`` numbers must be 0 or
    1. ``locate`` describes the position of a value that is refused.
    """
    import polars as pl

    with convert_errors("The values cannot be read"):
        if values.dtype == pl.Boolean or values.dtype.is_numeric():
            numbers = values.cast(pl.Float64).fill_nan(None)
            is_yes = is_no = unknown = pl.repeat(False, len(values), eager=True)
        else:
            words = values.cast(pl.String).str.strip_chars().str.to_lowercase()
            words = words.set(words.is_in(list(BLANK)), None)
            numbers = words.cast(pl.Float64, strict=False).fill_nan(None)
            is_yes, is_no = (words.is_in(list(said)).fill_null(False) for said in (YES, NO))
            unknown = words.is_not_null() & numbers.is_null() & ~is_yes & ~is_no
    _refuse(
        unknown | numbers.is_infinite().fill_null(False),
        values,
        locate,
        "are neither finite numbers nor yes, no or blank",
        "Correct them, or name another column with value=.",
    )
    if binarize is None:
        wrong = numbers.is_not_null() & ~numbers.is_in([0.0, 1.0])
        advice = "binarize=t counts values above t as links."
        _refuse(wrong, values, locate, "are not 0 or 1", advice)
    states = np.full(len(values), UNSEEN, dtype=np.int8)
    states[(numbers.is_not_null() | is_no).to_numpy()] = NO_LINK
    states[((numbers > (binarize or 0.0)).fill_null(False) | is_yes).to_numpy()] = LINK
    return states


def _refuse(
    wrong: "pl.Series", values: "pl.Series", locate: Locate, problem: str, advice: str
) -> None:
    if wrong.any():
        first = int(wrong.arg_max() or 0)
        text = repr(values[first])
        quoted = text if len(text) <= 60 else text[:56] + " ..."
        msg = (
            f"{wrong.sum():,} of {len(values):,} values {problem}; the first is {quoted} in "
            f"{locate(first)}. {advice}"
        )
        raise ReadError(msg)


def compress_edges(
    rows: Indices, columns: Indices, states: States | None, shape: tuple[int, int]
) -> tuple[sparse.csr_array, sparse.csr_array, int]:
    """Return links and unseen cells as sorted patterns, and the number of distinct pairs.

    ``states`` are the states of the pairs; None: all are links. The largest state of a pair counts.
    """
    given = np.full(rows.size, LINK, np.int8) if states is None else states
    edges = sparse.coo_array((given, (rows, columns)), shape=shape)
    edges.has_canonical_format = True  # it may not be, but SciPy must not add up duplicates
    cells = edges.tocsc().tocsr()  # stable counting sorts, by column and then by row
    is_first = np.diff(cells.indices, prepend=-1) != 0
    is_first[cells.indptr[:-1][np.diff(cells.indptr) > 0]] = True
    pairs = select_cells(cells, is_first)
    if states is None or not rows.size:
        return pairs, sparse.csr_array(shape), pairs.nnz
    state = np.maximum.reduceat(cells.data, np.flatnonzero(is_first))
    return select_cells(pairs, state == LINK), select_cells(pairs, state == UNSEEN), pairs.nnz
