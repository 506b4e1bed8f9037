"""A row of the report: everything that was found out about one instruction."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, PlainSerializer, PlainValidator, WithJsonSchema, model_validator

from accprobe.errors import AccprobeError
from accprobe.infer.findings import Finding
from accprobe.infer.neighbours.rival import Deviation
from accprobe.isa import instructions
from accprobe.isa.instructions import Instruction
from accprobe.model import notation
from accprobe.model.explained import Explained
from accprobe.model.tree import DotModel
from accprobe.operands.exchange import Exchange, digits
from accprobe.sass.lowering import OpcodeSource
from accprobe.verify.outcome import Count, Verification

STRICT = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)
"""How every part of a report is read."""

Status = Literal["confirmed", "inferred", "unstable", "unverified", "simulated", "skipped"]
"""confirmed: every answer of the device in that row is the model's, every cell was read, every event of the model was met.
inferred: a model, contradicted or not wholly covered. unstable: the device gave two answers to one question. unverified: no
model, or the opcode that is expected did not run. simulated: no hardware answered, whatever else holds. skipped: not asked."""

NOT_MEASURED = "a published model; nothing was measured"
"""The reason of a simulated row of which nothing was tried."""


def _read_model(data: object) -> DotModel:
    if isinstance(data, DotModel):
        return data
    if not isinstance(data, dict):
        raise ValueError("expected an object")
    try:
        return notation.from_json(data)
    except (AccprobeError, TypeError, AttributeError) as e:
        raise ValueError(str(e)) from None


Model = Annotated[
    DotModel, PlainValidator(_read_model), PlainSerializer(notation.to_json), WithJsonSchema(notation.json_schema())
]


def _told(finding: Finding) -> dict[str, Any]:
    """A finding as a report has it: its evidence stands beside it."""
    told: dict[str, Any] = {"value": finding.value, "bound": finding.bound}
    return told | ({"left": list(finding.left)} if finding.left else {}) | ({"note": finding.note} if finding.note else {})


Told = Annotated[Finding, PlainSerializer(_told)]


class Rivals(BaseModel):
    """How many models with something changed were tried, and in what those differ that could not be contradicted."""

    model_config = STRICT

    tried: Count
    survived: tuple[Deviation, ...] = ()


class Row(BaseModel):
    """One instruction.

    opcodes: the matrix opcodes that ran; lowering: (opcode, count) of all arithmetic that it became.
    unstable: dot products that gave other bits when asked a second time. evidence: by feature, what decided it.
    explains: of a simulated device, words that others recorded on the real chip and that its published model has.
    """

    model_config = STRICT

    name: str
    status: Status
    reason: str = ""
    opcodes: tuple[str, ...] = ()
    lowering: tuple[tuple[str, int], ...] = ()
    opcode_source: OpcodeSource | None = None
    cubin_sha256: str | None = None
    findings: dict[str, Told] = {}
    model: Model | None = None
    verification: Verification | None = None
    rivals: Rivals | None = None
    unstable: int = 0
    seconds: float | None = None
    explains: tuple[Explained, ...] = ()
    evidence: dict[str, tuple[Exchange, ...]] = {}

    @property
    def instruction(self) -> Instruction:
        return instructions.parse(self.name)

    @property
    def holds(self) -> bool:
        """Whether nothing speaks against the row: it is confirmed, or simulated and would be confirmed were it measured."""
        return self.status == "confirmed" or (self.status == "simulated" and not self.reason)

    @model_validator(mode="after")
    def _check(self) -> Self:
        try:
            inst = self.instruction
        except AccprobeError as e:
            raise ValueError(f"name: {e}") from None
        if (self.holds or self.status == "inferred") and self.model is None:
            raise ValueError(f"status: '{self.status}', yet there is no model")
        agrees = self.verification and self.verification.dots and not self.verification.mismatches
        if self.holds and not (agrees and self.opcodes):
            raise ValueError(f"status: '{self.status}', yet no opcode is named or random dot products are missing or differ")
        if self.status == "confirmed" and self.verification and (against := _against(self.verification)):
            raise ValueError(f"status: '{self.status}', yet {against}")
        if self.holds and (name := next((n for n, f in self.findings.items() if f.bound == "suggested"), None)):
            raise ValueError(f"status: '{self.status}', yet findings.{name} is suggested")
        if misplaced := next((name for name, finding in self.findings.items() if finding.evidence), None):
            raise ValueError(f"findings.{misplaced}.evidence: evidence stands beside the findings")
        shown = {f"evidence.{name}.{i}": each for name, every in self.evidence.items() for i, each in enumerate(every)}
        if self.verification and self.verification.counterexample:
            shown["verification.counterexample"] = self.verification.counterexample.exchange
        must = digits(inst)
        if wrong := next((key for key, exchange in shown.items() if exchange.widths != must), None):
            have, due = (", ".join(map(str, widths)) for widths in (shown[wrong].widths, must))
            raise ValueError(f"{wrong}: it has {have} hex digits, and an exchange of {self.name} has {due}")
        return self


def _against(done: Verification) -> str:
    """What of a verification speaks against its row, in words; reports of before answers were counted have less to say."""
    if done.contradicting:
        return f"{done.contradicting:,} answers contradict the model"
    if done.answers and not done.events:
        return "no events were looked for"
    if done.events and (done.events.missing or done.events.hit != done.events.possible):
        return f"{done.events.hit:,} of {done.events.possible:,} events were met"
    if done.cells and (done.cells.read != done.cells.of or done.cells.wrong):
        return f"{done.cells.read:,} of {done.cells.of:,} cells were read or some differ"
    return ""
