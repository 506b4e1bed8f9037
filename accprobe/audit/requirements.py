"""What a project demands of its kernels, and which kernels fall short."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from accprobe.audit.accumulators import Accumulator
from accprobe.audit.kernels import Kernel
from accprobe.errors import UnknownName, nearest
from accprobe.sass import opcodes


@dataclass(frozen=True)
class Requirements:
    """bits: fewest fraction bits that every accumulator must have, unknown ones fall short; None: any.

    promoted_within: where a unit's sums are promoted after so many products at most, its bits do not matter; None: they do.
    required: every kernel with matrix opcodes has one of these; forbidden: none has any. Opcodes as far as they are given
    ("QGMMA", "HMMA.16816"), or globs.
    Raises UnknownName where such a pattern begins with no matrix opcode.
    """

    bits: int | None = None
    promoted_within: int | None = None
    required: tuple[str, ...] = ()
    forbidden: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for pattern in (*self.required, *self.forbidden):
            stem = pattern.partition(".")[0]
            if not any(fnmatchcase(known, stem) for known in opcodes.STEMS):
                raise UnknownName(f"'{pattern}' is no matrix opcode; {nearest(stem, opcodes.STEMS)}")

    def __bool__(self) -> bool:
        return self.bits is not None or bool(self.required or self.forbidden)


def shortfalls(kernels: Sequence[Kernel], demanded: Requirements) -> list[str]:
    """A sentence for everything that falls short; none at all where there is no kernel, but something is required."""
    found = [sentence for kernel in kernels for sentence in _of_kernel(kernel, demanded)]
    if demanded.required and not kernels:
        found.append(f"no kernel has a matrix opcode, and {' or '.join(demanded.required)} is required")
    return found


def _of_kernel(kernel: Kernel, demanded: Requirements) -> Iterator[str]:
    name, names = f"{kernel.name} ({kernel.architecture or 'unknown architecture'})", [opcode for opcode, _ in kernel.matrix]
    if demanded.required and not any(_matches(opcode, demanded.required) for opcode in names):
        yield f"{name} has {', '.join(names)}, and not {' or '.join(demanded.required)}"
    for opcode in names:
        if _matches(opcode, demanded.forbidden):
            yield f"{name} has {opcode}"
    if demanded.bits is not None:
        for opcode, known in kernel.accumulators.items():
            reason = _too_few(known, demanded.bits)
            if reason and not _promoted(kernel, opcode, demanded.promoted_within):
                yield f"{name} has {opcode}, whose accumulator {reason}"


def _too_few(known: Accumulator | None, bits: int) -> str:
    if known is None:
        return "is not known"
    return f"keeps {known.text} bits, fewer than {bits}" if known.bits is not None and known.bits < bits else ""


def _promoted(kernel: Kernel, opcode: str, within: int | None) -> bool:
    """Whether every sum that the opcode makes is promoted soon enough."""
    if within is None:
        return False
    chains = [chain for chain in kernel.chains if opcode in dict(chain.opcodes)]
    return bool(chains) and all(chain.verdict == "promoted" and 0 < chain.products <= within for chain in chains)


def _matches(opcode: str, patterns: Iterable[str]) -> bool:
    return any(opcode == p or opcode.startswith(f"{p}.") or fnmatchcase(opcode, p) for p in patterns)
