"""Programs whose libraries abort as they end."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from accprobe import __version__

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
