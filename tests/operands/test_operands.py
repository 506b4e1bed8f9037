"""Random operands, as the CPU and as GPUs draw them (compiled for the CPU): every kind is what its name says."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from compiled import library, needs_compiler

from accprobe.evaluate.decoding import exponents_of
from accprobe.isa.formats import Bits, Format
from accprobe.isa.instructions import Instruction, parse
from accprobe.operands import drawing
from accprobe.operands.kinds import draw, kinds
from accprobe.operands.request import Request, joined

Draw = Callable[..., Request]

FLOATS = {
    "f16": "mma.sync.m16n8k16.f32.f16.f16.f32",
    "f16 results": "mma.sync.m16n8k16.f16.f16.f16.f16",
    "bf16": "mma.sync.m16n8k16.f32.bf16.bf16.f32",
    "tf32": "mma.sync.m16n8k8.f32.tf32.tf32.f32",
    "e4m3": "wgmma.m64n8k32.f32.e4m3.e4m3",
    "e5m2": "wgmma.m64n8k32.f16.e5m2.e5m2",
    "e5m2 e4m3": "wgmma.m64n8k32.f32.e5m2.e4m3",
    "f64": "mma.sync.m8n8k4.f64.f64.f64.f64",
}
INTEGERS = {"s8": "mma.sync.m16n8k32.s32.s8.s8.s32", "u8 s8": "mma.sync.m16n8k32.s32.u8.s8.s32"}
ON_GPU = ("f16", "tf32", "e5m2 e4m3", "f64", "u8 s8")  # Each is compiled once.
FP8 = FLOATS["e5m2 e4m3"]

RUN = """
extern "C" void run(const Recipe* r, u64 key, u32 batch, AElement* a, BElement* b, CElement* c, const u32* lines, u32 n) {
    for (u32 i = 0; i < n * K; i++) a[i] = (AElement)element<A, true>(*r, key, batch, lines[i / K], i % K, K);
    for (u32 i = 0; i < n * K; i++) b[i] = (BElement)element<B, false>(*r, key, batch, lines[n + i / K], i % K, K);
    for (u32 i = 0; i < n; i++) c[i] = (CElement)addend<C>(*r, key, batch, lines[i], lines[n + i], K);
}
"""


def on_cpu(kind: str, inst: Instruction, n: int = 400, seed: int = 1) -> Request:
    return draw(kind, inst, np.random.default_rng(seed), n)


def on_gpu(kind: str, inst: Instruction, n: int = 400, seed: int = 1, batch: int = 0) -> Request:
    """Return dot products of random lines of a matrix product, so that one line is in several of them."""
    lines = np.random.default_rng(0).integers(0, 1 + n // 2, (2, n), np.uint32)
    return of_lines(drawing.recipes(inst)[kind], inst, lines, seed, batch)


def of_lines(recipe: drawing.Recipe, inst: Instruction, lines: np.ndarray, seed: int = 0, batch: int = 0) -> Request:
    words, drawn, n = np.array(recipe, np.int32), Request.zeros(inst, lines.shape[1]), lines.shape[1]
    pointers = (ctypes.c_void_p(x.ctypes.data) for x in (drawn.a, drawn.b, drawn.c, lines))
    start = (ctypes.c_void_p(words.ctypes.data), ctypes.c_uint64(seed), ctypes.c_uint32(batch))
    library(drawing.source(inst) + RUN).run(*start, *pointers, ctypes.c_uint32(n))
    return drawn


def drawn_in_both_ways(names: dict[str, str]) -> pytest.MarkDecorator:
    of_cpu = [pytest.param(on_cpu, parse(name), id=f"cpu {key}") for key, name in names.items()]
    of_gpu = [pytest.param(on_gpu, parse(names[key]), id=f"gpu {key}", marks=needs_compiler) for key in ON_GPU if key in names]
    return pytest.mark.parametrize(("some", "inst"), of_cpu + of_gpu)


floats = drawn_in_both_ways(FLOATS)
integers = drawn_in_both_ways(INTEGERS)


def columns(operands: Request, inst: Instruction) -> Iterator[tuple[np.ndarray, Format]]:
    return zip(operands.columns, (inst.a, inst.b, inst.c), strict=True)


def magnitudes(patterns: Bits, fmt: Format) -> Bits:
    return patterns & fmt.dtype.type(~fmt.sign_bit & ((1 << fmt.storage_bits) - 1))


def exponents(patterns: Bits, fmt: Format) -> np.ndarray:
    return exponents_of(patterns, fmt, "kept", counted=True)


def products(operands: Request, inst: Instruction) -> np.ndarray:
    with np.errstate(all="ignore"):
        return inst.a.values(operands.a) * inst.b.values(operands.b)


def sums(operands: Request, inst: Instruction) -> np.ndarray:
    with np.errstate(all="ignore"):
        return products(operands, inst).sum(axis=1) + inst.c.values(operands.c)


@drawn_in_both_ways(FLOATS | INTEGERS)
def test_shapes_types_and_seed(some: Draw, inst: Instruction) -> None:
    for kind in kinds(inst):
        for n in (0, 1, 7):
            some(kind, inst, n=n).check(inst)
        first, again, other = some(kind, inst), some(kind, inst), some(kind, inst, seed=2)
        assert all(np.array_equal(x, y) for x, y in zip(first.columns, again.columns, strict=True)), kind
        assert not any(np.array_equal(x, y) for x, y in zip(first.columns, other.columns, strict=True)), kind
        for patterns, fmt in columns(first, inst):
            assert int(patterns.max()) < 1 << (fmt.storage_bits if fmt.ignored_low_bits else fmt.bits), kind
            assert kind in ("uniform", "special") or inst.is_integer or np.isfinite(fmt.values(patterns)).all(), kind


@floats
def test_normal_numbers_are_about_one(some: Draw, inst: Instruction) -> None:
    for patterns, fmt in columns(some("normal", inst), inst):
        found = exponents(patterns, fmt)[magnitudes(patterns, fmt) > 0]
        assert -2.5 < found.mean() < -0.5
        assert found.max() <= 3


@floats
def test_wide_has_every_exponent_and_subnormals(some: Draw, inst: Instruction) -> None:
    for patterns, fmt in columns(some("wide", inst, n=40_000 if inst.a.name == "f64" else 8000), inst):
        assert fmt.is_subnormal(patterns).any()
        assert set(exponents(patterns, fmt).flat) == set(range(fmt.min_exponent, fmt.max_exponent + 1))


@floats
def test_near_one_is_near_one_and_sparse_is_mostly_zeros(some: Draw, inst: Instruction) -> None:
    near, sparse = some("near one", inst), some("sparse", inst)
    assert all(set(exponents(patterns, fmt).flat) == {-1, 0, 1} for patterns, fmt in columns(near, inst))
    assert all(0.6 < (magnitudes(patterns, fmt) == 0).mean() < 0.95 for patterns, fmt in columns(sparse, inst))


@floats
def test_tiny_has_subnormals_and_a_c_of_a_few_bits(some: Draw, inst: Instruction) -> None:
    tiny = joined([some("tiny", inst, seed=seed) for seed in range(20)])
    for patterns, fmt in ((tiny.a, inst.a), (tiny.b, inst.b)):
        assert 0.001 < (fmt.is_subnormal(patterns) | (magnitudes(patterns, fmt) == 0)).mean() < 0.8
    c = magnitudes(tiny.c, inst.c)
    assert (c == 0).mean() > 0.2
    assert ((c > 0) & (c < 8)).mean() > 0.1


@floats
def test_cancelling_sums_are_small(some: Draw, inst: Instruction) -> None:
    operands = some("cancelling", inst)
    largest = np.abs(products(operands, inst)).max(axis=1)
    lone = magnitudes(operands.c, inst.c) == 0
    assert 0.3 < lone.mean() < 0.7
    small = np.abs(sums(operands, inst))[lone] < 2.0**-3 * largest[lone]
    assert small.mean() > 0.3
    assert (sums(operands, inst)[lone] != 0).any()
    other = some("clustered", inst)
    usual = np.abs(sums(other, inst)) < 2.0**-3 * np.abs(products(other, inst)).max(axis=1)
    assert usual.mean() < small.mean() / 2


@floats
def test_special_has_what_the_format_has(some: Draw, inst: Instruction) -> None:
    for patterns, fmt in columns(some("special", inst, n=2000), inst):
        values, found = fmt.values(patterns), magnitudes(patterns, fmt)
        assert np.isnan(values).any() == (fmt.specials != "none")
        assert np.isinf(values).any() == (fmt.specials == "ieee")
        assert (values == 0).any()
        assert (found == fmt.largest).any()
        assert np.isfinite(values).mean() > 0.7
        if fmt.specials == "ieee":
            assert len(np.unique(found[np.isnan(values)])) > 1


@floats
def test_dense_products_have_one_sign_and_one_exponent(some: Draw, inst: Instruction) -> None:
    dense = some("same sign", inst)
    of_a, of_b, of_c = (np.signbit(fmt.values(patterns)) for patterns, fmt in columns(dense, inst))
    assert (of_a ^ of_b == of_c[:, None]).all()
    assert 0 < of_c.mean() < 1
    a, b, c = (exponents(patterns, fmt) for patterns, fmt in columns(dense, inst))
    assert (a == a[:, :1]).all()
    assert (b == b[:, :1]).all()
    assert set(c - np.clip(a[:, 0] + b[:, 0], inst.c.min_exponent, inst.c.max_exponent)) <= {0, 1}


@floats
def test_c_is_about_an_end_of_its_range(some: Draw, inst: Instruction) -> None:
    for kind, end, apart in (
        ("C near largest", inst.c.largest, range(-3, 1)),
        ("C near smallest normal", 1 << inst.c.mantissa_bits, range(-4, 4)),
    ):
        operands = some(kind, inst)
        assert set(magnitudes(operands.c, inst.c).astype(np.int64) - end) == set(apart)
        assert (operands.c & inst.c.dtype.type(inst.c.sign_bit) != 0).any()
        assert (magnitudes(operands.a, inst.a) == 0).any()


@drawn_in_both_ways({"tf32": FLOATS["tf32"]})
def test_tf32_low_bits_are_random_too(some: Draw, inst: Instruction) -> None:
    """The unit must ignore them, so they must not be zero."""
    for kind in ("uniform", "wide", "clustered", "near one", "tiny"):
        assert all(((some(kind, inst).a >> np.uint32(bit)) & 1).any() for bit in range(13)), kind


@integers
@pytest.mark.parametrize("kind", ["extreme", "C near overflow"])
def test_integer_sums_overflow(some: Draw, inst: Instruction, kind: str) -> None:
    operands = some(kind, inst, n=4000)
    total = (inst.a.integers(operands.a) * inst.b.integers(operands.b)).sum(axis=1) + inst.c.integers(operands.c)
    assert (total > 2**31 - 1).any()
    assert (total < -(2**31)).any()
    assert ((total >= -(2**31)) & (total < 2**31)).any()


@needs_compiler
def test_philox_is_the_published_one() -> None:
    """Random123's known answers of philox4x32-10: of zeros, and of ones."""
    head = 'extern "C" void run(u32* x, u64 k) { Random r = philox(k, x[3], x[0], x[1], x[2]);'
    kernel = library(f"{drawing.source(parse(FP8))}\n{head} for (int i = 0; i < 4; i++) x[i] = r.word[i]; }}")
    for value, key, answer in (
        (0, 0, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        (0xFFFFFFFF, 2**64 - 1, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    ):
        words = np.full(4, value, np.uint32)
        kernel.run(ctypes.c_void_p(words.ctypes.data), ctypes.c_uint64(key))
        assert tuple(words.tolist()) == answer
