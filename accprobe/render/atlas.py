"""The atlas of lowerings as a table: what each PTX instruction becomes, and on which architectures."""

from __future__ import annotations

from collections.abc import Iterator

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from accprobe.audit.atlas import Atlas
from accprobe.render.patterns import patterns
from accprobe.report.words import lowered

HEADERS = ("instruction", "becomes", "on")


def table(atlas: Atlas) -> RenderableType:
    """For the terminal."""
    found = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for header in HEADERS:
        found.add_column(header, overflow="fold")
    for line in _lines(atlas):
        found.add_row(*line)
    return Group(found, *(Text(line, "dim") for line in _below(atlas)))


def markdown(atlas: Atlas) -> str:
    lines = [HEADERS, ("---",) * len(HEADERS), *((f"`{name}`", became, on) for name, became, on in _lines(atlas))]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines) + "".join(f"\n{line}\n" for line in _below(atlas))


def _lines(atlas: Atlas) -> Iterator[tuple[str, str, str]]:
    """Instructions that become the same on the same architectures share a line."""
    alike: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for name, became in atlas.lowerings.items():
        shown: dict[str, list[str]] = {}
        for sequence, targets in became.items():
            shown.setdefault(lowered(sequence), []).extend(targets)
        key = tuple((text, ", ".join(sorted(on, key=atlas.targets.index))) for text, on in shown.items())
        alike.setdefault(key, []).append(name)
    for key, names in alike.items():
        for pattern in patterns(names):
            for text, on in key:
                yield pattern, text, on


def _below(atlas: Atlas) -> Iterator[str]:
    yield f"compiled with NVRTC {atlas.compiler}, read with nvdisasm {atlas.disassembler}; nothing ran"
    if atlas.missing:
        yield f"No probe, or no longer known to this compiler: {', '.join(atlas.missing)}"
