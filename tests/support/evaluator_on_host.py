"""Device code compiled for the CPU; the evaluator for GPUs runs thread after thread."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import pytest

ON_HOST = Path(__file__).with_name("evaluator_on_host.h")
FLAGS = ("-std=c++17", "-O1", "-ffp-contract=off", "-w", "-shared", "-fPIC")

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler")


class Job(ctypes.Structure):
    """`Job` of evaluator.cu."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in "abcd"),
        *((name, ctypes.c_uint64) for name in ("rows", "columns")),
        *((name, ctypes.c_uint32) for name in ("blocks", "promote")),
    )


class Differences(ctypes.Structure):
    """`Differences` of evaluator.cu."""

    _fields_ = (*((name, ctypes.c_void_p) for name in ("expected", "count", "found")), ("most", ctypes.c_uint32))


def library(source: str) -> ctypes.CDLL:
    """Return the evaluator of that CUDA C++."""
    return compiled(f"{source}\n{ON_HOST.read_text()}")


@cache
def compiled(code: str) -> ctypes.CDLL:
    """Return the library of C++ code."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "code.cpp"
        place.write_text(code)
        made = place.with_suffix(".so")
        built = subprocess.run(["g++", *FLAGS, "-o", made, place], capture_output=True, text=True)
        assert built.returncode == 0, built.stderr
        return ctypes.CDLL(str(made))
