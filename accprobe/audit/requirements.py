"""The requirements of a project on its kernels, and the kernels that fail them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

from accprobe.audit.accumulators import Accumulator
from accprobe.audit.kernels import Kernel, distinct
from accprobe.errors import UnknownName, nearest
from accprobe.sass import opcodes

_Rule = Literal["accumulator", "required", "forbidden"]
"""The option of a requirement: --fail-below, --require or --forbid."""


@dataclass(frozen=True)
class Requirements:
    """bits: minimum fraction bits of every accumulator; unknown ones fail; None: any. promoted_within: sums that are promoted
    after at most so many products pass without `bits`; None: none do. required: every kernel with matrix opcodes has one of
    these; forbidden: none has any. Opcodes may be incomplete ("QGMMA", "HMMA.16816") or globs. Raises UnknownName if a pattern
    matches no known matrix opcode.
    """

    bits: int | None = None
    promoted_within: int | None = None
    required: tuple[str, ...] = ()
    forbidden: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for pattern in (*self.required, *self.forbidden):
            stem = pattern.partition(".")[0]
            if not any(fnmatchcase(known, stem) for known in opcodes.STEMS):
                raise UnknownName(f"'{pattern}' is not a matrix opcode; {nearest(stem, opcodes.STEMS)}")

    def __bool__(self) -> bool:
        return self.bits is not None or bool(self.required or self.forbidden)


@dataclass(frozen=True)
class Shortfall:
    """A failed requirement. kernels: the failing kernel, once for each file with identical text; empty if no kernel has a
    matrix opcode. opcode: the failing one; "" if no opcode matches a required one.
    """

    rule: _Rule
    kernels: tuple[Kernel, ...]
    opcode: str
    reason: str


def shortfalls(kernels: Sequence[Kernel], demanded: Requirements) -> list[Shortfall]:
    """Return all failed requirements, identical kernels once. Without any kernel with matrix opcodes, required opcodes fail."""
    found = [
        Shortfall(rule, same, opcode, reason)
        for same in distinct(kernels)
        for rule, opcode, reason in _of_kernel(same[0], demanded)
    ]
    if demanded.required and not kernels:
        found.append(
            Shortfall("required", (), "", f"no kernel has a matrix opcode, and {_either(demanded.required)} is required")
        )
    return found


def _of_kernel(kernel: Kernel, demanded: Requirements) -> Iterator[tuple[_Rule, str, str]]:
    names = [opcode for opcode, _ in kernel.matrix]
    if demanded.required and not any(_matches(opcode, demanded.required) for opcode in names):
        yield "required", "", f"it has {', '.join(names)}, and not {_either(demanded.required)}"
    for opcode in names:
        if _matches(opcode, demanded.forbidden):
            yield "forbidden", opcode, "is forbidden"
    if demanded.bits is not None:
        for opcode, known in kernel.accumulators.items():
            reason = _too_few(known, demanded.bits)
            if reason and not _promoted(kernel, opcode, demanded.promoted_within):
                yield "accumulator", opcode, reason


def _either(opcodes: Sequence[str]) -> str:
    return " or ".join(opcodes)


def _too_few(known: Accumulator | None, bits: int) -> str:
    if known is None:
        return f"has an accumulator that is not known, {bits} bits are required"
    return f"keeps {known.text} bits, fewer than {bits}" if known.bits is not None and known.bits < bits else ""


def _promoted(kernel: Kernel, opcode: str, within: int | None) -> bool:
    """Return whether every sum of the opcode is promoted after at most `within` products."""
    if within is None:
        return False
    chains = [chain for chain in kernel.chains if opcode in dict(chain.opcodes)]
    return bool(chains) and all(chain.verdict == "promoted" and 0 < chain.products <= within for chain in chains)


def _matches(opcode: str, patterns: Iterable[str]) -> bool:
    return any(opcode == p or opcode.startswith(f"{p}.") or fnmatchcase(opcode, p) for p in patterns)
