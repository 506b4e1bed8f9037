"""Documents on a terminal, in its width."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count, pairwise, zip_longest

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from accprobe.errors import plain
from accprobe.render.document import (
    JOINTS,
    Code,
    Column,
    Element,
    Grid,
    Heading,
    List,
    Paragraph,
    Said,
    Section,
    Tone,
    line,
    on_one_line,
    text_of,
    unglued,
)

FILE_COLUMNS = 160
"""Width where the output is no terminal and COLUMNS does not say."""

NARROWEST = 80
"""Columns; a narrower terminal wraps the lines instead."""

HANG = 4
"""Columns by which lines of a paragraph after the first are indented, and a list in a list."""

CELL_HANG = 2
"""Columns by which lines of a table cell after the first are indented."""

LEAST = 8
"""Smallest width of a column. A "context" column is at least as wide as its longest word."""

STYLES: dict[Tone, str] = {
    "": "",
    "strong": "bold",
    "quiet": "dim",
    "good": "green",
    "bad": "bold red",
    "warning": "yellow",
    "narrow": "bold yellow",
    "converted": "bold magenta",
    "replayed": "bold magenta",
    "confirmed": "green",
    "inferred": "yellow",
    "unstable": "bold red",
    "unverified": "red",
    "simulated": "magenta",
    "skipped": "dim",
}


def print_blocks(blocks: Iterable[Element]) -> None:
    """Print a document on standard output; honours NO_COLOR and COLUMNS."""
    given = os.environ.get("COLUMNS", "").lstrip("0").isdigit()  # some containers export COLUMNS=0
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() or given else FILE_COLUMNS
    console = Console(width=width, highlight=False, markup=False)
    for each in screen_lines(blocks, max(width, NARROWEST)):
        console.print(each, soft_wrap=True)


def screen_lines(blocks: Iterable[Element], width: int) -> Iterator[Text]:
    """Yield the lines of a document without control characters, so that only accprobe sets colours and layout."""
    before: Element | None = None
    headers = set[str]()
    for block in _unfolded(blocks):
        if isinstance(block, Paragraph):
            block = Paragraph([span for span in line(block.words) if not span.about or span.about & headers])
            if not block.words:
                continue
        elif isinstance(block, Grid):
            headers |= {on_one_line(block.columns[i].header) for i in _fitted(block, width)[0]}
        lines = list(_lines(block, width))
        if lines and before is not None and _is_separate(before, block):
            yield Text()
        for each in lines:
            each.plain = plain(each.plain)
            yield each
        before = block if lines else before


def _unfolded(blocks: Iterable[Element]) -> Iterator[Element]:
    for block in blocks:
        if isinstance(block, Section):
            yield Heading(block.title, block.level)
            yield from _unfolded(block.blocks())
        else:
            yield block


def _is_separate(before: Element, block: Element) -> bool:
    """Return whether an empty line separates two blocks."""
    tables = [isinstance(each, Grid) and not each.is_of_facts for each in (before, block)]
    return any(tables) or (isinstance(block, Heading) and block.level > 1)


def _lines(block: Element, width: int) -> Iterator[Text]:
    if isinstance(block, Heading):
        yield from _hanging(_text(block.words, "bold"), width)
    elif isinstance(block, Paragraph):
        yield from _hanging(_text(block.words), width)
    elif isinstance(block, List):
        yield from _list(block, width, 0)
    elif isinstance(block, Code):
        for each in block.lines:
            yield from _hanging(Text(f"  {each}"), width)
    elif isinstance(block, Grid):
        yield from _table(block, width)


def _text(words: Said, style: str = "") -> Text:
    return Text.assemble(*((span.text, STYLES[span.tone] or style) for span in line(words)))


def _list(block: List, width: int, indent: int) -> Iterator[Text]:
    for item in block.items:
        if isinstance(item, List):
            yield from _list(item, width, indent + HANG)
        else:
            text = _text(item)
            mark = Text(f"{' ' * indent}{block.mark}{' ' * bool(block.mark)}", text.spans[0].style if text.spans else "")
            yield from _hanging(mark + text, width)


def _hanging(text: Text, width: int) -> Iterator[Text]:
    """Break a line between words; the lines below are indented further."""
    indent = len(text.plain) - len(text.plain.lstrip())
    yield from (Text(" " * indent) + each for each in _broken(text[indent:], width - indent, HANG))


def _broken(text: Text, width: int, hang: int) -> list[Text]:
    """Return the text in lines, broken between words; a word that is longer than a line, at its joints."""
    if "\n" in text.plain:
        return [piece for part in text.split("\n") for piece in _broken(part, width, hang)]
    pieces = list(text.divide(_breaks(text.plain, width, hang)))
    for i, piece in enumerate(pieces):
        piece.rstrip()
        piece.plain = unglued(piece.plain)
        pieces[i] = Text(" " * hang) + piece if i else piece
    return pieces


def _breaks(text: str, width: int, hang: int) -> Iterator[int]:
    """Yield the places at which a line is broken."""
    at = taken = 0
    room = width
    for word in re.findall(r"\s*\S+(?: %\S*)?", text):
        fits = cell_len(word.strip()) <= width - hang
        for piece in [word] if fits else _short(JOINTS.split(word), width - hang):
            blanks = len(piece) - len(piece.lstrip()) if taken else 0
            if taken and taken + cell_len(piece) > room:
                yield at + blanks
                taken, room = -blanks, width - hang
            at += len(piece)
            taken += cell_len(piece)


def _short(pieces: Iterable[str], width: int) -> Iterator[str]:
    """Yield pieces of a word, no longer than a line."""
    for piece in pieces:
        yield from (piece[i : i + max(width, 1)] for i in range(0, len(piece), max(width, 1)))


def _table(table: Grid, width: int) -> Iterator[Text]:
    shown, gap, widths = _fitted(table, width)
    columns = [table.columns[i] for i in shown]
    heads = [[Text(each) for each in column.header.split("\n")] for column in columns]
    if not table.is_of_facts:
        tallest = max(map(len, heads))
        heads = [[Text()] * (tallest - len(head)) + head for head in heads]
        yield from (Text.assemble((row.plain, "bold")) for row in _beside(heads, columns, widths, gap))
        yield Text("─" * (sum(widths) + gap * (len(widths) - 1)))
    yield from _rows(table, shown, widths, gap)
    if left_out := [_left_out(table, i) for i in range(len(table.columns)) if i not in shown]:
        enough = next(n for n in count(width) if len(_fitted(table, n)[0]) == len(table.columns))
        which = f"Column{'s' * (len(left_out) > 1)} left out at this width: {'; '.join(left_out)}"
        text = f"{which}; set COLUMNS={enough} to see {'them' if len(left_out) > 1 else 'it'}."
        yield from _hanging(Text(text, "dim"), width)


def _rows(table: Grid, shown: Sequence[int], widths: Sequence[int], gap: int) -> Iterator[Text]:
    """Yield the rows; a first cell that several rows of a group share is printed once."""
    columns, hang = [table.columns[i] for i in shown], 0 if table.is_of_facts else CELL_HANG
    others: list[Text] = []
    for at, row in enumerate(table.rows):
        cells = [_broken(_text(row[i]), wide, hang) for i, wide in zip(shown[1:], widths[1:], strict=True)]
        if at:
            above = [
                column.once and text_of(table.rows[at - 1][i]) == text_of(row[i])
                for i, column in zip(shown[1:], columns[1:], strict=True)
            ]
            cells = [[Text("as above")] if same and len(cell) > 1 else cell for cell, same in zip(cells, above, strict=True)]
        others += _beside(cells, columns[1:], widths[1:], gap)
        is_last, ends = at + 1 == len(table.rows), at in table.ends
        if is_last or ends or text_of(table.rows[at + 1][0]) != text_of(row[0]):
            first = _broken(_text(row[0]), widths[0], hang)
            yield from _beside([first, others], [columns[0], Column()], [widths[0], sum(widths[1:])], gap)
            others = []
        if ends and not is_last:
            yield Text()


def _beside(cells: Sequence[list[Text]], columns: Sequence[Column], widths: Sequence[int], gap: int) -> Iterator[Text]:
    """Join texts of several lines side by side."""
    for row in zip_longest(*cells, fillvalue=Text()):
        found = Text()
        for i, (text, column, wide) in enumerate(zip(row, columns, widths, strict=True)):
            blanks = " " * (wide - text.cell_len)
            found += Text.assemble(" " * gap * (i > 0), *((blanks, text) if column.number else (text, blanks)))
        found.rstrip()
        yield found


def _fitted(table: Grid, width: int) -> tuple[list[int], int, list[int]]:
    """Return the columns that are shown, the blanks between two, and their widths."""
    wide = [max(map(cell_len, texts)) for texts in (_column(table, i) for i in range(len(table.columns)))]
    words = [_longest_word(_column(table, i)) if c.need == "context" else 0 for i, c in enumerate(table.columns)]
    least = [
        w if c.whole or c.number else min(w, max(c.least, LEAST, word))
        for c, w, word in zip(table.columns, wide, words, strict=True)
    ]
    shown = list(range(len(wide)))

    def taken(of: Sequence[int] | Mapping[int, int], gap: int) -> int:
        return sum(of[i] for i in shown) + gap * (len(shown) - 1)

    gap = 2 if taken(wide, 2) <= width else 1 if taken(wide, 1) <= width else 2
    for need, of in (("detail", wide), ("context", least)):
        for i in reversed([i for i in shown if table.columns[i].need == need]):
            if taken(of, gap) > width:
                shown.remove(i)
    widths = {i: wide[i] for i in shown}
    for floor in (least, [w if column.whole else min(w, LEAST) for column, w in zip(table.columns, least, strict=True)]):
        while taken(widths, gap) > width and any(widths[i] > floor[i] for i in shown):
            widths[max(shown, key=lambda i: widths[i] - floor[i])] -= 1
    return shown, gap, list(widths.values())


def _column(table: Grid, i: int) -> list[str]:
    """Return the lines of a column, with its header."""
    cells = (text_of(row[i]).split("\n") for row in table.rows)
    return [*table.columns[i].header.split("\n"), *(each for cell in cells for each in cell)]


def _longest_word(texts: Iterable[str]) -> int:
    """Return the width in which no word is broken; each word after the first may begin an indented line."""
    return max((cell_len(word) + CELL_HANG * (i > 0) for text in texts for i, word in enumerate(text.split())), default=0)


def _left_out(table: Grid, i: int) -> str:
    """Return "C added in"; "status (confirmed everywhere)"."""
    cells = [text_of(row[i]) for row in table.rows]
    same = f" ({cells[0]} everywhere)" if cells[0] and all(a == b for a, b in pairwise(cells)) else ""
    return f"{on_one_line(table.columns[i].header)}{same}"
