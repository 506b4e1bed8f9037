"""Ladders: rivals in a row, each further from the model than the one before, to find how far what is seen reaches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple, overload

from accprobe.infer.alternatives.alternative import Alternative, floats, with_fields
from accprobe.isa.instructions import Instruction
from accprobe.model.features import Name, parsed
from accprobe.model.fields import fields_of
from accprobe.model.record import Value
from accprobe.model.tree import SUM_BITS, DotModel, FloatArithmetic, Role


class BoundSearch(Sequence[Alternative]):
    """Rivals in a row, each made when it is asked for."""

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
    """The numbers of bits beyond that of a rival that has one more or one fewer than the model, in all sums of a role."""
    (feature, value), *_ = alternative.changes
    name = parsed(feature)
    if name.field is None or not name.field.counts_bits or not isinstance(value, int) or alternative.where:
        return
    if name.feature in fields_of(DotModel):
        return
    for arithmetic, role in floats(model):
        if role == name.role:
            own = getattr(arithmetic, name.feature)
            step = 1 if own is not None and value > own else -1
            while changed := with_fields(model, arithmetic, {name.feature: (value := value + step)}):
                yield Alternative(changed, ((feature, value),))


def of_one_cut(model: DotModel, alternative: Alternative) -> Iterator[Alternative]:
    """Beyond a rival whose lowest alignment and bits cut the smallest terms where the model does: all others that do."""
    changes = {parsed(name).feature: (name, value) for name, value in alternative.changes}
    for arithmetic, role in floats(model):
        own = arithmetic.alignment_bits, arithmetic.min_exponent
        if changes.keys() != {"alignment_bits", "min_exponent"} or None in own:
            continue
        (bits, kept), (floor, level) = changes["alignment_bits"], changes["min_exponent"]
        if parsed(bits).role != role or not isinstance(kept, int) or not isinstance(level, int):
            continue
        step = 1 if own[0] is not None and kept > own[0] else -1
        while changed := with_fields(
            model, arithmetic, {"alignment_bits": (kept := kept + step), "min_exponent": level + step}
        ):
            level += step
            yield Alternative(changed, ((floor, level), (bits, kept)))


def max_width(model: DotModel) -> dict[str, int]:
    """The most bits that each feature can have that counts them, in all sums of a role."""
    most: dict[str, int] = {}
    for arithmetic, role in floats(model):
        fitting = (f for f in range(SUM_BITS, -1, -1) if with_fields(model, arithmetic, {"alignment_bits": f}))
        for feature, bits in (("result_bits", arithmetic.result.mantissa_bits), ("alignment_bits", next(fitting))):
            name = str(Name(feature, role))
            most[name] = min(bits, most.get(name, bits))
    return most


def coarser_bounds(model: DotModel) -> Iterator[Sequence[Alternative]]:
    """Of sums without alignment: such as align to ever fewer bits, in every way that may show (`with_coarser`).

    Sums of products also such as have a lowest alignment: what they lose may be below all that other ways lose.
    """
    for arithmetic, role in floats(model):
        if arithmetic.alignment_bits is not None:
            continue
        bits = Name("alignment_bits", role)
        lowest: list[tuple[str, Value]] = [("min_exponent", arithmetic.result.min_exponent)] if role == "sum" else []
        for name, word in (*_coarser_words(role), *lowest):
            candidate = partial(_aligned, model, arithmetic, bits, Name(name, role), word)
            yield BoundSearch(range(max_width(model)[str(bits)], arithmetic.result_bits, -1), candidate)


def _aligned(model: DotModel, was: FloatArithmetic, bits: Name, way: Name, word: Value, f: int) -> Alternative:
    """Its sums of one arithmetic aligned to f bits, with that word for one of the ways."""
    changed = with_fields(model, was, {bits.feature: f, way.feature: word})
    assert changed is not None
    return Alternative(changed, ((str(bits), f), (str(way), word)))


def _coarser_words(role: Role) -> list[tuple[str, str]]:
    fields = fields_of(FloatArithmetic).items()
    return [(name, word) for name, field in fields if role == "sum" or field.of_adds for word in field.with_coarser]


class Floors(NamedTuple):
    """Models with other lowest exponents of the alignment than the model, the next ones first.

    none: without one. Where the model has none, `above` begins at a floor that no operand reaches.
    """

    none: Alternative | None
    above: Sequence[Alternative]
    below: Sequence[Alternative]


def floors(inst: Instruction, model: DotModel) -> Iterator[Floors]:
    """Of each role whose sums are aligned."""
    for arithmetic, role in floats(model):
        if arithmetic.alignment_bits is None:
            continue
        level, lowest = arithmetic.min_exponent, _lowest_bit(inst, arithmetic) + arithmetic.alignment_bits

        def at(
            level: int | None, was: FloatArithmetic = arithmetic, field: str = str(Name("min_exponent", role))
        ) -> Alternative:
            changed = with_fields(model, was, {"min_exponent": level})
            assert changed is not None
            return Alternative(changed, ((field, level),))

        top = inst.d.max_exponent + 1
        if level is None:
            yield Floors(None, BoundSearch(range(lowest, max(top, lowest + 1)), at), ())
        else:
            yield Floors(at(None), BoundSearch(range(level + 1, top), at), BoundSearch(range(level - 1, lowest - 1, -1), at))


def _lowest_bit(inst: Instruction, arithmetic: FloatArithmetic) -> int:
    """Exponent of the last bit of the smallest term that there is."""
    factors = (inst.a, inst.b, *(() if inst.scale is None else (inst.scale, inst.scale)))
    products: int = sum(fmt.min_exponent - fmt.mantissa_bits for fmt in factors)
    return min(products, *(fmt.min_exponent - fmt.mantissa_bits for fmt in (inst.c, arithmetic.result)))
