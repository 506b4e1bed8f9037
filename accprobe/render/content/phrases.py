"""Words, and the tone in which they are said; each output form has a look of its own for a tone."""

from __future__ import annotations

from typing import Literal, NamedTuple

from accprobe.report.rows import Status

Tone = (
    Literal["", "strong", "quiet", "aside", "good", "bad", "warning", "narrow", "converted", "conversion", "replayed"] | Status
)
"""aside: quiet, beside what is strong; narrow: fewer bits than the result has; converted: another unit did the work;
conversion: what is said of that.
"""

MARKED: tuple[Tone, ...] = ("bad", "narrow", "converted")
"""What nobody who skims a table must miss."""

GLUE = "\ue000"
"""A space at which no line is broken."""


class Phrase(NamedTuple):
    """Some words."""

    text: str
    tone: Tone = ""


Phrases = tuple[Phrase, ...]


def words(phrases: Phrases) -> str:
    return "".join(phrase.text for phrase in phrases)


def unglued(text: str) -> str:
    """The text with ordinary spaces."""
    return text.replace(GLUE, " ")


def on_one_line(header: str) -> str:
    """A column's header without its line ends."""
    return header.replace("\n", " ").strip()
