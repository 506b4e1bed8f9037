"""Claims: what a subject computes, how that was verified, and how far it is known. Reports are lists of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from itertools import pairwise
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, PlainSerializer, SerializerFunctionWrapHandler, model_serializer, model_validator

from accprobe.isa.formats import FORMATS
from accprobe.records.findings import Finding
from accprobe.records.verification import Count, Verification

Status = Literal["confirmed", "inferred", "unstable", "unverified", "simulated", "skipped"]
"""confirmed: the model explains every result, and, of an instruction, every tile element and event was covered. inferred: there
is a model, but a result contradicts it, coverage is incomplete, or nothing was verified. unstable: two results for one query.
unverified: no model, or the expected opcode is not known to have run. simulated: no hardware, whatever else is known. skipped:
not measured."""

NOT_MEASURED = "a published model; nothing was measured"
"""The reason of a row of a published model."""


class StrictRecord(BaseModel):
    """A part of a report or of another file, without keys or conversions that it does not define."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)


def status_of(done: Verification | None) -> tuple[Status, str]:
    """Return the status of a subject after a comparison of its model and results, and the reason if it is not confirmed."""
    if done is None:
        return "inferred", "nothing was verified"
    reason = done.contradiction or done.uncovered
    return ("inferred", reason) if reason else ("confirmed", "")


def _serialized(finding: Finding) -> dict[str, Any]:
    """Return a finding without its evidence, which has a key of the claim."""
    data: dict[str, Any] = {"value": finding.value, "bound": finding.bound}
    data |= {"candidates": list(finding.candidates)} if finding.candidates else {}
    return data | ({"note": finding.note} if finding.note else {})


SerializedFinding = Annotated[Finding, PlainSerializer(_serialized)]


def split_title(title: str) -> list[str]:
    """Return the words of a title in any form: without the commas after words and the x between formats; "a -> b" is one."""
    return re.sub(r" x |,(?=\s|$)", " ", re.sub(r"\s*->\s*", "->", title)).split()


class Alternatives(StrictRecord):
    """The number of tested alternative models, and the changes of those that no result contradicts."""

    tested: Count
    surviving: tuple[str, ...] = ()


class Part(StrictRecord):
    """Results that are computed alike: all of an instruction, or a region of a product. where: rows and columns of a region."""

    where: str = ""
    findings: dict[str, SerializedFinding] = {}
    model: Any = None
    alternatives: Alternatives | None = None

    @property
    def is_tested(self) -> bool:
        return self.alternatives is not None and self.alternatives.tested > 0

    def doubts(self) -> Iterator[str]:
        """Yield the reasons why this part cannot belong to a confirmed claim."""
        if self.model is None:
            yield "there is no model"
        if not self.findings:
            yield "there are no findings"
        if not self.is_tested:
            yield "no alternatives were tested"
        if name := next((name for name, finding in self.findings.items() if finding.bound == "suggested"), None):
            yield f"findings.{name} is suggested"

    def misplaced(self) -> Iterator[str]:
        """Yield a sentence for each finding that holds its evidence, which has its own key in a claim."""
        yield from (f"findings.{name}.evidence: evidence has its own key" for name, x in self.findings.items() if x.evidence)


class Claim(StrictRecord):
    """The computation of one subject.

    name: of the instruction, callable or function. device: where a product or function ran, as its library names it; ""
    on the report's device. opcodes: the matrix or arithmetic opcodes that ran.
    """

    kind: str
    name: str
    status: Status
    reason: str = ""
    opcodes: tuple[str, ...] = ()
    verification: Verification | None = None
    device: str = ""
    seconds: float | None = None

    @property
    def title(self) -> str:
        return self.name

    @property
    def words(self) -> tuple[str, ...]:
        """Return the words that globs match, the name first. They identify the claim among claims of its kind."""
        return (self.name,)

    @property
    def key(self) -> tuple[str, ...]:
        """Return what identifies the claim: of two with one key, the newer one counts."""
        return (self.kind, *self.words)

    @property
    def parts(self) -> tuple[Part, ...]:
        return ()

    @property
    def holds(self) -> bool:
        """Return whether the claim is confirmed, or simulated and nothing else is missing."""
        return self.status == "confirmed" or (self.status == "simulated" and not self.reason)

    def matches(self, globs: str) -> bool:
        """Return whether "torch:* 16x8x* bf16" means the claim: a glob of the name, and globs of other words.

        "bf16 -> f32" means two words in this order, one after the other.
        """
        first, *others = split_title(globs) or ["*"]
        name, *words = self.words
        pairs = [f"{one}->{after}" for one, after in pairwise(words)]
        found = (any(fnmatchcase(each, glob) for each in (pairs if "->" in glob else words)) for glob in others)
        return fnmatchcase(name, first) and all(found)

    def wrong(self) -> Iterator[str]:
        """Yield a sentence for each value that no claim of this kind may have."""
        yield from ()

    def against(self) -> Iterator[str]:
        """Yield the reasons why the claim cannot be confirmed."""
        if self.reason:
            yield f"there is a reason against it: {self.reason}"
        done = self.verification
        if done is None or not done.compared:
            yield "nothing was compared with the model"
        elif done.mismatches or done.contradicting or done.counterexample or done.mismatch:
            yield f"{done.mismatches:,} results differ from the model and {done.contradicting:,} contradict it"
        for i, part in enumerate(self.parts):
            at = f"regions.{i}: " if part.where else ""
            yield from (f"{at}{doubt}" for doubt in part.doubts())

    @model_validator(mode="after")
    def _check(self) -> Self:
        if wrong := next(self.wrong(), ""):
            raise ValueError(wrong)
        if self.holds and (against := next(self.against(), "")):
            raise ValueError(f"status: '{self.status}', yet {against}")
        return self

    @model_serializer(mode="wrap")
    def _with_kind(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields: dict[str, Any] = serialize(self)
        return {"kind": self.kind} | fields


def unknown_formats(claim: Claim, *names: str) -> Iterator[str]:
    """Yield the fields that name no format."""
    formats = {name: getattr(claim, name) for name in names}
    yield from (f"{name}: there is no format '{given:.40}'" for name, given in formats.items() if given not in FORMATS)
