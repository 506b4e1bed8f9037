"""Rivals: models that differ from the inferred one in one respect. Each must be contradicted by some dot product.

Agreement on random data proves little: with 24 instead of 25 alignment bits only one bf16 result in ten is wrong. So every
field of the model is mutated, of all sums at once and of each sum alone, and the order of the sums too; and fields that can
stand in for one another are mutated at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product
from typing import Any, get_args

from accprobe.infer.findings import Finding, meaningless, values
from accprobe.model.features import Name, parsed
from accprobe.model.fields import FEATURES, Field, Numbers, Patterns, Signal, Value, Words, fields_of
from accprobe.model.tree import (
    AddendPlace,
    Arithmetic,
    DotModel,
    FloatArithmetic,
    FusedSum,
    IntegerArithmetic,
    Role,
    chain,
    fits,
)

GROUPS: tuple[tuple[Signal, ...], ...] = (("sign of zero", "subnormal"), ("overflow",))
"""What fields decide that can be explained by one another: a zero's sign, or that it is one, through the next sum."""

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
        return " and ".join((self.value, *(f"{field} {_text(value)}" for field, value in self.also)))


def _text(value: Value) -> str:
    return "none" if value is None else str(value)


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
    for name, field in fields_of(DotModel).items():
        for value in field.words:
            yield Rival(name, value, replace(model, **{name: value}))  # type: ignore[arg-type]


def _arithmetic_rivals(model: DotModel) -> Iterator[Rival]:
    nodes = list(model.root.nodes())
    for arithmetic in model.arithmetics:
        sharing = [node for node in nodes if node.arithmetic == arithmetic]
        role = model.role(arithmetic)
        for name, field, value in _mutations(arithmetic, role, arithmetic == model.root.arithmetic):
            changed = replace(arithmetic, **{name: value})  # type: ignore[arg-type]
            if isinstance(changed, FloatArithmetic) and not all(_takes(node, changed) for node in sharing):
                continue
            feature, text = str(Name(name, role)), field.text(value)
            yield Rival(feature, text, in_all(model, arithmetic, changed))
            for node in sharing if len(sharing) > 1 and field.in_one_sum else ():
                yield Rival(feature, f"{text} in {_name(node)}", _in_one(model, node, changed))


def _mutations(arithmetic: Arithmetic, role: Role, is_root: bool) -> Iterator[tuple[str, Field, Value]]:
    """Numbers of bits, then words, those that decide how terms are aligned before the others; then bit patterns."""
    kinds = (Numbers, Words, Patterns)
    fields = sorted(fields_of(type(arithmetic)).items(), key=lambda x: (kinds.index(type(x[1].values)), not x[1].of_alignment))
    for name, field in fields:
        if isinstance(arithmetic, FloatArithmetic):
            values = _values_beside(arithmetic, role, is_root, name, field)
        else:
            values = field.words
        yield from ((name, field, value) for value in values)


def _values_beside(arithmetic: FloatArithmetic, role: Role, is_root: bool, name: str, field: Field) -> Sequence[Value]:
    if not means_something(field, arithmetic, role):
        return ()
    match field.values:
        case Words(words):
            return words
        case Numbers(counts_bits=True):
            return _one_bit_beside(getattr(arithmetic, name))
        case Patterns() if is_root:
            result = arithmetic.result
            return arithmetic.nan ^ result.sign_bit, (result.infinity or 0) | 1 << (result.mantissa_bits - 1)
    return ()


def means_something(field: Field, arithmetic: FloatArithmetic, role: Role) -> bool:
    """Whether sums of that arithmetic may differ in the field."""
    if field.only_where and getattr(arithmetic, field.only_where[0]) != field.only_where[1]:
        return False
    if (field.of_alignment and arithmetic.alignment_bits is None) or (field.of_f64 and arithmetic.result.name != "f64"):
        return False
    return role == "sum" or field.felt != "products"


def _one_bit_beside(bits: int | None) -> tuple[int, ...]:
    return (bits - 1, bits + 1) if bits is not None else ()


def pairs(model: DotModel) -> Iterator[Rival]:
    """Models that differ in two fields that can stand in for one another: how many bits are kept, and how the rest is cut."""
    for arithmetic, role in floats(model):
        for bits, of_bits in _that_count_bits():
            partners: list[dict[str, Value]] = [
                {bits: number, name: word}
                for number, (name, field) in product(_one_bit_beside(getattr(arithmetic, bits)), _partners(of_bits, role))
                for word in field.words
            ]
            for fields in partners:
                changed = with_bits(model, arithmetic, **fields)
                if changed and all(getattr(arithmetic, name) != value for name, value in fields.items()):
                    (field, value), *also = ((str(Name(name, role)), value) for name, value in fields.items())
                    yield Rival(field, str(value), changed, tuple(also))


def _that_count_bits() -> list[tuple[str, Field]]:
    return [(name, field) for name, field in fields_of(FloatArithmetic).items() if field.counts_bits]


def _partners(of_bits: Field, role: Role) -> list[tuple[str, Field]]:
    """Fields that decide about the same bits in words."""
    fields = fields_of(FloatArithmetic).items()
    alike = [(name, field) for name, field in fields if field.words and field.decides == of_bits.decides]
    return [(name, field) for name, field in alike if role == "sum" or field.felt != "products"]


def groups(model: DotModel) -> Iterator[Rival]:
    """Models that differ in two or three of the fields that show through one another."""
    if isinstance(model.root.arithmetic, IntegerArithmetic):
        return
    known = values(model)
    for signals in GROUPS:
        names = [name for signal in signals for name in _showing_as(signal) if str(name) in known]
        others = [[(str(x), word) for word in x.field.words if word != known[str(x)]] for x in names if x.field]
        for few in range(2, AT_ONCE + 1):
            for chosen in combinations(others, few):
                for (field, value), *also in product(*chosen):
                    changed = with_features(model, {field: value, **dict(also)})
                    if changed != model:
                        yield Rival(field, value, changed, tuple(also))


def _showing_as(signal: Signal) -> Iterator[Name]:
    """Features that decide it, of sums of products first."""
    for role in get_args(Role):
        for name, record in FEATURES.items():
            if isinstance(record, Field) and record.shows_as == signal and (role == "sum" or record.of_adds):
                yield Name(name, role)


def differing(model: DotModel, others: Iterable[DotModel]) -> Iterator[Rival]:
    """Other models as rivals, each in all fields in which it differs.

    How a sum is aligned that keeps every bit is no difference: with bits enough it is the same function.
    """
    known = values(model)
    exact = {name for name, value in known.items() if parsed(name).feature == "alignment_bits" and value is None}
    same = exact | meaningless(model)
    for other in others:
        changes = [(field, value) for field, value in values(other).items() if known.get(field) != value and field not in same]
        if changes:
            (field, value), *also = changes
            yield Rival(field, _text(value), other, tuple(also))


def with_features(model: DotModel, features: Mapping[str, Value]) -> DotModel:
    """The model with features, named as in the findings, changed."""
    own = {name: value for name, value in features.items() if name in fields_of(DotModel)}
    changed = replace(model, **own)  # type: ignore[arg-type]
    for arithmetic, role in floats(model):
        names = {parsed(name): value for name, value in features.items() if name not in own}
        theirs = {name.feature: value for name, value in names.items() if name.role == role}
        changed = in_all(changed, arithmetic, replace(arithmetic, **theirs))  # type: ignore[arg-type]
    return changed


def floats(model: DotModel) -> Iterator[tuple[FloatArithmetic, Role]]:
    """The floating-point arithmetics but those of f64, with the role of their sums."""
    for arithmetic in model.arithmetics:
        if isinstance(arithmetic, FloatArithmetic) and arithmetic.result.name != "f64":
            yield arithmetic, model.role(arithmetic)


def _takes(node: FusedSum, arithmetic: FloatArithmetic) -> bool:
    return 0 <= arithmetic.result_bits <= arithmetic.result.mantissa_bits and fits(arithmetic, len(node.terms))


def with_bits(model: DotModel, arithmetic: FloatArithmetic, **fields: Any) -> DotModel | None:
    """The model with fields of one arithmetic changed; None where its sums do not take them."""
    changed = replace(arithmetic, **fields)
    sharing = (node for node in model.root.nodes() if node.arithmetic == arithmetic)
    return in_all(model, arithmetic, changed) if all(_takes(node, changed) for node in sharing) else None


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
