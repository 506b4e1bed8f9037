"""The report: every result about one device, as one JSON file, and its JSON Schema.

Keys with their default (no reason, no counterexample) are left out; others are required, and unknown keys are errors. Bit
patterns are hex strings, the K patterns of A and of B joined without a gap.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import IO, Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

import accprobe
from accprobe.build import atomic, checkout
from accprobe.errors import ReportError, unreadable
from accprobe.operands.protocol import Device, DeviceKind
from accprobe.records.claims import StrictRecord
from accprobe.records.functions import FunctionRow
from accprobe.records.products import ProductRow
from accprobe.records.rows import Row
from accprobe.records.sweeps import SweepRecord
from accprobe.report.recorded import find, recorded
from accprobe.report.text import pictured, reason, written

SCHEMA: Literal[5] = 5

AnyClaim = Annotated[Row | ProductRow | FunctionRow, Field(discriminator="kind")]

MOST_BYTES = 1 << 28
"""A limit on the size of a file: more than a hundred times the largest recorded report."""


class Tool(StrictRecord):
    """The accprobe that measured: its version, and the commit where it ran from a git checkout."""

    version: str
    commit: str | None = None

    @classmethod
    def current(cls) -> Tool:
        return cls(version=accprobe.__version__, commit=checkout.commit())


class DeviceRecord(StrictRecord):
    """The measured device. reason: why it is not a GPU, where one was looked for; facts: compute_capability, sm_count, …"""

    kind: DeviceKind
    name: str
    architecture: str
    reason: str = ""
    facts: dict[str, int | float | str] = Field(default={})


class Run(StrictRecord):
    """The run: worker processes, wall seconds so far, and how many instructions were selected (a stopped run has fewer)."""

    jobs: int
    seconds: float
    selected: int


NO_RUN = Run(jobs=1, seconds=0.0, selected=0)


class Report(StrictRecord):
    """Every result about one device; claims about instructions in the order of the architecture's catalog."""

    schema_version: Literal[5] = Field(alias="schema")
    tool: Tool
    environment: dict[str, str]
    seed: int
    device: DeviceRecord
    run: Run
    claims: tuple[AnyClaim, ...]
    sweeps: tuple[SweepRecord, ...] = ()

    @model_validator(mode="after")
    def _check(self) -> Self:
        wrong = "confirmed" if self.device.kind == "simulated" else "simulated"
        keys = set()
        for i, claim in enumerate(self.claims):
            if claim.key in keys:
                raise ValueError(f"claims.{i}: {claim.title} is there twice")
            if claim.status == wrong:
                raise ValueError(f"claims.{i}.status: '{wrong}', yet the device's kind is '{self.device.kind}'")
            keys.add(claim.key)
        return self

    @classmethod
    def of(
        cls, device: DeviceRecord, environment: dict[str, str], seed: int, claims: Iterable[AnyClaim] = (), run: Run = NO_RUN
    ) -> Report:
        head: dict[str, Any] = {"schema": SCHEMA, "tool": Tool.current(), "environment": environment, "seed": seed}
        return cls(**head, device=device, run=run, claims=tuple(claims))

    @classmethod
    def empty(cls, device: Device, name: str | None, seed: int) -> Report:
        """Return a report of a device without rows. name: the device as the user named it, "auto" or "cuda:0"."""
        facts = {key: fact for key, fact in device.describe().items() if isinstance(fact, int | float | str)}
        known: dict[str, Any] = {"kind": device.kind, "name": device.name, "architecture": device.architecture}
        return cls.of(DeviceRecord(**known, reason=_stand_in(name, device), facts=facts), device.environment(), seed)

    @property
    def instructions(self) -> tuple[Row, ...]:
        return tuple(claim for claim in self.claims if isinstance(claim, Row))

    @property
    def products(self) -> tuple[ProductRow, ...]:
        """Return the claims about products and reductions."""
        return tuple(claim for claim in self.claims if isinstance(claim, ProductRow))

    @property
    def functions(self) -> tuple[FunctionRow, ...]:
        return tuple(claim for claim in self.claims if isinstance(claim, FunctionRow))

    def with_claims(self, claims: Iterable[AnyClaim], **changes: object) -> Report:
        """Return the report with other claims, and with these changes of its keys."""
        return self.model_copy(update={"claims": tuple(claims), **changes})

    @property
    def measured(self) -> list[Row]:
        """Return the instructions that are not skipped."""
        return [row for row in self.instructions if row.status != "skipped"]

    @property
    def measurable(self) -> int:
        """Return how many instructions are measured, or are missing as the run stopped early."""
        return len(self.measured) + max(0, self.run.selected - len(self.instructions))

    def dumps(self) -> str:
        return written(self.model_dump(mode="json", by_alias=True, exclude_defaults=True))

    def save(self, path: Path) -> None:
        """Write the file by rename. Raises OSError."""
        atomic.save(path, self.dumps().encode())

    @classmethod
    def load(cls, name: str | Path) -> Report:
        """Read the report in a file, or the recorded one of that name ("h200"). Raises ReportError."""
        if not isinstance(name, str | Path):
            raise ReportError(f"{name!r:.40} is not a name: give a file or a recorded report, such as h200")
        return _read_once(name) if isinstance(name, str) and name in recorded() else _read(name)

    @classmethod
    def read_from(cls, file: IO[bytes], name: str | Path) -> Report:
        """Read an open file, which messages call `name`. Raises ReportError, OSError."""
        text = file.read(MOST_BYTES + 1)
        if len(text) > MOST_BYTES:
            raise ReportError(f"{name} is not a report: it has more than {MOST_BYTES >> 20} MiB")
        text = pictured(text.removeprefix(codecs.BOM_UTF8))
        try:
            return cls.model_validate_json(text)
        except ValidationError as e:
            raise ReportError(f"{name}: {reason(e, SCHEMA)}") from None


def _read(name: str | Path) -> Report:
    try:
        with find(name).open("rb") as file:
            return Report.read_from(file, name)
    except OSError as e:
        raise ReportError(unreadable(name, e)) from None


_read_once = cache(_read)


def _stand_in(name: str | None, device: Device) -> str:
    """Return why another device stands in for a GPU, "" where none does."""
    if name != "auto" or device.kind not in ("simulated", "cpu"):
        return ""
    from accprobe.build.driver import explain_missing_gpu

    return explain_missing_gpu() or ""
