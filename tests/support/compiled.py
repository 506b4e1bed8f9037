"""Binaries compiled for tests, without a GPU: Triton kernels for any architecture, and device code for the CPU.

The evaluator for GPUs runs thread after thread there.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from accprobe.build import toolchain
from accprobe.errors import ToolMissing
from accprobe.evaluate.evaluator import with_numpy
from accprobe.isa.formats import Bits
from accprobe.isa.instructions import Instruction
from accprobe.model.tree import DotModel
from accprobe.operands.request import Request
from accprobe.sass.reading import Function, functions, parse

os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")  # Triton 3.9 warns where it is not set


def needs(*tools: toolchain.ToolName) -> None:
    """Skip the test if a tool is missing."""
    for tool in tools:
        try:
            toolchain.find(tool)
        except ToolMissing as e:
            pytest.skip(str(e))


def only(path: Path) -> Function:
    """Return the one function of a cubin."""
    (function,) = list(functions(path))
    return function


@cache
def triton_dot(capability: int, warps: int, imprecise: int | None, loop: bool, k: int = 128) -> dict[str, bytes]:
    """Return the cubin and PTX of an fp8 `tl.dot` of 64 x 64 x k, once or in a loop, with max_num_imprecise_acc=`imprecise`."""
    triton = pytest.importorskip("triton")
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource
    from triton_kernels_of_tests import gemm, tile

    fixed = {"N": 64, "K": k, "IMPRECISE": imprecise}
    pointers = {"a_ptr": "*fp8e4nv", "b_ptr": "*fp8e4nv", "c_ptr": "*fp32"}
    signature = pointers | ({"length": "i32"} if loop else {}) | dict.fromkeys(fixed, "constexpr")
    aligned = {(i,): [["tt.divisibility", 16]] for i in range(4 if loop else 3)}
    source = ASTSource(fn=gemm if loop else tile, signature=signature, constexprs=fixed, attrs=aligned)
    made = triton.compile(source, target=GPUTarget("cuda", capability, 32), options={"num_warps": warps})
    return {"cubin": made.asm["cubin"], "ptx": made.asm["ptx"].encode()}


def text(*lines: str) -> Function:
    """Return a function of these lines, 16 bytes each; a line that ends in a colon is a label."""
    rows, offset = [".text.f:\n"], 0
    for line in lines:
        if line.endswith(":"):
            rows.append(f"{line}\n")
        else:
            rows.append(f"        /*{offset:04x}*/   {line} ;\n")
            offset += 16
    (function,) = parse(rows)
    return function


ON_HOST = Path(__file__).with_name("evaluator_on_host.h")
THREAD_BY_THREAD = ("-std=c++17", "-O1", "-ffp-contract=off", "-w", "-fPIC")
WHOLE_BLOCKS = ("-std=c++20", "-O1", "-w", "-fPIC", "-pthread")
"""Options of the compiler, for device code whose threads run one after another, and for blocks of threads."""

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


def evaluator_library(source: str) -> ctypes.CDLL:
    """Return the evaluator of that CUDA C++ as a library."""
    return library(f"{source}\n{ON_HOST.read_text()}")


@cache
def library(code: str, options: tuple[str, ...] = THREAD_BY_THREAD) -> ctypes.CDLL:
    """Return C++ code as a library. Skips the test without a compiler."""
    if shutil.which("g++") is None:
        pytest.skip("needs g++")
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "code.cpp"
        place.write_text(code)
        built = place.with_suffix(".so")
        done = subprocess.run(["g++", *options, "-shared", "-o", built, place], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return ctypes.CDLL(str(built))


def precompile(folder: Path, header: str) -> None:
    """Compile a header once for `WHOLE_BLOCKS`. Skips the test without a compiler."""
    if shutil.which("g++") is None:
        pytest.skip("needs g++")
    copy = shutil.copy(Path(__file__).with_name(header), folder)
    subprocess.run(["g++", *WHOLE_BLOCKS, "-x", "c++-header", copy], check=True)


def chained_by_numpy(model: DotModel, inst: Instruction, a: Bits, b: Bits, start: Bits) -> Bits:
    """Return the chains from C = start [M, N] over a [M, K] and b [N, K], bit patterns, by the evaluator in numpy."""
    m, n = start.shape
    running = np.ascontiguousarray(start).reshape(-1)
    for k in range(0, a.shape[1], inst.k):
        some = slice(k, k + inst.k)
        running = with_numpy(model, inst, Request(np.repeat(a[:, some], n, axis=0), np.tile(b[:, some], (m, 1)), running))
    return running.reshape(m, n)
