"""The exception tree: every error that a user can cause is an AccprobeError with one sentence that says what to do.

AccprobeError
├── UnknownName          an instruction, device, format or report that does not exist
├── DeviceError          a device that cannot be opened or that failed
│   └── NotRecorded      a replay was asked for what it does not hold
├── RecordingError       a recording that cannot be read
├── ToolMissing          a compiler, disassembler, profiler or package that is not installed
├── ReportError          a report that cannot be read
├── RequirementError     a requirement on a report that cannot be read
└── VectorsError         recorded results of hardware that cannot be read
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class AccprobeError(Exception):
    """Base of every error that accprobe raises on purpose; its text is one sentence for the user."""


class UnknownName(AccprobeError):
    """A name that does not exist; the text names the nearest known ones."""


class DeviceError(AccprobeError):
    """A device that cannot be opened, or whose launch failed."""


class NotRecorded(DeviceError):
    """A replayed device was asked for operands that its recording does not hold."""


class RecordingError(AccprobeError):
    """A recording that cannot be read; the text names the file and the reason."""


class ToolMissing(AccprobeError):
    """A compiler, disassembler, profiler or Python package that is not installed; the text has the install line."""


class ReportError(AccprobeError):
    """A report that cannot be read; the text names the file, the key and the reason."""


class RequirementError(AccprobeError):
    """A requirement on a report that cannot be read; the text has the line or the file, and the form that it takes."""


class VectorsError(AccprobeError):
    """Recorded results that cannot be read or have no model; the text names the file, and the line where it goes wrong."""


def nearest(name: str, known: Iterable[str], count: int = 3, prefix: str = "") -> str:
    """'did you mean a, b or c?', from the names nearest to `name`; all known ones where none is near and they are few.

    prefix: stands before each of them where they are typed.
    """
    names = list(known)
    if told := did_you_mean(name, names, count, prefix):
        return told
    every = [prefix + each for each in names]
    return _meant(every) if len(every) <= 12 else f"there are {len(every)} known ones, such as {', '.join(every[:count])}"


def did_you_mean(name: str, known: Iterable[str], count: int = 3, prefix: str = "") -> str:
    """As `nearest`; "" where none is near."""
    return _meant([prefix + each for each in difflib.get_close_matches(name, list(known), n=count, cutoff=0.4)])


def _meant(names: list[str]) -> str:
    *others, last = names or [""]
    return f"did you mean {', '.join(others)}{' or ' * bool(others)}{last}?" if last else ""
