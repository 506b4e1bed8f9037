"""Rivals in several fields: such as can stand in for one another, or show through one another, are changed at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import combinations, product
from typing import get_args

from accprobe.infer.alternatives.alternative import Alternative, floats, with_features, with_fields
from accprobe.infer.alternatives.single import one_bit_beside
from accprobe.infer.findings import meaningless, values
from accprobe.model.features import Name, parsed
from accprobe.model.fields import FEATURES, fields_of
from accprobe.model.record import Field, Signal
from accprobe.model.tree import DotModel, FloatArithmetic, IntegerArithmetic, Role

# What fields decide that can be explained by one another: a zero's sign, or that it is one, through the next sum.
GROUPS: tuple[tuple[Signal, ...], ...] = (("sign of zero", "subnormal"), ("overflow",))

# Fields of a group that are changed together, at most.
MOST_CHANGED = 3


def pairs(model: DotModel) -> Iterator[Alternative]:
    """Models that differ in how many bits are kept, of results or of terms, and in what else decides about the same bits.

    Where terms below the lowest alignment are cut, that and the bits kept above the cut can stand in for one another too.
    """
    for arithmetic, role in floats(model):
        for kept, level in _of_one_cut(arithmetic):
            if changed := with_fields(model, arithmetic, {"alignment_bits": kept, "min_exponent": level}):
                yield Alternative(
                    changed, ((str(Name("min_exponent", role)), level), (str(Name("alignment_bits", role)), kept))
                )
        for bits, of_bits in fields_of(FloatArithmetic).items():
            beside = one_bit_beside(getattr(arithmetic, bits)) if of_bits.counts_bits and of_bits.decides else ()
            for number, (name, field) in product(beside, _deciding_with(of_bits, role)):
                for word in field.words:
                    if getattr(arithmetic, name) == word:
                        continue
                    if changed := with_fields(model, arithmetic, {bits: number, name: word}):
                        yield Alternative(changed, ((str(Name(bits, role)), number), (str(Name(name, role)), word)))


def _of_one_cut(arithmetic: FloatArithmetic) -> list[tuple[int, int]]:
    """One alignment bit fewer and one more, with the lowest alignment that cuts the smallest terms at the same place."""
    bits, level = arithmetic.alignment_bits, arithmetic.min_exponent
    return [] if bits is None or level is None else [(bits - 1, level - 1), (bits + 1, level + 1)]


def _deciding_with(of_bits: Field, role: Role) -> list[tuple[str, Field]]:
    """Fields that decide about the same bits in words."""
    fields = fields_of(FloatArithmetic).items()
    alike = [(name, field) for name, field in fields if field.words and field.decides == of_bits.decides]
    return [(name, field) for name, field in alike if role == "sum" or field.place != "products"]


def groups(model: DotModel) -> Iterator[Alternative]:
    """Models that differ in two or three of the fields that show through one another."""
    if isinstance(model.root.arithmetic, IntegerArithmetic):
        return
    known = values(model)
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
    """Features that decide it, of sums of products first."""
    for role in get_args(Role):
        for name, record in FEATURES.items():
            if isinstance(record, Field) and record.shows_as == signal and (role == "sum" or record.of_adds):
                yield Name(name, role)


def differing(model: DotModel, others: Iterable[DotModel]) -> Iterator[Alternative]:
    """Other models as rivals, each in all fields in which it differs.

    How a sum is aligned that keeps every bit is no difference: with bits enough it is the same function.
    """
    known = values(model)
    exact = {name for name, value in known.items() if parsed(name).feature == "alignment_bits" and value is None}
    same = exact | meaningless(model)
    for other in others:
        changes = tuple((name, value) for name, value in values(other).items() if known.get(name) != value and name not in same)
        if changes:
            yield Alternative(other, changes)
