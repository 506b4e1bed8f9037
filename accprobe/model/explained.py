"""Results that others recorded on real chips and that published models reproduce bit for bit.

`explained.json` beside the recorded reports holds the counts, written by `accprobe verify sim:all --vectors DIR`. The
results themselves are in the repositories of their authors.

Source: F. A. Khattak and M. Mikaitis, https://github.com/north-numerical-computing/MATLAB-tensor-core (BSD 2-clause).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

from accprobe.build.checkout import data_folder
from accprobe.model.published import chip

EXPLAINED = "explained"  # Name of the file beside the recorded reports, without its suffix.


@dataclass(frozen=True)
class Explained:
    """Count of results of a real chip that a model reproduces without a mismatch, and their source."""

    words: int
    chip: str
    source: str


def words_explained(name: str) -> dict[str, tuple[Explained, ...]]:
    """Return what the published models of a chip reproduce, by instruction name. Raises UnknownName."""
    known, found = chip(name), dict[str, tuple[Explained, ...]]()
    for one in _sets():
        if chip(one["gpu"]) is known:
            explained = Explained(one["dots"], one["gpu"], one["source"])
            found[one["name"]] = (*found.get(one["name"], ()), explained)
    return found


def explained_text(every: Iterable[Explained]) -> str:
    """Return "10,000 results recorded on a B200 (SOURCE)"; counts of one chip are added, "" if there are none."""
    counts: dict[tuple[str, str], int] = {}
    for one in every:
        counts[one.chip, one.source] = counts.get((one.chip, one.source), 0) + one.words
    texts = [f"{words:,} {{}}on {_article(name)} {name} ({source})" for (name, source), words in counts.items()]
    return " and ".join(text.format("results recorded " * (i == 0)) for i, text in enumerate(texts))


def _article(name: str) -> str:
    """Return the article of the spoken name: an H100, a B200."""
    return "an" if name[:1] in "AEFHILMNORSX" else "a"


@cache
def _sets() -> list[dict[str, Any]]:
    text = (data_folder("reports") / f"{EXPLAINED}.json").read_text(encoding="utf-8")
    found: list[dict[str, Any]] = json.loads(text)["compared"]
    return found
