"""Refusals of input that cannot be read."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager

_LONGEST = 160
_NOT_THE_CONTENT = {errno.EACCES, errno.EIO, errno.EMFILE, errno.ENOENT, errno.EPERM}


class ReadError(ValueError):
    """What was to be read is not a relation; the message says what, where, and what to do."""


@contextmanager
def refusing(what: str) -> Iterator[None]:
    """Turn whatever another package raises over foreign input into a :class:`ReadError`.

    Files come damaged in more ways than their readers document, down to panics inside of polars.
    """
    from polars.exceptions import PanicException

    try:
        yield
    except ReadError:
        raise
    except (Exception, PanicException) as error:
        if isinstance(error, OSError) and error.errno in _NOT_THE_CONTENT:
            raise
        msg = f"{what}: {shortened(error)}."
        raise ReadError(msg) from error


def shortened(error: BaseException) -> str:
    """Return the first line of an error's message, without its full stop."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    first = lines[0] if lines else type(error).__name__
    return (first if len(first) <= _LONGEST else first[: _LONGEST - 4] + " ...").rstrip(".")
