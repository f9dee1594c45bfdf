"""From names to numbers, and from pairs of numbers to compressed rows."""

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
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
_SEEDS = (0, 1)
_SMALLEST, _BATCH, _AHEAD = 1 << 12, 1 << 16, 4  # slots, names hashed at a time, batches
_UPPER, _LOWER = np.uint64(0xFFFFFFFF00000000), np.uint64(0xFFFFFFFF)


def number_names(pieces: Sequence["pl.Series"]) -> tuple[list[Indices], tuple[str, ...]]:
    """Return the numbers of the names of each piece, and the names by first appearance.

    Names are told apart by 96 bits of two hashes, which is several times as fast as comparing
    strings; in ten million names the chance that any two are taken for one is below 1e-14. They
    are hashed in batches that stay in the processor's cache.
    """
    import polars as pl

    sizes = [len(piece) for piece in pieces]
    codes, first = np.empty(sum(sizes), np.int32), np.empty(sum(sizes), np.int64)
    table, known, done = np.zeros((_SMALLEST, 2), np.uint64), 0, 0
    for low, high in _hashes(pieces):
        table, known = _number_hashes(low, high, table, known, done, codes, first)
        done += low.size
    names = pl.concat(pieces).gather(first[:known]).to_list()
    return np.split(codes, np.cumsum(sizes)[:-1]), tuple(names)


def _hashes(pieces: Sequence["pl.Series"]) -> Iterator[tuple[Hashes, Hashes]]:
    """Hash batch after batch in a thread of its own, a few batches ahead."""
    with ThreadPoolExecutor(1) as ahead:
        waiting: deque[Future[tuple[Hashes, Hashes]]] = deque()
        for batch in _batches(pieces):
            waiting.append(ahead.submit(_hash, batch))
            if len(waiting) > _AHEAD:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _hash(names: "pl.Series") -> tuple[Hashes, Hashes]:
    low, high = (names.hash(seed).to_numpy() for seed in _SEEDS)
    return low, high


def _batches(pieces: Sequence["pl.Series"]) -> Iterator["pl.Series"]:
    for piece in pieces:
        for chunk in piece.get_chunks():
            for begin in range(0, len(chunk), _BATCH):
                yield chunk.slice(begin, _BATCH)


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
    """Write the numbers of hashes from place ``done`` on, and where each was met first.

    The table, with open addressing, holds the low hash beside 32 bits of the high one and the
    number + 1; a slot whose second half is 0 is free. Returned are the table, which may have
    grown, and how many numbers there are.
    """
    for k in range(low.size):
        if 2 * known >= table.shape[0]:
            table = _regrown(table)
        slot = _slot(table, low[k], high[k])
        if table[slot, 1] == 0:
            first[known] = done + k
            known += 1
            table[slot, 0], table[slot, 1] = low[k], (high[k] & _UPPER) | np.uint64(known)
        codes[done + k] = np.int32(table[slot, 1] & _LOWER) - 1
    return table, known


@kernel
def _slot(table: Hashes, low: np.uint64, high: np.uint64) -> int:
    """Return the slot of a pair of hashes, or the free one where it belongs."""
    slot = np.int64(low & np.uint64(table.shape[0] - 1))
    while table[slot, 1] != 0 and (
        table[slot, 0] != low or (table[slot, 1] & _UPPER) != (high & _UPPER)
    ):
        slot = (slot + 1) & (table.shape[0] - 1)
    return int(slot)


@kernel
def _regrown(table: Hashes) -> Hashes:
    """Return a table of four times the size with the same entries."""
    larger = np.zeros((4 * table.shape[0], 2), np.uint64)
    for old in range(table.shape[0]):
        if table[old, 1] != 0:
            larger[_slot(larger, table[old, 0], table[old, 1])] = table[old]
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
    pattern = sparse.csr_array((np.ones(end.size, np.int8), end, start), shape=shape)
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
