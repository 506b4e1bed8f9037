"""Ladders: rivals in a row, each further from the model than the one before, to find how far what is seen reaches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, get_args, overload

from accprobe.infer.rivals import Rival, floats, with_bits
from accprobe.isa.instructions import Instruction
from accprobe.model.tree import SUM_BITS, AlignmentRounding, DotModel, FloatArithmetic

ORDERED = ("alignment_bits", "result_bits")
"""Features whose values are numbers of bits."""


class Rungs(Sequence[Rival]):
    """Rivals in a row, each made when it is asked for."""

    def __init__(self, numbers: range, rung: Callable[[int], Rival]) -> None:
        self._numbers, self._rung = numbers, rung

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, place: int) -> Rival: ...
    @overload
    def __getitem__(self, place: slice) -> Rungs: ...
    def __getitem__(self, place: int | slice) -> Rival | Rungs:
        if isinstance(place, slice):
            return Rungs(self._numbers[place], self._rung)
        return self._rung(self._numbers[place])


def further(model: DotModel, rival: Rival) -> Iterator[Rival]:
    """The numbers of bits beyond that of a rival that has one more or one fewer than the model."""
    (field, value), *_ = rival.changes
    feature = field.removeprefix("add_")
    if feature not in ORDERED or not isinstance(value, int) or not rival.value.isdecimal():
        return
    for arithmetic, prefix in floats(model):
        if prefix + feature == field:
            step = 1 if value > getattr(arithmetic, feature) else -1
            while changed := with_bits(model, arithmetic, **{feature: (value := value + step)}):
                yield Rival(field, str(value), changed)


def widest(model: DotModel) -> dict[str, int]:
    """The most bits that each feature of ORDERED can have."""
    most: dict[str, int] = {}
    for arithmetic, prefix in floats(model):
        most[f"{prefix}result_bits"] = arithmetic.result.mantissa_bits
        fitting = (f for f in range(SUM_BITS, -1, -1) if with_bits(model, arithmetic, alignment_bits=f))
        most[f"{prefix}alignment_bits"] = next(fitting)
    return most


def coarser(model: DotModel) -> Iterator[Sequence[Rival]]:
    """Of sums without alignment: such as align to ever fewer bits, with each kind of cut; and to zeros' exponents too."""
    for arithmetic, prefix in floats(model):
        if arithmetic.alignment_bits is not None:
            continue
        most = widest(model)[f"{prefix}alignment_bits"]
        ways = [("alignment_rounding", cut) for cut in get_args(AlignmentRounding)]
        for name, value in ways if prefix else (*ways, ("zero_terms", "aligned")):

            def at(
                f: int, was: FloatArithmetic = arithmetic, prefix: str = prefix, name: str = name, value: str = value
            ) -> Rival:
                changed = with_bits(model, was, alignment_bits=f, **{name: value})
                assert changed is not None
                return Rival(f"{prefix}alignment_bits", str(f), changed, ((f"{prefix}{name}", value),))

            yield Rungs(range(most, arithmetic.result_bits, -1), at)


class Floors(NamedTuple):
    """Models with other lowest exponents of the alignment than the model, the next ones first.

    none: without one. Where the model has none, `above` begins at a floor that no operand reaches.
    """

    none: Rival | None
    above: Sequence[Rival]
    below: Sequence[Rival]


def floors(inst: Instruction, model: DotModel) -> Iterator[Floors]:
    """Of each role whose sums are aligned."""
    for arithmetic, prefix in floats(model):
        if arithmetic.alignment_bits is None:
            continue
        level, lowest = arithmetic.min_exponent, _lowest_bit(inst, arithmetic) + arithmetic.alignment_bits

        def at(level: int | None, was: FloatArithmetic = arithmetic, field: str = f"{prefix}min_exponent") -> Rival:
            changed = with_bits(model, was, min_exponent=level)
            assert changed is not None
            return Rival(field, str(level).lower(), changed)

        top = inst.d.max_exponent + 1
        if level is None:
            yield Floors(None, Rungs(range(lowest, max(top, lowest + 1)), at), ())
        else:
            yield Floors(at(None), Rungs(range(level + 1, top), at), Rungs(range(level - 1, lowest - 1, -1), at))


def _lowest_bit(inst: Instruction, arithmetic: FloatArithmetic) -> int:
    """Exponent of the last bit of the smallest term that there is."""
    products = inst.a.min_exponent - inst.a.mantissa_bits + inst.b.min_exponent - inst.b.mantissa_bits
    return min(products, *(fmt.min_exponent - fmt.mantissa_bits for fmt in (inst.c, arithmetic.result)))
