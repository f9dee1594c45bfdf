"""What a value says of its pair: a link, seen without a link, or unseen."""

from typing import TYPE_CHECKING

import numpy as np

from coblock.io.readers.coding import ABSENT, LINK, UNSEEN, States
from coblock.io.readers.errors import ReadError, refusing
from coblock.io.readers.pairs import BLANK, NO, YES, Where

if TYPE_CHECKING:
    import polars as pl


def states(values: "pl.Series", binarize: float | None, where: Where) -> States:
    """Return the state of each pair.

    Numbers above ``binarize`` are links, as are yes, y and true; no, n and false are not; what is
    blank (or missing, NA, NaN) is unseen. With ``binarize=None`` numbers must be 0 or 1.
    """
    import polars as pl

    if values.dtype == pl.Boolean or values.dtype.is_numeric():
        with refusing("The values cannot be read"):
            numbers = values.cast(pl.Float64).fill_nan(None)
        said_yes = said_no = pl.repeat(False, len(values), eager=True)
    else:
        with refusing("The values cannot be read"):
            words = values.cast(pl.String).str.strip_chars().str.to_lowercase()
        words = words.set(words.is_in(list(BLANK)), None)
        said_yes, said_no = (words.is_in(list(said)).fill_null(False) for said in (YES, NO))
        numbers = words.cast(pl.Float64, strict=False).fill_nan(None)
        _refuse(words.is_not_null() & numbers.is_null() & ~said_yes & ~said_no, values, where)
    _refuse(numbers.is_infinite().fill_null(False), values, where)
    if binarize is None:
        _refuse_other_than_binary(numbers, values, where)
    threshold = 0.0 if binarize is None else binarize
    found = np.full(len(values), UNSEEN, dtype=np.int8)
    found[(numbers.is_not_null() | said_no).to_numpy()] = ABSENT
    found[((numbers > threshold).fill_null(False) | said_yes).to_numpy()] = LINK
    return found


def _refuse(wrong: "pl.Series", values: "pl.Series", where: Where) -> None:
    count = wrong.sum()
    if count:
        first = int(wrong.arg_max() or 0)
        msg = (
            f"{count:,} of {len(values):,} values are neither finite numbers nor yes, no or "
            f"blank; the first is {_quoted(values[first])} in {where(first)}. Correct them, or "
            "name another column with value=."
        )
        raise ReadError(msg)


def _refuse_other_than_binary(numbers: "pl.Series", values: "pl.Series", where: Where) -> None:
    wrong = numbers.is_not_null() & ~numbers.is_in([0.0, 1.0])
    if wrong.any():
        first = int(wrong.arg_max() or 0)
        msg = (
            f"{wrong.sum():,} of {len(values):,} values are not 0 or 1; the first is "
            f"{_quoted(values[first])} in {where(first)}. binarize=t counts values above t as "
            "links."
        )
        raise ReadError(msg)


def _quoted(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:56] + " ..."
