"""Text that is safe to print: names come from files and may contain terminal escapes."""


def printable(text: str) -> str:
    r"""Return text on one line, with control characters as escapes.

    Examples
    --------
    >>> print(printable("two\nlines and a bell\a"))
    two lines and a bell\x07
    """
    line = " ".join(text.split())
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in line
    )
