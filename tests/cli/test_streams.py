"""What the command does with standard streams that fail it: whole processes, as a shell starts them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from long_tail import some

from accprobe.cli import streams
from accprobe.cli.output import tell

ACCPROBE = [sys.executable, "-m", "accprobe"]
BUFFERED = pytest.mark.parametrize("unbuffered", ["", "1"], ids=["buffered", "unbuffered"])


def ran(*arguments: str, env: dict[str, str] | None = None, **streams: Any) -> subprocess.CompletedProcess[bytes]:
    given = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL} | streams
    return subprocess.run([*ACCPROBE, *arguments], env=os.environ | (env or {}), timeout=60, **given)


def in_shell(command: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["bash", "-c", command.replace("accprobe", " ".join(ACCPROBE), 1)], capture_output=True, timeout=60)


@pytest.mark.parametrize(
    ("arguments", "unbuffered"),
    some([("show h200", ""), ("show h200 --format json", "1"), ("list", "1"), ("--help", "")], 2),
)
def test_a_full_disk_is_told_and_nothing_else(arguments: str, unbuffered: str) -> None:
    with open("/dev/full", "w") as full:
        done = ran(*arguments.split(), env={"PYTHONUNBUFFERED": unbuffered}, stdout=full)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1:] == [b"accprobe: the output cannot be written: No space left on device"]
    assert b"ignored" not in done.stderr


@BUFFERED
def test_what_is_taken_in_parts_is_written_whole_or_told(unbuffered: str, tmp_path: Path) -> None:
    """A file that may have 64 KiB takes the first part of a large write, and the next fails: as a disk that fills up."""
    command = f"ulimit -f 64; trap '' XFSZ; PYTHONUNBUFFERED={unbuffered} accprobe show h200 --format json > {tmp_path}/out"
    done = in_shell(command)
    assert (done.returncode, done.stderr) == (2, b"accprobe: the output cannot be written: File too large\n")
    assert (tmp_path / "out").stat().st_size == 64 << 10


@pytest.mark.parametrize("arguments", [pytest.param("show h200", marks=pytest.mark.slow), "list --reports", "--help"])
def test_closed_output_is_told(arguments: str) -> None:
    done = in_shell(f"accprobe {arguments} >&-")
    assert (done.returncode, done.stderr) == (2, b"accprobe: the output cannot be written: Bad file descriptor\n")


def test_errors_that_nobody_can_read_change_nothing() -> None:
    with open("/dev/full", "w") as full:
        assert ran("show", "nothing", stderr=full).returncode == 2
    done = in_shell("accprobe run --device sim:h100 --select 'mma.sync.m16n8k16.s32.s8.s8.s32' --dots 1000 --jobs 1 2>&-")
    assert b"mma.sync.m16n8k16.s32.s8.s8.s32" in done.stdout


@pytest.mark.parametrize("arguments", some(["show h200 --all", "show h200 --format json"]))
def test_a_reader_that_leaves_ends_it_as_it_ends_others(arguments: str) -> None:
    done = in_shell(f"accprobe {arguments} | true; echo ${{PIPESTATUS[0]}}")
    assert (done.stdout, done.stderr) == (b"141\n", b"")


@pytest.mark.parametrize("encoding", some(["ascii", "latin-1"]))
def test_characters_that_the_encoding_lacks_are_spelled(encoding: str) -> None:
    done = ran("diff", "h200", "sim:b200", env={"PYTHONIOENCODING": encoding})
    assert (done.returncode, done.stderr) == (1, b"")
    assert done.stdout.startswith(b"Hopper -> Blackwell: FP8 accumulator 13 -> 23 bits")


def test_what_programs_read_is_utf8_whatever_the_locale() -> None:
    done = ran("diff", "h200", "sim:b200", "--format", "json", env={"PYTHONIOENCODING": "latin-1"})
    assert json.loads(done.stdout)["headline"].startswith("Hopper → Blackwell")


def test_characters_without_a_spelling_are_escaped() -> None:
    error = UnicodeEncodeError("ascii", "≥ é→", 0, 4, "")
    assert streams._spelled(error) == (">= \\xe9->", 4)


@pytest.mark.parametrize(("terminal", "before"), [(True, "\r\x1b[K"), (False, "")])
def test_a_sentence_takes_the_line_of_a_progress_bar(
    terminal: bool, before: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    tell("no GPU found")
    assert capsys.readouterr().err == f"{before}accprobe: no GPU found\n"


NOISY = """
import ctypes, os
print("as it is imported")
os.system("echo a child then")
def f(a, b):
    print("in Python")
    os.system("echo a child")
    ctypes.CDLL(None).puts(b"in C")
    return a @ b
"""


def test_what_a_callable_writes_is_not_in_the_output(tmp_path: Path) -> None:
    (tmp_path / "noisy.py").write_text(NOISY)
    done = ran("gemm", f"{tmp_path}/noisy.py:f", "--shape", "2x2x4", "--elements", "4", "--format", "json")
    assert done.returncode == 0
    assert json.loads(done.stdout)["products"][0]["status"] == "confirmed"
    said = {"as it is imported", "a child then", "in Python", "a child", "in C"}
    assert {line for line in done.stderr.decode().splitlines() if not line.startswith("accprobe: ")} == said
