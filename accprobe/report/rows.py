"""A row of the report: the result for one instruction."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, PlainSerializer, model_validator

from accprobe.errors import AccprobeError
from accprobe.infer.alternatives.alternative import Deviation
from accprobe.infer.findings import Finding
from accprobe.isa import instructions
from accprobe.isa.instructions import Instruction
from accprobe.model.notation import DotModelField
from accprobe.model.published import Explained
from accprobe.operands.exchange import Exchange, digits
from accprobe.sass.lowering import OpcodeSource, is_ordinary
from accprobe.sass.opcodes import MATRIX
from accprobe.verify.outcome import Count, Verification

STRICT = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)
"""How every part of a report is read."""

Status = Literal["confirmed", "inferred", "unstable", "unverified", "simulated", "skipped"]
"""confirmed: the model explains every result, and every tile element and event was covered. inferred: a model that is
contradicted or not wholly covered. unstable: two results for one query. unverified: no model, or the expected opcode did not
run. simulated: no hardware, whatever else is known. skipped: not measured."""

NOT_MEASURED = "a published model; nothing was measured"
"""The reason of a row of a published model."""


def _serialized(finding: Finding) -> dict[str, Any]:
    """Return a finding without its evidence, which has a key of the row."""
    data: dict[str, Any] = {"value": finding.value, "bound": finding.bound}
    data |= {"candidates": list(finding.candidates)} if finding.candidates else {}
    return data | ({"note": finding.note} if finding.note else {})


SerializedFinding = Annotated[Finding, PlainSerializer(_serialized)]


class Alternatives(BaseModel):
    """How many alternative models were tested, and the changes of those that no result contradicts."""

    model_config = STRICT

    tested: Count
    surviving: tuple[Deviation, ...] = ()


class Row(BaseModel):
    """One instruction.

    opcodes: the matrix opcodes that ran; lowering: (opcode, count) of all arithmetic that it became.
    unstable: dot products that gave other bits when repeated. evidence: by feature, the exchanges that decided it.
    explains: of a simulated device, results that others recorded on the real chip and that its published model explains.
    """

    model_config = STRICT

    name: str
    status: Status
    reason: str = ""
    opcodes: tuple[str, ...] = ()
    lowering: tuple[tuple[str, int], ...] = ()
    opcode_source: OpcodeSource | None = None
    cubin_sha256: str | None = None
    findings: dict[str, SerializedFinding] = {}
    model: DotModelField | None = None
    verification: Verification | None = None
    alternatives: Alternatives | None = None
    unstable: int = 0
    seconds: float | None = None
    explains: tuple[Explained, ...] = ()
    evidence: dict[str, tuple[Exchange, ...]] = {}

    @property
    def instruction(self) -> Instruction:
        return instructions.parse(self.name)

    @property
    def title(self) -> str:
        return self.name

    @property
    def parts(self) -> tuple[Row, ...]:
        """Return the row, as a product has regions: an instruction computes all results alike."""
        return (self,)

    @property
    def where(self) -> str:
        return ""

    @property
    def holds(self) -> bool:
        """Return whether the row is confirmed, or simulated and nothing else is missing."""
        return self.status == "confirmed" or (self.status == "simulated" and not self.reason)

    def _against(self) -> Iterator[str]:
        """Yield the contradictions between the row and its status."""
        if (self.holds or self.status == "inferred") and self.model is None:
            yield "there is no model"
        if not self.holds:
            return
        done = self.verification
        if done is None or not done.dots or done.mismatches or not (self.opcodes or is_ordinary(self.lowering)):
            yield "no opcode is named or random dot products are missing or differ"
        if self.reason:
            yield f"there is a reason against it: {self.reason}"
        yield from doubts(self.findings, self.alternatives is not None and self.alternatives.tested > 0)
        if self.status == "confirmed" and done:
            yield from _uncovered(done)

    @model_validator(mode="after")
    def _check(self) -> Self:
        try:
            inst = self.instruction
        except AccprobeError as e:
            raise ValueError(f"name: {e}") from None
        if against := next(self._against(), ""):
            raise ValueError(f"status: '{self.status}', yet {against}")
        matrix = tuple(opcode for opcode, _ in self.lowering if MATRIX.match(opcode))
        if set(self.opcodes) != set(matrix):
            named, ran = (", ".join(names) or "none" for names in (self.opcodes, matrix))
            raise ValueError(f"opcodes: {named}, yet the matrix opcodes of the lowering are {ran}")
        if misplaced := next((name for name, finding in self.findings.items() if finding.evidence), None):
            raise ValueError(f"findings.{misplaced}.evidence: evidence has its own key")
        shown = {f"evidence.{name}.{i}": each for name, every in self.evidence.items() for i, each in enumerate(every)}
        if self.verification and self.verification.counterexample:
            shown["verification.counterexample"] = self.verification.counterexample.exchange
        must = digits(inst)
        if wrong := next((key for key, exchange in shown.items() if exchange.widths != must), None):
            have, due = (", ".join(map(str, widths)) for widths in (shown[wrong].widths, must))
            raise ValueError(f"{wrong}: it has {have} hex digits, and an exchange of {self.name} has {due}")
        return self


def doubts(findings: Mapping[str, Finding], tested: bool) -> Iterator[str]:
    """Yield what findings of a confirmed row must not be or lack. tested: whether alternatives were tested."""
    if not findings:
        yield "there are no findings"
    if not tested:
        yield "no alternatives were tested"
    if name := next((name for name, finding in findings.items() if finding.bound == "suggested"), None):
        yield f"findings.{name} is suggested"


def _uncovered(done: Verification) -> Iterator[str]:
    """Yield the reasons why a verification does not confirm a row."""
    if done.contradicting:
        yield f"{done.contradicting:,} results contradict the model"
    if done.results and not done.events:
        yield "no events were counted"
    if done.events and (done.events.missing or done.events.hit != done.events.possible):
        yield f"{done.events.hit:,} of {done.events.possible:,} events occurred"
    if done.tile and (done.tile.covered != done.tile.total or done.tile.differing):
        yield f"{done.tile.covered:,} of {done.tile.total:,} tile elements were covered or some differ"
