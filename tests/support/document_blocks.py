"""The generated parts of README.md and docs/: `python tests/support/document_blocks.py` writes them again.

A block ends with `<!-- end -->` and begins with one of these lines; `tests/docs` checks that writing changes nothing.

- `<!-- NAME: from SOURCE -->` or `<!-- NAME: ARGUMENT -->`: the public function NAME of `blocks` returns its text.
- `<!-- output: COMMAND -->`: what the command prints. `; paragraphs REGEX` or `; lines REGEX` keeps those that match.
- `<!-- numbers: FILE, … -->`: text written by hand, whose percentages, seconds and large numbers are in these recorded results.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import blocks
from benchmark import recorded
from block_forms import ROOT, fenced, printed

PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
BLOCK = re.compile(r"(<!-- (\w+): ([^\n]+) -->\n)(.*?)(<!-- end -->\n)", re.DOTALL)
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
PERCENTAGE, LARGE = r"[\d.]+(?= ?%)", r"\b\d{1,3}(?:,\d{3})+\b|\b\d[\d.]*e[+-]\d+|\b[\d.]+(?= s\b)"

BLOCKS = {
    name: function
    for name, function in vars(blocks).items()
    if not name.startswith("_") and getattr(function, "__module__", "") == blocks.__name__
}


def written(text: str) -> str:
    """Return a page with every block as its source has it now."""
    return BLOCK.sub(lambda match: match[1] + _body(match) + match[5], text)


def _body(match: re.Match[str]) -> str:
    match match[2]:
        case "output":
            return _output(match[3])
        case "numbers":
            return match[4]
        case name:
            return BLOCKS[name](*[] if match[3].startswith("from ") else [match[3]])


def _output(source: str) -> str:
    """Return what a command prints as a block of code. source: the command and what to keep of its output."""
    command, _, kept = source.partition("; ")
    unit, _, pattern = kept.partition(" ")
    lines = printed(*shlex.split(command)[1:])
    if unit == "lines":
        entries = re.split(r"\n(?!  )", "\n".join(lines))  # The continuation of a line is indented.
        return fenced(entry for entry in entries if re.search(pattern, entry))
    paragraphs = [part for part in "\n".join(lines).split("\n\n") if re.search(pattern, part, re.MULTILINE)]
    return fenced(["\n\n".join(paragraphs)])


def names(text: str) -> list[str]:
    """Return the names of the blocks of a page."""
    return [match[2] for match in BLOCK.finditer(text)]


def unknown_numbers(text: str) -> list[str]:
    """Return the numbers in blocks of numbers that are not in their recorded results, rounded to the digits shown."""
    unknown = []
    for _, name, files, body, _ in BLOCK.findall(text):
        if name == "numbers":
            known = [abs(x) for file in files.split(", ") for x in _numbers(recorded(file))]
            prose = re.sub(r"`[^`]*`", "", body)
            unknown += [shown for shown in re.findall(PERCENTAGE, prose) if not _is_known(shown, [100 * x for x in known])]
            unknown += [shown for shown in re.findall(LARGE, prose) if not _is_known(shown.replace(",", ""), known)]
    return unknown


def _is_known(shown: str, known: list[float]) -> bool:
    exponent = Decimal(shown).as_tuple().exponent
    return any(abs(float(shown) - x) <= 0.5001 * 10.0**exponent for x in known)


def _numbers(value: Any) -> Iterator[float]:
    """Yield all numbers of a JSON value, the lengths of its lists, and the sums over each list of records."""
    match value:
        case dict():
            for each in value.values():
                yield from _numbers(each)
        case list():
            yield len(value)
            for each in value:
                yield from _numbers(each)
            records = [each for each in value if isinstance(each, dict)]
            for name in records[0] if records else ():
                yield sum(each[name] for each in records if isinstance(each.get(name), int | float))
        case int() | float():
            yield value


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(written(page.read_text(encoding="utf-8")), encoding="utf-8")
