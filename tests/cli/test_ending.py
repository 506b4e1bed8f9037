"""Programs whose libraries abort as they end, callables that end the process, and signals to the parent."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from heeding import heed_ctrl_c

from accprobe import __version__
from accprobe.report.report import Report

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


ENDING = r"""import os, signal, time
import numpy as np
def product(a, b, *, end=""):
    if len(a) == 16:
        if end == "os": os._exit(0)
        if end == "crash": os.kill(os.getpid(), signal.SIGSEGV)
        os.write(2, b"waiting\n")
        time.sleep(30)
    return a @ b
"""


@pytest.fixture
def command(tmp_path: Path) -> list[str]:
    (tmp_path / "ending.py").write_text(ENDING)
    shapes = ["--shape", "4x4x8", "--shape", "16x4x8", "--elements", "16"]
    return [sys.executable, "-m", "accprobe", "gemm", "ending.py:product", *shapes, "-o", "kept.json"]


@pytest.mark.parametrize(("end", "how"), [("os", "with exit status 0"), ("crash", "by SIGSEGV")])
def test_a_callable_that_ends_the_process_is_an_error_that_keeps_rows(
    command: list[str], tmp_path: Path, end: str, how: str
) -> None:
    done = subprocess.run([*command, "--option", f"end={end}"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    sentence = (
        f"accprobe: ending.py:product ended the process {how} in a call or its import: let it return, or raise an exception"
    )
    assert done.stderr == f"{sentence}; kept.json has what was finished\n"
    assert [row.shape for row in Report.load(tmp_path / "kept.json").products] == ["4x4x8"]


def test_a_signal_to_the_parent_ends_the_command_as_ever(command: list[str], tmp_path: Path) -> None:
    running = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, preexec_fn=heed_ctrl_c)
    assert running.stderr is not None
    assert running.stderr.readline() == "waiting\n"
    running.send_signal(signal.SIGTERM)
    _, said = running.communicate(timeout=60)
    assert (running.returncode, said) == (130, "accprobe: interrupted: kept.json has 1 product\n")
