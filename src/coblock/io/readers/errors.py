"""The error of unreadable input, and the conversion of foreign exceptions into it."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager

_MAX_LENGTH = 160  # characters that are quoted from a foreign message
# The file system failed, not the content: these errors are passed on.
_SYSTEM_ERRORS = {errno.EACCES, errno.EIO, errno.EMFILE, errno.ENOENT, errno.EPERM}


class ReadError(ValueError):
    """The input is not a relation; the message says what is wrong, where, and what to do."""


@contextmanager
def convert_errors(what: str) -> Iterator[None]:
    """Convert any exception of another package into a :class:`ReadError` that begins with ``what``.

    Damaged files cause more exceptions than their readers document, including panics of polars.
    """
    from polars.exceptions import PanicException

    try:
        yield
    except ReadError:
        raise
    except (Exception, PanicException) as error:
        if isinstance(error, OSError) and error.errno in _SYSTEM_ERRORS:
            raise
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        reason = lines[0] if lines else type(error).__name__
        if len(reason) > _MAX_LENGTH:
            reason = reason[: _MAX_LENGTH - 4] + " ..."
        msg = f"{what}: {reason.rstrip('.')}."
        raise ReadError(msg) from error
