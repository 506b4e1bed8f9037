"""The document tree: each subject is written as one, and the writers (`terminal`, `markdown`, `html`) read nothing else.

A document is a sequence of blocks. Its text is made of phrases, each with a tone; a writer has one style for each tone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal, NamedTuple, TypeVar

from accprobe.records.claims import Status

Tone = Literal["", "strong", "quiet", "good", "bad", "warning", "narrow", "converted", "replayed"] | Status
"""narrow: few bits, a large error, or less than full load; converted: another unit did the work; replayed: recorded."""

_Key = TypeVar("_Key")
_Member = TypeVar("_Member")

GLUE = "\ue000"
"""A space at which no line is broken."""

JOINTS = re.compile(r"(?:(?=[.:](?!/))|(?<=[_=]))(?![^{]*\})")
"""Places at which a word is broken if it is longer than a line: before dots and colons, after _ and =; not in braces."""


class Phrase(NamedTuple):
    """Words in one tone. code: a name or pattern that is typed as it is. target: the anchor that a page links it to.

    about: headers of columns that the words explain; a terminal prints the words if it shows one of them.
    """

    text: str
    tone: Tone = ""
    code: bool = False
    target: str = ""
    about: frozenset[str] = frozenset()


Phrases = tuple[Phrase, ...]
Said = str | Phrase | Sequence[Phrase]


def line(words: Said) -> Phrases:
    if isinstance(words, str):
        return (Phrase(words),)
    return (words,) if isinstance(words, Phrase) else tuple(words)


def text_of(words: Said) -> str:
    """Return the words alone, with ordinary spaces."""
    return unglued("".join(span.text for span in line(words)))


def toned(words: Said, tone: Tone) -> Phrases:
    """Return the words in a tone, except phrases that have their own."""
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
    """boxed: a page draws a frame around it, because it must be read first."""

    words: Said
    boxed: bool = False


@dataclass(frozen=True)
class List:
    """mark: printed before each item on a terminal: "-", "!" or nothing. An item may be a list, which is indented further."""

    items: tuple[Said | List, ...]
    mark: str = ""


@dataclass(frozen=True)
class Column:
    """A column of a table. header: may have two lines. cell: of a record, for `tabulate`.

    need: "always" columns are never left out; "context" ones are shown while the others fit, "detail" ones while no cell takes
    a second line. detail_if_same: `tabulate` makes it "detail" where all its texts are the same. least: the smallest width.
    whole: no cell is broken. number: aligned to the right. once: a terminal shows a text of several lines as "as above" where
    the row above has it too. missing: `tabulate` shows it in an empty cell where other rows have a text.
    """

    header: str = ""
    cell: Callable[[Any], Said] | None = None
    need: Literal["always", "context", "detail"] = "always"
    detail_if_same: bool = False
    least: int = 0
    whole: bool = False
    number: bool = False
    once: bool = False
    missing: str = ""


@dataclass(frozen=True)
class Grid:
    """A table. One without headers is of facts: a label and its text.

    ends: rows with a gap below. caption: on pages alone. filtered: a page searches it.
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
class Code:
    """Lines printed as they are, with their indentation."""

    lines: tuple[str, ...]


@dataclass(frozen=True)
class Section:
    """Blocks below a title; a page folds them, unless `open`."""

    title: Said
    blocks: Callable[[], Iterable[Element]]
    level: int = 3
    anchor: str = ""
    open: bool = False


Element = Heading | Paragraph | List | Grid | Code | Section


def fact_grid(rows: Iterable[tuple[str, Said]]) -> Grid:
    """Return a table of labels with their texts."""
    return Grid((Column(whole=True), Column()), tuple((Phrase(label, "quiet"), words) for label, words in rows))


def table(columns: Iterable[Column | str], rows: Iterable[Sequence[Said]], **more: Any) -> Grid:
    """Return a table of texts without empty columns; a column may be its header alone."""
    heads, cells = [Column(each) if isinstance(each, str) else each for each in columns], [tuple(row) for row in rows]
    kept = [i for i in range(len(heads)) if not cells or any(text_of(row[i]) for row in cells)]
    return Grid(tuple(heads[i] for i in kept), tuple(tuple(row[i] for i in kept) for row in cells), **more)


def tabulate(
    columns: Sequence[Column],
    records: Iterable[Any],
    tone: Callable[[Any], Tone] | None = None,
    group: Callable[[Any], object] | None = None,
    links: str = "",
    **more: Any,
) -> Grid:
    """Return a table with a row for each record, without empty columns.

    tone: of a row. group: a gap where it changes. links: a first cell links to the anchor of this name and its number.
    """
    every = list(records)
    rows = [[toned(column.cell(record), tone(record) if tone else "") for column in columns if column.cell] for record in every]
    if links:
        rows = [[(row[0][0]._replace(target=f"{links}{i}"),), *row[1:]] for i, row in enumerate(rows)]
    texts = [{text_of(row[i]) for row in rows} for i in range(len(columns))]
    kept = [i for i, found in enumerate(texts) if any(found)]
    shown = (
        replace(columns[i], need="detail") if columns[i].detail_if_same and len(texts[i]) == 1 else columns[i] for i in kept
    )
    groups = [group(record) for record in every] if group else []
    ends = frozenset(i for i, (one, below) in enumerate(pairwise(groups)) if one != below)
    cells = (tuple(row[i] if text_of(row[i]) else columns[i].missing for i in kept) for row in rows)
    return Grid(tuple(shown), tuple(cells), ends, **more)


def grouped(members: Iterable[tuple[_Key, _Member]]) -> dict[_Key, list[_Member]]:
    """Return the members of each key, in the order in which the keys first appear."""
    groups: dict[_Key, list[_Member]] = {}
    for key, member in members:
        groups.setdefault(key, []).append(member)
    return groups


def paragraphs(texts: Iterable[Said], tone: Tone = "") -> Iterator[Paragraph]:
    return (Paragraph(toned(words, tone)) for words in texts)


def on_one_line(header: str) -> str:
    """Return a header without its line ends."""
    return header.replace("\n", " ").strip()
