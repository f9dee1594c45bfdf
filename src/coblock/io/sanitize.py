"""Names come from anywhere; a terminal must not obey them."""


def printable(text: str) -> str:
    r"""Return text on one line; what could steer a terminal becomes an escape.

    Examples
    --------
    >>> print(printable("two\nlines and a bell\a"))
    two lines and a bell\x07
    """
    line = " ".join(text.split())
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in line
    )
