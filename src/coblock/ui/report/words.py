"""Numbers and names as a person reads them."""

from collections.abc import Sequence

LONGEST_NAME = 100  # characters of a name that are kept
LONGEST_SETTING = 160


def percent(share: float) -> str:
    """Return a share in per cent with the digits that matter.

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


def count(number: float, noun: str) -> str:
    """Return a number of things.

    Examples
    --------
    >>> count(1, "row"), count(1200, "row")
    ('1 row', '1,200 rows')
    """
    return f"{number:,.0f} {noun}" if number == 1 else f"{number:,.0f} {noun}s"


def cut(text: str, longest: int = LONGEST_NAME) -> str:
    """Return the text, or its beginning and an ellipsis where it is long."""
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def shown_name(names: Sequence[str] | None, i: int) -> str:
    """Return the name of an object, or its number; a blank name is told by its number."""
    if names is None:
        return str(i)
    return cut(names[i]) if names[i].strip() else f"(blank, number {i})"


def setting(value: object) -> str:
    """Return a setting as a person reads it; arrays are told by their shape."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    shape = getattr(value, "shape", None)
    if shape:
        return f"array of shape {' × '.join(f'{size:,}' for size in shape)}"
    return cut(str(value), LONGEST_SETTING)
