"""What an experiment returns: a feature's value, how far it is known, and the exchanges with the device that show it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal, get_args

from pydantic import Field
from pydantic.json_schema import SkipJsonSchema

from accprobe.infer.query_log import LogEntry
from accprobe.isa.instructions import Instruction
from accprobe.model.features import Name, of_alignment, parsed
from accprobe.model.fields import fields_of
from accprobe.model.record import Patterns, Value
from accprobe.model.tree import DotModel, Role
from accprobe.operands.exchange import Exchange

Bound = Literal["exact", "at_least", "undetermined", "equivalent", "suggested"]


@dataclass(frozen=True)
class Finding:
    """One feature of an instruction; its name is the key that it stands under.

    value: the feature's value in the model's words. bound: "exact"; "at_least" where the operand format or the data cannot
    reach further; "undetermined" where several values explain everything seen (`candidates`; `value` is one of them);
    "equivalent" where structures with the values `candidates` give the same bits for all operands (`value`: the canonical
    one's); "suggested" in a row that is not confirmed: what explains most, and nothing that may be relied on.
    note: why, in one clause. evidence: the exchanges that decided it.
    """

    value: Value
    bound: Bound = "exact"
    candidates: tuple[Value, ...] = ()
    note: str = ""
    evidence: SkipJsonSchema[Annotated[tuple[Exchange, ...], Field(exclude=True)]] = ()


# By feature.
Findings = dict[str, Finding]


@dataclass
class Characterisation:
    """All findings of one instruction, and the model that they make up (None where no model fits)."""

    instruction: Instruction
    findings: Findings = field(default_factory=dict)
    model: DotModel | None = None
    unstable: int = 0
    """How many dot products gave different bits when asked a second time."""
    asked: list[LogEntry] = field(default_factory=list)
    """Everything that the device was asked and answered; a rival model is tried on it first."""
    others: list[DotModel] = field(default_factory=list)
    """Other models that explain the random dot products on which this one was chosen."""


def values(model: DotModel) -> dict[str, Value]:
    """Every field of a model, by the feature that it is found as."""
    known: dict[str, Value] = {name: getattr(model, name) for name in fields_of(DotModel)}
    for node in model.root.nodes():
        digits = node.arithmetic.result.storage_bits // 4
        for name, record in fields_of(type(node.arithmetic)).items():
            value = getattr(node.arithmetic, name)
            known[str(Name(name, node.role))] = record.text(value, digits) if isinstance(record.values, Patterns) else value
    return known


def unsaid(feature: str, value: Value) -> bool:
    """Whether a feature is left out of what is told because it has its usual value."""
    field = parsed(feature).field
    return field is not None and field.tacit and field.is_compiled(value)


def meaningless(model: DotModel) -> set[str]:
    """Features that say how terms are aligned in sums that keep every bit of them."""
    known = values(model)
    exact = [role for role in get_args(Role) if known.get(str(Name("alignment_bits", role)), 0) is None]
    return {str(Name(feature, role)) for role in exact for feature in of_alignment()}
