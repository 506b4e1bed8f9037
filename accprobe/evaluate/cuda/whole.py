"""Evaluation of large matrix products on a GPU, with the bits of `accprobe.evaluate.product`.

The evaluator of a model computes chains of an instruction's sums. Chains of float32 multiply-adds and scaled sums of blocks
have their own kernels. Other partial sums are added in float32, in the model's order.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from accprobe.build import compiler
from accprobe.build.probes import device_code
from accprobe.evaluate.additions import addition_list
from accprobe.evaluate.cuda.launch import Evaluator
from accprobe.evaluate.product import ScaleWords, is_multiply_add, product, rounded_words, scaled_sums
from accprobe.isa import architectures
from accprobe.isa.formats import Bits, Format
from accprobe.model.product import (
    NO_K,
    Chain,
    Merged,
    Node,
    ProductModel,
    Scales,
    Scaling,
    addition,
    folded,
    merged_in,
    multiply_add,
    of_chains,
)
from accprobe.model.tree import Rounding

# Tile side of multiply_adds.cu; threads of a block there and in scaled_sums.cu.
TILE, THREADS = 64, 256

# Constants of scaled_sums.cu.
HOW: dict[Scaling, int] = {"product of scales": 0, "a then b": 1, "b then a": 2}

# Roundings of float32 sums to each format, as `_rounded` computes them.
_ROUNDINGS: dict[str, tuple[Rounding, ...]] = {"f32": get_args(Rounding), "bf16": ("RNE", "RZ"), "f16": ("RNE",)}


def on_gpu(device: str) -> WholeOnGpu | None:
    """Make "cuda:N" the current GPU and return its evaluator, the same one each time; None without cupy."""
    try:
        import cupy
    except ImportError:
        return None
    cupy.cuda.Device(int(device.partition(":")[2] or 0)).use()
    return _whole_on_gpu(cupy, device)


@cache
def _whole_on_gpu(cupy: Any, device: str) -> WholeOnGpu:
    """Return the evaluator of one GPU. device: its name; each GPU has its own."""
    capability = cupy.cuda.Device().compute_capability
    return WholeOnGpu(cupy, architectures.from_compute_capability(int(capability[:-1]), int(capability[-1])).target)


class WholeOnGpu:
    """Evaluates products on one GPU; unsupported ones on the CPU."""

    def __init__(self, cupy: Any, target: str) -> None:
        self._cupy, self._target = cupy, target
        self._evaluators: dict[Any, Evaluator] = {}
        self._kernels: dict[str, Any] = {}

    def __call__(self, model: ProductModel, a: Bits, b: Bits, scales: ScaleWords | None) -> Bits:
        """Return the results of `product` for a [M, K], b [N, K], or for several products [..., M, K] one by one."""
        if addition_list(model) is not None and (a == a[..., :1, :]).all():  # a reduction: copying costs more than adding
            return product(model, a, b, scales=scales)
        if a.ndim > 2:
            return np.stack([self(model, x, y, scales) for x, y in zip(a, b, strict=True)])
        if not _is_taken(model):
            return product(model, a, b, scales=scales)
        work = _Work(self._cupy, self, model, a, b, scales)
        sums = work.node(model.tree)
        if scales is not None and model.scales is not None and not model.scales_by_block:
            of_a, of_b = map(self._cupy.asarray, scales)
            sums = scaled_sums(sums, of_a, of_b, model.scales)
        patterns: Bits = self._cupy.asnumpy(_converted(self._cupy, sums, model.result, model.result_rounding))
        return patterns

    def evaluator(self, model: ProductModel) -> Evaluator:
        key = model.a, model.b, model.step
        if key not in self._evaluators:
            inst, step = model.instruction, model.step
            self._evaluators[key] = Evaluator(self._cupy, inst, step, self._target, chained=True, matrix_units=True)
        return self._evaluators[key]

    def multiply_adds(self, fused: bool) -> Any:
        return self._kernel("multiply_adds", "chains of multiply-adds", FUSED=int(fused))

    def scaled_sums(self, scales: Scales) -> Any:
        """Return the kernel that adds the scaled sums of a block."""
        return self._kernel("scaled_sums", "sums of blocks", HOW=HOW[scales.how], FUSED=int(scales.fused))

    def _kernel(self, name: str, what: str, **defined: int) -> Any:
        code = source_of(name, **defined)
        if code not in self._kernels:
            cubin = compiler.compile_source(code, self._target, what)
            self._kernels[code] = self._cupy.RawModule(path=str(cubin.path)).get_function(name)
        return self._kernels[code]


def source_of(name: str, **defined: int) -> str:
    """Return the CUDA C++ of a kernel that is independent of the model."""
    defines = "".join(f"#define {word} {value}\n" for word, value in defined.items())
    return defines + device_code(f"{name}.cu")


def _is_taken(model: ProductModel) -> bool:
    """Return whether chains are in float32, other sums in a format of _ROUNDINGS, and `_rounded` can round to D."""
    if model.result_rounding not in _ROUNDINGS.get(model.result.name, ()):
        return False
    return model.step.root.arithmetic.result.name == "f32" and model.a.is_float and all(map(_is_plain, merged_in(model.tree)))


def _is_plain(merged: Merged) -> bool:
    fmt = merged.arithmetic.result
    formats = {fmt.name, fmt.name if merged.kept is None else merged.kept.name}
    return formats <= _ROUNDINGS.keys() and merged.arithmetic == addition(fmt) and merged.order != "unordered"


class _Work:
    """One product. Sums are float32 arrays [M, N], also if they are rounded to a narrower format."""

    def __init__(
        self, cupy: Any, gpu: WholeOnGpu, model: ProductModel, a: Bits, b: Bits, scales: ScaleWords | None = None
    ) -> None:
        self._cupy, self._gpu, self._model, self._scales = cupy, gpu, model, scales
        self._shape = len(a), len(b)
        self._singles = is_multiply_add(model)
        prepared = (np.ascontiguousarray(self._prepared(fmt, x)) for fmt, x in ((model.a, a), (model.b, b)))
        self._a, self._b = map(cupy.asarray, prepared)

    def _prepared(self, fmt: Format, patterns: Bits) -> NDArray[Any]:
        """Return operands as the kernel takes them: float32 numbers for chains of multiply-adds, otherwise patterns."""
        patterns = rounded_words(fmt, patterns, self._model.operand_rounding)
        return fmt.values(patterns).astype(np.float32) if self._singles else patterns

    def node(self, node: Node) -> Any:
        if self._scales is not None and self._model.scales_by_block and (chains := of_chains(node)):
            return self._scaled_inside(chains, self._scales)
        if isinstance(node, Chain):
            return self._chain(node.ks(), 0)
        if (every := self._promoted(node)) is not None:
            return self._chain(np.concatenate([part.ks() for part in node.parts if isinstance(part, Chain)]), every)
        parts = [self.node(part) for part in node.parts]
        if node.kept is not None:
            parts = [_rounded(self._cupy, part, node.kept, "RNE") for part in parts]
        fmt = node.arithmetic.result
        return folded(node.nested, parts, lambda x, y: _rounded(self._cupy, x + y, fmt, "RNE"))

    def _scaled_inside(self, chains: Sequence[Chain], scales: ScaleWords) -> Any:
        """Return the sum of the chains, one per block along K, each scaled before it is added."""
        assert self._model.scales is not None
        m, n = self._shape
        kernel, total = self._gpu.scaled_sums(self._model.scales), self._cupy.zeros((m, n), np.float32)
        for chain in chains:
            block = self._model.block_of[chain]
            a, b = (self._cupy.asarray(np.ascontiguousarray(x)) for x in (scales.a[:, block], scales.b[block]))
            sums = self._chain(chain.ks(), 0)
            kernel((-(-m * n // THREADS),), (THREADS,), (sums, total, a, b, np.uint32(m), np.uint32(n)))
        return total

    def _promoted(self, node: Merged) -> int | None:
        """Return the promotion interval in fused sums for chunks of one size, the last maybe smaller; else None."""
        chains = [part for part in node.parts if isinstance(part, Chain)]
        if self._singles or len(chains) < len(node.parts) or node.kept is not None or node.order != "forward":
            return None
        sizes = [len(chain.ks()) for chain in chains]
        plain = node.arithmetic.result.name == "f32" and set(sizes[:-1]) == {sizes[0]} and sizes[-1] <= sizes[0]
        return sizes[0] // self._model.step.products if plain else None

    def _chain(self, ks: Any, promote: int) -> Any:
        m, n = self._shape
        d = self._cupy.empty((m, n), np.float32)
        if self._singles:
            taken = self._cupy.asarray(ks[ks != NO_K].astype(np.int32))
            fused = self._model.step == multiply_add()
            sizes = (np.uint32(m), np.uint32(n), np.uint32(self._a.shape[1]))
            arguments = (self._a, self._b, d, *sizes, taken, np.uint32(len(taken)))
            self._gpu.multiply_adds(fused)((-(-n // TILE), -(-m // TILE)), (THREADS,), arguments)
            return d
        blocks = len(ks) // self._model.step.products
        self._gpu.evaluator(self._model).evaluate(self._a, self._b, None, d, blocks, promote, ks)
        return d


def _rounded(cupy: Any, sums: Any, fmt: Format, how: str) -> Any:
    """Return float32 numbers rounded to a format of _ROUNDINGS, as float32."""
    if fmt.name == "f32":
        return sums
    if fmt.name == "f16" and how == "RNE":
        return sums.astype(cupy.float16).astype(cupy.float32)
    bits = sums.view(cupy.uint32)
    nan = cupy.isnan(sums)
    if how == "RNE":
        bits = bits + (0x7FFF + (bits >> 16 & 1))
    found = (bits & cupy.uint32(0xFFFF0000)).view(cupy.float32)
    return cupy.where(nan, sums, found)


def _converted(cupy: Any, sums: Any, fmt: Format, how: str) -> Any:
    """Return patterns of D, one for all NaNs."""
    found = _rounded(cupy, sums, fmt, how)
    if fmt.name == "f32":
        patterns = found.view(cupy.uint32)
    elif fmt.name == "f16":
        patterns = found.astype(cupy.float16).view(cupy.uint16)
    else:
        patterns = (found.view(cupy.uint32) >> 16).astype(cupy.uint16)
    return cupy.where(cupy.isnan(sums), patterns.dtype.type(fmt.sign_bit - 1), patterns)
