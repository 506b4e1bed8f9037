"""The search for words that the prose avoids (`scripts/words`)."""

from __future__ import annotations

from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader

import house
import pytest

loader = SourceFileLoader("words", str(house.ROOT / "scripts" / "words"))
words = module_from_spec(spec_from_loader(loader.name, loader))  # type: ignore[arg-type]
loader.exec_module(words)


@pytest.mark.parametrize(
    ("page", "found"),
    [
        ("The device answered.", ["answered"]),
        ("It is fine. What it keeps is 13 bits.", ["What …"]),
        ("# Title\n\n- One\n- Of all rows, two differ.", ["Of …"]),
        ("| a | rivals tried |", ["rivals"]),
        ("What does my GEMM compute? It is confirmed.", []),
        ("The field `answer` and ``told``.\n\n```\nasked\n```", []),
        ("[names](what-is-asked.md) and <!-- told --> nothing", []),
        ("It asks for a report. Offers are off.", []),
    ],
)
def test_finds_words_and_riddles_in_pages(page: str, found: list[str]) -> None:
    assert [each.found for prose in words.of_page(page) for each in words.findings("README.md", prose)] == found


def test_searches_comments_docstrings_and_literals_but_no_names() -> None:
    source = '"""Ask it."""\n\nasked = "told"  # It answers.\n\nraise ValueError(f"no rival of {asked}")\n'
    found = [(each.line, each.found) for prose in words.of_module(source) for each in words.findings("a.py", prose)]
    assert sorted(found) == [(1, "Ask"), (3, "answers"), (5, "rival")]
