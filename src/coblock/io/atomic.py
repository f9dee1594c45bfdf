"""Files are written whole or not at all."""

import errno
import os
import secrets
import shutil
from collections.abc import Callable
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from stat import S_ISCHR, S_ISDIR, S_ISFIFO, S_ISREG
from tempfile import TemporaryDirectory

_ADVICE = {
    errno.ENOSPC: "the disk is full. Make room, or choose another place",
    errno.EDQUOT: "the quota of the disk is used up. Make room, or choose another place",
    errno.EROFS: "the disk is read-only. Choose another place",
    errno.EACCES: "you may not write in this folder. Choose another place",
    errno.EPERM: "you may not write in this folder. Choose another place",
    errno.ENOENT: "its folder does not exist. Create the folder first",
    errno.ENOTDIR: "what should be its folder is a file. Choose another place",
    errno.EFBIG: "the file would be larger than the system allows. Choose another place",
    errno.EISDIR: "it is a folder. Name a file",
    errno.ENAMETOOLONG: "the name is too long. Choose a shorter one",
}


class WriteError(OSError):
    """A file could not be written; what stood there before still does."""


def write_whole(path: str | Path, data: bytes | Callable[[Path], object]) -> None:
    """Write a file such that a crash at any moment leaves the old one or the new one, whole.

    The data go to a temporary file in the same folder, reach the disk, and only then take the
    name. A symbolic link is followed, and the permissions of an earlier file are kept. A pipe or
    a character device (``/dev/stdout``, ``/dev/null``) is written to and never replaced; any other
    special file is refused.

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
        if _is_stream(path):
            _write_stream(Path(path), data)
        else:
            _write_and_rename(Path(os.path.realpath(path)), data)
    except OSError as error:
        raise _refusal(path, error) from error


def write_folder(folder: str | Path, fill: Callable[[Path], object]) -> None:
    """Put several files in a folder such that a failure leaves none of them.

    They are made in a temporary folder on the same disk and moved when all are there. Other files
    of the folder stay, earlier ones of the same names are replaced.

    Parameters
    ----------
    folder : str or Path
        Created where it does not exist.
    fill : callable
        Writes the files to the folder that it is given.

    Raises
    ------
    WriteError
        With a sentence that says why.
    """
    target = Path(os.path.realpath(folder))
    staging = None
    try:
        staging = _staging(target)
        fill(staging)
        _move_all(staging, target)
    except WriteError as error:
        msg = str(error).replace(str(staging), str(folder))
        raise WriteError(msg) from error
    except OSError as error:
        raise _refusal(folder, error) from error
    finally:
        if staging is not None:
            shutil.rmtree(staging, ignore_errors=True)  # the first error is the one to tell


def check_writable(folder: str | Path) -> None:
    """Refuse, before any work is done, a folder that files cannot be written to."""
    try:
        _staging(Path(os.path.realpath(folder))).rmdir()
    except OSError as error:
        raise _refusal(folder, error) from error


def _is_stream(path: str | Path) -> bool:
    """Return whether the path is a pipe or a character device; refuse other special files."""
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116 - the path as given: links are followed
    except OSError:
        return False  # a new path, or one whose parents are at fault: writing it will tell
    if S_ISREG(mode) or S_ISDIR(mode):
        return False
    if not (S_ISFIFO(mode) or S_ISCHR(mode)):
        raise OSError(0, "it is neither a regular file nor a pipe")
    return True


def _write_stream(path: Path, data: bytes | Callable[[Path], object]) -> None:
    """Write to a pipe or device; data that need a path are collected in a temporary file."""
    if not callable(data):
        with path.open("wb") as stream:
            stream.write(data)
        return
    with TemporaryDirectory(prefix="coblock-") as folder:
        complete = Path(folder) / "data"
        data(complete)
        with complete.open("rb") as source, path.open("wb") as stream:
            shutil.copyfileobj(source, stream)


def _refusal(path: str | Path, error: OSError) -> WriteError:
    reason = _ADVICE.get(error.errno or 0, f"{error.strerror or error}. Choose another place")
    return WriteError(f"{path} cannot be written: {reason}.")


def _staging(target: Path) -> Path:
    """Make a temporary folder on the disk of the target: in it, or in the nearest one above."""
    place = target
    while not place.exists():
        place = place.parent
    staging = place / f".coblock-{secrets.token_hex(8)}.tmp"
    staging.mkdir()
    return staging


def _move_all(staging: Path, target: Path) -> None:
    """Give the files their names; nothing is moved where a folder or a device is in the way."""
    target.mkdir(parents=True, exist_ok=True)
    paths = sorted(staging.iterdir())
    for path in paths:
        if (target / path.name).is_dir():
            raise _refusal(target / path.name, IsADirectoryError(errno.EISDIR, ""))
        if (target / path.name).exists() and not (target / path.name).is_file():
            raise _refusal(target / path.name, OSError(0, "it is not a regular file"))
    for path in paths:
        path.replace(target / path.name)
    _sync_folder(target)


def remove_leftovers(path: str | Path) -> None:
    """Remove temporary files that killed processes have left of this one."""
    target = Path(os.path.realpath(path))
    for leftover in target.parent.glob(f"{_beginning(target)}*.tmp"):
        with suppress(OSError):  # somebody else's; it does no harm
            leftover.unlink()


def _beginning(path: Path) -> str:
    """Return how the names of the temporary files of a file begin; never too long."""
    return f".coblock-{blake2b(os.fsencode(path.name), digest_size=4).hexdigest()}-"


def _write_and_rename(path: Path, data: bytes | Callable[[Path], object]) -> None:
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    temporary = path.parent / f"{_beginning(path)}{secrets.token_hex(8)}.tmp"
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
