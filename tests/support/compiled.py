"""Real binaries for tests: Triton kernels and CUDA C++, compiled here for any architecture, no GPU needed."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import pytest

from accprobe.build import toolchain
from accprobe.errors import ToolMissing
from accprobe.sass.reading import Function, functions, parse

os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")  # Triton 3.9 warns where it is not set


def needs(*tools: toolchain.ToolName) -> None:
    """Skips the test where a tool is missing."""
    for tool in tools:
        try:
            toolchain.find(tool)
        except ToolMissing as e:
            pytest.skip(str(e))


def only(path: Path) -> Function:
    """The one function of a cubin."""
    (function,) = list(functions(path))
    return function


@cache
def triton_dot(capability: int, warps: int, imprecise: int | None, loop: bool, k: int = 128) -> dict[str, bytes]:
    """cubin and ptx of an fp8 `tl.dot` of 64 x 64 x k, once or in a loop, with max_num_imprecise_acc=`imprecise`."""
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
    """A function of these lines, 16 bytes each; a line that ends in a colon is a label."""
    rows, offset = [".text.f:\n"], 0
    for line in lines:
        if line.endswith(":"):
            rows.append(f"{line}\n")
        else:
            rows.append(f"        /*{offset:04x}*/   {line} ;\n")
            offset += 16
    (function,) = parse(rows)
    return function
