"""Names of objects, numbered in the order of their first appearance, a batch at a time."""

from typing import NamedTuple, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from coblock.kernels import Indices, Offsets, kernel

Hashes: TypeAlias = NDArray[np.uint64]

_FIRST_SLOTS = 1 << 12  # size of the first hash table; a power of two
_BATCH = 1 << 16  # names hashed together; their hashes fit into the cache
_ROWS = 1 << 18  # of a table that are read together
_UPPER, _LOWER = np.uint64(0xFFFFFFFF00000000), np.uint64(0xFFFFFFFF)

NO_CODES: Indices = np.empty(0, np.int32)


class NumberedNames(NamedTuple):
    """The names at one place of all edges; each name is held once."""

    codes: Indices  # (edges,) -1 where there is no name
    names: pl.Series  # by code

    def texts(self) -> pl.Series:
        """Return the name of each edge."""
        return self.names.gather(self.codes)


class NameNumbers:
    """Numbers of names by first appearance.

    Names are distinguished by 96 bits of two hashes, which is several times as fast as comparing
    strings. The probability that any two of ten million names are confused is below 1e-14.
    """

    def __init__(self) -> None:
        self._table, self._known = np.zeros((_FIRST_SLOTS, 2), np.uint64), 0
        self._new: list[pl.Series] = []  # names that each batch has added

    def number(self, names: pl.Series) -> Indices:
        """Return the numbers of names, -1 where there is none."""
        if names.null_count():
            codes = np.full(len(names), -1, np.int32)
            codes[names.is_not_null().to_numpy()] = self.number(names.drop_nulls())
            return codes
        codes, done = np.empty(len(names), np.int32), 0
        for batch in names.to_frame().iter_slices(_BATCH):
            series, new = batch.to_series(), np.empty(batch.height, np.int64)
            low, high = (series.hash(seed).to_numpy() for seed in (0, 1))
            part, before = codes[done : done + batch.height], self._known
            self._table, self._known = _number_hashes(low, high, self._table, before, part, new)
            self._new.append(series.gather(new[: self._known - before]))
            done += batch.height
        return codes

    def renumber(self, numbered: NumberedNames) -> Indices:
        """Return the numbers of names that have codes of their own."""
        number = self.number(numbered.names)
        same = np.array_equal(number, np.arange(number.size))
        return numbered.codes if same else number[numbered.codes]

    def names(self) -> pl.Series:
        """Return the names by number."""
        import polars as pl

        return pl.concat([pl.Series(dtype=pl.String), *(part.alias("") for part in self._new)])


def collect_names(
    lazy: pl.LazyFrame,
) -> tuple[NumberedNames, NumberedNames, pl.Series | None]:
    """Collect the columns row, column and value of a table, some rows at a time."""
    numbers, codes = (NameNumbers(), NameNumbers()), ([NO_CODES], [NO_CODES])
    types = lazy.collect_schema()
    values = [pl.Series("value", dtype=types["value"])] if "value" in types else []
    for batch in lazy.collect_batches(chunk_size=_ROWS, maintain_order=True):
        for part, known, found in zip(("row", "column"), numbers, codes, strict=True):
            found.append(known.number(batch[part]))
        if values:
            values.append(batch["value"])
    row, column = (
        NumberedNames(np.concatenate(found), known.names())
        for known, found in zip(numbers, codes, strict=True)
    )
    return row, column, pl.concat(values) if values else None


@kernel
def _number_hashes(
    low: Hashes, high: Hashes, table: Hashes, known: int, codes: Indices, first: Offsets
) -> tuple[Hashes, int]:
    """Write the numbers of hashes, and the positions of those that are new.

    The table uses open addressing. A slot holds the low hash, and 32 bits of the high hash beside
    the number + 1; it is free if its second half is 0. The table, which may have grown, and the
    count of numbers are returned.
    """
    before = known
    for k in range(low.size):
        if 2 * known >= table.shape[0]:
            larger = np.zeros((4 * table.shape[0], 2), np.uint64)
            for old in range(table.shape[0]):
                if table[old, 1] != 0:
                    larger[_find_slot(larger, table[old, 0], table[old, 1])] = table[old]
            table = larger
        slot = _find_slot(table, low[k], high[k])
        if table[slot, 1] == 0:
            first[known - before] = k
            known += 1
            table[slot, 0], table[slot, 1] = low[k], (high[k] & _UPPER) | np.uint64(known)
        codes[k] = np.int32(table[slot, 1] & _LOWER) - 1
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
