"""The GPU evaluator of whole products without a GPU: numpy replaces cupy, kernels run on the CPU or are only compiled."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest
from compiled import library, needs_compiler
from marks import only_on_a_gpu, some
from planted_boxes import spec_of
from planted_models import model_of
from planted_plans import NAMED
from planted_products import Planted

from accprobe.callables.operands import draw_operands
from accprobe.evaluate.cuda.whole import HOW, WholeOnGpu, on_gpu, source_of
from accprobe.evaluate.product import ScaleWords, product
from accprobe.isa.formats import Bits
from accprobe.model.product import NO_K, ProductModel, Scales, Scaling, addition, in_chunks
from accprobe.operands.distributions import DISTRIBUTIONS

ON_HOST = """
#include <cmath>
#include <cstddef>
#define __global__
#define __launch_bounds__(threads)
struct Index { unsigned x; };
static Index blockIdx, blockDim, threadIdx;
static float __fmul_rn(float x, float y) { return x * y; }
static float __fadd_rn(float x, float y) { return x + y; }
static float __fmaf_rn(float x, float y, float z) { return std::fma(x, y, z); }
"""
RUN = """
extern "C" void run(unsigned grid, unsigned threads, const float* sums, float* total, const float* a, const float* b,
                    unsigned m, unsigned n) {
    blockDim.x = threads;
    for (blockIdx.x = 0; blockIdx.x < grid; blockIdx.x++)
        for (threadIdx.x = 0; threadIdx.x < threads; threadIdx.x++) scaled_sums(sums, total, a, b, m, n);
}
"""


def scaled_sums(scales: Scales) -> ctypes.CDLL:
    """Return the kernel, compiled for the CPU."""
    return library(f"{ON_HOST}{source_of('scaled_sums', HOW=HOW[scales.how], FUSED=int(scales.fused))}{RUN}")


class NearestShape:
    """numpy in place of cupy."""

    asnumpy = staticmethod(np.asarray)

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)


class Chains:
    """Chains of a model's fused sum, in place of the kernel of its evaluator."""

    def __init__(self, model: ProductModel) -> None:
        self._model = model

    def evaluate(self, a: Bits, b: Bits, c: None, d: Any, blocks: int, promote: int, ks: Any) -> None:
        step, k = self._model.step, len(ks)
        assert k == blocks * step.products
        assert all(x.flags.c_contiguous for x in (a, b, d))
        a, b = (np.where(ks == NO_K, 0, x[:, ks]).astype(x.dtype) for x in (a, b))
        tree = in_chunks(range(k), promote * step.products or k, tuple(range(step.products)), addition())
        d.view(np.uint32)[:] = product(
            ProductModel(self._model.a, self._model.b, k, step, tree, step.root.arithmetic.result), a, b
        )


class OnHost(WholeOnGpu):
    def evaluator(self, model: ProductModel) -> Any:
        return Chains(model)

    def scaled_sums(self, scales: Scales) -> Any:
        def launched(grid: Sequence[int], threads: Sequence[int], arguments: Sequence[Any]) -> None:
            *arrays, m, n = arguments
            assert all(x.dtype == np.float32 and x.flags.c_contiguous for x in arrays)
            scaled_sums(scales).run(*grid, *threads, *(ctypes.c_void_p(x.ctypes.data) for x in arrays), int(m), int(n))

        return launched


HOST = OnHost(NearestShape(), "")
WAYS = [Scales("128x128", how, fused) for how in get_args(Scaling) for fused in (False, True)]


def random_call(plan: Planted, kind: str, seed: int) -> tuple[Bits, Bits, ScaleWords | None]:
    return draw_operands(spec_of(plan), kind, np.random.default_rng(seed))


def hold(evaluate: WholeOnGpu, model: ProductModel, a: Bits, b: Bits, scales: ScaleWords | None) -> None:
    np.testing.assert_array_equal(evaluate(model, a, b, scales), product(model, a, b, scales=scales))


@pytest.mark.parametrize(
    "name",
    [
        "chain of 8, tf32 of f32 RNE",
        "chain of 16",
        "promoted every 96",
        "3 uneven slices, serial in bf16",
        "5 uneven slices, tree in bf16",
        "2 slices, promoted every 128",
        "tensor scales",
        "row scales",
    ],
)
def test_products_are_those_of_the_cpu(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = replace(NAMED[name], m=12, n=9)
    expected = product(model_of(plan), *(call := random_call(plan, "normal", 1))[:2], scales=call[2])
    monkeypatch.setattr("accprobe.evaluate.cuda.whole.product", None)
    np.testing.assert_array_equal(HOST(model_of(plan), *call), expected)


def test_operands_may_lie_in_memory_any_way() -> None:
    """Kernels take pointers, and numpy's `a[:, ks]` lies by columns."""
    plan = replace(NAMED["chain of 16"], m=12, n=9, k=512)
    model, (a, b, _) = model_of(plan), random_call(plan, "normal", 1)
    np.testing.assert_array_equal(HOST(model, np.asfortranarray(a), np.asfortranarray(b), None), product(model, a, b))


@needs_compiler
@pytest.mark.parametrize("name", ["block scales, one block", "block scales, 2 uneven slices"])
def test_blocks_have_their_own_scales_however_many_slices_there_are(name: str) -> None:
    plan = replace(NAMED[name], m=12, n=9)
    hold(HOST, model_of(plan), *random_call(plan, "normal", 1))


@needs_compiler
@pytest.mark.parametrize("scales", some(WAYS, 2), ids=str)
def test_scales_of_blocks_are_applied_as_on_the_cpu(scales: Scales, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = replace(NAMED["block scales"], m=35, n=33, k=600, out="f32")
    model = replace(model_of(plan), scales=scales)
    a, b, words = random_call(plan, "wide", 2)
    expected = product(model, a, b, scales=words)
    other = product(replace(model, scales=replace(scales, fused=not scales.fused)), a, b, scales=words)
    assert np.count_nonzero(other != expected)
    monkeypatch.setattr("accprobe.evaluate.cuda.whole.product", None)
    np.testing.assert_array_equal(HOST(model, a, b, words), expected)


@pytest.mark.parametrize("kind", DISTRIBUTIONS)
@pytest.mark.parametrize(
    "name", ["block scales", "tensor scales", "row scales", "chain of 8, tf32 of f32 RNE", "int8", "chain of FMAs"]
)
class TestOnHardware:
    pytestmark = only_on_a_gpu

    def test_products_are_those_of_the_cpu(self, name: str, kind: str) -> None:
        pytest.importorskip("cupy")
        evaluate = on_gpu("cuda:0")
        assert evaluate is not None
        plan = replace(NAMED[name], m=70, n=45)
        model = model_of(plan)
        every = [replace(model, scales=way) for way in WAYS] if name == "block scales" else [model]
        for each in every:
            hold(evaluate, each, *random_call(plan, kind, 3))
