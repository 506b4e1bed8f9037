"""Alternatives near a model: in one field, in several at once, and in steps further and further away.

Agreement on random data is weak evidence: with 24 instead of 25 alignment bits only one bf16 result in ten is wrong. So every
field of the model is changed in all sums with one arithmetic; those that decide bits also in each sum alone. The order of the
sums is changed too. Some dot product must contradict each alternative. Fields that can stand in for one another, or show
through one another, are changed together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, product
from typing import NamedTuple, get_args

from accprobe.infer.alternative import (
    Alternative,
    FieldValues,
    alternatives_with,
    float_arithmetics,
    with_arithmetic,
    with_features,
    with_fields,
)
from accprobe.isa.instructions import Instruction
from accprobe.model.fields import FEATURES, Name, fields_of, parsed, with_values
from accprobe.model.record import Field, Numbers, Patterns, Signal, Value, Words
from accprobe.model.tree import (
    SUM_BITS,
    AddendPlace,
    Arithmetic,
    DotModel,
    FloatArithmetic,
    IntegerArithmetic,
    Role,
    Tininess,
    are_whole,
    chain,
    fits,
)
from accprobe.records.findings import Finding, feature_values, irrelevant_features

# Properties of a result that can be explained by one another through the next sum: a zero's sign, or that it is a zero.
GROUPS: tuple[tuple[Signal, ...], ...] = (("sign of zero", "subnormal"), ("overflow",))

BLOCKS = (32, 16, 8, 4, 2)  # Products that may be scaled at once: a block of scales has 32 or 16.
MOST_CHANGED = 3  # Fields of a group that are changed together, at most.


def alternatives(model: DotModel, findings: Mapping[str, Finding], of_one_sum: bool = True) -> Iterator[Alternative]:
    """Yield the nearest models, each once: with another word or pattern, one bit more or fewer, or another order of sums.

    of_one_sum: also those that differ in a field of only one of several sums with the same arithmetic.
    """
    seen = {model}
    for alternative in (*_in_reading(model), *_in_arithmetic(model, of_one_sum), *_in_order(model, findings)):
        if alternative.model not in seen:
            seen.add(alternative.model)
            yield alternative


def _in_reading(model: DotModel) -> Iterator[Alternative]:
    """Yield models that read their operands differently."""
    if isinstance(model.root.arithmetic, IntegerArithmetic):
        return
    for name, field in fields_of(DotModel).items():
        ways = ({name: other} for other in _values_beside(field, getattr(model, name)))
        yield from alternatives_with(model, model.root.arithmetic, ways)


def _in_arithmetic(model: DotModel, of_one_sum: bool) -> Iterator[Alternative]:
    for arithmetic in model.arithmetics:
        sharing = [node for node in model.root.nodes() if of_one_sum and node.arithmetic == arithmetic]
        digits = arithmetic.result.storage_bits // 4
        role = model.role(arithmetic)
        for name, field, value in _mutations(arithmetic, role, arithmetic == model.root.arithmetic):
            everywhere = with_fields(model, arithmetic, {name: value})
            if everywhere is None:
                continue
            shown = field.text(value, digits) if isinstance(field.values, Patterns) else value
            changes = ((str(Name(name, role)), shown),)
            yield Alternative(everywhere, changes)
            for node in sharing if len(sharing) > 1 and field.of_adds and field.decides and field.is_compiled(value) else ():
                where = f"the sum with product {node.products[0]}" if node.products else "a sum without products"
                changed = with_arithmetic(model, arithmetic, with_values(arithmetic, {name: value}), only=node)
                yield Alternative(changed, changes, where)


def _mutations(arithmetic: Arithmetic, role: Role, is_root: bool) -> Iterator[tuple[str, Field, Value]]:
    """Yield numbers of bits, then words, then bit patterns. Fields of the alignment come first among equals."""
    kinds = (Numbers, Words, Patterns)
    fields = sorted(fields_of(type(arithmetic)).items(), key=lambda x: (kinds.index(type(x[1].values)), not x[1].of_alignment))
    for name, field in fields:
        values: Sequence[Value] = field.words
        if isinstance(arithmetic, FloatArithmetic):
            result, own = arithmetic.result, getattr(arithmetic, name)
            nans = arithmetic.nan ^ result.sign_bit, (result.infinity or 0) | 1 << (result.mantissa_bits - 1)
            patterns = nans if is_root and isinstance(field.values, Patterns) else ()
            values = (patterns or _values_beside(field, own)) if _may_differ(name, field, arithmetic, role) else ()
        yield from ((name, field, value) for value in values)


def _values_beside(field: Field, value: Value) -> Sequence[Value]:
    """Return the words of a field, or the numbers of bits beside the value."""
    return (value - 1, value + 1) if field.counts_bits and isinstance(value, int) else field.words


def _may_differ(name: str, field: Field, arithmetic: FloatArithmetic, role: Role) -> bool:
    """Return whether sums of that arithmetic may differ in the field; `unusual_alternatives` changes tacit fields."""
    if field.tacit and field.is_compiled(getattr(arithmetic, name)):
        return False
    if field.only_where and getattr(arithmetic, field.only_where[0]) != field.only_where[1]:
        return False
    if field.of_alignment and arithmetic.alignment_bits is None:
        return False
    if field.of_f64 and arithmetic.result.name != "f64" and getattr(arithmetic, name) == field.words[0]:
        return False
    return role == "sum" or field.place != "products"


def _in_order(model: DotModel, findings: Mapping[str, Finding]) -> Iterator[Alternative]:
    """Yield models with other groupings of the products, other orders of the sums, and other places for C.

    The orders of integer sums are omitted if the experiment on the order could not distinguish them. C is only in the first
    integer sum, since products alone do not overflow.
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


def scaled_at_once(
    inst: Instruction, model: DotModel, arithmetic: FloatArithmetic, alignments: Iterable[int]
) -> Iterator[FieldValues]:
    """Yield other numbers of products of e2m1 that are added before their block scales are applied, with alignment bits."""
    if inst.scale_block is None or {inst.a.name, inst.b.name} != {"e2m1"} or arithmetic.alignment_bits is None:
        return
    sums = [node for node in model.root.nodes() if node.arithmetic == arithmetic and node.products]
    for some, bits in product((None, *(some for some in BLOCKS if inst.scale_block % some == 0)), alignments if sums else ()):
        changed = replace(arithmetic, scaled_products=some, alignment_bits=bits)
        if changed != arithmetic and all(fits(changed, len(node.terms)) for node in sums):
            yield {"scaled_products": some, "alignment_bits": bits}


def unusual_alternatives(inst: Instruction, model: DotModel, alignments: Sequence[int] = ()) -> Iterator[Alternative]:
    """Yield models with other values of the tacit fields, where these surely show.

    alignments: for a search, where they may show: alignment bits for other numbers of products that are scaled at once.
    """
    for arithmetic, _ in float_arithmetics(model):
        ways = list(scaled_at_once(inst, model, arithmetic, alignments or [arithmetic.alignment_bits or 0]))
        if not alignments:
            ways = [{"scaled_products": way["scaled_products"]} for way in ways]
        bits = arithmetic.alignment_bits
        finer = bits is None or bits > arithmetic.result_bits
        adds_c = any(node.has_addend for node in model.root.nodes() if node.arithmetic == arithmetic)
        if (alignments or (adds_c and inst.c == arithmetic.result)) and finer and arithmetic.subnormal_results == "flushed":
            ways += [{"tininess_detected": word} for word in get_args(Tininess) if word != arithmetic.tininess_detected]
        yield from alternatives_with(model, arithmetic, ways)


def field_pairs(model: DotModel) -> Iterator[Alternative]:
    """Yield models that differ in the number of bits that results or terms keep, and in another field that affects these bits.

    If a lowest alignment truncates the smallest terms, it and the alignment bits can stand in for one another too.
    """
    for arithmetic, role in float_arithmetics(model):
        bits, level = arithmetic.alignment_bits, arithmetic.min_exponent
        ways: list[FieldValues] = []
        if bits is not None and level is not None:
            ways = [{"min_exponent": level + step, "alignment_bits": bits + step} for step in (-1, 1)]
        for counted, of_bits in fields_of(FloatArithmetic).items():
            beside = _values_beside(of_bits, getattr(arithmetic, counted)) if of_bits.counts_bits and of_bits.decides else ()
            for number, (name, field) in product(beside, _deciding_with(of_bits, role)):
                ways += [{counted: number, name: word} for word in field.words if word != getattr(arithmetic, name)]
        yield from alternatives_with(model, arithmetic, ways)


def _deciding_with(of_bits: Field, role: Role) -> list[tuple[str, Field]]:
    """Return the fields with words that decide about the same bits."""
    fields = fields_of(FloatArithmetic).items()
    alike = [(name, field) for name, field in fields if field.words and field.decides == of_bits.decides]
    return [(name, field) for name, field in alike if role == "sum" or field.place != "products"]


def groups(model: DotModel) -> Iterator[Alternative]:
    """Yield models that differ in two or three of the fields that show through one another."""
    if isinstance(model.root.arithmetic, IntegerArithmetic):
        return
    known = feature_values(model)
    for signals in GROUPS:
        names = [name for signal in signals for name in _showing_as(signal) if str(name) in known]
        others = [[(str(x), word) for word in x.field.words if word != known[str(x)]] for x in names if x.field]
        for few in range(2, MOST_CHANGED + 1):
            for chosen in combinations(others, few):
                for changes in product(*chosen):
                    changed = with_features(model, dict(changes))
                    if changed != model:
                        yield Alternative(changed, changes)


def _showing_as(signal: Signal) -> Iterator[Name]:
    """Yield the features that decide it. Features of sums of products come first."""
    for role in get_args(Role):
        for name, record in FEATURES.items():
            if isinstance(record, Field) and record.shows_as == signal and (role == "sum" or record.of_adds):
                yield Name(name, role)


def as_alternatives(model: DotModel, others: Iterable[DotModel]) -> Iterator[Alternative]:
    """Yield other models as alternatives, each in all fields in which it differs.

    The alignment of a sum that keeps every bit is no difference: with enough bits it is the same function.
    """
    known = feature_values(model)
    exact = {name for name, value in known.items() if parsed(name).feature == "alignment_bits" and value is None}
    same = exact | irrelevant_features(model)
    for other in others:
        values = feature_values(other).items()
        changes = tuple((name, value) for name, value in values if known.get(name) != value and name not in same)
        if changes:
            yield Alternative(other, changes)


def further(model: DotModel, alternative: Alternative) -> list[Alternative]:
    """Return alternatives with ever more or fewer bits than an alternative with one bit more or fewer in all sums of a role.

    If it has other alignment bits and another lowest alignment, both change in step: the smallest terms are truncated where
    the model truncates them.
    """
    names = [parsed(name) for name, _ in alternative.changes]
    numbers = {
        name.feature: value for name, (_, value) in zip(names, alternative.changes, strict=True) if isinstance(value, int)
    }
    in_step = numbers.keys() == {"alignment_bits", "min_exponent"}
    counted = "alignment_bits" if in_step else names[0].feature
    field = names[0].field
    if len(numbers) < len(names) or alternative.where:
        return []
    if not in_step and (len(names) > 1 or field is None or not field.counts_bits):
        return []
    found: list[Alternative] = []
    for arithmetic, role in float_arithmetics(model):
        own = getattr(arithmetic, counted)
        if role == names[0].role and not (in_step and None in (own, arithmetic.min_exponent)):
            step = 1 if own is not None and numbers[counted] > own else -1
            ways = ({name: number + i * step for name, number in numbers.items()} for i in range(1, SUM_BITS + 1))
            found += alternatives_with(model, arithmetic, ways)
    return found


def max_width(model: DotModel) -> dict[str, int]:
    """Return the most bits that result_bits and alignment_bits can have, in all sums of a role."""
    most: dict[str, int] = {}
    for arithmetic, role in float_arithmetics(model):
        fitting = (f for f in range(SUM_BITS, -1, -1) if with_fields(model, arithmetic, {"alignment_bits": f}))
        for feature, bits in (("result_bits", arithmetic.result.mantissa_bits), ("alignment_bits", next(fitting))):
            name = str(Name(feature, role))
            most[name] = min(bits, most.get(name, bits))
    return most


def coarser_bounds(model: DotModel) -> Iterator[list[Alternative]]:
    """Yield, for sums without alignment, models that align to fewer and fewer bits, in every way that may show.

    The ways are the words of `Field.with_coarser`. Sums of products also have a lowest alignment, because they may lose lower
    bits than all other ways.
    """
    fields = fields_of(FloatArithmetic).items()
    for arithmetic, role in float_arithmetics(model):
        if arithmetic.alignment_bits is not None:
            continue
        ways: list[tuple[str, Value]] = [
            (name, word) for name, field in fields if role == "sum" or field.of_adds for word in field.with_coarser
        ]
        if role == "sum":
            ways.append(("min_exponent", arithmetic.result.min_exponent))
        widths = range(max_width(model)[str(Name("alignment_bits", role))], arithmetic.result_bits, -1)
        for name, value in ways:
            yield list(alternatives_with(model, arithmetic, ({"alignment_bits": f, name: value} for f in widths)))


class Floors(NamedTuple):
    """Models with other lowest exponents of the alignment, the nearest ones first.

    none: the model without one. If the model has none, `above` begins at a floor that no operand reaches.
    """

    none: Alternative | None
    above: list[Alternative]
    below: list[Alternative]


def floors(inst: Instruction, model: DotModel) -> Iterator[Floors]:
    for arithmetic, _ in float_arithmetics(model):
        if arithmetic.alignment_bits is None:
            continue
        level, lowest = arithmetic.min_exponent, _lowest_bit(inst, arithmetic) + arithmetic.alignment_bits
        top = inst.d.max_exponent + 1
        if level is None:
            yield Floors(None, _with_floors(model, arithmetic, range(lowest, max(top, lowest + 1))), [])
        else:
            (none,) = _with_floors(model, arithmetic, [None])
            above, below = range(level + 1, top), range(level - 1, lowest - 1, -1)
            yield Floors(none, _with_floors(model, arithmetic, above), _with_floors(model, arithmetic, below))


def _with_floors(model: DotModel, arithmetic: FloatArithmetic, levels: Iterable[int | None]) -> list[Alternative]:
    return list(alternatives_with(model, arithmetic, ({"min_exponent": level} for level in levels)))


def _lowest_bit(inst: Instruction, arithmetic: FloatArithmetic) -> int:
    """Return the exponent of the last bit of the smallest term that operands can make."""
    factors = (inst.a, inst.b, *(() if inst.scale is None else (inst.scale, inst.scale)))
    products: int = sum(fmt.min_exponent - fmt.mantissa_bits for fmt in factors)
    return min(products, *(fmt.min_exponent - fmt.mantissa_bits for fmt in (inst.c, arithmetic.result)))
