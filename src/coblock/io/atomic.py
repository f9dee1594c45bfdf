"""Atomic output: a file, or all files of a folder, are written completely or not at all.

The system releases the lock of a process that ends or is killed.
"""

import errno
import os
import secrets
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import partial
from hashlib import blake2b
from pathlib import Path
from socket import gethostname
from stat import S_ISCHR, S_ISDIR, S_ISFIFO, S_ISREG
from tempfile import TemporaryDirectory
from typing import IO, TypeAlias

from coblock.io import printable

Fill: TypeAlias = Callable[[Path], object]  # writes files to the folder that it is given
NEW, OLD = ".coblock-new", ".coblock-old"  # files on their way into the folder, and out of it
STAGING = ".coblock-files-"  # new files of the folder, not yet complete
# A link could lead to a file of somebody else; text mode would change line ends.
FLAGS = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
_REASONS = {
    errno.ENOSPC: "the disk is full. Free some space, or choose another place",
    errno.EDQUOT: "the disk quota is used up. Free some space, or choose another place",
    errno.EROFS: "the disk is read-only. Choose another place",
    errno.EACCES: "you may not write in this folder. Choose another place",
    errno.EPERM: "you may not write in this folder. Choose another place",
    errno.ENOENT: "its folder does not exist. Create the folder first",
    errno.ENOTDIR: "its folder is a file. Choose another place",
    errno.EEXIST: "its folder is a file. Choose another place",
    errno.EFBIG: "the file would be larger than the system allows. Choose another place",
    errno.EISDIR: "it is a folder. Name a file",
    errno.ENAMETOOLONG: "the name is too long. Choose a shorter one",
}


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


class WriteError(OSError):
    """A file could not be written; an earlier file of that name is unchanged."""


class InUseError(WriteError):
    """Another process writes to this checkpoint or folder."""


def write_atomic(path: str | Path, data: bytes | Callable[[Path], object]) -> None:
    """Write a file so that a crash at any time leaves the complete old or the complete new one.

    ``data`` is the content, or a function that writes it to the path that it is given. It is
    written to a temporary file in the same folder, which is synchronised with the disk and then
    renamed. A symbolic link is followed, and the permissions of an earlier file are kept. A pipe or
    a character device (``/dev/stdout``, ``/dev/null``) is written to and never replaced; any other
    special file is refused. A :class:`WriteError` says why the file cannot be written.
    """
    write = data if callable(data) else lambda temporary: temporary.write_bytes(data)
    with _plain_errors(path):
        if not _is_stream(path):
            _write_and_rename(Path(os.path.realpath(path)), write)
        elif not callable(data):
            write(Path(path))
        else:
            with TemporaryDirectory(prefix="coblock-") as folder:
                complete = Path(folder) / "data"
                write(complete)
                with complete.open("rb") as source, Path(path).open("wb") as stream:
                    shutil.copyfileobj(source, stream)


@contextmanager
def claim_folder(folder: str | Path) -> Iterator[Callable[[Fill], None]]:
    """Keep other processes from writing to a folder; yield a function that writes its files.

    That function is given another one, which writes the files to a temporary folder on the same
    disk. A new folder appears by one rename. In an existing one, earlier files of the same names
    are replaced and other files are kept; an error leaves all as they were, and moves that a kill
    has interrupted are completed by the next claim. Missing parents are created. A folder that
    cannot be written is refused here, before a long computation.
    """
    target = Path(os.path.realpath(folder))
    make_parents(target)
    with hold(folder):
        with _plain_errors(folder):
            _recover(target)
            _make_staging_folder(target).rmdir()
        yield partial(_write_files, folder, target)


def make_parents(path: Path) -> None:
    """Create the folders that a path is in, as far as they do not exist."""
    with _plain_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)


def complete_folder(folder: Path) -> None:
    """Complete the files of a folder if a process was killed while it moved them there."""
    if _is_own_folder(folder / NEW):
        with claim_folder(folder):
            pass


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


@contextmanager
def hold(path: str | Path) -> Iterator[None]:
    """Lock a path within the context; an :class:`InUseError` says which process holds it.

    The lock is on a hidden file beside the path, or in a folder whose parent cannot be written.
    The system releases it when the process ends.
    """
    target = Path(os.path.realpath(path))
    inside = target.is_dir() and not os.access(target.parent, os.W_OK)
    lock = (target if inside else target.parent) / f"{_temporary_prefix(target)}.lock"
    with _plain_errors(path):
        file = try_lock(lock)
        if file is None:
            holder = ""
            with suppress(FileNotFoundError):  # it has been released since
                holder = printable(lock.read_text("utf-8", "replace")[:100])
            user = holder or "another process"
            msg = f"{path} is in use: {user} writes to it. Wait for its end, or choose another."
            raise InUseError(msg)
        now = datetime.now().astimezone().isoformat(" ", "seconds")
        file.seek(0)
        file.truncate()
        file.write(f"process {os.getpid()} on {gethostname()}, since {now},".encode())
        file.flush()
    try:
        yield
    finally:
        if os.name != "posix":
            file.close()  # Windows does not remove open files
        with suppress(OSError):
            lock.unlink()
        file.close()


def remove_leftovers(path: str | Path) -> None:
    """Remove temporary files of a path that killed processes have left."""
    target = Path(os.path.realpath(path))
    _remove_dead(target.parent.glob(f"{_temporary_prefix(target)}*.tmp"))


def _remove_dead(leftovers: Iterable[Path]) -> None:
    """Remove temporary folders, and those temporary files that no process writes."""
    for leftover in leftovers:
        with suppress(OSError):  # it may belong to another user, and does no harm
            if leftover.is_dir():
                shutil.rmtree(leftover)
            elif (file := try_lock(leftover)) is not None:
                file.close()
                leftover.unlink()


@contextmanager
def _plain_errors(path: str | Path) -> Iterator[None]:
    try:
        yield
    except WriteError:
        raise
    except OSError as error:
        raise _write_error(path, error) from error


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


def _write_and_rename(path: Path, write: Callable[[Path], object]) -> None:
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "")
    remove_leftovers(path)
    temporary = path.parent / f"{_temporary_prefix(path)}{secrets.token_hex(8)}.tmp"
    try:
        file = try_lock(temporary)  # a new file with the default permissions
        assert file is not None
        with file:
            mode = (path if path.exists() else temporary).stat().st_mode
            write(temporary)
            temporary.chmod(mode)
            os.fsync(file.fileno())
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
    """Create a temporary folder on the disk of the target: in it, or beside it."""
    name = f"{secrets.token_hex(8)}.tmp"
    beside = target.parent / f"{_temporary_prefix(target)}{name}"
    staging = target / f"{STAGING}{name}" if target.exists() else beside
    staging.mkdir()
    return staging


def _write_files(folder: str | Path, target: Path, fill: Fill) -> None:
    """Write files to a temporary folder and move them to the target, all or none."""
    staging = None
    try:
        staging = _make_staging_folder(target)
        fill(staging)
        if target.exists():
            staging.replace(target / NEW)  # from here on, a kill leaves all new files
            _move_files(target)
        else:
            staging.replace(target)
            _sync_folder(target.parent)
    except WriteError as error:
        raise WriteError(str(error).replace(str(staging), str(folder))) from error
    except OSError as error:
        raise _write_error(folder, error) from error
    finally:
        if staging is not None:
            shutil.rmtree(staging, ignore_errors=True)  # only the first error is reported


def _check_places(target: Path, names: Iterable[str]) -> None:
    """Refuse to replace a folder or a special file."""
    for place in (target / name for name in names):
        if place.is_dir():
            raise _write_error(place, IsADirectoryError(errno.EISDIR, ""))
        if place.exists() and not place.is_file():
            raise _write_error(place, OSError(0, "it is not a regular file"))


def _move_files(target: Path) -> None:
    """Move all files of the folder NEW to the target; an error moves the earlier ones back."""
    new, old = target / NEW, target / OLD
    old.mkdir(exist_ok=True)
    names = sorted(path.name for path in new.iterdir())
    try:
        _check_places(target, names)
        for name in names:
            if (target / name).exists():
                (target / name).replace(old / name)
            (new / name).replace(target / name)
    except OSError as error:
        for name in names:
            if not (new / name).exists():
                (target / name).replace(new / name)
            if (old / name).exists():
                (old / name).replace(target / name)
        shutil.rmtree(new)
        old.rmdir()
        if isinstance(error, WriteError):
            raise
        raise _write_error(target / name, error) from error
    _sync_folder(target)
    new.rmdir()
    shutil.rmtree(old)


def _recover(target: Path) -> None:
    """Complete or remove what a killed process has left; the target is locked."""
    remove_leftovers(target)
    if _is_own_folder(target / NEW):
        _move_files(target)
    if _is_own_folder(target / OLD):
        shutil.rmtree(target / OLD)
    inside = target.glob(".coblock-*.tmp")
    _remove_dead(path for path in inside if path.is_file() or path.name.startswith(STAGING))


def _is_own_folder(folder: Path) -> bool:
    """Return whether there is such a folder; a link would lead to the files of others."""
    return folder.is_dir() and not folder.is_symlink()


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
