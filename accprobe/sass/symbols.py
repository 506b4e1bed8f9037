"""Functions of a cubin by their symbols, in groups that a disassembler reads one after another."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import NamedTuple

LARGE_CUBIN = 8 << 20
"""Bytes of a cubin that is disassembled in parts."""

_SYMBOL_TABLE, _IS_CODE = 2, 4
_FUNCTION = 2
_SYMBOL = struct.Struct("<4xBxH16x")
"""The type of a symbol and its section."""
_SECTION = struct.Struct("<4xIQ8xQQ24x")


class _Section(NamedTuple):
    kind: int
    flags: int
    offset: int
    size: int


def symbol_groups(path: Path, limit: int) -> list[tuple[int, ...]]:
    """Return indices of symbols, one per code section, in groups of `limit` bytes of code or one section.

    A single empty group means the whole file: if it is not large, or has code without a symbol.
    """
    if path.stat().st_size <= LARGE_CUBIN:
        return [()]
    with path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as data:
        try:
            sections = list(_sections(data))
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


def _sections(data: mmap) -> Iterator[_Section]:
    (offset,) = struct.unpack_from("<Q", data, 40)
    size, count = struct.unpack_from("<HH", data, 58)
    for i in range(count):
        yield _Section(*_SECTION.unpack_from(data, offset + size * i))


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
