"""The processor of this machine: its name, and the instructions that it supports."""

from __future__ import annotations

import platform
import re
from functools import cache
from pathlib import Path

from accprobe.isa.architectures import PROCESSORS
from accprobe.isa.processors import MNEMONICS, Mnemonic

_CPUINFO = Path("/proc/cpuinfo")


def name() -> str:
    """Return the name that Linux reports, else the one that Python reports."""
    return _field("model name") or platform.processor() or platform.machine()


def architecture() -> str:
    return platform.machine()


def facts() -> dict[str, int]:
    """Return the family, model and stepping that distinguish a vendor's processors, as Linux reports them."""
    values = {"cpu_family": _field("cpu family"), "model": _field("model"), "stepping": _field("stepping")}
    return {key: int(value) for key, value in values.items() if value.isdecimal()}


def flags() -> frozenset[str]:
    return frozenset((_field("flags")).split())


def lacking(mnemonic: Mnemonic) -> list[str]:
    """Return the CPU flags that an instruction needs and this processor lacks; on another architecture, `PROCESSORS`."""
    if architecture() not in PROCESSORS:
        return [*PROCESSORS]
    return [flag for flag in mnemonic.flags if flag not in flags()]


def explain_missing_instructions() -> str | None:
    """Return why this processor supports no instruction that accprobe knows, as a clause; None if it supports one."""
    if any(not lacking(each) for each in MNEMONICS):
        return None
    if architecture() not in PROCESSORS:
        return f"accprobe knows no dot product of a processor of {architecture()}"
    wanted = dict.fromkeys(each.flags[-1] for each in MNEMONICS)
    return f"{name()} has no {' and no '.join(wanted)}"


@cache
def _field(key: str) -> str:
    """Return the value of that key for the first processor, "" if there is none."""
    try:
        text = _CPUINFO.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    found = re.search(rf"^{re.escape(key)}[ \t]*:[ \t]*(.+)$", text, re.MULTILINE)
    return found[1].strip() if found else ""
