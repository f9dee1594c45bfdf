"""Folders: all files of a result are written, or none."""

import os
from pathlib import Path

import pytest

from coblock.io import atomic
from coblock.io.atomic import Fill, WriteError, claim_folder, write_atomic


def write_folder(folder: Path, fill: Fill) -> None:
    with claim_folder(folder) as write:
        write(fill)


def write_two_files(place: Path) -> None:
    write_atomic(place / "a", b"new a")
    write_atomic(place / "b", b"new b")


def contents(folder: Path) -> dict[str, bytes]:
    found = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


@pytest.mark.parametrize("below", ["o", "o/p/q"])
def test_a_new_folder(tmp_path, below):
    write_folder(tmp_path / below, write_two_files)
    assert contents(tmp_path / below) == {"a": b"new a", "b": b"new b"}
    assert len(contents(tmp_path)) == 2


def test_other_files_of_an_old_folder_are_kept(tmp_path):
    (tmp_path / "a").write_bytes(b"old")
    (tmp_path / "c").write_bytes(b"mine")
    write_folder(tmp_path, write_two_files)
    assert contents(tmp_path) == {"a": b"new a", "b": b"new b", "c": b"mine"}


def test_a_link_to_a_folder_is_followed(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    write_folder(tmp_path / "link", write_two_files)
    assert (tmp_path / "link").is_symlink()
    assert set(contents(tmp_path / "real")) == {"a", "b"}


@pytest.mark.parametrize("exists", [True, False])
@pytest.mark.parametrize("error", [OSError(28, "full"), RuntimeError("bug"), KeyboardInterrupt()])
def test_a_failure_leaves_no_new_file(tmp_path, exists, error):
    if exists:
        (tmp_path / "o").mkdir()
        (tmp_path / "o" / "a").write_bytes(b"old")
    before = contents(tmp_path)

    def fail(place: Path) -> None:
        write_two_files(place)
        raise error

    with pytest.raises(WriteError if isinstance(error, OSError) else type(error)):
        write_folder(tmp_path / "o", fail)
    assert contents(tmp_path) == before
    assert (tmp_path / "o").exists() is exists


def test_the_message_names_the_final_path(tmp_path, monkeypatch):
    def full(_: object) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(WriteError) as refusal:
        write_folder(tmp_path / "o", write_two_files)
    assert str(refusal.value).startswith(f"{tmp_path / 'o' / 'a'} cannot be written: the disk is")


def test_a_folder_with_the_name_of_a_file_is_refused(tmp_path):
    (tmp_path / "a").write_bytes(b"old")
    (tmp_path / "b").mkdir()
    with pytest.raises(WriteError, match=r"b cannot be written: it is a folder"):
        write_folder(tmp_path, write_two_files)
    assert contents(tmp_path) == {"a": b"old"}


def test_folders_are_checked_before_they_are_written(tmp_path):
    for place in (".", "new", "deep/new"):
        with claim_folder(tmp_path / place):
            pass
    assert [path.name for path in tmp_path.rglob("*")] == ["deep"], "only parents are made"
    (tmp_path / "file").write_bytes(b"")
    for place in ("file", "file/below"):
        with pytest.raises(WriteError, match="is a file"), claim_folder(tmp_path / place):
            pass


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
def test_a_pipe_with_the_name_of_a_file_is_refused_and_kept(tmp_path):
    os.mkfifo(tmp_path / "b")
    with pytest.raises(WriteError, match="b cannot be written: it is not a regular file"):
        write_folder(tmp_path, write_two_files)
    assert (tmp_path / "b").is_fifo()
    assert contents(tmp_path) == {}


class KilledError(BaseException):
    """Stands for a kill: nothing is cleaned up."""


def renames(monkeypatch, number: int, error: BaseException) -> None:
    """Let the rename of this number, and none before, fail with an error."""
    replace, done = Path.replace, []

    def counted(self: Path, target: Path) -> Path:
        done.append(target)
        if len(done) == number:
            raise error
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", counted)


def old_folder(folder: Path) -> Path:
    folder.mkdir()
    for name in ("a", "b", "c"):
        (folder / name).write_bytes(b"old " + name.encode())
    return folder


@pytest.mark.parametrize("number", range(1, 8))
def test_a_file_that_cannot_be_replaced_leaves_the_old_folder(tmp_path, monkeypatch, number):
    folder = old_folder(tmp_path / "o")
    before = contents(folder)
    renames(monkeypatch, number, PermissionError(13, ""))
    with pytest.raises(WriteError, match="may not write"):
        write_folder(folder, write_two_files)
    assert contents(folder) == before
    assert list(tmp_path.rglob(".coblock*")) == []


@pytest.mark.parametrize("reader", [False, True])
@pytest.mark.parametrize("number", range(1, 8))
def test_the_next_run_completes_or_removes_what_a_kill_has_left(
    tmp_path, monkeypatch, number, reader
):
    folder = old_folder(tmp_path / "o")
    before = contents(folder)
    new = before | {"a": b"new a", "b": b"new b"}
    with monkeypatch.context() as patched:
        renames(patched, number, KilledError())
        patched.setattr(atomic.shutil, "rmtree", lambda *_, **__: None)
        with pytest.raises(KilledError):
            write_folder(folder, write_two_files)
    if reader:
        atomic.complete_folder(folder)
        found = {name: data for name, data in contents(folder).items() if "/" not in name}
        assert found in (before, new)
    with claim_folder(folder):
        assert contents(folder) in (before, new)
        assert list(tmp_path.rglob(".coblock*.tmp")) == []
    write_folder(folder, write_two_files)
    assert contents(folder) == new
    assert [path.name for path in tmp_path.rglob(".coblock*")] == []


def test_a_new_folder_appears_by_one_rename(tmp_path, monkeypatch):
    seen, replace = [], Path.replace

    def look(self: Path, target: Path) -> None:
        if target == tmp_path / "o":
            seen.append((target.exists(), set(contents(self))))
        replace(self, target)

    monkeypatch.setattr(Path, "replace", look)
    write_folder(tmp_path / "o", write_two_files)
    assert seen == [(False, {"a", "b"})]


def test_files_of_processes_that_write_are_not_removed(tmp_path):
    def write(temporary: Path) -> None:
        temporary.write_bytes(b"first")
        write_atomic(tmp_path / "a", b"second")
        assert temporary.read_bytes() == b"first"

    write_atomic(tmp_path / "a", write)
    assert contents(tmp_path) == {"a": b"first"}


def test_a_link_in_place_of_files_on_their_way_is_not_followed(tmp_path):
    folder, elsewhere = old_folder(tmp_path / "o"), tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "c").write_bytes(b"precious")
    for name in (atomic.NEW, atomic.OLD):
        (folder / name).symlink_to(elsewhere)
    atomic.complete_folder(folder)
    with claim_folder(folder):
        assert (folder / "c").read_bytes() == b"old c"
    assert (elsewhere / "c").read_bytes() == b"precious"
