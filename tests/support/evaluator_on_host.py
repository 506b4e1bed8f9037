"""The evaluator for GPUs, compiled for the CPU: the same source, thread after thread."""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from functools import cache
from pathlib import Path

ON_HOST = Path(__file__).with_name("evaluator_on_host.h")
FLAGS = ("-std=c++17", "-O1", "-w", "-shared", "-fPIC")


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


@cache
def library(source: str) -> ctypes.CDLL:
    """The evaluator whose CUDA C++ this is. Needs g++."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "evaluator.cpp"
        place.write_text(f"{source}\n{ON_HOST.read_text()}")
        made = place.with_suffix(".so")
        built = subprocess.run(["g++", *FLAGS, "-o", made, place], capture_output=True, text=True)
        assert built.returncode == 0, built.stderr
        return ctypes.CDLL(str(made))
