"""Kernels of a call, and remarks about opcodes that contradict the inferred plan. All kernels here are made up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from accprobe.audit import ncu
from accprobe.errors import AccprobeError
from accprobe.gemm.callables import kernels
from accprobe.gemm.callables.adapter import CallableAdapter
from accprobe.gemm.callables.arrays import NumpyArrays, open_arrays
from accprobe.gemm.callables.builtin import Ready
from accprobe.gemm.callables.machine import cublas_version, device_record, empty_report, library_versions
from accprobe.gemm.spec import Spec
from accprobe.gemm.steps import known
from accprobe.infer.findings import Finding
from accprobe.isa.formats import FORMATS
from accprobe.isa.instructions import parse
from accprobe.model.product import ProductModel, chained, multiply_add
from accprobe.report.products import KernelRecord, ProductRow, RegionRecord
from accprobe.sass.lowering import Lowering
from accprobe.sass.reading import Function, Line

WGMMA = "wgmma.m64n8k32.f32.e4m3.e4m3"
H16 = parse("wgmma.m64n8k16.f32.bf16.bf16")
QGMMA = "QGMMA.64x128x32.F32.E4M3.E4M3"
HMMA = "HMMA.16816.F32"
NVJET = "nvjet_sm90_qqsss_128x256_128x4_2x1_v_bz_coopA_TNT"


def of_named(name: str) -> ProductModel:
    inst = parse(name)
    return chained(inst, known("h200")[inst], 128)


def of_multiply_adds(fmt: str) -> ProductModel:
    model = of_named(WGMMA)
    return replace(model, a=FORMATS[fmt], b=FORMATS[fmt], step=multiply_add(), tree=replace(model.tree, pattern=(0,)))


def row(model: ProductModel, *kernels: KernelRecord) -> ProductRow:
    region = RegionRecord(where="all", elements=64, findings={"split_k": Finding(1)}, model=model)
    names = {"a": model.a.name, "b": model.b.name, "out": model.result.name}
    return ProductRow(
        callable="torch:mm", m=8, n=8, k=128, **names, status="inferred", reason="made up", regions=(region,), kernels=kernels
    )


def told(model: ProductModel, name: str, *opcodes: str) -> tuple[str, ...]:
    return kernels.contradictions(row(model, KernelRecord(name=name, opcodes=opcodes)))


def test_opcodes_that_go_with_the_sum_are_no_remark() -> None:
    assert told(of_named(WGMMA), NVJET, QGMMA) == ()
    assert told(of_named(H16.name), NVJET, "HGMMA.64x128x16.F32.BF16") == ()
    assert told(of_multiply_adds("f32"), "sgemm_128x128x8_NN_vec") == ()


def test_a_sum_that_the_unit_does_not_have_is_said_loudly() -> None:
    (remark,) = told(of_multiply_adds("e4m3"), NVJET, QGMMA)
    assert remark == ("CONTRADICTION: QGMMA ran, and the sums have 23 fraction bits; on an H200 it keeps 13 for e4m3")


def test_a_unit_of_other_formats_is_said_to_have_converted() -> None:
    (remark,) = told(of_multiply_adds("e4m3"), "kernel", HMMA)
    assert remark == "CONVERTED: HMMA ran, which does not take e4m3: the kernel converts its operands"
    (remark,) = told(of_multiply_adds("f32"), "kernel", HMMA)
    assert remark.startswith("CONVERTED: HMMA ran, which does not take f32")


class OnGpu(NumpyArrays):
    device = "cuda:0"


@pytest.fixture
def called() -> CallableAdapter:
    f32 = FORMATS["f32"]
    return CallableAdapter(Spec(2, 2, 4, f32, f32, f32), np.matmul, OnGpu(), "mine")


def profiled(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    monkeypatch.setattr(kernels, "_profiled", lambda called: (Counter(names), () if names else ("kernels: none",)))


def test_the_opcodes_of_our_kernel_are_those_of_its_cubin(called: CallableAdapter, monkeypatch: pytest.MonkeyPatch) -> None:
    profiled(monkeypatch, "masked_gemm", "fill", "fill")
    made = Ready(np.matmul, Lowering((QGMMA,), ((QGMMA, 4), ("FADD", 1)), "nvdisasm"), "masked_gemm")
    seen = kernels.kernels_of(called, made)
    assert [(k.name, k.opcodes, k.launches) for k in seen.kernels] == [("masked_gemm", (QGMMA,), 1), ("fill", (), 2)]
    assert seen.why_not == ()


def test_the_profiler_counts_opcodes_of_a_librarys_kernel(called: CallableAdapter, monkeypatch: pytest.MonkeyPatch) -> None:
    def launches(command: list[str]) -> Iterator[ncu.Launch]:
        assert command[1:] == ["-m", "accprobe.gemm", "torch:mm", "…"]
        lines = (Line(0, "", HMMA, "R0"), Line(16, "", "FADD", "R0"))
        for name, kernel in (("gemm", lines), ("fill", lines[1:]), ("gemm", lines)):
            yield ncu.Launch(Function(name, "", kernel, {}), (8,) * len(kernel))

    profiled(monkeypatch, "gemm")
    monkeypatch.setattr(ncu, "launches", launches)
    seen = kernels.kernels_of(called, Ready(np.matmul), ["torch:mm", "…"])
    assert [(k.name, k.opcodes, k.launches) for k in seen.kernels] == [("gemm", (HMMA,), 2)]


def test_what_cannot_be_seen_says_why(called: CallableAdapter, monkeypatch: pytest.MonkeyPatch) -> None:
    profiled(monkeypatch, "gemm")
    seen, (why,) = kernels.kernels_of(called, Ready(np.matmul))
    assert [kernel.name for kernel in seen] == ["gemm"]
    assert why.startswith("opcodes: not read")

    def refused(command: list[str]) -> Iterator[Any]:
        raise AccprobeError("the driver lets root alone read performance counters")

    monkeypatch.setattr(ncu, "launches", refused)
    seen, (why,) = kernels.kernels_of(called, Ready(np.matmul), ["torch:mm"])
    assert [kernel.name for kernel in seen] == ["gemm"]
    assert why == "opcodes: the driver lets root alone read performance counters"


def test_a_cpu_has_no_kernels_and_says_whose_product_it_is() -> None:
    f32 = FORMATS["f32"]
    library = open_arrays("numpy")
    mine = CallableAdapter(Spec(2, 2, 4, f32, f32, f32), np.matmul, library, "mine")
    assert kernels.kernels_of(mine, Ready(np.matmul)) == ((), ())
    counted = kernels.kernels_of(mine, Ready(np.matmul), ["numpy:matmul"])
    assert counted == ((), (kernels.NOTHING_TO_COUNT,))
    versions = library_versions(library)
    assert versions["numpy"] == np.__version__
    assert "BLAS" in versions["blas"].upper() or "MKL" in versions["blas"].upper()
    assert int(versions["threads"]) >= 1
    record = device_record(library)
    assert (record.kind, bool(record.name), bool(record.architecture)) == ("cpu", True, True)
    assert empty_report(library, 3).device == record


def test_versions_of_torch_name_what_computes_on_a_cpu() -> None:
    torch = pytest.importorskip("torch")
    versions = library_versions(open_arrays("torch", "cpu"))
    assert versions["torch"] == str(torch.__version__)
    assert versions["threads"] == str(torch.get_num_threads())
    assert ("mkl" in versions) == torch.backends.mkl.is_available()


def test_cublas_is_asked_only_where_it_is_loaded(tmp_path: Path) -> None:
    maps = tmp_path / "maps"
    maps.write_text("7f00-7f01 r--p 0 0:0 1 /usr/lib/libc.so.6\n")
    assert cublas_version(maps) == cublas_version(tmp_path / "gone") == ""
    maps.write_text("7f00-7f01 r--p 0 0:0 1 /no/such/libcublasLt.so.13\n")
    assert cublas_version(maps) == ""
