"""Words that others recorded on real chips, and that the published models have, bit for bit.

This is less than a measurement, and more than none. `explained.json` beside the recorded reports has the counts, as
`accprobe verify sim:all --vectors DIR` made them; the words themselves stay with those who recorded them.

Source: F. A. Khattak and M. Mikaitis, https://github.com/north-numerical-computing/MATLAB-tensor-core (BSD 2-clause).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from accprobe.model.published import chip

EXPLAINED = "explained"
"""The file's name among the recorded reports, without its suffix."""


@dataclass(frozen=True)
class Explained:
    """How many results of real hardware a model explains, none of them wrong; of which chip, and who has them."""

    words: int
    chip: str
    source: str


def words_explained(name: str) -> dict[str, tuple[Explained, ...]]:
    """What the published models of a chip explain, by the name of the instruction. Raises UnknownName."""
    known, found = chip(name), dict[str, tuple[Explained, ...]]()
    for one in _sets():
        if chip(one["gpu"]) is known:
            explained = Explained(one["dots"], one["gpu"], one["source"])
            found[one["name"]] = (*found.get(one["name"], ()), explained)
    return found


def told_words(every: Iterable[Explained]) -> str:
    """ "10,000 words recorded on a B200 (MATLAB-tensor-core b12b5a7)": counts of one chip are added; "" of none."""
    counts: dict[tuple[str, str], int] = {}
    for one in every:
        counts[one.chip, one.source] = counts.get((one.chip, one.source), 0) + one.words
    told = [f"{words:,} {{}}on {_article(name)} {name} ({source})" for (name, source), words in counts.items()]
    return " and ".join(text.format("words recorded " * (i == 0)) for i, text in enumerate(told))


def _article(name: str) -> str:
    """As the name is spoken: an H100, a B200."""
    return "an" if name[:1] in "AEFHILMNORSX" else "a"


@cache
def _sets() -> list[dict[str, Any]]:
    text = (files("accprobe") / "reports" / f"{EXPLAINED}.json").read_text(encoding="utf-8")
    found: list[dict[str, Any]] = json.loads(text)["compared"]
    return found
