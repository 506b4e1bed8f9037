"""The independent reference evaluator: `fractions.Fraction`, one dot product at a time, formats by formula."""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

from accprobe.isa.formats import Format
from accprobe.isa.instructions import Instruction
from accprobe.model.tree import Addend, DotModel, FloatArithmetic, FusedSum, IntegerArithmetic, Product


class Number(NamedTuple):
    """A decoded operand: kind is "nan", "inf" or "finite"; exponent is the one encoded."""

    kind: str
    negative: bool
    value: Fraction
    exponent: int


def decode(fmt: Format, pattern: int) -> Number:
    pattern >>= fmt.ignored_low_bits
    fraction = pattern % 2**fmt.mantissa_bits
    biased = pattern // 2**fmt.mantissa_bits % 2**fmt.exponent_bits
    negative = pattern // 2 ** (fmt.mantissa_bits + fmt.exponent_bits) % 2 == 1
    all_ones = biased == 2**fmt.exponent_bits - 1
    if fmt.specials == "ieee" and all_ones:
        return Number("nan" if fraction else "inf", negative, Fraction(0), 0)
    if fmt.specials == "nan only" and all_ones and fraction == 2**fmt.mantissa_bits - 1:
        return Number("nan", negative, Fraction(0), 0)
    exponent = max(biased, 1) - fmt.bias
    hidden = 1 if biased else 0
    magnitude = (hidden + Fraction(fraction, 2**fmt.mantissa_bits)) * Fraction(2) ** exponent
    return Number("finite", negative, -magnitude if negative else magnitude, exponent)


def log2_floor(value: Fraction) -> int:
    value = abs(value)
    exponent = value.numerator.bit_length() - value.denominator.bit_length()
    return exponent if value >= Fraction(2) ** exponent else exponent - 1


def to_integer(value: Fraction, mode: str) -> int:
    below = value.numerator // value.denominator
    rest = value - below
    if rest == 0:
        return below
    if mode in ("floor", "RD"):
        return below
    if mode in ("ceiling", "RU"):
        return below + 1
    if mode == "away":
        return below if value < 0 else below + 1
    if mode in ("truncate", "RZ"):
        return below if value > 0 else below + 1
    if mode in ("nearest", "RNE"):
        if rest != Fraction(1, 2):
            return below + (rest > Fraction(1, 2))
        return below + below % 2
    if mode in ("nearest away", "RNA"):
        return below + (rest > Fraction(1, 2) or (rest == Fraction(1, 2) and value > 0))
    assert mode == "sticky"
    toward_zero = below if value > 0 else below + 1
    if toward_zero % 2:
        return toward_zero
    return toward_zero + (1 if value > 0 else -1)


def flushed(number: Number, fmt: Format, rule: str) -> Number:
    if rule == "flushed" and number.kind == "finite" and abs(number.value) < Fraction(2) ** fmt.min_exponent:
        return number._replace(value=Fraction(0))
    return number


def cut_addend(number: Number, fmt: Format, bits: int | None) -> Number:
    if bits is None or number.kind != "finite":
        return number
    quantum = Fraction(2) ** (number.exponent - bits)
    return number._replace(value=to_integer(number.value / quantum, "truncate") * quantum)


class Term(NamedTuple):
    kind: str
    negative: bool
    value: Fraction
    exponent: int | None


def product_term(x: Number, y: Number, arithmetic: FloatArithmetic) -> Term:
    negative = x.negative != y.negative
    if "nan" in (x.kind, y.kind):
        return Term("nan", negative, Fraction(0), None)
    if "inf" in (x.kind, y.kind):
        zero = (x.kind == "finite" and x.value == 0) or (y.kind == "finite" and y.value == 0)
        return Term("nan" if zero else "inf", negative, Fraction(0), None)
    value = x.value * y.value
    if value == 0:
        counted = arithmetic.zero_terms == "aligned" and arithmetic.product_exponent == "unnormalised"
        return Term("finite", negative, value, x.exponent + y.exponent if counted else None)
    cut = to_significand(value, arithmetic.product_bits, arithmetic.product_rounding)
    if arithmetic.alignment_bits is None:
        cut = value
    exponent = {
        "unnormalised": x.exponent + y.exponent,
        "normalised operands": log2_floor(x.value) + log2_floor(y.value),
        "normalised product": log2_floor(value),
    }[arithmetic.product_exponent]
    return Term("finite", negative, cut, exponent)


def decode_scale(fmt: Format, pattern: int) -> Number:
    if fmt.name == "ue8m0":
        if pattern == 255:
            return Number("nan", False, Fraction(0), 0)
        return Number("finite", False, Fraction(2) ** (pattern - 127), pattern - 127)
    assert fmt.name == "ue4m3"
    exponent, fraction = pattern % 128 // 8, pattern % 8
    if pattern % 128 == 127:
        return Number("nan", False, Fraction(0), 0)
    if exponent == 0:
        return Number("finite", False, Fraction(fraction, 512), -6)
    return Number("finite", False, Fraction(8 + fraction, 8) * Fraction(2) ** (exponent - 7), exponent - 7)


Scales = tuple[list[int], list[int]]
"""Patterns of scales of A and of B, one per block."""


def scaled_term(term: Term, scales: list[Number], arithmetic: FloatArithmetic) -> Term:
    """Return a product times its scales, with its new exponent."""
    if term.kind == "nan" or any(scale.kind == "nan" for scale in scales):
        return Term("nan", term.negative, Fraction(0), None)
    value, exponent = term.value, term.exponent
    for scale in scales:
        value *= scale.value
        if exponent is not None:
            normalised = arithmetic.product_exponent != "unnormalised" and scale.value
            exponent += log2_floor(scale.value) if normalised else scale.exponent
    counted = arithmetic.zero_terms == "aligned" and arithmetic.product_exponent == "unnormalised"
    if value == 0 and not counted:
        exponent = None
    elif arithmetic.product_exponent == "normalised product":
        exponent = log2_floor(value)
    return Term(term.kind, term.negative, value, exponent)


def group_terms(
    numbers: list[tuple[int, Number, Number]], scales: list[list[Number]], arithmetic: FloatArithmetic
) -> list[Term]:
    """Return groups of products of e2m1, each times its scales. numbers: k, a, b; scales: of each k."""
    terms, size = [], arithmetic.scaled_products
    for group in sorted({k // size for k, _, _ in numbers}):
        members = [(a, b) for k, a, b in numbers if k // size == group]
        total = sum((a.value * b.value for a, b in members), Fraction(0))
        empty = all(a.value * b.value == 0 for a, b in members)
        counted = arithmetic.zero_terms == "aligned" and arithmetic.product_exponent == "unnormalised"
        start = Term("finite", total < 0, total, None if empty and not counted else 0)
        terms.append(scaled_group(start, scales[group * size], arithmetic))
    return terms


def scaled_group(start: Term, scales: list[Number], arithmetic: FloatArithmetic) -> Term:
    if arithmetic.product_exponent == "normalised product" and start.value == 0:
        return scaled_term(start._replace(exponent=None), scales, arithmetic)
    return scaled_term(start, scales, arithmetic)


def evaluate_one(model: DotModel, inst: Instruction, a: list[int], b: list[int], c: int, scales: Scales | None = None) -> int:
    return _node(model, inst, model.root, a, b, c, scales)


def _node(
    model: DotModel, inst: Instruction, node: FusedSum, a: list[int], b: list[int], c: int, scales: Scales | None = None
) -> int:
    arithmetic = node.arithmetic
    if isinstance(arithmetic, IntegerArithmetic):
        return _integer(model, inst, node, a, b, c)
    terms, others, grouped = [], [], []
    of_block = [[decode_scale(inst.scale, s) for s in pair] for pair in zip(*scales, strict=True)] if scales else []
    of_k = [of_block[k // inst.scale_block] for k in range(inst.k)] if scales else []
    for term in node.terms:
        if isinstance(term, Product):
            x = flushed(decode(inst.a, a[term.k]), inst.a, model.subnormal_operands)
            y = flushed(decode(inst.b, b[term.k]), inst.b, model.subnormal_operands)
            if arithmetic.scaled_products is not None and arithmetic.alignment_bits is not None:
                grouped.append((term.k, x, y))
            elif scales:
                terms.append(scaled_term(product_term(x, y, arithmetic), of_k[term.k], arithmetic))
            else:
                terms.append(product_term(x, y, arithmetic))
            continue
        pattern = c if isinstance(term, Addend) else _node(model, inst, term, a, b, c, scales)
        if isinstance(term, Addend):
            number = flushed(cut_addend(decode(inst.c, pattern), inst.c, model.addend_bits), inst.c, model.subnormal_addend)
        else:
            number = decode(term.arithmetic.result, pattern)
        exponent = number.exponent if number.value else None
        others.insert(0 if isinstance(term, Addend) else len(others), pattern)
        terms.append(Term(number.kind, number.negative, number.value, exponent))
    terms += group_terms(grouped, of_k, arithmetic)
    if arithmetic.nan_payload != "dropped":
        ks = [term.k for term in node.terms if isinstance(term, Product)]
        operands = {"a": [a[k] for k in ks], "b": [b[k] for k in ks], "c": others}
        for letter in arithmetic.nan_payload.split():
            for pattern in operands[letter]:
                if decode(inst.c, pattern).kind == "nan":
                    return pattern | 1 << (inst.c.mantissa_bits - 1)
    return _add(terms, arithmetic)


def _add(terms: list[Term], arithmetic: FloatArithmetic) -> int:
    fmt = arithmetic.result
    infinities = {term.negative for term in terms if term.kind == "inf"}
    if any(term.kind == "nan" for term in terms) or len(infinities) == 2:
        return arithmetic.nan
    if infinities:
        return fmt.infinity | (fmt.sign_bit if infinities.pop() else 0)
    if arithmetic.alignment_bits is None:
        total = sum((term.value for term in terms), Fraction(0))
    else:
        exponents = [term.exponent for term in terms if term.exponent is not None]
        if arithmetic.min_exponent is not None:
            exponents.append(arithmetic.min_exponent)
        unit = Fraction(2) ** (max(exponents, default=0) - arithmetic.alignment_bits)
        total = sum((to_integer(term.value / unit, arithmetic.alignment_rounding) * unit for term in terms), Fraction(0))
        if arithmetic.accumulator_bits is not None:
            total = (
                in_twos_complement(
                    int(total / unit), arithmetic.alignment_bits + arithmetic.accumulator_bits, arithmetic.accumulator_overflow
                )
                * unit
            )
    if total == 0:
        negative = arithmetic.zero_sign == "ieee" and all(term.negative for term in terms)
        return fmt.sign_bit if negative else 0
    return _round(total, arithmetic)


def in_twos_complement(number: int, bits: int, overflow: str) -> int:
    """Return an integer wrapped or saturated to so many bits."""
    lowest, highest = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    if overflow == "saturate":
        return min(max(number, lowest), highest)
    kept = number & ((1 << bits) - 1)
    return kept - (1 << bits) if kept > highest else kept


def to_significand(value: Fraction, bits: int | None, mode: str) -> Fraction:
    """Round to so many bits after the leading one; None: return the value."""
    if bits is None or value == 0:
        return value
    quantum = Fraction(2) ** (log2_floor(value) - bits)
    return to_integer(value / quantum, mode) * quantum


def _round(exact: Fraction, arithmetic: FloatArithmetic) -> int:
    fmt = arithmetic.result
    total = to_significand(exact, arithmetic.first_bits, arithmetic.first_rounding)
    quantum = Fraction(2) ** (max(log2_floor(total), fmt.min_exponent) - arithmetic.result_bits)
    rounded = to_integer(total / quantum, arithmetic.result_rounding) * quantum
    sign = fmt.sign_bit if total < 0 else 0
    zero = sign if arithmetic.underflow_sign == "kept" else 0
    rounded = abs(rounded)
    small = abs(exact) if arithmetic.tininess_detected == "before rounding" else rounded
    if arithmetic.subnormal_results == "flushed" and small < Fraction(2) ** fmt.min_exponent:
        return zero
    largest = (2 - Fraction(1, 2**arithmetic.result_bits)) * Fraction(2) ** fmt.max_exponent
    large = abs(exact) if arithmetic.overflow_detected == "before rounding" else rounded
    if large > largest or rounded > largest:
        if arithmetic.overflow == "infinity":
            return fmt.infinity | sign
        rounded = largest
    if rounded == 0:
        return zero
    exponent = max(log2_floor(rounded), fmt.min_exponent)
    significand = rounded / Fraction(2) ** (exponent - fmt.mantissa_bits)
    assert significand.denominator == 1
    normal = significand >= 2**fmt.mantissa_bits
    biased = exponent + fmt.bias if normal else 0
    return sign | biased * 2**fmt.mantissa_bits | int(significand) % 2**fmt.mantissa_bits


def _integer(model: DotModel, inst: Instruction, node: FusedSum, a: list[int], b: list[int], c: int) -> int:
    def signed(fmt: Format, pattern: int) -> int:
        return pattern - 2**fmt.bits if fmt.kind == "signed" and pattern >= 2 ** (fmt.bits - 1) else pattern

    total = 0
    for term in node.terms:
        if isinstance(term, Product):
            total += signed(inst.a, a[term.k]) * signed(inst.b, b[term.k])
        elif isinstance(term, Addend):
            total += signed(inst.c, c)
        else:
            total += signed(term.arithmetic.result, _node(model, inst, term, a, b, c, None))
    fmt = node.arithmetic.result
    if node.arithmetic.accumulator_bits is not None:
        total = in_twos_complement(total, node.arithmetic.accumulator_bits, node.arithmetic.overflow)
    if node.arithmetic.overflow == "saturate":
        total = max(-(2 ** (fmt.bits - 1)), min(2 ** (fmt.bits - 1) - 1, total))
    return total % 2**fmt.bits
