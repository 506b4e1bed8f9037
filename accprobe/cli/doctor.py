"""`accprobe doctor`: what accprobe can do here, which tools are missing, and the line that installs each."""

from __future__ import annotations

import click


@click.command("doctor")
def doctor_command() -> None:
    """Show what accprobe can do here, and how to get missing tools.

    Needs: nothing.

    Exit status: 0.

    \b
    Example:
      accprobe doctor
    """
    from accprobe.build.inventory import inventory
    from accprobe.render.terminal.console import console
    from accprobe.render.terminal.toolchain import abilities_line, inventory_table

    items = inventory()
    console().print(abilities_line(items), "", inventory_table(items), sep="\n")
