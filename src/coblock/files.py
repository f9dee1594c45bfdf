"""Files are written whole or not at all."""

import errno
import os
import secrets
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

_ADVICE = {
    errno.ENOSPC: "the disk is full. Make room, or choose another place",
    errno.EDQUOT: "the quota of the disk is used up. Make room, or choose another place",
    errno.EROFS: "the disk is read-only. Choose another place",
    errno.EACCES: "you may not write in this folder. Choose another place",
    errno.EPERM: "you may not write in this folder. Choose another place",
    errno.ENOENT: "its folder does not exist. Create the folder first",
    errno.ENOTDIR: "what should be its folder is a file. Choose another place",
    errno.EISDIR: "it is a folder. Name a file",
    errno.ENAMETOOLONG: "the name is too long. Choose a shorter one",
}


class WriteError(OSError):
    """A file could not be written; what stood there before still does."""


def write_whole(path: str | Path, data: bytes | Callable[[Path], object]) -> None:
    """Write a file such that a crash at any moment leaves the old one or the new one, whole.

    The data go to a temporary file in the same folder, reach the disk, and only then take the
    name. A symbolic link is followed, and the permissions of an earlier file are kept.

    Parameters
    ----------
    path : str or Path
        Where to write; an earlier file is replaced.
    data : bytes or callable
        The contents, or a function that writes them to the path that it is given.

    Raises
    ------
    WriteError
        With a sentence that says why; no temporary file is left.
    """
    try:
        _write_and_rename(Path(os.path.realpath(path)), data)
    except OSError as error:
        reason = _ADVICE.get(error.errno or 0, f"{error.strerror or error}. Choose another place")
        msg = f"{path} cannot be written: {reason}."
        raise WriteError(msg) from error


def _write_and_rename(path: Path, data: bytes | Callable[[Path], object]) -> None:
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    temporary = path.parent / f".coblock-{secrets.token_hex(8)}.tmp"
    try:
        temporary.open("xb").close()  # with the permissions that new files get here
        mode = (path if path.exists() else temporary).stat().st_mode
        if callable(data):
            data(temporary)
        else:
            temporary.write_bytes(data)
        temporary.chmod(mode)
        _sync(temporary)
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):  # the first error is the one to tell
            temporary.unlink()
        raise
    _sync_folder(path.parent)


def _sync(path: Path) -> None:
    with path.open("r+b") as file:
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    """Bring the new name to the disk, where the system can open folders."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in {errno.EINVAL, errno.ENOTSUP}:  # some network disks have no such call
            raise
    finally:
        os.close(handle)
