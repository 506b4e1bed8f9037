"""What the generated parts of pages are made of: where their sources are, a block of code, a table, a paragraph."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
COLUMNS = 120
"""Of what is shown as code."""


def fenced(lines: Iterable[str]) -> str:
    return "\n".join(["```", *lines, "```", ""])


def tabled(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(str(cell) for cell in line)} |\n" for line in lines)


def filled(text: str) -> str:
    """A paragraph, as wide as the pages are."""
    return textwrap.fill(text, 128, break_on_hyphens=False)
