"""What kernels' machine code says: for the terminal, as Markdown, as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from accprobe.audit.accumulators import Accumulator
from accprobe.audit.kernels import Kernel, Reading
from accprobe.isa.formats import FORMATS
from accprobe.report.report import Tool
from accprobe.sass.opcodes import parse
from accprobe.sass.promotion import UNBOUNDED, Chain

SCHEMA = 1
NAMED = 3
"""Kernels of a group that are named; `--all` has each."""


def terminal(kernels: Sequence[Kernel], reading: Reading, expand: bool = False) -> RenderableType:
    """Kernels by file; those that are alike together, unless `expand`."""
    parts: list[RenderableType] = []
    file = None
    for group in _groups(kernels, expand):
        if group[0].file != file:
            file = group[0].file
            parts.append(Text(file, "bold underline"))
        parts += _block(group)
    parts += [Text(line, "dim") for line in _sources(kernels)]
    parts.append(Text(_summary(kernels, reading), "bold"))
    return Group(*parts)


def markdown(kernels: Sequence[Kernel], reading: Reading, expand: bool = False) -> str:
    """One table, one line an opcode of a kernel, or of kernels that are alike."""
    counted = any(kernel.executed is not None for kernel in kernels)
    header = ["kernel", "architecture", "opcode", "in the text", *(["executed"] if counted else []), "accumulator", "sums"]
    lines = [header, ["---"] * len(header)]
    for group in _groups(kernels, expand):
        first, names = group[0], f"`{group[0].name}`" + (f" and {len(group) - 1} more" if len(group) > 1 else "")
        for opcode, _ in first.matrix:
            cells = [names, first.architecture, f"`{opcode}`", _counts(group, opcode)]
            cells += [_executions(group, opcode)] if counted else []
            lines.append([*cells, _bits(first.accumulators[opcode]), "; ".join(_sums(first, opcode))])
        lines += [[f"{names}: {note}", *[""] * (len(header) - 1)] for note in _notes(first)]
    table = "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)
    below = "".join(f"{line}\n" for line in [*_sources(kernels), _summary(kernels, reading)])
    return f"{table}\n{below}"


def dumps(kernels: Sequence[Kernel], reading: Reading) -> str:
    """Everything, as JSON: one kernel a line."""
    head = {
        "schema": SCHEMA,
        "kind": "sass",
        "tool": Tool.current().model_dump(exclude_none=True),
        "functions": dict(reading.functions),
        "ptx": reading.ptx,
        "unread": reading.problems,
    }
    body = ",\n".join(f"  {json.dumps(_kernel(kernel))}" for kernel in kernels)
    return f'{json.dumps(head)[:-1]},\n "kernels": [\n{body}\n ]}}\n'


def _kernel(kernel: Kernel) -> dict[str, Any]:
    known = {opcode: _accumulator(a) for opcode, a in kernel.accumulators.items()}
    data: dict[str, Any] = {
        "file": kernel.file,
        "name": kernel.name,
        "architecture": kernel.architecture,
        "opcodes": dict(kernel.matrix),
        "conversions": [{"opcode": c.opcode, "count": c.count, "feeds": list(c.feeds)} for c in kernel.conversions],
        "emulated": None if kernel.emulated is None else {"format": kernel.emulated[0], "by": kernel.emulated[1]},
        "accumulators": known,
        "sums": [_chain(chain) for chain in kernel.chains],
    }
    if kernel.executed is not None:
        data |= {"launches": kernel.launches, "executed": dict(kernel.executed)}
    return data


def _accumulator(known: Accumulator | None) -> dict[str, Any] | None:
    if known is None:
        return None
    plain = {"bits": known.bits, "bound": known.bound, "format": known.format}
    return {**plain, "alignment_bits": known.alignment_bits, "source": known.source}


def _chain(chain: Chain) -> dict[str, Any]:
    return {
        "opcodes": dict(chain.opcodes),
        "verdict": chain.verdict,
        "least": chain.least,
        "most": chain.most if chain.most < UNBOUNDED else None,
        "k": chain.k or None,
        "by": chain.by,
        "reason": chain.reason,
    }


def _groups(kernels: Sequence[Kernel], expand: bool) -> Iterator[list[Kernel]]:
    """Kernels of a file and architecture whose opcodes, sums and conversions are the same, however many of each."""
    groups: dict[object, list[Kernel]] = {}
    for number, kernel in enumerate(kernels):
        opcodes = tuple(sorted(opcode for opcode, _ in kernel.matrix))
        sums = tuple(sorted({text for opcode in opcodes for text in _sums(kernel, opcode)}))
        key = (kernel.file, kernel.architecture, opcodes, sums, kernel.emulated, kernel.executed is None)
        groups.setdefault(number if expand else key, []).append(kernel)
    yield from groups.values()


def _block(group: list[Kernel]) -> Iterator[RenderableType]:
    first = group[0]
    names = ", ".join(kernel.name for kernel in group[:NAMED]) + (", …" if len(group) > NAMED else "")
    title = Text(f"{len(group)} kernels alike: {names}" if len(group) > 1 else names, "bold", overflow="fold")
    launched = sum(kernel.launches or 0 for kernel in group)
    times = f", {launched} launch{'es' * (launched != 1)}" if first.executed is not None else ""
    yield title.append(f"  {first.architecture}{times}", "not bold")
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for justify in ("left", "right", "left", "left"):
        table.add_column(justify=justify, overflow="fold")
    for opcode, _ in first.matrix:
        known = first.accumulators[opcode]
        count = _counts(group, opcode) if first.executed is None else f"{_executions(group, opcode)} executed"
        narrow = known is not None and known.bits is not None and known.bits < FORMATS[known.format].mantissa_bits
        bits = Text(_bits(known), "bold yellow" if narrow else "" if known else "dim")
        table.add_row(opcode, count, bits, "\n".join(_sums(first, opcode)))
    yield Padding(table, (0, 0, 0, 2))
    for note in _notes(first):
        style = "magenta" if first.emulated and note.startswith("!") else "dim"
        yield Padding(Text(note, style), (0, 0, 0, 2))


def _counts(group: Iterable[Kernel], opcode: str) -> str:
    """ "×4", "×4-64" where kernels that are alike have it so often."""
    counts = [dict(kernel.matrix)[opcode] for kernel in group]
    return f"×{min(counts)}" if min(counts) == max(counts) else f"×{min(counts)}-{max(counts)}"


def _executions(group: Iterable[Kernel], opcode: str) -> str:
    return f"{sum(dict(kernel.executed or ()).get(opcode, 0) for kernel in group):,}"


def _bits(known: Accumulator | None) -> str:
    return known.text if known else "unknown"


def _sums(kernel: Kernel, opcode: str) -> list[str]:
    """What becomes of the sums that an opcode makes, one text for those that are alike."""
    return list(dict.fromkeys(sums(chain) for chain in kernel.chains if opcode in dict(chain.opcodes)))


def sums(chain: Chain) -> str:
    """ "4 × k32, then promoted by FADD: 128 products"."""
    size = f" × k{chain.k}" if chain.k else f" × {chain.unit}"
    if chain.verdict == "never":
        return "never promoted: one sum for as long as the loop runs"
    if chain.verdict == "unknown":
        least = f"; {chain.least}{size} or more" if chain.least > 1 else ""
        return f"promotion cannot be told: {chain.reason}{least}"
    total = f": {chain.products} products" if chain.k else ""
    if chain.verdict == "whole":
        return f"{chain.most}{size} in all{total}"
    count = str(chain.most) if chain.least == chain.most else f"{max(chain.least, 1)} to {chain.most}"
    return f"{count}{size}, then promoted by {chain.by}{total}"


def _notes(kernel: Kernel) -> Iterator[str]:
    if kernel.emulated:
        narrow, unit = kernel.emulated
        unpacks = ", ".join(f"{c.count}×{c.opcode}" for c in kernel.conversions if c.unpacked)
        yield f"! {narrow} operands are unpacked for {unit} ({unpacks}): the arithmetic is {unit}'s, not an {narrow} unit's"
    fed = [c for c in kernel.conversions if c.feeds and not c.unpacked]
    if fed:
        yield "fed by " + ", ".join(f"{c.count}×{c.opcode} → {' and '.join(c.feeds)}" for c in fed)


def _sources(kernels: Sequence[Kernel]) -> Iterator[str]:
    """Where accumulators are known from, one line a source."""
    found: dict[str, dict[str, None]] = {}
    for kernel in kernels:
        for opcode, known in kernel.accumulators.items():
            source = known.source if known else "unknown: neither measured nor published"
            found.setdefault(source, {})[f"{parse(opcode).stem} {kernel.architecture}"] = None
    for source, where in found.items():
        yield f"{', '.join(where)}: {source}"


def _summary(kernels: Sequence[Kernel], reading: Reading) -> str:
    every = sum(reading.functions.values())
    if any(kernel.executed is not None for kernel in kernels):
        seen = f"{every:,} launch{'es' * (every != 1)} seen"
        return f"{seen}, {len(kernels):,} kernel{'s' * (len(kernels) != 1)} executed matrix opcodes"
    by_architecture = ", ".join(f"{name} {count:,}" for name, count in reading.functions.items())
    text = f"{every:,} function{'s' * (every != 1)} read ({by_architecture}), {len(kernels):,} with matrix opcodes"
    if reading.ptx:
        text += f"; PTX for {', '.join(reading.ptx)} besides, which the driver compiles"
    return text
