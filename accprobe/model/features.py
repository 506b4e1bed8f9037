"""Names of features in reports, and the sums that they describe."""

from __future__ import annotations

from typing import NamedTuple

from accprobe.model.fields import FEATURES, fields_of
from accprobe.model.record import Feature, Field
from accprobe.model.tree import FloatArithmetic, Role

# Prefix of features of sums that add only results and C, no products.
ADD = "add_"


# Features, the most important first.
IMPORTANCE = sorted(FEATURES, key=lambda name: name == "ran_as")


class Name(NamedTuple):
    """A feature of the sums of one role; features of the whole model have the role "sum"."""

    feature: str
    role: Role = "sum"

    def __str__(self) -> str:
        return ADD + self.feature if self.role == "add" else self.feature

    @property
    def record(self) -> Feature | None:
        return FEATURES.get(self.feature)

    @property
    def field(self) -> Field | None:
        """Return the record of the model field, if the feature is one."""
        record = self.record
        return record if isinstance(record, Field) else None


def parsed(name: str) -> Name:
    """Return the feature and the role of a name in a report."""
    return Name(name.removeprefix(ADD), "add") if name.startswith(ADD) else Name(name)


def finding_names() -> list[str]:
    """Return every feature that a finding can have, including those of separate adds."""
    findings = {name: record for name, record in FEATURES.items() if not record.of_row}
    return [*findings, *(str(Name(name, "add")) for name, record in findings.items() if record.of_adds)]


def of_alignment() -> list[str]:
    """Return the features that have no meaning if every bit of the terms is kept."""
    return [name for name, field in fields_of(FloatArithmetic).items() if field.of_alignment]


def title(name: str) -> str:
    """Return the title of a feature in tables; an unknown feature keeps its name."""
    what = parsed(name)
    words = what.record.title if what.record else what.feature.replace("_", " ")
    return f"{words} (separate add)" if what.role == "add" else words
