"""Lines of text with an indent; what does not fit on one goes on below, further in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console, ConsoleOptions
from rich.text import Text

GLUE = "\ue000"
"""A space at which no line is broken."""


class Hanging:
    """The lines; each keeps its own indent beside the common one."""

    def __init__(self, lines: Sequence[Text], indent: int = 2) -> None:
        self._lines, self._indent = lines, indent

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        for line in self._lines:
            own = len(line.plain) - len(line.plain.lstrip())
            line = line[own:]
            indent = " " * (self._indent + own)
            wrapped = line.wrap(console, max(options.max_width - len(indent) - 4, 20))
            for i, piece in enumerate(wrapped):
                piece.rstrip()
                piece.plain = piece.plain.replace(GLUE, " ")
                yield Text(indent + ("    " if i else "")) + piece
