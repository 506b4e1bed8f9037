"""The numbers of whole matrix products on a GPU: what `accprobe.evaluate.product` computes on the CPU, for large ones.

Chains of an instruction's sums go through the evaluator of its model; chains of float32 multiply-adds have a kernel of their
own. Partial sums are added in float32, in the model's order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accprobe.build import compiler
from accprobe.build.probes import device_code
from accprobe.evaluate.cuda.launch import Evaluator
from accprobe.evaluate.product import ScaleWords, is_multiply_add, product
from accprobe.isa import architectures
from accprobe.isa.formats import Bits, Format
from accprobe.model.product import NOBODY, Chain, Merged, Nested, Node, ProductModel, addition, multiply_add

TILE, THREADS = 64, 256
"""Of multiply_adds.cu."""


def on_gpu(device: str) -> WholeOnGpu | None:
    """The evaluator of "cuda:N"; None without cupy."""
    try:
        import cupy
    except ImportError:
        return None
    cupy.cuda.Device(int(device.partition(":")[2] or 0)).use()
    capability = cupy.cuda.Device().compute_capability
    target = architectures.from_compute_capability(int(capability[:-1]), int(capability[-1])).target
    return WholeOnGpu(cupy, target)


class WholeOnGpu:
    """Evaluates products on one GPU; those that it has no way to evaluate, on the CPU."""

    def __init__(self, cupy: Any, target: str) -> None:
        self._cupy, self._target = cupy, target
        self._evaluators: dict[Any, Evaluator] = {}
        self._multiply_adds: dict[bool, Any] = {}

    def __call__(self, model: ProductModel, a: Bits, b: Bits, scales: ScaleWords | None) -> Bits:
        """a [M, K], b [N, K] -> [M, N], as `product` gives them."""
        if not _is_taken(model) or (scales is not None and model.scales is not None and model.scales.inside):
            return product(model, a, b, scales=scales)
        work = _Work(self._cupy, self, model, a, b)
        sums = work.node(model.tree)
        if scales is not None and model.scales is not None:
            sums = _scaled(self._cupy, sums, scales, model.scales.how)
        patterns: Bits = _converted(self._cupy, sums, model.result, model.result_rounding).get()
        return patterns

    def evaluator(self, model: ProductModel) -> Evaluator:
        """Of the model's fused sum."""
        key = model.a, model.b, model.step
        if key not in self._evaluators:
            self._evaluators[key] = Evaluator(self._cupy, model.instruction, model.step, self._target, single=True)
        return self._evaluators[key]

    def multiply_adds(self, fused: bool) -> Any:
        """The kernel of chains of multiply-adds."""
        if fused not in self._multiply_adds:
            code = f"#define FUSED {int(fused)}\n{device_code('multiply_adds.cu')}"
            cubin = compiler.compile_source(code, self._target, "chains of multiply-adds")
            self._multiply_adds[fused] = self._cupy.RawModule(path=str(cubin.path)).get_function("multiply_adds")
        return self._multiply_adds[fused]


def _is_taken(model: ProductModel) -> bool:
    """Whether every sum is of float32, or kept in a format that it is rounded to; f16 is rounded to nearest alone."""
    if model.result.name not in ("f32", "bf16", "f16") or (model.result.name == "f16" and model.result_rounding != "RNE"):
        return False
    return model.step.root.arithmetic.result.name == "f32" and model.a.is_float and all(map(_is_plain, _merges(model.tree)))


def _merges(node: Node) -> Sequence[Merged]:
    return () if isinstance(node, Chain) else (node, *(x for part in node.parts for x in _merges(part)))


def _is_plain(merged: Merged) -> bool:
    fmt = merged.arithmetic.result
    return fmt.name in ("f32", "bf16", "f16") and merged.arithmetic == addition(fmt) and merged.order != "unordered"


class _Work:
    """One product. Sums are float32 arrays [M, N], also of a narrower format."""

    def __init__(self, cupy: Any, gpu: WholeOnGpu, model: ProductModel, a: Bits, b: Bits) -> None:
        self._cupy, self._gpu, self._model = cupy, gpu, model
        self._shape = len(a), len(b)
        self._singles = is_multiply_add(model)
        self._a, self._b = (cupy.asarray(self._held(fmt, x)) for fmt, x in ((model.a, a), (model.b, b)))

    def _held(self, fmt: Format, patterns: Bits) -> NDArray[Any]:
        """Operands as the kernel takes them: float32 numbers for chains of multiply-adds, otherwise patterns."""
        return fmt.values(patterns).astype(np.float32) if self._singles else patterns

    def node(self, node: Node) -> Any:
        if isinstance(node, Chain):
            return self._chain(node.ks(), 0)
        if (every := self._promoted(node)) is not None:
            return self._chain(np.concatenate([part.ks() for part in node.parts if isinstance(part, Chain)]), every)
        parts = [self.node(part) for part in node.parts]
        if node.kept is not None:
            parts = [_rounded(self._cupy, part, node.kept, "RNE") for part in parts]
        return self._added(parts, node.nested, node.arithmetic.result)

    def _promoted(self, node: Merged) -> int | None:
        """Sums after which the evaluator itself begins a chain anew, where all parts are chunks of one size."""
        chains = [part for part in node.parts if isinstance(part, Chain)]
        if self._singles or len(chains) < len(node.parts) or node.kept is not None or node.order != "forward":
            return None
        sizes = [len(chain.ks()) for chain in chains]
        plain = node.arithmetic.result.name == "f32" and set(sizes[:-1]) == {sizes[0]} and sizes[-1] <= sizes[0]
        return sizes[0] // self._model.step.products if plain else None

    def _added(self, parts: Sequence[Any], order: Nested, fmt: Format) -> Any:
        if isinstance(order, int):
            return parts[order]
        total = self._added(parts, order[0], fmt)
        for other in order[1:]:
            total = _rounded(self._cupy, total + self._added(parts, other, fmt), fmt, "RNE")
        return total

    def _chain(self, ks: Any, promote: int) -> Any:
        m, n = self._shape
        d = self._cupy.empty((m, n), np.float32)
        if self._singles:
            taken = self._cupy.asarray(ks[ks != NOBODY].astype(np.int32))
            fused = self._model.step == multiply_add()
            sizes = (np.uint32(m), np.uint32(n), np.uint32(self._a.shape[1]))
            arguments = (self._a, self._b, d, *sizes, taken, np.uint32(len(taken)))
            self._gpu.multiply_adds(fused)((-(-n // TILE), -(-m // TILE)), (THREADS,), arguments)
            return d
        a, b = (self._taken(lines, ks) for lines in (self._a, self._b))
        blocks = len(ks) // self._model.step.products
        self._gpu.evaluator(self._model).evaluate(a, b, None, d, blocks, promote)
        return d

    def _taken(self, lines: Any, ks: Any) -> Any:
        """Operands in the order in which they are taken, zeros where a sum has a product fewer."""
        if np.array_equal(ks, np.arange(lines.shape[1])):
            return lines
        place = self._cupy.asarray(np.where(ks == NOBODY, 0, ks))
        taken = self._cupy.take(lines, place, axis=1)
        if (ks == NOBODY).any():
            taken[:, self._cupy.asarray(ks == NOBODY)] = 0
        return self._cupy.ascontiguousarray(taken)


def _scaled(cupy: Any, sums: Any, scales: ScaleWords, how: str) -> Any:
    a, b = (cupy.asarray(x) for x in scales)
    if how == "product of scales":
        return sums * (a * b)
    first, second = (a, b) if how == "a then b" else (b, a)
    return sums * first * second


def _rounded(cupy: Any, sums: Any, fmt: Format, how: str) -> Any:
    """float32 numbers of a narrower format, as float32."""
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
    """Patterns of D, one for all NaNs."""
    found = _rounded(cupy, sums, fmt, how)
    if fmt.name == "f32":
        patterns = found.view(cupy.uint32)
    elif fmt.name == "f16":
        patterns = found.astype(cupy.float16).view(cupy.uint16)
    else:
        patterns = (found.view(cupy.uint32) >> 16).astype(cupy.uint16)
    return cupy.where(cupy.isnan(sums), patterns.dtype.type(fmt.sign_bit - 1), patterns)
