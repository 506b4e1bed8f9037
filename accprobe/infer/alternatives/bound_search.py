"""Alternatives in a row, each further from the model than the one before, to find how far the observations reach."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple, overload

from accprobe.infer.alternatives.alternative import Alternative, float_arithmetics, with_fields
from accprobe.isa.instructions import Instruction
from accprobe.model.features import Name, parsed
from accprobe.model.fields import fields_of
from accprobe.model.record import Value
from accprobe.model.tree import SUM_BITS, DotModel, FloatArithmetic, Role


class BoundSearch(Sequence[Alternative]):
    """Alternatives by number, each made on access."""

    def __init__(self, numbers: range, candidate: Callable[[int], Alternative]) -> None:
        self._numbers, self._candidate = numbers, candidate

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, place: int) -> Alternative: ...
    @overload
    def __getitem__(self, place: slice) -> BoundSearch: ...
    def __getitem__(self, place: int | slice) -> Alternative | BoundSearch:
        if isinstance(place, slice):
            return BoundSearch(self._numbers[place], self._candidate)
        return self._candidate(self._numbers[place])


def further(model: DotModel, alternative: Alternative) -> Iterator[Alternative]:
    """Yield the numbers of bits beyond that of an alternative with one bit more or fewer in all sums of a role."""
    (feature, value), *_ = alternative.changes
    name = parsed(feature)
    if name.field is None or not name.field.counts_bits or not isinstance(value, int) or alternative.where:
        return
    if name.feature in fields_of(DotModel):
        return
    for arithmetic, role in float_arithmetics(model):
        if role == name.role:
            own = getattr(arithmetic, name.feature)
            step = 1 if own is not None and value > own else -1
            while changed := with_fields(model, arithmetic, {name.feature: (value := value + step)}):
                yield Alternative(changed, ((feature, value),))


def further_pairs(model: DotModel, alternative: Alternative) -> Iterator[Alternative]:
    """Yield further pairs of a lowest alignment and alignment bits that truncate the smallest terms where the model does."""
    changes = {parsed(name).feature: (name, value) for name, value in alternative.changes}
    for arithmetic, role in float_arithmetics(model):
        own = arithmetic.alignment_bits
        if changes.keys() != {"alignment_bits", "min_exponent"} or own is None or arithmetic.min_exponent is None:
            continue
        (bits, kept), (floor, level) = changes["alignment_bits"], changes["min_exponent"]
        if parsed(bits).role != role or not isinstance(kept, int) or not isinstance(level, int):
            continue
        step = 1 if kept > own else -1
        kept, level = kept + step, level + step
        while changed := with_fields(model, arithmetic, {"alignment_bits": kept, "min_exponent": level}):
            yield Alternative(changed, ((floor, level), (bits, kept)))
            kept, level = kept + step, level + step


def max_width(model: DotModel) -> dict[str, int]:
    """Return the most bits that result_bits and alignment_bits can have, in all sums of a role."""
    most: dict[str, int] = {}
    for arithmetic, role in float_arithmetics(model):
        fitting = (f for f in range(SUM_BITS, -1, -1) if with_fields(model, arithmetic, {"alignment_bits": f}))
        for feature, bits in (("result_bits", arithmetic.result.mantissa_bits), ("alignment_bits", next(fitting))):
            name = str(Name(feature, role))
            most[name] = min(bits, most.get(name, bits))
    return most


def coarser_bounds(model: DotModel) -> Iterator[Sequence[Alternative]]:
    """Yield, for sums without alignment, models that align to fewer and fewer bits, in every way that may show.

    The ways are the words of `Field.with_coarser`; for sums of products also a lowest alignment, because the bits that they
    lose may be below all that other ways lose.
    """
    fields = fields_of(FloatArithmetic).items()
    for arithmetic, role in float_arithmetics(model):
        if arithmetic.alignment_bits is not None:
            continue
        bits = Name("alignment_bits", role)
        ways: list[tuple[str, Value]] = [
            (name, word) for name, field in fields if role == "sum" or field.of_adds for word in field.with_coarser
        ]
        if role == "sum":
            ways.append(("min_exponent", arithmetic.result.min_exponent))
        for name, value in ways:
            candidate = partial(_aligned, model, arithmetic, bits, Name(name, role), value)
            yield BoundSearch(range(max_width(model)[str(bits)], arithmetic.result_bits, -1), candidate)


def _aligned(model: DotModel, arithmetic: FloatArithmetic, bits: Name, way: Name, value: Value, f: int) -> Alternative:
    changed = with_fields(model, arithmetic, {bits.feature: f, way.feature: value})
    assert changed is not None
    return Alternative(changed, ((str(bits), f), (str(way), value)))


class Floors(NamedTuple):
    """Models with other lowest exponents of the alignment, the nearest ones first.

    none: the model without one. If the model has none, `above` begins at a floor that no operand reaches.
    """

    none: Alternative | None
    above: Sequence[Alternative]
    below: Sequence[Alternative]


def floors(inst: Instruction, model: DotModel) -> Iterator[Floors]:
    """Yield the floors of each role whose sums are aligned."""
    for arithmetic, role in float_arithmetics(model):
        if arithmetic.alignment_bits is None:
            continue
        level, lowest = arithmetic.min_exponent, _lowest_bit(inst, arithmetic) + arithmetic.alignment_bits
        at = partial(_with_floor, model, arithmetic, role)
        top = inst.d.max_exponent + 1
        if level is None:
            yield Floors(None, BoundSearch(range(lowest, max(top, lowest + 1)), at), ())
        else:
            yield Floors(at(None), BoundSearch(range(level + 1, top), at), BoundSearch(range(level - 1, lowest - 1, -1), at))


def _with_floor(model: DotModel, arithmetic: FloatArithmetic, role: Role, level: int | None) -> Alternative:
    changed = with_fields(model, arithmetic, {"min_exponent": level})
    assert changed is not None
    return Alternative(changed, ((str(Name("min_exponent", role)), level),))


def _lowest_bit(inst: Instruction, arithmetic: FloatArithmetic) -> int:
    """Return the exponent of the last bit of the smallest term that operands can make."""
    factors = (inst.a, inst.b, *(() if inst.scale is None else (inst.scale, inst.scale)))
    products: int = sum(fmt.min_exponent - fmt.mantissa_bits for fmt in factors)
    return min(products, *(fmt.min_exponent - fmt.mantissa_bits for fmt in (inst.c, arithmetic.result)))
