"""Documents as Markdown for issues and reviews: tables in pipes, every text escaped."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from accprobe.render.document import (
    Code,
    Element,
    Grid,
    Heading,
    List,
    Paragraph,
    Phrase,
    Said,
    Section,
    line,
    on_one_line,
    text_of,
    unglued,
)

_SPECIAL = re.compile(r"([\\`*{}\[\]<>#|~&!]|\b_|_\b)")


def markdown_text(blocks: Iterable[Element]) -> str:
    return "\n\n".join(_blocks(blocks)) + "\n"


def _blocks(blocks: Iterable[Element]) -> Iterator[str]:
    for block in blocks:
        if isinstance(block, Heading):
            yield f"{'#' * (block.level + 1)} {_words(block.words)}"
        elif isinstance(block, Paragraph):
            yield f"**{_plain(text_of(block.words))}**" if block.boxed else _words(block.words)
        elif isinstance(block, List):
            yield "\n".join(_items(block, ""))
        elif isinstance(block, Code):
            yield "\n".join(f"    {unglued(each)}" for each in block.lines)
        elif isinstance(block, Grid):
            yield _table(block)
        elif isinstance(block, Section):
            yield f"{'#' * (block.level + 1)} {_words(block.title)}"
            yield from _blocks(block.blocks())


def _items(block: List, indent: str) -> Iterator[str]:
    for item in block.items:
        if isinstance(item, List):
            yield from _items(item, indent + "  ")
        else:
            yield f"{indent}- {_words(item)}"


def _table(table: Grid) -> str:
    heads = [_plain(on_one_line(column.header)) for column in table.columns]
    rows = [heads, ["---"] * len(heads), *([_words(cell) for cell in row] for row in table.rows)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _words(words: Said) -> str:
    return "".join(map(_span, line(words))).strip()


def _span(span: Phrase) -> str:
    """Return a span in Markdown, a name in backticks unless it has a backtick or a backslash itself."""
    if span.code and not {"`", "\\"} & set(span.text):
        return "`" + " ".join(span.text.split()).replace("|", r"\|") + "`"
    text = _plain(span.text)
    return f"**{text}**" if span.tone in ("strong", "bad") and text.strip() == text != "" else text


def _plain(text: str) -> str:
    """Return text on one line, with the characters of inline markup escaped."""
    spaced = re.sub(r"\s+", " ", unglued(text))
    return _SPECIAL.sub(r"\\\1", spaced)
