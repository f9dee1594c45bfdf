"""Lock files: the system releases the lock of a process that ends or is killed."""

import errno
import os
import sys
from pathlib import Path
from stat import S_ISREG
from typing import IO

# A link could lead to a file of somebody else; text mode would change line ends.
FLAGS = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)

if sys.platform == "win32":
    import msvcrt

    BEYOND = 2**30  # a locked byte cannot be read, so it is one after the text

    def _lock(file: IO[bytes]) -> None:
        file.seek(BEYOND)
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)

else:
    import fcntl

    def _lock(file: IO[bytes]) -> None:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in {errno.ENOLCK, errno.ENOTSUP}:  # some network disks have no locks
                raise


def _check_own_file(opened: os.stat_result) -> None:
    if not S_ISREG(opened.st_mode) or opened.st_nlink > 1:
        raise OSError(0, "its lock file leads to another file")


def try_lock(path: Path) -> IO[bytes] | None:
    """Open or create a file and lock it until it is closed; None if it is locked already."""
    while True:
        file = os.fdopen(os.open(path, FLAGS, 0o666), "r+b")
        try:
            _lock(file)
            opened = os.fstat(file.fileno())
            _check_own_file(opened)
            if os.path.samestat(path.stat(), opened):
                return file
        except FileNotFoundError:  # its holder has removed it since it was opened
            pass
        except (BlockingIOError, PermissionError):
            file.close()
            return None
        except BaseException:
            file.close()
            raise
        file.close()
