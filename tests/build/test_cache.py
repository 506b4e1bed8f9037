"""The cache of cubins, and files that are saved at once: a reader never finds a part of one."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from accprobe.build import atomic, cache, compiler
from accprobe.errors import AccprobeError

COMPILED = b"\x7fELF as the compiler would write it"


@pytest.fixture
def compiles(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The sources that the compiler was asked for, in a cache of its own."""
    monkeypatch.setenv("ACCPROBE_CACHE_DIR", str(tmp_path / "cache"))
    asked: list[str] = []

    def nvrtc(code: str, target: str, name: str) -> bytes:
        asked.append(code)
        return COMPILED + target.encode()

    monkeypatch.setattr(compiler, "_nvrtc", nvrtc)
    monkeypatch.setattr(compiler, "compiler_version", lambda: "13.0")
    return asked


@pytest.mark.parametrize("change", ["source", "target", "compiler"])
def test_another_source_target_or_compiler_is_compiled(
    compiles: list[str], monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    compiler.compile_source("code", "sm_90a", "x")
    if change == "compiler":
        monkeypatch.setattr(compiler, "compiler_version", lambda: "13.1")
    compiler.compile_source("other" if change == "source" else "code", "sm_80" if change == "target" else "sm_90a", "x")
    assert len(compiles) == 2


@pytest.mark.parametrize("damage", ["cubin cut", "cubin gone", "entry cut", "entry of another kind"])
def test_damaged_cache_is_built_again(compiles: list[str], damage: str) -> None:
    first = compiler.compile_source("code", "sm_90a", "x")
    (entry,) = first.path.parent.glob("*.json")
    match damage:
        case "cubin cut":
            first.path.write_bytes(first.path.read_bytes()[:10])
        case "cubin gone":
            first.path.unlink()
        case "entry cut":
            entry.write_text("{")
        case _:
            entry.write_text("[]")
    again = compiler.compile_source("code", "sm_90a", "x")
    assert again.path.read_bytes() == COMPILED + b"sm_90a"
    compiler.compile_source("code", "sm_90a", "x")
    assert len(compiles) == 2


def test_cache_folder_that_cannot_be_made_says_what_to_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("ACCPROBE_CACHE_DIR", str(tmp_path / "file" / "cache"))
    with pytest.raises(AccprobeError, match="set ACCPROBE_CACHE_DIR"):
        cache.cache_folder()


def test_who_fills_the_cache_is_waited_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ACCPROBE_CACHE_DIR", str(tmp_path))
    with cache.one_at_a_time("golden"), (tmp_path / "golden.lock").open() as other, pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with cache.one_at_a_time("golden"):
        (tmp_path / "golden.lock").unlink()  # as who clears the cache meanwhile does


def test_the_folder_and_what_is_in_it_are_this_users_alone(compiles: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    before = os.umask(0)
    try:
        folder = compiler.compile_source("code", "sm_90a", "x").path.parent
    finally:
        os.umask(before)
    assert [oct(path.stat().st_mode & 0o777) for path in (folder, *folder.iterdir())] == ["0o700", "0o600", "0o600"]


@pytest.mark.parametrize("what", ["folder", "entry", "cubin"])
@pytest.mark.parametrize(
    ("change", "words"),
    [("owner", r"belongs to another user \(uid \d+\)"), (0o775, r"\(mode 0775\)"), (0o757, r"\(mode 0757\)")],
)
def test_what_others_could_have_written_is_refused(
    compiles: list[str], monkeypatch: pytest.MonkeyPatch, what: str, change: str | int, words: str
) -> None:
    cubin = compiler.compile_source("code", "sm_90a", "x").path
    (entry,) = cubin.parent.glob("*.json")
    planted = {"folder": cubin.parent, "entry": entry, "cubin": cubin}[what]
    if isinstance(change, int):
        planted.chmod(change)
    else:
        number, check = planted.stat().st_ino, cache._check_owner

        def owned_by_another(name: str, found: os.stat_result) -> None:
            uid = found.st_uid + (found.st_ino == number)
            check(name, os.stat_result((*found[:4], uid, *found[5:])))

        monkeypatch.setattr(cache, "_check_owner", owned_by_another)
    with pytest.raises(AccprobeError, match=f"{planted.name} .*{words}: remove it, or set ACCPROBE_CACHE_DIR to a folder"):
        compiler.compile_source("code", "sm_90a", "x")
    assert compiles == ["code"]


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
