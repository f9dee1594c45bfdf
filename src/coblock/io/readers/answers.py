"""Answers in words: which of them are links is said by the caller."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from coblock.io.readers.edges import BLANK, convert_errors, refuse

if TYPE_CHECKING:
    import polars as pl

MOST_LISTED = 8  # answers in a message


def read_words(yes: str | Sequence[str] | None) -> tuple[str, ...]:
    """Return the words that are links, as answers are compared with them.

    Examples
    --------
    >>> read_words("Often, always")
    ('often', 'always')
    """
    parts = yes.split(",") if isinstance(yes, str) else yes or ()
    words = tuple(str(part).strip().lower() for part in parts)
    if yes is not None and (not words or "" in words):
        refuse(f"yes= must list answers that are links, such as 'often,always', but is {yes!r}.")
    return words


def mark_answers(
    lazy: "pl.LazyFrame", yes: Sequence[str], cells: list[str], what: str
) -> tuple["pl.LazyFrame", str]:
    """Return a table with 1 for the answers that are links and 0 for others, and a note.

    ``cells`` are the columns with answers. Blank answers stay blank.
    """
    import polars as pl

    with convert_errors(f"{what} cannot be read"):
        frame = lazy.collect()
    words = pl.col(cells).cast(pl.String).str.strip_chars().str.to_lowercase()
    answers = frame.select(words)
    found = sorted({word for name in cells for word in answers[name].unique() if word})
    found = [word for word in found if word not in BLANK]
    missing = [word for word in yes if word not in found]
    if missing:
        refuse(
            f"The answer {missing[0]!r} of yes= does not occur in {what}. The answers are "
            f"{_list(found)}."
        )
    is_blank = words.is_null() | words.is_in(list(BLANK))
    marked = pl.when(words.is_in(list(yes))).then(pl.lit("1")).otherwise(pl.lit("0"))
    marked = pl.when(is_blank).then(None).otherwise(marked).name.keep()
    others = [word for word in found if word not in yes]
    note = f"Links are the answers {_list(yes)}"
    note += f"; {_list(others)} are not." if others else "; there are no others."
    return frame.with_columns(marked).lazy(), note


def _list(words: Sequence[str]) -> str:
    more = ", ..." if len(words) > MOST_LISTED else ""
    return ", ".join(map(repr, words[:MOST_LISTED])) + more
