"""Files in and out: readers of relations, model files, checkpoints and exported tables.

A module belongs here if it turns bytes or foreign objects into those of :mod:`coblock.model` and
:mod:`coblock.inference`, or back. What comes from a file is checked here, because kernels trust
what they are given. Nothing here computes a result or talks to a person.
"""

from typing import NoReturn

MAX_HEAD, MAX_TAIL = 400, 200  # characters of a message: what is wrong, and what to do


def refuse(sentence: str, kind: type[Exception] = ValueError) -> NoReturn:
    """Raise an error whose message is ``sentence``, shortened if it quotes long names."""
    raise kind(shorten(sentence))


def shorten(sentence: str) -> str:
    """Return a message without its middle if it is longer than a few hundred characters."""
    if len(sentence) <= MAX_HEAD + MAX_TAIL:
        return sentence
    return f"{sentence[:MAX_HEAD]} ... {sentence[-MAX_TAIL:]}"


def printable(text: str) -> str:
    r"""Return text on one line that is safe to print: names in files may have terminal escapes.

    Examples
    --------
    >>> print(printable("two\nlines and a bell\a"))
    two lines and a bell\x07
    """
    line = " ".join(text.split())
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)


def quantity(number: float, noun: str, plural: str = "") -> str:
    """Return a number with its noun, in the plural unless the number is 1.

    Examples
    --------
    >>> quantity(1, "row"), quantity(1200, "row"), quantity(2, "line is", "lines are")
    ('1 row', '1,200 rows', '2 lines are')
    """
    return f"{number:,.0f} {noun if number == 1 else plural or noun + 's'}"
