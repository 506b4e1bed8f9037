"""What of the toolchain is here, and how to install what is missing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderableType
from rich.text import Text

from accprobe.build.inventory import Item
from accprobe.render.terminal.console import COLUMNS_APART, Hanging, ruled

PURPOSE = 24
"""Columns that what a thing is for has at most."""


@dataclass(frozen=True)
class InventoryTable:
    """A line a thing; remarks beside them, or below the table where that is too narrow for an address."""

    items: tuple[Item, ...]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        what, found, _, remark = zip(*map(_cells, self.items), strict=True)
        taken = max(map(len, what)) + PURPOSE + 3 * COLUMNS_APART
        address = max(len(word) for text in remark for word in text.split())
        of_versions = min(max(map(len, found)), options.max_width - taken - address)
        beside = of_versions >= max(len(word) for text in found for word in text.split())
        table = ruled()
        table.add_column("what")
        table.add_column("found", overflow="fold", width=of_versions if beside else None)
        table.add_column("for", max_width=PURPOSE)
        if beside:
            table.add_column("remark", overflow="fold", width=options.max_width - taken - of_versions)
        for item in self.items:
            name, version, purpose, told = _cells(item)
            styled = Text(version, "green" if item.found else "red")
            table.add_row(name, styled, purpose, *([told] if beside else []))
        yield table
        if not beside:
            remarks = zip(what, remark, strict=True)
            yield Hanging([Text.assemble((name, "bold"), f": {told}") for name, told in remarks if told], 0)


ABILITIES = {
    "read binaries": ("nvdisasm", "cuobjdump"),
    "measure this processor": ("processor",),
    "measure a GPU": ("driver", "GPU", "cupy", "cuda.core", "nvrtc"),
    "sweep block-K": ("driver", "GPU", "triton", "torch"),
}


NAMES = {"driver": "NVIDIA driver"}  # in a sentence


def abilities_line(items: Iterable[Item]) -> str:
    """ "can read reports, read binaries; cannot measure a GPU: no NVIDIA driver": the tools that each ability needs."""
    found = {item.name: item.found for item in items}
    can, cannot = ["read reports"], dict[str, list[str]]()
    for ability, needs in ABILITIES.items():
        missing = next((name for name in needs if not found.get(name)), None)
        if missing is None:
            can.append(ability)
        else:
            cannot.setdefault(f"no {NAMES.get(missing, missing)}", []).append(ability)
    lacking = (f"cannot {' or '.join(abilities)}: {reason}" for reason, abilities in cannot.items())
    return "; ".join((f"can {', '.join(can)}", *lacking))


def inventory_table(items: Iterable[Item]) -> RenderableType:
    return InventoryTable(tuple(items))


def _cells(item: Item) -> tuple[str, str, str, str]:
    remarks = [item.note] if item.found else [item.note, _advice(item.install)]
    return item.name, item.version or "missing", item.purpose, "; ".join(filter(None, remarks))


def _advice(install: str) -> str:
    """A command or an address gets a heading; a sentence needs none."""
    return f"install: {install}" if install.startswith(("pip ", "http")) else install
