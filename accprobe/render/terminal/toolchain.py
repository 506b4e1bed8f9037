"""What of the toolchain is here, and how to install what is missing."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import RenderableType
from rich.text import Text

from accprobe.build.inventory import Item
from accprobe.render.terminal.console import ruled


def inventory_table(items: Iterable[Item]) -> RenderableType:
    found = ruled()
    for header in ("what", "found", "for", "remark"):
        found.add_column(header, overflow="fold", max_width=24 if header == "for" else None)
    for item in items:
        version = Text(item.version, "green") if item.version else Text("missing", "red")
        remarks = [item.note] if item.found else [item.note, _advice(item.install)]
        found.add_row(item.name, version, item.purpose, "; ".join(filter(None, remarks)))
    return found


def _advice(install: str) -> str:
    """A command or an address gets a heading; a sentence needs none."""
    return f"install: {install}" if install.startswith(("pip ", "http")) else install
