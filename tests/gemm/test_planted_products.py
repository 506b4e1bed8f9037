"""Planted products against the same plans computed one output at a time, in fractions, by code that only the test has."""

from __future__ import annotations

import ast
import inspect
import math
import sys
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import permutations
from types import ModuleType

import numpy as np
import planted_disturbances
import planted_plans
import planted_products
import planted_sums
import pytest
from long_tail import some
from planted_plans import HOPPER, NAMED, drawn, operands
from planted_products import Planted
from planted_sums import TYPES, Array

FORMATS = {"f32": (23, -126), "tf32": (10, -126), "bf16": (7, -126), "f16": (10, -14), "e5m2": (2, -14), "e4m3": (3, -6)}
"""Fraction bits and the smallest normal exponent."""

Operands = tuple[Array, ...]


def leading(x: Fraction) -> int:
    exponent = abs(x.numerator).bit_length() - x.denominator.bit_length()
    return exponent - (abs(x) < Fraction(2) ** exponent)


def near(x: Fraction, bits: int, least: int, rounding: str = "RNE") -> Fraction:
    if not x:
        return x
    unit = Fraction(2) ** (max(leading(x), least) - bits)
    if rounding == "RNA":
        return unit * math.trunc(x / unit + (Fraction(1, 2) if x > 0 else -Fraction(1, 2)))
    return unit * (round(x / unit) if rounding == "RNE" else math.trunc(x / unit))


def single(x: Fraction) -> Fraction:
    return near(x, *FORMATS["f32"])


def one_sum(plan: Planted, pairs: Sequence[tuple[Fraction, Fraction]], carry: Fraction) -> Fraction:
    terms = [*(x * y for x, y in pairs), carry]
    exponents = [max(leading(x), FORMATS[plan.a][1]) + max(leading(y), FORMATS[plan.b][1]) for x, y in pairs if x * y]
    if carry:
        exponents.append(max(leading(carry), -126))
    if plan.alignment_bits is not None and exponents:
        unit = Fraction(2) ** (max(exponents) - plan.alignment_bits)
        terms = [unit * math.trunc(term / unit) for term in terms]
    return near(sum(terms, Fraction()), plan.result_bits, -126, plan.sum_rounding)


def slices_of(plan: Planted) -> list[list[int]]:
    sizes = plan.slices or (plan.k,)
    if plan.interleave is not None:
        parts = [[k for k in range(plan.k) if k // plan.interleave % len(sizes) == s] for s in range(len(sizes))]
    else:
        parts = [list(range(sum(sizes[:s]), sum(sizes[: s + 1]))) for s in range(len(sizes))]
    if plan.doubled_k is not None:
        held = next(s for s, part in enumerate(parts) if plan.doubled_k in part)
        parts[held + 1].insert(0, plan.doubled_k)
    return [[k for k in part if k < plan.k - plan.dropped_tail] for part in parts]


def merged(plan: Planted, parts: list[Fraction]) -> Fraction:
    if len(parts) == 1:
        return parts[0]
    match plan.merge:
        case "forward" | "serial":
            total = single(merged(plan, parts[:-1]) + parts[-1])
            return near(total, *FORMATS[plan.partial_format]) if plan.merge == "serial" else total
        case "backward":
            return single(merged(plan, parts[1:]) + parts[0])
        case "tree":
            half = 1 << (len(parts) - 1).bit_length() - 1
            return single(merged(plan, parts[:half]) + merged(plan, parts[half:]))
    raise ValueError("an unordered merge has no one result")


def exact(values: Array, kind: str, rounding: str = "RZ") -> list[Fraction]:
    whole = [Fraction(float(v)) for v in values]
    return [near(v, *FORMATS["tf32"], rounding) for v in whole] if kind == "tf32" else whole


def scale(x: Array, y: Array) -> Fraction:
    return single(Fraction(float(x)) * Fraction(float(y)))


def partials(plan: Planted, given: Operands, m: int, n: int) -> list[Fraction]:
    """Return the partial sums of one output of a plan without edge, faulty output or other plans."""
    a, b, *scales = given
    row, column = exact(a[m], plan.a, plan.operand_rounding), exact(b[:, n], plan.b, plan.operand_rounding)

    def chain(ks: list[int]) -> Fraction:
        carry = Fraction()
        for start in range(0, len(ks), plan.products_per_sum):
            carry = one_sum(plan, [(row[k], column[k]) for k in ks[start : start + plan.products_per_sum]], carry)
        return carry

    def slice_sum(ks: list[int]) -> Fraction:
        if plan.promote_every is None:
            return chain(ks[::-1] if plan.descending else ks)
        total = Fraction()
        for start in range(0, len(ks), plan.promote_every):
            found = chain(ks[start : start + plan.promote_every])
            if plan.scales == "1x128 and 128x128":
                block = ks[start] // 128 - (ks[start] // 128 == plan.wrong_block_scale)
                found = single(found * scale(scales[0][m, block], scales[1][block, n // 128]))
            total = single(total + found)
        return total

    sums = [slice_sum(ks) for ks in slices_of(plan)]
    return sums if len(sums) == 1 else [near(part, *FORMATS[plan.partial_format]) for part in sums]


def result(plan: Planted, given: Operands, m: int, n: int, total: Fraction) -> Fraction:
    _, _, *scales = given
    if plan.scales == "tensor":
        total = single(total * scale(scales[0], scales[1]))
    elif plan.scales == "row":
        total = single(total * scale(scales[0][m], scales[1][n]))
    return near(total, *FORMATS[plan.out], plan.result_rounding)


def check(plan: Planted, given: Operands, seed: int = 0, places: int = 5) -> None:
    d = plan(*given)
    rng = np.random.default_rng(seed)
    for _ in range(places):
        m, n = int(rng.integers(d.shape[0])), int(rng.integers(d.shape[1]))
        assert Fraction(float(d[m, n])) == result(plan, given, m, n, merged(plan, partials(plan, given, m, n)))


WIDE = {"e4m3": (-9, 8), "e5m2": (-16, 15), "f16": (-24, 3), "bf16": (-133, 60), "tf32": (-136, 60), "f32": (-149, 60)}
"""Exponents from subnormal ones to those whose sums are no infinities."""


def wide(plan: Planted, seed: int) -> Operands:
    """Operands of all exponents, many products of which cancel."""
    rng = np.random.default_rng([seed, 17])
    m, n, k = plan.shape

    def some(kind: str, rows: int) -> Array:
        exponents = rng.integers(*WIDE[kind], (rows, k))
        numbers: Array = np.ldexp(rng.uniform(1, 2, (rows, k)) * rng.choice([-1, 1], (rows, k)), exponents)
        return numbers.astype(TYPES[kind].dtype)

    a, b = some(plan.a, m), some(plan.b, n).T
    first, second = np.arange(0, k // 2 - 1, 4), np.arange(1, k // 2, 4)
    a[:, second], b[second] = a[:, first], -b[first]
    return a, b, *operands(plan, seed)[2:]


PLAIN = [name for name, plan in NAMED.items() if not (plan.edge or plan.faulty or plan.by_m or plan.a == "s8")]
ORDERED = [name for name in PLAIN if NAMED[name].merge != "unordered"]


@pytest.mark.parametrize("name", some(ORDERED, 3))
def test_outputs_are_those_of_fractions(name: str) -> None:
    plan = NAMED[name]
    check(plan, operands(plan, 1))
    if "f16" not in (plan.out, plan.partial_format):
        check(plan, wide(plan, 2), places=3)


EXACT = replace(HOPPER, a="f32", b="f32", m=4, n=4, alignment_bits=None, sum_rounding="RNE", k=300)


@pytest.mark.parametrize("rounding", ["RNE", "RZ"])
@pytest.mark.parametrize("products", [1, 2, 8, 32])
@pytest.mark.parametrize("kind", some(["f32", "bf16", "f16", "e5m2"], 3))
def test_exact_sums_are_exact_however_far_apart_their_terms(kind: str, products: int, rounding: planted_sums.Rounding) -> None:
    plan = replace(EXACT, a=kind, b=kind, products_per_sum=products, sum_rounding=rounding)
    for seed in range(2):
        check(plan, wide(plan, seed), seed)


@pytest.mark.parametrize("seed", range(20))
def test_drawn_plans_are_computed_as_by_fractions(seed: int) -> None:
    plan = drawn(seed)
    if plan.a == "s8" or plan.merge == "unordered":
        plan = replace(drawn(seed + 1000), merge="forward")
    check(plan, operands(plan, seed), places=3)


def test_an_unordered_merge_is_one_of_the_orders_and_not_always_the_same() -> None:
    plan = NAMED["5 even slices, unordered"]
    given = operands(plan, 3)
    forward = replace(plan, merge="forward")
    results = [plan(*given) for _ in range(12)]
    assert len({d.tobytes() for d in results}) == len(results)
    for m, n in [(0, 0), (7, 9), (31, 30)]:
        possible = {merged(forward, list(parts)) for parts in permutations(partials(plan, given, m, n))}
        seen = {Fraction(float(d[m, n])) for d in results}
        assert seen <= possible
        assert len(seen) > 1 or len(possible) == 1


@pytest.mark.parametrize("module", [planted_disturbances, planted_plans, planted_products, planted_sums])
def test_nothing_of_accprobe_is_imported(module: ModuleType) -> None:
    planted = {"planted_disturbances", "planted_products", "planted_sums"}
    allowed = {"ml_dtypes", "numpy", *planted, *sys.stdlib_module_names}
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(node, ast.ImportFrom):
            assert str(node.module).split(".")[0] in allowed
        elif isinstance(node, ast.Import):
            assert {name.name.split(".")[0] for name in node.names} <= allowed


def product(plan: Planted, *pairs: tuple[float, float]) -> Array:
    """The one output of a row and a column."""
    a, b = zip(*pairs, strict=True)
    dtype = TYPES[plan.a].dtype
    return np.asarray(plan(np.array([a]).astype(dtype), np.array(b)[:, None].astype(dtype))[0, 0])


@pytest.mark.parametrize("alignment_bits", [None, 25])
@pytest.mark.parametrize("products", [1, 2])
def test_what_is_too_large_becomes_an_infinity_and_stays_one(products: int, alignment_bits: int | None) -> None:
    plan = replace(HOPPER, products_per_sum=products, alignment_bits=alignment_bits)
    huge = 2.0**100
    assert product(plan, (-huge, huge), (1, 1), (huge, huge), (2.0**-60, 2.0**-60)) == -np.inf
    slices = replace(plan, k=4, slices=(2, 2))
    assert np.isnan(product(slices, (-huge, huge), (0, 0), (huge, huge), (0, 0)))


@pytest.mark.parametrize("alignment_bits", [None, 25])
def test_the_sign_of_zero(alignment_bits: int | None) -> None:
    """-2^-150 becomes -0; then -0 is added to it, by FMAs or in one sum of two."""
    plan = replace(HOPPER, products_per_sum=2, alignment_bits=alignment_bits)
    asked = (-(2.0**-75), 2.0**-75), (-0.0, 1), (-0.0, 1), (-0.0, 1)
    assert np.signbit(product(plan, *asked[:2]))
    assert not np.signbit(product(plan, *asked))
    assert np.signbit(product(replace(plan, products_per_sum=1, alignment_bits=None), *asked))
