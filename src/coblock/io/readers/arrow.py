"""Check the messages of Arrow files and streams before polars reads them.

Polars allocates the lengths that a message names, and ends the process if that is impossible. The
layout of a message is that of Message.fbs and Schema.fbs of Arrow, in flatbuffers.
"""

from struct import unpack_from
from typing import Any

import numpy as np
from numpy.typing import NDArray

DICTIONARY_BATCH, RECORD_BATCH = 2, 3  # types of messages that have arrays
MOST_ROWS = 2**31


def check_stream(content: bytes) -> int:
    """Refuse a stream with messages that name more bytes, rows or buffers than they can have.

    Returns the bytes that its compressed buffers have when they are unpacked.
    """
    position, unpacked = 0, 0
    while position + 4 <= len(content) and position >= 0:
        position, more = _check_message(content, position)
        unpacked += more
    return unpacked


def check_file(content: bytes) -> int:
    """Refuse such messages of a file, which has the places of all of them in its footer.

    Returns the bytes that its compressed buffers have when they are unpacked.
    """
    (length,) = unpack_from("<i", content, len(content) - 10)
    footer, unpacked = _follow(content, len(content) - 10 - length), 0
    for blocks in (2, 3):  # of dictionaries and of records: offset, length, length of the body
        for position in _vector(content, footer, blocks, 3)[::3].tolist():
            _require(0 <= position < len(content))
            unpacked += _check_message(content, position)[1]
    return unpacked


def _check_message(content: bytes, position: int) -> tuple[int, int]:
    """Check a message; return the position after it, -1 after the last, and unpacked bytes."""
    (length,) = unpack_from("<i", content, position)
    position += 4
    if length == -1:  # a marker; old versions write none
        (length,) = unpack_from("<i", content, position)
        position += 4
    if length == 0:
        return -1, 0
    message = _follow(content, position)
    body, kind = _number(content, message, 3, "<q"), _number(content, message, 1, "<B")
    position += length + body
    _require(length > 0 and body >= 0 and position <= len(content))
    unpacked = 0
    if kind in {DICTIONARY_BATCH, RECORD_BATCH}:
        batch = _follow(content, _field(content, message, 2))
        if kind == DICTIONARY_BATCH:
            batch = _follow(content, _field(content, batch, 1))
        unpacked = _check_batch(content, batch, position - body, body)
    return position, unpacked


def _check_batch(content: bytes, batch: int, start: int, body: int) -> int:
    """Check rows, the rows of each column, the places of the buffers, and their numbers.

    A compressed buffer begins with the number of its bytes when it is unpacked, -1 if it is not
    compressed. The sum of these numbers is returned.
    """
    _require(0 <= _number(content, batch, 0, "<q") <= MOST_ROWS)
    nodes, buffers = (_vector(content, batch, field, 2).reshape(-1, 2) for field in (1, 2))
    _require(((nodes >= 0) & (nodes <= MOST_ROWS)).all())
    _require(((buffers >= 0) & (buffers <= body)).all() and (buffers.sum(axis=1) <= body).all())
    counts = _vector(content, batch, 4, 1)
    _require(((counts >= 0) & (counts <= len(buffers))).all())
    if not _field(content, batch, 3):
        return 0
    filled = buffers[buffers[:, 1] > 0]
    _require((filled[:, 1] >= 8).all())
    sizes = [unpack_from("<q", content, start + at)[0] for at in filled[:, 0].tolist()]
    _require(min(sizes, default=0) >= -1)
    return sum(sizes)


def _require(possible: Any) -> None:
    if not possible:
        msg = "a message is longer than it can be"
        raise ValueError(msg)


def _follow(content: bytes, position: int) -> int:
    """Return where the offset at a position leads."""
    return int(position + unpack_from("<I", content, position)[0])


def _field(content: bytes, table: int, field: int) -> int:
    """Return the position of a field of a table, 0 if the table does not have it."""
    names = table - unpack_from("<i", content, table)[0]
    _require(names >= 0)
    if 4 + 2 * field >= unpack_from("<H", content, names)[0]:
        return 0
    offset = unpack_from("<H", content, names + 4 + 2 * field)[0]
    return int(table + offset) if offset else 0


def _number(content: bytes, table: int, field: int, kind: str) -> int:
    """Return a number of a table; 0 is not stored."""
    position = _field(content, table, field)
    return int(unpack_from(kind, content, position)[0]) if position else 0


def _vector(content: bytes, table: int, field: int, width: int) -> NDArray[np.int64]:
    """Return the numbers of a vector of a table, ``width`` for each entry."""
    position = _field(content, table, field)
    if not position:
        return np.zeros(0, np.int64)
    start = _follow(content, position)
    count = width * unpack_from("<I", content, start)[0]
    return np.frombuffer(content, "<i8", count, start + 4) if count else np.zeros(0, np.int64)
