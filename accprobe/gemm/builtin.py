"""Callables that accprobe knows by name: how each is called, what it takes, and what it needs.

Written without a GPU at hand: those of torch and numpy were asked on a CPU; what never ran on hardware says so in its title.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from accprobe.build import driver, install
from accprobe.errors import AccprobeError, ToolMissing, UnknownName, nearest
from accprobe.gemm.adapter import Multiply
from accprobe.gemm.attention import ASKS, attention, weight
from accprobe.gemm.handover import Handover, OfTorch
from accprobe.gemm.libraries import ASKS as STORED_ALONE
from accprobe.gemm.libraries import bf16_gemm_nt, cublaslt, fp8_gemm_nt, semi_structured
from accprobe.gemm.options import FLAGS, OptionValue, under_flags
from accprobe.gemm.spec import Spec
from accprobe.isa.formats import FORMATS, Format
from accprobe.model.product import ScaleOf
from accprobe.sass.lowering import Lowering

Options = Mapping[str, OptionValue]


@dataclass(frozen=True)
class Ready:
    """A function that is ready to be called. lowering: of its kernel, where it is ours."""

    function: Multiply
    lowering: Lowering | None = None
    kernel: str = ""


Make = Callable[[Spec, Options, Handover], Ready]


@dataclass(frozen=True)
class Listed:
    """One callable. formats: of the operands, the first where none is asked for; result: of D, likewise.

    needs: a package, and the line that installs it. options: with their defaults; on_gpus: those that only GPUs know, beside
    torch's flags.
    a_exponent: where A is the callable's own, the exponent of all its elements, of a format and a K. asks: what is asked of
    it, where that is not all that it computes.
    """

    name: str
    title: str
    needs: tuple[str, str]
    formats: tuple[str, ...]
    make: Make
    result: Callable[[Format], Format] = lambda a: a
    scales: tuple[ScaleOf, ...] = ()
    options: Mapping[str, OptionValue] = field(default_factory=dict)
    arrays: str = "torch"
    gpu_only: bool = False
    by_columns: bool = False
    a_exponent: Callable[[Format, int], int] | None = None
    asks: str = ""
    on_gpus: tuple[str, ...] = ()

    def why_not(self) -> str:
        """Why it cannot be asked here, "" where it can."""
        package, line = self.needs
        missing = f"{package} is not installed: {line}" if importlib.util.find_spec(package) is None else ""
        count, why = driver.gpus() if self.gpu_only else (1, "")
        return "; ".join(filter(None, (missing, "" if count else f"it needs a GPU, and {why}")))

    def takes(self, option: str) -> bool:
        return option in self.options

    def check(self, spec: Spec, handover: Handover) -> None:
        """Raises AccprobeError where it takes no such operands or scales."""
        for fmt in (spec.a, spec.b):
            if fmt.name not in self.formats:
                raise AccprobeError(f"{self.name} takes no {fmt}: give --dtype {' or '.join(self.formats)}")
        if spec.scale is not None and spec.scale not in self.scales:
            has = f"give --scale none or {' or '.join(self.scales)}" if self.scales else "it has none"
            raise AccprobeError(f"{self.name} takes no scales by {spec.scale}: {has}")
        if self.gpu_only and handover.device == "cpu":
            raise AccprobeError(f"{self.name} runs on a GPU alone: give --device cuda:0")
        if spec.a.name == "tf32" and handover.device == "cpu":
            raise AccprobeError("tf32 products are computed by GPUs alone: give --device cuda:0, or --dtype f32")


def _flags(spec: Spec, options: Options) -> dict[str, OptionValue]:
    """torch's flags that were given; f32 operands are multiplied as tf32 only where that is asked for."""
    given = {name: options[name] for name in FLAGS if options.get(name) is not None}
    if spec.a.name in ("f32", "tf32"):
        given.setdefault("allow_tf32", spec.a.name == "tf32")
    return given


def _type(handover: Handover, fmt: Format) -> Any:
    assert isinstance(handover, OfTorch)
    return handover.type(fmt)


def _result_argument(spec: Spec, handover: Handover) -> dict[str, Any]:
    """`out_dtype`, where it is not the operands' own; torch has that on GPUs alone. Raises AccprobeError."""
    wanted = _type(handover, spec.out)
    if wanted == _type(handover, spec.a):
        return {}
    if handover.device == "cpu":
        raise AccprobeError(f"on the CPU torch gives products of {spec.a} as {spec.a} alone: give --out {spec.a}")
    return {"out_dtype": wanted}


def _mm(spec: Spec, options: Options, handover: Handover) -> Ready:
    import torch

    argument = _result_argument(spec, handover)
    return Ready(under_flags(lambda a, b: torch.mm(a, b, **argument), _flags(spec, options)))


def _addmm(spec: Spec, options: Options, handover: Handover) -> Ready:
    """C is -0, which changes no sum: a row of it, as a layer's bias, or a whole matrix."""
    import torch

    shapes = {"row": (spec.n,), "matrix": (spec.m, spec.n)}
    if (bias := str(options["bias"])) not in shapes:
        raise UnknownName(f"torch:addmm has no bias '{bias}'; {nearest(bias, shapes)}")
    c = torch.full(shapes[bias], -0.0, dtype=_type(handover, spec.out), device=handover.device)
    argument = _result_argument(spec, handover)
    return Ready(under_flags(lambda a, b: torch.addmm(c, a, b, **argument), _flags(spec, options)))


def _scaled_mm(spec: Spec, options: Options, handover: Handover) -> Ready:
    """A scale for each block lies as cuBLASLt has it: by columns, a column of blocks of B padded to 4 of them.

    Sources: ATen/native/cuda/Blas.cpp of torch 2.11 (what is checked); cuBLAS, "1D and 2D block scaling for FP8 data types".
    """
    import torch

    one = torch.ones((), dtype=torch.float32, device=handover.device)
    out, fast = _type(handover, spec.out), bool(options["use_fast_accum"])

    def scaled(a: Any, b: Any, scale_a: Any = one, scale_b: Any = one) -> Any:
        if spec.scale in ("1x128", "128x128"):
            scale_a = scale_a.t().contiguous().t()
        if spec.scale == "128x128":
            scale_b = _padded(scale_b)
        return torch._scaled_mm(a, b, scale_a, scale_b, out_dtype=out, use_fast_accum=fast)

    return Ready(under_flags(scaled, {}))


def _padded(scales: Any) -> Any:
    """[blocks of K, blocks of N] by columns, each column's place a multiple of 4 scales."""
    blocks, columns = scales.shape
    place = scales.new_empty((columns, -(-blocks // 4) * 4))
    place[:, :blocks] = scales.t()
    return place[:, :blocks].t()


def _int_mm(spec: Spec, options: Options, handover: Handover) -> Ready:
    import torch

    return Ready(under_flags(torch._int_mm, {}))


def _sparse_mm(spec: Spec, options: Options, handover: Handover) -> Ready:
    out = None if spec.out == spec.a else _type(handover, spec.out)
    return Ready(under_flags(semi_structured(spec, out, _whole(options["alg_id"]), _whole(options["split_k"])), {}))


def _sdpa(spec: Spec, options: Options, handover: Handover) -> Ready:
    function = attention(spec, options["backend"], _whole(options["head_dim"]), handover.device)
    return Ready(under_flags(function, _flags(spec, options)))


def _cublaslt(spec: Spec, options: Options, handover: Handover) -> Ready:
    if spec.a.storage_bits > 8 and _type(handover, spec.out) != _type(handover, spec.a):
        raise AccprobeError(f"cublaslt:matmul gives products of {spec.a} as {_own(spec.a)} alone: give --out {_own(spec.a)}")
    return Ready(cublaslt(spec, _whole(options["algorithm"]), bool(options["fast_accumulation"])))


def _fp8_gemm_nt(spec: Spec, options: Options, handover: Handover) -> Ready:
    if spec.scale is None:
        raise AccprobeError("deep_gemm:fp8_gemm_nt takes scales by block alone: give --scale 128x128")
    return Ready(fp8_gemm_nt(spec, _type(handover, spec.out)))


def _bf16_gemm_nt(spec: Spec, options: Options, handover: Handover) -> Ready:
    return Ready(bf16_gemm_nt(spec, _type(handover, spec.out)))


def _numpy_matmul(spec: Spec, options: Options, handover: Handover) -> Ready:
    return Ready(np.matmul)


def _triton_dot(spec: Spec, options: Options, handover: Handover) -> Ready:
    """accprobe's own kernel: `tl.dot` in steps of block_k, its accumulator the addend of the next."""
    import torch

    from accprobe.isa import architectures
    from accprobe.sweep.compilation import KERNEL, compile_configurations
    from accprobe.sweep.configurations import DTYPES, check_problem, configurations

    name = next(dtype.name for dtype in DTYPES.values() if dtype.format is spec.a)
    promoted = options["promote_every"]
    if promoted is not None and type(promoted) is not int:
        raise AccprobeError(f"option promote_every of triton:dot is a whole number, or None, not {promoted}")
    block_k, warps, block_m, block_n = (_whole(options[name]) for name in ("block_k", "num_warps", "block_m", "block_n"))
    (found,) = configurations([name], [block_k], [warps], block_m, block_n, promoted)
    config = replace(found, chained=bool(options["chained"]))
    check_problem([config], spec.m, spec.n, spec.k)
    target = architectures.from_compute_capability(*torch.cuda.get_device_capability(handover.device)).target
    (compiled,) = compile_configurations([config], target)
    if compiled.reason:
        raise AccprobeError(f"triton:dot cannot be compiled so: {compiled.reason}")
    grid = (spec.m // config.block_m, spec.n // config.block_n, 1)
    d = torch.empty((spec.m, spec.n), dtype=_type(handover, spec.out), device=handover.device)

    def launched(a: Any, b: Any) -> Any:
        with torch.cuda.device(handover.device):
            compiled.kernel[grid](a, b.t(), d, spec.n, spec.k, -1, *compiled.arguments)
        return d

    return Ready(launched, compiled.lowering, KERNEL)


def _whole(value: OptionValue) -> int:
    assert isinstance(value, int)
    return value


def _f32_or_s32(a: Format) -> Format:
    return FORMATS["s32"] if a.is_integer else FORMATS["f32"]


def _own(a: Format) -> Format:
    return FORMATS["f32"] if a.name == "tf32" else a


_NO_FLAGS: dict[str, OptionValue] = dict.fromkeys(FLAGS)
_TORCH = ("torch", f"{install.GPU_STACK}, or pip install torch")
_TORCH_FLOATS = ("bf16", "f16", "f32", "tf32", "f64")
_TRITON_OPTIONS: dict[str, OptionValue] = {
    "block_k": 64,
    "num_warps": 4,
    "promote_every": None,
    "chained": True,
    "block_m": 64,
    "block_n": 64,
}
_DEEP_GEMM = ("deep_gemm", "see https://github.com/deepseek-ai/DeepGEMM")

LISTED: dict[str, Listed] = {
    each.name: each
    for each in (
        Listed("torch:mm", "torch.mm(a, b)", _TORCH, _TORCH_FLOATS, _mm, _own, options=_NO_FLAGS),
        Listed(
            "torch:addmm",
            "torch.addmm(c, a, b) with a C of -0; option bias: row or matrix",
            _TORCH,
            _TORCH_FLOATS,
            _addmm,
            _own,
            options={"bias": "row", **_NO_FLAGS},
        ),
        Listed(
            "torch:_scaled_mm",
            "torch._scaled_mm(a, b, scale_a, scale_b); scales by tensor, row, 1x128 and 128x128",
            _TORCH,
            ("e4m3", "e5m2"),
            _scaled_mm,
            lambda a: FORMATS["bf16"],
            ("tensor", "row", "1x128", "128x128"),
            {"use_fast_accum": False},
            by_columns=True,
            on_gpus=("use_fast_accum",),
        ),
        Listed("torch:_int_mm", "torch._int_mm(a, b)", _TORCH, ("s8",), _int_mm, _f32_or_s32),
        Listed(
            "torch:_cslt_sparse_mm",
            "torch._cslt_sparse_mm(compressed a, b), of cuSPARSELt; K counts stored products",
            _TORCH,
            ("f16", "bf16", "e4m3", "s8"),
            _sparse_mm,
            lambda a: FORMATS["s32"] if a.is_integer else a if a.storage_bits == 16 else FORMATS["f32"],
            options={"alg_id": 0, "split_k": 1},
            gpu_only=True,
            asks=STORED_ALONE,
        ),
        Listed(
            "torch:sdpa",
            "attention, P·V along K keys: M queries, N / head_dim heads; option backend: flash, efficient, cudnn or math",
            _TORCH,
            ("bf16", "f16", "f32"),
            _sdpa,
            options={"backend": None, "head_dim": 64, **_NO_FLAGS},
            a_exponent=weight,
            asks=ASKS,
        ),
        Listed(
            "numpy:matmul", "numpy.matmul(a, b)", ("numpy", "pip install numpy"), ("f32", "f64"), _numpy_matmul, arrays="numpy"
        ),
        Listed(
            "triton:dot",
            "accprobe's own kernel: tl.dot in steps of block_k",
            ("triton", install.TRITON),
            ("e4m3", "e5m2", "f16", "bf16", "tf32", "s8"),
            _triton_dot,
            _f32_or_s32,
            options=_TRITON_OPTIONS,
            gpu_only=True,
            by_columns=True,
        ),
        Listed(
            "cublaslt:matmul",
            "cuBLASLt through nvmath-python; option algorithm: 0, 1, … of its heuristic's",
            ("nvmath", "pip install 'nvmath-python[cu13]'"),
            ("bf16", "f16", "f32", "tf32", "e4m3", "e5m2"),
            _cublaslt,
            lambda a: FORMATS["bf16"] if a.storage_bits == 8 else _own(a),
            ("tensor",),
            {"algorithm": 0, "fast_accumulation": False},
            gpu_only=True,
            by_columns=True,
        ),
        Listed(
            "deep_gemm:fp8_gemm_nt",
            "DeepGEMM, A scaled by 1 x 128 and B by 128 x 128 (--scale 128x128), sm_90; never run on hardware",
            _DEEP_GEMM,
            ("e4m3",),
            _fp8_gemm_nt,
            lambda a: FORMATS["bf16"],
            ("128x128",),
            gpu_only=True,
            by_columns=True,
        ),
        Listed(
            "deep_gemm:bf16_gemm_nt",
            "DeepGEMM, without scales; never run on hardware",
            _DEEP_GEMM,
            ("bf16",),
            _bf16_gemm_nt,
            gpu_only=True,
            by_columns=True,
        ),
    )
}


def require(listed: Listed) -> Make:
    """How it is made. Raises ToolMissing where it cannot be asked here."""
    if reason := listed.why_not():
        raise ToolMissing(f"{listed.name} cannot be asked: {reason}")
    return listed.make
