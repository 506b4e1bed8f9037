"""`accprobe doctor`: what of the toolchain is here, what is missing, and the line that installs it."""

from __future__ import annotations

import click


@click.command()
def doctor() -> None:
    """Show what of the toolchain is here, and how to get the rest.

    Needs: nothing.

    Exit status: 0.

    \b
    Example:
      accprobe doctor
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from accprobe.build.inventory import inventory
    from accprobe.render.terminal import console

    found = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for header in ("what", "found", "for", "remark"):
        found.add_column(header, overflow="fold", max_width=24 if header == "for" else None)
    for item in inventory():
        version = Text(item.version, "green") if item.version else Text("missing", "red")
        remarks = [item.note] if item.found else [item.note, _advice(item.install)]
        found.add_row(item.name, version, item.purpose, "; ".join(filter(None, remarks)))
    console().print(found)


def _advice(install: str) -> str:
    """A command or an address gets a heading; a sentence needs none."""
    return f"install: {install}" if install.startswith(("pip ", "http")) else install
