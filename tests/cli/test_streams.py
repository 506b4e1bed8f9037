"""Whole processes, as a shell starts them: standard streams that fail, and libraries that abort at the end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from accprobe import __version__

ACCPROBE = [sys.executable, "-m", "accprobe"]


def ran(*arguments: str, env: dict[str, str] | None = None, **streams: Any) -> subprocess.CompletedProcess[bytes]:
    given = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL} | streams
    return subprocess.run([*ACCPROBE, *arguments], env=os.environ | (env or {}), timeout=60, **given)


def in_shell(command: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["bash", "-c", command.replace("accprobe", " ".join(ACCPROBE), 1)], capture_output=True, timeout=60)


@pytest.mark.parametrize(("arguments", "unbuffered"), [("list", "1"), ("--help", "")])
def test_a_full_disk_is_told_and_nothing_else(arguments: str, unbuffered: str) -> None:
    with open("/dev/full", "w") as full:
        done = ran(*arguments.split(), env={"PYTHONUNBUFFERED": unbuffered}, stdout=full)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1:] == [b"accprobe: the output cannot be written: No space left on device"]
    assert b"ignored" not in done.stderr


def test_what_is_taken_in_parts_is_written_whole_or_told(tmp_path: Path) -> None:
    """A file that may have 64 KiB takes the first part of a large write, and the next fails: as a disk that fills up."""
    done = in_shell(f"ulimit -f 64; trap '' XFSZ; PYTHONUNBUFFERED=1 accprobe show h200 --format json > {tmp_path}/out")
    assert (done.returncode, done.stderr) == (2, b"accprobe: the output cannot be written: File too large\n")
    assert (tmp_path / "out").stat().st_size == 64 << 10


def test_closed_output_is_told() -> None:
    done = in_shell("accprobe --help >&-")
    assert (done.returncode, done.stderr) == (2, b"accprobe: the output cannot be written: Bad file descriptor\n")


def test_errors_that_nobody_can_read_change_nothing() -> None:
    with open("/dev/full", "w") as full:
        assert ran("show", "nothing", stderr=full).returncode == 2
    assert b"accprobe" in in_shell("accprobe --version 2>&-").stdout


def test_a_reader_that_leaves_ends_it_as_it_ends_others() -> None:
    done = in_shell("accprobe show h200 --format json | true; echo ${PIPESTATUS[0]}")
    assert (done.stdout, done.stderr) == (b"141\n", b"")


def test_characters_that_the_encoding_lacks_are_escaped() -> None:
    done = ran("diff", "sim:v100", "sim:a2", env={"PYTHONIOENCODING": "ascii"})
    assert (done.returncode, done.stderr) == (1, b"")
    assert done.stdout.startswith(b"Volta \\u2192 Ampere: ")


def test_what_programs_read_is_utf8_whatever_the_locale() -> None:
    done = ran("diff", "sim:v100", "sim:a2", "--format", "json", env={"PYTHONIOENCODING": "latin-1"})
    assert json.loads(done.stdout)["headline"].startswith("Volta → Ampere")


NOISY = """
import ctypes, os
print("as it is imported")
os.system("echo a child then")
said = []
def f(a, b):
    if not said:
        said.append(True)
        print("in Python")
        os.system("echo a child")
        ctypes.CDLL(None).puts(b"in C")
    return a @ b
"""


def test_what_a_callable_writes_is_not_in_the_output(tmp_path: Path) -> None:
    (tmp_path / "noisy.py").write_text(NOISY)
    small = ("--shape", "2x2x4", "--elements", "4", "--arrays", "numpy")
    done = ran("gemm", f"{tmp_path}/noisy.py:f", *small, "--format", "json")
    assert done.returncode == 0
    assert json.loads(done.stdout)["claims"][0]["status"] == "confirmed"
    said = {"as it is imported", "a child then", "in Python", "a child", "in C"}
    assert {line for line in done.stderr.decode().splitlines() if not line.startswith("accprobe: ")} == said


ABORTS = """
import ctypes, sys
libc = ctypes.CDLL(None)
libc.on_exit(libc.abort, None)
sys.argv = ["accprobe", *{arguments}]
sys.modules.update({loaded})
import accprobe.__main__
accprobe.__main__.main()
"""


@pytest.mark.parametrize(("arguments", "status"), [(["--version"], 0), (["show", "no such report"], 2)])
def test_an_abort_of_libraries_beside_torch_is_not_the_exit_status(arguments: list[str], status: int) -> None:
    done = subprocess.run([sys.executable, "-c", ABORTS.format(arguments=arguments, loaded="torch=None")], capture_output=True)
    assert done.returncode == status
    assert bool(status) == (__version__.encode() not in done.stdout)
    assert bool(status) == bool(done.stderr)


def test_elsewhere_libraries_end_as_they_do() -> None:
    done = subprocess.run([sys.executable, "-c", ABORTS.format(arguments=["--version"], loaded="")], capture_output=True)
    assert done.returncode == -signal.SIGABRT
