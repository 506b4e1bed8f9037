"""Built-in callables: calls, formats, scales, options and required packages.

Attention is a product P·V, and P is the softmax of Q·Kᵀ. If Q is zero, all scores are 0 and the softmax gives each key
the weight 1/keys. D = A·B then has an A of 1/keys, B is V, and K is the number of keys. A kernel may keep weights of 1 and
divide by their sum at the end, or at the end of each split. If the number of keys is a power of two, that division is exact and
gives the same bits.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any
from warnings import catch_warnings, simplefilter

import numpy as np

from accprobe.build import driver, install
from accprobe.callables.adapter import Multiply
from accprobe.callables.arrays import ArrayLibrary, torch_type
from accprobe.callables.epilogues import addmm, baddbmm, linear
from accprobe.callables.options import FLAGS, Options, OptionValue, given_flags, positive_option, under_flags, whole_option
from accprobe.callables.spec import Spec, usual_result
from accprobe.errors import AccprobeError, UnknownName, nearest
from accprobe.isa.formats import FORMATS, Format
from accprobe.model.product import ScaleOf

# CUDA names of the result formats of 8-bit products.
_RESULTS = {"f32": "CUDA_R_32F", "bf16": "CUDA_R_16BF", "f16": "CUDA_R_16F"}
_SINGLE = {"f32": "COMPUTE_32F", "tf32": "COMPUTE_32F_FAST_TF32"}


def own_result(a: Format) -> Format:
    """Return the result format of libraries that return the type of their operands."""
    return FORMATS["f32"] if a.name == "tf32" else a


def cublaslt(spec: Spec, options: Options, library: ArrayLibrary) -> Multiply:
    """Return cuBLASLt's product with option `algorithm`: a position in the list that its heuristic returns for the shape.

    The plan for the first operands is reused: later operands have the same addresses. Raises AccprobeError.
    """
    algorithm, own = whole_option(options, "algorithm"), own_result(spec.a)
    if spec.a.storage_bits > 8 and torch_type(library, spec.out) != torch_type(library, spec.a):
        raise AccprobeError(f"cublaslt:matmul returns products of {spec.a} as {own} only: give --out {own}")
    from nvmath import CudaDataType
    from nvmath.linalg import ComputeType
    from nvmath.linalg.advanced import Matmul

    arguments: dict[str, Any] = {}
    small = spec.a.storage_bits == 8
    if small:
        if spec.out.name not in _RESULTS:
            raise AccprobeError(f"cublaslt:matmul returns no {spec.out} of {spec.a}: give --out {' or '.join(_RESULTS)}")
        fast = bool(options["fast_accumulation"])
        arguments = {"result_type": CudaDataType[_RESULTS[spec.out.name]], "fast_accumulation": fast}
    elif spec.a.name in _SINGLE:
        arguments = {"compute_type": ComputeType[_SINGLE[spec.a.name]]}
    planned: list[Any] = []

    def multiply(a: Any, b: Any, *scales: Any) -> Any:
        scale_words = [scale.reshape(1) for scale in scales] or [1.0, 1.0]
        scaled = {"quantization_scales": dict(zip("ab", scale_words, strict=True))} if small else {}
        if planned:
            planned[0].reset_operands(a=a, b=b, **scaled)
        else:
            matmul = Matmul(a, b, options=arguments, **scaled)
            found = len(matmul.plan(preferences={"limit": max(0, algorithm) + 1}))
            if not 0 <= algorithm < found:
                last = " or more" if algorithm < 0 else f" to {found - 1}" if found > 1 else ""
                raise AccprobeError(f"cuBLASLt has no algorithm {algorithm} for {spec.shape}: give --option algorithm=0{last}")
            planned.append(matmul)
        return planned[0].execute(algorithm=planned[0].algorithms[algorithm])

    return multiply


# Places of the two stored elements in each group of four along K.
STORED = (0, 3)
SPARSE_PART = "a 2:4 sparse A: K counts stored elements, at places 0 and 3 of each 4; the other rows of B hold ones"


def semi_structured(spec: Spec, options: Options, library: ArrayLibrary) -> Multiply:
    """Return `torch._cslt_sparse_mm` of a 2:4 sparse A. A [M, K] holds the stored elements.

    The call multiplies [M, 2K] and [2K, N]; the rows of the latter that meet no stored element hold ones.
    """
    import torch

    out = None if spec.out == spec.a else torch_type(library, spec.out)
    algorithm, split_k = whole_option(options, "alg_id"), whole_option(options, "split_k")

    if spec.k % 2:
        raise AccprobeError(f"K is {spec.k}: a 2:4 sparse A stores two of each four elements, so give an even K")

    def multiply(a: Any, b: Any) -> Any:
        dtype = a.dtype
        one = torch.ones((), device=a.device).to(dtype)
        plain = torch.uint8 if dtype.itemsize == 1 else dtype  # few operations take 8-bit floats
        a, b, filling = (x.view(plain) for x in (a, b.contiguous(), one))
        wide_a = a.new_zeros(spec.m, spec.k // 2, 4)
        wide_b = filling.expand(spec.k // 2, 4, spec.n).contiguous()
        wide_a[:, :, STORED] = a.reshape(spec.m, -1, 2)
        wide_b[:, STORED] = b.reshape(-1, 2, spec.n)
        packed = torch._cslt_compress(wide_a.reshape(spec.m, -1).view(dtype))
        dense = wide_b.reshape(-1, spec.n)
        dense = dense.t().contiguous().t().view(dtype) if plain is not dtype else dense
        return torch._cslt_sparse_mm(packed, dense, out_dtype=out, alg_id=algorithm, split_k=split_k)

    return multiply


EQUAL_PART = "the first of several equal products, which give the same bits"


def bmm(spec: Spec, options: Options, library: ArrayLibrary) -> Multiply:
    """Return the first of equal products of `torch.bmm`."""
    import torch

    batch = positive_option(options, "batch")

    def multiply(a: Any, b: Any) -> Any:
        several_a, several_b = (x.expand(batch, *x.shape).contiguous() for x in (a, b))
        return _first_of_equal(torch.bmm(several_a, several_b))

    return under_flags(multiply, given_flags(options, spec.a.name))


def grouped_mm(spec: Spec, options: Options, library: ArrayLibrary) -> Multiply:
    """Return the first of equal groups of `torch._grouped_mm`. Each group has M rows of A and its own B, contiguous along K."""
    import torch

    groups = positive_option(options, "groups")
    ends = torch.arange(1, groups + 1, dtype=torch.int32, device=library.device) * spec.m

    def multiply(a: Any, b: Any) -> Any:
        weights = b.t().expand(groups, spec.n, spec.k).contiguous().transpose(1, 2)
        return _first_of_equal(torch._grouped_mm(a.repeat(groups, 1), weights, offs=ends).unflatten(0, (groups, spec.m)))

    return multiply


def _first_of_equal(d: Any) -> Any:
    """Return the first of several products d [products, M, N]. Raises AccprobeError if another has other bits."""
    import torch

    words = d.view(getattr(torch, f"int{8 * d.itemsize}"))
    differing = (words != words[0]).flatten(1).any(1).nonzero()
    if len(differing):
        raise AccprobeError(f"product {int(differing[0])} has other bits than product 0 of the same operands")
    return d[0]


# Names of `torch.nn.attention.SDPBackend`.
BACKENDS = {"flash": "FLASH_ATTENTION", "efficient": "EFFICIENT_ATTENTION", "cudnn": "CUDNN_ATTENTION", "math": "MATH"}
# How torch's errors begin if a back end does not support the operands, on the CPU and on GPUs.
UNSUPPORTED = ("No viable backend", "No available kernel")
ATTENTION_PART = "P·V of attention: Q = 0 makes every weight 1/keys, so only V varies and all queries are equal"


def weight_exponent(fmt: Format, keys: int) -> int:
    """Return the exponent of 1/keys. Raises AccprobeError if it is not a power of two or not a normal number."""
    exponent = 1 - keys.bit_length()
    if keys & (keys - 1):
        raise AccprobeError(f"attention over {keys} keys has weights of 1/{keys}, which are rounded: give a power of two as K")
    if exponent < fmt.min_exponent:
        raise AccprobeError(f"{fmt} cannot hold weights of 1/{keys}: give at most {2**-fmt.min_exponent} keys as K")
    return exponent


def attention(spec: Spec, options: Options, library: ArrayLibrary) -> Multiply:
    """Return `scaled_dot_product_attention` of M queries and K keys; N / head_dim heads lie side by side in V."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    backend, head_dim, device = options["backend"], whole_option(options, "head_dim"), library.device
    if backend is not None and backend not in BACKENDS:
        raise UnknownName(f"torch:sdpa has no back end '{backend}'; {nearest(str(backend), BACKENDS)}")
    if head_dim < 1 or spec.n % head_dim:
        raise AccprobeError(f"N is {spec.n}, not a multiple of the head_dim {head_dim}: see option head_dim")
    heads = spec.n // head_dim
    zeros: dict[Any, Any] = {}

    def multiply(a: Any, b: Any) -> Any:
        v = b.view(spec.k, heads, head_dim).transpose(0, 1)[None]
        q, k = (zeros.setdefault(n, torch.zeros(1, heads, n, head_dim, dtype=v.dtype, device=device)) for n in (spec.m, spec.k))
        chosen = nullcontext() if backend is None else sdpa_kernel(getattr(SDPBackend, BACKENDS[str(backend)]))
        try:
            with chosen, catch_warnings():
                simplefilter("ignore")  # torch warns why a back end does not support the operands
                d = torch.nn.functional.scaled_dot_product_attention(q, k, v)
        except RuntimeError as e:
            if not str(e).startswith(UNSUPPORTED):
                raise
            advice = f"give another --option backend={', '.join(BACKENDS)}"
            raise AccprobeError(f"torch has no {backend} attention for {spec.b} {spec.shape} on {device}: {advice}") from None
        return d[0].transpose(0, 1).reshape(spec.m, spec.n)

    return under_flags(multiply, given_flags(options, spec.a.name))


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

    def explain_unavailable(self) -> str:
        """Return why the callable is not available, "" if it is."""
        package, command = NEEDS[self.name.partition(":")[0]]
        missing = f"{package} is not installed: {command}" if importlib.util.find_spec(package) is None else ""
        count, why = driver.gpus() if self.gpu_only else (1, "")
        return "; ".join(filter(None, (missing, "" if count else f"it needs a GPU, and {why}")))

    def takes(self, option: str) -> bool:
        return option in self.options

    def check(self, spec: Spec, library: ArrayLibrary) -> None:
        """Raise AccprobeError if the callable does not support these operands, these scales or this device."""
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


def _mm(spec: Spec, options: Options, library: ArrayLibrary) -> Multiply:
    """Return `torch.mm`. It supports `out_dtype` on GPUs only."""
    import torch

    wanted = torch_type(library, spec.out)
    argument = {} if wanted == torch_type(library, spec.a) else {"out_dtype": wanted}
    if argument and library.device == "cpu":
        raise AccprobeError(f"on the CPU torch returns products of {spec.a} as {spec.a} only: give --out {spec.a}")
    return under_flags(lambda a, b: torch.mm(a, b, **argument), given_flags(options, spec.a.name))


def _scaled_mm(spec: Spec, options: Options, library: ArrayLibrary) -> Multiply:
    """Block scales are laid out as cuBLASLt requires: A's by columns; B's, if 128x128, by columns padded to a multiple of 4.

    Sources: ATen/native/cuda/Blas.cpp of torch 2.11; cuBLAS, "1D and 2D block scaling for FP8 data types".
    """
    import torch

    one = torch.ones((), dtype=torch.float32, device=library.device)
    out, fast = torch_type(library, spec.out), bool(options["use_fast_accum"])

    def scaled(a: Any, b: Any, scale_a: Any = one, scale_b: Any = one) -> Any:
        if spec.scale in ("1x128", "128x128"):
            scale_a = scale_a.t().contiguous().t()
        if spec.scale == "128x128":
            blocks, columns = scale_b.shape
            padded = scale_b.new_empty((columns, -(-blocks // 4) * 4))
            padded[:, :blocks] = scale_b.t()
            scale_b = padded[:, :blocks].t()
        return torch._scaled_mm(a, b, scale_a, scale_b, out_dtype=out, use_fast_accum=fast)

    return scaled


def _int_mm(*_: Any) -> Multiply:
    import torch

    multiply: Multiply = torch._int_mm
    return multiply


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
    Builtin("torch:_int_mm", "torch._int_mm(a, b)", ("s8",), _int_mm, usual_result),
    Builtin(
        "torch:_cslt_sparse_mm",
        "torch._cslt_sparse_mm(compressed a, b), of cuSPARSELt; K counts stored products",
        ("f16", "bf16", "e4m3", "s8"),
        semi_structured,
        lambda a: a if a.storage_bits == 16 else usual_result(a),
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
