"""Built-in callables: how each is called, its formats, scales and options, and what it needs."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from accprobe.build import driver, install
from accprobe.errors import AccprobeError
from accprobe.gemm.callables.adapter import Multiply
from accprobe.gemm.callables.arrays import ArrayLibrary, torch_type
from accprobe.gemm.callables.epilogues import addmm, baddbmm, linear
from accprobe.gemm.callables.libraries import (
    ATTENTION_PART,
    EQUAL_PART,
    SPARSE_PART,
    attention,
    bmm,
    cublaslt,
    grouped_mm,
    own_result,
    semi_structured,
    weight_exponent,
)
from accprobe.gemm.callables.options import FLAGS, Options, OptionValue, given_flags, under_flags
from accprobe.gemm.spec import Spec
from accprobe.isa.formats import FORMATS, Format
from accprobe.model.product import ScaleOf

# The package that each group of names needs, and the command that installs it.
NEEDS = {
    "torch": ("torch", f"{install.GPU_STACK}, or pip install torch"),
    "numpy": ("numpy", "pip install numpy"),
    "cublaslt": ("nvmath", "pip install 'nvmath-python[cu13]'"),
}


@dataclass(frozen=True)
class Builtin:
    """A built-in callable. formats: of the operands, the default first; result: the default format of D.

    gpu_options: options, beside torch's flags, that have no effect on a CPU. a_exponent: if the callable fixes A, the exponent
    of its elements by format and K. probed_part: which part of the result is probed, if not all of it.
    """

    name: str
    title: str
    formats: tuple[str, ...]
    make: Callable[[Spec, Options, ArrayLibrary], Multiply]
    result: Callable[[Format], Format] = lambda a: a
    scales: tuple[ScaleOf, ...] = ()
    options: Mapping[str, OptionValue] = field(default_factory=dict)
    arrays: str = "torch"
    gpu_only: bool = False
    by_columns: bool = False
    a_exponent: Callable[[Format, int], int] | None = None
    probed_part: str = ""
    gpu_options: tuple[str, ...] = ()

    def why_not(self) -> str:
        """Return why the callable is not available, "" if it is."""
        package, command = NEEDS[self.name.partition(":")[0]]
        missing = f"{package} is not installed: {command}" if importlib.util.find_spec(package) is None else ""
        count, why = driver.gpus() if self.gpu_only else (1, "")
        return "; ".join(filter(None, (missing, "" if count else f"it needs a GPU, and {why}")))

    def takes(self, option: str) -> bool:
        return option in self.options

    def check(self, spec: Spec, library: ArrayLibrary) -> None:
        """Raise AccprobeError if the callable does not support these operands or scales."""
        for fmt in (spec.a, spec.b):
            if fmt.name not in self.formats:
                raise AccprobeError(f"{self.name} does not support {fmt}: give --dtype {' or '.join(self.formats)}")
        if spec.scale is not None and spec.scale not in self.scales:
            has = f"give --scale none or {' or '.join(self.scales)}" if self.scales else "it has none"
            raise AccprobeError(f"{self.name} does not support scales by {spec.scale}: {has}")
        if self.gpu_only and library.device == "cpu":
            raise AccprobeError(f"{self.name} runs on a GPU only: give --device cuda:0")
        if spec.a.name == "tf32" and library.device == "cpu":
            raise AccprobeError("only GPUs compute tf32 products: give --device cuda:0, or --dtype f32")


def _result_argument(spec: Spec, library: ArrayLibrary) -> dict[str, Any]:
    """Return `out_dtype` if it is not the operands' type. torch supports it on GPUs only. Raises AccprobeError."""
    wanted = torch_type(library, spec.out)
    if wanted == torch_type(library, spec.a):
        return {}
    if library.device == "cpu":
        raise AccprobeError(f"on the CPU torch returns products of {spec.a} as {spec.a} only: give --out {spec.a}")
    return {"out_dtype": wanted}


def _mm(spec: Spec, options: Options, library: ArrayLibrary) -> Multiply:
    import torch

    argument = _result_argument(spec, library)
    return under_flags(lambda a, b: torch.mm(a, b, **argument), given_flags(options, spec.a.name))


def _scaled_mm(spec: Spec, options: Options, library: ArrayLibrary) -> Multiply:
    """Block scales are laid out as cuBLASLt requires: by columns, and each column of B's scales padded to a multiple of 4.

    Sources: ATen/native/cuda/Blas.cpp of torch 2.11; cuBLAS, "1D and 2D block scaling for FP8 data types".
    """
    import torch

    one = torch.ones((), dtype=torch.float32, device=library.device)
    out, fast = torch_type(library, spec.out), bool(options["use_fast_accum"])

    def scaled(a: Any, b: Any, scale_a: Any = one, scale_b: Any = one) -> Any:
        if spec.scale in ("1x128", "128x128"):
            scale_a = scale_a.t().contiguous().t()
        if spec.scale == "128x128":
            scale_b = _padded(scale_b)
        return torch._scaled_mm(a, b, scale_a, scale_b, out_dtype=out, use_fast_accum=fast)

    return scaled


def _padded(scales: Any) -> Any:
    """Return [blocks of K, blocks of N] by columns, with a multiple of 4 scales between columns."""
    blocks, columns = scales.shape
    padded = scales.new_empty((columns, -(-blocks // 4) * 4))
    padded[:, :blocks] = scales.t()
    return padded[:, :blocks].t()


def _int_mm(*_: Any) -> Multiply:
    import torch

    return torch._int_mm  # type: ignore[no-any-return]


def _f32_or_s32(a: Format) -> Format:
    return FORMATS["s32"] if a.is_integer else FORMATS["f32"]


_NO_FLAGS: dict[str, OptionValue] = dict.fromkeys(FLAGS)
_FLOATS = ("bf16", "f16", "f32", "tf32", "f64")


_ALL = (
    Builtin("torch:mm", "torch.mm(a, b)", _FLOATS, _mm, own_result, options=_NO_FLAGS),
    Builtin(
        "torch:bmm",
        "torch.bmm(a, b) of equal products; option batch: their number",
        _FLOATS,
        bmm,
        own_result,
        options={"batch": 4, **_NO_FLAGS},
        probed_part=EQUAL_PART,
    ),
    Builtin(
        "torch:_grouped_mm",
        "torch._grouped_mm(a, b, offs) of equal groups of M rows, each with its B; option groups: their number",
        ("bf16", "f16", "f32"),
        grouped_mm,
        options={"groups": 4},
        probed_part=EQUAL_PART,
    ),
    Builtin(
        "torch:_scaled_mm",
        "torch._scaled_mm(a, b, scale_a, scale_b); scales by tensor, row, 1x128 and 128x128",
        ("e4m3", "e5m2"),
        _scaled_mm,
        lambda a: FORMATS["bf16"],
        ("tensor", "row", "1x128", "128x128"),
        {"use_fast_accum": False},
        by_columns=True,
        gpu_options=("use_fast_accum",),
    ),
    Builtin(
        "torch:linear",
        "torch.nn.functional.linear(a, b.T, bias); option activation: relu, gelu, gelu_tanh or silu",
        _FLOATS[:-1],
        linear,
        own_result,
        options={"activation": None, **_NO_FLAGS},
        by_columns=True,
    ),
    Builtin(
        "torch:addmm",
        "torch.addmm(C, a, b, alpha, beta)",
        _FLOATS[:-1],
        addmm,
        own_result,
        options={"alpha": 1.0, "beta": 1.0, **_NO_FLAGS},
    ),
    Builtin(
        "torch:baddbmm",
        "torch.baddbmm(C, a, b, alpha, beta) of equal products; option batch: their number",
        _FLOATS[:-1],
        baddbmm,
        own_result,
        options={"alpha": 1.0, "beta": 1.0, "batch": 4, **_NO_FLAGS},
        probed_part="the first of several equal products",
    ),
    Builtin("torch:_int_mm", "torch._int_mm(a, b)", ("s8",), _int_mm, _f32_or_s32),
    Builtin(
        "torch:_cslt_sparse_mm",
        "torch._cslt_sparse_mm(compressed a, b), of cuSPARSELt; K counts stored products",
        ("f16", "bf16", "e4m3", "s8"),
        semi_structured,
        lambda a: a if a.storage_bits == 16 else _f32_or_s32(a),
        options={"alg_id": 0, "split_k": 1},
        gpu_only=True,
        probed_part=SPARSE_PART,
    ),
    Builtin(
        "torch:sdpa",
        "attention, P·V along K keys: M queries, N / head_dim heads; option backend: flash, efficient, cudnn or math",
        ("bf16", "f16", "f32"),
        attention,
        options={"backend": None, "head_dim": 64, **_NO_FLAGS},
        a_exponent=weight_exponent,
        probed_part=ATTENTION_PART,
    ),
    Builtin("numpy:matmul", "numpy.matmul(a, b)", ("f32", "f64"), lambda *_: np.matmul, arrays="numpy"),
    Builtin(
        "cublaslt:matmul",
        "cuBLASLt through nvmath-python; option algorithm: index into its heuristic's list",
        ("bf16", "f16", "f32", "tf32", "e4m3", "e5m2"),
        cublaslt,
        lambda a: FORMATS["bf16"] if a.storage_bits == 8 else own_result(a),
        ("tensor",),
        {"algorithm": 0, "fast_accumulation": False},
        gpu_only=True,
        by_columns=True,
    ),
)
BUILTIN = {each.name: each for each in _ALL}
