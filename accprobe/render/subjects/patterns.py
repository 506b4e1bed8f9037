"""Instruction names as patterns.

A pattern is as a shell would expand it: "wgmma.m64n{8,256}k32.f32.e4m3.e4m3{,.rs}".
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from accprobe.render.document import Phrase

_NAME = re.compile(
    r"(?P<head>.+?)\.(?P<m>m\d+)(?P<n>n\d+)(?P<k>k\d+)(?P<saturate>\.satfinite)?(?P<rest>(?:\.[^.]+)*?)(?P<rs>\.rs)?"
)

Slots = tuple[tuple[str, ...], ...]
"""The values of each part of a name; the pattern stands for every combination."""


def brace_patterns(names: Iterable[str]) -> list[str]:
    """Return patterns that together expand to just these names of instructions, in the order of their first names.

    Other names are returned as they are.
    """
    parts = [_parts(name) for name in names]
    if any(len(each) == 1 for each in parts):
        return list(dict.fromkeys("".join(each) for each in parts))
    found: list[Slots] = [tuple((part,) for part in each) for each in parts]
    before = -1
    while len(found) != before:
        before = len(found)
        for slot in reversed(range(max(map(len, found), default=0))):
            found = _merged(found, slot)
    return ["".join(map(_written, slots)) for slots in found]


def _parts(name: str) -> list[str]:
    match = _NAME.fullmatch(name)
    if not match:
        return [name]
    words = [f".{word}" for word in match["rest"].split(".")[1:]]
    return [f"{match['head']}.", match["m"], match["n"], match["k"], match["saturate"] or "", *words, match["rs"] or ""]


def _merged(found: list[Slots], slot: int) -> list[Slots]:
    """Join patterns that differ only in one slot."""
    merged: dict[tuple[Slots, Slots], tuple[str, ...]] = {}
    kept: list[tuple[Slots, Slots]] = []
    for slots in found:
        key = (slots[:slot], slots[slot + 1 :]) if slot < len(slots) else (slots, ())
        if key not in merged:
            kept.append(key)
        values = slots[slot] if slot < len(slots) else ()
        merged[key] = tuple(dict.fromkeys([*merged.get(key, ()), *values]))
    return [(*left, merged[left, right], *right) if merged[left, right] else left for left, right in kept]


def _written(values: tuple[str, ...]) -> str:
    if len(values) == 1:
        return values[0]
    first = values[0][:1]
    if first and all(value.startswith(first) for value in values):
        return f"{first}{{{','.join(value[1:] for value in values)}}}"
    return f"{{{','.join(values)}}}"


def pattern_spans(names: Iterable[str]) -> list[Phrase]:
    """Return the names as patterns, with commas between."""
    spans = [span for pattern in brace_patterns(names) for span in (Phrase(", "), Phrase(pattern, code=True))]
    return spans[1:]
