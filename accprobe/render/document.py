"""The document tree: each subject becomes one, and the writers (`terminal`, `markdown`, `html`) read nothing else.

A document is a sequence of blocks. Its words are spans, each with a tone; a writer has one look for each tone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from accprobe.report.rows import Status

Tone = Literal["", "strong", "quiet", "good", "bad", "warning", "narrow", "converted", "replayed"] | Status
"""narrow: fewer bits than the result has; converted: another unit did the work; replayed: from a recording."""

GLUE = "\ue000"
"""A space at which no line is broken."""


class Phrase(NamedTuple):
    """Some words. code: a name or pattern that is typed as it is. target: the anchor that a page links it to."""

    text: str
    tone: Tone = ""
    code: bool = False
    target: str = ""


Phrases = tuple[Phrase, ...]
Said = str | Phrase | Sequence[Phrase]
"""What a line is made from."""


def line(words: Said) -> Phrases:
    if isinstance(words, str):
        return (Phrase(words),)
    return (words,) if isinstance(words, Phrase) else tuple(words)


def text_of(words: Said) -> str:
    """Return the words alone, with ordinary spaces."""
    return unglued("".join(span.text for span in line(words)))


def toned(words: Said, tone: Tone) -> Phrases:
    """Return the words in a tone, but for spans that have their own."""
    return tuple(span if span.tone else span._replace(tone=tone) for span in line(words))


def unglued(text: str) -> str:
    """Return the text with ordinary spaces."""
    return text.replace(GLUE, " ")


@dataclass(frozen=True)
class Heading:
    """level: 1 of the document, 2 of a part, 3 of one of its subjects, 4 inside that."""

    words: Said
    level: int = 2
    anchor: str = ""


@dataclass(frozen=True)
class Paragraph:
    """boxed: what must be read before anything else; a page draws a frame around it."""

    words: Said
    boxed: bool = False


@dataclass(frozen=True)
class List:
    """mark: before each item on a terminal: "-", "!" or nothing. An item may be a list, which goes further in."""

    items: tuple[Said | List, ...]
    mark: str = ""


@dataclass(frozen=True)
class Column:
    """A column of a table. header: may have two lines, where width is short.

    need: "answer" columns are never left out, "context" ones only where the others would not fit, "detail" ones before any
    cell takes a second line. least: characters that the column needs. whole: no cell is broken. number: aligned to the right.
    """

    header: str = ""
    need: Literal["answer", "context", "detail"] = "answer"
    least: int = 0
    whole: bool = False
    number: bool = False


@dataclass(frozen=True)
class Grid:
    """Cells in rows. A table without headers is of facts: a label and what is said of it.

    ends: rows below which a gap is left. caption: on pages alone. filtered: a page searches it, and the sections it links to.
    A first cell that repeats within a group is shown once on a terminal.
    """

    columns: tuple[Column, ...]
    rows: tuple[tuple[Said, ...], ...]
    ends: frozenset[int] = frozenset()
    caption: str = ""
    filtered: bool = False

    @property
    def is_of_facts(self) -> bool:
        return not any(column.header for column in self.columns)


@dataclass(frozen=True)
class Figure:
    """Drawings beside one another, as SVG, which pages show and other writers leave out."""

    pictures: tuple[str, ...]
    caption: str = ""


@dataclass(frozen=True)
class Code:
    """Lines as they are, for what is indented or typed."""

    lines: tuple[str, ...]


@dataclass(frozen=True)
class Section:
    """Blocks below a title; a page folds them, unless `open`. name: what a filtered table calls it."""

    title: Said
    blocks: Callable[[], Iterable[Element]]
    level: int = 3
    anchor: str = ""
    name: str = ""
    open: bool = False


Element = Heading | Paragraph | List | Grid | Figure | Code | Section


def fact_grid(rows: Iterable[tuple[str, Said]]) -> Grid:
    """Return a table of labels, each with what is said of it."""
    return Grid((Column(whole=True), Column()), tuple((Phrase(label, "quiet"), words) for label, words in rows))


def table(columns: Iterable[Column | str], rows: Iterable[Sequence[Said]], **more: object) -> Grid:
    """Return a table; a column may be its header alone."""
    heads = tuple(Column(each) if isinstance(each, str) else each for each in columns)
    return Grid(heads, tuple(map(tuple, rows)), **more)  # type: ignore[arg-type]


def paragraphs(texts: Iterable[Said], tone: Tone = "") -> Iterator[Paragraph]:
    return (Paragraph(toned(words, tone)) for words in texts)


def on_one_line(header: str) -> str:
    """Return a header without its line ends."""
    return header.replace("\n", " ").strip()
