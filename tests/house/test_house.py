"""Rules of the house that no tool checks: what stands at the top, names of one meaning, and where tests stand."""

from __future__ import annotations

import ast
from fnmatch import fnmatch

import house
import pytest

AT_THE_TOP = {"__init__.py", "__main__.py", "emulate.py", "errors.py", "py.typed"}

NOT_ROOMS = {"docs", "emulate", "house"}
"""Folders of tests of what is no room: the pages, a module at the top, and the house itself."""

HOMONYMS = {
    "Chain",
    "FAR",
    "Field",
    "Kind",
    "Overflow",
    "Reading",
    "Row",
    "T",
    "Verdict",
    "characterise",
    "encode",
    "find",
    "record",
    "main",
    "pairs",
    "parse",
    "save",
    "source",
}
"""Public names that several rooms define today. It may only shrink."""


def test_nothing_else_stands_at_the_top() -> None:
    assert {path.name for path in house.PACKAGE.iterdir() if path.is_file()} <= AT_THE_TOP


def test_no_public_name_is_defined_in_two_rooms() -> None:
    found = house.homonyms()
    new = {name: rooms for name, rooms in found.items() if name not in HOMONYMS}
    assert not new, "two rooms define these; rename one of each"
    assert not HOMONYMS - set(found), "these are none any more: strike them off"


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("def f(): ...\nclass C: ...\nA = 1\nB: int = 2", ["f", "C", "A", "B"]),
        ("_A = 1\ndef _f(): ...\nif A:\n    D = 1", []),
        ("import x\nA = x.A\nB = C", []),
        ("A = dict[str, int]", ["A"]),
    ],
)
def test_what_counts_as_a_definition(source: str, names: list[str]) -> None:
    assert list(house.public_names(source)) == names


def test_imports_run_down_and_not_in_circles() -> None:
    graph = house.graph()
    assert house.upward(house.arrows(graph)) == {}
    assert house.circles(graph) == []


TESTS = sorted((house.ROOT / "tests").rglob("test_*.py"))


def test_tests_of_a_room_stand_in_a_folder_of_its_name() -> None:
    rooms = {path.name for path in house.PACKAGE.iterdir() if path.is_dir()}
    assert {path.relative_to(house.ROOT / "tests").parts[0] for path in TESTS} <= rooms | NOT_ROOMS
    assert all(path.parents[2] == house.ROOT for path in TESTS)


def test_the_tests_of_every_room_are_collected() -> None:
    """What pytest leaves out unless it is told otherwise has a folder of ours among it."""
    left_out = house.PROJECT["tool"]["pytest"]["ini_options"]["norecursedirs"]
    folders = {part for path in TESTS for part in path.relative_to(house.ROOT).parts}
    assert not [folder for folder in folders if any(fnmatch(folder, pattern) for pattern in left_out)]


def test_no_test_imports_another() -> None:
    others = {other.stem for other in TESTS}
    for path in TESTS:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom):
                assert node.module not in others, path
            elif isinstance(node, ast.Import):
                assert not others & {name.name for name in node.names}, path
