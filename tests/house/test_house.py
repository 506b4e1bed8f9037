"""Rules of the package that no tool checks: names with one meaning, and where tests are."""

from __future__ import annotations

import re

import house

AT_THE_TOP = {"__init__.py", "__main__.py", "emulate.py", "errors.py", "py.typed"}

OTHER_TESTS = {"docs", "emulate", "house"}
"""Folders of tests without a folder of the package."""

HOMONYMS = {
    "Chain",
    "FAR",
    "Kind",
    "Overflow",
    "Row",
    "T",
    "Verdict",
    "characterise",
    "encode",
    "find",
    "main",
    "pairs",
    "parse",
    "record",
    "source",
}
"""Public names that several folders define. It may only shrink."""


def test_nothing_else_is_at_the_top() -> None:
    assert {path.name for path in house.PACKAGE.iterdir() if path.is_file()} <= AT_THE_TOP


def test_no_public_name_is_defined_in_two_folders() -> None:
    found = house.homonyms()
    assert not {name: folders for name, folders in found.items() if name not in HOMONYMS}, "rename one of each"
    assert not HOMONYMS - set(found), "these have one meaning now: remove them from HOMONYMS"


TESTS = sorted((house.ROOT / "tests").rglob("test_*.py"))


def test_each_test_is_in_the_folder_of_what_it_tests() -> None:
    folders = {path.name for path in house.PACKAGE.iterdir() if path.is_dir()}
    assert {path.relative_to(house.ROOT / "tests").parts[0] for path in TESTS} <= folders | OTHER_TESTS
    assert all(path.parents[2] == house.ROOT for path in TESTS)
    assert len({path.name for path in TESTS}) == len(TESTS), "pytest needs one name each"


def test_no_test_imports_another() -> None:
    imports = re.compile(r"^\s*(?:from|import) (test_\w+)", re.MULTILINE)
    assert not {path.name: found for path in TESTS if (found := imports.findall(path.read_text(encoding="utf-8")))}
