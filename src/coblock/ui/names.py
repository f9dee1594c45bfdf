"""Format names, numbers and settings for people."""

from collections.abc import Sequence

MAX_NAME = 100  # characters of a name on the page
MAX_SETTING = 160  # characters of a setting on the page


def percent(share: float) -> str:
    """Return a share as a percentage with its significant digits.

    Examples
    --------
    >>> [percent(p) for p in (0.0, 0.00042, 0.034, 0.5, 0.9971, 1.0)]
    ['0%', '0.042%', '3.4%', '50%', '99.7%', '100%']
    """
    value = 100.0 * share
    if value == 0.0:
        return "0%"
    if value < 9.95:
        return f"{value:.2g}%" if value >= 1e-4 else f"{value:.0e}%"
    return f"{value:.1f}%" if 99.5 <= value < 99.95 else f"{value:.0f}%"


def quantity(number: float, noun: str) -> str:
    """Return a number with its noun, in the plural unless the number is 1.

    Examples
    --------
    >>> quantity(1, "row"), quantity(1200, "row")
    ('1 row', '1,200 rows')
    """
    return f"{number:,.0f} {noun}" if number == 1 else f"{number:,.0f} {noun}s"


def truncate(text: str, length: int = MAX_NAME, ellipsis: str = "…") -> str:
    """Return a text of at most ``length`` characters; an ellipsis replaces the rest."""
    return text if len(text) <= length else f"{text[: length - len(ellipsis)]}{ellipsis}"


def display_name(names: Sequence[str] | None, i: int) -> str:
    """Return the name of object ``i``, or its number if objects have no names or it is blank."""
    if names is None:
        return str(i)
    return truncate(names[i]) if names[i].strip() else f"(blank, number {i})"


def display_setting(value: object) -> str:
    """Return the value of a setting as text; of an array only the shape is shown."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    shape = getattr(value, "shape", None)
    if shape:
        return f"array of shape {' × '.join(f'{size:,}' for size in shape)}"
    return truncate(str(value), MAX_SETTING)
