"""A trace as it is stored: operations with the hashes of their inputs and outputs. A folder of JSON lines and safetensors.

A trace is data of another machine. Everything that is read is checked for type and size, no name in it is used as a path, and
nothing in it is executed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from accprobe.errors import RecordingError, unreadable

FORMAT, VERSION = "accprobe trace", 1

OPERATION_FILE, OPERAND_FILE = "trace.jsonl", "operands.safetensors"

MOST_OPERATIONS, MOST_LINE, MOST_DIMENSIONS, MOST_VALUES, MOST_TEXT = 1 << 20, 1 << 22, 16, 1 << 14, 1 << 14
"""Limits of what is read: operations of a trace, bytes of a line, dimensions of a tensor, tensors of an operation, characters
of a name.
"""

MOST_SIZE = 1 << 48

UNDEFINED = "undefined"
"""Stands for the hash of a tensor whose bits mean nothing, such as the state that an attention returns."""

Json = dict[str, Any]


@dataclass(slots=True)
class TensorValue:
    """A tensor at the input or the output of an operation. Its hashes are filled in when they are fetched from the device.

    id: identifies the data of a storage between two writes; views of it have the same. hash: of its bits, "" where there are
    none to read, as of meta and of sparse tensors. parts: hashes of the parts that a mapping compares. base: of a view of an
    input of the run, the hash of its whole storage.
    """

    id: int
    hash: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    parts: tuple[str, ...] = ()
    base: str = ""

    @property
    def hashes(self) -> set[str]:
        """Return hashes by which the other run may know the data."""
        return {self.hash, *self.parts, self.base} - {"", UNDEFINED}

    @property
    def size(self) -> int:
        return math.prod(self.shape)


class TracedOperation(NamedTuple):
    """One operation. phase: forward, backward or optimizer. arguments: those that are not tensors. random: whether it draws
    random numbers. flags: torch's flags of matrix products when it ran.
    """

    number: int
    name: str
    module: str
    phase: str
    inputs: tuple[TensorValue, ...]
    outputs: tuple[TensorValue, ...]
    arguments: str = ""
    random: bool = False
    flags: Mapping[str, Any] = MappingProxyType({})
    kernels: tuple[str, ...] = ()

    @property
    def packet(self) -> str:
        """Return the name without its overload: "aten.mm" of "aten.mm.default"."""
        parts = self.name.split(".")
        return ".".join(parts[:2]) if parts[0] == "aten" else self.name.removesuffix(".default")


@dataclass
class RecordedTrace:
    """A recorded run. part: the mapping whose parts were hashed, such as "batch=8". complete: whether it ended by itself.

    stopped: what ended the recording before the program: a limit, or an error of the program.
    source: the tool that wrote a dump, "" for accprobe. lacks: a sentence on what the dump does not have.
    """

    operations: list[TracedOperation]
    part: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    complete: bool = True
    stopped: str = ""
    source: str = ""
    lacks: str = ""


_encode = json.JSONEncoder(separators=(",", ":")).encode


@lru_cache(1 << 14)
def _shared_text(name: str, module: str, phase: str, arguments: str, random: bool, flags: tuple[tuple[str, Any], ...]) -> str:
    """Return the fields of an operation that other operations have too, such as those of the next step."""
    stored = {"module": module, "phase": phase, "arguments": arguments, "random": random, "flags": dict(flags)}
    return _encode({"name": name, **{key: value for key, value in stored.items() if value}})[1:-1]


@lru_cache(1 << 12)
def _layout_text(shape: tuple[int, ...], strides: tuple[int, ...], dtype: str) -> str:
    return _encode([shape, strides, dtype])[1:-1]


def operation_line(operation: TracedOperation) -> str:
    """Return a line of the file; fields at their default are absent. Fields that most operations share are encoded once."""
    name, flags = operation.name, tuple(operation.flags.items())
    shared = _shared_text(name, operation.module, operation.phase, operation.arguments, operation.random, flags)
    kernels = f',"kernels":{_encode(operation.kernels)}' if operation.kernels else ""
    inputs, outputs = (",".join([_value_text(x) for x in values]) for values in (operation.inputs, operation.outputs))
    return f'{{"number":{operation.number},{shared}{kernels},"inputs":[{inputs}],"outputs":[{outputs}]}}\n'


def _value_text(value: TensorValue) -> str:
    text = f'[{value.id},"{value.hash}",{_layout_text(value.shape, value.strides, value.dtype)}'
    if value.base:
        return f"{text},{_encode(value.parts)},{_encode(value.base)}]"
    return f"{text},{_encode(value.parts)}]" if value.parts else f"{text}]"


class TraceWriter:
    """Write a trace line by line, so that a run that crashes leaves what it recorded. Files of an earlier trace get a "~"."""

    def __init__(self, folder: Path, part: str, versions: Mapping[str, str]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for earlier in (folder / OPERATION_FILE, folder / OPERAND_FILE):
            if earlier.exists():
                earlier.replace(earlier.with_name(f"{earlier.name}~"))
        self._folder, self.count = folder, 0
        self._file = (folder / OPERATION_FILE).open("w", encoding="utf-8")
        self._write({"format": FORMAT, "version": VERSION, "part": part, "versions": dict(versions)})

    def _write(self, line: Json) -> None:
        self._file.write(_encode(line) + "\n")

    def add(self, operations: Sequence[TracedOperation]) -> None:
        self._file.writelines(map(operation_line, operations))
        self.count += len(operations)
        self._file.flush()

    def finish(self, stopped: str = "", complete: bool = True) -> None:
        self._write({"end": self.count, "stopped": stopped, **({} if complete else {"complete": False})})
        self._file.close()


def read_trace(folder: Path) -> RecordedTrace:
    """Read a folder that `accprobe trace record` wrote. Raises RecordingError."""
    path = folder / OPERATION_FILE
    try:
        if not folder.exists():
            raise RecordingError(f"there is no folder {folder}")
        if not path.is_file():
            raise RecordingError(
                f"{folder} is not a trace: it has no file {OPERATION_FILE}; record one with `accprobe trace record`"
            )
        with path.open("rb") as file:
            return _read(path, _lines(path, file))
    except OSError as e:
        raise RecordingError(unreadable(path, e)) from None


def _lines(path: Path, file: Any) -> Iterator[tuple[int, Any]]:
    number = 0
    while line := file.readline(MOST_LINE + 1):
        number += 1
        if len(line) > MOST_LINE:
            raise RecordingError(f"{path}, line {number}: longer than {MOST_LINE:,} bytes; record the trace again")
        if number > MOST_OPERATIONS + 2:
            raise RecordingError(f"{path} has more than {MOST_OPERATIONS:,} operations; record fewer with --limit")
        if not line.endswith(b"\n"):
            return  # the last line of a run that crashed
        try:
            yield number, json.loads(line)
        except (ValueError, RecursionError):
            raise RecordingError(f"{path}, line {number}: not JSON; record the trace again") from None


def _read(path: Path, lines: Iterator[tuple[int, Any]]) -> RecordedTrace:
    _, first = next(lines, (0, None))
    if not isinstance(first, dict) or first.get("format") != FORMAT:
        raise RecordingError(f"{path} is not a trace of accprobe: its first line does not say so")
    if first.get("version") != VERSION:
        raise RecordingError(f"{path} has version {first.get('version')!s:.20}; this accprobe reads version {VERSION}")
    trace = RecordedTrace([], complete=False)
    try:
        trace.part = _text(first.get("part", ""))
        trace.versions = {_text(key): _text(value) for key, value in _object(first.get("versions", {})).items()}
        for _, line in lines:
            if isinstance(line, dict) and "end" in line:
                if line["end"] != len(trace.operations):
                    raise ValueError(f"the trace has {len(trace.operations)} operations, and its end says {line['end']!r:.20}")
                trace.complete, trace.stopped = line.get("complete", True) is True, _text(line.get("stopped", ""))
                break
            trace.operations.append(_operation(_object(line), len(trace.operations)))
    except (ValueError, TypeError, KeyError) as e:
        reason = f"'{e.args[0]}' is missing" if isinstance(e, KeyError) else str(e)
        raise RecordingError(f"{path}, line {len(trace.operations) + 2}: {reason}; record the trace again") from None
    return trace


def _operation(line: Json, number: int) -> TracedOperation:
    if line.get("number") != number:
        raise ValueError(f"operation {line.get('number')!r:.20} stands where number {number} is expected")
    return TracedOperation(
        number,
        _text(line["name"]),
        _text(line.get("module", "")),
        _text(line.get("phase", "forward")),
        _values(line["inputs"]),
        _values(line["outputs"]),
        _text(line.get("arguments", "")),
        line.get("random") is True,
        {_text(key): value for key, value in _object(line.get("flags", {})).items() if isinstance(value, bool | int | str)},
        tuple(map(_text, _list(line.get("kernels", []), MOST_VALUES))),
    )


def _values(several: Any) -> tuple[TensorValue, ...]:
    return tuple(_value(_list(each, 7)) for each in _list(several, MOST_VALUES))


def _value(fields: list[Any]) -> TensorValue:
    if len(fields) < 5:
        raise ValueError("a tensor has fewer than 5 fields")
    shape, strides = (tuple(_size(x) for x in _list(each, MOST_DIMENSIONS)) for each in fields[2:4])
    if len(shape) != len(strides) or math.prod(shape) > MOST_SIZE:
        raise ValueError("a tensor has a shape that is too large, or has no strides for it")
    parts, base = fields[5] if len(fields) > 5 else [], fields[6] if len(fields) > 6 else ""
    hashes = tuple(map(_text, _list(parts, MOST_DIMENSIONS)))
    return TensorValue(_size(fields[0]), _text(fields[1]), shape, strides, _text(fields[4]), hashes, _text(base))


def _size(number: Any) -> int:
    if type(number) is not int or not 0 <= number <= MOST_SIZE:
        raise ValueError(f"{number!r:.20} is not a size")
    return number


def _text(text: Any) -> str:
    if not isinstance(text, str) or len(text) > MOST_TEXT:
        raise ValueError(f"{text!r:.20} is not a text of at most {MOST_TEXT:,} characters")
    return "".join(x if x.isprintable() else "�" for x in text)


def _list(values: Any, most: int) -> list[Any]:
    if not isinstance(values, list) or len(values) > most:
        raise ValueError(f"a list of at most {most:,} is expected")
    return values


def _object(value: Any) -> Json:
    if not isinstance(value, dict):
        raise ValueError("an object is expected")
    return value
