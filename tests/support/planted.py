"""Models with planted features, drawn by hypothesis."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import get_args

from hypothesis import strategies as st

from accprobe.isa.families import MMA_SYNC
from accprobe.isa.formats import FORMATS
from accprobe.isa.instructions import Instruction
from accprobe.model.fields import fields_of
from accprobe.model.record import Value
from accprobe.model.tree import (
    SUM_BITS,
    Addend,
    AddendPlace,
    Arithmetic,
    Detected,
    DotModel,
    FloatArithmetic,
    FusedSum,
    IntegerArithmetic,
    IntegerOverflow,
    Overflow,
    Product,
    ProductExponent,
    Rounding,
    Subnormals,
    UnderflowSign,
    ZeroSign,
    ZeroTerms,
    chain,
)

OPERANDS = ("e4m3 f32", "e5m2 f32", "f16 f32", "f16 f16", "bf16 f32", "tf32 f32", "e4m3 f16", "e5m2 f16")
MOST_SUMS = 8
NANS = {"f32": (0x7FFFFFFF, 0x7FC00000), "f16": (0x7FFF, 0xFE00)}


@dataclass(frozen=True)
class Planted:
    """An instruction that does not exist, and what it computes."""

    instruction: Instruction
    model: DotModel


def instruction(k: int, d: str, a: str, b: str, c: str) -> Instruction:
    """An instruction of no architecture."""
    f = FORMATS
    return Instruction(f"planted.k{k}.{d}.{a}.{b}.{c}", MMA_SYNC, 16, 8, k, f[d], f[a], f[b], f[c])


def known_to(compiled: bool, kind: type[Arithmetic], name: str) -> list[Value]:
    """The words of a field; compiled: those that compiled code knows."""
    field = fields_of(kind)[name]
    return [word for word in field.words if not compiled or field.is_compiled(word)]


@st.composite
def float_models(draw: st.DrawFn, plain: bool = False, compiled: bool = False) -> Planted:
    """Any floating-point model.

    plain: the rules of exponents, zeros and subnormals are the usual ones. compiled: nothing is drawn but what compiled code
    knows.
    """
    operand, result = draw(st.sampled_from(OPERANDS)).split()
    k = draw(st.sampled_from((4, 8, 16, 32, 64)))
    inst = instruction(k, result, operand, operand, result)
    summing = draw(arithmetics(result, k, plain, compiled))
    nan = summing.nan
    adding = FloatArithmetic(FORMATS[result], FORMATS[result].mantissa_bits, "RNE", None, zero_sign="ieee", nan=nan)
    root = draw(trees(k, summing, adding))
    subnormals = st.just("kept") if plain else st.sampled_from(get_args(Subnormals))
    cut = plain or compiled or draw(st.integers(0, 3))
    addend_bits = None if cut else draw(st.integers(1, FORMATS[result].mantissa_bits - 1))
    return Planted(inst, DotModel(root, draw(subnormals), draw(subnormals), addend_bits))


@st.composite
def arithmetics(draw: st.DrawFn, result: str, k: int, plain: bool, compiled: bool) -> FloatArithmetic:
    fmt = FORMATS[result]
    most = min(40, SUM_BITS - 2 - (k + 2).bit_length())

    def some(choices: object, usual: str) -> str:
        return usual if plain else draw(st.sampled_from(get_args(choices)))

    def rare(chosen: st.SearchStrategy[int]) -> int | None:
        return None if plain or compiled or draw(st.integers(0, 3)) else draw(chosen)

    def usually(choices: object) -> str:
        return get_args(choices)[0] if compiled else some(choices, get_args(choices)[0])

    rule = some(ProductExponent, "unnormalised")
    return FloatArithmetic(
        fmt,
        result_bits=draw(st.integers(5, fmt.mantissa_bits)),
        result_rounding=draw(st.sampled_from(known_to(compiled, FloatArithmetic, "result_rounding"))),
        alignment_bits=draw(st.integers(4, most)),
        alignment_rounding=draw(st.sampled_from(known_to(compiled, FloatArithmetic, "alignment_rounding"))),
        product_exponent=rule,
        min_exponent=None if plain else draw(st.none() | st.integers(fmt.min_exponent - 34, fmt.min_exponent - 1)),
        zero_terms=some(ZeroTerms, "ignored") if rule == "unnormalised" else "ignored",
        zero_sign=some(ZeroSign, "positive"),
        underflow_sign=some(UnderflowSign, "kept"),
        overflow=some(Overflow, "infinity"),
        subnormal_results=some(Subnormals, "kept"),
        nan=draw(st.sampled_from(NANS[result])),
        overflow_detected=usually(Detected),
        tininess_detected=usually(Detected),
        product_bits=(of_products := rare(st.integers(1, 12))),
        product_rounding="RZ" if of_products is None else draw(st.sampled_from(get_args(Rounding))),
        first_bits=(first := rare(st.integers(5, 26))),
        first_rounding="RZ" if first is None else draw(st.sampled_from(get_args(Rounding))),
        accumulator_bits=(room := rare(st.integers(3, 8))),
        accumulator_overflow="wrap" if room is None else draw(st.sampled_from(get_args(IntegerOverflow))),
    )


@st.composite
def trees(draw: st.DrawFn, k: int, summing: FloatArithmetic, adding: FloatArithmetic) -> FusedSum:
    size = draw(st.sampled_from([s for s in (1, 2, 4, 8, 16, 32, 64) if s <= k <= MOST_SUMS * s]))
    parts = k // size
    groups = [list(range(i * size, (i + 1) * size)) for i in range(parts)]
    if draw(st.booleans()):
        groups = [list(range(i, k, parts)) for i in range(parts)]
    if size > 1 and parts > 1 and draw(st.booleans()):
        return pairwise([FusedSum(tuple(map(Product, group)), summing) for group in groups], adding)
    place = "first" if size == 1 else draw(st.sampled_from(get_args(AddendPlace)))
    return chain(groups, summing, place, adding)


def pairwise(nodes: list[FusedSum], adding: FloatArithmetic) -> FusedSum:
    """The sums added in pairs, pairs of pairs, …, and C by its own add."""
    while len(nodes) > 1:
        nodes = [FusedSum(tuple(nodes[i : i + 2]), adding) for i in range(0, len(nodes), 2)]
    return FusedSum((nodes[0], Addend()), adding)


@st.composite
def integer_models(draw: st.DrawFn, compiled: bool = False) -> Planted:
    a, b = draw(st.sampled_from(("s8 s8", "u8 s8", "s8 u8", "u8 u8"))).split()
    k = draw(st.sampled_from((8, 16, 32)))
    arithmetic = IntegerArithmetic(FORMATS["s32"], draw(st.sampled_from(("wrap", "saturate"))))
    size = draw(st.sampled_from([s for s in (1, 4, 8, 16, 32) if s <= k]))
    groups = [list(range(i, k, k // size)) for i in range(k // size)]
    if not compiled and size > 1 and not draw(st.integers(0, 3)):
        inner = replace(
            arithmetic, overflow=draw(st.sampled_from(get_args(IntegerOverflow))), accumulator_bits=draw(st.integers(14, 20))
        )
        sums = (FusedSum(tuple(map(Product, group)), inner) for group in groups)
        return Planted(instruction(k, "s32", a, b, "s32"), DotModel(FusedSum((*sums, Addend()), arithmetic)))
    root = chain(groups, arithmetic, draw(st.sampled_from(get_args(AddendPlace))))
    return Planted(instruction(k, "s32", a, b, "s32"), DotModel(root))
