"""The GPU evaluator of whole products without a GPU: numpy replaces cupy, kernels run on the CPU; its scratch memory."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, get_args

import numpy as np
import pytest
from compiled import Differences, Job, evaluator_library, library, needs_compiler
from marks import only_on_a_gpu, some
from planted_boxes import spec_of
from planted_models import model_of
from planted_plans import NAMED
from planted_products import Planted

from accprobe.callables.operands import draw_operands
from accprobe.evaluate.cuda import launch
from accprobe.evaluate.cuda.launch import Evaluator
from accprobe.evaluate.cuda.source import source
from accprobe.evaluate.cuda.whole import HOW, WholeOnGpu, on_gpu, source_of
from accprobe.evaluate.product import ScaleWords, product
from accprobe.isa.formats import FORMATS, Bits
from accprobe.isa.instructions import parse
from accprobe.model.product import NO_K, ProductModel, Scales, Scaling, addition, in_chunks
from accprobe.model.tree import Rounding
from accprobe.operands.distributions import DISTRIBUTIONS
from accprobe.operands.kinds import draw
from accprobe.report.names import named_models

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


@pytest.mark.parametrize("rounding", get_args(Rounding))
def test_d_is_rounded_to_bf16_as_on_the_cpu(rounding: Rounding) -> None:
    plan = replace(NAMED["chain of 16"], m=12, n=9)
    model = replace(model_of(plan), result=FORMATS["bf16"], result_rounding=rounding)
    hold(HOST, model, *random_call(plan, "normal", 1))


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
        plan = replace(NAMED[name], m=70, n=45)
        model = model_of(plan)
        every = [replace(model, scales=way) for way in WAYS] if name == "block scales" else [model]
        for each in every:
            hold(evaluate, each, *random_call(plan, kind, 3))


INST = parse("wgmma.m64n8k32.f32.e5m2.e5m2")
MODEL = named_models("h200")[INST]
ROWS, COLUMNS = 64, 128
OF_A, OF_B = INST.k * ROWS * 8 + ROWS * 4, INST.k * COLUMNS * 6 + COLUMNS * 4
"""Bytes of a decoded block of a tile."""

A_GPUS_NAN = 0x7FFFFFFF
BLOCKS = 9
LINES = 70, 130


class Emulated:
    """numpy in place of cupy, with a count of allocated bytes and kernels that run on the CPU."""

    def __init__(self) -> None:
        self.held = self.most = self.launches = 0

    def __getattr__(self, name: str) -> Any:
        made = getattr(np, name)
        return self._counting(made) if name in ("empty", "ascontiguousarray", "take") else made

    def _counting(self, make: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*given: Any, **named: Any) -> Any:
            found = make(*given, **named)
            if found is not given[0] and found.dtype == np.uint8:
                self._add(found.nbytes)
                weakref.finalize(found, self._add, -found.nbytes)
            return found

        return counted

    def _add(self, size: int) -> None:
        self.held += size
        self.most = max(self.most, self.held)

    def RawModule(self, path: str) -> Any:  # noqa: N802 -- a name of cupy
        return SimpleNamespace(get_function=lambda name: getattr(self, f"_{name}"))

    def zeros(self, shape: Any, dtype: Any = np.float64) -> Any:
        return np.zeros(shape, dtype).view(Fetched) if shape == 6 else np.zeros(shape, dtype)

    def _describe(self, grid: Any, threads: Any, arguments: Sequence[Any]) -> None:
        there = (ctypes.c_uint32 * 6).from_address(int(arguments[0]))
        there[:] = [128, 0, ROWS, COLUMNS, OF_A, OF_B]

    def _take_rows(self, grid: Any, threads: Any, arguments: Sequence[Any]) -> None:
        """The host decodes operands in its own memory."""

    _take_columns = _take_rows

    def _evaluate(self, grid: Any, threads: Any, arguments: Sequence[Any], shared_mem: int) -> None:
        self.launches += 1
        made = evaluator_library(source(MODEL, INST, True))
        made.evaluate_on_host(ctypes.byref(Job(*map(int, arguments[:8]))), ctypes.byref(Differences()))


class Fetched(np.ndarray[Any, Any]):
    def get(self) -> Any:
        return np.asarray(self)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Emulated:
    monkeypatch.setattr(launch.compiler, "compile_source", lambda *given: SimpleNamespace(path=""))
    monkeypatch.setattr(launch, "_pointer", lambda x: np.uint64(0 if x is None else x.ctypes.data))
    return Emulated()


def operands(kind: str, seed: int) -> tuple[Bits, Bits, Bits]:
    random = np.random.default_rng(seed)
    a, b = (
        np.hstack([getattr(draw(kind, INST, random, n), x) for _ in range(BLOCKS)]) for n, x in zip(LINES, "ab", strict=True)
    )
    return a, b, draw("normal", INST, random, LINES[0] * LINES[1]).c.reshape(LINES)


def evaluated(gpu: Emulated, least: int, monkeypatch: pytest.MonkeyPatch, *given: Any, **named: Any) -> Bits:
    monkeypatch.setattr(launch, "LEAST_SCRATCH", least)
    d = np.full(LINES, 0x55, np.uint32)
    gpu.most = gpu.launches = 0
    with np.errstate(invalid="ignore"):
        Evaluator(gpu, INST, MODEL, "", chained=True).evaluate(*given[:3], d, **named)
    return np.where(np.isnan(d.view(np.float32)), np.uint32(A_GPUS_NAN), d)


SHUFFLED = np.random.default_rng(1).permutation(np.append(np.arange(BLOCKS * INST.k - 5), [NO_K] * 5))
BLOCK = 2 * (OF_A + OF_B) + sum(LINES) * INST.k
"""Bytes of one block of the operands here, two tiles of lines each, decoded and copied."""


@needs_compiler
@pytest.mark.parametrize(("kind", "with_c"), some([("normal", True), ("special", False)]))
@pytest.mark.parametrize(
    ("promote", "ks", "launches"),
    [(0, None, 3), (3, SHUFFLED, 3), (4, None, 5)],
    ids=["chain", "promoted, shuffled", "promoted after more than a part"],
)
def test_parts_of_a_chain_give_the_bits_of_one_launch(
    gpu: Emulated, monkeypatch: pytest.MonkeyPatch, kind: str, with_c: bool, promote: int, ks: Any, launches: int
) -> None:
    a, b, c = operands(kind, seed=promote)
    given = a, b, c if with_c else None
    before = c.copy()
    whole = evaluated(gpu, 1 << 40, monkeypatch, *given, blocks=BLOCKS, promote=promote, ks=ks)
    assert gpu.launches == 1
    assert gpu.most > 3 * BLOCK
    found = evaluated(gpu, 3 * BLOCK, monkeypatch, *given, blocks=BLOCKS, promote=promote, ks=ks)
    np.testing.assert_array_equal(found, whole)
    np.testing.assert_array_equal(c, before)
    assert gpu.launches == launches
    assert BLOCK <= gpu.most <= 3 * BLOCK
