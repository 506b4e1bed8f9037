"""Models that do what no chip is known to do: in fields that go unsaid where they have their usual value.

As rivals, those alone that differ from the model least, so that little is asked for them; as models that a search may have to
step to, every one that may show.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice, product
from math import ceil, floor
from typing import get_args

from accprobe.infer.alternatives.alternative import Alternative, floats, with_fields
from accprobe.infer.findings import Findings
from accprobe.isa.instructions import Instruction
from accprobe.model.features import Name
from accprobe.model.fields import fields_of, with_values
from accprobe.model.record import Value
from accprobe.model.tree import (
    Addend,
    DotModel,
    FloatArithmetic,
    FusedSum,
    IntegerArithmetic,
    IntegerOverflow,
    Product,
    Rounding,
    Tininess,
    fits,
)

# Together of one arithmetic that go together.
Together = Mapping[str, Value]

# What such fields may be, the ways that show least first; of the models that differ least alone, or all.
Ways = Callable[[Instruction, DotModel, FloatArithmetic, bool], Iterable[Together]]


# Integer accumulators are wider.
TOO_NARROW = 10

# Products that may be scaled at once: a block of scales has 32 or 16.
BLOCKS = (32, 16, 8, 4, 2)

# Alignment bits that are tried of sums of such.
CUT_TO = range(40, 12, -1)

# Bits beyond those of the result to which an exact sum may be rounded first.
EXACT = 20


def nonstandard_alternatives(inst: Instruction, model: DotModel) -> Iterator[Alternative]:
    """The rivals."""
    if inst.is_integer and not model.root.children:
        narrow = islice(narrow_groups(inst, model, (4,)), 2)
        yield from (
            Alternative(changed, (("accumulator_bits", changed.arithmetics[0].accumulator_bits),)) for changed in narrow
        )
    for arithmetic, role in floats(model):
        for fields in (fields for ways in WAYS for fields in ways(inst, model, arithmetic, True)):
            changed = _with(model, arithmetic, fields)
            if changed and changed != model:
                names = {field: field if field in fields_of(DotModel) else str(Name(field, role)) for field in fields}
                yield Alternative(changed, tuple((names[field], value) for field, value in fields.items()))


def nonstandard_variants(inst: Instruction, model: DotModel, findings: Findings) -> Iterator[DotModel]:
    """The models."""
    for arithmetic, _ in floats(model):
        for fields in (fields for ways in WAYS for fields in ways(inst, model, arithmetic, False)):
            if changed := _with(model, arithmetic, fields):
                yield changed


def _with(model: DotModel, arithmetic: FloatArithmetic, fields: Together) -> DotModel | None:
    of_model = fields.keys() <= fields_of(DotModel).keys()
    return with_values(model, fields) if of_model else with_fields(model, arithmetic, fields)


def narrow_groups(inst: Instruction, model: DotModel, sizes: Sequence[int]) -> Iterator[DotModel]:
    """Integer models that add groups of so many products in too few bits, then those and C; the widest first.

    Left out are those that wrap twice in turn to as many bits at least as the result has: it is as if they wrapped once.
    """
    outer = model.root.arithmetic
    assert isinstance(outer, IntegerArithmetic)
    largest = max(inst.a.largest, inst.a.largest + 1 if inst.a.signed else 0) * (inst.b.largest + inst.b.signed)
    for size in (min(size, inst.k) for size in sizes):
        needed, parts = (size * largest).bit_length() + 1, -(-inst.k // size)
        in_turn = [range(i, min(i + size, inst.k)) for i in range(0, inst.k, size)]
        for bits, groups in product(
            range(needed - 1, TOO_NARROW, -1), (in_turn, [range(i, inst.k, parts) for i in range(parts)])
        ):
            for word in reversed(get_args(IntegerOverflow)):
                if word == outer.overflow == "wrap" and bits >= outer.result.bits:
                    continue
                inner = replace(outer, overflow=word, accumulator_bits=bits)
                sums = (FusedSum(tuple(map(Product, group)), inner) for group in groups)
                yield replace(model, root=FusedSum((*sums, Addend()), outer))


def addends(inst: Instruction, model: DotModel, arithmetic: FloatArithmetic, least: bool) -> Iterator[Together]:
    """C read with fewer bits than the sum that it joins can show."""
    if not _adds_c(model, arithmetic):
        return
    bits = inst.c.mantissa_bits if arithmetic.alignment_bits is None else min(inst.c.mantissa_bits, arithmetic.alignment_bits)
    for some in _downwards(bits, model.addend_bits, least):
        yield {"addend_bits": some}


def products(inst: Instruction, model: DotModel, arithmetic: FloatArithmetic, least: bool) -> Iterator[Together]:
    """Rounded to fewer bits than the alignment keeps of the largest."""
    if arithmetic.alignment_bits is None or not any(n.products for n in model.root.nodes() if n.arithmetic == arithmetic):
        return
    bits = min(inst.a.mantissa_bits + inst.b.mantissa_bits + 1, arithmetic.alignment_bits + 1)
    words = ("RZ", "RNE") if least else get_args(Rounding)
    for some, word in product(_downwards(bits, arithmetic.product_bits, least), words):
        yield {"product_bits": some, "product_rounding": word}


def scaled_at_once(inst: Instruction, model: DotModel, arithmetic: FloatArithmetic, least: bool) -> Iterator[Together]:
    """Products of e2m1 that are added before their block scales are applied, and where their sums are cut."""
    if inst.scale_block is None or {inst.a.name, inst.b.name} != {"e2m1"} or arithmetic.alignment_bits is None:
        return
    sums = [node for node in model.root.nodes() if node.arithmetic == arithmetic and node.products]
    if not sums:
        return
    sizes = [None, *(some for some in BLOCKS if inst.scale_block % some == 0)]
    cuts = (arithmetic.alignment_bits,) if least else CUT_TO
    for some, bits in product(sizes, cuts):
        fields: Together = {"scaled_products": some} | ({} if least else {"alignment_bits": bits})
        changed = replace(arithmetic, scaled_products=some, alignment_bits=bits)
        if changed != arithmetic and all(fits(changed, len(node.terms)) for node in sums):
            yield fields


def first_roundings(inst: Instruction, model: DotModel, arithmetic: FloatArithmetic, least: bool) -> Iterator[Together]:
    """To more bits than the result keeps, and fewer than sums have."""
    kept, cut = arithmetic.result_bits, arithmetic.alignment_bits
    most = max(len(node.terms) for node in model.root.nodes() if node.arithmetic == arithmetic)
    bits = kept + EXACT if cut is None else cut + most.bit_length() - 1
    if least and (arithmetic.first_bits is not None or bits < kept + 2):
        return
    for some, word in product([kept + 1] if least else range(kept + 1, bits), ("RZ", "RNE") if least else get_args(Rounding)):
        if not (word == "RZ" and arithmetic.result_rounding in ("RZ", "RNA") and least):
            yield {"first_bits": some, "first_rounding": word}


def overflows(inst: Instruction, model: DotModel, arithmetic: FloatArithmetic, least: bool) -> Iterator[Together]:
    """Detected before rounding, where sums with C lie between the largest result and the next number."""
    result, cut = arithmetic.result, arithmetic.alignment_bits
    reach = inst.a.max_exponent + inst.b.max_exponent
    finer = cut is None or cut > arithmetic.result_bits + 1
    may = inst.c == result and arithmetic.overflow == "infinity" and reach >= result.max_exponent - arithmetic.result_bits
    if _adds_c(model, arithmetic) and finer and may:
        yield {"overflow_detected": "before rounding"}


def underflows(inst: Instruction, model: DotModel, arithmetic: FloatArithmetic, least: bool) -> Iterator[Together]:
    """Tininess detected otherwise than after rounding, where tiny results are zero and sums with C are finer than they."""
    cut = arithmetic.alignment_bits
    finer = cut is None or cut > arithmetic.result_bits
    if _adds_c(model, arithmetic) and inst.c == arithmetic.result and finer and arithmetic.subnormal_results == "flushed":
        yield from ({"tininess_detected": word} for word in get_args(Tininess)[1:])


def _adds_c(model: DotModel, arithmetic: FloatArithmetic) -> bool:
    return any(node.has_addend for node in model.root.nodes() if node.arithmetic == arithmetic)


def _downwards(bits: int, own: int | None, least: bool) -> Iterable[int]:
    """Fewer bits; of a model that has fewer than all, the rivals are made with others of its kind."""
    if least:
        return [bits - 1] if own is None and bits > 0 else []
    return range(bits - 1, -1, -1)


def accumulators(inst: Instruction, model: DotModel, arithmetic: FloatArithmetic, least: bool) -> Iterator[Together]:
    """Too narrow for the largest sum."""
    bits = _needed_bits(inst, model, arithmetic)
    for some, overflow in product(_downwards(bits, arithmetic.accumulator_bits, least), get_args(IntegerOverflow)):
        if some:
            yield {"accumulator_bits": some, "accumulator_overflow": overflow}


def _needed_bits(inst: Instruction, model: DotModel, arithmetic: FloatArithmetic) -> int:
    """`accumulator_bits` that are enough for every sum with that arithmetic; one fewer is not. 0 where sums are not aligned."""
    if arithmetic.alignment_bits is None:
        return 0
    sums = [node for node in model.root.nodes() if node.arithmetic == arithmetic]
    most = max(sum(_largest(inst, arithmetic, term) for term in node.terms) for node in sums)
    return max(most.bit_length() + 1 - arithmetic.alignment_bits, 1)


def _largest(inst: Instruction, arithmetic: FloatArithmetic, term: FusedSum | Product | Addend) -> int:
    """The most that a term with the largest exponent can be, in units of the last bit kept."""
    match term:
        case Product():
            a, b = (2 - 2.0**-fmt.mantissa_bits for fmt in (inst.a, inst.b))
            significand = min(a * b, 2 - 2.0**-52) if arithmetic.product_exponent == "normalised product" else a * b
        case Addend():
            significand = 2 - 2.0**-inst.c.mantissa_bits
        case FusedSum():
            significand = 2 - 2.0 ** -getattr(term.arithmetic, "result_bits", 0)
    rounded = floor if arithmetic.alignment_rounding in ("truncate", "floor", "sticky") else ceil
    return rounded(significand * 2.0 ** (arithmetic.alignment_bits or 0))


WAYS: tuple[Ways, ...] = (scaled_at_once, accumulators, addends, products, first_roundings, overflows, underflows)
