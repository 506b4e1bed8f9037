"""The evaluator against an independent one, examples of block scales, results of TDPBF16PS, and several models in turn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from outside import Unit
from planted_processor import FMA
from plants import GENERATORS, Plant, float_models, float_sums, instruction, integer_models

from accprobe.errors import AccprobeError
from accprobe.evaluate import evaluator, terms
from accprobe.evaluate.cuda.source import check
from accprobe.evaluate.evaluator import evaluate
from accprobe.evaluate.reference import Evaluation
from accprobe.infer.neighbours import alternatives, coarser_bounds, field_pairs, floors, groups
from accprobe.isa.formats import FORMATS, Bits
from accprobe.isa.instructions import Instruction, parse
from accprobe.model.published import known_models
from accprobe.model.tree import (
    Addend,
    DotModel,
    FloatArithmetic,
    FusedSum,
    IntegerArithmetic,
    NanPayload,
    Product,
    Rounding,
    chain,
    most_alignment_bits,
)
from accprobe.operands.directed import Target, directed
from accprobe.operands.kinds import draw, kinds
from accprobe.operands.request import Request, joined
from accprobe.records.findings import Finding

MIXED = "mma.sync.m16n8k32.kind::mxf8f6f4.scale_vec::1X.f32.{}.{}.f32.ue8m0"
FP4 = "mma.sync.m16n8k64.kind::mxf4nvf4.scale_vec::{}X.f32.e2m1.e2m1.f32.{}"
NVFP4 = parse(FP4.format(4, "ue4m3"))
TWO_A_DOT = parse(FP4.format(2, "ue8m0"))

ONE_TERM_A_PRODUCT = FloatArithmetic(FORMATS["f32"], 23, "RZ", 25, min_exponent=-133)
SIXTEEN_AT_ONCE = FloatArithmetic(FORMATS["f32"], 23, "RZ", 35, min_exponent=-139, scaled_products=16)


def fused(inst: Instruction, arithmetic: FloatArithmetic) -> DotModel:
    return DotModel(chain([range(inst.k)], arithmetic))


@st.composite
def scaled_models(draw: st.DrawFn) -> Plant:
    """Models that scale each product, in one sum or two; for e2m1 also groups of products."""
    a, b = (draw(st.sampled_from(("e4m3", "e5m2", "e3m2", "e2m3", "e2m1"))) for _ in range(2))
    name = draw(st.sampled_from((MIXED.format(a, b), FP4.format(2, "ue8m0"), FP4.format(4, "ue8m0"), FP4.format(4, "ue4m3"))))
    inst = parse(name)
    arithmetic = float_sums(draw(GENERATORS), inst.d, inst.k, False)
    arithmetic = replace(arithmetic, alignment_bits=min(arithmetic.alignment_bits or 0, 38))
    size = draw(st.sampled_from((inst.k, inst.k // 2)))
    if inst.k == 64:
        some = draw(st.sampled_from([None, *(g for g in (2, 4, 8, 16, 32) if (inst.scale_block or 0) % g == 0)]))
        arithmetic = replace(arithmetic, scaled_products=some)
    model = DotModel(chain([range(inst.k)[i : i + size] for i in range(0, inst.k, size)], arithmetic))
    return Plant(inst, replace(model, subnormal_operands=draw(st.sampled_from(("kept", "flushed")))))


def assert_agrees(planted: Plant, operands: Request) -> None:
    inst, model = planted.instruction, planted.model
    d, expected = evaluator.with_numpy(model, inst, operands), Unit(inst, model).dot(operands)
    for i in np.flatnonzero(d != expected):
        pytest.fail(f"{model} {operands[[i]]}: {int(d[i]):#x}, expected {int(expected[i]):#x}")


@settings(max_examples=32, deadline=None)
@given(float_models() | scaled_models() | integer_models(), st.integers(0, 2**32 - 1))
def test_any_model_on_every_kind_of_operands(planted: Plant, seed: int) -> None:
    rng = np.random.default_rng(seed)
    for kind in kinds(planted.instruction):
        assert_agrees(planted, draw(kind, planted.instruction, rng, 2))


@pytest.mark.parametrize("payload", get_args(NanPayload))
def test_nan_payloads(payload: str) -> None:
    inst = instruction(4, "f64", "f64", "f64", "f64")
    arithmetic = FloatArithmetic(FORMATS["f64"], 52, "RNE", None, nan=0xFFF8 << 48, nan_payload=payload)
    planted = Plant(inst, DotModel(chain([[0], [1], [2], [3]], arithmetic)))
    assert_agrees(planted, draw("special", inst, np.random.default_rng(2), 300))


@pytest.mark.parametrize("rounding", get_args(Rounding))
@pytest.mark.parametrize(("operand", "result"), [("f64", "f64"), ("bf16", "f32"), ("e5m2", "f16")])
@pytest.mark.parametrize("size", [1, 4])
def test_exact_sums(operand: str, result: str, rounding: str, size: int) -> None:
    """FMA chains, and sums of five terms that are exact before the one rounding."""
    inst = instruction(4, result, operand, operand, result)
    fmt = FORMATS[result]
    arithmetic = FloatArithmetic(fmt, fmt.mantissa_bits, rounding, None, zero_sign="ieee", nan=fmt.infinity + 1)
    planted = Plant(inst, DotModel(chain([list(range(i, i + size)) for i in range(0, 4, size)], arithmetic)))
    rng = np.random.default_rng(1)
    for kind in kinds(inst):
        assert_agrees(planted, draw(kind, inst, rng, 4))


def test_a_model_of_another_k() -> None:
    short = DotModel(chain([range(16)], IntegerArithmetic(FORMATS["s32"], "wrap")))
    inst = instruction(32, "s32", "s8", "s8", "s32")
    with pytest.raises(AccprobeError, match="has 32 products, the model 16"):
        evaluate(short, inst, draw("uniform", inst, np.random.default_rng(0), 1))


@pytest.mark.parametrize("ks", [range(1, 33), [0] * 32, [*range(31), 99]], ids=["shifted", "one again and again", "far"])
def test_every_product_is_in_a_model_once(ks: Sequence[int]) -> None:
    inst = parse("wgmma.m64n8k32.f32.e4m3.e4m3")
    model = DotModel(chain([list(ks)], FloatArithmetic(FORMATS["f32"], 13, "RZ", 13)))
    zeros = np.zeros((1, 32), np.uint8)
    with pytest.raises(AccprobeError, match="products 0 to 31, each once"):
        evaluate(model, inst, Request(zeros, zeros, np.zeros(1, np.uint32)))


@pytest.mark.parametrize("inst", [parse(MIXED.format("e5m2", "e2m1")), NVFP4], ids=str)
def test_exact_sums_of_scaled_products(inst: Instruction) -> None:
    exact = FloatArithmetic(FORMATS["f32"], 23, "RNE", None)
    rng = np.random.default_rng(4)
    for kind in kinds(inst):
        assert_agrees(Plant(inst, fused(inst, exact)), draw(kind, inst, rng, 10))


def one(
    inst: Instruction, a: dict[int, int], b: dict[int, int], scales_a: list[int], scales_b: list[int], c: int = 0
) -> Request:
    request = Request.zeros(inst, 1)
    for patterns, codes in ((request.a, a), (request.b, b)):
        for k, code in codes.items():
            patterns[0, k] = code
    request.c[0] = c
    return replace(request, scales_a=np.array([scales_a], np.uint8), scales_b=np.array([scales_b], np.uint8))


LEAD = [0x78, 0x01, 0x38, 0x38]
"""ue4m3: 2^8, 2^-9, 1, 1."""


@pytest.mark.parametrize(("bits", "expected"), [(34, 0), (35, 0), (36, 0x35800000)])
def test_a_small_block_beside_a_large_one_that_cancels(bits: int, expected: int) -> None:
    """16 - 16 times 2^16, and 2^-2 times 2^-18 beside it: 36 bits below the scales of the first."""
    request = one(NVFP4, {0: 6, 1: 6, 16: 1}, {0: 6, 1: 0xE, 16: 1}, LEAD, LEAD)
    model = fused(NVFP4, replace(SIXTEEN_AT_ONCE, alignment_bits=bits))
    assert evaluate(model, NVFP4, request).tolist() == [expected]


@pytest.mark.parametrize(
    ("inst", "code", "nan"),
    [(TWO_A_DOT, 0xFF, True), (TWO_A_DOT, 0xFE, False), (NVFP4, 0x7F, True), (NVFP4, 0xFF, True), (NVFP4, 0x7E, False)],
)
@pytest.mark.parametrize("size", [None, 16])
def test_a_nan_scale_makes_the_sum_nan(inst: Instruction, code: int, nan: bool, size: int | None) -> None:
    """Even if all products are zero."""
    ones = Request.zeros(inst, 1)
    ones.scales_a[0, -1] = code
    model = fused(inst, replace(SIXTEEN_AT_ONCE, scaled_products=size))
    assert evaluate(model, inst, ones).tolist() == [0x7FFFFFFF if nan else 0]


@pytest.mark.parametrize(
    ("inst", "size", "reason"),
    [
        (parse("mma.sync.m16n8k32.kind::f8f6f4.f32.e2m1.e2m1.f32"), 16, "only products of e2m1 with block scales"),
        (parse(MIXED.format("e4m3", "e2m1")), 16, "only products of e2m1 with block scales"),
        (NVFP4, 32, "do not fill blocks of 16"),
    ],
)
def test_groups_that_cannot_be_scaled_at_once_are_refused(inst: Instruction, size: int, reason: str) -> None:
    model = fused(inst, replace(SIXTEEN_AT_ONCE, scaled_products=size))
    with pytest.raises(AccprobeError, match=reason):
        evaluate(model, inst, Request.zeros(inst, 1))


@pytest.mark.parametrize("products", [2, 32, 64, 96])
def test_sums_of_the_largest_scaled_products_and_c_are_exact_in_float64(products: int) -> None:
    """K = 96 of sm_103a is no power of two."""
    largest = 36 * 1.875**2 * products + 4
    assert largest * 2.0 ** most_alignment_bits(SIXTEEN_AT_ONCE, products + 1) <= 2.0**53


@pytest.mark.parametrize("groups", [[range(3), range(3, 64)], [range(0, 64, 2), range(1, 64, 2)], [range(8, 24)]])
def test_a_sum_cannot_split_a_group_that_is_scaled_at_once(groups: list[range]) -> None:
    with pytest.raises(AccprobeError, match="scales 16 products at once"):
        DotModel(chain(groups, SIXTEEN_AT_ONCE))


@pytest.mark.parametrize("arithmetic", [ONE_TERM_A_PRODUCT, SIXTEEN_AT_ONCE])
def test_compiled_code_has_no_block_scales(arithmetic: FloatArithmetic) -> None:
    with pytest.raises(AccprobeError, match=r"no GPU evaluator"):
        check(fused(NVFP4, arithmetic), NVFP4)


INST = parse("TDPBF16PS")
WORDS = np.load(Path(__file__).parents[1] / "recordings" / "tdpbf16ps.npz")
DRAWN, SEED = 8192, 17


def chained(ks: range, step: FloatArithmetic) -> FusedSum:
    node = FusedSum((Product(ks[0]),), step)
    for k in ks[1:]:
        node = FusedSum((node, Product(k)), step)
    return node


def two_chains(step: FloatArithmetic) -> DotModel:
    """Return a model of two chains, of even and odd products, then their sum, then C."""
    both = FusedSum((chained(range(0, INST.k, 2), step), chained(range(1, INST.k, 2), step)), step)
    return DotModel(FusedSum((both, Addend()), step), subnormal_operands="flushed", subnormal_addend="flushed")


def wrong(model: DotModel, kind: str) -> int:
    rng = np.random.default_rng([SEED, list(kinds(INST)).index(kind)])
    request = draw(kind, INST, rng, DRAWN)[: len(WORDS[kind])]
    return int((evaluate(model, INST, request) != WORDS[kind]).sum())


@pytest.mark.parametrize("kind", kinds(INST))
def test_two_chains_from_zero_then_c_explain_every_result(kind: str) -> None:
    """Zeros have the signs of IEEE 754, and the NaN of C counts before that of the chains."""
    assert wrong(two_chains(FMA), kind) == 0


@pytest.mark.parametrize(
    "changed",
    [
        replace(two_chains(FMA), subnormal_addend="kept"),
        two_chains(replace(FMA, zero_sign="positive")),
        two_chains(replace(FMA, underflow_sign="positive")),
        two_chains(replace(FMA, nan_payload="c a b")),
    ],
)
def test_the_results_contradict_alternative_models(changed: DotModel) -> None:
    assert sum(wrong(changed, kind) for kind in ("tiny", "sparse", "special", "C near smallest normal")) > 0


def every_kind(inst: Instruction, seed: int, n: int) -> Request:
    rng = np.random.default_rng(seed)
    return joined([draw(kind, inst, rng, n) for kind in kinds(inst)])


def varied_operands(inst: Instruction, model: DotModel, seed: int, n: int) -> Request:
    """Return random operands of every kind, and directed ones for fields that rarely matter."""
    rng = np.random.default_rng(seed)
    sums = tuple(range(len(list(model.root.nodes()))))
    places = (Target("anywhere", sums), Target("products", sums), Target("floor", sums, (-12, -126)))
    return joined([every_kind(inst, seed, n), *(directed(inst, model, place, rng, 16 * n) for place in places)])


def relatives(inst: Instruction, model: DotModel) -> Iterator[DotModel]:
    """Yield the model, models that differ from it in one or several fields, and the model again."""
    yield model
    for alternative in (*alternatives(model, {"order": Finding("")}), *field_pairs(model), *groups(model)):
        yield alternative.model
    for candidates in coarser_bounds(model):
        yield from (alternative.model for alternative in candidates[:3])
    for levels in floors(inst, model):
        yield from (alternative.model for alternative in (*levels.above[:400:20], *levels.below[:3]))
        yield from [levels.none.model] if levels.none else []
    yield model


def assert_same_results(inst: Instruction, models: list[DotModel], operands: Request) -> None:
    together = Evaluation(inst, operands)
    for model in models:
        np.testing.assert_array_equal(together.of(model), Evaluation(inst, operands).of(model), str(model))


@pytest.mark.parametrize("room", [terms.ROOM, 0], ids=["as it is", "without room"])
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(float_models() | integer_models(), st.integers(0, 2**32 - 1), st.randoms(use_true_random=False))
def test_alternatives_to_planted_models_in_any_order(
    monkeypatch: pytest.MonkeyPatch, room: int, planted: Plant, seed: int, random
) -> None:
    """With the usual cache, and with one that evicts at once."""
    monkeypatch.setattr(terms, "ROOM", room)
    inst, models = planted.instruction, list(relatives(planted.instruction, planted.model))
    operands = every_kind(inst, seed, 8) if inst.is_integer else varied_operands(inst, planted.model, seed, 4)
    assert_same_results(inst, random.sample(models, min(len(models), 25)), operands)


def test_changed_operands_are_evaluated_again() -> None:
    """The cache compares contents, not array identities."""
    inst, other = parse("mma.sync.m16n8k32.f32.e4m3.e4m3.f32"), parse("wgmma.m64n8k32.f32.e4m3.e4m3")
    models = {i: known_models("h100")[i].model for i in (inst, other)}
    a, b, c = every_kind(inst, 0, 20).columns

    def alone(i: Instruction) -> Bits:
        return evaluator.with_numpy(models[i], i, Request(a, b, c))

    first = evaluate(models[inst], inst, Request(a, b, c))
    np.testing.assert_array_equal(first, alone(inst))
    np.testing.assert_array_equal(evaluate(models[other], other, Request(a.copy(), b, c)), alone(other))
    for x in (a, b, c):
        x ^= x.dtype.type(1 << (8 * x.itemsize - 1))
        np.testing.assert_array_equal(evaluate(models[inst], inst, Request(a, b, c)), alone(inst))
    assert (evaluate(models[inst], inst, Request(a, b, c)) != first).any()
    np.testing.assert_array_equal(evaluate(models[inst], inst, Request(a[:7], b[:7], c[:7])), alone(inst)[:7])
