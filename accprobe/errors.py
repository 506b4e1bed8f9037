"""Exceptions: every error that a user can cause is an AccprobeError with one sentence that says what to do.

Text from binaries and reports is made safe for a terminal before it is printed (`plain`).
"""

from __future__ import annotations

import difflib
import traceback
from collections.abc import Iterable
from pathlib import Path


class AccprobeError(Exception):
    """Base of every error that accprobe raises on purpose; its text is one sentence for the user."""


class UnknownName(AccprobeError):
    """A name that does not exist or does not fit; the text names near or known ones, where there are some."""


class DeviceError(AccprobeError):
    """A device cannot be opened, or a launch failed."""


class NotRecorded(DeviceError):
    """A query of a replayed device that its recording does not hold."""


class RecordingError(AccprobeError):
    """A recording that cannot be read; the text names the file and the reason."""


class ToolMissing(AccprobeError):
    """A compiler, disassembler, profiler or Python package that is not installed; the text has the install line."""


class ToolFailed(AccprobeError):
    """A program that is installed but fails on this input; the text has its error message."""


class ReportError(AccprobeError):
    """A report that cannot be read; the text names the file, the key and the reason."""


class RequirementError(AccprobeError):
    """A requirement on a report that cannot be read; the text has the line or the file, and the form that it takes."""


MOST_MEANT = 3
"""How many near names `nearest` lists."""

MOST_KNOWN = 12
"""Up to how many known names `nearest` lists if none is near."""


def nearest(name: str, known: Iterable[str], prefix: str = "") -> str:
    """Return 'did you mean a, b or c?'; if none is near, 'known are a, b and c', or how many there are.

    prefix: what precedes each name on the command line.
    """
    names = list(known)
    if meant := did_you_mean(name, names, prefix):
        return meant
    every = [prefix + each for each in names]
    if len(every) <= MOST_KNOWN:
        return f"known {'is' if len(every) == 1 else 'are'} {_listed(every, 'and')}" if every else "none is known"
    return f"there are {len(every)} known ones, such as {', '.join(every[:MOST_MEANT])}"


def did_you_mean(name: str, known: Iterable[str], prefix: str = "") -> str:
    """Return as `nearest`, but "" if none is near."""
    near = [prefix + each for each in difflib.get_close_matches(name, list(known), n=MOST_MEANT)]
    return f"did you mean {_listed(near, 'or')}?" if near else ""


def _listed(names: list[str], last: str) -> str:
    return f" {last} ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def unreadable(path: object, error: OSError) -> str:
    """Return "there is no file a.json", or "a.json cannot be read: Permission denied"."""
    if isinstance(error, FileNotFoundError):
        return f"there is no file {path}"
    return f"{path} cannot be read: {error.strerror or error}"


def defect(error: Exception) -> str:
    """Return the reason of a row if a defect of accprobe ended its measurement."""
    where = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{Path(where.filename).name}:{where.lineno}"
    return f"a defect of accprobe, please report it: {type(error).__name__}: {error} ({place})"


PICTURES = 0x2400
"""Start of Unicode's pictures of control characters: U+241B stands for an escape character, U+240A for a line end."""
_UNKNOWN = "\ufffd"
_TURNING = [*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F, 0x061C]

_SHOWN: dict[int, int | str] = {code: PICTURES + code for code in range(32) if chr(code) not in "\t\n"}
_SHOWN |= {127: PICTURES + 33}
_SHOWN |= dict.fromkeys([*range(0x80, 0xA0), *_TURNING, 0x2028, 0x2029, *range(0xD800, 0xE000)], _UNKNOWN)


def plain(text: str) -> str:
    """Return the text with a picture or U+FFFD in place of each control character, except tabs and line feeds.

    Replaces:
    - control characters of ASCII and Latin-1, which begin escape sequences
    - characters that change the direction of writing (Boucher & Anderson, "Trojan Source", arXiv 2111.00169)
    - line and paragraph separators, and surrogates, which stand for bytes of file names that are not UTF-8
    """
    return text.translate(_SHOWN)


_SHOWN_IN_A_LINE = _SHOWN | {code: PICTURES + code for code in (9, 10)}


def plain_line(text: str) -> str:
    """Return as `plain`, with pictures in place of tabs and line feeds too."""
    return text if text.isprintable() else text.translate(_SHOWN_IN_A_LINE)
