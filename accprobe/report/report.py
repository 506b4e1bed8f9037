"""The report: everything that a run found out about one device, as one JSON file.

Keys that say nothing (an empty reason, no counterexample) are left out; every other key is required, and unknown keys are
errors. Bit patterns are hex strings, the K patterns of A and of B joined without a gap.
"""

from __future__ import annotations

import json
import subprocess
import time
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    Field,
    PlainSerializer,
    PlainValidator,
    StringConstraints,
    ValidationError,
    WithJsonSchema,
    model_validator,
)

import accprobe
from accprobe.build import atomic
from accprobe.devices.protocol import Device, DeviceKind
from accprobe.errors import AccprobeError, ReportError, nearest
from accprobe.infer import findings as experiment
from accprobe.isa import instructions
from accprobe.isa.instructions import Instruction
from accprobe.model import notation
from accprobe.model.tree import DotModel
from accprobe.report.records import STRICT, Bound
from accprobe.report.sweeps import SweepRecord
from accprobe.sass.lowering import OpcodeSource

SCHEMA: Literal[1] = 1

Status = Literal["confirmed", "inferred", "unverified", "skipped"]
Value = int | str | None
Hex = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]+$")]
Exchange = tuple[Hex, Hex, Hex, Hex]
Count = Annotated[int, Field(ge=0)]
"""A, B, C and what the device answered."""


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


class _Record(BaseModel):
    model_config = STRICT


class Tool(_Record):
    """The accprobe that measured: its version, and the commit where it ran from a git checkout."""

    version: str
    commit: str | None = None

    @classmethod
    def current(cls) -> Tool:
        return cls(version=accprobe.__version__, commit=_commit())


class DeviceRecord(_Record):
    """What was measured. reason: why a simulated device stands in for a GPU; facts: compute_capability, sm_count, …"""

    kind: DeviceKind
    name: str
    architecture: str
    reason: str = ""
    facts: dict[str, int | float | str] = {}


class Run(_Record):
    """How: worker processes, wall seconds so far, and how many instructions were asked for (fewer rows: it was cut short)."""

    jobs: int
    seconds: float
    selected: int


class Finding(_Record):
    """One feature. `left`: the values that are left where it is undetermined; `note`: why."""

    value: Value
    bound: Bound
    left: tuple[Value, ...] = ()
    note: str = ""


class Counterexample(_Record):
    """The first dot product on which the model and the device differ. kind: of operands, as `verification.kinds` has them."""

    kind: str
    exchange: Exchange
    expected: Hex


class Verification(_Record):
    """The model against the device on random dot products: how many, of which kinds of operands, and how many differed."""

    dots: Count
    mismatches: Count
    seed: int
    kinds: dict[str, int] = {}
    counterexample: Counterexample | None = None


class Rival(_Record):
    """A model with something changed that explains everything seen."""

    field: str
    value: str


class Rivals(_Record):
    """How many models with something changed were tried, and those that could not be contradicted."""

    tried: Count
    survived: tuple[Rival, ...] = ()


class Row(_Record):
    """One instruction.

    opcodes: the matrix opcodes that ran; lowering: (opcode, count) of all arithmetic that it became.
    unstable: dot products that gave other bits when asked a second time. evidence: by feature, what decided it.
    """

    name: str
    status: Status
    reason: str = ""
    opcodes: tuple[str, ...] = ()
    lowering: tuple[tuple[str, int], ...] = ()
    opcode_source: OpcodeSource | None = None
    cubin_sha256: str | None = None
    findings: dict[str, Finding] = {}
    model: Model | None = None
    verification: Verification | None = None
    rivals: Rivals | None = None
    unstable: int = 0
    seconds: float | None = None
    evidence: dict[str, tuple[Exchange, ...]] = {}

    @property
    def instruction(self) -> Instruction:
        return instructions.parse(self.name)

    @model_validator(mode="after")
    def _check(self) -> Self:
        try:
            inst = self.instruction
        except AccprobeError as e:
            raise ValueError(f"name: {e}") from None
        if self.status in ("confirmed", "inferred") and self.model is None:
            raise ValueError(f"status: '{self.status}', yet there is no model")
        agrees = self.verification and self.verification.dots and not self.verification.mismatches
        if self.status == "confirmed" and not (agrees and self.opcodes):
            raise ValueError("status: 'confirmed', yet no opcode is named or random dot products are missing or differ")
        widths = digits(inst)
        shown = [exchange for exchanges in self.evidence.values() for exchange in exchanges]
        if self.verification and self.verification.counterexample:
            shown.append(self.verification.counterexample.exchange)
        if any(tuple(map(len, exchange)) != widths for exchange in shown):
            raise ValueError(f"evidence: an exchange of {self.name} has {', '.join(map(str, widths))} hex digits")
        return self


class Report(_Record):
    """Everything that a run found out about one device; rows in the order of the architecture's catalog."""

    schema_version: Literal[1] = Field(alias="schema")
    tool: Tool
    environment: dict[str, str]
    seed: int
    device: DeviceRecord
    run: Run
    instructions: tuple[Row, ...]
    sweeps: tuple[SweepRecord, ...] = ()

    @model_validator(mode="after")
    def _check(self) -> Self:
        names = [row.name for row in self.instructions]
        if twice := next((name for i, name in enumerate(names) if name in names[:i]), None):
            raise ValueError(f"instructions: {twice} is there twice")
        return self

    @classmethod
    def empty(cls, device: Device, name: str | None, seed: int) -> Report:
        """A report of a device in which nothing is measured yet; name: what was asked for, "auto" or "cuda:0"."""
        facts = {key: fact for key, fact in device.describe().items() if isinstance(fact, int | float | str)}
        return cls(
            schema=SCHEMA,
            tool=Tool.current(),
            environment=device.environment(),
            seed=seed,
            device=DeviceRecord(
                kind=device.kind,
                name=device.name,
                architecture=device.architecture,
                reason=_stand_in(name, device),
                facts=facts,
            ),
            run=Run(jobs=1, seconds=0.0, selected=0),
            instructions=(),
        )

    def with_sweeps(self, other: Report) -> Report:
        """This report with the sweeps of another run on the same device; those that answer a question again replace the old.

        Raises ReportError where the devices differ.
        """
        mine, theirs = ((r.device.kind, r.device.name, r.device.architecture) for r in (self, other))
        if mine != theirs:
            raise ReportError(f"the file has a report of {self.device.name}, this is {other.device.name}; give another file")
        again = {sweep.key: sweep for sweep in other.sweeps}
        sweeps = {sweep.key: again.get(sweep.key, sweep) for sweep in self.sweeps} | again
        return self.model_copy(update={"sweeps": tuple(sweeps.values())})

    @property
    def measured(self) -> list[Row]:
        """The rows that are not skipped."""
        return [row for row in self.instructions if row.status != "skipped"]

    def dumps(self) -> str:
        """The report as JSON text: lists of plain values on one line each."""
        data = self.model_dump(mode="json", by_alias=True, exclude_defaults=True)
        text: list[str] = []
        _write(data, "", text)
        return "".join(text) + "\n"

    def save(self, path: Path) -> None:
        """Write the file, so that a reader sees all of it or none. Raises OSError."""
        atomic.save(path, self.dumps().encode())

    @classmethod
    def load(cls, name: str | Path) -> Report:
        """The report in a file, or the recorded one of that name ("h200"). Raises ReportError."""
        source = _find(name)
        try:
            text = source.read_bytes()
        except OSError as e:
            raise ReportError(f"{name} cannot be read: {e.strerror}") from None
        try:
            return cls.model_validate_json(text)
        except ValidationError as e:
            raise ReportError(f"{name}: {_reason(e)}") from None


def bound(known: experiment.Bound) -> Bound:
    """How far a value is known, as the report writes it."""
    return "at_least" if known == "at least" else known


def digits(inst: Instruction) -> tuple[int, int, int, int]:
    """Hex digits of an exchange's A, B, C and D."""
    a, b, c, d = (fmt.storage_bits // 4 for fmt in (inst.a, inst.b, inst.c, inst.d))
    return a * inst.k, b * inst.k, c, d


def exchange(inst: Instruction, seen: experiment.Exchange) -> Exchange:
    """An experiment's exchange as the report has it."""
    a, b, c, d = (fmt.storage_bits // 4 for fmt in (inst.a, inst.b, inst.c, inst.d))
    joined_a, joined_b = "".join(f"{x:0{a}x}" for x in seen.a), "".join(f"{x:0{b}x}" for x in seen.b)
    return joined_a, joined_b, f"{seen.c:0{c}x}", f"{seen.d:0{d}x}"


def patterns(inst: Instruction, shown: Exchange) -> experiment.Exchange:
    """The bit patterns of a report's exchange."""
    a, b, c, d = shown
    return experiment.Exchange(_split(a, inst.k), _split(b, inst.k), int(c, 16), int(d, 16))


ATLAS = "lowering"
"""Beside the reports lies the atlas of lowerings, which `accprobe sass --arch` writes."""


def recorded() -> list[str]:
    """Names of the reports that come with accprobe."""
    entries = files("accprobe.reports").iterdir()
    return sorted(name for entry in entries if entry.name.endswith(".json") and (name := entry.name[:-5]) != ATLAS)


class Autosave:
    """Keeps the newest of a growing report in a file: at most four times a second, and at most a twentieth of the time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._unsaved: Report | None = None
        self._next = 0.0

    def __call__(self, report: Report) -> None:
        self._unsaved = report
        if time.monotonic() >= self._next:
            self.finish()

    def finish(self) -> None:
        """Save what is not saved yet."""
        if self._unsaved is None:
            return
        started = time.monotonic()
        self._unsaved.save(self._path)
        self._unsaved = None
        ended = time.monotonic()
        self._next = ended + max(0.25, 19 * (ended - started))


def _stand_in(name: str | None, device: Device) -> str:
    """Why a simulated device stands in for a GPU, "" where it does not."""
    if name != "auto" or device.kind != "simulated":
        return ""
    from accprobe.build.driver import why_no_gpu

    return why_no_gpu() or ""


def _find(name: str | Path) -> Any:
    """An existing file, else a recorded report."""
    path, known = Path(name), recorded()
    if path.is_file() or (path.exists() and str(name) not in known):
        return path
    if str(name) in known:
        return files("accprobe.reports") / f"{name}.json"
    hint = f"; of the recorded reports, {nearest(str(name), known)}" if known else ""
    raise ReportError(f"there is no file and no recorded report '{name}'{hint}")


def _reason(error: ValidationError) -> str:
    """The first thing that is wrong, with its key; a wrong schema explains all else."""
    errors = error.errors(include_url=False)
    first = next((e for e in errors if e["loc"] == ("schema",)), errors[0])
    kind, given = first["type"], first["input"]
    if kind == "json_invalid" and "recursion limit" in first["msg"]:
        return "it is not an accprobe report: it is nested too deeply"
    if kind == "json_invalid":
        return f"it is not JSON, or cut short ({first['msg'].removeprefix('Invalid JSON: ')})"
    if kind == "model_type" and not first["loc"]:
        return "it is not an accprobe report, but another JSON file: it is no object"
    if first["loc"] == ("schema",):
        if kind == "missing":
            return "it is not an accprobe report, but another JSON file: the key schema is missing"
        return f"schema: this accprobe reads schema {SCHEMA}, the file has {given!r}; a newer accprobe may read it"
    key = ".".join(str(part) for part in first["loc"])
    if kind == "missing":
        return f"{key}: the key is missing"
    if kind == "extra_forbidden":
        return f"{key}: there is no such key in schema {SCHEMA}"
    text = first["msg"].removeprefix("Value error, ")
    text = text[:1].lower() + text[1:] if kind != "value_error" else text
    shown = f"; it is {given!r}" if isinstance(given, int | float | str | None) and kind != "value_error" else ""
    return f"{key}: {text}{shown}" if key else text


def _write(value: object, indent: str, text: list[str]) -> None:
    """The parts of the value's JSON text, appended."""
    if isinstance(value, dict) and value:
        items = [(f"{json.dumps(key)}: ", item) for key, item in value.items()]
        brackets = "{}"
    elif isinstance(value, list) and any(isinstance(item, dict | list) for item in value):
        items = [("", item) for item in value]
        brackets = "[]"
    else:
        text.append(json.dumps(value))
        return
    whole = json.dumps(value) if _is_small(value) else None
    if whole and len(indent) + len(whole) <= 120:
        text.append(whole)
        return
    inner = indent + " "
    text.append(brackets[0])
    for i, (key, item) in enumerate(items):
        text.append(f"{',' if i else ''}\n{inner}{key}")
        _write(item, inner, text)
    text.append(f"\n{indent}{brackets[1]}")


def _is_small(value: dict[str, object] | list[object]) -> bool:
    """Whether it may fit on a line: no container of containers of containers."""
    items = value.values() if isinstance(value, dict) else value
    inner = [item for item in items if isinstance(item, dict | list)]
    return not any(isinstance(x, dict | list) for item in inner for x in (item.values() if isinstance(item, dict) else item))


def _split(text: str, count: int) -> tuple[int, ...]:
    width = len(text) // count
    return tuple(int(text[i : i + width], 16) for i in range(0, len(text), width))


@cache
def _commit() -> str | None:
    root = Path(accprobe.__file__).resolve().parent.parent
    if not (root / ".git").exists():
        return None
    command = ["git", "-C", str(root), "describe", "--always", "--dirty"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None
