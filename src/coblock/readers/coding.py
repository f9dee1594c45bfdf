"""From names to numbers, and from pairs of numbers to compressed rows."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from coblock.kernels import Indices, Offsets, kernel

if TYPE_CHECKING:
    import polars as pl

Hashes: TypeAlias = NDArray[np.uint64]
States: TypeAlias = NDArray[np.int8]

UNSEEN, ABSENT, LINK = 0, 1, 2  # of a pair given more than once, the largest counts
_UPPER, _LOWER = np.uint64(0xFFFFFFFF00000000), np.uint64(0xFFFFFFFF)


def hashed(names: "pl.LazyFrame", *places: str) -> "pl.LazyFrame":
    """Add two hashes to each of the named columns.

    Names are told apart by 96 bits of them, which is several times as fast as comparing strings;
    in ten million names the chance that any two are taken for one is below 1e-14.
    """
    import polars as pl

    return names.with_columns(
        pl.col(place).hash(seed).alias(f"{place} {hash_name}")
        for place in places
        for seed, hash_name in enumerate(("low", "high"))
    )


def as_piece(names: Sequence[str]) -> "pl.DataFrame":
    """Return names with their hashes, to be numbered."""
    import polars as pl

    table = hashed(pl.LazyFrame({"name": names}, schema={"name": pl.String}), "name").collect()
    return table.rename({"name low": "low", "name high": "high"})


def number_names(pieces: Sequence["pl.DataFrame"]) -> tuple[list[Indices], tuple[str, ...]]:
    """Return the numbers of the names of each piece, and the names by first appearance.

    A piece has the columns name, low and high: names with their hashes.
    """
    import polars as pl

    whole = pl.concat(pieces) if len(pieces) > 1 else pieces[0]
    codes, first = np.empty(whole.height, np.int32), np.empty(whole.height, np.int64)
    known = _number_hashes(whole["low"].to_numpy(), whole["high"].to_numpy(), codes, first)
    names = tuple(whole["name"].gather(first[:known]).to_list())
    ends = np.cumsum([piece.height for piece in pieces])[:-1]
    return np.split(codes, ends), names


@kernel
def _number_hashes(low: Hashes, high: Hashes, codes: Indices, first: Offsets) -> int:
    """Write the number of each pair of hashes and where each was met first; return how many.

    A table with open addressing holds the low hash beside 32 bits of the high one and the
    number + 1; a slot whose second half is 0 is free.
    """
    shift = np.uint64(64 - 12)
    table = np.zeros((1 << 12, 2), np.uint64)
    known = 0
    for k in range(low.size):
        if 2 * known >= table.shape[0]:
            shift -= np.uint64(2)
            table = _regrown(table, shift)
        slot = _slot(table, shift, low[k], high[k])
        if table[slot, 1] == 0:
            first[known] = k
            known += 1
            table[slot, 0], table[slot, 1] = low[k], (high[k] & _UPPER) | np.uint64(known)
        codes[k] = np.int32(table[slot, 1] & _LOWER) - 1
    return known


@kernel
def _slot(table: Hashes, shift: np.uint64, low: np.uint64, high: np.uint64) -> int:
    """Return the slot of a pair of hashes, or the free one where it belongs."""
    slot = np.int64(low >> shift)
    while table[slot, 1] != 0 and (
        table[slot, 0] != low or (table[slot, 1] & _UPPER) != (high & _UPPER)
    ):
        slot = (slot + 1) & (table.shape[0] - 1)
    return int(slot)


@kernel
def _regrown(table: Hashes, shift: np.uint64) -> Hashes:
    """Return a table of four times the size with the same entries."""
    larger = np.zeros((4 * table.shape[0], 2), np.uint64)
    for old in range(table.shape[0]):
        if table[old, 1] != 0:
            larger[_slot(larger, shift, table[old, 0], table[old, 1])] = table[old]
    return larger


def compress(
    rows: Indices, columns: Indices, states: States | None, shape: tuple[int, int]
) -> tuple[sparse.csr_array, sparse.csr_array, int]:
    """Return links and unseen cells as sorted patterns, and how many different pairs there are.

    ``states`` says what each pair is; None means that all are links.
    """
    given = np.zeros(0, np.int8) if states is None else states
    start, end, state = _compress(rows, columns, given, *shape)
    if states is None:
        return _ones(start, end, shape), sparse.csr_array(shape), end.size
    links, unseen = (_ones(*_chosen(start, end, state, wanted), shape) for wanted in (LINK, UNSEEN))
    return links, unseen, end.size


def _ones(start: Offsets, end: Indices, shape: tuple[int, int]) -> sparse.csr_array:
    if end.size <= np.iinfo(np.int32).max:  # SciPy wants both of one type
        start = start.astype(np.int32)
    pattern = sparse.csr_array((np.ones(end.size), end, start), shape=shape)
    pattern.has_canonical_format = True
    return pattern


def _chosen(start: Offsets, end: Indices, state: States, wanted: int) -> tuple[Offsets, Indices]:
    chosen = state == wanted
    counts = np.concatenate(([0], np.cumsum(chosen)))
    return counts[start], end[chosen]


@kernel
def _compress(
    rows: Indices, columns: Indices, states: States, n_rows: int, n_columns: int
) -> tuple[Offsets, Indices, States]:
    """Return the pairs by row, columns ascending, each once with its largest state.

    Two counting sorts, by column and then by row: the second keeps the order of the first.
    """
    by_column = _places(columns, n_columns)
    sorted_rows, sorted_states = np.empty_like(rows), np.empty_like(states)
    for k in range(rows.size):
        at = by_column[columns[k]]
        by_column[columns[k]] = at + 1
        sorted_rows[at] = rows[k]
        if states.size:
            sorted_states[at] = states[k]
    by_row = _places(rows, n_rows)
    end, state = np.empty_like(rows), np.empty_like(states)
    k = 0
    for column in range(n_columns):
        while k < by_column[column]:  # by now the end of the column
            at = by_row[sorted_rows[k]]
            by_row[sorted_rows[k]] = at + 1
            end[at] = column
            if states.size:
                state[at] = sorted_states[k]
            k += 1
    return _without_duplicates(by_row, end, state)


@kernel
def _places(index: Indices, size: int) -> Offsets:
    """Return where the entries of each index begin when they are sorted."""
    begin = np.zeros(size, np.int64)
    for k in range(index.size):
        begin[index[k]] += 1
    total = 0
    for i in range(size):
        total += begin[i]
        begin[i] = total - begin[i]
    return begin


@kernel
def _without_duplicates(
    stop: Offsets, end: Indices, state: States
) -> tuple[Offsets, Indices, States]:
    """Return start, end and state with equal neighbours of a row put together, in place."""
    start = np.zeros(stop.size + 1, np.int64)
    kept, k = 0, 0
    for row in range(stop.size):
        begin = kept
        while k < stop[row]:
            if kept > begin and end[kept - 1] == end[k]:
                if state.size:
                    state[kept - 1] = max(state[kept - 1], state[k])
            else:
                end[kept] = end[k]
                if state.size:
                    state[kept] = state[k]
                kept += 1
            k += 1
        start[row + 1] = kept
    return start, end[:kept], state[: kept if state.size else 0]
