"""The processor of this machine: its name, and which of its instructions it has."""

from __future__ import annotations

import platform
import re
from functools import cache
from pathlib import Path

from accprobe.isa.architectures import PROCESSORS
from accprobe.isa.processors import MNEMONICS, Mnemonic

_CPUINFO = Path("/proc/cpuinfo")


def name() -> str:
    """As Linux has it, or what Python knows."""
    return _told("model name") or platform.processor() or platform.machine()


def architecture() -> str:
    return platform.machine()


def facts() -> dict[str, int]:
    """Return what distinguishes generations of a vendor's processors, as Linux reports it."""
    told = {"cpu_family": _told("cpu family"), "model": _told("model"), "stepping": _told("stepping")}
    return {key: int(value) for key, value in told.items() if value.isdecimal()}


def flags() -> frozenset[str]:
    return frozenset((_told("flags")).split())


def lacking(mnemonic: Mnemonic) -> list[str]:
    """The flags that an instruction needs and this processor has not."""
    if architecture() not in PROCESSORS:
        return [*PROCESSORS]
    return [flag for flag in mnemonic.flags if flag not in flags()]


def why_no_instruction() -> str | None:
    """Why this processor has none of the instructions that accprobe knows, as a clause, or None where it has one."""
    if any(not lacking(each) for each in MNEMONICS):
        return None
    if architecture() not in PROCESSORS:
        return f"accprobe knows no dot product of a processor of {architecture()}"
    wanted = dict.fromkeys(each.flags[-1] for each in MNEMONICS)
    return f"{name()} has no {' and no '.join(wanted)}"


@cache
def _told(key: str) -> str:
    """Return the value of that key for the first processor, "" if there is none."""
    try:
        text = _CPUINFO.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    found = re.search(rf"^{re.escape(key)}[ \t]*:[ \t]*(.+)$", text, re.MULTILINE)
    return found[1].strip() if found else ""
