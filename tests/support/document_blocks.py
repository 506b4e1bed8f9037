"""The generated parts of README.md and docs/: `python tests/support/document_blocks.py` writes them again.

Each stands between `<!-- NAME: from SOURCE -->` and `<!-- end -->`; `tests/docs` checks that writing changes nothing.
"""

from __future__ import annotations

import re

import accuracy_blocks
import function_blocks
import printed_blocks
import report_blocks
import result_blocks
from block_forms import ROOT

PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
BLOCK = re.compile(r"(<!-- (\w+): from [^\n]+ -->\n)(.*?)(<!-- end -->\n)", re.DOTALL)
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)

BLOCKS = {
    name: function
    for module in (accuracy_blocks, function_blocks, printed_blocks, report_blocks, result_blocks)
    for name, function in vars(module).items()
    if not name.startswith("_") and getattr(function, "__module__", "") == module.__name__
}
"""Functions without arguments: every public one of these modules."""


def written(text: str) -> str:
    """Return a page with every block as its source has it now."""
    return BLOCK.sub(lambda match: match[1] + BLOCKS[match[2]]() + match[4], text)


def names(text: str) -> list[str]:
    """Return the names of the blocks of a page."""
    return [match[2] for match in BLOCK.finditer(text)]


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(written(page.read_text(encoding="utf-8")), encoding="utf-8")
