"""Atomic output: a file, or all files of a folder, are written completely or not at all."""

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

_REASONS = {
    errno.ENOSPC: "the disk is full. Free some space, or choose another place",
    errno.EDQUOT: "the disk quota is used up. Free some space, or choose another place",
    errno.EROFS: "the disk is read-only. Choose another place",
    errno.EACCES: "you may not write in this folder. Choose another place",
    errno.EPERM: "you may not write in this folder. Choose another place",
    errno.ENOENT: "its folder does not exist. Create the folder first",
    errno.ENOTDIR: "its folder is a file. Choose another place",
    errno.EFBIG: "the file would be larger than the system allows. Choose another place",
    errno.EISDIR: "it is a folder. Name a file",
    errno.ENAMETOOLONG: "the name is too long. Choose a shorter one",
}


class WriteError(OSError):
    """A file could not be written; an earlier file of that name is unchanged."""


def write_atomic(path: str | Path, data: bytes | Callable[[Path], object]) -> None:
    """Write a file so that a crash at any time leaves the complete old or the complete new one.

    ``data`` is the content, or a function that writes it to the path that it is given. It is
    written to a temporary file in the same folder, which is synchronised with the disk and then
    renamed. A symbolic link is followed, and the permissions of an earlier file are kept. A pipe or
    a character device (``/dev/stdout``, ``/dev/null``) is written to and never replaced; any other
    special file is refused. A :class:`WriteError` says why the file cannot be written.
    """
    try:
        if _is_stream(path):
            _write_stream(Path(path), data)
        else:
            _write_and_rename(Path(os.path.realpath(path)), data)
    except OSError as error:
        raise _write_error(path, error) from error


def write_folder(folder: str | Path, fill: Callable[[Path], object]) -> None:
    """Write several files to a folder so that a failure leaves none of them.

    ``fill`` writes the files to the temporary folder that it is given, on the same disk. They are
    moved when all are complete. Earlier files of the same names are replaced; other files of the
    folder are kept. The folder is created if it does not exist.
    """
    target = Path(os.path.realpath(folder))
    staging = None
    try:
        staging = _make_staging_folder(target)
        fill(staging)
        _move_files(staging, target)
    except WriteError as error:
        msg = str(error).replace(str(staging), str(folder))
        raise WriteError(msg) from error
    except OSError as error:
        raise _write_error(folder, error) from error
    finally:
        if staging is not None:
            shutil.rmtree(staging, ignore_errors=True)  # only the first error is reported


def check_writable(folder: str | Path) -> None:
    """Refuse, before a long computation, a folder that files cannot be written to."""
    try:
        _make_staging_folder(Path(os.path.realpath(folder))).rmdir()
    except OSError as error:
        raise _write_error(folder, error) from error


def remove_leftovers(path: str | Path) -> None:
    """Remove temporary files of a path that killed processes have left."""
    target = Path(os.path.realpath(path))
    for leftover in target.parent.glob(f"{_temporary_prefix(target)}*.tmp"):
        with suppress(OSError):  # it may belong to another user, and does no harm
            leftover.unlink()


def _write_error(path: str | Path, error: OSError) -> WriteError:
    reason = _REASONS.get(error.errno or 0, f"{error.strerror or error}. Choose another place")
    return WriteError(f"{path} cannot be written: {reason}.")


def _is_stream(path: str | Path) -> bool:
    """Return whether the path is a pipe or a character device; refuse other special files."""
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116 - the path as given: links are followed
    except OSError:
        return False  # a new path, or one with a wrong parent, which writing reports
    if S_ISREG(mode) or S_ISDIR(mode):
        return False
    if not (S_ISFIFO(mode) or S_ISCHR(mode)):
        raise OSError(0, "it is neither a regular file nor a pipe")
    return True


def _write_stream(path: Path, data: bytes | Callable[[Path], object]) -> None:
    """Write to a pipe or device; a function writes to a temporary file that is then copied."""
    if not callable(data):
        with path.open("wb") as stream:
            stream.write(data)
        return
    with TemporaryDirectory(prefix="coblock-") as folder:
        complete = Path(folder) / "data"
        data(complete)
        with complete.open("rb") as source, path.open("wb") as stream:
            shutil.copyfileobj(source, stream)


def _write_and_rename(path: Path, data: bytes | Callable[[Path], object]) -> None:
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "")
    temporary = path.parent / f"{_temporary_prefix(path)}{secrets.token_hex(8)}.tmp"
    try:
        temporary.open("xb").close()  # with the default permissions of new files
        mode = (path if path.exists() else temporary).stat().st_mode
        if callable(data):
            data(temporary)
        else:
            temporary.write_bytes(data)
        temporary.chmod(mode)
        _sync(temporary)
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):  # only the first error is reported
            temporary.unlink()
        raise
    _sync_folder(path.parent)


def _temporary_prefix(path: Path) -> str:
    """Return the beginning of the names of a file's temporary files; the length is fixed."""
    return f".coblock-{blake2b(os.fsencode(path.name), digest_size=4).hexdigest()}-"


def _make_staging_folder(target: Path) -> Path:
    """Create a temporary folder on the disk of the target: in it, or in its nearest parent."""
    parent = target
    while not parent.exists():
        parent = parent.parent
    staging = parent / f".coblock-{secrets.token_hex(8)}.tmp"
    staging.mkdir()
    return staging


def _move_files(staging: Path, target: Path) -> None:
    """Move all files to the target, or none if a folder or a special file has one of the names."""
    target.mkdir(parents=True, exist_ok=True)
    moves = [(path, target / path.name) for path in sorted(staging.iterdir())]
    for _, new in moves:
        if new.is_dir():
            raise _write_error(new, IsADirectoryError(errno.EISDIR, ""))
        if new.exists() and not new.is_file():
            raise _write_error(new, OSError(0, "it is not a regular file"))
    for path, new in moves:
        path.replace(new)
    _sync_folder(target)


def _sync(path: Path) -> None:
    with path.open("r+b") as file:
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    """Synchronise a new name with the disk, on systems that can open folders."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in {errno.EINVAL, errno.ENOTSUP}:  # some network disks cannot do this
            raise
    finally:
        os.close(handle)
