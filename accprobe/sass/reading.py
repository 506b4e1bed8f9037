"""Functions of a cubin line by line, from NVIDIA's disassembler."""

from __future__ import annotations

import hashlib
import re
import struct
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import NamedTuple

from accprobe.build import toolchain
from accprobe.isa.opcodes import MATRIX, MULTIPLIES

CONVERSIONS = frozenset({"F2F", "F2FP", "F2I", "F2IP", "I2F", "I2FP", "I2I", "I2IP", "FRND"})
ARITHMETIC = CONVERSIONS | MULTIPLIES | {"FADD", "FADD2", "HADD2", "DADD"}
"""Opcodes, without modifiers, that convert numbers, or add or multiply floating-point numbers."""

_TARGET = re.compile(r"^\s*\.target\s+(sm_\w+)", re.MULTILINE)
_FLAGS = re.compile(r"^\s*\.headerflags\s.*?(EF_CUDA_ACCELERATORS )?EF_CUDA_SM(\d+)", re.MULTILINE)
"""The older ELF layout, which has no `.target`."""
_SECTION = "\n.text."
"""The start of a label of a code section, before its name and a colon."""
_ROW = re.compile(
    r"^(?:([.$\w]+):|[ \t]*/\*([0-9a-f]{4,})\*/[ \t]+(?:\{[ \t]*)?(?:(@!?U?P\w+)[ \t]+)?([A-Z][A-Za-z0-9_.]*)[ \t]*([^;\n]*))",
    re.MULTILINE,
)
"""A label, or an instruction: offset, predicate, opcode, operands."""
_MATRIX_ROW = re.compile(rf"\s*/\*[0-9a-f]+\*/\s+(?:\{{\s*)?(?:@\S+\s+)?{MATRIX.pattern}")
_LINE = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+[A-Z@{]", re.MULTILINE)
_PLACE = re.compile(r"\.L\w+")

READ_CHUNK = 1 << 20
"""Characters of the disassembler's output that are read at once."""
PART = 4 << 20
"""Bytes of code of a large cubin that nvdisasm gets at once; it needs some 300 MiB of memory for them."""
LARGE_CUBIN = 8 << 20
"""Bytes of the largest cubin that is disassembled as a whole."""

_SYMBOL_TABLE, _IS_CODE = 2, 4
_FUNCTION = 2
_SYMBOL = struct.Struct("<4xBxH16x")
"""The type of a symbol and its section."""
_SECTION_HEADER = struct.Struct("<4xIQ8xQQ24x")
_CONSTANT_MOVE = re.compile(r"-RZ, RZ,")


class Line(NamedTuple):
    """One instruction: offset in bytes, predicate ("@!P0") or "", opcode with modifiers, and text of the operands."""

    offset: int
    guard: str
    opcode: str
    operands: str

    @property
    def stem(self) -> str:
        return self.opcode.partition(".")[0]

    @property
    def loads_constant(self) -> bool:
        """Return whether it is an HFMA2 that loads constants, as the compiler does when other units are busy."""
        return self.stem == "HFMA2" and _CONSTANT_MOVE.search(self.operands) is not None

    @property
    def is_arithmetic(self) -> bool:
        """Return whether it is a matrix opcode or in `ARITHMETIC`, and does more than load constants."""
        return bool(MATRIX.match(self.opcode) or self.stem in ARITHMETIC) and not self.loads_constant


@dataclass(frozen=True)
class Function:
    """One function of a binary. architecture: "sm_90a", or "" if the disassembler does not print it. labels: name -> index of
    the line after it. lines: empty for a function without matrix opcodes, if only functions with them were requested.
    """

    name: str
    architecture: str
    lines: tuple[Line, ...]
    labels: dict[str, int]

    @cached_property
    def opcodes(self) -> tuple[str, ...]:
        """Return the opcode of every line that does not load a constant."""
        return tuple(line.opcode for line in self.lines if not line.loads_constant)

    @property
    def sha256(self) -> str:
        """Return a hash of the text, with offsets from its start and numbered labels. Functions with one hash have the same
        machine code, whatever is disassembled with them.
        """
        first = self.lines[0].offset
        text = "\n".join([f"{offset - first} {guard} {opcode} {operands}" for offset, guard, opcode, operands in self.lines])
        text = _PLACE.sub(lambda found: f"line {self.labels.get(found[0], found[0])}", text)
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def arithmetic(self) -> tuple[tuple[str, int], ...]:
        """Return (opcode, count) of lines with `is_arithmetic`, in order of first appearance.

        If a part exists twice, the copy for warps with diverged threads does not count.
        """
        return tuple(Counter(line.opcode for line in self._together() if line.is_arithmetic).items())

    def _together(self) -> list[Line]:
        """Return the lines that a converged warp runs: none from the target of a BRA.DIV to the jump back."""
        copies: set[int] = set()
        for line in self.lines:
            if line.opcode.startswith("BRA.DIV") and (found := _PLACE.search(line.operands)) and found[0] in self.labels:
                start = self.labels[found[0]]
                back = (i for i, after in enumerate(self.lines[start:], start) if after.opcode == "BRA" and not after.guard)
                copies |= set(range(start, next(back, len(self.lines)) + 1))
        return [line for i, line in enumerate(self.lines) if i not in copies]


def functions(path: Path, targets: bool = True, matrix: bool = False) -> Iterator[Function]:
    """Yield every function of a cubin. Raises ToolMissing without nvdisasm, ToolFailed if it cannot read the cubin.

    targets: print the targets of jumps through a register, which takes a third of nvdisasm's time. matrix: only functions with
    matrix opcodes have lines. A large cubin is disassembled in parts, as nvdisasm keeps all of it in memory.
    """
    options = ["--print-code"] if targets else ["--print-code", "--no-dataflow"]
    for part in symbol_groups(path, PART):
        only = ["--cuda-function-index", ",".join(map(str, part))] if part else []
        with toolchain.output("nvdisasm", *options, *only, str(path)) as text:
            yield from parse(iter(partial(text.read, READ_CHUNK), ""), matrix)


def parse(text: Iterable[str], matrix: bool = False) -> Iterator[Function]:
    """Yield the functions in the output of `nvdisasm --print-code`, given in pieces. matrix: functions without matrix opcodes
    have no lines.
    """
    architecture: str | None = None
    for section in _sections(text):
        if architecture is None:
            architecture = _architecture(section)
            continue
        name, _, rows = section.partition(":")
        if not matrix or _has_matrix(rows):
            function = _function(name, architecture, rows)
            if function.lines:
                yield function
        elif _LINE.search(rows):
            yield Function(name, architecture, (), {})


def _sections(pieces: Iterable[str]) -> Iterator[str]:
    """Yield the text before the first code section, and each section from its name on."""
    section = "\n"
    for piece in pieces:
        seen = max(0, len(section) - len(_SECTION))
        section += piece
        while (end := section.find(_SECTION, seen)) >= 0:
            yield section[:end]
            section, seen = section[end + len(_SECTION) :], 0
    yield section


def _architecture(header: str) -> str:
    """Return the architecture in directives, "" if they name none."""
    if found := _TARGET.search(header):
        return found[1]
    found = _FLAGS.search(header)
    return f"sm_{found[2]}{'a' if found[1] else ''}" if found else ""


def _has_matrix(rows: str) -> bool:
    place = rows.find("MMA")
    while place >= 0:
        if _MATRIX_ROW.match(rows, rows.rfind("\n", 0, place) + 1):
            return True
        place = rows.find("MMA", place + 1)
    return False


def _function(name: str, architecture: str, rows: str) -> Function:
    lines: list[Line] = []
    labels: dict[str, int] = {}
    for label, offset, guard, opcode, operands in _ROW.findall(rows):
        if label:
            labels[label] = len(lines)
        else:  # `Line(…)` takes three times as long
            lines.append(tuple.__new__(Line, (int(offset, 16), guard, opcode, operands.rstrip())))
    return Function(name, architecture, tuple(lines), labels)


def read_line(text: str) -> Line | None:
    """Return one instruction as a profiler prints it, "@P0 FADD R1, R2, R3", at offset 0; None if there is none."""
    found = _ROW.match(f"/*0000*/ {text}")
    return Line(0, found[3] or "", found[4], found[5]) if found else None


class _Section(NamedTuple):
    kind: int
    flags: int
    offset: int
    size: int


def symbol_groups(path: Path, limit: int) -> list[tuple[int, ...]]:
    """Return indices of symbols, one per code section, in groups of at most `limit` bytes of code, or one section.

    A single empty group means the whole file: if it is not large, has no code or code without a symbol, or is damaged.
    """
    if path.stat().st_size <= LARGE_CUBIN:
        return [()]
    with path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as data:
        try:
            sections = list(_section_headers(data))
            found = _symbols(data, sections)
        except (struct.error, OverflowError):
            return [()]
    code = {i: section.size for i, section in enumerate(sections) if section.flags & _IS_CODE}
    if not code or code.keys() - found.keys():
        return [()]
    groups: list[tuple[int, ...]] = [()]
    total = 0
    for section, size in code.items():
        if groups[-1] and total + size > limit:
            groups.append(())
            total = 0
        groups[-1] += (found[section],)
        total += size
    return groups


def _section_headers(data: mmap) -> Iterator[_Section]:
    (offset,) = struct.unpack_from("<Q", data, 40)
    size, count = struct.unpack_from("<HH", data, 58)
    for i in range(count):
        yield _Section(*_SECTION_HEADER.unpack_from(data, offset + size * i))


def _symbols(data: mmap, sections: list[_Section]) -> dict[int, int]:
    """Return by section the index of a symbol in it, of a function if there is one."""
    found: dict[int, int] = {}
    functions: dict[int, int] = {}
    for table in sections:
        if table.kind != _SYMBOL_TABLE:
            continue
        for i in range(table.size // _SYMBOL.size):
            info, section = _SYMBOL.unpack_from(data, table.offset + _SYMBOL.size * i)
            (functions if info & 15 == _FUNCTION else found).setdefault(section, i)
    return found | functions
