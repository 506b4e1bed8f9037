"""Rivals in one respect. Each must be contradicted by some dot product. Those that do what no chip does: `nonstandard`.

Agreement on random data proves little: with 24 instead of 25 alignment bits only one bf16 result in ten is wrong. So every
field of the model is changed, of all sums of a role at once and of each sum alone, and the order of the sums too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import get_args

from accprobe.infer.alternatives.alternative import Alternative, in_one, name_of, with_fields
from accprobe.infer.findings import Finding
from accprobe.model.features import Name
from accprobe.model.fields import fields_of, with_values
from accprobe.model.record import Field, Numbers, Patterns, Value, Words
from accprobe.model.tree import (
    AddendPlace,
    Arithmetic,
    DotModel,
    FloatArithmetic,
    IntegerArithmetic,
    Role,
    are_whole,
    chain,
    fits,
)


def alternatives(model: DotModel, findings: Mapping[str, Finding]) -> Iterator[Alternative]:
    """Every model that differs from `model` in one field or in the order of its sums, none twice."""
    seen = {model}
    for alternative in (*_reading_rivals(model), *_arithmetic_rivals(model), *_order_rivals(model, findings)):
        if alternative.model not in seen:
            seen.add(alternative.model)
            yield alternative


def _reading_rivals(model: DotModel) -> Iterator[Alternative]:
    """Models that read their operands otherwise."""
    if isinstance(model.root.arithmetic, IntegerArithmetic):
        return
    for name, field in fields_of(DotModel).items():
        value = getattr(model, name)
        others: Sequence[Value] = field.words or ((*one_bit_beside(value), None) if value is not None else ())
        for other in others:
            yield Alternative(with_values(model, {name: other}), ((name, other),))


def _arithmetic_rivals(model: DotModel) -> Iterator[Alternative]:
    for arithmetic in model.arithmetics:
        sharing = [node for node in model.root.nodes() if node.arithmetic == arithmetic]
        digits = arithmetic.result.storage_bits // 4
        role = model.role(arithmetic)
        for name, field, value in _mutations(arithmetic, role, arithmetic == model.root.arithmetic):
            everywhere = with_fields(model, arithmetic, {name: value})
            if everywhere is None:
                continue
            shown = field.text(value, digits) if isinstance(field.values, Patterns) else value
            changes = ((str(Name(name, role)), shown),)
            yield Alternative(everywhere, changes)
            in_one_sum = field.in_one_sum and field.is_compiled(value)
            for node in sharing if len(sharing) > 1 and in_one_sum else ():
                yield Alternative(in_one(model, node, with_values(arithmetic, {name: value})), changes, name_of(node))


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
    if not _means_something(name, field, arithmetic, role):
        return ()
    if field.tacit and not field.only_with and field.is_compiled(getattr(arithmetic, name)):
        return ()
    match field.values:
        case Words(words):
            return words
        case Numbers(counts_bits=True):
            bits = getattr(arithmetic, name)
            return (*one_bit_beside(bits), None) if field.tacit and bits is not None else one_bit_beside(bits)
        case Patterns() if is_root:
            result = arithmetic.result
            return arithmetic.nan ^ result.sign_bit, (result.infinity or 0) | 1 << (result.mantissa_bits - 1)
    return ()


def _means_something(name: str, field: Field, arithmetic: FloatArithmetic, role: Role) -> bool:
    """Whether sums of that arithmetic may differ in the field."""
    if field.only_where and getattr(arithmetic, field.only_where[0]) != field.only_where[1]:
        return False
    if field.only_with and getattr(arithmetic, field.only_with) is None:
        return False
    if field.of_alignment and arithmetic.alignment_bits is None:
        return False
    if field.of_f64 and arithmetic.result.name != "f64" and getattr(arithmetic, name) == field.words[0]:
        return False
    return role == "sum" or field.place != "products"


def one_bit_beside(bits: int | None) -> tuple[int, ...]:
    """One fewer and one more; of a sum that keeps every bit neither."""
    return (bits - 1, bits + 1) if bits is not None else ()


def _order_rivals(model: DotModel, findings: Mapping[str, Finding]) -> Iterator[Alternative]:
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
            alternative = _rebuilt(model, grouping, place, summing, add)
            if alternative is not None:
                yield Alternative(alternative, (("order", alternative.order),))


def _rebuilt(
    model: DotModel, groups: list[list[int]], place: AddendPlace, summing: Arithmetic, add: Arithmetic | None
) -> DotModel | None:
    """A chain of sums with these groups and C in that place.

    None where the alignment bits do not fit the longer sums, or what is scaled at once is torn apart.
    """
    if isinstance(summing, FloatArithmetic) and not fits(summing, max(map(len, groups)) + 2):
        return None
    if not all(are_whole(group, summing) for group in groups):
        return None
    return replace(model, root=chain(groups, summing, place, add or _plain_add(summing)))


def _plain_add(summing: Arithmetic) -> Arithmetic:
    if isinstance(summing, IntegerArithmetic):
        return summing
    return replace(
        summing, alignment_bits=None, result_bits=summing.result.mantissa_bits, result_rounding="RNE", min_exponent=None
    )
