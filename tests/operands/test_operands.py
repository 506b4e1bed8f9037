"""Random operands: shapes, and that every kind is what its name says."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from accprobe.evaluate.decoding import exponents_of
from accprobe.isa.formats import Format
from accprobe.isa.instructions import Instruction, parse
from accprobe.operands.kinds import draw, kinds
from accprobe.operands.request import Request

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
N = 400

floats = pytest.mark.parametrize("inst", [parse(name) for name in FLOATS.values()], ids=FLOATS)
integers = pytest.mark.parametrize("inst", [parse(name) for name in INTEGERS.values()], ids=INTEGERS)


def some(kind: str, inst: Instruction, seed: int = 1, n: int = N) -> Request:
    return draw(kind, inst, np.random.default_rng(seed), n)


def columns(operands: Request, inst: Instruction) -> Iterator[tuple[np.ndarray, Format]]:
    return zip(operands.columns, (inst.a, inst.b, inst.c), strict=True)


def products(operands: Request, inst: Instruction) -> np.ndarray:
    with np.errstate(all="ignore"):
        return inst.a.values(operands.a) * inst.b.values(operands.b)


def sums(operands: Request, inst: Instruction) -> np.ndarray:
    with np.errstate(all="ignore"):
        return products(operands, inst).sum(axis=1) + inst.c.values(operands.c)


@pytest.mark.parametrize("name", [*FLOATS.values(), *INTEGERS.values()])
def test_shapes_types_and_seed(name: str) -> None:
    inst = parse(name)
    for kind in kinds(inst):
        for n in (0, 1, 7):
            a, b, c = some(kind, inst, n=n).columns
            assert (a.shape, b.shape, c.shape) == ((n, inst.k), (n, inst.k), (n,)), kind
            assert (a.dtype, b.dtype, c.dtype) == (inst.a.dtype, inst.b.dtype, inst.c.dtype), kind
        first, again, other = some(kind, inst), some(kind, inst), some(kind, inst, seed=2)
        assert all(np.array_equal(x, y) for x, y in zip(first.columns, again.columns, strict=True)), kind
        assert not any(np.array_equal(x, y) for x, y in zip(first.columns, other.columns, strict=True)), kind
        for patterns, fmt in columns(first, inst):
            assert int(patterns.max()) < 1 << (fmt.storage_bits if fmt.ignored_low_bits else fmt.bits), kind
            assert kind in ("uniform", "special") or inst.is_integer or np.isfinite(fmt.values(patterns)).all(), kind


@floats
def test_wide_has_every_exponent_and_subnormals(inst: Instruction) -> None:
    for patterns, fmt in columns(some("wide", inst, n=40_000 if inst.a.name == "f64" else 8000), inst):
        assert fmt.is_subnormal(patterns).any()
        assert set(exponents_of(patterns, fmt, "kept", counted=True).flat) == set(range(fmt.min_exponent, fmt.max_exponent + 1))


@floats
def test_cancelling_sums_are_small(inst: Instruction) -> None:
    operands = some("cancelling", inst)
    largest = np.abs(products(operands, inst)).max(axis=1)
    lone = (operands.c & inst.c.dtype.type(~inst.c.sign_bit & ((1 << inst.c.bits) - 1))) == 0
    assert 0.3 < lone.mean() < 0.7
    small = np.abs(sums(operands, inst))[lone] < 2.0**-3 * largest[lone]
    assert small.mean() > 0.3
    assert (sums(operands, inst)[lone] != 0).mean() > 0.1
    other = some("clustered", inst)
    usual = np.abs(sums(other, inst)) < 2.0**-3 * np.abs(products(other, inst)).max(axis=1)
    assert usual.mean() < small.mean() / 2


@floats
def test_special_has_what_the_format_has(inst: Instruction) -> None:
    for patterns, fmt in columns(some("special", inst, n=2000), inst):
        values = fmt.values(patterns)
        assert np.isnan(values).any() == (fmt.specials != "none")
        assert np.isinf(values).any() == (fmt.specials == "ieee")
        assert (values == 0).any()
        magnitude = patterns & fmt.dtype.type(~fmt.sign_bit & ((1 << fmt.storage_bits) - 1))
        assert (magnitude == fmt.largest).any()
        assert np.isfinite(values).mean() > 0.7
        if fmt.specials == "ieee":
            assert len(np.unique(magnitude[np.isnan(values)])) > 1


def test_tf32_low_bits_are_random_too() -> None:
    """The unit must ignore them, so they must not be zero."""
    inst = parse(FLOATS["tf32"])
    for kind in ("uniform", "wide", "clustered", "near one", "tiny"):
        assert all(((some(kind, inst).a >> np.uint32(bit)) & 1).any() for bit in range(13)), kind


@integers
@pytest.mark.parametrize("kind", ["extreme", "C near overflow"])
def test_integer_sums_overflow(inst: Instruction, kind: str) -> None:
    operands = some(kind, inst, n=4000)
    total = (inst.a.integers(operands.a) * inst.b.integers(operands.b)).sum(axis=1) + inst.c.integers(operands.c)
    assert (total > 2**31 - 1).any()
    assert (total < -(2**31)).any()
    assert ((total >= -(2**31)) & (total < 2**31)).any()
