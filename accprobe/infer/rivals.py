"""Rivals: models that differ from the inferred one in one respect. Each must be contradicted by some dot product.

Agreement on random data proves little: with 24 instead of 25 alignment bits only one bf16 result in ten is wrong. So every
field of the model is mutated, of all sums at once and of each sum alone, and the order of the sums too; and fields that can
stand in for one another are mutated at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations, product
from typing import Any, get_args

from accprobe.infer.findings import Finding, Value, values
from accprobe.model.features import OF_ALIGNMENT
from accprobe.model.tree import (
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

OF_ONE_SUM = ("alignment_bits", "alignment_rounding", "result_bits", "result_rounding")
"""Fields that are also mutated in one sum alone."""


CHOICES: dict[str, tuple[str, ...]] = {
    "result_rounding": get_args(Rounding),
    "alignment_rounding": get_args(AlignmentRounding),
    "product_exponent": get_args(ProductExponent),
    "zero_terms": get_args(ZeroTerms),
    "zero_sign": get_args(ZeroSign),
    "underflow_sign": get_args(UnderflowSign),
    "overflow": get_args(Overflow),
    "subnormal_results": get_args(Subnormals),
    "subnormal_operands": get_args(Subnormals),
    "subnormal_addend": get_args(Subnormals),
}
"""The words that each feature can be."""

GROUPS = (
    (
        *("zero_sign", "underflow_sign", "add_zero_sign", "add_underflow_sign"),
        *("subnormal_operands", "subnormal_addend", "subnormal_results", "add_subnormal_results"),
    ),
    ("overflow", "add_overflow"),
)
"""Fields that show through one another: a zero's sign, or that it is one, through the next sum."""

AT_ONCE = 3
"""Fields of a group that are changed together, at most."""


@dataclass(frozen=True)
class Rival:
    """A model with one thing changed: `field` as in the findings, `value` as the report prints it.

    also: further fields that had to change with it, with their values.
    """

    field: str
    value: str
    model: DotModel
    also: tuple[tuple[str, Value], ...] = ()

    @property
    def changes(self) -> tuple[tuple[str, Value], ...]:
        """Every field that is changed, and its value."""
        return (self.field, _plain(self.value.split(" in ")[0])), *self.also

    def __str__(self) -> str:
        return " and ".join((self.value, *(f"{field} {_text(field, value)}" for field, value in self.also)))


def _plain(text: str) -> Value:
    if text == "none":
        return None
    return int(text) if text.removeprefix("-").isdecimal() else text


def rivals(model: DotModel, findings: dict[str, Finding]) -> Iterator[Rival]:
    """Every model that differs from `model` in one field or in the order of its sums, none twice."""
    seen = {model}
    for rival in (*_operand_rivals(model), *_arithmetic_rivals(model), *_order_rivals(model, findings)):
        if rival.model not in seen:
            seen.add(rival.model)
            yield rival


def _operand_rivals(model: DotModel) -> Iterator[Rival]:
    if isinstance(model.root.arithmetic, IntegerArithmetic):
        return
    for field in ("subnormal_operands", "subnormal_addend"):
        for value in get_args(Subnormals):
            yield Rival(field, value, replace(model, **{field: value}))


def _arithmetic_rivals(model: DotModel) -> Iterator[Rival]:
    nodes = list(model.root.nodes())
    for arithmetic in model.arithmetics:
        sharing = [node for node in nodes if node.arithmetic == arithmetic]
        prefix = prefix_of(model, arithmetic)
        for field, value in _mutations(arithmetic, prefix, arithmetic == model.root.arithmetic):
            changed = replace(arithmetic, **{field: value})
            if isinstance(changed, FloatArithmetic) and not all(fits(changed, len(node.terms)) for node in sharing):
                continue
            yield Rival(prefix + field, _text(field, value), in_all(model, arithmetic, changed))
            for node in sharing if len(sharing) > 1 and field in OF_ONE_SUM else ():
                yield Rival(prefix + field, f"{_text(field, value)} in {_name(node)}", _in_one(model, node, changed))


def pairs(model: DotModel) -> Iterator[Rival]:
    """Models that differ in two fields that can stand in for one another: how many bits are kept, and how the rest is cut."""
    for arithmetic, prefix in floats(model):
        f, r = arithmetic.alignment_bits, arithmetic.result_bits
        changes: list[dict[str, Any]] = [
            {"result_bits": bits, "result_rounding": mode} for bits in (r - 1, r + 1) for mode in get_args(Rounding)
        ]
        for bits in (f - 1, f + 1) if f is not None else ():
            changes += [{"alignment_bits": bits, "alignment_rounding": cut} for cut in get_args(AlignmentRounding)]
            if not prefix:
                changes += [{"alignment_bits": bits, "product_exponent": rule} for rule in get_args(ProductExponent)]
        for fields in changes:
            changed = with_bits(model, arithmetic, **fields)
            if changed and all(getattr(arithmetic, field) != value for field, value in fields.items()):
                (field, value), *also = ((prefix + field, value) for field, value in fields.items())
                yield Rival(field, str(value), changed, tuple(also))


def groups(model: DotModel) -> Iterator[Rival]:
    """Models that differ in two or three of the fields that show through one another."""
    if isinstance(model.root.arithmetic, IntegerArithmetic):
        return
    known = values(model)
    for fields in GROUPS:
        others = [
            [(field, value) for value in CHOICES[field.removeprefix("add_")] if value != known[field]]
            for field in fields
            if field in known
        ]
        for few in range(2, AT_ONCE + 1):
            for chosen in combinations(others, few):
                for (field, value), *also in product(*chosen):
                    changed = with_features(model, {field: value, **dict(also)})
                    if changed != model:
                        yield Rival(field, value, changed, tuple(also))


def differing(model: DotModel, others: Iterable[DotModel]) -> Iterator[Rival]:
    """Other models as rivals, each in all fields in which it differs.

    How a sum is aligned that keeps every bit is no difference: with bits enough it is the same function.
    """
    known = values(model)
    exact = {prefix for prefix in ("", "add_") if known.get(f"{prefix}alignment_bits", 0) is None}
    same = {f"{prefix}{field}" for prefix in exact for field in ("alignment_bits", *OF_ALIGNMENT)}
    for other in others:
        changes = [(field, value) for field, value in values(other).items() if known.get(field) != value and field not in same]
        if changes:
            (field, value), *also = changes
            yield Rival(field, _text(field, value), other, tuple(also))


def with_features(model: DotModel, features: dict[str, str]) -> DotModel:
    """The model with features, named as in the findings, changed."""
    own = {name: value for name, value in features.items() if hasattr(model, name)}
    changed = replace(model, **own)  # type: ignore[arg-type]
    for arithmetic, prefix in floats(model):
        fields = {
            name.removeprefix("add_"): value
            for name, value in features.items()
            if name.startswith("add_") == (prefix == "add_")
        }
        theirs = {name: value for name, value in fields.items() if name not in own}
        changed = in_all(changed, arithmetic, replace(arithmetic, **theirs))  # type: ignore[arg-type]
    return changed


def floats(model: DotModel) -> Iterator[tuple[FloatArithmetic, str]]:
    """The floating-point arithmetics but those of f64, with the prefix of their features."""
    for arithmetic in model.arithmetics:
        if isinstance(arithmetic, FloatArithmetic) and arithmetic.result.name != "f64":
            yield arithmetic, prefix_of(model, arithmetic)


def prefix_of(model: DotModel, arithmetic: Arithmetic) -> str:
    """What features of the arithmetic's role begin with."""
    return "" if any(node.products for node in model.root.nodes() if node.arithmetic == arithmetic) else "add_"


def _most_terms(model: DotModel, arithmetic: Arithmetic) -> int:
    return max(len(node.terms) for node in model.root.nodes() if node.arithmetic == arithmetic)


def with_bits(model: DotModel, arithmetic: FloatArithmetic, **fields: Any) -> DotModel | None:
    """The model with fields of one arithmetic changed; None where its sums do not take them."""
    changed = replace(arithmetic, **fields)
    possible = 0 <= changed.result_bits <= changed.result.mantissa_bits and fits(changed, _most_terms(model, arithmetic))
    return in_all(model, arithmetic, changed) if possible else None


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
        return value if isinstance(value, str) else f"0x{value:X}"
    return "none" if value is None else str(value)


def _mutations(arithmetic: Arithmetic, prefix: str, shows_nan: bool) -> Iterator[tuple[str, Any]]:
    if isinstance(arithmetic, IntegerArithmetic):
        yield from (("overflow", value) for value in get_args(IntegerOverflow))
        return
    bits, result = arithmetic.alignment_bits, arithmetic.result_bits
    yield from (("result_bits", r) for r in (result - 1, result + 1) if 0 <= r <= arithmetic.result.mantissa_bits)
    if bits is not None:
        yield from (("alignment_bits", f) for f in (bits - 1, bits + 1) if f >= 0)
        yield from (("alignment_rounding", r) for r in get_args(AlignmentRounding))
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
