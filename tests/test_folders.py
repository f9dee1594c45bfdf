"""Folders: all files of a result are written, or none."""

import os
from pathlib import Path

import pytest

import coblock.io.atomic
from coblock.io.atomic import WriteError, check_writable, write_atomic, write_folder


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

    monkeypatch.setattr(coblock.io.atomic, "_sync", full)
    with pytest.raises(WriteError) as refusal:
        write_folder(tmp_path / "o", write_two_files)
    assert str(refusal.value).startswith(f"{tmp_path / 'o' / 'a'} cannot be written: the disk is")


def test_a_folder_with_the_name_of_a_file_is_refused(tmp_path):
    (tmp_path / "a").write_bytes(b"old")
    (tmp_path / "b").mkdir()
    with pytest.raises(WriteError, match=r"b cannot be written: it is a folder"):
        write_folder(tmp_path, write_two_files)
    assert contents(tmp_path) == {"a": b"old"}


def test_folders_are_checked_without_leaving_files(tmp_path):
    check_writable(tmp_path)
    check_writable(tmp_path / "new" / "folder")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_bytes(b"")
    for place in ("file", "file/below"):
        with pytest.raises(WriteError, match="is a file"):
            check_writable(tmp_path / place)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
def test_a_pipe_with_the_name_of_a_file_is_refused_and_kept(tmp_path):
    os.mkfifo(tmp_path / "b")
    with pytest.raises(WriteError, match="b cannot be written: it is not a regular file"):
        write_folder(tmp_path, write_two_files)
    assert (tmp_path / "b").is_fifo()
    assert contents(tmp_path) == {}
