"""Alternatives in one field. Each must be contradicted by some dot product.

Agreement on random data is weak evidence: with 24 instead of 25 alignment bits only one bf16 result in ten is wrong. So every
field of the model is changed, of all sums of a role at once and of each sum alone, and so is the order of the sums.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import get_args

from accprobe.infer.alternatives.alternative import Alternative, with_arithmetic, with_fields
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
    """Yield every model that differs from `model` in one field or in the order of its sums, each once."""
    seen = {model}
    for alternative in (*_in_reading(model), *_in_arithmetic(model), *_in_order(model, findings)):
        if alternative.model not in seen:
            seen.add(alternative.model)
            yield alternative


def _in_reading(model: DotModel) -> Iterator[Alternative]:
    """Models that read their operands differently."""
    if isinstance(model.root.arithmetic, IntegerArithmetic):
        return
    for name, field in fields_of(DotModel).items():
        value = getattr(model, name)
        others: Sequence[Value] = field.words or ((*one_bit_beside(value), None) if value is not None else ())
        for other in others:
            yield Alternative(with_values(model, {name: other}), ((name, other),))


def _in_arithmetic(model: DotModel) -> Iterator[Alternative]:
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
            for node in sharing if len(sharing) > 1 and field.in_one_sum and field.is_compiled(value) else ():
                where = f"the sum with product {node.products[0]}" if node.products else "a sum without products"
                changed = with_arithmetic(model, arithmetic, with_values(arithmetic, {name: value}), only=node)
                yield Alternative(changed, changes, where)


def _mutations(arithmetic: Arithmetic, role: Role, is_root: bool) -> Iterator[tuple[str, Field, Value]]:
    """Yield numbers of bits, then words, those of the alignment before the others; then bit patterns."""
    kinds = (Numbers, Words, Patterns)
    fields = sorted(fields_of(type(arithmetic)).items(), key=lambda x: (kinds.index(type(x[1].values)), not x[1].of_alignment))
    for name, field in fields:
        if isinstance(arithmetic, FloatArithmetic):
            values = _values_beside(arithmetic, role, is_root, name, field)
        else:
            values = field.words
        yield from ((name, field, value) for value in values)


def _values_beside(arithmetic: FloatArithmetic, role: Role, is_root: bool, name: str, field: Field) -> Sequence[Value]:
    if not _may_differ(name, field, arithmetic, role):
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


def _may_differ(name: str, field: Field, arithmetic: FloatArithmetic, role: Role) -> bool:
    """Return whether sums of that arithmetic may differ in the field."""
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
    """Return one bit fewer and one more; nothing for a sum that keeps every bit."""
    return (bits - 1, bits + 1) if bits is not None else ()


def _in_order(model: DotModel, findings: Mapping[str, Finding]) -> Iterator[Alternative]:
    """Other groupings of the products, other orders of the sums, and other places for C.

    Orders that are the same function are omitted: those of integer sums if the experiment on the order found that, and C
    anywhere but in the first of them, since products alone do not overflow.
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
    groupings = [groups, groups[::-1], [list(range(k))]]
    for part in dict.fromkeys((size, size // 2, size * 2)):
        if 0 < part <= k:
            parts = -(-k // part)
            groupings.append([list(range(k))[i : i + part] for i in range(0, k, part)])
            groupings.append([list(range(i, k, parts)) for i in range(parts)])
    runs = [run for run in (1, 2, 4) if k % (2 * run) == 0]
    groupings += [[[i for i in range(k) if i // run % 2 == half] for half in (0, 1)] for run in runs]
    for grouping in groupings:
        for place in places:
            alternative = _chained(model, grouping, place, summing, add)
            if alternative is not None:
                yield Alternative(alternative, (("order", alternative.order),))


def _chained(
    model: DotModel, groups: list[list[int]], place: AddendPlace, summing: Arithmetic, add: Arithmetic | None
) -> DotModel | None:
    """Return the model as a chain of sums of these groups, with C in that place.

    None if the alignment bits do not fit the longer sums, or products that are scaled at once are separated.
    """
    if isinstance(summing, FloatArithmetic) and not fits(summing, max(map(len, groups)) + 2):
        return None
    if not all(are_whole(group, summing) for group in groups):
        return None
    return replace(model, root=chain(groups, summing, place, add or _plain_add(summing)))


def _plain_add(summing: Arithmetic) -> Arithmetic:
    if isinstance(summing, IntegerArithmetic):
        return summing
    bits = summing.result.mantissa_bits
    return replace(summing, alignment_bits=None, result_bits=bits, result_rounding="RNE", min_exponent=None)
