"""Record of a feature, from which everything else about it is derived, and the values of a field."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# Operands that show a difference in a field: any; near the alignment floor; results near underflow or overflow; products with
# another exponent than their factors' sum.
Place = Literal["anywhere", "floor", "underflow", "overflow", "products"]

# Property of a result that the next sum reads, so that a field of that sum can explain it too.
Signal = Literal["sign of zero", "subnormal", "overflow"]


@dataclass(frozen=True)
class Words:
    """A choice of words. codes: their numbers in compiled code; if empty, their positions."""

    words: tuple[str, ...]
    codes: tuple[int, ...] = ()

    def code(self, word: str) -> int:
        place = self.words.index(word)
        return self.codes[place] if self.codes else place


@dataclass(frozen=True)
class Numbers:
    """Whole numbers from `low` to `high`.

    none: the number that None stands for, if None is allowed. counts_bits: one more and one fewer are the nearest models.
    """

    low: int
    high: int
    none: float | None = None
    counts_bits: bool = False


@dataclass(frozen=True)
class Patterns:
    """Bit patterns of the result's format, of `bits` bits at most; shown in hex."""

    bits: int


Values = Words | Numbers | Patterns
Value = int | str | None


@dataclass(frozen=True)
class Feature:
    """A property of an instruction in reports.

    title: heading in tables. says: definition. differs: consequence for a kernel if two instructions differ in it.
    evidence: the dot products that determine it. of_adds: sums that add only results and C have
    it too, as a separate feature. of_chains: only chains have it. of_row: it belongs to the row, not to a finding.
    """

    title: str
    says: str
    differs: str
    evidence: str = ""
    of_adds: bool = False
    of_chains: bool = False
    of_row: bool = False


@dataclass(frozen=True, kw_only=True)
class Field(Feature):
    """A feature that is a field of the model.

    values: possible values; of_integers: in integer sums, if those have the field. of_alignment: meaningless if every bit of
    the terms is kept; only_where: meaningless unless another field has that value.
    of_f64: values other than the first are tried for f64 results only. compiled: values that compiled code supports, () for
    all; if it supports one, models and reports omit the field at that value.

    Alternative models: decides: whether it changes bits of terms or of results, so that other such fields can
    explain the same results. shows_as: property of a result that the next sum reads.
    with_coarser: values that are tried together with a finite alignment if the model has none.

    place: operands that show it.
    """

    values: Values
    of_integers: Words | None = None
    of_alignment: bool = False
    only_where: tuple[str, str] | None = None
    of_f64: bool = False
    compiled: tuple[Value, ...] = ()
    decides: Literal["terms", "results"] | None = None
    shows_as: Signal | None = None
    with_coarser: tuple[str, ...] = ()
    place: Place = "anywhere"

    @property
    def counts_bits(self) -> bool:
        return isinstance(self.values, Numbers) and self.values.counts_bits

    @property
    def words(self) -> tuple[str, ...]:
        """Return its words; none if its values are numbers."""
        return self.values.words if isinstance(self.values, Words) else ()

    @property
    def tacit(self) -> bool:
        """Return whether compiled code, models and reports omit the field at its usual value."""
        return len(self.compiled) == 1

    def is_compiled(self, value: Value) -> bool:
        """Return whether compiled code supports the value."""
        return not self.compiled or value in self.compiled

    def text(self, value: Value, digits: int = 0) -> str:
        """Return a value as text; digits: minimum digits of a bit pattern."""
        if isinstance(self.values, Patterns) and isinstance(value, int):
            return f"0x{value:0{digits}X}"
        return "none" if value is None else str(value)
