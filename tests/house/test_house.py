"""Rules of the package that no tool checks: names with one meaning, where tests are, words to avoid."""

from __future__ import annotations

import re
from collections import Counter
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader

import house
import pytest

AT_THE_TOP = {"__init__.py", "__main__.py", "emulate.py", "errors.py", "py.typed"}

OTHER_TESTS = {"docs", "emulate", "house"}
"""Folders of tests without a folder of the package."""

HOMONYMS = {
    "Chain",
    "Kind",
    "Overflow",
    "T",
    "characterise",
    "find",
    "main",
    "parse",
    "source",
}
"""Public names that several folders define. It may only shrink."""


AT_THE_TOP_OF_THE_REPOSITORY = {
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "LICENSE",
    "NOTICE",
    "README.md",
    "RELEASING.md",
    "pyproject.toml",
}


def test_nothing_else_is_at_the_top() -> None:
    assert {path.name for path in house.PACKAGE.iterdir() if path.is_file()} <= AT_THE_TOP
    files = {path.name for path in house.PACKAGE.parent.iterdir() if path.is_file() and not path.name.startswith(".")}
    assert files <= AT_THE_TOP_OF_THE_REPOSITORY


def test_no_public_name_is_defined_in_two_folders() -> None:
    found = house.homonyms()
    assert not {name: folders for name, folders in found.items() if name not in HOMONYMS}, "rename one of each"
    assert not HOMONYMS - set(found), "these have one meaning now: remove them from HOMONYMS"


def test_layers_and_folders_stay_few() -> None:
    assert len(set(house.layers().values())) <= 12
    modules = Counter(path.parent for path in house.files() if path.name != "__init__.py")
    assert max(modules.values()) <= 20, modules.most_common(1)


TESTS = sorted((house.ROOT / "tests").rglob("test_*.py"))


def test_each_test_is_in_the_folder_of_what_it_tests() -> None:
    folders = {path.name for path in house.PACKAGE.iterdir() if path.is_dir()}
    assert {path.relative_to(house.ROOT / "tests").parts[0] for path in TESTS} <= folders | OTHER_TESTS
    assert all(path.parents[2] == house.ROOT for path in TESTS)
    assert len({path.name for path in TESTS}) == len(TESTS), "pytest needs one name each"


def test_no_test_imports_another() -> None:
    imports = re.compile(r"^\s*(?:from|import) (test_\w+)", re.MULTILINE)
    assert not {path.name: found for path in TESTS if (found := imports.findall(path.read_text(encoding="utf-8")))}


loader = SourceFileLoader("words", str(house.ROOT / "scripts" / "words"))
words = module_from_spec(spec_from_loader(loader.name, loader))  # type: ignore[arg-type]  # a loader of a file always has one
loader.exec_module(words)


@pytest.mark.parametrize(
    ("page", "found"),
    [
        ("The device answered.", ["answered"]),
        ("It is fine. What it keeps is 13 bits.", ["What …"]),
        ("# Title\n\n- One\n- Of all rows, two differ.", ["Of …"]),
        ("What does my GEMM compute? It is confirmed.", []),
        ("The field `answer` and ``told``.\n\n```\nasked\n```", []),
        ("[names](what-is-asked.md) and <!-- told --> nothing", []),
    ],
)
def test_finds_words_and_riddles_in_pages(page: str, found: list[str]) -> None:
    assert [each.found for prose in words.of_page(page) for each in words.findings("README.md", prose)] == found


def test_searches_comments_docstrings_and_literals_but_no_names() -> None:
    source = '"""Ask it."""\n\nasked = "told"  # It answers.\n\nraise ValueError(f"no rival of {asked}")\n'
    found = [(each.line, each.found) for prose in words.of_module(source) for each in words.findings("a.py", prose)]
    assert sorted(found) == [(1, "Ask"), (3, "answers"), (5, "rival")]
