"""A rival: a model beside another one, with the values in which it differs; and how such models are made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from accprobe.model.features import parsed
from accprobe.model.fields import fields_of, with_values
from accprobe.model.record import Numbers, Value
from accprobe.model.tree import Arithmetic, DotModel, FloatArithmetic, FusedSum, Role, are_whole, fits

# Features, by their names in the findings, and values.
Changes = tuple[tuple[str, Value], ...]


@dataclass(frozen=True)
class Deviation:
    """In what a rival differs from the inferred model.

    changes: the features, each with the rival's value. where: the sum that alone is changed, in words; "" where all are.
    """

    changes: Changes
    where: str = ""

    def __str__(self) -> str:
        """ "result_bits 12 in the sum with product 0", "alignment_bits 24 and alignment_rounding floor"."""
        (first, value), *others = ((name, "none" if value is None else str(value)) for name, value in self.changes)
        here = f" in {self.where}" if self.where else ""
        return " and ".join((f"{first} {value}{here}", *(f"{name} {value}" for name, value in others)))


@dataclass(frozen=True)
class Alternative:
    """A model beside the inferred one. changes, where: as in `Deviation`."""

    model: DotModel
    changes: Changes
    where: str = ""

    @property
    def deviation(self) -> Deviation:
        return Deviation(self.changes, self.where)

    @property
    def field(self) -> str:
        """The first of the features."""
        return self.changes[0][0]

    @property
    def value(self) -> Value:
        """That of the first feature."""
        return self.changes[0][1]


def name_of(node: FusedSum) -> str:
    """A sum in words."""
    return f"the sum with product {node.products[0]}" if node.products else "a sum without products"


def with_fields(model: DotModel, arithmetic: Arithmetic, fields: Mapping[str, Value]) -> DotModel | None:
    """The model with fields of all sums of one arithmetic changed; None where they do not take them."""
    changed = with_values(arithmetic, fields)
    sharing = (node for node in model.root.nodes() if node.arithmetic == arithmetic)
    return in_all(model, arithmetic, changed) if all(_takes(node, changed) for node in sharing) else None


def _takes(node: FusedSum, arithmetic: Arithmetic) -> bool:
    if not isinstance(arithmetic, FloatArithmetic):
        return True
    numbers = ((field.values, getattr(arithmetic, name)) for name, field in fields_of(FloatArithmetic).items())
    if any(isinstance(x, Numbers) and value is not None and not x.low <= value <= x.high for x, value in numbers):
        return False
    kept = arithmetic.result_bits <= arithmetic.result.mantissa_bits
    return kept and fits(arithmetic, len(node.terms)) and are_whole(node.products, arithmetic)


def with_features(model: DotModel, features: Mapping[str, Value]) -> DotModel:
    """The model with features, named as in the findings, changed."""
    own = {name: value for name, value in features.items() if name in fields_of(DotModel)}
    changed = with_values(model, own)
    names = {parsed(name): value for name, value in features.items() if name not in own}
    for arithmetic, role in floats(model):
        theirs = {name.feature: value for name, value in names.items() if name.role == role}
        changed = in_all(changed, arithmetic, with_values(arithmetic, theirs))
    return changed


def in_all(model: DotModel, old: Arithmetic, new: Arithmetic) -> DotModel:
    """The model with another arithmetic in all sums that have the old one."""
    return model.with_arithmetic(lambda arithmetic: new if arithmetic == old else arithmetic)


def in_one(model: DotModel, which: FusedSum, arithmetic: Arithmetic) -> DotModel:
    """The model with another arithmetic in one of its sums."""

    def change(node: FusedSum) -> FusedSum:
        same = node.products == which.products and node.has_addend == which.has_addend and len(node.terms) == len(which.terms)
        return replace(node, arithmetic=arithmetic) if same else node

    return replace(model, root=model.root.map(change))


def floats(model: DotModel) -> Iterator[tuple[FloatArithmetic, Role]]:
    """The floating-point arithmetics but those of f64, with the role of their sums."""
    for arithmetic in model.arithmetics:
        if isinstance(arithmetic, FloatArithmetic) and arithmetic.result.name != "f64":
            yield arithmetic, model.role(arithmetic)
