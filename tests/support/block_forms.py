"""The forms of the generated parts of pages: a block of code, a table, a paragraph, the output of a command."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path

from click.testing import CliRunner

from accprobe.cli import main

ROOT = Path(__file__).parents[2]
COLUMNS = 120
"""Width of blocks of code."""


def fenced(lines: Iterable[str]) -> str:
    return "\n".join(["```", *lines, "```", ""])


def tabled(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(str(cell) for cell in line)} |\n" for line in lines)


def filled(text: str) -> str:
    """Return a paragraph, or an item of a list with hanging indent, as lines of at most 128 characters."""
    return textwrap.fill(text, 128, break_on_hyphens=False, subsequent_indent="  " * text.startswith("- ")) + "\n"


def printed(*arguments: str) -> list[str]:
    """Return the lines that a command prints, without spaces at their ends."""
    result = CliRunner(env={"COLUMNS": str(COLUMNS)}).invoke(main, arguments, prog_name="accprobe")
    assert result.exit_code in (0, 1), result.stderr  # 1: a difference.
    return [line.rstrip() for line in result.stdout.splitlines()]
