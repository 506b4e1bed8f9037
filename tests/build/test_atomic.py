"""A file that is saved at once: a reader never finds a part of it."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from accprobe.build import atomic


def test_a_writer_that_fails_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "kept"
    atomic.save(path, b"before")
    write = Path.write_bytes

    def half(self: Path, content: bytes) -> int:
        write(self, content[: len(content) // 2])
        raise OSError("no space left")

    monkeypatch.setattr(Path, "write_bytes", half)
    with pytest.raises(OSError, match="no space left"):
        atomic.save(path, b"after")
    assert path.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [path]


def test_several_writers_leave_one_of_them_whole(tmp_path: Path) -> None:
    path = tmp_path / "shared"
    contents = [bytes([i]) * 100_000 for i in range(8)]
    threads = [threading.Thread(target=atomic.save, args=(path, content)) for content in contents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert path.read_bytes() in contents
    assert list(tmp_path.iterdir()) == [path]


def test_it_is_as_readable_as_any_other_file(tmp_path: Path) -> None:
    (tmp_path / "plain").write_bytes(b"")
    atomic.save(tmp_path / "saved", b"")
    assert (tmp_path / "saved").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_link_stays_one(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "target")
    atomic.save(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_bytes() == b"new"


def test_what_is_no_regular_file_is_written_in_place(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    atomic.save(pipe, b"through")
    assert os.read(reader, 100) == b"through"
    assert pipe.is_fifo()
    os.close(reader)
