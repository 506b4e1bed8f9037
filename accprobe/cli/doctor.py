"""`accprobe doctor`: what of the toolchain is here, what is missing, and the line that installs it."""

from __future__ import annotations

import click


@click.command("doctor")
def doctor_command() -> None:
    """Show what of the toolchain is here, and how to get the rest.

    Needs: nothing.

    Exit status: 0.

    \b
    Example:
      accprobe doctor
    """
    from accprobe.build.inventory import inventory
    from accprobe.render.terminal.console import console
    from accprobe.render.terminal.toolchain import inventory_table

    console().print(inventory_table(inventory()))
