"""Standard output as a terminal that no text can steer, and how each tone looks there."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from accprobe.render.content.phrases import Phrase, Phrases, Tone, unglued
from accprobe.render.plain import plain

FILE_COLUMNS = 160
"""Width where the output is no terminal and COLUMNS does not say."""

NARROWEST = 80
"""Columns below which cells would be cut to single letters: a terminal that is narrower wraps the lines instead."""

STYLES: dict[Tone, str] = {
    "": "",
    "strong": "bold",
    "quiet": "dim",
    "aside": "bold dim",
    "good": "green",
    "bad": "bold red",
    "warning": "yellow",
    "narrow": "bold yellow",
    "converted": "bold magenta",
    "conversion": "magenta",
    "replayed": "bold magenta",
    "confirmed": "green",
    "inferred": "yellow",
    "unstable": "bold red",
    "unverified": "red",
    "simulated": "magenta",
    "skipped": "dim",
}


_BLANKS = re.compile(r"[ \t]+$", re.MULTILINE)


class PlainConsole(Console):
    """A console that no text can steer: whatever names and reasons hold, colours and layout are accprobe's own."""

    def print(self, *objects: Any, **how: Any) -> None:
        """As ever on a terminal; elsewhere without the blanks that fill a table's lines."""
        if self.is_terminal:
            super().print(*objects, **how)
            return
        with self.capture() as printed:
            super().print(*objects, **how)
        self.file.write(_BLANKS.sub("", printed.get()))

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=plain(segment.text))


def console() -> Console:
    """Standard output; honours NO_COLOR and COLUMNS."""
    width = None if sys.stdout.isatty() or os.environ.get("COLUMNS") else FILE_COLUMNS
    out = PlainConsole(width=width, highlight=False, markup=False, soft_wrap=False)
    out.width = max(out.width, NARROWEST)
    return out


class Hanging:
    """Lines with an indent, each its own beside the common one; what does not fit on one goes on below, further in.

    They are broken between words; a word that is longer than a line, before a dot of its own, or not at all.
    """

    def __init__(self, lines: Sequence[Text], indent: int = 2) -> None:
        self._lines, self._indent = lines, indent

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        for line in self._lines:
            own = len(line.plain) - len(line.plain.lstrip())
            line = line[own:]
            indent = " " * (self._indent + own)
            for i, piece in enumerate(line.divide(_breaks(line.plain, max(options.max_width - len(indent) - 4, 20)))):
                piece.rstrip()
                piece.plain = unglued(piece.plain)
                yield Text(indent + ("    " if i else "")) + piece


def _breaks(line: str, room: int) -> Iterator[int]:
    """Where a line is broken."""
    at = taken = 0
    for word in re.findall(r"\s*\S+", line):
        pieces = [word] if cell_len(word.strip()) <= room else _DOTS.split(word)
        for i, piece in enumerate(pieces):
            begins_a_long_one = i == 0 and len(pieces) > 1
            if taken and (begins_a_long_one or taken + cell_len(piece) > room):
                blanks = len(piece) - len(piece.lstrip())
                yield at + blanks
                taken = -blanks
            at += len(piece)
            taken += cell_len(piece)


_DOTS = re.compile(r"(?=\.)(?![^{]*\})")
"""Before the dots of a name; what braces hold is whole."""


def hanging_names(items: Iterable[tuple[str, str]]) -> Hanging:
    """Names, each with its remark beside it and below it, or ""."""
    return Hanging([Text.assemble((name, "bold"), f"  {remark}" if remark else "") for name, remark in items], indent=0)


def styled(phrase: Phrase) -> Text:
    return Text(phrase.text, STYLES[phrase.tone])


def styled_lines(lines: Iterable[Phrases]) -> Text:
    return Text("\n").join(Text.assemble(*map(styled, line)) for line in lines)


def ruled(gap: int = 1, left: int = 1) -> Table:
    """A table with a line below its headers alone. gap, left: spaces on the right and on the left of a cell."""
    return Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, gap, 0, left))


@dataclass
class WholeCells:
    """A table whose first column is whole: where not all columns fit, `dispensable` ones are left out, the first of them first.

    right: columns of numbers. rows: a cell a header, and a style. ends: rows below which a line is left empty.
    """

    headers: tuple[str, ...]
    right: tuple[str, ...]
    dispensable: tuple[str, ...]
    rows: list[tuple[tuple[str, ...], str]] = field(default_factory=list)
    ends: set[int] = field(default_factory=set)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        widths = [max(map(cell_len, column)) for column in zip(self.headers, *(cells for cells, _ in self.rows), strict=True)]
        left_out: list[str] = []
        for header in self.dispensable:
            kept = [wide for name, wide in zip(self.headers, widths, strict=True) if name not in left_out]
            if sum(kept) + COLUMNS_APART * (len(kept) - 1) <= options.max_width:
                break
            left_out += [header] if header in self.headers else []
        shown = [i for i, header in enumerate(self.headers) if header not in left_out]
        table = ruled()
        for i in shown:
            right = self.headers[i] in self.right
            table.add_column(self.headers[i], justify="right" if right else "left", no_wrap=right, overflow="fold")
        for at, (cells, style) in enumerate(self.rows):
            table.add_row(*(cells[i] for i in shown), style=style, end_section=at in self.ends)
        yield table
        if left_out:
            yield Text(f"left out at this width: {', '.join(left_out)}", "dim")


COLUMNS_APART = 3
"""Columns between two of a table that is `ruled`."""


def wrapped(name: str, room: int) -> str:
    """The name on as many lines as it needs, broken before dots."""
    broken = [""]
    for piece in _DOTS.split(name):
        if len(broken[-1]) + len(piece) > room and broken[-1].strip():
            broken.append("  ")
        broken[-1] += piece
    return "\n".join(broken)
