"""Alternatives in several fields at once: fields that can stand in for one another, or show through one another."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import combinations, product
from typing import get_args

from accprobe.infer.alternatives.alternative import Alternative, float_arithmetics, with_features, with_fields
from accprobe.infer.alternatives.single import one_bit_beside
from accprobe.infer.findings import feature_values, irrelevant_features
from accprobe.model.features import Name, parsed
from accprobe.model.fields import FEATURES, fields_of
from accprobe.model.record import Field, Signal
from accprobe.model.tree import DotModel, FloatArithmetic, IntegerArithmetic, Role

# Properties of a result that can be explained by one another through the next sum: a zero's sign, or that it is a zero.
GROUPS: tuple[tuple[Signal, ...], ...] = (("sign of zero", "subnormal"), ("overflow",))

# Fields of a group that are changed together, at most.
MOST_CHANGED = 3


def pairs(model: DotModel) -> Iterator[Alternative]:
    """Yield models that differ in how many bits of results or terms are kept, and in what else decides about these bits.

    If a lowest alignment truncates the smallest terms, it and the alignment bits can stand in for one another too.
    """
    for arithmetic, role in float_arithmetics(model):
        bits, level = arithmetic.alignment_bits, arithmetic.min_exponent
        for step in (-1, 1) if bits is not None and level is not None else ():
            changes = {"min_exponent": (level or 0) + step, "alignment_bits": (bits or 0) + step}
            if changed := with_fields(model, arithmetic, changes):
                yield Alternative(changed, tuple((str(Name(name, role)), value) for name, value in changes.items()))
        for counted, of_bits in fields_of(FloatArithmetic).items():
            beside = one_bit_beside(getattr(arithmetic, counted)) if of_bits.counts_bits and of_bits.decides else ()
            for number, (name, field) in product(beside, _deciding_with(of_bits, role)):
                for word in field.words:
                    if getattr(arithmetic, name) == word:
                        continue
                    if changed := with_fields(model, arithmetic, {counted: number, name: word}):
                        yield Alternative(changed, ((str(Name(counted, role)), number), (str(Name(name, role)), word)))


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
    """Yield the features that decide it, those of sums of products first."""
    for role in get_args(Role):
        for name, record in FEATURES.items():
            if isinstance(record, Field) and record.shows_as == signal and (role == "sum" or record.of_adds):
                yield Name(name, role)


def differing(model: DotModel, others: Iterable[DotModel]) -> Iterator[Alternative]:
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
