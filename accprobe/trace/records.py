"""A trace as it is stored: operations with the hashes of their inputs and outputs. A folder of JSON lines and safetensors.

A trace is data of another machine. Everything that is read is checked for type and size, no name in it is used as a path, and
nothing in it is executed.
"""

from __future__ import annotations

import errno
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TextIO

from pydantic import AfterValidator, Field, TypeAdapter, ValidationError

from accprobe.errors import RecordingError, plain_line, unreadable

FORMAT, VERSION = "accprobe trace", 1

OPERATION_FILE, OPERAND_FILE = "trace.jsonl", "operands.safetensors"

MOST_OPERATIONS, MOST_LINE, MOST_DIMENSIONS, MOST_VALUES, MOST_TEXT = 1 << 20, 1 << 22, 16, 1 << 14, 1 << 14
"""Limits of what is read: operations of a trace, bytes of a line, dimensions of a tensor, tensors of an operation, characters
of a text.
"""

MOST_SIZE = 1 << 48
"""Largest size, stride, id or number of elements in a trace."""

UNDEFINED = "undefined"
"""Stands for the hash of a tensor with meaningless bits, such as the state that an attention returns."""

Json = dict[str, Any]

NO_FLAGS: Mapping[str, Any] = {}


_Text = Annotated[str, Field(max_length=MOST_TEXT), AfterValidator(plain_line)]
_Size = Annotated[int, Field(strict=True, ge=0, le=MOST_SIZE)]
_Sizes = Annotated[tuple[_Size, ...], Field(max_length=MOST_DIMENSIONS)]
_Texts = Annotated[tuple[_Text, ...], Field(max_length=MOST_VALUES)]


@dataclass(slots=True)
class TensorValue:
    """A tensor at the input or the output of an operation. Its hashes are filled in when they are fetched from the device.

    id: identifies the data of a storage between two writes; views of it have the same. hash: of its bits, UNDEFINED, or ""
    where there are none to read, as of meta and of sparse tensors. parts: hashes of the parts that a mapping compares. base: of
    a view of an input of the run, the hash of its whole storage.
    """

    id: _Size
    hash: _Text
    shape: _Sizes
    strides: _Sizes
    dtype: _Text
    parts: _Texts = ()
    base: _Text = ""

    @property
    def hashes(self) -> set[str]:
        """Return hashes by which the other run may know the data."""
        return {self.hash, *self.parts, self.base} - {"", UNDEFINED}

    @property
    def size(self) -> int:
        return math.prod(self.shape)


def _checked(value: TensorValue) -> TensorValue:
    if len(value.shape) != len(value.strides) or value.size > MOST_SIZE:
        raise ValueError("a tensor has a shape that is too large, or has no strides for it")
    return value


_Value = Annotated[TensorValue, AfterValidator(_checked)]
_Values = Annotated[tuple[_Value, ...], Field(max_length=MOST_VALUES)]


class TracedOperation(NamedTuple):
    """One operation; a line of the file lists its fields. phase: forward, backward or optimizer. arguments: JSON with "tensor"
    in the place of each tensor, or "" if all are tensors. random: whether it draws random numbers. flags: torch's flags of
    matrix products when it ran. kernels: names of its GPU kernels, if they were recorded.
    """

    number: _Size
    name: _Text
    module: _Text
    phase: _Text
    inputs: _Values
    outputs: _Values
    arguments: _Text = ""
    random: bool = False
    flags: Mapping[_Text, bool | int | _Text] = NO_FLAGS
    kernels: _Texts = ()

    @property
    def packet(self) -> str:
        """Return the name without its overload: "aten.mm" of "aten.mm.default"; outside of aten, only without ".default"."""
        parts = self.name.split(".")
        return ".".join(parts[:2]) if parts[0] == "aten" else self.name.removesuffix(".default")


@dataclass
class RecordedTrace:
    """A recorded run. part: the mapping of the hashed parts, such as "batch=8". complete: False after an error, or
    without a last line.

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


class TraceWriter:
    """Write a trace line by line, so that a run that crashes leaves the operations that were added. Raises OSError.

    The file is opened at the first operation; files of an earlier trace then get a "~". A recording without operations leaves
    the folder as it was.
    """

    def __init__(self, folder: Path, part: str, versions: Mapping[str, str]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))
        self.count = 0
        self._folder = folder
        self._header: Json = {"format": FORMAT, "version": VERSION, "part": part, "versions": dict(versions)}
        self._file: TextIO | None = None

    def _open(self) -> TextIO:
        path = self._folder / OPERATION_FILE
        both = path, self._folder / OPERAND_FILE
        if any(earlier.exists() for earlier in both):
            for earlier in both:  # a backup of only one of them may be of another recording
                kept = earlier.with_name(f"{earlier.name}~")
                kept.unlink(missing_ok=True)
                if earlier.exists():
                    earlier.replace(kept)
        file = path.open("w", encoding="utf-8")
        file.write(json.dumps(self._header) + "\n")
        return file

    def add(self, operations: Sequence[TracedOperation]) -> None:
        if self._file is None:
            if all(each.name == "return" for each in operations):
                return
            self._file = self._open()
        self._file.writelines(_OPERATION.dump_json(each, exclude_defaults=True).decode() + "\n" for each in operations)
        self.count += len(operations)
        self._file.flush()

    def finish(self, stopped: str = "", complete: bool = True) -> None:
        if self._file is not None:
            end = {"end": self.count, "stopped": stopped, **({} if complete else {"complete": False})}
            self._file.write(json.dumps(end) + "\n")
            self._file.close()


class _Header(NamedTuple):
    format: Literal["accprobe trace"]
    version: Literal[1]
    part: _Text = ""
    versions: dict[_Text, _Text] = {}  # noqa: RUF012 -- pydantic copies it


class _End(NamedTuple):
    end: int
    stopped: _Text = ""
    complete: bool = True


_HEADER, _END, _OPERATION = TypeAdapter(_Header), TypeAdapter(_End), TypeAdapter(TracedOperation)


def read_trace(folder: Path) -> RecordedTrace:
    """Read a folder that `accprobe trace record` wrote. Raises RecordingError."""
    path = folder / OPERATION_FILE
    if not folder.exists():
        raise RecordingError(f"there is no folder {folder}")
    if not path.is_file():
        raise RecordingError(
            f"{folder} is not a trace: it has no file {OPERATION_FILE}; record one with `accprobe trace record`"
        )
    number = 1
    try:
        with path.open("rb") as file:
            lines = _lines(file)
            header = _HEADER.validate_json(next(lines, b""))
            trace = RecordedTrace([], header.part, header.versions, complete=False)
            for number in count(2):
                if not (line := next(lines, b"")):
                    break
                if line.startswith(b'{"end"'):
                    end = _END.validate_json(line)
                    _check_number(end.end, number - 2)
                    trace.complete, trace.stopped = end.complete, end.stopped
                    break
                trace.operations.append(_OPERATION.validate_json(line))
                _check_number(trace.operations[-1].number, number - 2)
            return trace
    except OSError as e:
        raise RecordingError(unreadable(path, e)) from None
    except (ValidationError, ValueError) as e:
        if number == 1:
            raise RecordingError(f"{path} is not a trace of accprobe of version {VERSION}: {_reason(e)}") from None
        raise RecordingError(f"{path}, line {number}: {_reason(e)}; record the trace again") from None


def _lines(file: Any) -> Iterator[bytes]:
    """Yield whole lines; the last one of a run that crashed may be incomplete. Raises ValueError if too long or many."""
    for number in count():
        line = file.readline(MOST_LINE + 1)
        if len(line) > MOST_LINE:
            raise ValueError(f"longer than {MOST_LINE:,} bytes")
        if number > MOST_OPERATIONS + 1:
            raise ValueError(f"more than {MOST_OPERATIONS:,} operations: record fewer with --limit")
        if not line.endswith(b"\n"):
            return
        yield line


def _check_number(found: int, expected: int) -> None:
    if found != expected:
        raise ValueError(f"operation {expected} is missing")


def _reason(error: ValueError) -> str:
    """Return the error in a line, and its field."""
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors(include_url=False)[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}".removeprefix(": ")
