"""Rivals: models that differ from the inferred one in one respect. Each must be contradicted by some dot product.

Agreement on random data proves little: with 24 instead of 25 alignment bits only one bf16 result in ten is wrong. So every
field of the model is mutated, of all sums at once and of each sum alone, and the order of the sums too. A rival is held
against random operands of every kind, against everything that the experiments asked, and on operands that are looked for where
it differs from the model (`accprobe.separation`); one that explains all of it has survived, and its field is undetermined.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, get_args

import numpy as np

from accprobe.devices.protocol import Device, dot_expecting
from accprobe.findings import Characterisation, Finding, Value
from accprobe.formats import Bits
from accprobe.instructions import Instruction
from accprobe.model import (
    AddendPlace,
    AlignmentRounding,
    Arithmetic,
    DotModel,
    FloatArithmetic,
    FusedSum,
    IntegerArithmetic,
    IntegerOverflow,
    NanPayload,
    Overflow,
    ProductExponent,
    Rounding,
    Subnormals,
    UnderflowSign,
    ZeroSign,
    ZeroTerms,
    chain,
    fits,
)
from accprobe.operands import Operands, draw, joined, kinds
from accprobe.separation import FLOORS, Search
from accprobe.verify import Counterexample, counterexample

FEW, MANY = 48, 512
"""Random dot products of each kind that every rival meets, and that those meet that are left."""

OF_ONE_SUM = ("alignment_bits", "alignment_rounding", "result_bits", "result_rounding")
"""Fields that are also mutated in one sum alone."""


MOST_WRONG = 20
"""Dot products that contradict the model, of one set of operands, that are kept."""


@dataclass(frozen=True)
class Rival:
    """A model with one thing changed: `field` as in the findings, `value` as the report prints it."""

    field: str
    value: str
    model: DotModel


@dataclass(frozen=True)
class Contest:
    """How many rivals were tried, and those that explain everything seen as well as the inferred model.

    wrong: the dot products asked to separate a rival from the model on which it is the model that is wrong.
    """

    tried: int
    survived: tuple[Rival, ...]
    wrong: tuple[Counterexample, ...] = ()


def challenge(device: Device, inst: Instruction, result: Characterisation, seed: int = 0) -> Contest:
    """Hold every rival of the inferred model against the device. Raises DeviceError where the device fails."""
    if result.model is None:
        return Contest(0, ())
    candidates = list(rivals(result.model, result.findings))
    left = candidates
    wrong: list[Counterexample] = []
    for operands, d in _rounds(device, inst, result, seed):
        wrong += _wrong(inst, result.model, operands, d)
        left = [rival for rival in left if np.array_equal(rival.model.evaluate(inst, *operands), d)]
        if not left:
            break
    search, survived = Search(inst, result.model, seed), []
    for rival in left:
        separated, counterexamples = _separated(device, inst, result.model, rival, search)
        survived += [] if separated else [rival]
        wrong += counterexamples
    return Contest(len(candidates), tuple(survived), tuple(dict.fromkeys(wrong)))


def _separated(
    device: Device, inst: Instruction, model: DotModel, rival: Rival, search: Search
) -> tuple[bool, list[Counterexample]]:
    """Whether the device contradicts the rival on operands looked for because the two differ; where it does so to the model."""
    operands = search.separating(rival.model, rival.field)
    if operands is None:
        return False, []
    d = dot_expecting(device, inst, *operands, lambda: model.evaluate(inst, *operands))
    return not np.array_equal(rival.model.evaluate(inst, *operands), d), _wrong(inst, model, operands, d)


def _wrong(inst: Instruction, model: DotModel, operands: Operands, d: Bits) -> list[Counterexample]:
    """The first of the dot products that are not as the model has them."""
    expected = model.evaluate(inst, *operands)
    return [
        counterexample(operands, d, expected, row, "separating") for row in np.flatnonzero(d != expected)[:MOST_WRONG].tolist()
    ]


def _rounds(device: Device, inst: Instruction, result: Characterisation, seed: int) -> Iterator[tuple[Operands, Bits]]:
    """Ever more dot products with the device's answers: few random ones, the experiments', many random ones."""
    assert result.model is not None
    yield _random(device, inst, result.model, seed, FEW)
    if result.asked:
        yield joined([operands for operands, _ in result.asked]), np.concatenate([d for _, d in result.asked])
    yield _random(device, inst, result.model, seed + 1, MANY)


def _random(device: Device, inst: Instruction, model: DotModel, seed: int, n: int) -> tuple[Operands, Bits]:
    rng = np.random.default_rng([seed, n])
    operands = joined([draw(kind, inst, rng, n) for kind in kinds(inst)])
    return operands, dot_expecting(device, inst, *operands, lambda: model.evaluate(inst, *operands))


def undetermined(findings: dict[str, Finding], contest: Contest) -> dict[str, Finding]:
    """The findings with those fields undetermined in which a rival survived."""
    settled = dict(findings)
    for rival in contest.survived:
        finding = settled.get(rival.field, Finding(rival.field, None))
        if finding.bound == "undetermined" and finding.left:
            continue
        value = _plain(rival.value.split(" in ")[0])
        if finding.bound == "at least" and isinstance(value, int) and isinstance(finding.value, int) and value > finding.value:
            continue
        known = f"{finding.value} or more" if finding.bound == "at least" else finding.value
        left = (known, *(_plain(r.value) for r in contest.survived if r.field == rival.field))
        note = finding.note or "these give the same bits on every operand tried"
        settled[rival.field] = replace(finding, bound="undetermined", left=left, note=note)
        if rival.field in ("alignment_bits", "result_bits") and "effective_bits" in settled:
            settled["effective_bits"] = replace(settled["effective_bits"], bound="undetermined", note=f"{rival.field} is")
    return settled


def _plain(text: str) -> Value:
    return int(text) if text.removeprefix("-").isdecimal() else text


def rivals(model: DotModel, findings: dict[str, Finding]) -> Iterator[Rival]:
    """Every model that differs from `model` in one field or in the order of its sums, none twice."""
    seen = {model}
    for rival in (*_operand_rivals(model), *_arithmetic_rivals(model, findings), *_order_rivals(model, findings)):
        if rival.model not in seen:
            seen.add(rival.model)
            yield rival


def _operand_rivals(model: DotModel) -> Iterator[Rival]:
    if isinstance(model.root.arithmetic, IntegerArithmetic):
        return
    for field in ("subnormal_operands", "subnormal_addend"):
        for value in get_args(Subnormals):
            yield Rival(field, value, replace(model, **{field: value}))


def _arithmetic_rivals(model: DotModel, findings: dict[str, Finding]) -> Iterator[Rival]:
    nodes = list(model.root.nodes())
    for arithmetic in model.arithmetics:
        sharing = [node for node in nodes if node.arithmetic == arithmetic]
        prefix = "" if any(node.products for node in sharing) else "add_"
        for field, value in _mutations(arithmetic, findings, prefix, arithmetic == model.root.arithmetic):
            changed = replace(arithmetic, **{field: value})
            if isinstance(changed, FloatArithmetic) and not all(fits(changed, len(node.terms)) for node in sharing):
                continue
            yield Rival(prefix + field, _text(field, value), in_all(model, arithmetic, changed))
            for node in sharing if len(sharing) > 1 and field in OF_ONE_SUM else ():
                yield Rival(prefix + field, f"{_text(field, value)} in {_name(node)}", _in_one(model, node, changed))


def in_all(model: DotModel, old: Arithmetic, new: Arithmetic) -> DotModel:
    return model.with_arithmetic(lambda arithmetic: new if arithmetic == old else arithmetic)


def _in_one(model: DotModel, which: FusedSum, arithmetic: Arithmetic) -> DotModel:
    def change(node: FusedSum) -> FusedSum:
        same = node.products == which.products and node.has_addend == which.has_addend and len(node.terms) == len(which.terms)
        return replace(node, arithmetic=arithmetic) if same else node

    return replace(model, root=model.root.map(change))


def _name(node: FusedSum) -> str:
    products = node.products
    return f"the sum with product {products[0]}" if products else "a sum without products"


def _text(field: str, value: Any) -> str:
    if field == "nan":
        return f"0x{value:X}"
    return "none" if value is None else str(value)


def _mutations(arithmetic: Arithmetic, findings: dict[str, Finding], prefix: str, shows_nan: bool) -> Iterator[tuple[str, Any]]:
    if isinstance(arithmetic, IntegerArithmetic):
        yield from (("overflow", value) for value in get_args(IntegerOverflow))
        return
    bits, result = arithmetic.alignment_bits, arithmetic.result_bits
    least = findings.get(f"{prefix}result_bits")
    if least is not None and least.bound == "at least" and isinstance(least.value, int):
        yield "result_bits", least.value - 1
    else:
        yield from (("result_bits", r) for r in (result - 1, result + 1) if 0 <= r <= arithmetic.result.mantissa_bits)
    if bits is not None:
        floor = arithmetic.min_exponent
        yield from (("alignment_bits", f) for f in (bits - 1, bits + 1) if f >= 0)
        yield from (("min_exponent", e) for e in ((*FLOORS, None) if floor is None else (floor - 1, floor + 1, None)))
        yield from (("alignment_rounding", r) for r in get_args(AlignmentRounding))
    elif arithmetic.result.name != "f64":
        yield from (("alignment_bits", f) for f in range(result, result + 4))
    if bits is not None and not prefix:
        yield from (("product_exponent", rule) for rule in get_args(ProductExponent))
        if arithmetic.product_exponent == "unnormalised":
            yield from (("zero_terms", rule) for rule in get_args(ZeroTerms))
    yield from (("result_rounding", r) for r in get_args(Rounding))
    yield from (("zero_sign", sign) for sign in get_args(ZeroSign))
    yield from (("underflow_sign", sign) for sign in get_args(UnderflowSign))
    yield from (("overflow", o) for o in get_args(Overflow))
    yield from (("subnormal_results", s) for s in get_args(Subnormals))
    if arithmetic.result.name == "f64":
        yield from (("nan_payload", rule) for rule in get_args(NanPayload))
    if shows_nan:
        yield "nan", arithmetic.nan ^ arithmetic.result.sign_bit
        yield "nan", (arithmetic.result.infinity or 0) | 1 << (arithmetic.result.mantissa_bits - 1)


def _order_rivals(model: DotModel, findings: dict[str, Finding]) -> Iterator[Rival]:
    """Other groupings of the products, other orders of the sums, and other places for C.

    Left out are orders that are the same function: of integer sums where the experiment on the order has said so, and C
    elsewhere than in the first of them, since products alone do not overflow.
    """
    places = get_args(AddendPlace)
    if isinstance(model.root.arithmetic, IntegerArithmetic):
        if findings["order"].bound == "undetermined":
            return
        places = ("first",)
    summing = next(node for node in model.root.nodes() if node.products).arithmetic
    add = model.root.arithmetic if not model.root.products else None
    k = model.products
    groups = [list(node.products) for node in model.root.nodes() if node.products]
    size = max(map(len, groups))
    regrouped = [groups, groups[::-1], [list(range(k))]]
    for part in dict.fromkeys((size, size // 2, size * 2)):
        if 0 < part <= k:
            parts = -(-k // part)
            regrouped.append([list(range(k))[i : i + part] for i in range(0, k, part)])
            regrouped.append([list(range(i, k, parts)) for i in range(parts)])
    runs = [run for run in (1, 2, 4) if k % (2 * run) == 0]
    regrouped += [[[i for i in range(k) if i // run % 2 == half] for half in (0, 1)] for run in runs]
    for grouping in regrouped:
        for place in places:
            rival = _rebuilt(model, grouping, place, summing, add)
            if rival is not None:
                yield Rival("order", rival.order, rival)


def _rebuilt(
    model: DotModel, groups: list[list[int]], place: AddendPlace, summing: Arithmetic, add: Arithmetic | None
) -> DotModel | None:
    """A chain of sums with these groups and C in that place; None where the alignment bits do not fit the longer sums."""
    if isinstance(summing, FloatArithmetic) and not fits(summing, max(map(len, groups)) + 2):
        return None
    return replace(model, root=chain(groups, summing, place, add or _plain_add(summing)))


def _plain_add(summing: Arithmetic) -> Arithmetic:
    if isinstance(summing, IntegerArithmetic):
        return summing
    return replace(
        summing, alignment_bits=None, result_bits=summing.result.mantissa_bits, result_rounding="RNE", min_exponent=None
    )
