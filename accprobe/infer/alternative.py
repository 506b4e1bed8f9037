"""An alternative model, the values in which it differs, and functions that make one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product

from accprobe.model.fields import Name, fields_of, parsed, with_values
from accprobe.model.record import Numbers, Value
from accprobe.model.tree import Arithmetic, DotModel, FloatArithmetic, FusedSum, Role, are_whole, fits

# Features, by their names in the findings, and values.
Changes = tuple[tuple[str, Value], ...]

# Fields of one arithmetic, or of the model, that change together.
FieldValues = Mapping[str, Value]

_OF_MODEL = fields_of(DotModel).keys()
# Fields of sums that have a lowest and a highest number.
_LIMITS = {name: x.values for name, x in fields_of(FloatArithmetic).items() if isinstance(x.values, Numbers)}


@dataclass(frozen=True)
class Alternative:
    """A model beside the inferred one.

    changes: features with the values of the alternative; `field` and `value` belong to the first. where: the only sum that
    is changed, in words; "" for all sums.
    """

    model: DotModel
    changes: Changes
    where: str = ""

    def __str__(self) -> str:
        """Return e.g. "result_bits 12 in the sum with product 0" or "alignment_bits 24 and alignment_rounding floor"."""
        (first, value), *others = ((name, "none" if value is None else str(value)) for name, value in self.changes)
        here = f" in {self.where}" if self.where else ""
        return " and ".join((f"{first} {value}{here}", *(f"{name} {value}" for name, value in others)))

    @property
    def field(self) -> str:
        return self.changes[0][0]

    @property
    def value(self) -> Value:
        return self.changes[0][1]


def alternatives_with(model: DotModel, arithmetic: Arithmetic, ways: Iterable[FieldValues]) -> Iterator[Alternative]:
    """Yield the models with fields of the model or of all sums of one arithmetic changed, in each way that the sums allow."""
    role = model.role(arithmetic)
    for fields in ways:
        changed = with_fields(model, arithmetic, fields)
        if changed is not None:
            yield Alternative(changed, tuple(named(fields, role).items()))


def with_fields(model: DotModel, arithmetic: Arithmetic, fields: FieldValues) -> DotModel | None:
    """Return the model with fields of the model or of all sums of one arithmetic changed; None if a sum does not allow them."""
    if fields.keys() <= _OF_MODEL:
        return with_values(model, fields)
    changed = with_values(arithmetic, fields)
    sharing = (node for node in model.root.nodes() if node.arithmetic == arithmetic)
    return with_arithmetic(model, arithmetic, changed) if all(_allows(node, changed) for node in sharing) else None


def combinations_of(values: Mapping[str, Iterable[Value]]) -> list[dict[str, Value]]:
    """Return every combination of values of fields or features, by name."""
    return [dict(zip(values, combination, strict=True)) for combination in product(*values.values())]


def named(fields: FieldValues, role: Role) -> FieldValues:
    """Return the fields of the sums of a role, or of the model, by the names of their findings."""
    return {name if name in _OF_MODEL else str(Name(name, role)): value for name, value in fields.items()}


def _allows(node: FusedSum, arithmetic: Arithmetic) -> bool:
    if not isinstance(arithmetic, FloatArithmetic):
        return True
    numbers = ((limits, getattr(arithmetic, name)) for name, limits in _LIMITS.items())
    if any(value is not None and not x.low <= value <= x.high for x, value in numbers):
        return False
    kept = arithmetic.result_bits <= arithmetic.result.mantissa_bits
    return kept and fits(arithmetic, len(node.terms)) and are_whole(node.products, arithmetic)


def with_features(model: DotModel, features: FieldValues) -> DotModel:
    """Return the model with features, named as in the findings, changed."""
    own = {name: value for name, value in features.items() if name in _OF_MODEL}
    changed = with_values(model, own)
    names = {parsed(name): value for name, value in features.items() if name not in own}
    for arithmetic, role in float_arithmetics(model):
        if theirs := {name.feature: value for name, value in names.items() if name.role == role}:
            changed = with_arithmetic(changed, arithmetic, with_values(arithmetic, theirs))
    return changed


def with_arithmetic(model: DotModel, old: Arithmetic, new: Arithmetic, only: FusedSum | None = None) -> DotModel:
    """Return the model with another arithmetic in all sums that have the old one, or in only one sum."""
    if only is None:
        return model.with_arithmetic(lambda arithmetic: new if arithmetic == old else arithmetic)

    def change(node: FusedSum) -> FusedSum:
        same = node.products == only.products and node.has_addend == only.has_addend and len(node.terms) == len(only.terms)
        return replace(node, arithmetic=new) if same else node

    return replace(model, root=model.root.map(change))


def float_arithmetics(model: DotModel) -> Iterator[tuple[FloatArithmetic, Role]]:
    """Yield the floating-point arithmetics other than f64's, with the role of their sums."""
    for arithmetic in model.arithmetics:
        if isinstance(arithmetic, FloatArithmetic) and arithmetic.result.name != "f64":
            yield arithmetic, model.role(arithmetic)
