"""The names of features in reports, and which of them are told of which sums."""

from __future__ import annotations

from typing import NamedTuple

from accprobe.model.fields import FEATURES, fields_of
from accprobe.model.record import Feature, Field
from accprobe.model.tree import FloatArithmetic, Role

ADD = "add_"
"""How the names begin of features of sums that add results and C alone, no products."""


IMPORTANCE = sorted(FEATURES, key=lambda name: name == "ran_as")
"""Features, those first that a reader looks for first."""


class Name(NamedTuple):
    """A feature, of the sums of one role; of the whole model as of sums of products."""

    feature: str
    role: Role = "sum"

    def __str__(self) -> str:
        return ADD + self.feature if self.role == "add" else self.feature

    @property
    def record(self) -> Feature | None:
        return FEATURES.get(self.feature)

    @property
    def field(self) -> Field | None:
        """What is known of it where it is a field of the model."""
        record = self.record
        return record if isinstance(record, Field) else None


def parsed(name: str) -> Name:
    """The feature and the role that a name in a report stands for."""
    return Name(name.removeprefix(ADD), "add") if name.startswith(ADD) else Name(name)


def finding_names() -> list[str]:
    """Every feature that a finding may be of, those of separate adds too."""
    told = {name: record for name, record in FEATURES.items() if not record.of_row}
    return [*told, *(str(Name(name, "add")) for name, record in told.items() if record.of_adds)]


def of_alignment() -> list[str]:
    """Features that mean nothing where every bit of the terms is kept."""
    return [name for name, field in fields_of(FloatArithmetic).items() if field.of_alignment]


def title(name: str) -> str:
    """A feature as tables head it; one that is not known by its name."""
    what = parsed(name)
    words = what.record.title if what.record else what.feature.replace("_", " ")
    return f"{words} (separate add)" if what.role == "add" else words
