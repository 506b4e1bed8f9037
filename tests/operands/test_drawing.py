"""Operands drawn for GPUs, compiled for the CPU: of the kinds that they are called, and the same every time."""

from __future__ import annotations

import ctypes
from typing import NamedTuple

import numpy as np
import pytest
from compiled import library, needs_compiler

from accprobe.evaluate.decoding import exponents_of
from accprobe.isa.formats import Bits, Format
from accprobe.isa.instructions import parse
from accprobe.operands import drawing
from accprobe.operands.kinds import kinds

F16 = "mma.sync.m16n8k16.f32.f16.f16.f32"
FP8 = "wgmma.m64n8k32.f32.e4m3.e5m2"
TF32 = "mma.sync.m16n8k8.f32.tf32.tf32.f32"
F64 = "mma.sync.m16n8k8.f64.f64.f64.f64"
INT8 = "mma.sync.m16n8k32.s32.s8.u8.s32"


class Drawn(NamedTuple):
    """Operands of a matrix product: a [rows, K], b [columns, K], c [rows, columns]."""

    a: Bits
    b: Bits
    c: Bits


RUN = """
extern "C" void run(const Recipe* r, u64 key, u32 batch, AElement* a, BElement* b, CElement* c, u32 rows, u32 columns) {
    for (u32 i = 0; i < rows * K; i++) a[i] = (AElement)element<A, true>(*r, key, batch, i / K, i % K, K);
    for (u32 i = 0; i < columns * K; i++) b[i] = (BElement)element<B, false>(*r, key, batch, i / K, i % K, K);
    for (u32 i = 0; i < rows * columns; i++) c[i] = (CElement)addend<C>(*r, key, batch, i / columns, i % columns, K);
}
"""

pytestmark = needs_compiler


def draw(name: str, recipe: drawing.Recipe, rows: int, columns: int, seed: int = 0, batch: int = 0) -> Drawn:
    inst = parse(name)
    words = np.array(recipe, np.int32)
    a, b = np.zeros((rows, inst.k), inst.a.dtype), np.zeros((columns, inst.k), inst.b.dtype)
    c = np.zeros((rows, columns), inst.c.dtype)
    pointers = (ctypes.c_void_p(x.ctypes.data) for x in (a, b, c))
    start = (ctypes.c_void_p(words.ctypes.data), ctypes.c_uint64(seed), ctypes.c_uint32(batch))
    library(drawing.source(inst) + RUN).run(*start, *pointers, ctypes.c_uint32(rows), ctypes.c_uint32(columns))
    return Drawn(a, b, c)


def exponents(fmt: Format, patterns: Bits) -> np.ndarray:
    """Of what is neither zero nor subnormal nor special."""
    magnitude = (patterns & fmt.dtype.type(fmt.sign_bit - 1)).astype(np.uint64)
    biased = (magnitude >> np.uint64(fmt.mantissa_bits + fmt.ignored_low_bits)).astype(int)
    return biased[(biased > 0) & (biased <= fmt.max_exponent + fmt.bias)] - fmt.bias


def test_philox_is_the_published_one() -> None:
    """Random123's known answers of philox4x32-10: of zeros, and of ones."""
    assert draw(FP8, drawing.Recipe(drawing.Way.UNIFORM), 1, 1)
    code = "\n".join(
        [drawing.source(parse(FP8)), 'extern "C" void run(u32* x, u64 k) { Random r = philox(k, x[3], x[0], x[1], x[2]);']
    )
    code += "for (int i = 0; i < 4; i++) x[i] = r.word[i]; }"
    kernel = library(code)
    for value, key, answer in (
        (0, 0, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        (0xFFFFFFFF, 2**64 - 1, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    ):
        words = np.full(4, value, np.uint32)
        kernel.run(ctypes.c_void_p(words.ctypes.data), ctypes.c_uint64(key))
        assert tuple(words.tolist()) == answer


def test_kinds_are_those_of_the_cpu() -> None:
    for name in (F16, INT8):
        assert list(drawing.recipes(parse(name))) == list(kinds(parse(name)))


@pytest.mark.parametrize("name", [FP8, F64, INT8])
def test_same_again_other_seed_other_batch(name: str) -> None:
    for recipe in drawing.recipes(parse(name)).values():
        once, again = (draw(name, recipe, 5, 7, 1, 2) for _ in range(2))
        assert all(np.array_equal(x, y) for x, y in zip(once, again, strict=True))
        for other in (draw(name, recipe, 5, 7, 2, 2), draw(name, recipe, 5, 7, 1, 3)):
            assert not np.array_equal(once.a, other.a)
            assert not np.array_equal(once.c, other.c)


@pytest.mark.parametrize("name", [F16, FP8, TF32, F64])
def test_finite_kinds_have_no_specials(name: str) -> None:
    inst = parse(name)
    for kind, recipe in drawing.recipes(inst).items():
        if kind in ("uniform", "special"):
            continue
        for x, fmt in zip(draw(name, recipe, 40, 40), (inst.a, inst.b, inst.c), strict=True):
            magnitude = x & fmt.dtype.type(fmt.sign_bit - 1)
            assert (magnitude <= (fmt.largest | ((1 << fmt.ignored_low_bits) - 1))).all(), kind


@pytest.mark.parametrize("name", [F16, FP8, TF32, F64])
def test_kinds_are_what_they_are_called(name: str) -> None:
    inst = parse(name)
    recipes = drawing.recipes(inst)
    a, b, c = draw(name, recipes["normal"], 100, 100)
    assert -2.5 < exponents(inst.a, a).mean() < -0.5
    assert exponents(inst.c, c).max() <= 3
    a, b, c = draw(name, recipes["wide"], 100, 100)
    for fmt, x in ((inst.a, a), (inst.b, b), (inst.c, c)):
        found = exponents(fmt, x)
        assert found.max() >= fmt.max_exponent - 8
        assert found.min() <= fmt.min_exponent + 8
    assert set(np.unique(exponents(inst.a, draw(name, recipes["near one"], 20, 20).a))) == {-1, 0, 1}
    a, _, _ = draw(name, recipes["sparse"], 100, 100)
    assert 0.6 < ((a & inst.a.dtype.type(inst.a.sign_bit - 1)) == 0).mean() < 0.95
    special, _, c = draw(name, recipes["special"], 100, 100)
    magnitude = special & inst.a.dtype.type(inst.a.sign_bit - 1)
    assert (magnitude > inst.a.largest).any()
    assert (magnitude == inst.a.largest).any()
    assert 0.1 < (c & inst.c.dtype.type(inst.c.sign_bit - 1) > inst.c.largest).mean() < 0.3
    tiny = [draw(name, recipes["tiny"], 30, 30, batch=batch) for batch in range(20)]
    for fmt, x in ((inst.a, [o.a for o in tiny]), (inst.b, [o.b for o in tiny])):
        magnitude = np.concatenate(x) & fmt.dtype.type(fmt.sign_bit - 1)
        subnormal = magnitude >> (fmt.mantissa_bits + fmt.ignored_low_bits) == 0
        assert 0.01 < subnormal.mean() < 0.8
    c = tiny[0].c & inst.c.dtype.type(inst.c.sign_bit - 1)
    assert (c == 0).mean() > 0.2
    assert ((c > 0) & (c < 8)).mean() > 0.1


def test_cancelling_products_cancel_in_every_pair_of_lines() -> None:
    inst = parse(F16)
    a, b, _ = draw(F16, drawing.recipes(inst)["cancelling"], 50, 50)
    x, y = a.view(np.float16).astype(float), b.view(np.float16).astype(float)
    first, second = (x[:, None, :8] * y[None, :, :8]), (x[:, None, 8:] * y[None, :, 8:])
    assert (first == -second).mean() > 0.9
    assert (first != -second).any()


def test_pairs_are_all_pairs() -> None:
    a, b, c = draw(FP8, drawing.pairs(5), drawing.CODES, drawing.CODES)
    assert a[:, 5].tolist() == b[:, 5].tolist() == list(range(256))
    assert not np.delete(a, 5, 1).any()
    assert not np.delete(b, 5, 1).any()
    assert not c.any()


@pytest.mark.parametrize("name", [F16, FP8, TF32, F64])
def test_dense_products_have_one_sign_and_one_exponent(name: str) -> None:
    inst = parse(name)
    a, b, c = draw(name, drawing.recipes(inst)["same sign"], 40, 40)
    of_a, of_b, of_c = (np.signbit(fmt.values(x)) for fmt, x in ((inst.a, a), (inst.b, b), (inst.c, c)))
    assert (of_a == of_a[:, :1]).all()
    assert (of_b == of_b[:, :1]).all()
    assert (of_c == (of_a[:, :1] ^ of_b[:, :1].T)).all()
    assert of_c.any()
    assert not of_c.all()
    ea, eb = (exponents_of(x, fmt, "kept", counted=True) for fmt, x in ((inst.a, a), (inst.b, b)))
    assert (ea == ea[:, :1]).all()
    assert (eb == eb[:, :1]).all()
    assert (
        exponents_of(c, inst.c, "kept", counted=True)
        == np.clip(ea[:, :1] + eb[:, :1].T, inst.c.min_exponent, inst.c.max_exponent)
    ).all()


@pytest.mark.parametrize("name", [F16, FP8, TF32, F64])
def test_c_is_about_an_end_of_its_range(name: str) -> None:
    inst = parse(name)
    for kind, end, apart in (
        ("C near largest", inst.c.largest, range(-3, 1)),
        ("C near smallest normal", 1 << inst.c.mantissa_bits, range(-4, 4)),
    ):
        a, _, c = draw(name, drawing.recipes(inst)[kind], 40, 40)
        assert set(((c & inst.c.dtype.type(inst.c.sign_bit - 1)).astype(np.int64) - end).flat) == set(apart)
        assert (c & inst.c.dtype.type(inst.c.sign_bit) != 0).any()
        assert (a & inst.a.dtype.type(inst.a.sign_bit - 1) == 0).any() == (inst.k > 3)
