"""Kernels of a call, and what computes on this machine. All kernels here are made up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from accprobe.audit import ncu
from accprobe.errors import AccprobeError
from accprobe.gemm.callables import machine
from accprobe.gemm.callables.adapter import CallableAdapter
from accprobe.gemm.callables.arrays import NumpyArrays, open_arrays
from accprobe.gemm.callables.machine import cublas_version, device_record, empty_report, library_versions
from accprobe.gemm.spec import Spec
from accprobe.isa.formats import FORMATS
from accprobe.sass.reading import Function, Line

HMMA = "HMMA.16816.F32"


class OnGpu(NumpyArrays):
    device = "cuda:0"


@pytest.fixture
def called() -> CallableAdapter:
    f32 = FORMATS["f32"]
    return CallableAdapter(Spec(2, 2, 4, f32, f32, f32), np.matmul, OnGpu(), "mine")


def profiled(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    monkeypatch.setattr(machine, "_profiled", lambda called: (Counter(names), () if names else ("kernels: none",)))


def test_the_profiler_counts_opcodes_of_a_librarys_kernel(called: CallableAdapter, monkeypatch: pytest.MonkeyPatch) -> None:
    def launches(command: list[str]) -> Iterator[ncu.Launch]:
        assert command[1:] == ["-m", "accprobe.gemm", "torch:mm", "…"]
        lines = (Line(0, "", HMMA, "R0"), Line(16, "", "FADD", "R0"))
        for name, kernel in (("gemm", lines), ("fill", lines[1:]), ("gemm", lines)):
            yield ncu.Launch(Function(name, "", kernel, {}), (8,) * len(kernel))

    profiled(monkeypatch, "gemm")
    monkeypatch.setattr(ncu, "launches", launches)
    seen = machine.kernels_of(called, ["torch:mm", "…"])
    assert [(k.name, k.opcodes, k.launches) for k in seen.kernels] == [("gemm", (HMMA,), 2)]


def test_what_cannot_be_seen_says_why(called: CallableAdapter, monkeypatch: pytest.MonkeyPatch) -> None:
    profiled(monkeypatch, "gemm")
    seen, (why,) = machine.kernels_of(called)
    assert [kernel.name for kernel in seen] == ["gemm"]
    assert why.startswith("opcodes: not read")

    def refused(command: list[str]) -> Iterator[Any]:
        raise AccprobeError("the driver lets root alone read performance counters")

    monkeypatch.setattr(ncu, "launches", refused)
    seen, (why,) = machine.kernels_of(called, ["torch:mm"])
    assert [kernel.name for kernel in seen] == ["gemm"]
    assert why == "opcodes: the driver lets root alone read performance counters"


def test_a_cpu_has_no_kernels_and_says_whose_product_it_is() -> None:
    f32 = FORMATS["f32"]
    library = open_arrays("numpy")
    mine = CallableAdapter(Spec(2, 2, 4, f32, f32, f32), np.matmul, library, "mine")
    assert machine.kernels_of(mine) == ((), ())
    counted = machine.kernels_of(mine, ["numpy:matmul"])
    assert counted == ((), (machine.NOTHING_TO_COUNT,))
    versions = library_versions(library)
    assert versions["numpy"] == np.__version__
    assert "BLAS" in versions["blas"].upper() or "MKL" in versions["blas"].upper()
    assert int(versions["threads"]) >= 1
    record = device_record(library)
    assert (record.kind, bool(record.name), bool(record.architecture)) == ("cpu", True, True)
    assert empty_report(library, 3).device == record


def test_cublas_is_asked_only_where_it_is_loaded(tmp_path: Path) -> None:
    maps = tmp_path / "maps"
    maps.write_text("7f00-7f01 r--p 0 0:0 1 /usr/lib/libc.so.6\n")
    assert cublas_version(maps) == cublas_version(tmp_path / "gone") == ""
    maps.write_text("7f00-7f01 r--p 0 0:0 1 /no/such/libcublasLt.so.13\n")
    assert cublas_version(maps) == ""
